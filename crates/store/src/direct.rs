//! What a back end keeps of effects that are sent while their caller waits: the contract of direct
//! operations. The conformance suite holds each back end to these words.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::admission::Admitted;
use counterfoil_core::direct::{Direct, Leg, LookupEnd, Reply, Report, Upstream};
use counterfoil_core::identity::{BootId, OperationId, OperationKey, Tenant};
use counterfoil_core::record::{Record, StoredResult};
use counterfoil_core::refusal::Refusal;
use counterfoil_core::time::Timestamp;

use crate::contract::{Store, StoreFuture};

/// A ledger that keeps direct operations.
///
/// Every method that writes runs a decision of [`counterfoil_core::direct`] inside one transaction
/// and writes record, item, answer and audit event together. Times of leases are the store's own. A
/// lost acknowledgement is recognised by run and fence: sending the same report again is safe.
pub trait DirectLedger: Store {
    /// Decides on a call. If its request may be sent, that it is about to be sent is recorded, or,
    /// while the upstream is not ready, that its identity is taken.
    ///
    /// A call that brought no ID joins an unanswered operation with the same call fingerprint if
    /// there is one that is young enough, its own or one with an ID of its caller's; the oldest of
    /// several. What is older loses its slot, and the call is new work.
    ///
    /// A later request is recorded as about to be sent even while the upstream is not ready. Its
    /// holder is told to wait all the same: it dispatches it, or hands it back unsent, and then the
    /// operation waits for it again as long as before.
    ///
    /// # Errors
    /// As [`Store::submit`]. Nothing may be sent then.
    fn begin(&self, begin: Begin) -> StoreFuture<'_, Begun>;

    /// Records that the request of an identity that was taken is about to be sent; by run and fence.
    /// `None` if they do not own it any more: nothing may be sent. Said again by who owns it, it
    /// prolongs the lease.
    ///
    /// # Errors
    /// As [`begin`](Self::begin). Sending the same request again tells.
    fn dispatch(&self, hold: Hold, lease: Duration) -> StoreFuture<'_, Option<Hold>>;

    /// Takes the reports of senders, each decided alone; one answer for each, in order. An answer of
    /// the upstream that settles or answers the operation, or asks for input, is kept with it. One
    /// that asks for input and cannot be kept could not be asked again: it is as if it were lost.
    ///
    /// # Errors
    /// As [`begin`](Self::begin); sending the same reports again is safe. An operation that is not
    /// there, or fails its checks, fails the whole batch: send its reports alone then.
    fn conclude(&self, conclusions: Vec<Conclusion>) -> StoreFuture<'_, Vec<Concluded>>;

    /// Prolongs leases from now on, of those that still hold; says of each whether it does.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    fn renew(&self, holds: Vec<Hold>, lease: Duration) -> StoreFuture<'_, Vec<bool>>;

    /// Notes which operations were told to a live caller, and which were not after all.
    ///
    /// # Errors
    /// As [`begin`](Self::begin). What is not noted is unanswered, which is the safe guess.
    fn tell(&self, told: Vec<Told>) -> StoreFuture<'_, ()>;

    /// Moves operations whose owners' leases have ended, of every upstream, at most `max_count`: what
    /// may have been sent is in doubt then, and what was never sent is settled after a day. Says how
    /// many, and writes only if there are some.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    fn lapse(&self, max_count: usize) -> StoreFuture<'_, usize>;

    /// Settles an operation in doubt by what a look at the upstream found, with who looked and how in
    /// its audit event. `None` if it is not in doubt any more, or the absence proves nothing yet.
    ///
    /// # Errors
    /// As [`begin`](Self::begin); saying it again is safe.
    fn settle_by_lookup(&self, found: LookupFound) -> StoreFuture<'_, Option<DirectView>>;

    /// Operations of one upstream that are in doubt, in the order of their keys, after a key.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError) if the store could not be read.
    fn in_doubt(
        &self,
        upstream: Upstream,
        after: Option<OperationKey>,
        max_count: usize,
    ) -> StoreFuture<'_, Vec<DirectView>>;

    /// One operation with all that stands beside it, in one snapshot; `None` if there is none of this
    /// kind.
    ///
    /// # Errors
    /// As [`in_doubt`](Self::in_doubt), or if it fails its checks.
    fn direct_view(&self, which: WhichDirect) -> StoreFuture<'_, Option<DirectView>>;

