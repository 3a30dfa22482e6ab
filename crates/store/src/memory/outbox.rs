//! The outbox in memory: the plain model of deliveries, found by looking at all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use counterfoil_core::admission::LedgerTime;
use counterfoil_core::delivery::{
    Alarm, Change, Delivery, Event, Gate, Lease, State, TargetName, TargetState, step,
};
use counterfoil_core::identity::{OperationKey, Principal, Tenant};
use counterfoil_core::record::Record;
use counterfoil_core::time::Timestamp;

use super::ledger::Ledger;
use super::path;
use crate::clock::SharedMark;
use crate::error::StoreError;
use crate::outbox::{
    Acceptance, Accepted, BeginSend, Begun, Claim, Claimed, ClaimedItem, DeliveryView, Report,
    Reported, Revoked, TakenBack,
};
use crate::outbox_steps::{
    self as steps, DUPLICATE_SUBMISSION, apply, apply_to_target, claim_count, lapse_seed,
    stands_against,
};
use crate::steps::{AuditLine, key_taken};
use crate::under_way::UnderWay;

/// What is kept of deliveries.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) items: BTreeMap<OperationKey, Item>,
    pub(super) targets: BTreeMap<TargetName, TargetState>,
    pub(super) revoked: BTreeMap<(Tenant, Option<Principal>), Revoked>,
    /// Whether the command under way has written anything: only then is its time kept.
    pub(super) dirty: bool,
}

/// One item with its request, until that is purged.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) delivery: Delivery,
    request: Option<Arc<[u8]>>,
}

impl Outbox {
    /// Forgets an item's request. It goes with the operation's result.
    pub(super) fn purge(&mut self, key: OperationKey) {
        if let Some(item) = self.items.get_mut(&key) {
            item.request = None;
        }
    }

    fn target(&self, name: &TargetName) -> TargetState {
        self.targets.get(name).cloned().unwrap_or_default()
    }

    /// When the first item of a target is due, or its lease ends.
    fn earliest(&self, target: &TargetName) -> Option<Timestamp> {
        let of_target = self.items.values().filter(|item| item.delivery.target == *target);
        of_target
            .filter_map(|item| {
                item.delivery.next_attempt_at.or(item.delivery.lease.map(|lease| lease.until))
            })
            .min()
    }

    /// The items of a target, or of all, whose leases have ended.
    fn lapsed(&self, target: Option<&TargetName>, now: Timestamp) -> Vec<OperationKey> {
        let is_lapsed = |item: &&Item| {
            target.is_none_or(|target| item.delivery.target == *target)
                && item.delivery.lease.is_some_and(|lease| lease.until <= now)
        };
        self.items.values().filter(is_lapsed).map(|item| item.delivery.key).collect()
    }
}

/// Who takes a step, for the audit trail.
#[derive(Debug, Clone, Copy)]
pub(super) enum By<'a> {
    /// The ledger or a worker, for the operation's own principal.
    Worker,
    /// An operator, who gave a reason.
    Operator(&'a str, &'a str),
}

impl Ledger {
    pub(super) fn accept(
        &mut self,
        asked: &Acceptance,
        mark: &SharedMark,
    ) -> Result<Accepted, StoreError> {
        let (call, now) = (&asked.admitted, mark.now());
        let caller = call.caller();
        let place = (caller.tenant.clone(), call.operation_id().index_key());
        let record = self.by_id.get(&place).map(|key| &self.operations[key].record);
        let revoked = self.is_revoked(&caller.tenant, &caller.principal).is_some();
        let time = LedgerTime { now, horizon: mark.horizon() };
        match steps::accept(call, record, revoked, time) {
            steps::Acceptance::Refused(refusal) => return Ok(Accepted::Refused(refusal)),
            steps::Acceptance::Duplicate => {
                let key = self.by_id[&place];
                let record = self.operations[&key].record.clone();
                self.write(&AuditLine::of_caller(&record, DUPLICATE_SUBMISSION, None), key, now);
                mark.raise(now);
                let view = self.view(key).expect("accept() replays only what has an item");
                return Ok(Accepted::Duplicate(Box::new(view)));
            }
            steps::Acceptance::Fresh => {}
        }
        let (kept, kind) = steps::accepted(call, now);
        let key = kept.record.key;
        if self.operations.contains_key(&key) {
            return Err(key_taken(path()));
        }
        let delivery = Delivery::accepted(key, asked.target.clone(), asked.terms, now);
        let request = Some(Arc::clone(&asked.request));
        self.outbox.targets.entry(asked.target.clone()).or_default();
        self.outbox.items.insert(key, Item { delivery, request });
        self.by_id.insert(place, key);
        self.write(&AuditLine::of_caller(&kept.record, kind, None), key, now);
        self.operations.insert(key, kept);
        mark.raise(now);
        let view = self.view(key).expect("it was put in just now");
        Ok(Accepted::Fresh(Box::new(view)))
    }

