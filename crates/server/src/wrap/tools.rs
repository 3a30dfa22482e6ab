//! What happens to each tool of a wrapped server, and why: decided once for each tool, from the
//! settings and the server's own list.

mod call;
mod list;
mod own;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use counterfoil_core::identity::ToolVersion;

use super::lookup::{Lookup, Marker};
use super::settings::{ErrorMeans, MissingId, Origin, ToolEffect, ToolSettings, WrapSettings};

pub use call::{META_REPEAT_OF, SplitCall, split_call};
pub use list::UnreadableList;
pub use schema::{IdField, MetaOnly};

/// The plan for one tool.
#[derive(Debug, Clone)]
pub struct ToolPlan {
    /// Its name, as the server tells it.
    pub name: String,
    /// What happens to its calls.
    pub handling: Handling,
    /// Why.
    pub why: Why,
    /// Where a call carries the ID.
    pub id_field: IdField,
    /// What becomes of a call without one.
    pub missing_id: MissingId,
    /// Its version, part of every fingerprint.
    pub version: ToolVersion,
    /// What an error of its own says about its effect.
    pub error_means: ErrorMeans,
    /// Its output schema as the server tells it; `None` if it declares none.
    pub output_schema: Option<Arc<[u8]>>,
    /// The arguments that its schema declares; `None` where the schema was not read.
    declared: Option<Arc<[String]>>,
    settings: Option<Arc<ToolSettings>>,
}

/// What happens to a tool's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handling {
    /// Each is an operation in the ledger.
    Guarded,
    /// They are passed on untouched.
    PassedOn,
}

/// Why a tool is handled as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// A file says whether it changes something.
    Said(Origin),
    /// It calls itself read-only, and the settings believe it.
    TrustedHint,
    /// Nothing that is believed says that it changes nothing.
    Default,
}

impl ToolPlan {
    /// How its effect is looked for.
    #[must_use]
    pub fn lookup(&self) -> Option<&Lookup> {
        self.settings.as_ref()?.lookup.as_ref()
    }

    /// The text of ours that is put into its effect.
    #[must_use]
    pub fn marker(&self) -> Option<&Marker> {
        self.settings.as_ref()?.marker.as_ref()
    }

    /// Whether a result is an error by its text, though the server does not say it: `text` is that
    /// of its first content block.
    #[must_use]
    pub fn is_error_text(&self, text: &str) -> bool {
        let texts = self.settings.as_ref().map(|it| &it.error_texts[..]).unwrap_or_default();
        texts.iter().any(|start| text.starts_with(start))
    }

    /// Whether its errors are told by their texts alone.
    #[must_use]
    pub fn has_error_texts(&self) -> bool {
        self.settings.as_ref().is_some_and(|it| !it.error_texts.is_empty())
    }

    /// Whether its schema is known and does not declare an argument of this name.
    #[must_use]
    pub fn lacks_argument(&self, name: &str) -> bool {
        self.declared.as_ref().is_some_and(|known| !known.iter().any(|it| it == name))
    }

    /// Whether its calls are guarded.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.handling == Handling::Guarded
    }
}

/// The plans for the tools of one server.
///
/// What is once decided stays: a tool that later calls itself read-only is guarded still, and one
/// that no longer does is not believed the less for what was sent before. Only where the ID stands,
/// and the output schema, follow the newest list, since clients call by that.
#[derive(Debug)]
pub struct Plans {
    settings: Arc<WrapSettings>,
    known: BTreeMap<String, Arc<ToolPlan>>,
    /// Whether the last page of a list was seen.
    is_whole: bool,
}

impl Plans {
    /// Plans for a server that has told nothing yet.
    #[must_use]
    pub fn new(settings: Arc<WrapSettings>) -> Self {
        Self { settings, known: BTreeMap::new(), is_whole: false }
    }

    /// The plan for a tool that a list has told; `None` for every other. Ask the server for its list
    /// before a call of such a tool is split: where the ID stands depends on its schema.
    #[must_use]
    pub fn get(&self, tool: &str) -> Option<&Arc<ToolPlan>> {
        self.known.get(tool)
    }

    /// The plan for any tool. One that no list has told is guarded unless the settings say that it
    /// changes nothing, and carries its ID in `_meta` alone.
    #[must_use]
    pub fn plan(&self, tool: &str) -> Arc<ToolPlan> {
        match self.known.get(tool) {
            Some(plan) => Arc::clone(plan),
            None => Arc::new(self.decide(tool, false)),
        }
    }

    /// Whether the whole list was seen.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// All plans, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<ToolPlan>> {
        self.known.values()
    }

    /// The settings that they rest on.
    #[must_use]
    pub fn settings(&self) -> &WrapSettings {
        &self.settings
    }

    /// What is decided for a tool without its schema.
    fn decide(&self, name: &str, says_read_only: bool) -> ToolPlan {
        let settings = self.settings.tool(name).cloned();
        let said = settings.as_ref().and_then(|it| Some((it.effect?, it.origin.clone())));
        let (handling, why) = match said {
            Some((ToolEffect::Read, origin)) => (Handling::PassedOn, Why::Said(origin)),
            Some((ToolEffect::Write, origin)) => (Handling::Guarded, Why::Said(origin)),
            None if says_read_only && self.settings.trust_annotations => {
                (Handling::PassedOn, Why::TrustedHint)
            }
            None => (Handling::Guarded, Why::Default),
        };
        let missing_id = settings.as_ref().and_then(|it| it.missing_id);
        let version = settings.as_ref().map(|it| it.version.clone());
        ToolPlan {
            name: name.to_owned(),
            handling,
            why,
            id_field: IdField::MetaOnly(MetaOnly::NotListed),
            missing_id: missing_id.unwrap_or(self.settings.missing_id),
            version: version.unwrap_or_else(|| ToolVersion::parse("1").expect("a good version")),
            error_means: settings.as_ref().map_or(ErrorMeans::Unknown, |it| it.error_means),
            output_schema: None,
            declared: None,
            settings,
        }
    }
}
