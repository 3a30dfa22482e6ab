//! Opens the ledger of a data directory for a command that looks or decides.

use std::sync::Arc;

use counterfoil_store::Store;

use super::UsageError;
use crate::config::{Settings, StoreKind};
use crate::data_dir::DataDir;

/// Opens a ledger that exists. None is ever made.
///
/// # Errors
/// If there is no data directory or no ledger in it, or the ledger refuses.
pub(super) async fn open(settings: &Settings) -> anyhow::Result<Arc<dyn Store>> {
    if settings.store == StoreKind::Memory {
        return Err(UsageError(
            "the memory store ends with its server: there is nothing to look at; \
             set store = \"sqlite\", or leave it out"
                .into(),
        )
        .into());
    }
    let dir = DataDir::existing(settings.data_dir()?, settings.filesystem_override)?;
    open_file(settings, &dir).await
}

/// The numbers of the keys that the ledger in `dir` was used with; none if there is no ledger.
///
/// # Errors
/// If there is a ledger and it cannot be read.
pub(super) async fn keys_used(settings: &Settings, dir: &DataDir) -> anyhow::Result<Vec<u32>> {
    if !dir.ledger().exists() {
        return Ok(Vec::new());
    }
    let store = open_file(settings, dir).await?;
    let info = store.info().await;
    store.close().await?;
    Ok(info?.key_ids)
}

async fn open_file(_settings: &Settings, _dir: &DataDir) -> anyhow::Result<Arc<dyn Store>> {
    anyhow::bail!("this build cannot open a ledger yet")
}
