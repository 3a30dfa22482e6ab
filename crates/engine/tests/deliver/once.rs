//! Many items, many workers, targets that fail in every way: one effect each.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{Contract, ErrorClass, State, Then};

use crate::fake::{Does, Fake, limits};
use crate::world::{Process, key, lookup, options, store, terms};

/// Numbers that look random and are the same in every run (Knuth's MMIX generator).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_items_arrive_once_each_whatever_the_target_answers() {
    // Promise: with a target that honours keys, refusals, lost answers and lost requests in any
    // order end with one effect for each item, by two workers on one ledger.
    let mut dice = Dice(0x00c0_ffee);
    let target = Fake::new(move |_, _| match dice.roll(10) {
        0 | 1 => Does::nothing(ErrorClass::Connect, Then::Retry { after: None }),
        2 => Does::nothing(
            ErrorClass::RateLimited,
            Then::Retry { after: Some(Duration::from_millis(dice.roll(3000))) },
        ),
        3 | 4 => Does::lost(true),
        5 => Does::lost(false),
        _ => Does { before: Duration::from_millis(dice.roll(500)), ..Does::WELL },
    });
    let target = target.with_keys().arc();
    let store = store();
    let front = Process::open(store.clone()).await;
    let mut terms = terms(key());
    terms.max_attempts_count = 60;
    let keys = front.accept_many(1000, &target.target_name(), terms).await;
    let targets = [Arc::clone(&target)];
    let mut workers = Vec::new();
    for _ in 0..2 {
        workers.push(Process::open(store.clone()).await.deliver(&targets, options()));
    }
    front.all_rest_in(&keys, State::Delivered).await;
    for worker in &mut workers {
        worker.stop().await;
        let numbers = &worker.engine.delivery_numbers().all()[0].1;
        assert!(numbers.delivered_count() > 100, "both work: {numbers:?}");
    }
    let effects = target.effects();
    assert_eq!(effects.len(), 1000);
    assert!(effects.values().all(|count| *count == 1));
    let attempts: u32 = {
        let mut sum = 0;
        for key in &keys {
            sum += front.item(*key).await.delivery.attempts_count;
        }
        sum
    };
    assert_eq!(attempts as usize, target.arrivals().len(), "every request is on record");
}

#[tokio::test(start_paused = true)]
async fn what_follows_a_lost_answer_is_the_contracts() {
    // Promise: an answer that was lost after the effect, and a request that was lost before it, end
    // as the contract says, with one effect at most unless doubles are allowed.
    let done = (State::Delivered, 1, 2);
    for (contract, applies, (state, effects, requests)) in [
        (key(), true, done),
        (key(), false, done),
        (lookup(), true, (State::Delivered, 1, 1)),
        (lookup(), false, done),
        (Contract::Lookup { absence_after: None }, true, (State::Delivered, 1, 1)),
        (Contract::Lookup { absence_after: None }, false, (State::InDoubt, 0, 1)),
        (Contract::Never, true, (State::InDoubt, 1, 1)),
        (Contract::Never, false, (State::InDoubt, 0, 1)),
        (Contract::AtLeastOnce, true, (State::Delivered, 2, 2)),
    ] {
        let target =
            Fake::new(move |_, number| if number == 0 { Does::lost(applies) } else { Does::WELL });
        let target = if contract == key() { target.with_keys().arc() } else { target.arc() };
        let mut process = Process::open(store()).await.deliver(&[Arc::clone(&target)], options());
        let item = process.accept("op", &target.target_name(), terms(contract)).await;
        let view = process.rests(item).await;
        let seen = target.effects().values().sum::<u32>();
        let context = format!("{contract:?}, applied: {applies}");
        assert_eq!(view.delivery.state, state, "{context}");
        assert_eq!((seen, target.arrivals().len()), (effects, requests), "{context}");
        process.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_due_first_goes_first() {
    // Promise: with one request at a time, items leave in the order in which they were accepted.
    let mut limits = limits();
    limits.concurrency_count = 1;
    let target = Fake::new(|_, _| Does::after(Duration::from_millis(10))).limited(limits).arc();
    let mut process = Process::open(store()).await;
    let mut keys = Vec::new();
    for number in 0..30 {
        let id = format!("op-{number:04}");
        keys.push(process.accept(&id, &target.target_name(), terms(Contract::Never)).await);
        // What is accepted within one millisecond has no order.
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    process = process.deliver(&[Arc::clone(&target)], options());
    process.all_rest_in(&keys, State::Delivered).await;
    let seen: Vec<_> = target.arrivals().into_iter().map(|arrival| arrival.request).collect();
    assert!(seen.is_sorted(), "{seen:?}");
    assert_eq!(target.most_under_way(), 1);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn exhausted_attempts_are_a_dead_letter_that_a_redrive_sends_again() {
    // Promise: finite attempts, then a dead letter with its last error, counted once.
    let target = Fake::new(|_, number| {
        if number < 5 {
            Does::nothing(ErrorClass::Rejected, Then::Retry { after: None })
        } else {
            Does::WELL
        }
    });
    let target = target.arc();
    let mut process = Process::open(store()).await.deliver(&[Arc::clone(&target)], options());
    let item = process.accept("op", &target.target_name(), terms(Contract::Never)).await;
    let view = process.rests(item).await;
    assert_eq!(view.delivery.state, State::DeadLetter);
    assert_eq!(view.delivery.attempts_count, 5);
    assert_eq!(process.engine.delivery_numbers().all()[0].1.dead_letters_count(), 1);
    let order = counterfoil_store::outbox::Order {
        which: vec![counterfoil_store::outbox::Which::Key(item)],
        action: counterfoil_store::outbox::Action::Redrive,
        who: "olga".into(),
        reason: "the desk is back".into(),
    };
    process.engine.outbox().expect("one").direct(order).await.expect("taken");
    let view = process.rests(item).await;
    assert_eq!(view.delivery.state, State::Delivered, "found by the poll");
    assert_eq!(target.effects()["op"], 1);
    process.stop().await;
}
