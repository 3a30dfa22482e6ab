//! The beginning of a direct operation: which one a call means, and whether its request may be sent.

use std::time::Duration;

use counterfoil_core::admission::{Admitted, LedgerTime};
use counterfoil_core::direct::{Direct, Leg, Turn, decide};
use counterfoil_core::identity::{OperationId, OperationKey};
use counterfoil_core::operation::Event;
use counterfoil_core::record::{Nature, Record};
use counterfoil_core::refusal::{Code, Refusal};
use counterfoil_core::time::Timestamp;

use super::{FoundById, JOINED, Pair, Seen, Shelf, TAKEN_UP, Turned, record_step, sound, tell};
use crate::direct::{Begin, Identity};
use crate::error::StoreError;
use crate::steps::{AuditLine, Kept, first_step};

/// Which operation a call means.
enum Meant {
    /// One that is kept. Whether the call brought no ID and joins it.
    Kept { pair: Box<Pair>, joined: bool },
    /// Another kind of operation has its ID.
    Other(Box<Kept>),
    /// None yet. Whether it takes the slot of its call fingerprint, and what it repeats.
    New { open_slot: bool, repeat_of: Option<OperationKey> },
    /// None that the call may mean.
    Refused(Refusal),
}

/// Decides on a call, and writes what it comes to.
pub(crate) fn begin<S: Shelf>(
    shelf: &mut S,
    asked: &Begin,
    time: LedgerTime,
) -> Result<Turned, S::Fault> {
    if !shelf.has_no_room() {
        for told in &asked.told {
            tell(shelf, *told, time.now)?;
        }
    }
    let call = &asked.admitted;
    match meant(shelf, asked, time.now)? {
        Meant::Refused(refusal) => Ok(Turned::Refused { refusal, joined: false }),
        Meant::Other(kept) => Ok(refuse_other(asked, &kept.record, time)),
        Meant::Kept { pair, joined: false } => again(shelf, asked, call, *pair, false, time),
        Meant::Kept { pair, joined: true } => {
            let call = call.clone().under(pair.kept.record.operation_id.clone());
            again(shelf, asked, &call, *pair, true, time)
        }
        Meant::New { open_slot, repeat_of } => {
            match decide(call, asked.leg, None, |_| None, time) {
                Turn::Fresh => fresh(shelf, asked, open_slot, repeat_of, time),
                Turn::Refuse(refusal) => Ok(Turned::Refused { refusal, joined: false }),
                _ => Ok(Turned::Unfit),
            }
        }
    }
}

fn meant<S: Shelf>(shelf: &mut S, asked: &Begin, now: Timestamp) -> Result<Meant, S::Fault> {
    match &asked.identity {
        Identity::Given => by_own_id(shelf, asked),
        // Its ID was made for it: whether somebody has it all the same is seen when it is written.
        Identity::Minted => Ok(Meant::New { open_slot: false, repeat_of: None }),
        Identity::Joins(age) => joined(shelf, asked, *age, now),
        Identity::Repeats(original) => repeated(shelf, asked, original),
    }
}

fn by_own_id<S: Shelf>(shelf: &mut S, asked: &Begin) -> Result<Meant, S::Fault> {
    let call = &asked.admitted;
    Ok(match shelf.pair_by_id(&call.caller().tenant, call.operation_id())? {
        FoundById::Absent => Meant::New { open_slot: false, repeat_of: None },
        FoundById::Direct(pair) => Meant::Kept { pair, joined: false },
        FoundById::Other(kept) => Meant::Other(kept),
    })
}

/// An unanswered operation that is young enough, under whichever key it was made; else a new one,
/// for which an older one gives up the slot.
fn joined<S: Shelf>(
    shelf: &mut S,
    asked: &Begin,
    age: Duration,
    now: Timestamp,
) -> Result<Meant, S::Fault> {
    let call = &asked.admitted;
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let since = Timestamp::from_ms(now.as_ms().saturating_sub(age_ms));
    let mut oldest: Option<Box<Pair>> = None;
    for digest in call.call_digests() {
        let Some(key) = shelf.oldest_unanswered(digest, call.caller(), since)? else { continue };
        let found = Box::new(sound(shelf, key)?);
        let place = |pair: &Pair| (pair.kept.record.created_at, pair.item.key);
        if oldest.as_deref().is_none_or(|oldest| place(&found) < place(oldest)) {
            oldest = Some(found);
        }
    }
    if let Some(pair) = oldest {
        return Ok(Meant::Kept { pair, joined: true });
    }
    let mut open_slot = true;
    for (at, digest) in call.call_digests().enumerate() {
        let is_free = give_up_slot(shelf, call, digest)?;
        // The new record is made under the first key.
        open_slot &= is_free || at > 0;
    }
    Ok(Meant::New { open_slot, repeat_of: None })
}

