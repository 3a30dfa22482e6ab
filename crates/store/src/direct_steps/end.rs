//! The end of a direct operation: what its sender saw, what a look at the upstream found, or that its
//! owner is gone.

use counterfoil_core::direct::{self, Change, Meaning, Report, look_up_ended};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::operation::{Event, Outcome, Phase, State, Transition};
use counterfoil_core::record::StoredResult;
use counterfoil_core::time::Timestamp;

use super::{
    Asked, Ended, Found, HANDED_BACK, LATE_CONTRADICTION, Pair, Seen, Shelf, record_step, sound,
};
use crate::direct::{Conclusion, LookupFound};
use crate::steps::check_result;

/// Takes the report of a sender. `answer` is the upstream's, if it can be kept.
pub(crate) fn conclude<S: Shelf>(
    shelf: &mut S,
    said: &Conclusion,
    answer: Option<&S::Answer>,
    now: Timestamp,
) -> Result<Ended, S::Fault> {
    let hold = &said.hold;
    let before = sound(shelf, hold.key)?;
    let holds = before.was_held(hold);
    // What asks for input and cannot be kept could not be asked again.
    let report = match said.report {
        Report::Answer(Meaning::Asks) if answer.is_none() => Report::Lost,
        report => report,
    };
    let change = direct::report(&before.kept.record, &before.item, holds, hold.leg, report);
    match change {
        Ok(Change::Step(transition)) => {
            let pair = take(&before, transition, said, answer.is_some(), now);
            let keeps = keeps(transition, answer);
            if let Some(answer) = keeps {
                let until = said.asked_until;
                let asked = Asked { digest: pair.item.leg_digest, until };
                shelf.keep_answer(hold.key, pair.item.leg, &asked, answer)?;
            }
            shelf.update_pair(&before, &pair)?;
            let kind = match said.report {
                Report::NotSent => HANDED_BACK,
                _ => transition.audit_kind(),
            };
            record_step(shelf, &pair, (kind, hold.leg), said.why.as_deref(), now)?;
            let is_given = keeps.is_some();
            Ok(Ended::Moved(Box::new(Seen { is_given, ..Seen::of(pair) })))
        }
        Ok(Change::BackToAsked) => back_to_asked(shelf, before, said, now),
        Ok(Change::LateContradiction) => {
            let mut pair = before.clone();
            pair.item.late_contradiction = true;
            shelf.update_pair(&before, &pair)?;
            let step = (LATE_CONTRADICTION, hold.leg);
            record_step(shelf, &pair, step, said.why.as_deref(), now)?;
            Ok(Ended::LateContradiction(Box::new(Seen::of(pair))))
        }
        // It was taken already, from the same holder.
        Ok(Change::Nothing) if holds && is_end_of(report, before.kept.record.state) => {
            Ok(Ended::Moved(Box::new(Seen::of(before))))
        }
        Ok(Change::Nothing) => Ok(Ended::Stale(Box::new(Seen::of(before)))),
        Err(illegal) => {
            tracing::error!(%illegal, "a report does not fit its operation; it was not taken");
            Ok(Ended::Stale(Box::new(Seen::of(before))))
        }
    }
}

/// Whether a holder's report ends in that state.
fn is_end_of(report: Report, state: State) -> bool {
    state
        == match report {
            Report::Answer(Meaning::Applied) => State::Applied,
            Report::Answer(Meaning::NotApplied) | Report::Withdrawn => State::NotApplied,
            Report::Answer(Meaning::Answered) => State::Answered,
            Report::Answer(Meaning::Asks) => State::InProgress(Phase::AwaitingInput),
            Report::Answer(Meaning::Unknown) | Report::Lost => State::InDoubt,
            Report::NotSent => State::InProgress(Phase::Claimed),
        }
}

/// The answer that a step keeps: that of a settled or answered operation, and that which asks.
fn keeps<A>(transition: Transition, answer: Option<&A>) -> Option<&A> {
    answer.filter(|_| transition.to().ages() || transition.event() == Event::Ask)
}

fn take(
    before: &Pair,
    transition: Transition,
    said: &Conclusion,
    has_answer: bool,
    now: Timestamp,
) -> Pair {
    let mut pair = before.clone();
    if transition.to().ages() {
        let result = (!has_answer).then(|| words(transition, said));
        pair.kept.settle(transition, result, now);
        return pair;
    }
    pair.kept.advance(transition);
    match transition.event() {
        Event::Ask => {
            let until = said.asked_until.unwrap_or(pair.kept.owner.lease_until);
            pair.kept.owner.lease_until = until;
        }
        // The same ID may be sent again at once, and whoever gave it back may not.
        Event::HandBack => {
            pair.item.last_send_until = None;
            pair.give_to(pair.kept.owner.boot, now);
        }
        Event::Lapse => pair.give_to(pair.kept.owner.boot, now),
        _ => {}
    }
    let in_progress = matches!(transition.to(), State::InProgress(_));
    pair.kept.record.owner = in_progress.then_some(pair.kept.owner);
    pair
}

