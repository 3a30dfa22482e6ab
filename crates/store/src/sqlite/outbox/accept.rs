//! Acceptance: the record, the item, its request and the audit event, in one transaction.

use counterfoil_core::admission::LedgerTime;
use counterfoil_core::delivery::Delivery;
use counterfoil_core::record::Record;
use counterfoil_core::time::Timestamp;

use super::items::{self, Found, Item};
use crate::cut_point;
use crate::error::StoreError;
use crate::outbox::{Acceptance, Accepted, DeliveryView};
use crate::outbox_steps::{self as steps, DUPLICATE_SUBMISSION};
use crate::sqlite::commands::{Session, set_aside, set_aside_key};
use crate::sqlite::faults::{Fault, Kind, kind};
use crate::sqlite::rows;
use crate::steps::{AuditLine, Kept, key_taken};

impl Session {
    /// Decides on a call, and puts its request into the outbox if it is fresh.
    ///
    /// # Errors
    /// [`Fault`]; what was written is then to be rolled back.
    pub(super) fn accept(&mut self, asked: &Acceptance) -> Result<Accepted, Fault> {
        let (call, now) = (&asked.admitted, self.mark.now());
        let caller = call.caller();
        let found = rows::find_by_id(&self.connection, &caller.tenant, call.operation_id())?;
        let kept = match found {
            rows::Found::Absent => None,
            rows::Found::Kept(kept) => Some(*kept),
            rows::Found::Damaged(damage) => return Err(set_aside(call.operation_id(), damage)),
        };
        let against = self.stands_against(&caller.tenant, &caller.principal)?;
        let time = LedgerTime { now, horizon: self.mark.horizon() };
        let record = kept.as_ref().map(|kept| &kept.record);
        match (steps::accept(call, record, against.is_some(), time), kept) {
            (steps::Acceptance::Refused(refusal), _) => Ok(Accepted::Refused(refusal)),
            (steps::Acceptance::Duplicate, Some(kept)) => self.accept_again(kept, now),
            (steps::Acceptance::Duplicate, None) => {
                unreachable!("accept() replays only a record")
            }
            (steps::Acceptance::Fresh, _) => self.accept_fresh(asked, now),
        }
    }

    fn accept_fresh(&mut self, asked: &Acceptance, now: Timestamp) -> Result<Accepted, Fault> {
        if self.no_room {
            return Err(Fault::Command(StoreError::Full { path: self.path.clone() }));
        }
        self.stamp(now);
        let (kept, kind_of_event) = steps::accepted(&asked.admitted, now);
        let tenant_no = self.tenant_no(&kept.record.tenant)?;
        let target_no = self.target_no(&asked.target)?;
        let terms_no = self.terms_no(asked.terms)?;
        let key = kept.record.key;
        rows::insert_whole(&self.connection, tenant_no, &kept).map_err(|error| {
            match kind(&error) {
                Kind::Constraint => Fault::Command(key_taken(self.path.clone())),
                _ => Fault::Sqlite(error),
            }
        })?;
        cut_point!("store.after_ledger_insert");
        let delivery = Delivery::accepted(key, asked.target.clone(), asked.terms, now);
        let item = Item { delivery, target_no, terms_no };
        items::insert(&self.connection, &item)?;
        items::insert_request(&self.connection, key, &asked.request)?;
        cut_point!("store.after_outbox_insert");
        self.audit(&kept, now, &AuditLine::of_caller(&kept.record, kind_of_event, None))?;
        self.view(kept.record, item).map(Box::new).map(Accepted::Fresh)
    }

    fn accept_again(&mut self, kept: Kept, now: Timestamp) -> Result<Accepted, Fault> {
        let item = match items::find(&self.connection, kept.record.key)? {
            Found::Kept(item) => *item,
            Found::Damaged(damage) => return Err(set_aside_key(kept.record.key, damage)),
            Found::Absent => {
                let damage = crate::sqlite::cells::damage("outbox", "has no item of it");
                return Err(set_aside_key(kept.record.key, damage));
            }
        };
        // On a full disk the answer is worth more than the note.
        if !self.no_room {
            self.stamp(now);
            let line = AuditLine::of_caller(&kept.record, DUPLICATE_SUBMISSION, None);
            self.audit(&kept, now, &line)?;
        }
        self.view(kept.record, item).map(Box::new).map(Accepted::Duplicate)
    }

    fn view(&mut self, record: Record, item: Item) -> Result<DeliveryView, Fault> {
        let target = self.target(item.target_no)?.state;
        Ok(DeliveryView { record, delivery: item.delivery, target })
    }
}
