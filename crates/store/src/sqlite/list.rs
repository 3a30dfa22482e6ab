//! Pages of records, newest first, in the order of their keys, which is that of time.
//!
//! No index serves them. One over tenant and principal would be written with every operation and
//! cost each of them some 50 bytes and a page of the log, for a question that is asked when somebody
//! forgot an ID. What is asked for is mostly among the newest, and where it is not, a page ends
//! after a bounded amount of reading and says where the next one goes on.

use counterfoil_core::identity::{OperationKey, Tenant};
use counterfoil_core::listing::Listed;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use super::commands::set_aside_key;
use super::effects::look;
use super::rows::{Found, find_by_key};
use crate::listing::{Cursor, ListQuery, Page};

/// How much one page reads at most: so many records looked at, where a record that is listed counts
/// once more for each [`BYTES_PER_UNIT`] of its result, which its check makes us read.
pub(super) const PAGE_UNITS: usize = 100_000;

const BYTES_PER_UNIT: usize = 512;

/// Only columns that stand before the result: a record that is not wanted costs no more than the
/// page of the table that it lies on.
const NEWEST_FIRST: &str = "SELECT operation_key, tenant_no, principal, tool_id, state \
     FROM operations WHERE operation_key < ?1 ORDER BY operation_key DESC";

/// Greater than every key.
const BEFORE_THE_NEWEST: [u8; 17] = [0xff; 17];

/// Reads one page inside the caller's snapshot.
pub(super) fn list(
    connection: &Connection,
    query: &ListQuery,
    page_units: usize,
) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let Some(tenant_no) = tenant_no(connection, &query.tenant)? else { return Ok(page) };
    let filter = Filter { tenant_no, query };
    let start = query.after.as_ref().map_or(&BEFORE_THE_NEWEST[..], |after| after.as_bytes());
    let mut statement = connection.prepare_cached(NEWEST_FIRST)?;
    let mut rows = statement.query([start])?;
    let mut units = 0;
    let mut looked_at = None;
    while let Some(row) = rows.next()? {
        if units >= page_units {
            page.next = looked_at;
            return Ok(page);
        }
        units += 1;
        let Ok(key) = row.get(0).map(OperationKey::from_bytes) else {
            // Not even a key: nothing can be asked about it, and the next row stands behind it.
            page.damaged_count += 1;
            continue;
        };
        if filter.admits(row)? {
            if page.operations.len() == query.limit.count() {
                page.next = looked_at;
                return Ok(page);
            }
            units += read(connection, key, &mut page)? / BYTES_PER_UNIT;
        }
        looked_at = Some(Cursor::behind(key));
    }
    Ok(page)
}

fn tenant_no(connection: &Connection, tenant: &Tenant) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT tenant_no FROM tenants WHERE name = ?1")?
        .query_row([tenant.as_str().as_bytes()], |row| row.get(0))
        .optional()
}

/// Adds one record to the page, with every check that a look-up makes; returns its result's bytes.
fn read(connection: &Connection, key: OperationKey, page: &mut Page) -> rusqlite::Result<usize> {
    match find_by_key(connection, key)? {
        Found::Kept(kept) => {
            let effect = look(connection, kept.record.effect.as_ref())?;
            let bytes = kept.record.result.as_ref().map_or(0, |result| result.as_json().len());
            page.operations.push(Listed::of(kept.record, effect));
            Ok(bytes)
        }
        Found::Damaged(damage) => {
            let _ = set_aside_key(key, damage);
            page.damaged_count += 1;
            Ok(0)
        }
        Found::Absent => Ok(0),
    }
}

/// The query against the columns of a row as they lie there, before the row is believed.
struct Filter<'q> {
    tenant_no: i64,
    query: &'q ListQuery,
}

impl Filter<'_> {
    fn admits(&self, row: &Row<'_>) -> rusqlite::Result<bool> {
        let is = |column, wanted: Option<&str>| -> rusqlite::Result<bool> {
            let Some(wanted) = wanted else { return Ok(true) };
            Ok(row.get_ref(column)? == ValueRef::Blob(wanted.as_bytes()))
        };
        let stages = &self.query.stages;
        let state = row.get_ref(4)?;
        Ok(row.get_ref(1)? == ValueRef::Integer(self.tenant_no)
            && is(2, self.query.principal.as_ref().map(|wanted| wanted.as_str()))?
            && is(3, self.query.tool_id.as_ref().map(|wanted| wanted.as_str()))?
            && (stages.is_empty()
                || stages.iter().any(|stage| state == ValueRef::Integer(*stage as i64))))
    }
}
