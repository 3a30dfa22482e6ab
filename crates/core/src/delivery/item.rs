//! One item of the outbox: what is kept of its delivery.

use crate::delivery::contract::{Contract, Terms};
use crate::delivery::outcome::ErrorClass;
use crate::delivery::target::TargetName;
use crate::identity::{BootId, OperationKey};
use crate::time::Timestamp;

/// One item as it stands in the ledger. Its request is kept beside it and never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The operation that it belongs to.
    pub key: OperationKey,
    /// Where it goes.
    pub target: TargetName,
    /// On which terms, frozen at acceptance.
    pub terms: Terms,
    /// Where it stands.
    pub state: State,
    /// Raised by every claim.
    pub fence: i64,
    /// Who holds it, while it is leased or being sent.
    pub lease: Option<Lease>,
    /// Requests that were begun and counted.
    pub attempts_count: u32,
    /// Attempts until it is a dead letter; a redrive raises it.
    pub attempt_limit: u32,
    /// Attempts that may have taken effect and are not proved not to have. While this is over zero
    /// the operation can never be `not_applied` without evidence.
    pub unknown_count: u32,
    /// Searches at the target since the last attempt.
    pub lookups_count: u32,
    /// When the first request was begun: a key's lifetime counts from here.
    pub first_dispatch_at: Option<Timestamp>,
    /// Until when some sender may still be writing: the end of the lease, or the moment at which
    /// its holder said that it had ended.
    pub last_send_until: Option<Timestamp>,
    /// When it is due; `None` unless it is queued.
    pub next_attempt_at: Option<Timestamp>,
    /// Until when an attempt may begin.
    pub deliver_by: Option<Timestamp>,
    /// The last failure.
    pub last_error: Option<(ErrorClass, String)>,
    /// Why it is parked.
    pub park: Option<ParkReason>,
    /// The target's own ID for what it made.
    pub external_id: Option<String>,
    /// How it ended, if a person ended it.
    pub ended: Option<Ended>,
    /// The target did it after the operation was settled as not applied.
    pub late_contradiction: bool,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// Where an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Waits until it is due.
    Queued,
    /// A worker holds it; nothing was sent.
    Leased,
    /// A worker may be sending it: recorded before the first byte.
    Sending,
    /// Done.
    Delivered,
    /// Given up; an operator may send it again.
    DeadLetter,
    /// Held back until what stands against it is put right.
    Parked,
    /// It may have been done; only a person settles it.
    InDoubt,
    /// Ended by a person; never sent again.
    Cancelled,
}

/// Every state, in the order of its number.
pub const ALL_STATES: [State; 8] = [
    State::Queued,
    State::Leased,
    State::Sending,
    State::Delivered,
    State::DeadLetter,
    State::Parked,
    State::InDoubt,
    State::Cancelled,
];

impl State {
    /// The word that operators see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Leased => "leased",
            Self::Sending => "sending",
            Self::Delivered => "delivered",
            Self::DeadLetter => "dead_letter",
            Self::Parked => "parked",
            Self::InDoubt => "in_doubt",
            Self::Cancelled => "cancelled",
        }
    }

    /// The number under which a store keeps it.
    #[must_use]
    pub const fn code(self) -> i64 {
        self as i64
    }

    /// The state of a number; `None` for one that no version wrote.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        ALL_STATES.into_iter().find(|state| state.code() == code)
    }

    /// The state of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        ALL_STATES.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether nothing will be sent any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Delivered | Self::Cancelled)
    }
}

/// Who holds an item. Fence equality decides, not time; but after it anybody may take it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The run of the worker.
    pub boot: BootId,
    /// On the store's clock.
    pub until: Timestamp,
    /// Whether it is the one item that tries a parked target, or an open breaker: a failure that
    /// proves to have done nothing is then not counted.
    pub probe: bool,
}

/// Why one item is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParkReason {
    /// Its principal was revoked.
    PrincipalRevoked,
    /// Its tenant was revoked.
    TenantRevoked,
    /// No connector of its target's name is configured.
    TargetUnknown,
    /// The target's credential is another account's than at acceptance, and an attempt may have
    /// been made under the old one.
    AccountChanged,
}