    pub(super) fn claim(
        &mut self,
        asked: &Claim,
        mark: &SharedMark,
    ) -> Result<Claimed, StoreError> {
        let now = mark.now();
        let mut claimed = Claimed::default();
        for key in self.outbox.lapsed(Some(&asked.target), now) {
            if asked.under_way.contains(key) {
                continue;
            }
            let change = self.lapse(key, now)?;
            claimed.alarms.extend(change.alarm.map(|alarm| (key, alarm)));
        }
        let mut target = self.outbox.target(&asked.target);
        let is_probe = asked.probe || target.gate(now) == Gate::Probe;
        let max_count = claim_count(&target, asked.max_count, asked.probe, now);
        for key in self.queued_due(&asked.target, now) {
            if claimed.items.len() >= max_count {
                break;
            }
            let lease = Lease { boot: asked.boot, until: now.plus(asked.lease), probe: is_probe };
            let change = self.turn(key, lease, now)?;
            claimed.alarms.extend(change.alarm.map(|alarm| (key, alarm)));
            if change.delivery.state == State::Leased {
                claimed.items.push(self.claimed_item(key, now));
            }
        }
        if target.gate(now) == Gate::Probe && !claimed.items.is_empty() {
            target.take_probe(now);
            self.outbox.targets.insert(asked.target.clone(), target);
        }
        claimed.next_due = self.next_due(&asked.target, now);
        self.keep_time(now, mark);
        Ok(claimed)
    }

    /// An item's turn has come: it is leased, unless something stands against it.
    fn turn(
        &mut self,
        key: OperationKey,
        lease: Lease,
        now: Timestamp,
    ) -> Result<Change, StoreError> {
        let record = &self.operations[&key].record;
        let event = match self.is_revoked(&record.tenant, &record.principal) {
            Some(reason) => Event::Park(reason),
            None => Event::Claim { lease },
        };
        let change = step(&self.outbox.items[&key].delivery, event, now)
            .expect("queued_due() gives only what is queued");
        self.take(&change, By::Worker, now)?;
        Ok(change)
    }

    fn claimed_item(&self, key: OperationKey, now: Timestamp) -> ClaimedItem {
        let item = &self.outbox.items[&key];
        ClaimedItem {
            delivery: item.delivery.clone(),
            work: item.delivery.work(now).expect("a claim leases only what has work"),
            request: item.request.clone().expect("only what is settled has lost its request"),
        }
    }

    /// The frozen request of an item, until it is purged.
    pub(super) fn request(&self, key: OperationKey) -> Option<Arc<[u8]>> {
        self.outbox.items.get(&key)?.request.clone()
    }

    pub(super) fn begin_send(
        &mut self,
        begins: &[BeginSend],
        mark: &SharedMark,
    ) -> Result<Vec<Begun>, StoreError> {
        let now = mark.now();
        let begun = begins.iter().map(|begin| self.begin_one(begin, now)).collect();
        self.keep_time(now, mark);
        begun
    }

    fn begin_one(&mut self, begin: &BeginSend, now: Timestamp) -> Result<Begun, StoreError> {
        let Some(item) = self.outbox.items.get(&begin.key) else { return Ok(Begun::NotHeld) };
        let record = &self.operations[&begin.key].record;
        let revoked = self.is_revoked(&record.tenant, &record.principal);
        let is_paused = self.outbox.target(&item.delivery.target).paused.is_some();
        let Some(change) = steps::begin_send(&item.delivery, begin, revoked, is_paused, now) else {
            return Ok(Begun::NotHeld);
        };
        self.take(&change, By::Worker, now)?;
        Ok(match change.delivery.state {
            State::Sending => Begun::Send,
            _ => Begun::Withheld(change.alarm),
        })
    }

    pub(super) fn report(
        &mut self,
        reports: &[Report],
        mark: &SharedMark,
    ) -> Result<Vec<Reported>, StoreError> {
        let now = mark.now();
        let reported = reports.iter().map(|report| self.report_one(report, now)).collect();
        self.keep_time(now, mark);
        reported
    }

