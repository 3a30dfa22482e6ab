//! What can go wrong with a ledger, by what the caller may do about it. No driver's type leaks.

use std::path::PathBuf;

use counterfoil_core::refusal::Retry;

/// A fault of the store. Words name the file, the cause and the remedy, and never a stored value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the write lock for longer than the allowed wait. Nothing was written.
    #[error(
        "the ledger is busy: another process held its write lock for over {waited_ms} ms; nothing was written, the same operation can be sent again"
    )]
    Busy {
        /// How long this call waited.
        waited_ms: u64,
    },
    /// No room. Nothing was written.
    #[error("the disk that holds {} is full; nothing was written; free space and send the same operation again", .path.display())]
    Full {
        /// The ledger's file.
        path: PathBuf,
    },
    /// Reading or writing the file failed. Nothing was acknowledged.
    #[error("the ledger {} cannot be used: {cause}", .path.display())]
    Io {
        /// The ledger's file.
        path: PathBuf,
        /// The system's words.
        cause: String,
    },
    /// The commit's acknowledgement was lost, and the ledger does not show the row. The same
    /// operation may be sent again: its identity decides.
    #[error(
        "the ledger's commit was not acknowledged and its row was not found; send the same operation again, its ID decides what happened"
    )]
    CommitUnknown,
    /// The effect refused or failed inside the transaction, which was rolled back: no record, no
    /// effect.
    #[error("the effect was rolled back: {reason}")]
    EffectFailed {
        /// The effect's words.
        reason: String,
        /// Whether the same request can never succeed.
        refused: bool,
    },
    /// The effect panicked inside the transaction, which was rolled back: no record, no effect.
    #[error("the effect panicked and was rolled back; nothing was written")]
    EffectPanicked,
    /// The record is damaged or contradicts itself. It was set aside; the rest keeps working.
    #[error(
        "the record of this operation fails its own checks and was set aside ({reason}); run `counterfoil store check`"
    )]
    Quarantined {
        /// Which check, without values.
        reason: String,
    },
    /// The file is not a ledger, is damaged, or is of another version or backend.
    #[error(transparent)]
    Refused(#[from] OpenRefused),
    /// The store is closing down, or its writer has died.
    #[error("the ledger is closed; start the server again and send the same operation")]
    Closed,
}

impl StoreError {
    /// One word for logs, which hold none of an effect's own words.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::Full { .. } => "disk_full",
            Self::Io { .. } => "io",
            Self::CommitUnknown => "commit_unknown",
            Self::EffectFailed { .. } => "effect_failed",
            Self::EffectPanicked => "effect_panicked",
            Self::Quarantined { .. } => "quarantined",
            Self::Refused(_) => "refused",
            Self::Closed => "closed",
        }
    }

    /// What the caller of an operation may do next.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self {
            Self::EffectFailed { refused: true, .. } => Retry::None,
            Self::Quarantined { .. } => Retry::StatusOnly,
            _ => Retry::SameOperation,
        }
    }
}

/// Why a ledger was not opened. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenRefused {
    /// The ledger belongs to another backend.
    #[error("{} belongs to the backend `{found}`, not `{wanted}`; give the right backend ID or another data directory", .path.display())]
    OtherBackend {
        /// The file.
        path: PathBuf,
        /// The ID inside it.
        found: String,
        /// The ID that was configured.
        wanted: String,
    },
    /// The schema needs a newer or older binary.
    #[error("{} has schema version {version} and needs a binary that knows version {min_compatible}; this one knows {known}: use a newer counterfoil", .path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema's version.
        version: i64,
        /// The oldest version of the schema that a binary must know.
        min_compatible: i64,
        /// The version that this binary knows.
        known: i64,
    },
    /// The file is damaged or is not a ledger. It is never replaced by a fresh one.
    #[error("{} is damaged or is not a ledger ({cause}); it was left as it is: restore a backup, or move the file away to start a new ledger", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        cause: String,
    },
    /// The directory or file cannot be written.
    #[error("{} cannot be opened for writing: {cause}; check owner and permissions", .path.display())]
    NotWritable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: String,
    },
    /// The ledger does not exist and was not to be made.
    #[error("there is no ledger at {}; give the data directory of a server that has run", .path.display())]
    Absent {
        /// The file.
        path: PathBuf,
    },
    /// A table that the program declares cannot be made, or is there with other columns.
    #[error("the program's table declarations do not fit {}: {problem}", .path.display())]
    Tables {
        /// The file.
        path: PathBuf,
        /// The table and the rule.
        problem: String,
    },
    /// The embedder's own schema failed and was rolled back.
    #[error("the embedder's schema could not be run in {}: {cause}; it was rolled back whole", .path.display())]
    EmbedderSchema {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        cause: String,
    },
    /// The keys do not fit the ledger.
    #[error("{0}")]
    Keys(KeyProblem),
    /// SQLite is too old: older ones can lose commits from the WAL.
    #[error("this binary is linked to SQLite {found}; at least {wanted} is needed")]
    SqliteTooOld {
        /// The linked version.
        found: String,
        /// The oldest good version.
        wanted: &'static str,
    },
}

/// How the fingerprint keys do not fit the ledger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// A key's check value differs: it is not the key that the ledger was used with.
    #[error(
        "key {key_id} is not the key that this ledger was used with; restore that key's file (a new key would make every stored operation unrecognisable)"
    )]
    Mismatch {
        /// The key's number.
        key_id: u32,
    },
    /// Records need a key that is not there.
    #[error(
        "records in this ledger were made under key {key_id}, which is missing; restore that key's file (it cannot be generated again)"
    )]
    Missing {
        /// The key's number.
        key_id: u32,
    },
}
