//! The twelve cases of continuation replay with the official Rust SDK's client, over stdio and
//! HTTP, in each protocol revision that has the case. Clocks stand still: a later moment is another
//! server. A case panics when a promise does not hold; its error is a fault of the lab.

use serde_json::Value;

use super::checks::{
    believe, called_tools, check_applied, check_observed, check_refused, check_settled,
    check_state_refused, check_unknown, frames, sent,
};
use super::{Bench, Server};
use crate::child::ChildOptions;
use crate::cuts::{CutSpec, End};
use crate::session::{Answer, Caller, Issue, Reply};
use crate::store_faults::BarrierSpec;
use crate::transcript::Side;
use counterfoil_core::consumer::Action;

const PARTIAL: &str = "created 1; watcher absent; compensation failed";

/// Promise: the same identity and fingerprint gets the stored result, marked as replayed.
pub(super) async fn case_01_identical_retry(bench: &Bench) -> anyhow::Result<()> {
    let session = bench.open(&bench.options()).await?;
    let (caller, issue) = (session.caller(), issue("case-01-operation"));
    let state = match bench.protocol().is_modern() {
        true => Some(mint(caller, &issue).await),
        false => None,
    };
    let first = replay(caller, &issue, state.as_deref()).await;
    check_applied(&first, false);
    let second = replay(caller, &issue, state.as_deref()).await;
    check_applied(&second, true);
    // An agent's honest retry starts at round one: nothing is asked again.
    check_applied(&caller.call("create_issue", issue.arguments()).await, true);
    assert_eq!(caller.asked_count(), usize::from(!bench.protocol().is_modern()));
    session.close().await?;
    let rows = bench.check_rows(1, &[("case-01-operation", "applied")])?;
    assert_eq!(rows.rows("issues")[0]["body"], issue.body);
    Ok(())
}

/// Promise: a question writes nothing, and what was never sent is unknown: the consumer stops.
pub(super) async fn case_02_the_continuation_is_never_sent(bench: &Bench) -> anyhow::Result<()> {
    let session = bench.open(&bench.options()).await?;
    let (caller, issue) = (session.caller().clone(), issue("case-02-operation"));
    if bench.protocol().is_modern() {
        mint(&caller, &issue).await;
    } else {
        caller.will_answer(Answer::Decline);
        let declined = caller.call("create_issue", issue.arguments()).await;
        assert_eq!(declined.content()["action"], "decline");
    }
    let status = caller.status("case-02-operation").await;
    check_unknown(&status, "no_record");
    assert_eq!(believe(&status, "case-02-operation").action, Action::Stop);
    session.close().await?;
    bench.check_rows(0, &[])?;
    Ok(())
}

/// Promise: after a lost reply the status tells what became of it, and an exact replay gives the
/// stored result; there is one effect.
pub(super) async fn case_03_the_reply_is_lost(bench: &Bench) -> anyhow::Result<()> {
    let issue = issue("case-03-operation");
    let state = lose_the_reply(bench, &issue).await?;
    bench.check_rows(1, &[("case-03-operation", "applied")])?;
    let session = bench.open(&bench.options()).await?;
    let status = session.caller().status("case-03-operation").await;
    check_observed(&status, "applied", "created 1");
    assert_eq!(believe(&status, "case-03-operation").action, Action::ReturnStoredResult);
    check_applied(&replay(session.caller(), &issue, state.as_deref()).await, true);
    session.close().await?;
    bench.check_rows(1, &[("case-03-operation", "applied")])?;
    Ok(())
}

/// Promise: a changed binding is a conflict before a second effect, and shows nothing of the
/// first request.
pub(super) async fn case_04_changed_answers(bench: &Bench) -> anyhow::Result<()> {
    let session = bench.open(&bench.options()).await?;
    let (caller, issue) = (session.caller(), issue("case-04-operation"));
    let changed = if bench.protocol().is_modern() {
        let state = mint(caller, &issue).await;
        check_applied(&caller.resume(&issue, Some(&state), issue.answers()).await, false);
        let other = issue.clone().body("something else");
        caller.resume(&issue, Some(&state), other.answers()).await
    } else {
        check_applied(&caller.create_issue(&issue).await, false);
        // Here the answers stand in the arguments: nothing is asked for a known operation.
        caller.call("create_issue", issue.arguments_with_body()).await
    };
    check_refused(&changed, "operation_conflict", "none");
    let words = format!("{changed:?}");
    assert!(!words.contains("65,536") && !words.contains("created"), "{words}");
    session.close().await?;
    bench.check_rows(1, &[("case-04-operation", "applied")])?;
    Ok(())
}

