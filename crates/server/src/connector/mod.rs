//! Connectors: targets over HTTP, declared and not coded. A connector is read and checked at start,
//! renders a request when a call is accepted, and says what the target's answers mean. It sends
//! nothing itself.

mod credential;
mod filter;
pub(crate) mod form;
mod freeze;
mod frozen;
mod header;
mod link;
mod load;
mod network;
mod pointer;
mod read;
mod read_answers;
mod read_credential;
mod read_request;
mod read_terms;
mod result;
mod rules;
mod scan;
mod schema;
mod search;
mod target;
pub(crate) mod template;
pub(crate) mod toml_json;
mod url;
mod vocabulary;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{TargetName, Terms};
use counterfoil_core::identity::{ToolId, ToolVersion};
use counterfoil_engine::TargetLimits;

use crate::config::Place;
use read_answers::LookupTemplate;
use read_request::RequestTemplate;

pub use credential::{
    Credential, CredentialError, CredentialKind, MASK, Placed, Secret, SecretSource,
};
pub use freeze::FreezeError;
pub use frozen::{DamagedRequest, FrozenCall, FrozenLookup, FrozenRequest, MAX_FROZEN_BYTES};
pub use load::{Connectors, read_file, read_files};
pub use network::Network;
pub use pointer::{MAX_EXTERNAL_ID_BYTES, Pointer, external_id};
pub use read_credential::{Idempotency, KeyKind};
pub use result::ResultTemplate;
pub use rules::{
    AnswerRule, BodyRule, Compare, Evidence, JsonKind, LookupRules, Matching, Meaning, Pages,
    ResponseRules, Shape, Timeouts,
};
pub use schema::Schema;
pub use target::{HttpTarget, targets};
pub use template::RenderError;
pub use url::UrlError;

/// The tool whose arguments are fixed; at most one connector carries it.
pub const SUPPORT_TICKET: &str = "submit_support_ticket";

/// One target with its tool. Everything has been checked.
#[derive(Debug)]
pub struct Connector {
    /// What the configuration calls it, and the ledger its target.
    pub name: TargetName,
    /// The tool that reaches it.
    pub tool: ToolId,
    /// The tool's version, part of every fingerprint.
    pub version: ToolVersion,
    /// What the tool does, for its callers.
    pub description: String,
    /// What the tool takes, without our own arguments.
    pub arguments: Schema,
    /// What its structured result conforms to.
    pub output: Option<Arc<Schema>>,
    /// Where its credential comes from; `None` sends none.
    pub credential: Option<Credential>,
    /// How it carries an idempotency key; `None` carries none.
    pub idempotency: Option<Idempotency>,
    /// What its answers mean.
    pub responses: ResponseRules,
    /// How a search for the effect is read.
    pub lookup: Option<LookupRules>,
    /// On which terms its items are delivered.
    pub terms: Terms,
    /// How long a request may take.
    pub timeouts: Timeouts,
    /// How hard it may be pressed.
    pub limits: TargetLimits,
    /// Private networks that it may be reached in.
    pub networks: Vec<Network>,
    /// How long its tool waits for the result before it answers *pending*.
    pub wait: Duration,
    /// The file that declares it.
    pub file: PathBuf,
    request: RequestTemplate,
    lookup_request: Option<LookupTemplate>,
    place: Place,
}

impl Connector {
    /// Whether its tool is the one for support tickets, whose arguments are fixed and whose
    /// operation ID is called `idempotency_key`.
    #[must_use]
    pub fn is_support_ticket(&self) -> bool {
        self.tool.as_str() == SUPPORT_TICKET
    }

    /// The method of its request.
    #[must_use]
    pub fn method(&self) -> &str {
        self.request.method.as_str()
    }

    /// `https://host:port` of its request.
    #[must_use]
    pub fn origin(&self) -> &str {
        self.request.url.origin()
    }

    /// The host that its requests go to: a name or an address.
    #[must_use]
    pub fn host(&self) -> String {
        self.request.url.host()
    }

    /// Where it is declared: file, line and column.
    #[must_use]
    pub fn declared_at(&self) -> String {
        match &self.place {
            Place::File { path, line, column } => format!("{}:{line}:{column}", path.display()),
            _ => self.file.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
