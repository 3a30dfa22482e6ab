//! What attempts come to: nothing is sent again that may have been done and is not safe to repeat,
//! and nothing is told as not done that may have been.

use std::time::Duration;

use counterfoil_core::delivery::{
    Alarm, Contract, ErrorClass, LookupEnd, SendEnd, State, Then, Work,
};
use counterfoil_core::limits::MAX_RESULT_BYTES;
use counterfoil_core::operation::{self, Verdict};
use counterfoil_core::record::{Resolution, StoredResult};
use counterfoil_store::outbox::{Begun, Claim, ClaimedItem, Directed, Happened, Reported};
use counterfoil_store::{Resolve, Resolved, UnderWay};

use super::super::calls::call;
use super::{
    ABANDON, CANCEL, DAY, Desk, KEY, KEY_AND_LOOKUP, LEASE, LONGEST, LOOKUP, OTHER_BOOT,
    OutboxFactory, QUEUED, REDRIVE, applied, at, claim, found, not_applied, refused, report,
    result, secs, unknown, unknown_as, unreachable,
};

const MS: Duration = Duration::from_millis(1);
/// For so long a key of a day's lifetime is used, counted from its first request.
const KEY_USED_FOR: Duration = Duration::from_secs(23 * 3600);

pub async fn what_the_target_did_settles_the_operation<F: OutboxFactory>() {
    // Promise: the target's own answer is stored with the operation, in the transaction that settles
    // it, and is what every later question gets.
    let mut desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let item = desk.sending().await;
    desk.pass(secs(2));
    let reported = desk.report(&item, Happened::Sent(applied())).await;
    let expected = Reported {
        state: Some(State::Delivered),
        alarm: None,
        fenced: false,
        parked_target: false,
    };
    assert_eq!(reported, expected);
    desk.reopen().await;
    let view = desk.view(key).await;
    assert_eq!(view.delivery.external_id.as_deref(), Some("T-1"));
    assert_eq!((view.delivery.lease, view.delivery.next_attempt_at), (None, None));
    assert_eq!(view.record.state, operation::State::Applied);
    assert_eq!(view.record.result, Some(result("T-1")));
    assert_eq!(view.record.settled_at, Some(at(secs(2))));
    assert_eq!(view.record.retention_ends_at, Some(at(secs(2) + 30 * DAY)));
    assert_eq!(desk.next_due().await, None);
}

pub async fn an_answer_too_large_to_keep_is_an_answer<F: OutboxFactory>() {
    // Promise: what the target did is never lost for the size of its answer.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let huge = StoredResult::from_text(&"x".repeat(MAX_RESULT_BYTES));
    desk.attempt(SendEnd::Applied { external_id: None, result: huge }).await;
    let record = desk.record(key).await;
    assert_eq!(record.state, operation::State::Applied);
    assert!(record.result.expect("kept").as_json().contains("too large"));
}

pub async fn an_unknown_attempt_outlives_every_later_refusal<F: OutboxFactory>() {
    // Promise: after one attempt that may have been done, no refusal, no exhaustion and no order
    // makes the operation "not applied" (the target answers 502 after it did it, then 400 because it
    // has it already).
    for (contract, second, state, operation) in [
        (KEY, refused(), State::DeadLetter, QUEUED),
        (Contract::AtLeastOnce, refused(), State::DeadLetter, QUEUED),
        // A search may still tell.
        (KEY_AND_LOOKUP, refused(), State::Queued, QUEUED),
        (KEY, unreachable(), State::Queued, QUEUED),
        (KEY, unknown_as(ErrorClass::KeyReused), State::InDoubt, operation::State::InDoubt),
        (KEY, unknown_as(ErrorClass::KeyReplayed), State::InDoubt, operation::State::InDoubt),
    ] {
        let desk = Desk::<F>::new();
        let key = desk.fresh("op-1", contract).await;
        desk.attempt(unknown()).await;
        desk.check(key, State::Queued, QUEUED).await;
        desk.pass(secs(1));
        desk.attempt(second).await;
        desk.check(key, state, operation).await;
        for order in [ABANDON, CANCEL] {
            desk.order(key, order).await;
            let record = desk.record(key).await;
            assert_ne!(record.state, operation::State::NotApplied, "{contract:?} {order:?}");
        }
        assert!(desk.item(key).await.unknown_count >= 1);
    }
}

