//! A call that only reads: no identity, no journal, no recovery. If its reply is lost, nothing is
//! lost with it.

use std::fmt;

use rmcp::ServiceError;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, Tool};
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::answers::Answers;
use crate::connection::{ConnectError, Connection, Connector};
use crate::consumer::NotSent;
use crate::identity::ID_FIELDS;
use crate::limits::Limits;
use crate::reply::{ToolReply, error_body, error_in_words, value_of};
use crate::watcher::Watcher;

/// The tool of a server with a ledger that lists the caller's operations. It reads. That any other
/// tool reads, only the user can say: what a server claims of a tool proves nothing.
pub const LIST_TOOL: &str = "list_operations";

/// A read that is about to be made. It is used up by that.
pub struct Reading {
    tool: String,
    arguments: Map<String, Value>,
    /// Whether the user said that the tool only reads.
    is_told: bool,
}

/// Why a read has no result. Nothing is changed by it, so the same may be asked again.
#[derive(Debug, thiserror::Error)]
pub enum ReadFailed {
    /// Nothing of it was sent.
    #[error(transparent)]
    NotSent(#[from] NotSent),
    /// The server does not mark the tool as one that only reads, and nobody else says so.
    #[error(
        "this server does not say that `{0}` only reads and is the ledger's own: say it yourself, \
         or give the operation's ID, to call it as a write"
    )]
    NotARead(String),
    /// The server answered with an error.
    #[error("the server refused it: {0}")]
    Refused(String),
    /// The tool asks for input, which a read has not.
    #[error("the tool asks for input: call it as a write")]
    WantsInput,
    /// No reply came.
    #[error("no reply came: {0}")]
    NoReply(String),
    /// No reply came in time.
    #[error("no reply came in time")]
    TimedOut,
}

impl Reading {
    /// A read by [`LIST_TOOL`], if the server marks it as one; or by any tool that the user says
    /// only reads.
    #[must_use]
    pub const fn new(tool: String, arguments: Map<String, Value>, is_told: bool) -> Self {
        Self { tool, arguments, is_told }
    }

    /// Reads, until the watcher stops.
    ///
    /// # Errors
    /// [`ReadFailed`] if there is no result. A result that is an error of the tool is none of them.
    pub async fn send_watched<C: Connector, W: Watcher>(
        self,
        connector: &C,
        limits: &Limits,
        watcher: &W,
    ) -> Result<ToolReply, ReadFailed> {
        let limit = limits.call;
        let connecting = Box::pin(self.connect(connector));
        let connection = tokio::select! {
            biased;
            () = watcher.stopped() => return Err(NotSent::Interrupted.into()),
            connected = timeout(limit, connecting) => connected
                .map_err(|_| NotSent::Connect(ConnectError::TimedOut(limit)))??,
        };
        let reader = connection.into_reader();
        let params = CallToolRequestParams::new(self.tool).with_arguments(self.arguments);
        let reply = tokio::select! {
            biased;
            () = watcher.stopped() => Err(ReadFailed::NoReply("it was interrupted".into())),
            reply = timeout(limit, reader.call(params)) => match reply {
                Err(_) => Err(ReadFailed::TimedOut),
                Ok(Ok(CallToolResponse::Complete(result))) => Ok(reply_of(result)),
                Ok(Ok(CallToolResponse::InputRequired(_))) => Err(ReadFailed::WantsInput),
                Ok(Ok(_)) => {
                    let error = ServiceError::UnexpectedResponse;
                    Err(ReadFailed::NoReply(reader.why(&error).await))
                }
                Ok(Err(ServiceError::McpError(error))) => {
                    Err(ReadFailed::Refused(error_in_words(&error)))
                }
                Ok(Err(error)) => Err(ReadFailed::NoReply(reader.why(&error).await)),
            },
        };
        reader.close().await;
        reply
    }

    async fn connect<C: Connector>(&self, connector: &C) -> Result<Connection, ReadFailed> {
        let connection = connector.connect(&Answers::default()).await.map_err(NotSent::from)?;
        let failed = match connection.tool(&self.tool).await {
            Ok(tool) if self.is_told || connection.keeps_ledger() && is_own_read(&tool) => {
                return Ok(connection);
            }
            Ok(_) => ReadFailed::NotARead(self.tool.clone()),
            Err(failed) => failed.into(),
        };
        connection.close().await;
        Err(failed)
    }
}

/// Whether a tool of a server with a ledger is the ledger's own list. By name too: a tool
/// that the server only passes on may claim anything.
fn is_own_read(tool: &Tool) -> bool {
    let claims = tool.annotations.as_ref().and_then(|claims| claims.read_only_hint);
    let properties = tool.input_schema.get("properties").and_then(Value::as_object);
    let takes_id = properties.is_some_and(|all| ID_FIELDS.iter().any(|id| all.contains_key(*id)));
    tool.name == LIST_TOOL && claims == Some(true) && !takes_id
}

impl fmt::Debug for Reading {
    /// Arguments may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("tool", &self.tool).finish_non_exhaustive()
    }
}

fn reply_of(result: CallToolResult) -> ToolReply {
    let is_error = result.is_error == Some(true);
    let said = if is_error { error_body(&result) } else { None };
    let value = match said {
        Some(said) => Value::from(format!("{}: {}", said.code, said.message)),
        None => value_of(result),
    };
    ToolReply { value, is_error, operation: None }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rmcp::model::ToolAnnotations;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_ledgers_own_tools_are_reads_by_themselves() {
        // Promise: what a server claims of a tool turns no write into a read.
        let plain = json!({"type": "object", "properties": {"limit": {}}});
        let with_id = json!({"type": "object", "properties": {"operation_id": {}}});
        let cases = [
            ("list_operations", &plain, Some(true), true),
            ("list_operations", &plain, None, false),
            ("list_operations", &plain, Some(false), false),
            ("list_operations", &with_id, Some(true), false),
            ("create_issue", &plain, Some(true), false),
            ("search", &plain, Some(true), false),
        ];
        for (name, schema, hint, expected) in cases {
            let schema = Arc::new(schema.as_object().expect("an object").clone());
            let mut tool = Tool::new(name, "words", schema);
            if let Some(hint) = hint {
                tool.annotations = Some(ToolAnnotations::new().read_only(hint));
            }
            assert_eq!(is_own_read(&tool), expected, "{name} {hint:?}");
        }
    }
}
