//! How a SQLite ledger is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::identity::BackendId;

use crate::clock::{Clock, SystemClock};
use crate::effect::TableSpec;

/// How to open a ledger. Begin with [`SqliteOptions::new`] and change what differs.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The ledger's file. Its directory must exist and be on a local file system.
    pub path: PathBuf,
    /// The ledger's ID. `None` takes the file's own, and makes `bk-` and a random number for a new
    /// file.
    pub backend_id: Option<BackendId>,
    /// Whether to make the file if it does not exist. Default: yes.
    pub create: bool,
    /// The clocks. Default: the machine's.
    pub clock: Arc<dyn Clock>,
    /// How long a transaction waits while another process holds the write lock. Zero: not at all.
    /// Default: 1 second.
    pub lock_wait: Duration,
    /// The pages that the writer keeps in memory at most, in KiB. Default: 16 MiB; with less, IDs in
    /// random order read a page of their index for each once the ledger is large. Readers keep
    /// SQLite's default of 2 MiB each.
    pub writer_cache_kib: u32,
    /// Tables that effects write to by declaration. They are made if they are missing.
    pub tables: Vec<TableSpec>,
    /// The embedder's own schema: SQL that is run in one transaction at every open, so it must be
    /// idempotent (`CREATE TABLE IF NOT EXISTS ...`).
    pub schema: Option<String>,
}

impl SqliteOptions {
    /// The defaults for a ledger at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            backend_id: None,
            create: true,
            clock: Arc::new(SystemClock),
            lock_wait: Duration::from_secs(1),
            writer_cache_kib: 16 * 1024,
            tables: Vec::new(),
            schema: None,
        }
    }
}
