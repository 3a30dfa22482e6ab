//! `counterfoil-lab transport`: a proxy between real clients and real servers drops, delays,
//! duplicates, truncates and corrupts one message of one call, on its way there (before the commit)
//! or back (after it), and what follows is held against the physical rows.
//!
//! [`plan`] has the grid of faults and those by chance, `tamper` what each makes of a message,
//! `proxy` the threads, `client` the lab's own client, `lane` a ledger with its servers, `cell` one
//! call and its recovery, `judge` what must hold of it, [`pipe`] the same proxy as a program that stands
//! before or behind `counterfoil wrap`. The control is the same grid in front of a
//! server without a ledger: every reply that went wrong must leave a duplicate there.

mod cell;
mod client;
mod frames;
mod judge;
mod lane;
pub mod pipe;
pub mod plan;
mod proxy;
mod report;
mod tamper;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::Args;
use tokio::task::JoinSet;

use crate::history::{Physical, Recorder, Rule, check};
use crate::random::Random;
use crate::readback;
use cell::Happened;
use lane::Lane;
use plan::{Direction, Plan, WAYS, Who, Wire};

pub use lane::Programs;
pub use report::{Cell, Summary};

/// The command's arguments.
///
/// Every cell of the grid is one call through a proxy that does one thing to one message; then the
/// client asks, sends the same again and asks, by a clean way. Exit code 0: all promises held, and
/// the servers without a ledger duplicated.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil-lab transport
  counterfoil-lab transport --seeds 200 --out DIR
  counterfoil-lab transport --only stdio-raw-truncate
  counterfoil-lab transport --seed 7 --seeds 1 --only seed-")]
pub struct TransportArgs {
    /// How many faults by chance are tried after the grid
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The seed of the first of them; another one each time if it is left out
    #[arg(long)]
    seed: Option<u64>,
    /// Only the cells whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Keep both sides' bytes, the rows and `summary.json` in this new directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// What runs.
    pub programs: Programs,
    /// How many faults by chance.
    pub seed_count: u64,
    /// The seed of the first.
    pub seed: u64,
    /// Only cells whose name contains this.
    pub only: String,
    /// Where bytes and summary are kept.
    pub out: Option<PathBuf>,
}

/// A cell that is to be run, with its name.
type Planned = (String, Plan);

/// The cells on one ledger.
struct Task {
    way: (Wire, Who),
    guarded: bool,
    cells: Vec<Planned>,
}

/// Runs from the command line; gives what is printed, and whether all is as it should be.
///
/// # Errors
/// If the lab itself fails.
pub async fn run_command(args: &TransportArgs) -> anyhow::Result<(String, bool)> {
    let seed = match args.seed {
        Some(seed) => seed,
        None => getrandom::u64().context("the system gave no random seed")?,
    };
    let campaign = Campaign {
        programs: Programs::beside(&std::env::current_exe()?)?,
        seed_count: args.seeds,
        seed,
        only: args.only.clone().unwrap_or_default(),
        out: args.out.clone(),
    };
    report::say(&format!("transport: seed {seed}"));
    let summary = run(&campaign).await?;
    let text = match args.json {
        true => serde_json::to_string_pretty(&summary)?,
        false => report::text(&summary),
    };
    Ok((text, summary.passed))
}

/// Runs the grid, the faults by chance and the control.
///
/// # Errors
/// If a server does not start or end, or a ledger cannot be read back. What does not hold is in the
/// summary.
pub async fn run(campaign: &Campaign) -> anyhow::Result<Summary> {
    let begun = Instant::now();
    if let Some(out) = &campaign.out {
        std::fs::create_dir(out)
            .with_context(|| format!("{} must be a new directory", out.display()))?;
    }
    let folder = tempfile::tempdir()?;
    let mut lanes = JoinSet::new();
    for (number, task) in tasks(campaign)?.into_iter().enumerate() {
        let place = folder.path().join(number.to_string());
        std::fs::create_dir(&place)?;
        let (programs, out) = (campaign.programs.clone(), campaign.out.clone());
        lanes.spawn(async move { Box::pin(run_task(task, programs, place, out)).await });
    }
    let mut cells = Vec::new();
    while let Some(lane) = lanes.join_next().await {
        cells.extend(lane??);
    }
    let summary = Summary::of(cells, campaign.seed, begun.elapsed());
    if let Some(out) = &campaign.out {
        std::fs::write(out.join("summary.json"), serde_json::to_string_pretty(&summary)?)?;
    }
    Ok(summary)
}