/// Promise: a second valid state for a settled operation is a conflict, and a state that was
/// touched is refused, whatever was touched.
pub(super) async fn case_05_two_states_for_one_operation(bench: &Bench) -> anyhow::Result<()> {
    let session = bench.open(&bench.options()).await?;
    let (caller, issue) = (session.caller(), issue("case-05-operation"));
    let first = mint(caller, &issue).await;
    let second = mint(caller, &issue).await;
    assert_ne!(first, second, "each issue of a state has its own nonce");
    for tampered in tampered(&first) {
        check_state_refused(&caller.resume(&issue, Some(&tampered), issue.answers()).await);
    }
    bench.check_rows(0, &[])?;
    check_applied(&caller.resume(&issue, Some(&first), issue.answers()).await, false);
    let other = caller.resume(&issue, Some(&second), issue.answers()).await;
    check_refused(&other, "operation_conflict", "none");
    for tampered in tampered(&first) {
        check_state_refused(&caller.resume(&issue, Some(&tampered), issue.answers()).await);
    }
    session.close().await?;
    bench.check_rows(1, &[("case-05-operation", "applied")])?;
    Ok(())
}

/// Promise: another principal is refused in the very words of a changed request, cannot use the
/// state, and learns nothing from a status.
pub(super) async fn case_06_another_principal(bench: &Bench) -> anyhow::Result<()> {
    let issue = issue("case-06-operation");
    let alices = bench.open(&bench.options()).await?;
    let alice = alices.caller();
    let state = match bench.protocol().is_modern() {
        true => Some(mint(alice, &issue).await),
        false => None,
    };
    check_applied(&replay(alice, &issue, state.as_deref()).await, false);
    let other_title = Issue { title: "Another title".into(), ..issue.clone() };
    let changed = alice.call("create_issue", other_title.arguments()).await;
    let options = ChildOptions { principal: "bob".into(), ..bench.options() };
    let bobs = bench.open(&options).await?;
    let bob = bobs.caller();
    let foreign = bob.call("create_issue", issue.arguments()).await;
    check_refused(&foreign, "operation_conflict", "none");
    assert_eq!(foreign, changed);
    if let Some(state) = state {
        check_state_refused(&bob.resume(&issue, Some(&state), issue.answers()).await);
    }
    check_unknown(&bob.status("case-06-operation").await, "no_record");
    let absent = bob.status("case-06-operation-absent").await;
    let as_if = |reply: &Reply| {
        reply.content().to_string().replace("case-06-operation-absent", "case-06-operation")
    };
    assert_eq!(as_if(&bob.status("case-06-operation").await), as_if(&absent));
    bobs.close().await?;
    alices.close().await?;
    bench.check_rows(1, &[("case-06-operation", "applied")])?;
    Ok(())
}

/// Promise: after its authority ended a continuation writes nothing and replays nothing, though
/// state and retention are valid; the status still recovers the result.
pub(super) async fn case_07_authority_ends(bench: &Bench) -> anyhow::Result<()> {
    let options = ChildOptions { authority_s: 60, state_s: 3600, ..bench.options() };
    let (made, unmade) = (issue("case-07-operation"), issue("case-07-operation-unmade"));
    let session = bench.open(&options).await?;
    let state = mint(session.caller(), &made).await;
    let unused = mint(session.caller(), &unmade).await;
    check_applied(&session.caller().resume(&made, Some(&state), made.answers()).await, false);
    session.close().await?;
    for (seconds, ended) in [(59, false), (60, true)] {
        let session = bench.open(&later(&options, seconds)).await?;
        let caller = session.caller();
        let again = caller.resume(&made, Some(&state), made.answers()).await;
        if ended {
            check_refused(&again, "operation_authority_expired", "status_only");
            let fresh = caller.resume(&unmade, Some(&unused), unmade.answers()).await;
            check_refused(&fresh, "operation_authority_expired", "status_only");
        } else {
            check_applied(&again, true);
        }
        check_observed(&caller.status("case-07-operation").await, "applied", "created 1");
        check_unknown(&caller.status("case-07-operation-unmade").await, "no_record");
        session.close().await?;
    }
    bench.check_rows(1, &[("case-07-operation", "applied")])?;
    Ok(())
}

