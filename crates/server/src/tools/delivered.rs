//! The tools of connectors: each takes its declared arguments and an operation ID, puts the request
//! into the outbox, and waits for the result for a while.

use std::borrow::Cow;
use std::sync::Arc;

use counterfoil_core::delivery::Contract;
use counterfoil_core::identity::{Caller, OperationId};
use counterfoil_core::json::{Object, Value};
use counterfoil_core::observation::{Detail, ObservedState, delivery_verdict};
use counterfoil_core::refusal::Refusal;
use counterfoil_core::time::Timestamp;
use counterfoil_engine::Engine;
use counterfoil_store::outbox::DeliveryView;
use rmcp::model::{CallToolResult, ContentBlock, Tool, ToolAnnotations};
use serde_json::json;

use super::accept::accept;
use super::arguments::{self, OPERATION_ID, invalid};
use super::output_schema;
use super::reply::{Operation, finished};
use crate::connector::Connector;
use crate::handler::ClientSide;
use crate::wire::RawCall;

/// Ours, and not in use yet: a connector must not take it for an argument of its own.
const REPEAT_OF: &str = "repeat_of";

/// Answers one call.
///
/// # Errors
/// [`Refusal`] in the caller's terms.
pub async fn call(
    engine: &Arc<Engine>,
    caller: &Caller,
    raw: &RawCall,
    connector: &Connector,
    client: &ClientSide<'_>,
) -> Result<CallToolResult, Refusal> {
    let (id, arguments) = read(raw, connector)?;
    let taken = accept(engine, caller, connector, &id, &arguments, client).await?;
    let (cancelled, stop) = (client.cancellation(), client.gone());
    let view = engine.await_delivery(taken.view, connector.wait, &cancelled, stop).await;
    Ok(result(&view, taken.is_duplicate, connector))
}

/// What the tool takes and gives.
#[must_use]
pub fn definition(connector: &Connector) -> Tool {
    let contract = connector.terms.contract;
    let description = format!(
        "{}\n\nOne {OPERATION_ID} is one effect: the same call again gives its present state or its \
         result, a changed one is refused. If it is not done at once the answer says `pending`: it \
         is delivered in the background, so do not call again under another {OPERATION_ID}; ask \
         get_operation_status.{}",
        connector.description,
        if contract == Contract::AtLeastOnce { AT_LEAST_ONCE } else { "" },
    );
    let output = output_schema::of_connector(connector.output.as_deref());
    Tool::new(
        connector.tool.as_str().to_owned(),
        description,
        Arc::new(connector.arguments.published()),
    )
    .with_raw_output_schema(Arc::new(output))
    .with_annotations(
        ToolAnnotations::new()
            .read_only(false)
            .idempotent(contract != Contract::AtLeastOnce)
            .open_world(true),
    )
}

const AT_LEAST_ONCE: &str = " Contract at_least_once: after an attempt whose outcome is unknown it \
                             is sent again, so the target may do it more than once.";

fn read(raw: &RawCall, connector: &Connector) -> Result<(OperationId, Value), Refusal> {
    let tool = connector.tool.as_str();
    let empty = Object::default();
    let given = match raw.arguments() {
        None => &empty,
        Some(value) => value
            .as_object()
            .ok_or_else(|| invalid(format!("the arguments of {tool} must be a JSON object")))?,
    };
    let id = arguments::operation_id(tool, OPERATION_ID, given, raw.meta())?;
    if given.get(REPEAT_OF).is_some() {
        let words =
            format!("{tool} takes no {REPEAT_OF}; to do it again give a new {OPERATION_ID}");
        return Err(invalid(words).for_operation(&id));
    }
    let mut own = given.clone();
    own.remove(OPERATION_ID);
    Ok((id, Value::Object(own)))
}

