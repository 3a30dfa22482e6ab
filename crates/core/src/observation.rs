//! What others see of an operation: one read-only account, made from one snapshot of the ledger.
//! Reading never writes and never grants a write.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::delivery::{self, Delivery};
use crate::direct::{self, Direct, Reply};
use crate::identity::{BackendId, Caller, OperationId};
use crate::operation::{Phase, State};
use crate::record::{Nature, Record, Resolution};
use crate::refusal::Retry;
use crate::time::Timestamp;

/// An authoritative, read-only account of one operation. Its JSON has exactly these fields.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Observation {
    /// The ID that was asked about.
    pub operation_id: String,
    /// Who asked.
    pub principal: String,
    /// The ledger that answered.
    pub backend: String,
    /// What is known of the effect.
    pub state: ObservedState,
    /// Whether this settles the question. Never true for `unknown`.
    pub authoritative: bool,
    /// Always false: an observation never grants a fresh write.
    pub fresh_write_authorized: bool,
    /// When the snapshot was read: RFC 3339 with zone.
    pub observed_at: String,
    /// What was looked at, in words.
    pub scope: String,
    /// What the account is bound to.
    pub scope_binding: ScopeBinding,
    /// The primary keys of the physical rows that the effect made.
    pub matching_ids: Vec<i64>,
    /// One word that tells apart what `state` does not.
    pub detail: Detail,
    /// The stored result, any JSON value; `null` if there is none or it was purged.
    #[serde(deserialize_with = "even_if_null")]
    pub stored_result: Option<Box<RawValue>>,
}

/// Without this a missing field would read as `null`, and an account that leaves the result out
/// would pass for one that says that there is none.
fn even_if_null<'de, D>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    Option::deserialize(deserializer)
}

/// What an observation is bound to: it speaks of nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScopeBinding {
    /// The operation.
    pub operation_id: String,
    /// Who asked.
    pub principal: String,
    /// The ledger.
    pub backend: String,
}

/// What callers see of an operation's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObservedState {
    /// The effect happened.
    Applied,
    /// A part of it happened and stays visible.
    Partial,
    /// Proved not to have happened.
    NotApplied,
    /// Absent, unfinished, in doubt, or another principal's.
    Unknown,
}

impl ObservedState {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Partial => "partial",
            Self::NotApplied => "not_applied",
            Self::Unknown => "unknown",
        }
    }
}

/// What `state` alone does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// Settled, and everything that was looked at agrees.
    Settled,
    /// Settled, and retention has taken the stored result.
    Purged,
    /// Applied; the row was changed later by somebody else.
    EffectChangedLater,
    /// Settled by an operator.
    ResolvedByOperator,
    /// Settled as not applied by an operator without proof: do not send it again.
    ResolvedWithoutProof,
    /// No record that this caller may see. That proves nothing.
    NoRecord,
    /// Begun and not finished.
    InProgress,
    /// Its first step is committed; the process that ran it has gone or is still at work.
    FirstStepCommitted,
    /// Its identity is taken, nothing was sent, and nobody is at it: the same call with the same ID
    /// goes on with it.
    NotSent,
    /// Its upstream asked for input; a part of the effect may have happened.
    AwaitingInput,
    /// Its upstream answered with an error, or with something else that does not say whether it
    /// happened. The same call with the same ID gets that answer again.
    AnsweredWithError,
    /// Accepted; its delivery waits for its turn.
    Queued,
    /// A worker has taken its delivery up and has sent nothing yet.
    Leased,
    /// A worker may be sending it now.
    Sending,
    /// Its delivery is held back until what stands against it is put right.
    Parked,
    /// Its delivery was given up; an operator may have it sent again.
    DeadLetter,
    /// Settled as not applied, and the target said later that it did it: an operator must look.
    LateContradiction,
    /// It may have happened; only a lookup or an operator settles it.
    InDoubt,
    /// The record says applied and the row that it names is gone.
    EffectMissing,
    /// The record contradicts itself and was set aside; an operator must look.
    Quarantined,
}

impl Detail {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Purged => "purged",
            Self::EffectChangedLater => "effect_changed_later",
            Self::ResolvedByOperator => "resolved_by_operator",
            Self::ResolvedWithoutProof => "resolved_without_proof",
            Self::NoRecord => "no_record",
            Self::InProgress => "in_progress",
            Self::FirstStepCommitted => "first_step_committed",
            Self::NotSent => "not_sent",
            Self::AwaitingInput => "awaiting_input",
            Self::AnsweredWithError => "answered_with_error",
            Self::Queued => "queued",
            Self::Leased => "leased",
            Self::Sending => "sending",
            Self::Parked => "parked",
            Self::DeadLetter => "dead_letter",
            Self::LateContradiction => "late_contradiction",
            Self::InDoubt => "in_doubt",
            Self::EffectMissing => "effect_missing",
            Self::Quarantined => "quarantined",
        }
    }
}

