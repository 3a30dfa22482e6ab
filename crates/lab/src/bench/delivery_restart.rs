//! A worker's start on a full outbox: how soon it delivers, and what memory it takes, in a process
//! of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use counterfoil_core::delivery::{LookupEnd, ParkReason, SendEnd, TargetName};
use counterfoil_core::identity::BackendId;
use counterfoil_core::record::StoredResult;
use counterfoil_core::time::{Lifetimes, Timestamp};
use counterfoil_engine::{
    CancellationToken, Deliverer, DelivererOptions, Engine, Target, TargetFuture, TargetLimits,
};
use counterfoil_store::{SqliteOptions, SqliteStore};
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::delivery::Sizes;
use super::delivery_side::OutboxLedger;
use super::figures::{Check, Figure, Report, Round};
use super::load::peak_memory_bytes;
use super::work::{Ids, TARGET, Workload};
use crate::within::within;

const FIRST_S: f64 = 2.0;
const PEAK_BYTES: f64 = 100.0 * 1024.0 * 1024.0;
/// So many are delivered before memory is looked at.
const DELIVERED_COUNT: usize = 10_000;

/// What the process is told.
#[derive(Debug, Args)]
pub struct RestartArgs {
    /// The ledger's file
    #[arg(long)]
    ledger: PathBuf,
    /// How many items to deliver
    #[arg(long)]
    count: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct Started {
    first_s: f64,
    elapsed_s: f64,
    peak_memory_bytes: u64,
}

/// Does every request at once and tells of it.
#[derive(Debug)]
struct AtOnce {
    name: TargetName,
    done: UnboundedSender<Instant>,
}

impl Target for AtOnce {
    fn name(&self) -> &TargetName {
        &self.name
    }

    fn limits(&self) -> TargetLimits {
        TargetLimits {
            concurrency_count: 64,
            rate_per_s: None,
            send_limit: Duration::from_secs(30),
            breaker_failures_count: 0,
            breaker_open: (Duration::from_secs(1), Duration::from_secs(1)),
        }
    }

    fn check(&self, _request: &[u8], _maybe_sent: bool) -> Result<(), ParkReason> {
        Ok(())
    }

    fn send(&self, _request: Arc<[u8]>, _deadline: Instant) -> TargetFuture<'_, SendEnd> {
        // Nobody counts any more at the end.
        let _ = self.done.send(Instant::now());
        let result = StoredResult::from_text("done");
        Box::pin(async { SendEnd::Applied { external_id: None, result } })
    }

    fn look_up(
        &self,
        _request: Arc<[u8]>,
        _begun_at: Timestamp,
        _deadline: Instant,
    ) -> TargetFuture<'_, LookupEnd> {
        unreachable!("the contract has no search")
    }
}

/// Delivers in this process and says how that began.
///
/// # Errors
/// If the ledger fails.
pub async fn deliver(args: &RestartArgs) -> anyhow::Result<String> {
    let begun = Instant::now();
    let mut options = SqliteOptions::new(&args.ledger);
    options.backend_id = Some(BackendId::parse("bench")?);
    let store = Arc::new(SqliteStore::open(&options)?);
    let keys = Workload::new(Ids::TimeOrdered)?.keys().clone();
    let engine = Arc::new(Engine::open_with_outbox(store, keys, Lifetimes::default()).await?);
    let (done, mut told) = unbounded_channel();
    let target =
        Arc::new(AtOnce { name: TargetName::parse(TARGET).map_err(anyhow::Error::msg)?, done });
    let worker = Deliverer::new(Arc::clone(&engine), vec![target], DelivererOptions::default())?;
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(worker.run(shutdown.clone()));
    let mut first = None;
    for _ in 0..args.count {
        let Some(at) = within("an item is delivered", told.recv()).await? else { break };
        first.get_or_insert(at - begun);
    }
    let elapsed = begun.elapsed();
    shutdown.cancel();
    running.await?;
    engine.close().await?;
    Ok(serde_json::to_string(&Started {
        first_s: first.unwrap_or(elapsed).as_secs_f64(),
        elapsed_s: elapsed.as_secs_f64(),
        peak_memory_bytes: peak_memory_bytes("self")?,
    })?)
}

/// Fills an outbox and starts such a process on it.
///
/// # Errors
/// If either fails.
pub async fn run(sizes: &Sizes, place: &Path) -> anyhow::Result<Report> {
    let path = place.join("ledger.db");
    let queued = sizes.queued[1];
    let mut workload = Workload::new(Ids::TimeOrdered)?;
    let ledger = OutboxLedger::open(&path, &workload).await?;
    ledger.fill(&mut workload, queued).await?;
    ledger.close().await?;
    let count = DELIVERED_COUNT.min(queued);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "restart", "--ledger"]).arg(&path);
    command.args(["--count", &count.to_string()]);
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = within("a worker delivers", running).await??;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the worker failed: {errors}");
    let started: Started = serde_json::from_slice(&output.stdout)?;
    let first = Duration::from_secs_f64(started.first_s);
    let elapsed = Duration::from_secs_f64(started.elapsed_s);
    let variant = format!("{queued} queued; the time is that to the first delivery");
    let figure = Figure {
        ops_per_s: count as f64 / elapsed.as_secs_f64(),
        peak_memory_bytes: Some(started.peak_memory_bytes),
        ..Figure::alone("restart", &variant, 64, &[Round::new(elapsed, vec![first])])
    };
    let peak = started.peak_memory_bytes as f64;
    let about = |what: &str| format!("start with {queued} queued: {what}");
    let checks = vec![
        Check::at_most(about("seconds to the first delivery"), started.first_s, FIRST_S),
        Check::at_most(about("peak resident bytes"), peak, PEAK_BYTES),
    ];
    Ok(Report { results: vec![figure], checks, ..Report::default() })
}
