//! The model check: every order of losses, delays, deaths, expiries and orders that fits in the
//! bounds keeps the rules, every broken twin breaks one, and what must happen in the end does.
//! `COUNTERFOIL_TEST_FULL` takes the larger bounds.

mod common;

use std::sync::Arc;

use common::{full, note};
use counterfoil_core::identity::BackendId;
use counterfoil_lab::model::call::{self, CallModel};
use counterfoil_lab::model::delivery::{self, DeliveryModel, Pace, Promise, Twin, WalkClock, walk};
use counterfoil_lab::model::plan::{Plan, ending_calls, ending_deliveries, twins};
use counterfoil_lab::model::run::{Outcome, explore, is_acyclic};
use counterfoil_store::{MemoryOptions, MemoryStore};
use stateright::HasDiscoveries;

fn plan() -> Plan {
    if full() { Plan::full() } else { Plan::standard() }
}

/// A model whose rules hold, and in which everything that should be reached is.
fn check(outcome: &Outcome) {
    let Outcome { model, states, steps, elapsed_ms, .. } = outcome;
    note(&format!("{model}: {states} states, {steps} steps, {elapsed_ms} ms"));
    assert!(outcome.is_good(), "{outcome:#?}");
}

fn check_call(bounds: call::Bounds) {
    check(&explore("calls", CallModel::new(bounds, None), HasDiscoveries::All));
}

fn check_delivery(promise: Promise, bounds: delivery::Bounds) {
    let model = DeliveryModel::new(promise, bounds, None);
    check(&explore(promise.as_str(), model, HasDiscoveries::All));
}

#[test]
fn calls_are_safe_in_every_order() {
    // Promise: one identity has one effect, and what is told of it is true, whatever is lost,
    // repeated, late, or dies, and whichever clock ends first.
    plan().calls.into_iter().for_each(check_call);
}

#[test]
fn deliveries_are_safe_in_every_order() {
    // Promise: a target does it once, as far as its own promise allows, and `applied` and
    // `not_applied` are true, whatever workers, target, network and operators do.
    for bounds in plan().deliveries {
        for promise in Promise::ALL {
            check_delivery(promise, bounds);
        }
    }
}

#[test]
fn every_broken_twin_is_caught() {
    // Promise: the check would see it if a guard, a fence, an expiry or an account were wrong.
    let caught = twins();
    let known: std::collections::BTreeSet<&str> =
        caught.iter().map(|caught| caught.twin.as_str()).collect();
    assert!(known.len() >= 25, "{known:?}");
    for caught in caught {
        assert!(caught.steps.is_some(), "{} is not caught by: {}", caught.twin, caught.rule);
    }
}

#[test]
fn everything_comes_to_an_end() {
    // Promise: where everybody does their part every operation ends settled, in doubt or with an
    // operator, and what is queued for a target that comes back ends delivered.
    let calls = ending_calls();
    assert!(is_acyclic(&calls), "calls");
    check(&explore("ends, calls", calls, HasDiscoveries::All));
    for pace in [Pace::Prompt, Pace::Returns] {
        for promise in Promise::ALL {
            let model = ending_deliveries(promise, pace, None);
            // Else a path could go round for ever, and its end would say nothing.
            assert!(is_acyclic(&model), "{promise:?}");
            check(&explore(promise.as_str(), model, HasDiscoveries::All));
        }
    }
}

/// The bounds of a walk, which may be long.
const FAR: delivery::Bounds = delivery::Bounds {
    horizon: 12,
    attempts: 2,
    left: delivery::Left { claims: 5, crashes: 2, orders: 3, repeats: 2, failures: 0 },
    pace: Pace::Free,
};

/// A walk through the model and a ledger side by side.
async fn walk_beside(model: &DeliveryModel, seed: u64) -> anyhow::Result<usize> {
    let clock = WalkClock::default();
    let options = MemoryOptions {
        clock: Arc::new(clock.clone()),
        ..MemoryOptions::new(BackendId::parse("model").expect("an ID"))
    };
    let store = MemoryStore::new(&options).expect("an empty ledger");
    walk(model, seed, (&store, &clock)).await
}

#[tokio::test]
async fn a_store_goes_the_models_ways() {
    // Promise: what the model shows of its ledger is true of a real one, whose own code puts steps
    // and records together. (The durable back ends are held to this one by the store's suite.)
    let walk_count = if full() { 20_000 } else { 1500 };
    let mut step_count = 0;
    for promise in Promise::ALL {
        let model = DeliveryModel::new(promise, FAR, None);
        for seed in 0..walk_count / 7 {
            let walked = walk_beside(&model, seed).await;
            step_count += walked.unwrap_or_else(|e| panic!("{promise:?}, seed {seed}: {e:#}"));
        }
    }
    note(&format!("{walk_count} walks, {step_count} steps"));
    assert!(step_count as u64 > walk_count * 10, "{step_count}");
}

#[tokio::test]
async fn a_store_that_went_another_way_would_be_found() {
    // Promise: the walks do compare: each twin that lies about the ledger parts from a real one.
    for (twin, promise) in [
        (Twin::RefusalOverridesUnknown, Promise::Key),
        (Twin::LapseIsUnsent, Promise::Never),
        (Twin::CancelIgnoresUnknown, Promise::Key),
        (Twin::WordIsProof, Promise::Never),
        (Twin::RevokedIsSent, Promise::Key),
    ] {
        let model = DeliveryModel::new(promise, FAR, Some(twin));
        let mut parted = false;
        for seed in 0..2000 {
            parted |= walk_beside(&model, seed).await.is_err();
            if parted {
                break;
            }
        }
        assert!(parted, "{twin:?}");
    }
}
