//! The purges, each step of them one command among the others: a look at the clocks, a batch, and an
//! operator's word for the clock.

use std::time::Duration;

use counterfoil_core::identity::OperationKey;
use counterfoil_core::record::Nature;
use counterfoil_core::time::Timestamp;
use rusqlite::Connection;

use super::commands::Session;
use super::direct::purge_answers;
use super::due::{Due, referrer};
use super::faults::Fault;
use super::outbox::purge_request;
use super::rows::{self, Found};
use super::upkeep::{Upkeep, keep_clock, keep_progress};
use crate::retention::clock::PurgeClock;
use crate::steps::Kept;

impl Session {
    /// Looks at the clocks and moves the horizon. What the horizon allows is deleted by later
    /// transactions: until this one is committed nobody may be refused because of it.
    ///
    /// # Errors
    /// [`Fault`]; what was written is then to be rolled back.
    pub(super) fn watch_clock(&mut self, span: Duration) -> Result<Upkeep, Fault> {
        let mut upkeep = Upkeep::read(&self.connection)?;
        let (now, opened) = self.mark.readings();
        let clock = upkeep.clock.look(&now, &opened);
        let horizon = clock.horizon(upkeep.horizon, span);
        if clock != upkeep.clock || horizon != upkeep.horizon {
            (upkeep.clock, upkeep.horizon) = (clock, horizon);
            keep_clock(&self.connection, &upkeep.clock, upkeep.horizon)?;
            if upkeep.clock.stopped.is_none() {
                // A clock that is not believed must not become the ledger's mark.
                self.stamp(now.ledger);
            }
        }
        Ok(upkeep)
    }

    /// Purges what was found to be due and still is. Gives the counts of results and tombstones.
    ///
    /// # Errors
    /// [`Fault`]; what was written is then to be rolled back.
    pub(super) fn purge(&mut self, due: &Due) -> Result<(u64, u64), Fault> {
        let upkeep = Upkeep::read(&self.connection)?;
        let Some(until) = upkeep.clock.time() else { return Ok((0, 0)) };
        let (mut results_count, mut tombstones_count) = (0, 0);
        for key in &due.results {
            results_count += u64::from(purge_result(&self.connection, *key, until)?);
        }
        if referrer(&self.connection)?.is_none() {
            for key in &due.tombstones {
                let deleted = delete_tombstone(&self.connection, *key, until, upkeep.horizon)?;
                tombstones_count += u64::from(deleted);
            }
        }
        let scan = (upkeep.scan == due.from).then_some(&due.to);
        keep_progress(&self.connection, (results_count, tombstones_count), scan)?;
        Ok((results_count, tombstones_count))
    }

    /// Takes an operator's word for the ledger's time.
    ///
    /// # Errors
    /// [`Fault`]; what was written is then to be rolled back.
    pub(super) fn confirm_clock(&mut self, who: &str) -> Result<Upkeep, Fault> {
        let (now, _) = self.mark.readings();
        let mut upkeep = Upkeep::read(&self.connection)?;
        upkeep.clock = PurgeClock::confirm(&now, who);
        keep_clock(&self.connection, &upkeep.clock, upkeep.horizon)?;
        self.stamp(now.ledger);
        Ok(upkeep)
    }
}

fn purge_result(
    connection: &Connection,
    key: OperationKey,
    until: Timestamp,
) -> Result<bool, Fault> {
    let Some(mut kept) = sound(connection, key)? else { return Ok(false) };
    if kept.record.purged || !kept.has_expired(until) {
        return Ok(false);
    }
    kept.purge();
    rows::update(connection, &kept)?;
    match kept.record.nature {
        Nature::Local => {}
        Nature::Deferred => purge_request(connection, key)?,
        Nature::Direct => purge_answers(connection, key)?,
    }
    Ok(true)
}

fn delete_tombstone(
    connection: &Connection,
    key: OperationKey,
    until: Timestamp,
    horizon: Timestamp,
) -> Result<bool, Fault> {
    let Some(kept) = sound(connection, key)? else { return Ok(false) };
    if !kept.is_forgettable(until, horizon) {
        return Ok(false);
    }
    for sql in [
        "DELETE FROM outbox_requests WHERE operation_key = ?1",
        "DELETE FROM outbox WHERE operation_key = ?1",
        "DELETE FROM direct_replies WHERE operation_key = ?1",
        "DELETE FROM direct_memos WHERE operation_key = ?1",
        "DELETE FROM directs WHERE operation_key = ?1",
        "DELETE FROM audit_events WHERE operation_key = ?1",
        "DELETE FROM operations WHERE operation_key = ?1",
    ] {
        connection.prepare_cached(sql)?.execute([key.as_bytes().as_slice()])?;
    }
    Ok(true)
}

/// A record that passes its own checks. One that does not is left as it is, with a loud word.
fn sound(connection: &Connection, key: OperationKey) -> Result<Option<Box<Kept>>, Fault> {
    Ok(match rows::find_by_key(connection, key)? {
        Found::Kept(kept) => Some(kept),
        Found::Absent => None,
        Found::Damaged(damage) => {
            let operation_key = uuid::Uuid::from_bytes(*key.as_bytes());
            tracing::warn!(%operation_key, %damage, "a damaged record is not purged");
            None
        }
    })
}
