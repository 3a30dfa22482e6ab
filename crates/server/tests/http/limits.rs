//! What a client may take, and how long it may take for it.

use std::time::Duration;

use counterfoil::http::HttpLimits;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::client::Request;
use crate::gated::GatedStore;
use crate::server::{Server, Start};

const ID: &str = "0123456789abcdef";
const SHORT: Duration = Duration::from_millis(400);

fn list() -> Request {
    Request::modern(&json!(9), "tools/list", json!({}))
}

#[tokio::test]
async fn too_many_calls_are_refused_in_the_tools_terms() {
    // Promise: who calls too fast is told so by the tool, with what to do next; nothing was done,
    // and another principal notices nothing.
    let server = Server::with_limits(HttpLimits { max_rate: 1, ..HttpLimits::default() }).await;
    let alice = server.token("alice");
    let mut client = server.connect().await;
    let mut refused = None;
    for at in 0..1000 {
        let id = format!("{at}-0123456789abcdef");
        let reply = client.ask(&Request::create(&json!("x"), &id, "t").by(&alice)).await;
        let body = reply.json();
        if body["result"]["isError"] == true {
            refused = Some((id, reply));
            break;
        }
    }
    let (id, reply) = refused.expect("a limit of one a second");
    assert_eq!((reply.status, reply.refusal().as_str()), (200, "rate_limited"));
    let body = reply.json();
    let error = &body["result"]["structuredContent"]["error"];
    assert_eq!((&body["id"], &error["retry"]), (&json!("x"), &json!("same_operation")));
    assert_eq!(
        (&error["operationId"], &body["result"]["_meta"]["io.counterfoil/operation"]["retry"]),
        (&json!(id), &json!("same_operation"))
    );
    let other = loop {
        let reply = client.ask(&list().by(&alice)).await;
        if reply.status != 200 {
            break reply;
        }
    };
    assert_eq!((other.status, other.json()["id"].clone()), (429, json!(9)), "{}", other.text());
    assert_eq!(other.header("retry-after"), Some("1"));
    let bob = server.token("bob");
    assert_eq!(server.ask(&list().by(&bob)).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn one_principal_has_so_many_requests_at_a_time() {
    // Promise: past the limit calls are refused, not queued; ended ones give their places back.
    let store = GatedStore::new();
    let limits = HttpLimits { max_in_flight: 2, ..HttpLimits::default() };
    let server = Start { store: store.clone(), limits, ..Start::default() }.run().await;
    let alice = server.token("alice");
    let bob = server.token("bob");
    let mut clients = Vec::new();
    for at in 0..2 {
        let mut client = server.connect().await;
        let id = format!("{at}-0123456789abcdef");
        client.send(Request::create(&json!(1), &id, "t").by(&alice).bytes()).await;
        clients.push(client);
    }
    store.arrivals(2).await;
    let third = server.ask(&Request::create(&json!(1), ID, "t").by(&alice)).await;
    assert_eq!(third.refusal(), "rate_limited", "{}", third.text());
    assert!(third.text().contains("2 requests"), "{}", third.text());
    assert_eq!(server.ask(&list().by(&alice)).await.status, 429);
    assert_eq!(server.ask(&list().by(&bob)).await.status, 200);
    store.go.add_permits(3);
    for client in &mut clients {
        assert_eq!(client.reply().await.state(), "applied");
    }
    server.until("counterfoil_http_requests_in_flight", 0.0).await;
    assert_eq!(
        server.ask(&Request::create(&json!(1), ID, "t").by(&alice)).await.state(),
        "applied"
    );
    server.stop().await;
}

#[tokio::test]
async fn whoever_dribbles_is_cut_off() {
    // Promise: a head or a body that comes byte by byte, or not at all, holds no place for long;
    // nor does a connection that stands idle.
    let limits = HttpLimits {
        head_time: SHORT,
        body_time: SHORT,
        idle_time: 3 * SHORT,
        ..HttpLimits::default()
    };
    let server = Server::with_limits(limits).await;
    let token = server.token("alice");
    let bytes = Request::create(&json!(1), ID, "t").by(&token).bytes();
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
    for (name, sent) in [("nothing", 0), ("one byte", 1), ("half a head", head / 2)] {
        let mut client = server.connect().await;
        client.send(&bytes[..sent]).await;
        assert!(client.is_closed().await, "{name}");
    }
    let mut client = server.connect().await;
    for byte in &bytes[..head / 2] {
        client.send([*byte]).await;
        if client.stream.try_write(b"").is_err() {
            break;
        }
    }
    assert!(client.is_closed().await, "byte by byte");
    for sent in [head, head + 1, bytes.len() - 1] {
        let mut client = server.connect().await;
        client.send(&bytes[..sent]).await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.header("connection")), (408, Some("close")));
        assert!(client.is_closed().await);
    }
    let mut client = server.connect().await;
    assert_eq!(client.ask(&list().by(&token)).await.status, 200);
    assert!(client.is_closed().await, "idle");
    // The second request of a connection has as little time as the first.
    let mut client = server.connect().await;
    assert_eq!(client.ask(&list().by(&token)).await.status, 200);
    client.send(&bytes[..head / 2]).await;
    assert!(client.is_closed().await, "half a second head");
    assert_eq!(server.ask(&Request::status_of(ID).by(&token)).await.state(), "unknown");
    server.stop().await;
}

