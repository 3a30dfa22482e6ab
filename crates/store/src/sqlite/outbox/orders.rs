//! What operators order: of items, of targets, of principals and tenants; and what a change of the
//! configuration means for items that wait.

use counterfoil_core::delivery::{Event, ParkReason, Paused, TargetName, TargetState, step};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, params};

use super::change::{By, Taken};
use super::items::{self, Found, park_number};
use super::revoked::{self, OnRecord, put_on_record};
use super::targets;
use crate::contract::{Resolve, Resolved};
use crate::outbox::{Directed, Order, RevokeOrder, TargetAction, TargetOrder, Which};
use crate::outbox_steps::{ordered, resolve};
use crate::sqlite::commands::{Session, set_aside, set_aside_key};
use crate::sqlite::faults::Fault;
use crate::sqlite::rows;
use crate::steps::{AuditLine, Kept};

/// One transaction looks at so many parked items at most.
const PARKED_COUNT: i64 = 256;

/// How far parked items were looked through, in the order of their index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::sqlite) struct ParkedPlace {
    park: i64,
    target_no: i64,
    key: [u8; 16],
}

impl Session {
    /// Takes an operator's order on items.
    ///
    /// # Errors
    /// [`Fault`]; what was written is then to be rolled back.
    pub(super) fn direct(&mut self, order: &Order) -> Result<Vec<Directed>, Fault> {
        let now = self.mark.now();
        order.which.iter().map(|which| self.direct_one(which, order, now)).collect()
    }

    fn direct_one(
        &mut self,
        which: &Which,
        order: &Order,
        now: Timestamp,
    ) -> Result<Directed, Fault> {
        let key = match key_of(&self.connection, which)? {
            Ok(Some(key)) => key,
            Ok(None) => return Ok(Directed::Absent),
            Err(_) => return Ok(Directed::Quarantined),
        };
        let mut item = match items::find(&self.connection, key)? {
            Found::Kept(item) => *item,
            Found::Absent => return Ok(Directed::Absent),
            Found::Damaged(damage) => {
                let _ = set_aside_key(key, damage);
                return Ok(Directed::Quarantined);
            }
        };
        self.lapse_if_due(&mut item, now)?;
        let change = match step(&item.delivery, ordered(order.action), now) {
            Ok(change) => change,
            Err(illegal) => return Ok(Directed::Illegal(illegal)),
        };
        let by = By::Operator { who: &order.who, reason: &order.reason };
        Ok(match self.take(&mut item, &change, by, now)? {
            Taken::Whole { .. } => Directed::Done(Box::new(item.delivery)),
            Taken::SetAside => Directed::Quarantined,
        })
    }

    /// Settles a deferred operation and its item by an operator's word.
    ///
    /// # Errors
    /// As [`direct`](Self::direct).
    pub(in crate::sqlite) fn resolve_delivery(
        &mut self,
        mut kept: Kept,
        said: &Resolve,
        now: Timestamp,
    ) -> Result<Resolved, Fault> {
        let key = kept.record.key;
        let Found::Kept(mut item) = items::find(&self.connection, key)? else {
            return Ok(Resolved::Quarantined);
        };
        if self.lapse_if_due(&mut item, now)?.is_some() {
            let rows::Found::Kept(again) = rows::find_by_key(&self.connection, key)? else {
                return Ok(Resolved::Quarantined);
            };
            kept = *again;
        }
        let (kept, delivery, kind) = match resolve(kept, &item.delivery, said, now) {
            Ok(settled) => settled,
            Err(stands_against) => return Ok(stands_against),
        };
        self.stamp(now);
        item.delivery = delivery;
        items::update(&self.connection, &item)?;
        rows::update(&self.connection, &kept)?;
        self.audit(&kept, now, &AuditLine::of_operator(&kept.record, kind, said))?;
        Ok(Resolved::Done(Box::new(kept.record)))
    }

    /// Pauses or resumes a target.
    ///
    /// # Errors
    /// As [`direct`](Self::direct).
    pub(super) fn direct_target(&mut self, order: &TargetOrder) -> Result<TargetState, Fault> {
        let now = self.mark.now();
        self.stamp(now);
        let number = self.target_no(&order.target)?;
        let mut target = self.target(number)?;
        let kind = match order.action {
            TargetAction::Pause => {
                let (who, reason) = (order.who.clone(), order.reason.clone());
                target.state.paused.get_or_insert(Paused { who, reason, since: now });
                "target_paused"
            }
            TargetAction::Resume => {
                target.state.resume(now);
                "target_resumed"
            }
        };
        self.keep_target(&target)?;
        let (subject, who, reason) = (order.target.as_str(), &*order.who, &*order.reason);
        let on_record = OnRecord { kind, subject, principal: None, who, reason };
        put_on_record(&self.connection, &on_record, now)?;
        Ok(target.state)
    }

    /// Revokes or restores. What is parked for it is released by [`release`](Self::release).
    ///
    /// # Errors
    /// As [`direct`](Self::direct).
    pub(super) fn set_revoked(&mut self, order: &RevokeOrder) -> Result<(), Fault> {
        let now = self.mark.now();
        self.seen.forget_revoked();
        if !revoked::set(&self.connection, order, now)? {
            return Ok(());
        }
        self.stamp(now);
        let on_record = OnRecord {
            kind: if order.revoked { "revoked" } else { "restored" },
            subject: order.tenant.as_str(),
            principal: order.principal.as_ref().map(|named| named.as_str()),
            who: &order.who,
            reason: &order.reason,
        };
        Ok(put_on_record(&self.connection, &on_record, now)?)
    }

