//! What the official suite expects of a server, as data: `fixtures.json` has its tools, prompts and
//! resources by the names that the suite calls.

use std::collections::BTreeMap;

use rmcp::model::{InputRequests, Prompt, Resource, ResourceTemplate, Tool};
use serde::Deserialize;
use serde_json::Value;

/// All of it.
#[derive(Debug, Deserialize)]
pub struct Fixtures {
    /// The tools, in the order of their list.
    pub tools: Vec<Fixture<Tool>>,
    /// The prompts.
    pub prompts: Vec<Fixture<Prompt>>,
    /// The resources.
    pub resources: Vec<Text>,
    /// Resources that come by a parameter.
    pub templates: Vec<ResourceTemplate>,
}

/// A tool or a prompt, and what it does.
#[derive(Debug, Deserialize)]
pub struct Fixture<T> {
    /// As it stands in a list.
    pub definition: T,
    /// What it does when it is called.
    pub act: Act,
}

/// A resource.
#[derive(Debug, Deserialize)]
pub struct Text {
    /// As it stands in the list.
    pub definition: Resource,
    /// What is read.
    pub content: Value,
}

/// What a fixture does when it is called.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Act {
    /// Answers the same every time.
    Say {
        /// The result.
        result: Value,
    },
    /// Says its arguments.
    Echo,
    /// Embeds the resource that its argument names.
    Embed,
    /// Asks by its result, round after round.
    Ask {
        /// What is asked in each round.
        rounds: Vec<InputRequests>,
        /// Whether a state goes with it that must come back as it was.
        sealed: bool,
        /// Whether only that is asked which the client declared.
        declared_only: bool,
        /// The text of the last answer.
        says: String,
    },
    /// Asks the user while the call stands open, as the older revisions do.
    Elicit {
        /// What is asked.
        params: BTreeMap<String, Value>,
    },
    /// Asks the client's model while the call stands open.
    Sample,
    /// Logs three lines.
    Log,
    /// Logs one line if the request says a level.
    LogIfAsked,
    /// Reports progress three times.
    Progress,
    /// Announces that a list changed to whoever listens.
    Announce {
        /// Which: `tools` or `prompts`.
        list: String,
    },
    /// Refuses a client that declared no sampling.
    NeedSampling,
}

impl Fixtures {
    /// Reads them.
    ///
    /// # Errors
    /// If the data are not what the SDK's types say.
    pub fn read() -> serde_json::Result<Self> {
        serde_json::from_str(include_str!("fixtures.json"))
    }
}
