//! What a caller may see of its own operations, whatever kind of effect they have. Nothing here
//! writes.

use counterfoil_core::admission::{Admitted, Decision, LedgerTime, decide};
use counterfoil_core::delivery::Contract;
use counterfoil_core::identity::{Caller, OperationId, OperationKey};
use counterfoil_core::listing::Listed;
use counterfoil_core::observation::{
    Detail, Observation, ObservedState, Snapshot, observe, observe_delivery, observe_direct,
};
use counterfoil_core::operation::State;
use counterfoil_core::record::Nature;
use counterfoil_core::refusal::{Refusal, Retry};
use counterfoil_store::direct::WhichDirect;
use counterfoil_store::outbox::{DeliveryView, Which};
use counterfoil_store::{AuditEvent, StoreError};

use crate::direct::seen;
use crate::engine::Engine;
use crate::reply::refusal_from_store;

/// A delivery as it was found for its own caller.
enum Found {
    Item(Box<DeliveryView>),
    /// Item or record fails its own checks.
    Damaged,
    /// There is none.
    Absent,
}

impl Engine {
    /// What the caller may know of an operation. Writes nothing.
    ///
    /// # Errors
    /// [`Refusal`] with `store_unavailable` if the ledger cannot be read.
    pub async fn observe(
        &self,
        caller: &Caller,
        operation_id: &OperationId,
    ) -> Result<Observation, Refusal> {
        Ok(self.observe_with_contract(caller, operation_id).await?.0)
    }

    /// The same, with the contract of an effect that is delivered.
    ///
    /// # Errors
    /// As [`observe`](Self::observe).
    pub async fn observe_with_contract(
        &self,
        caller: &Caller,
        operation_id: &OperationId,
    ) -> Result<(Observation, Option<Contract>), Refusal> {
        let snapshot = self.look_up(caller, operation_id).await?;
        if snapshot == Snapshot::Quarantined {
            tracing::error!("a damaged record was met; run `counterfoil store check`");
        }
        let backend = self.backend_id();
        let account = || observe(caller, operation_id, backend, &snapshot, self.now());
        if nature(&snapshot) == Some(Nature::Direct) {
            return Ok((self.observe_sent(caller, operation_id, account()).await?, None));
        }
        let Some(key) = deferred_key(&snapshot) else { return Ok((account(), None)) };
        let found = self.find(caller, key).await;
        let found = found.map_err(|error| refusal_from_store(&error, Some(operation_id)))?;
        Ok(match found {
            Found::Item(view) => {
                let seen = (&view.record, &view.delivery);
                let account = observe_delivery(caller, operation_id, backend, seen, self.now());
                (account, Some(view.delivery.terms.contract))
            }
            // Another's, or its tombstone was purged between the two looks.
            Found::Absent => (account(), None),
            Found::Damaged => (set_aside(account()), None),
        })
    }

    /// What the caller may know of an operation that was sent while it waited; `plain` is what its
    /// record alone says.
    async fn observe_sent(
        &self,
        caller: &Caller,
        operation_id: &OperationId,
        plain: Observation,
    ) -> Result<Observation, Refusal> {
        let Some(direct) = self.direct() else { return Ok(plain) };
        let which = WhichDirect::Id(caller.tenant.clone(), operation_id.clone());
        match direct.direct_view(which).await {
            Ok(Some(view)) => {
                let backend = self.backend_id();
                Ok(observe_direct(caller, operation_id, backend, seen(&view), self.now()))
            }
            // Its tombstone was purged between the two looks.
            Ok(None) => Ok(plain),
            Err(StoreError::Quarantined { .. }) => Ok(set_aside(plain)),
            Err(error) => Err(refusal_from_store(&error, Some(operation_id))),
        }
    }

    /// One of the caller's own deliveries; `None` if there is no such one, or it is another's.
    ///
    /// # Errors
    /// [`Refusal`] if the ledger cannot be read, or what it has is damaged.
    pub async fn delivery(
        &self,
        caller: &Caller,
        key: OperationKey,
    ) -> Result<Option<DeliveryView>, Refusal> {
        match self.find(caller, key).await {
            Ok(Found::Item(view)) => Ok(Some(*view)),
            Ok(Found::Absent) => Ok(None),
            Ok(Found::Damaged) => {
                let reason = "its row fails its own checks".to_owned();
                Err(refusal_from_store(&StoreError::Quarantined { reason }, None))
            }
            Err(error) => Err(refusal_from_store(&error, None)),
        }
    }