#[tokio::test]
async fn whoever_reads_nothing_is_cut_off() {
    // Promise: a client that sends and never reads holds its place for a while and no longer.
    let limits = HttpLimits { write_stall_time: SHORT, max_rate: 0, ..HttpLimits::default() };
    let server = Server::with_limits(limits).await;
    let token = server.token("alice");
    let mut client = server.connect().await;
    let request = list().by(&token).bytes();
    let flooding = async {
        // Ends when the server has cut the connection.
        while client.stream.write_all(&request).await.is_ok() {}
    };
    tokio::time::timeout(crate::client::WATCHDOG, flooding).await.expect("it is cut off");
    server.until("counterfoil_http_connections", 1.0).await;
    server.stop().await;
}

#[tokio::test]
async fn a_head_has_its_limits() {
    // Promise: no header is so long, and no request has so many, that it costs without end.
    let server = Server::start().await;
    let token = server.token("alice");
    let many = (0..200).fold(list(), |request, at| request.with(&format!("X-{at}"), "x"));
    for request in [list().with("X-Long", &"x".repeat(32 * 1024)), many] {
        let reply = server.ask(&request.by(&token)).await;
        assert_eq!(reply.status, 431, "{}", reply.text());
    }
    server.stop().await;
}

#[tokio::test]
async fn idle_connections_make_room_and_busy_ones_do_not() {
    // Promise: connections that stand idle keep nobody out; where all are busy, the next one is
    // told so at once.
    let store = GatedStore::new();
    let limits = HttpLimits { max_connections: 4, ..HttpLimits::default() };
    let server = Start { store: store.clone(), limits, ..Start::default() }.run().await;
    let token = server.token("alice");
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(server.connect().await);
    }
    assert_eq!(server.ask(&list().by(&token)).await.status, 200);
    assert!(server.metric("counterfoil_http_connections_evicted_total").await >= 36.0);
    assert!(server.metric("counterfoil_http_connections").await <= 4.0);
    drop(idle);
    let mut busy = Vec::new();
    for at in 0..4 {
        let mut client = server.connect().await;
        let id = format!("{at}-0123456789abcdef");
        client.send(Request::create(&json!(1), &id, "t").by(&token).bytes()).await;
        busy.push(client);
        store.arrivals(1).await;
    }
    let mut turned_away = server.connect().await;
    let reply = turned_away.reply().await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert!(reply.text().contains("as many connections as it takes"), "{}", reply.text());
    store.go.add_permits(4);
    for client in &mut busy {
        assert_eq!(client.reply().await.state(), "applied");
    }
    drop(busy);
    server.until("counterfoil_http_connections", 1.0).await;
    server.stop().await;
}
