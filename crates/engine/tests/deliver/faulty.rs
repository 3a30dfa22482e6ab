//! A store with faults at the worker's commands, and a count of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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

/// What befalls one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Passes,
    /// Nothing is written.
    Busy,
    /// It is written, and nobody hears of it.
    LostAnswer,
    /// It is written late.
    StallsBefore(Duration),
    /// It is written, and the answer comes late.
    StallsAfter(Duration),
    Panics,
}

type Script = Box<dyn FnMut(&'static str, usize) -> Fault + Send>;

/// The store.
pub(crate) struct Faulty {
    inner: Arc<MemoryStore>,
    /// Told the command, and how many of its kind were before it.
    script: Mutex<Script>,
    calls: Mutex<BTreeMap<&'static str, usize>>,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}

impl Faulty {
    pub(crate) fn new(
        inner: Arc<MemoryStore>,
        script: impl FnMut(&'static str, usize) -> Fault + Send + 'static,
    ) -> Arc<Self> {
        let script: Mutex<Script> = Mutex::new(Box::new(script));
        Arc::new(Self { inner, script, calls: Mutex::default() })
    }

    pub(crate) fn calls(&self) -> BTreeMap<&'static str, usize> {
        self.calls.lock().expect("no test panics in here").clone()
    }

    fn run<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        work: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let number = {
                let mut calls = self.calls.lock().expect("no test panics in here");
                let count = calls.entry(name).or_default();
                *count += 1;
                *count - 1
            };
            let fault = (self.script.lock().expect("no test panics in here"))(name, number);
            match fault {
                Fault::Passes => work.await,
                Fault::Busy => Err(StoreError::Busy { waited_ms: 1 }),
                Fault::LostAnswer => work.await.and(Err(StoreError::CommitUnknown)),
                Fault::StallsBefore(pause) => {
                    sleep(pause).await;
                    work.await
                }
                Fault::StallsAfter(pause) => {
                    let answer = work.await;
                    sleep(pause).await;
                    answer
                }
                Fault::Panics => panic!("the store panics, as the test wants"),
            }
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

impl Store for Faulty {
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
        self.inner.note_cancel(tenant, operation_id, principal)
    }

    passed_on! {
        info() -> LedgerInfo;
        bind_keys(keys: &KeyRing) -> ();
        submit(submission: Submission) -> Committed;
        finish(finish: Finish) -> Committed;
        resolve(resolve: Resolve) -> Resolved;
        look_up(tenant: &Tenant, operation_id: &OperationId) -> Snapshot;
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
}

impl Outbox for Faulty {
    passed_on! {
        request(key: OperationKey) -> Option<Arc<[u8]>>;
        deliveries(query: DeliveryQuery) -> DeliveryPage;
        direct(order: Order) -> Vec<Directed>;
        targets() -> Vec<TargetView>;
        direct_target(order: TargetOrder) -> TargetState;
        set_revoked(order: RevokeOrder) -> ();
        revoked() -> Vec<Revoked>;
    }

    faulty! {
        accept(acceptance: Acceptance) -> Accepted;
        claim(claim: Claim) -> Claimed;
        begin_send(begins: Vec<BeginSend>) -> Vec<Begun>;
        report(reports: Vec<Report>) -> Vec<Reported>;
        take_back_lapsed(under_way: UnderWay, max_count: usize) -> Vec<TakenBack>;
        release_known(known: Vec<TargetName>, max_count: usize) -> usize;
        match_targets(known: Vec<TargetName>, max_count: usize) -> usize;
        next_due(target: TargetName) -> Option<Timestamp>;
        next_due_of(targets: Vec<TargetName>) -> Vec<Option<Timestamp>>;
        delivery(which: Which) -> Option<DeliveryView>;
        outbox_stats() -> OutboxStats;
    }
}
