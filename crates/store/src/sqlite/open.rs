//! Opening a ledger: everything that makes a file *not* usable is found here, before the first
//! command, and leaves the file as it is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::identity::BackendId;
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use super::commands::Session;
use super::connection::{APPLICATION_ID, Patience, check_version, connect, make_durable};
use super::create::create;
use super::declared;
use super::faults::{Kind, kind, store_error, words};
use super::guard::{Guard, Whose};
use super::log::LogLength;
use super::migrations::{self, KNOWN_VERSION};
use super::options::SqliteOptions;
use crate::clock::SharedMark;
use crate::error::{OpenRefused, StoreError};
use crate::tables::Tables;

/// Opening waits at least this long for another process's lock: it happens once, and mostly when
/// several processes start together.
const OPEN_WAIT: Duration = Duration::from_secs(5);

/// A whole file of at most this size is checked page by page at every open; it takes some tens of
/// milliseconds. Larger ones are checked by `counterfoil store check`.
const CHECKED_AT_OPEN_BYTES: u64 = 16 * 1024 * 1024;

/// The embedder's schema may take this long.
const SCHEMA_BUDGET: Duration = Duration::from_secs(60);

/// The ledger's own row.
#[derive(Debug, Clone)]
pub(super) struct LedgerRow {
    pub(super) version: i64,
    pub(super) backend_id: BackendId,
    pub(super) incarnation: i64,
    pub(super) high_water: Timestamp,
    pub(super) horizon: Timestamp,
}

/// An open ledger, for the writer.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) session: Session,
    pub(super) row: LedgerRow,
}

/// Opens the ledger, or makes it.
///
/// # Errors
/// [`StoreError::Refused`] with the reason; [`StoreError::Busy`], [`StoreError::Full`] or
/// [`StoreError::Io`] if the file is good and cannot be used now.
pub(super) fn open(options: &SqliteOptions, path: &Path) -> Result<Opened, StoreError> {
    check_version()?;
    let tables = Tables::declare(options.tables.clone())
        .map_err(|problem| OpenRefused::Tables { path: path.to_owned(), problem })?;
    if is_absent(path)? {
        if !options.create {
            return Err(OpenRefused::Absent { path: path.to_owned() }.into());
        }
        create(path, options.backend_id.as_ref())?;
    }
    let opening = Opening { path, wait: options.lock_wait.max(OPEN_WAIT) };
    let (mut connection, patience) = opening.verified_connection()?;
    patience.allow(opening.wait);
    let row = opening.bring_up_to_date(&connection, options.backend_id.as_ref())?;
    opening.make_tables(&connection, &tables)?;
    let guard = Guard::install(&mut connection).map_err(|error| opening.refuse(&error))?;
    if let Some(schema) = &options.schema {
        opening.run_schema(&connection, &guard, schema)?;
    }
    patience.allow(Duration::ZERO);
    let mark = Arc::new(SharedMark::new(Arc::clone(&options.clock), row.high_water, row.horizon));
    keep_pages(&connection, options.writer_cache_kib).map_err(|error| opening.refuse(&error))?;
    let session =
        new_session(connection, guard, patience, path.to_owned(), Arc::new(tables), mark, &row)
            .map_err(|error| opening.refuse(&error))?;
    Ok(Opened { session, row })
}

/// Opens the ledger again after its connection broke: the same file with the same ID, or nothing.
pub(super) fn reopen(
    path: &Path,
    backend_id: &BackendId,
    tables: &Arc<Tables>,
    mark: &Arc<SharedMark>,
    writer_cache_kib: u32,
) -> Result<Session, StoreError> {
    let opening = Opening { path, wait: OPEN_WAIT };
    if is_absent(path)? {
        return Err(OpenRefused::Absent { path: path.to_owned() }.into());
    }
    let (mut connection, patience) = opening.verified_connection()?;
    let row = opening.bring_up_to_date(&connection, Some(backend_id))?;
    let guard = Guard::install(&mut connection).map_err(|error| opening.refuse(&error))?;
    keep_pages(&connection, writer_cache_kib).map_err(|error| opening.refuse(&error))?;
    let (tables, mark) = (Arc::clone(tables), Arc::clone(mark));
    new_session(connection, guard, patience, path.to_owned(), tables, mark, &row)
        .map_err(|error| opening.refuse(&error))
}

/// A connection for reading alone.
pub(super) fn reader(path: &Path, wait: Duration) -> Result<Connection, StoreError> {
    let opening = Opening { path, wait };
    let (connection, _) = opening.verified_connection()?;
    connection
        .busy_timeout(wait)
        .and_then(|()| connection.pragma_update(None, "query_only", true))
        .map_err(|error| opening.refuse(&error))?;
    Ok(connection)
}

