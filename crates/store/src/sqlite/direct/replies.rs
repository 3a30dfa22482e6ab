//! The upstreams' answers as rows: packed by whoever brings them and unpacked by whoever asked, so
//! that the writer only carries bytes.

use std::io::Read as _;
use std::sync::Arc;

use counterfoil_core::direct::{Reply, ReplyKind};
use counterfoil_core::fingerprint::Fingerprint;
use counterfoil_core::identity::OperationKey;
use counterfoil_core::limits::MAX_RESULT_BYTES;
use counterfoil_core::time::Timestamp;
use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};
use rusqlite::{Connection, OptionalExtension, Row, params};
use sha2::{Digest, Sha256};

use crate::direct_steps::Asked;
use crate::sqlite::cells::{Cells, Damage, RowCheck, damage, utf8};

/// Answers of so many bytes and less are kept as they are.
const SMALL_BYTES: usize = 1024;

const PLAIN: i64 = 0;
const DEFLATED: i64 = 1;

/// An answer as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::sqlite) struct Packed {
    kind: ReplyKind,
    revision: Arc<str>,
    encoding: i64,
    /// Of the answer as it was given, in bytes.
    length: usize,
    body: Body,
    /// SHA-256 of the answer as it was given.
    digest: [u8; 32],
}

#[derive(Debug, Clone, PartialEq)]
enum Body {
    Given(Arc<[u8]>),
    Made(Vec<u8>),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Given(bytes) => bytes,
            Self::Made(bytes) => bytes,
        }
    }
}

/// An answer as it was read, with what its row is checked by.
#[derive(Debug)]
pub(in crate::sqlite) struct Read {
    key: OperationKey,
    leg: u32,
    asked: Asked,
    packed: Packed,
    check: [u8; 16],
}

impl Packed {
    /// Packs an answer; `None` if it is too large to keep.
    pub(super) fn of(reply: &Reply) -> Option<Self> {
        let length = reply.json.len();
        if length > MAX_RESULT_BYTES {
            return None;
        }
        let digest = Sha256::digest(&reply.json).into();
        let made = (length > SMALL_BYTES).then(|| deflate(&reply.json)).flatten();
        let (encoding, body) = match made {
            Some(made) => (DEFLATED, Body::Made(made)),
            None => (PLAIN, Body::Given(Arc::clone(&reply.json))),
        };
        let (kind, revision) = (reply.kind, Arc::clone(&reply.revision));
        Some(Self { kind, revision, encoding, length, body, digest })
    }
}

/// Compressed, if that saves an eighth at least.
fn deflate(bytes: &[u8]) -> Option<Vec<u8>> {
    let worth = bytes.len() - bytes.len() / 8;
    let mut made = Vec::with_capacity(bytes.len() / 4);
    let reader = DeflateEncoder::new(bytes, Compression::fast());
    reader.take(worth as u64 + 1).read_to_end(&mut made).ok()?;
    (made.len() <= worth).then_some(made)
}

/// Exactly as many bytes as there were, or none.
fn inflate(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut made = Vec::with_capacity(length);
    DeflateDecoder::new(bytes).take(length as u64 + 1).read_to_end(&mut made).ok()?;
    (made.len() == length).then_some(made)
}

/// Keeps the answer to a request, instead of one that is kept of it.
pub(super) fn keep(
    connection: &Connection,
    key: OperationKey,
    leg: u32,
    asked: &Asked,
    packed: &Packed,
) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT OR REPLACE INTO direct_replies (operation_key, leg, leg_digest, \
        kind, revision, asked_until_ms, row_check, encoding, length, reply) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    connection.prepare_cached(SQL)?.execute(params![
        key.as_bytes().as_slice(),
        leg,
        asked.digest.to_bytes().as_slice(),
        packed.kind.code(),
        packed.revision.as_bytes(),
        asked.until.map(Timestamp::as_ms),
        row_check(key, leg, asked, packed).as_slice(),
        packed.encoding,
        i64::try_from(packed.length).unwrap_or(i64::MAX),
        packed.body.bytes(),
    ])?;
    Ok(())
}

/// The answer to a request; the inner error is what is wrong with it.
pub(super) fn find(
    connection: &Connection,
    key: OperationKey,
    leg: u32,
) -> rusqlite::Result<Result<Option<Read>, Damage>> {
    let found = connection
        .prepare_cached(
            "SELECT leg_digest, kind, revision, asked_until_ms, row_check, encoding, length, \
             reply FROM direct_replies WHERE operation_key = ?1 AND leg = ?2",
        )?
        .query_row(params![key.as_bytes().as_slice(), leg], |row| Ok(decode(row, key, leg)))
        .optional()?;
    Ok(found.transpose())
}

