//! One item's way through its states, as data: terms, events with their times, and where it ends.

use super::*;
use crate::delivery::contract::Terms;
use crate::delivery::target::TargetName;
use crate::identity::OperationKey;
use crate::operation::Outcome;

const HOUR: u64 = 3_600_000;
const LEASE: i64 = 30_000;
const A: BootId = BootId::from_bytes([1; 16]);
const B: BootId = BootId::from_bytes([2; 16]);

fn terms(contract: Contract) -> Terms {
    Terms {
        contract,
        max_attempts_count: 3,
        backoff_base: Duration::from_secs(1),
        backoff_cap: Duration::from_secs(60),
        send_limit: Duration::from_secs(10),
        deliver_within: Some(Duration::from_millis(48 * HOUR)),
    }
    .check()
    .expect("good terms")
}

fn key() -> Contract {
    Contract::Key { lifetime: Duration::from_millis(24 * HOUR) }
}

fn lookup() -> Contract {
    Contract::Lookup { absence_after: Some(Duration::from_secs(60)) }
}

struct Story {
    item: Delivery,
    now: i64,
    last: Option<Change>,
}

impl Story {
    fn of(contract: Contract) -> Self {
        let target = TargetName::parse("desk").expect("a name");
        let operation = OperationKey::from_bytes([1; 16]);
        let item = Delivery::accepted(operation, target, terms(contract), Timestamp::from_ms(0));
        Self { item, now: 0, last: None }
    }

    fn at(mut self, ms: i64) -> Self {
        assert!(ms >= self.now, "time goes forward");
        self.now = ms;
        self
    }

    fn then(mut self, event: Event) -> Self {
        let change = step(&self.item, event, Timestamp::from_ms(self.now)).expect("legal");
        self.item = change.delivery.clone();
        self.last = Some(change);
        self
    }

    fn refused(&self, event: Event) {
        step(&self.item, event, Timestamp::from_ms(self.now)).expect_err("illegal");
    }

    fn until(&self) -> Timestamp {
        Timestamp::from_ms(self.now + LEASE)
    }

    fn claim(self, boot: BootId, probe: bool) -> Self {
        let lease = Lease { boot, until: self.until(), probe };
        self.then(Event::Claim { lease })
    }

    /// Claimed and on its way.
    fn send(self, boot: BootId) -> Self {
        let story = self.claim(boot, false);
        let (by, lease_until) = ((boot, story.item.fence), story.until());
        story.then(Event::BeginSend { by, lease_until })
    }

    fn ends(self, boot: BootId, end: SendEnd) -> Self {
        let by = (boot, self.item.fence);
        self.then(Event::Sent { by, end, seed: u64::MAX })
    }

    fn looks(self, boot: BootId, end: LookupEnd) -> Self {
        let by = (boot, self.item.fence);
        self.then(Event::LookedUp { by, end, seed: u64::MAX })
    }

    fn absent(self, boot: BootId) -> Self {
        let begun_at = Timestamp::from_ms(self.now);
        self.looks(boot, LookupEnd::Absent { begun_at })
    }

    fn last(&self) -> &Change {
        self.last.as_ref().expect("something happened")
    }

    fn is(self, state: State, operation: Option<operation::Event>) -> Self {
        assert_eq!(self.item.state, state, "{:?}", self.item);
        assert_eq!(self.last().operation, operation);
        self
    }
}

fn applied() -> SendEnd {
    SendEnd::Applied { external_id: Some("7".into()), result: StoredResult::from_text("7") }
}

fn lost() -> SendEnd {
    SendEnd::Unknown { class: ErrorClass::ServerError, words: "502".into(), retry_after: None }
}

fn refusal(then: Then) -> SendEnd {
    SendEnd::NotApplied { class: ErrorClass::Rejected, words: "400".into(), then }
}

