//! A worker that dies by SIGKILL in mid-send, with two live workers beside it on the same ledger.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::connector::Connectors;
use counterfoil::{ledger, serve};
use counterfoil_core::delivery::{State, TargetName};
use counterfoil_core::identity::{Caller, OperationId, OperationKey};
use counterfoil_core::time::Timestamp;
use counterfoil_engine::Engine;
use counterfoil_lab::delivery::role::{OneCall, settings};
use counterfoil_lab::plain_http::{self, Request, Response};
use counterfoil_lab::process::{Launch, Pipes, Process};
use counterfoil_lab::within::within;
use counterfoil_store::outbox::{Accepted, DeliveryView, Which};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

mod common;

use common::LAB;

/// A request that arrived: its title and its idempotency key.
type Seen = (String, Option<String>);

/// What a title's requests wait for.
type Leaves = Mutex<HashMap<String, Arc<Semaphore>>>;

fn leave(leaves: &Leaves, title: &str) -> Arc<Semaphore> {
    let mut leaves = leaves.lock().expect("no panic");
    Arc::clone(leaves.entry(title.into()).or_insert_with(|| Arc::new(Semaphore::new(0))))
}

/// A target that answers a title's request when the test lets it, and tells what arrives.
struct Desk {
    arrivals: mpsc::UnboundedReceiver<Seen>,
    lets: Arc<Leaves>,
    address: std::net::SocketAddr,
}

fn title_of(request: &Request) -> String {
    let body: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
    body["title"].as_str().expect("a title").to_owned()
}

impl Desk {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let address = listener.local_addr().expect("bound");
        let (tell, arrivals) = mpsc::unbounded_channel();
        let lets: Arc<Leaves> = Arc::default();
        let known = Arc::clone(&lets);
        tokio::spawn(plain_http::serve(listener, move |request| {
            let title = title_of(&request);
            let may = leave(&known, &title);
            tell.send((title, request.key)).expect("the test listens");
            async move {
                may.acquire().await.expect("never closed").forget();
                Some(Response::json(201, &json!({ "id": 7 })))
            }
        }));
        Self { arrivals, lets, address }
    }

    fn answer(&self, title: &str) {
        leave(&self.lets, title).add_permits(1);
    }

    async fn arrival(&mut self) -> Seen {
        within("a request arrives", self.arrivals.recv()).await.expect("it does").expect("open")
    }
}

/// One ledger, as the test sees it.
struct Ledger {
    engine: Arc<Engine>,
    connectors: Connectors,
    caller: Caller,
}

impl Ledger {
    async fn open(place: &Path) -> Self {
        let (settings, connectors) = settings(place).expect("good settings");
        let engine = ledger::open_engine(&settings).await.expect("opens");
        let caller = serve::stdio_caller(settings.principal);
        Self { engine, connectors, caller }
    }

    async fn accept(&self, connector: &str, id: &str) -> OperationKey {
        let name = TargetName::parse(connector).expect("a name");
        let call = OneCall {
            engine: Arc::clone(&self.engine),
            connector: Arc::clone(self.connectors.get(&name).expect("declared")),
            caller: self.caller.clone(),
            id: OperationId::parse(id).expect("valid"),
        };
        match call.accept().await.expect("taken in") {
            Accepted::Fresh(view) => view.delivery.key,
            other => panic!("{id}: {other:?}"),
        }
    }

    async fn view(&self, key: OperationKey) -> DeliveryView {
        let outbox = self.engine.outbox().expect("it has one");
        outbox.delivery(Which::Key(key)).await.expect("readable").expect("there")
    }

    async fn at_rest(&self, key: OperationKey) -> DeliveryView {
        let waited = self.engine.wait_for_delivery(key, Duration::from_secs(60)).await;
        waited.expect("there")
    }

    /// When each attempt of an item was begun.
    async fn attempts(&self, key: OperationKey) -> Vec<Timestamp> {
        let id = self.view(key).await.record.operation_id;
        let trail = self.engine.audit(&self.caller, &id).await.expect("readable");
        let events = trail.expect("it is ours");
        events.iter().filter(|it| it.kind == "attempt_started").map(|it| it.at).collect()
    }
}

async fn worker(place: &Path) -> (Process, Pipes) {
    let arguments =
        vec!["delivering".into(), "--data-dir".into(), place.into(), "--delivers".into()];
    Launch::child(Path::new(LAB), arguments).start().await.expect("starts")
}

