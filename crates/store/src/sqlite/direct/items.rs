//! Direct operations as rows, each with a digest of itself, beside their records; and the memos of
//! their calls.

use std::sync::Arc;

use counterfoil_core::direct::{Direct, Upstream};
use counterfoil_core::fingerprint::Fingerprint;
use counterfoil_core::identity::OperationKey;
use counterfoil_core::operation::State;
use counterfoil_core::record::Nature;
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::direct_steps::Pair;
use crate::sqlite::cells::{Cells, Damage, RowCheck, damage};
use crate::sqlite::rows;
use crate::steps::Kept;

/// A sound row, before it is held against its record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub(super) direct: Direct,
    created_at: Timestamp,
    call: Fingerprint,
    in_doubt: bool,
}

/// What was found under a key.
#[derive(Debug)]
pub(super) enum Found {
    Absent,
    Kept(Box<Pair>),
    Damaged(Damage),
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT operation_key, upstream, minted, created_at_ms, call_fingerprint, join_slot, \
             answered_at_ms, repeat_of, leg, leg_digest, last_send_until_ms, late_contradiction, \
             in_doubt, row_check FROM directs ",
            $rest
        )
    };
}

const BY_KEY: &str = select!("WHERE operation_key = ?1");
/// The next so many rows after a key, for a check of the whole file.
pub(super) const AFTER_KEY: &str =
    select!("WHERE operation_key > ?1 ORDER BY operation_key LIMIT ?2");

/// The direct operation of a key, with its record.
pub(super) fn find(connection: &Connection, key: OperationKey) -> rusqlite::Result<Found> {
    match rows::find_by_key(connection, key)? {
        rows::Found::Absent => Ok(Found::Absent),
        rows::Found::Damaged(damage) => Ok(Found::Damaged(damage)),
        rows::Found::Kept(kept) if kept.record.nature != Nature::Direct => Ok(Found::Absent),
        rows::Found::Kept(kept) => beside(connection, *kept),
    }
}

/// The direct operation of a record that was read.
pub(super) fn beside(connection: &Connection, kept: Kept) -> rusqlite::Result<Found> {
    Ok(match item(connection, kept.record.key)? {
        None => Found::Damaged(damage("directs", "has no row of it")),
        Some(Ok(item)) => match item.fits(&kept) {
            Ok(()) => Found::Kept(Box::new(Pair { kept, item: item.direct })),
            Err(damage) => Found::Damaged(damage),
        },
        Some(Err(damage)) => Found::Damaged(damage),
    })
}

fn item(
    connection: &Connection,
    key: OperationKey,
) -> rusqlite::Result<Option<Result<Item, Damage>>> {
    connection
        .prepare_cached(BY_KEY)?
        .query_row([key.as_bytes().as_slice()], |row| Ok(decode(row)))
        .optional()
}

/// Writes the row of a new operation.
pub(super) fn insert(connection: &Connection, pair: &Pair) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT INTO directs (operation_key, upstream, minted, created_at_ms, \
        call_fingerprint, join_slot, answered_at_ms, repeat_of, leg, leg_digest, \
        last_send_until_ms, late_contradiction, in_doubt, row_check) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    let (item, record) = (&pair.item, &pair.kept.record);
    let call = record.binding.call.to_bytes();
    connection.prepare_cached(SQL)?.execute(params![
        item.key.as_bytes().as_slice(),
        item.upstream.as_str().as_bytes(),
        item.minted,
        record.created_at.as_ms(),
        call.as_slice(),
        item.open_slot.then_some(call.as_slice()),
        item.answered_at.map(Timestamp::as_ms),
        item.repeat_of.as_ref().map(|key| key.as_bytes().as_slice()),
        item.leg,
        item.leg_digest.to_bytes().as_slice(),
        item.last_send_until.map(Timestamp::as_ms),
        item.late_contradiction,
        pair.is_in_doubt(),
        row_check(&Item::of(pair)).as_slice(),
    ])?;
    Ok(())
}

/// Writes everything of a row that can change, and its check.
pub(super) fn update(connection: &Connection, pair: &Pair) -> rusqlite::Result<()> {
    const SQL: &str = "UPDATE directs SET join_slot = ?2, answered_at_ms = ?3, leg = ?4, \
        leg_digest = ?5, last_send_until_ms = ?6, late_contradiction = ?7, in_doubt = ?8, \
        row_check = ?9 WHERE operation_key = ?1";
    let item = &pair.item;
    let call = pair.kept.record.binding.call.to_bytes();
    let changed = connection.prepare_cached(SQL)?.execute(params![
        item.key.as_bytes().as_slice(),
        item.open_slot.then_some(call.as_slice()),
        item.answered_at.map(Timestamp::as_ms),
        item.leg,
        item.leg_digest.to_bytes().as_slice(),
        item.last_send_until.map(Timestamp::as_ms),
        item.late_contradiction,
        pair.is_in_doubt(),
        row_check(&Item::of(pair)).as_slice(),
    ])?;
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}

