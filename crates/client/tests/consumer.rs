//! The consumer against a scripted server: what it concludes, and how many writes arrive.

mod fake;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil_client::{
    Answers, Call, Consumer, Journal, Limits, LostReason, NotSent, Prepared, Reply, Sent, Settled,
    Who,
};
use counterfoil_core::identity::{BackendId, OperationId, Principal};
use counterfoil_core::time::Timestamp;
use fake::{Do, Fake, World};
use serde_json::{Value, json};

const ID: &str = "case-03";

fn id() -> OperationId {
    OperationId::parse(ID).expect("valid")
}

fn world(journal: &Path) -> World {
    World {
        modern: true,
        schema: json!({"type": "object", "properties": {"operation_id": {"type": "string"}}}),
        legs: VecDeque::new(),
        statuses: VecDeque::new(),
        sessions: VecDeque::new(),
        journal: journal.to_owned(),
        writes: Vec::new(),
        asks: Vec::new(),
        elicitation_announced: Vec::new(),
        elicited: Vec::new(),
        unsaved_writes_count: 0,
        writes_after_ask_count: 0,
    }
}

fn call(operation_id: Option<OperationId>, answers: &[&str]) -> Call {
    Call {
        tool: "create_issue".into(),
        arguments: json!({"title": "t"}).as_object().expect("an object").clone(),
        operation_id,
        answers: Answers::from_items(answers.iter().copied()).expect("good"),
    }
}

fn consumer(path: &Path) -> Consumer {
    let who = Who {
        principal: Some(Principal::parse("alice").expect("valid")),
        backend: Some(BackendId::parse("ledger-1").expect("valid")),
    };
    Consumer::new(Journal::open(path).expect("opened"), who, Limits::default())
}

/// `_meta` of a reply about our operation.
fn meta(state: &str, retry: &str) -> Value {
    json!({"io.counterfoil/operation":
        {"operationId": ID, "state": state, "replayed": false, "retry": retry}})
}

fn done() -> Value {
    json!({"resultType": "complete", "content": [{"type": "text", "text": "created 1"}],
           "structuredContent": {"effectId": 1}, "_meta": meta("applied", "none")})
}

fn refusal(code: &str, retry: &str) -> Value {
    json!({"resultType": "complete", "isError": true,
           "content": [{"type": "text", "text": "no"}],
           "structuredContent": {"error": {"code": code, "message": "no", "retry": retry}},
           "_meta": meta("unknown", retry)})
}

fn asks_for_body() -> Value {
    let schema = json!({"type": "object", "properties": {"body": {"type": "string"}},
                        "required": ["body"]});
    json!({"resultType": "input_required", "requestState": "sealed-1",
           "inputRequests": {"form": {"method": "elicitation/create",
               "params": {"mode": "form", "message": "body?", "requestedSchema": schema}}},
           "_meta": meta("unknown", "none")})
}

/// A status reply: `base` with changes.
fn status(changes: Value) -> Do {
    let mut account = json!({
        "operationId": ID, "principal": "alice", "backend": "ledger-1", "state": "applied",
        "authoritative": true, "freshWriteAuthorized": false,
        "observedAt": "2026-01-31T09:30:00.000Z", "scope": "words",
        "scopeBinding": {"operationId": ID, "principal": "alice", "backend": "ledger-1"},
        "matchingIds": [1], "detail": "settled", "storedResult": "created 1"});
    for (name, value) in changes.as_object().expect("an object") {
        if value == "-" {
            account.as_object_mut().expect("an object").remove(name);
        } else {
            account[name] = value.clone();
        }
    }
    Do::Reply(json!({"resultType": "complete", "content": [], "structuredContent": account}))
}

fn applied() -> Do {
    status(json!({}))
}

fn unknown(detail: &str) -> Do {
    status(json!({"state": "unknown", "authoritative": false, "detail": detail,
                  "matchingIds": [], "storedResult": null}))
}

#[derive(Default)]
struct Script {
    legacy: bool,
    unnamed: bool,
    answers: &'static [&'static str],
    legs: Vec<Do>,
    statuses: Vec<Do>,
    /// How the sessions after the first begin.
    later_sessions: Vec<Do>,
}