    /// The answer to one request of an operation, with that request's fingerprint.
    ///
    /// # Errors
    /// As [`direct_view`](Self::direct_view).
    fn reply(&self, key: OperationKey, leg: u32) -> StoreFuture<'_, Option<Reply>>;
}

/// A call whose request would be sent now.
#[derive(Debug, Clone)]
pub struct Begin {
    /// The call. Its full fingerprint is that of this request.
    pub admitted: Admitted,
    /// Where its request goes.
    pub upstream: Upstream,
    /// Which request of the operation it is.
    pub leg: Leg,
    /// How the operation is found.
    pub identity: Identity,
    /// Whether the upstream can take the request at once.
    pub ready: bool,
    /// How long the lease is.
    pub lease: Duration,
    /// What a later look at the upstream needs to know of the call. Opaque here; kept as it is,
    /// never changed, in a table of its own, and purged with the operation's answer.
    pub memo: Option<Arc<[u8]>>,
    /// What to note first, in the same transaction.
    pub told: Vec<Told>,
}

/// How the operation of a call is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// By the ID that the call brought.
    Given,
    /// It brought none, and never joins another.
    Minted,
    /// It brought none, and joins an unanswered operation that is at most so old.
    Joins(Duration),
    /// It wants an operation repeated: it is the one that the first such call made.
    Repeats(OperationId),
}

/// The right to send one request, and to report on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The operation.
    pub key: OperationKey,
    /// The run that holds it.
    pub boot: BootId,
    /// Its fence.
    pub fence: i64,
    /// The request, counted from 1.
    pub leg: u32,
}

/// What a call came to. Answered after its commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// It is recorded as about to be sent: send it, and report.
    Send(Hold, Box<Record>),
    /// Its identity is taken: [`DirectLedger::dispatch`] before it is sent.
    Wait(Hold, Box<Record>),
    /// It was made before, and this is how it stands.
    Replay(Box<Replayed>),
    /// Nothing was written. The operation that an ID-less call would have joined is named by the
    /// refusal.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Whether the call brought no ID, and joined this operation.
        joined: bool,
    },
    /// The continuation fits nothing that this ledger asked for.
    Unfit,
}

/// What a repeated call gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// The operation as it stands.
    pub view: DirectView,
    /// The request whose answer is meant: `view.reply` is its answer.
    pub leg: u32,
    /// Whether the call brought no ID, and joined this operation.
    pub joined: bool,
}

/// A report of a sender.
#[derive(Debug, Clone)]
pub struct Conclusion {
    /// What it held.
    pub hold: Hold,
    /// What it saw.
    pub report: Report,
    /// The answer to keep.
    pub reply: Option<Reply>,
    /// What to keep where the operation is settled without an answer that can be kept.
    pub result: Option<StoredResult>,
    /// Until when a continuation may follow, if the upstream asked for input.
    pub asked_until: Option<Timestamp>,
    /// Words for the audit trail. They hold nothing of arguments or answers.
    pub why: Option<String>,
}

/// What became of a report.
#[derive(Debug, Clone, PartialEq)]
pub enum Concluded {
    /// The operation as it is now.
    Moved(Box<DirectView>),
    /// The reporter holds it no more; the operation as it stands.
    Stale(Box<DirectView>),
    /// The upstream says that it did what is settled as not applied. Loud.
    LateContradiction(Box<DirectView>),
}

/// Whether the result of an operation was written to a live caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// The operation.
    pub key: OperationKey,
    /// Written, or taken back: the caller was gone after all.
    pub answered: bool,
}

/// What a look at the upstream found.
#[derive(Debug, Clone)]
pub struct LookupFound {
    /// The operation.
    pub key: OperationKey,
    /// What it proves.
    pub end: LookupEnd,
    /// The result to keep.
    pub result: StoredResult,
    /// How it was looked for, for the audit trail: the tool and the rule, no values.
    pub how: String,
}

/// An operation with what stands beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectView {
    /// The record.
    pub record: Record,
    /// The item.
    pub item: Direct,
    /// The upstream's answer that settled or answered it, or to the request that was asked for.
    pub reply: Option<Arc<Reply>>,
    /// The memo of its first request. Read for [`DirectLedger::in_doubt`] and
    /// [`DirectLedger::direct_view`]; elsewhere `None`.
    pub memo: Option<Arc<[u8]>>,
}

/// Which operation is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichDirect {
    /// By the ledger's key.
    Key(OperationKey),
    /// By its ID within a tenant.
    Id(Tenant, OperationId),
}
