//! Questions about deliveries, asked of the reading threads; nothing here writes.

use std::fmt;
use std::sync::Arc;

use counterfoil_core::delivery::TargetName;
use counterfoil_core::identity::OperationKey;
use counterfoil_core::time::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use tokio::sync::oneshot;

use super::items::{self, Found};
use super::orders::{key_of, misplaced};
use super::targets;
use crate::error::StoreError;
use crate::outbox::{DeliveryPage, DeliveryQuery, DeliveryView, Which};
use crate::outbox_steps::next_due;
use crate::sqlite::cells::{Damage, damage};
use crate::sqlite::commands::set_aside_key;
use crate::sqlite::readers::ReadThread;
use crate::sqlite::rows;

/// How much one page reads at most: so many items looked at, where one that is looked at closely
/// counts as many times as that costs more.
pub(super) const PAGE_UNITS: usize = 100_000;
const UNITS_FOR_A_VIEW: usize = 16;

/// Greater than every key.
const BEFORE_THE_NEWEST: [u8; 17] = [0xff; 17];

/// A question for a reading thread, with its answer's way back.
pub(in crate::sqlite) struct Ask(Box<dyn FnOnce(&ReadThread) + Send>);

impl Ask {
    pub(super) fn new<T: Send + 'static>(
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
        reply: oneshot::Sender<Result<T, StoreError>>,
    ) -> Self {
        // A caller that has gone wants no answer.
        Self(Box::new(move |thread| drop(reply.send(thread.in_snapshot(read)))))
    }

    /// Reads, and answers.
    pub(in crate::sqlite) fn answer(self, thread: &ReadThread) {
        (self.0)(thread);
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ask")
    }
}

pub(super) const EARLIEST: &str = "SELECT min(at) FROM \
    (SELECT min(next_attempt_ms) AS at FROM outbox \
    WHERE target_no = ?1 AND next_attempt_ms IS NOT NULL AND quarantined = 0 \
    UNION ALL SELECT min(lease_until_ms) FROM outbox \
    WHERE target_no = ?1 AND lease_until_ms IS NOT NULL AND quarantined = 0)";

/// When the first item of a target is due, or its lease ends.
pub(super) fn earliest(
    connection: &Connection,
    target_no: i64,
) -> rusqlite::Result<Option<Timestamp>> {
    let first: Option<i64> =
        connection.prepare_cached(EARLIEST)?.query_row([target_no], |row| row.get(0))?;
    Ok(first.map(Timestamp::from_ms))
}

/// When a claim may next give something. Of a target that cannot be read nothing is claimed.
pub(super) fn due_of(
    connection: &Connection,
    name: &TargetName,
    now: Timestamp,
) -> rusqlite::Result<Option<Timestamp>> {
    let Some(Ok(target)) = targets::find(connection, name)? else { return Ok(None) };
    Ok(next_due(&target.state, earliest(connection, target.number)?, now))
}

