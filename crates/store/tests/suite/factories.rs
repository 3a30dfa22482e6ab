//! The back ends under test.

use std::sync::Arc;

use counterfoil_core::identity::BackendId;
use counterfoil_core::time::Timestamp;
use counterfoil_store::{MemoryOptions, MemoryStore, SqliteOptions, SqliteStore, Store};

use super::clock::TestClock;
use super::effects::tables;
use super::{Capabilities, Factory};

/// Ledgers in memory.
pub struct Memory {
    options: MemoryOptions,
}

impl Factory for Memory {
    const NAME: &'static str = "memory";
    const CAPABILITIES: Capabilities = Capabilities { durable: false, sql: false, shared: false };

    fn new(clock: Arc<TestClock>, horizon: Timestamp) -> Self {
        let mut options = MemoryOptions::new(BackendId::parse("test").expect("valid"));
        options.clock = clock;
        options.tables = tables();
        options.horizon = horizon;
        Self { options }
    }

    fn open(&self) -> Arc<dyn Store> {
        Arc::new(MemoryStore::new(&self.options).expect("good tables"))
    }
}

/// Ledgers in SQLite files.
pub struct Sqlite {
    pub directory: tempfile::TempDir,
    pub options: SqliteOptions,
}

impl Factory for Sqlite {
    const NAME: &'static str = "sqlite";
    const CAPABILITIES: Capabilities = Capabilities { durable: true, sql: true, shared: true };

    fn new(clock: Arc<TestClock>, horizon: Timestamp) -> Self {
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        let mut options = SqliteOptions::new(directory.path().join("ledger.db"));
        options.backend_id = Some(BackendId::parse("test").expect("valid"));
        options.clock = clock;
        options.tables = tables();
        drop(SqliteStore::open(&options).expect("a new ledger"));
        let connection = rusqlite::Connection::open(&options.path).expect("opens");
        connection.execute("UPDATE ledger SET horizon_ms = ?1", [horizon.as_ms()]).expect("moves");
        Self { directory, options }
    }

    fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&self.options).expect("opens"))
    }
}
