//! Retention: what a ledger may forget, when, and by which clock.
//!
//! Two purges. A settled operation's *result* goes once its retention has ended; its record stays as
//! a tombstone with identity and digests. A *tombstone* goes, with its audit events, once the
//! operation's ID is a UUIDv7 whose own time is below the *horizon*: such an ID is refused by its
//! age alone, so nothing has to remember it. Tombstones of other IDs stay for ever, unfinished and
//! doubtful operations never expire, and no purge touches a row of an effect.

pub(crate) mod clock;

use std::time::Duration;

use counterfoil_core::limits::DEFAULT_HORIZON;
use counterfoil_core::time::Timestamp;

/// Rows that one transaction purges, unless told otherwise.
pub const DEFAULT_BATCH_COUNT: u32 = 500;

/// Records younger than this are left alone whatever their retention: one that was admitted may
/// still be on its way to its commit.
pub(crate) const YOUNGEST: Duration = Duration::from_secs(600);

/// One bounded step of a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purge {
    /// The retention in force. It bounds where to look, and the horizon; whether a record's
    /// retention has ended is up to the record.
    pub retention: Duration,
    /// At most so many records are changed or deleted; at least 1.
    pub limit_count: u32,
}

impl Purge {
    /// A step of [`DEFAULT_BATCH_COUNT`] rows.
    #[must_use]
    pub const fn new(retention: Duration) -> Self {
        Self { retention, limit_count: DEFAULT_BATCH_COUNT }
    }

    /// How far the horizon stays behind the purges' time.
    pub(crate) fn span(&self) -> Duration {
        self.retention.max(DEFAULT_HORIZON)
    }

    /// Only records that were begun before this instant are looked at.
    pub(crate) fn begun_before(&self, time: Timestamp) -> Timestamp {
        earlier(time, self.retention.max(YOUNGEST)).plus(Duration::from_millis(1))
    }
}

/// What one step did, or what all steps together would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purged {
    /// Results that were purged.
    pub results_count: u64,
    /// Tombstones that were deleted.
    pub tombstones_count: u64,
    /// Whether another step may find more to do now.
    pub more: bool,
    /// A table of the embedder's with a foreign key to operations. While there is one no tombstone
    /// is deleted, since that would reach the embedder's rows.
    pub held_back_by: Option<String>,
    /// The state after it.
    pub state: RetentionState,
}

/// How a ledger's retention stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionState {
    /// The ledger's time now.
    pub ledger_time: Timestamp,
    /// The machine's wall clock now.
    pub wall_time: Timestamp,
    /// The time that purges go by: never after the ledger's, and moved only by time that really
    /// passed and at most one hour more each time that it is looked at. `None` while it is stopped.
    pub purge_time: Option<Timestamp>,
    /// Why nothing is purged until an operator confirms the clock.
    pub stopped: Option<ClockJump>,
    /// The last confirmation.
    pub confirmed: Option<ClockConfirmed>,
    /// IDs that carry an older time and have no record are expired.
    pub horizon: Timestamp,
    /// Results purged since the ledger was made.
    pub results_purged_count: u64,
    /// Tombstones deleted since the ledger was made.
    pub tombstones_purged_count: u64,
}

/// A clock that moved otherwise than time passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockJump {
    /// What the wall clock showed when it was noticed.
    pub noticed_at: Timestamp,
    /// By how many milliseconds it moved beyond the time that passed; negative is back.
    pub by_ms: i64,
}

/// An operator's word that the ledger's time is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockConfirmed {
    /// The ledger's time.
    pub at: Timestamp,
    /// Who said so.
    pub by: String,
}

/// `time` less `span`, saturating.
pub(crate) fn earlier(time: Timestamp, span: Duration) -> Timestamp {
    let ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_ms(time.as_ms().saturating_sub(ms))
}
