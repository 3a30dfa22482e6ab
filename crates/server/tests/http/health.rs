//! Alive, ready, and counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use counterfoil::tools::issue_effect;
use counterfoil_store::{SqliteOptions, SqliteStore};
use serde_json::json;

use crate::client::{Request, WATCHDOG};
use crate::gated::GatedStore;
use crate::mounts;
use crate::server::{Server, Start};

#[tokio::test]
async fn ready_means_that_a_write_would_commit() {
    // Promise: with a full disk the process is alive, not ready, refuses writes with what to do,
    // and is ready again by itself.
    let store = GatedStore::new();
    store.go.add_permits(100);
    let server = Start { store: store.clone(), ..Start::default() }.run().await;
    let token = server.token("alice");
    assert_eq!(server.ask(&Request::get("/readyz")).await.text(), "ready\n");
    store.full.store(true, Ordering::SeqCst);
    until_ready(&server, false).await;
    let told = server.ask(&Request::get("/readyz")).await;
    assert!(told.status == 503 && told.text().contains("full"), "{}", told.text());
    assert_eq!(server.ask(&Request::get("/healthz")).await.status, 200);
    let refused = server.ask(&Request::create(&json!(1), "0123456789abcdef", "t").by(&token)).await;
    assert_eq!(refused.refusal(), "store_unavailable");
    assert_eq!(server.metric("counterfoil_ready").await, 0.0);
    store.full.store(false, Ordering::SeqCst);
    until_ready(&server, true).await;
    let done = server.ask(&Request::create(&json!(1), "0123456789abcdef", "t").by(&token)).await;
    assert_eq!(done.state(), "applied");
    server.shutdown.cancel();
    server.stop().await;
}

#[tokio::test]
async fn a_disk_that_fills_up_while_serving_is_told_and_gets_over() {
    // Promise: the same with a real file on a real file system that is really full.
    let room = tempfile::tempdir().expect("a temporary directory");
    let Some(_mounted) = mounts::tmpfs(room.path(), "8m") else { return };
    let mut options = SqliteOptions::new(room.path().join("ledger.db"));
    options.tables = issue_effect::tables();
    let store = Arc::new(SqliteStore::open(&options).expect("there is room for it"));
    let server = Start { store, ..Start::default() }.run().await;
    let token = server.token("alice");
    let create = |at: u32| {
        let id = format!("{at}-0123456789abcdef");
        let body = "x".repeat(100_000);
        let arguments = json!({ "operation_id": id, "title": "t", "body": body });
        Request::call(&json!(1), "create_issue", arguments).by(&token)
    };
    assert_eq!(server.ask(&create(0)).await.state(), "applied");
    let ballast = room.path().join("ballast");
    let filled = std::fs::write(&ballast, vec![0; 64 << 20]);
    assert!(filled.is_err(), "the file system is smaller");
    // Some room is left in the log: it is used up.
    let mut at = 1;
    let refused = loop {
        let reply = server.ask(&create(at)).await;
        if reply.json()["result"]["isError"] == true {
            break reply;
        }
        at += 1;
    };
    assert_eq!(refused.refusal(), "store_unavailable", "{}", refused.text());
    assert!(refused.text().contains("full"), "{}", refused.text());
    std::fs::remove_file(&ballast).expect("it is there");
    until_ready(&server, true).await;
    assert_eq!(server.ask(&create(at)).await.state(), "applied", "the same operation, once");
    server.stop().await;
}

#[tokio::test]
async fn metrics_count_and_tell_nothing_of_anybody() {
    // Promise: every label is a word of ours, whatever callers send.
    let server = Server::start().await;
    let token = server.token("sentinel-principal");
    let create = Request::create(&json!("sentinel-rpc"), "sentinel-0123456789", "sentinel-title");
    assert_eq!(server.ask(&create.clone().by(&token)).await.state(), "applied");
    assert_eq!(server.ask(&create.by(&token)).await.state(), "applied");
    let unknown = Request::modern(&json!(1), "sentinel/method", json!({}));
    assert_eq!(server.ask(&unknown.by(&token)).await.status, 404);
    let tool = Request::call(&json!(1), "sentinel_tool", json!({}));
    assert_eq!(server.ask(&tool.by(&token)).await.status, 200);
    assert_eq!(server.ask(&Request::get("/mcp").by("cf_sentinel")).await.status, 401);
    let text = server.ask(&Request::get("/metrics")).await.text();
    for (sample, value) in [
        (
            "counterfoil_operations_total{tool=\"create_issue\",outcome=\"applied\",replayed=\"false\"}",
            1.0,
        ),
        (
            "counterfoil_operations_total{tool=\"create_issue\",outcome=\"applied\",replayed=\"true\"}",
            1.0,
        ),
        (
            "counterfoil_operations_total{tool=\"other\",outcome=\"protocol_error\",replayed=\"false\"}",
            1.0,
        ),
        ("counterfoil_http_requests_total{method=\"tools/call\",status=\"200\"}", 3.0),
        ("counterfoil_http_requests_total{method=\"other\",status=\"404\"}", 1.0),
        ("counterfoil_http_unauthorized_total{reason=\"invalid\"}", 1.0),
        ("counterfoil_http_requests_in_flight", 0.0),
        ("counterfoil_operations_unsettled", 0.0),
        ("counterfoil_ready", 1.0),
    ] {
        assert_eq!(server.metric(sample).await, value, "{sample}\n{text}");
    }
    assert!(!text.contains("sentinel"), "{text}");
    for line in text.lines() {
        let sample = line.starts_with("counterfoil_") && line.split(' ').count() == 2;
        let told =
            line.starts_with("# HELP counterfoil_") || line.starts_with("# TYPE counterfoil_");
        assert!(sample || told, "{line:?}");
    }
    server.stop().await;
}

async fn until_ready(server: &Server, ready: bool) {
    let reached = async {
        while (server.ask(&Request::get("/readyz")).await.status == 200) != ready {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WATCHDOG, reached).await.expect("it never came to that");
}
