//! One operation as a person reads it, and the same as JSON.

use counterfoil_core::identity::{BackendId, Caller};
use counterfoil_core::observation::{EffectSeen, Observation, Snapshot, observe};
use counterfoil_core::operation::{Phase, State};
use counterfoil_core::record::{Nature, Record, Resolution};
use counterfoil_core::time::Timestamp;
use counterfoil_store::AuditEvent;
use counterfoil_store::outbox::DeliveryView;

use super::json::OperationJson;
use crate::cli::audit::trail_text;
use crate::cli::table::{fields, hex};
use crate::cli::ticket::ticket_id;

/// What `operation show` tells.
#[derive(Debug)]
pub(super) struct Report<'a> {
    backend: &'a BackendId,
    record: &'a Record,
    effect: EffectSeen,
    /// What the operation's own principal is told.
    told: Observation,
    audit: &'a [AuditEvent],
    /// Its item, if it is delivered later.
    delivery: Option<&'a DeliveryView>,
}

impl<'a> Report<'a> {
    /// `record` is the one inside `snapshot`.
    pub(super) fn new(
        backend: &'a BackendId,
        snapshot: &Snapshot,
        record: &'a Record,
        audit: &'a [AuditEvent],
        now: Timestamp,
    ) -> Self {
        let caller = Caller { tenant: record.tenant.clone(), principal: record.principal.clone() };
        let effect = match snapshot {
            Snapshot::Found { effect, .. } => *effect,
            Snapshot::Absent | Snapshot::Quarantined => EffectSeen::NotLocal,
        };
        let told = observe(&caller, &record.operation_id, backend, snapshot, now);
        Self { backend, record, effect, told, audit, delivery: None }
    }

    /// With the item of an operation that is delivered later.
    pub(super) fn with_delivery(self, delivery: Option<&'a DeliveryView>) -> Self {
        Self { delivery, ..self }
    }

    /// Lines of names and values, and below them the audit trail.
    pub(super) fn to_text(&self, show_result: bool) -> String {
        let record = self.record;
        let mut lines = vec![
            ("operation", record.operation_id.to_string()),
            ("state", state_words(record.state)),
            (
                "callers see",
                format!(
                    "{} ({}), retry {}",
                    self.told.state.as_str(),
                    self.told.detail.as_str(),
                    self.told.retry().as_str()
                ),
            ),
            ("tenant", record.tenant.to_string()),
            ("principal", record.principal.to_string()),
            ("ledger", self.backend.to_string()),
            ("tool", format!("{}, version {}", record.tool_id, record.tool_version)),
            (
                "fingerprint",
                format!("{}, key {}", record.binding.profile.as_str(), record.binding.key_id),
            ),
            ("created", record.created_at.to_rfc3339()),
        ];
        let mut time = |name, at: Option<Timestamp>| {
            if let Some(at) = at {
                lines.push((name, at.to_rfc3339()));
            }
        };
        time("may write until", record.authority_ends_at);
        time("settled", record.settled_at);
        time("replay until", record.retention_ends_at);
        if let Some(owner) = &record.owner {
            lines.push((
                "owner",
                format!(
                    "boot {}, fence {}, lease until {}",
                    hex(owner.boot.as_bytes()),
                    owner.fence,
                    owner.lease_until.to_rfc3339()
                ),
            ));
        }
        if let Some(resolution) = record.resolution {
            lines.push(("resolved", resolution_words(resolution).into()));
        }
        match self.delivery {
            Some(view) => lines.push(("delivery", delivery_words(view))),
            None => lines.push(("effect", self.effect_words())),
        }
        lines.push(("result", self.result_words(show_result)));
        let mut text = fields(&lines);
        self.write_audit(&mut text);
        text.truncate(text.trim_end().len());
        text
    }

    /// The same for programs.
    pub(super) fn to_json(&self, show_result: bool) -> OperationJson<'_> {
        let json =
            OperationJson::new(self.record, self.effect, &self.told, self.audit, show_result);
        json.with_delivery(self.delivery)
    }

    fn effect_words(&self) -> String {
        let Some(row) = &self.record.effect else { return "no row of the ledger's".into() };
        let seen = match self.effect {
            EffectSeen::Same => "is there as the effect left it",
            EffectSeen::Changed => "is there and was changed later",
            EffectSeen::Missing => "is gone",
            EffectSeen::NotLocal => "was not looked at",
        };
        format!("row {} of {} {seen}", row.id, row.table)
    }

    fn result_words(&self, show_result: bool) -> String {
        match &self.record.result {
            Some(result) if show_result => result.as_json().to_owned(),
            Some(result) => format!("{} bytes (shown with --show-result)", result.as_json().len()),
            None if self.record.purged => "purged by retention".into(),
            None if self.record.nature == Nature::Direct && self.record.state.ages() => {
                "the server's own answer; the same call with the same ID gets it".into()
            }
            None => "none yet".into(),
        }
    }

    fn write_audit(&self, text: &mut String) {
        if self.audit.is_empty() {
            return;
        }
        text.push_str("\naudit trail\n");
        text.push_str(&trail_text(self.audit, &self.record.operation_id));
    }
}

fn state_words(state: State) -> String {
    let more = match state {
        State::InProgress(Phase::Claimed) => " (begun, nothing sent)",
        State::InProgress(Phase::Dispatched) => " (sent, no outcome yet)",
        State::InProgress(Phase::FirstCommit) => " (the first of its steps is committed)",
        State::InProgress(Phase::Queued) => " (in the outbox; see `counterfoil delivery show`)",
        State::InProgress(Phase::AwaitingInput) => " (its server asked for input)",
        State::InDoubt => " (it may have taken effect)",
        State::Answered => " (its server answered with an error; it may have taken effect)",
        State::Applied | State::Partial | State::NotApplied => "",
    };
    format!("{}{more}", state.as_str())
}

const fn resolution_words(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::Proved => "by an operator",
        Resolution::Unproved => "by an operator, without proof that no sender was alive",
    }
}

/// One line; `delivery show` has the rest.
fn delivery_words(view: &DeliveryView) -> String {
    let item = &view.delivery;
    format!(
        "{}, {} of {} attempts, to {}; `counterfoil delivery show {}`",
        item.state.as_str(),
        item.attempts_count,
        item.attempt_limit,
        item.target,
        ticket_id(item.key)
    )
}
