//! What is due to be purged: looked for by the reading threads, in bounded steps, so that the
//! writer is only held for what there is to write.

use std::time::Duration;

use counterfoil_core::identity::OperationKey;
use counterfoil_core::operation::State;
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, params};

use super::upkeep::{Again, Scan};

/// One search looks at so many records at most. A longer snapshot would keep the log from being cut.
const LOOKED_AT_COUNT: i64 = 20_000;

/// One transaction purges results, and upstreams' answers, of at most so many bytes together, or those
/// of a single larger operation: what is deleted is read once more by the writer.
const RESULTS_BYTES: i64 = 8 * 1024 * 1024;

/// Records that were passed over are looked at again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(86_400);

/// What to look for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    /// Retention that ended until then has ended.
    pub(super) until: Timestamp,
    /// Only records that began before are looked at.
    pub(super) begun_before: Timestamp,
    /// Tombstones below it can go.
    pub(super) horizon: Timestamp,
    /// Most records to find.
    pub(super) limit_count: usize,
    /// Where to look for results; `None`: nowhere.
    pub(super) results: Option<Scan>,
    /// Where to look for tombstones; `None`: nowhere.
    pub(super) tombstones: Option<Place>,
}

/// How far the tombstones were looked through, in the order of their IDs. It is kept in memory: what
/// is due is deleted, so the next search from the start finds little that is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    tenant_no: i64,
    id_bytes: [u8; 16],
}

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) results: Vec<OperationKey>,
    pub(super) tombstones: Vec<OperationKey>,
    /// Where the search for results began, and where it came to.
    pub(super) from: Scan,
    pub(super) to: Scan,
    /// Where the search for tombstones came to.
    pub(super) place: Place,
    /// Whether a search ended early, of results and of tombstones.
    pub(super) more_results: bool,
    pub(super) more_tombstones: bool,
    /// A table of the embedder's that refers to operations.
    pub(super) held_back_by: Option<String>,
}

/// Looks for what is due.
pub(super) fn search(connection: &Connection, search: &Search) -> rusqlite::Result<Due> {
    let mut due = Due {
        results: Vec::new(),
        tombstones: Vec::new(),
        from: search.results.unwrap_or_default(),
        to: search.results.unwrap_or_default(),
        place: search.tombstones.unwrap_or_default(),
        more_results: false,
        more_tombstones: false,
        held_back_by: referrer(connection)?,
    };
    if let Some(scan) = search.results {
        find_results(connection, search, scan, &mut due)?;
    }
    if let Some(place) = search.tombstones.filter(|_| due.held_back_by.is_none()) {
        find_tombstones(connection, search, place, &mut due)?;
    }
    Ok(due)
}

fn find_results(
    connection: &Connection,
    search: &Search,
    mut scan: Scan,
    due: &mut Due,
) -> rusqlite::Result<()> {
    if let Some(again) = scan.again.filter(|again| again.at <= search.until) {
        scan = Scan { after: again.after, again: None };
    }
    let mut statement = connection.prepare_cached(
        "SELECT operation_key, retention_ends_ms, purged, coalesce(length(result), 0) \
         + CASE nature WHEN 3 THEN (SELECT coalesce(sum(length(r.reply)), 0) \
         FROM direct_replies r WHERE r.operation_key = operations.operation_key) ELSE 0 END, state \
         FROM operations WHERE operation_key > ?1 AND operation_key < ?2 \
         ORDER BY operation_key LIMIT ?3",
    )?;
    let after = scan.after.map_or_else(Vec::new, |key| key.as_bytes().to_vec());
    let before = first_key_of(search.begun_before);
    let mut rows = statement.query(params![after, before, LOOKED_AT_COUNT + 1])?;
    let (mut looked_at_count, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        let found = Found {
            key: OperationKey::from_bytes(row.get(0)?),
            settled: is_settled(row.get(4)?),
            ends: row.get::<_, Option<i64>>(1)?.map(Timestamp::from_ms),
        };
        let purged: bool = row.get(2)?;
        let length: i64 = row.get(3)?;
        let full = due.results.len() >= search.limit_count
            || looked_at_count >= LOOKED_AT_COUNT
            || (!due.results.is_empty() && bytes + length > RESULTS_BYTES);
        if full {
            due.more_results = true;
            break;
        }
        if found.is_due(search.until) && !purged {
            due.results.push(found.key);
            bytes += length;
        } else if !purged {
            let at = search.until.plus(LOOK_AGAIN);
            scan.again.get_or_insert(Again { after: scan.after, at });
        }
        scan.after = Some(found.key);
        looked_at_count += 1;
    }
    due.to = scan;
    Ok(())
}

