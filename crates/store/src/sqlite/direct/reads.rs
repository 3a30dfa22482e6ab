//! Questions about direct operations, asked of the reading threads; nothing here writes.

use std::sync::Arc;

use counterfoil_core::direct::{Reply, Upstream};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::record::Nature;
use rusqlite::{Connection, params};

use super::items::{self, Found};
use super::replies;
use super::shelf::damaged;
use crate::direct::{DirectView, WhichDirect};
use crate::direct_steps::Pair;
use crate::error::StoreError;
use crate::sqlite::cells::Damage;
use crate::sqlite::rows;

pub(super) const IN_DOUBT: &str = "SELECT operation_key FROM directs \
    WHERE upstream = ?1 AND in_doubt = 1 AND operation_key > ?2 ORDER BY operation_key";

/// Operations of one upstream that are in doubt. What is damaged is left out, with the alarm.
pub(super) fn in_doubt(
    connection: &Connection,
    upstream: &Upstream,
    after: Option<OperationKey>,
    max_count: usize,
) -> rusqlite::Result<Vec<DirectView>> {
    let after = after.map_or_else(Vec::new, |key| key.as_bytes().to_vec());
    let mut statement = connection.prepare_cached(IN_DOUBT)?;
    let mut rows = statement.query(params![upstream.as_str().as_bytes(), after])?;
    let mut found = Vec::new();
    while found.len() < max_count {
        let Some(row) = rows.next()? else { break };
        let key = OperationKey::from_bytes(row.get(0)?);
        // An error here has raised the alarm already.
        if let Ok(Some(view)) = view(connection, key)? {
            found.push(view);
        }
    }
    Ok(found)
}

/// One operation with all that stands beside it.
pub(super) fn direct_view(
    connection: &Connection,
    which: &WhichDirect,
) -> rusqlite::Result<Result<Option<DirectView>, StoreError>> {
    match which {
        WhichDirect::Key(key) => view(connection, *key),
        WhichDirect::Id(tenant, id) => match rows::find_by_id(connection, tenant, id)? {
            rows::Found::Kept(kept)
                if kept.record.operation_id == *id && kept.record.nature == Nature::Direct =>
            {
                view(connection, kept.record.key)
            }
            rows::Found::Kept(_) | rows::Found::Absent => Ok(Ok(None)),
            rows::Found::Damaged(damage) => {
                Ok(Err(StoreError::Quarantined { reason: damage.to_string() }))
            }
        },
    }
}

fn view(
    connection: &Connection,
    key: OperationKey,
) -> rusqlite::Result<Result<Option<DirectView>, StoreError>> {
    let broken = |damage: Damage| Ok(Err(damaged(key, damage)));
    let pair = match items::find(connection, key)? {
        Found::Absent => return Ok(Ok(None)),
        Found::Damaged(damage) => return broken(damage),
        Found::Kept(pair) => *pair,
    };
    let reply = match pair.shown() {
        None => None,
        Some(leg) => match replies::find(connection, key, leg)? {
            Ok(read) => match read.map(replies::Read::unpack).transpose() {
                Ok(reply) => reply.map(Arc::new),
                Err(damage) => return broken(damage),
            },
            Err(damage) => return broken(damage),
        },
    };
    let memo = match items::memo(connection, key)? {
        Ok(memo) => memo,
        Err(damage) => return broken(damage),
    };
    let Pair { kept, item } = pair;
    Ok(Ok(Some(DirectView { record: kept.record, item, reply, memo })))
}

/// The answer to one request.
pub(super) fn reply(
    connection: &Connection,
    key: OperationKey,
    leg: u32,
) -> rusqlite::Result<Result<Option<Reply>, StoreError>> {
    let read = replies::find(connection, key, leg)?;
    let reply = read.and_then(|read| read.map(replies::Read::unpack).transpose());
    Ok(reply.map_err(|damage| damaged(key, damage)))
}
