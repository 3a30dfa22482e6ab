//! The cursor of a caller's list: where the next page begins, sealed so that it is good for that
//! caller and that list alone.
//!
//! Text form: `cl1.` and the URL-safe base64 (RFC 4648, section 5, without padding) of key number
//! (4 bytes), tag (32 bytes), position (16 bytes, enciphered). The position may be that of another
//! caller's operation, which is nobody's business: it is enciphered with a pad that is made from
//! the tag, and the tag is an HMAC over list and position (the construction of SIV, RFC 5297). It
//! has no end: a page of a list grants nothing that its caller could not ask for anew.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::fingerprint::{KeyId, KeyRing, SecretKey};

/// Version and separator. Part of what is signed.
const PREFIX: &str = "cl1.";
const KEY_LABEL: &[u8] = b"counterfoil list cursor key v1\0";
const TAG_LABEL: &[u8] = b"tag\0";
const PAD_LABEL: &[u8] = b"pad\0";
const KEY_ID_BYTES: usize = 4;
const TAG_BYTES: usize = 32;
const POSITION_BYTES: usize = 16;
/// 52 bytes in base64, behind the prefix.
const TEXT_BYTES: usize =
    PREFIX.len() + ((KEY_ID_BYTES + TAG_BYTES + POSITION_BYTES) * 8).div_ceil(6);

/// Whose list a cursor continues, and which one.
#[derive(Debug, Clone, Copy)]
pub struct ListOf<'a> {
    /// The caller's tenant.
    pub tenant: &'a str,
    /// The caller.
    pub principal: &'a str,
    /// The list: another filter is another list.
    pub list: &'a str,
}

/// Seals a position under the ring's active key. One position of one list has one text.
#[must_use]
pub fn seal(keys: &KeyRing, of: &ListOf<'_>, position: &[u8; POSITION_BYTES]) -> String {
    let (key_id, key) = keys.active();
    let key = key.derive(KEY_LABEL);
    let tag = key.hmac(&[&to_sign(of, position)]);
    let mut bytes = key_id.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(&tag);
    bytes.extend_from_slice(&enciphered(&key, &tag, position));
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(&bytes))
}

/// Opens a cursor that some key of the ring sealed for this very list.
///
/// # Errors
/// [`CursorRefused`] if it is anything else; what, is not told.
pub fn open(
    keys: &KeyRing,
    of: &ListOf<'_>,
    text: &str,
) -> Result<[u8; POSITION_BYTES], CursorRefused> {
    if text.len() != TEXT_BYTES {
        return Err(CursorRefused);
    }
    let encoded = text.strip_prefix(PREFIX).ok_or(CursorRefused)?;
    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| CursorRefused)?;
    let (key_id, rest) = bytes.split_first_chunk::<KEY_ID_BYTES>().ok_or(CursorRefused)?;
    let (tag, hidden) = rest.split_first_chunk::<TAG_BYTES>().ok_or(CursorRefused)?;
    let hidden = hidden.try_into().map_err(|_| CursorRefused)?;
    let key = keys.get(KeyId(u32::from_be_bytes(*key_id))).ok_or(CursorRefused)?.derive(KEY_LABEL);
    let position = enciphered(&key, tag, &hidden);
    if key.verify_hmac(&[&to_sign(of, &position)], tag) { Ok(position) } else { Err(CursorRefused) }
}

/// The one answer to a cursor that is foreign, changed or made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cursor does not continue this list: give the one that the last page of the same list came \
     with, to the same caller, or leave it out to begin anew"
)]
pub struct CursorRefused;

/// Each text with its length before it, so that no two lists are signed alike.
fn to_sign(of: &ListOf<'_>, position: &[u8; POSITION_BYTES]) -> Vec<u8> {
    let mut bytes = TAG_LABEL.to_vec();
    for text in [PREFIX, of.tenant, of.principal, of.list] {
        bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes.extend_from_slice(position);
    bytes
}

/// Enciphers, and deciphers what it enciphered.
fn enciphered(
    key: &SecretKey,
    tag: &[u8; TAG_BYTES],
    position: &[u8; POSITION_BYTES],
) -> [u8; POSITION_BYTES] {
    let pad = key.hmac(&[PAD_LABEL, tag]);
    std::array::from_fn(|at| position[at] ^ pad[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: ListOf<'_> = ListOf { tenant: "local", principal: "alice", list: "all" };
    const POSITION: [u8; POSITION_BYTES] = *b"0123456789abcdef";

    fn ring(active: u32, keys: &[(u32, u8)]) -> KeyRing {
        let key = |fill| SecretKey::from_bytes(&[fill; 32]).expect("long enough");
        KeyRing::new(KeyId(active), keys.iter().map(|(id, fill)| (KeyId(*id), key(*fill))))
            .expect("a good ring")
    }

    #[test]
    fn a_cursor_is_good_for_its_own_list_alone() {
        // Promise: nobody continues another caller's list, or another list of their own.
        let keys = ring(1, &[(1, 1)]);
        let text = seal(&keys, &ALICE, &POSITION);
        assert_eq!(open(&keys, &ALICE, &text), Ok(POSITION));
        for other in [
            ListOf { tenant: "acme", ..ALICE },
            ListOf { principal: "bob", ..ALICE },
            ListOf { list: "unsettled", ..ALICE },
            ListOf { tenant: "locala", principal: "lice", ..ALICE },
        ] {
            assert_eq!(open(&keys, &other, &text), Err(CursorRefused), "{other:?}");
        }
    }

    #[test]
    fn a_changed_cursor_is_refused() {
        // Promise: a cursor is taken as it was given or not at all.
        let keys = ring(1, &[(1, 1)]);
        let text = seal(&keys, &ALICE, &POSITION);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(open(&keys, &ALICE, &changed), Err(CursorRefused), "{at}");
        }
        for bad in ["", "cl1.", &text[1..], &format!("{text}A"), &"é".repeat(37)] {
            assert_eq!(open(&keys, &ALICE, bad), Err(CursorRefused), "{bad}");
        }
    }

    #[test]
    fn a_cursor_shows_nothing_of_its_position() {
        // Promise: when and where somebody else's operation stands cannot be read from a cursor.
        let keys = ring(1, &[(1, 1)]);
        let bytes = |position: &[u8; 16]| {
            let text = seal(&keys, &ALICE, position);
            URL_SAFE_NO_PAD.decode(&text[PREFIX.len()..]).expect("base64")
        };
        let (one, two) = (bytes(&POSITION), bytes(b"0123456789abcdeg"));
        assert!(!one.windows(4).any(|window| POSITION.windows(4).any(|other| window == other)));
        let same = one.iter().zip(&two).skip(KEY_ID_BYTES).filter(|(a, b)| a == b).count();
        assert!(same < 8, "neighbours look alike in {same} of 48 bytes");
    }

    #[test]
    fn a_cursor_outlives_a_rotation() {
        // Promise: a page that was asked for before a new key was activated can be followed after.
        let text = seal(&ring(1, &[(1, 1)]), &ALICE, &POSITION);
        assert_eq!(open(&ring(2, &[(1, 1), (2, 2)]), &ALICE, &text), Ok(POSITION));
        assert_eq!(open(&ring(2, &[(2, 2)]), &ALICE, &text), Err(CursorRefused));
    }
}
