//! Random SIGKILLs under load. `COUNTERFOIL_TEST_KILLS` sets their number, `COUNTERFOIL_TEST_SEED`
//! the plan; both are printed when something is found.

mod common;

use std::path::PathBuf;

use common::{Bench, LAB, check_refused, check_unknown, close, full, note};
use counterfoil_lab::child::ChildOptions;
use counterfoil_lab::cuts::{CutSpec, End};
use counterfoil_lab::kills::{Campaign, Summary, run};
use counterfoil_lab::process::Ended;
use counterfoil_lab::session::{Issue, Protocol, Reply};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs a campaign; the words say how to run it again.
async fn campaign(kill_count: u32, server_count: usize, unguarded: bool) -> (Summary, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let seed = number("COUNTERFOIL_TEST_SEED").unwrap_or_else(|| getrandom::u64().expect("random"));
    let campaign = Campaign {
        lab: PathBuf::from(LAB),
        data_dir: folder.path().join("data"),
        kill_count,
        seed,
        server_count,
        client_count: 8,
        unguarded,
    };
    let again = format!("COUNTERFOIL_TEST_SEED={seed} COUNTERFOIL_TEST_KILLS={kill_count}");
    let summary = run(&campaign).await.unwrap_or_else(|error| panic!("{again}: {error:#}"));
    if !unguarded {
        note(&format!("{summary:?}"));
    }
    // The campaign itself must have been one: with load, with losses, with something left.
    assert!(summary.call_count > kill_count as usize, "{again}: {summary:?}");
    assert!(summary.lost_count > 0 && summary.issue_count > 0, "{again}: {summary:?}");
    (summary, again)
}

/// A campaign that must find nothing.
async fn check_campaign(kill_count: u32, server_count: usize) {
    let (summary, again) = campaign(kill_count, server_count, false).await;
    assert_eq!(summary.violations, [] as [String; 0], "{again}");
}

fn kill_count() -> u32 {
    let default = if full() { 200 } else { 25 };
    number("COUNTERFOIL_TEST_KILLS").map_or(default, |count| count.try_into().expect("a count"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_kills_lose_and_repeat_nothing() {
    // Promise: whenever the server dies, what it acknowledged is there, an identity has at most one
    // effect, and what is unknown is found out by asking.
    check_campaign(kill_count(), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_kills_of_one_of_two_servers_on_one_file() {
    // Promise: the same while another server works on the same ledger, and goes on.
    check_campaign(kill_count().div_ceil(2), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_load_without_a_ledger_is_found_to_duplicate() {
    // Promise: the campaign can fail: without a ledger the same load leaves what it looks for.
    let (summary, again) = campaign(3, 1, true).await;
    let duplicates = summary.violations.iter().filter(|found| found.starts_with("OneEffect"));
    assert!(duplicates.count() > 0, "{again}: {summary:?}");
}

#[tokio::test]
async fn a_partial_killed_after_its_first_commit_stays_unfinished() {
    // Promise: what died between its two steps is never finished or repeated by anybody; status and
    // replay say that nobody knows.
    let bench = Bench::new("kill-partial");
    let issue = Issue::new("half", "Export fails", "It stops at row 65,536.").partial();
    let cut = CutSpec::first("store.after_first_commit", End::Kill);
    let options = ChildOptions { cut: vec![cut], ..bench.options() };
    let arguments = issue.arguments_with_body();
    // Without a relay, which would turn the signal into an exit code.
    let launch = common::launch(&options);
    let session = counterfoil_lab::session::Session::open(&launch, Protocol::V2026_07_28)
        .await
        .expect("the child serves");
    let lost = session.caller().call("create_issue", arguments.clone()).await;
    assert!(matches!(lost, Reply::Lost(_)), "{lost:?}");
    assert_eq!(session.ended().await.expect("it ends"), Ended::Signal(9));
    // Long after every lease has ended, too.
    for seconds in [0, 365 * 86_400] {
        let mut options = bench.options();
        options.clock_ms += seconds * 1000;
        let session = bench.open(&options, Protocol::V2026_07_28).await;
        let caller = session.caller();
        check_unknown(&caller.status("half").await, "first_step_committed");
        let again = caller.call("create_issue", arguments.clone()).await;
        check_refused(&again, "operation_in_progress", "status_only");
        close(session).await;
        bench.check_rows(1, &[("half", "in_progress")]);
    }
}
