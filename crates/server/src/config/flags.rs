//! The flags that set something, as text: rules and errors are those of every other source.

use std::ffi::OsString;
use std::path::PathBuf;

use super::given::Key;

/// What the command line sets.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// The configuration's file.
    pub config: Option<PathBuf>,
    /// Values in the order of their keys.
    pub values: Vec<(Key, OsString)>,
}

/// Where the ledger is.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Where")]
pub struct LocationArgs {
    /// The directory that holds the ledger, its keys and its configuration
    ///
    /// Default: $XDG_DATA_HOME/counterfoil, else ~/.local/share/counterfoil.
    /// [env: COUNTERFOIL_DATA_DIR]
    #[arg(long, value_name = "DIR", help_heading = "Where")]
    pub data_dir: Option<OsString>,
    /// The configuration's file
    ///
    /// Default: counterfoil.toml in the data directory, if it is there. [env: COUNTERFOIL_CONFIG]
    #[arg(long, value_name = "FILE", help_heading = "Where")]
    pub config: Option<PathBuf>,
}

/// Where the tokens are.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TokensArgs {
    /// Where the ledger is.
    #[command(flatten)]
    pub location: LocationArgs,
    /// The file of bearer tokens [default: tokens.json in the data directory]
    #[arg(long, value_name = "FILE", help_heading = "Where")]
    pub tokens: Option<OsString>,
}

/// The settings of a server that is reached over HTTP.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "HTTP")]
pub struct HttpArgs {
    /// The file of bearer tokens [default: tokens.json in the data directory]
    #[arg(long, value_name = "FILE", help_heading = "HTTP")]
    pub tokens: Option<OsString>,
    /// The server's certificate chain, PEM; with it the server speaks TLS
    #[arg(long, value_name = "FILE", help_heading = "HTTP")]
    pub tls_cert: Option<OsString>,
    /// The certificate's private key, PEM
    #[arg(long, value_name = "FILE", help_heading = "HTTP")]
    pub tls_key: Option<OsString>,
    /// Further names by which the server is reached, separated by commas
    #[arg(long, value_name = "NAMES", help_heading = "HTTP")]
    pub http_allowed_hosts: Option<OsString>,
    /// Origins whose web pages may call, separated by commas [default: none]
    #[arg(long, value_name = "ORIGINS", help_heading = "HTTP")]
    pub http_allowed_origins: Option<OsString>,
    /// Your word that every process of this machine may call as --principal; loopback only
    #[arg(long, value_name = "WORD", help_heading = "HTTP")]
    pub http_no_auth: Option<OsString>,
    /// Most open connections [default: 1024]
    #[arg(long, value_name = "N", help_heading = "HTTP")]
    pub http_max_connections: Option<OsString>,
    /// Most requests of one principal at a time: a share, not a speed [default: 64]
    ///
    /// With as many under way the ledger commits in full groups already; more of one principal
    /// would only wait longer.
    #[arg(long, value_name = "N", help_heading = "HTTP")]
    pub http_max_in_flight: Option<OsString>,
    /// Most requests of one principal in a second; 0 does not limit [default: 1000]
    ///
    /// Far above what an agent sends, and below what a server does, so that one principal in a loop
    /// leaves room for the others. Give 0 for an import or a benchmark.
    #[arg(long, value_name = "N", help_heading = "HTTP")]
    pub http_max_rate: Option<OsString>,
    /// Most sessions of clients older than 2026-07-28 [default: 1024]
    #[arg(long, value_name = "N", help_heading = "HTTP")]
    pub http_max_sessions: Option<OsString>,
    /// How long such a session may stand without a message [default: 15m]
    #[arg(long, value_name = "SPAN", help_heading = "HTTP")]
    pub http_session_idle: Option<OsString>,
}

