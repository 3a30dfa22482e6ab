//! The controls: the same tools without a ledger make duplicates, and the detector sees each of
//! them; the guarded server makes issue 2 for a fresh ID. A detector that never sees a duplicate
//! proves nothing about the server that makes none.

use super::Bench;
use super::checks::{check_applied, check_settled};
use super::twelve::{mint, with_cut};
use crate::child::ChildOptions;
use crate::history::{Physical, Recorder, Rule, check};
use crate::session::{Caller, Issue, Reply};

const OPERATION: &str = "control-operation";

fn issue() -> Issue {
    Issue::new(OPERATION, "Export fails", "It stops at row 65,536.")
}

fn unguarded(bench: &Bench) -> ChildOptions {
    ChildOptions { unguarded: true, ..bench.options() }
}

/// A continuation, kept for the checker.
async fn answer(caller: &Caller, issue: &Issue, state: &str, recorder: &Recorder) -> Reply {
    let call = recorder.invoke_write(issue);
    let reply = caller.resume(issue, Some(state), issue.answers()).await;
    recorder.ended(call, &reply);
    reply
}

/// That a second issue was made, and that the checker says so.
///
/// # Errors
/// If the rows cannot be read back.
///
/// # Panics
/// If there is no duplicate, or the checker does not see it.
pub fn check_duplicate(bench: &Bench, recorder: &Recorder) -> anyhow::Result<()> {
    let rows = bench.rows()?;
    assert_eq!(rows.count("issues"), 2, "the control did not duplicate: it proves nothing");
    let found = check(&recorder.history(), &Physical::of_unguarded(&rows));
    assert!(
        found.iter().any(|violation| violation.rule == Rule::OneEffect),
        "the checker does not see the duplicate: {found:?}"
    );
    Ok(())
}

/// Promise: the detector sees the duplicate that an identical retry makes.
pub(super) async fn identical(bench: &Bench) -> anyhow::Result<()> {
    twice(bench, &issue()).await
}

/// Promise: the detector sees the duplicate that a changed retry makes.
pub(super) async fn changed(bench: &Bench) -> anyhow::Result<()> {
    twice(bench, &issue().body("It stops at row 65,537.")).await
}

async fn twice(bench: &Bench, second: &Issue) -> anyhow::Result<()> {
    let recorder = Recorder::default();
    let server = bench.open(&unguarded(bench)).await?;
    let state = mint(server.caller(), &issue()).await;
    for issue in [&issue(), second] {
        answer(server.caller(), issue, &state, &recorder).await;
    }
    server.close().await?;
    check_duplicate(bench, &recorder)
}

/// Promise: the detector sees the duplicate that a retry after a lost reply makes.
pub(super) async fn after_crash(bench: &Bench) -> anyhow::Result<()> {
    let (recorder, issue) = (Recorder::default(), issue());
    let dying = bench.open(&with_cut(&unguarded(bench), "store.after_commit", 70)).await?;
    let state = mint(dying.caller(), &issue).await;
    let lost = answer(dying.caller(), &issue, &state, &recorder).await;
    assert!(matches!(lost, Reply::Lost(_)), "{lost:?}");
    dying.ends_with(70).await?;
    let server = bench.open(&unguarded(bench)).await?;
    answer(server.caller(), &issue, &state, &recorder).await;
    server.close().await?;
    check_duplicate(bench, &recorder)
}

/// Promise: the guard refuses repeats and not work: a fresh ID makes issue 2.
pub(super) async fn fresh_id(bench: &Bench) -> anyhow::Result<()> {
    let recorder = Recorder::default();
    let server = bench.open(&bench.options()).await?;
    let operations = ["first-operation-id", "second-operation-id"];
    for (number, operation_id) in (1..).zip(operations) {
        let issue = Issue { operation_id: operation_id.into(), ..issue() };
        let state = mint(server.caller(), &issue).await;
        let reply = answer(server.caller(), &issue, &state, &recorder).await;
        check_settled(&reply, "applied", number, &format!("created {number}"), false);
    }
    server.close().await?;
    let rows = bench.check_rows(2, &operations.map(|id| (id, "applied")))?;
    assert_eq!(check(&recorder.history(), &Physical::of_ledger(&rows)), []);
    Ok(())
}

/// Promise: where a ledger guards, the same retry replays and adds nothing. Gives what the client
/// saw.
///
/// # Errors
/// If the lab fails.
///
/// # Panics
/// If the promise does not hold.
pub async fn guarded_twin(bench: &Bench) -> anyhow::Result<Recorder> {
    let (recorder, issue) = (Recorder::default(), issue());
    let server = bench.open(&bench.options()).await?;
    let state = mint(server.caller(), &issue).await;
    check_applied(&answer(server.caller(), &issue, &state, &recorder).await, false);
    check_applied(&answer(server.caller(), &issue, &state, &recorder).await, true);
    server.close().await?;
    let rows = bench.check_rows(1, &[(OPERATION, "applied")])?;
    assert_eq!(check(&recorder.history(), &Physical::of_ledger(&rows)), []);
    Ok(recorder)
}
