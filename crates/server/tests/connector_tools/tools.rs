//! Connectors' own tools: waiting, pending, results, and what stands in their place.

use std::sync::Arc;

use counterfoil::tools::issue_effect;
use counterfoil_core::delivery::Withdrawal;
use counterfoil_core::identity::{OperationId, Tenant};
use counterfoil_store::outbox::{Action, Directed, Order, Which};
use counterfoil_store::{Outbox, SqliteOptions, SqliteStore, Store};
use serde_json::{Value, json};

use crate::desk::{Desk, Mode};
use crate::session::Session;
use crate::world::{BUGS, TICKETS, UNSAFE, World, bugs_at_once};

fn bug(id: &str) -> Value {
    json!({ "operation_id": id, "title": "It burns" })
}

#[tokio::test]
async fn a_result_that_comes_in_time_is_the_answer_and_every_repeat() {
    // Promise: a tool that waits gives the declared result, once made; a repeat gives the same,
    // marked; a changed call conflicts; the status has the stored result.
    let desk = Desk::open(Mode::Up);
    let world = World::new(desk.address, BUGS);
    let session = Session::start(&world, "alice", &[]).await;
    let first = session.call("file_bug", bug("op-1")).await;
    assert_eq!((first.text(), first.body()), ("Filed T-1.".into(), json!({ "number": 1 })));
    let meta = |replayed: bool| {
        json!({"operationId": "op-1", "state": "applied", "replayed": replayed,
               "retry": "none", "contract": "key"})
    };
    assert_eq!((first.is_error(), first.operation()), (false, meta(false)));
    let again = session.call("file_bug", bug("op-1")).await;
    assert_eq!((again.text(), again.body()), (first.text(), first.body()));
    assert_eq!(again.operation(), meta(true));
    let changed = json!({ "operation_id": "op-1", "title": "It burns", "maxDepth": 1 });
    assert_eq!(session.call("file_bug", changed).await.code(), "operation_conflict");
    let seen = session.status("op-1").await;
    assert_eq!(
        seen["storedResult"],
        json!({ "text": "Filed T-1.", "structured": { "number": 1 } })
    );
    assert_eq!((&seen["state"], &seen["matchingIds"]), (&json!("applied"), &json!([])));
    let listed = session.call("list_operations", json!({})).await.body();
    let line = &listed["operations"][0];
    assert_eq!((&line["tool"], &line["state"]), (&json!("file_bug"), &json!("applied")));
    assert_eq!(desk.effects(), 1);
    session.close().await;
}

#[tokio::test]
async fn a_result_that_takes_longer_is_pending_and_then_there() {
    // Promise: a tool that has waited long enough says pending with the ID and status_only; the
    // repeat, the status and the trail follow the delivery; nothing is sent twice.
    let desk = Desk::open(Mode::Hold);
    let world = World::new(desk.address, &bugs_at_once());
    let session = Session::start(&world, "alice", &[]).await;
    let first = session.call("file_bug", bug("op-1")).await;
    let body = first.body();
    assert_eq!((&body["operationId"], &body["state"]), (&json!("op-1"), &json!("unknown")));
    assert_eq!((&body["contract"], &body["replayed"]), (&json!("key"), &json!(false)));
    assert!(first.text().starts_with("pending: operation op-1"), "{}", first.text());
    assert_eq!((first.is_error(), &first.operation()["retry"]), (false, &json!("status_only")));
    let by_id = json!({ "operation_id": "op-1" });
    let on_way = |body: &Value| body["detail"] == "sending";
    let seen = session.until("get_operation_status", by_id.clone(), on_way).await;
    assert_eq!((&seen["state"], &seen["storedResult"]), (&json!("unknown"), &Value::Null));
    let again = session.call("file_bug", bug("op-1")).await;
    assert_eq!(
        (&again.body()["detail"], &again.body()["replayed"]),
        (&json!("sending"), &json!(true))
    );
    desk.set(Mode::Up);
    session.until("get_operation_status", by_id, |body| body["state"] == "applied").await;
    let last = session.call("file_bug", bug("op-1")).await;
    assert_eq!(
        (last.body(), last.operation()["replayed"].clone()),
        (json!({ "number": 1 }), json!(true))
    );
    assert_eq!(desk.keys().iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1]);
    session.close().await;
}

