//! The steps of one item: one `(state, event)` match. What is illegal is an error that names both;
//! what comes too late changes nothing but evidence.

use std::time::Duration;

use crate::delivery::contract::Contract;
use crate::delivery::draft::Draft;
use crate::delivery::event::{Alarm, Change, Event, IllegalStep, TargetChange};
use crate::delivery::item::{Delivery, Ended, Lease, ParkReason, State, Withdrawal, Work};
use crate::delivery::outcome::{ErrorClass, LookupEnd, SendEnd, Then};
use crate::identity::BootId;
use crate::operation::{self, Verdict};
use crate::record::StoredResult;
use crate::retry::pause_asked_for;
use crate::time::Timestamp;

/// Why a redrive is refused.
const ONLY_DEAD_LETTERS: &str = "only a dead letter can be sent again";

/// Decides what `event` makes of an item at `now`, on the store's clock.
///
/// # Errors
/// [`IllegalStep`] if the pair has no meaning, or a rule of the contract forbids it. A report of a
/// worker that lost the item is no error: see [`Change::fenced`].
pub fn step(item: &Delivery, event: Event, now: Timestamp) -> Result<Change, IllegalStep> {
    let refuse = |event, rule| Err(IllegalStep { from: item.state, event, rule });
    match (item.state, event) {
        (State::Queued, Event::Claim { lease }) => Ok(claim(item, lease, now)),
        (_, Event::Claim { .. }) => refuse("claim", "only what is queued can be claimed"),

        (State::Leased, Event::BeginSend { by, lease_until }) if item.is_held(by) => {
            begin_send(item, lease_until, now)
        }
        // Asked again after a lost acknowledgement: one attempt, whose lease may end later.
        (State::Sending, Event::BeginSend { by, lease_until }) if item.is_held(by) => {
            renew(item, lease_until, now)
        }
        (_, Event::BeginSend { .. }) => refuse("send", "another holds it, or nobody"),

        (State::Leased, Event::HandBack { by }) if item.is_held(by) => {
            Ok(Draft::of(item, now).queue_at(now).done())
        }
        // The holder swears that no byte left: it cost nothing and proved nothing.
        (State::Sending, Event::HandBack { by }) if item.is_held(by) => {
            let mut draft = Draft::of(item, now);
            draft.settle_send(item, now);
            draft.uncount();
            Ok(draft.queue_at(now).audit("attempt_withdrawn").done())
        }
        (_, Event::HandBack { .. }) => refuse("hand back", "another holds it, or nobody"),

        (State::Sending, Event::Sent { by, end, seed }) if item.is_held(by) => {
            Ok(sent(item, end, seed, now))
        }
        (_, Event::Sent { end, .. }) => Ok(late(item, evidence_of(end), now)),

        (State::Leased, Event::LookedUp { by, end, seed }) if item.is_held(by) => {
            Ok(looked_up(item, end, seed, now))
        }
        (_, Event::LookedUp { end, .. }) => Ok(late(item, found_in(end), now)),

        (State::Leased | State::Sending, Event::Lapse { .. })
            if item.lease.is_some_and(|lease| now < lease.until) =>
        {
            refuse("lapse", "its lease has not ended")
        }
        (State::Leased, Event::Lapse { .. }) => Ok(Draft::of(item, now).queue_at(now).done()),
        (State::Sending, Event::Lapse { seed }) => Ok(unknown(
            Draft::of(item, now),
            ErrorClass::WorkerLost,
            "the worker that sent it did not report".into(),
            None,
            seed,
        )),
        (_, Event::Lapse { .. }) => refuse("lapse", "nobody holds it"),

        (State::Queued | State::Leased, Event::Park(reason)) => Ok(park(item, reason, now)),
        (_, Event::Park(_)) => refuse("park", "only what waits can be parked"),
        (State::Parked, Event::Unpark) => {
            Ok(Draft::of(item, now).queue_at(now).audit("unparked").done())
        }
        (_, Event::Unpark) => refuse("unpark", "it is not parked"),

        (State::DeadLetter | State::Parked, Event::Redrive) => redrive(item, now),
        (State::InDoubt, Event::Redrive) => refuse(
            "redrive",
            "it may have been done already; look at the target, then use `counterfoil operation \
             resolve`",
        ),
        (State::Cancelled, Event::Redrive) => {
            refuse("redrive", "a person ended it for good; submit it under a new operation ID")
        }
        (_, Event::Redrive) => refuse("redrive", ONLY_DEAD_LETTERS),

        (_, Event::Withdraw(how)) => withdraw(item, how, now),
        (_, Event::Resolve(verdict)) => resolve(item, verdict, now),
    }
}

