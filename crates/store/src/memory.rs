//! A ledger that keeps nothing: for trying things out, and as the plain model that the durable back
//! ends are compared with. Same contract, same effects through declared tables, no SQL.

mod direct;
mod direct_store;
mod ledger;
mod list;
mod outbox;
mod outbox_orders;
mod outbox_store;
mod purge;
mod rows;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use counterfoil_core::fingerprint::KeyRing;
use counterfoil_core::identity::{BackendId, OperationId, OperationKey, Principal, Tenant};
use counterfoil_core::observation::Snapshot;
use counterfoil_core::time::Timestamp;

use crate::clock::{Clock, SharedMark, SystemClock};
use crate::contract::{
    AuditEvent, Committed, Finish, LedgerInfo, LedgerStats, Resolve, Resolved, Store, StoreFuture,
    Submission,
};
use crate::effect::TableSpec;
use crate::error::{OpenRefused, StoreError};
use crate::keys::checks;
use crate::listing::{KeyUsage, ListQuery, Page};
use crate::retention::{Purge, Purged, RetentionState};
use crate::tables::Tables;
use ledger::Ledger;

/// What stands for the file in errors.
const PATH: &str = ":memory:";

/// How to make a ledger in memory.
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// The ledger's ID.
    pub backend_id: BackendId,
    /// The clocks. Default: the machine's.
    pub clock: Arc<dyn Clock>,
    /// Tables that effects write to.
    pub tables: Vec<TableSpec>,
    /// IDs that carry an older time are expired. Default: none is.
    pub horizon: Timestamp,
}

impl MemoryOptions {
    /// The defaults for a ledger of that ID.
    #[must_use]
    pub fn new(backend_id: BackendId) -> Self {
        Self {
            backend_id,
            clock: Arc::new(SystemClock),
            tables: Vec::new(),
            horizon: Timestamp::from_ms(0),
        }
    }
}

/// A ledger in memory. Each command runs where its future is first polled, and the others wait.
#[derive(Debug)]
pub struct MemoryStore {
    backend_id: BackendId,
    mark: SharedMark,
    /// `None` once it is closed.
    ledger: Mutex<Option<Ledger>>,
}

impl MemoryStore {
    /// Makes an empty ledger.
    ///
    /// # Errors
    /// [`OpenRefused::Tables`] if a declared table breaks a rule.
    pub fn new(options: &MemoryOptions) -> Result<Self, OpenRefused> {
        let tables = Tables::declare(options.tables.clone())
            .map_err(|problem| OpenRefused::Tables { path: PATH.into(), problem })?;
        let clock = Arc::clone(&options.clock);
        Ok(Self {
            backend_id: options.backend_id.clone(),
            mark: SharedMark::new(clock, Timestamp::from_ms(0), options.horizon),
            ledger: Mutex::new(Some(Ledger::new(tables))),
        })
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&mut Ledger, &SharedMark) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // A panic of an effect's is caught inside, so the lock is poisoned only by a defect.
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        work(ledger.as_mut().ok_or(StoreError::Closed)?, &self.mark)
    }
}

impl Store for MemoryStore {
    fn info(&self) -> StoreFuture<'_, LedgerInfo> {
        Box::pin(async move {
            self.with(|ledger, _| {
                Ok(LedgerInfo {
                    backend_id: self.backend_id.clone(),
                    incarnation: 1,
                    schema_version: 0,
                    has_operations: ledger.has_operations(),
                    key_ids: ledger.key_ids(),
                })
            })
        })
    }

    fn backend_id(&self) -> &BackendId {
        &self.backend_id
    }

    fn now(&self) -> Timestamp {
        self.mark.now()
    }

    fn horizon(&self) -> Timestamp {
        self.mark.horizon()
    }

    fn bind_keys(&self, keys: &KeyRing) -> StoreFuture<'_, ()> {
        let checks = checks(keys);
        Box::pin(async move { self.with(|ledger, mark| ledger.bind_keys(&checks, mark)) })
    }

    fn submit(&self, submission: Submission) -> StoreFuture<'_, Committed> {
        Box::pin(async move {
            self.with(|ledger, mark| ledger.submit(&submission, mark)).map(Committed::after_commit)
        })
    }

    fn finish(&self, finish: Finish) -> StoreFuture<'_, Committed> {
        Box::pin(async move {
            self.with(|ledger, mark| ledger.finish(&finish, mark)).map(Committed::after_commit)
        })
    }

    fn resolve(&self, resolve: Resolve) -> StoreFuture<'_, Resolved> {
        Box::pin(async move { self.with(|ledger, mark| Ok(ledger.resolve(&resolve, mark))) })
    }

    fn note_cancel(
        &self,
        tenant: &Tenant,
        operation_id: &OperationId,
        principal: &Principal,
    ) -> StoreFuture<'_, ()> {
        let (tenant, id, who) = (tenant.clone(), operation_id.clone(), principal.clone());
        Box::pin(async move {
            self.with(|ledger, mark| {
                ledger.note_cancel(&tenant, &id, &who, mark);
                Ok(())
            })
        })
    }

    fn look_up(&self, tenant: &Tenant, operation_id: &OperationId) -> StoreFuture<'_, Snapshot> {
        let (tenant, operation_id) = (tenant.clone(), operation_id.clone());
        Box::pin(async move { self.with(|ledger, _| Ok(ledger.look_up(&tenant, &operation_id))) })
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Page> {
        Box::pin(async move { self.with(|ledger, _| Ok(ledger.list(&query))) })
    }

    fn keys_in_use(&self) -> StoreFuture<'_, Vec<KeyUsage>> {
        Box::pin(async move { self.with(|ledger, mark| Ok(ledger.keys_in_use(mark.now()))) })
    }

    fn audit(&self, key: OperationKey) -> StoreFuture<'_, Vec<AuditEvent>> {
        Box::pin(async move { self.with(|ledger, _| Ok(ledger.audit(key))) })
    }

    fn probe(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.with(|_, mark| {
                mark.raise(mark.now());
                Ok(())
            })
        })
    }

    fn stats(&self) -> StoreFuture<'_, LedgerStats> {
        Box::pin(async move {
            self.with(|ledger, _| {
                Ok(LedgerStats { unsettled: ledger.unsettled_count(), ..LedgerStats::default() })
            })
        })
    }

    fn retention(&self) -> StoreFuture<'_, RetentionState> {
        Box::pin(async move { self.with(|ledger, mark| Ok(ledger.retention(mark))) })
    }

    fn purge(&self, purge: Purge) -> StoreFuture<'_, Purged> {
        Box::pin(async move { self.with(|ledger, mark| Ok(ledger.purge(&purge, mark))) })
    }

    fn count_due(&self, purge: Purge) -> StoreFuture<'_, Purged> {
        Box::pin(async move { self.with(|ledger, mark| Ok(ledger.count_due(&purge, mark))) })
    }

    fn confirm_clock(&self, who: &str) -> StoreFuture<'_, RetentionState> {
        let who = who.to_owned();
        Box::pin(async move { self.with(|ledger, mark| Ok(ledger.confirm_clock(&who, mark))) })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.ledger.lock().unwrap_or_else(PoisonError::into_inner).take();
            Ok(())
        })
    }
}

fn path() -> PathBuf {
    PATH.into()
}
