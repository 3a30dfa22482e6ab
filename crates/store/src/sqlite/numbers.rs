//! The numbers that stand for names in the rows, as the writer knows them.

use std::collections::HashMap;

use counterfoil_core::delivery::{TargetName, Terms};
use counterfoil_core::identity::Tenant;

/// Numbers that are committed, or were made in the present transaction; emptied by every rollback.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) tenants: HashMap<Tenant, i64>,
    pub(super) targets: HashMap<TargetName, i64>,
    pub(super) terms: HashMap<Terms, i64>,
}

impl Numbers {
    pub(super) fn clear(&mut self) {
        self.tenants.clear();
        self.targets.clear();
        self.terms.clear();
    }
}