pub async fn refusals_alone_prove_that_nothing_was_done<F: OutboxFactory>() {
    // Promise: the attempts are as many as the terms say, with pauses between them; if every one of
    // them did nothing, the end is a dead letter that can be abandoned, under every contract.
    for contract in [KEY, LOOKUP, Contract::Never, Contract::AtLeastOnce] {
        let desk = Desk::<F>::new();
        let key = desk.fresh("op-1", contract).await;
        for (number, pause_s) in [(1, 1), (2, 2)] {
            let item = desk.sending().await;
            let mut told = report(&item, Happened::Sent(unreachable()));
            told.seed = LONGEST;
            let started = desk.outbox.now();
            assert_eq!(desk.report_all(vec![told]).await[0].state, Some(State::Queued));
            let item = desk.item(key).await;
            assert_eq!((item.attempts_count, item.unknown_count), (number, 0));
            assert_eq!(item.next_attempt_at, Some(started.plus(secs(pause_s))));
            assert_eq!(item.last_error, Some((ErrorClass::Connect, "refused".into())));
            desk.pass(secs(pause_s) - MS);
            assert!(desk.claim(1).await.items.is_empty());
            desk.pass(MS);
        }
        let last = desk.attempt(unreachable()).await;
        assert_eq!((last.state, last.alarm), (Some(State::DeadLetter), Some(Alarm::DeadLetter)));
        desk.check(key, State::DeadLetter, QUEUED).await;
        assert!(matches!(desk.order(key, ABANDON).await, Directed::Done(_)));
        desk.check(key, State::Cancelled, operation::State::NotApplied).await;
        assert!(matches!(desk.order(key, REDRIVE).await, Directed::Illegal(_)));
    }
}

pub async fn the_contract_decides_after_an_unknown_attempt<F: OutboxFactory>() {
    // Promise: without a contract that makes a repeat harmless nothing is sent again after an
    // attempt that nobody knows the outcome of.
    for (contract, next) in [
        (KEY, Some(Work::Send)),
        (KEY_AND_LOOKUP, Some(Work::Send)),
        (Contract::AtLeastOnce, Some(Work::Send)),
        (LOOKUP, Some(Work::LookUp)),
        (super::PROVES_NOTHING, Some(Work::LookUp)),
        (Contract::Never, None),
    ] {
        let desk = Desk::<F>::new();
        let key = desk.fresh("op-1", contract).await;
        let reported = desk.attempt(unknown()).await;
        assert_eq!(reported.alarm, next.is_none().then_some(Alarm::InDoubt), "{contract:?}");
        desk.pass(secs(1));
        assert_eq!(desk.claim(1).await.items.pop().map(|item| item.work), next, "{contract:?}");
        let in_doubt = desk.record(key).await.state == operation::State::InDoubt;
        assert_eq!(in_doubt, next.is_none(), "{contract:?}");
    }
}

