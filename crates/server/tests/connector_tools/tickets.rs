//! Support tickets: accepted durably at once, delivered later, and never twice.

use serde_json::{Value, json};

use crate::desk::{Desk, Mode};
use crate::session::Session;
use crate::world::{TICKETS, World};

const SUBMIT: &str = "submit_support_ticket";
const STATUS: &str = "get_delivery_status";

fn texts(key: &str) -> Value {
    json!({ "subject": "Printer", "description": "It burns.", "idempotency_key": key })
}

fn with(mut base: Value, name: &str, value: Value) -> Value {
    base[name] = value;
    base
}

async fn kinds(session: &Session, id: &str) -> Vec<String> {
    let told = session.call("get_operation_audit", json!({ "operation_id": id })).await;
    assert!(told.0.meta.is_some());
    let body = told.body();
    let events = body["events"].as_array().expect("a list");
    events.iter().map(|event| event["kind"].as_str().expect("a word").to_owned()).collect()
}

#[tokio::test]
async fn a_ticket_is_accepted_while_the_desk_is_down_and_delivered_once_by_the_worker() {
    // Promise: the call commits and says pending with a stable ticket_id; the same key and payload
    // gives the original with its present state, and leaves duplicate_submission; asking delivers
    // nothing; after a restart the worker delivers it once, under one key.
    let desk = Desk::open(Mode::Hold);
    let world = World::new(desk.address, TICKETS);
    let session = Session::start(&world, "alice", &["--no-worker"]).await;
    let first = session.call(SUBMIT, texts("key-1")).await;
    let body = first.body();
    assert_eq!((&body["status"], &body["detail"]), (&json!("pending"), &json!("queued")));
    assert_eq!((&body["duplicate"], &body["attempts"]), (&json!(false), &json!(0)));
    assert_eq!((&body["external_id"], &body["last_error"]), (&Value::Null, &Value::Null));
    assert_eq!(body["next_attempt_at"], body["created_at"], "due at once");
    let ticket = body["ticket_id"].as_str().expect("a text").to_owned();
    assert!(ticket.starts_with("tkt_") && ticket.len() == 36, "{ticket}");
    assert_eq!(
        first.operation(),
        json!({"operationId": "key-1", "state": "unknown", "replayed": false,
               "retry": "status_only", "contract": "key"})
    );
    let again = session.call(SUBMIT, texts("key-1")).await;
    assert_eq!(
        (&again.body()["ticket_id"], &again.body()["duplicate"]),
        (&json!(ticket), &json!(true))
    );
    assert_eq!(again.operation()["replayed"], true);
    for _ in 0..3 {
        let asked = session.call(STATUS, json!({ "ticket_id": ticket })).await;
        assert_eq!(asked.body()["status"], "pending");
        assert_eq!(session.status("key-1").await["detail"], "queued");
    }
    assert_eq!(kinds(&session, "key-1").await, ["accepted", "duplicate_submission"]);
    assert_eq!(desk.keys(), [], "nothing was sent by a call or a question");
    session.kill().await;

    desk.set(Mode::Up);
    let session = Session::start(&world, "alice", &[]).await;
    let asked = json!({ "ticket_id": ticket });
    let body = session.until(STATUS, asked, |body| body["status"] == "delivered").await;
    assert_eq!((&body["external_id"], &body["attempts"]), (&json!("T-1"), &json!(1)));
    assert_eq!((&body["next_attempt_at"], &body["detail"]), (&Value::Null, &json!("delivered")));
    assert!(body["updated_at"].as_str() >= body["created_at"].as_str());
    let again = session.call(SUBMIT, texts("key-1")).await;
    let body = again.body();
    assert_eq!((&body["status"], &body["duplicate"]), (&json!("delivered"), &json!(true)));
    assert_eq!(
        (&again.operation()["state"], &again.operation()["retry"]),
        (&json!("applied"), &json!("none"))
    );
    assert_eq!(session.status("key-1").await["state"], "applied");
    let kinds = kinds(&session, "key-1").await;
    assert_eq!(kinds[2..], ["attempt_started", "delivered", "duplicate_submission"]);
    assert_eq!(desk.effects(), 1);
    assert_eq!(desk.bodies(), [json!({"subject": "Printer", "description": "It burns."})]);
    session.close().await;
}

