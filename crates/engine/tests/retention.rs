//! The job that purges in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use counterfoil_core::admission::{Authority, Call};
use counterfoil_core::fingerprint::{KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{
    BackendId, Caller, OperationId, Principal, Tenant, ToolId, ToolVersion,
};
use counterfoil_core::json::Value;
use counterfoil_core::record::{EffectRef, StoredResult};
use counterfoil_core::time::{Lifetimes, Timestamp};
use counterfoil_engine::{Clock, Effect, Engine};
use counterfoil_store::{
    Completion, EffectContext, EffectError, EffectTx, MemoryOptions, MemoryStore, Store,
};

const DAY_MS: i64 = 86_400_000;

/// A clock that only moves when it is told to; both clocks move together.
#[derive(Debug)]
struct Told(AtomicI64);

impl Clock for Told {
    fn wall(&self) -> Timestamp {
        Timestamp::from_ms(self.0.load(Ordering::SeqCst))
    }

    fn since_boot(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst).unsigned_abs())
    }
}

/// An effect without a row.
#[derive(Debug)]
struct Nothing;

impl Effect for Nothing {
    fn apply(
        &self,
        _tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        Ok(Completion::Whole { row: None, result: StoredResult::from_text("done") })
    }

    fn follow_up(
        &self,
        _tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
        _first: &EffectRef,
    ) -> Result<StoredResult, EffectError> {
        unreachable!("the effect is whole")
    }
}

async fn execute(engine: &Arc<Engine>, id: &str) {
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
    engine.execute(admitted.expect("canonical"), Arc::new(Nothing)).await.expect("applied");
}

/// Waits until so many results were purged.
async fn purged(store: &MemoryStore, count: u64) {
    let purged = async {
        while store.retention().await.expect("readable").results_purged_count < count {
            tokio::task::yield_now().await;
        }
    };
    let purged = tokio::time::timeout(Duration::from_secs(60), purged).await;
    purged.expect("nothing was purged: the test hangs");
}

#[tokio::test]
async fn a_job_purges_round_by_round_until_the_ledger_is_closed() {
    // Promise: what retention has ended is purged without being told, more than one step of it in
    // one round, round after round; and the job ends with the ledger.
    let clock = Arc::new(Told(AtomicI64::new(1_780_272_000_000)));
    let mut options = MemoryOptions::new(BackendId::parse("test").expect("valid"));
    options.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let store = Arc::new(MemoryStore::new(&options).expect("no tables"));
    let key = SecretKey::from_bytes(&[1; 32]).expect("long enough");
    let keys = KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("one key");
    let engine = Engine::open(Arc::clone(&store) as Arc<dyn Store>, keys, Lifetimes::default());
    let engine = Arc::new(engine.await.expect("opens"));
    for number in 0..700 {
        execute(&engine, &format!("op-{number}")).await;
    }
    clock.0.fetch_add(29 * DAY_MS, Ordering::SeqCst);
    execute(&engine, "later").await;
    clock.0.fetch_add(DAY_MS, Ordering::SeqCst);
    let job = Arc::clone(&engine);
    let job = tokio::spawn(async move { job.keep_retention(Duration::from_millis(1)).await });
    purged(&store, 700).await;
    clock.0.fetch_add(29 * DAY_MS, Ordering::SeqCst);
    purged(&store, 701).await;
    engine.close().await.expect("closes");
    let ended = tokio::time::timeout(Duration::from_secs(60), job).await;
    ended.expect("the job hangs").expect("no panic");
}