const AGAIN: Then = Then::Retry { after: None };
const IN_DOUBT: Option<operation::Event> = Some(operation::Event::Learn(Outcome::Unknown));
const DONE: Option<operation::Event> = Some(operation::Event::Learn(Outcome::Applied));

#[test]
fn a_refusal_after_an_unknown_attempt_proves_nothing() {
    // Promise: an operation's outcome joins all its attempts: a 502 after applying, then a 400
    // "already exists", is never "not applied".
    let dead = Story::of(key()).send(A).ends(A, lost()).at(5000).send(A);
    let dead = dead.ends(A, refusal(Then::DeadLetter)).is(State::DeadLetter, None);
    assert_eq!(dead.item.unknown_count, 1);
    dead.refused(Event::Withdraw(Withdrawal::Abandon));
    dead.then(Event::Redrive).is(State::Queued, None);

    let never = Story::of(Contract::Never).send(A).ends(A, lost());
    never.is(State::InDoubt, IN_DOUBT).refused(Event::Redrive);
}

#[test]
fn what_is_refused_for_good_is_searched_for_and_not_sent_again() {
    // Promise: after an attempt whose outcome nobody knows, a refusal of the item itself ends the
    // attempts though some are left: a search tells what became of the first.
    let lifetime = Duration::from_millis(24 * HOUR);
    let absence_after = Some(Duration::from_secs(60));
    let both = || Story::of(Contract::KeyAndLookup { lifetime, absence_after });
    let refused = || {
        let story = both().send(A).ends(A, lost()).at(5000).send(A);
        let story = story.ends(A, refusal(Then::DeadLetter)).is(State::Queued, None).at(6000);
        assert_eq!(story.item.work(Timestamp::from_ms(6000)), Some(Work::LookUp));
        story
    };
    let evidence = LookupEnd::Found { external_id: None, result: StoredResult::from_text("7") };
    refused().claim(A, false).looks(A, evidence).is(State::Delivered, DONE);
    let dead = refused().at(90_000).claim(A, false).absent(A).is(State::DeadLetter, None);
    assert_eq!(dead.item.attempts_count, 2);
    let again = dead.then(Event::Redrive).is(State::Queued, None);
    assert_eq!(again.item.work(Timestamp::from_ms(90_000)), Some(Work::Send));
    assert_eq!(again.item.attempt_limit, 5);
}

#[test]
fn only_a_dead_letter_that_did_nothing_can_be_abandoned() {
    // Promise: a caller who is told to use a new ID never meets the old one's effect.
    let dead = Story::of(key()).send(A).ends(A, refusal(Then::DeadLetter));
    let ended = dead.is(State::DeadLetter, None).then(Event::Withdraw(Withdrawal::Abandon));
    let ended = ended.is(State::Cancelled, Some(operation::Event::Withdraw));
    ended.refused(Event::Redrive);
    ended.refused(Event::Withdraw(Withdrawal::Cancel));
    ended.refused(Event::Claim { lease: Lease { boot: A, until: ended.until(), probe: false } });
}

#[test]
fn a_cancelled_item_is_in_doubt_if_an_attempt_may_have_been_done() {
    // Promise: an operator's cancel claims no more than is proved.
    let waiting = Story::of(key()).then(Event::Withdraw(Withdrawal::Cancel));
    waiting.is(State::Cancelled, Some(operation::Event::Withdraw));
    let tried = Story::of(key()).send(A).ends(A, lost());
    tried.then(Event::Withdraw(Withdrawal::Cancel)).is(State::InDoubt, IN_DOUBT);
    let held = Story::of(key()).send(A);
    held.refused(Event::Withdraw(Withdrawal::Cancel));
    held.refused(Event::Withdraw(Withdrawal::Abandon));
    held.refused(Event::Redrive);
}

