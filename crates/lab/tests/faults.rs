//! Fault schedules: hard exits between statements, a lock held elsewhere, an effect that fails
//! after its insert, a partial that nobody finishes, a full disk.

mod common;

use std::path::Path;
use std::process::Command;

use common::{
    Bench, HeldLock, SmallDisk, check_applied, check_observed, check_refused, check_settled,
    check_unknown, close, product,
};
use counterfoil_lab::child::ChildOptions;
use counterfoil_lab::cuts::{CutSpec, End};
use counterfoil_lab::process::Ended;
use counterfoil_lab::session::{Issue, Protocol, Reply, Session};
use counterfoil_lab::store_faults::BarrierSpec;
use serde_json::Value;

const MODERN: Protocol = Protocol::V2026_07_28;
const PARTIAL: &str = "created 1; watcher absent; compensation failed";
/// Before this test was written: leases that were given then have ended on any machine's clock.
const LONG_AGO_MS: i64 = 1_600_000_000_000;

fn issue(id: &str) -> Issue {
    Issue::new(id, "Export fails", "It stops at row 65,536.")
}

/// A hard exit, and the facts that it leaves.
struct Exit {
    point: &'static str,
    code: i32,
    partial: bool,
    /// The state that is recorded, if any.
    recorded: Option<&'static str>,
}

#[tokio::test]
async fn a_hard_exit_leaves_all_or_nothing() {
    // Promise: record and effect commit together, and a reply comes after the commit: an exit
    // before it leaves nothing, one after it leaves everything.
    let exits = [
        Exit { point: "store.after_ledger_insert", code: 71, partial: false, recorded: None },
        Exit { point: "store.after_effect_insert", code: 72, partial: false, recorded: None },
        Exit {
            point: "store.after_first_commit",
            code: 73,
            partial: true,
            recorded: Some("in_progress"),
        },
        Exit { point: "store.after_commit", code: 70, partial: false, recorded: Some("applied") },
        Exit { point: "store.after_commit", code: 70, partial: true, recorded: Some("partial") },
    ];
    for exit in exits {
        let bench = Bench::new(&format!("exit-{}-{}", exit.code, exit.partial));
        let issue = if exit.partial { issue("exit").partial() } else { issue("exit") };
        let mut options = bench.options();
        options.cut.push(CutSpec::first(exit.point, End::Exit(exit.code)));
        let session = bench.open(&options, MODERN).await;
        let reply = session.caller().create_issue(&issue).await;
        assert!(matches!(reply, Reply::Lost(_)), "{}: {reply:?}", exit.point);
        assert_eq!(session.ended().await.expect("it ends"), Ended::Code(exit.code));
        let states: Vec<(&str, &str)> =
            exit.recorded.into_iter().map(|state| ("exit", state)).collect();
        bench.check_rows(states.len() as u64, &states);
        check_after_restart(&bench, &issue, exit.recorded).await;
    }
}

/// What status and the same ID come to on the next server.
async fn check_after_restart(bench: &Bench, issue: &Issue, recorded: Option<&str>) {
    let session = bench.open(&bench.options(), MODERN).await;
    let caller = session.caller();
    let status = caller.status("exit").await;
    let again = caller.create_issue(issue).await;
    match recorded {
        None => {
            check_unknown(&status, "no_record");
            check_applied(&again, false);
        }
        Some("in_progress") => {
            check_unknown(&status, "first_step_committed");
            check_refused(&again, "operation_in_progress", "status_only");
        }
        Some("applied") => {
            check_observed(&status, "applied", "created 1");
            check_applied(&again, true);
        }
        Some(_) => {
            check_observed(&status, "partial", PARTIAL);
            check_settled(&again, "partial", 1, PARTIAL, true);
        }
    }
    close(session).await;
    bench.check_rows(1, &[("exit", recorded.unwrap_or("applied"))]);
}

