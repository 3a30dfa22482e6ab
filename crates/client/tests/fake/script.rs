//! Scripts for the fake server, and the one line that says what the consumer made of them.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use counterfoil_client::{
    Answers, Call, Consumer, Journal, Limits, LostReason, Reply, Sent, Settled, Who,
};
use counterfoil_core::identity::{BackendId, OperationId, Principal};
use counterfoil_core::time::Timestamp;
use serde_json::{Value, json};

use super::{Do, Fake, World};

pub(crate) const ID: &str = "case-03";

pub(crate) fn id() -> OperationId {
    OperationId::parse(ID).expect("valid")
}

pub(crate) fn world(journal: &Path) -> World {
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
        stop: tokio::sync::watch::Sender::new(false),
    }
}

pub(crate) fn call(operation_id: Option<OperationId>, answers: &[&str]) -> Call {
    Call {
        tool: "create_issue".into(),
        arguments: json!({"title": "t"}).as_object().expect("an object").clone(),
        operation_id,
        answers: Answers::from_items(answers.iter().copied()).expect("good"),
    }
}

pub(crate) fn consumer(path: &Path) -> Consumer {
    let who = Who {
        principal: Some(Principal::parse("alice").expect("valid")),
        backend: Some(BackendId::parse("ledger-1").expect("valid")),
    };
    Consumer::new(Journal::open(path).expect("opened"), who, Limits::default())
}

/// `_meta` of a reply about our operation.
pub(crate) fn meta(state: &str, retry: &str) -> Value {
    json!({"io.counterfoil/operation":
        {"operationId": ID, "state": state, "replayed": false, "retry": retry}})
}

pub(crate) fn done() -> Value {
    json!({"resultType": "complete", "content": [{"type": "text", "text": "created 1"}],
           "structuredContent": {"effectId": 1}, "_meta": meta("applied", "none")})
}

pub(crate) fn refusal(code: &str, retry: &str) -> Value {
    json!({"resultType": "complete", "isError": true,
           "content": [{"type": "text", "text": "no"}],
           "structuredContent": {"error": {"code": code, "message": "no", "retry": retry}},
           "_meta": meta("unknown", retry)})
}

pub(crate) fn asks_for_body() -> Value {
    let schema = json!({"type": "object", "properties": {"body": {"type": "string"}},
                        "required": ["body"]});
    json!({"resultType": "input_required", "requestState": "sealed-1",
           "inputRequests": {"form": {"method": "elicitation/create",
               "params": {"mode": "form", "message": "body?", "requestedSchema": schema}}},
           "_meta": meta("unknown", "none")})
}

/// A status reply: `base` with changes.
pub(crate) fn status(changes: Value) -> Do {
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

pub(crate) fn applied() -> Do {
    status(json!({}))
}

pub(crate) fn unknown(detail: &str) -> Do {
    status(json!({"state": "unknown", "authoritative": false, "detail": detail,
                  "matchingIds": [], "storedResult": null}))
}

#[derive(Default)]
pub(crate) struct Script {
    pub(crate) legacy: bool,
    pub(crate) unnamed: bool,
    pub(crate) answers: &'static [&'static str],
    pub(crate) legs: Vec<Do>,
    pub(crate) statuses: Vec<Do>,
    /// How the sessions after the first begin.
    pub(crate) later_sessions: Vec<Do>,
}

/// Runs a script to its end and says in one line what was concluded and what arrived.
pub(crate) async fn run(script: Script) -> (String, World) {
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

pub(crate) fn describe(settled: &Settled) -> String {
    let belief = settled.belief;
    let result = settled.stored_result().map_or("-", |result| result.get());
    format!("{} {} {result}", belief.effect.as_str(), belief.action.as_str())
}

pub(crate) fn word(reason: &LostReason) -> &'static str {
    match reason {
        LostReason::NoReply(_) => "no reply",
        LostReason::TimedOut => "timed out",
        LostReason::Interrupted => "interrupted",
        LostReason::Error(_) => "error",
        LostReason::OtherOperation => "other operation",
        LostReason::InputMissing(_) => "input missing",
        LostReason::TooManyRounds(_) => "too many rounds",
        LostReason::NotSaved(_) => "not saved",
    }
}

pub(crate) async fn check(cases: Vec<(&'static str, Script, &'static str)>) {
    for (name, script, expected) in cases {
        let (outcome, _) = run(script).await;
        assert_eq!(outcome, expected, "{name}");
    }
}
