//! One ledger in a file, its connectors, and the workers on it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use counterfoil::config::Environment;
use counterfoil::connector::{self, Connectors};
use counterfoil_core::admission::{Authority, Call};
use counterfoil_core::delivery::{State, TargetIdentity};
use counterfoil_core::fingerprint::{KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{Caller, OperationId, OperationKey, Principal, Tenant};
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_core::time::{Lifetimes, Timestamp};
use counterfoil_engine::{CancellationToken, Deliverer, DelivererOptions, Engine};
use counterfoil_store::outbox::{Accepted, Action, DeliveryView, Directed, Order, Which};
use counterfoil_store::{Clock, SqliteOptions, SqliteStore, SystemClock};
use tokio::task::JoinHandle;

/// The secret of every desk.
pub(crate) const TOKEN: &str = "t0ken-sentinel";
const PATIENCE: Duration = Duration::from_secs(120);

/// The machine's clocks, set forward by hand.
#[derive(Debug, Default)]
pub(crate) struct Ahead(AtomicI64);

impl Ahead {
    pub(crate) fn advance(&self, by: Duration) {
        let ms = i64::try_from(by.as_millis()).expect("short");
        self.0.fetch_add(ms, Ordering::SeqCst);
    }

    fn by(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst).unsigned_abs())
    }
}

impl Clock for Ahead {
    fn wall(&self) -> Timestamp {
        SystemClock.wall().plus(self.by())
    }

    fn since_boot(&self) -> Duration {
        SystemClock.since_boot() + self.by()
    }
}

/// One ledger with an open engine.
pub(crate) struct World {
    dir: tempfile::TempDir,
    pub(crate) clock: Arc<Ahead>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) connectors: Connectors,
    pub(crate) env: Environment,
}

/// A worker under way.
pub(crate) struct Worker {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Worker {
    /// Stops it; what it had begun is in the ledger then.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("no panic in the worker");
    }
}

impl World {
    /// A fresh ledger with these connectors.
    pub(crate) async fn new(toml: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let clock = Arc::new(Ahead::default());
        let engine = open(dir.path(), &clock).await;
        let connectors = read(dir.path(), toml);
        let env = [("DESK_TOKEN", TOKEN)].into_iter().collect();
        Self { dir, clock, engine, connectors, env }
    }

    /// Edits the connectors' file.
    pub(crate) fn configure(&mut self, toml: &str) {
        self.connectors = read(self.dir.path(), toml);
    }

    /// What a new process finds.
    pub(crate) async fn restart(&mut self) {
        self.engine.close().await.expect("closes");
        self.engine = open(self.dir.path(), &self.clock).await;
    }

    /// Every byte of the ledger's files.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let files = fs::read_dir(self.dir.path()).expect("readable");
        let paths = files.map(|file| file.expect("readable").path());
        let ledger = paths.filter(|path| path.display().to_string().contains("ledger.db"));
        ledger.flat_map(|path| fs::read(path).expect("readable")).collect()
    }

    /// A call of the only connector's tool, taken in.
    pub(crate) async fn submit(&self, id: &str, arguments: &str) -> OperationKey {
        let connector = self.connectors.iter().next().expect("one connector");
        let arguments = parse(arguments.as_bytes(), &JsonLimits::default()).expect("JSON");
        let caller = Caller { tenant: tenant(), principal: principal() };
        let id = OperationId::parse(id).expect("valid");
        let identity = TargetIdentity {
            backend: self.engine.backend_id(),
            tenant: &caller.tenant,
            operation: &id,
        };
        let frozen = connector.freeze(&arguments, identity, &keys()).expect("good arguments");
        let admitted = self.engine.admit(&Call {
            caller: &caller,
            tool_id: &connector.tool,
            tool_version: &connector.version,
            profile: Profile::JcsV1,
            operation_id: &id,
            arguments: &arguments,
            call_arguments: &arguments,
            continuation_state: None,
            input_responses: None,
            authority: Authority::Present,
        });
        let (target, request) = (connector.name.clone(), Arc::from(frozen.encode()));
        let admitted = admitted.expect("canonical");
        let taken = self.engine.accept(admitted, target, connector.terms, request).await;
        match taken.expect("taken in") {
            Accepted::Fresh(view) => view.delivery.key,
            other => panic!("{id:?} is fresh: {other:?}"),
        }
    }

    /// Starts a worker on the connectors as they are now.
    pub(crate) fn work(&self) -> Worker {
        let options = DelivererOptions { drain_limit: PATIENCE, ..DelivererOptions::default() };
        let targets = connector::targets(&self.connectors, &self.env, Some(&crate::hostile::tls()));
        let deliverer = Deliverer::new(Arc::clone(&self.engine), targets, options);
        let stop = CancellationToken::new();
        let task = tokio::spawn(deliverer.expect("good limits").run(stop.clone()));
        Worker { stop, task }
    }

    /// Works until an item rests.
    pub(crate) async fn settle(&self, key: OperationKey) -> DeliveryView {
        let worker = self.work();
        let view = self.engine.wait_for_delivery(key, PATIENCE).await.expect("there");
        worker.stop().await;
        assert!(!matches!(view.delivery.state, State::Queued | State::Sending), "{view:?}");
        view
    }

    pub(crate) async fn view(&self, key: OperationKey) -> DeliveryView {
        let outbox = self.engine.outbox().expect("it has one");
        outbox.delivery(Which::Key(key)).await.expect("readable").expect("there")
    }

    /// The kinds and reasons of an item's audit trail.
    pub(crate) async fn audit(&self, key: OperationKey) -> Vec<(String, String)> {
        let outbox = self.engine.outbox().expect("it has one");
        let events = outbox.audit(key).await.expect("readable");
        events.into_iter().map(|it| (it.kind, it.reason.unwrap_or_default())).collect()
    }

    pub(crate) async fn redrive(&self, key: OperationKey) -> Directed {
        let order = Order {
            which: vec![Which::Key(key)],
            action: Action::Redrive,
            who: "olga".into(),
            reason: "the desk is back".into(),
        };
        let outbox = self.engine.outbox().expect("it has one");
        outbox.direct(order).await.expect("writable").remove(0)
    }
}

