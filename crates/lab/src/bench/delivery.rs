//! `counterfoil-lab bench delivery`: what an accepted and delivered request costs beside raw SQLite,
//! and whether that stays so as the outbox fills and the ledger grows.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use super::delivery_raw::RawOutbox;
use super::delivery_side::{BATCH_COUNT, OutboxLedger};
use super::figures::{Check, Figure, Report, Round, over, over_pairs};
use super::machine::Machine;
use super::plan::Plan;
use super::work::{Ids, Pool, Workload};
use super::{delivery_http, delivery_restart};

/// Acceptance, as a part of raw group commit.
const OF_RAW_ACCEPT: f64 = 0.75;
/// Claim, begin and report, as a part of raw batches with the same states.
const OF_RAW_FINISH: f64 = 0.6;
/// The rate with a full outbox, as a part of that with a short one.
const OF_SHORT_QUEUE: f64 = 0.8;
/// The time of an item on a ledger full of delivered ones, in that on a small one.
const OF_SMALL_LEDGER: f64 = 1.3;

const CALLERS: usize = 64;

/// How deliveries are measured.
#[derive(Debug, Args)]
pub struct DeliveryArgs {
    /// Print JSON instead of Markdown tables
    #[arg(long)]
    json: bool,
    /// Grow the ledger to a million delivered items
    #[arg(long)]
    full: bool,
    /// See whether everything runs; the figures mean nothing
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
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
    /// Calls taken in by many callers.
    Accept,
    /// Items taken through all their states.
    ClaimFinish,
    /// The same with many items waiting.
    QueueDepth,
    /// The same with many items delivered.
    DeliveredGrowth,
    /// A worker's start on a full outbox.
    Restart,
    /// A worker with a server over HTTP.
    DeliverHttp,
}

const ALL: [Part; 6] = [
    Part::Accept,
    Part::ClaimFinish,
    Part::QueueDepth,
    Part::DeliveredGrowth,
    Part::Restart,
    Part::DeliverHttp,
];

/// The sizes of a run.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Rounds, slices and their lengths.
    pub plan: Plan,
    /// Items of a slice that is not ended by time.
    pub slice_count: usize,
    /// Short and long queue.
    pub queued: [usize; 2],
    /// Delivered items of the large ledger.
    pub delivered_count: usize,
    /// Deliveries over HTTP in a slice.
    pub http_count: usize,
}

impl Sizes {
    fn of(args: &DeliveryArgs) -> Self {
        let mut plan = if args.quick { Plan::quick() } else { Plan::standard() };
        plan.pair_count = args.pairs.unwrap_or(plan.pair_count).max(1);
        if args.quick {
            let (slice_count, http_count) = (BATCH_COUNT, 100);
            return Self {
                plan,
                slice_count,
                queued: [100, 300],
                delivered_count: 300,
                http_count,
            };
        }
        // Slices here take longer than those of single calls.
        plan.slice_count = 4;
        Self {
            plan,
            slice_count: 500,
            queued: [1_000, 100_000],
            delivered_count: if args.full { 1_000_000 } else { 100_000 },
            http_count: 1_000,
        }
    }
}

/// Measures, and gives what is printed.
///
/// # Errors
/// If something under measurement fails.
pub async fn run(args: &DeliveryArgs) -> anyhow::Result<String> {
    let sizes = Sizes::of(args);
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let place = tempfile::tempdir_in(&parent)
        .with_context(|| format!("nothing can be written in {}", parent.display()))?;
    let machine = Some(Machine::here(place.path(), Some(sizes.plan.pair_count)));
    let mut report = Report { machine, ..Report::default() };
    let parts = if args.only.is_empty() { &ALL[..] } else { &args.only };
    for part in parts {
        let own = tempfile::tempdir_in(place.path())?;
        report.add(match part {
            Part::Accept => accept(&sizes, own.path()).await?,
            Part::ClaimFinish => claim_finish(&sizes, own.path()).await?,
            Part::QueueDepth => queue_depth(&sizes, own.path()).await?,
            Part::DeliveredGrowth => delivered_growth(&sizes, own.path()).await?,
            Part::Restart => delivery_restart::run(&sizes, own.path()).await?,
            Part::DeliverHttp => delivery_http::run(&sizes, own.path()).await?,
        });
    }
    Ok(if args.json { serde_json::to_string_pretty(&report)? } else { report.to_table() })
}

async fn accept(sizes: &Sizes, place: &Path) -> anyhow::Result<Report> {
    let plan = &sizes.plan;
    let mut workload = Workload::new(Ids::TimeOrdered)?;
    let ledger = OutboxLedger::open(&place.join("ledger.db"), &workload).await?;
    let mut raw = RawOutbox::create(place)?;
    ledger.fill(&mut workload, plan.warm_up_count).await?;
    fill_raw(&mut raw, &mut workload, plan.warm_up_count)?;
    let mut rounds = [(); 2].map(|()| vec![Round::default(); plan.pair_count]);
    let count = plan.prepared_for(CALLERS);
    for turn in plan.turns(2) {
        let slice = if turn.side == 0 {
            let pool = Pool::fill(count, plan.slice, || workload.acceptance());
            ledger.accept(CALLERS, pool).await?
        } else {
            let pool = Pool::fill(count, plan.slice, || workload.row());
            tokio::task::block_in_place(|| raw.accept(CALLERS, &pool))?
        };
        rounds[turn.side][turn.pair].add(slice);
    }
    ledger.close().await?;
    let figure = Figure::paired("accept", "", CALLERS, &rounds[0], &rounds[1]);
    let words = "64 callers accepted, part of raw group commit of the same rows";
    let checks = vec![Check::at_least(words, figure.measured_ratio(), OF_RAW_ACCEPT)];
    Ok(Report { results: vec![figure], checks, ..Report::default() })
}