#[tokio::test]
async fn arguments_outside_the_schema_are_refused_by_name() {
    // Promise: a misspelt argument is refused, naming it and the known one; a number that cannot be
    // kept exactly is refused; nothing is written for any of it.
    let desk = Desk::open(Mode::Up);
    let world = World::new(desk.address, BUGS);
    let session = Session::start(&world, "alice", &[]).await;
    let required = session.tools["file_bug"].input_schema["required"].clone();
    assert_eq!(required, json!(["title", "operation_id"]));
    for (arguments, code, words) in [
        (
            json!({"operation_id": "op-1", "title": "t", "depth": 1}),
            "invalid_argument",
            "`depth`; did you mean `maxDepth`?",
        ),
        (json!({"operation_id": "op-1"}), "invalid_argument", "is a required property"),
        (json!({"operation_id": "op-1", "title": ""}), "invalid_argument", "$.arguments.title"),
        (
            json!({"operation_id": "op-1", "title": "t", "maxDepth": "1"}),
            "invalid_argument",
            "maxDepth",
        ),
        (
            json!({"operation_id": "op-1", "title": "t", "repeat_of": "x"}),
            "invalid_argument",
            "repeat_of",
        ),
        (
            json!({"operation_id": "op-1", "title": "t", "maxDepth": 9_007_199_254_740_993_i64}),
            "invalid_argument",
            "maxDepth",
        ),
        (json!({"operation_id": " ", "title": "t"}), "invalid_argument", "operation_id"),
        (json!({"title": "t"}), "operation_id_required", "operation_id"),
    ] {
        let refused = session.call("file_bug", arguments.clone()).await;
        assert_eq!(refused.code(), code, "{arguments}");
        assert!(refused.text().contains(words), "{arguments}: {}", refused.text());
    }
    assert_eq!(session.status("op-1").await["detail"], "no_record");
    session.close().await;
    assert_eq!(desk.keys(), []);
}

#[tokio::test]
async fn one_identity_comes_by_either_way() {
    // Promise: the ID may come as the tool's argument or in `_meta`; both name one effect, and two
    // that differ are refused.
    let desk = Desk::open(Mode::Up);
    let world = World::new(desk.address, &format!("{TICKETS}{BUGS}"));
    let session = Session::start(&world, "alice", &[]).await;
    let texts = json!({ "subject": "s", "description": "d" });
    let cases = [
        ("file_bug", "operation_id", json!({ "title": "t" })),
        ("submit_support_ticket", "idempotency_key", texts),
    ];
    for (tool, field, arguments) in cases {
        let id = format!("of-{tool}");
        let first = session.call_with(tool, arguments.clone(), Some(&id)).await;
        assert_eq!((&first.operation()["operationId"], first.is_error()), (&json!(id), false));
        let mut named = arguments.clone();
        named[field] = json!(id);
        for in_meta in [None, Some(&*id)] {
            let again = session.call_with(tool, named.clone(), in_meta).await;
            assert_eq!(again.operation()["replayed"], true, "{tool}");
        }
        let refused = session.call_with(tool, named, Some("other")).await;
        assert_eq!(refused.code(), "invalid_argument");
        assert!(refused.text().contains("differ"), "{}", refused.text());
    }
    session.close().await;
}

#[tokio::test]
async fn a_call_that_is_taken_back_is_noted_and_not_undone() {
    // Promise: a client that cancels while its tool waits changes nothing: the wish is on record,
    // and the delivery goes on and is found by asking.
    let desk = Desk::open(Mode::Hold);
    let world = World::new(desk.address, BUGS);
    let session = Session::start(&world, "alice", &[]).await;
    let waiting = session.begin("file_bug", bug("op-1")).await;
    let by_id = json!({ "operation_id": "op-1" });
    let has = |kind: &'static str| {
        move |body: &Value| {
            let events = body["events"].as_array().expect("a list");
            events.iter().any(|event| event["kind"] == kind)
        }
    };
    session.until("get_operation_audit", by_id.clone(), has("attempt_started")).await;
    waiting.cancel(None).await.expect("sent");
    session.until("get_operation_audit", by_id.clone(), has("cancel_requested")).await;
    desk.set(Mode::Up);
    session.until("get_operation_status", by_id, |body| body["state"] == "applied").await;
    assert_eq!(desk.effects(), 1);
    session.close().await;
}

#[tokio::test]
async fn an_applied_effect_without_a_declared_result_is_said_to_be_applied() {
    // Promise: where the result is not what was declared, the answer is an error to programs and
    // `applied` in `_meta`, so that nobody does it again.
    let desk = Desk::open(Mode::Up);
    let wrong = BUGS.replace("number = \"{{ reply.number }}\"", "number = \"{{ reply.id }}\"");
    let world = World::new(desk.address, &wrong);
    let session = Session::start(&world, "alice", &[]).await;
    for replayed in [false, true] {
        let told = session.call("file_bug", bug("op-1")).await;
        assert!(told.is_error());
        assert_eq!((told.text(), &told.body()["state"]), ("Filed T-1.".into(), &json!("applied")));
        assert_eq!(
            (&told.operation()["state"], &told.operation()["retry"]),
            (&json!("applied"), &json!("none"))
        );
        assert_eq!(told.operation()["replayed"], replayed);
    }
    assert_eq!(desk.effects(), 1);
    session.close().await;
}

