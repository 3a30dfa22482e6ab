//! What happens to an item, and what a step comes to: the types of [`step`](super::step).

use std::time::Duration;

use crate::delivery::item::{Delivery, Lease, ParkReason, State, Withdrawal};
use crate::delivery::outcome::{ErrorClass, LookupEnd, SendEnd};
use crate::identity::BootId;
use crate::operation::{self, Verdict};
use crate::record::StoredResult;
use crate::time::Timestamp;

/// What happens to an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A worker takes it, to send it or to look for its effect.
    Claim {
        /// The holder.
        lease: Lease,
    },
    /// Its holder is about to send the first byte, and may be sending until `lease_until`.
    BeginSend {
        /// The holder's run and fence.
        by: (BootId, i64),
        /// The lease, renewed: it covers the whole request.
        lease_until: Timestamp,
    },
    /// Its holder gives it back unsent, or leaves a lookup undone.
    HandBack {
        /// The holder's run and fence.
        by: (BootId, i64),
    },
    /// A request ended.
    Sent {
        /// The sender's run and fence, which may have lost the item since.
        by: (BootId, i64),
        /// How.
        end: SendEnd,
        /// Randomness for the pause.
        seed: u64,
    },
    /// A search ended.
    LookedUp {
        /// The searcher's run and fence, which may have lost the item since.
        by: (BootId, i64),
        /// How.
        end: LookupEnd,
        /// Randomness for the pause.
        seed: u64,
    },
    /// Its lease has ended and nobody renewed it.
    Lapse {
        /// Randomness for the pause.
        seed: u64,
    },
    /// Something stands against this one item.
    Park(ParkReason),
    /// It does not any more.
    Unpark,
    /// An operator wants it sent again.
    Redrive,
    /// An operator ends it.
    Withdraw(Withdrawal),
    /// An operator says what became of it.
    Resolve(Verdict),
}

/// A legal step, decided whole: what the row becomes, and what goes with it in the same
/// transaction. Only [`step`] makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The item as it becomes.
    pub delivery: Delivery,
    /// What happens to its operation.
    pub operation: Option<operation::Event>,
    /// The result to store with the operation, where it is settled by evidence.
    pub result: Option<StoredResult>,
    /// The kind of audit event; `None` for what leaves no trace, as a claim.
    pub audit: Option<&'static str>,
    /// Words for the audit event.
    pub words: Option<String>,
    /// What it tells of the target.
    pub target: Option<TargetChange>,
    /// What an operator must hear of.
    pub alarm: Option<Alarm>,
    /// The reporter did not hold the item any more: nothing of its lease or counts was changed.
    pub fenced: bool,
}

/// What an outcome tells of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetChange {
    /// It is well: if it was parked, it is open again.
    Open,
    /// It takes nothing from us for now.
    Park {
        /// Why.
        class: ErrorClass,
        /// For people.
        words: String,
        /// The pause that it asked for.
        hold: Option<Duration>,
    },
}

/// What an operator must hear of at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alarm {
    /// The target did it after the operation was settled as not applied.
    LateContradiction,
    /// The target holds more than one effect with this operation's marker.
    ManyMatches,
    /// The target says that the key was used with another request.
    KeyReused,
    /// The item ended in doubt.
    InDoubt,
    /// The item is a dead letter.
    DeadLetter,
}

/// The pair of state and event has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event} is refused for an item that is {}: {rule}", .from.as_str())]
pub struct IllegalStep {
    /// The state.
    pub from: State,
    /// The event's name.
    pub event: &'static str,
    /// Why, and what to do.
    pub rule: &'static str,
}
