//! What may be done with an item now, and why not: asked of the rules that decide it.

use counterfoil_core::delivery::{Delivery, Event, ParkReason, State, TargetState, step};
use counterfoil_core::operation::Verdict;
use counterfoil_core::record::Record;
use counterfoil_core::time::Timestamp;
use counterfoil_store::outbox::DeliveryView;

use super::order::Verb;
use crate::cli::ticket::ticket_id;

/// One thing that an operator could order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Its name.
    pub(super) action: &'static str,
    /// Whether it would be taken.
    pub(super) is_allowed: bool,
    /// What it would do, or the rule that forbids it and the remedy.
    pub(super) words: String,
}

/// What each order would come to at `now`.
pub(super) fn choices(view: &DeliveryView, now: Timestamp) -> Vec<Choice> {
    let item = taken_back(&view.delivery, now);
    let mut choices: Vec<Choice> = Verb::ALL.iter().map(|verb| choice(&item, *verb, now)).collect();
    choices.push(resolving(&item, &view.record, now));
    choices
}

/// What `verb` would make of an item: its state then, or the rule against it.
pub(super) fn outcome_of(
    item: &Delivery,
    verb: Verb,
    now: Timestamp,
) -> Result<State, &'static str> {
    let item = taken_back(item, now);
    match step(&item, verb.event(), now) {
        Ok(change) => Ok(change.delivery.state),
        Err(illegal) => Err(illegal.rule),
    }
}

/// What happens by itself, and what holds it back.
pub(super) fn by_itself(view: &DeliveryView, now: Timestamp) -> String {
    let item = &view.delivery;
    let id = &view.record.operation_id;
    let lease = item.lease.map(|lease| lease.until.to_rfc3339()).unwrap_or_default();
    match item.state {
        State::Queued => waiting(item, &view.target, now),
        State::Leased => format!("a worker holds it until {lease}; nothing was sent yet"),
        State::Sending => format!(
            "a worker may be sending it until {lease}; if it does not report, that attempt may have \
             been done"
        ),
        State::Delivered => "nothing: it is done".into(),
        State::DeadLetter => {
            "nothing: a person decides; its callers are told to ask again, and not to send again"
                .into()
        }
        State::Parked => parked(item, &view.record),
        State::InDoubt => format!(
            "nothing: it may have been done, so it is never sent again; look at {} for it, then say \
             what you saw with `counterfoil operation resolve {id}`",
            item.target
        ),
        State::Cancelled if item.late_contradiction => format!(
            "nothing: it was ended as not applied, and {} said later that it did it; if you find it \
             there, say so with `counterfoil operation resolve {id} --applied`",
            item.target
        ),
        State::Cancelled => "nothing: it has ended and is never sent".into(),
    }
}

fn waiting(item: &Delivery, target: &TargetState, now: Timestamp) -> String {
    let name = &item.target;
    if let Some(paused) = &target.paused {
        return format!(
            "nothing while {} keeps the target paused ({}): `counterfoil target resume {name} \
             --reason TEXT`",
            paused.who, paused.reason
        );
    }
    if let Some(parked) = &target.parked {
        return format!(
            "the target takes nothing from us ({}: {}); one item tries it again at {}: put that \
             right, then `counterfoil target resume {name} --reason TEXT` tries at once",
            parked.class.as_str(),
            parked.words,
            parked.probe_at.to_rfc3339()
        );
    }
    match item.next_attempt_at {
        Some(at) if at > now => format!("it is tried at {}", at.to_rfc3339()),
        _ => "it is due: a running worker takes it as soon as its target's limits allow".into(),
    }
}

fn parked(item: &Delivery, record: &Record) -> String {
    let (tenant, target) = (&record.tenant, &item.target);
    match item.park {
        Some(ParkReason::PrincipalRevoked) => format!(
            "it waits until its principal may write again: `counterfoil principal restore {} \
             --tenant {tenant} --reason TEXT`",
            record.principal
        ),
        Some(ParkReason::TenantRevoked) => format!(
            "it waits until its tenant may write again: `counterfoil tenant restore {tenant} \
             --reason TEXT`"
        ),
        Some(ParkReason::TargetUnknown) => format!(
            "it waits until a worker knows the target: declare [connector.{target}] again, and \
             start the worker with it"
        ),
        Some(ParkReason::AccountChanged) => {
            let rest = if item.unknown_count > 0 {
                let id = &record.operation_id;
                format!(
                    "; or cancel it, look at the target for it, then `counterfoil operation resolve \
                     {id}`"
                )
            } else {
                "; or cancel it: nothing was done".to_owned()
            };
            format!(
                "it was made for another account or address than {target} has now, so nothing is \
                 sent: put that back, restart the worker, then `counterfoil delivery redrive {} \
                 --reason TEXT`{rest}",
                ticket_id(item.key)
            )
        }
        None => "it waits".into(),
    }
}

fn choice(item: &Delivery, verb: Verb, now: Timestamp) -> Choice {
    let (is_allowed, words) = match outcome_of(item, verb, now) {
        Err(rule) => (false, rule.to_owned()),
        Ok(state) => {
            let id = ticket_id(item.key);
            let command = format!("counterfoil delivery {} {id} --reason TEXT", verb.as_str());
            match state {
                State::InDoubt => {
                    (true, format!("{command} (leaves it in doubt: an attempt may have been done)"))
                }
                _ => (true, command),
            }
        }
    };
    Choice { action: verb.as_str(), is_allowed, words }
}

fn resolving(item: &Delivery, record: &Record, now: Timestamp) -> Choice {
    let (is_allowed, words) = match step(item, Event::Resolve(Verdict::Applied), now) {
        Err(illegal) => (false, illegal.rule.to_owned()),
        Ok(_) => {
            let (id, tenant) = (&record.operation_id, &record.tenant);
            let of = "counterfoil operation resolve";
            let space = match tenant.as_str() {
                "local" => String::new(),
                tenant => format!(" --tenant {tenant}"),
            };
            let verdicts =
                if item.late_contradiction { "--applied" } else { "--applied|--not-applied" };
            (true, format!("{of} {id}{space} {verdicts} --reason TEXT"))
        }
    };
    Choice { action: "resolve", is_allowed, words }
}

/// The item as an order finds it: one whose lease has ended is taken back first.
fn taken_back(item: &Delivery, now: Timestamp) -> Delivery {
    match step(item, Event::Lapse { seed: 0 }, now) {
        Ok(change) => change.delivery,
        Err(_) => item.clone(),
    }
}