/// Reads a row of one of the statements above.
///
/// # Errors
/// [`Damage`] with the first check that fails.
pub(super) fn decode(row: &Row<'_>) -> Result<Item, Damage> {
    let mut cells = Cells::of(row);
    let key = OperationKey::from_bytes(cells.bytes("operation_key")?);
    let upstream = cells.name("upstream", Upstream::parse)?;
    let minted = cells.flag("minted")?;
    let created_at = cells.time("created_at_ms")?;
    let call = Fingerprint::from_bytes(cells.bytes("call_fingerprint")?);
    let slot = cells.optional_blob("join_slot")?;
    if slot.is_some_and(|slot| slot != call.to_bytes()) {
        return Err(damage("join_slot", "is not the call fingerprint"));
    }
    let answered_at = cells.optional_time("answered_at_ms")?;
    let repeat_of = cells
        .optional_blob("repeat_of")?
        .map(|bytes| bytes.try_into().map(OperationKey::from_bytes))
        .transpose()
        .map_err(|_| damage("repeat_of", "has another length"))?;
    let leg = u32::try_from(cells.integer("leg")?).map_err(|_| damage("leg", "is out of range"))?;
    let direct = Direct {
        key,
        upstream,
        minted,
        open_slot: slot.is_some(),
        answered_at,
        repeat_of,
        leg,
        leg_digest: Fingerprint::from_bytes(cells.bytes("leg_digest")?),
        last_send_until: cells.optional_time("last_send_until_ms")?,
        late_contradiction: cells.flag("late_contradiction")?,
    };
    let in_doubt = cells.flag("in_doubt")?;
    let check: [u8; 16] = cells.bytes("row_check")?;
    let item = Item { direct, created_at, call, in_doubt };
    item.check_whole()?;
    if row_check(&item) != check {
        return Err(damage("row_check", "is not the digest of the row"));
    }
    Ok(item)
}

impl Item {
    fn of(pair: &Pair) -> Self {
        Self {
            direct: pair.item.clone(),
            created_at: pair.kept.record.created_at,
            call: pair.kept.record.binding.call,
            in_doubt: pair.is_in_doubt(),
        }
    }

    /// What no single column shows: that the columns agree with each other.
    fn check_whole(&self) -> Result<(), Damage> {
        let kept = &self.direct;
        let rules = [
            (kept.leg >= 1, "leg", "is below 1"),
            (
                !kept.open_slot || (kept.minted && kept.answered_at.is_none()),
                "join_slot",
                "is open and should not be",
            ),
        ];
        match rules.iter().find(|(holds, _, _)| !holds) {
            None => Ok(()),
            Some((_, column, rule)) => Err(damage(column, rule)),
        }
    }

    /// Whether row and record agree with each other.
    pub(super) fn fits(&self, kept: &Kept) -> Result<(), Damage> {
        let record = &kept.record;
        let rules = [
            (record.nature == Nature::Direct, "nature", "is not that of a direct operation"),
            (self.created_at == record.created_at, "created_at_ms", "is another in `directs`"),
            (self.call == record.binding.call, "call_fingerprint", "is another in `directs`"),
            (
                self.in_doubt == (record.state == State::InDoubt),
                "in_doubt",
                "does not fit the state",
            ),
        ];
        match rules.iter().find(|(holds, _, _)| !holds) {
            None => Ok(()),
            Some((_, column, rule)) => Err(damage(column, rule)),
        }
    }
}

/// The digest of a row.
fn row_check(item: &Item) -> [u8; 16] {
    let kept = &item.direct;
    let mut digest = RowCheck::new(b"counterfoil direct row v1\0");
    digest.bytes(kept.key.as_bytes());
    digest.bytes(kept.upstream.as_str().as_bytes());
    digest.integer(kept.minted.into());
    digest.integer(item.created_at.as_ms());
    digest.bytes(&item.call.to_bytes());
    digest.integer(kept.open_slot.into());
    digest.time(kept.answered_at);
    digest.optional(kept.repeat_of, |digest, key| digest.bytes(key.as_bytes()));
    digest.integer(kept.leg.into());
    digest.bytes(&kept.leg_digest.to_bytes());
    digest.time(kept.last_send_until);
    digest.integer(kept.late_contradiction.into());
    digest.integer(item.in_doubt.into());
    digest.finish()
}

/// Keeps the memo of a call.
pub(super) fn insert_memo(
    connection: &Connection,
    key: OperationKey,
    memo: &[u8],
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO direct_memos (operation_key, row_check, memo) VALUES (?1, ?2, ?3)",
        )?
        .execute(params![key.as_bytes().as_slice(), memo_check(key, memo).as_slice(), memo])?;
    Ok(())
}

/// The memo of a call, if one is kept; the inner error is what is wrong with it.
pub(super) fn memo(
    connection: &Connection,
    key: OperationKey,
) -> rusqlite::Result<Result<Option<Arc<[u8]>>, Damage>> {
    let found = connection
        .prepare_cached("SELECT row_check, memo FROM direct_memos WHERE operation_key = ?1")?
        .query_row([key.as_bytes().as_slice()], |row| {
            let mut cells = Cells::of(row);
            let check: Result<[u8; 16], Damage> = cells.bytes("row_check");
            Ok(check.and_then(|check| {
                let memo = cells.blob("memo")?;
                if memo_check(key, memo) == check {
                    Ok(Arc::from(memo))
                } else {
                    Err(damage("memo", "does not have the digest that is kept of it"))
                }
            }))
        })
        .optional()?;
    Ok(found.transpose())
}

fn memo_check(key: OperationKey, memo: &[u8]) -> [u8; 16] {
    let mut digest = RowCheck::new(b"counterfoil direct memo v1\0");
    digest.bytes(key.as_bytes());
    digest.bytes(memo);
    digest.finish()
}

/// Forgets what the caller of an operation was answered, and the memo, with the result that retention
/// takes.
pub(in crate::sqlite) fn purge(connection: &Connection, key: OperationKey) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM direct_replies WHERE operation_key = ?1",
        "DELETE FROM direct_memos WHERE operation_key = ?1",
    ] {
        connection.prepare_cached(sql)?.execute([key.as_bytes().as_slice()])?;
    }
    Ok(())
}
