//! Retention in memory: the plain model of both purges, without a mark of how far they have come.

use counterfoil_core::identity::OperationKey;
use counterfoil_core::time::Timestamp;

use super::ledger::Ledger;
use crate::clock::SharedMark;
use crate::retention::clock::PurgeClock;
use crate::retention::{Purge, Purged, RetentionState};
use crate::steps::Kept;

/// The purges' clock, and what they did.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    clock: PurgeClock,
    results_purged_count: u64,
    tombstones_purged_count: u64,
}

impl Upkeep {
    pub(super) fn has_forgotten(&self) -> bool {
        self.tombstones_purged_count > 0
    }
}

impl Ledger {
    pub(super) fn retention(&self, mark: &SharedMark) -> RetentionState {
        let (now, opened) = mark.readings();
        self.told(self.upkeep.clock.look(&now, &opened), mark.horizon(), mark)
    }

    pub(super) fn purge(&mut self, purge: &Purge, mark: &SharedMark) -> Purged {
        let (now, opened) = mark.readings();
        self.upkeep.clock = self.upkeep.clock.look(&now, &opened);
        let Some(until) = self.upkeep.clock.time() else {
            return nothing(self.retention(mark));
        };
        mark.raise(now.ledger);
        mark.set_horizon(self.upkeep.clock.horizon(mark.horizon(), purge.span()));
        let limit_count = purge.limit_count.max(1) as usize;
        let (mut results, mut tombstones) = self.due(purge, until, mark.horizon());
        let more = results.len() + tombstones.len() > limit_count;
        results.truncate(limit_count);
        tombstones.truncate(limit_count - results.len());
        for key in &results {
            if let Some(kept) = self.operations.get_mut(key) {
                kept.purge();
            }
            self.outbox.purge(*key);
            self.directs.purge(*key);
        }
        for key in &tombstones {
            self.forget(*key);
        }
        self.upkeep.results_purged_count += results.len() as u64;
        self.upkeep.tombstones_purged_count += tombstones.len() as u64;
        Purged {
            results_count: results.len() as u64,
            tombstones_count: tombstones.len() as u64,
            more,
            ..nothing(self.retention(mark))
        }
    }

    pub(super) fn count_due(&self, purge: &Purge, mark: &SharedMark) -> Purged {
        let (now, opened) = mark.readings();
        let clock = self.upkeep.clock.look(&now, &opened);
        let horizon = clock.horizon(mark.horizon(), purge.span());
        let (results, tombstones) =
            clock.time().map(|until| self.due(purge, until, horizon)).unwrap_or_default();
        Purged {
            results_count: results.len() as u64,
            tombstones_count: tombstones.len() as u64,
            ..nothing(self.told(clock, horizon, mark))
        }
    }

    pub(super) fn confirm_clock(&mut self, who: &str, mark: &SharedMark) -> RetentionState {
        let (now, _) = mark.readings();
        self.upkeep.clock = PurgeClock::confirm(&now, who);
        mark.raise(now.ledger);
        self.retention(mark)
    }

    /// The results to purge and the tombstones to delete, in order.
    fn due(
        &self,
        purge: &Purge,
        until: Timestamp,
        horizon: Timestamp,
    ) -> (Vec<OperationKey>, Vec<OperationKey>) {
        let before = purge.begun_before(until);
        let keys = |is_due: &dyn Fn(&Kept) -> bool| {
            self.operations.iter().filter(|(_, kept)| is_due(kept)).map(|(key, _)| *key).collect()
        };
        let results = keys(&|kept| {
            !kept.record.purged && kept.record.created_at < before && kept.has_expired(until)
        });
        (results, keys(&|kept| kept.is_forgettable(until, horizon)))
    }

    fn forget(&mut self, key: OperationKey) {
        if let Some(kept) = self.operations.remove(&key) {
            let record = kept.record;
            self.by_id.remove(&(record.tenant, record.operation_id.index_key()));
            self.audit.remove(&key);
            self.outbox.items.remove(&key);
            self.directs.forget(key);
        }
    }

    fn told(&self, clock: PurgeClock, horizon: Timestamp, mark: &SharedMark) -> RetentionState {
        let (now, _) = mark.readings();
        RetentionState {
            ledger_time: now.ledger,
            wall_time: now.wall,
            purge_time: clock.time(),
            stopped: clock.stopped,
            confirmed: clock.confirmed,
            horizon,
            results_purged_count: self.upkeep.results_purged_count,
            tombstones_purged_count: self.upkeep.tombstones_purged_count,
        }
    }
}

fn nothing(state: RetentionState) -> Purged {
    Purged { results_count: 0, tombstones_count: 0, more: false, held_back_by: None, state }
}
