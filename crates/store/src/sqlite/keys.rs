//! The ledger's memory of the fingerprint keys that it was used with.

use std::path::Path;

use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, params};

use super::faults::Fault;
use crate::error::{KeyProblem, OpenRefused, StoreError};
use crate::keys::KeyCheck;

/// Keeps the keys that are new; says whether there was one.
///
/// # Errors
/// As [`unknown`].
pub(super) fn bind(
    connection: &Connection,
    path: &Path,
    given: &[KeyCheck],
    now: Timestamp,
) -> Result<bool, Fault> {
    let unknown = unknown(connection, path, given, now)?;
    for check in &unknown {
        connection
            .prepare_cached(
                "INSERT INTO keys (key_id, check_value, first_seen_ms) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![check.id, check.value.as_slice(), now.as_ms()])?;
    }
    Ok(!unknown.is_empty())
}

/// The keys among the given ones that the ledger was never used with.
///
/// # Errors
/// [`OpenRefused::Keys`] if a key is not the one that was used, or one that is not given is still
/// needed: records in progress, in doubt or within their retention are compared under it.
pub(super) fn unknown(
    connection: &Connection,
    path: &Path,
    given: &[KeyCheck],
    now: Timestamp,
) -> Result<Vec<KeyCheck>, Fault> {
    let mut unknown = given.to_vec();
    for (id, value) in kept(connection)? {
        let damaged = |_| {
            Fault::Command(StoreError::Refused(OpenRefused::Damaged {
                path: path.to_owned(),
                cause: "its table `keys` holds a row that no version wrote".into(),
            }))
        };
        let id = u32::try_from(id).map_err(damaged)?;
        match given.iter().find(|check| check.id == id) {
            Some(check) if check.value.as_slice() == value.as_slice() => {
                unknown.retain(|check| check.id != id);
            }
            Some(_) => return Err(refused(KeyProblem::Mismatch { key_id: id })),
            None if is_needed(connection, id, now)? => {
                return Err(refused(KeyProblem::Missing { key_id: id }));
            }
            None => {}
        }
    }
    Ok(unknown)
}

fn kept(connection: &Connection) -> rusqlite::Result<Vec<(i64, Vec<u8>)>> {
    connection
        .prepare_cached("SELECT key_id, check_value FROM keys ORDER BY key_id")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// Looks through the records. It is asked only about a key that was taken away, so that no index
/// is kept for it.
fn is_needed(connection: &Connection, id: u32, now: Timestamp) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM operations WHERE key_id = ?1 \
             AND (retention_ends_ms IS NULL OR retention_ends_ms > ?2))",
        )?
        .query_row(params![id, now.as_ms()], |row| row.get(0))
}

fn refused(problem: KeyProblem) -> Fault {
    Fault::Command(StoreError::Refused(OpenRefused::Keys(problem)))
}
