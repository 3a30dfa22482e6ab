//! `submit_support_ticket` and `get_delivery_status`: a ticket is accepted durably and delivered to
//! the help desk by the worker, never by the call and never by the question.

use std::fmt::Write as _;
use std::sync::Arc;

use counterfoil_core::delivery::{Ended, State};
use counterfoil_core::identity::{Caller, OperationKey};
use counterfoil_core::json::{Object, Value};
use counterfoil_core::refusal::Refusal;
use counterfoil_core::time::Timestamp;
use counterfoil_engine::Engine;
use counterfoil_store::outbox::DeliveryView;
use rmcp::model::{CallToolResult, Tool, ToolAnnotations};
use serde_json::{Map, json};

use super::accept::accept;
use super::arguments::{Arguments, TICKET_KEY};
use super::create_issue::error_schema;
use super::delivered::last_error;
use super::reply::{Operation, finished, listed};
use crate::connector::{Connector, SUPPORT_TICKET};
use crate::handler::ClientSide;
use crate::wire::RawCall;

/// The name of the tool that asks.
pub const STATUS_NAME: &str = "get_delivery_status";

const MAX_SUBJECT_BYTES: usize = 2048;
const MAX_DESCRIPTION_BYTES: usize = 262_144;
/// Longer than every ticket's ID.
const MAX_TICKET_ID_BYTES: usize = 128;
const PREFIX: &str = "tkt_";

/// Accepts one ticket.
///
/// # Errors
/// [`Refusal`] in the caller's terms.
pub async fn submit(
    engine: &Arc<Engine>,
    caller: &Caller,
    raw: &RawCall,
    connector: &Connector,
    client: &ClientSide<'_>,
) -> Result<CallToolResult, Refusal> {
    let empty = Value::Object(Object::default());
    let given = raw.arguments().unwrap_or(&empty);
    let known = ["subject", "description", TICKET_KEY];
    let arguments = Arguments::read(SUPPORT_TICKET, &known, given, raw.meta())?;
    let id = arguments.operation_id(raw.meta())?;
    let mut own = Object::default();
    for (name, max_bytes) in
        [("subject", MAX_SUBJECT_BYTES), ("description", MAX_DESCRIPTION_BYTES)]
    {
        let text = arguments.required_text(name, max_bytes);
        own.insert(name, text.map_err(|refusal| refusal.for_operation(&id))?);
    }
    let taken = accept(engine, caller, connector, &id, &Value::Object(own), client).await?;
    let mut body = ticket(&taken.view);
    body.insert("duplicate".into(), taken.is_duplicate.into());
    let operation = Operation::of_delivery(&taken.view, taken.is_duplicate);
    Ok(finished(CallToolResult::structured(body.into()), Some(&operation)))
}

/// Tells where a ticket is.
///
/// # Errors
/// [`Refusal`] if the argument is not usable or the ledger cannot be read.
pub async fn status(
    engine: &Engine,
    caller: &Caller,
    raw: &RawCall,
) -> Result<CallToolResult, Refusal> {
    let empty = Value::Object(Object::default());
    let given = raw.arguments().unwrap_or(&empty);
    let arguments = Arguments::read(STATUS_NAME, &["ticket_id"], given, raw.meta())?;
    let ticket_id = arguments.required_text("ticket_id", MAX_TICKET_ID_BYTES)?;
    let found = match key_of(ticket_id) {
        Some(key) => engine.delivery(caller, key).await?,
        None => None,
    };
    let found = found.filter(|view| view.record.tool_id.as_str() == SUPPORT_TICKET);
    Ok(match found {
        Some(view) => {
            let operation = Operation::of_question(&view);
            finished(CallToolResult::structured(ticket(&view).into()), Some(&operation))
        }
        None => listed(not_found(ticket_id)),
    })
}

fn ticket(view: &DeliveryView) -> Map<String, serde_json::Value> {
    let item = &view.delivery;
    let (status, detail) = match item.state {
        State::Delivered => ("delivered", "delivered"),
        State::DeadLetter => ("dead_letter", "dead_letter"),
        State::Cancelled if item.late_contradiction => ("dead_letter", "late_contradiction"),
        State::Cancelled => ("dead_letter", item.ended.map_or("cancelled", Ended::as_str)),
        // Whether it arrived is open as long as nobody has looked.
        waiting => ("pending", waiting.as_str()),
    };
    object(json!({
        "ticket_id": id_of(item.key),
        "status": status,
        "detail": detail,
        "external_id": item.external_id,
        "attempts": item.attempts_count,
        "next_attempt_at": item.next_attempt_at.map(Timestamp::to_rfc3339),
        "last_error": last_error(view),
        "created_at": item.created_at.to_rfc3339(),
        "updated_at": item.updated_at.to_rfc3339(),
    }))
}

fn not_found(ticket_id: &str) -> serde_json::Value {
    json!({
        "ticket_id": ticket_id,
        "status": "not_found",
        "detail": "there is no such ticket of yours; that proves nothing about any ticket that was \
                   asked for: find it with list_operations, or submit it again with the same \
                   idempotency_key",
        "external_id": null,
        "attempts": null,
        "next_attempt_at": null,
        "last_error": null,
        "created_at": null,
        "updated_at": null,
    })
}

