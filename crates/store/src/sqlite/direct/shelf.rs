//! Where the writer finds and keeps direct operations: what their decisions ask of a back end.

use counterfoil_core::fingerprint::Fingerprint;
use counterfoil_core::identity::{Caller, OperationId, OperationKey, Tenant};
use counterfoil_core::record::Nature;
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::items::{self, Found as Row};
use super::replies::{self, Packed};
use crate::direct_steps::{Asked, Found, FoundById, Pair, Shelf};
use crate::error::StoreError;
use crate::sqlite::cells::Damage;
use crate::sqlite::commands::{Session, set_aside, set_aside_key};
use crate::sqlite::faults::{Fault, Kind, kind};
use crate::sqlite::rows;
use crate::steps::{AuditLine, Kept, key_taken};

/// When anybody may move an operation in progress, as its index has it.
macro_rules! due {
    ($what:literal, $rest:literal) => {
        concat!(
            "SELECT ",
            $what,
            " FROM operations WHERE nature = 3 AND state = 0 AND quarantined = 0 AND \
             CASE phase WHEN 1 THEN max(lease_until_ms, created_at_ms + 86400000) \
             ELSE lease_until_ms END <= ?1 ",
            $rest
        )
    };
}

/// The keys of what is due, the longest due first.
pub(super) const DUE: &str = due!(
    "operation_key",
    "ORDER BY CASE phase WHEN 1 THEN max(lease_until_ms, created_at_ms + 86400000) \
     ELSE lease_until_ms END LIMIT ?2"
);
const IS_ANY_DUE: &str = due!("1", "LIMIT 1");

pub(super) const UNANSWERED: &str = "SELECT d.operation_key FROM directs d \
    WHERE d.call_fingerprint = ?1 AND d.answered_at_ms IS NULL AND d.created_at_ms > ?2 \
    AND (d.minted <> 1 OR d.join_slot IS NOT NULL) \
    AND EXISTS (SELECT 1 FROM operations o JOIN tenants t ON t.tenant_no = o.tenant_no \
    WHERE o.operation_key = d.operation_key AND o.principal = ?3 AND t.name = ?4) \
    ORDER BY d.created_at_ms, d.operation_key LIMIT 1";
pub(super) const SLOT: &str = "SELECT operation_key FROM directs WHERE join_slot = ?1";
pub(super) const REPEAT: &str = "SELECT operation_key FROM directs WHERE repeat_of = ?1";

/// Whether [`Shelf::due`] would give something.
pub(super) fn is_any_due(connection: &Connection, now: Timestamp) -> rusqlite::Result<bool> {
    connection.prepare_cached(IS_ANY_DUE)?.exists([now.as_ms()])
}

/// The writer's shelf, for one command at one time.
#[derive(Debug)]
pub(super) struct SqlShelf<'s> {
    pub(super) session: &'s mut Session,
    pub(super) now: Timestamp,
}

impl SqlShelf<'_> {
    fn key(&self, sql: &str, params: impl rusqlite::Params) -> Result<Option<OperationKey>, Fault> {
        let mut statement = self.session.connection.prepare_cached(sql)?;
        let key = statement.query_row(params, |row| row.get(0)).optional()?;
        Ok(key.map(OperationKey::from_bytes))
    }

    fn wrote(&mut self) {
        self.session.stamp(self.now);
    }
}

/// The alarm about a damaged operation, and what its command is told.
pub(super) fn damaged(key: OperationKey, damage: Damage) -> StoreError {
    match set_aside_key(key, damage) {
        Fault::Command(error) => error,
        Fault::Sqlite(error) => StoreError::Quarantined { reason: error.to_string() },
    }
}