/// Promise: of two processes that apply the same continuation at the same time one makes the
/// effect and the other gets its result.
pub(super) async fn case_08_two_processes_at_once(bench: &Bench) -> anyhow::Result<()> {
    let issue = issue("case-08-operation");
    let state = match bench.protocol().is_modern() {
        true => Some(mint_on(bench, &bench.options(), &issue).await?),
        false => None,
    };
    let barrier = BarrierSpec { directory: bench.path("barrier"), process_count: 2 };
    let options = ChildOptions { barrier: Some(barrier), ..bench.options() };
    let sessions = [bench.open(&options).await?, bench.open(&options).await?];
    let [one, other] = sessions.each_ref().map(Server::caller);
    let (one, other) = tokio::join!(
        replay(one, &issue, state.as_deref()),
        replay(other, &issue, state.as_deref())
    );
    let (first, second) =
        if one.content()["replayed"] == false { (one, other) } else { (other, one) };
    check_applied(&first, false);
    check_applied(&second, true);
    for session in sessions {
        session.close().await?;
    }
    bench.check_rows(1, &[("case-08-operation", "applied")])?;
    Ok(())
}

/// Promise: after a hard exit the status alone recovers the result; nothing else is sent.
pub(super) async fn case_09_status_alone_recovers(bench: &Bench) -> anyhow::Result<()> {
    lose_the_reply(bench, &issue("case-09-operation")).await?;
    let session = bench.open(&bench.options()).await?;
    let transcript = session.transcript().to_owned();
    let status = session.caller().status("case-09-operation").await;
    check_observed(&status, "applied", "created 1");
    assert_eq!(believe(&status, "case-09-operation").action, Action::ReturnStoredResult);
    session.close().await?;
    assert_eq!(called_tools(&transcript)?, ["get_operation_status"]);
    let methods: Vec<Value> =
        sent(&transcript)?.into_iter().map(|mut frame| frame["method"].take()).collect();
    let handshake: &[&str] = match bench.protocol().is_modern() {
        true => &["server/discover"],
        false => &["initialize", "notifications/initialized"],
    };
    assert_eq!(methods, [handshake, &["tools/call"]].concat());
    bench.check_rows(1, &[("case-09-operation", "applied")])?;
    Ok(())
}

/// Promise: after replay retention the ID is refused by every way in, its record stays, and the
/// old ID never becomes new work.
pub(super) async fn case_10_retention_ends(bench: &Bench) -> anyhow::Result<()> {
    let options = ChildOptions { retention_s: 60, ..bench.options() };
    let issue = issue("case-10-operation");
    let state = mint_on(bench, &options, &issue).await?;
    // Round one writes nothing, so that a state of a later moment can be minted beforehand.
    let late_state = mint_on(bench, &later(&options, 590), &issue).await?;
    let session = bench.open(&options).await?;
    check_applied(&session.caller().resume(&issue, Some(&state), issue.answers()).await, false);
    session.close().await?;
    // Seconds after the effect, and whether state and retention still hold then.
    for (seconds, state_holds, retained) in
        [(59, true, true), (60, true, false), (599, true, false), (600, false, false)]
    {
        let session = bench.open(&later(&options, seconds)).await?;
        let caller = session.caller();
        let exact = caller.resume(&issue, Some(&state), issue.answers()).await;
        match (state_holds, retained) {
            (true, true) => check_applied(&exact, true),
            (true, false) => check_refused(&exact, "operation_retention_expired", "status_only"),
            (false, _) => check_state_refused(&exact),
        }
        if !retained {
            let anew = caller.call("create_issue", issue.arguments()).await;
            check_refused(&anew, "operation_retention_expired", "status_only");
        }
        if seconds >= 590 {
            let fresh = caller.resume(&issue, Some(&late_state), issue.answers()).await;
            check_refused(&fresh, "operation_retention_expired", "status_only");
        }
        assert_eq!(caller.status("case-10-operation").await.content()["state"], "applied");
        session.close().await?;
        bench.check_rows(1, &[("case-10-operation", "applied")])?;
    }
    Ok(())
}

/// Promise: answers without their state have no effect, and a fresh round still works.
pub(super) async fn case_11_the_state_is_stripped(bench: &Bench) -> anyhow::Result<()> {
    let session = bench.open(&bench.options()).await?;
    let transcript = session.transcript().to_owned();
    let (caller, issue) = (session.caller(), issue("case-11-operation"));
    mint(caller, &issue).await;
    check_state_refused(&caller.resume(&issue, None, issue.answers()).await);
    check_unknown(&caller.status("case-11-operation").await, "no_record");
    bench.check_rows(0, &[])?;
    check_applied(&caller.create_issue(&issue).await, false);
    session.close().await?;
    bench.check_rows(1, &[("case-11-operation", "applied")])?;
    let answered = frames(&transcript, Side::Server)?;
    assert!(answered.iter().all(|frame| frame.whole), "every reply is a whole frame");
    Ok(())
}

