//! Making a new ledger. It is made whole under another name and then given its own, so that no
//! crash leaves half of one, and a file that is there is never written over.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use counterfoil_core::identity::BackendId;
use rusqlite::{Connection, params};

use super::connection::{APPLICATION_ID, connect, make_durable};
use super::faults::{Kind, kind, words};
use super::migrations;
use crate::error::{OpenRefused, StoreError};

/// Makes a ledger at `path`. If another process made one meanwhile, that one stays.
///
/// # Errors
/// [`OpenRefused::NotWritable`] or [`StoreError::Full`]; nothing is left at `path` then.
pub(super) fn create(path: &Path, backend_id: Option<&BackendId>) -> Result<(), StoreError> {
    let refused = |error: io::Error| cannot_make(path, &error);
    let backend_id = match backend_id {
        Some(given) => given.clone(),
        None => random_backend_id().map_err(refused)?,
    };
    let draft = Draft::new(path).map_err(refused)?;
    let not_writable =
        |cause| StoreError::Refused(OpenRefused::NotWritable { path: path.to_owned(), cause });
    match draft.fill(&backend_id) {
        Ok(durable) => durable.map_err(not_writable)?,
        Err(error) if kind(&error) == Kind::Full => {
            return Err(StoreError::Full { path: path.to_owned() });
        }
        Err(error) => return Err(not_writable(words(&error))),
    }
    match publish(&draft.path, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refused(error)),
        _ => {}
    }
    drop(draft);
    sync_directory(path).map_err(refused)
}

/// A ledger under a name of its own, which goes with it.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn new(target: &Path) -> io::Result<Self> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".new-{:016x}", random_u64()?));
        let path = target.with_file_name(name);
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { path })
    }

    /// The inner error is why the file could not be made durable.
    fn fill(&self, backend_id: &BackendId) -> rusqlite::Result<Result<(), String>> {
        let (connection, _) = connect(&self.path)?;
        if let Err(problem) = make_durable(&connection)? {
            return Ok(Err(problem));
        }
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        insert_ledger(&connection, backend_id)?;
        connection.execute_batch("COMMIT")?;
        if !write_back_all(&connection)? {
            return Ok(Err("its write-ahead log could not be written back".into()));
        }
        connection.close().map(Ok).map_err(|(_, error)| error)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut name = self.path.clone().into_os_string();
            name.push(suffix);
            let _ = fs::remove_file(name);
        }
    }
}

/// Writes the log back into the file, which alone is given the ledger's name; says whether nothing
/// is left in the log. The last connection would do it too when it closes, but it tells nobody if it
/// could not.
fn write_back_all(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
        let (busy, left_count): (i64, i64) = (row.get(0)?, row.get(1)?);
        Ok(busy == 0 && left_count == 0)
    })
}

fn insert_ledger(connection: &Connection, backend_id: &BackendId) -> rusqlite::Result<()> {
    let (version, min_compatible) = migrations::run(connection, 0)?;
    connection.execute(
        "INSERT INTO ledger (one, version, min_compatible, backend_id, incarnation, \
         high_water_ms, horizon_ms) VALUES (1, ?1, ?2, ?3, 1, 0, 0)",
        params![version, min_compatible, backend_id.as_str().as_bytes()],
    )?;
    Ok(())
}

/// Gives the draft its name, unless that is taken. Both ways are atomic and replace nothing; a
/// link comes second, because a crash would leave the ledger with two names.
fn publish(draft: &Path, path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, draft, CWD, path, RenameFlags::NOREPLACE).map_err(io::Error::from) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            // Perhaps a file system that cannot rename without replacing.
            fs::hard_link(draft, path)
        }
        other => other,
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn cannot_make(path: &Path, error: &io::Error) -> StoreError {
    if error.kind() == io::ErrorKind::StorageFull {
        return StoreError::Full { path: path.to_owned() };
    }
    StoreError::Refused(OpenRefused::NotWritable {
        path: path.to_owned(),
        cause: error.to_string(),
    })
}

fn random_backend_id() -> io::Result<BackendId> {
    let text = format!("bk-{:016x}", random_u64()?);
    Ok(BackendId::parse(&text).expect("lower-case hexadecimal digits are a valid name"))
}

fn random_u64() -> io::Result<u64> {
    getrandom::u64().map_err(|error| io::Error::other(error.to_string()))
}