pub async fn a_key_is_used_no_longer_than_it_is_remembered<F: OutboxFactory>() {
    // Promise: the key's lifetime, less its margin, counts from the first request of all; from then
    // on an item with an unknown attempt is never sent again.
    let desk = Desk::<F>::new();
    let early = desk.fresh("early", KEY).await;
    desk.attempt(unknown()).await;
    desk.pass(KEY_USED_FOR - MS);
    assert_eq!(desk.sending().await.delivery.key, early);
    let desk = Desk::<F>::new();
    let late = desk.fresh("late", KEY).await;
    desk.pass(secs(3600));
    desk.attempt(unknown()).await;
    desk.pass(secs(3600));
    // A second request does not begin the lifetime anew.
    desk.attempt(unknown()).await;
    desk.pass(KEY_USED_FOR - secs(3600));
    let claimed = desk.claim(1).await;
    assert!(claimed.items.is_empty(), "{claimed:?}");
    assert_eq!(claimed.alarms, [(late, Alarm::InDoubt)]);
    desk.check(late, State::InDoubt, operation::State::InDoubt).await;
    assert!(matches!(desk.order(late, REDRIVE).await, Directed::Illegal(_)));
}

pub async fn the_key_of_a_proved_refusal_never_ends<F: OutboxFactory>() {
    // Promise: where every attempt did nothing, the age of the key forbids nothing.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    desk.attempt(unreachable()).await;
    desk.pass(30 * DAY);
    desk.attempt(refused()).await;
    desk.pass(30 * DAY);
    assert!(matches!(desk.order(key, REDRIVE).await, Directed::Done(_)));
    desk.attempt(applied()).await;
    desk.check(key, State::Delivered, operation::State::Applied).await;
}

pub async fn a_target_that_knows_the_key_otherwise_is_left_to_people<F: OutboxFactory>() {
    // Promise: "the key was used with another request", and a failure that the target replays from
    // its own store, end in doubt at once: no retry would change them.
    for (class, alarm) in
        [(ErrorClass::KeyReused, Alarm::KeyReused), (ErrorClass::KeyReplayed, Alarm::InDoubt)]
    {
        let desk = Desk::<F>::new();
        let key = desk.fresh("op-1", KEY_AND_LOOKUP).await;
        let reported = desk.attempt(unknown_as(class)).await;
        assert_eq!((reported.state, reported.alarm), (Some(State::InDoubt), Some(alarm)));
        desk.check(key, State::InDoubt, operation::State::InDoubt).await;
        desk.pass(DAY);
        assert!(desk.claim(1).await.items.is_empty());
    }
}

pub async fn a_pause_that_was_asked_for_is_kept<F: OutboxFactory>() {
    // Promise: our own pause or the target's, whichever is longer; a pause over our longest holds
    // the whole target back instead of the item alone.
    let after = |s| not_applied(ErrorClass::RateLimited, Then::Retry { after: Some(secs(s)) });
    for (asked_s, due_s, parked) in [(0, 1, false), (30, 30, false), (300, 60, true)] {
        let desk = Desk::<F>::new();
        let key = desk.fresh("op-1", KEY).await;
        let item = desk.sending().await;
        let mut told = report(&item, Happened::Sent(after(asked_s)));
        told.seed = LONGEST;
        let reported = desk.report_all(vec![told]).await.remove(0);
        assert_eq!((reported.parked_target, reported.alarm), (parked, None), "{asked_s}");
        let view = desk.view(key).await;
        assert_eq!(view.delivery.next_attempt_at, Some(at(secs(due_s))), "{asked_s}");
        assert_eq!(view.target.parked.is_some(), parked);
    }
}

async fn lost<F: OutboxFactory>(desk: &Desk<F>) -> (ClaimedItem, ClaimedItem) {
    let lost = desk.sending().await;
    desk.pass(LEASE);
    desk.outbox.take_back_lapsed(UnderWay::default(), 10).await.expect("the ledger works");
    desk.pass(secs(1));
    let mut claimed = desk.claim_as(Claim { boot: OTHER_BOOT, ..claim(1) }).await;
    (lost, claimed.items.remove(0))
}

