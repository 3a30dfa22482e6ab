//! Faults as a decoration of a store: barriers before the first submit and the first finish, an
//! effect that fails once after its insert. The store beneath is the product's own and knows
//! nothing of it.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use counterfoil_core::fingerprint::KeyRing;
use counterfoil_core::identity::{BackendId, OperationId, OperationKey, Principal, Tenant};
use counterfoil_core::observation::Snapshot;
use counterfoil_core::record::{EffectRef, StoredResult};
use counterfoil_core::time::Timestamp;
use counterfoil_store::{
    AuditEvent, Committed, Completion, EffectContext, EffectError, EffectTx, Finish, KeyUsage,
    LedgerInfo, LedgerStats, ListQuery, LocalEffect, Page, Purge, Purged, Resolve, Resolved,
    RetentionState, Store, StoreFuture, Submission,
};

use crate::within::PATIENCE;

/// `DIR:N`: whoever comes waits until N processes have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BarrierSpec {
    /// Where each process leaves a file.
    pub directory: PathBuf,
    /// How many must be there.
    pub process_count: usize,
}

impl FromStr for BarrierSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (directory, count) = text.rsplit_once(':').context("write DIR:N")?;
        let process_count = count.parse().context("the N of DIR:N is a number")?;
        Ok(Self { directory: directory.into(), process_count })
    }
}

impl std::fmt::Display for BarrierSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.directory.display(), self.process_count)
    }
}

impl BarrierSpec {
    /// Leaves this process's file.
    ///
    /// # Panics
    /// If the directory cannot be written.
    pub fn arrive(&self) {
        let mine = self.directory.join(format!("{}.here", std::process::id()));
        let made = std::fs::create_dir_all(&self.directory).and_then(|()| std::fs::write(mine, ""));
        made.expect("the barrier's directory can be written");
    }

    /// Leaves this process's file and waits for the others'.
    ///
    /// # Panics
    /// If they do not come.
    pub async fn pass(&self) {
        self.arrive();
        self.wait_for(self.process_count).await;
    }

    /// Waits until this many processes have come.
    ///
    /// # Panics
    /// If they do not come.
    pub async fn wait_for(&self, count: usize) {
        let all_there = async {
            while self.arrived_count() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let passed = tokio::time::timeout(PATIENCE, all_there).await;
        passed.expect("all processes of the barrier come within the lab's patience");
    }

    fn arrived_count(&self) -> usize {
        std::fs::read_dir(&self.directory).map_or(0, Iterator::count)
    }
}

/// What is planted before a store.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Before the first submit.
    pub submit_barrier: Option<BarrierSpec>,
    /// Before the first finish: between the two steps of a partial.
    pub finish_barrier: Option<BarrierSpec>,
    /// Whether the first effect fails after its insert.
    pub fail_effect_once: bool,
}

/// A store with faults before it.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    submit_barrier: Once,
    finish_barrier: Once,
    fail_effect: Arc<AtomicBool>,
}

impl FaultyStore {
    /// Plants `faults` before `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, faults: Faults) -> Self {
        Self {
            inner,
            submit_barrier: Once::new(faults.submit_barrier),
            finish_barrier: Once::new(faults.finish_barrier),
            fail_effect: Arc::new(AtomicBool::new(faults.fail_effect_once)),
        }
    }
}

/// A barrier that the first comer passes, and nobody after it.
#[derive(Debug)]
struct Once {
    barrier: Option<BarrierSpec>,
    waits: AtomicBool,
}

impl Once {
    const fn new(barrier: Option<BarrierSpec>) -> Self {
        Self { waits: AtomicBool::new(barrier.is_some()), barrier }
    }

    async fn pass(&self) {
        if let Some(barrier) = &self.barrier
            && self.waits.swap(false, Ordering::SeqCst)
        {
            barrier.pass().await;
        }
    }
}

impl Store for FaultyStore {
    fn submit(&self, mut submission: Submission) -> StoreFuture<'_, Committed> {
        Box::pin(async move {
            self.submit_barrier.pass().await;
            let fail = Arc::clone(&self.fail_effect);
            submission.effect = Arc::new(FailsOnce { inner: submission.effect, fail });
            self.inner.submit(submission).await
        })
    }

    fn finish(&self, finish: Finish) -> StoreFuture<'_, Committed> {
        Box::pin(async move {
            self.finish_barrier.pass().await;
            self.inner.finish(finish).await
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

    fn resolve(&self, resolve: Resolve) -> StoreFuture<'_, Resolved> {
        self.inner.resolve(resolve)
    }

    fn note_cancel(
        &self,
        tenant: &Tenant,
        operation_id: &OperationId,
        principal: &Principal,
    ) -> StoreFuture<'_, ()> {
        self.inner.note_cancel(tenant, operation_id, principal)
    }

    fn look_up(&self, tenant: &Tenant, operation_id: &OperationId) -> StoreFuture<'_, Snapshot> {
        self.inner.look_up(tenant, operation_id)
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

    fn probe(&self) -> StoreFuture<'_, ()> {
        self.inner.probe()
    }

    fn stats(&self) -> StoreFuture<'_, LedgerStats> {
        self.inner.stats()
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

    fn close(&self) -> StoreFuture<'_, ()> {
        self.inner.close()
    }
}

/// An effect whose first run in this process fails after all its writes.
#[derive(Debug)]
struct FailsOnce {
    inner: Arc<dyn LocalEffect>,
    fail: Arc<AtomicBool>,
}

impl LocalEffect for FailsOnce {
    fn apply(
        &self,
        tx: &mut dyn EffectTx,
        context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        let done = self.inner.apply(tx, context)?;
        if self.fail.swap(false, Ordering::SeqCst) {
            return Err(EffectError::Failed("the lab planted a failure after the insert".into()));
        }
        Ok(done)
    }

    fn follow_up(
        &self,
        tx: &mut dyn EffectTx,
        context: &EffectContext<'_>,
        first: &EffectRef,
    ) -> Result<StoredResult, EffectError> {
        self.inner.follow_up(tx, context, first)
    }

    fn compensate(
        &self,
        tx: &mut dyn EffectTx,
        context: &EffectContext<'_>,
        first: &EffectRef,
    ) -> Result<(), EffectError> {
        self.inner.compensate(tx, context, first)
    }

    fn partial_result(&self, first: &EffectRef) -> StoredResult {
        self.inner.partial_result(first)
    }
}