#[test]
fn a_key_is_not_used_after_the_target_may_have_forgotten_it() {
    // Promise: a retry or a redrive never meets a target that takes it for new work.
    let first_lost = || Story::of(key()).send(A).ends(A, lost());
    let day = i64::try_from(24 * HOUR).expect("small");
    let margin = i64::try_from(HOUR).expect("small");
    first_lost().at(day - margin - 1).claim(A, false).is(State::Leased, None);
    first_lost().at(day - margin).claim(A, false).is(State::InDoubt, IN_DOUBT);
    // Claimed in time and begun too late.
    let late = first_lost().at(day - margin - 1).claim(A, false).at(day - margin);
    let (by, lease_until) = ((A, late.item.fence), late.until());
    late.then(Event::BeginSend { by, lease_until }).is(State::InDoubt, IN_DOUBT);
    // A lease that would outlast the key.
    let long = first_lost().at(5000).claim(A, false);
    let by = (A, long.item.fence);
    let lease_until = Timestamp::from_ms(day + 1);
    let long = long.then(Event::BeginSend { by, lease_until });
    assert_ne!(long.item.state, State::Sending);
    // Asked again after a lost acknowledgement, for longer than the key lasts, or after its margin.
    let begun = first_lost().at(5000).send(A);
    let again =
        |ms| Event::BeginSend { by: (A, begun.item.fence), lease_until: Timestamp::from_ms(ms) };
    begun.refused(again(day + 1));
    let begun = Story { now: day - margin, ..begun };
    begun.refused(Event::BeginSend { by: (A, begun.item.fence), lease_until: begun.until() });
    // A dead letter that waited too long.
    let dead = first_lost().at(5000).send(A).ends(A, lost()).at(10_000).send(A).ends(A, lost());
    let dead = dead.is(State::DeadLetter, None).at(day);
    dead.then(Event::Redrive).is(State::InDoubt, IN_DOUBT);
}

#[test]
fn absence_is_proved_only_after_the_last_possible_write_and_its_lag() {
    // Promise: "not found" is taken for "not done" only where nothing can still be written.
    let lease = LEASE;
    let lapsed = || Story::of(lookup()).send(A).at(lease).then(Event::Lapse { seed: 0 });
    let early = lapsed().at(lease + 59_999).claim(B, false).absent(B).is(State::Queued, None);
    assert_eq!(early.item.unknown_count, 1);
    assert_eq!(early.item.next_attempt_at, Some(Timestamp::from_ms(lease + 60_000)));
    let proved = lapsed().at(lease + 60_000).claim(B, false).absent(B).is(State::Queued, None);
    assert_eq!(proved.item.unknown_count, 0);
    proved.send(B).is(State::Sending, None);
    // A sender that reported writes no more: the lag counts from its word.
    let told = Story::of(lookup()).send(A).at(100).ends(A, lost()).at(60_100).claim(A, false);
    assert_eq!(told.absent(A).item.unknown_count, 0);
    // Without a number nothing is ever proved, and searches end.
    let mut open = Story::of(Contract::Lookup { absence_after: None }).send(A).ends(A, lost());
    for round in 1..=3 {
        open = open.at(i64::from(round) * 1_000_000).claim(A, false).absent(A);
    }
    open.is(State::InDoubt, IN_DOUBT);
}

#[test]
fn a_search_settles_by_one_match_and_alarms_on_two() {
    // Promise: one match is the effect; two are never followed by a third.
    let looking = || Story::of(lookup()).send(A).ends(A, lost()).at(5000).claim(A, false);
    let result = StoredResult::from_text("7");
    let found = LookupEnd::Found { external_id: Some("7".into()), result };
    let found = looking().looks(A, found).is(State::Delivered, DONE);
    assert_eq!(found.item.external_id.as_deref(), Some("7"));
    let many = looking().looks(A, LookupEnd::Many).is(State::InDoubt, IN_DOUBT);
    assert_eq!(many.last().alarm, Some(Alarm::ManyMatches));
}

