//! The keys' directory: `<N>.key` files that hold keys in hexadecimal, and `active`, which holds
//! the number of the one that makes new fingerprints.
//!
//! A key is distributed to every server of a ledger, then activated, then retired once no record
//! needs it. It is made once and never replaced: a new key under an old number would make stored
//! operations unrecognisable, and a retry of one of them would look like new work.

mod error;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use counterfoil_core::fingerprint::{KeyId, KeyRing, KeyRingError, MIN_KEY_BYTES, SecretKey};
use counterfoil_store::LedgerInfo;
use zeroize::Zeroizing;

use crate::data_dir::{make_private, writable_by_others};
use error::{KEY_SUFFIX, file_name};

pub use error::KeysError;

const ACTIVE_FILE: &str = "active";
/// Behind the name of a key that is out of use.
const RETIRED_SUFFIX: &str = ".retired";
/// A longer file is not a key.
const LONGEST_FILE_BYTES: u64 = 4096;

/// A key that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// Its number.
    pub id: KeyId,
    /// Its file.
    pub file: PathBuf,
    /// Whether it became the active key, as there was none.
    pub active: bool,
}

/// What `key list` tells of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEntry {
    /// Its number.
    pub id: KeyId,
    /// Whether it makes new fingerprints.
    pub active: bool,
    /// The first 8 digits of its check value, to compare two copies of a key; `None` if its file is
    /// missing.
    pub check: Option<String>,
    /// Its file, or where it should be.
    pub file: PathBuf,
}

/// The keys for a ledger. A ledger without operations gets its first key here; `active` overrides
/// the file of that name.
///
/// # Errors
/// [`KeysError`]; in particular if the ledger has operations and there is no key.
pub fn load_or_generate(
    dir: &Path,
    active: Option<KeyId>,
    ledger: &LedgerInfo,
) -> Result<KeyRing, KeysError> {
    if key_files(dir)?.is_empty() {
        let made = generate(dir, None, Some(ledger));
        // Another server on the same ledger may have been first: its key is as good.
        if !matches!(made, Err(KeysError::Exists { .. })) {
            made?;
        }
    }
    // That server, or an earlier start, may stand or have stopped between its key and this.
    if let ([(only, _)], false, None) = (&key_files(dir)?[..], ledger.has_operations, active) {
        create(dir, ACTIVE_FILE, format!("{only}\n").as_bytes())?;
    }
    load(dir, active)
}

/// The keys of `dir`. Nothing is made.
///
/// # Errors
/// [`KeysError`] for the first file that cannot be used.
pub fn load(dir: &Path, active: Option<KeyId>) -> Result<KeyRing, KeysError> {
    let mut keys = Vec::new();
    for (id, path) in key_files(dir)? {
        keys.push((id, read_key(&path)?));
    }
    let known: Vec<KeyId> = keys.iter().map(|(id, _)| *id).collect();
    if known.is_empty() {
        return Err(KeysError::None { dir: dir.to_owned() });
    }
    let active = match active {
        Some(active) => active,
        None => read_active(dir, &known)?
            .ok_or_else(|| KeysError::NoActive { dir: dir.to_owned(), known: known.clone() })?,
    };
    KeyRing::new(active, keys).map_err(|error| match error {
        KeyRingError::Empty => KeysError::None { dir: dir.to_owned() },
        KeyRingError::ActiveMissing { active } => {
            KeysError::ActiveAbsent { dir: dir.to_owned(), active, known }
        }
        KeyRingError::DuplicateId { id } => {
            unreachable!("file names are distinct and canonical, so {id} came once")
        }
    })
}

/// A key that nobody keeps, for the store that keeps nothing.
///
/// # Errors
/// [`KeysError::Random`].
pub fn ephemeral() -> Result<KeyRing, KeysError> {
    let bytes = random_bytes()?;
    let key = SecretKey::from_bytes(&bytes[..]).expect("32 random bytes are long enough");
    Ok(KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("the only key is the active one"))
}

