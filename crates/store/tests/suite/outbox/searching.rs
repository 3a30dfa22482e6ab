//! What a search at the target proves, and from when on.

use std::time::Duration;

use counterfoil_core::delivery::{Alarm, ErrorClass, LookupEnd, State, Work};
use counterfoil_core::operation;
use counterfoil_store::UnderWay;
use counterfoil_store::outbox::Directed;

use super::{
    ABANDON, DAY, Desk, HOUR, KEY_AND_LOOKUP, LEASE, LOOKUP, OutboxFactory, PROVES_NOTHING, QUEUED,
    REDRIVE, at, found, refused, result, secs, unknown,
};

const MS: Duration = Duration::from_millis(1);

pub async fn one_match_is_the_effect<F: OutboxFactory>() {
    // Promise: an operation settled by a search stores the result of that search.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", LOOKUP).await;
    desk.attempt(unknown()).await;
    desk.pass(secs(1));
    assert_eq!(desk.search(found()).await.state, Some(State::Delivered));
    let view = desk.view(key).await;
    assert_eq!(view.record.state, operation::State::Applied);
    assert_eq!(view.record.result, Some(result("T-1")));
    assert_eq!(view.delivery.external_id.as_deref(), Some("T-1"));
    assert_eq!(desk.bench.kinds(key).await.last().map(String::as_str), Some("found"));
}

pub async fn many_matches_are_never_sent_again<F: OutboxFactory>() {
    // Promise: more than one effect with our marker is an alarm, and the item is left to people.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY_AND_LOOKUP).await;
    desk.attempt(unknown()).await;
    desk.pass(DAY);
    let reported = desk.search(LookupEnd::Many).await;
    assert_eq!((reported.state, reported.alarm), (Some(State::InDoubt), Some(Alarm::ManyMatches)));
    desk.check(key, State::InDoubt, operation::State::InDoubt).await;
    desk.pass(DAY);
    assert!(desk.claim(1).await.items.is_empty());
    assert!(matches!(desk.order(key, REDRIVE).await, Directed::Illegal(_)));
}

pub async fn absence_proves_from_its_time_on<F: OutboxFactory>() {
    // Promise: a search that found nothing proves it only if it began so long after the last
    // possible write as the target needs to show one; until then it is asked for again at that time.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", LOOKUP).await;
    desk.pass(secs(5));
    desk.attempt(unknown()).await;
    let proves_from = at(secs(5) + HOUR);
    desk.pass(HOUR - MS);
    assert_eq!(desk.search_in_vain().await.state, Some(State::Queued));
    let item = desk.item(key).await;
    assert_eq!((item.unknown_count, item.next_attempt_at), (1, Some(proves_from)));
    assert_eq!(item.last_error.as_ref().map(|(class, _)| *class), Some(ErrorClass::LookupOpen));
    assert!(matches!(desk.order(key, ABANDON).await, Directed::Illegal(_)));
    desk.pass(MS);
    // What counts is when it began, not when it was reported.
    let early = LookupEnd::Absent { begun_at: at(secs(5) + HOUR - MS) };
    assert_eq!(desk.search(early).await.state, Some(State::Queued));
    assert_eq!(desk.item(key).await.unknown_count, 1);
    desk.pass(MS);
    assert_eq!(desk.search_in_vain().await.state, Some(State::Queued));
    let item = desk.item(key).await;
    assert_eq!((item.unknown_count, item.next_attempt_at), (0, Some(proves_from.plus(MS))));
    let item = desk.one().await;
    assert_eq!(item.work, Work::Send);
    assert_eq!(desk.bench.kinds(key).await.last().map(String::as_str), Some("proved_absent"));
}

pub async fn a_lost_worker_may_write_until_its_lease_ends<F: OutboxFactory>() {
    // Promise: the time from which absence proves counts from the end of the lease of a worker that
    // never reported, and from its own word where it did.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", LOOKUP).await;
    desk.sending().await;
    desk.pass(LEASE);
    desk.outbox.take_back_lapsed(UnderWay::default(), 1).await.expect("the ledger works");
    desk.pass(HOUR - MS);
    desk.search_in_vain().await;
    assert_eq!(desk.item(key).await.next_attempt_at, Some(at(LEASE + HOUR)));
    assert_eq!(desk.item(key).await.unknown_count, 1);
    desk.pass(MS);
    desk.search_in_vain().await;
    assert_eq!(desk.item(key).await.unknown_count, 0);
    // A second unknown attempt needs a proof of its own.
    let item = desk.sending().await;
    desk.pass(secs(2));
    desk.report(&item, counterfoil_store::outbox::Happened::Sent(unknown())).await;
    desk.pass(secs(2));
    desk.search_in_vain().await;
    let item = desk.item(key).await;
    assert_eq!(item.unknown_count, 1);
    assert_eq!(item.next_attempt_at, Some(at(LEASE + HOUR + secs(2) + HOUR)));
}

pub async fn absence_without_a_time_proves_nothing<F: OutboxFactory>() {
    // Promise: where nothing proves absence, a bounded number of searches that found nothing ends in
    // doubt and in no further request.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", PROVES_NOTHING).await;
    desk.attempt(unknown()).await;
    for number in 1..=3 {
        desk.pass(DAY);
        let reported = desk.search_in_vain().await;
        let last = number == 3;
        let expected = if last { State::InDoubt } else { State::Queued };
        assert_eq!(reported.state, Some(expected));
        assert_eq!(reported.alarm, last.then_some(Alarm::InDoubt));
    }
    desk.check(key, State::InDoubt, operation::State::InDoubt).await;
    assert_eq!(desk.item(key).await.attempts_count, 1);
}

pub async fn an_open_search_is_made_again<F: OutboxFactory>() {
    // Promise: a search that could not be made proves nothing and costs no attempt; the target's own
    // pause is kept.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", LOOKUP).await;
    desk.attempt(unknown()).await;
    desk.pass(2 * HOUR);
    let open = LookupEnd::Open { words: "status 503".into(), retry_after: Some(secs(30)) };
    assert_eq!(desk.search(open).await.state, Some(State::Queued));
    let item = desk.item(key).await;
    assert_eq!((item.attempts_count, item.unknown_count, item.lookups_count), (1, 1, 1));
    assert_eq!(item.next_attempt_at, Some(at(2 * HOUR + secs(30))));
    desk.pass(secs(30));
    desk.search_in_vain().await;
    assert_eq!(desk.item(key).await.unknown_count, 0);
}

pub async fn a_proof_after_the_last_attempt_leaves_a_dead_letter<F: OutboxFactory>() {
    // Promise: after the attempts are used up a search still tells; what it proves absent is a dead
    // letter that can be abandoned as not applied, or sent again.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY_AND_LOOKUP).await;
    for _ in 0..2 {
        desk.attempt(unknown()).await;
        desk.pass(secs(4));
    }
    assert_eq!(desk.attempt(refused()).await.state, Some(State::Queued));
    desk.pass(2 * HOUR);
    let reported = desk.search_in_vain().await;
    assert_eq!(
        (reported.state, reported.alarm),
        (Some(State::DeadLetter), Some(Alarm::DeadLetter))
    );
    desk.check(key, State::DeadLetter, QUEUED).await;
    assert_eq!(desk.item(key).await.unknown_count, 0);
    assert!(matches!(desk.order(key, ABANDON).await, Directed::Done(_)));
    desk.check(key, State::Cancelled, operation::State::NotApplied).await;
}
