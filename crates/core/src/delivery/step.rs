//! The steps of one item: one `(state, event)` match. What is illegal is an error that names both;
//! what comes too late changes nothing but evidence.

use std::time::Duration;

use crate::delivery::contract::Contract;
use crate::delivery::item::{Delivery, Ended, Lease, ParkReason, State, Withdrawal, Work};
use crate::delivery::outcome::{ErrorClass, LookupEnd, SendEnd, Then};
use crate::identity::BootId;
use crate::operation::{self, Outcome, Verdict};
use crate::record::StoredResult;
use crate::retry::{backoff, pause_asked_for};
use crate::time::Timestamp;

/// What happens to an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A worker takes it, to send it or to look for its effect.
    Claim {
        /// The holder.
        lease: Lease,
    },
    /// Its holder is about to send the first byte, and may be sending until `lease_until`.
    BeginSend {
        /// The holder's run and fence.
        by: (BootId, i64),
        /// The lease, renewed: it covers the whole request.
        lease_until: Timestamp,
    },
    /// Its holder gives it back unsent, or leaves a lookup undone.
    HandBack {
        /// The holder's run and fence.
        by: (BootId, i64),
    },
    /// A request ended.
    Sent {
        /// The sender's run and fence, which may have lost the item since.
        by: (BootId, i64),
        /// How.
        end: SendEnd,
        /// Randomness for the pause.
        seed: u64,
    },
    /// A search ended.
    LookedUp {
        /// The searcher's run and fence, which may have lost the item since.
        by: (BootId, i64),
        /// How.
        end: LookupEnd,
        /// Randomness for the pause.
        seed: u64,
    },
    /// Its lease has ended and nobody renewed it.
    Lapse {
        /// Randomness for the pause.
        seed: u64,
    },
    /// Something stands against this one item.
    Park(ParkReason),
    /// It does not any more.
    Unpark,
    /// An operator wants it sent again.
    Redrive,
    /// An operator ends it.
    Withdraw(Withdrawal),
    /// An operator says what became of it.
    Resolve(Verdict),
}

/// A legal step, decided whole: what the row becomes, and what goes with it in the same
/// transaction. Only [`step`] makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The item as it becomes.
    pub delivery: Delivery,
    /// What happens to its operation.
    pub operation: Option<operation::Event>,
    /// The result to store with the operation, where it is settled by evidence.
    pub result: Option<StoredResult>,
    /// The kind of audit event; `None` for what leaves no trace, as a claim.
    pub audit: Option<&'static str>,
    /// Words for the audit event.
    pub words: Option<String>,
    /// What it tells of the target.
    pub target: Option<TargetChange>,
    /// What an operator must hear of.
    pub alarm: Option<Alarm>,
    /// The reporter did not hold the item any more: nothing of its lease or counts was changed.
    pub fenced: bool,
}

/// What an outcome tells of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetChange {
    /// It is well: if it was parked, it is open again.
    Open,
    /// It takes nothing from us for now.
    Park {
        /// Why.
        class: ErrorClass,
        /// For people.
        words: String,
        /// The pause that it asked for.
        hold: Option<Duration>,
    },
}

/// What an operator must hear of at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alarm {
    /// The target did it after the operation was settled as not applied.
    LateContradiction,
    /// The target holds more than one effect with this operation's marker.
    ManyMatches,
    /// The target says that the key was used with another request.
    KeyReused,
    /// The item ended in doubt.
    InDoubt,
    /// The item is a dead letter.
    DeadLetter,
}

