//! The decisions on direct operations that every back end takes alike. A back end differs only in how
//! it finds and keeps rows: what it brings is a [`Shelf`].

mod begin;
mod end;

use counterfoil_core::direct::Direct;
use counterfoil_core::fingerprint::Fingerprint;
use counterfoil_core::identity::{BootId, Caller, OperationId, OperationKey, Tenant};
use counterfoil_core::operation::{Event, IllegalTransition, Phase, State, step};
use counterfoil_core::record::{Owner, Record};
use counterfoil_core::refusal::Refusal;
use counterfoil_core::time::Timestamp;

use crate::direct::{Hold, Told};
use crate::error::StoreError;
use crate::steps::{AuditLine, Kept, leg_identity};

pub(crate) use begin::begin;
pub(crate) use end::{conclude, lapse, settle_by_lookup};

/// The kind of audit event for an identity that goes on under another call.
pub(crate) const TAKEN_UP: &str = "taken_up";
/// The kind of audit event for an upstream that says that it did what is settled as not applied.
pub(crate) const LATE_CONTRADICTION: &str = "late_contradiction";
/// The kind of audit event for a call that brought no ID and was given another's operation. It is no
/// step of the state machine.
pub(crate) const JOINED: &str = "joined";
/// The kind of audit event for a request that was handed back unsent.
pub(crate) const HANDED_BACK: &str = "handed_back";

/// A record with its item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair {
    pub(crate) kept: Kept,
    pub(crate) item: Direct,
}

impl Pair {
    /// Whether this hold was the last to own the operation, with this request.
    pub(crate) fn was_held(&self, hold: &Hold) -> bool {
        self.kept.was_owned(hold.boot, hold.fence) && self.item.leg == hold.leg
    }

    /// The right that its present owner has.
    pub(crate) fn hold(&self) -> Hold {
        let Owner { boot, fence, .. } = self.kept.owner;
        Hold { key: self.item.key, boot, fence, leg: self.item.leg }
    }

    /// Whether nobody knows what became of it.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.kept.record.state == State::InDoubt
    }

    /// Gives it to a run until a time; whoever had it holds it no more.
    fn give_to(&mut self, boot: BootId, until: Timestamp) {
        self.kept.owner = Owner { boot, fence: self.kept.owner.fence + 1, lease_until: until };
        self.kept.record.owner = Some(self.kept.owner);
    }

    /// Takes a step that leaves it unfinished.
    fn advance(&mut self, event: Event) -> Result<&'static str, IllegalTransition> {
        let transition = step(Some(self.kept.record.state), event)?;
        self.kept.advance(transition);
        let in_progress = matches!(transition.to(), State::InProgress(_));
        self.kept.record.owner = in_progress.then_some(self.kept.owner);
        Ok(transition.audit_kind())
    }

    /// Its request is about to leave, at the latest when the lease ends.
    fn dispatch(&mut self, until: Timestamp) -> Result<&'static str, IllegalTransition> {
        self.kept.owner.lease_until = until;
        let kind = self.advance(Event::Dispatch)?;
        self.may_leave_until(until);
        Ok(kind)
    }

    fn may_leave_until(&mut self, until: Timestamp) {
        self.item.last_send_until = self.item.last_send_until.max(Some(until));
    }

    /// The request whose answer is shown with the operation, if one is.
    pub(crate) fn shown(&self) -> Option<u32> {
        let record = &self.kept.record;
        let is_shown = match record.state {
            State::InProgress(Phase::AwaitingInput) => true,
            state => state.ages() && record.result.is_none() && !record.purged,
        };
        is_shown.then_some(self.item.leg)
    }
}

/// An operation as a command answers with it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) pair: Pair,
    /// The request whose answer goes with it.
    pub(crate) shown: Option<u32>,
    /// Whether that answer is the one that the command itself brought.
    pub(crate) is_given: bool,
}

impl Seen {
    fn of(pair: Pair) -> Self {
        Self { shown: pair.shown(), pair, is_given: false }
    }
}

