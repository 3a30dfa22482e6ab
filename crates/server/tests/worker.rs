//! The worker on a ledger in a file, as `serve` runs it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use counterfoil_core::admission::{Authority, Call};
use counterfoil_core::delivery::{
    Contract, ErrorClass, LookupEnd, ParkReason, SendEnd, State, TargetName, Terms,
};
use counterfoil_core::fingerprint::{KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{
    Caller, OperationId, OperationKey, Principal, Tenant, ToolId, ToolVersion,
};
use counterfoil_core::json::Value;
use counterfoil_core::record::StoredResult;
use counterfoil_core::time::{Lifetimes, Timestamp};
use counterfoil_engine::{
    CancellationToken, Deliverer, DelivererOptions, Engine, Target, TargetFuture, TargetLimits,
};
use counterfoil_store::outbox::{Accepted, Which};
use counterfoil_store::{Clock, SqliteOptions, SqliteStore, SystemClock};
use tokio::sync::watch;

/// Honours keys.
#[derive(Debug)]
struct Desk {
    name: TargetName,
    effects: Mutex<BTreeMap<Vec<u8>, u32>>,
    arrivals_count: AtomicUsize,
    /// Loses every third answer.
    loses: bool,
    /// While it is closed, nothing is answered.
    is_open: watch::Sender<bool>,
}

impl Desk {
    fn new(name: &TargetName, loses: bool) -> Arc<Self> {
        let (is_open, _) = watch::channel(true);
        let (effects, arrivals_count) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new(Self { name: name.clone(), effects, arrivals_count, loses, is_open })
    }
}

impl Target for Desk {
    fn name(&self) -> &TargetName {
        &self.name
    }

    fn limits(&self) -> TargetLimits {
        TargetLimits {
            concurrency_count: 16,
            rate_per_s: None,
            send_limit: Duration::from_secs(30),
            breaker_failures_count: 0,
            breaker_open: (Duration::from_secs(1), Duration::from_secs(1)),
        }
    }

    fn check(&self, _request: &[u8], _maybe_sent: bool) -> Result<(), ParkReason> {
        Ok(())
    }

    fn send(&self, request: Arc<[u8]>, _deadline: Instant) -> TargetFuture<'_, SendEnd> {
        let mut effects = self.effects.lock().expect("no panic in here");
        self.arrivals_count.fetch_add(1, Ordering::SeqCst);
        let is_lost =
            self.loses && !effects.contains_key(&*request) && effects.len().is_multiple_of(3);
        effects.entry(request.to_vec()).or_insert(1);
        let mut is_open = self.is_open.subscribe();
        Box::pin(async move {
            is_open.wait_for(|is_open| *is_open).await.expect("the desk is there");
            if is_lost {
                let words = "the connection ended".to_owned();
                return SendEnd::Unknown { class: ErrorClass::NoReply, words, retry_after: None };
            }
            let result = StoredResult::from_text("done");
            SendEnd::Applied { external_id: None, result }
        })
    }

    fn look_up(
        &self,
        _request: Arc<[u8]>,
        _begun_at: Timestamp,
        _deadline: Instant,
    ) -> TargetFuture<'_, LookupEnd> {
        unreachable!("the contract has no search")
    }
}

/// The machine's clocks, with a wall clock that can be set.
#[derive(Debug, Default)]
struct SetClock {
    ahead_ms: AtomicI64,
}

impl Clock for SetClock {
    fn wall(&self) -> Timestamp {
        let ahead_ms = self.ahead_ms.load(Ordering::SeqCst);
        Timestamp::from_ms(SystemClock.wall().as_ms() + ahead_ms)
    }

    fn since_boot(&self) -> Duration {
        SystemClock.since_boot()
    }

    fn boot(&self) -> Option<[u8; 16]> {
        SystemClock.boot()
    }
}

async fn open(dir: &Path) -> Arc<Engine> {
    open_with(dir, Arc::new(SystemClock)).await
}

async fn open_with(dir: &Path, clock: Arc<dyn Clock>) -> Arc<Engine> {
    let options = SqliteOptions { clock, ..SqliteOptions::new(dir.join("ledger.db")) };
    let store = SqliteStore::open(&options).expect("opens");
    let key = SecretKey::from_bytes(&[1; 32]).expect("long enough");
    let keys = KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("one key");
    let engine = Engine::open_with_outbox(Arc::new(store), keys, Lifetimes::default());
    Arc::new(engine.await.expect("opens"))
}

