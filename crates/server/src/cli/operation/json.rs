//! An operation as JSON: the names of an observation's fields where both tell the same.

use counterfoil_core::delivery::Delivery;
use counterfoil_core::observation::{Detail, EffectSeen, Observation, ObservedState};
use counterfoil_core::operation::{Phase, State};
use counterfoil_core::record::{Owner, Record, Resolution};
use counterfoil_core::refusal::Retry;
use counterfoil_core::time::Timestamp;
use counterfoil_store::AuditEvent;
use counterfoil_store::outbox::DeliveryView;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::cli::audit::EventJson;
use crate::cli::table::hex;
use crate::cli::ticket::ticket_id;

/// What `operation show --json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OperationJson<'a> {
    operation_id: &'a str,
    found: bool,
    state: &'static str,
    phase: Option<&'static str>,
    callers_see: CallersSee,
    tenant: &'a str,
    principal: &'a str,
    backend: &'a str,
    tool: Tool<'a>,
    fingerprint: FingerprintMade,
    created_at: String,
    authority_ends_at: Option<String>,
    settled_at: Option<String>,
    retention_ends_at: Option<String>,
    owner: Option<OwnerJson>,
    resolution: Option<&'static str>,
    effect: Option<Effect<'a>>,
    /// Of an operation that is delivered later.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<DeliveryJson<'a>>,
    result: ResultJson<'a>,
    audit: Vec<EventJson<'a>>,
}

#[derive(Debug, Serialize)]
struct CallersSee {
    state: ObservedState,
    detail: Detail,
    retry: Retry,
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    id: &'a str,
    version: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FingerprintMade {
    profile: &'static str,
    key_id: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OwnerJson {
    boot: String,
    fence: i64,
    lease_until: String,
}

#[derive(Debug, Serialize)]
struct Effect<'a> {
    table: &'a str,
    id: i64,
    seen: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeliveryJson<'a> {
    ticket_id: String,
    state: &'static str,
    target: &'a str,
    attempts: u32,
    attempt_limit: u32,
}

impl<'a> From<&'a Delivery> for DeliveryJson<'a> {
    fn from(item: &'a Delivery) -> Self {
        Self {
            ticket_id: ticket_id(item.key),
            state: item.state.as_str(),
            target: item.target.as_str(),
            attempts: item.attempts_count,
            attempt_limit: item.attempt_limit,
        }
    }
}

#[derive(Debug, Serialize)]
struct ResultJson<'a> {
    bytes: Option<usize>,
    purged: bool,
    /// The stored text itself, so that no number in it is read and written anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
}

impl<'a> OperationJson<'a> {
    pub(super) fn new(
        record: &'a Record,
        effect: EffectSeen,
        told: &'a Observation,
        audit: &'a [AuditEvent],
        show_result: bool,
    ) -> Self {
        let time = |at: Option<Timestamp>| at.map(Timestamp::to_rfc3339);
        Self {
            operation_id: record.operation_id.as_str(),
            found: true,
            state: record.state.as_str(),
            phase: phase_word(record.state),
            callers_see: CallersSee { state: told.state, detail: told.detail, retry: told.retry() },
            tenant: record.tenant.as_str(),
            principal: record.principal.as_str(),
            backend: &told.backend,
            tool: Tool { id: record.tool_id.as_str(), version: record.tool_version.as_str() },
            fingerprint: FingerprintMade {
                profile: record.binding.profile.as_str(),
                key_id: record.binding.key_id.0,
            },
            created_at: record.created_at.to_rfc3339(),
            authority_ends_at: time(record.authority_ends_at),
            settled_at: time(record.settled_at),
            retention_ends_at: time(record.retention_ends_at),
            owner: record.owner.as_ref().map(OwnerJson::from),
            resolution: record.resolution.map(resolution_word),
            effect: record.effect.as_ref().map(|row| Effect {
                table: &row.table,
                id: row.id,
                seen: seen_word(effect),
            }),
            delivery: None,
            result: ResultJson::new(record, show_result),
            audit: audit.iter().map(EventJson::from).collect(),
        }
    }

    pub(super) fn with_delivery(self, view: Option<&'a DeliveryView>) -> Self {
        Self { delivery: view.map(|view| DeliveryJson::from(&view.delivery)), ..self }
    }
}

impl<'a> ResultJson<'a> {
    fn new(record: &'a Record, show_result: bool) -> Self {
        let text = record.result.as_ref().map(|result| result.as_json());
        let raw = |text: &'a str| {
            serde_json::from_str(text).expect("a stored result holds one JSON value")
        };
        Self {
            bytes: text.map(str::len),
            purged: record.purged,
            value: text.filter(|_| show_result).map(raw),
        }
    }
}

impl From<&Owner> for OwnerJson {
    fn from(owner: &Owner) -> Self {
        Self {
            boot: hex(owner.boot.as_bytes()),
            fence: owner.fence,
            lease_until: owner.lease_until.to_rfc3339(),
        }
    }
}

const fn phase_word(state: State) -> Option<&'static str> {
    match state {
        State::InProgress(Phase::Claimed) => Some("claimed"),
        State::InProgress(Phase::Dispatched) => Some("dispatched"),
        State::InProgress(Phase::FirstCommit) => Some("first_commit"),
        State::InProgress(Phase::Queued) => Some("queued"),
        State::InProgress(Phase::AwaitingInput) => Some("awaiting_input"),
        State::Applied | State::Partial | State::NotApplied | State::InDoubt | State::Answered => {
            None
        }
    }
}

const fn resolution_word(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::Proved => "proved",
        Resolution::Unproved => "unproved",
    }
}

const fn seen_word(effect: EffectSeen) -> &'static str {
    match effect {
        EffectSeen::NotLocal => "not_local",
        EffectSeen::Same => "same",
        EffectSeen::Changed => "changed",
        EffectSeen::Missing => "missing",
    }
}
