//! What the ledger keeps of a direct operation beside its record, and the answers of its upstream.

use std::sync::Arc;

use crate::fingerprint::Fingerprint;
use crate::identity::{InvalidName, OperationKey};
use crate::limits::MAX_UPSTREAM_BYTES;
use crate::time::Timestamp;

/// The name of an upstream: two upstreams on one ledger never meet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Upstream(String);

impl Upstream {
    /// Takes the name as it was given.
    ///
    /// # Errors
    /// [`InvalidName`] if the text is empty, blank, too long or holds a control character.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        crate::identity::validated("upstream", text, MAX_UPSTREAM_BYTES).map(Self)
    }

    /// The text, exactly as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A direct operation, beside its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Direct {
    /// The operation.
    pub key: OperationKey,
    /// Where its requests go.
    pub upstream: Upstream,
    /// Whether the call brought no ID and was given one.
    pub minted: bool,
    /// Whether an equal call without an ID may join it through its slot: it was minted, and neither
    /// an answer, nor its age, nor a wanted repeat has closed it.
    pub open_slot: bool,
    /// When a reply that carried its result was last written to a live caller; `None`: unanswered.
    pub answered_at: Option<Timestamp>,
    /// The operation that it is a wanted repeat of.
    pub repeat_of: Option<OperationKey>,
    /// Its latest request, counted from 1.
    pub leg: u32,
    /// The fingerprint of the latest request: of its arguments, the upstream's state and the
    /// answers, under the key of the record's binding.
    pub leg_digest: Fingerprint,
    /// Until when a request of it may have left, at the latest; `None` if none was recorded.
    pub last_send_until: Option<Timestamp>,
    /// Settled as not applied, and the upstream answered later that it did it.
    pub late_contradiction: bool,
}

/// An upstream's answer, as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// What it is.
    pub kind: ReplyKind,
    /// The protocol revision that was spoken, for example `2026-07-28`.
    pub revision: Arc<str>,
    /// The bytes of the `result` or `error` member: one JSON value.
    pub json: Arc<[u8]>,
}

/// What a kept answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplyKind {
    /// The `result` member of a complete answer, with or without `isError`.
    Result,
    /// The `error` member.
    Error,
    /// The `result` member of an answer that asks for input.
    InputRequired,
    /// The `result` member of an answer that names a task.
    Task,
}

impl ReplyKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Result, Self::Error, Self::InputRequired, Self::Task];

    /// The number under which a store keeps it.
    #[must_use]
    pub const fn code(self) -> i64 {
        match self {
            Self::Result => 1,
            Self::Error => 2,
            Self::InputRequired => 3,
            Self::Task => 4,
        }
    }

    /// The kind kept under a number; `None` for one that no version wrote.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}
