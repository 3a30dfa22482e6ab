//! The cells of the Rust SDK, which run in this process: each in a task and on a bench of its own.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Run;
use crate::cases::{self, Bench, Over};
use crate::evidence::write::Left;
use crate::evidence::{Status, cell_name};
use crate::session::Protocol;

/// Cells wait for processes more than they compute.
const AT_ONCE: usize = 4;

/// A cell that has ended.
struct Ended {
    case: &'static str,
    bench: Arc<Bench>,
    folder: TempDir,
    status: Status,
    words: String,
    took: Duration,
}

/// Runs a suite over one transport.
pub(super) async fn run(run: &mut Run, over: Over) -> anyhow::Result<()> {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut cells = JoinSet::new();
    for (case, _) in run.suite.cases() {
        let (folder, slots) = (tempfile::Builder::new().prefix("lab-").tempdir()?, slots.clone());
        let transcripts = folder.path().join("transcripts");
        std::fs::create_dir(&transcripts)?;
        let bench = Bench::new(&run.lab, folder.path(), &transcripts);
        let bench = Arc::new(bench.by(Protocol::V2026_07_28, over));
        cells.spawn(async move {
            let _slot = slots.acquire_owned().await.expect("nobody closes it");
            one(case, bench, folder).await
        });
    }
    while let Some(ended) = cells.join_next().await {
        let ended = ended?;
        run.keep(Left {
            cell: &cell_name("rust", over.as_str(), ended.case),
            status: ended.status,
            words: &ended.words,
            runs: ended.bench.runs(),
            folder: &ended.folder.path().join("transcripts"),
            ledger: Some(ended.bench.ledger()),
            took: ended.took,
        })?;
    }
    Ok(())
}

async fn one(case: &'static str, bench: Arc<Bench>, folder: TempDir) -> Ended {
    let (began, used) = (Instant::now(), Arc::clone(&bench));
    // A promise that does not hold is a panic, which ends this task alone.
    let (status, words) = match tokio::spawn(async move { cases::run(case, &used).await }).await {
        Ok(Ok(())) => (Status::Pass, String::new()),
        Ok(Err(error)) => (Status::MachineryError, format!("{error:#}")),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => (Status::Fail, words_of(panic.as_ref())),
            Err(error) => (Status::MachineryError, error.to_string()),
        },
    };
    Ended { case, bench, folder, status, words, took: began.elapsed() }
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a promise did not hold").to_owned()
}
