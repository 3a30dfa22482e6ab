//! `list_operations`: the caller's own operations, page by page, so that an agent that forgot its
//! IDs finds them. Read-only.

use std::sync::Arc;

use counterfoil_core::identity::Caller;
use counterfoil_core::json::Value;
use counterfoil_core::limits::{DEFAULT_PAGE_COUNT, MAX_PAGE_COUNT};
use counterfoil_core::listing::{Listed, PageLimit};
use counterfoil_core::refusal::Refusal;
use counterfoil_core::time::Timestamp;
use counterfoil_engine::{Engine, ListRequest, Listing};
use rmcp::model::{CallToolResult, Tool, ToolAnnotations};
use serde_json::json;

use super::arguments::{Arguments, invalid};
use super::reply;
use crate::wire::RawCall;

/// The tool's name.
pub const NAME: &str = "list_operations";

const ARGUMENTS: [&str; 3] = ["unsettled_only", "limit", "cursor"];
/// Longer than every cursor.
const MAX_CURSOR_BYTES: usize = 256;

/// What the tool takes and gives.
#[must_use]
pub fn definition() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "unsettled_only": {
                "type": "boolean", "default": false,
                "description": "Only operations whose outcome is not settled: in progress, left \
                                unfinished, or in doubt."
            },
            "limit": {
                "type": "integer", "minimum": 1, "maximum": MAX_PAGE_COUNT,
                "default": DEFAULT_PAGE_COUNT,
                "description": "How many operations at most."
            },
            "cursor": {
                "type": "string", "minLength": 1, "maxLength": MAX_CURSOR_BYTES,
                "description": "The nextCursor of the last page of the same list. Leave it out to \
                                begin with the newest."
            }
        },
        "additionalProperties": false
    });
    let time = json!({ "type": "string", "format": "date-time" });
    let text = json!({ "type": "string" });
    let fields = ["operationId", "tool", "state", "detail", "createdAt", "settledAt", "retry"];
    let output = json!({
        "type": "object",
        "properties": {
            "operations": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "operationId": text,
                        "tool": text,
                        "state": { "enum": ["applied", "partial", "not_applied", "unknown"] },
                        "detail": text,
                        "createdAt": time,
                        "settledAt": { "type": ["string", "null"], "format": "date-time" },
                        "retry": { "enum": ["none", "status_only"] }
                    },
                    "required": fields,
                    "additionalProperties": false
                }
            },
            "nextCursor": { "type": ["string", "null"] },
            "observedAt": time,
            "error": super::create_issue::error_schema()
        },
        "oneOf": [
            { "required": ["operations", "nextCursor", "observedAt"] },
            { "required": ["error"] }
        ],
        "additionalProperties": false
    });
    let object = |schema: serde_json::Value| Arc::new(rmcp::model::object(schema));
    Tool::new(
        NAME,
        "Lists your own operations, the newest first, without changing anything. Use it when you \
         do not know an operation's ID any more. A page can be short, or empty, while there is \
         more: go on until nextCursor is null. For the stored result of an operation call \
         get_operation_status. An operation that is not listed may still arrive: its absence is \
         never a reason to send a request again.",
        object(input),
    )
    .with_raw_output_schema(object(output))
    .with_annotations(
        ToolAnnotations::with_title("List of operations").read_only(true).open_world(false),
    )
}

/// Answers one call.
///
/// # Errors
/// [`Refusal`] if the arguments are not usable or the ledger cannot be read.
pub async fn call(
    engine: &Engine,
    caller: &Caller,
    raw: &RawCall,
) -> Result<CallToolResult, Refusal> {
    let empty = Value::Object(counterfoil_core::json::Object::default());
    let given = raw.arguments().unwrap_or(&empty);
    let arguments = Arguments::read(NAME, &ARGUMENTS, given, raw.meta())?;
    let request = ListRequest {
        unsettled_only: arguments.flag("unsettled_only")?.unwrap_or(false),
        limit: limit(&arguments)?,
        cursor: arguments.text("cursor", MAX_CURSOR_BYTES)?.map(str::to_owned),
    };
    let listing = engine.list(caller, &request).await?;
    Ok(reply::listed(as_json(&listing)))
}

fn limit(arguments: &Arguments<'_>) -> Result<PageLimit, Refusal> {
    let Some(count) = arguments.integer("limit")? else { return Ok(PageLimit::default()) };
    let limit = u16::try_from(count).ok().and_then(|count| PageLimit::new(count).ok());
    limit.ok_or_else(|| {
        invalid(format!(
            "$.arguments.limit must be 1 to {MAX_PAGE_COUNT}; for more, ask for the next page with \
             the cursor"
        ))
    })
}

fn as_json(listing: &Listing) -> serde_json::Value {
    json!({
        "operations": listing.operations.iter().map(line).collect::<Vec<_>>(),
        "nextCursor": listing.next_cursor,
        "observedAt": listing.observed_at.to_rfc3339(),
    })
}

fn line(listed: &Listed) -> serde_json::Value {
    json!({
        "operationId": listed.operation_id,
        "tool": listed.tool_id,
        "state": listed.observed,
        "detail": listed.detail,
        "createdAt": listed.created_at.to_rfc3339(),
        "settledAt": listed.settled_at.map(Timestamp::to_rfc3339),
        "retry": listed.retry,
    })
}
