//! `get_operation_audit`: what happened to one of the caller's own operations, event by event.
//! Read-only. No event holds an argument, a result or a secret.

use std::sync::Arc;

use counterfoil_core::delivery::ErrorClass;
use counterfoil_core::identity::Caller;
use counterfoil_core::json::{Object, Value};
use counterfoil_core::refusal::Refusal;
use counterfoil_engine::Engine;
use counterfoil_store::AuditEvent;
use rmcp::model::{CallToolResult, Tool, ToolAnnotations};
use serde_json::json;

use super::arguments::{Arguments, OPERATION_ID, invalid};
use super::reply;
use crate::wire::RawCall;

/// The tool's name.
pub const NAME: &str = "get_operation_audit";

/// So many events in one answer; duplicates of a call are events too, without end.
const PAGE_COUNT: usize = 200;

/// Events of a worker whose reason is a connector's words.
const FAILURES: [&str; 6] = [
    "retry_scheduled",
    "target_parked",
    "lookup_open",
    "lookup_scheduled",
    "dead_letter",
    "in_doubt",
];

/// What the tool takes and gives.
#[must_use]
pub fn definition() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "operation_id": {
                "type": "string", "minLength": 1, "maxLength": 128,
                "description": "The ID that was given when the effect was asked for; of a support \
                                ticket its idempotency_key."
            },
            "after": {
                "type": "integer", "minimum": 0, "default": 0,
                "description": "Begins behind the event with this seq: the nextAfter of the last \
                                page."
            }
        },
        "required": ["operation_id"],
        "additionalProperties": false
    });
    let text = || json!({ "type": "string" });
    let output = json!({
        "type": "object",
        "properties": {
            "operationId": text(),
            "events": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "seq": { "type": "integer", "minimum": 1 },
                        "at": { "type": "string", "format": "date-time" },
                        "kind": text(),
                        "identity": text(),
                        "who": text(),
                        "reason": { "type": ["string", "null"] }
                    },
                    "required": ["seq", "at", "kind", "identity", "who", "reason"],
                    "additionalProperties": false
                }
            },
            "nextAfter": { "type": ["integer", "null"] },
            "observedAt": { "type": "string", "format": "date-time" },
            "error": super::create_issue::error_schema()
        },
        "oneOf": [
            { "required": ["operationId", "events", "nextAfter", "observedAt"] },
            { "required": ["error"] }
        ],
        "additionalProperties": false
    });
    let object = |schema: serde_json::Value| Arc::new(rmcp::model::object(schema));
    Tool::new(
        NAME,
        "Tells what happened to one of your own operations, the oldest event first, without \
         changing anything: acceptance, duplicates, attempts, delivery, what operators decided. No \
         events means that there is no operation of yours with this ID, which proves nothing. \
         Whether the effect happened is for get_operation_status to say.",
        object(input),
    )
    .with_raw_output_schema(object(output))
    .with_annotations(
        ToolAnnotations::with_title("Audit trail of an operation")
            .read_only(true)
            .open_world(false),
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
    let empty = Value::Object(Object::default());
    let given = raw.arguments().unwrap_or(&empty);
    let arguments = Arguments::read(NAME, &[OPERATION_ID, "after"], given, raw.meta())?;
    let id = arguments.operation_id(raw.meta())?;
    let after = arguments.integer("after").map_err(|refusal| refusal.for_operation(&id))?;
    let after = after.unwrap_or(0);
    if after < 0 {
        let words = "$.arguments.after must be 0 or more; leave it out to begin at the first event";
        return Err(invalid(words).for_operation(&id));
    }
    let events = engine.audit(caller, &id).await?.unwrap_or_default();
    let mut left = events.iter().filter(|event| event.seq > after);
    let page: Vec<&AuditEvent> = left.by_ref().take(PAGE_COUNT).collect();
    let has_more = left.next().is_some();
    Ok(reply::listed(json!({
        "operationId": id.as_str(),
        "events": page.iter().map(|event| line(event, caller)).collect::<Vec<_>>(),
        "nextAfter": page.last().filter(|_| has_more).map(|last| last.seq),
        "observedAt": engine.now().to_rfc3339(),
    })))
}

fn line(event: &AuditEvent, caller: &Caller) -> serde_json::Value {
    let reason = event.reason.as_deref();
    // An operator's reason is told as it was given.
    let is_failure = FAILURES.contains(&&*event.kind) && event.who == caller.principal.as_str();
    let reason = if is_failure { reason.and_then(of_a_failure) } else { reason.map(str::to_owned) };
    json!({
        "seq": event.seq,
        "at": event.at.to_rfc3339(),
        "kind": event.kind,
        "identity": event.identity,
        "who": event.who,
        "reason": reason,
    })
}

/// What a caller is told of a failure: its class, and the pause that follows. The words between name
/// hosts, addresses and settings of whoever runs this server.
fn of_a_failure(reason: &str) -> Option<String> {
    const PAUSE: &str = "next attempt in ";
    let class = reason.split_once(": ").and_then(|(word, _)| ErrorClass::from_word(word));
    let pause = reason.rsplit_once("; ").map(|(_, last)| last).filter(|it| it.starts_with(PAUSE));
    match (class, pause) {
        (Some(class), Some(pause)) => Some(format!("{}; {pause}", class.as_str())),
        (Some(class), None) => Some(class.as_str().to_owned()),
        (None, pause) => pause.map(str::to_owned),
    }
}
