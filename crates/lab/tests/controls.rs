//! Controls: the same tools without a ledger duplicate, and the checker says so. A detector that
//! never sees a duplicate proves nothing.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{Bench, WAYS};
use counterfoil_lab::cases::{self, Suite, control};
use counterfoil_lab::evidence::exchange;
use counterfoil_lab::evidence::judge::{Cell, judge};

#[tokio::test]
async fn every_retry_duplicates_without_a_ledger() {
    // Promise: the tests of the guarded server can fail: what they look for is really there when
    // nothing guards; and the guard binds an identity, not the contents: a new ID makes issue 2.
    for (protocol, over) in &WAYS[..2] {
        for (case, _) in Suite::Controls.cases() {
            let bench = Bench::of_case(&format!("control-{case}"), *protocol, *over);
            cases::run(case, &bench).await.expect("the lab itself works");
        }
    }
}

#[tokio::test]
async fn a_control_that_does_not_duplicate_fails() {
    // Promise: what tells the control from the cases is the ledger alone; with one, the same retry
    // adds nothing, and then neither the control nor the judge of its files is content.
    for (protocol, over) in &WAYS[..2] {
        let bench = Bench::of_case("control-twin", *protocol, *over);
        let seen = control::guarded_twin(&bench).await.expect("the lab itself works");
        let content = catch_unwind(AssertUnwindSafe(|| control::check_duplicate(&bench, &seen)));
        assert!(content.is_err(), "the control is content without a duplicate");
        let exchanges = exchange::read(bench.transcripts(), &bench.runs()).expect("transcripts");
        let mut cell = Cell { runs: bench.runs(), exchanges, rows: bench.rows() };
        let refused = |cell: &Cell, words: &str| {
            let error = judge("identical", cell).expect_err("it is no duplicate").to_string();
            assert!(error.contains(words), "{error}");
        };
        refused(&cell, "a server had a ledger");
        cell.runs.iter_mut().for_each(|run| run.flags.push("--unguarded".into()));
        refused(&cell, "did not duplicate");
    }
}

#[tokio::test]
async fn every_case_fails_on_servers_without_a_ledger() {
    // Promise: no case passes by itself: each needs the ledger that it is about.
    for (protocol, over) in &WAYS[..2] {
        for (case, _) in Suite::Cases.cases() {
            let bench = Bench::of_case(&format!("without-{case}"), *protocol, *over).unguarded();
            let run = tokio::spawn(async move { cases::run(case, &bench).await }).await;
            let broken = run.as_ref().is_err_and(tokio::task::JoinError::is_panic);
            assert!(broken, "case {case} over {over:?} without a ledger: {run:?}");
        }
    }
}
