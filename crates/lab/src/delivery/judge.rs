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

use super::front;
use super::role::settings;
use crate::desk::{self, Ticket};
use crate::history::{Course, Told as Saw, check_courses};

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
    pub accepted: Vec<front::Told>,
    /// By the status tool, once nothing more happened.
    pub at_the_end: Vec<front::Told>,
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
    let mut courses: BTreeMap<String, Course> = BTreeMap::new();
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
        let end = match seen.state {
            ObservedState::Applied => Saw::Applied(view.delivery.external_id.clone()),
            ObservedState::NotApplied => Saw::NotApplied,
            ObservedState::Partial | ObservedState::Unknown => Saw::Unknown,
        };
        let id = view.record.operation_id.as_str().to_owned();
        put_to_rest(courses.entry(id).or_default(), end);
        if !is_honest || seen.fresh_write_authorized {
            let id = view.record.operation_id.as_str();
            let state = view.delivery.state.as_str();
            left.violations.push(format!("Honest: {id} is {state} and is told as {seen:?}"));
        }
    }
    left.duplicates_count = filed.values().filter(|tickets| tickets.len() > 1).count();
    left.violations.extend(calls.wrong.iter().map(|words| format!("Told: {words}")));
    add_calls(&mut courses, calls, &items);
    for (id, tickets) in &filed {
        let effects = tickets.iter().map(|ticket| (AT_REST, ticket.id.to_string()));
        courses.entry(id.clone()).or_default().effects.extend(effects);
    }
    left.violations.extend(check_courses(&courses).iter().map(ToString::to_string));
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
fn wrong_with(view: &DeliveryView, tickets: &[Ticket]) -> Option<String> {
    let item = &view.delivery;
    let (id, state) = (view.record.operation_id.as_str(), item.state.as_str());
    let fits = match (item.state, tickets) {
        (State::Delivered, tickets) => tickets
            .iter()
            .any(|ticket| item.external_id.as_deref() == Some(&*ticket.id.to_string())),
        // What nobody may know may be either.
        (State::InDoubt | State::DeadLetter, _) if item.unknown_count > 0 => true,
        (State::InDoubt | State::DeadLetter, []) => true,
        _ => false,
    };
    let told = (&item.external_id, item.unknown_count);
    (!fits).then(|| format!("Settled: {id} is {state} {told:?} and the desk has {tickets:?}"))
}

/// The moment of the last change. Calls were answered before it, and statuses asked for after it.
const AT_REST: u64 = 1;

/// The ledger has it, and says this of it: whoever asks after that must not be told less.
fn put_to_rest(course: &mut Course, end: Saw) {
    course.recorded = true;
    course.tells.push((AT_REST, AT_REST, end.clone()));
    course.at_the_end = Some(end);
}

/// What clients were told, where it names no ticket under the name that the ledger has.
fn add_calls(
    courses: &mut BTreeMap<String, Course>,
    calls: &Calls,
    items: &BTreeMap<String, DeliveryView>,
) {
    let answered = calls.accepted.iter().map(|told| (told, 0, AT_REST));
    let asked = calls.at_the_end.iter().map(|told| (told, AT_REST + 1, AT_REST + 2));
    for (told, from, until) in answered.chain(asked) {
        let known = items.get(&told.id).and_then(|view| view.delivery.external_id.clone());
        let saw = match told.is_applied {
            true => Saw::Applied(told.external_id.clone().or(known)),
            false => Saw::Unknown,
        };
        let course = courses.entry(told.id.clone()).or_default();
        course.accepted = true;
        course.tells.push((from, until, saw));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::CourseRule;

    #[test]
    fn what_was_told_is_held_against_what_is_left() {
        // Promise: the judge sees a call that was acknowledged and forgotten, a success that was
        // taken back, another ticket's number, and a status that tells less than the ledger knows.
        use CourseRule::*;
        let told = |ticket: Option<&str>| front::Told {
            id: "op".into(),
            is_applied: ticket.is_some(),
            external_id: ticket.map(str::to_owned),
        };
        let applied = || Some(Saw::Applied(Some("7".into())));
        type Case<'a> = (Option<Saw>, Option<&'a str>, Option<&'a str>, &'a [CourseRule]);
        let cases: [Case<'_>; 6] = [
            (applied(), None, Some("7"), &[]),
            (Some(Saw::Unknown), None, None, &[]),
            (None, None, None, &[NothingLost]),
            (Some(Saw::Unknown), Some("7"), None, &[NothingLost, OneOrder]),
            (applied(), Some("8"), Some("7"), &[NothingLost, AppliedIsThere, OneOrder]),
            (applied(), None, None, &[OneOrder]),
        ];
        for (number, (end, at_once, asked, expected)) in cases.into_iter().enumerate() {
            let calls = Calls {
                accepted: vec![told(at_once)],
                at_the_end: vec![told(asked)],
                wrong: Vec::new(),
            };
            let mut course = Course::default();
            if let Some(end) = end {
                course.effects.push((AT_REST, "7".into()));
                put_to_rest(&mut course, end);
            }
            let mut courses = BTreeMap::from([("op".to_owned(), course)]);
            add_calls(&mut courses, &calls, &BTreeMap::new());
            assert_eq!(courses["op"].broken(), expected, "case {number}");
        }
    }
}
