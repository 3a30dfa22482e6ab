//! `get_operation_status`: what is known of one of the caller's operations. Read-only.

use std::sync::Arc;

use counterfoil_core::identity::Caller;
use counterfoil_core::json::Value;
use counterfoil_core::refusal::Refusal;
use counterfoil_engine::Engine;
use rmcp::model::{CallToolResult, Tool, ToolAnnotations};
use serde_json::json;

use super::arguments::Arguments;
use super::reply;
use crate::wire::RawCall;

/// The tool's name.
pub const NAME: &str = "get_operation_status";

/// What the tool takes and gives.
#[must_use]
pub fn definition() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "operation_id": {
                "type": "string",
                "minLength": 1,
                "maxLength": 128,
                "description": "The ID that was given when the effect was asked for."
            }
        },
        "required": ["operation_id"],
        "additionalProperties": false
    });
    let text = json!({ "type": "string" });
    let output = json!({
        "type": "object",
        "properties": {
            "operationId": text,
            "principal": text,
            "backend": text,
            "state": { "enum": ["applied", "partial", "not_applied", "unknown"] },
            "authoritative": { "type": "boolean" },
            "freshWriteAuthorized": { "const": false },
            "observedAt": { "type": "string", "format": "date-time" },
            "scope": text,
            "scopeBinding": {
                "type": "object",
                "properties": { "operationId": text, "principal": text, "backend": text },
                "required": ["operationId", "principal", "backend"],
                "additionalProperties": false
            },
            "matchingIds": { "type": "array", "items": { "type": "integer" } },
            "detail": text,
            "storedResult": {},
            "error": super::create_issue::error_schema()
        },
        "oneOf": [
            {
                "required": [
                    "operationId", "principal", "backend", "state", "authoritative",
                    "freshWriteAuthorized", "observedAt", "scope", "scopeBinding", "matchingIds",
                    "detail", "storedResult"
                ]
            },
            { "required": ["error"] }
        ],
        "additionalProperties": false
    });
    let object = |schema: serde_json::Value| Arc::new(rmcp::model::object(schema));
    Tool::new(
        NAME,
        "Tells what became of an operation, without changing anything. Use it when a reply was \
         lost or a call failed: `applied` brings the stored result; `unknown` means that nobody \
         knows yet, and is never a reason to send the request again.",
        object(input),
    )
    .with_raw_output_schema(object(output))
    .with_annotations(
        ToolAnnotations::with_title("Status of an operation").read_only(true).open_world(false),
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
    let value = raw.arguments().unwrap_or(&empty);
    let arguments = Arguments::read(NAME, &["operation_id"], value, raw.meta())?;
    let operation_id = arguments.operation_id(raw.meta())?;
    let (account, contract) = engine.observe_with_contract(caller, &operation_id).await?;
    Ok(reply::observed(&account, contract))
}