/// What is kept of an operation that was settled without an answer that can be.
fn words(transition: Transition, said: &Conclusion) -> StoredResult {
    let given = said.result.clone().filter(|result| check_result(result).is_ok());
    given.unwrap_or_else(|| {
        StoredResult::from_text(match (said.report, transition.to()) {
            (Report::Withdrawn, _) => "the call was taken back before anything was sent",
            (_, State::NotApplied) => "refused; the upstream's answer cannot be kept",
            (_, State::Applied) => "done; the upstream's answer cannot be kept",
            _ => "answered; the upstream's answer cannot be kept",
        })
    })
}

/// A later request that was not sent: the operation waits for it again, as long as it did before.
fn back_to_asked<S: Shelf>(
    shelf: &mut S,
    before: Pair,
    said: &Conclusion,
    now: Timestamp,
) -> Result<Ended, S::Fault> {
    let mut pair = before.clone();
    let earlier = before.item.leg.saturating_sub(1);
    let kind = match shelf.asked_then(before.item.key, earlier)? {
        Some(asked) => {
            pair.item.leg = earlier;
            pair.item.leg_digest = asked.digest;
            let until = asked.until.unwrap_or(pair.kept.owner.lease_until);
            pair.give_to(pair.kept.owner.boot, until);
            pair.advance(Event::Ask).map(|_| HANDED_BACK)
        }
        // Nobody could ask for the input again.
        None => pair.advance(Event::Learn(Outcome::Unknown)),
    };
    let Ok(kind) = kind else { return Ok(Ended::Stale(Box::new(Seen::of(before)))) };
    shelf.update_pair(&before, &pair)?;
    record_step(shelf, &pair, (kind, before.item.leg), said.why.as_deref(), now)?;
    Ok(Ended::Moved(Box::new(Seen::of(pair))))
}

/// Settles an operation in doubt by what a look at the upstream found; `None` if that proves nothing.
pub(crate) fn settle_by_lookup<S: Shelf>(
    shelf: &mut S,
    found: &LookupFound,
    now: Timestamp,
) -> Result<Option<Seen>, S::Fault> {
    let before = match shelf.pair(found.key)? {
        Found::Kept(pair) => *pair,
        Found::Absent => return Ok(None),
        Found::Damaged(error) => return Err(error.into()),
    };
    let change = look_up_ended(&before.kept.record, &before.item, found.end);
    let Change::Step(transition) = change else { return Ok(None) };
    let mut pair = before.clone();
    let result = match check_result(&found.result) {
        Ok(()) => found.result.clone(),
        Err(_) => StoredResult::from_text("found at the upstream; too large to keep"),
    };
    pair.kept.settle(transition, result, now);
    shelf.update_pair(&before, &pair)?;
    let step = (transition.audit_kind(), pair.item.leg);
    record_step(shelf, &pair, step, Some(&found.how), now)?;
    Ok(Some(Seen::of(pair)))
}

/// Moves operations whose owners are gone; how many.
pub(crate) fn lapse<S: Shelf>(
    shelf: &mut S,
    max_count: usize,
    now: Timestamp,
) -> Result<usize, S::Fault> {
    let mut count = 0;
    for key in shelf.due(now, max_count)? {
        count += usize::from(lapse_one(shelf, key, now)?);
    }
    Ok(count)
}

fn lapse_one<S: Shelf>(shelf: &mut S, key: OperationKey, now: Timestamp) -> Result<bool, S::Fault> {
    let before = match shelf.pair(key)? {
        Found::Kept(pair) => *pair,
        // It must not stand before the others for ever.
        Found::Absent | Found::Damaged(_) => {
            shelf.set_aside(key)?;
            return Ok(false);
        }
    };
    let Change::Step(transition) = direct::lapse(&before.kept.record, now) else {
        return Ok(false);
    };
    let mut pair = before.clone();
    if transition.to().ages() {
        let words = "it was not sent within a day, and nothing was done";
        pair.kept.settle(transition, StoredResult::from_text(words), now);
    } else {
        pair.kept.advance(transition);
        pair.kept.record.owner = None;
    }
    // Whoever had it is told that it has it no more.
    pair.kept.owner.fence += 1;
    shelf.update_pair(&before, &pair)?;
    record_step(shelf, &pair, (transition.audit_kind(), pair.item.leg), None, now)?;
    Ok(true)
}
