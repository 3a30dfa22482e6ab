//! The ledger as one process sees it: commands fail before their commit or lose its acknowledgement,
//! answers are late, and a process that died hears nothing any more and changes nothing.

use std::sync::Arc;

use counterfoil_core::delivery::{TargetName, TargetState};
use counterfoil_core::fingerprint::KeyRing;
use counterfoil_core::identity::{BackendId, OperationId, OperationKey, Principal, Tenant};
use counterfoil_core::observation::Snapshot;
use counterfoil_core::time::Timestamp;
use counterfoil_store::outbox::{
    Acceptance, Accepted, BeginSend, Begun, Claim, Claimed, DeliveryPage, DeliveryQuery,
    DeliveryView, Directed, Order, OutboxStats, Report, Reported, RevokeOrder, Revoked, TakenBack,
    TargetOrder, TargetView, Which,
};
use counterfoil_store::{
    AuditEvent, Committed, Finish, KeyUsage, LedgerInfo, LedgerStats, ListQuery, MemoryStore,
    Outbox, Page, Purge, Purged, Resolve, Resolved, RetentionState, Store, StoreError, StoreFuture,
    Submission, UnderWay,
};
use tokio::time::sleep;

use super::world::{Life, Shared};
use super::{Twin, plan::Chance};

/// The view of one process.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) inner: Arc<MemoryStore>,
    pub(super) shared: Arc<Shared>,
    pub(super) life: Life,
}

impl Disk {
    fn run<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        work: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            self.life.lives().await;
            self.shared.count_step();
            if self.shared.is_hit(Chance::StoreBusy) {
                self.shared.note(&format!("p{} {name}: busy", self.life.number));
                return Err(StoreError::Busy { waited_ms: 1 });
            }
            self.shared.stall().await;
            self.life.lives().await;
            let answer = work.await;
            let is_lost = self.shared.is_hit(Chance::StoreLostAck);
            let pause = self.shared.pause();
            if !pause.is_zero() {
                sleep(pause).await;
            }
            self.life.lives().await;
            if is_lost {
                self.shared.note(&format!("p{} {name}: acknowledgement lost", self.life.number));
                return answer.and(Err(StoreError::CommitUnknown));
            }
            answer
        })
    }
}

macro_rules! passed_on {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $ty),*) -> StoreFuture<'_, $out> {
            self.inner.$name($($arg),*)
        })*
    };
}

macro_rules! faulty {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $ty),*) -> StoreFuture<'_, $out> {
            self.run(stringify!($name), self.inner.$name($($arg),*))
        })*
    };
}

impl Store for Disk {
    fn backend_id(&self) -> &BackendId {
        self.inner.backend_id()
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn horizon(&self) -> Timestamp {
        self.inner.horizon()
    }

    fn note_cancel(
        &self,
        tenant: &Tenant,
        operation_id: &OperationId,
        principal: &Principal,
    ) -> StoreFuture<'_, ()> {
        self.run("note_cancel", self.inner.note_cancel(tenant, operation_id, principal))
    }

    passed_on! {
        info() -> LedgerInfo;
        bind_keys(keys: &KeyRing) -> ();
        submit(submission: Submission) -> Committed;
        finish(finish: Finish) -> Committed;
        resolve(resolve: Resolve) -> Resolved;
        list(query: ListQuery) -> Page;
        keys_in_use() -> Vec<KeyUsage>;
        audit(key: OperationKey) -> Vec<AuditEvent>;
        probe() -> ();
        stats() -> LedgerStats;
        retention() -> RetentionState;
        purge(purge: Purge) -> Purged;
        count_due(purge: Purge) -> Purged;
        confirm_clock(who: &str) -> RetentionState;
        close() -> ();
    }

    faulty! {
        look_up(tenant: &Tenant, operation_id: &OperationId) -> Snapshot;
    }
}

impl Outbox for Disk {
    passed_on! {
        request(key: OperationKey) -> Option<Arc<[u8]>>;
        deliveries(query: DeliveryQuery) -> DeliveryPage;
        direct(order: Order) -> Vec<Directed>;
        targets() -> Vec<TargetView>;
        direct_target(order: TargetOrder) -> TargetState;
        set_revoked(order: RevokeOrder) -> ();
        revoked() -> Vec<Revoked>;
        outbox_stats() -> OutboxStats;
    }

    faulty! {
        claim(claim: Claim) -> Claimed;
        report(reports: Vec<Report>) -> Vec<Reported>;
        take_back_lapsed(under_way: UnderWay, max_count: usize) -> Vec<TakenBack>;
        release_known(known: Vec<TargetName>, max_count: usize) -> usize;
        match_targets(known: Vec<TargetName>, max_count: usize) -> usize;
        next_due(target: TargetName) -> Option<Timestamp>;
        next_due_of(targets: Vec<TargetName>) -> Vec<Option<Timestamp>>;
        delivery(which: Which) -> Option<DeliveryView>;
    }

    fn accept(&self, acceptance: Acceptance) -> StoreFuture<'_, Accepted> {
        if self.shared.twin == Some(Twin::ForgetsAcceptance) && self.shared.is_rolled(8) {
            // It says that it committed, in a ledger that nobody opens again.
            return Box::pin(async move {
                let other = super::world::empty_store(&self.shared);
                other.accept(acceptance).await
            });
        }
        self.run("accept", self.inner.accept(acceptance))
    }

    fn begin_send(&self, begins: Vec<BeginSend>) -> StoreFuture<'_, Vec<Begun>> {
        if self.shared.twin == Some(Twin::ForgetsDispatch) {
            // Nothing is on record, and the sender is told to go on.
            let begun = begins.iter().map(|_| Begun::Send).collect();
            return Box::pin(async move { Ok(begun) });
        }
        self.shared.begun(&begins);
        self.run("begin_send", self.inner.begin_send(begins))
    }
}
