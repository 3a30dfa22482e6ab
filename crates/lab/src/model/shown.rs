//! What a status tells, and what a client may conclude from it: both by the product's own rules.

use counterfoil_core::consumer::{self, Action, Effect};
use counterfoil_core::identity::{Caller, OperationId};
use counterfoil_core::observation::{Detail, Observation, ObservedState};
use counterfoil_core::refusal::Retry;

use super::world::backend;

/// A status, cut to what can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Shown {
    pub(super) state: ObservedState,
    pub(super) detail: Detail,
    /// Whether it lets anybody write: by its flag, or by what it says about trying again.
    pub(super) grants: bool,
    /// Whether the client believes it; what is not believed leaves the effect unknown.
    pub(super) believed: bool,
    /// Whether the client gives a stored result to whoever asked for the effect.
    pub(super) returns_result: bool,
}

impl Shown {
    /// Of an account, as the caller's client judges it.
    pub(super) fn of(seen: &Observation, caller: &Caller, id: &OperationId) -> Self {
        let expected = consumer::Expected {
            operation_id: id.clone(),
            principal: Some(caller.principal.clone()),
            backend: Some(backend()),
        };
        let belief = consumer::accept(&expected, seen);
        let told = match seen.state {
            ObservedState::Applied => Effect::Applied,
            ObservedState::Partial => Effect::Partial,
            ObservedState::NotApplied => Effect::NotApplied,
            ObservedState::Unknown => Effect::Unknown,
        };
        let retry = seen.retry();
        Self {
            state: seen.state,
            detail: seen.detail,
            grants: seen.fresh_write_authorized
                || matches!(retry, Retry::NewOperation | Retry::SameOperation),
            believed: belief.as_ref().is_ok_and(|belief| belief.effect == told),
            returns_result: belief
                .as_ref()
                .is_ok_and(|belief| belief.action == Action::ReturnStoredResult),
        }
    }
}
