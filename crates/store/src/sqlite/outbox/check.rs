//! The outbox's part of a check of a whole ledger: each item against its digest, its request and its
//! operation.

use counterfoil_core::delivery::State;
use counterfoil_core::operation::{self, Phase};
use counterfoil_core::record::{Nature, Record};
use rusqlite::{Connection, OptionalExtension, params};

use super::items::{self, AFTER_KEY, Item};
use super::targets::find_by_number;
use crate::sqlite::findings::{CheckReport, Subject};
use crate::sqlite::rows::{self, Found};

/// So many items are read in one snapshot; a longer one would keep the log from being cut.
const ITEMS_PER_SNAPSHOT: i64 = 500;

/// Looks the whole outbox through.
pub(in crate::sqlite) fn check_outbox(
    connection: &Connection,
    report: &mut CheckReport,
) -> rusqlite::Result<()> {
    let mut after = Vec::new();
    loop {
        let snapshot = connection.unchecked_transaction()?;
        let mut statement = snapshot.prepare_cached(AFTER_KEY)?;
        let mut found = statement.query(params![after, ITEMS_PER_SNAPSHOT])?;
        let mut count = 0;
        while let Some(row) = found.next()? {
            count += 1;
            after = row.get(0)?;
            report.deliveries_count += 1;
            match items::decode(row) {
                Ok(item) => check_item(&snapshot, &item, report)?,
                Err(damage) => {
                    let subject = Subject::unsure(&after, (None, None), damage.column);
                    let words = format!("the delivery of {subject} is damaged: {damage}");
                    report.wrong(&subject, words);
                }
            }
        }
        if count < ITEMS_PER_SNAPSHOT {
            break;
        }
    }
    check_lost(connection, report)?;
    check_targets(connection, report)
}

fn check_item(
    connection: &Connection,
    item: &Item,
    report: &mut CheckReport,
) -> rusqlite::Result<()> {
    let delivery = &item.delivery;
    *report.delivery_states.entry(delivery.state.as_str()).or_default() += 1;
    let record = match rows::find_by_key(connection, delivery.key)? {
        Found::Kept(kept) => kept.record,
        // A damaged record is told of by itself, and a missing one by the foreign keys.
        Found::Absent | Found::Damaged(_) => return Ok(()),
    };
    let subject = Subject::of(&record);
    if record.nature != Nature::Deferred {
        report.wrong(&subject, format!("{subject} has a delivery and is not a deferred one"));
    } else if !agree(delivery.state, &record) {
        let (item, operation) = (delivery.state.as_str(), record.state.as_str());
        let words = format!("{subject} is {operation}, and its delivery is {item}");
        report.wrong(&subject, words);
    }
    match items::request(connection, delivery.key)? {
        Err(damage) if !record.purged => {
            report.wrong(&subject, format!("the request of {subject} is damaged: {damage}"));
        }
        Ok(_) if record.purged => {
            report.wrong(&subject, format!("the request of {subject} should have been purged"));
        }
        _ => {}
    }
    Ok(())
}

/// Whether a delivery's state and its operation's go together.
fn agree(delivery: State, record: &Record) -> bool {
    let wanted = match delivery {
        State::Delivered => operation::State::Applied,
        State::Cancelled => operation::State::NotApplied,
        State::InDoubt => operation::State::InDoubt,
        State::Queued | State::Leased | State::Sending | State::DeadLetter | State::Parked => {
            operation::State::InProgress(Phase::Queued)
        }
    };
    record.state == wanted
}

/// The kind of audit event for word of an effect that came after its operation was settled as not
/// applied. It is no step of the operation.
pub(in crate::sqlite) const LATE_CONTRADICTION: &str = "late_contradiction";

/// Whether a step of a delivery of that kind leaves its operation in that state.
pub(in crate::sqlite) fn delivery_leads_to(kind: &[u8], state: operation::State) -> bool {
    let to = match kind {
        b"delivered" | b"delivered_late" | b"found" | b"resolved_applied"
        | b"corrected_applied" => operation::State::Applied,
        b"cancelled" | b"abandoned" | b"resolved_not_applied" => operation::State::NotApplied,
        b"in_doubt" | b"cancelled_in_doubt" => operation::State::InDoubt,
        _ => operation::State::InProgress(Phase::Queued),
    };
    to == state
}

/// Deferred operations whose delivery is gone: nobody would ever send them.
fn check_lost(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    let lost: i64 = connection.query_row(
        "SELECT count(*) FROM operations o WHERE o.nature = 2 AND NOT EXISTS \
         (SELECT 1 FROM outbox d WHERE d.operation_key = o.operation_key)",
        [],
        |row| row.get(0),
    )?;
    if lost > 0 {
        report.problem(format!("{lost} deferred operations have no delivery"));
    }
    Ok(())
}

fn check_targets(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    let mut after = i64::MIN;
    let next =
        "SELECT target_no FROM outbox_targets WHERE target_no > ?1 ORDER BY target_no LIMIT 1";
    while let Some(number) =
        connection.prepare_cached(next)?.query_row([after], |row| row.get(0)).optional()?
    {
        after = number;
        if let Some(Err(damage)) = find_by_number(connection, number)? {
            report.problem(format!("the target with the number {number} is damaged: {damage}"));
        }
    }
    Ok(())
}
