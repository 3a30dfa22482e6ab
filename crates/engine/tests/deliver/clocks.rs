//! A wall clock that is set forward while requests and searches are under way.

use std::time::Duration;

use counterfoil_core::delivery::State;

use crate::fake::{Does, Fake};
use crate::world::{Process, jumping_store, lookup, options, terms};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_forward_takes_nothing_from_its_own_sender() {
    // Promise: whatever the wall clock says, a process takes back nothing that it has under way
    // itself: the request that is being answered stays the only one.
    let (store, clock) = jumping_store();
    let slow = Does { before: secs(5), ..Does::WELL };
    let target = Fake::new(move |_, _| slow.clone()).arc();
    let fast = counterfoil_engine::DelivererOptions { upkeep: secs(1), ..options() };
    let mut process = Process::open(store).await.deliver(std::slice::from_ref(&target), fast);
    let item = process.accept("op", &target.target_name(), terms(lookup())).await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(process.item(item).await.delivery.state, State::Sending);
    clock.jump(YEAR);
    // Something else wakes the loop, and is delivered beside it.
    let beside = process.accept("beside", &target.target_name(), terms(lookup())).await;
    process.all_rest_in(&[item, beside], State::Delivered).await;
    assert_eq!(process.item(item).await.delivery.attempts_count, 1);
    let effects = target.effects();
    assert!(effects.len() == 2 && effects.values().all(|count| *count == 1), "{effects:?}");
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_absence_is_proved_by_the_time_that_really_passed() {
    // Promise: after a request of this very process whose outcome is unknown, a clock that was set
    // forward proves nothing: a search counts from the time that passed, and nothing is sent before.
    let (store, clock) = jumping_store();
    let target = Fake::new(|_, number| match number {
        0 => Does::lost(false),
        _ => Does::WELL,
    });
    let target = target.arc();
    let mut process = Process::open(store).await.deliver(std::slice::from_ref(&target), options());
    let mut once = terms(lookup());
    once.backoff_base = secs(2);
    let item = process.accept("op", &target.target_name(), once).await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(process.item(item).await.delivery.unknown_count, 1);
    clock.jump(YEAR);
    process.all_rest_in(&[item], State::Delivered).await;
    let arrivals = target.arrivals();
    let passed = arrivals[1].at - arrivals[0].at;
    assert!(arrivals.len() == 2 && passed >= secs(20) && passed < secs(60), "{arrivals:?}");
    process.stop().await;
}