#[tokio::test]
async fn a_lock_held_elsewhere_is_a_clear_refusal() {
    // Promise: while another process holds the ledger's lock, a call is refused with nothing
    // written, whether it waits for the lock or not; reading goes on; the same ID works later.
    for lock_wait_ms in [0, 1000] {
        let bench = Bench::new(&format!("lock-{lock_wait_ms}"));
        let options = ChildOptions { lock_wait_ms, ..bench.options() };
        let session = bench.open(&options, MODERN).await;
        let (caller, issue) = (session.caller(), issue("lock"));
        let state = caller.call("create_issue", issue.arguments()).await.state().to_owned();
        let lock = HeldLock::take(&bench.ledger());
        let refused = caller.resume(&issue, Some(&state), issue.answers()).await;
        check_refused(&refused, "store_unavailable", "same_operation");
        let words = refused.refusal()["message"].as_str().expect("words");
        assert!(words.contains("write lock") && words.contains("nothing was written"), "{words}");
        check_unknown(&caller.status("lock").await, "no_record");
        bench.check_rows(0, &[]);
        lock.release();
        check_applied(&caller.resume(&issue, Some(&state), issue.answers()).await, false);
        close(session).await;
        bench.check_rows(1, &[("lock", "applied")]);
    }
}

#[tokio::test]
async fn an_effect_that_fails_after_its_insert_is_rolled_back() {
    // Promise: an effect that fails leaves neither row nor record, and the same ID applies once.
    let bench = Bench::new("rollback");
    let options = ChildOptions { fail_effect_once: true, ..bench.options() };
    let session = bench.open(&options, MODERN).await;
    let (caller, issue) = (session.caller(), issue("rollback"));
    let state = caller.call("create_issue", issue.arguments()).await.state().to_owned();
    let failed = caller.resume(&issue, Some(&state), issue.answers()).await;
    check_refused(&failed, "store_unavailable", "same_operation");
    check_unknown(&caller.status("rollback").await, "no_record");
    bench.check_rows(0, &[]);
    check_applied(&caller.resume(&issue, Some(&state), issue.answers()).await, false);
    check_applied(&caller.resume(&issue, Some(&state), issue.answers()).await, true);
    close(session).await;
    bench.check_rows(1, &[("rollback", "applied")]);
}

/// Leaves a partial between its two steps. The clock stands long ago, so that its lease has ended.
async fn leave_unfinished(bench: &Bench, issue: &Issue) -> ChildOptions {
    let options = ChildOptions { clock_ms: LONG_AGO_MS, ..bench.options() };
    let mut cut = options.clone();
    cut.cut.push(CutSpec::first("store.after_first_commit", End::Exit(73)));
    let session = bench.open(&cut, MODERN).await;
    let lost = session.caller().call("create_issue", issue.arguments_with_body()).await;
    assert!(matches!(lost, Reply::Lost(_)), "{lost:?}");
    assert_eq!(session.ended().await.expect("it ends"), Ended::Code(73));
    options
}