/// The ledger's own row; the error is what is wrong with it.
pub(super) fn read_ledger_row(
    connection: &Connection,
) -> rusqlite::Result<Result<LedgerRow, String>> {
    let row = connection
        .prepare_cached(
            "SELECT version, backend_id, incarnation, high_water_ms, horizon_ms FROM ledger",
        )?
        .query_row([], |row| {
            let backend_id: Vec<u8> = row.get(1)?;
            Ok((row.get(0)?, backend_id, row.get(2)?, row.get(3)?, row.get(4)?))
        })
        .optional()?;
    let Some((version, backend_id, incarnation, high_water_ms, horizon_ms)) = row else {
        return Ok(Err("its table `ledger` is empty".into()));
    };
    let backend_id =
        std::str::from_utf8(&backend_id).ok().and_then(|text| BackendId::parse(text).ok());
    let Some(backend_id) = backend_id else {
        return Ok(Err("its backend ID is not a valid name".into()));
    };
    Ok(Ok(LedgerRow {
        version,
        backend_id,
        incarnation,
        high_water: Timestamp::from_ms(high_water_ms),
        horizon: Timestamp::from_ms(horizon_ms),
    }))
}

/// Whether there is no file. A file that cannot be a ledger is refused by its looks.
pub(super) fn is_absent(path: &Path) -> Result<bool, OpenRefused> {
    let damaged = |cause: &str| OpenRefused::Damaged { path: path.to_owned(), cause: cause.into() };
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(damaged("it is not a regular file")),
        Ok(found) if found.len() == 0 => Err(damaged("it is empty")),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let log = beside(path, "-wal");
            match std::fs::metadata(&log) {
                Ok(log) if log.len() > 0 => {
                    Err(damaged("the file is gone and its write-ahead log, `-wal`, is still there"))
                }
                _ => Ok(true),
            }
        }
        Err(error) => {
            Err(OpenRefused::NotWritable { path: path.to_owned(), cause: error.to_string() })
        }
    }
}

/// The name of a file that SQLite or we keep beside the ledger.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(suffix);
    name.into()
}

/// How many pages a connection keeps in memory at most, in KiB.
fn keep_pages(connection: &Connection, kib: u32) -> rusqlite::Result<()> {
    // Negative: kibibytes, not pages.
    connection.pragma_update(None, "cache_size", -i64::from(kib))
}

fn new_session(
    mut connection: Connection,
    guard: Guard,
    patience: Patience,
    path: PathBuf,
    tables: Arc<Tables>,
    mark: Arc<SharedMark>,
    row: &LedgerRow,
) -> rusqlite::Result<Session> {
    mark.raise(row.high_water);
    mark.set_horizon(row.horizon);
    // What a savepoint would bring back is kept in memory: a command changes few pages, and beyond
    // 64 KiB SQLite would write each of them to a temporary file first.
    connection.pragma_update(None, "temp_store", "memory")?;
    let log_length = LogLength::watch(&mut connection)?;
    Ok(Session {
        connection,
        guard,
        patience,
        log_length,
        tables,
        mark,
        path,
        numbers: super::numbers::Numbers::default(),
        seen: super::outbox::Seen::default(),
        stamped: None,
        kept_mark: row.high_water,
        no_room: false,
    })
}

/// One opening of one file.
struct Opening<'a> {
    path: &'a Path,
    wait: Duration,
}

