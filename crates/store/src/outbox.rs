//! What a back end keeps of deliveries: the contract of the outbox. The conformance suite holds each
//! back end to these words.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::admission::Admitted;
use counterfoil_core::delivery::{
    Alarm, Delivery, ErrorClass, IllegalStep, LookupEnd, ParkReason, SendEnd, State, TargetName,
    TargetState, Terms, Withdrawal, Work,
};
use counterfoil_core::identity::{BootId, OperationId, OperationKey, Principal, Tenant};
use counterfoil_core::record::Record;
use counterfoil_core::refusal::Refusal;
use counterfoil_core::time::Timestamp;

use crate::contract::{Store, StoreFuture};
use crate::under_way::UnderWay;

/// A ledger with an outbox.
///
/// Every method that writes runs [`step`](counterfoil_core::delivery::step) inside one transaction
/// and writes item, record and audit event together. Times of leases are the store's own. A lost
/// acknowledgement is recognised by run and fence: sending the same report again is safe.
pub trait Outbox: Store {
    /// Decides on the call and, if it is fresh, puts its request into the outbox. In one
    /// transaction: the record, the item, the request, the audit event.
    ///
    /// A call that was accepted before gets its record with the item as it is now, whatever that is,
    /// and leaves a `duplicate_submission` in the audit trail. A revoked principal or tenant is
    /// refused.
    ///
    /// # Errors
    /// As [`Store::submit`].
    fn accept(&self, acceptance: Acceptance) -> StoreFuture<'_, Accepted>;

    /// Leases up to `max_count` items of one target that are due, the earliest first, as far as the
    /// target's gate allows; items whose leases have ended are taken back first, but for those that
    /// the asking process has under way. What only a person
    /// can go on with, or whose time has ended, is settled on the way and not returned.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError) if the store failed; leases that were committed end by
    /// themselves.
    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed>;

    /// Records for each item that its first byte is about to leave. Only what comes back with
    /// [`Begun::Send`] may be sent, and only until its deadline.
    ///
    /// # Errors
    /// As [`claim`](Self::claim). Nothing may be sent then; sending the same request again tells.
    fn begin_send(&self, begins: Vec<BeginSend>) -> StoreFuture<'_, Vec<Begun>>;

    /// Takes reports on attempts and searches, each decided alone; one answer for each, in order.
    ///
    /// # Errors
    /// As [`claim`](Self::claim); sending the same reports again is safe.
    fn report(&self, reports: Vec<Report>) -> StoreFuture<'_, Vec<Reported>>;

