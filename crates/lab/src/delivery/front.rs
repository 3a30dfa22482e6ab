//! What became of a call, as its MCP client sees it.

use counterfoil_core::observation::ObservedState;
use serde_json::json;

use crate::session::{Caller, Reply};

/// The tools of the campaign; each one's target promises something else about repeats.
pub const TOOLS: [&str; 3] = ["file_by_key", "file_by_lookup", "file_by_never"];

/// What a reply says of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The operation.
    pub id: String,
    /// Whether it is said to be done; otherwise it is said to be unknown.
    pub is_applied: bool,
    /// The ticket that it is said to have made.
    pub external_id: Option<String>,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is in the outbox.
    Accepted(Told),
    /// Nothing was written, and why; the same call may be sent again.
    Refused(String),
    /// No answer: the process died, or is about to.
    Lost,
    /// An answer that no call may get.
    Wrong(String),
}

/// Files one ticket, whose title is its operation's ID.
pub async fn file(caller: &Caller, tool: &'static str, id: &str) -> Taken {
    sorted(id, caller.call(tool, json!({ "operation_id": id, "title": id })).await)
}

/// Asks what became of it.
pub async fn status(caller: &Caller, id: &str) -> Taken {
    sorted(id, caller.status(id).await)
}

fn sorted(id: &str, reply: Reply) -> Taken {
    let (content, operation) = match &reply {
        Reply::Lost(_) => return Taken::Lost,
        Reply::Result { content, is_error: true, .. } if content["error"].is_object() => {
            return match content["error"]["retry"].as_str() {
                Some("same_operation") => Taken::Refused(content["error"].to_string()),
                _ => Taken::Wrong(format!("{id} is refused for good: {content}")),
            };
        }
        Reply::Result { content, is_error: false, operation } => (content, operation),
        other => return Taken::Wrong(format!("{id} is answered with {other:?}")),
    };
    let is = |state: ObservedState| operation["state"] == state.as_str();
    let is_applied = is(ObservedState::Applied);
    let grants = operation["retry"] == "new_operation"
        || content["freshWriteAuthorized"].as_bool() == Some(true);
    if operation["operationId"] != id || grants || !(is_applied || is(ObservedState::Unknown)) {
        return Taken::Wrong(format!("{id} is told as {operation} with {content}"));
    }
    let external_id = content["externalId"].as_str().map(str::to_owned);
    Taken::Accepted(Told { id: id.to_owned(), is_applied, external_id })
}
