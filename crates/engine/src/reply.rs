//! What goes back to the caller: made from a committed record, a refusal, or a fault of the store,
//! and from nothing else.

use counterfoil_core::identity::OperationId;
use counterfoil_core::observation::ObservedState;
use counterfoil_core::operation::State;
use counterfoil_core::record::{Record, StoredResult};
use counterfoil_core::refusal::{Code, Refusal, Retry};
use counterfoil_store::StoreError;

/// A settled operation on its way to the caller. Only a committed record makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    record: Record,
    replayed: bool,
}

impl Settled {
    pub(crate) const fn from_committed(record: Record, replayed: bool) -> Self {
        Self { record, replayed }
    }

    /// The operation.
    #[must_use]
    pub const fn operation_id(&self) -> &OperationId {
        &self.record.operation_id
    }

    /// What the caller may know of its state.
    #[must_use]
    pub const fn state(&self) -> ObservedState {
        match self.record.state {
            State::Applied => ObservedState::Applied,
            State::Partial => ObservedState::Partial,
            State::NotApplied => ObservedState::NotApplied,
            State::InProgress(_) | State::InDoubt | State::Answered => ObservedState::Unknown,
        }
    }

    /// Whether an earlier call made the effect.
    #[must_use]
    pub const fn replayed(&self) -> bool {
        self.replayed
    }

    /// The key of the row that the effect made, if it made one and it stands.
    #[must_use]
    pub fn effect_id(&self) -> Option<i64> {
        let stands = self.record.state != State::NotApplied;
        self.record.effect.as_ref().filter(|_| stands).map(|row| row.id)
    }

    /// The stored result as JSON text; `None` if there is none.
    #[must_use]
    pub fn result_json(&self) -> Option<&str> {
        self.record.result.as_ref().map(StoredResult::as_json)
    }

    /// What the caller may do next. The call that proved that nothing happened says that a new
    /// operation may be used; a replay of it never does.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self.state() {
            ObservedState::NotApplied if !self.replayed => Retry::NewOperation,
            ObservedState::Unknown => Retry::StatusOnly,
            _ => Retry::None,
        }
    }
}

/// A fault of the store in the caller's terms.
#[must_use]
pub fn refusal_from_store(error: &StoreError, operation_id: Option<&OperationId>) -> Refusal {
    let code = match error {
        StoreError::EffectFailed { refused: true, .. } => Code::InvalidArgument,
        StoreError::Quarantined { .. } => Code::OperationInDoubt,
        _ => Code::StoreUnavailable,
    };
    Refusal::new(code, error.to_string(), operation_id.cloned())
}
