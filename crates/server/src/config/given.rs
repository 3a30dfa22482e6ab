//! A value as it stands in its source, and the place where it stands.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::problem::{Problem, hide_secrets};

/// A setting. Its name in the file gives the others: `lifetimes.state` is the variable
/// `COUNTERFOIL_LIFETIMES_STATE` and the flag `--lifetimes-state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Where the ledger lies.
    DataDir,
    /// The ledger's name.
    BackendId,
    /// Who calls over stdio.
    Principal,
    /// Which back end.
    Store,
    /// How long a write waits for the lock.
    LockWait,
    /// How long a stop waits for running calls.
    Drain,
    /// The operator's word for shared file systems.
    FilesystemOverride,
    /// How long a sealed state can be used.
    LifetimesState,
    /// How long a continuation may write.
    LifetimesAuthority,
    /// How long a record may be replayed.
    LifetimesRetention,
    /// Whether a server purges what retention has ended.
    RetentionJob,
    /// How often it does.
    RetentionInterval,
    /// Whether a server delivers.
    Worker,
    /// The key that makes new fingerprints.
    KeysActive,
    /// The file of bearer tokens.
    Tokens,
    /// Names by which an HTTP server is reached.
    HttpAllowedHosts,
    /// Origins whose pages may call.
    HttpAllowedOrigins,
    /// The operator's word for a server without tokens.
    HttpNoAuth,
    /// Most connections.
    HttpMaxConnections,
    /// Most requests of one principal at a time.
    HttpMaxInFlight,
    /// Most requests of one principal in a second.
    HttpMaxRate,
    /// Most sessions of older clients.
    HttpMaxSessions,
    /// How long such a session may stand.
    HttpSessionIdle,
    /// The server's certificate.
    TlsCert,
    /// Its private key.
    TlsKey,
    /// Files and directories that hold connectors.
    Connectors,
}

impl Key {
    /// Every key.
    pub const ALL: [Self; 26] = [
        Self::DataDir,
        Self::BackendId,
        Self::Principal,
        Self::Store,
        Self::LockWait,
        Self::Drain,
        Self::FilesystemOverride,
        Self::LifetimesState,
        Self::LifetimesAuthority,
        Self::LifetimesRetention,
        Self::RetentionJob,
        Self::RetentionInterval,
        Self::Worker,
        Self::KeysActive,
        Self::Tokens,
        Self::HttpAllowedHosts,
        Self::HttpAllowedOrigins,
        Self::HttpNoAuth,
        Self::HttpMaxConnections,
        Self::HttpMaxInFlight,
        Self::HttpMaxRate,
        Self::HttpMaxSessions,
        Self::HttpSessionIdle,
        Self::TlsCert,
        Self::TlsKey,
        Self::Connectors,
    ];

    /// Its name in the file, with the table before the dot.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DataDir => "data_dir",
            Self::BackendId => "backend_id",
            Self::Principal => "principal",
            Self::Store => "store",
            Self::LockWait => "lock_wait",
            Self::Drain => "drain",
            Self::FilesystemOverride => "filesystem_override",
            Self::LifetimesState => "lifetimes.state",
            Self::LifetimesAuthority => "lifetimes.authority",
            Self::LifetimesRetention => "lifetimes.retention",
            Self::RetentionJob => "retention.job",
            Self::RetentionInterval => "retention.interval",
            Self::Worker => "worker",
            Self::KeysActive => "keys.active",
            Self::Tokens => "tokens",
            Self::HttpAllowedHosts => "http.allowed_hosts",
            Self::HttpAllowedOrigins => "http.allowed_origins",
            Self::HttpNoAuth => "http.no_auth",
            Self::HttpMaxConnections => "http.max_connections",
            Self::HttpMaxInFlight => "http.max_in_flight",
            Self::HttpMaxRate => "http.max_rate",
            Self::HttpMaxSessions => "http.max_sessions",
            Self::HttpSessionIdle => "http.session_idle",
            Self::TlsCert => "tls.cert",
            Self::TlsKey => "tls.key",
            Self::Connectors => "connectors",
        }
    }

    /// Its variable.
    #[must_use]
    pub fn env(self) -> String {
        format!("COUNTERFOIL_{}", self.name().replace('.', "_").to_uppercase())
    }

    /// Its flag.
    #[must_use]
    pub fn flag(self) -> String {
        format!("--{}", self.name().replace(['.', '_'], "-"))
    }
}

/// A value before any rule.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    /// May be NaN or infinite: TOML 1.0 has both.
    Float(f64),
    Boolean(bool),
    /// A path that is not UTF-8, from outside a file.
    Bytes(PathBuf),
    /// A list of texts, which a file alone can hold.
    Texts(Vec<String>),
    /// Nothing that any setting takes.
    Other(&'static str),
}

/// Where a value stands. The order is that of a report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Line and column count from 1, the column in characters.
    File { path: PathBuf, line: usize, column: usize },
    /// The variable's name.
    Environment(String),
    /// The flag.
    CommandLine(String),
}

impl Place {
    /// What a relative path at this place counts from; empty is the working directory.
    pub(crate) fn base(&self) -> &Path {
        match self {
            Self::File { path, .. } => path.parent().unwrap_or(Path::new("")),
            Self::Environment(_) | Self::CommandLine(_) => Path::new(""),
        }
    }
}

/// One value in one source.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) key: Key,
    pub(super) value: Value,
    pub(super) place: Place,
    /// As an error may show it.
    pub(super) shown: String,
}

impl Given {
    /// A value of the environment or the command line, where everything is text.
    pub(super) fn outside(key: Key, place: Place, text: &OsStr) -> Self {
        let value = match text.to_str() {
            Some(text) => Value::Text(text.to_owned()),
            None => Value::Bytes(PathBuf::from(text)),
        };
        let shown = hide_secrets(key.name(), &format!("{text:?}"));
        Self { key, value, place, shown }
    }

    /// The setting, as it is named in the value's source.
    pub(super) fn name(&self) -> &str {
        match &self.place {
            Place::File { .. } => self.key.name(),
            Place::Environment(name) | Place::CommandLine(name) => name,
        }
    }

    pub(super) fn problem(&self, words: String) -> Problem {
        let name = self.name();
        Problem::new(self.place.clone(), format!("{name} = {}", self.shown), words)
    }
}