/// The pair of state and event has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event} is refused for an item that is {}: {rule}", .from.as_str())]
pub struct IllegalStep {
    /// The state.
    pub from: State,
    /// The event's name.
    pub event: &'static str,
    /// Why, and what to do.
    pub rule: &'static str,
}

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
            Ok(renew(item, lease_until, now))
        }
        (_, Event::BeginSend { .. }) => refuse("send", "another holds it, or nobody"),

        (State::Leased, Event::HandBack { by }) if item.is_held(by) => {
            Ok(Draft::of(item, now).queue_at(now).done())
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

        (State::DeadLetter, Event::Redrive) => redrive(item, now),
        (State::InDoubt, Event::Redrive) => refuse(
            "redrive",
            "it may have been done already; look at the target, then use `counterfoil operation \
             resolve`",
        ),
        (State::Cancelled, Event::Redrive) => {
            refuse("redrive", "a person ended it for good; submit it under a new operation ID")
        }
        (_, Event::Redrive) => refuse("redrive", "only a dead letter can be sent again"),

        (_, Event::Withdraw(how)) => withdraw(item, how, now),
        (State::DeadLetter | State::InDoubt, Event::Resolve(verdict)) => {
            Ok(resolve(item, verdict, now))
        }
        (_, Event::Resolve(_)) => refuse(
            "resolve",
            "it is settled, or still on its way; cancel it first, or wait for its outcome",
        ),
    }
}

