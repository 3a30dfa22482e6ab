//! What every back end keeps. The conformance suite holds each of them to these words.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use counterfoil_core::admission::Admitted;
use counterfoil_core::fingerprint::KeyRing;
use counterfoil_core::identity::{BackendId, BootId, OperationId, OperationKey, Principal, Tenant};
use counterfoil_core::observation::Snapshot;
use counterfoil_core::operation::{IllegalTransition, Verdict};
use counterfoil_core::record::Record;
use counterfoil_core::refusal::Refusal;
use counterfoil_core::time::Timestamp;

use crate::effect::LocalEffect;
use crate::error::StoreError;
use crate::listing::{KeyUsage, ListQuery, Page};
use crate::retention::{Purge, Purged, RetentionState};

/// The future of a store's answer.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A ledger.
///
/// Every method that writes runs one pure decision inside one transaction and writes the record,
/// the local effect and the audit events together; it answers only after the commit. A command is
/// handed over when its future is first polled; dropping the future after that does not undo it:
/// the write still commits or fails whole.
///
/// Two IDs of one tenant can share an index key (a digest). To a call that meets the other's record
/// that is a conflict; to every other question the other's record is not there.
pub trait Store: Debug + Send + Sync + 'static {
    /// Whose ledger this is and what it holds.
    fn info(&self) -> StoreFuture<'_, LedgerInfo>;

    /// The ledger's ID, fixed when it was made.
    fn backend_id(&self) -> &BackendId;

    /// The ledger's time: never before its high-water mark. Reading it writes nothing.
    fn now(&self) -> Timestamp;

    /// IDs that carry an older time and have no record are expired.
    fn horizon(&self) -> Timestamp;

    /// Keeps a check value of each key, and compares those that it already has.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if a key differs from the one the ledger was used with, or a key is
    /// missing that a record still needs: one that is in progress, in doubt, or within its
    /// retention. Nothing is kept then.
    fn bind_keys(&self, keys: &KeyRing) -> StoreFuture<'_, ()>;

    /// Decides on the call and, if it is fresh, makes the effect. In one transaction: the record,
    /// the effect's rows, the audit event.
    ///
    /// # Errors
    /// Whatever the error, no record and no effect is left, except after
    /// [`StoreError::CommitUnknown`], where the same operation sent again tells.
    fn submit(&self, submission: Submission) -> StoreFuture<'_, Committed>;

    /// Runs the remaining step of an operation whose first step is committed, if `boot` and
    /// `fence` still own it. A step that fails or panics is rolled back and compensated, which makes
    /// the operation `not_applied`; a compensation that fails is recorded under its own identity
    /// and the operation is `partial`. Whoever does not own it any more is told what the record is:
    /// [`Answer::Replayed`] if it is settled, else [`Answer::Refused`].
    ///
    /// # Errors
    /// As [`submit`](Self::submit); the operation then stays in progress, and the same finish may be
    /// sent again.
    fn finish(&self, finish: Finish) -> StoreFuture<'_, Committed>;

    /// Settles an operation as an operator says. In one transaction with its audit event, which
    /// holds who, why and the proof.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed; what the ledger itself refuses is a [`Resolved`].
    fn resolve(&self, resolve: Resolve) -> StoreFuture<'_, Resolved>;

    /// Puts on record that `principal` took back a call of its operation after it was handed over:
    /// an audit event and nothing else, since what was begun is left to settle. At most one for an
    /// attempt, and a local effect has one attempt. Writes nothing if `principal` has no such
    /// operation.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed; noting it again is safe.
    fn note_cancel(
        &self,
        tenant: &Tenant,
        operation_id: &OperationId,
        principal: &Principal,
    ) -> StoreFuture<'_, ()>;

    /// Reads record and effect row in one snapshot. Never writes.
    ///
    /// # Errors
    /// [`StoreError`] if the store could not be read. A damaged record is not an error but
    /// [`Snapshot::Quarantined`].
    fn look_up(&self, tenant: &Tenant, operation_id: &OperationId) -> StoreFuture<'_, Snapshot>;

    /// A page of a tenant's records, the newest first by the time at which they were asked for,
    /// without their results. Never writes. A record that fails its own checks is left out and
    /// counted.
    ///
    /// A page may be short, or empty, while there is more: only its `next` says that. Pages that
    /// follow each other hold no record twice, and none that was there when the first was read is
    /// missing.
    ///
    /// # Errors
    /// [`StoreError`] if the store could not be read.
    fn list(&self, query: ListQuery) -> StoreFuture<'_, Page>;

    /// How many records were made under each key, and how many still need it, by the key's number.
    /// Keys without records are left out. It looks through the whole ledger, and never writes.
    ///
    /// # Errors
    /// [`StoreError`] if the store could not be read.
    fn keys_in_use(&self) -> StoreFuture<'_, Vec<KeyUsage>>;

    /// The audit events of one operation, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] if the store could not be read.
    fn audit(&self, key: OperationKey) -> StoreFuture<'_, Vec<AuditEvent>>;

    /// Commits the ledger's time in a transaction like that of any fresh call, and nothing else:
    /// proves that a write would be committed now.
    ///
    /// # Errors
    /// What a fresh call would get.
    fn probe(&self) -> StoreFuture<'_, ()>;

    /// Counts and sizes for operators. Never writes.
    ///
    /// # Errors
    /// [`StoreError`] if the store could not be read.
    fn stats(&self) -> StoreFuture<'_, LedgerStats>;

    /// How retention stands. Writes nothing.
    ///
    /// # Errors
    /// [`StoreError`] if the store could not be read.
    fn retention(&self) -> StoreFuture<'_, RetentionState>;

    /// Looks at the clocks, moves the horizon, and purges one batch in one transaction: results
    /// whose retention has ended, and tombstones below the horizon. Nothing is purged while the
    /// clock is stopped. A purge is upkeep and no step of an operation: it leaves a count in the
    /// ledger and no audit event.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed; whatever is left is purged by the next call.
    fn purge(&self, purge: Purge) -> StoreFuture<'_, Purged>;

    /// Counts what purging to the end would purge now. Writes nothing.
    ///
    /// # Errors
    /// [`StoreError`] if the store could not be read.
    fn count_due(&self, purge: Purge) -> StoreFuture<'_, Purged>;

    /// Takes an operator's word that the ledger's time is right: purges go on by it. Who said so,
    /// and when, stays on record.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed; saying it again is safe.
    fn confirm_clock(&self, who: &str) -> StoreFuture<'_, RetentionState>;

    /// Stops taking commands, commits what is queued, and closes. Later calls get
    /// [`StoreError::Closed`].
    fn close(&self) -> StoreFuture<'_, ()>;
}