/// What is told of a delivery: made from what is committed, and the same for a first answer and a
/// later one but for what says which it is.
fn result(view: &DeliveryView, replayed: bool, connector: &Connector) -> CallToolResult {
    let (state, detail) = delivery_verdict(&view.record, &view.delivery);
    let stored = Stored::of(view);
    let words = words(view, state, detail, &stored);
    let operation = Operation::of_delivery(view, replayed);
    let own = stored.structured.filter(|value| {
        let output = connector.output.as_ref();
        state == ObservedState::Applied && output.is_some_and(|it| it.check_plain(value).is_ok())
    });
    // A program that counts on the declared result must not take this for one.
    let is_error = state == ObservedState::NotApplied
        || (state == ObservedState::Applied && connector.output.is_some() && own.is_none());
    let structured = own.unwrap_or_else(|| {
        let item = &view.delivery;
        json!({
            "operationId": operation.id,
            "state": operation.state,
            "detail": detail.as_str(),
            "replayed": replayed,
            "contract": item.terms.contract.as_str(),
            "attempts": item.attempts_count,
            "nextAttemptAt": item.next_attempt_at.map(Timestamp::to_rfc3339),
            "lastError": last_error(view),
            "externalId": item.external_id,
            "message": words,
        })
    });
    let mut content = vec![ContentBlock::text(words)];
    if view.delivery.terms.contract == Contract::AtLeastOnce {
        content.push(ContentBlock::text(AT_LEAST_ONCE.trim_start()));
    }
    content.push(ContentBlock::text(structured.to_string()));
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(structured);
    result.is_error = Some(is_error);
    finished(result, Some(&operation))
}

/// The class of the last failure. Its words name hosts, addresses and settings of whoever runs this
/// server: they are for operators.
pub(super) fn last_error(view: &DeliveryView) -> Option<&'static str> {
    view.delivery.last_error.as_ref().map(|(class, _)| class.as_str())
}

/// A stored result, as [`ResultTemplate`](crate::connector::ResultTemplate) makes it, or words of
/// ours.
#[derive(Default)]
struct Stored {
    text: Option<String>,
    structured: Option<serde_json::Value>,
}

impl Stored {
    fn of(view: &DeliveryView) -> Self {
        let Some(result) = &view.record.result else { return Self::default() };
        let value = serde_json::from_str(result.as_json());
        match value.expect("a stored result is one JSON value") {
            serde_json::Value::String(text) => Self { text: Some(text), structured: None },
            serde_json::Value::Object(mut members) => {
                let text = members.get("text").and_then(|text| text.as_str()).map(str::to_owned);
                Self { text, structured: members.remove("structured") }
            }
            _ => Self::default(),
        }
    }
}

fn words(view: &DeliveryView, state: ObservedState, detail: Detail, stored: &Stored) -> String {
    let id = view.record.operation_id.as_str();
    let ask = "do not send it again under another operation_id; ask get_operation_status";
    let open: Cow<'_, str> = match (state, detail) {
        (ObservedState::Applied, _) => {
            let text = stored.text.clone();
            return text.unwrap_or_else(|| "done; its result is not kept any more".to_owned());
        }
        (ObservedState::NotApplied, _) => {
            let text = stored.text.as_deref().unwrap_or("ended without any effect");
            return format!("not applied: operation {id} was {text}");
        }
        (_, Detail::Queued | Detail::Leased | Detail::Sending) => {
            return format!(
                "pending: operation {id} was accepted and is delivered in the background ({}); {ask}",
                detail.as_str()
            );
        }
        (_, Detail::Parked) => match view.delivery.park {
            Some(reason) => {
                format!("held back until an operator acts ({})", reason.as_str()).into()
            }
            None => "held back until an operator acts".into(),
        },
        (_, Detail::DeadLetter) => {
            "given up for now; an operator may have it sent again, or end it".into()
        }
        (_, Detail::InDoubt) => {
            "in doubt: it may have been done, and only a look at the target settles it".into()
        }
        (_, Detail::LateContradiction) => {
            "settled as not applied, and the target said later that it did it".into()
        }
        _ => "set aside, as its record fails its own checks; an operator must look".into(),
    };
    let error = last_error(view).map(|error| format!(" (last error: {error})")).unwrap_or_default();
    format!("pending: operation {id} is {open}{error}; {ask}")
}
