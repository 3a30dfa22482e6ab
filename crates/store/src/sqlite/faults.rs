//! What SQLite's errors mean. A failed statement may have taken the whole transaction with it, so
//! nobody goes on after an error without asking whether the transaction is still there.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Error, ErrorCode};

use crate::error::StoreError;

/// Why a command stopped.
#[derive(Debug)]
pub(super) enum Fault {
    /// For a reason of its own. What it wrote is to be rolled back; the transaction is sound.
    Command(StoreError),
    /// SQLite failed beneath it; whether the transaction is still there must be asked.
    Sqlite(Error),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Command(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Sqlite(error)
    }
}

/// What kind of failure an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Another connection holds a lock.
    Busy,
    /// No room on the disk.
    Full,
    /// A constraint or a trigger of the schema refused.
    Constraint,
    /// A statement was stopped, because its time was spent.
    Stopped,
    /// The statement itself is wrong or forbidden: its author's fault, not the store's.
    Statement,
    /// The file cannot be read or written, or is damaged, or memory ran out.
    Io,
}

pub(super) fn kind(error: &Error) -> Kind {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Kind::Busy,
        Some(ErrorCode::DiskFull) => Kind::Full,
        Some(ErrorCode::ConstraintViolation) => Kind::Constraint,
        Some(ErrorCode::OperationInterrupted) => Kind::Stopped,
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::OutOfMemory
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::InternalMalfunction
            | ErrorCode::NoLargeFileSupport,
        ) => Kind::Io,
        _ => Kind::Statement,
    }
}

/// SQLite's own words. Of the store's own statements they name tables and columns, never values.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::SqliteFailure(_, Some(words)) => words.clone(),
        other => other.to_string(),
    }
}

/// What a command's caller is told when one of the store's own statements failed.
pub(super) fn store_error(error: &Error, path: &Path, waited: Duration) -> StoreError {
    match kind(error) {
        Kind::Busy => StoreError::Busy { waited_ms: millis(waited) },
        Kind::Full => StoreError::Full { path: path.to_owned() },
        Kind::Constraint | Kind::Stopped => {
            StoreError::EffectFailed { reason: words(error), refused: false }
        }
        Kind::Statement | Kind::Io => StoreError::Io { path: path.to_owned(), cause: words(error) },
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