impl Delivery {
    fn is_held(&self, (boot, fence): (BootId, i64)) -> bool {
        self.fence == fence && self.lease.is_some_and(|lease| lease.boot == boot)
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

/// The sender's own lease, never shorter than it was.
fn renew(item: &Delivery, lease_until: Timestamp, now: Timestamp) -> Change {
    let mut draft = Draft::of(item, now);
    if let Some(lease) = &mut draft.to.lease {
        lease.until = lease.until.max(lease_until);
        draft.to.last_send_until = item.last_send_until.max(Some(lease.until));
    }
    draft.done()
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
            // Too early to prove anything: again when it would.
            Some(from) => draft.look_again(from.max(now), "not found yet".into()),
            None => {
                let due = now.plus(draft.lookup_pause(None, seed));
                draft.look_again(due, "not found, which proves nothing here".into())
            }
        },
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
        LookupEnd::Many | LookupEnd::Absent { .. } | LookupEnd::Open { .. } => None,
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

fn resolve(item: &Delivery, verdict: Verdict, now: Timestamp) -> Change {
    let mut draft = Draft::of(item, now);
    draft.end(match verdict {
        Verdict::Applied => State::Delivered,
        Verdict::NotApplied => State::Cancelled,
    });
    draft.to.ended = Some(Ended::Resolved);
    draft.operation = Some(operation::Event::Resolve(verdict));
    // The operation's own event says who and why.
    draft.done()
}

/// A change in the making.
struct Draft {
    from: Delivery,
    to: Delivery,
    now: Timestamp,
    operation: Option<operation::Event>,
    result: Option<StoredResult>,
    audit: Option<&'static str>,
    words: Option<String>,
    target: Option<TargetChange>,
    alarm: Option<Alarm>,
    fenced: bool,
    keep_state: bool,
}

impl Draft {
    fn of(item: &Delivery, now: Timestamp) -> Self {
        let mut to = item.clone();
        to.updated_at = now;
        Self {
            from: item.clone(),
            to,
            now,
            operation: None,
            result: None,
            audit: None,
            words: None,
            target: None,
            alarm: None,
            fenced: false,
            keep_state: false,
        }
    }

    /// The holder itself says that its request has ended: nobody writes any more.
    fn settle_send(&mut self, item: &Delivery, now: Timestamp) {
        let own = item.lease.map(|lease| lease.until);
        if item.last_send_until == own {
            self.to.last_send_until = Some(now);
        }
    }

    /// The attempt cost nothing and proved nothing of the item.
    fn uncount(&mut self) {
        self.to.attempts_count = self.to.attempts_count.saturating_sub(1);
    }

    fn is_exhausted(&self, next: Timestamp) -> bool {
        self.to.attempts_count >= self.to.attempt_limit || self.to.is_past(next)
    }

    fn audit(mut self, kind: &'static str) -> Self {
        self.audit = Some(kind);
        self
    }

    fn fail(mut self, class: ErrorClass, words: String) -> Self {
        self.words = Some(words.clone());
        self.to.last_error = Some((class, words));
        self
    }

    fn queue_at(mut self, due: Timestamp) -> Self {
        self.to.state = State::Queued;
        self.to.lease = None;
        self.to.park = None;
        self.to.next_attempt_at = Some(due);
        self
    }

    /// Another attempt after a pause, or the end of the attempts.
    fn retry(self, class: ErrorClass, words: String, asked: Option<Duration>, seed: u64) -> Change {
        let terms = self.to.terms;
        let tries = self.to.attempts_count.max(1) - 1;
        let own = backoff(terms.backoff_base, terms.backoff_cap, tries, seed);
        let due = self.now.plus(own.max(asked.unwrap_or_default()));
        if self.is_exhausted(due) {
            return self.give_up(class, words);
        }
        let pause_ms = due.since(self.now).as_millis();
        let mut draft = self.fail(class, words).queue_at(due).audit("retry_scheduled");
        draft.words = draft.words.map(|words| format!("{words}; next attempt in {pause_ms} ms"));
        draft.done()
    }

    fn lookup_pause(&self, asked: Option<Duration>, seed: u64) -> Duration {
        let terms = self.to.terms;
        let tries = self.to.lookups_count.max(1) - 1;
        let own = backoff(terms.backoff_base, terms.backoff_cap, tries, seed);
        let asked =
            asked.map_or(Duration::ZERO, |after| pause_asked_for(after, terms.backoff_cap).pause);
        own.max(asked)
    }

    /// Another search, or the end of the searches.
    fn look_again(self, due: Timestamp, words: String) -> Change {
        if self.to.lookups_count >= self.to.terms.max_attempts_count {
            return self.leave_to_people(ErrorClass::LookupOpen, words);
        }
        self.fail(ErrorClass::LookupOpen, words).queue_at(due).audit("lookup_open").done()
    }

    /// No attempt is left. Searches may be.
    fn give_up(self, class: ErrorClass, words: String) -> Change {
        if self.to.unknown_count > 0 && self.to.terms.contract.has_lookup() {
            let due = self.now.plus(self.to.terms.backoff_base);
            return self.fail(class, words).queue_at(due).audit("lookup_scheduled").done();
        }
        self.leave_to_people(class, words)
    }

    /// What can be sent again safely is a dead letter; what cannot is in doubt.
    fn leave_to_people(self, class: ErrorClass, words: String) -> Change {
        if !self.to.may_send(self.now) {
            return self.in_doubt(class, words);
        }
        let mut draft = self.fail(class, words);
        draft.end(State::DeadLetter);
        draft.alarm = Some(Alarm::DeadLetter);
        draft.audit("dead_letter").done()
    }

    fn in_doubt(self, class: ErrorClass, words: String) -> Change {
        let mut draft = self.fail(class, words);
        draft.end(State::InDoubt);
        draft.operation = Some(operation::Event::Learn(Outcome::Unknown));
        draft.alarm = Some(Alarm::InDoubt);
        draft.audit("in_doubt").done()
    }

    fn deliver(
        mut self,
        external_id: Option<String>,
        result: StoredResult,
        kind: &'static str,
    ) -> Change {
        self.end(State::Delivered);
        self.to.external_id = external_id;
        self.operation = Some(operation::Event::Learn(Outcome::Applied));
        self.result = Some(result);
        self.target = Some(TargetChange::Open);
        self.audit(kind).done()
    }

    fn end(&mut self, state: State) {
        self.to.state = state;
        self.to.lease = None;
        self.to.park = None;
        self.to.next_attempt_at = None;
    }

    fn done(mut self) -> Change {
        if self.keep_state {
            self.to.state = self.from.state;
        }
        Change {
            delivery: self.to,
            operation: self.operation,
            result: self.result,
            audit: self.audit,
            words: self.words,
            target: self.target,
            alarm: self.alarm,
            fenced: self.fenced,
        }
    }
}
