//! The twelve cases of continuation replay over stdio and HTTP, with the official Rust SDK's client
//! and with the recovering one, in each protocol revision that has the case. Clocks stand still: a later
//! moment is another server. The physical rows are read back by a program that shares no code with
//! the server; the relays' transcripts stay under the build directory.

mod common;

use common::{
    Bench, LAB, Over, WAYS, called_tools, check_applied, check_observed, check_refused,
    check_settled, check_state_refused, check_unknown, close, sent,
};
use counterfoil_client::{
    Answers, Call, ChildConnector, Consumer, Journal, Limits, Sent, Settled, Who,
};
use counterfoil_core::consumer::{Action, Belief, Effect, Expected, accept};
use counterfoil_core::identity::{BackendId, OperationId, Principal};
use counterfoil_core::observation::Observation;
use counterfoil_core::time::Timestamp;
use counterfoil_lab::child::{ChildOptions, START_MS};
use counterfoil_lab::cuts::{CutSpec, End};
use counterfoil_lab::process::Ended;
use counterfoil_lab::session::{Answer, Caller, Issue, Protocol, Reply, Session};
use counterfoil_lab::store_faults::BarrierSpec;
use counterfoil_lab::transcript::Side;
use serde_json::{Value, json};

const PARTIAL: &str = "created 1; watcher absent; compensation failed";

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

/// Round one: a question with sealed state, and nothing written.
async fn mint(caller: &Caller, issue: &Issue) -> String {
    caller.call("create_issue", issue.arguments()).await.state().to_owned()
}

/// Round one on a server of its own.
async fn mint_on(bench: &Bench, options: &ChildOptions, issue: &Issue) -> String {
    let session = bench.open(options, Protocol::V2026_07_28).await;
    let state = mint(session.caller(), issue).await;
    close(session).await;
    state
}

/// What the consumer's rules make of a status.
fn believe(status: &Reply, operation_id: &str) -> Belief {
    let seen: Observation =
        serde_json::from_value(status.content().clone()).expect("a status has its fields");
    let expected = Expected {
        operation_id: OperationId::parse(operation_id).expect("valid"),
        principal: Some(Principal::parse("alice").expect("valid")),
        backend: Some(BackendId::parse("lab").expect("valid")),
    };
    accept(&expected, &seen).expect("the status agrees with itself")
}

/// Makes the issue on a server that exits after the commit and before the reply. Gives the state.
async fn lose_the_reply(bench: &Bench, issue: &Issue, protocol: Protocol) -> Option<String> {
    let options = with_cut(&bench.options(), "store.after_commit", 70);
    let session = bench.open(&options, protocol).await;
    let caller = session.caller().clone();
    let (reply, state) = if protocol.is_modern() {
        let state = mint(&caller, issue).await;
        (caller.resume(issue, Some(&state), issue.answers()).await, Some(state))
    } else {
        (caller.create_issue(issue).await, None)
    };
    assert!(matches!(reply, Reply::Lost(_)), "{reply:?}");
    assert_eq!(session.ended().await.expect("it ends"), Ended::Code(70));
    state
}

/// The exact retry: the same continuation, or the same call where there is none.
async fn replay(caller: &Caller, issue: &Issue, state: Option<&str>) -> Reply {
    match state {
        Some(state) => caller.resume(issue, Some(state), issue.answers()).await,
        None => caller.create_issue(issue).await,
    }
}