/// Promise: a partial effect stays visible as it is, with its failed compensation under an
/// identity of its own, and a replay repeats nothing.
pub(super) async fn case_12_a_partial_effect(bench: &Bench) -> anyhow::Result<()> {
    let session = bench.open(&bench.options()).await?;
    let (caller, issue) = (session.caller(), issue("case-12-operation").partial());
    let state = match bench.protocol().is_modern() {
        true => Some(mint(caller, &issue).await),
        false => None,
    };
    let first = replay(caller, &issue, state.as_deref()).await;
    check_settled(&first, "partial", 1, PARTIAL, false);
    let second = replay(caller, &issue, state.as_deref()).await;
    check_settled(&second, "partial", 1, PARTIAL, true);
    let status = caller.status("case-12-operation").await;
    check_observed(&status, "partial", PARTIAL);
    assert_eq!(believe(&status, "case-12-operation").action, Action::Stop);
    session.close().await?;
    let rows = bench.check_rows(1, &[("case-12-operation", "partial")])?;
    assert_eq!(rows.count("watchers"), 0);
    let failed: Vec<&Value> = rows
        .rows("audit_events")
        .iter()
        .filter(|event| event["kind"] == "compensation_failed")
        .collect();
    let [failed] = &failed[..] else { panic!("{:?}", rows.rows("audit_events")) };
    assert_ne!(failed["identity"], "case-12-operation", "{failed}");
    assert!(failed["identity"].as_str().is_some_and(|own| !own.is_empty()), "{failed}");
    Ok(())
}

fn issue(case: &str) -> Issue {
    Issue::new(case, "Export fails", "It stops at row 65,536.")
}

/// The defaults, at a later moment.
pub(super) fn later(options: &ChildOptions, seconds: i64) -> ChildOptions {
    ChildOptions { clock_ms: options.clock_ms + seconds * 1000, ..options.clone() }
}

pub(super) fn with_cut(options: &ChildOptions, point: &str, code: i32) -> ChildOptions {
    ChildOptions { cut: vec![CutSpec::first(point, End::Exit(code))], ..options.clone() }
}

/// Round one: a question with sealed state, and nothing written.
pub(super) async fn mint(caller: &Caller, issue: &Issue) -> String {
    caller.call("create_issue", issue.arguments()).await.state().to_owned()
}

/// Round one on a server of its own.
async fn mint_on(bench: &Bench, options: &ChildOptions, issue: &Issue) -> anyhow::Result<String> {
    let session = bench.open(options).await?;
    let state = mint(session.caller(), issue).await;
    session.close().await?;
    Ok(state)
}

/// Makes the issue on a server that exits after the commit and before the reply. Gives the state.
///
/// # Errors
/// If no server can be had.
pub async fn lose_the_reply(bench: &Bench, issue: &Issue) -> anyhow::Result<Option<String>> {
    let session = bench.open(&with_cut(&bench.options(), "store.after_commit", 70)).await?;
    let caller = session.caller().clone();
    let (reply, state) = if bench.protocol().is_modern() {
        let state = mint(&caller, issue).await;
        (caller.resume(issue, Some(&state), issue.answers()).await, Some(state))
    } else {
        (caller.create_issue(issue).await, None)
    };
    assert!(matches!(reply, Reply::Lost(_)), "{reply:?}");
    session.ends_with(70).await?;
    Ok(state)
}

/// The exact retry: the same continuation, or the same call where there is none.
async fn replay(caller: &Caller, issue: &Issue, state: Option<&str>) -> Reply {
    match state {
        Some(state) => caller.resume(issue, Some(state), issue.answers()).await,
        None => caller.create_issue(issue).await,
    }
}

/// One changed character in each eighth of the text, one more and one less, and padding.
fn tampered(state: &str) -> Vec<String> {
    let changed = (0..8).map(|eighth| {
        let at = state.len() * eighth / 8;
        let other = if state.as_bytes()[at] == b'A' { "B" } else { "A" };
        format!("{}{other}{}", &state[..at], &state[at + 1..])
    });
    let length = [format!("{state}A"), format!("{state}="), state[..state.len() - 1].to_owned()];
    changed.chain(length).collect()
}