    /// Takes back items of every target whose leases have ended, at most `max_count`, and says which.
    /// For targets that nobody claims from any more. Those that the asking process has `under_way`
    /// stay its own. It writes only if there are some.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    fn take_back_lapsed(
        &self,
        under_way: UnderWay,
        max_count: usize,
    ) -> StoreFuture<'_, Vec<TakenBack>>;

    /// Parks the waiting items of targets that are not in `known`, and releases those that were
    /// parked for that and are; at most `max_count`. Says how many it changed, and writes only if
    /// there are some.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    fn match_targets(&self, known: Vec<TargetName>, max_count: usize) -> StoreFuture<'_, usize>;

    /// Releases what was parked because nobody knew its target, for targets in `known`, and parks
    /// nothing; otherwise as [`match_targets`](Self::match_targets).
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    fn release_known(&self, known: Vec<TargetName>, max_count: usize) -> StoreFuture<'_, usize>;

    /// When a claim for this target may next give something; `None` if nothing waits. Never writes.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError) if the store could not be read.
    fn next_due(&self, target: TargetName) -> StoreFuture<'_, Option<Timestamp>>;

    /// As [`next_due`](Self::next_due) for each of many targets, in their order. A back end that can
    /// answers in one read: this is what an idle worker asks once a second.
    ///
    /// # Errors
    /// As [`next_due`](Self::next_due).
    fn next_due_of(&self, targets: Vec<TargetName>) -> StoreFuture<'_, Vec<Option<Timestamp>>> {
        Box::pin(async move {
            let mut found = Vec::with_capacity(targets.len());
            for target in targets {
                found.push(self.next_due(target).await?);
            }
            Ok(found)
        })
    }

    /// One item with its operation's record, in one snapshot; `None` if there is none of this kind.
    ///
    /// # Errors
    /// As [`next_due`](Self::next_due).
    fn delivery(&self, which: Which) -> StoreFuture<'_, Option<DeliveryView>>;

    /// The frozen request of an item; `None` if there is no such item, or its request was purged with
    /// its operation's result.
    ///
    /// # Errors
    /// As [`next_due`](Self::next_due); or if it is not what was frozen.
    fn request(&self, key: OperationKey) -> StoreFuture<'_, Option<Arc<[u8]>>>;

    /// A page of items, the newest first.
    ///
    /// # Errors
    /// As [`next_due`](Self::next_due).
    fn deliveries(&self, query: DeliveryQuery) -> StoreFuture<'_, DeliveryPage>;

    /// An operator's order on some items, each decided alone, with who and why in its audit event;
    /// one answer for each, in order. An item whose lease has ended is taken back first, and so it is
    /// before [`Store::resolve`].
    ///
    /// # Errors
    /// As [`claim`](Self::claim); giving the same order again is safe.
    fn direct(&self, order: Order) -> StoreFuture<'_, Vec<Directed>>;

    /// Every target that items were accepted for, with its state and counts.
    ///
    /// # Errors
    /// As [`next_due`](Self::next_due).
    fn targets(&self) -> StoreFuture<'_, Vec<TargetView>>;

    /// Pauses or resumes a target, or opens it for a look; says what it is then. An unknown name is
    /// kept: it may be configured later.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    fn direct_target(&self, order: TargetOrder) -> StoreFuture<'_, TargetState>;

    /// Revokes or restores a principal, or a tenant with all its principals. Waiting items of the
    /// revoked are parked when their turn comes, at the latest in [`begin_send`](Self::begin_send);
    /// a restore releases the parked ones.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    fn set_revoked(&self, order: RevokeOrder) -> StoreFuture<'_, ()>;

    /// Who is revoked.
    ///
    /// # Errors
    /// As [`next_due`](Self::next_due).
    fn revoked(&self) -> StoreFuture<'_, Vec<Revoked>>;

    /// Counts for metrics. A large outbox is counted in parts, so it may be some looks old.
    ///
    /// # Errors
    /// As [`next_due`](Self::next_due).
    fn outbox_stats(&self) -> StoreFuture<'_, OutboxStats>;
}

/// A call whose effect is to be delivered later.
#[derive(Debug, Clone)]
pub struct Acceptance {
    /// The call.
    pub admitted: Admitted,
    /// Where its request goes.
    pub target: TargetName,
    /// On which terms.
    pub terms: Terms,
    /// The rendered request, as the target's connector will read it back. Opaque here.
    pub request: Arc<[u8]>,
}

/// What became of an acceptance. Answered after its commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Accepted {
    /// This call made the record and the item.
    Fresh(Box<DeliveryView>),
    /// They were there, and are the same request's.
    Duplicate(Box<DeliveryView>),
    /// Nothing was written.
    Refused(Refusal),
}

/// A worker asks for items.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Of this target.
    pub target: TargetName,
    /// The worker's run.
    pub boot: BootId,
    /// How long the lease is.
    pub lease: Duration,
    /// At most so many.
    pub max_count: usize,
    /// Whether one item is to try a target whose breaker is open: it is marked as a probe.
    pub probe: bool,
    /// What the worker's process works on now.
    pub under_way: UnderWay,
}

/// An item that was taken back from a worker whose lease has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenBack {
    /// The item.
    pub key: OperationKey,
    /// Its target.
    pub target: TargetName,
    /// What an operator must hear of.
    pub alarm: Option<Alarm>,
}

/// What a claim gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claimed {
    /// The items, leased to the asking run.
    pub items: Vec<ClaimedItem>,
    /// Alarms of items that were settled on the way.
    pub alarms: Vec<(OperationKey, Alarm)>,
    /// When the next item is due, as far as this transaction saw; `None` if nothing waits.
    pub next_due: Option<Timestamp>,
}

/// One leased item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedItem {
    /// The item, as leased.
    pub delivery: Delivery,
    /// What to do with it.
    pub work: Work,
    /// Its frozen request.
    pub request: Arc<[u8]>,
}

/// An item is about to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeginSend {
    /// The item.
    pub key: OperationKey,
    /// The sender's run.
    pub boot: BootId,
    /// The fence of its claim.
    pub fence: i64,
    /// The lease from now on: it must cover the whole request.
    pub lease: Duration,
}

/// Whether an item may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Yes; the lease ends `lease` after this call was made.
    Send,
    /// No: parked, out of time, not safe any more, or its target is paused. It was settled, or
    /// queued, accordingly.
    Withheld(Option<Alarm>),
    /// No: another holds it, or a person has ended it; or it is asked again, so late that the target
    /// may forget its key under the request.
    NotHeld,
}

