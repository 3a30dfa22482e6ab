//! Calls that a client takes back, over the wire: before anything was begun, and in flight.

use std::sync::Arc;

use counterfoil::serve;
use counterfoil::tools::issue_effect;
use counterfoil::wire::WireLimits;
use counterfoil_core::fingerprint::{KeyId, KeyRing, SecretKey};
use counterfoil_core::identity::{BackendId, OperationId, OperationKey, Principal, Tenant};
use counterfoil_core::observation::Snapshot;
use counterfoil_core::time::{Lifetimes, Timestamp};
use counterfoil_engine::{CancellationToken, Engine};
use counterfoil_store::{
    AuditEvent, Committed, Finish, KeyUsage, LedgerInfo, LedgerStats, ListQuery, MemoryOptions,
    MemoryStore, Page, Purge, Purged, Resolve, Resolved, RetentionState, Store, StoreFuture,
    Submission,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// A store that holds its first submission until it is let go, and tells what has happened.
#[derive(Debug)]
struct HeldStore {
    inner: MemoryStore,
    handed_over: Semaphore,
    let_go: Semaphore,
    noted: Semaphore,
}

impl Store for HeldStore {
    fn submit(&self, submission: Submission) -> StoreFuture<'_, Committed> {
        Box::pin(async move {
            self.handed_over.add_permits(1);
            self.let_go.acquire().await.expect("open").forget();
            self.inner.submit(submission).await
        })
    }

    fn note_cancel(
        &self,
        tenant: &Tenant,
        operation_id: &OperationId,
        principal: &Principal,
    ) -> StoreFuture<'_, ()> {
        let noting = self.inner.note_cancel(tenant, operation_id, principal);
        Box::pin(async move {
            noting.await?;
            self.noted.add_permits(1);
            Ok(())
        })
    }

    fn info(&self) -> StoreFuture<'_, LedgerInfo> {
        self.inner.info()
    }

    fn backend_id(&self) -> &BackendId {
        self.inner.backend_id()
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn horizon(&self) -> Timestamp {
        self.inner.horizon()
    }

    fn bind_keys(&self, keys: &KeyRing) -> StoreFuture<'_, ()> {
        self.inner.bind_keys(keys)
    }

    fn finish(&self, finish: Finish) -> StoreFuture<'_, Committed> {
        self.inner.finish(finish)
    }

    fn resolve(&self, resolve: Resolve) -> StoreFuture<'_, Resolved> {
        self.inner.resolve(resolve)
    }

    fn look_up(&self, tenant: &Tenant, operation_id: &OperationId) -> StoreFuture<'_, Snapshot> {
        self.inner.look_up(tenant, operation_id)
    }

    fn probe(&self) -> StoreFuture<'_, ()> {
        self.inner.probe()
    }

    fn stats(&self) -> StoreFuture<'_, LedgerStats> {
        self.inner.stats()
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Page> {
        self.inner.list(query)
    }
    fn keys_in_use(&self) -> StoreFuture<'_, Vec<KeyUsage>> {
        self.inner.keys_in_use()
    }
    fn audit(&self, key: OperationKey) -> StoreFuture<'_, Vec<AuditEvent>> {
        self.inner.audit(key)
    }

    fn retention(&self) -> StoreFuture<'_, RetentionState> {
        self.inner.retention()
    }

    fn purge(&self, purge: Purge) -> StoreFuture<'_, Purged> {
        self.inner.purge(purge)
    }

    fn count_due(&self, purge: Purge) -> StoreFuture<'_, Purged> {
        self.inner.count_due(purge)
    }

    fn confirm_clock(&self, who: &str) -> StoreFuture<'_, RetentionState> {
        self.inner.confirm_clock(who)
    }

    /// Left open, so that the test can look at it after the server has ended.
    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

struct Client {
    store: Arc<HeldStore>,
    input: DuplexStream,
    output: BufReader<DuplexStream>,
    served: JoinHandle<()>,
}

impl Client {
    async fn new() -> Self {
        let mut options = MemoryOptions::new(BackendId::parse("test").expect("valid"));
        options.tables = issue_effect::tables();
        let store = Arc::new(HeldStore {
            inner: MemoryStore::new(&options).expect("good tables"),
            handed_over: Semaphore::new(0),
            let_go: Semaphore::new(0),
            noted: Semaphore::new(0),
        });
        let key = SecretKey::from_bytes(&[1; 32]).expect("long enough");
        let keys = KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("one key");
        let engine = Engine::open(Arc::clone(&store) as Arc<dyn Store>, keys, Lifetimes::default());
        let engine = Arc::new(engine.await.expect("opens"));
        let (input, server_input) = duplex(64 * 1024);
        let (server_output, output) = duplex(64 * 1024);
        let served = tokio::spawn(async move {
            let caller = serve::stdio_caller(Principal::parse("alice").expect("valid"));
            let pipes = (server_input, server_output);
            let limits = WireLimits::default();
            serve::stdio(engine, caller, pipes, limits, CancellationToken::new())
                .await
                .expect("serves");
        });
        Self { store, input, output: BufReader::new(output), served }
    }