#[tokio::test]
async fn a_changed_payload_and_another_principal_conflict_to_the_byte() {
    // Promise: the same key with another payload is a conflict that shows nothing of the first, the
    // same whoever asks; another principal's ticket and its trail look like none at all.
    let desk = Desk::open(Mode::Up);
    let world = World::new(desk.address, TICKETS);
    let alice = Session::start(&world, "alice", &["--no-worker"]).await;
    let bob = Session::start(&world, "bob", &["--no-worker"]).await;
    let ticket = alice.call(SUBMIT, texts("key-1")).await.body()["ticket_id"].clone();
    let changed = with(texts("key-1"), "subject", json!("Fire"));
    let mine = alice.call(SUBMIT, changed.clone()).await;
    assert_eq!(mine.code(), "operation_conflict");
    assert_eq!(mine.operation()["retry"], "none");
    for request in [changed, texts("key-1")] {
        let his = bob.call(SUBMIT, request).await;
        assert_eq!(json!(his.0).to_string(), json!(mine.0).to_string());
    }
    assert!(!json!(mine.0).to_string().contains("Printer"));
    let asked = json!({ "ticket_id": ticket });
    let foreign = bob.call(STATUS, asked.clone()).await;
    let absent = bob.call(STATUS, json!({ "ticket_id": "tkt_none" })).await.body();
    assert_eq!(with(absent, "ticket_id", ticket.clone()), foreign.body());
    assert_eq!(foreign.body()["status"], "not_found");
    assert!(foreign.body()["detail"].as_str().expect("words").contains("proves nothing"));
    assert!(foreign.operation().is_null() && !foreign.is_error());
    assert_eq!(alice.call(STATUS, asked).await.body()["status"], "pending");
    for id in ["key-1", "key-2"] {
        assert_eq!(kinds(&bob, id).await, Vec::<String>::new(), "{id}");
        assert_eq!(bob.status(id).await["detail"], "no_record", "{id}");
    }
    assert_eq!(kinds(&alice, "key-1").await, ["accepted"], "a refusal leaves no event");
    alice.close().await;
    bob.close().await;
    assert_eq!(desk.effects(), 0);
}

#[tokio::test]
async fn what_makes_no_ticket_is_refused_and_leaves_nothing() {
    // Promise: blank, missing, unknown and oversized fields are refused by name before anything is
    // written; a key may come in `_meta` too and must agree.
    let desk = Desk::open(Mode::Up);
    let world = World::new(desk.address, TICKETS);
    let session = Session::start(&world, "alice", &[]).await;
    let long = "x".repeat(3000);
    for (name, value, code, words) in [
        ("subject", json!(""), "invalid_argument", "$.arguments.subject is empty or blank"),
        (
            "subject",
            json!(" \t\u{a0}"),
            "invalid_argument",
            "$.arguments.subject is empty or blank",
        ),
        ("description", json!("\n "), "invalid_argument", "$.arguments.description is empty"),
        ("description", json!(7), "invalid_argument", "must be a JSON string"),
        ("subject", json!("x".repeat(600)), "invalid_argument", "longer than"),
        ("subject", json!(long), "too_large", "at most 2048"),
        ("idempotency_key", json!("  "), "invalid_argument", "$.arguments.idempotency_key"),
        ("idempotency_key", json!(""), "invalid_argument", "$.arguments.idempotency_key"),
        ("idempotency_key", json!(1), "invalid_argument", "must be a JSON string"),
        ("idempotencyKey", json!("a"), "invalid_argument", "did you mean `idempotency_key`?"),
        ("operation_id", json!("a"), "invalid_argument", "no argument `operation_id`"),
    ] {
        let refused = session.call(SUBMIT, with(texts("key-1"), name, value)).await;
        assert_eq!(refused.code(), code, "{name}");
        assert!(refused.text().contains(words), "{name}: {}", refused.text());
    }
    for (missing, code) in [
        ("subject", "invalid_argument"),
        ("description", "invalid_argument"),
        ("idempotency_key", "operation_id_required"),
    ] {
        let mut less = texts("key-1");
        less.as_object_mut().expect("an object").remove(missing);
        let refused = session.call(SUBMIT, less).await;
        assert_eq!(refused.code(), code, "{missing}");
        assert!(refused.text().contains(missing), "{}", refused.text());
    }
    for asked in [json!({}), json!({ "ticket_id": " " }), json!({ "ticket_id": 1 })] {
        assert_eq!(session.call(STATUS, asked).await.code(), "invalid_argument");
    }
    assert_eq!(session.status("key-1").await["detail"], "no_record");
    session.close().await;
    assert_eq!(desk.keys(), []);
}

