//! One delivery as a person reads it, and the same as JSON.

use std::fmt::Write as _;

use counterfoil_core::delivery::{Contract, Delivery, ErrorClass, State, TargetState, Terms};
use counterfoil_core::identity::{BackendId, Caller};
use counterfoil_core::observation::{EffectSeen, Observation, Snapshot, observe};
use counterfoil_core::time::Timestamp;
use counterfoil_store::outbox::DeliveryView;
use serde_json::{Value, json};

use super::predict::{by_itself, choices};
use super::{list, request};
use crate::cli::table::fields;
use crate::cli::ticket::ticket_id;
use crate::config::span_text;
use crate::output::printable;

/// What `delivery show` tells.
#[derive(Debug)]
pub(super) struct Report<'a> {
    backend: &'a BackendId,
    view: &'a DeliveryView,
    /// What the operation's own principal is told.
    told: Observation,
    now: Timestamp,
}

impl<'a> Report<'a> {
    /// At `now` of the ledger.
    pub(super) fn new(backend: &'a BackendId, view: &'a DeliveryView, now: Timestamp) -> Self {
        let record = &view.record;
        let caller = Caller { tenant: record.tenant.clone(), principal: record.principal.clone() };
        let effect = EffectSeen::NotLocal;
        let snapshot = Snapshot::Found { record: Box::new(record.clone()), effect };
        let told = observe(&caller, &record.operation_id, backend, &snapshot, now);
        Self { backend, view, told, now }
    }

    /// Lines of names and values, and below them what may be done.
    pub(super) fn to_text(&self, wants_request: bool, request: Option<&[u8]>) -> String {
        let mut text = fields(&self.lines());
        if wants_request {
            let shown = request.map_or_else(|| "purged by retention".into(), request::lines);
            let _ = write!(text, "\nrequest, as it was frozen\n{}\n", indented(&shown));
        }
        text.push_str("\nwhat may be done now\n");
        let _ = writeln!(text, "  by itself  {}", set_below(&by_itself(self.view, self.now)));
        for choice in choices(self.view, self.now) {
            let may = if choice.is_allowed { "yes: " } else { "no: " };
            let words = format!("{may}{}", choice.words);
            let _ = writeln!(text, "  {:<9}  {}", choice.action, set_below(&words));
        }
        text.truncate(text.trim_end().len());
        text
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let (item, record, told) = (&self.view.delivery, &self.view.record, &self.told);
        let mut lines = vec![
            ("ticket", ticket_id(item.key)),
            ("operation", record.operation_id.to_string()),
            ("state", state_words(item)),
            (
                "callers see",
                format!(
                    "{} ({}), retry {}",
                    told.state.as_str(),
                    told.detail.as_str(),
                    told.retry().as_str()
                ),
            ),
            ("tenant", record.tenant.to_string()),
            ("principal", record.principal.to_string()),
            ("ledger", self.backend.to_string()),
            ("tool", format!("{}, version {}", record.tool_id, record.tool_version)),
            ("target", format!("{}, {}", item.target, target_words(&self.view.target))),
            ("attempts", attempts_words(item)),
        ];
        if item.terms.contract.has_lookup() {
            let count = item.lookups_count;
            lines.push(("searches", format!("{count} since the last attempt")));
        }
        let mut time = |name, at: Option<Timestamp>| {
            lines.extend(at.map(|at| (name, at.to_rfc3339())));
        };
        time("next attempt", item.next_attempt_at);
        time("held until", item.lease.map(|lease| lease.until));
        time("first attempt", item.first_dispatch_at);
        time("deliver by", item.deliver_by);
        if let Some((class, words)) = &item.last_error {
            lines.push(("last error", error_words(*class, words)));
        }
        lines.extend(item.external_id.clone().map(|id| ("target's ID", id)));
        if item.late_contradiction {
            let words = "the target did it after it was settled as not applied";
            lines.push(("contradiction", words.into()));
        }
        lines.push(("contract", contract_words(item)));
        lines.push(("terms", terms_words(&item.terms)));
        lines.push(("accepted", item.created_at.to_rfc3339()));
        lines.push(("changed", item.updated_at.to_rfc3339()));
        lines
    }

    /// The same for programs: what the list tells, and more.
    pub(super) fn to_json(&self, wants_request: bool, request: Option<&[u8]>) -> Value {
        let (item, told) = (&self.view.delivery, &self.told);
        let mut shown = list::item_json(self.view);
        let time = |at: Option<Timestamp>| at.map(Timestamp::to_rfc3339);
        let choice = |it: super::predict::Choice| json!({ "action": it.action, "allowed": it.is_allowed, "words": it.words });
        let more = json!({
            "found": true,
            "backend": self.backend,
            "callersSee": { "state": told.state, "detail": told.detail, "retry": told.retry() },
            "lookups": item.lookups_count,
            "leaseUntil": time(item.lease.map(|lease| lease.until)),
            "firstAttemptAt": time(item.first_dispatch_at),
            "lastSendUntil": time(item.last_send_until),
            "lateContradiction": item.late_contradiction,
            "terms": terms_json(&item.terms),
            "targetDetail": target_json(&self.view.target),
            "byItself": by_itself(self.view, self.now),
            "choices": choices(self.view, self.now).into_iter().map(choice).collect::<Vec<_>>(),
        });
        let object = shown.as_object_mut().expect("an object was made");
        object.extend(more.as_object().expect("an object was made").clone());
        if wants_request {
            object.insert("frozen".into(), json!(request.and_then(request::as_json)));
            object.insert("frozenBytes".into(), json!(request.map(<[u8]>::len)));
        }
        shown
    }
}