/// `killed` has a short lease, `live` one that outlasts the test; each worker does one at a time.
fn configuration(desk: std::net::SocketAddr, contract: &str) -> String {
    let key = if contract == "key" { "key_lifetime = \"24h\"\n" } else { "" };
    let connector = |name: &str, timeout: &str| {
        format!(
            r#"
[connector.{name}]
description = "Files a ticket."
contract = "{contract}"
url = "http://{desk}/{name}"
timeout = "{timeout}"
allow_networks = ["127.0.0.1"]
[connector.{name}.arguments]
type = "object"
properties.title.type = "string"
[connector.{name}.idempotency]
header = "Idempotency-Key"
[connector.{name}.json]
title = "{{{{ args.title }}}}"
[connector.{name}.success]
status = [201]
external_id = "/id"
[connector.{name}.delivery]
{key}
[connector.{name}.limits]
concurrency = 1
"#
        )
    };
    connector("killed", "2s") + &connector("live", "10m")
}

async fn check(contract: &str) {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let place: PathBuf = scratch.path().join("data");
    std::fs::create_dir(&place).expect("made");
    let mut desk = Desk::open().await;
    let text = configuration(desk.address, contract);
    std::fs::write(place.join("counterfoil.toml"), text).expect("written");
    let ledger = Ledger::open(&place).await;

    // The first worker alone takes one item of each connector, and is in mid-send with both.
    let (mut doomed, _doomed_pipes) = worker(&place).await;
    let lost = ledger.accept("killed", "lost").await;
    let first = desk.arrival().await;
    assert_eq!(first.0, "lost");
    let orphan = ledger.accept("live", "orphan").await;
    assert_eq!(desk.arrival().await.0, "orphan");
    // The two beside it take one each: the first has no place left.
    let (beside, next) = (worker(&place).await, worker(&place).await);
    let live = [ledger.accept("live", "live-1").await, ledger.accept("live", "live-2").await];
    let mut taken = [desk.arrival().await.0, desk.arrival().await.0];
    taken.sort();
    assert_eq!(taken, ["live-1", "live-2"], "{contract}");
    let sending = ledger.view(lost).await.delivery;
    let lease = sending.lease.expect("it is held");
    let mut boots = BTreeSet::from([lease.boot]);
    for key in live {
        boots.insert(ledger.view(key).await.delivery.lease.expect("it is held").boot);
    }
    assert_eq!(boots.len(), 3, "{contract}: three workers hold one each: {boots:?}");
    doomed.kill().await.expect("it dies by it");

    if contract == "key" {
        let again = desk.arrival().await;
        assert_eq!(again, first, "{contract}: the same request with the same key");
        assert!(again.1.is_some(), "{contract}: it has a key");
        desk.answer("lost");
        desk.answer("lost");
    }
    let settled = ledger.at_rest(lost).await.delivery;
    let attempts = ledger.attempts(lost).await;
    let expected = if contract == "key" { (State::Delivered, 2) } else { (State::InDoubt, 1) };
    assert_eq!((settled.state, settled.attempts_count), expected, "{contract}: {settled:?}");
    assert_eq!((attempts.len() as u32, settled.unknown_count), (expected.1, 1), "{contract}");
    assert!(settled.updated_at >= lease.until, "{contract}: not before its lease had ended");
    assert!(attempts.iter().skip(1).all(|at| *at >= lease.until), "{contract}: {attempts:?}");

    // Nobody touched what is held under a live lease, of the dead worker's either.
    for key in live.into_iter().chain([orphan]) {
        let held = ledger.view(key).await.delivery;
        let told = (held.state, held.attempts_count, held.fence);
        assert_eq!(told, (State::Sending, 1, 1), "{contract}: {held:?}");
    }
    desk.answer("live-1");
    desk.answer("live-2");
    for key in live {
        let delivered = ledger.at_rest(key).await.delivery;
        assert_eq!((delivered.state, delivered.attempts_count), (State::Delivered, 1));
    }
    assert!(desk.arrivals.try_recv().is_err(), "{contract}: nothing else was ever sent");
    for (mut process, pipes) in [beside, next] {
        drop(pipes);
        process.ended().await.expect("ends");
    }
    ledger.engine.close().await.expect("closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_in_mid_send_costs_one_attempt_and_no_live_lease() {
    // Promise: what a killed worker was sending is taken up by a live one only after its lease, as an
    // attempt that may have been done: under a key it is sent again with the same key, where the
    // target promises nothing it is in doubt. What live workers hold stays theirs.
    for contract in ["key", "never"] {
        check(contract).await;
    }
}
