//! Faults between client and server: the whole grid and some by chance, with real processes.
//! `COUNTERFOIL_TEST_SEED` sets the first seed, which is printed when something is found.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{LAB, full, note};
use counterfoil_lab::transport::plan::{Direction, Fault, Position, WAYS, Who};
use counterfoil_lab::transport::{Campaign, Cell, Programs, run};
use sha2::{Digest as _, Sha256};

fn campaign(only: &str, seed_count: u64) -> Campaign {
    let seed =
        std::env::var("COUNTERFOIL_TEST_SEED").ok().map(|text| text.parse().expect("a seed"));
    Campaign {
        programs: Programs::beside(Path::new(LAB)).expect("the product is built"),
        seed_count,
        seed: seed.unwrap_or_else(|| getrandom::u64().expect("random")),
        only: only.into(),
        out: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_on_the_way_loses_or_repeats_an_effect() {
    // Promise: whatever happens to a request or a reply on its way, before or after the commit, the
    // operation has one effect and whoever asks or sends again is told of it; and the same faults
    // in front of a server without a ledger leave duplicates that are seen.
    let seed_count = if full() { 1000 } else { 20 };
    let campaign = campaign("", seed_count);
    let summary = run(&campaign).await.expect("the lab itself works");
    let failed: Vec<&Cell> = summary.cells.iter().filter(|it| !it.found.is_empty()).collect();
    let again = format!("counterfoil-lab transport --seed {} --seeds {seed_count}", summary.seed);
    assert!(summary.passed && failed.is_empty(), "{again}: {failed:#?}");
    note(&format!(
        "transport: seed {}, {} cells, {} before and {} after the commit, {} behind the request, {} lost; control {} of {}",
        summary.seed,
        summary.guarded_count,
        summary.before_commit_count,
        summary.after_commit_count,
        summary.behind_request_count,
        summary.lost_count,
        summary.control_duplicate_count,
        summary.control_count,
    ));
    // It must have been what it is called.
    let guarded = summary.cells.iter().filter(|cell| cell.guarded);
    let tried: BTreeSet<_> = guarded
        .map(|cell| (cell.plan.wire, cell.plan.who, cell.plan.direction, cell.plan.fault))
        .collect();
    for (wire, who) in WAYS {
        for direction in [Direction::Request, Direction::Reply] {
            for fault in
                [Fault::Drop, Fault::Delay, Fault::Duplicate, Fault::Truncate, Fault::Corrupt]
            {
                assert!(tried.contains(&(wire, who, direction, fault)), "{wire:?} {fault:?}");
            }
        }
    }
    // Each reply that met a fault without a ledger, and no others than the grid's.
    let of_replies = |cell: &&Cell| !cell.guarded && cell.plan.direction == Direction::Reply;
    let replies = summary.cells.iter().filter(of_replies);
    assert!(replies.clone().count() >= 60 && replies.clone().all(|cell| cell.effect_count > 1));
    let sent_twice = |cell: &&Cell| cell.guarded && cell.plan.fault == Fault::Duplicate;
    assert!(summary.cells.iter().filter(sent_twice).all(|cell| cell.effect_count == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bytes_of_both_sides_are_kept_and_no_token() {
    // Promise: what a client wrote and what reached the server can be compared afterwards, byte for
    // byte, by the digests of the summary, and nobody learns a token from it.
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("kept");
    let campaign = Campaign { out: Some(out.clone()), ..campaign("httpjson-raw-truncate", 0) };
    let summary = run(&campaign).await.expect("the lab itself works");
    assert!(summary.passed, "{:#?}", summary.cells);
    assert!(out.join("summary.json").exists());
    for cell in &summary.cells {
        let read = |side: &str| {
            let bytes = std::fs::read(out.join(&cell.name).join(format!("{side}.bin")));
            let bytes = bytes.expect("the side's bytes are kept");
            let digest = Sha256::digest(&bytes);
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(cell.bytes_sha256[side], digest, "{} {side}", cell.name);
            bytes
        };
        let (wrote, arrived) = (read("client-wrote"), read("server-read"));
        let (answered, came) = (read("server-wrote"), read("client-read"));
        let is_whole = cell.plan.position == Position::After;
        match cell.plan.direction {
            Direction::Request => assert_eq!(wrote == arrived, is_whole, "{}", cell.name),
            Direction::Reply => {
                assert_eq!(wrote, arrived, "{}", cell.name);
                assert_eq!(answered == came, is_whole, "{}", cell.name);
            }
        }
        let text = String::from_utf8_lossy(&wrote);
        assert!(text.contains("Bearer [redacted token]") && !text.contains("cf_"), "{text}");
        assert_eq!(cell.plan.who, Who::Raw);
    }
    let again = run(&campaign).await.expect_err("evidence is not overwritten");
    assert!(again.to_string().contains("must be a new directory"), "{again}");
}

#[tokio::test]
async fn a_name_of_no_cell_is_refused() {
    // Promise: a run in which nothing was tried does not pass.
    let refused = run(&campaign("no-such-fault", 3)).await.expect_err("nothing to do");
    assert!(refused.to_string().contains("no-such-fault"), "{refused}");
}
