//! Why the keys of a ledger cannot be used, with the file and the remedy.

use std::io;
use std::path::{Path, PathBuf};

use counterfoil_core::fingerprint::{KeyError, KeyId};
use counterfoil_store::error::KeyProblem;

pub(super) const KEY_SUFFIX: &str = ".key";

/// Why the keys cannot be used. No message holds anything of a key.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// Others than the owner can read or write it.
    #[error(
        "the key {} can be read or changed by other users (mode {mode:04o}); run `chmod 600 {}`, \
         and if others may have read it, activate a new key",
        .path.display(), .path.display()
    )]
    Exposed {
        /// The key's file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Others than the owner can put a key there, or take one away.
    #[error(
        "the keys' directory {} can be changed by other users (mode {mode:04o}); run `chmod 700 {}`, \
         and see with `counterfoil key list` that the keys are yours",
        .path.display(), .path.display()
    )]
    ExposedDirectory {
        /// The keys' directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// What it holds is not a key.
    #[error("the key {} cannot be used: {cause}; restore the file from a backup", .path.display())]
    Malformed {
        /// The key's file.
        path: PathBuf,
        /// What is wrong, without content.
        cause: KeyError,
    },
    /// A file's name is not a key's number.
    #[error(
        "{} is not a key's file: the name is the key's number, such as 1.key; rename it, or move \
         it away",
        .path.display()
    )]
    Misnamed {
        /// The file.
        path: PathBuf,
    },
    /// The ledger has operations, and no key is there.
    #[error(
        "the ledger holds operations that were made under {}, and {} holds no key: a new key would \
         not recognise them; restore {} from the backup of this data directory (mode 0600); a key \
         cannot be generated again",
        keys_in_words(.used), .dir.display(), files_in_words(.dir, .used)
    )]
    MissingWithOperations {
        /// The keys' directory.
        dir: PathBuf,
        /// The numbers of the keys that the ledger was used with.
        used: Vec<u32>,
    },
    /// A key that records were made under is not there.
    #[error(
        "the ledger holds operations that were made under key {id}, and {} is missing; restore \
         that file from the backup of this data directory (mode 0600); a key cannot be generated \
         again",
        .path.display()
    )]
    Needed {
        /// The key's file.
        path: PathBuf,
        /// The number.
        id: KeyId,
    },
    /// A key is there under a number that the ledger knows with another key.
    #[error(
        "the key {} is not the key that this ledger was used with; restore that file from the \
         backup of this data directory (mode 0600): under another key no stored operation would \
         be recognised",
        .path.display()
    )]
    Another {
        /// The key's file.
        path: PathBuf,
    },
    /// There is no key at all.
    #[error("there is no key in {}; run `counterfoil key generate`", .dir.display())]
    None {
        /// The keys' directory.
        dir: PathBuf,
    },
    /// Nothing says which key makes new fingerprints.
    #[error(
        "nothing says which key in {} is active; run `counterfoil key activate N` with one of: \
         {}",
        .dir.display(), numbers(.known)
    )]
    NoActive {
        /// The keys' directory.
        dir: PathBuf,
        /// The numbers of the keys that are there.
        known: Vec<KeyId>,
    },
    /// The active key is not there.
    #[error(
        "key {active} is to be active, and {} does not exist; restore it, or run `counterfoil key \
         activate N` with one of: {}",
        .dir.join(file_name(*.active)).display(), numbers(.known)
    )]
    ActiveAbsent {
        /// The keys' directory.
        dir: PathBuf,
        /// The number.
        active: KeyId,
        /// The numbers of the keys that are there.
        known: Vec<KeyId>,
    },
    /// `active` does not hold a number.
    #[error(
        "{} does not hold a key's number; run `counterfoil key activate N` with one of: {}",
        .path.display(), numbers(.known)
    )]
    ActiveMalformed {
        /// The file `active`.
        path: PathBuf,
        /// The numbers of the keys that are there.
        known: Vec<KeyId>,
    },
    /// The number is taken.
    #[error(
        "the key {} exists and is never replaced: operations made under it would no longer be \
         recognised; leave --id out to take the next number",
        .path.display()
    )]
    Exists {
        /// The key's file.
        path: PathBuf,
    },
    /// The ledger was used with a key of that number.
    #[error(
        "the ledger was used with a key {id} that is not in {}: restore its file; a new key with \
         that number would not be accepted; leave --id out to take the next number",
        .dir.display()
    )]
    NumberUsed {
        /// The keys' directory.
        dir: PathBuf,
        /// The number.
        id: KeyId,
    },
    /// The key to be taken away makes new fingerprints.
    #[error(
        "key {id} is active; first run `counterfoil key activate N` with another one and start \
         every server again"
    )]
    StillActive {
        /// The number.
        id: KeyId,
    },
    /// There is no such key.
    #[error("there is no key {}; run `counterfoil key list` for those that there are", .path.display())]
    Absent {
        /// The key's file.
        path: PathBuf,
    },
    /// A retired key of that number is there already.
    #[error("{} is there already, and is not replaced; move it away", .path.display())]
    AlreadyRetired {
        /// The retired key's file.
        path: PathBuf,
    },
    /// The system has no random bytes.
    #[error("the system gave no random bytes: {0}")]
    Random(getrandom::Error),
    /// Reading or writing failed.
    #[error("{} cannot be {doing}: {cause}; correct its owner and mode (0700 for the directory, 0600 for a key)", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// `read` or `written`.
        doing: &'static str,
        /// The system's words.
        cause: io::Error,
    },
}

impl KeysError {
    /// What the ledger finds wrong with the keys of `dir`.
    pub(crate) fn unfit(dir: &Path, problem: &KeyProblem) -> Self {
        let path = |id: u32| dir.join(file_name(KeyId(id)));
        match *problem {
            KeyProblem::Missing { key_id } => {
                Self::Needed { path: path(key_id), id: KeyId(key_id) }
            }
            KeyProblem::Mismatch { key_id } => Self::Another { path: path(key_id) },
        }
    }
}

pub(super) fn file_name(id: KeyId) -> String {
    format!("{id}{KEY_SUFFIX}")
}

fn numbers(known: &[KeyId]) -> String {
    known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn keys_in_words(used: &[u32]) -> String {
    match used {
        [] => "a key that it does not name".into(),
        [one] => format!("key {one}"),
        many => {
            format!("the keys {}", many.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
        }
    }
}

fn files_in_words(dir: &Path, used: &[u32]) -> String {
    match used {
        [] => dir.display().to_string(),
        many => {
            let file = |id: &u32| dir.join(file_name(KeyId(*id))).display().to_string();
            many.iter().map(file).collect::<Vec<_>>().join(", ")
        }
    }
}
