//! What must hold of a cell, beside what the history's checker says of it.

use serde_json::Value;

use super::cell::Happened;
use super::frames::Frames;
use super::plan::{Direction, Fault, Plan, Position, Who, Wire};
use crate::history::Saw;
use crate::transcript::Side;

/// What was found; empty if all holds.
pub(super) fn judge(plan: &Plan, happened: &Happened) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |holds: bool, words: String| {
        if !holds {
            found.push(words);
        }
    };
    let Happened { struck, effects_at_fault, first, then, kept } = happened;
    check(*struck, "the fault did not happen, so the cell shows nothing".into());
    let due = u64::from(plan.direction == Direction::Reply);
    check(
        *effects_at_fault == Some(due),
        format!("{effects_at_fault:?} effects at the fault, and {due} was due"),
    );
    check(
        !must_be_lost(plan) || first.is_none(),
        format!("the call cannot have been answered, and was: {first:?}"),
    );
    let settled = |saw: &Option<Saw>| matches!(saw, Some(Saw::Settled(_)));
    check(
        !must_be_answered(plan) || settled(first),
        format!("a whole reply came, and was not believed: {first:?}"),
    );
    check(
        plan.fault != Fault::StripState || !settled(first),
        format!("answers without their state were taken: {first:?}"),
    );
    check(settled(&then[then.len() - 1]), format!("the last status settles nothing: {then:?}"));
    let again = &then[then.len() - 2];
    check(settled(again), format!("the same call again was not answered: {again:?}"));
    if plan.who == Who::Recovering {
        let count = times(&kept.client_wrote, br#""requestState""#);
        check(count == 1, format!("the recovering client sent its continuation {count} times"));
    }
    found.extend(contradiction(plan, &kept.server_wrote));
    found
}

/// Whether no whole reply to the call can have reached the client.
fn must_be_lost(plan: &Plan) -> bool {
    match (plan.fault, plan.direction, plan.position) {
        (Fault::Swap | Fault::Misname, ..) => true,
        (_, _, Position::After) => false,
        (Fault::Drop | Fault::Delay | Fault::Truncate, Direction::Reply, _) => true,
        (Fault::Drop | Fault::Delay, Direction::Request, _) => true,
        (Fault::Corrupt, Direction::Reply, Position::Middle) => plan.wire != Wire::HttpSse,
        _ => false,
    }
}

/// Whether a whole reply surely reached the client.
fn must_be_answered(plan: &Plan) -> bool {
    match (plan.fault, plan.position) {
        (Fault::Duplicate, Position::First | Position::After) => true,
        (Fault::Drop | Fault::Truncate, Position::After) => plan.direction == Direction::Reply,
        _ => false,
    }
}

/// What the replies that the server wrote say against each other: all are of one effect, which one
/// request made.
fn contradiction(plan: &Plan, server_wrote: &[u8]) -> Option<String> {
    let mut frames = match plan.wire {
        Wire::Stdio => Frames::lines(Side::Server),
        Wire::HttpJson | Wire::HttpSse => Frames::http(Side::Server),
    };
    let messages = frames.feed(server_wrote).into_iter().flat_map(|frame| frame.messages);
    let replies = messages.filter_map(|text| serde_json::from_slice::<Value>(&text).ok());
    let contents = replies.map(|mut reply| reply["result"]["structuredContent"].take());
    let made: Vec<Value> = contents.filter(|content| content["effectId"].is_number()).collect();
    let fresh_count = made.iter().filter(|content| content["replayed"] == false).count();
    let one = made.iter().all(|content| {
        content["effectId"] == made[0]["effectId"] && content["result"] == made[0]["result"]
    });
    (!one || fresh_count > 1).then(|| format!("the server's own replies disagree: {made:?}"))
}

fn times(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).filter(|window| *window == what).count()
}
