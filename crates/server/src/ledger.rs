//! Opens the ledger that the settings name, with its keys, for a server.

use std::path::PathBuf;
use std::sync::Arc;

use counterfoil_core::identity::BackendId;
use counterfoil_engine::Engine;
use counterfoil_store::memory::{MemoryOptions, MemoryStore};
use counterfoil_store::sqlite::{SqliteOptions, SqliteStore};
use counterfoil_store::{OpenRefused, Store, StoreError};

use crate::config::{Settings, StoreKind};
use crate::data_dir::{DataDir, DataDirError};
use crate::keys::{self, KeysError};
use crate::tools::issue_effect;

/// Why a ledger could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The data directory cannot hold one.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// Another process holds the write lock.
    #[error(
        "the ledger {} is locked: another process held its write lock for over {waited_ms} ms; \
         nothing was written: stop that process, or wait longer for it (--lock-wait, or \
         COUNTERFOIL_LOCK_WAIT), and run this again",
        .file.display()
    )]
    Locked {
        /// The ledger's file.
        file: PathBuf,
        /// How long was waited.
        waited_ms: u64,
    },
    /// No room.
    #[error(
        "the disk that holds {} is full; nothing was written: free space and run this again",
        .file.display()
    )]
    NoRoom {
        /// The ledger's file.
        file: PathBuf,
    },
    /// The store refused or failed.
    #[error(transparent)]
    Store(StoreError),
    /// The keys cannot be used.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The task that opened it was stopped.
    #[error("the ledger was not opened: the process is ending")]
    Stopped,
}

impl LedgerError {
    /// What an error of the store means to whoever starts a process on the ledger in `dir`: the
    /// store's own words are for the sender of an operation, and here is none to be sent again.
    pub(crate) fn at_start(error: StoreError, dir: &DataDir) -> Self {
        match error {
            StoreError::Busy { waited_ms } => Self::Locked { file: dir.ledger(), waited_ms },
            StoreError::Full { path } => Self::NoRoom { file: path },
            StoreError::Refused(OpenRefused::Keys(problem)) => {
                Self::Keys(KeysError::unfit(&dir.keys(), &problem))
            }
            other => Self::Store(other),
        }
    }
}

/// Opens the ledger for a server: data directory, file and first key are made if they are missing.
///
/// # Errors
/// [`LedgerError`]. Nothing that exists was changed.
pub async fn open_engine(settings: &Settings) -> Result<Arc<Engine>, LedgerError> {
    match settings.store {
        StoreKind::Memory => in_memory(settings).await,
        StoreKind::Sqlite => on_disk(settings, None).await,
    }
}

/// The same for a process that stands beside one server of one client: it keeps fewer pages in
/// memory.
///
/// # Errors
/// As [`open_engine`].
pub async fn open_small(settings: &Settings) -> Result<Arc<Engine>, LedgerError> {
    match settings.store {
        StoreKind::Memory => in_memory(settings).await,
        StoreKind::Sqlite => on_disk(settings, Some(SMALL_CACHE_KIB)).await,
    }
}

/// One call at a time touches a dozen pages, of 4 KiB each.
const SMALL_CACHE_KIB: u32 = 2048;

async fn in_memory(settings: &Settings) -> Result<Arc<Engine>, LedgerError> {
    let name = BackendId::parse("memory").expect("`memory` is a name");
    let mut options = MemoryOptions::new(settings.backend_id.clone().unwrap_or(name));
    options.tables = issue_effect::tables();
    let store = MemoryStore::new(&options).map_err(|why| LedgerError::Store(why.into()))?;
    let keys = keys::ephemeral()?;
    let engine = Engine::open_whole(Arc::new(store), keys, settings.lifetimes);
    Ok(Arc::new(engine.await.map_err(LedgerError::Store)?))
}

async fn on_disk(settings: &Settings, cache_kib: Option<u32>) -> Result<Arc<Engine>, LedgerError> {
    let dir = DataDir::prepare(settings.data_dir()?, settings.filesystem_override)?;
    let at_start = |error| LedgerError::at_start(error, &dir);
    let mut options = SqliteOptions::new(dir.ledger());
    options.backend_id.clone_from(&settings.backend_id);
    options.lock_wait = settings.lock_wait;
    options.writer_cache_kib = cache_kib.unwrap_or(options.writer_cache_kib);
    options.tables = issue_effect::tables();
    // Opening blocks for some milliseconds, longer while another process holds the file's lock.
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&options));
    let store = Arc::new(opened.await.map_err(|_| LedgerError::Stopped)?.map_err(at_start)?);
    let info = store.info().await.map_err(at_start)?;
    let ring = keys::load_or_generate(&dir.keys(), settings.active_key, &info)?;
    let engine = Engine::open_whole(store, ring, settings.lifetimes);
    let engine = engine.await.map_err(at_start)?;
    Ok(Arc::new(engine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use counterfoil_store::error::KeyProblem;

    #[test]
    fn faults_at_the_start_are_told_to_whoever_starts() {
        // Promise: the words name the file and what to do now; nobody is told to send an operation
        // again that was never sent.
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let dir = DataDir::prepare(scratch.path(), None).expect("usable");
        let keys = |problem| StoreError::Refused(OpenRefused::Keys(problem));
        let cases = [
            (StoreError::Busy { waited_ms: 5000 }, "ledger.db", "over 5000 ms"),
            (StoreError::Full { path: dir.ledger() }, "ledger.db", "free space and run this again"),
            (keys(KeyProblem::Missing { key_id: 3 }), "keys/3.key", "restore that file"),
            (keys(KeyProblem::Mismatch { key_id: 3 }), "keys/3.key", "restore that file"),
        ];
        for (error, file, remedy) in cases {
            let words = LedgerError::at_start(error, &dir).to_string();
            let file = scratch.path().join(file);
            assert!(words.contains(&file.display().to_string()), "{words}");
            assert!(words.contains(remedy) && !words.contains("same operation"), "{words}");
        }
    }
}