/// What keeps a target from being sent to, in words.
pub(in crate::cli) fn target_words(target: &TargetState) -> String {
    let mut words = Vec::new();
    if let Some(paused) = &target.paused {
        let since = paused.since.to_rfc3339();
        words.push(format!("paused by {} since {since}: {}", paused.who, paused.reason));
    }
    if let Some(parked) = &target.parked {
        words.push(format!(
            "parked since {} ({}), tried {} times since, again at {}",
            parked.since.to_rfc3339(),
            error_words(parked.class, &parked.words),
            parked.probes_count,
            parked.probe_at.to_rfc3339()
        ));
    }
    if words.is_empty() { "open".into() } else { words.join("; ") }
}

/// The same for programs.
pub(in crate::cli) fn target_json(target: &TargetState) -> Value {
    json!({
        "paused": target.paused.as_ref().map(|paused| json!({
            "who": paused.who, "reason": paused.reason, "since": paused.since.to_rfc3339(),
        })),
        "parked": target.parked.as_ref().map(|parked| json!({
            "class": parked.class.as_str(), "words": parked.words,
            "since": parked.since.to_rfc3339(), "probes": parked.probes_count,
            "probeAt": parked.probe_at.to_rfc3339(),
        })),
    })
}

fn state_words(item: &Delivery) -> String {
    let more = match item.state {
        State::Queued => "waits for its turn",
        State::Leased => "a worker holds it, nothing was sent yet",
        State::Sending => "a worker may be sending it",
        State::Delivered => "done",
        State::DeadLetter => "given up; a person may send it again",
        State::Parked => "held back",
        State::InDoubt => "it may have been done; only a person settles it",
        State::Cancelled => "ended, never sent again",
    };
    let detail = list::detail(item).map_or_else(String::new, |detail| format!(", {detail}"));
    format!("{}{detail} ({more})", item.state.as_str())
}

fn attempts_words(item: &Delivery) -> String {
    let counted = format!("{} of {}", item.attempts_count, item.attempt_limit);
    match item.unknown_count {
        0 => counted,
        count => format!("{counted}; {count} of them may have been done"),
    }
}

fn error_words(class: ErrorClass, words: &str) -> String {
    format!("{}: {words}", class.as_str())
}

fn contract_words(item: &Delivery) -> String {
    let contract = item.terms.contract;
    let key = || match item.first_dispatch_at.and_then(|first| contract.key_until(first)) {
        Some(until) => format!("a repeat with the key is harmless until {}", until.to_rfc3339()),
        None => {
            let lifetime = contract.lifetime().map(span_text).unwrap_or_default();
            format!("the target remembers a key for {lifetime} after its first use")
        }
    };
    let lookup = || match contract.absence_after() {
        Some(after) => {
            format!("not found {} after the last write proves not done", span_text(after))
        }
        None => "found proves done, not found proves nothing".to_owned(),
    };
    let words = match contract {
        Contract::Key { .. } => key(),
        Contract::Lookup { .. } => lookup(),
        Contract::KeyAndLookup { .. } => format!("{}; {}", key(), lookup()),
        Contract::Never => "an attempt without an outcome is never repeated".to_owned(),
        Contract::AtLeastOnce => "a repeat may double it, and that is accepted".to_owned(),
    };
    format!("{} ({words})", contract.as_str())
}

fn terms_words(terms: &Terms) -> String {
    let within = terms.deliver_within.map(span_text);
    format!(
        "{} attempts, pauses of {} to {}, {} for each request{}",
        terms.max_attempts_count,
        span_text(terms.backoff_base),
        span_text(terms.backoff_cap),
        span_text(terms.send_limit),
        within.map_or_else(String::new, |within| format!(", all within {within}")),
    )
}

fn terms_json(terms: &Terms) -> Value {
    json!({
        "contract": terms.contract.as_str(),
        "keyLifetime": terms.contract.lifetime().map(span_text),
        "absenceAfter": terms.contract.absence_after().map(span_text),
        "maxAttempts": terms.max_attempts_count,
        "backoffBase": span_text(terms.backoff_base),
        "backoffCap": span_text(terms.backoff_cap),
        "sendLimit": span_text(terms.send_limit),
        "deliverWithin": terms.deliver_within.map(span_text),
    })
}

fn indented(text: &str) -> String {
    let line = |line: &str| format!("  {line}").trim_end().to_owned();
    printable(text).lines().map(line).collect::<Vec<_>>().join("\n")
}

fn set_below(words: &str) -> String {
    printable(words).replace('\n', "\n             ")
}
