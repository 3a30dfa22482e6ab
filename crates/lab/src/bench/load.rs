//! The memory of a process that does nothing but keep a ledger for many callers.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::figures::{Figure, Round};
use super::plan::Plan;
use super::store_side::{Callers, StoreLedger};
use super::work::{ENDLESS, Ids, Pool, Workload};
use crate::within::within;

const CALLERS: usize = 256;
/// Operations that are prepared at once: they are memory too.
const PREPARED_COUNT: usize = 2_000;

/// What the process is told.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// The ledger's file
    #[arg(long)]
    ledger: PathBuf,
    /// How many operations to make
    #[arg(long)]
    count: usize,
    /// How many callers there are
    #[arg(long, default_value_t = CALLERS)]
    callers: usize,
    /// Whether callers name their operations by random IDs
    #[arg(long)]
    random_ids: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Loaded {
    count: usize,
    elapsed_s: f64,
    latencies_ns: [u64; 2],
    peak_memory_bytes: u64,
}

/// Loads a ledger in this process and says what it took.
///
/// # Errors
/// If the ledger fails.
pub async fn load(args: &LoadArgs) -> anyhow::Result<String> {
    let ids = if args.random_ids { Ids::Random } else { Ids::TimeOrdered };
    let mut workload = Workload::new(ids)?;
    let store = StoreLedger::open(&args.ledger, &workload).await?;
    let mut loaded =
        Loaded { count: 0, elapsed_s: 0.0, latencies_ns: [0; 2], peak_memory_bytes: 0 };
    while loaded.count < args.count {
        let count = PREPARED_COUNT.min(args.count - loaded.count);
        let pool = Pool::fill(count, ENDLESS, || workload.submission());
        let round = store.round(args.callers, Callers::Tasks, pool).await?;
        loaded.count += round.count();
        loaded.elapsed_s += round.count() as f64 / round.rate();
        for (at, part) in [0.5, 0.99].into_iter().enumerate() {
            let latency = (round.percentile_ms(part) * 1e6) as u64;
            loaded.latencies_ns[at] = loaded.latencies_ns[at].max(latency);
        }
    }
    store.close().await?;
    loaded.peak_memory_bytes = peak_memory_bytes("self")?;
    Ok(serde_json::to_string(&loaded)?)
}

/// Loads a ledger in a process of its own.
///
/// # Errors
/// If that process fails.
pub async fn run(plan: &Plan, ledger: &Path, variant: &str, ids: Ids) -> anyhow::Result<Figure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "load", "--ledger"]).arg(ledger);
    command.args(["--count", &plan.memory_count.to_string()]);
    if ids == Ids::Random {
        command.arg("--random-ids");
    }
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = within("a ledger is loaded", running).await??;
    ensure!(
        output.status.success(),
        "the load failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let loaded: Loaded = serde_json::from_slice(&output.stdout)?;
    let latencies = loaded.latencies_ns.map(Duration::from_nanos);
    let whole = Round::new(Duration::from_secs_f64(loaded.elapsed_s), latencies.to_vec());
    Ok(Figure {
        ops_per_s: loaded.count as f64 / loaded.elapsed_s,
        peak_memory_bytes: Some(loaded.peak_memory_bytes),
        ..Figure::alone("memory", variant, CALLERS, &[whole])
    })
}

/// The most memory that a process had resident: `VmHWM` of proc(5).
///
/// # Errors
/// If the system does not tell; only Linux does.
pub fn peak_memory_bytes(process: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .context("peak memory is read from /proc, which Linux has")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: u64 = kib.context("there is no VmHWM in /proc/PID/status")?.trim().parse()?;
    Ok(kib * 1024)
}