#[test]
fn a_lease_is_taken_back_by_what_may_have_happened() {
    // Promise: what was only claimed goes on as if nothing was; what may have been sent follows the
    // contract; a live lease is nobody else's.
    let claimed = Story::of(Contract::Never).claim(A, false);
    claimed.refused(Event::Lapse { seed: 0 });
    let back = claimed.at(LEASE).then(Event::Lapse { seed: 0 }).is(State::Queued, None);
    assert_eq!((back.item.attempts_count, back.item.unknown_count), (0, 0));
    let sent = Story::of(Contract::Never).send(A);
    sent.refused(Event::Lapse { seed: 0 });
    sent.at(LEASE).then(Event::Lapse { seed: 0 }).is(State::InDoubt, IN_DOUBT);
    let keyed = Story::of(key()).send(A).at(LEASE).then(Event::Lapse { seed: 0 });
    let keyed = keyed.is(State::Queued, None);
    assert_eq!((keyed.item.attempts_count, keyed.item.unknown_count), (1, 1));
}

#[test]
fn what_was_begun_and_never_left_goes_back_uncounted() {
    // Promise: a holder that sent nothing, because too little of its lease was left, burns no
    // attempt and leaves no doubt; another's word counts for nothing.
    let story = Story::of(Contract::Never).send(A);
    story.refused(Event::HandBack { by: (B, story.item.fence) });
    let by = (A, story.item.fence);
    let story = story.at(5).then(Event::HandBack { by }).is(State::Queued, None);
    assert_eq!((story.item.attempts_count, story.item.unknown_count), (0, 0));
    assert_eq!(story.item.next_attempt_at, Some(Timestamp::from_ms(5)));
    assert_eq!(story.item.last_send_until, Some(Timestamp::from_ms(5)), "nobody writes any more");
    story.refused(Event::HandBack { by });
}

#[test]
fn the_fence_decides_and_not_the_time() {
    // Promise: a lease that ended and that nobody took may still complete; one that was taken
    // completes nothing, but its evidence of the effect is kept.
    Story::of(key()).send(A).at(LEASE * 9).ends(A, applied()).is(State::Delivered, DONE);

    let taken = || {
        let story = Story::of(key()).send(A).at(LEASE).then(Event::Lapse { seed: 0 });
        story.at(LEASE + 1000).send(B)
    };
    let stale = |end| Event::Sent { by: (A, 1), end, seed: 0 };
    for end in [refusal(AGAIN), refusal(Then::DeadLetter), refusal(Then::ParkTarget), lost()] {
        let before = taken().item;
        let after = taken().then(stale(end));
        assert_eq!(after.item, before);
        assert!(after.last().fenced && after.last().audit.is_none());
        assert_eq!(after.last().target, None);
    }
    let settled = taken().then(stale(applied())).is(State::Delivered, DONE);
    assert!(settled.last().fenced);
    // The second worker's report comes to a delivered item.
    let second = Event::Sent { by: (B, 2), end: applied(), seed: 0 };
    let settled = settled.then(second);
    assert_eq!(settled.last().operation, None);
    assert!(settled.last().audit.is_none());
}

#[test]
fn evidence_against_not_applied_is_an_alarm_and_no_change() {
    // Promise: nobody overlooks that the target did what an operator called not applied.
    let doubt = Story::of(Contract::Never).send(A).ends(A, lost());
    let said = doubt.then(Event::Resolve(Verdict::NotApplied));
    let said = said.is(State::Cancelled, Some(operation::Event::Resolve(Verdict::NotApplied)));
    let late = said.then(Event::Sent { by: (A, 1), end: applied(), seed: 0 });
    let late = late.is(State::Cancelled, None);
    assert!(late.item.late_contradiction);
    assert_eq!(late.last().alarm, Some(Alarm::LateContradiction));
    assert_eq!(late.last().audit, Some("late_contradiction"));
    // Only an operator takes its word, and only as applied.
    late.refused(Event::Resolve(Verdict::NotApplied));
    let corrected = late.then(Event::Resolve(Verdict::Applied));
    let corrected = corrected.is(State::Delivered, Some(operation::Event::Correct));
    assert!(!corrected.item.late_contradiction);
    assert_eq!(corrected.item.external_id.as_deref(), Some("7"));
}

