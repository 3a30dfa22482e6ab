//! Settings: read from defaults, a file, the environment and the command line, in rising order,
//! and checked together, so that one start names every mistake.

mod duration;
mod effective;
mod file;
mod flags;
mod given;
mod problem;
mod rules;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use counterfoil_core::fingerprint::KeyId;
use counterfoil_core::identity::{BackendId, Principal};
use counterfoil_core::time::{Lifetimes, Span};

use crate::connector::Connectors;
use crate::data_dir::{CONFIG_FILE, DataDir, DataDirError, TOKENS_FILE};
use crate::http::{HostRule, HttpLimits, OriginRule};
use crate::mounts::OnlyThisHost;

pub use effective::{Effective, EffectiveValue, Source};
pub use flags::{Flags, HttpArgs, LocationArgs, SettingsArgs, TokensArgs};
pub use given::Key;
pub use problem::ConfigError;

pub use duration::from_text as parse_span;

pub(crate) use duration::{from_seconds, to_text as span_text};
pub(crate) use file::{CONNECTOR_TABLE, WRAP_TABLE, place, text_given_by, text_of};
pub(crate) use given::Place;
pub(crate) use problem::{Problem, hide_secrets, nearest};

use given::{Given, Value};

/// The variable that names the configuration's file.
pub const CONFIG_VARIABLE: &str = "COUNTERFOIL_CONFIG";
/// The variable that says what is logged.
pub const LOG_VARIABLE: &str = "COUNTERFOIL_LOG";

/// What a server runs with. Every value has been checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    data_dir: Option<PathBuf>,
    /// The ledger's name; `None` takes that of the ledger.
    pub backend_id: Option<BackendId>,
    /// Who calls over stdio. Default `local`.
    pub principal: Principal,
    /// Where operations are kept. Default SQLite.
    pub store: StoreKind,
    /// How long a write waits for another process's lock. Default 1 s; zero does not wait.
    pub lock_wait: Duration,
    /// The three clocks. Defaults 10 minutes, 1 hour, 30 days.
    pub lifetimes: Lifetimes,
    /// Whether a server purges what retention has ended. Default: yes.
    pub retention_job: bool,
    /// About how often it does. Default 5 minutes.
    pub retention_interval: Duration,
    /// Whether a server delivers what it accepts, rather than leave it to `counterfoil worker`.
    /// Default: yes.
    pub worker: bool,
    /// How long a stopping server lets running calls end. Default 30 s.
    pub drain: Duration,
    /// The key that makes new fingerprints; `None` takes the one that the keys' directory names.
    pub active_key: Option<KeyId>,
    /// The operator's word for a file system that is shared with a container's host.
    pub filesystem_override: Option<OnlyThisHost>,
    /// The file of bearer tokens; `None` takes the one in the data directory.
    tokens: Option<PathBuf>,
    /// What a server that is reached over HTTP goes by.
    pub http: HttpSettings,
    /// Files and directories that hold connectors, besides the configuration's own file.
    pub connectors: Vec<PathBuf>,
    /// The file that was read.
    pub config_file: Option<PathBuf>,
}

/// What a server that is reached over HTTP goes by.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpSettings {
    /// Names by which it is reached, besides its own address.
    pub allowed_hosts: Vec<HostRule>,
    /// Origins whose pages may call. Default none.
    pub allowed_origins: Vec<OriginRule>,
    /// The operator's word for a server without tokens.
    pub no_auth: Option<LocalOnly>,
    /// What clients may take.
    pub limits: HttpLimits,
    /// The server's certificate chain.
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key.
    pub tls_key: Option<PathBuf>,
}

/// The operator's word that whoever reaches a loopback address may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalOnly;

impl LocalOnly {
    /// How it is said.
    pub const WORD: &'static str = "local-only";
}

/// Where operations are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// `ledger.db` in the data directory.
    Sqlite,
    /// In memory: lost at the end, for trying things out.
    Memory,
}

impl StoreKind {
    /// Its word in the settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Memory => "memory",
        }
    }
}

