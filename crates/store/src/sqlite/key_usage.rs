//! Which keys records still need: a look through the whole ledger, for a command that asks before a
//! key is taken away. It is read in stretches, so that no snapshot is held for long.

use std::collections::BTreeMap;

use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, params};

use crate::listing::KeyUsage;

/// So many records are read in one snapshot.
const STRETCH_RECORDS: i64 = 20_000;

/// The counts so far, and where they end.
#[derive(Debug, Default)]
pub(super) struct Counted {
    by_key: BTreeMap<u32, KeyUsage>,
    last_key: Vec<u8>,
}

impl Counted {
    /// Counts the next stretch; says whether there may be more.
    pub(super) fn count_stretch(
        &mut self,
        connection: &Connection,
        now: Timestamp,
    ) -> rusqlite::Result<bool> {
        let mut statement = connection.prepare_cached(
            "SELECT operation_key, key_id, retention_ends_ms FROM operations \
             WHERE operation_key > ?1 ORDER BY operation_key LIMIT ?2",
        )?;
        let mut rows = statement.query(params![self.last_key, STRETCH_RECORDS])?;
        let mut count = 0;
        let mut last_key = None;
        while let Some(row) = rows.next()? {
            count += 1;
            last_key = Some(row.get(0)?);
            let key_id = row.get(1)?;
            let end: Option<i64> = row.get(2)?;
            let usage = self.by_key.entry(key_id).or_insert(KeyUsage::none(key_id));
            usage.count(end.map(Timestamp::from_ms), now);
        }
        if let Some(last_key) = last_key {
            self.last_key = last_key;
        }
        Ok(count == STRETCH_RECORDS)
    }

    pub(super) fn into_usage(self) -> Vec<KeyUsage> {
        self.by_key.into_values().collect()
    }
}