/// Whether some item is parked for a target that is known; with `parks` also, whether one waits for
/// an unknown one.
pub(super) fn is_any_misplaced(
    connection: &Connection,
    known: &[TargetName],
    parks: bool,
) -> rusqlite::Result<bool> {
    for target in targets::all(connection)? {
        let is_known = known.contains(&target.name);
        if (is_known || parks) && !misplaced(connection, target.number, is_known, 1)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One item with its operation; the inner error is that one of them is damaged.
pub(super) fn delivery(
    connection: &Connection,
    which: &Which,
) -> rusqlite::Result<Result<Option<DeliveryView>, StoreError>> {
    let quarantined = |damage: Damage| Err(StoreError::Quarantined { reason: damage.to_string() });
    let key = match key_of(connection, which)? {
        Ok(Some(key)) => key,
        Ok(None) => return Ok(Ok(None)),
        Err(damage) => return Ok(quarantined(damage)),
    };
    Ok(match view(connection, key)? {
        Ok(view) => Ok(view),
        Err(damage) => quarantined(damage),
    })
}

/// The frozen request of an item; the inner error is that it is not what was frozen.
pub(super) fn request(
    connection: &Connection,
    key: OperationKey,
) -> rusqlite::Result<Result<Option<Arc<[u8]>>, StoreError>> {
    let is_kept: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM outbox_requests WHERE operation_key = ?1)")?
        .query_row([key.as_bytes().as_slice()], |row| row.get(0))?;
    if !is_kept {
        return Ok(Ok(None));
    }
    let request = items::request(connection, key)?;
    Ok(request.map(Some).map_err(|damage| StoreError::Quarantined { reason: damage.to_string() }))
}

/// An item with its operation and its target; the inner error is that one of them is damaged.
pub(super) fn view(
    connection: &Connection,
    key: OperationKey,
) -> rusqlite::Result<Result<Option<DeliveryView>, Damage>> {
    let damaged = |damage: Damage| {
        let _ = set_aside_key(key, damage);
        Ok(Err(damage))
    };
    let item = match items::find(connection, key)? {
        Found::Kept(item) => *item,
        Found::Absent => return Ok(Ok(None)),
        Found::Damaged(damage) => return damaged(damage),
    };
    let record = match rows::find_by_key(connection, key)? {
        rows::Found::Kept(kept) => kept.record,
        rows::Found::Absent => return damaged(damage("operation_key", "is no operation's")),
        rows::Found::Damaged(damage) => return damaged(damage),
    };
    match targets::find_by_number(connection, item.target_no)? {
        Some(Ok(target)) => {
            Ok(Ok(Some(DeliveryView { record, delivery: item.delivery, target: target.state })))
        }
        Some(Err(damage)) => damaged(damage),
        None => damaged(damage("target_no", "stands for no target")),
    }
}

/// A page of items, the newest first.
pub(super) fn deliveries(
    connection: &Connection,
    query: &DeliveryQuery,
    page_units: usize,
) -> rusqlite::Result<DeliveryPage> {
    let mut page = DeliveryPage::default();
    let filter = match Filter::of(connection, query)? {
        Some(filter) => filter,
        None => return Ok(page),
    };
    let mut statement = connection.prepare_cached(
        "SELECT operation_key, target_no, state, error_class, created_at_ms FROM outbox \
         WHERE operation_key < ?1 ORDER BY operation_key DESC",
    )?;
    let start = query.after.map_or(BEFORE_THE_NEWEST.to_vec(), |key| key.as_bytes().to_vec());
    let mut rows = statement.query([start])?;
    let (mut units, mut looked_at) = (0, None);
    while let Some(row) = rows.next()? {
        if units >= page_units {
            page.next = looked_at;
            return Ok(page);
        }
        units += 1;
        let Ok(key) = row.get(0).map(OperationKey::from_bytes) else {
            // Not even a key: nothing can be asked about it.
            page.damaged_count += 1;
            continue;
        };
        if filter.admits(row)? {
            units += UNITS_FOR_A_VIEW;
            match view(connection, key)? {
                Ok(Some(view)) if query.admits(&view.record.tenant, &view.delivery) => {
                    if page.items.len() == query.page_count() {
                        page.next = looked_at;
                        return Ok(page);
                    }
                    page.items.push(view);
                }
                Ok(_) => {}
                Err(_) => page.damaged_count += 1,
            }
        }
        looked_at = Some(key);
    }
    Ok(page)
}

/// The query against the columns of a row as they lie there, before the row is believed.
struct Filter<'q> {
    target_no: Option<i64>,
    query: &'q DeliveryQuery,
}

impl<'q> Filter<'q> {
    /// `None` if nothing can fit.
    fn of(connection: &Connection, query: &'q DeliveryQuery) -> rusqlite::Result<Option<Self>> {
        let Some(name) = &query.target else { return Ok(Some(Self { target_no: None, query })) };
        Ok(match targets::find(connection, name)? {
            Some(Ok(target)) => Some(Self { target_no: Some(target.number), query }),
            Some(Err(_)) | None => None,
        })
    }

    fn admits(&self, row: &Row<'_>) -> rusqlite::Result<bool> {
        let query = self.query;
        let state = row.get_ref(2)?;
        let class = row.get_ref(3)?;
        let created = row.get_ref(4)?;
        Ok(self.target_no.is_none_or(|number| row.get_ref(1) == Ok(ValueRef::Integer(number)))
            && (query.states.is_empty()
                || query.states.iter().any(|wanted| state == ValueRef::Integer(wanted.code())))
            && query.class.is_none_or(|wanted| class == ValueRef::Blob(wanted.as_str().as_bytes()))
            && query.accepted_until.is_none_or(|until| match created {
                ValueRef::Integer(ms) => ms <= until.as_ms(),
                _ => true,
            }))
    }
}