async fn claim_finish(sizes: &Sizes, place: &Path) -> anyhow::Result<Report> {
    let plan = &sizes.plan;
    let mut workload = Workload::new(Ids::TimeOrdered)?;
    let ledger = OutboxLedger::open(&place.join("ledger.db"), &workload).await?;
    let mut raw = RawOutbox::create(place)?;
    let mut rounds = [(); 2].map(|()| vec![Round::default(); plan.pair_count]);
    let count = sizes.slice_count;
    for turn in plan.turns(2) {
        let slice = if turn.side == 0 {
            ledger.fill(&mut workload, count).await?;
            ledger.deliver(count).await?
        } else {
            fill_raw(&mut raw, &mut workload, count)?;
            tokio::task::block_in_place(|| raw.deliver(count))?
        };
        rounds[turn.side][turn.pair].add(slice);
    }
    ledger.close().await?;
    let figure = Figure::paired("claim_finish", "batches of 100", 1, &rounds[0], &rounds[1]);
    let words = "claimed, begun and reported, part of raw batches with the same states";
    let checks = vec![Check::at_least(words, figure.measured_ratio(), OF_RAW_FINISH)];
    Ok(Report { results: vec![figure], checks, ..Report::default() })
}

fn fill_raw(raw: &mut RawOutbox, workload: &mut Workload, count: usize) -> anyhow::Result<()> {
    let pool = Pool::fill(count, super::work::ENDLESS, || workload.row());
    tokio::task::block_in_place(|| raw.accept(CALLERS, &pool))?;
    Ok(())
}

async fn queue_depth(sizes: &Sizes, place: &Path) -> anyhow::Result<Report> {
    let mut workload = Workload::new(Ids::TimeOrdered)?;
    let mut ledgers = Vec::new();
    for (number, queued) in sizes.queued.into_iter().enumerate() {
        let path = place.join(format!("queued-{number}.db"));
        let ledger = OutboxLedger::open(&path, &workload).await?;
        ledger.fill(&mut workload, queued).await?;
        ledgers.push(ledger);
    }
    let rounds = side_by_side(sizes, &mut workload, ledgers).await?;
    let variant = format!("{} queued beside {}", sizes.queued[1], sizes.queued[0]);
    let (figure, ratio) = against_small("queue_depth", &variant, &rounds);
    let words = format!("{variant}, part of the rate");
    let checks = vec![Check::at_least(words, ratio, OF_SHORT_QUEUE)];
    Ok(Report { results: vec![figure], checks, ..Report::default() })
}

async fn delivered_growth(sizes: &Sizes, place: &Path) -> anyhow::Result<Report> {
    let mut workload = Workload::new(Ids::TimeOrdered)?;
    let mut ledgers = Vec::new();
    for (name, mut left) in [("small.db", sizes.queued[0]), ("large.db", sizes.delivered_count)] {
        let ledger = OutboxLedger::open(&place.join(name), &workload).await?;
        while left > 0 {
            let count = left.min(10_000);
            ledger.fill(&mut workload, count).await?;
            ledger.deliver(count).await?;
            left -= count;
        }
        ledgers.push(ledger);
    }
    let rounds = side_by_side(sizes, &mut workload, ledgers).await?;
    let variant = format!("{} delivered beside {}", sizes.delivered_count, sizes.queued[0]);
    let (figure, _) = against_small("delivered_growth", &variant, &rounds);
    let slower = over_pairs(&rounds[0], &rounds[1], Round::rate);
    let words = format!("{variant}, times as slow");
    let checks = vec![Check::at_most(words, slower, OF_SMALL_LEDGER)];
    Ok(Report { results: vec![figure], checks, ..Report::default() })
}

/// Each ledger keeps its length: what a slice delivers is put in before it.
async fn side_by_side(
    sizes: &Sizes,
    workload: &mut Workload,
    ledgers: Vec<OutboxLedger>,
) -> anyhow::Result<[Vec<Round>; 2]> {
    let plan = &sizes.plan;
    let mut rounds = [(); 2].map(|()| vec![Round::default(); plan.pair_count]);
    for turn in plan.turns(2) {
        let ledger = &ledgers[turn.side];
        ledger.fill(workload, sizes.slice_count).await?;
        rounds[turn.side][turn.pair].add(ledger.deliver(sizes.slice_count).await?);
    }
    for ledger in ledgers {
        ledger.close().await?;
    }
    Ok(rounds)
}

fn against_small(
    name: &'static str,
    variant: &str,
    [small, large]: &[Vec<Round>; 2],
) -> (Figure, super::figures::Spread) {
    let ratio = over_pairs(large, small, Round::rate);
    let figure = Figure::alone(name, variant, 1, large);
    (figure.against(over(small, Round::rate).median, ratio), ratio)
}
