//! What a target promises about repeats, with its numbers, and the limits of one item's delivery.
//! Frozen when the item is accepted: a later change of the configuration cannot loosen it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// What makes it safe to try again after an attempt whose outcome nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Contract {
    /// The target does a request with a known idempotency key once, for as long as it remembers
    /// the key.
    Key {
        /// How long the target remembers a key, counted from its first use.
        lifetime: Duration,
    },
    /// A read-only request finds the effect by a marker of ours.
    Lookup {
        /// So long after the last possible write, a complete search without a match proves that
        /// there is no effect; `None` if nothing proves it.
        absence_after: Option<Duration>,
    },
    /// Both: the key while it is remembered, the search afterwards.
    KeyAndLookup {
        /// As in [`Key`](Self::Key).
        lifetime: Duration,
        /// As in [`Lookup`](Self::Lookup).
        absence_after: Option<Duration>,
    },
    /// Neither: after an unknown outcome only a person settles it.
    Never,
    /// A repeat may double the effect, and the owner of the target accepts that.
    AtLeastOnce,
}

/// The key's last hour may be eaten by clocks that differ and by a request under way.
const LONGEST_MARGIN: Duration = Duration::from_secs(3600);
const SHORTEST_MARGIN: Duration = Duration::from_secs(60);

impl Contract {
    /// The word in configuration, tables and replies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key { .. } => "key",
            Self::Lookup { .. } => "lookup",
            Self::KeyAndLookup { .. } => "key+lookup",
            Self::Never => "never",
            Self::AtLeastOnce => "at_least_once",
        }
    }

    /// Until when a key first used at `first` may be sent again: the target's promise less a
    /// margin, a 24th of it, at least a minute and at most an hour, but never over half of it.
    #[must_use]
    pub fn key_until(self, first: Timestamp) -> Option<Timestamp> {
        let (Self::Key { lifetime } | Self::KeyAndLookup { lifetime, .. }) = self else {
            return None;
        };
        let margin = (lifetime / 24).clamp(SHORTEST_MARGIN, LONGEST_MARGIN).min(lifetime / 2);
        Some(first.plus(lifetime - margin))
    }

    /// Whether the effect can be looked for.
    #[must_use]
    pub const fn has_lookup(self) -> bool {
        matches!(self, Self::Lookup { .. } | Self::KeyAndLookup { .. })
    }

    /// See [`Lookup`](Self::Lookup).
    #[must_use]
    pub const fn absence_after(self) -> Option<Duration> {
        match self {
            Self::Lookup { absence_after } | Self::KeyAndLookup { absence_after, .. } => {
                absence_after
            }
            _ => None,
        }
    }
}

/// The terms on which one item is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    /// What the target promises.
    pub contract: Contract,
    /// How many attempts until the item is a dead letter; at least 1. A redrive grants as many
    /// again.
    pub max_attempts_count: u32,
    /// The first pause between attempts; more than zero.
    pub backoff_base: Duration,
    /// No pause is longer.
    pub backoff_cap: Duration,
    /// From the first byte of a request to the last of its answer; more than zero.
    pub send_limit: Duration,
    /// From acceptance to the last attempt; `None` for as long as attempts last.
    pub deliver_within: Option<Duration>,
}

/// Terms that contradict themselves.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} {rule}")]
pub struct InvalidTerms {
    /// The setting's name in the configuration.
    pub setting: &'static str,
    /// The rule that it breaks, and the remedy.
    pub rule: &'static str,
}

impl Terms {
    /// Checks the numbers against each other.
    ///
    /// # Errors
    /// [`InvalidTerms`] with the first setting that breaks its rule.
    pub fn check(self) -> Result<Self, InvalidTerms> {
        let refuse = |setting, rule| Err(InvalidTerms { setting, rule });
        if self.max_attempts_count == 0 {
            return refuse("max_attempts", "is 0; at least one attempt is needed");
        }
        if self.backoff_base.is_zero() {
            return refuse("backoff_base", "is 0; give a pause of at least 1ms");
        }
        if self.backoff_cap < self.backoff_base {
            return refuse("backoff_cap", "is below backoff_base; give it at least as much");
        }
        if self.send_limit.is_zero() {
            return refuse("timeout", "is 0; give the target time to answer");
        }
        if self.deliver_within.is_some_and(|within| within.is_zero()) {
            return refuse("deliver_within", "is 0; leave it out or give the target time");
        }
        if self.contract.absence_after().is_some_and(|after| after < self.send_limit) {
            return refuse(
                "absence_after",
                "is below timeout; a request may still be written that long, so give at least \
                 timeout and the time until the target's search sees a new item",
            );
        }
        if let Contract::Key { lifetime } | Contract::KeyAndLookup { lifetime, .. } = self.contract
            && lifetime / 2 <= self.send_limit
        {
            return refuse(
                "key_lifetime",
                "is not more than twice timeout; a retry could arrive after the target forgot the \
                 key",
            );
        }
        Ok(self)
    }
}

/// [`Terms`] as a store keeps them: every number in milliseconds. Read back with
/// [`TryFrom`], which checks them again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireTerms {
    contract: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_lifetime_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    absence_after_ms: Option<u64>,
    max_attempts: u32,
    backoff_base_ms: u64,
    backoff_cap_ms: u64,
    send_limit_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deliver_within_ms: Option<u64>,
}

impl From<Terms> for WireTerms {
    fn from(terms: Terms) -> Self {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let lifetime = match terms.contract {
            Contract::Key { lifetime } | Contract::KeyAndLookup { lifetime, .. } => Some(lifetime),
            _ => None,
        };
        Self {
            contract: terms.contract.as_str().to_owned(),
            key_lifetime_ms: lifetime.map(ms),
            absence_after_ms: terms.contract.absence_after().map(ms),
            max_attempts: terms.max_attempts_count,
            backoff_base_ms: ms(terms.backoff_base),
            backoff_cap_ms: ms(terms.backoff_cap),
            send_limit_ms: ms(terms.send_limit),
            deliver_within_ms: terms.deliver_within.map(ms),
        }
    }
}

impl TryFrom<WireTerms> for Terms {
    type Error = InvalidTerms;

    fn try_from(wire: WireTerms) -> Result<Self, InvalidTerms> {
        let absence_after = wire.absence_after_ms.map(Duration::from_millis);
        let lifetime = wire.key_lifetime_ms.map(Duration::from_millis);
        let contract = match (wire.contract.as_str(), lifetime) {
            ("key", Some(lifetime)) => Contract::Key { lifetime },
            ("lookup", None) => Contract::Lookup { absence_after },
            ("key+lookup", Some(lifetime)) => Contract::KeyAndLookup { lifetime, absence_after },
            ("never", None) => Contract::Never,
            ("at_least_once", None) => Contract::AtLeastOnce,
            _ => {
                return Err(InvalidTerms {
                    setting: "contract",
                    rule: "and key_lifetime do not go together in a stored item",
                });
            }
        };
        Self {
            contract,
            max_attempts_count: wire.max_attempts,
            backoff_base: Duration::from_millis(wire.backoff_base_ms),
            backoff_cap: Duration::from_millis(wire.backoff_cap_ms),
            send_limit: Duration::from_millis(wire.send_limit_ms),
            deliver_within: wire.deliver_within_ms.map(Duration::from_millis),
        }
        .check()
    }
}
