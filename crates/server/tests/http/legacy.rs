//! Clients of the older revisions: sessions, which bind and expire, and prove nothing.

use std::time::Duration;

use counterfoil::http::HttpLimits;
use serde_json::{Value, json};

use crate::client::{LEGACY, MODERN, Request};
use crate::gated::GatedStore;
use crate::server::{Server, Start};

const ID: &str = "0123456789abcdef";

fn initialize(id: &Value) -> Request {
    Request::legacy(
        None,
        &json!({
            "jsonrpc": "2.0", "id": id, "method": "initialize",
            "params": {
                "protocolVersion": LEGACY,
                "capabilities": { "elicitation": {} },
                "clientInfo": { "name": "test", "version": "1" }
            }
        }),
    )
}

/// Opens a session and says that it is open.
pub(crate) async fn open(server: &Server, token: &str) -> String {
    let reply = server.ask(&initialize(&json!("init")).by(token)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let result = &reply.events()[0];
    assert_eq!(
        (&result["id"], &result["result"]["protocolVersion"]),
        (&json!("init"), &json!(LEGACY))
    );
    let session = reply.header("mcp-session-id").expect("a session").to_owned();
    let body = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let reply = server.ask(&Request::legacy(Some(&session), &body).by(token)).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    session
}

fn call(session: &str, id: &Value, arguments: &Value) -> Request {
    Request::legacy(
        Some(session),
        &json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "create_issue", "arguments": arguments }
        }),
    )
}

fn create(session: &str, id: &Value, operation: &str) -> Request {
    call(session, id, &json!({ "operation_id": operation, "title": "t", "body": "b" }))
}

