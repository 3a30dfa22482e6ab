//! Simulation: the product's engine and worker with clients, an operator and modelled targets, on a
//! simulated clock, network, disk and randomness, on one thread. One seed gives one history, to the
//! byte. The ledger is the one in memory: SQLite's has threads of its own, and stays out.

mod disk;
pub mod plan;
mod run;
mod target;
mod world;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
pub use plan::Profile;

/// The command's arguments.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// How many seeds to run
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The faults; without it each seed takes its own profile, in turn
    #[arg(long)]
    profile: Option<Profile>,
    /// As a control, plant this fault: it must be found, and the command fails
    #[arg(long)]
    plant: Option<Twin>,
    /// Write failing seeds down here; without it, where the tests find them, but for a planted fault
    #[arg(long)]
    regressions: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A planted fault, which the simulation must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Twin {
    /// The target under `key` knows no keys.
    NoKeys,
    /// The ledger forgets that a request was about to leave.
    ForgetsDispatch,
    /// The ledger acknowledges what it does not keep.
    ForgetsAcceptance,
    /// What sends, sends again when no reply came.
    ResendsOnLostReply,
}

/// What came of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Every event, a line each: the simulated milliseconds and what happened.
    pub text: String,
    /// Operations that clients asked for.
    pub operations_count: u64,
    /// Commands of the ledger, requests, searches and questions.
    pub steps_count: u64,
    /// What is wrong. Empty: nothing.
    pub violations: Vec<String>,
    /// What came about, and how often: states at the end, and what was told.
    pub reached: BTreeMap<&'static str, u64>,
}

/// What a run of many seeds must come to; else its rules are not tried. A late contradiction is not
/// among it: a reply must outlive its lease and a mistaken word, which takes more seeds than a test.
pub const MUST_REACH: [&str; 10] = [
    "delivered",
    "in_doubt",
    "dead_letter",
    "cancelled",
    "ended by cancel",
    "ended by abandon",
    "ended by resolve",
    "told not_applied",
    "told applied",
    "replayed",
];

/// Runs a seed.
///
/// # Errors
/// If there is no runtime.
pub fn history(seed: u64, profile: Profile, twin: Option<Twin>) -> std::io::Result<History> {
    run::run(seed, profile, twin)
}

/// The command that repeats a seed.
#[must_use]
pub fn command(seed: u64, profile: Profile, plant: Option<Twin>) -> String {
    let value = plant.as_ref().and_then(ValueEnum::to_possible_value);
    let plant = value.map(|value| format!(" --plant {}", value.get_name())).unwrap_or_default();
    format!("counterfoil-lab sim --seeds 1 --seed {seed} --profile {}{plant}", profile.as_str())
}

/// Runs seeds, and tells what was found; true if nothing was.
///
/// # Errors
/// If there is no runtime, or a failing seed cannot be written down.
pub fn run_command(args: &SimArgs) -> anyhow::Result<(String, bool)> {
    let begun = Instant::now();
    let (mut operations_count, mut steps_count) = (0, 0);
    let (mut failed, mut found) = (Vec::new(), String::new());
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let profile = args.profile.unwrap_or_else(|| Profile::of(seed));
        let history = history(seed, profile, args.plant)?;
        operations_count += history.operations_count;
        steps_count += history.steps_count;
        history.reached.iter().for_each(|(what, count)| *reached.entry(what).or_default() += count);
        if !history.violations.is_empty() {
            let command = command(seed, profile, args.plant);
            writeln!(found, "{}\nrepeat it: {command}", history.violations.join("\n"))?;
            keep(args, seed, profile)?;
            failed.push(command);
        }
    }
    let elapsed_ms = u64::try_from(begun.elapsed().as_millis())?;
    let per_s = operations_count * 1000 / elapsed_ms.max(1);
    let printed = if args.json {
        serde_json::json!({
            "seeds": args.seeds, "operations": operations_count, "steps": steps_count,
            "elapsedMs": elapsed_ms, "operationsPerSecond": per_s, "failed": failed,
            "reached": reached,
        })
        .to_string()
    } else {
        format!(
            "{found}{} seeds, {operations_count} operations, {steps_count} steps in {elapsed_ms} ms \
             ({per_s} operations/s); {} failed\n{}",
            args.seeds,
            failed.len(),
            told(&reached),
        )
    };
    Ok((printed, failed.is_empty()))
}

fn told(reached: &BTreeMap<&str, u64>) -> String {
    let each: Vec<_> = reached.iter().map(|(what, count)| format!("{what}: {count}")).collect();
    each.join(", ")
}

/// Writes a failing seed down, where the test finds it.
fn keep(args: &SimArgs, seed: u64, profile: Profile) -> std::io::Result<()> {
    let folder = match (&args.regressions, args.plant) {
        (Some(folder), _) => folder.clone(),
        (None, None) => Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions"),
        (None, Some(_)) => return Ok(()),
    };
    std::fs::create_dir_all(&folder)?;
    let name = profile.as_str();
    std::fs::write(folder.join(format!("{name}-{seed}")), format!("{seed} {name}\n"))
}
