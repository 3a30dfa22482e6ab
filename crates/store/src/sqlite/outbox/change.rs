//! A step of a delivery, written whole: the item, its operation, the audit event and the target in
//! the transaction of the command that took it.

use counterfoil_core::delivery::{Change, Event, State, step};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::time::Timestamp;
use rusqlite::Connection;

use super::items::{self, Found, Item};
use super::pair;
use crate::outbox_steps::{apply, apply_to_target, lapse_seed};
use crate::sqlite::cells::Damage;
use crate::sqlite::commands::Session;
use crate::sqlite::faults::Fault;
use crate::sqlite::rows;
use crate::steps::{AuditLine, Kept};

/// Who takes a step, for the audit trail.
#[derive(Debug, Clone, Copy)]
pub(super) enum By<'a> {
    /// The ledger or a worker, for the operation's own principal.
    Worker,
    /// An operator, who gave a reason.
    Operator { who: &'a str, reason: &'a str },
}

/// What became of a step.
#[derive(Debug)]
pub(super) enum Taken {
    /// Written. Whether the target was parked by it and was not before.
    Whole { parked_target: bool },
    /// Its operation fails its own checks: the item was set aside.
    SetAside,
}

impl Session {
    /// Writes a step. `item` becomes what the change makes of it.
    pub(super) fn take(
        &mut self,
        item: &mut Item,
        change: &Change,
        by: By<'_>,
        now: Timestamp,
    ) -> Result<Taken, Fault> {
        if change.operation.is_none() && change.audit.is_none() {
            return self.take_beside(item, change, now);
        }
        let record = rows::find_by_key(&self.connection, item.delivery.key)?;
        self.take_found(item, record, change, by, now)
    }

    /// Writes a step of an item whose operation was looked for already.
    pub(super) fn take_found(
        &mut self,
        item: &mut Item,
        record: rows::Found,
        change: &Change,
        by: By<'_>,
        now: Timestamp,
    ) -> Result<Taken, Fault> {
        if change.operation.is_none() && change.audit.is_none() {
            return self.take_beside(item, change, now);
        }
        match record {
            rows::Found::Kept(mut kept) => self.take_with(item, &mut kept, change, by, now),
            rows::Found::Absent => self.contradicts(item, change, &"it has no operation"),
            rows::Found::Damaged(damage) => self.contradicts(item, change, &damage),
        }
    }

    /// Writes a step of an item whose operation was read already.
    pub(super) fn take_with(
        &mut self,
        item: &mut Item,
        kept: &mut Kept,
        change: &Change,
        by: By<'_>,
        now: Timestamp,
    ) -> Result<Taken, Fault> {
        let kind = match apply(kept, change, now) {
            Ok(kind) => kind,
            Err(error) => return self.contradicts(item, change, &error),
        };
        if change.operation.is_some() {
            rows::update(&self.connection, kept)?;
        }
        if let Some(kind) = kind {
            let line = match by {
                By::Worker => AuditLine::of_caller(&kept.record, kind, change.words.as_deref()),
                By::Operator { who, reason } => {
                    AuditLine::of_order(&kept.record, kind, who, reason)
                }
            };
            self.audit(kept, now, &line)?;
        }
        self.take_beside(item, change, now)
    }

    /// Writes a step's part of item and target.
    fn take_beside(
        &mut self,
        item: &mut Item,
        change: &Change,
        now: Timestamp,
    ) -> Result<Taken, Fault> {
        if change.delivery != item.delivery {
            self.stamp(now);
            item.delivery = change.delivery.clone();
            items::update(&self.connection, item)?;
        } else if change.operation.is_some() || change.audit.is_some() {
            self.stamp(now);
        }
        let mut parked_target = false;
        if let Some(told) = &change.target
            && let Some(target) = self.sound_target(item.target_no)?
        {
            let mut after = target.clone();
            parked_target = apply_to_target(&mut after.state, Some(told), now);
            if after != target {
                self.stamp(now);
                self.keep_target(&after)?;
            }
        }
        Ok(Taken::Whole { parked_target })
    }

    /// The operation cannot take the step. What the item says of it is kept, and no more is done
    /// with it.
    fn contradicts(
        &mut self,
        item: &mut Item,
        change: &Change,
        why: &dyn std::fmt::Display,
    ) -> Result<Taken, Fault> {
        item.delivery = change.delivery.clone();
        items::update(&self.connection, item)?;
        items::set_aside(&self.connection, item.delivery.key.as_bytes(), why)?;
        self.stamp(item.delivery.updated_at);
        Ok(Taken::SetAside)
    }

    /// An item by its key, for a command about it.
    pub(super) fn item(&self, key: OperationKey) -> Result<Option<Item>, Fault> {
        match items::find(&self.connection, key)? {
            Found::Kept(item) => Ok(Some(*item)),
            Found::Absent => Ok(None),
            Found::Damaged(damage) => {
                self.set_item_aside(key.as_bytes(), damage)?;
                Ok(None)
            }
        }
    }

    /// An item by its key with its operation, for a command about both.
    pub(super) fn pair(&self, key: OperationKey) -> Result<Option<(Item, rows::Found)>, Fault> {
        match pair::find(&self.connection, key)? {
            pair::Found::Kept(item, record) => Ok(Some((*item, record))),
            pair::Found::Absent => Ok(None),
            pair::Found::Damaged(damage) => {
                self.set_item_aside(key.as_bytes(), damage)?;
                Ok(None)
            }
        }
    }

    /// Takes a damaged item out of the claims, with the alarm. One that was set aside stays so in
    /// silence.
    pub(super) fn set_item_aside(&self, key: &[u8], damage: Damage) -> Result<(), Fault> {
        if damage.column != "quarantined" {
            items::set_aside(&self.connection, key, &damage)?;
        }
        Ok(())
    }

    /// Takes an item back if its lease has ended.
    pub(super) fn lapse_if_due(
        &mut self,
        item: &mut Item,
        now: Timestamp,
    ) -> Result<Option<Change>, Fault> {
        let is_held = matches!(item.delivery.state, State::Leased | State::Sending);
        if !is_held || item.delivery.lease.is_some_and(|lease| now < lease.until) {
            return Ok(None);
        }
        let seed = lapse_seed(&item.delivery);
        let Ok(change) = step(&item.delivery, Event::Lapse { seed }, now) else {
            return Ok(None);
        };
        self.take(item, &change, By::Worker, now)?;
        Ok(Some(change))
    }
}

pub(super) const LAPSED: &str = "SELECT operation_key FROM outbox WHERE target_no = ?1 \
    AND lease_until_ms <= ?2 AND quarantined = 0 ORDER BY lease_until_ms, operation_key LIMIT ?3";

/// The keys of the items of a target whose leases have ended.
pub(super) fn lapsed(
    connection: &Connection,
    target_no: i64,
    now: Timestamp,
    max_count: usize,
) -> rusqlite::Result<Vec<OperationKey>> {
    let limit = i64::try_from(max_count).unwrap_or(i64::MAX);
    connection
        .prepare_cached(LAPSED)?
        .query_map(rusqlite::params![target_no, now.as_ms(), limit], |row| {
            row.get(0).map(OperationKey::from_bytes)
        })?
        .collect()
}
