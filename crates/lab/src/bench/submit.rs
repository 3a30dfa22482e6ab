//! Throughput and latency of the ledger beside raw SQLite: interleaved rounds on one disk, each
//! side on a file of its own that stays for all of them.

use std::path::Path;
use std::time::Duration;

use super::figures::{Check, Figure, Report, Round};
use super::plan::Plan;
use super::raw_side::RawLedger;
use super::store_side::{Callers, StoreLedger};
use super::work::{Ids, Pool, Workload};

/// The ledger at 64 callers, as a part of the limit.
const OF_LIMIT_AT_64: f64 = 0.75;
/// Its 99th percentile at 64 callers, in the limit's.
const P99_AT_64: f64 = 2.0;
/// The ledger at one caller, as a part of raw SQLite.
const OF_SINGLE_AT_1: f64 = 0.85;
/// The ledger at 16 callers, in raw SQLite's single transactions.
const OF_SINGLE_AT_16: f64 = 3.0;

/// The rounds of one number of callers.
struct Rounds {
    tasks: Vec<Round>,
    threads: Vec<Round>,
    limit: Vec<Round>,
    single: Vec<Round>,
}

/// Measures every number of callers.
///
/// # Errors
/// If a side fails.
pub async fn run(plan: &Plan, directory: &Path) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for callers in plan.callers {
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
    let mut rounds =
        Rounds { tasks: vec![], threads: vec![], limit: vec![], single: vec![] };
    warm_up(plan, &store, &mut workload, [&mut limit, &mut single]).await?;
    let count = plan.prepared_for(callers);
    for pair in 0..plan.pair_count {
        let mut order = [0, 1, 2, 3];
        order.rotate_left(pair % 4);
        for side in order {
            let round;
            let into = match side {
                0 | 1 => {
                    let pool = Pool::fill(count, plan.round, || workload.submission());
                    let kind = if side == 0 { Callers::Tasks } else { Callers::Threads };
                    round = store.round(callers, kind, pool).await?;
                    if side == 0 { &mut rounds.tasks } else { &mut rounds.threads }
                }
                2 => {
                    let pool = Pool::fill(count, plan.round, || workload.row());
                    round = tokio::task::block_in_place(|| limit.limit_round(callers, &pool))?;
                    &mut rounds.limit
                }
                _ => {
                    let one = plan.prepared_for(1);
                    let pool = Pool::fill(one, plan.round, || workload.row());
                    round = tokio::task::block_in_place(|| single.single_round(&pool))?;
                    &mut rounds.single
                }
            };
            into.push(round);
        }
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
    let endless = Duration::from_secs(600);
    let pool = Pool::fill(plan.warm_up_count, endless, || workload.submission());
    store.round(64, Callers::Tasks, pool).await?;
    for raw in raw {
        let pool = Pool::fill(plan.warm_up_count, endless, || workload.row());
        tokio::task::block_in_place(|| raw.limit_round(64, &pool))?;
    }
    Ok(())
}

fn told(callers: usize, rounds: &Rounds) -> Report {
    let Rounds { tasks, threads, limit, single } = rounds;
    let submit = Figure::paired("submit", "callers are tasks", callers, tasks, limit);
    let by_threads = Figure::paired("submit", "callers are threads", callers, threads, limit);
    let beside = Figure::paired("submit_single", "beside one raw thread", callers, tasks, single);
    let ratio = |figure: &Figure| figure.ratio.unwrap_or_default();
    let checks = match callers {
        1 => vec![Check::at_least(
            "1 caller, part of raw single transactions",
            ratio(&beside),
            OF_SINGLE_AT_1,
        )],
        16 => vec![Check::at_least(
            "16 callers, times raw single transactions",
            ratio(&beside),
            OF_SINGLE_AT_16,
        )],
        64 => vec![
            Check::at_least("64 callers, part of the limit", ratio(&submit), OF_LIMIT_AT_64),
            Check::at_most(
                "64 callers, 99th percentile in the limit's",
                submit.p99_ratio.unwrap_or_default(),
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
    Report { results, checks }
}