impl Delivery {
    fn is_held(&self, (boot, fence): (BootId, i64)) -> bool {
        self.fence == fence && self.lease.is_some_and(|lease| lease.boot == boot)
    }

    /// Whether the target may forget the key before `until`.
    fn forgets_key_by(&self, until: Timestamp) -> bool {
        match (self.terms.contract, self.first_dispatch_at) {
            (Contract::Key { lifetime } | Contract::KeyAndLookup { lifetime, .. }, Some(first)) => {
                until > first.plus(lifetime)
            }
            _ => false,
        }
    }
}

fn claim(item: &Delivery, lease: Lease, now: Timestamp) -> Change {
    let draft = Draft::of(item, now);
    match item.work(now) {
        None => return draft.in_doubt(ErrorClass::Local, "no further attempt is safe".into()),
        Some(Work::Send) if item.is_past(now) => {
            return draft.give_up(ErrorClass::Local, "its time for delivery has ended".into());
        }
        Some(Work::Send | Work::LookUp) => {}
    }
    let mut draft = draft;
    draft.to.state = State::Leased;
    draft.to.fence += 1;
    draft.to.lease = Some(lease);
    draft.to.next_attempt_at = None;
    draft.done()
}

fn begin_send(
    item: &Delivery,
    lease_until: Timestamp,
    now: Timestamp,
) -> Result<Change, IllegalStep> {
    let mut draft = Draft::of(item, now);
    match item.work(now) {
        Some(Work::Send) if item.is_past(now) => {
            return Ok(draft.give_up(ErrorClass::Local, "its time for delivery has ended".into()));
        }
        // Under way, the request must still find the target remembering the key.
        Some(Work::Send) if item.unknown_count > 0 && item.forgets_key_by(lease_until) => {
            return Ok(draft.give_up(ErrorClass::Local, "its key's lifetime ends".into()));
        }
        Some(Work::Send) => {}
        // The key's lifetime ended since the claim.
        Some(Work::LookUp) => return Ok(draft.queue_at(now).done()),
        None => {
            return Ok(draft.in_doubt(ErrorClass::Local, "no further attempt is safe".into()));
        }
    }
    draft.to.state = State::Sending;
    draft.to.attempts_count = item.attempts_count.saturating_add(1);
    draft.to.lookups_count = 0;
    draft.to.first_dispatch_at = item.first_dispatch_at.or(Some(now));
    draft.to.last_send_until = item.last_send_until.max(Some(lease_until));
    if let Some(lease) = &mut draft.to.lease {
        lease.until = lease_until;
    }
    Ok(draft.audit("attempt_started").done())
}

/// The sender's own lease, never shorter than it was. The attempt was granted for that time: the
/// key must outlive a longer one, too.
fn renew(item: &Delivery, lease_until: Timestamp, now: Timestamp) -> Result<Change, IllegalStep> {
    let forgets = item.unknown_count > 0 && item.forgets_key_by(lease_until);
    if forgets || !item.may_send(now) {
        let rule = "the target may forget its key before the request ends";
        return Err(IllegalStep { from: item.state, event: "send", rule });
    }
    let mut draft = Draft::of(item, now);
    if let Some(lease) = &mut draft.to.lease {
        lease.until = lease.until.max(lease_until);
        draft.to.last_send_until = item.last_send_until.max(Some(lease.until));
    }
    Ok(draft.done())
}