/// Closes the slot of an operation that is too old to be joined; whether the slot is free then.
fn give_up_slot<S: Shelf>(
    shelf: &mut S,
    call: &Admitted,
    digest: &counterfoil_core::fingerprint::Fingerprint,
) -> Result<bool, S::Fault> {
    let Some(key) = shelf.slot_holder(digest)? else { return Ok(true) };
    let before = sound(shelf, key)?;
    if !is_own(call, &before.kept.record) {
        return Ok(false);
    }
    close_slot(shelf, &before)?;
    Ok(true)
}

fn close_slot<S: Shelf>(shelf: &mut S, before: &Pair) -> Result<(), S::Fault> {
    let mut pair = before.clone();
    pair.item.open_slot = false;
    shelf.update_pair(before, &pair)
}

fn is_own(call: &Admitted, record: &Record) -> bool {
    record.tenant == call.caller().tenant && record.principal == call.caller().principal
}

/// The repeat that an earlier call with the same wish made, else a new one.
fn repeated<S: Shelf>(
    shelf: &mut S,
    asked: &Begin,
    original: &OperationId,
) -> Result<Meant, S::Fault> {
    let call = &asked.admitted;
    let (pair, record) = match shelf.pair_by_id(&call.caller().tenant, original)? {
        FoundById::Absent => return Ok(Meant::Refused(nothing_to_repeat())),
        FoundById::Direct(pair) => {
            let record = pair.kept.record.clone();
            (Some(pair), record)
        }
        FoundById::Other(kept) => (None, kept.record),
    };
    if !is_own(call, &record) || record.operation_id != *original {
        return Ok(Meant::Refused(nothing_to_repeat()));
    }
    let made = match call.binding_like(&record) {
        Ok(made) => made,
        Err(refusal) => return Ok(Meant::Refused(refusal)),
    };
    let is_same = made.call == record.binding.call && made.profile == record.binding.profile;
    let Some(pair) = pair.filter(|_| is_same) else {
        return Ok(Meant::Refused(Refusal::conflict(original.clone())));
    };
    if let Some(key) = shelf.repeat_made_of(record.key)? {
        let pair = Box::new(sound(shelf, key)?);
        return Ok(Meant::Kept { pair, joined: true });
    }
    if pair.item.open_slot && !shelf.has_no_room() {
        close_slot(shelf, &pair)?;
    }
    let open_slot = shelf.slot_holder(&call.binding().call)?.is_none();
    Ok(Meant::New { open_slot, repeat_of: Some(record.key) })
}

/// The same for an operation that is not there and for another's: it tells nothing.
fn nothing_to_repeat() -> Refusal {
    let words = "repeat_of names no operation of yours, and nothing was done; give the ID of the \
                 operation that is to be made again, or leave repeat_of out";
    Refusal::new(Code::InvalidArgument, words, None)
}

/// A record of another kind under the call's ID: it conflicts, unless something before that refuses.
fn refuse_other(asked: &Begin, record: &Record, time: LedgerTime) -> Turned {
    let call = &asked.admitted;
    // Nothing of it is looked at: the nature of the record is checked first.
    let none = item_of(asked, record, None);
    match decide(call, asked.leg, Some((record, &none)), |_| None, time) {
        Turn::Refuse(refusal) => Turned::Refused { refusal, joined: false },
        _ => {
            let refusal = Refusal::conflict(call.operation_id().clone());
            Turned::Refused { refusal, joined: false }
        }
    }
}

fn item_of(asked: &Begin, record: &Record, repeat_of: Option<OperationKey>) -> Direct {
    Direct {
        key: record.key,
        upstream: asked.upstream.clone(),
        minted: asked.identity != Identity::Given,
        open_slot: false,
        answered_at: None,
        repeat_of,
        leg: Leg::First.number(),
        leg_digest: asked.admitted.binding().full,
        last_send_until: None,
        late_contradiction: false,
    }
}

fn fresh<S: Shelf>(
    shelf: &mut S,
    asked: &Begin,
    open_slot: bool,
    repeat_of: Option<OperationKey>,
    time: LedgerTime,
) -> Result<Turned, S::Fault> {
    if shelf.has_no_room() {
        return Err(shelf.full());
    }
    let call = &asked.admitted;
    let until = time.now.plus(asked.lease);
    let mut kept = Kept::begin(call, time.now);
    kept.record.nature = Nature::Direct;
    kept.owner.lease_until = until;
    kept.record.owner = Some(kept.owner);
    let transition = first_step(if asked.ready { Event::Dispatch } else { Event::Claim });
    kept.advance(transition);
    let item = Direct {
        open_slot,
        last_send_until: asked.ready.then_some(until),
        ..item_of(asked, &kept.record, repeat_of)
    };
    let pair = Pair { kept, item };
    if !shelf.insert_pair(&pair, asked.memo.as_deref())? {
        // An ID that was made for a call is mostly free; here it was not, or the call is made again.
        return match shelf.pair_by_id(&call.caller().tenant, call.operation_id())? {
            FoundById::Absent => Err(shelf.key_is_taken()),
            FoundById::Direct(pair) => again(shelf, asked, call, *pair, false, time),
            FoundById::Other(kept) => Ok(refuse_other(asked, &kept.record, time)),
        };
    }
    record_step(shelf, &pair, (transition.audit_kind(), 1), None, time.now)?;
    Ok(sent(pair, asked.ready))
}

