//! Random SIGKILLs of `counterfoil wrap` and of the server behind it, during writes to real servers.
//! `COUNTERFOIL_TEST_KILLS` sets their number for each server, `COUNTERFOIL_TEST_SEED` the plan; both
//! are printed when something is found.

mod common;

use std::path::PathBuf;

use common::{LAB, full, note};
use counterfoil_lab::wrapped::campaign::{Campaign, Summary, run};
use counterfoil_lab::wrapped::world::Kind;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs a campaign; the words say how to run it again.
async fn campaign(kind: Kind, kill_count: u32, reckless: bool) -> (Summary, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let seed = number("COUNTERFOIL_TEST_SEED").unwrap_or_else(|| getrandom::u64().expect("random"));
    let place = folder.path().join("wrap");
    let campaign = Campaign { lab: PathBuf::from(LAB), place, kind, kill_count, seed, reckless };
    let again = format!("COUNTERFOIL_TEST_SEED={seed} COUNTERFOIL_TEST_KILLS={kill_count}");
    let summary = run(&campaign).await.unwrap_or_else(|error| panic!("{again}: {error:#}"));
    // The campaign itself must have been one: with load, and with effects.
    assert!(summary.dispatch_count > 0 && summary.effect_count > 0, "{again}: {summary:?}");
    (summary, again)
}

async fn nothing_is_lost_or_doubled(kind: Kind) {
    if !kind.is_here() {
        return note(&format!("NOT RUN: {kind:?} is installed by ./test"));
    }
    let default = if full() { 50 } else { 6 };
    let count =
        number("COUNTERFOIL_TEST_KILLS").map_or(default, |n| n.try_into().expect("a count"));
    let (summary, again) = campaign(kind, count, false).await;
    note(&format!("{summary:?}"));
    assert_eq!(summary.violations, [] as [String; 0], "{again}: {summary:?}");
    assert!(summary.states.get("applied").is_some_and(|count| *count > 0), "{again}: {summary:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_kills_lose_and_double_nothing_of_any_server() {
    // Promise: whoever dies, and whenever, each operation reaches its server at most once and has at
    // most one effect there, what is told as applied is there, everything comes to rest, and no
    // process is left.
    tokio::join!(
        nothing_is_lost_or_doubled(Kind::Filesystem),
        nothing_is_lost_or_doubled(Kind::Memory),
        nothing_is_lost_or_doubled(Kind::Git),
        nothing_is_lost_or_doubled(Kind::Sqlite),
        nothing_is_lost_or_doubled(Kind::Notes),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_gives_a_lost_call_a_new_id_is_found() {
    // Promise: the campaign can fail: where the client breaks the rules of its replies, the same kills
    // leave what it looks for. Chance may lose no call of a short campaign: then there is another.
    let doubles =
        |summary: &Summary| summary.violations.iter().any(|found| found.starts_with("OneDispatch"));
    let (mut summary, mut again) = campaign(Kind::Notes, 8, true).await;
    for _ in 0..4 {
        if doubles(&summary) {
            break;
        }
        (summary, again) = campaign(Kind::Notes, 8, true).await;
    }
    assert!(doubles(&summary), "{again}: {summary:?}");
}
