//! Throughput and latency of the ledger beside raw SQLite: interleaved rounds on one disk, each
//! side on a file of its own that stays for all of them.

use std::path::Path;

use super::figures::{Check, Figure, Report, Round};
use super::plan::Plan;
use super::raw_side::RawLedger;
use super::store_side::{Callers, StoreLedger};
use super::work::{ENDLESS, Ids, Pool, Workload};

/// The ledger at 64 callers, as a part of the limit.
const OF_LIMIT_AT_64: f64 = 0.75;
/// Its 99th percentile at 64 callers, in the limit's.
const P99_AT_64: f64 = 2.0;
/// The ledger at one caller, as a part of raw SQLite.
const OF_SINGLE_AT_1: f64 = 0.85;
/// The ledger at 16 callers, in raw SQLite's single transactions.
const OF_SINGLE_AT_16: f64 = 3.0;

/// The sides, and the rounds of each.
const TASKS: usize = 0;
const THREADS: usize = 1;
const LIMIT: usize = 2;
const SINGLE: usize = 3;
type Rounds = [Vec<Round>; 4];

/// Measures every number of callers.
///
/// # Errors
/// If a side fails.
pub async fn run(plan: &Plan, directory: &Path) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for callers in &plan.callers {
        let place = tempfile::tempdir_in(directory)?;
        report.add(told(*callers, &measure(plan, place.path(), *callers).await?));
    }
    Ok(report)
}

async fn measure(plan: &Plan, directory: &Path, callers: usize) -> anyhow::Result<Rounds> {
    let mut workload = Workload::new(Ids::TimeOrdered)?;
    let store = StoreLedger::open(&directory.join("ledger.db"), &workload).await?;
    let single_place = tempfile::tempdir_in(directory)?;
    let mut limit = RawLedger::create(directory)?;
    let mut single = RawLedger::create(single_place.path())?;
    let mut rounds: Rounds = std::array::from_fn(|_| vec![Round::default(); plan.pair_count]);
    warm_up(plan, &store, &mut workload, [&mut limit, &mut single]).await?;
    let count = plan.prepared_for(callers);
    for turn in plan.turns(4) {
        let slice = match turn.side {
            TASKS | THREADS => {
                let pool = Pool::fill(count, plan.slice, || workload.submission());
                let kind = if turn.side == TASKS { Callers::Tasks } else { Callers::Threads };
                store.round(callers, kind, pool).await?
            }
            LIMIT => {
                let pool = Pool::fill(count, plan.slice, || workload.row());
                tokio::task::block_in_place(|| limit.limit_round(callers, &pool))?
            }
            SINGLE.. => {
                let pool = Pool::fill(plan.prepared_for(1), plan.slice, || workload.row());
                tokio::task::block_in_place(|| single.single_round(&pool))?
            }
        };
        rounds[turn.side][turn.pair].add(slice);
    }
    store.close().await?;
    Ok(rounds)
}

/// Lets the log of each side grow to the size that it keeps.
async fn warm_up(
    plan: &Plan,
    store: &StoreLedger,
    workload: &mut Workload,
    raw: [&mut RawLedger; 2],
) -> anyhow::Result<()> {
    let pool = Pool::fill(plan.warm_up_count, ENDLESS, || workload.submission());
    store.round(64, Callers::Tasks, pool).await?;
    for raw in raw {
        let pool = Pool::fill(plan.warm_up_count, ENDLESS, || workload.row());
        tokio::task::block_in_place(|| raw.limit_round(64, &pool))?;
    }
    Ok(())
}

fn told(callers: usize, rounds: &Rounds) -> Report {
    let [tasks, threads, limit, single] = rounds;
    let submit = Figure::paired("submit", "callers are tasks", callers, tasks, limit);
    let by_threads = Figure::paired("submit", "callers are threads", callers, threads, limit);
    let beside = Figure::paired("submit_single", "beside one raw thread", callers, tasks, single);
    let checks = match callers {
        1 => vec![Check::at_least(
            "1 caller, part of raw single transactions",
            beside.measured_ratio(),
            OF_SINGLE_AT_1,
        )],
        16 => vec![Check::at_least(
            "16 callers, times raw single transactions",
            beside.measured_ratio(),
            OF_SINGLE_AT_16,
        )],
        64 => vec![
            Check::at_least(
                "64 callers, part of the limit",
                submit.measured_ratio(),
                OF_LIMIT_AT_64,
            ),
            Check::at_most(
                "64 callers, 99th percentile in the limit's",
                submit.measured_p99(),
                P99_AT_64,
            ),
        ],
        _ => vec![],
    };
    let raw = [
        Figure::alone("raw_limit", "raw SQLite, batched", callers, limit),
        Figure::alone("raw_single", "raw SQLite, one by one", 1, single),
    ];
    let results = [submit, by_threads, beside].into_iter().chain(raw).collect();
    Report { results, checks, ..Report::default() }
}