async fn accept(engine: &Arc<Engine>, id: &str, target: &TargetName) -> OperationKey {
    let caller = Caller {
        tenant: Tenant::parse("local").expect("valid"),
        principal: Principal::parse("alice").expect("valid"),
    };
    let arguments = Value::from("an argument");
    let admitted = engine.admit(&Call {
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
    let terms = Terms {
        contract: Contract::Key { lifetime: Duration::from_secs(86_400) },
        max_attempts_count: 5,
        backoff_base: Duration::from_millis(5),
        backoff_cap: Duration::from_secs(1),
        send_limit: Duration::from_secs(30),
        deliver_within: None,
    };
    let request: Arc<[u8]> = Arc::from(id.as_bytes());
    let taken = engine.accept(admitted.expect("canonical"), target.clone(), terms, request).await;
    match taken.expect("taken in") {
        Accepted::Fresh(view) => view.delivery.key,
        other => panic!("{id} is fresh: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_accepted_is_delivered_once_and_the_end_leaves_nothing_half_done() {
    // Promise: on a ledger in a file, a server's worker delivers what another process accepted and
    // what its own server accepts, once each; draining the engine ends the worker with it.
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let name = TargetName::parse("desk").expect("a name");
    let desk = Desk::new(&name, true);
    let mut keys = Vec::new();
    let first = open(scratch.path()).await;
    for number in 0..20 {
        keys.push(accept(&first, &format!("early-{number}"), &name).await);
    }
    let second = open(scratch.path()).await;
    let targets = vec![Arc::clone(&desk) as Arc<dyn Target>];
    let worker = Deliverer::new(Arc::clone(&second), targets, DelivererOptions::default());
    second.start_worker(worker.expect("good limits"), &CancellationToken::new());
    for number in 0..20 {
        keys.push(accept(&second, &format!("late-{number}"), &name).await);
    }
    for key in &keys {
        let view = first.wait_for_delivery(*key, Duration::from_secs(60)).await.expect("there");
        assert_eq!(view.delivery.state, State::Delivered, "{:?}", view.delivery);
    }
    assert!(second.drain(Duration::from_secs(60)).await, "the worker ends");
    second.close().await.expect("closes");
    let stats = first.outbox_stats().await.expect("readable").expect("an outbox");
    assert_eq!(stats.counts[State::Delivered as usize], 40);
    let outbox = first.outbox().expect("it has one");
    let view = outbox.delivery(Which::Key(keys[0])).await.expect("readable").expect("there");
    assert_eq!(view.record.result.expect("kept").as_json(), "\"done\"");
    first.close().await.expect("closes");
    let effects = desk.effects.lock().expect("no panic in here");
    assert!(effects.len() == 40 && effects.values().all(|count| *count == 1), "{effects:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_a_year_ahead_and_back_stops_no_delivery_and_purges_nothing() {
    // Promise: whatever the wall clock does, open deliveries go on, each once: those under way at
    // the jump, those that wait, and those of afterwards. No result is purged by the wrong time.
    const YEAR_MS: i64 = 365 * 86_400_000;
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let clock = Arc::new(SetClock::default());
    let name = TargetName::parse("desk").expect("a name");
    let desk = Desk::new(&name, false);
    let engine = open_with(scratch.path(), clock.clone()).await;
    let options = DelivererOptions {
        poll: Duration::from_millis(20),
        upkeep: Duration::from_millis(20),
        ..DelivererOptions::default()
    };
    let targets = vec![Arc::clone(&desk) as Arc<dyn Target>];
    let worker = Deliverer::new(Arc::clone(&engine), targets, options).expect("good limits");
    engine.start_worker(worker, &CancellationToken::new());
    let mut keys = vec![accept(&engine, "before", &name).await];
    rest(&engine, &keys).await;
    for (round, ahead_ms) in [YEAR_MS, 0].into_iter().enumerate() {
        desk.is_open.send_replace(false);
        // More than the target takes at a time: some are under way, the others wait.
        for number in 0..20 {
            keys.push(accept(&engine, &format!("round-{round}-{number}"), &name).await);
        }
        while desk.arrivals_count.load(Ordering::SeqCst) < 1 + round * 20 + 16 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        clock.ahead_ms.store(ahead_ms, Ordering::SeqCst);
        // So that it is seen, too.
        keys.push(accept(&engine, &format!("after-{round}"), &name).await);
        let purged = engine.purge().await.expect("works");
        assert!(purged.state.stopped.is_some(), "{purged:?}");
        desk.is_open.send_replace(true);
        rest(&engine, &keys).await;
    }
    let purged = engine.purge().await.expect("works");
    assert_eq!((purged.results_count, purged.tombstones_count), (0, 0));
    for key in &keys {
        let outbox = engine.outbox().expect("it has one");
        let view = outbox.delivery(Which::Key(*key)).await.expect("readable").expect("there");
        assert_eq!(view.record.result.expect("kept").as_json(), "\"done\"");
    }
    assert!(engine.drain(Duration::from_secs(60)).await, "the worker ends");
    engine.close().await.expect("closes");
    assert_eq!(desk.arrivals_count.load(Ordering::SeqCst), keys.len(), "each was sent once");
}

async fn rest(engine: &Engine, keys: &[OperationKey]) {
    for key in keys {
        let view = engine.wait_for_delivery(*key, Duration::from_secs(60)).await.expect("there");
        assert_eq!(view.delivery.state, State::Delivered, "{:?}", view.delivery);
    }
}
