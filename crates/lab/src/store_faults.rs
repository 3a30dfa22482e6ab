//! Faults as a decoration of a store: a barrier before the first submit, an effect that fails once
//! after its insert. The store beneath is the product's own and knows nothing of it.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use counterfoil_core::fingerprint::KeyRing;
use counterfoil_core::identity::{BackendId, OperationId, OperationKey, Tenant};
use counterfoil_core::observation::Snapshot;
use counterfoil_core::record::{EffectRef, StoredResult};
use counterfoil_core::time::Timestamp;
use counterfoil_store::{
    AuditEvent, Committed, Completion, EffectContext, EffectError, EffectTx, Finish, LedgerInfo,
    LocalEffect, Resolve, Resolved, Store, StoreFuture, Submission,
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
    /// Leaves this process's file and waits for the others'.
    async fn pass(&self) {
        let mine = self.directory.join(format!("{}.here", std::process::id()));
        let made = std::fs::create_dir_all(&self.directory).and_then(|()| std::fs::write(mine, ""));
        made.expect("the barrier's directory can be written");
        let all_there = async {
            while self.arrived_count() < self.process_count {
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

/// A store with faults before it.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    barrier: Option<BarrierSpec>,
    barrier_waits: AtomicBool,
    fail_effect: Arc<AtomicBool>,
}

impl FaultyStore {
    /// Over `inner`, with at most a barrier before the first submit and one effect that fails.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Store>,
        barrier: Option<BarrierSpec>,
        fail_effect_once: bool,
    ) -> Self {
        let barrier_waits = AtomicBool::new(barrier.is_some());
        let fail_effect = Arc::new(AtomicBool::new(fail_effect_once));
        Self { inner, barrier, barrier_waits, fail_effect }
    }
}

impl Store for FaultyStore {
    fn submit(&self, mut submission: Submission) -> StoreFuture<'_, Committed> {
        Box::pin(async move {
            if let Some(barrier) = &self.barrier
                && self.barrier_waits.swap(false, Ordering::SeqCst)
            {
                barrier.pass().await;
            }
            let fail = Arc::clone(&self.fail_effect);
            submission.effect = Arc::new(FailsOnce { inner: submission.effect, fail });
            self.inner.submit(submission).await
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

    fn audit(&self, key: OperationKey) -> StoreFuture<'_, Vec<AuditEvent>> {
        self.inner.audit(key)
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
