//! Direct operations in memory: the plain model, found by looking at all of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::admission::LedgerTime;
use counterfoil_core::direct::{Direct, Reply, UNSENT_LIMIT, Upstream};
use counterfoil_core::fingerprint::Fingerprint;
use counterfoil_core::identity::{Caller, OperationId, OperationKey, Tenant};
use counterfoil_core::limits::MAX_RESULT_BYTES;
use counterfoil_core::operation::{Phase, State};
use counterfoil_core::record::Nature;
use counterfoil_core::time::Timestamp;

use super::ledger::Ledger;
use super::path;
use crate::clock::SharedMark;
use crate::direct::{
    Begin, Begun, Concluded, Conclusion, DirectView, Hold, LookupFound, Replayed, Told, WhichDirect,
};
use crate::direct_steps::{
    self as steps, Asked, Ended, Found, FoundById, Pair, Seen, Shelf, Turned,
};
use crate::error::StoreError;
use crate::steps::{AuditLine, Kept, key_taken};

/// What is kept of direct operations beside their records.
#[derive(Debug, Default)]
pub(super) struct Directs {
    items: BTreeMap<OperationKey, Direct>,
    replies: BTreeMap<(OperationKey, u32), (Asked, Arc<Reply>)>,
    memos: HashMap<OperationKey, Arc<[u8]>>,
}

impl Directs {
    /// Forgets an operation's answers and memo. They go with its result.
    pub(super) fn purge(&mut self, key: OperationKey) {
        self.replies.retain(|(of, _), _| *of != key);
        self.memos.remove(&key);
    }

    /// Forgets an operation.
    pub(super) fn forget(&mut self, key: OperationKey) {
        self.purge(key);
        self.items.remove(&key);
    }

    /// The request of an operation that is the latest; of any other operation the first.
    pub(super) fn latest_leg(&self, key: OperationKey) -> u32 {
        self.items.get(&key).map_or(1, |item| item.leg)
    }

    fn answer(&self, key: OperationKey, leg: u32) -> Option<Arc<Reply>> {
        self.replies.get(&(key, leg)).map(|(_, reply)| Arc::clone(reply))
    }
}

/// The ledger as a shelf, for one command.
struct MemoryShelf<'l> {
    ledger: &'l mut Ledger,
    mark: &'l SharedMark,
    now: Timestamp,
}

impl MemoryShelf<'_> {
    fn wrote(&self) {
        self.mark.raise(self.now);
    }

    fn find(&self, key: OperationKey) -> Option<Box<Pair>> {
        let item = self.ledger.directs.items.get(&key)?.clone();
        let kept = self.ledger.operations.get(&key)?.clone();
        Some(Box::new(Pair { kept, item }))
    }

    fn key_of(&self, is_wanted: impl Fn(&Direct, &Kept) -> bool) -> Option<OperationKey> {
        let all = self.ledger.directs.items.values();
        let of_wanted = all.filter(|item| is_wanted(item, &self.ledger.operations[&item.key]));
        of_wanted.map(|item| item.key).next()
    }
}

