//! The tokens as a running server sees them: a change of the file counts from the next request on.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::hint::black_box;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use counterfoil_core::identity::Caller;
use counterfoil_core::time::Timestamp;

use super::{Right, TokenEntry, TokensError, digest, list};

/// Who a token says that its bearer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Whose calls these are.
    pub caller: Caller,
    /// The token's name for people.
    pub token_id: String,
    rights: Vec<Right>,
}

impl Known {
    /// Whether the token allows it.
    #[must_use]
    pub fn may(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }
}

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// Wrong, expired or revoked: told apart by nobody.
    Invalid,
    /// The file cannot be used now. Nobody is let in on what it said before: it may have changed
    /// to take a token away.
    Unavailable,
}

/// Watches the file by its name, number, length and times on every use, which costs one `stat`.
#[derive(Debug)]
pub struct LiveTokens {
    path: PathBuf,
    read: RwLock<Read>,
}

#[derive(Debug)]
struct Read {
    stamp: Stamp,
    /// `None` if the file could not be used.
    tokens: Option<Arc<HashMap<[u8; 32], TokenEntry>>>,
}

/// What a file looked like before it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stamp {
    Absent,
    Unreadable,
    File { device: u64, inode: u64, bytes: u64, changed: (i64, i64), written: (i64, i64) },
}

impl Stamp {
    fn of(path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(found) => Self::from(&found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Absent,
            Err(_) => Self::Unreadable,
        }
    }
}

impl From<&Metadata> for Stamp {
    fn from(found: &Metadata) -> Self {
        Self::File {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
            written: (found.mtime(), found.mtime_nsec()),
        }
    }
}

impl LiveTokens {
    /// Reads the file. It may be absent: then no token is accepted until one is made.
    ///
    /// # Errors
    /// [`TokensError`] if it is there and cannot be used.
    pub fn open(path: &Path) -> Result<Self, TokensError> {
        let stamp = Stamp::of(path);
        let tokens = Some(index(list(path)?));
        Ok(Self { path: path.to_owned(), read: RwLock::new(Read { stamp, tokens }) })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether any token is accepted at `now`.
    #[must_use]
    pub fn any_live(&self, now: Timestamp) -> bool {
        self.current().is_some_and(|tokens| tokens.values().any(|token| token.is_live(now)))
    }

    /// Whether the file can be used.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.current().is_some()
    }

    /// Who brings this token.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn authenticate(&self, secret: &str, now: Timestamp) -> Result<Known, Denied> {
        let tokens = self.current().ok_or(Denied::Unavailable)?;
        let digest = digest(secret);
        let token = tokens.get(&digest).ok_or(Denied::Invalid)?;
        // The map's own comparison may stop early, but it compares digests, of which nobody
        // chooses the bytes. This one looks at all of them.
        if !equal(&token.digest, &digest) || !token.is_live(now) {
            return Err(Denied::Invalid);
        }
        Ok(Known {
            caller: token.caller.clone(),
            token_id: token.id.clone(),
            rights: token.rights.clone(),
        })
    }

    fn current(&self) -> Option<Arc<HashMap<[u8; 32], TokenEntry>>> {
        let stamp = Stamp::of(&self.path);
        {
            let read = self.read.read().unwrap_or_else(PoisonError::into_inner);
            if read.stamp == stamp {
                return read.tokens.clone();
            }
        }
        let mut read = self.read.write().unwrap_or_else(PoisonError::into_inner);
        if read.stamp != stamp {
            // Stamped before it is read: a change in between is seen at the next request.
            let tokens = match (stamp, list(&self.path)) {
                (Stamp::Unreadable, Ok(_)) => None,
                (_, Ok(entries)) => Some(index(entries)),
                (_, Err(error)) => {
                    tracing::error!(%error, "no token is accepted until this is corrected");
                    None
                }
            };
            if let Some(tokens) = &tokens {
                tracing::info!(count = tokens.len(), "the tokens' file has changed");
            }
            *read = Read { stamp, tokens };
        }
        read.tokens.clone()
    }
}

fn index(entries: Vec<TokenEntry>) -> Arc<HashMap<[u8; 32], TokenEntry>> {
    Arc::new(entries.into_iter().map(|entry| (entry.digest, entry)).collect())
}

/// Compares all bytes, whatever they are.
fn equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    black_box(a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b))) == 0
}
