//! Workers that stall past their leases, at every place, beside one that is well.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{Contract, State};
use counterfoil_engine::DelivererOptions;
use counterfoil_store::MemoryStore;

use crate::fake::{Does, Fake, limits};
use crate::faulty::{Fault, Faulty};
use crate::once::Dice;
use crate::world::{Process, key, lookup, options, store, terms};

/// The lease is one second.
fn short() -> (Fake, DelivererOptions) {
    let mut limits = limits();
    limits.send_limit = Duration::from_millis(800);
    let target = Fake::new(|_, _| Does::after(Duration::from_millis(5))).limited(limits);
    let lease_margin = Duration::from_millis(200);
    (target, DelivererOptions { lease_margin, ..options() })
}

const STALL: Duration = Duration::from_secs(5);

/// A worker stalls once at `command`, another is well from 0.1 s on; gives where the item rests, the
/// effects, the requests, and whether a report of the first came too late.
async fn stalled(
    contract: Contract,
    command: &'static str,
    fault: Fault,
) -> (State, u32, usize, bool) {
    let (target, options) = short();
    let target = if contract == key() { target.with_keys().arc() } else { target.arc() };
    let (store, targets) = (store(), [Arc::clone(&target)]);
    let faulty = Faulty::new(Arc::clone(&store), move |name, number| {
        if name == command && number == 0 { fault } else { Fault::Passes }
    });
    let mut terms = terms(contract);
    terms.send_limit = Duration::from_millis(800);
    let mut slow = Process::open(faulty).await.deliver(&targets, options.clone());
    let item = slow.accept("op", &target.target_name(), terms).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut well = Process::open(store).await.deliver(&targets, options);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let view = well.rests(item).await;
    slow.stop().await;
    well.stop().await;
    let fenced = slow.engine.delivery_numbers().all()[0].1.fenced_count() > 0;
    assert_eq!(well.item(item).await.delivery.state, view.delivery.state);
    let effects = target.effects().values().sum();
    (view.delivery.state, effects, target.arrivals().len(), fenced)
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stalls_past_its_lease_doubles_nothing() {
    // Promise: a stalled worker's late word is fenced, and changes no lease; the effect is found,
    // repeated under its key, or left for people, as the contract says; its late success settles
    // what was in doubt.
    let late_report = Fault::StallsBefore(STALL);
    let done = State::Delivered;
    for (contract, command, fault, expected) in [
        (lookup(), "report", late_report, (done, 1, 1, true)),
        (key(), "report", late_report, (done, 1, 2, true)),
        (Contract::Never, "report", late_report, (done, 1, 1, true)),
        // Recorded as being sent, and too late to send: it goes back, unless the lease told first.
        (lookup(), "begin_send", Fault::StallsAfter(STALL), (done, 1, 1, true)),
        (key(), "begin_send", Fault::StallsAfter(STALL), (done, 1, 1, true)),
        (Contract::Never, "begin_send", Fault::StallsAfter(STALL), (State::InDoubt, 0, 0, true)),
        // Nothing is recorded: another takes it, and the first may send nothing.
        (Contract::Never, "begin_send", Fault::StallsBefore(STALL), (done, 1, 1, false)),
        (Contract::Never, "claim", Fault::StallsAfter(STALL), (done, 1, 1, false)),
        (Contract::Never, "claim", Fault::StallsBefore(STALL), (done, 1, 1, false)),
        // Short of the lease, but too late for a whole request: it goes back uncounted.
        (
            Contract::Never,
            "begin_send",
            Fault::StallsAfter(Duration::from_millis(300)),
            (done, 1, 1, false),
        ),
    ] {
        let seen = stalled(contract, command, fault).await;
        assert_eq!(seen, expected, "{contract:?}, {command}: {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_lease_is_never_stolen() {
    // Promise: a request that takes its whole time is not sent by another meanwhile, and one that
    // died is taken over after its lease, with the attempt on record.
    let target = Fake::new(|_, _| Does::after(Duration::from_millis(9_900))).arc();
    let (store, targets) = (store(), [Arc::clone(&target)]);
    let mut first = Process::open(store.clone()).await.deliver(&targets, options());
    let mut second = Process::open(store).await.deliver(&targets, options());
    let keys = first.accept_many(20, &target.target_name(), terms(Contract::Never)).await;
    first.all_rest_in(&keys, State::Delivered).await;
    assert_eq!(target.arrivals().len(), 20);
    first.stop().await;
    second.stop().await;
}

/// A ledger that is slow, or does not answer, now and then; slower than a lease, now and then.
fn moody(store: Arc<MemoryStore>, seed: u64) -> Arc<Faulty> {
    let mut dice = Dice(seed);
    Faulty::new(store, move |name, _| {
        if !["claim", "begin_send", "report"].contains(&name) {
            return Fault::Passes;
        }
        let pause = Duration::from_millis(dice.roll(30_000));
        match dice.roll(20) {
            0 => Fault::StallsBefore(pause),
            1 => Fault::StallsAfter(pause),
            2 => Fault::LostAnswer,
            3 => Fault::Busy,
            _ => Fault::Passes,
        }
    })
}

#[tokio::test(start_paused = true)]
async fn workers_that_stall_at_random_make_one_effect_of_each_item() {
    // Promise: whatever is slow, and however often a lease ends under its holder, each item has one
    // effect: by its key, or because nobody sends beyond a deadline and absence is proved only
    // after it.
    for seed in 1..=6 {
        for contract in [key(), lookup()] {
            let mut dice = Dice(seed);
            let target = Fake::new(move |_, _| {
                let applies = dice.roll(4) > 0;
                let before = Duration::from_millis(dice.roll(9_000));
                let lost = Does { before, ..Does::lost(applies) };
                if dice.roll(3) == 0 { lost } else { Does { before, ..Does::WELL } }
            });
            let target = if contract == key() { target.with_keys().arc() } else { target.arc() };
            let (store, targets) = (store(), [Arc::clone(&target)]);
            let front = Process::open(store.clone()).await;
            let mut terms = terms(contract);
            terms.max_attempts_count = 1000;
            let keys = front.accept_many(60, &target.target_name(), terms).await;
            let mut workers = Vec::new();
            for worker in 0..3 {
                let store = moody(Arc::clone(&store), seed * 10 + worker);
                workers.push(Process::open(store).await.deliver(&targets, options()));
            }
            for key in keys {
                let state = front.rests(key).await.delivery.state;
                assert_eq!(state, State::Delivered, "seed {seed}, {contract:?}");
            }
            for worker in &mut workers {
                worker.stop().await;
            }
            let effects = target.effects();
            let doubled = effects.iter().filter(|(_, count)| **count != 1).count();
            assert_eq!((effects.len(), doubled), (60, 0), "seed {seed}, {contract:?}");
        }
    }
}