/// The environment as a value, so that tests need not change their process's.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// This process's.
    #[must_use]
    pub fn of_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// The value of one variable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl Settings {
    /// Reads all sources and checks all values, those too that a stronger source overrides.
    ///
    /// The file is the one that `--config` or `COUNTERFOIL_CONFIG` names, which must exist, else
    /// `counterfoil.toml` in the data directory, which may be absent.
    ///
    /// # Errors
    /// [`ConfigError`] with every mistake of every source.
    pub fn load(flags: &Flags, env: &Environment) -> Result<Self, ConfigError> {
        read_sources(flags, env).settings(env)
    }

    /// As [`load`](Self::load), with the connectors, and the mistakes of both at once.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with_connectors(
        flags: &Flags,
        env: &Environment,
    ) -> Result<(Self, Connectors), ConfigError> {
        read_sources(flags, env).settings_and_connectors(env)
    }

    /// What is allowed and hardly meant, in words.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let Lifetimes { state, authority, retention } = self.lifetimes;
        let (state, authority, retention) =
            (state.as_duration(), authority.as_duration(), retention.as_duration());
        let text = duration::to_text;
        let mut doubts = Vec::new();
        if state > authority {
            doubts.push(format!(
                "lifetimes.state ({}) is longer than lifetimes.authority ({}): a continuation is \
                 refused while its state can still be used; raise the second, or lower the first",
                text(state),
                text(authority)
            ));
        }
        if authority > retention {
            doubts.push(format!(
                "lifetimes.authority ({}) is longer than lifetimes.retention ({}): a result may be \
                 gone while its continuation may still be sent; raise the second, or lower the first",
                text(authority),
                text(retention)
            ));
        }
        if !self.worker && self.store == StoreKind::Memory {
            doubts.push(
                "worker = false with store = \"memory\": no other process sees such a ledger, so \
                 what this one accepts is never delivered; leave one of the two out"
                    .to_owned(),
            );
        }
        doubts
    }

    /// The data directory.
    ///
    /// # Errors
    /// [`DataDirError::Unknown`] if nothing says where it is.
    pub fn data_dir(&self) -> Result<&Path, DataDirError> {
        self.data_dir.as_deref().ok_or(DataDirError::Unknown)
    }

    /// The file of bearer tokens.
    ///
    /// # Errors
    /// [`DataDirError::Unknown`] if nothing says where it is.
    pub fn tokens_file(&self) -> Result<PathBuf, DataDirError> {
        match &self.tokens {
            Some(file) => Ok(file.clone()),
            None => Ok(self.data_dir()?.join(TOKENS_FILE)),
        }
    }
}

/// All sources, read and not yet checked.
struct Sources {
    draft: Draft,
    config_file: Option<PathBuf>,
    /// Of the file and of the environment's names.
    problems: Vec<Problem>,
}

fn read_sources(flags: &Flags, env: &Environment) -> Sources {
    let mut problems = Vec::new();
    let mut outer = from_environment(env, &mut problems);
    let of_flag =
        |(key, text): &(Key, OsString)| Given::outside(*key, Place::CommandLine(key.flag()), text);
    outer.extend(flags.values.iter().map(of_flag));
    let explicit = flags.config.clone().or_else(|| env.get(CONFIG_VARIABLE).map(PathBuf::from));
    let mut read = file::FileContent::default();
    let config_file = match explicit {
        Some(path) => {
            read = file::read(&path);
            read.problems.extend(without_effect(&read.given, &outer, &path));
            Some(path)
        }
        None => {
            let own = location(&outer, env).map(|dir| dir.join(CONFIG_FILE));
            own.filter(|path| path.exists()).inspect(|path| {
                read = file::read(path).inside_data_dir();
            })
        }
    };
    problems.append(&mut read.problems);
    let draft = Draft { given: read.given.into_iter().chain(outer).collect() };
    Sources { draft, config_file, problems }
}

impl Sources {
    fn settings(self, env: &Environment) -> Result<Settings, ConfigError> {
        let mut problems = self.problems;
        let settings = self.draft.validate(self.config_file, env, &mut problems);
        Self::unless(problems, settings)
    }

    /// As [`settings`](Self::settings), with the connectors, and the mistakes of both at once.
    fn settings_and_connectors(
        self,
        env: &Environment,
    ) -> Result<(Settings, Connectors), ConfigError> {
        let mut problems = self.problems;
        let settings = self.draft.validate(self.config_file, env, &mut problems);
        let (connectors, of_connectors) = Connectors::read(&settings);
        problems.extend(of_connectors);
        Self::unless(problems, (settings, connectors))
    }