    /// Queues what was parked for a revocation that stands no more, from one place of the index on;
    /// gives the next place, if there may be more.
    ///
    /// # Errors
    /// As [`direct`](Self::direct).
    pub(super) fn release(
        &mut self,
        order: &RevokeOrder,
        after: ParkedPlace,
    ) -> Result<Option<ParkedPlace>, Fault> {
        let now = self.mark.now();
        let places = parked_after(&self.connection, after)?;
        for place in &places {
            let key = OperationKey::from_bytes(place.key);
            let kept = match rows::find_by_key(&self.connection, key)? {
                rows::Found::Kept(kept) if kept.record.tenant == order.tenant => kept,
                _ => continue,
            };
            let record = &kept.record;
            let against = self.stands_against(&record.tenant, &record.principal)?;
            if against.is_none() {
                let by = By::Operator { who: &order.who, reason: &order.reason };
                self.take_event(key, Event::Unpark, by, now)?;
            }
        }
        let is_last = (places.len() as i64) < PARKED_COUNT;
        Ok(if is_last { None } else { places.last().copied() })
    }

    /// Parks what waits for an unknown target, and releases what was parked for that.
    ///
    /// # Errors
    /// As [`direct`](Self::direct).
    pub(super) fn match_targets(
        &mut self,
        known: &[TargetName],
        parks: bool,
        max_count: usize,
    ) -> Result<usize, Fault> {
        let now = self.mark.now();
        let mut changed_count = 0;
        for target in targets::all(&self.connection)? {
            let is_known = known.contains(&target.name);
            if !is_known && !parks {
                continue;
            }
            let event =
                if is_known { Event::Unpark } else { Event::Park(ParkReason::TargetUnknown) };
            let left = max_count - changed_count;
            for key in misplaced(&self.connection, target.number, is_known, left)? {
                changed_count +=
                    usize::from(self.take_event(key, event.clone(), By::Worker, now)?);
            }
        }
        Ok(changed_count)
    }

    /// Takes an event for an item that was found by an index; says whether it was taken.
    fn take_event(
        &mut self,
        key: OperationKey,
        event: Event,
        by: By<'_>,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let Some(mut item) = self.item(key)? else { return Ok(false) };
        let Ok(change) = step(&item.delivery, event, now) else { return Ok(false) };
        self.take(&mut item, &change, by, now).map(|_| true)
    }
}

/// The key of the operation that is meant, if it is there; the inner error is that it cannot be
/// read.
pub(super) fn key_of(
    connection: &Connection,
    which: &Which,
) -> rusqlite::Result<Result<Option<OperationKey>, crate::sqlite::cells::Damage>> {
    let (tenant, id) = match which {
        Which::Key(key) => return Ok(Ok(Some(*key))),
        Which::Operation(tenant, id) => (tenant, id),
    };
    Ok(match rows::find_by_id(connection, tenant, id)? {
        rows::Found::Kept(kept) if kept.record.operation_id == *id => Ok(Some(kept.record.key)),
        rows::Found::Kept(_) | rows::Found::Absent => Ok(None),
        rows::Found::Damaged(damage) => {
            let _ = set_aside(id, damage);
            Err(damage)
        }
    })
}

pub(super) const PARKED_FOR: &str = "SELECT operation_key FROM outbox WHERE park = ?3 \
    AND target_no = ?1 AND quarantined = 0 ORDER BY operation_key LIMIT ?2";
/// The third parameter is there for the sake of the other statement's.
pub(super) const WAITING: &str = "SELECT operation_key FROM outbox WHERE target_no = ?1 \
    AND next_attempt_ms IS NOT NULL AND quarantined = 0 AND ?3 > 0 \
    ORDER BY next_attempt_ms, operation_key LIMIT ?2";
pub(super) const PARKED_AFTER: &str = "SELECT park, target_no, operation_key FROM outbox \
    WHERE (park, target_no, operation_key) > (?1, ?2, ?3) AND park <= ?4 \
    AND quarantined = 0 ORDER BY park, target_no, operation_key LIMIT ?5";

/// Items of a target that are queued though it is unknown, or parked for that though it is known.
pub(super) fn misplaced(
    connection: &Connection,
    target_no: i64,
    is_known: bool,
    max_count: usize,
) -> rusqlite::Result<Vec<OperationKey>> {
    let limit = i64::try_from(max_count).unwrap_or(i64::MAX);
    let sql = if is_known { PARKED_FOR } else { WAITING };
    let reason = park_number(ParkReason::TargetUnknown);
    connection
        .prepare_cached(sql)?
        .query_map([target_no, limit, reason], |row| row.get(0).map(OperationKey::from_bytes))?
        .collect()
}

/// Items that are parked for a revocation, behind a place of the index.
fn parked_after(connection: &Connection, after: ParkedPlace) -> rusqlite::Result<Vec<ParkedPlace>> {
    let last = park_number(ParkReason::TenantRevoked);
    connection
        .prepare_cached(PARKED_AFTER)?
        .query_map(params![after.park, after.target_no, after.key, last, PARKED_COUNT], |row| {
            Ok(ParkedPlace { park: row.get(0)?, target_no: row.get(1)?, key: row.get(2)? })
        })?
        .collect()
}
