//! Calls beside each other: each gets its own answer, with its own ID.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::client::Request;
use crate::gated::GatedStore;
use crate::server::{Server, Start};

#[tokio::test]
async fn one_json_rpc_id_of_many_requests_is_many_requests() {
    // Promise: two requests with ID 1, one with "1", and those of another principal, all in flight
    // at once, get their own answers with their own type of ID.
    let store = GatedStore::new();
    let server = Start { store: store.clone(), ..Start::default() }.run().await;
    let alice = server.token("alice");
    let bob = server.token("bob");
    let calls = [
        (json!(1), "a-0123456789abcdef", &alice),
        (json!(1), "b-0123456789abcdef", &alice),
        (json!("1"), "c-0123456789abcdef", &alice),
        (json!(1), "d-0123456789abcdef", &bob),
        (json!("1"), "e-0123456789abcdef", &bob),
        (json!(-9_007_199_254_740_993_i64), "f-0123456789abcdef", &bob),
        (json!("\u{0}é"), "g-0123456789abcdef", &bob),
    ];
    let mut clients = Vec::new();
    for (id, operation, token) in &calls {
        let mut client = server.connect().await;
        client.send(Request::create(id, operation, "t").by(token).bytes()).await;
        clients.push(client);
    }
    store.arrivals(calls.len() as u32).await;
    store.go.add_permits(calls.len());
    for ((id, operation, _), client) in calls.iter().zip(&mut clients) {
        let body = client.reply().await.json();
        assert_eq!(body["id"], *id);
        let told = &body["result"]["structuredContent"];
        assert_eq!(
            (told["operationId"].as_str(), &told["state"]),
            (Some(*operation), &json!("applied"))
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn requests_sent_ahead_on_one_connection_are_answered_in_turn() {
    // Promise: pipelined requests are served one after the other, each with its own answer.
    let server = Server::start().await;
    let token = server.token("alice");
    let mut client = server.connect().await;
    let ids: [Value; 3] = [json!(1), json!("1"), json!(1)];
    let operation = |at: usize| format!("{at}-0123456789abcdef");
    let mut bytes = Vec::new();
    for (at, id) in ids.iter().enumerate() {
        bytes.extend(Request::create(id, &operation(at), "t").by(&token).bytes());
    }
    client.send(bytes).await;
    for (at, id) in ids.iter().enumerate() {
        let body = client.reply().await.json();
        assert_eq!(body["id"], *id);
        assert_eq!(body["result"]["structuredContent"]["operationId"], operation(at));
    }
    server.stop().await;
}

#[tokio::test]
async fn of_many_callers_with_one_operation_one_makes_it() {
    // Promise: the same call over many connections at once takes effect once.
    let server = Server::start().await;
    let token = server.token("alice");
    let ask = |at: usize| {
        let request = Request::create(&json!(at), "0123456789abcdef", "t").by(&token);
        let server = &server;
        async move { server.ask(&request).await.json() }
    };
    let replies = futures_util::future::join_all((0..32).map(ask)).await;
    let effects: HashSet<i64> = replies
        .iter()
        .map(|body| body["result"]["structuredContent"]["effectId"].as_i64().expect("applied"))
        .collect();
    assert_eq!(effects.len(), 1, "{replies:?}");
    let fresh = replies.iter().filter(|b| b["result"]["structuredContent"]["replayed"] == false);
    assert_eq!(fresh.count(), 1);
    server.stop().await;
}

#[tokio::test]
async fn an_id_that_others_could_come_upon_makes_nothing() {
    // Promise: over HTTP an ID that can be guessed is refused before anything is looked up.
    let server = Server::start().await;
    let token = server.token("alice");
    let cases = [
        ("case-03", false),
        ("0123456789abcde", false),
        ("0123456789abcdef", true),
        ("01939a3c-0f6b-4000-8000-00000000abcd", true),
        ("éééééééé", false),
    ];
    for (id, accepted) in cases {
        let reply = server.ask(&Request::create(&json!(1), id, "t").by(&token)).await;
        if accepted {
            assert_eq!(reply.state(), "applied", "{id}: {}", reply.text());
        } else {
            assert_eq!(reply.refusal(), "invalid_argument", "{id}: {}", reply.text());
            assert!(reply.text().contains("16 characters"), "{}", reply.text());
        }
    }
    let mut hidden = Request::modern(
        &json!(1),
        "tools/call",
        json!({
            "name": "create_issue",
            "arguments": { "title": "t", "body": "b" },
            "_meta": { "io.counterfoil/operationId": "short" }
        }),
    );
    hidden = hidden.by(&token);
    assert_eq!(server.ask(&hidden).await.refusal(), "invalid_argument");
    server.stop().await;
}

#[tokio::test]
async fn two_rounds_need_no_session() {
    // Promise: the first round writes nothing and the second, on another connection, completes it.
    let server = Server::start().await;
    let token = server.token("alice");
    let id = "0123456789abcdef";
    let arguments = json!({ "operation_id": id, "title": "t" });
    let first = Request::call(&json!(1), "create_issue", arguments.clone()).by(&token);
    let asked = server.ask(&first).await.json();
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    assert_eq!(server.ask(&Request::status_of(id).by(&token)).await.state(), "unknown");
    let second = |token: &str| {
        Request::modern(
            &json!(2),
            "tools/call",
            json!({
                "name": "create_issue",
                "arguments": arguments,
                "requestState": asked["result"]["requestState"],
                "inputResponses": { "body": { "action": "accept", "content": { "body": "b" } } }
            }),
        )
        .by(token)
    };
    let bob = server.token("bob");
    let foreign = server.ask(&second(&bob)).await;
    assert_eq!((foreign.status, foreign.code()), (200, Some(-32602)), "{}", foreign.text());
    let done = server.ask(&second(&token)).await;
    assert_eq!(done.state(), "applied", "{}", done.text());
    server.stop().await;
}