/// Makes a key: 32 random bytes, mode 0600. It becomes active only if no key was. `ledger` is what
/// the keys are for, if it exists; `id` defaults to the next number.
///
/// # Errors
/// [`KeysError`]; no file is ever replaced, and a key that the ledger needs is not replaced either.
pub fn generate(
    dir: &Path,
    id: Option<KeyId>,
    ledger: Option<&LedgerInfo>,
) -> Result<Generated, KeysError> {
    let files = key_files(dir)?;
    let used = ledger.map_or(&[][..], |ledger| &ledger.key_ids);
    if files.is_empty() && ledger.is_some_and(|ledger| ledger.has_operations) {
        return Err(KeysError::MissingWithOperations { dir: dir.to_owned(), used: used.to_vec() });
    }
    let known: Vec<KeyId> = files.iter().map(|(id, _)| *id).collect();
    let highest = known.iter().map(|id| id.0).chain(used.iter().copied()).max();
    let id = id.unwrap_or(KeyId(highest.unwrap_or(0).saturating_add(1)));
    if used.contains(&id.0) && !known.contains(&id) {
        return Err(KeysError::NumberUsed { dir: dir.to_owned(), id });
    }
    let file = dir.join(file_name(id));
    make_private(dir).map_err(|cause| io_error(dir, "written", cause))?;
    let text = Zeroizing::new(hex(&random_bytes()?[..]) + "\n");
    if !create(dir, &file_name(id), text.as_bytes())? {
        return Err(KeysError::Exists { path: file });
    }
    // With older keys in place a missing `active` is an accident, which is not ours to mend.
    let active = known.is_empty() && create(dir, ACTIVE_FILE, format!("{id}\n").as_bytes())?;
    Ok(Generated { id, file, active })
}

/// Makes key `id` the one that makes new fingerprints. Running servers see it at their next start.
///
/// # Errors
/// [`KeysError`], in particular if the key is not there or cannot be used.
pub fn activate(dir: &Path, id: KeyId) -> Result<(), KeysError> {
    load(dir, Some(id))?;
    let file = dir.join(ACTIVE_FILE);
    let written = write_beside(dir, ACTIVE_FILE, format!("{id}\n").as_bytes())
        .and_then(|temporary| fs::rename(temporary, &file))
        .and_then(|()| File::open(dir)?.sync_all());
    written.map_err(|cause| io_error(&file, "written", cause))
}

/// Whether key `id` is there and not the active one (`active` overrides the file of that name).
///
/// # Errors
/// [`KeysError::StillActive`], [`KeysError::Absent`], and as [`load`].
pub fn check_retirable(dir: &Path, id: KeyId, active: Option<KeyId>) -> Result<(), KeysError> {
    let ring = load(dir, active)?;
    if ring.active().0 == id {
        return Err(KeysError::StillActive { id });
    }
    match ring.get(id) {
        Some(_) => Ok(()),
        None => Err(KeysError::Absent { path: dir.join(file_name(id)) }),
    }
}

/// Takes key `id` out of use: its file gets another name, which nothing reads. It is not deleted,
/// because an older copy of the ledger may need it. Whether the ledger itself still does is for the
/// caller to see first. Returns the new name.
///
/// # Errors
/// [`KeysError`], in particular if the key is active (`active` overrides the file of that name).
pub fn retire(dir: &Path, id: KeyId, active: Option<KeyId>) -> Result<PathBuf, KeysError> {
    check_retirable(dir, id, active)?;
    let file = dir.join(file_name(id));
    let retired = dir.join(file_name(id) + RETIRED_SUFFIX);
    // Unlike a rename, a link never replaces.
    let moved = fs::hard_link(&file, &retired)
        .or_else(|cause| match one_file(&file, &retired) {
            // A retirement was cut short between its two steps.
            Ok(true) => Ok(()),
            _ => Err(cause),
        })
        .and_then(|()| fs::remove_file(&file))
        .and_then(|()| File::open(dir)?.sync_all());
    match moved {
        Ok(()) => Ok(retired),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
            Err(KeysError::AlreadyRetired { path: retired })
        }
        Err(cause) => Err(io_error(&retired, "written", cause)),
    }
}

