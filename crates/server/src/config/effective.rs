//! What is in force, and where each value comes from: for a person who wonders, and for `config
//! check`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::given::{Key, Place};
use super::{
    ConfigError, Environment, Flags, HttpSettings, LocalOnly, Settings, duration, read_sources,
};
use crate::connector::Connectors;
use crate::mounts::OnlyThisHost;
use crate::wrap::settings::WrapSettings;

/// Settings with the source of each value.
#[derive(Debug, Clone)]
pub struct Effective {
    /// The settings.
    pub settings: Settings,
    /// The connectors.
    pub connectors: Connectors,
    /// Each setting, in the order of [`Key::ALL`].
    pub values: Vec<EffectiveValue>,
}

/// One setting in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveValue {
    /// The setting.
    pub key: Key,
    /// Its value, as it can be written in a file; `None` where nothing is set and the default is
    /// found when it is needed.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: Source,
}

/// Where a value comes from, the weakest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// A line of the configuration's file, counted from 1.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// A variable of the environment.
    Environment(String),
    /// A flag.
    CommandLine(String),
}

impl Source {
    /// One word for programs.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File { .. } => "file",
            Self::Environment(_) => "environment",
            Self::CommandLine(_) => "command_line",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment: {name}"),
            Self::CommandLine(flag) => write!(f, "command line: {flag}"),
        }
    }
}

impl From<&Place> for Source {
    fn from(place: &Place) -> Self {
        match place {
            Place::File { path, line, .. } => Self::File { path: path.clone(), line: *line },
            Place::Environment(name) => Self::Environment(name.clone()),
            Place::CommandLine(flag) => Self::CommandLine(flag.clone()),
        }
    }
}

impl Effective {
    /// As [`Settings::load`], with the source of each value; the table of wrapped servers is checked
    /// too.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn load(flags: &Flags, env: &Environment) -> Result<Self, ConfigError> {
        let read = read_sources(flags, env);
        let strongest = |key| read.draft.given.iter().rev().find(|given| given.key == key);
        let sources = Key::ALL
            .map(|key| strongest(key).map_or(Source::Default, |given| Source::from(&given.place)));
        let config_file = read.config_file.clone();
        let of_wrap = config_file.map(|path| WrapSettings::problems(&path)).unwrap_or_default();
        let good = read.settings_and_connectors(env);
        let (settings, connectors) = match (good, of_wrap.is_empty()) {
            (good, true) => good?,
            (Ok(_), false) => return Err(ConfigError::new(of_wrap)),
            (Err(others), false) => return Err(others.and(ConfigError::new(of_wrap))),
        };
        let values = Key::ALL
            .into_iter()
            .zip(sources)
            .map(|(key, source)| EffectiveValue { key, value: settings.shown(key), source })
            .collect();
        Ok(Self { settings, connectors, values })
    }
}

impl Settings {
    /// The value in force, as it can be written in a file.
    fn shown(&self, key: Key) -> Option<String> {
        let span = |span: Duration| Some(duration::to_text(span));
        match key {
            Key::DataDir => self.data_dir().ok().map(|path| path.display().to_string()),
            Key::BackendId => self.backend_id.as_ref().map(ToString::to_string),
            Key::Principal => Some(self.principal.to_string()),
            Key::Store => Some(self.store.as_str().to_owned()),
            Key::LockWait => span(self.lock_wait),
            Key::Drain => span(self.drain),
            Key::FilesystemOverride => {
                self.filesystem_override.map(|OnlyThisHost| OnlyThisHost::WORD.to_owned())
            }
            Key::LifetimesState => span(self.lifetimes.state.as_duration()),
            Key::LifetimesAuthority => span(self.lifetimes.authority.as_duration()),
            Key::LifetimesRetention => span(self.lifetimes.retention.as_duration()),
            Key::RetentionJob => Some(self.retention_job.to_string()),
            Key::RetentionInterval => span(self.retention_interval),
            Key::Worker => Some(self.worker.to_string()),
            Key::KeysActive => self.active_key.map(|id| id.to_string()),
            Key::Tokens => self.tokens_file().ok().map(|path| path.display().to_string()),
            Key::Connectors => {
                let paths: Vec<_> = self.connectors.iter().map(|it| it.display()).collect();
                with_commas(&paths)
            }
            http => self.http.shown(http),
        }
    }
}

impl HttpSettings {
    /// As [`Settings::shown`]; `None` for a key of another table too.
    fn shown(&self, key: Key) -> Option<String> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let limits = &self.limits;
        match key {
            Key::HttpAllowedHosts => with_commas(&self.allowed_hosts),
            Key::HttpAllowedOrigins => with_commas(&self.allowed_origins),
            Key::HttpNoAuth => self.no_auth.map(|LocalOnly| LocalOnly::WORD.to_owned()),
            Key::HttpMaxConnections => Some(limits.max_connections.to_string()),
            Key::HttpMaxInFlight => Some(limits.max_in_flight.to_string()),
            Key::HttpMaxRate => Some(limits.max_rate.to_string()),
            Key::HttpMaxSessions => Some(limits.max_sessions.to_string()),
            Key::HttpSessionIdle => Some(duration::to_text(limits.session_idle)),
            Key::TlsCert => path(&self.tls_cert),
            Key::TlsKey => path(&self.tls_key),
            _ => None,
        }
    }
}

/// `None` for an empty list.
fn with_commas(values: &[impl fmt::Display]) -> Option<String> {
    let texts: Vec<_> = values.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}