impl Shelf for SqlShelf<'_> {
    type Fault = Fault;
    type Answer = Packed;

    fn pair_by_id(&mut self, tenant: &Tenant, id: &OperationId) -> Result<FoundById, Fault> {
        let connection = &self.session.connection;
        let kept = match rows::find_by_id(connection, tenant, id)? {
            rows::Found::Absent => return Ok(FoundById::Absent),
            rows::Found::Damaged(damage) => return Err(set_aside(id, damage)),
            rows::Found::Kept(kept) if kept.record.nature != Nature::Direct => {
                return Ok(FoundById::Other(kept));
            }
            rows::Found::Kept(kept) => kept,
        };
        match items::beside(connection, *kept)? {
            Row::Kept(pair) => Ok(FoundById::Direct(pair)),
            Row::Damaged(damage) => Err(set_aside(id, damage)),
            Row::Absent => Ok(FoundById::Absent),
        }
    }

    fn pair(&mut self, key: OperationKey) -> Result<Found, Fault> {
        Ok(match items::find(&self.session.connection, key)? {
            Row::Absent => Found::Absent,
            Row::Kept(pair) => Found::Kept(pair),
            Row::Damaged(damage) => Found::Damaged(damaged(key, damage)),
        })
    }

    fn oldest_unanswered(
        &mut self,
        call: &Fingerprint,
        caller: &Caller,
        since: Timestamp,
    ) -> Result<Option<OperationKey>, Fault> {
        self.key(
            UNANSWERED,
            params![
                call.to_bytes().as_slice(),
                since.as_ms(),
                caller.principal.as_str().as_bytes(),
                caller.tenant.as_str().as_bytes(),
            ],
        )
    }

    fn slot_holder(&mut self, call: &Fingerprint) -> Result<Option<OperationKey>, Fault> {
        self.key(SLOT, [call.to_bytes().as_slice()])
    }

    fn repeat_made_of(&mut self, key: OperationKey) -> Result<Option<OperationKey>, Fault> {
        self.key(REPEAT, [key.as_bytes().as_slice()])
    }

    fn asked_then(&mut self, key: OperationKey, leg: u32) -> Result<Option<Asked>, Fault> {
        let found = replies::asked(&self.session.connection, key, leg)?;
        found.transpose().map_err(|damage| Fault::Command(damaged(key, damage)))
    }

    fn due(&mut self, now: Timestamp, max_count: usize) -> Result<Vec<OperationKey>, Fault> {
        let limit = i64::try_from(max_count).unwrap_or(i64::MAX);
        let mut statement = self.session.connection.prepare_cached(DUE)?;
        let keys = statement
            .query_map(params![now.as_ms(), limit], |row| row.get(0).map(OperationKey::from_bytes))?
            .collect::<rusqlite::Result<_>>()?;
        Ok(keys)
    }

    fn insert_pair(&mut self, pair: &Pair, memo: Option<&[u8]>) -> Result<bool, Fault> {
        let tenant_no = self.session.tenant_no(&pair.kept.record.tenant)?;
        let connection = &self.session.connection;
        match rows::insert_whole(connection, tenant_no, &pair.kept) {
            Err(error) if kind(&error) == Kind::Constraint => return Ok(false),
            made => made?,
        }
        items::insert(connection, pair)?;
        if let Some(memo) = memo {
            items::insert_memo(connection, pair.item.key, memo)?;
        }
        self.wrote();
        Ok(true)
    }

    fn update_pair(&mut self, before: &Pair, after: &Pair) -> Result<(), Fault> {
        if before.kept != after.kept {
            rows::update(&self.session.connection, &after.kept)?;
            self.wrote();
        }
        if before.item != after.item || before.is_in_doubt() != after.is_in_doubt() {
            items::update(&self.session.connection, after)?;
            self.wrote();
        }
        Ok(())
    }

    fn keep_answer(
        &mut self,
        key: OperationKey,
        leg: u32,
        asked: &Asked,
        answer: &Packed,
    ) -> Result<(), Fault> {
        replies::keep(&self.session.connection, key, leg, asked, answer)?;
        self.wrote();
        Ok(())
    }

    fn put_on_record(
        &mut self,
        kept: &Kept,
        line: &AuditLine<'_>,
        now: Timestamp,
    ) -> Result<(), Fault> {
        self.session.audit(kept, now, line)?;
        self.wrote();
        Ok(())
    }

    fn set_aside(&mut self, key: OperationKey) -> Result<(), Fault> {
        self.session
            .connection
            .prepare_cached("UPDATE operations SET quarantined = 1 WHERE operation_key = ?1")?
            .execute([key.as_bytes().as_slice()])?;
        self.wrote();
        Ok(())
    }

    fn has_no_room(&self) -> bool {
        self.session.no_room
    }

    fn full(&self) -> Fault {
        Fault::Command(StoreError::Full { path: self.session.path.clone() })
    }

    fn key_is_taken(&self) -> Fault {
        Fault::Command(key_taken(self.session.path.clone()))
    }
}
