//! What is put on record without changing an operation: that its caller took the call back.

use counterfoil_core::identity::{OperationId, Principal, Tenant};
use counterfoil_core::record::Record;
use rusqlite::{Connection, params};

use super::commands::{Session, set_aside};
use super::faults::Fault;
use super::rows::{self, Found};
use crate::steps::{AuditLine, CANCEL_REQUESTED, Kept, leg_identity};

/// Whose call was taken back.
#[derive(Debug)]
pub(super) struct CancelNote {
    pub(super) tenant: Tenant,
    pub(super) operation_id: OperationId,
    pub(super) principal: Principal,
}

impl CancelNote {
    /// Whether the record is that of the caller's own operation.
    pub(super) fn concerns(&self, kept: &Kept) -> bool {
        kept.record.operation_id == self.operation_id && kept.record.principal == self.principal
    }
}

impl Session {
    /// Writes the audit event, unless it is there or there is nothing that it could belong to.
    ///
    /// # Errors
    /// [`Fault`]; what was written is then to be rolled back.
    pub(super) fn note_cancel(&mut self, note: &CancelNote) -> Result<(), Fault> {
        let kept = match rows::find_by_id(&self.connection, &note.tenant, &note.operation_id)? {
            Found::Kept(kept) if note.concerns(&kept) => *kept,
            Found::Absent | Found::Kept(_) => return Ok(()),
            Found::Damaged(damage) => return Err(set_aside(&note.operation_id, damage)),
        };
        let leg = self.latest_leg(&kept)?;
        if is_noted(&self.connection, &kept.record, leg)? {
            return Ok(());
        }
        let now = self.mark.now();
        self.stamp(now);
        let identity = leg_identity(&kept.record, leg);
        let line = AuditLine::of_caller(&kept.record, CANCEL_REQUESTED, None);
        self.audit(&kept, now, &AuditLine { identity: &identity, ..line })
    }
}

/// Whether a request of an operation is on record as taken back.
pub(super) fn is_noted(
    connection: &Connection,
    record: &Record,
    leg: u32,
) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM audit_events \
             WHERE operation_key = ?1 AND kind = ?2 AND identity = ?3)",
        )?
        .query_row(
            params![
                record.key.as_bytes().as_slice(),
                CANCEL_REQUESTED.as_bytes(),
                leg_identity(record, leg).as_bytes(),
            ],
            |row| row.get(0),
        )
}
