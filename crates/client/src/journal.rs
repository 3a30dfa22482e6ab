//! The consumer's own stub of each call: its identity, on disk before anything is sent.
//!
//! One JSON object per line, appended and fsynced. A line that a crash tore is skipped when
//! reading. Arguments are never written, nor a digest of them that could be guessed.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use counterfoil_core::consumer::Effect;
use counterfoil_core::identity::OperationId;
use counterfoil_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// An append-only file of identities, mode 0600. Processes may share it: each line is written
/// under a lock on the file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

/// What is saved before a call is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The operation; `None` if the call brings no ID and the server may name it later.
    pub operation_id: Option<OperationId>,
    /// The tool.
    pub tool: String,
    /// The server's program name, without its arguments.
    pub server: String,
    /// RFC 3339, as the caller gave it.
    pub saved_at: String,
}

/// An entry as it is read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// What was saved.
    pub entry: Entry,
    /// What was learned later; `None` while the outcome is unknown.
    pub settled: Option<Outcome>,
}

/// What became of a call that was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The operation took effect.
    Applied,
    /// A part of it did.
    Partial,
    /// It is proved that it did not.
    NotApplied,
    /// This call was refused before anything was done for it, or asked for input that was not
    /// given. That says nothing of another call with the same ID.
    Refused,
    /// Nothing of this call was sent. That says nothing of another call with the same ID.
    NotSent,
    /// A server that keeps no ledger answered this call: it alone knows what that means.
    Answered,
    /// The server gave this call, which had no ID, one; it goes on under the ID's own entry.
    Named,
}

impl Outcome {
    /// What a settled effect says of the operation; `None` for an unknown one.
    #[must_use]
    pub const fn of(effect: Effect) -> Option<Self> {
        match effect {
            Effect::Applied => Some(Self::Applied),
            Effect::Partial => Some(Self::Partial),
            Effect::NotApplied => Some(Self::NotApplied),
            Effect::Unknown => None,
        }
    }

    /// Whether it is of the operation, and so of every call with its ID; else of one call.
    const fn is_of_operation(self) -> bool {
        matches!(self, Self::Applied | Self::Partial | Self::NotApplied)
    }
}

/// The journal could not be opened, written or read. Then nothing is sent.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refused.
    #[error(
        "the journal {path} cannot be {done}: {source}; nothing is sent before an operation's \
         identity is on disk, so make the file writable or name another one"
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: `opened`, `written` or `read`.
        done: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Others may read the file.
    #[error(
        "the journal {path} has mode {mode:04o}, and only its owner may have access; run \
         `chmod 600` on it"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum Line {
    Saved(Entry),
    #[serde(rename_all = "camelCase")]
    Settled {
        operation_id: Option<OperationId>,
        server: String,
        effect: Outcome,
    },
}

impl Entry {
    /// The entry for one call.
    #[must_use]
    pub fn new(
        operation_id: Option<OperationId>,
        tool: &str,
        server: &str,
        saved_at: Timestamp,
    ) -> Self {
        Self {
            operation_id,
            tool: tool.to_owned(),
            server: server.to_owned(),
            saved_at: saved_at.to_rfc3339(),
        }
    }
}

impl Journal {
    /// Opens the journal, and makes it and the directories above it (0700) if they are not there.
    ///
    /// # Errors
    /// [`JournalError::Io`] if it cannot be opened for appending, [`JournalError::Open`] if
    /// others than its owner have access to it.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let path = path.into();
        let file = open_file(&path).map_err(|source| io_error(&path, "opened", source))?;
        let metadata = file.metadata().map_err(|source| io_error(&path, "opened", source))?;
        let mode = metadata.permissions().mode() & 0o7777;
        if metadata.is_file() && mode & 0o077 != 0 {
            return Err(JournalError::Open { path, mode });
        }
        Ok(Self { path, file })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts an identity on disk. Blocks for one fsync.
    ///
    /// # Errors
    /// [`JournalError::Io`] if the line is not surely on disk.
    pub fn save(&self, entry: &Entry) -> Result<(), JournalError> {
        self.append(&Line::Saved(entry.clone()))
    }

    /// Notes what became of the last open call with this ID at this server, or of all of them if
    /// the outcome is of the operation. Blocks for one fsync.
    ///
    /// # Errors
    /// [`JournalError::Io`] if the line is not surely on disk.
    pub fn settle(
        &self,
        operation_id: Option<&OperationId>,
        server: &str,
        outcome: Outcome,
    ) -> Result<(), JournalError> {
        let (operation_id, server) = (operation_id.cloned(), server.to_owned());
        self.append(&Line::Settled { operation_id, server, effect: outcome })
    }

    /// The calls whose outcome is still unknown, the oldest first. Without a file there is none.
    ///
    /// # Errors
    /// [`JournalError::Io`] if the file is there and cannot be read.
    pub fn pending(path: &Path) -> Result<Vec<Entry>, JournalError> {
        let all = match Self::read(path) {
            Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Vec::new());
            }
            read => read?,
        };
        Ok(all.into_iter().filter(|saved| saved.settled.is_none()).map(|s| s.entry).collect())
    }

    /// Reads a journal. Lines that cannot be read, as a crash leaves them, are skipped.
    ///
    /// # Errors
    /// [`JournalError::Io`] if the file cannot be read.
    pub fn read(path: &Path) -> Result<Vec<Saved>, JournalError> {
        let bytes = fs::read(path).map_err(|source| io_error(path, "read", source))?;
        let mut all: Vec<Saved> = Vec::new();
        let mut open: HashMap<(Option<OperationId>, String), Vec<usize>> = HashMap::new();
        for line in bytes.split(|byte| *byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(Line::Saved(entry)) => {
                    let key = (entry.operation_id.clone(), entry.server.clone());
                    open.entry(key).or_default().push(all.len());
                    all.push(Saved { entry, settled: None });
                }
                Ok(Line::Settled { operation_id, server, effect }) => {
                    let Some(calls) = open.get_mut(&(operation_id, server)) else { continue };
                    let first = if effect.is_of_operation() { 0 } else { calls.len().max(1) - 1 };
                    for at in calls.drain(first..) {
                        all[at].settled = Some(effect);
                    }
                }
                Err(_) => {}
            }
        }
        Ok(all)
    }

    fn append(&self, line: &Line) -> Result<(), JournalError> {
        let write = || -> io::Result<()> {
            self.file.lock()?;
            let written = write_line(&self.file, line);
            self.file.unlock()?;
            written
        };
        write().map_err(|source| io_error(&self.path, "written", source))
    }
}

fn write_line(mut file: &File, line: &Line) -> io::Result<()> {
    let mut text = Vec::new();
    if ends_torn(file)? {
        // A crash tore the last line: without this, ours would become a part of it.
        text.push(b'\n');
    }
    serde_json::to_writer(&mut text, line)?;
    text.push(b'\n');
    file.write_all(&text)?;
    file.sync_all()
}

fn ends_torn(mut file: &File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(length - 1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let missing: Vec<&Path> = parent.ancestors().take_while(|dir| !dir.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    let file = options.create(true).mode(0o600).open(path)?;
    file.sync_all()?;
    // A file is only there for good once the directory that names it is on disk, and so on up.
    sync_directory(parent)?;
    for made in missing {
        sync_directory(made.parent().unwrap_or(Path::new(".")))?;
    }
    Ok(file)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path)?.sync_all()
}

fn io_error(path: &Path, done: &'static str, source: io::Error) -> JournalError {
    JournalError::Io { path: path.to_owned(), done, source }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
