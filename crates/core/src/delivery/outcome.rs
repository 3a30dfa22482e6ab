//! What an attempt came to, as its sender saw it. Which answers mean what is the connector's to
//! say; what follows from it is [`step`](super::step)'s.

use std::time::Duration;

use crate::record::StoredResult;
use crate::time::Timestamp;

/// How one request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendEnd {
    /// The target did it, and its answer says so.
    Applied {
        /// The target's own ID for what it made, where it gave one.
        external_id: Option<String>,
        /// What a replay gives.
        result: StoredResult,
    },
    /// Definitely not done: never sent, or refused before any effect.
    NotApplied {
        /// What kind of failure.
        class: ErrorClass,
        /// For people; no secret, no argument's value.
        words: String,
        /// What is to become of the item.
        then: Then,
    },
    /// Nobody knows.
    Unknown {
        /// What kind of failure.
        class: ErrorClass,
        /// For people; no secret, no argument's value.
        words: String,
        /// The target asked for a pause of this length.
        retry_after: Option<Duration>,
    },
}

/// What follows an attempt that proved to have done nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Then {
    /// Try again, after our own pause or the one that the target asked for, whichever is longer.
    Retry {
        /// The pause that the target asked for.
        after: Option<Duration>,
    },
    /// This item will never be accepted as it is.
    DeadLetter,
    /// Nothing is accepted from us until something is put right: the target is parked, and the
    /// attempt is not counted.
    ParkTarget,
}

/// The kind of a failure. The words are stable: operators filter by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorClass {
    /// The name did not resolve, or only to addresses that are refused.
    Dns,
    /// No connection: refused, unreachable, or not in time.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// A limit of our own, before anything was sent.
    Local,
    /// The target refused the request in its own declared shape.
    Rejected,
    /// The target does not accept our credential.
    Credential,
    /// The target does not know the address, or the method.
    Missing,
    /// The target asks for a pause.
    RateLimited,
    /// The target, or a proxy before it, answered with a server error.
    ServerError,
    /// The connection ended, or time ran out, after the request began to leave.
    NoReply,
    /// An answer that cannot be read as what was promised.
    Unreadable,
    /// A status that nothing is declared for, a redirect among them.
    Undeclared,
    /// The target says that the key was used with another request.
    KeyReused,
    /// The target replayed a stored failure for the key: no retry will change it.
    KeyReplayed,
    /// The worker that sent it went away.
    WorkerLost,
    /// More than one match of a search that must have one at most.
    ManyMatches,
    /// The search failed, or could not yet prove anything.
    LookupOpen,
}

impl ErrorClass {
    /// Every class.
    pub const ALL: [Self; 17] = [
        Self::Dns,
        Self::Connect,
        Self::Tls,
        Self::Local,
        Self::Rejected,
        Self::Credential,
        Self::Missing,
        Self::RateLimited,
        Self::ServerError,
        Self::NoReply,
        Self::Unreadable,
        Self::Undeclared,
        Self::KeyReused,
        Self::KeyReplayed,
        Self::WorkerLost,
        Self::ManyMatches,
        Self::LookupOpen,
    ];

    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Local => "local",
            Self::Rejected => "rejected",
            Self::Credential => "credential",
            Self::Missing => "missing",
            Self::RateLimited => "rate_limited",
            Self::ServerError => "server_error",
            Self::NoReply => "no_reply",
            Self::Unreadable => "unreadable",
            Self::Undeclared => "undeclared",
            Self::KeyReused => "key_reused",
            Self::KeyReplayed => "key_replayed",
            Self::WorkerLost => "worker_lost",
            Self::ManyMatches => "many_matches",
            Self::LookupOpen => "lookup_open",
        }
    }

    /// The class of a stable word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }

    /// Whether it speaks of the destination and not of the item: these alone count towards a
    /// target's circuit breaker.
    #[must_use]
    pub const fn is_destination_down(self) -> bool {
        matches!(self, Self::Dns | Self::Connect | Self::Tls | Self::ServerError | Self::NoReply)
    }
}

/// What a read-only search for the effect found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupEnd {
    /// The target does not let us search, nor anybody with our credential: it is parked.
    Barred {
        /// What kind of failure.
        class: ErrorClass,
        /// For people; no secret, no argument's value.
        words: String,
    },
    /// Exactly one match.
    Found {
        /// The target's own ID for it.
        external_id: Option<String>,
        /// What a replay gives: a declared rendering of what was found, or text of ours.
        result: StoredResult,
    },
    /// More than one match.
    Many,
    /// No match, and every page was looked at.
    Absent {
        /// When the search began, on the store's clock.
        begun_at: Timestamp,
    },
    /// The search could not be made or was not complete.
    Open {
        /// For people.
        words: String,
        /// The target asked for a pause of this length.
        retry_after: Option<Duration>,
    },
}
