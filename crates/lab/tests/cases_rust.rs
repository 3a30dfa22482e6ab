//! The twelve cases of continuation replay over stdio and HTTP, with the official Rust SDK's client
//! and with the recovering one, in each protocol revision that has the case. Clocks stand still: a
//! later moment is another server. The physical rows are read back by a program that shares no code
//! with the server; the relays' transcripts stay under the build directory.

mod common;

use common::{Bench, LAB, WAYS, called_tools, check_applied, check_refused, close};
use counterfoil_client::{
    Answers, Call, ChildConnector, Consumer, Journal, Limits, Sent, Settled, Who,
};
use counterfoil_core::consumer::{Action, Belief, Effect};
use counterfoil_core::identity::{BackendId, OperationId, Principal};
use counterfoil_core::time::Timestamp;
use counterfoil_lab::cases::{self, Over};
use counterfoil_lab::child::{ChildOptions, START_MS};
use counterfoil_lab::cuts::{CutSpec, End};
use counterfoil_lab::session::{Answer, Issue, Protocol, Reply};
use serde_json::json;

/// Runs a case in each of these ways, each on a bench of its own.
async fn check(case: &str, ways: &[(Protocol, Over)]) {
    for (protocol, over) in ways {
        let bench = Bench::of_case(case, *protocol, *over);
        cases::run(case, &bench).await.expect("the lab itself works");
    }
}

fn issue(case: &str) -> Issue {
    Issue::new(case, "Export fails", "It stops at row 65,536.")
}

/// The defaults, at a later moment.
fn later(options: &ChildOptions, seconds: i64) -> ChildOptions {
    ChildOptions { clock_ms: options.clock_ms + seconds * 1000, ..options.clone() }
}

fn with_cut(options: &ChildOptions, point: &str, code: i32) -> ChildOptions {
    ChildOptions { cut: vec![CutSpec::first(point, End::Exit(code))], ..options.clone() }
}

#[tokio::test]
async fn case_01_identical_retry() {
    // Promise: the same identity and fingerprint gets the stored result, marked as replayed.
    check("01", &WAYS).await;
}

#[tokio::test]
async fn case_02_the_continuation_is_never_sent() {
    // Promise: a question writes nothing, and what was never sent is unknown: the consumer stops.
    check("02", &WAYS).await;
}

#[tokio::test]
async fn case_02_an_older_client_leaves_while_its_user_is_asked() {
    // Promise: an answer that never comes leaves nothing behind, and the server ends in order.
    for protocol in Protocol::LEGACY {
        let bench = Bench::of_case("case-02-leaves", protocol, Over::Stdio);
        let session = bench.open(&bench.options(), protocol).await;
        let caller = session.caller().clone();
        caller.will_answer(Answer::Silence);
        let asking = caller.clone();
        let call = tokio::spawn(async move {
            asking.call("create_issue", issue("case-02-operation").arguments()).await
        });
        while caller.asked_count() == 0 {
            tokio::task::yield_now().await;
        }
        close(session).await;
        assert!(matches!(call.await.expect("no panic"), Reply::Lost(_)));
        bench.check_rows(0, &[]);
    }
}

#[tokio::test]
async fn case_03_the_reply_is_lost() {
    // Promise: after a lost reply the status tells what became of it, and an exact replay gives the
    // stored result; there is one effect.
    check("03", &WAYS).await;
}

#[tokio::test]
async fn case_04_changed_answers() {
    // Promise: a changed binding is a conflict before a second effect, and shows nothing of the
    // first request.
    check("04", &WAYS).await;
}

#[tokio::test]
async fn case_05_two_states_for_one_operation() {
    // Promise: a second valid state for a settled operation is a conflict, and a state that was
    // touched is refused, whatever was touched.
    check("05", &WAYS[..2]).await;
}

#[tokio::test]
async fn case_06_another_principal() {
    // Promise: another principal is refused in the very words of a changed request, cannot use the
    // state, and learns nothing from a status.
    check("06", &WAYS).await;
}

#[tokio::test]
async fn case_07_authority_ends() {
    // Promise: after its authority ended a continuation writes nothing and replays nothing, though
    // state and retention are valid; the status still recovers the result.
    check("07", &WAYS[..2]).await;
}

#[tokio::test]
async fn case_08_two_processes_at_once() {
    // Promise: of two processes that apply the same continuation at the same time one makes the
    // effect and the other gets its result.
    check("08", &WAYS).await;
}

#[tokio::test]
async fn case_09_status_alone_recovers() {
    // Promise: after a hard exit the status alone recovers the result; nothing else is sent.
    check("09", &WAYS).await;
}