pub async fn a_late_answer_that_it_was_done_settles_the_operation<F: OutboxFactory>() {
    // Promise: evidence counts from whoever brings it: a worker that lost the item and comes with
    // the target's answer settles it, and whoever holds it now may not send.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let (lost, next) = lost(&desk).await;
    let reported = desk.report(&lost, Happened::Sent(applied())).await;
    assert_eq!((reported.state, reported.fenced), (Some(State::Delivered), true));
    desk.check(key, State::Delivered, operation::State::Applied).await;
    assert_eq!(desk.record(key).await.result, Some(result("T-1")));
    assert_eq!(desk.begin(&next).await, Begun::NotHeld);
    let kinds = desk.bench.kinds(key).await;
    assert_eq!(kinds.last().map(String::as_str), Some("delivered_late"));
    let settled = desk.view(key).await;
    let second = desk.report(&next, Happened::Sent(refused())).await;
    assert_eq!((second.state, second.fenced), (Some(State::Delivered), true));
    assert_eq!(desk.view(key).await, settled);
}

pub async fn a_late_answer_settles_what_people_have_not<F: OutboxFactory>() {
    // Promise: a dead letter, a parked item and one in doubt are settled by late evidence too.
    for state in [State::DeadLetter, State::Parked, State::InDoubt, State::Queued] {
        let desk = Desk::<F>::new();
        let key = desk.fresh("op-1", KEY).await;
        let (lost, next) = lost(&desk).await;
        match state {
            State::DeadLetter => {
                desk.begin(&next).await;
                desk.report(&next, Happened::Sent(refused())).await;
            }
            State::Parked => {
                desk.revoke(&call("op-1"), false, true).await;
                desk.begin(&next).await;
            }
            State::InDoubt => {
                desk.report(&next, Happened::HandedBack).await;
                desk.order(key, CANCEL).await;
            }
            _ => {
                desk.report(&next, Happened::HandedBack).await;
            }
        }
        assert_eq!(desk.item(key).await.state, state);
        let reported = desk.report(&lost, Happened::Sent(applied())).await;
        assert!(reported.fenced, "{state:?}");
        desk.check(key, State::Delivered, operation::State::Applied).await;
        let item = desk.item(key).await;
        assert_eq!((item.park, item.lease, item.next_attempt_at), (None, None, None));
    }
}

pub async fn a_late_answer_that_it_was_not_done_settles_nothing<F: OutboxFactory>() {
    // Promise: a worker that lost the item changes nothing by saying "refused", "unreachable" or "I
    // do not know": no state, no count, no target.
    for end in [refused(), unreachable(), unknown(), super::unauthorized()] {
        let desk = Desk::<F>::new();
        let key = desk.fresh("op-1", KEY).await;
        let (lost, next) = lost(&desk).await;
        let before = desk.view(key).await;
        let kinds = desk.bench.kinds(key).await;
        let reported = desk.report(&lost, Happened::Sent(end)).await;
        assert_eq!((reported.state, reported.fenced), (Some(State::Leased), true));
        assert_eq!((reported.alarm, reported.parked_target), (None, false));
        for end in [LookupEnd::Many, LookupEnd::Absent { begun_at: desk.outbox.now() }] {
            assert!(desk.report(&lost, Happened::LookedUp(end)).await.fenced);
        }
        assert_eq!(desk.view(key).await, before);
        assert_eq!(desk.bench.kinds(key).await, kinds);
        assert_eq!(desk.begin(&next).await, Begun::Send);
    }
}

