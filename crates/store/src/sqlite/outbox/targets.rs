//! Targets as rows, and the numbers that stand for targets and terms.

use counterfoil_core::delivery::{ErrorClass, Parked, Paused, TargetName, TargetState, Terms};
use counterfoil_core::time::Timestamp;
use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::items::terms_text;
use crate::error::StoreError;
use crate::sqlite::cells::{Cells, Damage, damage, utf8};
use crate::sqlite::commands::Session;
use crate::sqlite::faults::Fault;

/// A target with its number.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::sqlite) struct Target {
    pub(super) number: i64,
    pub(super) name: TargetName,
    pub(super) state: TargetState,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT target_no, name, parked_class, parked_words, parked_at_ms, probes, \
             probe_at_ms, paused_by, paused_reason, paused_at_ms FROM outbox_targets ",
            $rest
        )
    };
}

/// The target of a name; the inner error is what is wrong with its row.
pub(super) fn find(
    connection: &Connection,
    name: &TargetName,
) -> rusqlite::Result<Option<Result<Target, Damage>>> {
    connection
        .prepare_cached(select!("WHERE name = ?1"))?
        .query_row([name.as_str().as_bytes()], |row| Ok(decode(row)))
        .optional()
}

/// The target of a number.
pub(super) fn find_by_number(
    connection: &Connection,
    number: i64,
) -> rusqlite::Result<Option<Result<Target, Damage>>> {
    connection
        .prepare_cached(select!("WHERE target_no = ?1"))?
        .query_row([number], |row| Ok(decode(row)))
        .optional()
}

/// Every target whose row can be read, by its name.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<Target>> {
    let mut statement = connection.prepare_cached(select!("ORDER BY name"))?;
    let rows = statement.query_map([], |row| Ok(decode(row)))?;
    let mut targets = Vec::new();
    for target in rows {
        match target? {
            Ok(target) => targets.push(target),
            Err(damage) => tracing::error!(%damage, "the row of a target is damaged"),
        }
    }
    Ok(targets)
}

fn update(connection: &Connection, target: &Target) -> rusqlite::Result<()> {
    const SQL: &str = "UPDATE outbox_targets SET parked_class = ?2, parked_words = ?3, \
        parked_at_ms = ?4, probes = ?5, probe_at_ms = ?6, paused_by = ?7, paused_reason = ?8, \
        paused_at_ms = ?9 WHERE target_no = ?1";
    let parked = target.state.parked.as_ref();
    let paused = target.state.paused.as_ref();
    connection.prepare_cached(SQL)?.execute(params![
        target.number,
        parked.map(|parked| parked.class.as_str().as_bytes()),
        parked.map(|parked| parked.words.as_bytes()),
        parked.map(|parked| parked.since.as_ms()),
        parked.map(|parked| parked.probes_count),
        parked.map(|parked| parked.probe_at.as_ms()),
        paused.map(|paused| paused.who.as_bytes()),
        paused.map(|paused| paused.reason.as_bytes()),
        paused.map(|paused| paused.since.as_ms()),
    ])?;
    Ok(())
}

impl Session {
    /// The number of a target, made if it has none.
    pub(super) fn target_no(&mut self, name: &TargetName) -> Result<i64, Fault> {
        if let Some(number) = self.numbers.targets.get(name) {
            return Ok(*number);
        }
        let number = number_of(
            &self.connection,
            "SELECT target_no FROM outbox_targets WHERE name = ?1",
            "INSERT INTO outbox_targets (name) VALUES (?1)",
            &name.as_str().as_bytes(),
        )?;
        self.numbers.targets.insert(name.clone(), number);
        Ok(number)
    }

    /// The number of terms, made if they have none.
    pub(super) fn terms_no(&mut self, terms: Terms) -> Result<i64, Fault> {
        if let Some(number) = self.numbers.terms.get(&terms) {
            return Ok(*number);
        }
        let number = number_of(
            &self.connection,
            "SELECT terms_no FROM outbox_terms WHERE terms = ?1",
            "INSERT INTO outbox_terms (terms) VALUES (?1)",
            &terms_text(terms),
        )?;
        self.numbers.terms.insert(terms, number);
        Ok(number)
    }