    async fn send(&mut self, frame: Value) {
        self.input.write_all(format!("{frame}\n").as_bytes()).await.expect("the server reads");
    }

    async fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).await.expect("the server writes");
        serde_json::from_str(&line).expect("a frame")
    }

    async fn call(&mut self, id: i64, tool: &str, arguments: Value) {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }))
            .await;
    }

    async fn cancel(&mut self, id: i64) {
        let params = json!({ "requestId": id });
        self.send(
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }),
        )
        .await;
    }

    /// Closes the connection, waits for the server's end, and gives every frame that was unread.
    async fn close(mut self) -> (Arc<HeldStore>, Vec<Value>) {
        self.input.shutdown().await.expect("closes");
        self.served.await.expect("the server ends");
        let mut rest = Vec::new();
        let mut line = String::new();
        while self.output.read_line(&mut line).await.expect("readable") > 0 {
            rest.push(serde_json::from_str(&line).expect("a frame"));
            line.clear();
        }
        (self.store, rest)
    }
}

async fn once(semaphore: &Semaphore) {
    semaphore.acquire().await.expect("open").forget();
}

async fn look_up(store: &HeldStore) -> Snapshot {
    let id = OperationId::parse("op-1").expect("valid");
    store.look_up(&Tenant::parse("local").expect("valid"), &id).await.expect("readable")
}

fn issue() -> Value {
    json!({ "operation_id": "op-1", "title": "Export fails", "body": "It stops." })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_cancelled_in_flight_settles_unanswered_and_on_record() {
    // Promise: the effect happens once and is not hidden, nothing more is sent for the cancelled
    // request, `cancel_requested` is on record, and a repeat gets the stored result.
    let mut client = Client::new().await;
    client.call(1, "create_issue", issue()).await;
    once(&client.store.handed_over).await;
    client.cancel(1).await;
    // Frames are taken in order: when this one is answered, the cancellation has arrived.
    client.call(2, "get_operation_status", json!({ "operation_id": "op-1" })).await;
    let status = client.receive().await;
    assert_eq!(status["id"], 2, "{status}");
    assert_eq!(status["result"]["structuredContent"]["state"], "unknown", "{status}");
    client.store.let_go.add_permits(1);
    once(&client.store.noted).await;
    client.store.let_go.add_permits(1);
    client.call(3, "create_issue", issue()).await;
    let again = client.receive().await;
    assert_eq!(again["id"], 3, "{again}");
    let content = &again["result"]["structuredContent"];
    assert_eq!((&content["state"], &content["replayed"]), (&json!("applied"), &json!(true)));
    let (store, rest) = client.close().await;
    assert_eq!(rest, Vec::<Value>::new());
    let Snapshot::Found { record, .. } = look_up(&store).await else { panic!("no record") };
    let events = store.audit(record.key).await.expect("readable");
    let told: Vec<_> = events.iter().map(|e| (e.kind.as_str(), e.who.as_str())).collect();
    assert_eq!(told, [("applied", "alice"), ("cancel_requested", "alice")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_cancels_and_leaves_is_on_record_too() {
    // Promise: the note is the engine's work: neither the lost handler nor the end of the
    // connection takes it along.
    let mut client = Client::new().await;
    client.call(1, "create_issue", issue()).await;
    once(&client.store.handed_over).await;
    client.cancel(1).await;
    client.call(2, "get_operation_status", json!({ "operation_id": "op-1" })).await;
    assert_eq!(client.receive().await["id"], 2);
    let store = Arc::clone(&client.store);
    let closing = tokio::spawn(client.close());
    store.let_go.add_permits(1);
    let (store, rest) = closing.await.expect("closes");
    assert_eq!(rest, Vec::<Value>::new());
    let Snapshot::Found { record, .. } = look_up(&store).await else { panic!("no record") };
    let events = store.audit(record.key).await.expect("readable");
    assert_eq!(events.last().map(|event| event.kind.as_str()), Some("cancel_requested"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_cancelled_before_anything_was_begun_writes_nothing() {
    // Promise: while an older client is still asked for the body, taking the call back leaves no
    // record, no issue and no reply.
    let mut client = Client::new().await;
    let hello = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "test", "version": "1" },
    });
    client
        .send(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello }))
        .await;
    assert_eq!(client.receive().await["id"], 0);
    client.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    let arguments = json!({ "operation_id": "op-1", "title": "Export fails" });
    let params = json!({ "name": "create_issue", "arguments": arguments });
    client
        .send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }))
        .await;
    let asked = client.receive().await;
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    client.cancel(1).await;
    let (store, rest) = client.close().await;
    assert!(rest.iter().all(|frame| frame.get("result").is_none()), "{rest:?}");
    assert_eq!(look_up(&store).await, Snapshot::Absent);
    assert_eq!(store.handed_over.available_permits(), 0);
}
