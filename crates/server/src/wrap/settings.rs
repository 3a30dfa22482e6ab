//! The settings of a wrapped server: the `[wrap]` table of the configuration and of presets, every
//! mistake told at once with file and line.

mod key;
mod load;
mod presets;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::identity::ToolVersion;

use super::lookup::{Lookup, Marker};
use crate::config::Place;

pub use key::{Upstream, UpstreamKey};
pub use presets::{PRESETS, Preset, preset_for_package};

/// How old an unanswered operation may be that a call without an ID joins.
pub const DEFAULT_JOIN_AGE: Duration = Duration::from_secs(24 * 3600);

/// Everything that is configured for one wrapped server.
#[derive(Debug, Clone)]
pub struct WrapSettings {
    /// The server's key in the ledger; `None` takes a digest of how it is started.
    pub name: Option<UpstreamKey>,
    /// Variables whose values say which server it is, where it has no name.
    pub environment: Vec<String>,
    /// Whether a tool that calls itself read-only is believed.
    pub trust_annotations: bool,
    /// What becomes of a call without an ID, unless its tool says otherwise.
    pub missing_id: MissingId,
    /// How old an unanswered operation may be that such a call joins. Default 24 h.
    pub join_age: Duration,
    /// The longest result that is stored and passed on, in bytes. Default 16 MiB.
    pub max_result_bytes: usize,
    /// Tools with settings of their own.
    pub tools: BTreeMap<String, Arc<ToolSettings>>,
}

/// What is configured for one tool.
#[derive(Debug)]
pub struct ToolSettings {
    /// What it does; `None` leaves it to the annotations where they are trusted, else it writes.
    pub effect: Option<ToolEffect>,
    /// Part of every fingerprint. Default `1`, whatever the server says of itself.
    pub version: ToolVersion,
    /// What becomes of a call without an ID.
    pub missing_id: Option<MissingId>,
    /// What an error of the tool's own says about its effect.
    pub error_means: ErrorMeans,
    /// Results that begin so are errors, though the server does not say it.
    pub error_texts: Vec<String>,
    /// A text of ours that is put into the effect.
    pub marker: Option<Marker>,
    /// How the effect is looked for.
    pub lookup: Option<Lookup>,
    /// Which file says so.
    pub origin: Origin,
}

/// Which file says something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A preset that is built in.
    Preset(&'static str),
    /// A file and the line in it.
    File(PathBuf, usize),
}

impl Origin {
    fn of(place: &Place, preset: Option<&'static str>) -> Self {
        match (preset, place) {
            (Some(name), _) => Self::Preset(name),
            (None, Place::File { path, line, .. }) => Self::File(path.clone(), *line),
            (None, _) => Self::File(PathBuf::new(), 0),
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Preset(name) => write!(f, "preset {name}"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// Declares an enum whose values are words of the settings.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$word_doc])* $value,)* }

        impl $name {
            /// Its word in the settings.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word,)* }
            }

            /// Reads its word.
            ///
            /// # Errors
            /// [`String`] with the words that there are.
            pub fn parse(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$value),)*
                    _ => Err(format!("there is no such word; use one of {}", [$($word),*].join(", "))),
                }
            }
        }
    };
}

words!(
    /// What a tool does.
    ToolEffect {
        /// It changes something: guarded.
        Write = "write",
        /// It changes nothing: passed on untouched.
        Read = "read",
    }
);

words!(
    /// What becomes of a call of a guarded tool that names no operation.
    MissingId {
        /// It is refused, with words on how to name one.
        Reject = "reject",
        /// It joins an unanswered operation with the same arguments, if there is one; else it is a
        /// new one.
        Join = "join",
        /// It is a new operation.
        Mint = "mint",
    }
);

words!(
    /// What an error that a tool answers with says about its effect.
    ErrorMeans {
        /// Nothing.
        Unknown = "unknown",
        /// There is no effect.
        NotApplied = "not_applied",
        /// The effect is there.
        Applied = "applied",
    }
);

impl Default for WrapSettings {
    fn default() -> Self {
        Self {
            name: None,
            environment: Vec::new(),
            trust_annotations: false,
            missing_id: MissingId::Join,
            join_age: DEFAULT_JOIN_AGE,
            max_result_bytes: counterfoil_core::limits::MAX_RESULT_BYTES,
            tools: BTreeMap::new(),
        }
    }
}

impl WrapSettings {
    /// What is configured for a tool.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&Arc<ToolSettings>> {
        self.tools.get(name)
    }
}