    fn unless<T>(mut problems: Vec<Problem>, good: T) -> Result<T, ConfigError> {
        problems.sort_by(|a, b| a.place.cmp(&b.place));
        if problems.is_empty() { Ok(good) } else { Err(ConfigError::new(problems)) }
    }
}

/// The unvalidated twin of [`Settings`]: values as they stand in their sources, weakest first.
struct Draft {
    given: Vec<Given>,
}

impl Draft {
    fn validate(
        &self,
        config_file: Option<PathBuf>,
        env: &Environment,
        problems: &mut Vec<Problem>,
    ) -> Settings {
        let standard = Lifetimes::default();
        let lifetime = |key, standard: Span, problems: &mut Vec<Problem>| {
            self.last(key, rules::lifetime, problems).unwrap_or(standard)
        };
        Settings {
            data_dir: self.path(Key::DataDir, problems).or_else(|| default_dir(env)),
            backend_id: self.last(Key::BackendId, rules::backend_id, problems),
            principal: self
                .last(Key::Principal, rules::principal, problems)
                .unwrap_or_else(|| Principal::parse("local").expect("the default is a good name")),
            store: self.last(Key::Store, rules::store, problems).unwrap_or(StoreKind::Sqlite),
            lock_wait: self
                .last(Key::LockWait, rules::lock_wait, problems)
                .unwrap_or(Duration::from_secs(1)),
            lifetimes: Lifetimes {
                state: lifetime(Key::LifetimesState, standard.state, problems),
                authority: lifetime(Key::LifetimesAuthority, standard.authority, problems),
                retention: lifetime(Key::LifetimesRetention, standard.retention, problems),
            },
            retention_job: self.last(Key::RetentionJob, rules::switch, problems).unwrap_or(true),
            retention_interval: self
                .last(Key::RetentionInterval, rules::retention_interval, problems)
                .unwrap_or(Duration::from_secs(300)),
            worker: self.last(Key::Worker, rules::switch, problems).unwrap_or(true),
            drain: self.last(Key::Drain, rules::drain, problems).unwrap_or(Duration::from_secs(30)),
            active_key: self.last(Key::KeysActive, rules::key_id, problems),
            filesystem_override: self.last(
                Key::FilesystemOverride,
                rules::filesystem_override,
                problems,
            ),
            tokens: self.path(Key::Tokens, problems),
            http: self.http(problems),
            connectors: self.paths(Key::Connectors, problems),
            config_file,
        }
    }

    fn http(&self, problems: &mut Vec<Problem>) -> HttpSettings {
        let standard = HttpLimits::default();
        let mut count =
            |key, standard| self.last(key, rules::count(1), problems).unwrap_or(standard);
        let max_connections = count(Key::HttpMaxConnections, standard.max_connections);
        let max_in_flight = count(Key::HttpMaxInFlight, standard.max_in_flight);
        let max_sessions = count(Key::HttpMaxSessions, standard.max_sessions);
        let limits = HttpLimits {
            max_connections,
            max_in_flight,
            max_sessions,
            max_rate: self
                .last(Key::HttpMaxRate, rules::rate, problems)
                .unwrap_or(standard.max_rate),
            session_idle: self
                .last(Key::HttpSessionIdle, rules::session_idle, problems)
                .unwrap_or(standard.session_idle),
            ..standard
        };
        let (tls_cert, tls_key) =
            (self.path(Key::TlsCert, problems), self.path(Key::TlsKey, problems));
        self.check_pair(tls_cert.is_some(), tls_key.is_some(), problems);
        HttpSettings {
            allowed_hosts: self
                .last(Key::HttpAllowedHosts, rules::hosts, problems)
                .unwrap_or_default(),
            allowed_origins: self
                .last(Key::HttpAllowedOrigins, rules::origins, problems)
                .unwrap_or_default(),
            no_auth: self.last(Key::HttpNoAuth, rules::no_auth, problems),
            limits,
            tls_cert,
            tls_key,
        }
    }

