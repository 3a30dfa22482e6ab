//! What the writer has done, and how large its files are, for operators.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;

use super::open::beside;
use crate::contract::LedgerStats;

/// The writer's counts, read by others while it goes on.
#[derive(Debug, Default)]
pub(super) struct Counts {
    commits: AtomicU64,
    commands: AtomicU64,
    largest_batch: AtomicU64,
}

impl Counts {
    /// A transaction with that many commands was committed.
    pub(super) fn committed(&self, commands: usize) {
        let commands = commands as u64;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.commands.fetch_add(commands, Ordering::Relaxed);
        self.largest_batch.fetch_max(commands, Ordering::Relaxed);
    }

    /// With the sizes that the files have now; a file that cannot be seen counts as empty.
    pub(super) fn with_sizes(&self, ledger: &Path, unsettled: u64) -> LedgerStats {
        let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        LedgerStats {
            unsettled,
            commits: self.commits.load(Ordering::Relaxed),
            committed_commands: self.commands.load(Ordering::Relaxed),
            largest_batch: self.largest_batch.load(Ordering::Relaxed),
            file_bytes: bytes(ledger),
            log_bytes: bytes(&beside(ledger, "-wal")),
        }
    }
}

/// Operations in progress or in doubt. Damaged rows count by the state that they show.
pub(super) fn unsettled_count(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT count(*) FROM operations WHERE state IN (0, 4)")?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(|count| u64::try_from(count).unwrap_or(0))
}