#[tokio::test]
async fn case_01_identical_retry() {
    // Promise: the same identity and fingerprint gets the stored result, marked as replayed.
    for (protocol, over) in WAYS {
        let bench = Bench::of_case("case-01-operation", protocol, over);
        let session = bench.open(&bench.options(), protocol).await;
        let (caller, issue) = (session.caller(), issue("case-01-operation"));
        let state = match protocol.is_modern() {
            true => Some(mint(caller, &issue).await),
            false => None,
        };
        let first = replay(caller, &issue, state.as_deref()).await;
        check_applied(&first, false);
        let second = replay(caller, &issue, state.as_deref()).await;
        check_applied(&second, true);
        // An agent's honest retry starts at round one: nothing is asked again.
        check_applied(&caller.call("create_issue", issue.arguments()).await, true);
        assert_eq!(caller.asked_count(), usize::from(!protocol.is_modern()));
        close(session).await;
        let rows = bench.check_rows(1, &[("case-01-operation", "applied")]);
        assert_eq!(rows.rows("issues")[0]["body"], issue.body);
    }
}

#[tokio::test]
async fn case_02_the_continuation_is_never_sent() {
    // Promise: a question writes nothing, and what was never sent is unknown: the consumer stops.
    for (protocol, over) in WAYS {
        let bench = Bench::of_case("case-02-operation", protocol, over);
        let session = bench.open(&bench.options(), protocol).await;
        let (caller, issue) = (session.caller().clone(), issue("case-02-operation"));
        if protocol.is_modern() {
            mint(&caller, &issue).await;
        } else {
            caller.will_answer(Answer::Decline);
            let declined = caller.call("create_issue", issue.arguments()).await;
            assert_eq!(declined.content()["action"], "decline");
        }
        let status = caller.status("case-02-operation").await;
        check_unknown(&status, "no_record");
        assert_eq!(believe(&status, "case-02-operation").action, Action::Stop);
        close(session).await;
        bench.check_rows(0, &[]);
    }
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
    for (protocol, over) in WAYS {
        let bench = Bench::of_case("case-03-operation", protocol, over);
        let issue = issue("case-03-operation");
        let state = lose_the_reply(&bench, &issue, protocol).await;
        bench.check_rows(1, &[("case-03-operation", "applied")]);
        let session = bench.open(&bench.options(), protocol).await;
        let status = session.caller().status("case-03-operation").await;
        check_observed(&status, "applied", "created 1");
        assert_eq!(believe(&status, "case-03-operation").action, Action::ReturnStoredResult);
        check_applied(&replay(session.caller(), &issue, state.as_deref()).await, true);
        close(session).await;
        bench.check_rows(1, &[("case-03-operation", "applied")]);
    }
}

