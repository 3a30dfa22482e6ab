//! What becomes of speed and size as a ledger grows. Ledgers of all sizes are open at once and
//! their rounds are interleaved, so that a slow minute of the machine meets all of them.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rusqlite::Connection;

use super::figures::{Check, Figure, Report, Round, over, over_pairs};
use super::load;
use super::plan::Plan;
use super::raw_side::RawLedger;
use super::store_side::{Callers, StoreLedger};
use super::work::{BODY_BYTES, ENDLESS, Ids, Pool, TITLE_BYTES, Workload};

const CALLERS: usize = 64;
/// A stored result is the JSON text `"created 1234567"`.
const RESULT_BYTES: usize = 17;

/// How fast the large ledger must be, as a part of the small one.
const fn least_part(ids: Ids) -> f64 {
    match ids {
        Ids::TimeOrdered => 0.9,
        Ids::Random => 0.7,
    }
}
const WAL_BYTES: f64 = 3_000.0;
const DISK_BYTES: f64 = 700.0;
const PEAK_BYTES: f64 = 64.0 * 1024.0 * 1024.0;

struct Size {
    rows: usize,
    path: PathBuf,
    store: StoreLedger,
    rounds: Vec<Round>,
}

/// Measures ledgers of every size, with both kinds of IDs.
///
/// # Errors
/// If a ledger cannot be filled or fails.
pub async fn run(plan: &Plan, directory: &Path) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for ids in [Ids::TimeOrdered, Ids::Random] {
        let place = tempfile::tempdir_in(directory)?;
        report.add(measure(plan, place.path(), ids).await?);
    }
    Ok(report)
}

async fn measure(plan: &Plan, directory: &Path, ids: Ids) -> anyhow::Result<Report> {
    let mut workload = Workload::new(ids)?;
    let mut sizes = Vec::new();
    for (rows, path) in tokio::task::block_in_place(|| fill(plan, directory, &mut workload))? {
        let store = StoreLedger::open(&path, &workload).await?;
        let pool = Pool::fill(plan.warm_up_count, ENDLESS, || workload.submission());
        store.round(CALLERS, Callers::Tasks, pool).await?;
        let rounds = vec![Round::default(); plan.pair_count];
        sizes.push(Size { rows, path, store, rounds });
    }
    let count = plan.prepared_for(CALLERS);
    for turn in plan.turns(sizes.len()) {
        let pool = Pool::fill(count, plan.slice, || workload.submission());
        let size = &mut sizes[turn.side];
        size.rounds[turn.pair].add(size.store.round(CALLERS, Callers::Tasks, pool).await?);
    }
    let base = sizes[1].rounds.clone();
    let mut report = Report::default();
    for size in sizes {
        report.add(told(plan, size, &base, &mut workload, ids).await?);
    }
    Ok(report)
}

/// Ledgers of each size, each a copy of one that is filled further and further.
fn fill(
    plan: &Plan,
    directory: &Path,
    workload: &mut Workload,
) -> anyhow::Result<Vec<(usize, PathBuf)>> {
    let raw = RawLedger::create(directory)?;
    let source = raw.path().to_owned();
    let mut filled = 0;
    let mut paths = Vec::new();
    for rows in plan.growth_sizes {
        raw.fill(rows - filled, || workload.row())?;
        filled = *rows;
        let path = directory.join(format!("rows-{rows}.db"));
        // The log was written back and cut, so the file alone is the whole ledger.
        std::fs::copy(&source, &path).context("a filled ledger cannot be copied")?;
        std::fs::File::open(&path)?.sync_all()?;
        paths.push((*rows, path));
    }
    drop(raw);
    std::fs::remove_file(&source)?;
    Ok(paths)
}

async fn told(
    plan: &Plan,
    size: Size,
    base: &[Round],
    workload: &mut Workload,
    ids: Ids,
) -> anyhow::Result<Report> {
    let bytes = bytes(plan, &size, workload).await?;
    let Size { rows, path, store, rounds } = size;
    store.close().await?;
    let variant = format!("{rows} rows, {}", ids.as_str());
    let ratio = over_pairs(&rounds, base, Round::rate);
    let figure = Figure {
        wal_bytes_per_op: Some(bytes.wal),
        disk_bytes_per_op: Some(bytes.disk),
        ..Figure::alone("growth", &variant, CALLERS, &rounds)
            .against(over(base, Round::rate).median, ratio)
    };
    let mut report = Report { results: vec![figure], ..Report::default() };
    if rows <= plan.growth_sizes[1] {
        return Ok(report);
    }
    let about = |what: &str| format!("{variant}: {what}");
    let part = about("part of the rate of the smaller ledger");
    report.checks.push(Check::at_least(part, ratio, least_part(ids)));
    if ids == Ids::TimeOrdered {
        let words = about("bytes of log for each operation");
        report.checks.push(Check::at_most(words, bytes.wal, WAL_BYTES));
        let words = about("bytes on disk for each operation, beyond title, body and result");
        report.checks.push(Check::at_most(words, bytes.disk, DISK_BYTES));
    }
    let figure = load::run(plan, &path, &variant, ids).await?;
    let peak = figure.peak_memory_bytes.unwrap_or_default();
    let words = about("peak resident bytes with 256 callers");
    report.checks.push(Check::at_most(words, peak as f64, PEAK_BYTES));
    report.results.push(figure);
    Ok(report)
}

struct Bytes {
    wal: f64,
    disk: f64,
}

/// The bytes that operations add to log and file. A reader holds the log meanwhile, so that it is
/// not begun anew: its length is then what was written to it.
async fn bytes(plan: &Plan, size: &Size, workload: &mut Workload) -> anyhow::Result<Bytes> {
    let path = &size.path;
    let log = path.with_extension("db-wal");
    let pages = |connection: &Connection| -> anyhow::Result<i64> {
        Ok(connection.pragma_query_value(None, "page_count", |row| row.get(0))?)
    };
    let reader = Connection::open(path)?;
    reader.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let page_bytes: i64 = reader.pragma_query_value(None, "page_size", |row| row.get(0))?;
    reader.execute_batch("BEGIN")?;
    reader.query_row("SELECT version FROM ledger", [], |_| Ok(()))?;
    let pages_before = pages(&reader)?;
    let log_before = std::fs::metadata(&log)?.len();
    let pool = Pool::fill(plan.bytes_count, ENDLESS, || workload.submission());
    size.store.round(CALLERS, Callers::Tasks, pool).await?;
    let log_after = std::fs::metadata(&log)?.len();
    reader.execute_batch("COMMIT")?;
    let grown = (pages(&reader)? - pages_before) * page_bytes;
    let count = plan.bytes_count as f64;
    Ok(Bytes {
        wal: (log_after - log_before) as f64 / count,
        disk: grown as f64 / count - (TITLE_BYTES + BODY_BYTES + RESULT_BYTES) as f64,
    })
}
