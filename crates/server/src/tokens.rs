//! Bearer tokens: made here, shown once, and kept as nothing but their digests.
//!
//! A token is 32 random bytes, so a plain SHA-256 of it tells nothing: there is no smaller set of
//! texts to try. The file is replaced as a whole, so a reader never sees half of a change.

mod live;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use counterfoil_core::identity::{Caller, Principal, Tenant};
use counterfoil_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

pub use live::{Denied, Known, LiveTokens};

/// What every token begins with, so that scanners for secrets and people recognise one.
pub const PREFIX: &str = "cf_";
/// Random bytes in a token.
const TOKEN_BYTES: usize = 32;
/// Random bytes in a token's ID.
const ID_BYTES: usize = 4;
/// A longer file is not a list of tokens.
const LONGEST_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// The form of the file.
const VERSION: u32 = 1;

/// What a token lets its bearer do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// Speak MCP: list and call tools.
    Tools,
    /// Read the metrics.
    Metrics,
}

impl Right {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Metrics => "metrics",
        }
    }
}

/// One line of the file: everything about a token but the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEntry {
    /// Its name for people; says nothing of the token.
    pub id: String,
    /// Whose calls it makes.
    pub caller: Caller,
    /// What it allows.
    pub rights: Vec<Right>,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is refused.
    pub expires_at: Option<Timestamp>,
    /// Since when it is refused because somebody said so.
    pub revoked_at: Option<Timestamp>,
    digest: [u8; 32],
}

impl TokenEntry {
    /// Whether it is accepted at `now`.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// A token to make.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Whose calls it will make.
    pub caller: Caller,
    /// What it will allow.
    pub rights: Vec<Right>,
    /// From when on it will be refused.
    pub expires_at: Option<Timestamp>,
}

/// A token that was made. This is the only time that it exists as text.
#[derive(Debug)]
pub struct CreatedToken {
    /// Its name for people.
    pub id: String,
    /// The token.
    pub secret: Secret,
}

/// A token's text. Not shown by `Debug`, and wiped when dropped.
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The text, to hand to its bearer.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Why the tokens' file cannot be used. No message holds anything of a token or a digest.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// Others than the owner can read or write it.
    #[error(
        "the tokens' file {} can be read or changed by other users (mode {mode:04o}); run `chmod \
         600 {}`, and if others may have written it, check `counterfoil token list`",
        .path.display(), .path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// What it holds is not a list of tokens.
    #[error(
        "the tokens' file {} cannot be used: {cause}; restore it from a backup, or move it away \
         and make new tokens",
        .path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, without content.
        cause: String,
    },
    /// There is no such token.
    #[error("{} lists no token {id}; see `counterfoil token list`", .path.display())]
    NoSuchToken {
        /// The file.
        path: PathBuf,
        /// The ID that was given.
        id: String,
    },
    /// The system has no random bytes.
    #[error("the system gave no random bytes: {0}")]
    Random(getrandom::Error),
    /// Reading or writing failed.
    #[error(
        "the tokens' file {} cannot be {doing}: {cause}; correct its owner and mode (0600), or \
         give --tokens another path",
        .path.display()
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// `read` or `written`.
        doing: &'static str,
        /// The system's words.
        cause: io::Error,
    },
}

/// Makes a token and writes its digest to the file, which is made if it is absent. Running servers
/// accept it from their next request on.
///
/// # Errors
/// [`TokensError`]; the file is then as it was.
pub fn create(path: &Path, new: &NewToken, now: Timestamp) -> Result<CreatedToken, TokensError> {
    let _lock = lock(path)?;
    let mut entries = list(path)?;
    let mut random = Zeroizing::new([0_u8; TOKEN_BYTES]);
    getrandom::fill(&mut random[..]).map_err(TokensError::Random)?;
    // Sized once: a buffer that grew would leave a copy behind.
    let mut secret = Zeroizing::new(String::with_capacity(64));
    secret.push_str(PREFIX);
    URL_SAFE_NO_PAD.encode_string(&random[..], &mut secret);
    let id = loop {
        let mut bytes = [0_u8; ID_BYTES];
        getrandom::fill(&mut bytes).map_err(TokensError::Random)?;
        let id = hex(&bytes);
        if entries.iter().all(|entry| entry.id != id) {
            break id;
        }
    };
    entries.push(TokenEntry {
        id: id.clone(),
        caller: new.caller.clone(),
        rights: new.rights.clone(),
        created_at: now,
        expires_at: new.expires_at,
        revoked_at: None,
        digest: digest(&secret),
    });
    save(path, &entries)?;
    Ok(CreatedToken { id, secret: Secret(secret) })
}

/// The tokens of the file, oldest first. An absent file has none.
///
/// # Errors
/// [`TokensError`] if the file is there and cannot be used.
pub fn list(path: &Path) -> Result<Vec<TokenEntry>, TokensError> {
    match File::open(path) {
        Ok(file) => read(path, file),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(cause) => Err(io_error(path, "read", cause)),
    }
}