/// What the store saw of the row that the record names, in the same snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectSeen {
    /// The record names no row.
    NotLocal,
    /// The row is there as the effect left it.
    Same,
    /// The row is there and its values differ from the recorded digest.
    Changed,
    /// The row is gone.
    Missing,
}

/// What a store reads for an observation, in one snapshot.
#[derive(Debug, Clone, PartialEq)]
pub enum Snapshot {
    /// No record under this tenant and ID.
    Absent,
    /// The record and the row that it names.
    Found {
        /// The record.
        record: Box<Record>,
        /// The row.
        effect: EffectSeen,
    },
    /// A row that fails its own checks. Nothing in it is believed.
    Quarantined,
}

/// Makes the account that `caller` may see.
#[must_use]
pub fn observe(
    caller: &Caller,
    operation_id: &OperationId,
    backend: &BackendId,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Observation {
    let seen = match snapshot {
        Snapshot::Found { record, effect }
            if record.principal == caller.principal && record.operation_id == *operation_id =>
        {
            Seen::of(verdict(record, *effect), record, *effect)
        }
        // Another principal's operation looks exactly like none at all, and so does a damaged one:
        // whose it is cannot be believed.
        Snapshot::Found { .. } | Snapshot::Absent | Snapshot::Quarantined => {
            Seen::unknown(Detail::NoRecord)
        }
    };
    let scope = "the ledger's record of this operation for this principal, the row that it names, \
                 and its stored result, read in one snapshot";
    seen.told(caller, operation_id, backend, scope, now)
}

/// The same for an operation whose effect is delivered: `item` is its delivery, read in one snapshot
/// with the record. Applied rests on the outcome that an attempt, a search or an operator brought.
#[must_use]
pub fn observe_delivery(
    caller: &Caller,
    operation_id: &OperationId,
    backend: &BackendId,
    (record, item): (&Record, &Delivery),
    now: Timestamp,
) -> Observation {
    let is_own = record.principal == caller.principal
        && record.tenant == caller.tenant
        && record.operation_id == *operation_id;
    if !is_own {
        return observe(caller, operation_id, backend, &Snapshot::Absent, now);
    }
    let seen = Seen::of(delivery_verdict(record, item), record, EffectSeen::NotLocal);
    let scope = "the ledger's record of this operation for this principal, its delivery, and its \
                 stored result, read in one snapshot";
    seen.told(caller, operation_id, backend, scope, now)
}

/// What record and delivery together prove, for the operation's own principal.
#[must_use]
pub fn delivery_verdict(record: &Record, item: &Delivery) -> (ObservedState, Detail) {
    use delivery::State as At;
    let detail = match (record.state, item.state) {
        (State::Applied, At::Delivered) => return verdict(record, EffectSeen::NotLocal),
        // The target has the last word on what it did. What was told before was the best that was
        // known; to go on saying `not_applied` would invite a second effect.
        (State::NotApplied, At::Cancelled) if item.late_contradiction => Detail::LateContradiction,
        (State::NotApplied, At::Cancelled) => return verdict(record, EffectSeen::NotLocal),
        (State::InDoubt, At::InDoubt) => Detail::InDoubt,
        (State::InProgress(Phase::Queued), at) => match at {
            At::Queued => Detail::Queued,
            At::Leased => Detail::Leased,
            At::Sending => Detail::Sending,
            At::Parked => Detail::Parked,
            At::DeadLetter => Detail::DeadLetter,
            At::Delivered | At::InDoubt | At::Cancelled => Detail::Quarantined,
        },
        _ => Detail::Quarantined,
    };
    (ObservedState::Unknown, detail)
}

/// The same for an operation that was sent while its caller waited: `item` and the upstream's `reply`
/// were read in one snapshot with the record. Applied rests on an answer, a look at the upstream, or
/// an operator.
#[must_use]
pub fn observe_direct(
    caller: &Caller,
    operation_id: &OperationId,
    backend: &BackendId,
    (record, item, reply): (&Record, &Direct, Option<&Reply>),
    now: Timestamp,
) -> Observation {
    let is_own = record.principal == caller.principal
        && record.tenant == caller.tenant
        && record.operation_id == *operation_id;
    if !is_own {
        return observe(caller, operation_id, backend, &Snapshot::Absent, now);
    }
    let mut seen = Seen::of(direct_verdict(record, item), record, EffectSeen::NotLocal);
    let is_left = record.owner.is_some_and(|owner| now >= owner.lease_until);
    if record.state == State::InProgress(Phase::Claimed) && is_left {
        seen.detail = Detail::NotSent;
    }
    if seen.state != ObservedState::Unknown && seen.stored_result.is_none() {
        seen.stored_result = reply.and_then(|reply| {
            let text = std::str::from_utf8(&reply.json).ok()?;
            RawValue::from_string(text.to_owned()).ok()
        });
    }
    let scope = "the ledger's record of this operation for this principal, its requests to the \
                 upstream, and its stored result, read in one snapshot";
    seen.told(caller, operation_id, backend, scope, now)
}

/// What a record and what stands beside it prove of a direct operation, for its own principal.
#[must_use]
pub fn direct_verdict(record: &Record, item: &Direct) -> (ObservedState, Detail) {
    if direct::late_contradiction(record, item) {
        // The upstream has the last word on what it did.
        return (ObservedState::Unknown, Detail::LateContradiction);
    }
    verdict(record, EffectSeen::NotLocal)
}

struct Seen {
    state: ObservedState,
    detail: Detail,
    matching_ids: Vec<i64>,
    stored_result: Option<Box<RawValue>>,
}

impl Seen {
    const fn unknown(detail: Detail) -> Self {
        Self {
            state: ObservedState::Unknown,
            detail,
            matching_ids: Vec::new(),
            stored_result: None,
        }
    }

    fn of((state, detail): (ObservedState, Detail), record: &Record, effect: EffectSeen) -> Self {
        if state == ObservedState::Unknown {
            return Self::unknown(detail);
        }
        let stored_result = record.result.as_ref().map(|result| {
            RawValue::from_string(result.as_json().to_owned())
                .expect("StoredResult holds one JSON value; from_json checked it")
        });
        let happened = state != ObservedState::NotApplied;
        let matching_ids = match (&record.effect, effect) {
            (Some(row), EffectSeen::Same | EffectSeen::Changed) if happened => vec![row.id],
            _ => Vec::new(),
        };
        Self { state, detail, matching_ids, stored_result }
    }

    fn told(
        self,
        caller: &Caller,
        operation_id: &OperationId,
        backend: &BackendId,
        scope: &str,
        now: Timestamp,
    ) -> Observation {
        let binding = ScopeBinding {
            operation_id: operation_id.to_string(),
            principal: caller.principal.to_string(),
            backend: backend.to_string(),
        };
        Observation {
            operation_id: binding.operation_id.clone(),
            principal: binding.principal.clone(),
            backend: binding.backend.clone(),
            state: self.state,
            authoritative: self.state != ObservedState::Unknown,
            fresh_write_authorized: false,
            observed_at: now.to_rfc3339(),
            scope: scope.into(),
            scope_binding: binding,
            matching_ids: self.matching_ids,
            detail: self.detail,
            stored_result: self.stored_result,
        }
    }
}

/// What record and row together prove, for the operation's own principal.
pub(crate) fn verdict(record: &Record, effect: EffectSeen) -> (ObservedState, Detail) {
    let unknown = |detail| (ObservedState::Unknown, detail);
    let state = match record.state {
        State::InProgress(Phase::FirstCommit) => return unknown(Detail::FirstStepCommitted),
        State::InProgress(Phase::AwaitingInput) => return unknown(Detail::AwaitingInput),
        State::InProgress(_) => return unknown(Detail::InProgress),
        State::InDoubt => return unknown(Detail::InDoubt),
        State::Answered => return unknown(Detail::AnsweredWithError),
        State::Applied => ObservedState::Applied,
        State::Partial => ObservedState::Partial,
        State::NotApplied => ObservedState::NotApplied,
    };
    let happened = state != ObservedState::NotApplied;
    if happened && effect == EffectSeen::Missing {
        return unknown(Detail::EffectMissing);
    }
    if record.result.is_none() && !record.purged && record.nature != Nature::Direct {
        // Settled rows have a result until retention takes it: this one contradicts itself.
        return unknown(Detail::Quarantined);
    }
    let detail = match (record.purged, effect, record.resolution) {
        (true, _, _) => Detail::Purged,
        (_, EffectSeen::Changed, _) if happened => Detail::EffectChangedLater,
        (_, _, Some(Resolution::Unproved)) => Detail::ResolvedWithoutProof,
        (_, _, Some(Resolution::Proved)) => Detail::ResolvedByOperator,
        _ => Detail::Settled,
    };
    (state, detail)
}

/// What may be done next after an account of that state and detail. Never `new_operation`.
#[must_use]
pub const fn retry_after(state: ObservedState, detail: Detail) -> Retry {
    match (state, detail) {
        (ObservedState::Unknown, Detail::NotSent) => Retry::SameOperation,
        // Nothing waits for it: there is neither more to ask nor anything to send again.
        (ObservedState::Unknown, Detail::AnsweredWithError) => Retry::None,
        (ObservedState::Unknown, _) | (_, Detail::ResolvedWithoutProof) => Retry::StatusOnly,
        _ => Retry::None,
    }
}

/// Whether the record says that its effect happened and the row that it names is gone. Then the
/// record is not believed: the status is `unknown`, and nothing is replayed.
#[must_use]
pub fn row_is_missing(record: &Record, effect: EffectSeen) -> bool {
    matches!(record.state, State::Applied | State::Partial) && effect == EffectSeen::Missing
}

impl Observation {
    /// What the caller may do next. An observation never says `new_operation`.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        retry_after(self.state, self.detail)
    }
}

#[cfg(test)]
#[path = "observation_tests.rs"]
mod tests;
