//! Questions about many records, answered by looking at all of them.

use std::collections::BTreeMap;
use std::ops::Bound;

use counterfoil_core::identity::OperationKey;
use counterfoil_core::listing::Listed;
use counterfoil_core::time::Timestamp;

use super::ledger::Ledger;
use crate::listing::{Cursor, KeyUsage, ListQuery, Page};

impl Ledger {
    pub(super) fn list(&self, query: &ListQuery) -> Page {
        let older = match query.after {
            Some(after) => Bound::Excluded(OperationKey::from_bytes(*after.as_bytes())),
            None => Bound::Unbounded,
        };
        let mut wanted = self
            .operations
            .range((Bound::Unbounded, older))
            .rev()
            .filter(|(_, kept)| query.admits(&kept.record));
        let mut page = Page::default();
        let mut last = None;
        for (key, kept) in wanted.by_ref().take(query.limit.count()) {
            let effect = self.rows.look(kept.record.effect.as_ref());
            page.operations.push(Listed::of(kept.record.clone(), effect));
            last = Some(Cursor::behind(*key));
        }
        page.next = wanted.next().and(last);
        page
    }

    pub(super) fn keys_in_use(&self, now: Timestamp) -> Vec<KeyUsage> {
        let mut by_key = BTreeMap::new();
        for kept in self.operations.values() {
            let key_id = kept.record.binding.key_id.0;
            let usage = by_key.entry(key_id).or_insert(KeyUsage::none(key_id));
            usage.count(kept.record.retention_ends_at, now);
        }
        by_key.into_values().collect()
    }
}