#[tokio::test]
async fn each_contract_is_shown_and_ends_as_it_must() {
    // Promise: under `never` a lost answer is in doubt and is not sent again; `at_least_once` is
    // said in every reply, and in the tool's description.
    let desk = Desk::open(Mode::DoAndFail);
    let world = World::new(desk.address, UNSAFE);
    let session = Session::start(&world, "alice", &[]).await;
    let paid = session.call("pay", json!({ "operation_id": "op-1" })).await;
    assert_eq!(
        (&paid.body()["detail"], &paid.body()["state"]),
        (&json!("in_doubt"), &json!("unknown"))
    );
    assert_eq!(
        (&paid.operation()["contract"], &paid.operation()["retry"]),
        (&json!("never"), &json!("status_only"))
    );
    assert!(paid.text().contains("in doubt"), "{}", paid.text());
    assert_eq!(session.status("op-1").await["detail"], "in_doubt");
    assert_eq!(
        session.call("pay", json!({ "operation_id": "op-1" })).await.operation()["replayed"],
        true
    );
    assert_eq!(desk.effects(), 1);
    desk.set(Mode::Up);
    let description = session.tools["ring"].description.clone().expect("words");
    assert!(description.contains("at_least_once"), "{description}");
    for _ in 0..2 {
        let rung = session.call("ring", json!({ "operation_id": "op-2" })).await;
        assert_eq!(
            (&rung.body()["state"], &rung.operation()["contract"]),
            (&json!("applied"), &json!("at_least_once"))
        );
        assert!(
            json!(rung.0.content)[1]["text"].as_str().expect("words").contains("at_least_once")
        );
    }
    let told = session.call("get_operation_status", json!({ "operation_id": "op-2" })).await;
    assert_eq!(told.operation()["contract"], "at_least_once");
    session.close().await;
}

#[tokio::test]
async fn a_connector_that_changed_or_went_leaves_its_operations_readable() {
    // Promise: what was accepted is told as it stands, whatever became of the connector: the same
    // call replays it although it could not be accepted now, and without the tool the status tells.
    let desk = Desk::open(Mode::Up);
    let world = World::new(desk.address, &bugs_at_once());
    let session = Session::start(&world, "alice", &["--no-worker"]).await;
    session.call("file_bug", bug("op-1")).await;
    session.close().await;
    let stricter =
        bugs_at_once().replace("required = [\"title\"]", "required = [\"title\", \"maxDepth\"]");
    world.configure(desk.address, &stricter);
    let session = Session::start(&world, "alice", &["--no-worker"]).await;
    let again = session.call("file_bug", bug("op-1")).await;
    assert_eq!(
        (&again.body()["detail"], &again.body()["replayed"]),
        (&json!("queued"), &json!(true))
    );
    assert_eq!(session.call("file_bug", bug("op-2")).await.code(), "invalid_argument");
    session.close().await;
    world.configure(desk.address, TICKETS);
    let session = Session::start(&world, "alice", &[]).await;
    let by_id = json!({ "operation_id": "op-1" });
    session.until("get_operation_status", by_id, |body| body["detail"] == "parked").await;
    session.close().await;
    assert_eq!(desk.effects(), 0);
}