fn tasks(campaign: &Campaign) -> anyhow::Result<Vec<Task>> {
    let mut planned: Vec<Planned> = Vec::new();
    for number in 0..campaign.seed_count {
        let seed = campaign.seed.wrapping_add(number);
        let plan = plan::random(&mut Random::new(seed));
        planned.push((format!("seed-{seed}-{plan}"), plan));
    }
    let grid = WAYS.into_iter().flat_map(plan::grid).map(|plan| (plan.to_string(), plan));
    planned.extend(grid);
    planned.retain(|(name, _)| name.contains(&campaign.only));
    ensure!(!planned.is_empty(), "no cell's name contains `{}`", campaign.only);
    let mut tasks = Vec::new();
    for way in WAYS {
        let of_way = |(_, plan): &&Planned| (plan.wire, plan.who) == way;
        let cells: Vec<Planned> = planned.iter().filter(of_way).cloned().collect();
        let control: Vec<Planned> = cells
            .iter()
            .filter(|(name, plan)| plan.who == Who::Raw && !name.starts_with("seed-"))
            .map(|(name, plan)| (format!("control-{name}"), *plan))
            .collect();
        tasks.push(Task { way, guarded: true, cells });
        tasks.push(Task { way, guarded: false, cells: control });
    }
    tasks.retain(|task| !task.cells.is_empty());
    Ok(tasks)
}

/// Runs one ledger's cells, one after the other.
async fn run_task(
    task: Task,
    programs: Programs,
    place: PathBuf,
    out: Option<PathBuf>,
) -> anyhow::Result<Vec<Cell>> {
    let recorder = Arc::new(Recorder::default());
    let mut lane = Lane::open(&programs, place, task.guarded, task.way.0).await?;
    let mut cells = Vec::new();
    for (number, (name, plan)) in task.cells.into_iter().enumerate() {
        // The last letter is what a swapped reply has changed.
        let operation = format!("transport-{number:04}-a");
        let happened = Box::pin(cell::run(&lane, plan, &operation, &recorder)).await;
        let happened = happened.with_context(|| name.clone())?;
        let cell =
            report::cell(&name, plan, &operation, &happened, &lane.clean.token, out.as_deref())?;
        let found =
            if task.guarded { judge::judge(&plan, &happened) } else { in_control(&happened) };
        let cell = Cell { found, guarded: task.guarded, ..cell };
        report::progress(&cell);
        cells.push(cell);
    }
    lane.close().await?;
    let text = readback::read_text(&lane.ledger())?;
    let rows = readback::Rows::from_text(&text)?;
    if let Some(out) = &out {
        let (wire, who) = task.way;
        let name = format!(
            "rows-{wire:?}-{who:?}-{}.json",
            if task.guarded { "ledger" } else { "control" }
        );
        std::fs::write(out.join(name.to_ascii_lowercase()), text)?;
    }
    let physical = match task.guarded {
        true => Physical::of_ledger(&rows),
        false => Physical::of_unguarded(&rows),
    };
    for violation in check(&recorder.history(), &physical) {
        let cell = cells.iter_mut().find(|cell| cell.operation_id == violation.operation_id);
        let cell = cell.with_context(|| format!("of no cell: {violation}"))?;
        cell.duplicated |= violation.rule == Rule::OneEffect;
        if task.guarded {
            cell.found.push(violation.to_string());
        }
    }
    for cell in &mut cells {
        let of_cell = physical.effects.iter().filter(|it| it.operation_id == cell.operation_id);
        cell.effect_count = of_cell.count();
        if !task.guarded && cell.plan.direction == Direction::Reply && !cell.duplicated {
            cell.found.push("the control did not duplicate: it proves nothing".into());
        }
    }
    Ok(cells)
}

/// Of a server without a ledger only this is asked.
fn in_control(happened: &Happened) -> Vec<String> {
    let words = "the fault did not happen, so the cell shows nothing";
    if happened.struck { Vec::new() } else { vec![words.into()] }
}
