//! One ledger, the processes on it, and what a test asks of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counterfoil_core::admission::{Admitted, Authority, Call};
use counterfoil_core::delivery::{Contract, State, TargetName, Terms};
use counterfoil_core::fingerprint::{KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{
    BackendId, Caller, OperationId, OperationKey, Principal, Tenant, ToolId, ToolVersion,
};
use counterfoil_core::json::Value;
use counterfoil_core::time::{Lifetimes, Timestamp};
use counterfoil_engine::{CancellationToken, Clock, Deliverer, DelivererOptions, Engine, Target};
use counterfoil_store::outbox::{Accepted, DeliveryView, Which};
use counterfoil_store::{MemoryOptions, MemoryStore, Outbox};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::fake::Fake;

/// The runtime's time as a ledger's clocks.
#[derive(Debug)]
pub(crate) struct RuntimeClock {
    begun: Instant,
    ahead_ms: AtomicU64,
}

impl RuntimeClock {
    fn new() -> Arc<Self> {
        Arc::new(Self { begun: Instant::now(), ahead_ms: AtomicU64::new(0) })
    }

    /// Sets the wall clock forward.
    pub(crate) fn jump(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).expect("a few years");
        self.ahead_ms.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for RuntimeClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_ms(1_780_272_000_000)
            .plus(self.since_boot())
            .plus(Duration::from_millis(self.ahead_ms.load(Ordering::SeqCst)))
    }

    fn since_boot(&self) -> Duration {
        self.begun.elapsed()
    }
}

pub(crate) fn store() -> Arc<MemoryStore> {
    jumping_store().0
}

/// With a wall clock that can be set forward.
pub(crate) fn jumping_store() -> (Arc<MemoryStore>, Arc<RuntimeClock>) {
    let clock = RuntimeClock::new();
    let mut options = MemoryOptions::new(BackendId::parse("test").expect("valid"));
    options.clock = Arc::<RuntimeClock>::clone(&clock);
    (Arc::new(MemoryStore::new(&options).expect("no tables")), clock)
}

/// One process on the ledger.
pub(crate) struct Process {
    pub(crate) engine: Arc<Engine>,
    stop: CancellationToken,
    worker: Option<JoinHandle<()>>,
}

pub(crate) fn options() -> DelivererOptions {
    DelivererOptions::default()
}

impl Process {
    /// A process that delivers nothing.
    pub(crate) async fn open(outbox: Arc<dyn Outbox>) -> Self {
        let key = SecretKey::from_bytes(&[1; 32]).expect("long enough");
        let keys = KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("one key");
        let engine = Engine::open_with_outbox(outbox, keys, Lifetimes::default());
        let engine = Arc::new(engine.await.expect("opens"));
        Self { engine, stop: CancellationToken::new(), worker: None }
    }

    pub(crate) fn deliver(mut self, targets: &[Arc<Fake>], options: DelivererOptions) -> Self {
        let targets = targets.iter().map(|fake| Arc::clone(fake) as Arc<dyn Target>).collect();
        let deliverer = Deliverer::new(Arc::clone(&self.engine), targets, options);
        let run = deliverer.expect("good targets").run(self.stop.clone());
        self.worker = Some(tokio::spawn(run));
        self
    }

    /// Told to stop, and has.
    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        if let Some(worker) = self.worker.take() {
            worker.await.expect("a worker does not panic");
        }
    }

    pub(crate) fn admit(&self, id: &str) -> Admitted {
        let caller = Caller {
            tenant: Tenant::parse("local").expect("valid"),
            principal: Principal::parse("alice").expect("valid"),
        };
        let arguments = Value::from("an argument");
        let admitted = self.engine.admit(&Call {
            caller: &caller,
            tool_id: &ToolId::parse("tool").expect("valid"),
            tool_version: &ToolVersion::parse("1").expect("valid"),
            profile: Profile::JcsV1,
            operation_id: &OperationId::parse(id).expect("valid"),
            arguments: &arguments,
            call_arguments: &arguments,
            continuation_state: None,
            input_responses: None,
            authority: Authority::Present,
        });
        admitted.expect("canonical")
    }

    /// Takes in a call whose request is its ID.
    pub(crate) async fn accept(&self, id: &str, target: &TargetName, terms: Terms) -> OperationKey {
        let request: Arc<[u8]> = Arc::from(id.as_bytes());
        match self.engine.accept(self.admit(id), target.clone(), terms, request).await {
            Ok(Accepted::Fresh(view)) => view.delivery.key,
            other => panic!("{id} is not fresh: {other:?}"),
        }
    }

    pub(crate) async fn accept_many(
        &self,
        count: usize,
        target: &TargetName,
        terms: Terms,
    ) -> Vec<OperationKey> {
        let mut keys = Vec::with_capacity(count);
        for number in 0..count {
            keys.push(self.accept(&format!("op-{number:04}"), target, terms).await);
        }
        keys
    }

    /// The item once it rests, or after an hour as it is then.
    pub(crate) async fn rests(&self, key: OperationKey) -> DeliveryView {
        let view = self.engine.wait_for_delivery(key, Duration::from_secs(3600)).await;
        view.expect("the item is there")
    }

    pub(crate) async fn all_rest_in(&self, keys: &[OperationKey], state: State) {
        for key in keys {
            let view = self.rests(*key).await;
            assert_eq!(view.delivery.state, state, "{:?}", view.delivery);
        }
    }

    pub(crate) async fn item(&self, key: OperationKey) -> DeliveryView {
        let outbox = self.engine.outbox().expect("it has one");
        outbox.delivery(Which::Key(key)).await.expect("readable").expect("the item is there")
    }
}

pub(crate) const fn key() -> Contract {
    Contract::Key { lifetime: Duration::from_secs(86_400) }
}

pub(crate) const fn lookup() -> Contract {
    Contract::Lookup { absence_after: Some(Duration::from_secs(20)) }
}

pub(crate) fn terms(contract: Contract) -> Terms {
    Terms {
        contract,
        max_attempts_count: 5,
        backoff_base: Duration::from_millis(100),
        backoff_cap: Duration::from_secs(60),
        send_limit: Duration::from_secs(10),
        deliver_within: None,
    }
}
