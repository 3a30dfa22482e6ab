//! The ledger under measurement, through the interface that servers use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use counterfoil::tools::issue_effect;
use counterfoil_core::identity::BackendId;
use counterfoil_core::operation::State;
use counterfoil_store::{Answer, SqliteOptions, SqliteStore, Store, Submission};
use tokio::sync::Barrier;

use super::figures::Round;
use super::work::{Pool, Workload};

/// What a caller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// A task of the runtime, as in the server.
    Tasks,
    /// A thread of its own that blocks.
    Threads,
}

/// An open ledger.
#[derive(Debug)]
pub struct StoreLedger {
    path: PathBuf,
    store: Arc<SqliteStore>,
}

impl StoreLedger {
    /// Opens the ledger at `path`, or makes it.
    ///
    /// # Errors
    /// If the store refuses.
    pub async fn open(path: &Path, workload: &Workload) -> anyhow::Result<Self> {
        let mut options = SqliteOptions::new(path);
        options.backend_id = Some(BackendId::parse("bench")?);
        options.tables = issue_effect::tables();
        let store = Arc::new(SqliteStore::open(&options)?);
        store.bind_keys(workload.keys()).await?;
        Ok(Self { path: path.into(), store })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `callers` that each submit one operation after the other, until the pool gives no more.
    ///
    /// # Errors
    /// If an operation is not made.
    pub async fn round(
        &self,
        callers: usize,
        kind: Callers,
        pool: Pool<Submission>,
    ) -> anyhow::Result<Round> {
        let pool = Arc::new(pool);
        let barrier = Arc::new(Barrier::new(callers + 1));
        let mut running = Vec::with_capacity(callers);
        for _ in 0..callers {
            let (pool, barrier) = (Arc::clone(&pool), Arc::clone(&barrier));
            let work = call(Arc::clone(&self.store), pool, barrier);
            running.push(match kind {
                Callers::Tasks => tokio::spawn(work),
                Callers::Threads => {
                    let runtime = tokio::runtime::Handle::current();
                    tokio::task::spawn_blocking(move || runtime.block_on(work))
                }
            });
        }
        barrier.wait().await;
        let start = Instant::now();
        let mut latencies = Vec::new();
        for caller in running {
            latencies.extend(caller.await??);
        }
        Ok(Round::new(start.elapsed(), latencies))
    }

    /// Commits what is queued and closes.
    ///
    /// # Errors
    /// If the last batch fails.
    pub async fn close(self) -> anyhow::Result<()> {
        Ok(self.store.close().await?)
    }
}

async fn call(
    store: Arc<SqliteStore>,
    pool: Arc<Pool<Submission>>,
    barrier: Arc<Barrier>,
) -> anyhow::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    barrier.wait().await;
    let start = Instant::now();
    while let Some(submission) = pool.take(start) {
        let begun = Instant::now();
        let committed = store.submit(submission).await?;
        latencies.push(begun.elapsed());
        match committed.answer() {
            Answer::Fresh(record) => {
                ensure!(record.state == State::Applied, "an operation is {:?}", record.state);
            }
            other => bail!("an operation came to {other:?}"),
        }
    }
    Ok(latencies)
}