#[tokio::test]
async fn case_04_changed_answers() {
    // Promise: a changed binding is a conflict before a second effect, and shows nothing of the
    // first request.
    for (protocol, over) in WAYS {
        let bench = Bench::of_case("case-04-operation", protocol, over);
        let session = bench.open(&bench.options(), protocol).await;
        let (caller, issue) = (session.caller(), issue("case-04-operation"));
        let changed = if protocol.is_modern() {
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
        close(session).await;
        bench.check_rows(1, &[("case-04-operation", "applied")]);
    }
}

#[tokio::test]
async fn case_05_two_states_for_one_operation() {
    // Promise: a second valid state for a settled operation is a conflict, and a state that was
    // touched is refused, whatever was touched.
    for over in [Over::Stdio, Over::Http] {
        let bench = Bench::of_case("case-05-operation", Protocol::V2026_07_28, over);
        let session = bench.open(&bench.options(), Protocol::V2026_07_28).await;
        let (caller, issue) = (session.caller(), issue("case-05-operation"));
        let first = mint(caller, &issue).await;
        let second = mint(caller, &issue).await;
        assert_ne!(first, second, "each issue of a state has its own nonce");
        for tampered in tampered(&first) {
            check_state_refused(&caller.resume(&issue, Some(&tampered), issue.answers()).await);
        }
        bench.check_rows(0, &[]);
        check_applied(&caller.resume(&issue, Some(&first), issue.answers()).await, false);
        let other = caller.resume(&issue, Some(&second), issue.answers()).await;
        check_refused(&other, "operation_conflict", "none");
        for tampered in tampered(&first) {
            check_state_refused(&caller.resume(&issue, Some(&tampered), issue.answers()).await);
        }
        close(session).await;
        bench.check_rows(1, &[("case-05-operation", "applied")]);
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

#[tokio::test]
async fn case_06_another_principal() {
    // Promise: another principal is refused in the very words of a changed request, cannot use the
    // state, and learns nothing from a status.
    for (protocol, over) in WAYS {
        let bench = Bench::of_case("case-06-operation", protocol, over);
        let issue = issue("case-06-operation");
        let alices = bench.open(&bench.options(), protocol).await;
        let alice = alices.caller();
        let state = match protocol.is_modern() {
            true => Some(mint(alice, &issue).await),
            false => None,
        };
        check_applied(&replay(alice, &issue, state.as_deref()).await, false);
        let other_title = Issue { title: "Another title".into(), ..issue.clone() };
        let changed = alice.call("create_issue", other_title.arguments()).await;
        let options = ChildOptions { principal: "bob".into(), ..bench.options() };
        let bobs = bench.open(&options, protocol).await;
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
        close(bobs).await;
        close(alices).await;
        bench.check_rows(1, &[("case-06-operation", "applied")]);
    }
}

#[tokio::test]
async fn case_07_authority_ends() {
    // Promise: after its authority ended a continuation writes nothing and replays nothing, though
    // state and retention are valid; the status still recovers the result.
    for over in [Over::Stdio, Over::Http] {
        let bench = Bench::of_case("case-07-operation", Protocol::V2026_07_28, over);
        let options = ChildOptions { authority_s: 60, state_s: 3600, ..bench.options() };
        let (made, unmade) = (issue("case-07-operation"), issue("case-07-operation-unmade"));
        let session = bench.open(&options, Protocol::V2026_07_28).await;
        let state = mint(session.caller(), &made).await;
        let unused = mint(session.caller(), &unmade).await;
        check_applied(&session.caller().resume(&made, Some(&state), made.answers()).await, false);
        close(session).await;
        for (seconds, ended) in [(59, false), (60, true)] {
            let session = bench.open(&later(&options, seconds), Protocol::V2026_07_28).await;
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
            close(session).await;
        }
        bench.check_rows(1, &[("case-07-operation", "applied")]);
    }
}

#[tokio::test]
async fn case_08_two_processes_at_once() {
    // Promise: of two processes that apply the same continuation at the same time one makes the
    // effect and the other gets its result.
    for (protocol, over) in WAYS {
        let bench = Bench::of_case("case-08-operation", protocol, over);
        let issue = issue("case-08-operation");
        let state = match protocol.is_modern() {
            true => Some(mint_on(&bench, &bench.options(), &issue).await),
            false => None,
        };
        let barrier = BarrierSpec { directory: bench.path("barrier"), process_count: 2 };
        let options = ChildOptions { barrier: Some(barrier), ..bench.options() };
        let sessions: [Session; 2] =
            [bench.open(&options, protocol).await, bench.open(&options, protocol).await];
        let [one, other] = sessions.each_ref().map(Session::caller);
        let (one, other) = tokio::join!(
            replay(one, &issue, state.as_deref()),
            replay(other, &issue, state.as_deref())
        );
        let (first, second) =
            if one.content()["replayed"] == false { (one, other) } else { (other, one) };
        check_applied(&first, false);
        check_applied(&second, true);
        for session in sessions {
            close(session).await;
        }
        bench.check_rows(1, &[("case-08-operation", "applied")]);
    }
}

#[tokio::test]
async fn case_09_status_alone_recovers() {
    // Promise: after a hard exit the status alone recovers the result; nothing else is sent.
    for (protocol, over) in WAYS {
        let bench = Bench::of_case("case-09-operation", protocol, over);
        lose_the_reply(&bench, &issue("case-09-operation"), protocol).await;
        let (session, transcript) = bench.open_kept(&bench.options(), protocol).await;
        let status = session.caller().status("case-09-operation").await;
        check_observed(&status, "applied", "created 1");
        assert_eq!(believe(&status, "case-09-operation").action, Action::ReturnStoredResult);
        close(session).await;
        assert_eq!(called_tools(&transcript), ["get_operation_status"]);
        let methods: Vec<Value> =
            sent(&transcript).into_iter().map(|mut frame| frame["method"].take()).collect();
        let handshake: &[&str] = match protocol.is_modern() {
            true => &["server/discover"],
            false => &["initialize", "notifications/initialized"],
        };
        assert_eq!(methods, [handshake, &["tools/call"]].concat());
        bench.check_rows(1, &[("case-09-operation", "applied")]);
    }
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
    let called = called_tools(&transcript);
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
    for over in [Over::Stdio, Over::Http] {
        let bench = Bench::of_case("case-10-operation", Protocol::V2026_07_28, over);
        let options = ChildOptions { retention_s: 60, ..bench.options() };
        let issue = issue("case-10-operation");
        let state = mint_on(&bench, &options, &issue).await;
        // Round one writes nothing, so that a state of a later moment can be minted beforehand.
        let late_state = mint_on(&bench, &later(&options, 590), &issue).await;
        let session = bench.open(&options, Protocol::V2026_07_28).await;
        check_applied(&session.caller().resume(&issue, Some(&state), issue.answers()).await, false);
        close(session).await;
        // Seconds after the effect, and whether state and retention still hold then.
        for (seconds, state_holds, retained) in
            [(59, true, true), (60, true, false), (599, true, false), (600, false, false)]
        {
            let session = bench.open(&later(&options, seconds), Protocol::V2026_07_28).await;
            let caller = session.caller();
            let exact = caller.resume(&issue, Some(&state), issue.answers()).await;
            match (state_holds, retained) {
                (true, true) => check_applied(&exact, true),
                (true, false) => {
                    check_refused(&exact, "operation_retention_expired", "status_only")
                }
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
            close(session).await;
            bench.check_rows(1, &[("case-10-operation", "applied")]);
        }
    }
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
    for over in [Over::Stdio, Over::Http] {
        let bench = Bench::of_case("case-11-operation", Protocol::V2026_07_28, over);
        let (session, transcript) = bench.open_kept(&bench.options(), Protocol::V2026_07_28).await;
        let (caller, issue) = (session.caller(), issue("case-11-operation"));
        mint(caller, &issue).await;
        check_state_refused(&caller.resume(&issue, None, issue.answers()).await);
        check_unknown(&caller.status("case-11-operation").await, "no_record");
        bench.check_rows(0, &[]);
        check_applied(&caller.create_issue(&issue).await, false);
        close(session).await;
        bench.check_rows(1, &[("case-11-operation", "applied")]);
        let answered = common::frames(&transcript, Side::Server);
        assert!(answered.iter().all(|frame| frame.whole), "every reply is a whole frame");
    }
}

#[tokio::test]
async fn case_12_a_partial_effect() {
    // Promise: a partial effect stays visible as it is, with its failed compensation under an
    // identity of its own, and a replay repeats nothing.
    for (protocol, over) in WAYS {
        let bench = Bench::of_case("case-12-operation", protocol, over);
        let session = bench.open(&bench.options(), protocol).await;
        let (caller, issue) = (session.caller(), issue("case-12-operation").partial());
        let state = match protocol.is_modern() {
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
        close(session).await;
        let rows = bench.check_rows(1, &[("case-12-operation", "partial")]);
        assert_eq!(rows.count("watchers"), 0);
        let failed: Vec<&Value> = rows
            .rows("audit_events")
            .iter()
            .filter(|event| event["kind"] == "compensation_failed")
            .collect();
        let [failed] = &failed[..] else { panic!("{:?}", rows.rows("audit_events")) };
        assert_ne!(failed["identity"], "case-12-operation", "{failed}");
        assert!(failed["identity"].as_str().is_some_and(|own| !own.is_empty()), "{failed}");
    }
}
