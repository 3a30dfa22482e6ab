//! The end of a server: what was begun is finished, and nothing new begins.

use std::time::Duration;

use counterfoil_store::StoreError;
use serde_json::json;
use tokio::net::TcpStream;

use crate::client::Request;
use crate::gated::GatedStore;
use crate::server::Start;

const ID: &str = "0123456789abcdef";

#[tokio::test]
async fn a_stopping_server_finishes_what_it_has_begun() {
    // Promise: a call in flight is answered, idle connections and open streams end, nobody can
    // connect, and only then is the ledger closed.
    let store = GatedStore::new();
    let server = Start { store: store.clone(), ..Start::default() }.run().await;
    let token = server.token("alice");
    let mut busy = server.connect().await;
    busy.send(Request::create(&json!(1), ID, "t").by(&token).bytes()).await;
    store.arrivals(1).await;
    let mut idle = server.connect().await;
    let list = Request::modern(&json!(1), "tools/list", json!({})).by(&token);
    assert_eq!(idle.ask(&list).await.status, 200);
    let session = crate::legacy::open(&server, &token).await;
    let mut stream = server.connect().await;
    let get = Request::get("/mcp")
        .with("Accept", "text/event-stream")
        .with("Mcp-Session-Id", &session)
        .with("MCP-Protocol-Version", crate::client::LEGACY)
        .by(&token);
    stream.send(get.bytes()).await;
    assert_eq!(stream.head().await.expect("a stream").status, 200);
    server.shutdown.cancel();
    assert!(idle.is_closed().await);
    while stream.line().await.is_some() {}
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens");
    assert!(!server.running.is_finished(), "a call is still under way");
    store.go.add_permits(1);
    let reply = busy.reply().await;
    assert_eq!((reply.state().as_str(), reply.header("connection")), ("applied", Some("close")));
    let store_closed = || async {
        use counterfoil_store::Store;
        store.probe().await == Err(StoreError::Closed)
    };
    server.stop().await;
    assert!(store_closed().await);
}

#[tokio::test]
async fn a_call_that_does_not_end_is_cut_off_at_the_limit() {
    // Promise: a server that is told to stop does stop; the effect that was begun settles or stays
    // on record as unknown, and its client gets no answer that would be untrue.
    let store = GatedStore::new();
    let drain_limit = Duration::from_millis(100);
    let start = Start { store: store.clone(), drain_limit, ..Start::default() };
    let server = start.run().await;
    let token = server.token("alice");
    let mut busy = server.connect().await;
    busy.send(Request::create(&json!(1), ID, "t").by(&token).bytes()).await;
    store.arrivals(1).await;
    server.stop().await;
    assert!(busy.try_reply().await.is_none(), "no answer is better than a wrong one");
}
