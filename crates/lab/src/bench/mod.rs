//! `counterfoil-lab bench`: what the product costs, beside what the machine could do at best. All
//! ratios are medians of interleaved pairs on one disk, told with their spread.

pub mod delivery;
pub mod delivery_http;
pub mod delivery_raw;
pub mod delivery_restart;
pub mod delivery_side;
pub mod figures;
pub mod fingerprint;
pub mod growth;
pub mod http;
pub mod load;
pub mod machine;
pub mod mcp;
pub mod plan;
pub mod raw_side;
pub mod soak;
pub mod stdio;
pub mod store_side;
pub mod submit;
pub mod table;
pub mod work;
pub mod wrap;
pub mod wrap_side;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand, ValueEnum};

use figures::Report;
use machine::Machine;
use plan::Plan;

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure the ledger beside raw SQLite
    Ledger(LedgerArgs),
    /// Measure the outbox beside raw SQLite, and deliveries over HTTP beside a bare client
    Delivery(delivery::DeliveryArgs),
    /// Measure a wrapped server beside a relay that only copies bytes
    Wrap(wrap::WrapArgs),
    /// Start a worker on an outbox that is full and print how soon it delivers
    #[command(hide = true)]
    Restart(delivery_restart::RestartArgs),
    /// Load a ledger and print the memory that it took
    #[command(hide = true)]
    Load(load::LoadArgs),
}

/// How the ledger is measured.
#[derive(Debug, Args)]
pub struct LedgerArgs {
    /// Print JSON instead of Markdown tables
    #[arg(long)]
    json: bool,
    /// Add a ledger of five million operations
    #[arg(long)]
    full: bool,
    /// See whether everything runs; the figures mean nothing
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// The numbers of callers of `submit`
    #[arg(long, value_delimiter = ',')]
    callers: Vec<usize>,
    /// Serve at half load for long instead, and fail if memory, open files or the log grow
    #[arg(long, conflicts_with_all = ["full", "quick", "only", "pairs", "callers"])]
    soak: bool,
    /// How long that takes [default: 60]; under a minute nothing is judged
    #[arg(long, requires = "soak", value_parser = minutes)]
    minutes: Option<Duration>,
    /// Where the files are made: on the disk that is to be measured [default: a temporary one]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// How many interleaved rounds each figure is the median of
    #[arg(long)]
    pairs: Option<usize>,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Throughput and latency.
    Submit,
    /// Small and large ledgers: speed, bytes written, memory.
    Growth,
    /// MCP over stdio.
    Stdio,
    /// MCP over HTTP.
    Http,
    /// Fingerprints.
    Fingerprint,
}

const ALL: [Part; 5] = [Part::Submit, Part::Growth, Part::Stdio, Part::Http, Part::Fingerprint];

const AN_HOUR: Duration = Duration::from_secs(3600);

/// Runs a benchmark and gives what it prints.
///
/// # Errors
/// If something under measurement fails.
pub async fn run(command: &BenchCommand) -> anyhow::Result<String> {
    match command {
        BenchCommand::Ledger(args) => ledger(args).await,
        BenchCommand::Delivery(args) => delivery::run(args).await,
        BenchCommand::Wrap(args) => wrap::run(args),
        BenchCommand::Restart(args) => delivery_restart::deliver(args).await,
        BenchCommand::Load(args) => load::load(args).await,
    }
}

async fn ledger(args: &LedgerArgs) -> anyhow::Result<String> {
    let mut plan = match (args.quick, args.full) {
        (true, _) => Plan::quick(),
        (_, true) => Plan::full(),
        _ => Plan::standard(),
    };
    plan.pair_count = args.pairs.unwrap_or(plan.pair_count).max(1);
    if !args.callers.is_empty() {
        plan.callers.clone_from(&args.callers);
    }
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let place = tempfile::tempdir_in(&parent)
        .with_context(|| format!("nothing can be written in {}", parent.display()))?;
    let pair_count = (!args.soak).then_some(plan.pair_count);
    let machine = Some(Machine::here(place.path(), pair_count));
    let report = if args.soak {
        let length = args.minutes.unwrap_or(AN_HOUR);
        Report { machine, ..soak::run(place.path(), length).await? }
    } else {
        Report { machine, ..measure(&args.only, &plan, place.path()).await? }
    };
    let text = if args.json { serde_json::to_string_pretty(&report)? } else { report.to_table() };
    ensure!(!args.soak || report.all_met(), "something grows:\n{text}");
    Ok(text)
}

async fn measure(only: &[Part], plan: &Plan, place: &Path) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let parts = if only.is_empty() { &ALL[..] } else { only };
    for part in parts {
        report.add(match part {
            Part::Submit => submit::run(plan, place).await?,
            Part::Growth => growth::run(plan, place).await?,
            Part::Stdio => stdio::run(plan, place).await?,
            Part::Http => http::run(plan, place).await?,
            Part::Fingerprint => fingerprint::run(plan)?,
        });
    }
    Ok(report)
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| format!("{text:?} is no number of minutes"))?;
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())
}