fn find_tombstones(
    connection: &Connection,
    search: &Search,
    place: Place,
    due: &mut Due,
) -> rusqlite::Result<()> {
    let limit_count = search.limit_count.saturating_sub(due.results.len());
    let mut statement = connection.prepare_cached(
        "SELECT o.operation_key, t.tenant_no, o.id_bytes, o.retention_ends_ms, o.created_at_ms, \
         o.state FROM tenants t CROSS JOIN operations o \
         ON o.tenant_no = t.tenant_no AND o.id_kind = 1 AND o.id_bytes < ?1 \
         AND (t.tenant_no > ?2 OR o.id_bytes > ?3) \
         WHERE t.tenant_no >= ?2 ORDER BY t.tenant_no, o.id_bytes LIMIT ?4",
    )?;
    let Place { tenant_no, id_bytes } = place;
    let horizon = first_key_of(search.horizon);
    let mut rows = statement.query(params![horizon, tenant_no, id_bytes, LOOKED_AT_COUNT + 1])?;
    let mut looked_at_count = 0;
    while let Some(row) = rows.next()? {
        if due.tombstones.len() >= limit_count || looked_at_count >= LOOKED_AT_COUNT {
            due.more_tombstones = true;
            return Ok(());
        }
        let found = Found {
            key: OperationKey::from_bytes(row.get(0)?),
            settled: is_settled(row.get(5)?),
            ends: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_ms),
        };
        let created = Timestamp::from_ms(row.get(4)?);
        if found.is_due(search.until) && created < search.horizon {
            due.tombstones.push(found.key);
        }
        due.place = Place { tenant_no: row.get(1)?, id_bytes: row.get(2)? };
        looked_at_count += 1;
    }
    // The next search begins anew.
    due.place = Place::default();
    Ok(())
}

struct Found {
    key: OperationKey,
    settled: bool,
    ends: Option<Timestamp>,
}

impl Found {
    fn is_due(&self, until: Timestamp) -> bool {
        self.settled && self.ends.is_some_and(|end| end <= until)
    }
}

fn is_settled(state: i64) -> bool {
    State::from_code(state, 0).is_some_and(State::ages)
}

/// A table besides the ledger's own whose foreign key refers to operations.
pub(super) fn referrer(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare_cached(
        "SELECT s.name FROM sqlite_schema s, pragma_foreign_key_list(s.name) f \
         WHERE s.type = 'table' AND s.name NOT IN ('audit_events', 'outbox', 'directs') \
         AND f.\"table\" = 'operations' COLLATE NOCASE ORDER BY s.name LIMIT 1",
    )?;
    let mut rows = statement.query([])?;
    rows.next()?.map(|row| row.get(0)).transpose()
}

/// The smallest key and the smallest UUIDv7 of an instant (RFC 9562, section 5.7).
pub(super) fn first_key_of(time: Timestamp) -> [u8; 16] {
    let ms = u64::try_from(time.as_ms()).unwrap_or(0).min((1 << 48) - 1).to_be_bytes();
    let mut key = [0; 16];
    key[..6].copy_from_slice(&ms[2..]);
    key
}
