//! The digest of an effect's row: by it a status read tells a row that was changed later from one
//! that is still as the effect left it.

use sha2::{Digest, Sha256};

/// SHA-256 over a row's columns in table order. NULL columns are left out, so that a column added
/// to the table later changes no digest.
#[derive(Debug)]
pub(crate) struct RowDigest(Sha256);

/// One value as the digest takes it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DigestValue<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'a [u8]),
    Blob(&'a [u8]),
}

impl RowDigest {
    pub(crate) fn new() -> Self {
        Self(Sha256::new_with_prefix(b"counterfoil effect row v1\0"))
    }

    /// Adds a column.
    pub(crate) fn column(&mut self, name: &str, value: DigestValue<'_>) {
        let (tag, bytes): (u8, &[u8]) = match &value {
            DigestValue::Null => return,
            DigestValue::Integer(number) => (1, &number.to_be_bytes()),
            DigestValue::Real(number) => (2, &number.to_bits().to_be_bytes()),
            DigestValue::Text(bytes) => (3, bytes),
            DigestValue::Blob(bytes) => (4, bytes),
        };
        self.part(name.as_bytes());
        self.0.update([tag]);
        self.part(bytes);
    }

    /// The digest.
    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    /// Each part with its length before it: no two lists of parts give the same bytes.
    fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }
}
