//! A ledger that can be made to wait, and to be full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use counterfoil_core::fingerprint::KeyRing;
use counterfoil_core::identity::{BackendId, OperationId, OperationKey, Principal, Tenant};
use counterfoil_core::observation::Snapshot;
use counterfoil_core::time::Timestamp;
use counterfoil_store::{
    AuditEvent, Committed, Finish, KeyUsage, LedgerInfo, LedgerStats, ListQuery, Page, Purge,
    Purged, Resolve, Resolved, RetentionState, Store, StoreError, StoreFuture, Submission,
};
use tokio::sync::Semaphore;

use crate::server::memory;

/// Each submission tells that it has come, and waits for a permit of `go`.
#[derive(Debug)]
pub(crate) struct GatedStore {
    inner: Arc<dyn Store>,
    /// Submissions that have come, as permits.
    pub(crate) came: Semaphore,
    pub(crate) go: Semaphore,
    pub(crate) full: AtomicBool,
}

impl GatedStore {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: memory(),
            came: Semaphore::new(0),
            go: Semaphore::new(0),
            full: AtomicBool::new(false),
        })
    }

    /// Waits until that many more submissions have come.
    pub(crate) async fn arrivals(&self, count: u32) {
        let came = self.came.acquire_many(count);
        let came = tokio::time::timeout(crate::client::WATCHDOG, came).await;
        came.expect("they never came").expect("open").forget();
    }

    fn room(&self) -> Result<(), StoreError> {
        match self.full.load(Ordering::SeqCst) {
            true => Err(StoreError::Full { path: "ledger.db".into() }),
            false => Ok(()),
        }
    }
}

impl Store for GatedStore {
    fn submit(&self, submission: Submission) -> StoreFuture<'_, Committed> {
        Box::pin(async move {
            self.room()?;
            self.came.add_permits(1);
            self.go.acquire().await.expect("open").forget();
            self.inner.submit(submission).await
        })
    }

    fn probe(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.room()?;
            self.inner.probe().await
        })
    }

    fn note_cancel(
        &self,
        tenant: &Tenant,
        operation_id: &OperationId,
        principal: &Principal,
    ) -> StoreFuture<'_, ()> {
        self.inner.note_cancel(tenant, operation_id, principal)
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

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Page> {
        self.inner.list(query)
    }

    fn keys_in_use(&self) -> StoreFuture<'_, Vec<KeyUsage>> {
        self.inner.keys_in_use()
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

    fn audit(&self, key: OperationKey) -> StoreFuture<'_, Vec<AuditEvent>> {
        self.inner.audit(key)
    }

    fn stats(&self) -> StoreFuture<'_, LedgerStats> {
        self.inner.stats()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.inner.close()
    }
}