impl Shelf for MemoryShelf<'_> {
    type Fault = StoreError;
    type Answer = Arc<Reply>;

    fn pair_by_id(&mut self, tenant: &Tenant, id: &OperationId) -> Result<FoundById, StoreError> {
        let Some(key) = self.ledger.by_id.get(&(tenant.clone(), id.index_key())) else {
            return Ok(FoundById::Absent);
        };
        let kept = &self.ledger.operations[key];
        Ok(match self.find(*key) {
            Some(pair) => FoundById::Direct(pair),
            None => FoundById::Other(Box::new(kept.clone())),
        })
    }

    fn pair(&mut self, key: OperationKey) -> Result<Found, StoreError> {
        Ok(self.find(key).map_or(Found::Absent, Found::Kept))
    }

    fn oldest_unanswered(
        &mut self,
        call: &Fingerprint,
        caller: &Caller,
        since: Timestamp,
    ) -> Result<Option<OperationKey>, StoreError> {
        let all = self.ledger.directs.items.values();
        let wanted = all.filter_map(|item| {
            let record = &self.ledger.operations[&item.key].record;
            let is_wanted = record.binding.call == *call
                && item.answered_at.is_none()
                && (!item.minted || item.open_slot)
                && record.created_at > since
                && record.principal == caller.principal
                && record.tenant == caller.tenant;
            is_wanted.then_some((record.created_at, item.key))
        });
        Ok(wanted.min().map(|(_, key)| key))
    }

    fn slot_holder(&mut self, call: &Fingerprint) -> Result<Option<OperationKey>, StoreError> {
        Ok(self.key_of(|item, kept| item.open_slot && kept.record.binding.call == *call))
    }

    fn repeat_made_of(&mut self, key: OperationKey) -> Result<Option<OperationKey>, StoreError> {
        Ok(self.key_of(|item, _| item.repeat_of == Some(key)))
    }

    fn asked_then(&mut self, key: OperationKey, leg: u32) -> Result<Option<Asked>, StoreError> {
        Ok(self.ledger.directs.replies.get(&(key, leg)).map(|(asked, _)| asked.clone()))
    }

    fn due(&mut self, now: Timestamp, max_count: usize) -> Result<Vec<OperationKey>, StoreError> {
        let due_at = |kept: &Kept| {
            let lease = kept.owner.lease_until;
            match kept.record.state {
                State::InProgress(Phase::Claimed) => {
                    Some(lease.max(kept.record.created_at.plus(UNSENT_LIMIT)))
                }
                State::InProgress(_) => Some(lease),
                _ => None,
            }
        };
        let all = self.ledger.directs.items.keys();
        let due = all.filter_map(|key| Some((due_at(&self.ledger.operations[key])?, *key)));
        let mut due: Vec<_> = due.filter(|(at, _)| *at <= now).collect();
        due.sort_unstable();
        Ok(due.into_iter().map(|(_, key)| key).take(max_count).collect())
    }

    fn insert_pair(&mut self, pair: &Pair, memo: Option<&[u8]>) -> Result<bool, StoreError> {
        let record = &pair.kept.record;
        let place = (record.tenant.clone(), record.operation_id.index_key());
        let key = record.key;
        if self.ledger.by_id.contains_key(&place) || self.ledger.operations.contains_key(&key) {
            return Ok(false);
        }
        self.ledger.by_id.insert(place, key);
        self.ledger.operations.insert(key, pair.kept.clone());
        self.ledger.directs.items.insert(key, pair.item.clone());
        if let Some(memo) = memo {
            self.ledger.directs.memos.insert(key, Arc::from(memo));
        }
        self.wrote();
        Ok(true)
    }

    fn update_pair(&mut self, before: &Pair, after: &Pair) -> Result<(), StoreError> {
        if before != after {
            let key = after.item.key;
            self.ledger.operations.insert(key, after.kept.clone());
            self.ledger.directs.items.insert(key, after.item.clone());
            self.wrote();
        }
        Ok(())
    }

    fn keep_answer(
        &mut self,
        key: OperationKey,
        leg: u32,
        asked: &Asked,
        answer: &Arc<Reply>,
    ) -> Result<(), StoreError> {
        let kept = (asked.clone(), Arc::clone(answer));
        self.ledger.directs.replies.insert((key, leg), kept);
        Ok(())
    }

    fn put_on_record(
        &mut self,
        kept: &Kept,
        line: &AuditLine<'_>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.ledger.write(line, kept.record.key, now);
        self.wrote();
        Ok(())
    }

    fn set_aside(&mut self, _key: OperationKey) -> Result<(), StoreError> {
        Ok(())
    }

    fn has_no_room(&self) -> bool {
        false
    }

    fn full(&self) -> StoreError {
        StoreError::Full { path: path() }
    }

    fn key_is_taken(&self) -> StoreError {
        key_taken(path())
    }
}

impl Ledger {
    fn shelf<'l>(&'l mut self, mark: &'l SharedMark) -> MemoryShelf<'l> {
        MemoryShelf { ledger: self, mark, now: mark.now() }
    }

    fn shown(&self, seen: Seen) -> DirectView {
        let reply = seen.shown.and_then(|leg| self.directs.answer(seen.pair.item.key, leg));
        let Pair { kept, item } = seen.pair;
        DirectView { record: kept.record, item, reply, memo: None }
    }

    pub(super) fn begin_direct(
        &mut self,
        asked: &Begin,
        mark: &SharedMark,
    ) -> Result<Begun, StoreError> {
        let mut shelf = self.shelf(mark);
        let time = LedgerTime { now: shelf.now, horizon: mark.horizon() };
        Ok(match steps::begin(&mut shelf, asked, time)? {
            Turned::Send(hold, record) => Begun::Send(hold, record),
            Turned::Wait(hold, record) => Begun::Wait(hold, record),
            Turned::Replay { seen, leg, joined } => {
                let view = self.shown(*seen);
                Begun::Replay(Box::new(Replayed { view, leg, joined }))
            }
            Turned::Refused { refusal, joined } => Begun::Refused { refusal, joined },
            Turned::Unfit => Begun::Unfit,
        })
    }