#[tokio::test]
async fn what_an_operator_ended_is_not_applied_and_a_dead_letter() {
    // Promise: a delivery that was cancelled with proof is `not_applied`; its ticket is a dead
    // letter that says cancelled; only the call that proves it may say `new_operation`.
    let desk = Desk::open(Mode::Up);
    let world = World::new(desk.address, &format!("{TICKETS}{}", bugs_at_once()));
    let session = Session::start(&world, "alice", &["--no-worker"]).await;
    session.call("file_bug", bug("op-1")).await;
    let texts = json!({ "subject": "s", "description": "d", "idempotency_key": "key-1" });
    let ticket =
        session.call("submit_support_ticket", texts.clone()).await.body()["ticket_id"].clone();
    session.close().await;
    cancel(&world, &["op-1", "key-1"]).await;
    let session = Session::start(&world, "alice", &[]).await;
    let told = session.call("file_bug", bug("op-1")).await;
    assert_eq!((told.is_error(), &told.body()["state"]), (true, &json!("not_applied")));
    assert_eq!(told.operation()["retry"], "none");
    let seen = session.status("op-1").await;
    assert_eq!((&seen["state"], &seen["detail"]), (&json!("not_applied"), &json!("settled")));
    let asked = session.call("get_delivery_status", json!({ "ticket_id": ticket })).await;
    assert_eq!(
        (&asked.body()["status"], &asked.body()["detail"]),
        (&json!("dead_letter"), &json!("cancelled"))
    );
    assert_eq!(asked.operation()["retry"], "none");
    let again = session.call("submit_support_ticket", texts).await;
    assert_eq!(
        (&again.body()["status"], &again.body()["duplicate"]),
        (&json!("dead_letter"), &json!(true))
    );
    session.close().await;
    assert_eq!(desk.effects(), 0);
}

#[tokio::test]
async fn the_call_that_saw_nothing_happen_may_be_made_anew_and_no_other() {
    // Promise: the reply of the very call that is there when its delivery is proved not applied says
    // `new_operation`; a repeat of it and the status never do.
    let desk = Desk::open(Mode::Up);
    let world = World::new(desk.address, BUGS);
    let session = Session::start(&world, "alice", &[]).await;
    world.bench.run(&["target", "pause", "bugs", "--reason", "a test"]).done();
    let asked = json!({ "operation_id": "op-1" });
    let (first, ()) = tokio::join!(session.call("file_bug", bug("op-1")), async {
        session.until("get_operation_status", asked.clone(), |it| it["detail"] == "queued").await;
        cancel(&world, &["op-1"]).await;
    });
    assert_eq!((first.is_error(), &first.body()["state"]), (true, &json!("not_applied")));
    assert_eq!(
        first.operation(),
        json!({"operationId": "op-1", "state": "not_applied", "replayed": false,
               "retry": "new_operation", "contract": "key"})
    );
    let again = session.call("file_bug", bug("op-1")).await.operation();
    assert_eq!((&again["retry"], &again["replayed"]), (&json!("none"), &json!(true)));
    let status = session.call("get_operation_status", asked).await;
    assert_eq!(
        (&status.operation()["retry"], &status.body()["state"]),
        (&json!("none"), &json!("not_applied"))
    );
    session.close().await;
    assert_eq!(desk.effects(), 0);
}

/// As an operator does.
async fn cancel(world: &World, ids: &[&str]) {
    let options = SqliteOptions {
        tables: issue_effect::tables(),
        ..SqliteOptions::new(world.bench.data("ledger.db"))
    };
    let store = Arc::new(SqliteStore::open(&options).expect("opens"));
    let which = |id: &&str| {
        let id = OperationId::parse(id).expect("valid");
        Which::Operation(Tenant::parse("local").expect("valid"), id)
    };
    let order = Order {
        which: ids.iter().map(which).collect(),
        action: Action::Withdraw(Withdrawal::Cancel),
        who: "op".into(),
        reason: "a test".into(),
    };
    let done = store.direct(order).await.expect("ordered");
    assert!(done.iter().all(|it| matches!(it, Directed::Done(_))), "{done:?}");
    store.close().await.expect("closed");
}

#[tokio::test]
async fn tools_are_listed_in_one_order_and_tickets_only_where_there_is_a_desk() {
    // Promise: the list is the same at every start; the ticket tools exist only with a connector
    // for them; every tool publishes what it takes and gives.
    let desk = Desk::open(Mode::Up);
    let own = ["create_issue", "get_operation_status", "list_operations", "get_operation_audit"];
    let all = format!("{UNSAFE}{TICKETS}{BUGS}");
    let cases: [(&str, &[&str]); 3] = [
        ("", &[]),
        (BUGS, &["file_bug"]),
        (&all, &["file_bug", "submit_support_ticket", "get_delivery_status", "pay", "ring"]),
    ];
    for (connectors, more) in cases {
        let world = World::new(desk.address, connectors);
        for _ in 0..2 {
            let session = Session::start(&world, "alice", &[]).await;
            assert_eq!(session.names, [&own[..], more].concat());
            for tool in session.tools.values() {
                let input = Value::Object((*tool.input_schema).clone());
                jsonschema::meta::validate(&input).expect("a schema");
                let output = tool.output_schema.as_ref().expect("every tool has one");
                assert_eq!(output["type"], "object", "{}", tool.name);
                assert_eq!(input["type"], "object", "{}", tool.name);
            }
            session.close().await;
        }
    }
}
