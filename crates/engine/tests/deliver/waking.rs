//! How soon work is seen, and what it costs to wait for it.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{Contract, State};
use counterfoil_engine::{CancellationToken, DelivererOptions};
use counterfoil_store::outbox::{Acceptance, Accepted};
use tokio::time::Instant;

use crate::fake::{Does, Fake};
use crate::faulty::{Fault, Faulty};
use crate::world::{Process, options, store, terms};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn work_of_this_process_is_seen_at_once_and_others_within_a_second() {
    // Promise: an acceptance wakes the worker of its process; one elsewhere is found by a poll, and
    // whoever waits there for the outcome sees it within a second more.
    let store = store();
    let target = Fake::well().arc();
    let mut worker = Process::open(store.clone()).await.deliver(&[Arc::clone(&target)], options());
    let other = Process::open(store).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    for (process, at_most) in [(&worker, Duration::from_millis(10)), (&other, secs(2))] {
        let begun = Instant::now();
        let id = format!("op-{}", at_most.as_millis());
        let item = process.accept(&id, &target.target_name(), terms(Contract::Never)).await;
        process.all_rest_in(&[item], State::Delivered).await;
        assert!(begun.elapsed() <= at_most, "{at_most:?}: {:?}", begun.elapsed());
    }
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn room_that_a_claim_left_unused_is_used_at_once() {
    // Promise: work that arrives while a claim holds all the room, and fills little of it, waits for
    // the claim and not for the end of the requests that it began.
    let faulty = Faulty::new(store(), |command, number| match (command, number) {
        ("claim", 0) => Fault::StallsAfter(secs(1)),
        _ => Fault::Passes,
    });
    let target = Fake::new(|_, _| Does::after(secs(9))).arc();
    let mut process = Process::open(faulty).await.deliver(&[Arc::clone(&target)], options());
    let first = process.accept("first", &target.target_name(), terms(Contract::Never)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let second = process.accept("second", &target.target_name(), terms(Contract::Never)).await;
    process.all_rest_in(&[first, second], State::Delivered).await;
    let arrivals = target.arrivals();
    assert!(arrivals[1].at - arrivals[0].at < secs(1), "{arrivals:?}");
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_asks_once_a_second_for_all_its_targets() {
    // Promise: two hundred idle targets cost one read a second, and no write.
    let faulty = Faulty::new(store(), |_, _| Fault::Passes);
    let targets: Vec<_> =
        (0..200).map(|number| Fake::well().named(&format!("t{number}")).arc()).collect();
    let mut process = Process::open(faulty.clone()).await.deliver(&targets, options());
    tokio::time::sleep(secs(10)).await;
    let before = faulty.calls();
    tokio::time::sleep(secs(300)).await;
    let after = faulty.calls();
    let grown =
        |name| after.get(name).copied().unwrap_or(0) - before.get(name).copied().unwrap_or(0);
    assert!(grown("next_due_of") <= 300, "{after:?}");
    // These look before they write.
    assert!(grown("take_back_lapsed") <= 11 && grown("match_targets") <= 11, "{after:?}");
    for write in ["claim", "report", "begin_send", "next_due", "outbox_stats"] {
        assert_eq!(grown(write), 0, "{write}: {after:?}");
    }
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_no_longer_than_it_said() {
    // Promise: a wait is bounded, asks the ledger at a bounded pace, and gives the item as it is.
    let store = store();
    let faulty = Faulty::new(Arc::clone(&store), |_, _| Fault::Passes);
    let target = Fake::well().arc();
    let process = Process::open(faulty.clone()).await;
    let item = process.accept("op", &target.target_name(), terms(Contract::Never)).await;
    for limit in [Duration::ZERO, secs(60), Duration::from_millis(1500)] {
        let begun = Instant::now();
        let before = faulty.calls().get("delivery").copied().unwrap_or(0);
        let view = process.engine.wait_for_delivery(item, limit).await.expect("it is there");
        assert_eq!(view.delivery.state, State::Queued);
        assert!(begun.elapsed() >= limit && begun.elapsed() < limit + secs(1), "{limit:?}");
        let reads = faulty.calls()["delivery"] - before;
        assert!(reads as u64 <= limit.as_secs() + 4, "{limit:?}: {reads}");
    }
    let nothing = counterfoil_core::identity::OperationKey::from_bytes([9; 16]);
    assert_eq!(process.engine.wait_for_delivery(nothing, secs(5)).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_taken_back_call_is_delivered_and_the_wish_is_on_record() {
    // Promise: a cancellation after the acceptance undoes nothing, and is on record; the same call
    // again gives the item as it is.
    let target = Fake::new(|_, _| Does::after(secs(1))).arc();
    let mut process = Process::open(store()).await.deliver(&[Arc::clone(&target)], options());
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let acceptance = || Acceptance {
        admitted: process.admit("op"),
        target: target.target_name(),
        terms: terms(Contract::Never),
        request: Arc::from(*b"op"),
    };
    let taken = process.engine.accept_cancellable(acceptance(), cancelled).await.expect("taken");
    let Accepted::Fresh(view) = taken else { panic!("it is fresh: {taken:?}") };
    process.all_rest_in(&[view.delivery.key], State::Delivered).await;
    let again = process.engine.accept_cancellable(acceptance(), CancellationToken::new()).await;
    let Ok(Accepted::Duplicate(view)) = again else { panic!("it is known: {again:?}") };
    assert_eq!(view.delivery.state, State::Delivered);
    let events = process.engine.outbox().expect("one").audit(view.delivery.key).await;
    let kinds: Vec<_> = events.expect("readable").into_iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&"cancel_requested".to_owned()), "{kinds:?}");
    assert_eq!(target.effects()["op"], 1);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_answered_call_is_no_cancellation() {
    // Promise: the trail says that a call was taken back only where it was: a call whose wait is
    // over ends, and its token with it.
    let target = Fake::well().arc();
    let process = Process::open(store()).await;
    let item = process.accept("op", &target.target_name(), terms(Contract::Never)).await;
    let kinds = async || {
        let events = process.engine.outbox().expect("one").audit(item).await.expect("readable");
        events.into_iter().map(|event| event.kind).collect::<Vec<_>>()
    };
    let check = async |cancel_first: bool| {
        let (call, stop) = (CancellationToken::new(), CancellationToken::new());
        if cancel_first {
            call.cancel();
        }
        let view = process.item(item).await;
        process.engine.await_delivery(view, secs(2), &call, &stop).await;
        call.cancel();
        tokio::time::sleep(secs(5)).await;
        kinds().await.contains(&"cancel_requested".to_owned())
    };
    assert!(!check(false).await, "{:?}", kinds().await);
    assert!(check(true).await, "{:?}", kinds().await);
}

#[tokio::test(start_paused = true)]
async fn only_the_named_targets_are_served() {
    // Promise: a worker for some of the targets leaves the others' items alone, and does not take
    // their targets for unconfigured.
    let (mine, theirs) = (Fake::well().named("mine").arc(), Fake::well().named("theirs").arc());
    let only = Some(vec![mine.target_name()]);
    let options = DelivererOptions { only, ..options() };
    let targets = [Arc::clone(&mine), Arc::clone(&theirs)];
    let mut process = Process::open(store()).await.deliver(&targets, options);
    let kept = process.accept("op-1", &theirs.target_name(), terms(Contract::Never)).await;
    let item = process.accept("op-2", &mine.target_name(), terms(Contract::Never)).await;
    process.all_rest_in(&[item], State::Delivered).await;
    tokio::time::sleep(secs(120)).await;
    assert_eq!(process.item(kept).await.delivery.state, State::Queued);
    process.stop().await;
}