#[test]
fn a_second_effect_is_an_alarm_where_there_must_be_one() {
    // Promise: a target that breaks its contract is noticed: two IDs for one operation.
    let other =
        || SendEnd::Applied { external_id: Some("8".into()), result: StoredResult::from_text("8") };
    for (contract, alarm) in [
        (key(), Some(Alarm::ManyMatches)),
        (lookup(), Some(Alarm::ManyMatches)),
        (Contract::AtLeastOnce, None),
    ] {
        let done = Story::of(contract).send(A).ends(A, applied()).is(State::Delivered, DONE);
        let before = done.item.clone();
        let same = done.then(Event::Sent { by: (B, 9), end: applied(), seed: 0 });
        assert_eq!((same.last().alarm, same.last().audit), (None, None));
        let late = same.then(Event::Sent { by: (B, 9), end: other(), seed: 0 });
        assert_eq!(late.last().alarm, alarm, "{contract:?}");
        assert_eq!(late.item, before);
    }
}

#[test]
fn attempts_and_time_end() {
    // Promise: attempts are finite; the last error stays; a redrive grants as many again.
    let mut story = Story::of(key());
    for round in 0..3 {
        story = story.at(round * 100_000).send(A).ends(A, refusal(AGAIN));
    }
    let dead = story.is(State::DeadLetter, None);
    assert_eq!(dead.last().alarm, Some(Alarm::DeadLetter));
    assert_eq!(dead.item.last_error, Some((ErrorClass::Rejected, "400".into())));
    let mut again = dead.then(Event::Redrive).is(State::Queued, None);
    for round in 3..6 {
        again = again.at(round * 100_000).send(A).ends(A, refusal(AGAIN));
    }
    assert_eq!(again.is(State::DeadLetter, None).item.attempts_count, 6);

    let two_days = i64::try_from(48 * HOUR).expect("small");
    Story::of(key()).at(two_days).claim(A, false).is(State::DeadLetter, None);
    // A search sends nothing: it goes on after the time for attempts.
    let lost = Story::of(lookup()).send(A).ends(A, lost()).at(two_days).claim(A, false);
    assert_eq!(lost.item.work(Timestamp::from_ms(two_days)), Some(Work::LookUp));
    lost.absent(A).is(State::DeadLetter, None);
}

#[test]
fn what_parks_the_target_and_what_a_probe_learns_costs_no_attempt() {
    // Promise: ten minutes of 401 burn nothing; a target that is down burns nothing by its probes.
    let parked = Story::of(key()).send(A).ends(A, refusal(Then::ParkTarget));
    let parked = parked.is(State::Queued, None);
    assert_eq!(parked.item.attempts_count, 0);
    assert!(matches!(parked.last().target, Some(TargetChange::Park { hold: None, .. })));

    let down =
        SendEnd::NotApplied { class: ErrorClass::Connect, words: "refused".into(), then: AGAIN };
    for (probe, counted) in [(false, 1), (true, 0)] {
        let story = Story::of(key()).claim(A, probe);
        let (by, lease_until) = ((A, 1), story.until());
        let story = story.then(Event::BeginSend { by, lease_until }).ends(A, down.clone());
        assert_eq!(story.item.attempts_count, counted);
        assert_eq!(story.last().target, None);
    }
}

#[test]
fn a_probe_whose_outcome_is_unknown_spends_an_attempt_only_where_it_may_double() {
    // Promise: an outage, however long, does not use up the attempts of the items that try the
    // target now and then; where each try may be another effect, they stay bounded.
    let at_least_once = Contract::AtLeastOnce;
    for (contract, probe, limit) in
        [(key(), true, 4), (lookup(), true, 4), (key(), false, 3), (at_least_once, true, 3)]
    {
        let story = Story::of(contract).claim(A, probe);
        let (by, lease_until) = ((A, 1), story.until());
        let story = story.then(Event::BeginSend { by, lease_until }).ends(A, lost());
        let item = &story.item;
        // It was begun, and is told as such.
        assert_eq!((item.attempts_count, item.unknown_count), (1, 1), "{contract:?}");
        assert_eq!(item.attempt_limit, limit, "{contract:?} {probe}");
    }
}

