//! [`DirectLedger`] for the ledger in memory: each method is one command under its lock.

use std::time::Duration;

use counterfoil_core::direct::{Reply, Upstream};
use counterfoil_core::identity::OperationKey;

use super::MemoryStore;
use crate::contract::StoreFuture;
use crate::direct::{
    Begin, Begun, Concluded, Conclusion, DirectLedger, DirectView, Hold, LookupFound, Told,
    WhichDirect,
};

impl DirectLedger for MemoryStore {
    fn begin(&self, begin: Begin) -> StoreFuture<'_, Begun> {
        Box::pin(async move { self.with(|ledger, mark| ledger.begin_direct(&begin, mark)) })
    }

    fn dispatch(&self, hold: Hold, lease: Duration) -> StoreFuture<'_, Option<Hold>> {
        Box::pin(async move { self.with(|ledger, mark| ledger.dispatch_direct(hold, lease, mark)) })
    }

    fn conclude(&self, conclusions: Vec<Conclusion>) -> StoreFuture<'_, Vec<Concluded>> {
        Box::pin(async move { self.with(|ledger, mark| ledger.conclude(&conclusions, mark)) })
    }

    fn renew(&self, holds: Vec<Hold>, lease: Duration) -> StoreFuture<'_, Vec<bool>> {
        Box::pin(async move { self.with(|ledger, mark| ledger.renew(&holds, lease, mark)) })
    }

    fn tell(&self, told: Vec<Told>) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.with(|ledger, mark| ledger.tell(&told, mark)) })
    }

    fn lapse(&self, max_count: usize) -> StoreFuture<'_, usize> {
        Box::pin(async move { self.with(|ledger, mark| ledger.lapse_directs(max_count, mark)) })
    }

    fn settle_by_lookup(&self, found: LookupFound) -> StoreFuture<'_, Option<DirectView>> {
        Box::pin(async move { self.with(|ledger, mark| ledger.settle_by_lookup(&found, mark)) })
    }

    fn in_doubt(
        &self,
        upstream: Upstream,
        after: Option<OperationKey>,
        max_count: usize,
    ) -> StoreFuture<'_, Vec<DirectView>> {
        Box::pin(
            async move { self.with(|ledger, _| Ok(ledger.in_doubt(&upstream, after, max_count))) },
        )
    }

    fn direct_view(&self, which: WhichDirect) -> StoreFuture<'_, Option<DirectView>> {
        Box::pin(async move { self.with(|ledger, _| Ok(ledger.direct_view(&which))) })
    }

    fn reply(&self, key: OperationKey, leg: u32) -> StoreFuture<'_, Option<Reply>> {
        Box::pin(async move { self.with(|ledger, _| Ok(ledger.reply(key, leg))) })
    }
}