fn sent(item: &Delivery, end: SendEnd, seed: u64, now: Timestamp) -> Change {
    let mut draft = Draft::of(item, now);
    draft.settle_send(item, now);
    match end {
        SendEnd::Applied { external_id, result } => draft.deliver(external_id, result, "delivered"),
        SendEnd::Unknown { class, words, retry_after } => {
            draft.target = (!class.is_destination_down()).then_some(TargetChange::Open);
            unknown(draft, class, words, retry_after, seed)
        }
        SendEnd::NotApplied { class, words, then } => not_applied(draft, class, words, then, seed),
    }
}

fn not_applied(
    mut draft: Draft,
    class: ErrorClass,
    words: String,
    then: Then,
    seed: u64,
) -> Change {
    let is_probe = draft.from.lease.is_some_and(|lease| lease.probe);
    match then {
        Then::ParkTarget => {
            draft.uncount();
            draft.target = Some(TargetChange::Park { class, words: words.clone(), hold: None });
            let due = draft.now.plus(draft.to.terms.backoff_base);
            draft.fail(class, words).queue_at(due).audit("target_parked").done()
        }
        Then::DeadLetter => {
            draft.target = Some(TargetChange::Open);
            if draft.to.unknown_count > 0 && draft.to.terms.contract.has_lookup() {
                // The target would say the same to every repeat: what is left is to search.
                draft.to.attempt_limit = draft.to.attempts_count;
            }
            draft.give_up(class, words)
        }
        Then::Retry { after } => {
            if is_probe && class.is_destination_down() {
                draft.uncount();
            }
            let cap = draft.to.terms.backoff_cap;
            let asked = after.map(|after| pause_asked_for(after, cap));
            draft.target = match asked {
                // Longer than we ever wait: nobody sleeps on it, the target is looked at again.
                Some(asked) if asked.over_cap => Some(TargetChange::Park {
                    class,
                    words: words.clone(),
                    hold: Some(asked.pause),
                }),
                _ => (!class.is_destination_down()).then_some(TargetChange::Open),
            };
            let asked = asked.map(|asked| asked.pause);
            draft.retry(class, words, asked, seed)
        }
    }
}

/// An attempt that may have taken effect: what follows is the contract's.
fn unknown(
    mut draft: Draft,
    class: ErrorClass,
    words: String,
    retry_after: Option<Duration>,
    seed: u64,
) -> Change {
    draft.to.unknown_count = draft.to.unknown_count.saturating_add(1);
    // Of a target that does not answer, trying spends nothing of the item's attempts, where another
    // one makes no second effect.
    let is_probe = draft.from.lease.is_some_and(|lease| lease.probe);
    let is_safe = draft.to.terms.contract != Contract::AtLeastOnce;
    if is_probe && is_safe && class.is_destination_down() {
        draft.to.attempt_limit = draft.to.attempt_limit.saturating_add(1);
    }
    match class {
        ErrorClass::KeyReused => {
            let mut change = draft.in_doubt(class, words);
            change.alarm = Some(Alarm::KeyReused);
            return change;
        }
        // The target would say the same to every retry.
        ErrorClass::KeyReplayed => return draft.in_doubt(class, words),
        _ => {}
    }
    if draft.to.terms.contract == Contract::Never {
        return draft.in_doubt(class, words);
    }
    let cap = draft.to.terms.backoff_cap;
    let asked = retry_after.map(|after| pause_asked_for(after, cap).pause);
    draft.retry(class, words, asked, seed)
}

