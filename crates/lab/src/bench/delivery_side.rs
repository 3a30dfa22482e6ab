//! The outbox under measurement: filled through its own interface, and emptied as a worker does it
//! whose target takes no time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use counterfoil_core::delivery::{SendEnd, State, TargetName};
use counterfoil_core::identity::{BackendId, BootId};
use counterfoil_core::record::StoredResult;
use counterfoil_store::outbox::{
    Acceptance, Accepted, BeginSend, Begun, Claim, Happened, Outbox as _, Report,
};
use counterfoil_store::{SqliteOptions, SqliteStore, Store as _, UnderWay};

use tokio::sync::Barrier;

use super::figures::Round;
use super::work::{ENDLESS, Pool, TARGET, Workload};

/// A worker takes at most so many at once.
pub const BATCH_COUNT: usize = 100;
const LEASE: Duration = Duration::from_secs(60);
/// So many callers fill an outbox.
const FILLERS: usize = 256;

/// An open ledger with an outbox.
#[derive(Debug)]
pub struct OutboxLedger {
    path: PathBuf,
    store: Arc<SqliteStore>,
    target: TargetName,
    boot: BootId,
}

impl OutboxLedger {
    /// Opens the ledger at `path`, or makes it.
    ///
    /// # Errors
    /// If the store refuses.
    pub async fn open(path: &Path, workload: &Workload) -> anyhow::Result<Self> {
        let mut options = SqliteOptions::new(path);
        options.backend_id = Some(BackendId::parse("bench")?);
        let store = Arc::new(SqliteStore::open(&options)?);
        store.bind_keys(workload.keys()).await?;
        let target = TargetName::parse(TARGET).map_err(anyhow::Error::msg)?;
        Ok(Self { path: path.into(), store, target, boot: BootId::from_bytes([1; 16]) })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `callers` tasks that each have one call accepted after the other, until the pool is empty.
    ///
    /// # Errors
    /// If a call is not accepted.
    pub async fn accept(&self, callers: usize, pool: Pool<Acceptance>) -> anyhow::Result<Round> {
        let pool = Arc::new(pool);
        let barrier = Arc::new(Barrier::new(callers + 1));
        let mut running = Vec::with_capacity(callers);
        for _ in 0..callers {
            let (pool, store) = (Arc::clone(&pool), Arc::clone(&self.store));
            let barrier = Arc::clone(&barrier);
            running.push(tokio::spawn(async move {
                let mut latencies = Vec::new();
                barrier.wait().await;
                let start = Instant::now();
                while let Some(acceptance) = pool.take(start) {
                    let begun = Instant::now();
                    let accepted = store.accept(acceptance).await?;
                    latencies.push(begun.elapsed());
                    ensure!(matches!(accepted, Accepted::Fresh(_)), "a call came to {accepted:?}");
                }
                anyhow::Ok(latencies)
            }));
        }
        barrier.wait().await;
        let start = Instant::now();
        let mut latencies = Vec::new();
        for caller in running {
            latencies.extend(caller.await??);
        }
        Ok(Round::new(start.elapsed(), latencies))
    }

    /// Adds items; nobody looks at the time.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn fill(&self, workload: &mut Workload, count: usize) -> anyhow::Result<()> {
        let mut left = count;
        while left > 0 {
            let now = left.min(20_000);
            let pool = Pool::fill(now, ENDLESS, || workload.acceptance());
            self.accept(FILLERS, pool).await?;
            left -= now;
        }
        Ok(())
    }

    /// Takes `count` items through all their states, in batches.
    ///
    /// # Errors
    /// If one of them does not end as delivered.
    pub async fn deliver(&self, count: usize) -> anyhow::Result<Round> {
        let mut latencies = Vec::with_capacity(count);
        let start = Instant::now();
        while latencies.len() < count {
            let begun = Instant::now();
            let max_count = BATCH_COUNT.min(count - latencies.len());
            let done_count = self.batch(max_count).await?;
            ensure!(done_count == max_count, "only {done_count} of {max_count} items were due");
            latencies.extend(std::iter::repeat_n(begun.elapsed(), done_count));
        }
        Ok(Round::new(start.elapsed(), latencies))
    }

    async fn batch(&self, max_count: usize) -> anyhow::Result<usize> {
        let claim = Claim {
            target: self.target.clone(),
            boot: self.boot,
            lease: LEASE,
            max_count,
            probe: false,
            under_way: UnderWay::default(),
        };
        let items = self.store.claim(claim).await?.items;
        let begin = |key, fence| BeginSend { key, boot: self.boot, fence, lease: LEASE };
        let begins = items.iter().map(|it| begin(it.delivery.key, it.delivery.fence)).collect();
        let begun = self.store.begin_send(begins).await?;
        ensure!(begun.iter().all(|begun| *begun == Begun::Send), "an item was withheld");
        let reports = items.iter().map(|item| Report {
            key: item.delivery.key,
            boot: self.boot,
            fence: item.delivery.fence,
            seed: 0,
            what: Happened::Sent(SendEnd::Applied {
                external_id: Some("1234567".into()),
                result: StoredResult::from_text("created 1234567"),
            }),
        });
        let reported = self.store.report(reports.collect()).await?;
        let is_done = |state| state == Some(State::Delivered);
        ensure!(reported.iter().all(|it| is_done(it.state)), "an item was not delivered");
        Ok(items.len())
    }

    /// Commits what is queued and closes.
    ///
    /// # Errors
    /// If the last batch fails.
    pub async fn close(self) -> anyhow::Result<()> {
        Ok(self.store.close().await?)
    }
}
