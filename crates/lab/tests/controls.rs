//! Controls: the same tools without a ledger duplicate, and the checker says so. A detector that
//! never sees a duplicate proves nothing.

mod common;

use std::collections::BTreeSet;

use common::{Bench, check_applied, check_settled, close};
use counterfoil_lab::child::ChildOptions;
use counterfoil_lab::cuts::{CutSpec, End};
use counterfoil_lab::history::{Physical, Recorder, Rule, check};
use counterfoil_lab::process::Ended;
use counterfoil_lab::session::{Caller, Issue, Protocol, Reply};

const MODERN: Protocol = Protocol::V2026_07_28;

/// Makes the issue, in two rounds or in one, and keeps what was seen.
async fn make(caller: &Caller, issue: &Issue, in_rounds: bool, recorder: &Recorder) -> Reply {
    let call = recorder.invoke_write(issue);
    let reply = if in_rounds {
        caller.create_issue(issue).await
    } else {
        caller.call("create_issue", issue.arguments_with_body()).await
    };
    recorder.ended(call, &reply);
    reply
}

/// How the second request comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    Identical,
    Changed,
    AfterCrash,
}

/// One issue, and a retry of it under the same ID. Gives what the checker finds, and the rows.
async fn retry(retry: Retry, unguarded: bool) -> (BTreeSet<Rule>, u64) {
    let bench = Bench::new(&format!("control-{retry:?}-{unguarded}"));
    let options = ChildOptions { unguarded, ..bench.options() };
    let recorder = Recorder::default();
    let issue = Issue::new("control", "Export fails", "It stops at row 65,536.");
    let second = match retry {
        Retry::Changed => issue.clone().body("It stops at row 65,537."),
        Retry::Identical | Retry::AfterCrash => issue.clone(),
    };
    // Round one of a known operation asks nothing, so a changed answer needs the other way.
    let in_rounds = retry != Retry::Changed;
    let mut first_options = options.clone();
    if retry == Retry::AfterCrash {
        first_options.cut = vec![CutSpec::first("store.after_commit", End::Exit(70))];
    }
    let session = bench.open(&first_options, MODERN).await;
    let first = make(session.caller(), &issue, in_rounds, &recorder).await;
    if retry == Retry::AfterCrash {
        assert!(matches!(first, Reply::Lost(_)), "{first:?}");
        assert_eq!(session.ended().await.expect("it ends"), Ended::Code(70));
    } else {
        check_applied(&first, false);
        close(session).await;
    }
    let session = bench.open(&options, MODERN).await;
    make(session.caller(), &second, in_rounds, &recorder).await;
    close(session).await;
    let rows = bench.rows();
    let physical =
        if unguarded { Physical::of_unguarded(&rows) } else { Physical::of_ledger(&rows) };
    let found = check(&recorder.history(), &physical);
    (found.into_iter().map(|violation| violation.rule).collect(), rows.count("issues"))
}

#[tokio::test]
async fn every_retry_duplicates_without_a_ledger_and_none_with_it() {
    // Promise: the tests of the guarded server can fail: what they look for is really there when
    // nothing guards.
    for kind in [Retry::Identical, Retry::Changed, Retry::AfterCrash] {
        let (found, issue_count) = retry(kind, true).await;
        assert_eq!(issue_count, 2, "unguarded, {kind:?}");
        assert!(found.contains(&Rule::OneEffect), "unguarded, {kind:?}: {found:?}");
        assert_eq!(retry(kind, false).await, (BTreeSet::new(), 1), "guarded, {kind:?}");
    }
}

#[tokio::test]
async fn a_fresh_id_is_a_fresh_effect() {
    // Promise: the guard binds an identity, not the contents: a new ID makes issue 2.
    let bench = Bench::new("control-fresh");
    let session = bench.open(&bench.options(), MODERN).await;
    let recorder = Recorder::default();
    for (number, id) in [(1, "first"), (2, "second")] {
        let issue = Issue::new(id, "Export fails", "It stops at row 65,536.");
        let reply = make(session.caller(), &issue, true, &recorder).await;
        check_settled(&reply, "applied", number, &format!("created {number}"), false);
    }
    close(session).await;
    let rows = bench.check_rows(2, &[("first", "applied"), ("second", "applied")]);
    assert_eq!(check(&recorder.history(), &Physical::of_ledger(&rows)), []);
}
