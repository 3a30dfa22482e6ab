//! When this process's own requests ended, by the monotonic clock, for the searches that follow: a
//! wall clock that was set forward must not make it late enough for an absence to prove anything.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use counterfoil_core::delivery::Delivery;
use counterfoil_core::identity::OperationKey;
use counterfoil_core::time::Timestamp;
use tokio::time::Instant;

/// Fewer are kept without looking which of them are old.
const LEAST_COUNT: usize = 256;

/// The ends of requests whose outcome is unknown and is searched for.
#[derive(Debug, Default)]
pub(super) struct LastSends(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    ends: HashMap<OperationKey, End>,
    look_at_count: usize,
}

#[derive(Debug, Clone, Copy)]
struct End {
    at: Instant,
    /// From then on it restricts nothing.
    matters_for: Duration,
}

impl LastSends {
    /// A request ended now, and nobody knows how.
    pub(super) fn note(&self, item: &Delivery) {
        let Some(matters_for) = item.terms.contract.absence_after() else { return };
        let mut kept = self.kept();
        if kept.ends.len() >= kept.look_at_count.max(LEAST_COUNT) {
            kept.ends.retain(|_, end| end.at.elapsed() < end.matters_for);
            kept.look_at_count = kept.ends.len() * 2;
        }
        kept.ends.insert(item.key, End { at: Instant::now(), matters_for });
    }

    /// When a search that begins now has begun, on the ledger's clock `now` but never later than so
    /// long after the item's last request as really passed. The monotonic clock stands still while
    /// the machine sleeps, which only puts the proof off.
    pub(super) fn begun_at(&self, item: &Delivery, now: Timestamp) -> Timestamp {
        let end = self.kept().ends.get(&item.key).copied();
        match (end, item.last_send_until) {
            (Some(end), Some(last)) => now.min(last.plus(end.at.elapsed())),
            _ => now,
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
