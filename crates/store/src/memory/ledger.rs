//! The commands of the ledger in memory, one at a time.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};

use counterfoil_core::admission::{Decision, LedgerTime, decide};
use counterfoil_core::identity::{IndexKey, OperationId, OperationKey, Principal, Tenant};
use counterfoil_core::observation::Snapshot;
use counterfoil_core::operation::Event;
use counterfoil_core::record::EffectRef;
use counterfoil_core::time::Timestamp;

use super::direct::Directs;
use super::outbox::Outbox;
use super::path;
use super::purge::Upkeep;
use super::rows::{MemoryEffects, Rows};
use crate::clock::SharedMark;
use crate::contract::{Answer, AuditEvent, Finish, Resolve, Resolved, Submission};
use crate::effect::{Completion, EffectContext, EffectError, EffectRow, EffectTx};
use crate::error::{KeyProblem, OpenRefused, StoreError};
use crate::keys::KeyCheck;
use crate::steps::{
    AuditLine, CANCEL_REQUESTED, COMPENSATED, COMPENSATION_FAILED, Kept, NOT_THERE, RESERVED,
    check_result, compensation_identity, effect_failed, effect_words, finish_too_late, first_step,
    key_taken, last_step, leg_identity, nothing_to_finish, replay, resolve, wrong_row,
};
use crate::tables::{Tables, is_identifier, is_reserved};

/// All that is kept.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) operations: BTreeMap<OperationKey, Kept>,
    pub(super) by_id: HashMap<(Tenant, IndexKey), OperationKey>,
    pub(super) audit: HashMap<OperationKey, Vec<AuditEvent>>,
    pub(super) upkeep: Upkeep,
    pub(super) outbox: Outbox,
    pub(super) directs: Directs,
    keys: BTreeMap<u32, [u8; 16]>,
    pub(super) rows: Rows,
}

impl Ledger {
    pub(super) fn new(tables: Tables) -> Self {
        Self {
            operations: BTreeMap::new(),
            by_id: HashMap::new(),
            audit: HashMap::new(),
            upkeep: Upkeep::default(),
            outbox: Outbox::default(),
            directs: Directs::default(),
            keys: BTreeMap::new(),
            rows: Rows::new(tables),
        }
    }

    pub(super) fn has_operations(&self) -> bool {
        !self.operations.is_empty() || self.upkeep.has_forgotten()
    }

    pub(super) fn unsettled_count(&self) -> u64 {
        let unsettled = |kept: &&Kept| !kept.record.state.ages();
        self.operations.values().filter(unsettled).count() as u64
    }

    pub(super) fn key_ids(&self) -> Vec<u32> {
        self.keys.keys().copied().collect()
    }

    pub(super) fn bind_keys(
        &mut self,
        given: &[KeyCheck],
        mark: &SharedMark,
    ) -> Result<(), StoreError> {
        let now = mark.now();
        for (&key_id, value) in &self.keys {
            let problem = match given.iter().find(|check| check.id == key_id) {
                Some(check) if check.value == *value => continue,
                Some(_) => KeyProblem::Mismatch { key_id },
                None if self.needs_key(key_id, now) => KeyProblem::Missing { key_id },
                None => continue,
            };
            return Err(StoreError::Refused(OpenRefused::Keys(problem)));
        }
        for check in given {
            if self.keys.insert(check.id, check.value).is_none() {
                mark.raise(now);
            }
        }
        Ok(())
    }

    fn needs_key(&self, key_id: u32, now: Timestamp) -> bool {
        self.operations.values().any(|kept| {
            kept.record.binding.key_id.0 == key_id
                && kept.record.retention_ends_at.is_none_or(|end| end > now)
        })
    }

