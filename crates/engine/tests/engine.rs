//! The engine over a store that can be made to fail: what is tried again, what is not, and what a
//! caller that goes away leaves behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil_core::admission::{Authority, Call};
use counterfoil_core::fingerprint::{KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{
    BackendId, Caller, OperationId, OperationKey, Principal, Tenant, ToolId, ToolVersion,
};
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_core::observation::{Detail, ObservedState, Snapshot};
use counterfoil_core::record::{EffectRef, StoredResult};
use counterfoil_core::refusal::Code;
use counterfoil_core::time::{Lifetimes, Timestamp};
use counterfoil_engine::{Effect, Engine, StateBinding};
use counterfoil_store::memory::{MemoryOptions, MemoryStore};
use counterfoil_store::{
    AuditEvent, Column, ColumnKind, Committed, Completion, EffectContext, EffectError, EffectRow,
    EffectTx, Finish, KeyUsage, LedgerInfo, LedgerStats, ListQuery, Page, Purge, Purged, Resolve,
    Resolved, RetentionState, Store, StoreError, StoreFuture, Submission, TableSpec,
};

const TABLE: TableSpec = TableSpec {
    name: "things",
    columns: &[Column { name: "name", kind: ColumnKind::Text }],
    append_only: true,
};

/// A memory store whose `finish` fails as told before it works, and whose `submit` can be held.
#[derive(Debug)]
struct Flaky {
    inner: MemoryStore,
    failures: Mutex<Vec<StoreError>>,
    finishes: AtomicUsize,
    gate: tokio::sync::Semaphore,
}

impl Store for Flaky {
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
    fn bind_keys(&self, keys: &KeyRing) -> StoreFuture<'_, ()> {
        self.inner.bind_keys(keys)
    }
    fn submit(&self, submission: Submission) -> StoreFuture<'_, Committed> {
        Box::pin(async move {
            self.gate.acquire().await.expect("the gate stays open").forget();
            self.inner.submit(submission).await
        })
    }
    fn finish(&self, finish: Finish) -> StoreFuture<'_, Committed> {
        Box::pin(async move {
            self.finishes.fetch_add(1, Ordering::SeqCst);
            let failure = self.failures.lock().expect("not poisoned").pop();
            match failure {
                Some(error) => Err(error),
                None => self.inner.finish(finish).await,
            }
        })
    }
    fn resolve(&self, resolve: Resolve) -> StoreFuture<'_, Resolved> {
        self.inner.resolve(resolve)
    }
    fn look_up(&self, tenant: &Tenant, id: &OperationId) -> StoreFuture<'_, Snapshot> {
        self.inner.look_up(tenant, id)
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
    fn note_cancel(
        &self,
        tenant: &Tenant,
        id: &OperationId,
        principal: &Principal,
    ) -> StoreFuture<'_, ()> {
        self.inner.note_cancel(tenant, id, principal)
    }
    fn probe(&self) -> StoreFuture<'_, ()> {
        self.inner.probe()
    }
    fn stats(&self) -> StoreFuture<'_, LedgerStats> {
        self.inner.stats()
    }
    fn close(&self) -> StoreFuture<'_, ()> {
        self.inner.close()
    }
}

#[derive(Debug)]
struct TwoSteps;

impl Effect for TwoSteps {
    fn apply(
        &self,
        tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        let id = tx.insert("things", &[("name", "a".into())])?;
        Ok(Completion::FirstStep { row: EffectRow { table: "things", id } })
    }
    fn follow_up(
        &self,
        _tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
        first: &EffectRef,
    ) -> Result<StoredResult, EffectError> {
        Ok(StoredResult::from_text(&format!("created {}", first.id)))
    }
}

struct Desk {
    store: Arc<Flaky>,
    engine: Arc<Engine>,
}

async fn desk(failures: Vec<StoreError>, permits: usize) -> Desk {
    let mut options = MemoryOptions::new(BackendId::parse("desk").expect("valid"));
    options.tables = vec![TABLE];
    let store = Arc::new(Flaky {
        inner: MemoryStore::new(&options).expect("a good table"),
        failures: Mutex::new(failures),
        finishes: AtomicUsize::new(0),
        gate: tokio::sync::Semaphore::new(permits),
    });
    let key = SecretKey::from_bytes(&[7; 32]).expect("long enough");
    let keys = KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("one key");
    let engine = Engine::open(Arc::clone(&store) as Arc<dyn Store>, keys, Lifetimes::default());
    Desk { store, engine: Arc::new(engine.await.expect("opened")) }
}

