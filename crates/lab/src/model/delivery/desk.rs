//! The state of the model of deliveries: the ledger, two workers, the requests that left, the target.

use counterfoil_core::observation::ObservedState;
use counterfoil_core::operation;

use super::item::{Item, Tick};
use crate::model::rules::Broken;
use crate::model::world::Word;

/// At most so many requests are remembered at once.
pub(super) const MOST_SENDS: usize = 4;

/// Everything there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Desk {
    pub(super) now: Tick,
    pub(super) item: Item,
    pub(super) operation: operation::State,
    pub(super) word: Option<Word>,
    pub(super) revoked: bool,
    pub(super) workers: [Worker; 2],
    pub(super) sends: [Option<Sent>; MOST_SENDS],
    /// How often the target did it.
    pub(super) effects: u8,
    /// When it last did it, until its search is sure to show it.
    pub(super) unindexed: Option<Tick>,
    /// When the target first saw the key, until it forgets it.
    pub(super) key_seen: Option<Tick>,
    pub(super) left: Left,
    /// Whether the ledger was told by anybody that the target did it.
    pub(super) evidence: bool,
    /// The settled state that a status told before.
    pub(super) told: Option<ObservedState>,
    pub(super) broken: Broken,
}

/// What a worker knows of the item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Worker {
    /// Nothing.
    Idle,
    /// It claimed it under a fence, to send it or to look for its effect.
    Holds { fence: u8, looks: bool },
    /// The ledger has recorded its attempt, whose lease ends then.
    Begun { fence: u8, until: Tick },
    /// It looked at the target.
    Looked { fence: u8, begun: Tick, saw: Saw },
}

/// What a search showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Saw {
    None,
    One,
    Many,
    /// The search failed.
    Nothing,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Sent {
    pub(super) worker: u8,
    pub(super) fence: u8,
    /// When its sender gives up.
    pub(super) until: Tick,
    pub(super) target: AtTarget,
    pub(super) sender: Sender,
}

/// What became of a request at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum AtTarget {
    /// It is on its way, or lost.
    Awaited,
    /// Done, or found to be done by its key.
    Done,
    /// Refused before any effect: the target will never do it.
    Refused,
}

/// What its sender knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Sender {
    /// Nothing yet.
    Waits,
    /// How it ended, and has not reported it.
    Knows(End),
    /// It has reported it, and may do so again.
    Reported(End),
    /// Dead.
    Gone,
}

/// How a request ended for its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum End {
    Applied,
    Refused(Refusal),
    Unknown,
}

/// What kind of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Refusal {
    /// Not now.
    Later,
    /// Not this item, ever.
    Never,
    /// Nobody, until something is put right.
    Nobody,
}

/// How much of what goes wrong, and of what people do, is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Left {
    /// Claims of the item: each sends one request at most, or searches once.
    pub claims: u8,
    /// Workers that may die.
    pub crashes: u8,
    /// Orders of the operator.
    pub orders: u8,
    /// Reports that are made again, and acknowledgements of the ledger that are lost.
    pub repeats: u8,
    /// Requests that fail; only where the target comes back.
    pub failures: u8,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A worker takes the item.
    Claim(u8),
    /// Somebody takes it back from a worker whose lease ended.
    TakeBack,
    /// The attempt is recorded; the worker hears of it, or the acknowledgement is lost.
    Begin {
        /// Who.
        worker: u8,
        /// Whether it hears of it.
        heard: bool,
    },
    /// The request leaves.
    Send(u8),
    /// The worker gives the item back unsent.
    HandBack(u8),
    /// The worker finds that its credential is another account's.
    Block(u8),
    /// The worker dies, and with it what its requests would have told it.
    Crash(u8),
    /// The worker searches the target.
    Search {
        /// Who.
        worker: u8,
        /// What it sees, by its place among [`Saw`].
        saw: u8,
    },
    /// It reports what it saw.
    Tell(u8),
    /// The target does what a request asks for.
    Do(u8),
    /// The target refuses a request.
    Refuse(u8),
    /// The target's answer comes; a refusal is of one of three kinds.
    Answer {
        /// Which request.
        sent: u8,
        /// The kind of refusal, if it was refused.
        kind: u8,
    },
    /// The answer is lost, late, or not to be understood.
    Lose(u8),
    /// The sender reports.
    Report(u8),
    /// It reports again what it reported.
    Repeat(u8),
    /// The operator does something.
    Order(Order),
}

/// What an operator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Sends a dead letter again.
    Redrive,
    /// Ends what waits.
    Cancel,
    /// Gives it up for good.
    Abandon,
    /// Says that it is there, having seen it.
    Applied,
    /// Says that it is not there, and proves that it never will be.
    NotApplied,
    /// Says that it is not there.
    NotAppliedUnproved,
    /// Revokes the principal.
    Revoke,
    /// Takes that back.
    Restore,
}
