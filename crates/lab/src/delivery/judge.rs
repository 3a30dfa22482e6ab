//! Holds the ledger of a campaign against the log of its target.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use counterfoil::{ledger, serve};
use counterfoil_core::delivery::State;
use counterfoil_core::identity::Caller;
use counterfoil_core::observation::ObservedState;
use counterfoil_engine::Engine;
use counterfoil_store::outbox::{DeliveryQuery, DeliveryView};

use super::front::Told;
use super::role::settings;
use crate::desk::{self, Ticket};

/// What a campaign left.
#[derive(Debug, Clone, Default)]
pub struct Left {
    /// Items by the word of their state.
    pub states: BTreeMap<&'static str, usize>,
    /// Tickets that the desk filed.
    pub effects_count: usize,
    /// Operations with more than one ticket.
    pub duplicates_count: usize,
    /// Requests that were begun.
    pub attempts_count: u64,
    /// What should not be.
    pub violations: Vec<String>,
}

/// Whether nothing more happens by itself.
///
/// # Errors
/// If the ledger cannot be read.
pub async fn is_settled(engine: &Engine) -> anyhow::Result<bool> {
    let open = DeliveryQuery {
        states: vec![State::Queued, State::Leased, State::Sending],
        max_count: 1,
        ..DeliveryQuery::default()
    };
    let outbox = engine.outbox().context("the ledger has an outbox")?;
    let page = outbox.deliveries(open).await?;
    Ok(page.items.is_empty() && page.next.is_none())
}

/// The ledger of a data directory, for looking at it.
///
/// # Errors
/// If it cannot be opened.
pub async fn open(data_dir: &Path) -> anyhow::Result<(std::sync::Arc<Engine>, Caller)> {
    let (settings, _) = settings(data_dir)?;
    let caller = serve::stdio_caller(settings.principal.clone());
    Ok((ledger::open_engine(&settings).await?, caller))
}

/// What clients were told.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    /// By the calls that were answered.
    pub accepted: Vec<Told>,
    /// By the status tool, once nothing more happened.
    pub at_the_end: Vec<Told>,
    /// What no client may be told.
    pub wrong: Vec<String>,
}

/// Judges what is left, and what was told of it.
///
/// # Errors
/// If ledger or log cannot be read.
pub async fn judge(
    (engine, caller): (&Engine, &Caller),
    log: &Path,
    calls: &Calls,
) -> anyhow::Result<Left> {
    let mut filed: BTreeMap<String, Vec<Ticket>> = BTreeMap::new();
    let mut left = Left::default();
    for ticket in desk::tickets(log)? {
        left.effects_count += 1;
        filed.entry(ticket.title.clone()).or_default().push(ticket);
    }
    let items = items(engine).await?;
    for view in items.values() {
        *left.states.entry(view.delivery.state.as_str()).or_default() += 1;
        left.attempts_count += u64::from(view.delivery.attempts_count);
        let tickets = filed.get(view.record.operation_id.as_str()).map_or(&[][..], Vec::as_slice);
        left.violations.extend(wrong_with(view, tickets));
        let seen = engine.observe(caller, &view.record.operation_id).await;
        let seen = seen.map_err(anyhow::Error::from)?;
        let is_honest = match view.delivery.state {
            State::Delivered => seen.state == ObservedState::Applied && seen.authoritative,
            _ => seen.state == ObservedState::Unknown && !seen.authoritative,
        };
        if !is_honest || seen.fresh_write_authorized {
            let id = view.record.operation_id.as_str();
            let state = view.delivery.state.as_str();
            left.violations.push(format!("Honest: {id} is {state} and is told as {seen:?}"));
        }
    }
    left.duplicates_count = filed.values().filter(|tickets| tickets.len() > 1).count();
    left.violations.extend(calls.wrong.iter().map(|words| format!("Told: {words}")));
    for told in &calls.accepted {
        left.violations.extend(wrong_with_told(told, items.get(&told.id), false));
    }
    for told in &calls.at_the_end {
        left.violations.extend(wrong_with_told(told, items.get(&told.id), true));
    }
    let unknown = filed.keys().filter(|id| !items.contains_key(*id));
    left.violations.extend(unknown.map(|id| format!("NoneInvented: {id} was never accepted")));
    Ok(left)
}

/// Every item, by its operation.
async fn items(engine: &Engine) -> anyhow::Result<BTreeMap<String, DeliveryView>> {
    let outbox = engine.outbox().context("the ledger has an outbox")?;
    let mut items = BTreeMap::new();
    let mut query = DeliveryQuery { max_count: 100, ..DeliveryQuery::default() };
    loop {
        let page = outbox.deliveries(query.clone()).await?;
        anyhow::ensure!(page.damaged_count == 0, "damaged items: {}", page.damaged_count);
        for view in page.items {
            items.insert(view.record.operation_id.as_str().to_owned(), view);
        }
        query.after = page.next;
        if query.after.is_none() {
            return Ok(items);
        }
    }
}

/// What an item says beside what its target did.
fn wrong_with(view: &DeliveryView, tickets: &[Ticket]) -> Vec<String> {
    let item = &view.delivery;
    let (id, state) = (view.record.operation_id.as_str(), item.state.as_str());
    let mut wrong = Vec::new();
    if tickets.len() > 1 {
        wrong.push(format!("OneEffect: {id} ({state}) has {} effects", tickets.len()));
    }
    let fits = match (item.state, tickets) {
        (State::Delivered, tickets) => tickets
            .iter()
            .any(|ticket| item.external_id.as_deref() == Some(&*ticket.id.to_string())),
        // What nobody may know may be either.
        (State::InDoubt | State::DeadLetter, _) if item.unknown_count > 0 => true,
        (State::InDoubt | State::DeadLetter, []) => true,
        _ => false,
    };
    if !fits {
        let told = (&item.external_id, item.unknown_count);
        wrong.push(format!("Settled: {id} is {state} {told:?} and the desk has {tickets:?}"));
    }
    wrong
}

/// What a client was told beside what the ledger says at the end: `applied` is never taken back.
fn wrong_with_told(told: &Told, view: Option<&DeliveryView>, at_the_end: bool) -> Option<String> {
    let Some(view) = view else {
        return Some(format!("NoneLost: {} was accepted and is not there", told.id));
    };
    let item = &view.delivery;
    let is_delivered = item.state == State::Delivered;
    let is_true = if told.is_applied { is_delivered } else { !(at_the_end && is_delivered) };
    let names_another = told.external_id.is_some() && told.external_id != item.external_id;
    (!is_true || names_another)
        .then(|| format!("Told: {told:?} and it is {} {:?}", item.state.as_str(), item.external_id))
}
