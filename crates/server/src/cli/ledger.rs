//! Opens the ledger of a data directory for a command that looks or decides.

use std::sync::Arc;

use counterfoil_store::sqlite::{SqliteOptions, SqliteStore};
use counterfoil_store::{KeyUsage, LedgerInfo, Outbox};

use super::UsageError;
use crate::config::{Settings, StoreKind};
use crate::data_dir::DataDir;
use crate::ledger::LedgerError;

/// Opens a ledger that exists, and says where it is. None is ever made.
///
/// # Errors
/// If there is no data directory or no ledger in it, or the ledger refuses.
pub(super) async fn open(settings: &Settings) -> anyhow::Result<(Arc<dyn Outbox>, DataDir)> {
    if settings.store == StoreKind::Memory {
        return Err(UsageError(
            "the memory store ends with its server: there is nothing to look at; \
             set store = \"sqlite\", or leave it out"
                .into(),
        )
        .into());
    }
    let dir = DataDir::existing(settings.data_dir()?, settings.filesystem_override)?;
    Ok((open_file(settings, &dir).await?, dir))
}

/// An error in words for an operator, who has no operation to send again: the store's own are for
/// those who have.
pub(super) fn for_operator(error: anyhow::Error, dir: &DataDir) -> anyhow::Error {
    match error.downcast() {
        Ok(of_store) => LedgerError::at_start(of_store, dir).into(),
        Err(other) => other,
    }
}

/// What the ledger in `dir` says of itself; `None` if there is no ledger yet.
///
/// # Errors
/// If there is a ledger and it cannot be read.
pub(super) async fn info(settings: &Settings, dir: &DataDir) -> anyhow::Result<Option<LedgerInfo>> {
    if !dir.ledger().exists() {
        return Ok(None);
    }
    let store = open_file(settings, dir).await?;
    let info = store.info().await;
    store.close().await?;
    Ok(Some(info?))
}

/// What the records of the ledger in `dir` ask of its keys; nothing if there is no ledger yet.
///
/// # Errors
/// If there is a ledger and it cannot be read.
pub(super) async fn keys_in_use(
    settings: &Settings,
    dir: &DataDir,
) -> anyhow::Result<Vec<KeyUsage>> {
    if !dir.ledger().exists() {
        return Ok(Vec::new());
    }
    let store = open_file(settings, dir).await?;
    let usage = store.keys_in_use().await;
    store.close().await?;
    Ok(usage?)
}

/// Opening blocks: it may wait for another process's lock.
async fn open_file(settings: &Settings, dir: &DataDir) -> anyhow::Result<Arc<dyn Outbox>> {
    let options = SqliteOptions {
        backend_id: settings.backend_id.clone(),
        create: false,
        lock_wait: settings.lock_wait,
        ..SqliteOptions::new(dir.ledger())
    };
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&options)).await?;
    Ok(Arc::new(opened.map_err(|error| LedgerError::at_start(error, dir))?))
}
