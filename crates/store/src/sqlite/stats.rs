//! What the writer has done, and how large its files are, for operators.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, params};

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

/// One look for unsettled operations reads at most this many records, in count: a few milliseconds.
const SLICE_RECORDS: usize = 100_000;

/// A part of the ledger, looked through for unsettled operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slice {
    /// Operations in progress or in doubt, in count. Damaged rows count by the state that they show.
    unsettled: u64,
    /// The key that the next part begins behind; `None` at the end of the ledger.
    next: Option<Vec<u8>>,
}

/// Looks through the records behind the key `after`; an empty one stands before all.
pub(super) fn slice(connection: &Connection, after: &[u8]) -> rusqlite::Result<Slice> {
    slice_of(connection, after, SLICE_RECORDS)
}

fn slice_of(connection: &Connection, after: &[u8], records: usize) -> rusqlite::Result<Slice> {
    let limit = i64::try_from(records).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(
        "SELECT count(*) FILTER (WHERE state IN (0, 4)), count(*), max(operation_key) FROM \
         (SELECT operation_key, state FROM operations WHERE operation_key > ?1 \
         ORDER BY operation_key LIMIT ?2)",
    )?;
    statement.query_row(params![after, limit], |row| {
        let unsettled = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
        let more = row.get::<_, i64>(1)? >= limit;
        Ok(Slice { unsettled, next: if more { row.get(2)? } else { None } })
    })
}

/// The count of unsettled operations, put together from one part at each look: no index is kept
/// for it, and a large ledger is not read whole for a number.
#[derive(Debug, Default)]
pub(super) struct Round {
    after: Vec<u8>,
    so_far: u64,
    /// Of the last whole round.
    whole: Option<u64>,
}

impl Round {
    /// Where the next look begins.
    pub(super) fn after(&self) -> Vec<u8> {
        self.after.clone()
    }

    /// Adds a part that began behind `after`, and tells the count: that of the last whole round,
    /// and before there is one, what was found so far.
    pub(super) fn add(&mut self, after: &[u8], slice: Slice) -> u64 {
        // Another look may have been at the same part meanwhile.
        if self.after == after {
            self.so_far += slice.unsettled;
            match slice.next {
                Some(next) => self.after = next,
                None => {
                    self.whole = Some(self.so_far);
                    (self.after, self.so_far) = (Vec::new(), 0);
                }
            }
        }
        self.whole.unwrap_or(self.so_far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_ledger_is_counted_part_by_part() {
        // Promise: each look is bounded, and a whole round finds every unsettled operation once.
        let connection = Connection::open_in_memory().expect("memory");
        connection
            .execute_batch(
                "CREATE TABLE operations (operation_key BLOB PRIMARY KEY, state INTEGER);
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25)
                 INSERT INTO operations SELECT unhex(printf('%032x', i)), i % 5 FROM n;",
            )
            .expect("made");
        let mut round = Round::default();
        let look = |round: &mut Round| {
            let after = round.after();
            let slice = slice_of(&connection, &after, 10).expect("read");
            round.add(&after, slice)
        };
        // Of each five, one is in progress and one in doubt.
        let counts: Vec<u64> = (0..5).map(|_| look(&mut round)).collect();
        assert_eq!(counts, [4, 8, 10, 10, 10]);
        let stale = Slice { unsettled: 99, next: None };
        assert_eq!(round.add(&[1], stale), 10, "a look at another part counts for nothing");
    }
}
