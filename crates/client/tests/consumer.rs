//! The consumer against a scripted server: what it concludes, and how many writes arrive.

mod fake;

use std::sync::{Arc, Mutex};

use counterfoil_client::{
    Call, Consumer, Entry, Journal, Limits, NotSent, Outcome, Prepared, Sent, Who,
};
use counterfoil_core::time::Timestamp;
use fake::script::{
    ID, Script, applied, asks_for_body, call, check, consumer, describe, done, id, meta, refusal,
    run, status, unknown, world,
};
use fake::{Do, Fake, World};
use serde_json::{Value, json};

/// One leg, and what a status then says.
fn one(leg: Do, statuses: Vec<Do>) -> Script {
    Script { legs: vec![leg], statuses, ..Script::default() }
}

#[tokio::test(start_paused = true)]
async fn a_first_leg_that_is_answered_is_passed_on() {
    // Promise: a result and a refusal are passed on with what they prove; one write arrives, and
    // nothing is asked.
    let retry = |word: &str| json!({"retry": word});
    let tool_error = json!({"resultType": "complete", "isError": true,
                            "content": [{"type": "text", "text": "no"}]});
    let plain = json!({"resultType": "complete", "content": [{"type": "text", "text": "ok"}]});
    check(vec![
        ("reply", one(Do::Reply(done()), vec![]), "result: applied; writes 1, asks 0"),
        (
            "reply of an unguarded server",
            one(Do::Reply(plain), vec![]),
            "result: applied; writes 1, asks 0",
        ),
        (
            "an error of an unguarded tool",
            one(Do::Reply(tool_error), vec![]),
            "result: unknown; writes 1, asks 0",
        ),
        (
            "conflict",
            one(Do::Reply(refusal("operation_conflict", "none")), vec![]),
            "refused operation_conflict: unknown; writes 1, asks 0",
        ),
        (
            "in progress",
            one(Do::Reply(refusal("operation_in_progress", "status_only")), vec![]),
            "refused operation_in_progress: unknown; writes 1, asks 0",
        ),
        (
            "store away",
            one(Do::Reply(refusal("store_unavailable", "same_operation")), vec![]),
            "refused store_unavailable: unknown; writes 1, asks 0",
        ),
        (
            "bad parameters",
            one(Do::Error(-32602, "bad", Value::Null), vec![]),
            "refused -32602: not_applied; writes 1, asks 0",
        ),
        (
            "no form elicitation",
            one(Do::Error(-32021, "elicitation.form", Value::Null), vec![]),
            "refused -32021: not_applied; writes 1, asks 0",
        ),
        (
            "an error of ours",
            one(Do::Error(-32603, "later", retry("same_operation")), vec![]),
            "refused -32603: unknown; writes 1, asks 0",
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_first_leg_that_proves_nothing_is_asked_for_and_not_sent_again() {
    // Promise: a missing, late, unreadable or foreign reply, and an error that does not exclude an
    // effect, leave it unknown until a status settles it; one write arrives in every case.
    let mut foreign = done();
    foreign["_meta"]["io.counterfoil/operation"]["operationId"] = json!("case-99");
    let mut broken = done();
    broken["_meta"]["io.counterfoil/operation"]["retry"] = json!("maybe");
    check(vec![
        (
            "an internal error",
            one(Do::Error(-32603, "oops", Value::Null), vec![applied()]),
            "error: applied return_stored_result \"created 1\"; writes 1, asks 1",
        ),
        (
            "lost after commit",
            one(Do::Die, vec![applied()]),
            "no reply: applied return_stored_result \"created 1\"; writes 1, asks 1",
        ),
        (
            "lost before commit",
            one(Do::Die, vec![unknown("no_record")]),
            "no reply: unknown stop -; writes 1, asks 1",
        ),
        (
            "late after commit",
            one(Do::Hang, vec![applied()]),
            "timed out: applied return_stored_result \"created 1\"; writes 1, asks 1",
        ),
        (
            "unreadable reply",
            one(Do::Garble, vec![applied()]),
            "no reply: applied return_stored_result \"created 1\"; writes 1, asks 1",
        ),
        (
            "reply of another operation",
            one(Do::Reply(foreign), vec![unknown("no_record")]),
            "other operation: unknown stop -; writes 1, asks 1",
        ),
        (
            "reply with broken words",
            one(Do::Reply(broken), vec![applied()]),
            "other operation: applied return_stored_result \"created 1\"; writes 1, asks 1",
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_the_first_leg_every_error_is_unknown() {
    // Promise: an earlier leg may have committed, so no error on a continuation is taken for a
    // refusal; each leg arrives once.
    let two = |leg: Do, statuses: Vec<Do>| Script {
        answers: &["body=Hello"],
        legs: vec![Do::Reply(asks_for_body()), leg],
        statuses,
        ..Script::default()
    };
    let lost = "no reply: applied return_stored_result \"created 1\"; writes 2, asks 1";
    let error = "error: applied return_stored_result \"created 1\"; writes 2, asks 1";
    let mut partial = done();
    partial["isError"] = json!(true);
    partial["_meta"] = meta("partial", "none");
    check(vec![
        ("answered", two(Do::Reply(done()), vec![]), "result: applied; writes 2, asks 0"),
        ("a settled partial", two(Do::Reply(partial), vec![]), "result: partial; writes 2, asks 0"),
        ("lost", two(Do::Die, vec![applied()]), lost),
        (
            "state refused",
            two(Do::Error(-32602, "state", json!({"retry": "status_only"})), vec![applied()]),
            error,
        ),
        ("bad parameters", two(Do::Error(-32602, "bad", Value::Null), vec![applied()]), error),
        (
            "refused by us",
            two(Do::Reply(refusal("operation_conflict", "none")), vec![applied()]),
            error,
        ),
        (
            "refused, and never applied",
            two(Do::Reply(refusal("invalid_argument", "none")), vec![unknown("no_record")]),
            "error: unknown stop -; writes 2, asks 1",
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn rounds_end_and_are_never_filled_with_made_up_answers() {
    // Promise: input that was not given ends the call, and so does a server that asks for ever;
    // after answers were sent that leaves the effect unknown.
    check(vec![
        (
            "asked for more",
            Script {
                answers: &["body=Hello"],
                legs: vec![
                    Do::Reply(asks_for_body()),
                    Do::Reply(json!({
                "resultType": "input_required", "requestState": "s", "inputRequests": {"more": {
                    "method": "elicitation/create", "params": {"mode": "form", "message": "m",
                        "requestedSchema": {"type": "object", "required": ["x"],
                            "properties": {"x": {"type": "string"}}}}}}})),
                ],
                statuses: vec![unknown("no_record")],
                ..Script::default()
            },
            "input missing: unknown stop -; writes 2, asks 1",
        ),
        (
            "asked for ever",
            Script {
                answers: &["body=Hello"],
                legs: vec![Do::Reply(asks_for_body()); 20],
                statuses: vec![unknown("no_record")],
                ..Script::default()
            },
            "too many rounds: unknown stop -; writes 8, asks 1",
        ),
        (
            "state alone, then done",
            Script {
                legs: vec![
                    Do::Reply(json!({"resultType": "input_required", "requestState": "s"})),
                    Do::Reply(done()),
                ],
                ..Script::default()
            },
            "result: applied; writes 2, asks 0",
        ),
        (
            "no answer at hand",
            Script { legs: vec![Do::Reply(asks_for_body())], ..Script::default() },
            "missing body: not_applied; writes 1, asks 0",
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_carries_id_state_and_answers() {
    // Promise: the continuation is the first request with the state and the answers, no less;
    // elicitation is announced only if there are answers.
    let (_, world) = run(Script {
        answers: &["body=Hello"],
        legs: vec![Do::Reply(asks_for_body()), Do::Reply(done())],
        ..Script::default()
    })
    .await;
    let [first, second] = &world.writes[..] else { panic!("{:?}", world.writes) };
    assert_eq!(first["arguments"], json!({"title": "t", "operation_id": ID}));
    assert_eq!(first.get("requestState"), None);
    assert_eq!(second["arguments"], first["arguments"]);
    assert_eq!(second["requestState"], "sealed-1");
    assert_eq!(
        second["inputResponses"],
        json!({"form": {"action": "accept", "content": {"body": "Hello"}}})
    );
    assert_eq!(world.elicitation_announced, [true]);
    let (_, world) = run(Script { legs: vec![Do::Reply(done())], ..Script::default() }).await;
    assert_eq!(world.elicitation_announced, [false]);
}

#[tokio::test(start_paused = true)]
async fn older_servers_ask_in_the_middle_of_a_call() {
    // Promise: classic elicitation is answered or cancelled, never made up; once it was answered,
    // an error of the call is as unknown as one of a continuation.
    let elicit = |then: Do| Do::Elicit(Box::new(then));
    let mut cancelled = done();
    cancelled["_meta"] = meta("not_applied", "new_operation");
    let bad = || Do::Error(-32602, "bad", Value::Null);
    let legacy = |answers, leg, statuses| Script {
        legacy: true,
        answers,
        legs: vec![leg],
        statuses,
        ..Script::default()
    };
    let (outcome, world) = run(legacy(&["body=Hello"], elicit(Do::Reply(done())), vec![])).await;
    assert_eq!(outcome, "result: applied; writes 1, asks 0");
    assert_eq!(world.elicited, [json!({"action": "accept", "content": {"body": "Hello"}})]);
    assert_eq!(world.elicitation_announced, [true]);
    let (outcome, world) = run(legacy(&["title=x"], elicit(Do::Reply(cancelled)), vec![])).await;
    assert_eq!(outcome, "result: not_applied; writes 1, asks 0");
    assert_eq!(world.elicited, [json!({"action": "cancel"})]);
    check(vec![
        (
            "error after an answer",
            legacy(&["body=H"], elicit(bad()), vec![applied()]),
            "error: applied return_stored_result \"created 1\"; writes 1, asks 1",
        ),
        (
            "error after a cancel",
            legacy(&["title=x"], elicit(bad()), vec![]),
            "refused -32602: not_applied; writes 1, asks 0",
        ),
        (
            "lost after an answer",
            legacy(&["body=H"], elicit(Do::Die), vec![applied()]),
            "no reply: applied return_stored_result \"created 1\"; writes 1, asks 1",
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_id_adopts_the_servers_before_it_goes_on() {
    // Promise: the ID that the server gives is on disk before the second leg (the fake server
    // checks it), and a loss after that can be asked for; a loss before it cannot.
    let unnamed = |legs, statuses| Script {
        unnamed: true,
        answers: &["body=Hello"],
        legs,
        statuses,
        ..Script::default()
    };
    check(vec![
        (
            "lost on the second leg",
            unnamed(vec![Do::Reply(asks_for_body()), Do::Die], vec![applied()]),
            "no reply: applied return_stored_result \"created 1\"; writes 2, asks 1",
        ),
        (
            "lost on the first leg",
            unnamed(vec![Do::Die], vec![applied()]),
            "no reply: unknown stop -; writes 1, asks 0",
        ),
        ("answered", unnamed(vec![Do::Reply(done())], vec![]), "result: applied; writes 1, asks 0"),
    ])
    .await;
    let mut other = asks_for_body();
    other["_meta"]["io.counterfoil/operation"]["operationId"] = json!("case-99");
    let named = Script {
        answers: &["body=Hello"],
        legs: vec![Do::Reply(other)],
        statuses: vec![unknown("no_record")],
        ..Script::default()
    };
    let (outcome, _) = run(named).await;
    assert_eq!(outcome, "other operation: unknown stop -; writes 1, asks 1");
}

#[tokio::test(start_paused = true)]
async fn only_an_account_that_agrees_in_every_part_settles_a_lost_call() {
    // Promise: a forged or foreign status, in any one field, leaves the effect unknown; so does
    // one that is missing a field or has one more.
    let bound = |name: &str| {
        let mut binding = json!({"operationId": ID, "principal": "alice", "backend": "ledger-1"});
        binding[name] = json!("other");
        json!({"scopeBinding": binding})
    };
    let mut forged = vec![
        json!({"operationId": "case-04"}),
        json!({"principal": "mallory"}),
        json!({"principal": "mallory", "scopeBinding":
            {"operationId": ID, "principal": "mallory", "backend": "ledger-1"}}),
        json!({"backend": "ledger-2"}),
        json!({"backend": "ledger-2", "scopeBinding":
            {"operationId": ID, "principal": "alice", "backend": "ledger-2"}}),
        json!({"state": "done"}),
        json!({"authoritative": false}),
        json!({"freshWriteAuthorized": true}),
        json!({"observedAt": "2026-01-31T09:30:00"}),
        json!({"scope": 1}),
        bound("operationId"),
        bound("principal"),
        bound("backend"),
        json!({"matchingIds": [2]}),
        json!({"matchingIds": [1, 2]}),
        json!({"detail": "in_doubt"}),
        json!({"storedResult": "created 2"}),
        json!({"storedResult": null}),
        json!({"extra": true}),
    ];
    for name in [
        "operationId",
        "principal",
        "backend",
        "state",
        "authoritative",
        "freshWriteAuthorized",
        "observedAt",
        "scope",
        "scopeBinding",
        "matchingIds",
        "detail",
        "storedResult",
    ] {
        forged.push(json!({name: "-"}));
    }
    for changes in forged {
        let name = changes.to_string();
        let legs = vec![Do::Die];
        // A second, honest answer is there, and is not asked for.
        let statuses = vec![status(changes), applied()];
        let (outcome, _) = run(Script { legs, statuses, ..Script::default() }).await;
        assert_eq!(outcome, "no reply: unknown stop -; writes 1, asks 1", "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn asking_goes_on_only_while_it_can_help_and_within_limits() {
    // Promise: a dead server is asked again over a fresh connection, an operation in progress is
    // polled, everything else stops at once; the number of questions is bounded; no write follows.
    let lost = |statuses| Script { legs: vec![Do::Die], statuses, ..Script::default() };
    let later = Do::Reply(refusal("store_unavailable", "same_operation"));
    let yes = "no reply: applied return_stored_result \"created 1\"";
    let cases: Vec<(&str, Vec<Do>, String)> = vec![
        ("dies once", vec![Do::Die, applied()], format!("{yes}; writes 1, asks 2")),
        (
            "dies again and again",
            vec![Do::Die, Do::Garble, Do::Die, applied()],
            format!("{yes}; writes 1, asks 4"),
        ),
        ("hangs once", vec![Do::Hang, applied()], format!("{yes}; writes 1, asks 2")),
        ("store away for a while", vec![later, applied()], format!("{yes}; writes 1, asks 2")),
        (
            "in progress, then applied",
            vec![unknown("in_progress"), applied()],
            format!("{yes}; writes 1, asks 2"),
        ),
        (
            "first step, then partial",
            vec![unknown("first_step_committed"), status(json!({"state": "partial"}))],
            "no reply: partial stop \"created 1\"; writes 1, asks 2".into(),
        ),
        (
            "in progress for ever",
            vec![unknown("in_progress"); 50],
            "no reply: unknown stop -; writes 1, asks 8".into(),
        ),
        ("dies for ever", vec![], "no reply: unknown stop -; writes 1, asks 8".into()),
        ("hangs for ever", vec![Do::Hang; 50], "no reply: unknown stop -; writes 1, asks 3".into()),
        (
            "not applied",
            vec![status(json!({"state": "not_applied", "matchingIds": [],
                                          "storedResult": "refused"}))],
            "no reply: not_applied stop \"refused\"; writes 1, asks 1".into(),
        ),
        (
            "purged",
            vec![status(json!({"detail": "purged", "storedResult": null}))],
            "no reply: applied stop -; writes 1, asks 1".into(),
        ),
        (
            "in doubt",
            vec![unknown("in_doubt"), applied()],
            "no reply: unknown stop -; writes 1, asks 1".into(),
        ),
        (
            "no ledger here",
            vec![Do::Error(-32602, "unknown tool", Value::Null), applied()],
            "no reply: unknown stop -; writes 1, asks 1".into(),
        ),
        (
            "a question for a question",
            vec![Do::Reply(asks_for_body()), applied()],
            "no reply: unknown stop -; writes 1, asks 1".into(),
        ),
    ];
    for (name, statuses, expected) in cases {
        let (outcome, _) = run(lost(statuses)).await;
        assert_eq!(outcome, expected, "{name}");
    }
    for dead in [Do::Die, Do::Garble] {
        let later_sessions = vec![dead; 3];
        let (outcome, _) = run(Script { later_sessions, ..lost(vec![applied()]) }).await;
        assert_eq!(outcome, format!("{yes}; writes 1, asks 1"), "three sessions fail to begin");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_is_said_and_not_sent() {
    // Promise: a server without the tool, arguments with another ID and a session that does not
    // begin are errors before anything is sent. The journal says so of this call alone.
    type Change = fn(&mut World, &mut Call);
    let cases: [(&str, Change, &str); 4] = [
        ("no such tool", |_, call| call.tool = "create_isue".into(), "no tool `create_isue`"),
        (
            "another ID",
            |_, call| drop(call.arguments.insert("operation_id".into(), json!("x"))),
            "the argument `operation_id` differs",
        ),
        ("no session", |world, _| world.sessions.push_back(Do::Die), "no MCP session"),
        (
            "a tool list that cannot be read",
            |world, _| {
                world.modern = false;
                world.schema = Value::Null;
            },
            "did not list its tools",
        ),
    ];
    for (name, change, words) in cases {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("calls.jsonl");
        let consumer = consumer(&path);
        let (mut world, mut call) = (world(&path), call(Some(id()), &[]));
        change(&mut world, &mut call);
        let fake = Fake(Arc::new(Mutex::new(world)));
        let journal = Journal::open(&path).expect("opened");
        let earlier = Entry::new(Some(id()), "create_issue", "fake", Timestamp::from_ms(0));
        journal.save(&earlier).expect("saved");
        let prepared = consumer.prepare(call, "fake", Timestamp::from_ms(0)).expect("saved");
        let error: NotSent = prepared.send(&fake).await.expect_err(name);
        assert!(error.to_string().contains(words), "{name}: {error}");
        assert_eq!(fake.0.lock().expect("not poisoned").writes.len(), 0, "{name}");
        let saved = Journal::read(&path).expect("read");
        assert_eq!(saved[0].settled, None, "{name}: not sent says nothing of an earlier send");
        assert_eq!(saved[1].settled, Some(Outcome::NotSent), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_identity_that_cannot_be_saved_is_never_sent() {
    // Promise: a failed save gives no `Prepared`, and without one nothing can be sent.
    let full = Journal::open("/dev/full").expect("opened");
    let consumer = Consumer::new(full, Who::default(), Limits::default());
    let prepared: Result<Prepared<'_>, _> =
        consumer.prepare(call(Some(id()), &[]), "fake", Timestamp::from_ms(0));
    let error = prepared.expect_err("no space").to_string();
    assert!(error.contains("nothing is sent"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_journal_learns_what_became_of_a_call() {
    // Promise: what was settled, refused or answered is noted, what is unknown stays open for the
    // next start.
    let plain = json!({"resultType": "complete", "content": []});
    let refused = |code, retry| vec![Do::Reply(refusal(code, retry))];
    let cases = [
        (vec![Do::Reply(done())], vec![], Some(Outcome::Applied)),
        (vec![Do::Die], vec![applied()], Some(Outcome::Applied)),
        (vec![Do::Die], vec![unknown("no_record")], None),
        (refused("operation_conflict", "none"), vec![], Some(Outcome::Refused)),
        (refused("operation_in_progress", "status_only"), vec![], None),
        (refused("store_unavailable", "same_operation"), vec![], None),
        (vec![Do::Error(-32602, "bad", Value::Null)], vec![], Some(Outcome::Refused)),
        (vec![Do::Reply(asks_for_body())], vec![], Some(Outcome::Refused)),
        (vec![Do::Reply(plain)], vec![], Some(Outcome::Answered)),
    ];
    for (legs, statuses, expected) in cases {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("calls.jsonl");
        let consumer = consumer(&path);
        let mut world = world(&path);
        world.legs = legs.into();
        world.statuses = statuses.into();
        let fake = Fake(Arc::new(Mutex::new(world)));
        let prepared =
            consumer.prepare(call(Some(id()), &[]), "fake", Timestamp::from_ms(0)).expect("saved");
        if let Sent::Lost(lost) = prepared.send(&fake).await.expect("sent") {
            let _ = lost.reconcile(&fake).await;
        }
        let saved = Journal::read(&path).expect("read");
        assert_eq!(saved[0].settled, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_can_be_asked_without_having_sent() {
    // Promise: after a restart the status alone is asked for, and the result comes back.
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("calls.jsonl");
    let consumer = consumer(&path);
    let mut world = world(&path);
    world.statuses = vec![applied()].into();
    let fake = Fake(Arc::new(Mutex::new(world)));
    let settled = consumer.ask(id(), &fake).await;
    assert_eq!(describe(&settled), "applied return_stored_result \"created 1\"");
    let world = fake.0.lock().expect("not poisoned");
    assert_eq!((world.writes.len(), world.asks.len()), (0, 1));
    assert_eq!(world.asks[0]["arguments"], json!({"operation_id": ID}));
}