    pub(super) fn submit(
        &mut self,
        submission: &Submission,
        mark: &SharedMark,
    ) -> Result<Answer, StoreError> {
        let (admitted, effect) = (&submission.admitted, &submission.effect);
        let now = mark.now();
        let place = (admitted.caller().tenant.clone(), admitted.operation_id().index_key());
        let record = self.by_id.get(&place).map(|key| &self.operations[key].record);
        let time = LedgerTime { now, horizon: mark.horizon() };
        match (decide(admitted, record, time), record) {
            (Decision::Refuse(refusal), _) => return Ok(Answer::Refused(refusal)),
            (Decision::Replay, Some(record)) => {
                return Ok(replay(record.clone(), self.rows.look(record.effect.as_ref())));
            }
            (Decision::Replay, None) => unreachable!("decide() replays only a record"),
            (Decision::Fresh, _) => {}
        }
        let mut kept = Kept::begin(admitted, now);
        let key = kept.record.key;
        if self.operations.contains_key(&key) {
            return Err(key_taken(path()));
        }
        let context = context(&kept, now);
        let outcome = self.in_transaction(key, |tx| effect.apply(tx, &context))?;
        let completion = outcome.map_err(|error| self.undone(effect_failed(error)))?;
        let (transition, row) = match &completion {
            Completion::Whole { row, .. } => (first_step(Event::Apply), row.as_ref()),
            Completion::FirstStep { row } => (first_step(Event::CommitFirst), Some(row)),
        };
        let effect = row.map(|row| self.effect_ref(row)).transpose();
        kept.record.effect = effect.map_err(|error| self.undone(error))?;
        match completion {
            Completion::Whole { result, .. } => {
                check_result(&result).map_err(|error| self.undone(error))?;
                kept.settle(transition, result, now);
            }
            Completion::FirstStep { .. } => kept.advance(transition),
        }
        self.by_id.insert(place, key);
        let answer = kept.record.clone();
        self.keep(kept, &[(transition.audit_kind(), None)], now, mark);
        Ok(Answer::Fresh(Box::new(answer)))
    }

    pub(super) fn finish(
        &mut self,
        finish: &Finish,
        mark: &SharedMark,
    ) -> Result<Answer, StoreError> {
        let now = mark.now();
        let Some(mut kept) = self.operations.get(&finish.key).cloned() else {
            return Err(nothing_to_finish());
        };
        if !kept.may_finish(finish.boot, finish.fence) {
            return Ok(finish_too_late(kept));
        }
        let first = kept.record.effect.clone().expect("a first step names its row");
        let (effect, key) = (&finish.effect, finish.key);
        let context = context(&kept, now);
        let step = self.attempt(key, |tx| effect.follow_up(tx, &context, &first));
        let (event, result, lines) = match step {
            Ok(result) => (Event::FinishWhole, Ok(Ok(result)), Vec::new()),
            Err(why) => match self.attempt(key, |tx| effect.compensate(tx, &context, &first)) {
                Ok(()) => {
                    let result =
                        self.in_transaction(key, |_| Ok(effect.undone_result(&first, &why)));
                    (Event::Undo, result, vec![(COMPENSATED, None), ("undone", Some(why))])
                }
                Err(said) => {
                    let result = self.in_transaction(key, |_| Ok(effect.partial_result(&first)));
                    let failed = (COMPENSATION_FAILED, Some(said));
                    (Event::FinishPartly, result, vec![failed, ("partial", Some(why))])
                }
            },
        };
        let result = result.and_then(|result| result.map_err(effect_failed));
        let result = result.and_then(|result| check_result(&result).map(|()| result));
        let result = result.map_err(|error| self.undone(error))?;
        if event == Event::FinishWhole {
            let digest = self.rows.digest(&first.table, first.id).unwrap_or(first.digest);
            kept.record.effect = Some(EffectRef { digest, ..first });
        }
        let transition = last_step(&kept.record, event);
        kept.settle(transition, result, now);
        let answer = kept.record.clone();
        let whole = [(transition.audit_kind(), None)];
        self.keep(kept, if lines.is_empty() { &whole } else { &lines }, now, mark);
        Ok(Answer::Fresh(Box::new(answer)))
    }

    pub(super) fn resolve(&mut self, said: &Resolve, mark: &SharedMark) -> Resolved {
        let now = mark.now();
        let Some(kept) = self.find(&said.tenant, &said.operation_id) else {
            return Resolved::Absent;
        };
        if self.outbox.items.contains_key(&kept.record.key) {
            return self.resolve_delivery(kept.record.key, said, mark);
        }
        let seen = self.rows.look(kept.record.effect.as_ref());
        match resolve(kept.clone(), seen, said, now) {
            Err(stands_against) => stands_against,
            Ok((kept, kind)) => {
                let record = kept.record.clone();
                self.write(&AuditLine::of_operator(&record, kind, said), record.key, now);
                self.operations.insert(record.key, kept);
                mark.raise(now);
                Resolved::Done(Box::new(record))
            }
        }
    }

