//! The one way of a call into the outbox, for every tool whose effect is delivered by a connector.

use std::sync::Arc;

use counterfoil_core::admission::{Authority, Call};
use counterfoil_core::delivery::TargetIdentity;
use counterfoil_core::fingerprint::Profile;
use counterfoil_core::identity::{Caller, OperationId};
use counterfoil_core::json::Value;
use counterfoil_core::refusal::{Code, Refusal};
use counterfoil_engine::Engine;
use counterfoil_store::outbox::{Acceptance, Accepted, DeliveryView};

use super::arguments::invalid;
use crate::connector::{Connector, FreezeError};
use crate::handler::ClientSide;

/// A call that is in the outbox.
#[derive(Debug)]
pub struct Taken {
    /// Its delivery as it is now.
    pub view: DeliveryView,
    /// Whether an earlier call put it there.
    pub is_duplicate: bool,
}

/// Takes a call in. `arguments` are those of the connector's schema, without the operation ID.
///
/// # Errors
/// [`Refusal`] if the arguments make no request, the ID is bound to another request, or the ledger
/// cannot commit.
pub async fn accept(
    engine: &Arc<Engine>,
    caller: &Caller,
    connector: &Connector,
    id: &OperationId,
    arguments: &Value,
    client: &ClientSide<'_>,
) -> Result<Taken, Refusal> {
    let admitted = engine.admit(&Call {
        caller,
        tool_id: &connector.tool,
        tool_version: &connector.version,
        profile: Profile::JcsV1,
        operation_id: id,
        arguments,
        call_arguments: arguments,
        continuation_state: None,
        input_responses: None,
        authority: Authority::Present,
    })?;
    let identity =
        TargetIdentity { backend: engine.backend_id(), tenant: &caller.tenant, operation: id };
    let request = match connector.freeze(arguments, identity, engine.keys()) {
        Ok(frozen) => frozen.encode().into(),
        Err(error) => {
            // The connector may have changed since this very call was accepted: to say now that
            // nothing was done would invite a second effect.
            let refusal = not_frozen(connector, &error, id);
            return match engine.accepted_before(&admitted).await {
                Ok(Some(view)) => Ok(Taken { view, is_duplicate: true }),
                Err(other) if other.code() != Code::OperationConflict => Err(other),
                Ok(None) | Err(_) => Err(refusal),
            };
        }
    };
    if client.is_cancelled() {
        // The reply is dropped.
        return Err(invalid("the call was cancelled before anything was done").for_operation(id));
    }
    let (target, terms) = (connector.name.clone(), connector.terms);
    let acceptance = Acceptance { admitted, target, terms, request };
    match engine.accept_cancellable(acceptance, client.cancellation()).await? {
        Accepted::Fresh(view) => Ok(Taken { view: *view, is_duplicate: false }),
        Accepted::Duplicate(view) => Ok(Taken { view: *view, is_duplicate: true }),
        Accepted::Refused(refusal) => Err(refusal),
    }
}

fn not_frozen(connector: &Connector, error: &FreezeError, id: &OperationId) -> Refusal {
    let code = if error.is_too_large() { Code::TooLarge } else { Code::InvalidArgument };
    Refusal::new(code, format!("{}: {error}; nothing was done", connector.tool), Some(id.clone()))
}