/// What is kept of a request beside its answer, without reading that.
pub(super) fn asked(
    connection: &Connection,
    key: OperationKey,
    leg: u32,
) -> rusqlite::Result<Option<Result<Asked, Damage>>> {
    connection
        .prepare_cached(
            "SELECT leg_digest, asked_until_ms FROM direct_replies \
             WHERE operation_key = ?1 AND leg = ?2",
        )?
        .query_row(params![key.as_bytes().as_slice(), leg], |row| {
            let mut cells = Cells::of(row);
            Ok(cells.bytes("leg_digest").and_then(|digest| {
                let until = cells.optional_time("asked_until_ms")?;
                Ok(Asked { digest: Fingerprint::from_bytes(digest), until })
            }))
        })
        .optional()
}

fn decode(row: &Row<'_>, key: OperationKey, leg: u32) -> Result<Read, Damage> {
    let mut cells = Cells::of(row);
    let digest = Fingerprint::from_bytes(cells.bytes("leg_digest")?);
    let kind = ReplyKind::from_code(cells.integer("kind")?).ok_or(damage("kind", "is unknown"))?;
    let revision = Arc::from(utf8("revision", cells.blob("revision")?)?);
    let until = cells.optional_time("asked_until_ms")?;
    let check = cells.bytes("row_check")?;
    let encoding = cells.integer("encoding")?;
    let length = usize::try_from(cells.integer("length")?)
        .ok()
        .filter(|length| *length <= MAX_RESULT_BYTES)
        .ok_or(damage("length", "is out of range"))?;
    let body = Body::Made(cells.blob("reply")?.to_owned());
    let packed = Packed { kind, revision, encoding, length, body, digest: [0; 32] };
    Ok(Read { key, leg, asked: Asked { digest, until }, packed, check })
}

impl Read {
    /// The answer as it was given.
    ///
    /// # Errors
    /// [`Damage`] if it is not what was kept.
    pub(in crate::sqlite) fn unpack(self) -> Result<Reply, Damage> {
        let Self { key, leg, asked, mut packed, check } = self;
        let json = match (packed.encoding, packed.body) {
            (PLAIN, Body::Made(bytes)) => bytes,
            (DEFLATED, body) => inflate(body.bytes(), packed.length)
                .ok_or(damage("reply", "cannot be decompressed"))?,
            _ => return Err(damage("encoding", "is unknown")),
        };
        packed.digest = Sha256::digest(&json).into();
        packed.body = Body::Made(Vec::new());
        if packed.length != json.len() || row_check(key, leg, &asked, &packed) != check {
            return Err(damage("reply", "does not have the digest that is kept of it"));
        }
        Ok(Reply { kind: packed.kind, revision: packed.revision, json: json.into() })
    }
}

fn row_check(key: OperationKey, leg: u32, asked: &Asked, packed: &Packed) -> [u8; 16] {
    let mut digest = RowCheck::new(b"counterfoil direct reply v1\0");
    digest.bytes(key.as_bytes());
    digest.integer(leg.into());
    digest.bytes(&asked.digest.to_bytes());
    digest.time(asked.until);
    digest.integer(packed.kind.code());
    digest.bytes(packed.revision.as_bytes());
    digest.integer(packed.encoding);
    digest.bytes(&packed.digest);
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: Vec<u8>, encoding: i64) {
        let reply = Reply { kind: ReplyKind::Result, revision: "r".into(), json: json.into() };
        let key = OperationKey::from_bytes([1; 16]);
        let asked = Asked { digest: Fingerprint::from_bytes([2; 32]), until: None };
        let packed = Packed::of(&reply).expect("small enough");
        assert_eq!(packed.encoding, encoding, "{} bytes", reply.json.len());
        let check = row_check(key, 1, &asked, &packed);
        let kept = Packed { body: Body::Made(packed.body.bytes().to_owned()), ..packed };
        let read = Read { key, leg: 1, asked: asked.clone(), packed: kept.clone(), check };
        assert_eq!(read.unpack(), Ok(reply));
        if encoding == DEFLATED {
            let short = Packed { length: kept.length - 1, ..kept };
            let read = Read { key, leg: 1, asked, packed: short, check };
            assert!(read.unpack().is_err(), "more comes out than was put in");
        }
    }

    #[test]
    fn an_answer_comes_back_as_it_was_given() {
        // Promise: an answer is given again byte for byte, compressed only where that helps.
        check(br#""small""#.to_vec(), PLAIN);
        check(vec![b' '; SMALL_BYTES], PLAIN);
        check(vec![b' '; SMALL_BYTES + 1], DEFLATED);
        check(br#"{"id":12345678901234567890,"b":null}"#.repeat(30_000), DEFLATED);
        // What looks random does not shrink.
        let noise = (0..200_u32).flat_map(|n| Sha256::digest(n.to_be_bytes()).to_vec()).collect();
        check(noise, PLAIN);
        let json = vec![b'1'; MAX_RESULT_BYTES + 1].into();
        let large = Reply { kind: ReplyKind::Result, revision: "r".into(), json };
        assert_eq!(Packed::of(&large), None);
    }
}
