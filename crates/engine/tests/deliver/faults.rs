//! A ledger and connectors that fail.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{Contract, ParkReason, State, TargetName};
use counterfoil_engine::{Deliverer, DelivererError, DelivererOptions, Target, TargetLimits};

use crate::fake::{Does, End, Fake, limits};
use crate::faulty::{Fault, Faulty};
use crate::world::{Process, key, options, store, terms};

#[tokio::test(start_paused = true)]
async fn a_ledger_that_fails_loses_and_doubles_nothing() {
    // Promise: nothing is sent that the ledger did not record, and a report that it does not take
    // is tried until it does; an answer that was lost is asked for again.
    for command in ["claim", "begin_send", "report", "next_due", "next_due_of", "match_targets"] {
        for fault in [Fault::Busy, Fault::LostAnswer, Fault::Panics] {
            let store = store();
            let faulty = Faulty::new(Arc::clone(&store), move |name, number| {
                if name == command && number < 6 { fault } else { Fault::Passes }
            });
            let target = Fake::new(|_, _| Does::after(Duration::from_millis(3))).arc();
            let mut process =
                Process::open(faulty).await.deliver(&[Arc::clone(&target)], options());
            // A claim whose answer was lost leaves its items leased: they come when that ends.
            let keys = process.accept_many(20, &target.target_name(), terms(key())).await;
            process.all_rest_in(&keys, State::Delivered).await;
            let effects = target.effects();
            // A store that panics on a report loses that report alone, and the key saves it.
            let bound = if (command, fault) == ("report", Fault::Panics) { 2 } else { 1 };
            assert!(
                effects.len() == 20 && effects.values().all(|count| *count <= bound),
                "{command} {fault:?}: {effects:?}"
            );
            process.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connector_that_panics_moves_its_item_on() {
    // Promise: every failure of a connector, foreseen or not, is an outcome; nothing stays in
    // sending, and other items go on.
    let target = Fake::new(|request, _| match request {
        "op-0001" => Does { end: End::Panics, ..Does::WELL },
        _ => Does::WELL,
    });
    let target = target.checked(|request| match request {
        "op-0002" => panic!("the check panics, as the test wants"),
        "op-0003" => Err(ParkReason::AccountChanged),
        _ => Ok(()),
    });
    let target = target.arc();
    let mut process = Process::open(store()).await.deliver(&[Arc::clone(&target)], options());
    let keys = process.accept_many(5, &target.target_name(), terms(Contract::Never)).await;
    let states =
        [State::Delivered, State::InDoubt, State::DeadLetter, State::Parked, State::Delivered];
    for (key, state) in keys.iter().zip(states) {
        process.all_rest_in(&[*key], state).await;
    }
    assert_eq!(process.item(keys[2]).await.delivery.unknown_count, 0, "nothing was sent");
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_panics_is_started_again() {
    // Promise: one bad turn costs a moment, not the target.
    let store = store();
    let faulty = Faulty::new(Arc::clone(&store), |name, number| {
        if name == "claim" && number < 3 { Fault::Panics } else { Fault::Passes }
    });
    let target = Fake::well().arc();
    let mut process = Process::open(faulty).await.deliver(&[Arc::clone(&target)], options());
    let item = process.accept("op", &target.target_name(), terms(Contract::Never)).await;
    process.all_rest_in(&[item], State::Delivered).await;
    assert_eq!(process.engine.delivery_numbers().all()[0].1.restarts_count(), 3);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unconfigured_target_parks_its_items_until_it_is_back() {
    // Promise: a connector that was removed loses nothing: its items are parked, visibly, and go on
    // when it is configured again.
    let (gone, kept) = (Fake::well().named("gone").arc(), Fake::well().named("kept").arc());
    let store = store();
    let front = Process::open(store.clone()).await;
    let item = front.accept("op", &gone.target_name(), terms(Contract::Never)).await;
    let kept = [kept];
    let mut without = Process::open(store.clone()).await.deliver(&kept, options());
    let view = front.rests(item).await;
    assert_eq!(view.delivery.state, State::Parked);
    assert_eq!(view.delivery.park, Some(ParkReason::TargetUnknown));
    without.stop().await;
    let both = [Arc::clone(&kept[0]), Arc::clone(&gone)];
    let mut with = Process::open(store.clone()).await.deliver(&both, options());
    tokio::time::sleep(Duration::from_secs(60)).await;
    front.all_rest_in(&[item], State::Delivered).await;
    with.stop().await;
    assert_eq!(gone.effects()["op"], 1);
}

#[tokio::test(start_paused = true)]
async fn bad_limits_are_refused_with_their_names() {
    // Promise: a worker starts with good limits or says which one is bad.
    let engine = Process::open(store()).await.engine;
    let with = |change: fn(&mut TargetLimits)| {
        let mut limits = limits();
        change(&mut limits);
        Fake::well().limited(limits)
    };
    let cases: Vec<(Vec<Fake>, Option<&str>, &str)> = vec![
        (vec![with(|l| l.concurrency_count = 0)], None, "concurrency"),
        (vec![with(|l| l.rate_per_s = Some(0.0))], None, "rate"),
        (vec![with(|l| l.rate_per_s = Some(-1.0))], None, "rate"),
        (vec![with(|l| l.rate_per_s = Some(f64::NAN))], None, "rate"),
        (vec![with(|l| l.rate_per_s = Some(f64::INFINITY))], None, "rate"),
        (vec![with(|l| l.send_limit = Duration::ZERO)], None, "timeout"),
        (
            vec![with(|l| {
                l.breaker_failures_count = 1;
                l.breaker_open = (Duration::ZERO, Duration::ZERO);
            })],
            None,
            "breaker_open",
        ),
        (vec![Fake::well(), Fake::well()], None, "two targets are called `desk`"),
        (vec![Fake::well()], Some("other"), "no target is called `other`; the targets are: desk"),
    ];
    for (targets, only, words) in cases {
        let targets = targets.into_iter().map(|fake| fake.arc() as Arc<dyn Target>).collect();
        let only = only.map(|name| vec![TargetName::parse(name).expect("a name")]);
        let options = DelivererOptions { only, ..options() };
        let refused: Result<_, DelivererError> =
            Deliverer::new(Arc::clone(&engine), targets, options);
        let refused = refused.expect_err(words).to_string();
        assert!(refused.contains(words), "{refused}");
    }
}