/// Every setting.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SettingsArgs {
    /// Where the ledger is.
    #[command(flatten)]
    pub location: LocationArgs,
    /// The ledger's name; a ledger of another name is refused
    ///
    /// Default: the name that the ledger has; a new one gets a random name.
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    pub backend_id: Option<OsString>,
    /// Who calls: no argument of a call can choose it [default: local]
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    pub principal: Option<OsString>,
    /// Where operations are kept: sqlite, or memory (lost at the end) [default: sqlite]
    #[arg(long, value_name = "KIND", help_heading = "Settings")]
    pub store: Option<OsString>,
    /// How long a write waits for another process's lock; 0 does not wait [default: 1s]
    #[arg(long, value_name = "SPAN", help_heading = "Settings")]
    pub lock_wait: Option<OsString>,
    /// How long a stopping server lets running calls end [default: 30s]
    #[arg(long, value_name = "SPAN", help_heading = "Settings")]
    pub drain: Option<OsString>,
    /// How long the state handed to a caller between two rounds can be used [default: 10m]
    #[arg(long, value_name = "SPAN", help_heading = "Settings")]
    pub lifetimes_state: Option<OsString>,
    /// How long after its issue a continuation may still write [default: 1h]
    #[arg(long, value_name = "SPAN", help_heading = "Settings")]
    pub lifetimes_authority: Option<OsString>,
    /// How long after it settled an operation's result can be replayed [default: 30d]
    #[arg(long, value_name = "SPAN", help_heading = "Settings")]
    pub lifetimes_retention: Option<OsString>,
    /// The number of the key that makes new fingerprints [default: the one in keys/active]
    #[arg(long, value_name = "N", help_heading = "Settings")]
    pub keys_active: Option<OsString>,
    /// Your word that nothing else opens a ledger on a directory shared with a container's host
    #[arg(long, value_name = "WORD", help_heading = "Settings")]
    pub filesystem_override: Option<OsString>,
}

impl From<&LocationArgs> for Flags {
    fn from(args: &LocationArgs) -> Self {
        let data_dir = args.data_dir.clone().map(|dir| (Key::DataDir, dir));
        Self { config: args.config.clone(), values: data_dir.into_iter().collect() }
    }
}

impl From<&TokensArgs> for Flags {
    fn from(args: &TokensArgs) -> Self {
        let mut flags = Self::from(&args.location);
        flags.values.extend(args.tokens.clone().map(|file| (Key::Tokens, file)));
        flags
    }
}

impl Flags {
    /// With the settings of a server that is reached over HTTP.
    #[must_use]
    pub fn and(mut self, args: &HttpArgs) -> Self {
        let given = [
            (Key::Tokens, &args.tokens),
            (Key::TlsCert, &args.tls_cert),
            (Key::TlsKey, &args.tls_key),
            (Key::HttpAllowedHosts, &args.http_allowed_hosts),
            (Key::HttpAllowedOrigins, &args.http_allowed_origins),
            (Key::HttpNoAuth, &args.http_no_auth),
            (Key::HttpMaxConnections, &args.http_max_connections),
            (Key::HttpMaxInFlight, &args.http_max_in_flight),
            (Key::HttpMaxRate, &args.http_max_rate),
            (Key::HttpMaxSessions, &args.http_max_sessions),
            (Key::HttpSessionIdle, &args.http_session_idle),
        ];
        let given = given.into_iter().filter_map(|(key, value)| Some((key, value.clone()?)));
        self.values.extend(given);
        self
    }
}

impl From<&SettingsArgs> for Flags {
    fn from(args: &SettingsArgs) -> Self {
        let mut flags = Self::from(&args.location);
        let rest = [
            (Key::BackendId, &args.backend_id),
            (Key::Principal, &args.principal),
            (Key::Store, &args.store),
            (Key::LockWait, &args.lock_wait),
            (Key::Drain, &args.drain),
            (Key::LifetimesState, &args.lifetimes_state),
            (Key::LifetimesAuthority, &args.lifetimes_authority),
            (Key::LifetimesRetention, &args.lifetimes_retention),
            (Key::KeysActive, &args.keys_active),
            (Key::FilesystemOverride, &args.filesystem_override),
        ];
        let given = rest.into_iter().filter_map(|(key, value)| Some((key, value.clone()?)));
        flags.values.extend(given);
        flags
    }
}