    pub(super) fn note_cancel(
        &mut self,
        tenant: &Tenant,
        id: &OperationId,
        principal: &Principal,
        mark: &SharedMark,
    ) {
        let Some(record) = self.find(tenant, id).map(|kept| &kept.record) else { return };
        let key = record.key;
        let identity = leg_identity(record, self.directs.latest_leg(key));
        let is_noted =
            |event: &AuditEvent| event.kind == CANCEL_REQUESTED && event.identity == identity;
        if record.principal != *principal || self.audit[&key].iter().any(is_noted) {
            return;
        }
        let record = record.clone();
        let now = mark.now();
        let line = AuditLine::of_caller(&record, CANCEL_REQUESTED, None);
        self.write(&AuditLine { identity: &identity, ..line }, key, now);
        mark.raise(now);
    }

    pub(super) fn look_up(&self, tenant: &Tenant, id: &OperationId) -> Snapshot {
        match self.find(tenant, id) {
            None => Snapshot::Absent,
            Some(kept) => Snapshot::Found {
                record: Box::new(kept.record.clone()),
                effect: self.rows.look(kept.record.effect.as_ref()),
            },
        }
    }

    pub(super) fn audit(&self, key: OperationKey) -> Vec<AuditEvent> {
        self.audit.get(&key).cloned().unwrap_or_default()
    }

    pub(super) fn find(&self, tenant: &Tenant, id: &OperationId) -> Option<&Kept> {
        let key = self.by_id.get(&(tenant.clone(), id.index_key()))?;
        self.operations.get(key).filter(|kept| kept.record.operation_id == *id)
    }

    /// Calls an effect. After a panic nothing of the transaction is left.
    fn in_transaction<T>(
        &mut self,
        key: OperationKey,
        call: impl FnOnce(&mut dyn EffectTx) -> Result<T, EffectError>,
    ) -> Result<Result<T, EffectError>, StoreError> {
        let mut tx = MemoryEffects { rows: &mut self.rows, key };
        catch_unwind(AssertUnwindSafe(|| call(&mut tx)))
            .map_err(|_| self.undone(StoreError::EffectPanicked))
    }

    /// Calls an effect; what a failed call wrote is taken back alone. The error is why it failed.
    fn attempt<T>(
        &mut self,
        key: OperationKey,
        call: impl FnOnce(&mut dyn EffectTx) -> Result<T, EffectError>,
    ) -> Result<T, String> {
        let savepoint = self.rows.savepoint();
        let mut tx = MemoryEffects { rows: &mut self.rows, key };
        let why = match catch_unwind(AssertUnwindSafe(|| call(&mut tx))) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => effect_words(error),
            Err(_) => "panicked".into(),
        };
        self.rows.roll_back_to(savepoint);
        Err(why)
    }

    /// Takes the whole transaction back.
    fn undone(&mut self, error: StoreError) -> StoreError {
        self.rows.roll_back();
        error
    }

    fn effect_ref(&self, row: &EffectRow) -> Result<EffectRef, StoreError> {
        if !is_identifier(row.table) || is_reserved(row.table) {
            return Err(wrong_row(row, RESERVED));
        }
        let digest =
            self.rows.digest(row.table, row.id).ok_or_else(|| wrong_row(row, NOT_THERE))?;
        Ok(EffectRef { table: row.table.to_owned(), id: row.id, digest })
    }

    /// Commits: the record, its effect and its audit events.
    fn keep(
        &mut self,
        kept: Kept,
        lines: &[(&'static str, Option<String>)],
        now: Timestamp,
        mark: &SharedMark,
    ) {
        for (kind, reason) in lines {
            let line = AuditLine::of_caller(&kept.record, kind, reason.as_deref());
            if matches!(*kind, COMPENSATED | COMPENSATION_FAILED) {
                let identity = &compensation_identity(&kept.record);
                self.write(&AuditLine { identity, ..line }, kept.record.key, now);
            } else {
                self.write(&line, kept.record.key, now);
            }
        }
        self.operations.insert(kept.record.key, kept);
        self.rows.commit();
        mark.raise(now);
    }

    pub(super) fn write(&mut self, line: &AuditLine<'_>, key: OperationKey, at: Timestamp) {
        let events = self.audit.entry(key).or_default();
        events.push(AuditEvent {
            seq: i64::try_from(events.len()).unwrap_or(i64::MAX) + 1,
            at,
            kind: line.kind.to_owned(),
            identity: line.identity.to_owned(),
            who: line.who.to_owned(),
            reason: line.reason.map(str::to_owned),
            proof: line.proof.map(str::to_owned),
        });
    }
}

fn context(kept: &Kept, now: Timestamp) -> EffectContext<'_> {
    EffectContext { operation_id: &kept.record.operation_id, operation_key: kept.record.key, now }
}
