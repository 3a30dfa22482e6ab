//! What operators ask of the outbox in memory, and what they order.

use counterfoil_core::delivery::{
    Delivery, Event, ParkReason, Paused, State, TargetName, TargetState, step,
};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::time::Timestamp;

use super::ledger::Ledger;
use super::outbox::By;
use crate::clock::SharedMark;
use crate::contract::{Resolve, Resolved};
use crate::error::StoreError;
use crate::outbox::{
    DeliveryPage, DeliveryQuery, DeliveryView, Directed, Order, OutboxStats, RevokeOrder, Revoked,
    TargetAction, TargetOrder, TargetView, Which,
};
use crate::outbox_steps::{is_parked_for_revocation, ordered, resolve, waits};
use crate::steps::AuditLine;

impl Ledger {
    pub(super) fn delivery(&self, which: &Which) -> Option<DeliveryView> {
        self.view(self.which(which)?)
    }

    fn which(&self, which: &Which) -> Option<OperationKey> {
        match which {
            Which::Key(key) => Some(*key),
            Which::Operation(tenant, id) => self.find(tenant, id).map(|kept| kept.record.key),
        }
    }

    pub(super) fn deliveries(&self, query: &DeliveryQuery) -> DeliveryPage {
        let mut wanted = self
            .outbox
            .items
            .keys()
            .rev()
            .filter_map(|key| self.view(*key))
            .filter(|view| query.admits(&view.record.tenant, &view.delivery));
        let items: Vec<DeliveryView> = wanted.by_ref().take(query.page_count()).collect();
        let last = items.last().map(|view| view.delivery.key);
        DeliveryPage { items, damaged_count: 0, next: wanted.next().and(last) }
    }

    pub(super) fn direct(
        &mut self,
        order: &Order,
        mark: &SharedMark,
    ) -> Result<Vec<Directed>, StoreError> {
        let now = mark.now();
        let directed = order.which.iter().map(|which| self.direct_one(which, order, now)).collect();
        self.keep_time(now, mark);
        directed
    }

    fn direct_one(
        &mut self,
        which: &Which,
        order: &Order,
        now: Timestamp,
    ) -> Result<Directed, StoreError> {
        let Some(key) = self.which(which).filter(|key| self.outbox.items.contains_key(key)) else {
            return Ok(Directed::Absent);
        };
        self.lapse_if_due(key, now)?;
        match step(&self.outbox.items[&key].delivery, ordered(order.action), now) {
            Err(illegal) => Ok(Directed::Illegal(illegal)),
            Ok(change) => {
                self.take(&change, By::Operator(&order.who, &order.reason), now)?;
                Ok(Directed::Done(Box::new(change.delivery)))
            }
        }
    }

    /// Settles a delivery with its operation, as an operator says.
    pub(super) fn resolve_delivery(
        &mut self,
        key: OperationKey,
        said: &Resolve,
        mark: &SharedMark,
    ) -> Resolved {
        let now = mark.now();
        if self.lapse_if_due(key, now).is_err() {
            return Resolved::Quarantined;
        }
        self.keep_time(now, mark);
        let kept = self.operations[&key].clone();
        let (kept, delivery, kind) =
            match resolve(kept, &self.outbox.items[&key].delivery, said, now) {
                Err(stands_against) => return stands_against,
                Ok(settled) => settled,
            };
        let record = kept.record.clone();
        self.write(&AuditLine::of_operator(&record, kind, said), key, now);
        self.operations.insert(key, kept);
        if let Some(item) = self.outbox.items.get_mut(&key) {
            item.delivery = delivery;
        }
        mark.raise(now);
        Resolved::Done(Box::new(record))
    }

    pub(super) fn targets(&self) -> Vec<TargetView> {
        let view = |(target, state): (&TargetName, &TargetState)| {
            let (counts, oldest) = self.counts(Some(target));
            TargetView { target: target.clone(), state: state.clone(), counts, oldest }
        };
        self.outbox.targets.iter().map(view).collect()
    }