pub(crate) fn tenant() -> Tenant {
    Tenant::parse("local").expect("valid")
}

fn principal() -> Principal {
    Principal::parse("alice").expect("valid")
}

fn keys() -> KeyRing {
    let key = SecretKey::from_bytes(&[1; 32]).expect("long enough");
    KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("one key")
}

async fn open(dir: &Path, clock: &Arc<Ahead>) -> Arc<Engine> {
    let mut options = SqliteOptions::new(dir.join("ledger.db"));
    options.clock = Arc::clone(clock) as Arc<dyn Clock>;
    let store = Arc::new(SqliteStore::open(&options).expect("opens"));
    let engine = Engine::open_with_outbox(store, keys(), Lifetimes::default());
    Arc::new(engine.await.expect("opens"))
}

fn read(dir: &Path, toml: &str) -> Connectors {
    let file = dir.join("connectors.toml");
    fs::write(&file, toml).expect("writable");
    connector::read_file(&file).unwrap_or_else(|error| panic!("{error}"))
}

/// The parts of a contract that its connector declares.
pub(crate) fn contract(word: &str, origin: &str) -> String {
    let lookup = format!(
        r#"[connector.desk.lookup]
url = "{origin}/search?q={{{{ marker }}}}"
items = "/items"
field = "/subject"
contains = "{{{{ marker }}}}"
external_id = "/id"
complete = true
"#
    );
    let key = "[connector.desk.idempotency]\nheader = \"Idempotency-Key\"\n";
    match word {
        "key" => format!("{key}{DELIVERY}key_lifetime = \"24h\"\n"),
        "lookup" => format!("{lookup}{DELIVERY}absence_after = \"5s\"\n"),
        _ => DELIVERY.to_owned(),
    }
}

const DELIVERY: &str = "[connector.desk.delivery]\nmax_attempts = 3\nbackoff_base = \"1ms\"\n\
                        backoff_cap = \"4ms\"\n";

/// A desk's connector under a contract; `path` is the template of its address.
pub(crate) fn desk(word: &str, origin: &str, path: &str) -> String {
    let rest = contract(word, origin);
    format!(
        r#"[connector.desk]
tool = "file_ticket"
description = "Files a ticket."
method = "POST"
url = "{origin}{path}"
contract = "{word}"
connect_timeout = "2s"
timeout = "2s"
allow_networks = ["127.0.0.0/8", "::1"]
[connector.desk.arguments]
type = "object"
required = ["subject"]
[connector.desk.arguments.properties]
subject = {{ type = "string" }}
[connector.desk.credential]
type = "bearer"
env = "DESK_TOKEN"
account = "bot"
[connector.desk.json]
subject = "{{{{ args.subject }}}} [{{{{ marker }}}}]"
[connector.desk.success]
status = [201]
external_id = "/id"
[[connector.desk.answer]]
status = [400, 413, 415, 422]
at = "/error"
type = "string"
means = "refused"
[connector.desk.limits]
breaker_failures = 0
{rest}"#
    )
}