#[tokio::test]
async fn a_session_serves_its_owner_alone() {
    // Promise: a session ID in other hands is no session; and one's own needs the token all the
    // same, the revision's header too.
    let server = Server::start().await;
    let alice = server.token("alice");
    let bob = server.token("bob");
    let session = open(&server, &alice).await;
    let good = create(&session, &json!(1), ID);
    let delete = Request { method: "DELETE", ..create(&session, &json!(1), ID) };
    let get = Request { method: "GET", body: Vec::new(), ..good.clone() };
    for request in [&good, &delete, &get] {
        let foreign = server.ask(&request.clone().by(&bob)).await;
        let unknown = server.ask(&request.clone().instead("Mcp-Session-Id", "x").by(&bob)).await;
        assert_eq!((foreign.status, unknown.status), (404, 404));
        assert_eq!(foreign.text(), unknown.text(), "nobody learns that it exists");
        assert_eq!(server.ask(request).await.status, 401);
    }
    // A handshake inside of somebody else's session is no way in, whatever revision it names.
    let inside = initialize(&json!(1)).with("Mcp-Session-Id", &session);
    for request in [inside.clone(), inside.with("MCP-Protocol-Version", MODERN)] {
        assert_eq!(server.ask(&request.by(&bob)).await.status, 404);
    }
    let unversioned = server.ask(&good.clone().without("MCP-Protocol-Version").by(&alice)).await;
    assert_eq!((unversioned.status, unversioned.code()), (400, Some(-32020)));
    let reply = server.ask(&good.clone().by(&alice)).await;
    assert_eq!(reply.events()[0]["result"]["structuredContent"]["state"], "applied");
    assert_eq!(server.ask(&delete.by(&alice)).await.status, 204);
    assert_eq!(server.ask(&good.by(&alice)).await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn one_id_twice_in_one_session_is_two_requests() {
    // Promise: 1, 1 again and "1", all in flight in one session, get their own answers.
    let store = GatedStore::new();
    let server = Start { store: store.clone(), ..Start::default() }.run().await;
    let token = server.token("alice");
    let session = open(&server, &token).await;
    let calls = [
        (json!(1), "a-0123456789abcdef"),
        (json!(1), "b-0123456789abcdef"),
        (json!("1"), "c-0123456789abcdef"),
    ];
    let mut clients = Vec::new();
    for (id, operation) in &calls {
        let mut client = server.connect().await;
        client.send(create(&session, id, operation).by(&token).bytes()).await;
        store.arrivals(1).await;
        clients.push(client);
    }
    store.go.add_permits(calls.len());
    for ((id, operation), mut client) in calls.iter().zip(clients) {
        let reply = client.reply().await;
        let [answer] = &reply.events()[..] else { panic!("one answer: {}", reply.text()) };
        assert_eq!(answer["id"], *id);
        assert_eq!(answer["result"]["structuredContent"]["operationId"], *operation);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_user_is_asked_over_the_open_stream() {
    // Promise: without a body the user of an older client is asked, and the answer is taken from
    // the owner of the session alone.
    let server = Server::start().await;
    let alice = server.token("alice");
    let bob = server.token("bob");
    let session = open(&server, &alice).await;
    let arguments = json!({ "operation_id": ID, "title": "t" });
    let mut client = server.connect().await;
    client.send(call(&session, &json!(7), &arguments).by(&alice).bytes()).await;
    assert_eq!(client.head().await.expect("a stream").status, 200);
    let asked = client.message().await.expect("a question");
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let answer = json!({
        "jsonrpc": "2.0", "id": asked["id"],
        "result": { "action": "accept", "content": { "body": "from the user" } }
    });
    let answer = Request::legacy(Some(&session), &answer);
    assert_eq!(server.ask(&answer.clone().by(&bob)).await.status, 404);
    assert_eq!(server.ask(&answer.by(&alice)).await.status, 202);
    let done = client.message().await.expect("the result");
    assert_eq!(
        (&done["id"], &done["result"]["structuredContent"]["state"]),
        (&json!(7), &json!("applied"))
    );
    server.stop().await;
}

#[tokio::test]
async fn closing_an_older_stream_takes_nothing_back() {
    // Promise: on the older revisions a lost stream is no cancellation: the call goes on.
    let store = GatedStore::new();
    let server = Start { store: store.clone(), ..Start::default() }.run().await;
    let token = server.token("alice");
    let session = open(&server, &token).await;
    let mut client = server.connect().await;
    client.send(create(&session, &json!(1), ID).by(&token).bytes()).await;
    store.arrivals(1).await;
    drop(client);
    store.go.add_permits(1);
    let settled = async {
        while server.ask(&Request::status_of(ID).by(&token)).await.state() != "applied" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::client::WATCHDOG, settled).await.expect("it settles");
    assert_eq!(crate::cancel::kinds(&store).await, ["applied"], "nobody took anything back");
    server.stop().await;
}

#[tokio::test]
async fn a_cancelled_request_is_not_answered_and_others_are() {
    // Promise: a cancellation goes by the client's ID, type included, and reaches nobody else's
    // request.
    let store = GatedStore::new();
    let server = Start { store: store.clone(), ..Start::default() }.run().await;
    let token = server.token("alice");
    let session = open(&server, &token).await;
    let mut clients = Vec::new();
    for (id, operation) in [(json!(1), "a-0123456789abcdef"), (json!("1"), "b-0123456789abcdef")] {
        let mut client = server.connect().await;
        client.send(create(&session, &id, operation).by(&token).bytes()).await;
        store.arrivals(1).await;
        clients.push(client);
    }
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 1, "reason": "test" }
    });
    let reply = server.ask(&Request::legacy(Some(&session), &cancel).by(&token)).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    // The stream of the cancelled request ends without an answer.
    assert_eq!(clients[0].reply().await.events(), [] as [Value; 0]);
    store.go.add_permits(2);
    let answer = clients[1].reply().await.events().remove(0);
    assert_eq!(
        (&answer["id"], &answer["result"]["structuredContent"]["state"]),
        (&json!("1"), &json!("applied"))
    );
    server.stop().await;
}

#[tokio::test]
async fn a_flood_of_sessions_harms_the_flooder_alone() {
    // Promise: sessions are capped; the flooder's own oldest one goes, another principal's stays.
    let limits = HttpLimits { max_sessions: 16, ..HttpLimits::default() };
    let server = Server::with_limits(limits).await;
    let alice = server.token("alice");
    let bob = server.token("bob");
    let bobs = open(&server, &bob).await;
    let first = open(&server, &alice).await;
    for _ in 0..50 {
        open(&server, &alice).await;
    }
    assert_eq!(server.metric("counterfoil_http_sessions").await, 5.0);
    assert_eq!(server.ask(&create(&first, &json!(1), ID).by(&alice)).await.status, 404);
    assert_eq!(server.ask(&create(&bobs, &json!(1), ID).by(&bob)).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_session_that_nobody_uses_ends() {
    // Promise: what a client forgot to close is closed.
    let limits = HttpLimits { session_idle: Duration::from_secs(2), ..HttpLimits::default() };
    let server = Server::with_limits(limits).await;
    let token = server.token("alice");
    open(&server, &token).await;
    server.until("counterfoil_http_sessions", 0.0).await;
    server.stop().await;
}
