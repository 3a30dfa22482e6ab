//! Faults of the disk, by enumeration: every call of SQLite's that a work makes fails once, and
//! for ever; the power goes off at every change, and the disk keeps what it likes of the rest.
//!
//! After each: no caller was told what is not so, `store check` finds nothing, and the same work
//! can be brought to its end, with each effect made once.

mod scene;
mod steps;
mod trial;
mod works;

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Context as _;
use clap::Args;
use counterfoil_fault_disk::{Call, Failure, Loss};
use serde::Serialize;

use crate::random::Random;
use trial::{Outcome, Trial};
use works::{Work, long, short};

/// The command's arguments.
#[derive(Debug, Args)]
pub struct DiskArgs {
    /// Only this work, such as `one-step`, `outbox` or `concurrent`
    #[arg(long)]
    pub work: Option<String>,
    /// Only this trial of it, as a failed run prints it: `write:3:io:once`, `power:5:torn-512:1`
    #[arg(long, requires = "work", value_name = "KIND:N:HOW:LAST")]
    pub trial: Option<String>,
    /// Try every so-manieth place only
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub stride: u64,
    /// What the disk keeps is chosen anew with so many seeds at each place
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// What all trials of one kind on one work came to.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The work.
    pub work: &'static str,
    /// What went wrong in it.
    pub kind: &'static str,
    /// Trials, in count.
    pub trials_count: u64,
    /// Trials in which the fault happened, in count.
    pub hits_count: u64,
    /// What should not be: the trial, and what was found. The first of them.
    pub problems: Vec<(String, Vec<String>)>,
    /// Trials with problems, in count.
    pub bad_count: u64,
}

/// What the command found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The first seed.
    pub seed: u64,
    /// What each work came to.
    pub rows: Vec<Row>,
    /// The control: a disk that lies about what it synchronised. It must have problems.
    pub control: Row,
}

impl Report {
    /// Whether nothing was found, and the control was caught.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let is_clean = |row: &Row| row.bad_count == 0 && row.hits_count > 0;
        self.rows.iter().all(is_clean) && self.control.bad_count > 0
    }
}

/// So many bad trials are told in a row.
const TOLD_COUNT: usize = 5;

impl Row {
    const fn new(work: &'static str, kind: &'static str) -> Self {
        Self { work, kind, trials_count: 0, hits_count: 0, problems: Vec::new(), bad_count: 0 }
    }

    fn add(&mut self, trial: Trial, outcome: Outcome) {
        self.trials_count += 1;
        self.hits_count += u64::from(outcome.hit);
        if outcome.problems.is_empty() {
            return;
        }
        self.bad_count += 1;
        if self.problems.len() < TOLD_COUNT {
            self.problems.push((trial.to_string(), outcome.problems));
        }
    }
}

/// Runs the command; says whether all is well.
///
/// # Errors
/// If the lab itself fails.
pub async fn run(args: &DiskArgs) -> anyhow::Result<(String, bool)> {
    if let (Some(name), Some(trial)) = (&args.work, &args.trial) {
        return again(name, trial).await;
    }
    let report = explore(args).await?;
    let good = report.is_good();
    let printed =
        if args.json { serde_json::to_string_pretty(&report)? } else { table(&report, args) };
    Ok((printed, good))
}

/// Runs every trial that was asked for.
///
/// # Errors
/// If the lab itself fails, or no work has the name.
pub async fn explore(args: &DiskArgs) -> anyhow::Result<Report> {
    let mut rows = Vec::new();
    let wanted = |name: &str| args.work.as_ref().is_none_or(|work| work == name);
    let works: Vec<Work> = short().into_iter().filter(|work| wanted(work.name)).collect();
    let long = Some(long()).filter(|work| wanted(work.name));
    anyhow::ensure!(!works.is_empty() || long.is_some(), "no work has that name: {:?}", names());
    for work in &works {
        let template = tempfile::tempdir()?;
        work.prepare(template.path()).await.with_context(|| work.name)?;
        rows.push(calls(work, template.path(), args).await?);
        tell(rows.last());
        rows.push(powers(work, template.path(), args).await?);
        tell(rows.last());
    }
    if let Some(work) = &long {
        rows.push(by_seeds(work, args).await?);
        tell(rows.last());
    }
    let control = control(args).await?;
    Ok(Report { seed: args.seed, rows, control })
}

fn names() -> Vec<&'static str> {
    short().iter().chain([&long()]).map(|work| work.name).collect()
}

/// One trial, as a failed run printed it.
async fn again(name: &str, trial: &str) -> anyhow::Result<(String, bool)> {
    let found = short().into_iter().chain([long()]).find(|work| work.name == name);
    let work = found.with_context(|| format!("`{name}` is none of {:?}", names()))?;
    let template = tempfile::tempdir()?;
    work.prepare(template.path()).await?;
    let outcome = trial::run(&work, template.path(), trial.parse()?).await?;
    let good = outcome.problems.is_empty();
    let hit = if outcome.hit { "the fault happened" } else { "the fault did not happen" };
    let problems = if good { "nothing is wrong".into() } else { outcome.problems.join("\n") };
    Ok((format!("{name} {trial}: {hit}\n{problems}"), good))
}