    /// The delivery of a call that was accepted before, if it was exactly this one. For calls that
    /// cannot be accepted now: what was promised is told all the same. Writes nothing.
    ///
    /// # Errors
    /// [`Refusal`] if the ID is bound to another request, or the ledger cannot be read.
    pub async fn accepted_before(&self, call: &Admitted) -> Result<Option<DeliveryView>, Refusal> {
        let id = call.operation_id();
        let snapshot = self.look_up(call.caller(), id).await?;
        let Snapshot::Found { record, .. } = &snapshot else { return Ok(None) };
        let time = LedgerTime { now: self.store.now(), horizon: self.store.horizon() };
        match decide(call, Some(record), time) {
            Decision::Refuse(refusal) => Err(refusal),
            Decision::Fresh => Ok(None),
            Decision::Replay => self.delivery(call.caller(), record.key).await,
        }
    }

    /// The audit trail of one of the caller's own operations, oldest first; `None` if there is no
    /// such operation, or it is another's.
    ///
    /// # Errors
    /// [`Refusal`] with `store_unavailable` if the ledger cannot be read.
    pub async fn audit(
        &self,
        caller: &Caller,
        operation_id: &OperationId,
    ) -> Result<Option<Vec<AuditEvent>>, Refusal> {
        let snapshot = self.look_up(caller, operation_id).await?;
        let Snapshot::Found { record, .. } = &snapshot else { return Ok(None) };
        if record.principal != caller.principal {
            return Ok(None);
        }
        let events = self.store.audit(record.key).await;
        events.map(Some).map_err(|error| refusal_from_store(&error, Some(operation_id)))
    }

    /// Puts into lines of a caller's own list what stands beside their records.
    pub(crate) async fn tell_more(
        &self,
        caller: &Caller,
        lines: &mut [Listed],
    ) -> Result<(), Refusal> {
        self.tell_sent(lines).await?;
        for line in lines.iter_mut().filter(|line| line.nature == Nature::Deferred) {
            match self.find(caller, line.key).await {
                Ok(Found::Item(view)) => *line = Listed::of_delivery(view.record, &view.delivery),
                Ok(Found::Damaged) => {
                    line.observed = ObservedState::Unknown;
                    line.detail = Detail::Quarantined;
                    line.retry = Retry::StatusOnly;
                }
                Ok(Found::Absent) => {}
                Err(error) => return Err(refusal_from_store(&error, None)),
            }
        }
        Ok(())
    }

    /// The same for operations that were sent while their caller waited: only one that is settled as
    /// not applied can be told otherwise than by its record.
    async fn tell_sent(&self, lines: &mut [Listed]) -> Result<(), Refusal> {
        let Some(direct) = self.direct() else { return Ok(()) };
        let doubtful =
            |line: &&mut Listed| line.nature == Nature::Direct && line.state == State::NotApplied;
        for line in lines.iter_mut().filter(doubtful) {
            match direct.direct_view(WhichDirect::Key(line.key)).await {
                Ok(Some(view)) => *line = Listed::of_direct(view.record, &view.item),
                Ok(None) => {}
                Err(StoreError::Quarantined { .. }) => {
                    line.observed = ObservedState::Unknown;
                    line.detail = Detail::Quarantined;
                    line.retry = Retry::StatusOnly;
                }
                Err(error) => return Err(refusal_from_store(&error, None)),
            }
        }
        Ok(())
    }

    async fn find(&self, caller: &Caller, key: OperationKey) -> Result<Found, StoreError> {
        let Some(outbox) = self.outbox() else { return Ok(Found::Absent) };
        match outbox.delivery(Which::Key(key)).await {
            Ok(Some(view))
                if view.record.tenant == caller.tenant
                    && view.record.principal == caller.principal =>
            {
                Ok(Found::Item(Box::new(view)))
            }
            Ok(_) => Ok(Found::Absent),
            Err(StoreError::Quarantined { .. }) => Ok(Found::Damaged),
            Err(error) => Err(error),
        }
    }
}

/// The account of a record whose delivery fails its own checks.
fn set_aside(mut account: Observation) -> Observation {
    if account.detail != Detail::NoRecord {
        account.state = ObservedState::Unknown;
        account.authoritative = false;
        account.detail = Detail::Quarantined;
        account.stored_result = None;
    }
    account
}

fn nature(snapshot: &Snapshot) -> Option<Nature> {
    match snapshot {
        Snapshot::Found { record, .. } => Some(record.nature),
        _ => None,
    }
}

fn deferred_key(snapshot: &Snapshot) -> Option<OperationKey> {
    match snapshot {
        Snapshot::Found { record, .. } if record.nature == Nature::Deferred => Some(record.key),
        _ => None,
    }
}
