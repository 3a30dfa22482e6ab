//! Random SIGKILLs of server, worker and help desk under load. `COUNTERFOIL_TEST_KILLS` sets their
//! number, `COUNTERFOIL_TEST_SEED` the plan; both are printed when something is found.

mod common;

use std::path::PathBuf;

use common::{LAB, full, note};
use counterfoil_lab::delivery::campaign::{Campaign, Summary, run};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs a campaign; the words say how to run it again.
async fn campaign(kill_count: u32, reckless: bool) -> (Summary, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let seed = number("COUNTERFOIL_TEST_SEED").unwrap_or_else(|| getrandom::u64().expect("random"));
    let place = folder.path().join("data");
    let campaign = Campaign { lab: PathBuf::from(LAB), place, kill_count, seed, reckless };
    let again = format!("COUNTERFOIL_TEST_SEED={seed} COUNTERFOIL_TEST_KILLS={kill_count}");
    let summary = run(&campaign).await.unwrap_or_else(|error| panic!("{again}: {error:#}"));
    // The campaign itself must have been one: with load, and with effects.
    assert!(summary.accepted_count > 0 && summary.effects_count > 0, "{again}: {summary:?}");
    (summary, again)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_kills_of_server_worker_and_target_lose_and_repeat_no_delivery() {
    // Promise: whoever dies, and whenever, each accepted operation has at most one effect at its
    // target, none is lost, what is told as delivered is there, and nothing else is told as settled.
    let default = if full() { 200 } else { 10 };
    let count =
        number("COUNTERFOIL_TEST_KILLS").map_or(default, |n| n.try_into().expect("a count"));
    let (summary, again) = campaign(count, false).await;
    note(&format!("{summary:?}"));
    assert_eq!(summary.violations, [] as [String; 0], "{again}: {summary:?}");
    assert!(
        summary.states.get("delivered").is_some_and(|count| *count > 0),
        "{again}: {summary:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_load_on_a_target_that_gets_repeats_is_found_to_duplicate() {
    // Promise: the campaign can fail: where repeats are allowed the same load leaves what it looks
    // for. Chance may leave a short campaign without a repeat: then there is another.
    let (mut summary, mut again) = campaign(5, true).await;
    for _ in 0..4 {
        if summary.duplicates_count > 0 {
            break;
        }
        (summary, again) = campaign(5, true).await;
    }
    assert!(summary.duplicates_count > 0, "{again}: {summary:?}");
    let duplicates = summary.violations.iter().filter(|found| found.starts_with("OneEffect"));
    assert_eq!(duplicates.count(), summary.duplicates_count, "{again}: {summary:?}");
}