/// What was found under a key.
#[derive(Debug)]
pub(crate) enum Found {
    Absent,
    Kept(Box<Pair>),
    /// It fails its own checks; the alarm was raised.
    Damaged(StoreError),
}

/// What was found under an ID.
#[derive(Debug)]
pub(crate) enum FoundById {
    Absent,
    Direct(Box<Pair>),
    /// Another kind of operation.
    Other(Box<Kept>),
}

/// What is kept of a request that asked for input, beside its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The request's fingerprint.
    pub(crate) digest: Fingerprint,
    /// Until when a continuation may follow.
    pub(crate) until: Option<Timestamp>,
}

/// Where a back end keeps direct operations: what the decisions ask of it inside one transaction.
pub(crate) trait Shelf {
    /// Why a command stops. What it wrote is then rolled back.
    type Fault: From<StoreError>;
    /// An answer of an upstream that is small enough to keep, in the form in which it is kept.
    type Answer;

    fn pair_by_id(&mut self, tenant: &Tenant, id: &OperationId) -> Result<FoundById, Self::Fault>;

    fn pair(&mut self, key: OperationKey) -> Result<Found, Self::Fault>;

    /// The oldest of a caller's unanswered operations with that call fingerprint that began after
    /// `since` and can be joined: it brought its own ID, or its slot is open.
    fn oldest_unanswered(
        &mut self,
        call: &Fingerprint,
        caller: &Caller,
        since: Timestamp,
    ) -> Result<Option<OperationKey>, Self::Fault>;

    /// Whoever has the join slot of that call fingerprint.
    fn slot_holder(&mut self, call: &Fingerprint) -> Result<Option<OperationKey>, Self::Fault>;

    /// The wanted repeat of an operation.
    fn repeat_made_of(&mut self, key: OperationKey) -> Result<Option<OperationKey>, Self::Fault>;

    /// What is kept of an earlier request that was answered.
    fn asked_then(&mut self, key: OperationKey, leg: u32) -> Result<Option<Asked>, Self::Fault>;

    /// Operations in progress whose time has come: the lease has ended, and, if nothing was sent, a
    /// day has passed since they began.
    fn due(&mut self, now: Timestamp, max_count: usize) -> Result<Vec<OperationKey>, Self::Fault>;

    /// Writes a new operation; `false` if its ID or its key is another's, and nothing was written.
    fn insert_pair(&mut self, pair: &Pair, memo: Option<&[u8]>) -> Result<bool, Self::Fault>;

    /// Writes what changed of an operation.
    fn update_pair(&mut self, before: &Pair, after: &Pair) -> Result<(), Self::Fault>;

    /// Keeps the answer to a request, instead of one that is kept of it.
    fn keep_answer(
        &mut self,
        key: OperationKey,
        leg: u32,
        asked: &Asked,
        answer: &Self::Answer,
    ) -> Result<(), Self::Fault>;

    fn put_on_record(
        &mut self,
        kept: &Kept,
        line: &AuditLine<'_>,
        now: Timestamp,
    ) -> Result<(), Self::Fault>;

    /// Takes a damaged operation out of what is due.
    fn set_aside(&mut self, key: OperationKey) -> Result<(), Self::Fault>;

    /// Whether there is only room for ending what was begun.
    fn has_no_room(&self) -> bool;

    /// There is no room for new work.
    fn full(&self) -> Self::Fault;

    /// The attempt's key is another operation's.
    fn key_is_taken(&self) -> Self::Fault;
}

/// What a call came to, before its answers are fetched.
#[derive(Debug)]
pub(crate) enum Turned {
    Send(Hold, Box<Record>),
    Wait(Hold, Box<Record>),
    Replay { seen: Box<Seen>, leg: u32, joined: bool },
    Refused { refusal: Refusal, joined: bool },
    Unfit,
}

