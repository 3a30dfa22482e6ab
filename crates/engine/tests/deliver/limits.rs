//! How hard a target is pressed: concurrency, rate, breaker, pauses that it asks for, parking.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{Contract, ErrorClass, State, Then};
use counterfoil_engine::{BreakerState, Outcome};
use tokio::time::Instant;

use crate::fake::{Does, Fake, limits};
use crate::world::{Process, key, options, store, terms};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_target_gets_its_concurrency_and_its_rate_and_no_more() {
    // Promise: never more requests at a time, nor in any second, than the target's limits allow;
    // and not fewer either.
    let mut limits = limits();
    (limits.concurrency_count, limits.rate_per_s) = (3, Some(10.0));
    let target = Fake::new(|_, _| Does::after(Duration::from_millis(200))).limited(limits).arc();
    let mut process = Process::open(store()).await.deliver(&[Arc::clone(&target)], options());
    let begun = Instant::now();
    let keys = process.accept_many(100, &target.target_name(), terms(Contract::Never)).await;
    process.all_rest_in(&keys, State::Delivered).await;
    let took = begun.elapsed();
    assert!((secs(9)..secs(12)).contains(&took), "{took:?}");
    assert!(target.most_under_way() <= 3);
    let arrivals = target.arrivals();
    for window in arrivals.windows(12) {
        assert!(window[11].at - window[0].at >= secs(1), "{window:?}");
    }
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_down_costs_no_attempts() {
    // Promise: the breaker opens after failures in a row; while it is open no item's attempts are
    // spent, one probe at a time is sent, and when the target is back everything is delivered.
    let start = Instant::now();
    let mut limits = limits();
    (limits.concurrency_count, limits.breaker_failures_count) = (4, 5);
    let target = Fake::new(move |_, _| {
        if start.elapsed() < secs(600) {
            Does::nothing(ErrorClass::Connect, Then::Retry { after: None })
        } else {
            Does::WELL
        }
    });
    let target = target.limited(limits).arc();
    let mut process = Process::open(store()).await.deliver(&[Arc::clone(&target)], options());
    let keys = process.accept_many(50, &target.target_name(), terms(Contract::Never)).await;
    tokio::time::sleep(secs(300)).await;
    let numbers = Arc::clone(&process.engine.delivery_numbers().all()[0].1);
    assert_eq!(numbers.breaker(), BreakerState::Open);
    process.all_rest_in(&keys, State::Delivered).await;
    assert_eq!(numbers.breaker(), BreakerState::Closed);
    let while_down = target.arrivals().iter().filter(|a| a.at - start < secs(600)).count();
    assert!((100..200).contains(&while_down), "a probe every 4 s: {while_down}");
    for key in keys {
        let attempts = process.item(key).await.delivery.attempts_count;
        assert!(attempts <= 4, "probes cost nothing: {attempts}");
    }
    let failed = (Outcome::NotApplied(ErrorClass::Connect), while_down as u64);
    assert!(numbers.attempts().contains(&failed), "{:?}", numbers.attempts());
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_that_refuses_us_is_parked_once_and_nothing_is_burnt() {
    // Promise: 401 for ten minutes, then 200: one alarm, a look now and then, every item delivered
    // with its one attempt.
    let start = Instant::now();
    let target = Fake::new(move |_, _| {
        if start.elapsed() < secs(600) {
            Does::nothing(ErrorClass::Credential, Then::ParkTarget)
        } else {
            Does::WELL
        }
    });
    let target = target.arc();
    let mut process = Process::open(store()).await.deliver(&[Arc::clone(&target)], options());
    let keys = process.accept_many(30, &target.target_name(), terms(Contract::Never)).await;
    process.all_rest_in(&keys, State::Delivered).await;
    let numbers = Arc::clone(&process.engine.delivery_numbers().all()[0].1);
    assert_eq!(numbers.parked_count(), 1, "one alarm, not one for each item");
    let while_down = target.arrivals().iter().filter(|a| a.at - start < secs(600)).count();
    assert!(while_down < 25, "parked means parked: {while_down}");
    for key in keys {
        assert_eq!(process.item(key).await.delivery.attempts_count, 1);
    }
    assert!(start.elapsed() < secs(920), "it is looked at every five minutes at least");
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_target_asks_for_is_kept() {
    // Promise: not before the asked time, and nobody sleeps on a pause beyond all patience: the
    // target is parked and looked at again.
    for (asked, at_least, parked) in [
        (Some(Duration::from_millis(59_200)), Duration::from_millis(59_200), 0),
        (Some(Duration::ZERO), Duration::from_millis(1), 0),
        (None, Duration::from_millis(1), 0),
        (Some(secs(1_000_000_000)), secs(60), 1),
    ] {
        let target = Fake::new(move |_, number| {
            if number == 0 {
                Does::nothing(ErrorClass::RateLimited, Then::Retry { after: asked })
            } else {
                Does::WELL
            }
        });
        let target = target.arc();
        let mut process = Process::open(store()).await.deliver(&[Arc::clone(&target)], options());
        let item = process.accept("op", &target.target_name(), terms(key())).await;
        process.all_rest_in(&[item], State::Delivered).await;
        let arrivals = target.arrivals();
        let pause = arrivals[1].at - arrivals[0].at;
        assert!(pause >= at_least && pause < at_least + secs(120), "{asked:?}: {pause:?}");
        let numbers = &process.engine.delivery_numbers().all()[0].1;
        assert_eq!(numbers.parked_count(), parked, "{asked:?}");
        process.stop().await;
    }
}