    /// A certificate without its key, or the other way round, is a slip.
    fn check_pair(&self, cert: bool, key: bool, problems: &mut Vec<Problem>) {
        let (present, absent) = match (cert, key) {
            (true, false) => (Key::TlsCert, Key::TlsKey),
            (false, true) => (Key::TlsKey, Key::TlsCert),
            _ => return,
        };
        let given = self.given.iter().rev().find(|given| given.key == present);
        problems.extend(given.map(|given| {
            given.problem(format!("this needs {} too; give both, or neither", absent.name()))
        }));
    }

    /// The strongest value of `key`; every value of it is checked.
    fn last<T>(
        &self,
        key: Key,
        rule: impl Fn(&Value) -> Result<T, String>,
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        let mut strongest = None;
        for given in self.given.iter().filter(|given| given.key == key) {
            match rule(&given.value) {
                Ok(value) => strongest = Some(value),
                Err(words) => problems.push(given.problem(words)),
            }
        }
        strongest
    }

    /// As [`path`](Self::path), for a list.
    fn paths(&self, key: Key, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
        let mut strongest = Vec::new();
        for given in self.given.iter().filter(|given| given.key == key) {
            match rules::paths(&given.value) {
                Ok(paths) => {
                    let base = given.place.base();
                    strongest = paths.iter().map(|path| base.join(path)).collect();
                }
                Err(words) => problems.push(given.problem(words)),
            }
        }
        strongest
    }

    /// As [`last`](Self::last); a relative path in a file counts from the file's directory.
    fn path(&self, key: Key, problems: &mut Vec<Problem>) -> Option<PathBuf> {
        let mut strongest = None;
        for given in self.given.iter().filter(|given| given.key == key) {
            match rules::path(&given.value) {
                Ok(path) => strongest = Some(given.place.base().join(path)),
                Err(words) => problems.push(given.problem(words)),
            }
        }
        strongest
    }
}

/// The data directory before any file is read.
fn location(outer: &[Given], env: &Environment) -> Option<PathBuf> {
    let given = outer.iter().rev().filter(|given| given.key == Key::DataDir);
    given.filter_map(|given| rules::path(&given.value).ok()).next().or_else(|| default_dir(env))
}

/// The lines of the file at `path` that give a data directory, though the file lies in the one that
/// a stronger source gives: whoever wrote them there expects the ledger elsewhere.
fn without_effect(of_file: &[Given], outer: &[Given], path: &Path) -> Vec<Problem> {
    let Some(stronger) = outer.iter().rev().find(|given| given.key == Key::DataDir) else {
        return Vec::new();
    };
    let Ok(dir) = rules::path(&stronger.value) else { return Vec::new() };
    if !is_same_place(&dir.join(CONFIG_FILE), path) {
        return Vec::new();
    }
    let elsewhere = |given: &&Given| {
        given.key == Key::DataDir
            && rules::path(&given.value)
                .is_ok_and(|path| !is_same_place(&given.place.base().join(path), &dir))
    };
    let name = stronger.name();
    let words = format!(
        "this file lies in the data directory that {name} gives, so this line would be without \
         effect; remove the line, or leave {name} out"
    );
    of_file.iter().filter(elsewhere).map(|given| given.problem(words.clone())).collect()
}

fn is_same_place(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

fn default_dir(env: &Environment) -> Option<PathBuf> {
    DataDir::default_path(|name| env.get(name).map(OsStr::to_owned)).ok()
}

/// The variables that set a key, and those that nearly do: a slip of the pen must not be ignored.
/// Others with our prefix are left alone, since a cluster sets some for each of its services.
fn from_environment(env: &Environment, problems: &mut Vec<Problem>) -> Vec<Given> {
    let mut found = Vec::new();
    for (name, value) in &env.0 {
        let Some(name) = name.to_str().filter(|name| name.starts_with("COUNTERFOIL_")) else {
            continue;
        };
        if let Some(key) = Key::ALL.into_iter().find(|key| key.env() == name) {
            found.push(Given::outside(key, Place::Environment(name.to_owned()), value));
        } else if name != CONFIG_VARIABLE && name != LOG_VARIABLE {
            let known = Key::ALL.iter().map(|key| key.env());
            let known = known.chain([CONFIG_VARIABLE, LOG_VARIABLE].map(str::to_owned));
            if let Some(near) = problem::nearest(name, known, 2) {
                problems.push(Problem::new(
                    Place::Environment(name.to_owned()),
                    name.to_owned(),
                    format!("there is no such variable; use {near}, or unset it"),
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
