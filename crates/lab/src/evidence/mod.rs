//! Evidence: what a run leaves behind so that a stranger can check it again, offline.
//!
//! A bundle is a directory:
//!
//! | file | what it holds |
//! |---|---|
//! | `evidence.json` | what was asked, which cells ran, versions ([`Manifest`]) |
//! | `cells/SDK/TRANSPORT/CASE/result.json` | the cell's verdict ([`CellResult`]) |
//! | `.../servers.json` | every server: caller, clock, flags, exit code ([`ServerRun`]) |
//! | `.../transcripts/*.jsonl` | both directions, message for message; secrets are markers |
//! | `.../store.db` | a copy of the ledger, made after its writers left |
//! | `.../facts.json` | the physical rows of that copy, by a program that knows the schema only |
//! | `SHA256SUMS` | the digest of every other file, in the form that `sha256sum --check` reads |
//!
//! [`write`] makes it, [`verify`] checks it, [`judge`] says what a cell's files show.

pub mod exchange;
pub mod judge;
mod redact;
mod sums;
pub mod verify;
pub mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use redact::Redactor;

/// The form of bundles that this program writes and reads.
pub const FORMAT: &str = "counterfoil-evidence/1";
/// The SDKs whose cells a bundle may have.
pub const SDKS: [&str; 3] = ["rust", "python", "typescript"];
/// The transports.
pub const TRANSPORTS: [&str; 2] = ["stdio", "http"];
/// What was asked, and what ran.
pub const MANIFEST: &str = "evidence.json";
/// Digests of all other files.
pub const SUMS: &str = "SHA256SUMS";
/// Where cells are.
pub const CELLS: &str = "cells";
/// A cell's verdict.
pub const RESULT: &str = "result.json";
/// A cell's servers.
pub const SERVERS: &str = "servers.json";
/// A cell's physical rows.
pub const FACTS: &str = "facts.json";
/// A cell's ledger.
pub const STORE: &str = "store.db";
/// A cell's transcripts.
pub const TRANSCRIPTS: &str = "transcripts";

/// What was asked and what ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: String,
    /// `cases` or `controls`.
    pub suite: String,
    /// The protocol revision.
    pub protocol: String,
    /// The SDKs that were asked for.
    pub sdks: Vec<String>,
    /// The transports that were asked for.
    pub transports: Vec<String>,
    /// The cells that follow from these.
    pub requested: Vec<String>,
    /// The cells that have a result.
    pub ran: Vec<String>,
    /// Programs, libraries and the machine, by name.
    pub versions: BTreeMap<String, String>,
    /// When it began, in milliseconds since the Unix epoch.
    pub began_ms: i64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// What became of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Every promise held, seen by the SDK and in the files.
    Pass,
    /// A promise did not hold.
    Fail,
    /// The SDK has not what the case needs; the words name it.
    Unsupported,
    /// The lab itself failed: nothing is known of the promise.
    MachineryError,
}

impl Status {
    /// Its name in a table and in a file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unsupported => "unsupported",
            Self::MachineryError => "machinery_error",
        }
    }
}

/// The verdict on one cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellResult {
    /// `SDK/TRANSPORT/CASE`.
    pub cell: String,
    /// The verdict.
    pub status: Status,
    /// Why it is no pass; empty for a pass.
    pub words: String,
    /// What the cell's files alone show ([`judge`]): empty if they show what the case promises,
    /// else what is missing.
    pub files_lack: String,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// One server of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerRun {
    /// In the order in which they started; a probe has the number of the server that it was for.
    pub number: usize,
    /// Who calls.
    pub principal: String,
    /// Where its clock stands, in milliseconds since the Unix epoch.
    pub clock_ms: i64,
    /// Its command line, but for its data directory.
    pub flags: Vec<String>,
    /// Its file in the cell's transcripts.
    pub transcript: String,
    /// `0`, another exit code, or `signal N`; `None` if that was not seen.
    pub exit: Option<String>,
}

impl ServerRun {
    /// The value that stands behind a flag.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<&str> {
        let at = self.flags.iter().position(|flag| flag == name)?;
        self.flags.get(at + 1).map(String::as_str)
    }

    /// Whether a flag was given.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.flags.iter().any(|flag| flag == name)
    }
}

/// The name of a cell.
#[must_use]
pub fn cell_name(sdk: &str, transport: &str, case: &str) -> String {
    format!("{sdk}/{transport}/{case}")
}

/// The directory of a cell.
#[must_use]
pub fn cell_dir(bundle: &Path, cell: &str) -> PathBuf {
    bundle.join(CELLS).join(cell)
}
