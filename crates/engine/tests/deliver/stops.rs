//! A worker that is told to stop.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{Contract, State};
use tokio::time::Instant;

use crate::fake::{Does, Fake, limits};
use crate::faulty::{Fault, Faulty};
use crate::world::{Process, key, options, store, terms};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_ends_and_nothing_new_begins() {
    // Promise: told to stop, a worker finishes what it sends, reports it, and claims nothing more.
    let mut limits = limits();
    limits.concurrency_count = 3;
    let target = Fake::new(|_, _| Does::after(secs(5))).limited(limits).arc();
    let mut process = Process::open(store()).await.deliver(&[Arc::clone(&target)], options());
    let keys = process.accept_many(10, &target.target_name(), terms(Contract::Never)).await;
    tokio::time::sleep(secs(1)).await;
    let told = Instant::now();
    process.stop().await;
    assert!((secs(3)..secs(5)).contains(&told.elapsed()), "{:?}", told.elapsed());
    let mut states = Vec::new();
    for key in &keys {
        states.push(process.item(*key).await.delivery.state);
    }
    assert_eq!(states[..3], [State::Delivered; 3]);
    assert_eq!(states[3..], [State::Queued; 7]);
    assert_eq!(target.arrivals().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_a_request_is_given_up_and_reported() {
    // Promise: a stop is bounded, and what is given up is unknown at once, not when a lease ends.
    for (contract, state) in [(Contract::Never, State::InDoubt), (key(), State::Queued)] {
        let target = Fake::new(|_, _| Does::after(secs(9))).arc();
        let mut options = options();
        options.drain_limit = secs(2);
        let mut process = Process::open(store()).await.deliver(&[Arc::clone(&target)], options);
        let item = process.accept("op", &target.target_name(), terms(contract)).await;
        tokio::time::sleep(secs(1)).await;
        let told = Instant::now();
        process.stop().await;
        assert_eq!(told.elapsed().as_secs(), 2);
        let item = process.item(item).await.delivery;
        assert_eq!((item.state, item.unknown_count), (state, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_claimed_and_not_sent_goes_back() {
    // Promise: a stop between a claim and the first byte leaves the item queued and uncounted, for
    // the next worker at once.
    for command in ["claim", "begin_send"] {
        let store = store();
        let faulty = Faulty::new(Arc::clone(&store), move |name, _| {
            if name == command { Fault::StallsAfter(secs(1)) } else { Fault::Passes }
        });
        let target = Fake::well().arc();
        let mut process = Process::open(faulty).await.deliver(&[Arc::clone(&target)], options());
        let item = process.accept("op", &target.target_name(), terms(Contract::Never)).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        process.stop().await;
        let delivery = process.item(item).await.delivery;
        let expected = if command == "claim" { State::Queued } else { State::Delivered };
        assert_eq!(delivery.state, expected, "{command}: what is recorded as sent is sent");
        assert_eq!(delivery.attempts_count as usize, target.arrivals().len());
    }
}