impl ParkReason {
    /// Every reason, in the order of its number.
    pub const ALL: [Self; 4] =
        [Self::PrincipalRevoked, Self::TenantRevoked, Self::TargetUnknown, Self::AccountChanged];

    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PrincipalRevoked => "principal_revoked",
            Self::TenantRevoked => "tenant_revoked",
            Self::TargetUnknown => "target_unknown",
            Self::AccountChanged => "account_changed",
        }
    }

    /// The reason of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// How a person ended an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// Cancelled while it waited.
    Cancelled,
    /// Given up for good after it was a dead letter.
    Abandoned,
    /// Settled by an operator's word.
    Resolved,
}

impl Ended {
    /// Every way, in the order of its number.
    pub const ALL: [Self; 3] = [Self::Cancelled, Self::Abandoned, Self::Resolved];

    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
            Self::Resolved => "resolved",
        }
    }

    /// The way of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ended| ended.as_str() == word)
    }
}

/// How a person wants to end an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Withdrawal {
    /// Of what waits: queued or parked.
    Cancel,
    /// Of what was given up, or waits, if nothing may have happened.
    Abandon,
}

/// What a worker is to do with an item that it claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Send the request.
    Send,
    /// Search for the effect first.
    LookUp,
}

impl Delivery {
    /// An item at its acceptance: due at once.
    #[must_use]
    pub fn accepted(key: OperationKey, target: TargetName, terms: Terms, now: Timestamp) -> Self {
        Self {
            key,
            target,
            terms,
            state: State::Queued,
            fence: 0,
            lease: None,
            attempts_count: 0,
            attempt_limit: terms.max_attempts_count,
            unknown_count: 0,
            lookups_count: 0,
            first_dispatch_at: None,
            last_send_until: None,
            next_attempt_at: Some(now),
            deliver_by: terms.deliver_within.map(|within| now.plus(within)),
            last_error: None,
            park: None,
            external_id: None,
            ended: None,
            late_contradiction: false,
            created_at: now,
            updated_at: now,
        }
    }

    /// What may be done at `now`; `None` if only a person can go on.
    #[must_use]
    pub fn work(&self, now: Timestamp) -> Option<Work> {
        let can_look = self.unknown_count > 0 && self.terms.contract.has_lookup();
        let is_spent = self.attempts_count >= self.attempt_limit || self.is_past(now);
        if can_look && (is_spent || !self.may_send(now)) {
            return Some(Work::LookUp);
        }
        self.may_send(now).then_some(Work::Send)
    }

    /// Whether the time for its attempts has ended.
    #[must_use]
    pub fn is_past(&self, now: Timestamp) -> bool {
        self.deliver_by.is_some_and(|by| now >= by)
    }

    /// Whether sending it at `now` cannot make a second effect, as far as the contract holds.
    #[must_use]
    pub fn may_send(&self, now: Timestamp) -> bool {
        if self.unknown_count == 0 {
            return true;
        }
        match self.terms.contract {
            Contract::AtLeastOnce => true,
            Contract::Key { .. } | Contract::KeyAndLookup { .. } => self
                .first_dispatch_at
                .and_then(|first| self.terms.contract.key_until(first))
                .is_some_and(|until| now < until),
            Contract::Lookup { .. } | Contract::Never => false,
        }
    }

    /// From when on a search that finds nothing proves that there is nothing; `None` if nothing
    /// ever proves it.
    #[must_use]
    pub fn absence_proves_from(&self) -> Option<Timestamp> {
        let after = self.terms.contract.absence_after()?;
        Some(self.last_send_until?.plus(after))
    }

    /// Whether nothing can have happened: every attempt is proved to have done nothing, and none is
    /// under way.
    #[must_use]
    pub const fn is_proved_absent(&self) -> bool {
        self.unknown_count == 0 && !matches!(self.state, State::Sending)
    }
}