impl Opening<'_> {
    /// A connection to a file that is a ledger, sound as far as was looked, writable and durable.
    fn verified_connection(&self) -> Result<(Connection, Patience), StoreError> {
        let (connection, patience) = connect(self.path).map_err(|error| self.refuse(&error))?;
        patience.allow(self.wait);
        let id: i64 = connection
            .pragma_query_value(None, "application_id", |row| row.get(0))
            .map_err(|error| self.refuse(&error))?;
        if id != APPLICATION_ID {
            return Err(self.damaged("it is a SQLite database, but not a Counterfoil ledger"));
        }
        if connection.is_readonly("main").map_err(|error| self.refuse(&error))? {
            return Err(self.not_writable("the file can only be read".into()));
        }
        make_durable(&connection)
            .map_err(|error| self.refuse(&error))?
            .map_err(|problem| self.not_writable(problem))?;
        patience.allow(Duration::ZERO);
        Ok((connection, patience))
    }

    /// Checks version and owner, runs what migrations are missing, and returns the ledger's row.
    fn bring_up_to_date(
        &self,
        connection: &Connection,
        wanted: Option<&BackendId>,
    ) -> Result<LedgerRow, StoreError> {
        let (version, min_compatible) = self.versions(connection)?;
        if min_compatible > KNOWN_VERSION || version < 1 {
            return Err(StoreError::Refused(OpenRefused::Schema {
                path: self.path.to_owned(),
                version,
                min_compatible,
                known: KNOWN_VERSION,
            }));
        }
        let row = read_ledger_row(connection)
            .map_err(|error| self.refuse(&error))?
            .map_err(|cause| self.damaged(&cause))?;
        if let Some(wanted) = wanted.filter(|wanted| **wanted != row.backend_id) {
            return Err(StoreError::Refused(OpenRefused::OtherBackend {
                path: self.path.to_owned(),
                found: row.backend_id.to_string(),
                wanted: wanted.to_string(),
            }));
        }
        self.check_structure(connection)?;
        if version < KNOWN_VERSION {
            self.in_transaction(connection, || {
                // Another process may have been faster.
                let (version, _) = versions(connection)?;
                if version >= KNOWN_VERSION {
                    return Ok(());
                }
                let (version, min_compatible) = migrations::run(connection, version)?;
                connection
                    .execute(
                        "UPDATE ledger SET version = ?1, min_compatible = ?2",
                        [version, min_compatible],
                    )
                    .map(|_| ())
            })
            .map_err(|error| self.refuse(&error))?;
        }
        Ok(row)
    }

    fn versions(&self, connection: &Connection) -> Result<(i64, i64), StoreError> {
        versions(connection).map_err(|error| match kind(&error) {
            Kind::Statement => self.damaged("its table `ledger` is missing or empty"),
            _ => self.refuse(&error),
        })
    }

    /// The indexes too: an ID that a damaged one does not find would be new work.
    fn check_structure(&self, connection: &Connection) -> Result<(), StoreError> {
        let length = std::fs::metadata(self.path).map_or(0, |found| found.len());
        if length > CHECKED_AT_OPEN_BYTES {
            return Ok(());
        }
        let verdict: String = connection
            .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
            .map_err(|error| self.refuse(&error))?;
        if verdict == "ok" {
            return Ok(());
        }
        let verdict = verdict.replace('\n', " ");
        if is_unread(&verdict) {
            let cause = format!("it could not be read whole: {verdict}");
            return Err(StoreError::Io { path: self.path.to_owned(), cause });
        }
        Err(self.damaged(&format!("its structure is broken: {verdict}")))
    }

    fn make_tables(&self, connection: &Connection, tables: &Tables) -> Result<(), StoreError> {
        let missing =
            declared::missing(connection, tables)
                .map_err(|error| self.refuse(&error))?
                .map_err(|problem| OpenRefused::Tables { path: self.path.to_owned(), problem })?;
        if missing.is_empty() {
            return Ok(());
        }
        self.in_transaction(connection, || {
            missing.iter().try_for_each(|spec| declared::make(connection, spec))
        })
        .map_err(|error| self.refuse(&error))
    }

    fn run_schema(
        &self,
        connection: &Connection,
        guard: &Guard,
        schema: &str,
    ) -> Result<(), StoreError> {
        self.in_transaction(connection, || {
            guard.run_as(Whose::Schema, SCHEMA_BUDGET, || connection.execute_batch(schema))
        })
        .map_err(|error| match kind(&error) {
            Kind::Busy | Kind::Full | Kind::Io => self.refuse(&error),
            Kind::Constraint | Kind::Stopped | Kind::Statement => {
                StoreError::Refused(OpenRefused::EmbedderSchema {
                    path: self.path.to_owned(),
                    cause: words(&error),
                })
            }
        })
    }

    fn in_transaction(
        &self,
        connection: &Connection,
        work: impl FnOnce() -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let outcome = work().and_then(|()| connection.execute_batch("COMMIT"));
        if outcome.is_err() && !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        outcome
    }

    /// What an error of SQLite's means while opening.
    fn refuse(&self, error: &rusqlite::Error) -> StoreError {
        use rusqlite::ErrorCode::{CannotOpen, DatabaseCorrupt, NotADatabase, ReadOnly};
        match error.sqlite_error_code() {
            Some(NotADatabase) => self.damaged("it is not a SQLite database"),
            Some(DatabaseCorrupt) => self.damaged(&words(error)),
            Some(CannotOpen | ReadOnly) => self.not_writable(words(error)),
            _ => store_error(error, self.path, self.wait),
        }
    }

    fn damaged(&self, cause: &str) -> StoreError {
        OpenRefused::Damaged { path: self.path.to_owned(), cause: cause.into() }.into()
    }

    fn not_writable(&self, cause: String) -> StoreError {
        OpenRefused::NotWritable { path: self.path.to_owned(), cause }.into()
    }
}

/// Whether a check of the structure failed to read a page. SQLite tells that among what is broken,
/// with the code of the error; but a disk that cannot be read now is no damage, and needs no backup.
fn is_unread(verdict: &str) -> bool {
    let code = verdict.split_once("error code=").map(|(_, rest)| {
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<i32>()
    });
    // The low byte is the primary code.
    matches!(code, Some(Ok(code)) if code & 0xff != rusqlite::ffi::SQLITE_CORRUPT)
}

fn versions(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    connection.query_row("SELECT version, min_compatible FROM ledger", [], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })
}