/// Sends one call by the recovering client to a server that exits before its reply, and lets the
/// client find out on another server.
async fn recover(bench: &Bench, issue: &Issue, cut: &ChildOptions) -> (Belief, Settled) {
    let who = Who {
        principal: Some(Principal::parse("alice").expect("valid")),
        backend: Some(BackendId::parse("lab").expect("valid")),
    };
    let journal = Journal::open(bench.path("journal.jsonl")).expect("a journal");
    let consumer = Consumer::new(journal, who, Limits::default());
    let connector = |options: &ChildOptions| {
        let (launch, transcript) = bench.relayed(options);
        let (program, arguments) = launch.command_line();
        (ChildConnector::new(program, arguments, Vec::new()), transcript)
    };
    let arguments = json!({ "title": issue.title, "mode": issue.mode });
    let call = Call {
        tool: "create_issue".into(),
        arguments: arguments.as_object().expect("an object").clone(),
        operation_id: Some(OperationId::parse(&issue.operation_id).expect("valid")),
        answers: Answers::from_items([format!("body={}", issue.body).as_str()]).expect("answers"),
    };
    let now = Timestamp::from_ms(START_MS);
    let prepared = consumer.prepare(call, LAB, now).expect("the identity is on disk");
    let sent = Box::pin(prepared.send(&connector(cut).0)).await.expect("it was sent");
    let Sent::Lost(lost) = sent else { panic!("the reply was to be lost: {sent:?}") };
    let before = lost.belief();
    let (restarted, transcript) = connector(&bench.options());
    let settled = Box::pin(lost.reconcile(&restarted)).await;
    let called = called_tools(&transcript).expect("the relay kept a transcript");
    assert!(called.iter().all(|tool| tool == "get_operation_status"), "{called:?}");
    (before, settled)
}

#[tokio::test]
async fn cases_03_09_and_12_with_the_recovering_client() {
    // Promise: the product's own client, after a lost reply, asks and believes; it never sends the
    // call again.
    let cases = [
        ("store.after_commit", issue("r"), Effect::Applied, Action::ReturnStoredResult, "applied"),
        ("store.after_effect_insert", issue("r"), Effect::Unknown, Action::Stop, ""),
        (
            "store.after_first_commit",
            issue("r").partial(),
            Effect::Unknown,
            Action::Stop,
            "in_progress",
        ),
        ("store.after_commit", issue("r").partial(), Effect::Partial, Action::Stop, "partial"),
    ];
    for (number, (point, issue, effect, action, recorded)) in cases.into_iter().enumerate() {
        let bench = Bench::new(&format!("case-recovering-{number}"));
        let cut = with_cut(&bench.options(), point, 70);
        let (before, settled) = recover(&bench, &issue, &cut).await;
        assert_eq!((before.effect, before.action), (Effect::Unknown, Action::Reconcile));
        let after = (settled.belief.effect, settled.belief.action);
        assert_eq!(after, (effect, action), "{point}: {:?}", settled.doubt);
        let expected: &[(&str, &str)] = if recorded.is_empty() { &[] } else { &[("r", recorded)] };
        bench.check_rows(expected.len() as u64, expected);
        if action == Action::ReturnStoredResult {
            let result = settled.stored_result().expect("a stored result").get();
            assert_eq!(result, r#""created 1""#);
        }
    }
}

#[tokio::test]
async fn case_10_retention_ends() {
    // Promise: after replay retention the ID is refused by every way in, its record stays, and the
    // old ID never becomes new work.
    check("10", &WAYS[..2]).await;
}

#[tokio::test]
async fn case_10_retention_ends_for_older_clients() {
    // Promise: the same for a client that brings no state.
    for protocol in Protocol::LEGACY {
        let bench = Bench::of_case("case-10-operation", protocol, Over::Stdio);
        let options = ChildOptions { retention_s: 60, ..bench.options() };
        let issue = issue("case-10-operation");
        for (seconds, expected) in [(0, "fresh"), (59, "replayed"), (60, "refused")] {
            let session = bench.open(&later(&options, seconds), protocol).await;
            let reply = session.caller().create_issue(&issue).await;
            match expected {
                "refused" => check_refused(&reply, "operation_retention_expired", "status_only"),
                other => check_applied(&reply, other == "replayed"),
            }
            close(session).await;
        }
        bench.check_rows(1, &[("case-10-operation", "applied")]);
    }
}

#[tokio::test]
async fn case_11_the_state_is_stripped() {
    // Promise: answers without their state have no effect, and a fresh round still works.
    check("11", &WAYS[..2]).await;
}

#[tokio::test]
async fn case_12_a_partial_effect() {
    // Promise: a partial effect stays visible as it is, with its failed compensation under an
    // identity of its own, and a replay repeats nothing.
    check("12", &WAYS).await;
}
