//! The direct operations' part of a check of a whole ledger: each row against its digest and its
//! record, and the answers that are kept.

use counterfoil_core::operation::{ALL_STATES, Event, Outcome, Phase, State, Verdict, step};
use rusqlite::{Connection, params};

use super::items::{self, AFTER_KEY, Item};
use super::replies;
use crate::direct_steps::{HANDED_BACK, Pair, TAKEN_UP};
use crate::sqlite::cells::Damage;
use crate::sqlite::findings::{CheckReport, Subject};
use crate::sqlite::rows::{self, Found};

/// So many rows are read in one snapshot; a longer one would keep the log from being cut.
const ROWS_PER_SNAPSHOT: i64 = 200;

/// Looks all direct operations through.
pub(in crate::sqlite) fn check_directs(
    connection: &Connection,
    report: &mut CheckReport,
) -> rusqlite::Result<()> {
    let mut after = Vec::new();
    loop {
        let snapshot = connection.unchecked_transaction()?;
        let mut statement = snapshot.prepare_cached(AFTER_KEY)?;
        let mut found = statement.query(params![after, ROWS_PER_SNAPSHOT])?;
        let mut count = 0;
        while let Some(row) = found.next()? {
            count += 1;
            after = row.get(0)?;
            report.directs_count += 1;
            match items::decode(row) {
                Ok(item) => check_item(&snapshot, item, report)?,
                Err(damage) => {
                    let subject = Subject::unsure(&after, (None, None), damage.column);
                    let words = format!("what stands beside {subject} is damaged: {damage}");
                    report.wrong(&subject, words);
                }
            }
        }
        if count < ROWS_PER_SNAPSHOT {
            break;
        }
    }
    check_lost(connection, report)
}

fn check_item(
    connection: &Connection,
    item: Item,
    report: &mut CheckReport,
) -> rusqlite::Result<()> {
    let kept = match rows::find_by_key(connection, item.direct.key)? {
        Found::Kept(kept) => *kept,
        // A damaged record is told of by itself, and a missing one by the foreign keys.
        Found::Absent | Found::Damaged(_) => return Ok(()),
    };
    let subject = Subject::of(&kept.record);
    if let Err(damage) = item.fits(&kept) {
        let words = format!("what stands beside {subject} contradicts it: {damage}");
        report.wrong(&subject, words);
        return Ok(());
    }
    let pair = Pair { kept, item: item.direct };
    let key = pair.item.key;
    if let Err(damage) = items::memo(connection, key)? {
        report.wrong(&subject, format!("the memo of {subject} is damaged: {damage}"));
    }
    for leg in 1..=pair.item.leg {
        match answer(connection, &pair, leg)? {
            Err(damage) => {
                let words = format!("answer {leg} of {subject} is damaged: {damage}");
                report.wrong(&subject, words);
            }
            Ok(true) if pair.kept.record.purged => {
                let words = format!("answer {leg} of {subject} should have been purged");
                report.wrong(&subject, words);
            }
            Ok(false) if is_needed(&pair, leg) => {
                report.wrong(&subject, format!("answer {leg} of {subject} is missing"));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Whether a sound answer to a request is kept.
fn answer(
    connection: &Connection,
    pair: &Pair,
    leg: u32,
) -> rusqlite::Result<Result<bool, Damage>> {
    let read = replies::find(connection, pair.item.key, leg)?;
    Ok(read.and_then(|read| Ok(read.map(replies::Read::unpack).transpose()?.is_some())))
}

/// An earlier request was answered, since another followed it; the latest one where its answer is what
/// the operation has.
fn is_needed(pair: &Pair, leg: u32) -> bool {
    !pair.kept.record.purged && (leg < pair.item.leg || pair.shown() == Some(leg))
}

/// Direct operations of which only the record is left.
fn check_lost(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    let lost: i64 = connection.query_row(
        "SELECT count(*) FROM operations o WHERE o.nature = 3 AND NOT EXISTS \
         (SELECT 1 FROM directs d WHERE d.operation_key = o.operation_key)",
        [],
        |row| row.get(0),
    )?;
    if lost > 0 {
        report.problem(format!("{lost} direct operations have nothing beside their records"));
    }
    Ok(())
}

/// Whether a step of a direct operation of that kind ends in that state.
pub(in crate::sqlite) fn direct_leads_to(kind: &[u8], state: State) -> bool {
    const EVENTS: [Event; 11] = [
        Event::Claim,
        Event::Dispatch,
        Event::Learn(Outcome::Applied),
        Event::Learn(Outcome::NotApplied),
        Event::Learn(Outcome::Unknown),
        Event::Ask,
        Event::Answer,
        Event::HandBack,
        Event::Lapse,
        Event::Resolve(Verdict::Applied),
        Event::Resolve(Verdict::NotApplied),
    ];
    if kind == TAKEN_UP.as_bytes() {
        return state == State::InProgress(Phase::Claimed);
    }
    if kind == HANDED_BACK.as_bytes() && state == State::InProgress(Phase::AwaitingInput) {
        return true;
    }
    let from = ALL_STATES.into_iter().map(Some).chain([None]);
    from.flat_map(|from| EVENTS.map(|event| step(from, event)))
        .flatten()
        .any(|made| made.to() == state && made.audit_kind().as_bytes() == kind)
}
