//! An item together with its operation's record: one read for both, as sending and reporting need it.

use counterfoil_core::identity::OperationKey;
use rusqlite::{Connection, OptionalExtension, Row};

use super::items::{self, Item};
use crate::sqlite::cells::{Cells, Damage};
use crate::sqlite::rows::{self, record_columns};

/// What was found under a key.
#[derive(Debug)]
pub(super) enum Found {
    Absent,
    /// The item is sound; its operation is what it is.
    Kept(Box<Item>, rows::Found),
    /// The item is damaged, and nothing is known of its operation.
    Damaged(Damage),
}

pub(super) const PAIR: &str = items::select!(
    concat!(", ", record_columns!()),
    "LEFT JOIN operations o ON o.operation_key = d.operation_key \
     LEFT JOIN tenants n ON n.tenant_no = o.tenant_no ",
    "WHERE d.operation_key = ?1"
);

/// The item of an operation, with the operation.
pub(super) fn find(connection: &Connection, key: OperationKey) -> rusqlite::Result<Found> {
    connection
        .prepare_cached(PAIR)?
        .query_row([key.as_bytes().as_slice()], |row| Ok(decode(row)))
        .optional()
        .map(|found| found.unwrap_or(Found::Absent))
}

fn decode(row: &Row<'_>) -> Found {
    let mut cells = Cells::of(row);
    let item = match items::decode_from(&mut cells) {
        Ok(item) => item,
        Err(damage) => return Found::Damaged(damage),
    };
    if cells.is_null() {
        return Found::Kept(Box::new(item), rows::Found::Absent);
    }
    let record = match rows::decode_from(&mut cells) {
        Ok(kept) => rows::Found::Kept(Box::new(kept)),
        Err(damage) => rows::Found::Damaged(damage),
    };
    Found::Kept(Box::new(item), record)
}