/// Runs a script to its end and says in one line what was concluded and what arrived.
async fn run(script: Script) -> (String, World) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("calls.jsonl");
    let consumer = consumer(&path);
    let mut world = world(&path);
    world.modern = !script.legacy;
    world.legs = script.legs.into();
    world.statuses = script.statuses.into();
    let world = Arc::new(Mutex::new(world));
    let fake = Fake(world.clone());
    let operation_id = (!script.unnamed).then(id);
    let prepared = consumer
        .prepare(call(operation_id, script.answers), "fake", Timestamp::from_ms(0))
        .expect("saved");
    let sent = prepared.send(&fake).await.expect("sent");
    world.lock().expect("not poisoned").sessions = script.later_sessions.into();
    let outcome = match sent {
        Sent::Finished(finished) => {
            let reply = match finished.reply {
                Reply::Result(_) => "result".to_owned(),
                Reply::Refused(refused) => format!("refused {}", refused.code),
                Reply::InputMissing(names) => format!("missing {}", names.join(",")),
            };
            format!("{reply}: {}", finished.belief.effect.as_str())
        }
        Sent::Lost(lost) => {
            let reason = word(lost.reason());
            let settled = lost.reconcile(&fake).await;
            format!("{reason}: {}", describe(&settled))
        }
    };
    let world =
        std::mem::replace(&mut *world.lock().expect("not poisoned"), self::world(Path::new("")));
    assert_eq!(world.unsaved_writes_count, 0, "an identity was not on disk before its write");
    assert_eq!(world.writes_after_ask_count, 0, "a write was sent after a question");
    let counts = format!("; writes {}, asks {}", world.writes.len(), world.asks.len());
    (outcome + &counts, world)
}

fn describe(settled: &Settled) -> String {
    let belief = settled.belief;
    let result = settled.stored_result().map_or("-", |result| result.get());
    format!("{} {} {result}", belief.effect.as_str(), belief.action.as_str())
}

fn word(reason: &LostReason) -> &'static str {
    match reason {
        LostReason::NoReply(_) => "no reply",
        LostReason::TimedOut => "timed out",
        LostReason::Error(_) => "error",
        LostReason::OtherOperation => "other operation",
        LostReason::InputMissing(_) => "input missing",
        LostReason::TooManyRounds(_) => "too many rounds",
        LostReason::NotSaved(_) => "not saved",
    }
}

async fn check(cases: Vec<(&'static str, Script, &'static str)>) {
    for (name, script, expected) in cases {
        let (outcome, _) = run(script).await;
        assert_eq!(outcome, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_leg_is_sent_once_whatever_comes_back() {
    // Promise: what the reply proves is passed on, what it leaves open is asked for, and one
    // write arrives in every case.
    let one =
        |leg: Do, statuses: Vec<Do>| Script { legs: vec![leg], statuses, ..Script::default() };
    let retry = |word: &str| json!({"retry": word});
    let tool_error = json!({"resultType": "complete", "isError": true,
                            "content": [{"type": "text", "text": "no"}]});
    let mut foreign = done();
    foreign["_meta"]["io.counterfoil/operation"]["operationId"] = json!("case-99");
    let mut broken = done();
    broken["_meta"]["io.counterfoil/operation"]["retry"] = json!("maybe");
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
            "refused operation_conflict: not_applied; writes 1, asks 0",
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
    // begin are errors before anything is sent.
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
            "a session that hangs",
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
        let prepared = consumer.prepare(call, "fake", Timestamp::from_ms(0)).expect("saved");
        let error: NotSent = prepared.send(&fake).await.expect_err(name);
        assert!(error.to_string().contains(words), "{name}: {error}");
        assert_eq!(fake.0.lock().expect("not poisoned").writes.len(), 0, "{name}");
        let saved = Journal::read(&path).expect("read");
        assert_eq!(saved[0].settled, None, "{name}: not sent says nothing of an earlier send");
    }
}

#[tokio::test(start_paused = true)]
async fn an_identity_that_cannot_be_saved_is_never_sent() {
    // Promise: a failed save gives no `Prepared`, and a failed save of the server's own ID stops
    // before the second leg.
    let dir = tempfile::tempdir().expect("a directory");
    let full = Journal::open("/dev/full").expect("opened");
    let consumer = Consumer::new(full, Who::default(), Limits::default());
    let prepared: Result<Prepared<'_>, _> =
        consumer.prepare(call(Some(id()), &[]), "fake", Timestamp::from_ms(0));
    let error = prepared.expect_err("no space").to_string();
    assert!(error.contains("nothing is sent"), "{error}");
    assert!(dir.path().exists());
}

#[tokio::test(start_paused = true)]
async fn the_journal_learns_what_became_of_a_call() {
    // Promise: a settled effect is noted, an unknown one stays open for the next start.
    let cases = [
        (vec![Do::Reply(done())], vec![], Some("applied")),
        (vec![Do::Die], vec![applied()], Some("applied")),
        (vec![Do::Die], vec![unknown("no_record")], None),
        (vec![Do::Reply(refusal("operation_conflict", "none"))], vec![], None),
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
        assert_eq!(saved[0].settled.as_deref(), expected);
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
    assert!(Limits::default().reconcile >= Duration::from_secs(1));
}
