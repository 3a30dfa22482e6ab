//! What the present transaction has read beside items and records. It holds the write lock, so nobody
//! else changes any of it; what it changes itself is put right here, and a rollback forgets all.

use counterfoil_core::delivery::ParkReason;
use counterfoil_core::identity::{Principal, Tenant};

use super::revoked;
use super::targets::Target;
use crate::sqlite::commands::Session;

/// What was read or written in the present transaction.
#[derive(Debug, Default)]
pub(in crate::sqlite) struct Seen {
    pub(super) targets: Vec<Target>,
    /// Whether anybody is revoked at all.
    anybody_revoked: Option<bool>,
}

impl Seen {
    /// At the beginning of a transaction, and after every rollback.
    pub(in crate::sqlite) fn clear(&mut self) {
        self.targets.clear();
        self.forget_revoked();
    }

    /// Somebody was revoked or restored.
    pub(super) fn forget_revoked(&mut self) {
        self.anybody_revoked = None;
    }
}

impl Session {
    /// What stands against a principal's writes. Mostly nobody at all is revoked, and one look tells
    /// for a whole transaction.
    pub(super) fn stands_against(
        &mut self,
        tenant: &Tenant,
        principal: &Principal,
    ) -> rusqlite::Result<Option<ParkReason>> {
        if !self.is_anybody_revoked()? {
            return Ok(None);
        }
        revoked::against(&self.connection, tenant, principal)
    }

    /// Whether anybody is revoked at all.
    pub(super) fn is_anybody_revoked(&mut self) -> rusqlite::Result<bool> {
        if let Some(seen) = self.seen.anybody_revoked {
            return Ok(seen);
        }
        let anybody = revoked::is_anybody(&self.connection)?;
        self.seen.anybody_revoked = Some(anybody);
        Ok(anybody)
    }
}