fn sent(pair: Pair, is_dispatched: bool) -> Turned {
    let (hold, record) = (pair.hold(), Box::new(pair.kept.record));
    if is_dispatched { Turned::Send(hold, record) } else { Turned::Wait(hold, record) }
}

/// A call whose operation is kept.
fn again<S: Shelf>(
    shelf: &mut S,
    asked: &Begin,
    call: &Admitted,
    pair: Pair,
    joined: bool,
    time: LedgerTime,
) -> Result<Turned, S::Fault> {
    let mut fault = None;
    let kept = Some((&pair.kept.record, &pair.item));
    let key = pair.item.key;
    let turn = decide(
        call,
        asked.leg,
        kept,
        |leg| {
            shelf
                .asked_then(key, leg)
                .unwrap_or_else(|f| {
                    fault = Some(f);
                    None
                })
                .map(|asked| asked.digest)
        },
        time,
    );
    if let Some(fault) = fault {
        return Err(fault);
    }
    match turn {
        Turn::TakeUp => take_up(shelf, asked, call, pair, time.now),
        Turn::Next => next(shelf, asked, call, pair, time.now),
        Turn::Replay { leg } => replay(shelf, pair, leg, joined, time.now),
        Turn::Refuse(refusal) => Ok(Turned::Refused { refusal, joined }),
        Turn::Unfit => Ok(Turned::Unfit),
        Turn::Fresh => unreachable!("decide() begins only what is not kept"),
    }
}

/// The fingerprint of the present request, under the key of the record.
fn leg_digest<F: From<StoreError>>(
    call: &Admitted,
    record: &Record,
) -> Result<counterfoil_core::fingerprint::Fingerprint, F> {
    let made = call.binding_like(record).map_err(|_| {
        let reason = "its key is missing, and the decision found it".into();
        F::from(StoreError::Quarantined { reason })
    })?;
    Ok(made.full)
}

fn take_up<S: Shelf>(
    shelf: &mut S,
    asked: &Begin,
    call: &Admitted,
    before: Pair,
    now: Timestamp,
) -> Result<Turned, S::Fault> {
    if shelf.has_no_room() {
        return Err(shelf.full());
    }
    let until = now.plus(asked.lease);
    let mut pair = before.clone();
    pair.give_to(call.attempt().boot, until);
    pair.item.leg_digest = leg_digest(call, &pair.kept.record)?;
    let mut dispatched = None;
    if asked.ready {
        dispatched = Some(pair.dispatch(until).map_err(illegal)?);
    }
    shelf.update_pair(&before, &pair)?;
    record_step(shelf, &pair, (TAKEN_UP, 1), None, now)?;
    if let Some(kind) = dispatched {
        record_step(shelf, &pair, (kind, 1), None, now)?;
    }
    Ok(sent(pair, asked.ready))
}

/// A later request is recorded as about to be sent even while the upstream is not ready: whoever holds
/// it dispatches it once more, or hands it back.
fn next<S: Shelf>(
    shelf: &mut S,
    asked: &Begin,
    call: &Admitted,
    before: Pair,
    now: Timestamp,
) -> Result<Turned, S::Fault> {
    if shelf.has_no_room() {
        return Err(shelf.full());
    }
    let until = now.plus(asked.lease);
    let mut pair = before.clone();
    pair.give_to(call.attempt().boot, until);
    pair.item.leg = asked.leg.number();
    pair.item.leg_digest = leg_digest(call, &pair.kept.record)?;
    let kind = pair.dispatch(until).map_err(illegal)?;
    shelf.update_pair(&before, &pair)?;
    record_step(shelf, &pair, (kind, pair.item.leg), None, now)?;
    Ok(sent(pair, asked.ready))
}

fn illegal<F: From<StoreError>>(error: counterfoil_core::operation::IllegalTransition) -> F {
    F::from(StoreError::Quarantined { reason: error.to_string() })
}

fn replay<S: Shelf>(
    shelf: &mut S,
    pair: Pair,
    leg: u32,
    joined: bool,
    now: Timestamp,
) -> Result<Turned, S::Fault> {
    // On a full disk the answer is worth more than the note.
    if joined && !shelf.has_no_room() {
        let line = AuditLine::of_caller(&pair.kept.record, JOINED, None);
        shelf.put_on_record(&pair.kept, &line, now)?;
    }
    let is_last = leg == pair.item.leg && pair.kept.record.state.ages();
    let shown = if is_last { pair.shown() } else { Some(leg) };
    Ok(Turned::Replay { seen: Box::new(Seen { pair, shown, is_given: false }), leg, joined })
}
