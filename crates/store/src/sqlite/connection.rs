//! Connections: how each is opened and set, and how long it waits for another process.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::log::LOG_LIMIT_BYTES;
use crate::error::OpenRefused;

/// Marks a file as a Counterfoil ledger (SQLite's `application_id`): the bytes `CFol`.
pub(super) const APPLICATION_ID: i64 = 0x4346_6f6c;

/// Older versions can lose commits when two connections checkpoint and restart a WAL at once.
const OLDEST_SQLITE: (i32, &str) = (3_051_003, "3.51.3");

const STATEMENT_COUNT: usize = 128;

/// How long a waiting connection sleeps between two tries. Less than the pause that a busy writer
/// makes between its batches, so that the waiter cannot miss it.
const WAIT_STEP: Duration = Duration::from_micros(300);

/// # Errors
/// [`OpenRefused::SqliteTooOld`].
pub(super) fn check_version() -> Result<(), OpenRefused> {
    if rusqlite::version_number() >= OLDEST_SQLITE.0 {
        return Ok(());
    }
    Err(OpenRefused::SqliteTooOld {
        found: rusqlite::version().to_owned(),
        wanted: OLDEST_SQLITE.1,
    })
}

/// Opens a file that exists. What is in it has not been looked at yet.
pub(super) fn connect(path: &Path) -> rusqlite::Result<(Connection, Patience)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    let patience = Patience::install(&mut connection)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_COUNT);
    // Until the file is known to be a ledger, closing it must not write to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // Else a new value bound to a cached statement may have it compiled again.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok((connection, patience))
}

/// Sets what durability rests on, and makes sure that it is set.
///
/// # Errors
/// The setting that did not take, in words; or SQLite's error.
pub(super) fn make_durable(connection: &Connection) -> rusqlite::Result<Result<(), String>> {
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Ok(Err(format!("its file system does not allow a write-ahead log ({mode})")));
    }
    connection.pragma_update(None, "synchronous", "full")?;
    let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    if synchronous != 2 {
        return Ok(Err(format!("`synchronous` is {synchronous} and not FULL")));
    }
    if cfg!(target_os = "macos") {
        // There fsync() alone does not reach the medium.
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    }
    let limit = i64::try_from(LOG_LIMIT_BYTES).expect("64 MiB fits");
    connection.pragma_update_and_check(None, "journal_size_limit", limit, |_| Ok(()))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(Ok(()))
}

/// How long a connection waits while another one holds a lock.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    start: Instant,
    until_ns: Arc<AtomicU64>,
    waited: Arc<AtomicBool>,
}

impl Patience {
    fn install(connection: &mut Connection) -> rusqlite::Result<Self> {
        let patience = Self {
            start: Instant::now(),
            until_ns: Arc::new(AtomicU64::new(0)),
            waited: Arc::new(AtomicBool::new(false)),
        };
        let own = patience.clone();
        connection.busy_handler(Some(move |_| own.wait()))?;
        Ok(patience)
    }

    /// From now on a lock is waited for until `limit` has passed.
    pub(super) fn allow(&self, limit: Duration) {
        let until = self.start.elapsed().saturating_add(limit).as_nanos();
        self.until_ns.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether a lock was waited for since this was asked last.
    pub(super) fn take_waited(&self) -> bool {
        self.waited.swap(false, Ordering::Relaxed)
    }

    fn wait(&self) -> bool {
        let until = Duration::from_nanos(self.until_ns.load(Ordering::Relaxed));
        let left = until.saturating_sub(self.start.elapsed());
        self.waited.store(true, Ordering::Relaxed);
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(left.min(WAIT_STEP));
        true
    }
}
