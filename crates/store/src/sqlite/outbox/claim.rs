//! Claims: a bounded number of due items of one target is leased, found by the index of what is due
//! and nothing else. What has ended, or what only a person can go on with, is settled on the way.

use std::sync::Arc;

use counterfoil_core::delivery::{Event, Gate, Lease, ParkReason, State, step};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::time::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use super::change::{By, Taken, lapsed};
use super::items::{self, Item};
use super::targets::{self, Target, damaged};
use super::{reads, revoked};
use crate::outbox::{Claim, Claimed, ClaimedItem, TakenBack};
use crate::outbox_steps::{claim_count, next_due};
use crate::sqlite::cells::{Cells, Damage};
use crate::sqlite::commands::Session;
use crate::sqlite::faults::Fault;
use crate::sqlite::rows;
use crate::under_way::UnderWay;

/// One claim takes back at most so many items whose leases have ended, and settles at most so many.
const ON_THE_WAY_COUNT: usize = 256;

impl Session {
    /// Leases what is due.
    ///
    /// # Errors
    /// [`Fault`]; what was written is then to be rolled back.
    pub(super) fn claim(&mut self, asked: &Claim) -> Result<Claimed, Fault> {
        let now = self.mark.now();
        let mut claimed = Claimed::default();
        let Some(target) = targets::find(&self.connection, &asked.target)? else {
            return Ok(claimed);
        };
        let number = target.map_err(|damage| damaged(&damage))?.number;
        for key in lapsed(&self.connection, number, now, ON_THE_WAY_COUNT)? {
            if asked.under_way.contains(key) {
                continue;
            }
            let Some(mut item) = self.item(key)? else { continue };
            let change = self.lapse_if_due(&mut item, now)?;
            let alarm = change.and_then(|change| change.alarm);
            claimed.alarms.extend(alarm.map(|alarm| (key, alarm)));
        }
        let mut target = self.target(number)?;
        self.lease_due(asked, &target, now, &mut claimed)?;
        if target.state.gate(now) == Gate::Probe && !claimed.items.is_empty() {
            target.state.take_probe(now);
            self.keep_target(&target)?;
        }
        let earliest = reads::earliest(&self.connection, number)?;
        claimed.next_due = next_due(&target.state, earliest, now);
        Ok(claimed)
    }

    fn lease_due(
        &mut self,
        asked: &Claim,
        target: &Target,
        now: Timestamp,
        claimed: &mut Claimed,
    ) -> Result<(), Fault> {
        let max_count = claim_count(&target.state, asked.max_count, asked.probe, now);
        let probe = asked.probe || target.state.gate(now) == Gate::Probe;
        let lease = Lease { boot: asked.boot, until: now.plus(asked.lease), probe };
        let mut on_the_way_count = 0;
        while claimed.items.len() < max_count && on_the_way_count < ON_THE_WAY_COUNT {
            let wanted_count = max_count - claimed.items.len();
            let due = self.due(target.number, now, wanted_count)?;
            let is_last = due.len() < wanted_count;
            for found in due {
                let leased = match found {
                    Ok(due) => self.turn(due, lease, now, claimed)?,
                    Err((key, damage)) => {
                        self.set_item_aside(&key, damage)?;
                        self.stamp(now);
                        None
                    }
                };
                match leased {
                    Some(item) => claimed.items.push(item),
                    None => on_the_way_count += 1,
                }
            }
            if is_last {
                return Ok(());
            }
        }
        Ok(())
    }

    /// An item's turn has come: it is leased, unless something stands against it.
    fn turn(
        &mut self,
        (mut item, request): (Item, Arc<[u8]>),
        lease: Lease,
        now: Timestamp,
        claimed: &mut Claimed,
    ) -> Result<Option<ClaimedItem>, Fault> {
        let key = item.delivery.key;
        let against = self.stands_against_item(key)?;
        let event = against.map_or(Event::Claim { lease }, Event::Park);
        let Ok(change) = step(&item.delivery, event, now) else {
            unreachable!("only what is queued is due, and it can be claimed and parked")
        };
        if let Taken::SetAside = self.take(&mut item, &change, By::Worker, now)? {
            return Ok(None);
        }
        claimed.alarms.extend(change.alarm.map(|alarm| (key, alarm)));
        if item.delivery.state != State::Leased {
            return Ok(None);
        }
        let work = item.delivery.work(now);
        Ok(work.map(|work| ClaimedItem { delivery: item.delivery, work, request }))
    }

    /// What stands against the writes of an operation's principal. Of a damaged record nothing is
    /// known here; the step before its sending finds it.
    fn stands_against_item(&mut self, key: OperationKey) -> Result<Option<ParkReason>, Fault> {
        if !self.is_anybody_revoked()? {
            return Ok(None);
        }
        Ok(match rows::find_by_key(&self.connection, key)? {
            rows::Found::Kept(kept) => {
                revoked::against(&self.connection, &kept.record.tenant, &kept.record.principal)?
            }
            rows::Found::Absent | rows::Found::Damaged(_) => None,
        })
    }

    /// The first items that are due with their requests, and the keys of those that are damaged.
    #[allow(clippy::type_complexity, reason = "a row is sound, or its key and its damage are told")]
    fn due(
        &self,
        target_no: i64,
        now: Timestamp,
        max_count: usize,
    ) -> Result<Vec<Result<(Item, Arc<[u8]>), (Vec<u8>, Damage)>>, Fault> {
        let limit = i64::try_from(max_count).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(items::DUE)?;
        let mut rows = statement.query(params![target_no, now.as_ms(), limit])?;
        let mut due = Vec::new();
        while let Some(row) = rows.next()? {
            due.push(match decode_due(row) {
                Ok(due) => Ok(due),
                Err(damage) => Err((row.get(0)?, damage)),
            });
        }
        Ok(due)
    }

    /// Takes back items of every target whose leases have ended.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub(super) fn take_back_lapsed(
        &mut self,
        under_way: &UnderWay,
        max_count: usize,
    ) -> Result<Vec<TakenBack>, Fault> {
        let now = self.mark.now();
        let mut taken = Vec::new();
        for target in targets::all(&self.connection)? {
            let left = max_count - taken.len();
            for key in lapsed(&self.connection, target.number, now, left)? {
                if under_way.contains(key) {
                    continue;
                }
                let Some(mut item) = self.item(key)? else { continue };
                if let Some(change) = self.lapse_if_due(&mut item, now)? {
                    let (target, alarm) = (target.name.clone(), change.alarm);
                    taken.push(TakenBack { key, target, alarm });
                }
            }
        }
        Ok(taken)
    }
}

/// An item and its request, each against its digest.
fn decode_due(row: &Row<'_>) -> Result<(Item, Arc<[u8]>), Damage> {
    let mut cells = Cells::of(row);
    let item = items::decode_from(&mut cells)?;
    let request = items::decode_request(item.delivery.key, &mut cells)?;
    Ok((item, request))
}

pub(super) const ANY_LAPSED: &str = "SELECT 1 FROM outbox_targets t WHERE EXISTS \
    (SELECT 1 FROM outbox d WHERE d.target_no = t.target_no AND d.lease_until_ms <= ?1 \
    AND d.quarantined = 0) LIMIT 1";

/// Whether a lease of some target has ended.
pub(super) fn is_any_lapsed(
    connection: &rusqlite::Connection,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(ANY_LAPSED)?;
    Ok(statement.query_row([now.as_ms()], |_| Ok(())).optional()?.is_some())
}