fn looked_up(item: &Delivery, end: LookupEnd, seed: u64, now: Timestamp) -> Change {
    let mut draft = Draft::of(item, now);
    draft.to.lookups_count = item.lookups_count.saturating_add(1);
    match end {
        LookupEnd::Found { external_id, result } => draft.deliver(external_id, result, "found"),
        LookupEnd::Many => {
            let words = "the target holds more than one effect with this operation's marker";
            let mut change = draft.in_doubt(ErrorClass::ManyMatches, words.into());
            change.alarm = Some(Alarm::ManyMatches);
            change
        }
        LookupEnd::Absent { begun_at } => match item.absence_proves_from() {
            Some(from) if begun_at >= from => {
                // Every attempt so far is proved to have done nothing.
                draft.to.unknown_count = 0;
                if draft.is_exhausted(now) {
                    let words = "proved absent at the target; no attempts are left".to_owned();
                    return draft.give_up(ErrorClass::LookupOpen, words);
                }
                draft.queue_at(now).audit("proved_absent").done()
            }
            // Too early to prove anything: again when it would, by the searcher's clock, which may be
            // behind a ledger's that was set forward.
            Some(from) => draft.look_again(now.plus(from.since(begun_at)), "not found yet".into()),
            None => {
                let due = now.plus(draft.lookup_pause(None, seed));
                draft.look_again(due, "not found, which proves nothing here".into())
            }
        },
        LookupEnd::Barred { class, words } => {
            // It told nothing of the item: the search does not count.
            draft.to.lookups_count = item.lookups_count;
            draft.target = Some(TargetChange::Park { class, words: words.clone(), hold: None });
            let due = now.plus(item.terms.backoff_base);
            draft.fail(class, words).queue_at(due).audit("target_parked").done()
        }
        LookupEnd::Open { words, retry_after } => {
            let due = now.plus(draft.lookup_pause(retry_after, seed));
            draft.look_again(due, words)
        }
    }
}

/// What a report proves that came from a worker that lost the item: only that the effect is there.
fn late(
    item: &Delivery,
    evidence: Option<(Option<String>, StoredResult)>,
    now: Timestamp,
) -> Change {
    let mut draft = Draft::of(item, now);
    draft.fenced = true;
    let Some((external_id, result)) = evidence else {
        return Change { delivery: item.clone(), ..draft.done() };
    };
    match item.state {
        // Evidence of one effect twice is no news; of two effects it is, where there must be one.
        State::Delivered
            if item.terms.contract != Contract::AtLeastOnce
                && external_id.is_some()
                && item.external_id.is_some()
                && item.external_id != external_id =>
        {
            draft.words = Some("the target names another effect than before".into());
            draft.alarm = Some(Alarm::ManyMatches);
            let change = draft.audit("second_effect").done();
            Change { delivery: item.clone(), ..change }
        }
        State::Delivered => Change { delivery: item.clone(), ..draft.done() },
        State::Cancelled => {
            draft.to.late_contradiction = true;
            draft.to.external_id = external_id;
            draft.keep_state = true;
            draft.alarm = Some(Alarm::LateContradiction);
            draft.audit("late_contradiction").done()
        }
        _ => draft.deliver(external_id, result, "delivered_late"),
    }
}

fn evidence_of(end: SendEnd) -> Option<(Option<String>, StoredResult)> {
    match end {
        SendEnd::Applied { external_id, result } => Some((external_id, result)),
        SendEnd::NotApplied { .. } | SendEnd::Unknown { .. } => None,
    }
}

fn found_in(end: LookupEnd) -> Option<(Option<String>, StoredResult)> {
    match end {
        LookupEnd::Found { external_id, result } => Some((external_id, result)),
        LookupEnd::Many
        | LookupEnd::Absent { .. }
        | LookupEnd::Barred { .. }
        | LookupEnd::Open { .. } => None,
    }
}

fn park(item: &Delivery, reason: ParkReason, now: Timestamp) -> Change {
    let mut draft = Draft::of(item, now);
    draft.end(State::Parked);
    draft.to.park = Some(reason);
    draft.words = Some(reason.as_str().to_owned());
    draft.audit("parked").done()
}