/// Every call fails, once and for ever.
async fn calls(work: &Work, template: &std::path::Path, args: &DiskArgs) -> anyhow::Result<Row> {
    let mut row = Row::new(work.name, "I/O errors");
    for call in Call::ALL {
        let failures: &[Failure] = match call {
            Call::Write => &[Failure::Io, Failure::Half, Failure::Full],
            _ => &[Failure::Io],
        };
        for failure in failures {
            for for_ever in [false, true] {
                let mut nth = 1;
                loop {
                    let trial = Trial::Fails { call, nth, failure: *failure, for_ever };
                    let outcome = trial::run(work, template, trial).await;
                    let outcome = outcome.with_context(|| format!("{} {trial}", work.name))?;
                    let hit = outcome.hit;
                    row.add(trial, outcome);
                    if !hit {
                        break;
                    }
                    nth += args.stride.max(1);
                }
            }
        }
    }
    Ok(row)
}

/// The power goes off at every change, and when all is done.
async fn powers(work: &Work, template: &std::path::Path, args: &DiskArgs) -> anyhow::Result<Row> {
    let mut row = Row::new(work.name, "power loss");
    let mut nth = 0;
    loop {
        let mut hit = nth == 0;
        for loss in Loss::ALL {
            let is_fixed = matches!(loss, Loss::Everything | Loss::Nothing);
            let seeds = if is_fixed { 1 } else { args.seeds.max(1) };
            for seed in args.seed..args.seed + seeds {
                let trial = Trial::Power { nth, loss, seed };
                let outcome = trial::run(work, template, trial).await;
                let outcome = outcome.with_context(|| format!("{} {trial}", work.name))?;
                hit |= outcome.hit;
                row.add(trial, outcome);
            }
        }
        if !hit {
            return Ok(row);
        }
        nth += if nth == 0 { 1 } else { args.stride.max(1) };
    }
}

/// The power goes off somewhere in many calls at once.
async fn by_seeds(work: &Work, args: &DiskArgs) -> anyhow::Result<Row> {
    let template = tempfile::tempdir()?;
    work.prepare(template.path()).await?;
    let mut row = Row::new(work.name, "power loss");
    let idle = Trial::Power { nth: u64::MAX, loss: Loss::Nothing, seed: args.seed };
    let changes_count = trial::run(work, template.path(), idle).await?.changes_count;
    for seed in args.seed..args.seed + 4 * args.seeds.max(1) {
        let mut random = Random::new(seed);
        let nth = 1 + random.below(changes_count.max(1));
        let kinds = u64::try_from(Loss::ALL.len())?;
        let loss = Loss::ALL[usize::try_from(random.below(kinds))?];
        let trial = Trial::Power { nth, loss, seed };
        row.add(trial, trial::run(work, template.path(), trial).await?);
    }
    Ok(row)
}

/// A disk that lies must be caught, or the trials above show nothing.
async fn control(args: &DiskArgs) -> anyhow::Result<Row> {
    let mut row = Row::new("one-step", "control: a disk that lies");
    let works = short();
    let work = works.iter().find(|work| work.name == row.work).context("there is such a work")?;
    let template = tempfile::tempdir()?;
    work.prepare(template.path()).await?;
    for loss in Loss::ALL {
        let trial = Trial::Lies { nth: 0, loss, seed: args.seed };
        row.add(trial, trial::run(work, template.path(), trial).await?);
    }
    tell(Some(&row));
    Ok(row)
}

fn tell(row: Option<&Row>) {
    if let Some(row) = row {
        let (trials, bad) = (row.trials_count, row.bad_count);
        let words = format!("{}, {}: {trials} trials, {bad} bad", row.work, row.kind);
        let _ = writeln!(std::io::stderr(), "{words}");
    }
}

fn table(report: &Report, args: &DiskArgs) -> String {
    let mut text =
        format!("{:<14}{:<28}{:>8}{:>8}{:>6}\n", "work", "what", "trials", "hits", "bad");
    for row in report.rows.iter().chain([&report.control]) {
        let (trials, hits, bad) = (row.trials_count, row.hits_count, row.bad_count);
        let _ = writeln!(text, "{:<14}{:<28}{trials:>8}{hits:>8}{bad:>6}", row.work, row.kind);
    }
    for row in &report.rows {
        for (trial, problems) in &row.problems {
            let _ = writeln!(text, "\n{} {trial}:\n  {}", row.work, problems.join("\n  "));
            let again = format!("faults-disk --work {} --trial {trial}", row.work);
            let _ = writeln!(text, "  again: counterfoil-lab {again}");
        }
    }
    if report.control.bad_count == 0 {
        text.push_str("\nThe control was not caught: these trials show nothing.\n");
    }
    let _ = write!(text, "seed {}, stride {}, {} seeds", report.seed, args.stride, args.seeds);
    text
}
