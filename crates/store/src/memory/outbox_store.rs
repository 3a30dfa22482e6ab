//! [`Outbox`] for the ledger in memory: each method is one command under its lock.

use std::sync::Arc;

use counterfoil_core::delivery::{TargetName, TargetState};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::time::Timestamp;

use super::MemoryStore;
use crate::contract::StoreFuture;
use crate::outbox::{
    Acceptance, Accepted, BeginSend, Begun, Claim, Claimed, DeliveryPage, DeliveryQuery,
    DeliveryView, Directed, Order, Outbox, OutboxStats, Report, Reported, RevokeOrder, Revoked,
    TakenBack, TargetOrder, TargetView, Which,
};
use crate::under_way::UnderWay;

impl Outbox for MemoryStore {
    fn accept(&self, acceptance: Acceptance) -> StoreFuture<'_, Accepted> {
        Box::pin(async move { self.with(|ledger, mark| ledger.accept(&acceptance, mark)) })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(async move { self.with(|ledger, mark| ledger.claim(&claim, mark)) })
    }

    fn begin_send(&self, begins: Vec<BeginSend>) -> StoreFuture<'_, Vec<Begun>> {
        Box::pin(async move { self.with(|ledger, mark| ledger.begin_send(&begins, mark)) })
    }

    fn report(&self, reports: Vec<Report>) -> StoreFuture<'_, Vec<Reported>> {
        Box::pin(async move { self.with(|ledger, mark| ledger.report(&reports, mark)) })
    }

    fn take_back_lapsed(
        &self,
        under_way: UnderWay,
        max_count: usize,
    ) -> StoreFuture<'_, Vec<TakenBack>> {
        Box::pin(async move {
            self.with(|ledger, mark| ledger.take_back_lapsed(&under_way, max_count, mark))
        })
    }

    fn match_targets(&self, known: Vec<TargetName>, max_count: usize) -> StoreFuture<'_, usize> {
        Box::pin(async move {
            self.with(|ledger, mark| ledger.match_targets(&known, true, max_count, mark))
        })
    }

    fn release_known(&self, known: Vec<TargetName>, max_count: usize) -> StoreFuture<'_, usize> {
        Box::pin(async move {
            self.with(|ledger, mark| ledger.match_targets(&known, false, max_count, mark))
        })
    }

    fn next_due(&self, target: TargetName) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move { self.with(|ledger, mark| Ok(ledger.next_due(&target, mark.now()))) })
    }

    fn delivery(&self, which: Which) -> StoreFuture<'_, Option<DeliveryView>> {
        Box::pin(async move { self.with(|ledger, _| Ok(ledger.delivery(&which))) })
    }

    fn request(&self, key: OperationKey) -> StoreFuture<'_, Option<Arc<[u8]>>> {
        Box::pin(async move { self.with(|ledger, _| Ok(ledger.request(key))) })
    }

    fn deliveries(&self, query: DeliveryQuery) -> StoreFuture<'_, DeliveryPage> {
        Box::pin(async move { self.with(|ledger, _| Ok(ledger.deliveries(&query))) })
    }

    fn direct(&self, order: Order) -> StoreFuture<'_, Vec<Directed>> {
        Box::pin(async move { self.with(|ledger, mark| ledger.direct(&order, mark)) })
    }

    fn targets(&self) -> StoreFuture<'_, Vec<TargetView>> {
        Box::pin(async move { self.with(|ledger, _| Ok(ledger.targets())) })
    }

    fn direct_target(&self, order: TargetOrder) -> StoreFuture<'_, TargetState> {
        Box::pin(async move { self.with(|ledger, mark| Ok(ledger.direct_target(&order, mark))) })
    }

    fn set_revoked(&self, order: RevokeOrder) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.with(|ledger, mark| ledger.set_revoked(&order, mark)) })
    }

    fn revoked(&self) -> StoreFuture<'_, Vec<Revoked>> {
        Box::pin(async move { self.with(|ledger, _| Ok(ledger.revoked())) })
    }

    fn outbox_stats(&self) -> StoreFuture<'_, OutboxStats> {
        Box::pin(async move { self.with(|ledger, _| Ok(ledger.outbox_stats())) })
    }
}