fn redrive(item: &Delivery, now: Timestamp) -> Result<Change, IllegalStep> {
    let refuse = |rule| Err(IllegalStep { from: item.state, event: "redrive", rule });
    if item.state == State::Parked {
        // That the configuration was put right nobody sees but the worker. It looks again before the
        // first byte, and parks the item again if it was not.
        return match item.park {
            Some(ParkReason::AccountChanged) => {
                Ok(Draft::of(item, now).queue_at(now).audit("redriven").done())
            }
            _ => refuse(ONLY_DEAD_LETTERS),
        };
    }
    if !item.may_send(now) {
        return match item.terms.contract {
            // The promise has run out since: from here on only a person can settle it.
            Contract::Key { .. } | Contract::KeyAndLookup { .. } => {
                let words = "the target may have forgotten the key".to_owned();
                Ok(Draft::of(item, now).in_doubt(ErrorClass::Local, words))
            }
            Contract::Lookup { .. } | Contract::Never | Contract::AtLeastOnce => refuse(
                "an attempt may have been done; look at the target, then use `counterfoil \
                 operation resolve`",
            ),
        };
    }
    let mut draft = Draft::of(item, now);
    draft.to.attempt_limit = item.attempts_count.saturating_add(item.terms.max_attempts_count);
    draft.to.deliver_by = item.terms.deliver_within.map(|within| now.plus(within));
    Ok(draft.queue_at(now).audit("redriven").done())
}

fn withdraw(item: &Delivery, how: Withdrawal, now: Timestamp) -> Result<Change, IllegalStep> {
    let event = match how {
        Withdrawal::Cancel => "cancel",
        Withdrawal::Abandon => "abandon",
    };
    let refuse = |rule| Err(IllegalStep { from: item.state, event, rule });
    let ended = match (how, item.state) {
        (Withdrawal::Cancel, State::Queued | State::Parked) => Ended::Cancelled,
        (Withdrawal::Abandon, State::Queued | State::Parked | State::DeadLetter) => {
            if !item.is_proved_absent() {
                return refuse(
                    "an attempt may have been done; look at the target, then use `counterfoil \
                     operation resolve`",
                );
            }
            Ended::Abandoned
        }
        (_, State::Leased | State::Sending) => {
            return refuse("a worker holds it; try again when its attempt has ended");
        }
        (Withdrawal::Cancel, State::DeadLetter) => {
            return refuse("it waits for nothing; use `counterfoil delivery abandon`");
        }
        (_, State::InDoubt) => return refuse("use `counterfoil operation resolve`"),
        (_, State::Delivered | State::Cancelled) => return refuse("it has ended"),
    };
    let mut draft = Draft::of(item, now);
    if !item.is_proved_absent() {
        let mut change = draft.in_doubt(
            ErrorClass::Local,
            "cancelled after an attempt that may have been done".into(),
        );
        change.audit = Some("cancelled_in_doubt");
        return Ok(change);
    }
    draft.end(State::Cancelled);
    draft.to.ended = Some(ended);
    draft.operation = Some(operation::Event::Withdraw);
    draft.result = Some(StoredResult::from_text(match ended {
        Ended::Abandoned => "abandoned by an operator before anything was done",
        _ => "cancelled by an operator before anything was done",
    }));
    Ok(draft.audit(ended.as_str()).done())
}

fn resolve(item: &Delivery, verdict: Verdict, now: Timestamp) -> Result<Change, IllegalStep> {
    match (item.state, verdict) {
        (State::DeadLetter | State::InDoubt, _) => {}
        (State::Cancelled, Verdict::Applied) if item.late_contradiction => {
            return Ok(correct(item, now));
        }
        (from, _) => {
            let rule =
                "it is settled, or still on its way; cancel it first, or wait for its outcome";
            return Err(IllegalStep { from, event: "resolve", rule });
        }
    }
    let mut draft = Draft::of(item, now);
    draft.end(match verdict {
        Verdict::Applied => State::Delivered,
        Verdict::NotApplied => State::Cancelled,
    });
    draft.to.ended = Some(Ended::Resolved);
    draft.operation = Some(operation::Event::Resolve(verdict));
    // The operation's own event says who and why.
    Ok(draft.done())
}

/// The target said that it did what was settled as not applied, and an operator takes its word.
fn correct(item: &Delivery, now: Timestamp) -> Change {
    let mut draft = Draft::of(item, now);
    draft.end(State::Delivered);
    draft.to.ended = Some(Ended::Resolved);
    draft.to.late_contradiction = false;
    draft.operation = Some(operation::Event::Correct);
    draft.done()
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