fn caller(principal: &str) -> Caller {
    Caller {
        tenant: Tenant::parse("local").expect("valid"),
        principal: Principal::parse(principal).expect("valid"),
    }
}

fn admit(desk: &Desk, principal: &str, tool: &str) -> counterfoil_core::admission::Admitted {
    let arguments = parse(br#"{"a":1}"#, &JsonLimits::default()).expect("JSON");
    let call = Call {
        caller: &caller(principal),
        tool_id: &ToolId::parse(tool).expect("valid"),
        tool_version: &ToolVersion::parse("1").expect("valid"),
        profile: Profile::JcsV1,
        operation_id: &OperationId::parse("op-1").expect("valid"),
        arguments: &arguments,
        call_arguments: &arguments,
        continuation_state: None,
        input_responses: None,
        authority: Authority::Present,
    };
    desk.engine.admit(&call).expect("canonical")
}

fn busy() -> StoreError {
    StoreError::Busy { waited_ms: 0 }
}

#[tokio::test(start_paused = true)]
async fn a_last_step_is_tried_until_the_ledger_takes_it() {
    // Promise: a first step that is committed is never left alone because the ledger was busy.
    let full = StoreError::Full { path: "ledger.db".into() };
    let desk = desk(vec![busy(), StoreError::CommitUnknown, full, busy()], 1).await;
    let settled = desk.engine.execute(admit(&desk, "alice", "tool"), Arc::new(TwoSteps)).await;
    let settled = settled.expect("settled in the end");
    assert_eq!(settled.state(), ObservedState::Applied);
    assert_eq!(settled.result_json(), Some("\"created 1\""));
    assert_eq!(desk.store.finishes.load(Ordering::SeqCst), 5);
}

#[tokio::test(start_paused = true)]
async fn a_last_step_that_can_never_succeed_is_left_for_an_operator() {
    // Promise: an unfinished operation is said to be unfinished, and nobody spins on it.
    for error in [
        StoreError::EffectPanicked,
        StoreError::Closed,
        StoreError::Quarantined { reason: "its digest differs".into() },
    ] {
        let desk = desk(vec![error.clone()], 1).await;
        let admitted = admit(&desk, "alice", "tool");
        let refusal =
            desk.engine.execute(admitted, Arc::new(TwoSteps)).await.expect_err("unfinished");
        assert_eq!(refusal.code(), Code::OperationInProgress, "{error}");
        assert_eq!(desk.store.finishes.load(Ordering::SeqCst), 1, "{error}");
        let id = OperationId::parse("op-1").expect("valid");
        let seen = desk.engine.observe(&caller("alice"), &id).await.expect("readable");
        assert_eq!((seen.state, seen.detail), (ObservedState::Unknown, Detail::FirstStepCommitted));
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_takes_nothing_with_it() {
    // Promise: effects run in a task of the engine; draining waits for them.
    let desk = desk(Vec::new(), 0).await;
    let call = desk.engine.execute(admit(&desk, "alice", "tool"), Arc::new(TwoSteps));
    let mut call = Box::pin(call);
    // Polled once: the task is begun, and waits at the gate.
    assert!(futures_poll_once(&mut call).await.is_none());
    drop(call);
    assert!(!desk.engine.drain(Duration::from_millis(1)).await, "it still waits");
    desk.store.gate.add_permits(1);
    assert!(desk.engine.drain(Duration::from_secs(60)).await, "it was finished");
    let id = OperationId::parse("op-1").expect("valid");
    let seen = desk.engine.observe(&caller("alice"), &id).await.expect("readable");
    assert_eq!(seen.state, ObservedState::Applied);
}

async fn futures_poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
        std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn a_state_opens_only_for_the_call_that_it_was_issued_for() {
    // Promise: a continuation of another principal, tool or method is refused, with one answer.
    let desk = desk(Vec::new(), 0).await;
    let binding = StateBinding { method: "tools/call" };
    let call = admit(&desk, "alice", "tool");
    let state = desk.engine.issue_state(&call, binding).expect("issued");
    assert!(desk.engine.open_state(&state, &call, binding).is_ok());
    for (principal, tool, method) in [
        ("bob", "tool", "tools/call"),
        ("alice", "other", "tools/call"),
        ("alice", "tool", "prompts/get"),
    ] {
        let call = admit(&desk, principal, tool);
        let opened = desk.engine.open_state(&state, &call, StateBinding { method });
        assert!(opened.is_err(), "{principal} {tool} {method}");
    }
    assert!(desk.engine.open_state(&format!("{state}="), &call, binding).is_err());
}
