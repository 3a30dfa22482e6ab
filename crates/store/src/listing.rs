//! Questions about many records at once: pages of a tenant's operations, and which keys are needed.

use counterfoil_core::identity::{OperationKey, Principal, Tenant, ToolId};
use counterfoil_core::listing::{Listed, PageLimit, Stage};
use counterfoil_core::record::Record;
use counterfoil_core::time::Timestamp;

/// Which records are wanted, and from where on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// Only this tenant's.
    pub tenant: Tenant,
    /// Only this principal's; `None` for everybody's.
    pub principal: Option<Principal>,
    /// Only calls of this tool; `None` for all.
    pub tool_id: Option<ToolId>,
    /// Only these; empty for all.
    pub stages: Vec<Stage>,
    /// How many at most.
    pub limit: PageLimit,
    /// Goes on where this cursor stands; `None` begins at the newest.
    pub after: Option<Cursor>,
}

impl ListQuery {
    /// The newest of everything that a tenant has.
    #[must_use]
    pub fn of_tenant(tenant: Tenant) -> Self {
        Self {
            tenant,
            principal: None,
            tool_id: None,
            stages: Vec::new(),
            limit: PageLimit::default(),
            after: None,
        }
    }

    /// Whether a record of the tenant is wanted.
    pub(crate) fn admits(&self, record: &Record) -> bool {
        record.tenant == self.tenant
            && self.principal.as_ref().is_none_or(|wanted| *wanted == record.principal)
            && self.tool_id.as_ref().is_none_or(|wanted| *wanted == record.tool_id)
            && (self.stages.is_empty() || self.stages.contains(&record.state.into()))
    }
}

/// Some records, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The records, without their results.
    pub operations: Vec<Listed>,
    /// How many records fail their own checks and were left out.
    pub damaged_count: usize,
    /// Where the next page begins; `None` if there is nothing more.
    pub next: Option<Cursor>,
}

/// A place in the order of a ledger's records. What its bytes mean is the store's business alone;
/// they may tell of records that whoever asks may not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(OperationKey);

impl Cursor {
    /// From the bytes of a cursor that a store gave.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(OperationKey::from_bytes(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// Behind a record, towards the older ones.
    pub(crate) const fn behind(key: OperationKey) -> Self {
        Self(key)
    }
}

/// What records still ask of one fingerprint key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUsage {
    /// The key's number.
    pub key_id: u32,
    /// How many records were made under it, tombstones too.
    pub records_count: u64,
    /// How many of them may still be compared under it: unsettled, or within their retention.
    pub needed_count: u64,
    /// How many of these are unsettled, and so have no end yet.
    pub unsettled_count: u64,
    /// When the last retention ends among those that are settled and needed.
    pub needed_until: Option<Timestamp>,
}

impl KeyUsage {
    pub(crate) const fn none(key_id: u32) -> Self {
        Self { key_id, records_count: 0, needed_count: 0, unsettled_count: 0, needed_until: None }
    }

    /// Counts one record more, by the end of its retention.
    pub(crate) fn count(&mut self, retention_ends_at: Option<Timestamp>, now: Timestamp) {
        self.records_count += 1;
        match retention_ends_at {
            None => {
                self.needed_count += 1;
                self.unsettled_count += 1;
            }
            Some(end) if end > now => {
                self.needed_count += 1;
                self.needed_until = self.needed_until.max(Some(end));
            }
            Some(_) => {}
        }
    }
}
