//! What a client may conclude. After a lost reply it knows nothing, and only an observation that
//! agrees with itself in every part changes that. Nothing here leads to a fresh write.

use crate::identity::{BackendId, OperationId, Principal};
use crate::observation::{Detail, Observation, ObservedState};
use crate::time::Timestamp;

/// What a client knows of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submission {
    /// It was refused before anything could happen.
    NotAdmitted,
    /// The server has it.
    Admitted,
    /// It was sent, and no reply came.
    Unknown,
}

impl Submission {
    /// The word in what is printed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAdmitted => "not_admitted",
            Self::Admitted => "admitted",
            Self::Unknown => "unknown",
        }
    }
}

/// What a client knows of the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Proved not to have happened.
    NotApplied,
    /// It happened.
    Applied,
    /// A part of it happened.
    Partial,
    /// Nobody said.
    Unknown,
}

impl Effect {
    /// The word in what is printed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotApplied => "not_applied",
            Self::Applied => "applied",
            Self::Partial => "partial",
            Self::Unknown => "unknown",
        }
    }
}

/// What a client does next. There is deliberately no action that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Ask for the status.
    Reconcile,
    /// Give the stored result to whoever asked for the effect.
    ReturnStoredResult,
    /// Nothing more can be learned here; a person decides.
    Stop,
}

impl Action {
    /// The word in what is printed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reconcile => "reconcile",
            Self::ReturnStoredResult => "return_stored_result",
            Self::Stop => "stop",
        }
    }
}

/// Both axes, and what follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Belief {
    /// What is known of the request.
    pub submission: Submission,
    /// What is known of the effect.
    pub effect: Effect,
    /// What to do.
    pub action: Action,
}

/// The belief after a request was sent and no reply, or any error on a continuation, came back.
#[must_use]
pub const fn after_transport_failure() -> Belief {
    Belief { submission: Submission::Unknown, effect: Effect::Unknown, action: Action::Reconcile }
}

/// What the client knows before it asks.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The operation it saved before it sent.
    pub operation_id: OperationId,
    /// Its own principal, if it knows it.
    pub principal: Option<Principal>,
    /// The ledger it talks to, if it knows it.
    pub backend: Option<BackendId>,
}

/// Why an observation was not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the observation is not believed: {reason}")]
pub struct NotBelieved {
    reason: String,
}

/// Judges an observation. One that is believed settles the effect, or says that it stays unknown.
///
/// # Errors
/// [`NotBelieved`] if identity, scope binding, authority, time zone, effect IDs or stored result
/// do not agree. The effect then stays unknown and the only action is to stop.
pub fn accept(expected: &Expected, seen: &Observation) -> Result<Belief, NotBelieved> {
    check_identity(expected, seen)?;
    ensure(!seen.fresh_write_authorized, || {
        "freshWriteAuthorized is true, and no observation can grant a write".into()
    })?;
    Timestamp::parse_rfc3339(&seen.observed_at)
        .map_err(|error| NotBelieved { reason: format!("observedAt: {error}") })?;
    let settled = seen.state != ObservedState::Unknown;
    ensure(seen.authoritative == settled, || {
        format!("authoritative is {} for the state {}", seen.authoritative, seen.state.as_str())
    })?;
    check_detail(seen, settled)?;
    check_effect(seen)?;
    let (submission, effect, action) = match seen.state {
        ObservedState::Applied if seen.stored_result.is_some() => {
            (Submission::Admitted, Effect::Applied, Action::ReturnStoredResult)
        }
        ObservedState::Applied => (Submission::Admitted, Effect::Applied, Action::Stop),
        ObservedState::Partial => (Submission::Admitted, Effect::Partial, Action::Stop),
        ObservedState::NotApplied => (Submission::Admitted, Effect::NotApplied, Action::Stop),
        ObservedState::Unknown => (Submission::Unknown, Effect::Unknown, Action::Stop),
    };
    Ok(Belief { submission, effect, action })
}

fn check_identity(expected: &Expected, seen: &Observation) -> Result<(), NotBelieved> {
    let binding = &seen.scope_binding;
    let known = |name: Option<&str>, seen: &str| name.is_none_or(|name| name == seen);
    ensure(seen.operation_id == expected.operation_id.as_str(), || {
        "operationId is not the operation that was asked about".into()
    })?;
    ensure(known(expected.principal.as_ref().map(Principal::as_str), &seen.principal), || {
        "principal is not the one that asked".into()
    })?;
    ensure(known(expected.backend.as_ref().map(BackendId::as_str), &seen.backend), || {
        "backend is not the ledger that was asked".into()
    })?;
    ensure(
        binding.operation_id == seen.operation_id
            && binding.principal == seen.principal
            && binding.backend == seen.backend,
        || "scopeBinding differs from operationId, principal or backend".into(),
    )
}

fn check_detail(seen: &Observation, settled: bool) -> Result<(), NotBelieved> {
    let says_settled = match seen.detail {
        Detail::Settled
        | Detail::Purged
        | Detail::EffectChangedLater
        | Detail::ResolvedByOperator
        | Detail::ResolvedWithoutProof => true,
        Detail::NoRecord
        | Detail::InProgress
        | Detail::FirstStepCommitted
        | Detail::Queued
        | Detail::Leased
        | Detail::Sending
        | Detail::Parked
        | Detail::DeadLetter
        | Detail::LateContradiction
        | Detail::InDoubt
        | Detail::EffectMissing
        | Detail::NotSent
        | Detail::AwaitingInput
        | Detail::AnsweredWithError
        | Detail::Quarantined => false,
    };
    ensure(says_settled == settled, || {
        format!(
            "the detail {} cannot go with the state {}",
            seen.detail.as_str(),
            seen.state.as_str()
        )
    })?;
    ensure(seen.detail != Detail::Purged || seen.stored_result.is_none(), || {
        "the stored result is there, and yet it is said to be purged".into()
    })
}

fn check_effect(seen: &Observation) -> Result<(), NotBelieved> {
    let ids = &seen.matching_ids;
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    sorted.dedup();
    ensure(sorted.len() == ids.len(), || "matchingIds names a row twice".into())?;
    ensure(ids.len() <= 1, || format!("matchingIds names {} rows for one operation", ids.len()))?;
    match seen.state {
        ObservedState::Unknown => ensure(ids.is_empty() && seen.stored_result.is_none(), || {
            "the state is unknown, and yet rows or a result are claimed".into()
        }),
        ObservedState::NotApplied => ensure(ids.is_empty(), || {
            "the state is not_applied, and yet a row of the effect is claimed".into()
        }),
        ObservedState::Applied | ObservedState::Partial => {
            let Some(result) = &seen.stored_result else {
                return ensure(seen.detail == Detail::Purged, || {
                    "there is no stored result, and it was not purged".into()
                });
            };
            let named = effect_id_in(result.get());
            ensure(named.is_none_or(|id| ids.as_slice() == [id]), || {
                "the stored result names another row than matchingIds".into()
            })
        }
    }
}

/// The row that a stored result names: the text `created N…`, or an object's integer `effectId`.
fn effect_id_in(result: &str) -> Option<i64> {
    let value: serde_json::Value = serde_json::from_str(result).ok()?;
    if let Some(id) = value.get("effectId") {
        return id.as_i64();
    }
    let rest = value.as_str()?.strip_prefix("created ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn ensure(holds: bool, reason: impl FnOnce() -> String) -> Result<(), NotBelieved> {
    if holds { Ok(()) } else { Err(NotBelieved { reason: reason() }) }
}

#[cfg(test)]
#[path = "consumer_tests.rs"]
mod tests;