#[tokio::test]
async fn attempts_end_in_a_dead_letter_that_says_why() {
    // Promise: finite attempts, each with the original key; then dead_letter with the last error,
    // which is not terminal: the operation stays unknown and nobody is told to send again.
    let desk = Desk::open(Mode::Refuse(500, "<h1>down</h1>"));
    let world = World::new(desk.address, TICKETS);
    let session = Session::start(&world, "alice", &[]).await;
    let ticket = session.call(SUBMIT, texts("key-1")).await.body()["ticket_id"].clone();
    let asked = json!({ "ticket_id": ticket });
    let dead = session.until(STATUS, asked.clone(), |body| body["status"] == "dead_letter").await;
    assert_eq!((&dead["attempts"], &dead["detail"]), (&json!(2), &json!("dead_letter")));
    assert_eq!(dead["last_error"], "server_error", "the class, and no words: {dead}");
    assert_eq!(dead["next_attempt_at"], Value::Null);
    assert_eq!(desk.keys().iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2]);
    let seen = session.status("key-1").await;
    assert_eq!((&seen["state"], &seen["detail"]), (&json!("unknown"), &json!("dead_letter")));
    let again = session.call(SUBMIT, texts("key-1")).await;
    assert_eq!(again.body()["status"], "dead_letter");
    assert_eq!(again.operation()["retry"], "status_only");
    let listed = session.call("list_operations", json!({ "unsettled_only": true })).await.body();
    let line = &listed["operations"][0];
    assert_eq!((&line["operationId"], &line["detail"]), (&json!("key-1"), &json!("dead_letter")));
    let trail = kinds(&session, "key-1").await;
    assert_eq!(
        trail,
        [
            "accepted",
            "attempt_started",
            "retry_scheduled",
            "attempt_started",
            "dead_letter",
            "duplicate_submission"
        ]
    );
    session.close().await;
}

#[tokio::test]
async fn a_caller_is_told_the_class_of_a_failure_and_an_operator_everything() {
    // Promise: neither a result nor the trail tells a caller at which address a target is, or which
    // variable its credential comes from; `delivery show` and `audit show` do.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = nobody.local_addr().expect("bound");
    drop(nobody);
    let credential = "[connector.desk.credential]\ntype = \"bearer\"\nenv = \"NO_SUCH_SECRET\"\n\
                      account = \"bot\"\n";
    for (connectors, secret, class) in [
        (TICKETS.to_owned(), "127.0.0.1", "connect"),
        (format!("{TICKETS}{credential}"), "NO_SUCH_SECRET", ""),
    ] {
        let world = World::new(address, &connectors);
        let session = Session::start(&world, "alice", &[]).await;
        let ticket = session.call(SUBMIT, texts("key-1")).await.body()["ticket_id"].clone();
        let asked = json!({ "ticket_id": ticket });
        let failed = session.until(STATUS, asked, |body| !body["last_error"].is_null()).await;
        let asked = json!({ "operation_id": "key-1" });
        let trail = session.call("get_operation_audit", asked).await.body();
        let again = session.call(SUBMIT, texts("key-1")).await;
        for told in [failed.to_string(), trail.to_string(), json!(again.0).to_string()] {
            assert!(!told.contains(secret) && told.contains(class), "{told}");
        }
        let ticket = ticket.as_str().expect("a text");
        for noun in ["delivery", "audit"] {
            let shown = world.bench.run(&[noun, "show", ticket]).done().stdout;
            assert!(shown.contains(secret), "{noun}: {shown}");
        }
        session.close().await;
    }
}

#[tokio::test]
async fn the_trail_shows_no_secret_and_comes_in_pages() {
    // Promise: an operation's trail is readable by its caller in whole, in bounded pages, and holds
    // no argument and no credential.
    let desk = Desk::open(Mode::Refuse(422, r#"{"error":"no s3cret-argument here"}"#));
    let world = World::new(desk.address, TICKETS);
    let session = Session::start(&world, "alice", &[]).await;
    let request = with(texts("key-1"), "description", json!("s3cret-argument"));
    let ticket = session.call(SUBMIT, request.clone()).await.body()["ticket_id"].clone();
    let asked = json!({ "ticket_id": ticket });
    session.until(STATUS, asked, |body| body["status"] == "dead_letter").await;
    for _ in 0..250 {
        session.call(SUBMIT, request.clone()).await;
    }
    let (mut after, mut seqs) = (json!(0), Vec::new());
    while !after.is_null() {
        let asked = json!({ "operation_id": "key-1", "after": after });
        let page = session.call("get_operation_audit", asked).await.body();
        assert!(!page.to_string().contains("s3cret"), "{page}");
        let events = page["events"].as_array().expect("a list");
        assert!(events.len() <= 200);
        seqs.extend(events.iter().map(|event| event["seq"].as_i64().expect("a number")));
        after = page["nextAfter"].clone();
    }
    assert_eq!(seqs, (1..=253).collect::<Vec<_>>());
    session.close().await;
}
