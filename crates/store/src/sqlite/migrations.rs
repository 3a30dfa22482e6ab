//! The numbered schema files, run in order inside one transaction when a ledger is opened.

use rusqlite::Connection;

/// The version that this binary knows. What a ledger needs at least is its own `min_compatible`.
pub(super) const KNOWN_VERSION: i64 = 4;

/// The version from which on the ledger's row tells of retention.
pub(super) const RETENTION_VERSION: i64 = 2;

/// The version from which on there is an outbox.
pub(super) const OUTBOX_VERSION: i64 = 3;

/// The version from which on there are direct operations.
pub(super) const DIRECT_VERSION: i64 = 4;

struct Migration {
    version: i64,
    /// The oldest version that a binary must know to open a file that has this one.
    min_compatible: i64,
    sql: &'static str,
}

const MIGRATIONS: [Migration; 4] = [
    Migration { version: 1, min_compatible: 1, sql: include_str!("migrations/0001_ledger.sql") },
    // A binary of version 1 neither reads nor writes the new columns, knows purged records, and
    // refuses IDs below the horizon: it works on such a file as well as ever. Only its `store check`
    // takes the effects of forgotten operations for orphans.
    Migration { version: 2, min_compatible: 1, sql: include_str!("migrations/0002_retention.sql") },
    // A binary that knows no outbox would take deferred records for damaged ones.
    Migration { version: 3, min_compatible: 3, sql: include_str!("migrations/0003_outbox.sql") },
    // A binary that knows no direct operations would take them for damaged records: it knows neither
    // their states nor results that stand beside the record.
    Migration { version: 4, min_compatible: 4, sql: include_str!("migrations/0004_direct.sql") },
];

/// Brings the schema from version `from` (0: an empty file) to [`KNOWN_VERSION`]. The caller has
/// begun a transaction. Returns `(version, min_compatible)` to keep in the ledger's own row.
pub(super) fn run(connection: &Connection, from: i64) -> rusqlite::Result<(i64, i64)> {
    let mut reached = (from, from);
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > from) {
        connection.execute_batch(migration.sql)?;
        reached = (migration.version, migration.min_compatible);
    }
    Ok(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_without_a_gap() {
        // Promise: every version leads to the next, and the last one is the known one.
        for (at, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.version, i64::try_from(at).expect("few") + 1);
            assert!(migration.min_compatible <= migration.version);
        }
        assert_eq!(MIGRATIONS.last().map(|last| last.version), Some(KNOWN_VERSION));
    }
}