/// Whether both are names of one file.
fn one_file(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (fs::symlink_metadata(one)?, fs::symlink_metadata(other)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// What may be told of the keys in `dir`, by number: of those that are there, of those that are
/// `needed` and of the active one (`active` overrides the file of that name).
///
/// # Errors
/// [`KeysError`] for the first file that cannot be used, or if there is no key and none is needed.
pub fn list(
    dir: &Path,
    active: Option<KeyId>,
    needed: &[KeyId],
) -> Result<Vec<KeyEntry>, KeysError> {
    let mut checks = BTreeMap::new();
    for (id, path) in key_files(dir)? {
        checks.insert(id, Some(hex(&read_key(&path)?.check_value()[..4])));
    }
    let known: Vec<KeyId> = checks.keys().copied().collect();
    if known.is_empty() && needed.is_empty() {
        return Err(KeysError::None { dir: dir.to_owned() });
    }
    let active = match active {
        Some(active) => Some(active),
        None => read_active(dir, &known)?,
    };
    if active.is_none() && !known.is_empty() {
        return Err(KeysError::NoActive { dir: dir.to_owned(), known });
    }
    for id in needed.iter().copied().chain(active) {
        checks.entry(id).or_insert(None);
    }
    let entry = |(id, check)| KeyEntry {
        id,
        active: active == Some(id),
        check,
        file: dir.join(file_name(id)),
    };
    Ok(checks.into_iter().map(entry).collect())
}

/// The files of keys, by number. An absent directory has none.
fn key_files(dir: &Path) -> Result<Vec<(KeyId, PathBuf)>, KeysError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(io_error(dir, "read", cause)),
    };
    if let Some(mode) = writable_by_others(dir).map_err(|cause| io_error(dir, "read", cause))? {
        return Err(KeysError::ExposedDirectory { path: dir.to_owned(), mode });
    }
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(|cause| io_error(dir, "read", cause))?.file_name();
        let path = dir.join(&name);
        let name = name.to_string_lossy();
        let Some(stem) = name.strip_suffix(KEY_SUFFIX) else { continue };
        // `01.key` would be a second file of key 1.
        let id = stem.parse().ok().filter(|id: &u32| *id > 0 && id.to_string() == stem);
        found.push((KeyId(id.ok_or_else(|| KeysError::Misnamed { path: path.clone() })?), path));
    }
    found.sort();
    Ok(found)
}

fn read_key(path: &Path) -> Result<SecretKey, KeysError> {
    let cannot = |cause| io_error(path, "read", cause);
    let file = File::open(path).map_err(cannot)?;
    let mode = file.metadata().map_err(cannot)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeysError::Exposed { path: path.to_owned(), mode });
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(4 * MIN_KEY_BYTES));
    file.take(LONGEST_FILE_BYTES).read_to_end(&mut bytes).map_err(cannot)?;
    // What is not ASCII is not hexadecimal: the position still counts in bytes.
    let text = Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned());
    SecretKey::from_hex(&text)
        .map_err(|cause| KeysError::Malformed { path: path.to_owned(), cause })
}

fn read_active(dir: &Path, known: &[KeyId]) -> Result<Option<KeyId>, KeysError> {
    let path = dir.join(ACTIVE_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(io_error(&path, "read", cause)),
    };
    match text.trim().parse() {
        Ok(id) => Ok(Some(KeyId(id))),
        Err(_) => Err(KeysError::ActiveMalformed { path, known: known.to_vec() }),
    }
}

/// Makes `dir/name` whole and durable, or leaves what is there and answers `false`. A reader never
/// sees half of it.
fn create(dir: &Path, name: &str, bytes: &[u8]) -> Result<bool, KeysError> {
    let file = dir.join(name);
    let made = write_beside(dir, name, bytes).and_then(|temporary| {
        // Unlike a rename, a link never replaces.
        let linked = fs::hard_link(&temporary, &file);
        fs::remove_file(&temporary)?;
        match linked {
            Ok(()) => File::open(dir)?.sync_all().map(|()| true),
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(cause) => Err(cause),
        }
    });
    made.map_err(|cause| io_error(&file, "written", cause))
}

/// Writes a new file under a name that nothing has: a leftover of a crash may be a second name of
/// the very key.
fn write_beside(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let number = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
    let temporary = dir.join(format!(".{name}.{number:016x}"));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
    match file.write_all(bytes).and_then(|()| file.sync_all()) {
        Ok(()) => Ok(temporary),
        Err(cause) => {
            let _ = fs::remove_file(&temporary);
            Err(cause)
        }
    }
}

fn random_bytes() -> Result<Zeroizing<[u8; MIN_KEY_BYTES]>, KeysError> {
    let mut bytes = Zeroizing::new([0; MIN_KEY_BYTES]);
    getrandom::fill(&mut bytes[..]).map_err(KeysError::Random)?;
    Ok(bytes)
}

fn io_error(path: &Path, doing: &'static str, cause: io::Error) -> KeysError {
    KeysError::Io { path: path.to_owned(), doing, cause }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // Room for the line feed too: a buffer that grew would leave a copy behind.
    let mut text = String::with_capacity(2 * bytes.len() + 1);
    for byte in bytes {
        text.extend([byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)])));
    }
    text
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
