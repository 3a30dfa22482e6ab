//! The cells of a row: read one after the other with every check of its kind, and put into the digest
//! that a row holds of itself.

use counterfoil_core::time::Timestamp;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use sha2::{Digest, Sha256};

/// The check that a row fails. Holds no value of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) column: &'static str,
    pub(super) rule: &'static str,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.column, self.rule)
    }
}

pub(super) const fn damage(column: &'static str, rule: &'static str) -> Damage {
    Damage { column, rule }
}

/// The columns of one row, read one after the other.
pub(super) struct Cells<'r, 's> {
    row: &'r Row<'s>,
    at: usize,
}

impl<'r, 's> Cells<'r, 's> {
    /// The cells of a row, the first one first.
    pub(super) fn of(row: &'r Row<'s>) -> Self {
        Self { row, at: 0 }
    }

    /// Whether the next column holds nothing.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.row.get_ref(self.at), Ok(ValueRef::Null))
    }

    fn next(&mut self, column: &'static str) -> Result<ValueRef<'r>, Damage> {
        let value = self.row.get_ref(self.at).map_err(|_| damage(column, "cannot be read"))?;
        self.at += 1;
        Ok(value)
    }

    pub(super) fn integer(&mut self, column: &'static str) -> Result<i64, Damage> {
        match self.next(column)? {
            ValueRef::Integer(number) => Ok(number),
            _ => Err(damage(column, "is not an integer")),
        }
    }

    pub(super) fn optional_integer(&mut self, column: &'static str) -> Result<Option<i64>, Damage> {
        match self.next(column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(number) => Ok(Some(number)),
            _ => Err(damage(column, "is not an integer")),
        }
    }

    pub(super) fn flag(&mut self, column: &'static str) -> Result<bool, Damage> {
        match self.integer(column)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(damage(column, "is neither 0 nor 1")),
        }
    }

    pub(super) fn time(&mut self, column: &'static str) -> Result<Timestamp, Damage> {
        exact_time(column, self.integer(column)?)
    }

    pub(super) fn optional_time(
        &mut self,
        column: &'static str,
    ) -> Result<Option<Timestamp>, Damage> {
        self.optional_integer(column)?.map(|ms| exact_time(column, ms)).transpose()
    }

    pub(super) fn blob(&mut self, column: &'static str) -> Result<&'r [u8], Damage> {
        self.optional_blob(column)?.ok_or(damage(column, "is missing"))
    }

    pub(super) fn optional_blob(
        &mut self,
        column: &'static str,
    ) -> Result<Option<&'r [u8]>, Damage> {
        match self.next(column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Blob(bytes) => Ok(Some(bytes)),
            _ => Err(damage(column, "is not a blob")),
        }
    }

    pub(super) fn bytes<const N: usize>(
        &mut self,
        column: &'static str,
    ) -> Result<[u8; N], Damage> {
        self.blob(column)?.try_into().map_err(|_| damage(column, "has another length"))
    }

    pub(super) fn name<T, E>(
        &mut self,
        column: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Damage> {
        let text = utf8(column, self.blob(column)?)?;
        parse(text).map_err(|_| damage(column, "is not a valid name"))
    }
}

pub(super) fn utf8<'a>(column: &'static str, bytes: &'a [u8]) -> Result<&'a str, Damage> {
    std::str::from_utf8(bytes).map_err(|_| damage(column, "is not UTF-8"))
}

pub(super) fn exact_time(column: &'static str, ms: i64) -> Result<Timestamp, Damage> {
    let time = Timestamp::from_ms(ms);
    if time.as_ms() == ms { Ok(time) } else { Err(damage(column, "is out of range")) }
}

/// A digest over everything that a row says, so that a changed bit anywhere is seen. 128 bits are
/// enough against accidents; it is not a defence against somebody who can write the file.
pub(super) struct RowCheck(Sha256);

impl RowCheck {
    /// Of a kind of row. The name keeps rows of one kind from being taken for another's.
    pub(super) fn new(name: &[u8]) -> Self {
        Self(Sha256::new_with_prefix(name))
    }

    pub(super) fn finish(self) -> [u8; 16] {
        let whole: [u8; 32] = self.0.finalize().into();
        *whole.first_chunk().expect("16 is less than 32")
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    pub(super) fn integer(&mut self, number: i64) {
        self.0.update(number.to_be_bytes());
    }

    pub(super) fn time(&mut self, time: Option<Timestamp>) {
        self.optional(time, |digest, time| digest.integer(time.as_ms()));
    }

    pub(super) fn optional<T>(&mut self, value: Option<T>, add: impl FnOnce(&mut Self, T)) {
        self.0.update([u8::from(value.is_some())]);
        if let Some(value) = value {
            add(self, value);
        }
    }
}