/// A report on one item.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The item.
    pub key: OperationKey,
    /// The reporter's run.
    pub boot: BootId,
    /// The fence of its claim.
    pub fence: i64,
    /// Randomness for the pause that may follow.
    pub seed: u64,
    /// What happened.
    pub what: Happened,
}

/// What happened to an item.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// A request ended.
    Sent(SendEnd),
    /// A search ended.
    LookedUp(LookupEnd),
    /// Nothing was done, not a byte was sent; it goes back, and an attempt that was begun is not
    /// counted.
    HandedBack,
    /// Something stands against this one item, found before it was sent.
    Blocked(ParkReason),
}

/// What a report came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// The item's state after it; `None` if there is no such item.
    pub state: Option<State>,
    /// What an operator must hear of.
    pub alarm: Option<Alarm>,
    /// The reporter did not hold the item any more.
    pub fenced: bool,
    /// The target was parked by this report, and was not before.
    pub parked_target: bool,
}

/// Which item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// Of this operation.
    Operation(Tenant, OperationId),
    /// With this key.
    Key(OperationKey),
}

/// An item with its operation, in one snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryView {
    /// The operation's record.
    pub record: Record,
    /// The item.
    pub delivery: Delivery,
    /// Its target's state.
    pub target: TargetState,
}

/// Which items are wanted. Every filter that is given must fit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeliveryQuery {
    /// Of this tenant.
    pub tenant: Option<Tenant>,
    /// For this target.
    pub target: Option<TargetName>,
    /// In one of these states; empty for all.
    pub states: Vec<State>,
    /// Whose last failure was of this class.
    pub class: Option<ErrorClass>,
    /// Accepted at or before this.
    pub accepted_until: Option<Timestamp>,
    /// At most so many; 0 for the default page.
    pub max_count: usize,
    /// Goes on behind this item.
    pub after: Option<OperationKey>,
}

/// Some items, the newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeliveryPage {
    /// The items.
    pub items: Vec<DeliveryView>,
    /// How many fail their own checks and were left out.
    pub damaged_count: usize,
    /// Where the next page begins; `None` if there is nothing more.
    pub next: Option<OperationKey>,
}

/// An operator's order on some items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The items.
    pub which: Vec<Which>,
    /// What to do.
    pub action: Action,
    /// Who says so.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// What an operator can order. Settling an item by word is [`Store::resolve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send a dead letter again, with its own key.
    Redrive,
    /// End it.
    Withdraw(Withdrawal),
}

/// What became of an order on one item.
#[derive(Debug, Clone, PartialEq)]
pub enum Directed {
    /// Done; this is the item now. A redrive that came too late leaves it in doubt.
    Done(Box<Delivery>),
    /// There is no such item.
    Absent,
    /// Record or item fails its own checks; nothing was changed.
    Quarantined,
    /// The item is not in a state for it.
    Illegal(IllegalStep),
}

/// An operator's order on a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetOrder {
    /// The target.
    pub target: TargetName,
    /// What to do.
    pub action: TargetAction,
    /// Who says so.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// What can be ordered of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetAction {
    /// Send nothing.
    Pause,
    /// Go on; a parked target is tried at once.
    Resume,
}

/// A target as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetView {
    /// Its name.
    pub target: TargetName,
    /// Its state.
    pub state: TargetState,
    /// Items by state, in the order of [`ALL_STATES`](counterfoil_core::delivery::ALL_STATES).
    pub counts: [u64; 8],
    /// When the oldest item that still waits was accepted.
    pub oldest: Option<Timestamp>,
}

/// Who may not write any more, or may again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokeOrder {
    /// The tenant.
    pub tenant: Tenant,
    /// The principal; `None` for all of the tenant.
    pub principal: Option<Principal>,
    /// Whether it is revoked from now on.
    pub revoked: bool,
    /// Who says so.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// A principal or tenant that is revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoked {
    /// The tenant.
    pub tenant: Tenant,
    /// The principal; `None` for all of the tenant.
    pub principal: Option<Principal>,
    /// Since when.
    pub since: Timestamp,
    /// Who said so.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// Counts of an outbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutboxStats {
    /// Items by state, in the order of [`ALL_STATES`](counterfoil_core::delivery::ALL_STATES).
    pub counts: [u64; 8],
    /// When the oldest item that still waits was accepted.
    pub oldest: Option<Timestamp>,
    /// Targets that are parked.
    pub parked_targets: u64,
    /// Targets that are paused.
    pub paused_targets: u64,
}