    pub(super) fn direct_target(&mut self, order: &TargetOrder, mark: &SharedMark) -> TargetState {
        let now = mark.now();
        let state = self.outbox.targets.entry(order.target.clone()).or_default();
        match order.action {
            TargetAction::Pause => {
                let paused =
                    Paused { who: order.who.clone(), reason: order.reason.clone(), since: now };
                state.paused.get_or_insert(paused);
            }
            TargetAction::Resume => state.resume(now),
        }
        mark.raise(now);
        state.clone()
    }

    pub(super) fn set_revoked(
        &mut self,
        order: &RevokeOrder,
        mark: &SharedMark,
    ) -> Result<(), StoreError> {
        let now = mark.now();
        let place = (order.tenant.clone(), order.principal.clone());
        if order.revoked {
            self.outbox.revoked.entry(place).or_insert_with(|| {
                self.outbox.dirty = true;
                Revoked {
                    tenant: order.tenant.clone(),
                    principal: order.principal.clone(),
                    since: now,
                    who: order.who.clone(),
                    reason: order.reason.clone(),
                }
            });
        } else {
            self.outbox.dirty |= self.outbox.revoked.remove(&place).is_some();
            self.release(order, now)?;
        }
        self.keep_time(now, mark);
        Ok(())
    }

    /// Queues what was parked for a revocation and is stood against by none any more.
    fn release(&mut self, order: &RevokeOrder, now: Timestamp) -> Result<(), StoreError> {
        let parked = self.outbox.items.values().map(|item| &item.delivery);
        let keys: Vec<OperationKey> = parked
            .filter(|item| item.state == State::Parked && is_parked_for_revocation(item))
            .map(|item| item.key)
            .collect();
        for key in keys {
            let record = &self.operations[&key].record;
            if record.tenant == order.tenant
                && self.is_revoked(&record.tenant, &record.principal).is_none()
            {
                self.unpark(key, By::Operator(&order.who, &order.reason), now)?;
            }
        }
        Ok(())
    }

    fn unpark(&mut self, key: OperationKey, by: By<'_>, now: Timestamp) -> Result<(), StoreError> {
        let change = step(&self.outbox.items[&key].delivery, Event::Unpark, now)
            .expect("only what is parked is released");
        self.take(&change, by, now).map(drop)
    }

    pub(super) fn match_targets(
        &mut self,
        known: &[TargetName],
        parks: bool,
        max_count: usize,
        mark: &SharedMark,
    ) -> Result<usize, StoreError> {
        let now = mark.now();
        let is_wrong = |item: &&Delivery| match (item.state, item.park) {
            (State::Queued, _) => parks && !known.contains(&item.target),
            (State::Parked, Some(ParkReason::TargetUnknown)) => known.contains(&item.target),
            _ => false,
        };
        let items = self.outbox.items.values().map(|item| &item.delivery).filter(is_wrong);
        let wrong: Vec<(OperationKey, State)> =
            items.take(max_count).map(|item| (item.key, item.state)).collect();
        for (key, state) in &wrong {
            if *state == State::Parked {
                self.unpark(*key, By::Worker, now)?;
                continue;
            }
            let item = &self.outbox.items[key].delivery;
            let change = step(item, Event::Park(ParkReason::TargetUnknown), now)
                .expect("what is queued can be parked");
            self.take(&change, By::Worker, now)?;
        }
        self.keep_time(now, mark);
        Ok(wrong.len())
    }

    pub(super) fn revoked(&self) -> Vec<Revoked> {
        self.outbox.revoked.values().cloned().collect()
    }

    pub(super) fn outbox_stats(&self) -> OutboxStats {
        let (counts, oldest) = self.counts(None);
        let states = || self.outbox.targets.values();
        OutboxStats {
            counts,
            oldest,
            parked_targets: states().filter(|state| state.parked.is_some()).count() as u64,
            paused_targets: states().filter(|state| state.paused.is_some()).count() as u64,
        }
    }

    fn counts(&self, target: Option<&TargetName>) -> ([u64; 8], Option<Timestamp>) {
        let (mut counts, mut oldest) = ([0; 8], None);
        let items = self.outbox.items.values().map(|item| &item.delivery);
        for item in items.filter(|item| target.is_none_or(|target| item.target == *target)) {
            counts[item.state as usize] += 1;
            if waits(item.state) {
                oldest =
                    Some(oldest.map_or(item.created_at, |at: Timestamp| at.min(item.created_at)));
            }
        }
        (counts, oldest)
    }
}