/// The ticket of an operation.
fn id_of(key: OperationKey) -> String {
    let mut text = String::from(PREFIX);
    for byte in key.as_bytes() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The operation of a ticket; `None` if the text names none.
fn key_of(ticket_id: &str) -> Option<OperationKey> {
    let hex = ticket_id.strip_prefix(PREFIX)?;
    let is_ours = hex.len() == 32 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let number = is_ours.then(|| u128::from_str_radix(hex, 16).ok()).flatten()?;
    Some(OperationKey::from_bytes(number.to_be_bytes()))
}

/// What `submit_support_ticket` takes and gives.
#[must_use]
pub fn submit_definition(connector: &Connector) -> Tool {
    let mut input = connector.arguments.json().clone();
    input["properties"][TICKET_KEY] = json!({
        "type": "string",
        "minLength": 1,
        "maxLength": counterfoil_core::limits::MAX_OPERATION_ID_BYTES,
        "description": "Your own name for this one ticket, for example a new UUID. Keep it: the \
                        same key with the same texts gives the same ticket, so after a lost reply \
                        send the call again unchanged. Another ticket needs another key."
    });
    input["required"] = json!(["subject", "description", TICKET_KEY]);
    let mut output = ticket_schema(&["pending", "delivered", "dead_letter"]);
    output["properties"]["duplicate"] = json!({ "type": "boolean" });
    let mut required = FIELDS.to_vec();
    required.push("duplicate");
    output["oneOf"][0]["required"] = json!(required);
    Tool::new(
        SUPPORT_TICKET,
        format!(
            "{}\n\nThe ticket is accepted at once and delivered to the help desk in the background; \
             get_delivery_status tells where it is. The same idempotency_key with another subject \
             or description is refused.",
            connector.description
        ),
        Arc::new(object(input)),
    )
    .with_raw_output_schema(Arc::new(object(output)))
    .with_annotations(
        ToolAnnotations::with_title("Submit a support ticket")
            .read_only(false)
            .destructive(false)
            .idempotent(true)
            .open_world(true),
    )
}

/// What `get_delivery_status` takes and gives.
#[must_use]
pub fn status_definition() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "ticket_id": {
                "type": "string", "minLength": 1, "maxLength": MAX_TICKET_ID_BYTES,
                "description": "The ticket_id that submit_support_ticket gave."
            }
        },
        "required": ["ticket_id"],
        "additionalProperties": false
    });
    let output = ticket_schema(&["pending", "delivered", "dead_letter", "not_found"]);
    Tool::new(
        STATUS_NAME,
        "Tells where a support ticket is, without changing anything: `pending` (accepted, and not \
         known to have arrived), `delivered` (with the help desk's own ID), `dead_letter` (given \
         up; last_error says why) or `not_found`, which proves nothing.",
        Arc::new(object(input)),
    )
    .with_raw_output_schema(Arc::new(object(output)))
    .with_annotations(
        ToolAnnotations::with_title("Status of a support ticket").read_only(true).open_world(false),
    )
}

const FIELDS: [&str; 9] = [
    "ticket_id",
    "status",
    "detail",
    "external_id",
    "attempts",
    "next_attempt_at",
    "last_error",
    "created_at",
    "updated_at",
];

fn ticket_schema(statuses: &[&str]) -> serde_json::Value {
    let text = || json!({ "type": "string" });
    let or_null = || json!({ "type": ["string", "null"] });
    let time = || json!({ "type": ["string", "null"], "format": "date-time" });
    json!({
        "type": "object",
        "properties": {
            "ticket_id": text(),
            "status": { "enum": statuses },
            "detail": text(),
            "external_id": or_null(),
            "attempts": { "type": ["integer", "null"], "minimum": 0 },
            "next_attempt_at": time(),
            "last_error": or_null(),
            "created_at": time(),
            "updated_at": time(),
            "error": error_schema(),
        },
        "oneOf": [{ "required": FIELDS }, { "required": ["error"] }],
        "additionalProperties": false
    })
}

fn object(value: serde_json::Value) -> Map<String, serde_json::Value> {
    rmcp::model::object(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tickets_id_is_its_operations_key_and_nothing_else_is_one() {
        // Promise: a ticket_id names one ticket for ever; every other text names none.
        let key = OperationKey::from_bytes([0x0a; 16]);
        let id = id_of(key);
        assert_eq!(id, format!("tkt_{}", "0a".repeat(16)));
        assert_eq!(key_of(&id), Some(key));
        for other in [
            id.to_uppercase(),
            id.replace("tkt_", ""),
            format!("{id}0"),
            id[..35].to_owned(),
            id.replace("tkt_0a", "tkt_+a"),
            "tkt_".to_owned(),
        ] {
            assert_eq!(key_of(&other), None, "{other}");
        }
    }
}