/// What a report came to, before the answer is fetched.
#[derive(Debug)]
pub(crate) enum Ended {
    Moved(Box<Seen>),
    Stale(Box<Seen>),
    LateContradiction(Box<Seen>),
}

/// An operation that must be there and sound.
fn sound<S: Shelf>(shelf: &mut S, key: OperationKey) -> Result<Pair, S::Fault> {
    match shelf.pair(key)? {
        Found::Kept(pair) => Ok(*pair),
        Found::Damaged(error) => Err(error.into()),
        Found::Absent => {
            let reason = "no direct operation has this key".into();
            Err(StoreError::Quarantined { reason }.into())
        }
    }
}

/// Puts a step of the present request on record.
fn record_step<S: Shelf>(
    shelf: &mut S,
    pair: &Pair,
    (kind, leg): (&str, u32),
    why: Option<&str>,
    now: Timestamp,
) -> Result<(), S::Fault> {
    let identity = leg_identity(&pair.kept.record, leg);
    let line = AuditLine::of_caller(&pair.kept.record, kind, why);
    shelf.put_on_record(&pair.kept, &AuditLine { identity: &identity, ..line }, now)
}

/// Records that the request of an identity that was taken is about to be sent. Said again by the same
/// holder it prolongs the lease.
pub(crate) fn dispatch<S: Shelf>(
    shelf: &mut S,
    hold: Hold,
    until: Timestamp,
    now: Timestamp,
) -> Result<Option<Hold>, S::Fault> {
    let Found::Kept(before) = shelf.pair(hold.key)? else { return Ok(None) };
    if !before.was_held(&hold) {
        return Ok(None);
    }
    let mut pair = (*before).clone();
    match before.kept.record.state {
        State::InProgress(Phase::Claimed) if shelf.has_no_room() => return Err(shelf.full()),
        State::InProgress(Phase::Claimed) => {
            let Ok(kind) = pair.dispatch(until) else { return Ok(None) };
            shelf.update_pair(&before, &pair)?;
            record_step(shelf, &pair, (kind, hold.leg), None, now)?;
        }
        State::InProgress(Phase::Dispatched) => {
            prolong(&mut pair, until);
            shelf.update_pair(&before, &pair)?;
        }
        _ => return Ok(None),
    }
    Ok(Some(hold))
}

fn prolong(pair: &mut Pair, until: Timestamp) {
    pair.kept.owner.lease_until = until;
    pair.kept.record.owner = Some(pair.kept.owner);
    if pair.kept.record.state == State::InProgress(Phase::Dispatched) {
        pair.may_leave_until(until);
    }
}

/// Prolongs a lease; whether it still holds.
pub(crate) fn renew<S: Shelf>(
    shelf: &mut S,
    hold: &Hold,
    until: Timestamp,
) -> Result<bool, S::Fault> {
    let Found::Kept(before) = shelf.pair(hold.key)? else { return Ok(false) };
    let held = State::InProgress(Phase::Claimed) == before.kept.record.state
        || State::InProgress(Phase::Dispatched) == before.kept.record.state;
    if !held || !before.was_held(hold) {
        return Ok(false);
    }
    let mut pair = (*before).clone();
    prolong(&mut pair, until);
    shelf.update_pair(&before, &pair)?;
    Ok(true)
}

/// Notes whether an operation was told to a live caller. Only what has an answer can be.
pub(crate) fn tell<S: Shelf>(shelf: &mut S, told: Told, now: Timestamp) -> Result<(), S::Fault> {
    // What is damaged is not noted: unanswered is the safe guess.
    let Found::Kept(before) = shelf.pair(told.key)? else { return Ok(()) };
    let record = &before.kept.record;
    if told.answered == before.item.answered_at.is_some() || !record.state.ages() {
        return Ok(());
    }
    let mut pair = (*before).clone();
    pair.item.answered_at = told.answered.then_some(now);
    pair.item.open_slot =
        !told.answered && pair.item.minted && shelf.slot_holder(&record.binding.call)?.is_none();
    shelf.update_pair(&before, &pair)
}
