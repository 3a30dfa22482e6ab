//! An item that this process holds. Whatever becomes of the task that works on it, the item is
//! reported: it never stays leased or in sending because a task ended early.

use std::sync::Arc;

use counterfoil_core::delivery::{ErrorClass, SendEnd};
use counterfoil_core::identity::{BootId, OperationKey};
use counterfoil_core::time::Timestamp;
use counterfoil_store::outbox::{BeginSend, ClaimedItem, Happened, Report};

use super::lane::{Lane, Slot};
use super::reporter::Note;

/// One claimed item with its place.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lane: Arc<Lane>,
    boot: BootId,
    /// Of the pause that may follow: it is reported once.
    seed: u64,
    item: ClaimedItem,
    /// `None` once it was given up.
    slot: Option<Slot>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No byte has left.
    Unsent,
    /// Bytes may have left.
    Sending,
    /// It is not ours to report any more.
    Settled,
}

impl Held {
    pub(super) fn new(
        lane: &Arc<Lane>,
        (boot, seed): (BootId, u64),
        slot: Slot,
        item: ClaimedItem,
    ) -> Self {
        lane.under_way.add(item.delivery.key);
        let (lane, slot) = (Arc::clone(lane), Some(slot));
        Self { lane, boot, seed, item, slot, phase: Phase::Unsent }
    }

    pub(super) fn key(&self) -> OperationKey {
        self.item.delivery.key
    }

    /// When a search for its effect that begins now has begun.
    pub(super) fn search_begins(&self, now: Timestamp) -> Timestamp {
        self.lane.last_sends.begun_at(&self.item.delivery, now)
    }

    pub(super) fn request(&self) -> Arc<[u8]> {
        Arc::clone(&self.item.request)
    }

    /// Whether an earlier attempt may have taken effect.
    pub(super) const fn is_maybe_sent(&self) -> bool {
        self.item.delivery.unknown_count > 0
    }

    pub(super) fn begin(&self) -> BeginSend {
        BeginSend {
            key: self.key(),
            boot: self.boot,
            fence: self.item.delivery.fence,
            lease: self.lane.lease,
        }
    }

    /// From now on bytes may leave.
    pub(super) const fn sending(&mut self) {
        self.phase = Phase::Sending;
    }

    /// Reports what became of it, and makes room.
    pub(super) fn report(mut self, what: Happened) {
        self.send(what);
    }

    /// The ledger has settled it, or given it to another.
    pub(super) fn let_go(mut self) {
        self.lane.under_way.remove(self.key());
        self.phase = Phase::Settled;
    }

    fn send(&mut self, what: Happened) {
        self.phase = Phase::Settled;
        if matches!(what, Happened::Sent(SendEnd::Unknown { .. })) {
            self.lane.last_sends.note(&self.item.delivery);
        }
        let report = Report {
            key: self.key(),
            boot: self.boot,
            fence: self.item.delivery.fence,
            seed: self.seed,
            what,
        };
        let is_probe = self.item.delivery.lease.is_some_and(|lease| lease.probe);
        // Without a reporter the ledger is closed, and the lease tells the next worker.
        let _ = self.lane.reports.send(Note::new(&self.lane, report, is_probe));
        self.slot = None;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        match self.phase {
            Phase::Settled => {}
            Phase::Unsent => self.send(Happened::HandedBack),
            Phase::Sending => self.send(Happened::Sent(SendEnd::Unknown {
                class: ErrorClass::NoReply,
                words: "the worker gave the request up before its answer".into(),
                retry_after: None,
            })),
        }
    }
}
