//! The worker on a ledger in a file, as `serve` runs it.

use std::collections::BTreeMap;
use std::path::Path;
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
use counterfoil_store::{SqliteOptions, SqliteStore};

/// Honours keys, and loses every third answer.
#[derive(Debug)]
struct Desk {
    name: TargetName,
    effects: Mutex<BTreeMap<Vec<u8>, u32>>,
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
        let is_lost = !effects.contains_key(&*request) && effects.len().is_multiple_of(3);
        effects.entry(request.to_vec()).or_insert(1);
        Box::pin(async move {
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

async fn open(dir: &Path) -> Arc<Engine> {
    let store = SqliteStore::open(&SqliteOptions::new(dir.join("ledger.db"))).expect("opens");
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
    let desk = Arc::new(Desk { name: name.clone(), effects: Mutex::default() });
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