/// Refuses a token from now on: running servers do so from their next request on, and a call that
/// has begun may end. Whether it was live before.
///
/// # Errors
/// [`TokensError`]; the file is then as it was.
pub fn revoke(path: &Path, id: &str, now: Timestamp) -> Result<bool, TokensError> {
    let _lock = lock(path)?;
    let mut entries = list(path)?;
    let Some(entry) = entries.iter_mut().find(|entry| entry.id == id) else {
        return Err(TokensError::NoSuchToken { path: path.to_owned(), id: id.to_owned() });
    };
    let was_live = entry.is_live(now);
    if entry.revoked_at.is_none() {
        entry.revoked_at = Some(now);
        save(path, &entries)?;
    }
    Ok(was_live)
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    version: u32,
    tokens: Vec<EntryForm>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryForm {
    id: String,
    sha256: String,
    tenant: Tenant,
    principal: Principal,
    rights: Vec<Right>,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
}

impl EntryForm {
    /// The rule that it breaks, without its value.
    fn check(self) -> Result<TokenEntry, &'static str> {
        let time = |text: &str| {
            Timestamp::parse_rfc3339(text)
                .map_err(|_| "a time must be RFC 3339 with a zone, such as 2026-01-31T09:30:00Z")
        };
        if self.id.is_empty() || !self.id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("id must be letters and digits");
        }
        Ok(TokenEntry {
            caller: Caller { tenant: self.tenant, principal: self.principal },
            rights: self.rights,
            created_at: time(&self.created_at)?,
            expires_at: self.expires_at.as_deref().map(time).transpose()?,
            revoked_at: self.revoked_at.as_deref().map(time).transpose()?,
            digest: unhex(&self.sha256).ok_or("sha256 must be 64 hexadecimal digits")?,
            id: self.id,
        })
    }
}

impl From<&TokenEntry> for EntryForm {
    fn from(entry: &TokenEntry) -> Self {
        Self {
            id: entry.id.clone(),
            sha256: hex(&entry.digest),
            tenant: entry.caller.tenant.clone(),
            principal: entry.caller.principal.clone(),
            rights: entry.rights.clone(),
            created_at: entry.created_at.to_rfc3339(),
            expires_at: entry.expires_at.map(Timestamp::to_rfc3339),
            revoked_at: entry.revoked_at.map(Timestamp::to_rfc3339),
        }
    }
}

fn read(path: &Path, file: File) -> Result<Vec<TokenEntry>, TokensError> {
    let cannot = |cause| io_error(path, "read", cause);
    let malformed = |cause: String| TokensError::Malformed { path: path.to_owned(), cause };
    let mode = file.metadata().map_err(cannot)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(TokensError::Exposed { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > LONGEST_FILE_BYTES {
        return Err(malformed(format!("it has more than {LONGEST_FILE_BYTES} bytes")));
    }
    // The parser's own words may repeat a value.
    let form: FileForm = serde_json::from_slice(&bytes).map_err(|error| {
        malformed(format!("line {}, column {} does not fit", error.line(), error.column()))
    })?;
    if form.version != VERSION {
        return Err(malformed(format!("its version is {}, and not {VERSION}", form.version)));
    }
    let entries = form.tokens.into_iter().enumerate();
    let entries = entries.map(|(at, entry)| {
        entry.check().map_err(|rule| malformed(format!("token number {}: {rule}", at + 1)))
    });
    let entries: Vec<TokenEntry> = entries.collect::<Result<_, _>>()?;
    for (at, entry) in entries.iter().enumerate() {
        if entries[..at].iter().any(|other| other.id == entry.id || other.digest == entry.digest) {
            let cause = format!("token number {} has the ID or digest of another", at + 1);
            return Err(malformed(cause));
        }
    }
    Ok(entries)
}

fn save(path: &Path, entries: &[TokenEntry]) -> Result<(), TokensError> {
    let form = FileForm { version: VERSION, tokens: entries.iter().map(Into::into).collect() };
    let mut text = serde_json::to_vec_pretty(&form).expect("plain data can be written as JSON");
    text.push(b'\n');
    let temporary = beside(path, &format!("{}.new", std::process::id()));
    let written = (|| {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(parent(path))?.sync_all()
    })();
    written.map_err(|cause| {
        let _ = fs::remove_file(&temporary);
        io_error(path, "written", cause)
    })
}

/// Held while the file is read and replaced: of two changes at once neither is lost.
fn lock(path: &Path) -> Result<File, TokensError> {
    let locked = (|| {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(beside(path, "lock"))?;
        file.lock()?;
        Ok(file)
    })();
    locked.map_err(|cause| io_error(path, "written", cause))
}

/// A file in the same directory, named after `path`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    parent(path).join(format!(".{name}.{suffix}"))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

fn io_error(path: &Path, doing: &'static str, cause: io::Error) -> TokensError {
    TokensError::Io { path: path.to_owned(), doing, cause }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(digit).collect()
}

fn digit(nibble: u8) -> char {
    char::from_digit(nibble.into(), 16).expect("a nibble is one hexadecimal digit")
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| pair.iter().fold(0, |b, d| b << 4 | d)).collect();
    (digits.len() == 64).then(|| bytes.try_into().ok()).flatten()
}

#[cfg(test)]
#[path = "tokens/tests.rs"]
mod tests;