pub async fn a_late_answer_against_a_settled_operation_is_told<F: OutboxFactory>() {
    // Promise: if the target did what an operator had settled as not done, the record stays as it
    // was told, and item, audit trail and an alarm say so.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", Contract::Never).await;
    let item = desk.sending().await;
    desk.pass(LEASE);
    assert_eq!(desk.claim(1).await.alarms, [(key, Alarm::InDoubt)]);
    let said = Resolve {
        tenant: call("op-1").tenant(),
        operation_id: call("op-1").operation_id(),
        verdict: Verdict::NotApplied,
        who: "olga".into(),
        reason: "not there".into(),
        proof: None,
    };
    let Ok(Resolved::Done(record)) = desk.outbox.resolve(said).await else { panic!("not done") };
    assert_eq!(record.resolution, Some(Resolution::Unproved));
    desk.check(key, State::Cancelled, operation::State::NotApplied).await;
    let reported = desk.report(&item, Happened::Sent(applied())).await;
    assert_eq!((reported.state, reported.fenced), (Some(State::Cancelled), true));
    assert_eq!(reported.alarm, Some(Alarm::LateContradiction));
    let view = desk.view(key).await;
    assert_eq!(view.record, *record);
    assert!(view.delivery.late_contradiction);
    assert_eq!(view.delivery.external_id.as_deref(), Some("T-1"));
    let kinds = desk.bench.kinds(key).await;
    assert_eq!(kinds.last().map(String::as_str), Some("late_contradiction"));
}

pub async fn a_late_contradiction_has_one_way_out<F: OutboxFactory>() {
    // Promise: what was settled as not applied is settled as applied by an operator who takes the
    // target's later word, on record; without such a word, or the other way round, nothing changes.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", Contract::Never).await;
    let item = desk.sending().await;
    desk.pass(LEASE);
    desk.claim(1).await;
    let say = |verdict| Resolve {
        tenant: call("op-1").tenant(),
        operation_id: call("op-1").operation_id(),
        verdict,
        who: "olga".into(),
        reason: "looked again".into(),
        proof: Some("searched for it".into()),
    };
    let settled = desk.outbox.resolve(say(Verdict::NotApplied)).await;
    assert!(matches!(settled, Ok(Resolved::Done(_))), "{settled:?}");
    for verdict in [Verdict::Applied, Verdict::NotApplied] {
        let refused = desk.outbox.resolve(say(verdict)).await;
        assert!(matches!(refused, Ok(Resolved::Illegal(_))), "{refused:?}");
    }
    desk.report(&item, Happened::Sent(applied())).await;
    let refused = desk.outbox.resolve(say(Verdict::NotApplied)).await;
    assert!(matches!(refused, Ok(Resolved::Illegal(_))), "{refused:?}");
    let corrected = desk.outbox.resolve(say(Verdict::Applied)).await;
    assert!(matches!(corrected, Ok(Resolved::Done(_))), "{corrected:?}");
    desk.check(key, State::Delivered, operation::State::Applied).await;
    let view = desk.view(key).await;
    assert!(!view.delivery.late_contradiction);
    assert_eq!(view.delivery.external_id.as_deref(), Some("T-1"));
    assert!(view.record.result.expect("kept").as_json().contains("looked again"));
    let kinds = desk.bench.kinds(key).await;
    assert_eq!(kinds.last().map(String::as_str), Some("corrected_applied"));
}

pub async fn a_report_sent_again_changes_nothing<F: OutboxFactory>() {
    // Promise: after a lost acknowledgement the same report may be sent again, whatever it says.
    for end in [applied(), refused(), unreachable(), unknown(), super::unauthorized()] {
        let desk = Desk::<F>::new();
        let key = desk.fresh("op-1", KEY).await;
        let item = desk.sending().await;
        desk.report(&item, Happened::Sent(end.clone())).await;
        let (before, kinds) = (desk.view(key).await, desk.bench.kinds(key).await);
        desk.pass(secs(1));
        let again = desk.report(&item, Happened::Sent(end)).await;
        assert_eq!((again.state, again.fenced), (Some(before.delivery.state), true));
        assert_eq!(desk.view(key).await, before);
        assert_eq!(desk.bench.kinds(key).await, kinds);
    }
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", LOOKUP).await;
    desk.attempt(unknown()).await;
    desk.pass(secs(1));
    let item = desk.one().await;
    for _ in 0..2 {
        desk.report(&item, Happened::LookedUp(found())).await;
        desk.check(key, State::Delivered, operation::State::Applied).await;
    }
}