    pub(super) fn dispatch_direct(
        &mut self,
        hold: Hold,
        lease: Duration,
        mark: &SharedMark,
    ) -> Result<Option<Hold>, StoreError> {
        let mut shelf = self.shelf(mark);
        let now = shelf.now;
        steps::dispatch(&mut shelf, hold, now.plus(lease), now)
    }

    pub(super) fn conclude(
        &mut self,
        reports: &[Conclusion],
        mark: &SharedMark,
    ) -> Result<Vec<Concluded>, StoreError> {
        reports.iter().map(|said| self.conclude_one(said, mark)).collect()
    }

    fn conclude_one(
        &mut self,
        said: &Conclusion,
        mark: &SharedMark,
    ) -> Result<Concluded, StoreError> {
        let small = said.reply.as_ref().filter(|reply| reply.json.len() <= MAX_RESULT_BYTES);
        let answer = small.cloned().map(Arc::new);
        let mut shelf = self.shelf(mark);
        let now = shelf.now;
        Ok(match steps::conclude(&mut shelf, said, answer.as_ref(), now)? {
            Ended::Moved(seen) => Concluded::Moved(Box::new(self.shown(*seen))),
            Ended::Stale(seen) => Concluded::Stale(Box::new(self.shown(*seen))),
            Ended::LateContradiction(seen) => {
                Concluded::LateContradiction(Box::new(self.shown(*seen)))
            }
        })
    }

    pub(super) fn renew(
        &mut self,
        holds: &[Hold],
        lease: Duration,
        mark: &SharedMark,
    ) -> Result<Vec<bool>, StoreError> {
        let mut shelf = self.shelf(mark);
        let until = shelf.now.plus(lease);
        holds.iter().map(|hold| steps::renew(&mut shelf, hold, until)).collect()
    }

    pub(super) fn tell(&mut self, told: &[Told], mark: &SharedMark) -> Result<(), StoreError> {
        let mut shelf = self.shelf(mark);
        let now = shelf.now;
        told.iter().try_for_each(|told| steps::tell(&mut shelf, *told, now))
    }

    pub(super) fn lapse_directs(
        &mut self,
        max_count: usize,
        mark: &SharedMark,
    ) -> Result<usize, StoreError> {
        let mut shelf = self.shelf(mark);
        let now = shelf.now;
        steps::lapse(&mut shelf, max_count, now)
    }

    pub(super) fn settle_by_lookup(
        &mut self,
        found: &LookupFound,
        mark: &SharedMark,
    ) -> Result<Option<DirectView>, StoreError> {
        let mut shelf = self.shelf(mark);
        let now = shelf.now;
        let seen = steps::settle_by_lookup(&mut shelf, found, now)?;
        Ok(seen.map(|seen| self.shown(seen)))
    }

    pub(super) fn in_doubt(
        &self,
        upstream: &Upstream,
        after: Option<OperationKey>,
        max_count: usize,
    ) -> Vec<DirectView> {
        let all = self.directs.items.values().filter(|item| {
            item.upstream == *upstream
                && after.is_none_or(|after| item.key > after)
                && self.operations[&item.key].record.state == State::InDoubt
        });
        all.take(max_count).filter_map(|item| self.direct_of(item.key)).collect()
    }

    pub(super) fn direct_view(&self, which: &WhichDirect) -> Option<DirectView> {
        let key = match which {
            WhichDirect::Key(key) => *key,
            WhichDirect::Id(tenant, id) => self.find(tenant, id)?.record.key,
        };
        self.direct_of(key)
    }

    fn direct_of(&self, key: OperationKey) -> Option<DirectView> {
        let item = self.directs.items.get(&key)?.clone();
        let kept = self.operations.get(&key).filter(|k| k.record.nature == Nature::Direct)?.clone();
        let seen = Pair { kept, item };
        let view = self.shown(Seen { shown: seen.shown(), pair: seen, is_given: false });
        Some(DirectView { memo: self.directs.memos.get(&key).cloned(), ..view })
    }

    pub(super) fn reply(&self, key: OperationKey, leg: u32) -> Option<Reply> {
        self.directs.answer(key, leg).map(|reply| (*reply).clone())
    }
}