    fn report_one(&mut self, report: &Report, now: Timestamp) -> Result<Reported, StoreError> {
        let nothing = |state: Option<State>, alarm: Option<Alarm>| Reported {
            state,
            alarm,
            fenced: true,
            parked_target: false,
        };
        let Some(item) = self.outbox.items.get(&report.key) else {
            return Ok(nothing(None, None));
        };
        let Some(change) = steps::report(&item.delivery, report, now) else {
            return Ok(nothing(Some(item.delivery.state), None));
        };
        let parked_target = self.take(&change, By::Worker, now)?;
        Ok(Reported {
            state: Some(change.delivery.state),
            alarm: change.alarm,
            fenced: change.fenced,
            parked_target,
        })
    }

    pub(super) fn take_back_lapsed(
        &mut self,
        under_way: &UnderWay,
        max_count: usize,
        mark: &SharedMark,
    ) -> Result<Vec<TakenBack>, StoreError> {
        let now = mark.now();
        let mut keys = self.outbox.lapsed(None, now);
        keys.retain(|key| !under_way.contains(*key));
        keys.truncate(max_count);
        let mut taken = Vec::with_capacity(keys.len());
        for key in keys {
            let change = self.lapse(key, now)?;
            let (target, alarm) = (change.delivery.target, change.alarm);
            taken.push(TakenBack { key, target, alarm });
        }
        self.keep_time(now, mark);
        Ok(taken)
    }

    fn lapse(&mut self, key: OperationKey, now: Timestamp) -> Result<Change, StoreError> {
        let item = &self.outbox.items[&key].delivery;
        let change = step(item, Event::Lapse { seed: lapse_seed(item) }, now)
            .expect("lapsed() gives only what is held and whose lease has ended");
        self.take(&change, By::Worker, now)?;
        Ok(change)
    }

    /// Takes an item back if its lease has ended.
    pub(super) fn lapse_if_due(
        &mut self,
        key: OperationKey,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        match self.outbox.items[&key].delivery.lease {
            Some(lease) if lease.until <= now => self.lapse(key, now).map(drop),
            _ => Ok(()),
        }
    }

    /// The queued items of a target that are due, the earliest first.
    fn queued_due(&self, target: &TargetName, now: Timestamp) -> Vec<OperationKey> {
        let mut due: Vec<(Timestamp, OperationKey)> = self
            .outbox
            .items
            .values()
            .filter(|item| item.delivery.target == *target)
            .filter_map(|item| Some((item.delivery.next_attempt_at?, item.delivery.key)))
            .filter(|(at, _)| *at <= now)
            .collect();
        due.sort_unstable();
        due.into_iter().map(|(_, key)| key).collect()
    }

    pub(super) fn next_due(&self, target: &TargetName, now: Timestamp) -> Option<Timestamp> {
        steps::next_due(&self.outbox.target(target), self.outbox.earliest(target), now)
    }

    pub(super) fn is_revoked(
        &self,
        tenant: &Tenant,
        principal: &Principal,
    ) -> Option<counterfoil_core::delivery::ParkReason> {
        stands_against(self.outbox.revoked.values(), tenant, principal)
    }

    /// Writes a step whole: the item, the record, the target, the audit event. Says whether it
    /// parked the target.
    pub(super) fn take(
        &mut self,
        change: &Change,
        by: By<'_>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let key = change.delivery.key;
        let kept = self.operations.get_mut(&key).expect("every item has its record");
        let kind = apply(kept, change, now)?;
        let record: Record = kept.record.clone();
        if let Some(kind) = kind {
            let line = match by {
                By::Worker => AuditLine::of_caller(&record, kind, change.words.as_deref()),
                By::Operator(who, reason) => AuditLine::of_order(&record, kind, who, reason),
            };
            self.write(&line, key, now);
        }
        let target = self.outbox.targets.entry(change.delivery.target.clone()).or_default();
        let parked = apply_to_target(target, change.target.as_ref(), now);
        let item = self.outbox.items.get_mut(&key).expect("a step is of an item that is kept");
        self.outbox.dirty |= item.delivery != change.delivery;
        item.delivery = change.delivery.clone();
        Ok(parked)
    }

    /// The command's end: keeps its time, if it wrote anything.
    pub(super) fn keep_time(&mut self, now: Timestamp, mark: &SharedMark) {
        if std::mem::take(&mut self.outbox.dirty) {
            mark.raise(now);
        }
    }

    pub(super) fn view(&self, key: OperationKey) -> Option<DeliveryView> {
        let delivery = self.outbox.items.get(&key)?.delivery.clone();
        let record = self.operations.get(&key)?.record.clone();
        let target = self.outbox.target(&delivery.target);
        Some(DeliveryView { record, delivery, target })
    }
}
