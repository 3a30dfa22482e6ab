//! Clients that leave: on the newest revision that takes the request back, as far as it can be.

use counterfoil_core::identity::OperationId;
use counterfoil_core::observation::Snapshot;
use counterfoil_store::Store;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::client::Request;
use crate::gated::GatedStore;
use crate::server::{Server, Start, caller};

const ID: &str = "0123456789abcdef";

fn good() -> Request {
    Request::create(&json!(1), ID, "t")
}

#[tokio::test]
async fn a_client_that_leaves_before_its_request_is_whole_has_done_nothing() {
    // Promise: half a body is no call.
    let server = Server::start().await;
    let token = server.token("alice");
    let bytes = good().by(&token).bytes();
    for cut in [bytes.len() - 1, bytes.len() / 2, 20] {
        let mut client = server.connect().await;
        client.send(&bytes[..cut]).await;
        drop(client);
    }
    server.until("counterfoil_http_requests_in_flight", 0.0).await;
    // The connection that asks is the only one.
    server.until("counterfoil_http_connections", 1.0).await;
    assert_eq!(server.ask(&Request::status_of(ID).by(&token)).await.state(), "unknown");
    assert_eq!(server.metric("counterfoil_operations_total{tool=\"create_issue\",outcome=\"applied\",replayed=\"false\"}").await, 0.0);
    server.stop().await;
}

/// The audit trail of the operation.
pub(crate) async fn kinds(store: &GatedStore) -> Vec<String> {
    let caller = caller("acme", "alice");
    let id = OperationId::parse(ID).expect("an ID");
    match store.look_up(&caller.tenant, &id).await.expect("readable") {
        Snapshot::Found { record, .. } => {
            let events = store.audit(record.key).await.expect("readable");
            events.into_iter().map(|event| event.kind).collect()
        }
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn what_was_begun_settles_without_its_client() {
    // Promise: once the operation is handed over, a client that leaves changes nothing about it,
    // and the wish is on record; the next one is told the result.
    let store = GatedStore::new();
    let server = Start { store: store.clone(), ..Start::default() }.run().await;
    let token = server.token("alice");
    let mut client = server.connect().await;
    client.send(good().by(&token).bytes()).await;
    store.arrivals(1).await;
    drop(client);
    server.until("counterfoil_http_requests_in_flight", 0.0).await;
    store.go.add_permits(1);
    let noted = async {
        while !kinds(&store).await.contains(&"cancel_requested".to_owned()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::client::WATCHDOG, noted).await.expect("it is on record");
    assert_eq!(server.ask(&Request::status_of(ID).by(&token)).await.state(), "applied");
    store.go.add_permits(1);
    let again = server.ask(&good().by(&token)).await.json();
    assert_eq!(again["result"]["structuredContent"]["replayed"], true, "{again}");
    server.stop().await;
}

#[tokio::test]
async fn a_socket_that_is_half_closed_is_a_client_that_left() {
    // Promise: a client that closes its sending side holds nothing up, and its operation is whole
    // or not there.
    let server = Server::start().await;
    let token = server.token("alice");
    let mut client = server.connect().await;
    client.send(good().by(&token).bytes()).await;
    client.stream.shutdown().await.expect("half closed");
    // An answer may still come, if it was ready; then the server closes.
    let _ = client.try_reply().await;
    let mut idle = server.connect().await;
    idle.stream.shutdown().await.expect("half closed");
    assert!(idle.is_closed().await);
    server.until("counterfoil_http_requests_in_flight", 0.0).await;
    let state = server.ask(&Request::status_of(ID).by(&token)).await.state();
    assert!(["applied", "unknown"].contains(&state.as_str()), "{state}");
    let again = server.ask(&good().by(&token)).await;
    assert_eq!(again.state(), "applied", "{}", again.text());
    server.stop().await;
}