    /// The target of a number, for a command that needs its state.
    pub(super) fn target(&mut self, number: i64) -> Result<Target, Fault> {
        if let Some(seen) = self.seen.targets.iter().find(|target| target.number == number) {
            return Ok(seen.clone());
        }
        let target = match find_by_number(&self.connection, number)? {
            Some(target) => target.map_err(|damage| damaged(&damage))?,
            None => return Err(damaged(&damage("target_no", "stands for no target"))),
        };
        self.seen.targets.push(target.clone());
        Ok(target)
    }

    /// The target of a number, for a command that goes on without it; `None` if its row is damaged.
    pub(super) fn sound_target(&mut self, number: i64) -> Result<Option<Target>, Fault> {
        match self.target(number) {
            Ok(target) => Ok(Some(target)),
            Err(Fault::Command(StoreError::Quarantined { .. })) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Writes the state of a target.
    pub(super) fn keep_target(&mut self, target: &Target) -> Result<(), Fault> {
        update(&self.connection, target)?;
        self.seen.targets.retain(|seen| seen.number != target.number);
        self.seen.targets.push(target.clone());
        Ok(())
    }
}

/// Raises the alarm about a target whose row cannot be read.
pub(super) fn damaged(damage: &Damage) -> Fault {
    tracing::error!(%damage, "the row of a target is damaged");
    Fault::Command(StoreError::Quarantined { reason: format!("target: {damage}") })
}

fn number_of(
    connection: &Connection,
    select: &str,
    insert: &str,
    value: &dyn ToSql,
) -> Result<i64, Fault> {
    let known =
        connection.prepare_cached(select)?.query_row([value], |row| row.get(0)).optional()?;
    if let Some(number) = known {
        return Ok(number);
    }
    connection.prepare_cached(insert)?.execute([value])?;
    Ok(connection.last_insert_rowid())
}

fn decode(row: &Row<'_>) -> Result<Target, Damage> {
    let mut cells = Cells::of(row);
    let number = cells.integer("target_no")?;
    let name = cells.name("name", TargetName::parse)?;
    let parked = cells.parked()?;
    let paused = cells.paused()?;
    Ok(Target { number, name, state: TargetState { parked, paused } })
}

impl Cells<'_, '_> {
    fn parked(&mut self) -> Result<Option<Parked>, Damage> {
        let class = self.optional_blob("parked_class")?;
        let words = self.optional_blob("parked_words")?;
        let since = self.optional_time("parked_at_ms")?;
        let probes = self.optional_integer("probes")?;
        let probe_at = self.optional_time("probe_at_ms")?;
        let Some(class) = class else { return Ok(None) };
        let (Some(words), Some(since), Some(probes), Some(probe_at)) =
            (words, since, probes, probe_at)
        else {
            return Err(damage("parked_class", "is there only in part"));
        };
        Ok(Some(Parked {
            class: ErrorClass::from_word(utf8("parked_class", class)?)
                .ok_or(damage("parked_class", "is unknown"))?,
            words: utf8("parked_words", words)?.to_owned(),
            since,
            probes_count: u32::try_from(probes).map_err(|_| damage("probes", "is out of range"))?,
            probe_at,
        }))
    }

    fn paused(&mut self) -> Result<Option<Paused>, Damage> {
        let who = self.optional_blob("paused_by")?;
        let reason = self.optional_blob("paused_reason")?;
        let since: Option<Timestamp> = self.optional_time("paused_at_ms")?;
        match (who, reason, since) {
            (None, None, None) => Ok(None),
            (Some(who), Some(reason), Some(since)) => Ok(Some(Paused {
                who: utf8("paused_by", who)?.to_owned(),
                reason: utf8("paused_reason", reason)?.to_owned(),
                since,
            })),
            _ => Err(damage("paused_by", "is there only in part")),
        }
    }
}
