//! Runs the models and tells what was found.

use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::hash::Hash;
use std::io::Write as _;
use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use stateright::{Checker as _, Expectation, HasDiscoveries, Model};

use super::plan::{Plan, all, twins};

/// The command's arguments.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// Larger bounds, which take minutes and gigabytes
    #[arg(long)]
    full: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// What the command found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What each model came to.
    pub models: Vec<Outcome>,
    /// What each broken twin came to.
    pub twins: Vec<Caught>,
}

/// What a broken twin came to.
#[derive(Debug, Clone, Serialize)]
pub struct Caught {
    /// The twin.
    pub twin: String,
    /// The rule that should catch it.
    pub rule: &'static str,
    /// The shortest steps that were found to break the rule; `None` if it was not caught.
    pub steps: Option<Vec<String>>,
}

/// What one model came to.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The model, with its bounds.
    pub model: String,
    /// Different states that were reached, in count.
    pub states: usize,
    /// Steps that were taken from them, in count.
    pub steps: usize,
    /// How long it took.
    pub elapsed_ms: u128,
    /// The rules that do not hold, each with the steps that show it.
    pub broken: Vec<Found>,
    /// What should be reached and was not.
    pub unreached: Vec<&'static str>,
}

/// A rule that does not hold.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// The rule.
    pub rule: &'static str,
    /// The steps from the beginning.
    pub steps: Vec<String>,
}

impl Outcome {
    /// Whether every rule holds and everything was reached.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.broken.is_empty() && self.unreached.is_empty()
    }
}

/// Explores a model to the end, or until `finish_when`.
pub fn explore<M>(name: &str, model: M, finish_when: HasDiscoveries) -> Outcome
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Send + Sync + Clone + PartialEq + Debug + 'static,
    M::Action: Clone + PartialEq + Debug,
{
    let begun = Instant::now();
    let properties = model.properties();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = model.checker().threads(threads).finish_when(finish_when).spawn_bfs().join();
    let mut outcome = Outcome {
        model: name.to_owned(),
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        elapsed_ms: 0,
        broken: Vec::new(),
        unreached: Vec::new(),
    };
    let mut found = checker.discoveries();
    for property in properties {
        match (property.expectation, found.remove(property.name)) {
            (Expectation::Sometimes, None) => outcome.unreached.push(property.name),
            (Expectation::Sometimes, Some(_)) | (_, None) => {}
            (_, Some(path)) => {
                let steps = path.into_actions().iter().map(|step| format!("{step:?}")).collect();
                outcome.broken.push(Found { rule: property.name, steps });
            }
        }
    }
    outcome.elapsed_ms = begun.elapsed().as_millis();
    outcome
}

/// Whether no path comes back to where it was: then every path ends, and what is true of every end
/// happens in the end.
pub fn is_acyclic<M>(model: &M) -> bool
where
    M: Model,
    M::State: Hash + Eq + Clone,
{
    // True while a state is on the path that is being followed.
    let mut seen: HashMap<M::State, bool> = HashMap::new();
    let mut path: Vec<(M::State, Vec<M::State>)> = Vec::new();
    for start in model.init_states() {
        if seen.contains_key(&start) {
            continue;
        }
        seen.insert(start.clone(), true);
        let next = model.next_states(&start);
        path.push((start, next));
        while let Some((state, next)) = path.last_mut() {
            match next.pop() {
                None => {
                    seen.insert(state.clone(), false);
                    path.pop();
                }
                Some(next) => match seen.get(&next) {
                    Some(true) => return false,
                    Some(false) => {}
                    None => {
                        seen.insert(next.clone(), true);
                        let after = model.next_states(&next);
                        path.push((next, after));
                    }
                },
            }
        }
    }
    true
}

/// Runs the command; gives what it prints.
///
/// # Errors
/// If a rule is broken, something was not reached, or a twin was not caught; the words are the
/// report.
pub fn run_command(args: &ModelArgs) -> anyhow::Result<String> {
    let plan = if args.full { Plan::full() } else { Plan::standard() };
    let progress = |outcome: &Outcome| {
        if !args.json {
            let _ = writeln!(
                std::io::stderr(),
                "{}: {} states, {} ms",
                outcome.model,
                outcome.states,
                outcome.elapsed_ms
            );
        }
    };
    let report = Report { models: all(&plan, progress), twins: twins() };
    let text = if args.json { serde_json::to_string_pretty(&report)? } else { report.as_table() };
    ensure!(report.is_good(), "the model check failed:\n{text}");
    Ok(text)
}

impl Report {
    fn is_good(&self) -> bool {
        self.models.iter().all(Outcome::is_good)
            && self.twins.iter().all(|caught| caught.steps.is_some())
    }

    fn as_table(&self) -> String {
        let mut text = format!("{:<62} {:>10} {:>11} {:>9}\n", "model", "states", "steps", "ms");
        for outcome in &self.models {
            let Outcome { model, states, steps, elapsed_ms, .. } = outcome;
            let _ = writeln!(text, "{model:<62} {states:>10} {steps:>11} {elapsed_ms:>9}");
            for found in &outcome.broken {
                let _ =
                    writeln!(text, "  BROKEN: {}\n    {}", found.rule, found.steps.join("\n    "));
            }
            for name in &outcome.unreached {
                let _ = writeln!(text, "  NOT REACHED: {name}");
            }
        }
        let states: usize = self.models.iter().map(|outcome| outcome.states).sum();
        let elapsed_ms: u128 = self.models.iter().map(|outcome| outcome.elapsed_ms).sum();
        let _ = writeln!(text, "{:<62} {states:>10} {:>11} {elapsed_ms:>9}\n", "all", "");
        for Caught { twin, rule, steps } in &self.twins {
            let how = match steps {
                Some(steps) => format!("in {} steps", steps.len()),
                None => "NOT CAUGHT".to_owned(),
            };
            let _ = writeln!(text, "twin {twin:<34} caught by \"{rule}\" {how}");
        }
        text
    }
}
