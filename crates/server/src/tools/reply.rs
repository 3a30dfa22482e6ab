//! The replies of our own tools: one shape for success, refusal and observation, rendered from the
//! committed record or from the refusal and from nothing else.

use std::sync::LazyLock;

use counterfoil_core::delivery::Contract;
use counterfoil_core::observation::{Observation, ObservedState, delivery_verdict, retry_after};
use counterfoil_core::record::Resolution;
use counterfoil_core::refusal::{Refusal, Retry};
use counterfoil_engine::Settled;
use counterfoil_store::outbox::DeliveryView;
use rmcp::model::{CallToolResult, Implementation, MetaObject};
use serde_json::{Map, Value, json};

use crate::wire::meta;

/// This server, as it names itself.
#[must_use]
pub fn server_info() -> Implementation {
    Implementation::new("counterfoil", env!("CARGO_PKG_VERSION")).with_title("Counterfoil")
}

/// The `_meta` that every own result carries.
#[must_use]
pub fn own_meta() -> MetaObject {
    /// It is on every reply and never another.
    static INFO: LazyLock<Value> = LazyLock::new(|| {
        serde_json::to_value(server_info()).expect("an Implementation is plain JSON")
    });
    let mut own = MetaObject::new();
    own.0.insert(meta::SERVER_INFO.into(), INFO.clone());
    own
}

/// The result of an operation that is settled.
#[must_use]
pub fn settled(settled: &Settled) -> CallToolResult {
    let result = settled.result_json().map_or(Value::Null, |text| {
        serde_json::from_str(text).expect("a stored result is one JSON value")
    });
    let mut body = Map::new();
    body.insert("operationId".into(), settled.operation_id().as_str().into());
    body.insert("state".into(), settled.state().as_str().into());
    body.insert("replayed".into(), settled.replayed().into());
    body.insert("result".into(), result);
    if let Some(id) = settled.effect_id() {
        body.insert("effectId".into(), id.into());
    }
    let operation = Operation {
        id: settled.operation_id().as_str(),
        state: settled.state().as_str(),
        replayed: settled.replayed(),
        retry: settled.retry(),
        contract: None,
    };
    finished(CallToolResult::structured(Value::Object(body)), Some(&operation))
}

/// A refusal as a tool error: agents do not see headers, so the text says it too.
#[must_use]
pub fn refused(refusal: &Refusal) -> CallToolResult {
    let id = refusal.operation_id().map(|id| id.as_str());
    let body = json!({
        "error": {
            "code": refusal.code().as_str(),
            "message": refusal.message(),
            "operationId": id,
            "retry": refusal.retry().as_str(),
        }
    });
    let operation = id.map(|id| Operation {
        id,
        state: "unknown",
        replayed: false,
        retry: refusal.retry(),
        contract: None,
    });
    finished(CallToolResult::structured_error(body), operation.as_ref())
}

/// The account that a status call gives, with the contract of an effect that is delivered.
#[must_use]
pub fn observed(observation: &Observation, contract: Option<Contract>) -> CallToolResult {
    let body = serde_json::to_value(observation).expect("an observation is plain JSON");
    let operation = Operation {
        id: &observation.operation_id,
        state: observation.state.as_str(),
        replayed: false,
        retry: observation.retry(),
        contract,
    };
    finished(CallToolResult::structured(body), Some(&operation))
}

/// A result that concerns no single operation.
#[must_use]
pub fn listed(body: Value) -> CallToolResult {
    finished(CallToolResult::structured(body), None)
}

/// The user was asked and said no: nothing was written, and the same ID may be used again.
#[must_use]
pub fn not_accepted(operation_id: &str, action: &str) -> CallToolResult {
    let body = json!({ "operationId": operation_id, "state": "unknown", "action": action });
    let operation = Operation {
        id: operation_id,
        state: "unknown",
        replayed: false,
        retry: Retry::SameOperation,
        contract: None,
    };
    finished(CallToolResult::structured(body), Some(&operation))
}

/// What `_meta["io.counterfoil/operation"]` says.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    /// The operation.
    pub id: &'a str,
    /// The observed state.
    pub state: &'a str,
    /// Whether an earlier call made the effect.
    pub replayed: bool,
    /// What the caller may do next.
    pub retry: Retry,
    /// What makes it safe to try again, where the effect is delivered.
    pub contract: Option<Contract>,
}

impl<'a> Operation<'a> {
    /// What a delivery says of its operation. The call that saw nothing happen, and nobody else, is
    /// told that a new operation may be used.
    #[must_use]
    pub fn of_delivery(view: &'a DeliveryView, replayed: bool) -> Self {
        let (state, detail) = delivery_verdict(&view.record, &view.delivery);
        let retry = match (state, view.record.resolution) {
            (ObservedState::NotApplied, None | Some(Resolution::Proved)) if !replayed => {
                Retry::NewOperation
            }
            _ => retry_after(state, detail),
        };
        Self {
            id: view.record.operation_id.as_str(),
            state: state.as_str(),
            replayed,
            retry,
            contract: Some(view.delivery.terms.contract),
        }
    }

    /// The same for whoever only asks: that a new operation may be used, a question never grants.
    #[must_use]
    pub fn of_question(view: &'a DeliveryView) -> Self {
        Self { replayed: false, ..Self::of_delivery(view, true) }
    }
}

/// The `_meta` of a result that concerns an operation.
#[must_use]
pub fn operation_meta(operation: &Operation<'_>) -> MetaObject {
    let mut all = own_meta();
    all.extend(meta::operation_meta(
        operation.id,
        operation.state,
        operation.replayed,
        operation.retry.as_str(),
        operation.contract.map(Contract::as_str),
    ));
    all
}

/// A result with what it says of its operation, if it concerns one.
pub(super) fn finished(
    result: CallToolResult,
    operation: Option<&Operation<'_>>,
) -> CallToolResult {
    result.with_meta(Some(operation.map_or_else(own_meta, operation_meta)))
}
