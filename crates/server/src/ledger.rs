//! Opens the ledger that the settings name, with its keys, for a server.

use std::path::Path;
use std::sync::Arc;

use counterfoil_core::identity::BackendId;
use counterfoil_engine::Engine;
use counterfoil_store::memory::{MemoryOptions, MemoryStore};
use counterfoil_store::sqlite::{SqliteOptions, SqliteStore};
use counterfoil_store::{Store, StoreError};

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
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The keys cannot be used.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The task that opened it was stopped.
    #[error("the ledger was not opened: the process is ending")]
    Stopped,
}

/// Opens the ledger for a server: data directory, file and first key are made if they are missing.
///
/// # Errors
/// [`LedgerError`]. Nothing that exists was changed.
pub async fn open_engine(settings: &Settings) -> Result<Arc<Engine>, LedgerError> {
    let (store, ring): (Arc<dyn Store>, _) = match settings.store {
        StoreKind::Memory => {
            let name = BackendId::parse("memory").expect("`memory` is a name");
            let mut options = MemoryOptions::new(settings.backend_id.clone().unwrap_or(name));
            options.tables = issue_effect::tables();
            let store = MemoryStore::new(&options).map_err(StoreError::from)?;
            (Arc::new(store), keys::ephemeral()?)
        }
        StoreKind::Sqlite => {
            let dir = DataDir::prepare(settings.data_dir()?, settings.filesystem_override)?;
            let store = open_file(settings, &dir.ledger()).await?;
            let info = store.info().await?;
            let ring = keys::load_or_generate(&dir.keys(), settings.active_key, &info)?;
            (store, ring)
        }
    };
    Ok(Arc::new(Engine::open(store, ring, settings.lifetimes).await?))
}

async fn open_file(settings: &Settings, file: &Path) -> Result<Arc<dyn Store>, LedgerError> {
    let mut options = SqliteOptions::new(file);
    options.backend_id.clone_from(&settings.backend_id);
    options.lock_wait = settings.lock_wait;
    options.tables = issue_effect::tables();
    // Opening blocks for some milliseconds, longer while another process holds the file's lock.
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&options));
    let store = opened.await.map_err(|_| LedgerError::Stopped)??;
    Ok(Arc::new(store))
}