/// Runs `counterfoil operation resolve half …` and gives its exit code and its JSON.
fn resolve(data_dir: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = Command::new(product())
        .args(["operation", "resolve", "half", "--json", "--reason", "I looked", "--as", "mara"])
        .args(arguments)
        .arg("--data-dir")
        .arg(data_dir)
        .output()
        .expect("the product runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let told = serde_json::from_slice(&output.stdout);
    (output.status.code(), told.unwrap_or_else(|_| panic!("no JSON; stderr: {errors}")))
}

#[tokio::test]
async fn an_operator_settles_a_partial_that_nobody_finishes() {
    // Promise: what a person decides is recorded with who and why, is what everybody sees from then
    // on, and is decided once; a row that is still seen is contradicted only with proof.
    let bench = Bench::new("resolve");
    let issue = issue("half").partial();
    let options = leave_unfinished(&bench, &issue).await;
    let (code, told) = resolve(&options.data_dir, &["--not-applied"]);
    assert_eq!((code, &told["outcome"]), (Some(4), &"effect_stands".into()), "{told}");
    bench.check_rows(1, &[("half", "in_progress")]);
    let (code, told) = resolve(&options.data_dir, &["--applied"]);
    assert_eq!((code, &told["outcome"]), (Some(0), &"resolved".into()), "{told}");
    let (code, told) = resolve(&options.data_dir, &["--applied"]);
    assert_eq!((code, &told["outcome"]), (Some(4), &"illegal".into()), "{told}");
    let session = bench.open(&options, MODERN).await;
    let status = session.caller().status("half").await;
    let seen = status.content();
    assert_eq!(
        (&seen["state"], &seen["detail"]),
        (&"applied".into(), &"resolved_by_operator".into())
    );
    let again = session.caller().call("create_issue", issue.arguments_with_body()).await;
    assert_eq!(again.content()["replayed"], true);
    close(session).await;
    let rows = bench.check_rows(1, &[("half", "applied")]);
    let audit = rows.rows("audit_events").iter();
    let by_mara: Vec<_> = audit.filter(|event| event["who"] == "mara").collect();
    assert_eq!(by_mara.len(), 1, "{by_mara:?}");
    assert_eq!(by_mara[0]["reason"], "I looked");
}

#[tokio::test]
async fn an_operator_is_refused_while_a_server_may_be_at_work() {
    // Promise: as long as its owner's lease lives, an operation is not settled over the owner's
    // head.
    let bench = Bench::new("resolve-owned");
    let mut options = bench.options();
    options.cut.push(CutSpec::first("store.after_first_commit", End::Exit(73)));
    let session = bench.open(&options, MODERN).await;
    let arguments = issue("half").partial().arguments_with_body();
    assert!(matches!(session.caller().call("create_issue", arguments).await, Reply::Lost(_)));
    session.ended().await.expect("it ends");
    // The lab's clock stands in the future of the machine's, and the ledger's time never goes back.
    let (code, told) = resolve(&options.data_dir, &["--applied"]);
    assert_eq!((code, &told["outcome"]), (Some(4), &"owned".into()), "{told}");
    bench.check_rows(1, &[("half", "in_progress")]);
}

/// A partial that waits between its two steps, until the returned barrier is passed.
async fn between_two_steps(
    bench: &Bench,
    options: ChildOptions,
) -> (Session, BarrierSpec, tokio::task::JoinHandle<Reply>) {
    let barrier = BarrierSpec { directory: bench.path("barrier"), process_count: 2 };
    let options = ChildOptions { finish_barrier: Some(barrier.clone()), ..options };
    let session = bench.open(&options, MODERN).await;
    let caller = session.caller().clone();
    let arguments = issue("settle").partial().arguments_with_body();
    let call = tokio::spawn(async move { caller.call("create_issue", arguments).await });
    barrier.wait_for(1).await;
    (session, barrier, call)
}

#[tokio::test]
async fn a_settlement_waits_for_a_lock_and_is_not_lost() {
    // Promise: a lock that is held when an operation settles delays the settlement and loses
    // nothing: it is tried for as long as the process lives.
    let bench = Bench::new("lock-at-settle");
    let options = ChildOptions { lock_wait_ms: 0, ..bench.options() };
    let (mut session, barrier, call) = between_two_steps(&bench, options).await;
    let lock = HeldLock::take(&bench.ledger());
    barrier.arrive();
    // Twice, so that a retry was refused as well as the first try.
    let waits = "an operation's last step waits for the ledger";
    while session.process().stderr().matches(waits).count() < 2 {
        tokio::task::yield_now().await;
    }
    check_unknown(&session.caller().status("settle").await, "first_step_committed");
    lock.release();
    check_settled(&call.await.expect("no panic"), "partial", 1, PARTIAL, false);
    close(session).await;
    bench.check_rows(1, &[("settle", "partial")]);
}

#[tokio::test]
async fn a_full_disk_refuses_new_work_and_settles_what_was_begun() {
    // Promise: without room a call is refused with nothing written and the same ID works later;
    // what was begun is settled in the room that is kept for it. No answer is ever false.
    let bench = Bench::new("full-disk");
    let Some(disk) = SmallDisk::mount(bench.path("small")) else { return };
    let mut options = ChildOptions::new(&bench.path("small/data"));
    options.lock_wait_ms = 0;
    let (session, barrier, call) = between_two_steps(&bench, options.clone()).await;
    let caller = session.caller();
    let filler = disk.fill();
    let big = Issue::new("full", "A big one", &"x".repeat(500_000));
    let refused = caller.call("create_issue", big.arguments_with_body()).await;
    check_refused(&refused, "store_unavailable", "same_operation");
    let words = refused.refusal()["message"].as_str().expect("words");
    assert!(words.contains("full"), "{words}");
    check_unknown(&caller.status("full").await, "no_record");
    barrier.arrive();
    check_settled(&call.await.expect("no panic"), "partial", 1, PARTIAL, false);
    std::fs::remove_file(filler).expect("the filler is there");
    let later = caller.call("create_issue", big.arguments_with_body()).await;
    check_settled(&later, "applied", 2, "created 2", false);
    close(session).await;
    let rows = counterfoil_lab::readback::read(&options.ledger()).expect("read back");
    let states: Vec<(String, String)> = rows.states().into_iter().collect();
    let expected = [("full", "applied"), ("settle", "partial")];
    assert_eq!(states, expected.map(|(id, state)| (id.to_owned(), state.to_owned())));
}