/// A call to decide on, with the effect that it would make.
#[derive(Debug)]
pub struct Submission {
    /// The call.
    pub admitted: Admitted,
    /// The effect.
    pub effect: Arc<dyn LocalEffect>,
}

/// The remaining step of an unfinished operation.
#[derive(Debug)]
pub struct Finish {
    /// The operation.
    pub key: OperationKey,
    /// The run that believes to own it.
    pub boot: BootId,
    /// The fence that it was given.
    pub fence: i64,
    /// The effect.
    pub effect: Arc<dyn LocalEffect>,
}

/// An operator's decision.
#[derive(Debug, Clone)]
pub struct Resolve {
    /// The space of the ID.
    pub tenant: Tenant,
    /// The operation.
    pub operation_id: OperationId,
    /// What the operator says.
    pub verdict: Verdict,
    /// Who says it.
    pub who: String,
    /// Why.
    pub reason: String,
    /// How they know; needed to contradict a row that the ledger still sees. A blank one is none.
    pub proof: Option<String>,
}

/// What became of an operator's decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolved {
    /// Settled as said.
    Done(Box<Record>),
    /// There is no such operation.
    Absent,
    /// The record fails its own checks; nothing was changed.
    Quarantined,
    /// The operation is settled already, or cannot be resolved in its state.
    Illegal(IllegalTransition),
    /// A process that owns it may still be at work, until its lease ends.
    Owned {
        /// When the lease ends.
        until: Timestamp,
    },
    /// Said to be not applied, and the ledger still sees the effect's row: say how it was undone.
    EffectStands {
        /// The row's table.
        table: String,
        /// The row.
        id: i64,
    },
    /// Said to be applied, and the row that the record names is gone.
    EffectGone {
        /// The row's table.
        table: String,
        /// The row.
        id: i64,
    },
}

/// An answer whose transaction is committed. Only a store makes one, after its commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    answer: Answer,
}

/// What the transaction decided.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// This call made the record.
    Fresh(Box<Record>),
    /// The record was there, and is the same request's.
    Replayed(Box<Record>),
    /// Nothing was written.
    Refused(Refusal),
}

impl Committed {
    /// For back ends of this crate, after the commit.
    pub(crate) const fn after_commit(answer: Answer) -> Self {
        Self { answer }
    }

    /// What the transaction decided.
    #[must_use]
    pub const fn answer(&self) -> &Answer {
        &self.answer
    }

    /// What the transaction decided.
    #[must_use]
    pub fn into_answer(self) -> Answer {
        self.answer
    }
}

/// What a ledger says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerInfo {
    /// Its ID.
    pub backend_id: BackendId,
    /// Raised by a restore.
    pub incarnation: i64,
    /// The version of its schema.
    pub schema_version: i64,
    /// Whether any operation was ever recorded.
    pub has_operations: bool,
    /// The numbers of the keys that it was used with.
    pub key_ids: Vec<u32>,
}

/// Counts and sizes of a ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LedgerStats {
    /// Operations that are in progress or in doubt, in count. A large ledger is counted in parts, so
    /// it may be some looks old.
    pub unsettled: u64,
    /// Transactions that this process has committed, in count.
    pub commits: u64,
    /// Commands that were in them, in count.
    pub committed_commands: u64,
    /// Commands in the largest of them, in count.
    pub largest_batch: u64,
    /// Bytes of the ledger's file.
    pub file_bytes: u64,
    /// Bytes of the log beside it, which a later checkpoint writes back.
    pub log_bytes: u64,
}

/// One line of an operation's audit trail. It holds no argument and no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// Counted from 1 within the operation.
    pub seq: i64,
    /// The store's time.
    pub at: Timestamp,
    /// What happened.
    pub kind: String,
    /// The identity of the step itself, where it is not the operation: a compensation has its own.
    pub identity: String,
    /// Who: the principal, or the operator.
    pub who: String,
    /// Why, where a person gave a reason or a step failed.
    pub reason: Option<String>,
    /// How the operator knows.
    pub proof: Option<String>,
}
