//! Which models are run, within which bounds.

use stateright::HasDiscoveries;

use super::delivery::{self, DeliveryModel, Pace, Promise};
use super::rules::Rule;
use super::run::{Caught, Found, Outcome, explore};
use super::{call, call::CallModel};

/// The bounds of a whole check.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Of calls: once for each.
    pub calls: Vec<call::Bounds>,
    /// Of deliveries: once for each, under every promise of the target.
    pub deliveries: Vec<delivery::Bounds>,
}

/// What a model of deliveries may spend: claims, deaths, orders, repeats.
const fn deliveries(horizon: u8, spend: [u8; 4]) -> delivery::Bounds {
    let [claims, crashes, orders, repeats] = spend;
    let left = delivery::Left { claims, crashes, orders, repeats, failures: 0 };
    delivery::Bounds { horizon, attempts: 2, left, pace: Pace::Free }
}

/// What a model of calls may spend: deaths, failures, orders.
const fn calls(horizon: u8, spend: [u8; 3]) -> call::Bounds {
    let [crashes, failures, orders] = spend;
    let left = call::Left { crashes, failures, orders };
    call::Bounds { horizon, left, prompt: false }
}

impl Plan {
    /// What `./test` runs: once with what people do and once with what machines do wrong.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            calls: vec![calls(3, [2, 0, 0]), calls(3, [1, 1, 1])],
            deliveries: vec![deliveries(6, [3, 0, 1, 0]), deliveries(6, [3, 2, 0, 1])],
        }
    }

    /// All at once, longer, and with more attempts.
    #[must_use]
    pub fn full() -> Self {
        Self {
            calls: vec![calls(4, [2, 1, 1])],
            deliveries: vec![
                deliveries(6, [3, 2, 1, 1]),
                deliveries(7, [3, 0, 2, 0]),
                deliveries(8, [4, 0, 0, 0]),
            ],
        }
    }
}

/// Checks the safety of every model, and what it must come to in the end; `tell` hears of each when
/// it is done.
pub fn all(plan: &Plan, mut tell: impl FnMut(&Outcome)) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let mut keep = |outcome: Outcome| {
        tell(&outcome);
        outcomes.push(outcome);
    };
    for bounds in &plan.calls {
        let call::Left { crashes, failures, orders } = bounds.left;
        let name = format!("calls, {crashes} deaths {failures} failures {orders} orders");
        keep(explore(&name, CallModel::new(*bounds, None), when()));
    }
    for bounds in &plan.deliveries {
        let delivery::Left { crashes, orders, repeats, .. } = bounds.left;
        for promise in Promise::ALL {
            let name =
                format!("{}, {crashes} deaths {orders} orders {repeats} repeats", promise.as_str());
            let model = DeliveryModel::new(promise, *bounds, None);
            keep(explore(&name, model, when()));
        }
    }
    ends().for_each(keep);
    outcomes
}

/// A model goes on until every rule is broken, which is to its end.
const fn when() -> HasDiscoveries {
    HasDiscoveries::All
}

/// The bounded models without cycles that show what must happen in the end.
#[must_use]
pub fn ending_calls() -> CallModel {
    let left = call::Left { crashes: 1, failures: 1, orders: 1 };
    CallModel::new(call::Bounds { horizon: 4, left, prompt: true }, None)
}

/// The same of deliveries: a target that fails for a while, or one that comes back.
#[must_use]
pub fn ending_deliveries(
    promise: Promise,
    pace: Pace,
    twin: Option<delivery::Twin>,
) -> DeliveryModel {
    let (attempts, failures) = if pace == Pace::Returns { (4, 2) } else { (2, 4) };
    let left = delivery::Left { claims: 14, crashes: 1, orders: 0, repeats: 1, failures };
    DeliveryModel::new(promise, delivery::Bounds { horizon: 30, attempts, left, pace }, twin)
}

fn ends() -> impl Iterator<Item = Outcome> {
    let calls = std::iter::once_with(|| explore("ends, calls", ending_calls(), when()));
    let paces = [(Pace::Prompt, "ends"), (Pace::Returns, "ends, target returns")];
    calls.chain(paces.into_iter().flat_map(|(pace, word)| {
        Promise::ALL.into_iter().map(move |promise| {
            let name = format!("{word}, {}", promise.as_str());
            explore(&name, ending_deliveries(promise, pace, None), when())
        })
    }))
}

/// Looks for what each broken twin breaks.
#[must_use]
pub fn twins() -> Vec<Caught> {
    let mut caught = Vec::new();
    for (twin, rule) in call::Twin::ALL {
        let model = CallModel::new(calls(3, [1, 1, 1]), Some(twin));
        caught.push(look_for(format!("{twin:?}"), rule.as_str(), explore_for(rule, model)));
    }
    for (twin, promise, rule) in delivery::Twin::ALL {
        let model = DeliveryModel::new(promise, deliveries(7, [3, 0, 2, 1]), Some(twin));
        caught.push(look_for(format!("{twin:?}"), rule.as_str(), explore_for(rule, model)));
    }
    let stuck = delivery::Twin::NeverTakenBack;
    for (pace, rule) in [(Pace::Prompt, delivery::ENDS), (Pace::Returns, delivery::DELIVERED)] {
        let model = ending_deliveries(Promise::Key, pace, Some(stuck));
        let outcome = explore("twin", model, HasDiscoveries::AnyOf([rule].into()));
        caught.push(look_for(format!("{stuck:?}"), rule, outcome));
    }
    caught
}

fn explore_for<M>(rule: Rule, model: M) -> Outcome
where
    M: stateright::Model + Send + Sync + 'static,
    M::State: std::hash::Hash + Send + Sync + Clone + PartialEq + std::fmt::Debug + 'static,
    M::Action: Clone + PartialEq + std::fmt::Debug,
{
    explore("twin", model, HasDiscoveries::AnyOf([rule.as_str()].into()))
}

fn look_for(twin: String, rule: &'static str, outcome: Outcome) -> Caught {
    let found = outcome.broken.into_iter().find(|found: &Found| found.rule == rule);
    Caught { twin, rule, steps: found.map(|found| found.steps) }
}