#[test]
fn a_search_that_is_refused_parks_the_target() {
    // Promise: a search that our credential may not make says nothing of the item, and is none of
    // its searches.
    let story = Story::of(lookup()).send(A).ends(A, lost()).at(60_000).claim(B, false);
    let words = "HTTP 401".to_owned();
    let end = LookupEnd::Barred { class: ErrorClass::Credential, words };
    let story = story.then(Event::LookedUp { by: (B, 2), end, seed: 0 }).is(State::Queued, None);
    assert_eq!((story.item.lookups_count, story.item.unknown_count), (0, 1));
    assert!(matches!(story.last().target, Some(TargetChange::Park { hold: None, .. })));
    assert_eq!(story.last().audit, Some("target_parked"));
}

#[test]
fn a_pause_beyond_all_patience_parks_the_target() {
    // Promise: nothing sleeps for a year because a target said so.
    let long = Some(Duration::from_secs(30_000_000));
    let end = SendEnd::NotApplied {
        class: ErrorClass::RateLimited,
        words: "429".into(),
        then: Then::Retry { after: long },
    };
    let story = Story::of(key()).send(A).ends(A, end).is(State::Queued, None);
    assert_eq!(story.item.next_attempt_at, Some(Timestamp::from_ms(60_000)));
    let Some(TargetChange::Park { hold, .. }) = &story.last().target else { panic!("parked") };
    assert_eq!(*hold, Some(Duration::from_secs(60)));
}

#[test]
fn what_stands_against_an_item_parks_it_until_it_does_not() {
    // Promise: a revoked principal's items wait, and nothing of them is lost.
    for reason in ParkReason::ALL {
        let parked = Story::of(key()).claim(A, false).then(Event::Park(reason));
        let parked = parked.is(State::Parked, None);
        assert_eq!(parked.item.park, Some(reason));
        let (by, lease_until) = ((A, 1), parked.until());
        parked.refused(Event::BeginSend { by, lease_until });
        let free = parked.then(Event::Unpark).is(State::Queued, None);
        assert_eq!(free.item.park, None);
    }
    Story::of(key()).send(A).refused(Event::Park(ParkReason::TenantRevoked));
}

#[test]
fn what_was_parked_for_an_account_goes_on_when_a_person_has_put_it_right() {
    // Promise: an edit of the configuration that is taken back loses no item; what goes on by itself
    // is nobody's to send, and no order grants more attempts than there were.
    for reason in ParkReason::ALL {
        let parked = Story::of(key()).send(A).ends(A, lost()).at(60_000).claim(A, false);
        let parked = parked.then(Event::Park(reason));
        if reason != ParkReason::AccountChanged {
            parked.refused(Event::Redrive);
            continue;
        }
        let again = parked.then(Event::Redrive).is(State::Queued, None).item;
        assert_eq!((again.park, again.unknown_count, again.attempt_limit), (None, 1, 3));
    }
}

#[test]
fn a_key_that_the_target_quarrels_about_is_for_people() {
    // Promise: a key used with other parameters, or a stored failure, is not sent for ever.
    for (class, alarm) in
        [(ErrorClass::KeyReused, Alarm::KeyReused), (ErrorClass::KeyReplayed, Alarm::InDoubt)]
    {
        let end = SendEnd::Unknown { class, words: String::new(), retry_after: None };
        let story = Story::of(key()).send(A).ends(A, end).is(State::InDoubt, IN_DOUBT);
        assert_eq!(story.last().alarm, Some(alarm));
    }
}
