//! The back ends under test.

use std::sync::Arc;

use counterfoil_core::identity::BackendId;
use counterfoil_core::time::Timestamp;
use counterfoil_store::{
    DirectLedger, MemoryOptions, MemoryStore, Outbox, SqliteOptions, SqliteStore, Store,
};

use super::clock::TestClock;
use super::direct::DirectFactory;
use super::effects::tables;
use super::outbox::OutboxFactory;
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

impl OutboxFactory for Memory {
    fn open_outbox(&self) -> Arc<dyn Outbox> {
        Arc::new(MemoryStore::new(&self.options).expect("good tables"))
    }
}

impl DirectFactory for Memory {
    fn open_direct(&self) -> Arc<dyn DirectLedger> {
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

impl DirectFactory for Sqlite {
    fn open_direct(&self) -> Arc<dyn DirectLedger> {
        Arc::new(SqliteStore::open(&self.options).expect("opens"))
    }
}

/// Takes a ledger's schema back to what it was before there were direct operations.
pub const WITHOUT_DIRECTS: &str = "DROP TABLE direct_memos; DROP TABLE direct_replies; \
    DROP TABLE directs; DROP INDEX directs_due; UPDATE ledger SET version = 3, min_compatible = 3";

/// Takes a ledger's schema back to what it was before there was an outbox.
pub const WITHOUT_OUTBOX: &str = "DROP TABLE direct_memos; DROP TABLE direct_replies; \
    DROP TABLE directs; DROP INDEX directs_due; DROP TABLE outbox_requests; DROP TABLE outbox; \
    DROP TABLE outbox_targets; DROP TABLE outbox_terms; DROP TABLE outbox_revocations; \
    DROP TABLE outbox_orders; ALTER TABLE operations DROP COLUMN nature; \
    UPDATE ledger SET version = 2, min_compatible = 1";

impl OutboxFactory for Sqlite {
    fn open_outbox(&self) -> Arc<dyn Outbox> {
        Arc::new(SqliteStore::open(&self.options).expect("opens"))
    }
}
