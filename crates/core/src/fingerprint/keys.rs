//! Secret keys, their numbers, and the ring that holds them.

use std::collections::BTreeMap;
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Shortest key, in bytes: the output length of SHA-256, which RFC 2104, section 3, asks for.
pub const MIN_KEY_BYTES: usize = 32;

const CHECK_LABEL: &[u8] = b"counterfoil key check value v1\0";

/// The number under which a key is kept; every record names the key of its fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u32);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Key material. Wiped from memory when dropped; `Debug` shows nothing of it.
#[derive(Clone)]
pub struct SecretKey(Zeroizing<Vec<u8>>);

impl SecretKey {
    /// A key from its bytes, all of which count.
    ///
    /// # Errors
    ///
    /// If there are fewer than [`MIN_KEY_BYTES`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        if bytes.len() < MIN_KEY_BYTES {
            return Err(KeyError::TooShort { length_bytes: bytes.len() });
        }
        Ok(Self(Zeroizing::new(bytes.to_vec())))
    }

    /// A key from hexadecimal digits of either case; white space around them is ignored, as files
    /// end in a line feed.
    ///
    /// # Errors
    ///
    /// If the text is not hexadecimal, or stands for fewer than [`MIN_KEY_BYTES`].
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        let not_hex = |index| KeyError::NotHex { position: index + 1 };
        let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 2));
        let mut high = None;
        for (index, c) in text.chars().enumerate() {
            let digit = c.to_digit(16).ok_or(not_hex(index))?;
            match high.take() {
                None => high = Some(digit),
                Some(high) => bytes
                    .push(u8::try_from(high << 4 | digit).expect("two hex digits make one byte")),
            }
        }
        if high.is_some() {
            return Err(KeyError::OddDigits { digit_count: text.len() });
        }
        Self::from_bytes(&bytes)
    }

    /// What a store keeps to recognise this key again. Tells nothing about the key or about any
    /// fingerprint.
    pub fn check_value(&self) -> [u8; 16] {
        let digest = self.hmac(&[CHECK_LABEL]);
        *digest.first_chunk().expect("16 is less than 32")
    }

    /// A keyed digest of the parts, each behind its length, so that no two lists give one text.
    /// `label` makes this use of the key differ from every other.
    #[must_use]
    pub fn digest_of(&self, label: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        let lengths: Vec<[u8; 8]> =
            parts.iter().map(|it| (it.len() as u64).to_be_bytes()).collect();
        let of_part = |(length, part)| [length as &[u8], part];
        let mut whole: Vec<&[u8]> = vec![label];
        whole.extend(
            lengths.iter().map(|it| it.as_slice()).zip(parts.iter().copied()).flat_map(of_part),
        );
        self.hmac(&whole)
    }

    /// HMAC-SHA256 over the parts, one after the other.
    pub(crate) fn hmac(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Whether `tag` is the HMAC of the parts, in time that does not depend on where it differs.
    pub(crate) fn verify_hmac(&self, parts: &[&[u8]], tag: &[u8; 32]) -> bool {
        self.mac(parts).verify_slice(tag).is_ok()
    }

    /// A key for one purpose only, so that no tag made for it is good for another.
    pub(crate) fn derive(&self, label: &[u8]) -> SecretKey {
        let derived = Zeroizing::new(self.hmac(&[label]));
        Self(Zeroizing::new(derived.to_vec()))
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key length");
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(redacted)")
    }
}

/// Why a key was refused. Tells lengths and positions, never content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error(
        "the key has {length_bytes} bytes; it needs at least {MIN_KEY_BYTES}: generate {MIN_KEY_BYTES} random bytes, written as 64 hexadecimal digits"
    )]
    TooShort { length_bytes: usize },
    /// `position` counts characters from 1, after leading white space.
    #[error(
        "character {position} of the key is not a hexadecimal digit; write the key as digits 0-9 and a-f only"
    )]
    NotHex { position: usize },
    #[error(
        "the key has {digit_count} digits; {} or more, an even number, are needed", 2 * MIN_KEY_BYTES
    )]
    OddDigits { digit_count: usize },
}

/// The keys of a ledger: one makes new fingerprints, all of them recognise old ones.
#[derive(Clone, Debug)]
pub struct KeyRing {
    active: KeyId,
    keys: BTreeMap<KeyId, SecretKey>,
}

impl KeyRing {
    /// A ring whose key `active` makes new fingerprints.
    ///
    /// # Errors
    ///
    /// If there are no keys, two have one number, or `active` is not among them.
    pub fn new(
        active: KeyId,
        keys: impl IntoIterator<Item = (KeyId, SecretKey)>,
    ) -> Result<Self, KeyRingError> {
        let mut ring = BTreeMap::new();
        for (id, key) in keys {
            if ring.insert(id, key).is_some() {
                return Err(KeyRingError::DuplicateId { id });
            }
        }
        if ring.is_empty() {
            return Err(KeyRingError::Empty);
        }
        if !ring.contains_key(&active) {
            return Err(KeyRingError::ActiveMissing { active });
        }
        Ok(Self { active, keys: ring })
    }

    /// The key that makes new fingerprints.
    pub fn active(&self) -> (KeyId, &SecretKey) {
        (self.active, &self.keys[&self.active])
    }

    /// The key of that number, to compare an old record under. `None` means that nothing can be
    /// said about the record: neither conflict nor fresh work.
    pub fn get(&self, id: KeyId) -> Option<&SecretKey> {
        self.keys.get(&id)
    }

    /// All keys, by ascending number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (KeyId, &SecretKey)> {
        self.keys.iter().map(|(id, key)| (*id, key))
    }
}

/// Why keys do not make a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    #[error("there are no keys, and there is no default key; generate one")]
    Empty,
    #[error("two keys have the number {id}; give each its own number")]
    DuplicateId { id: KeyId },
    #[error("the active key {active} is not among the keys; add it, or make another one active")]
    ActiveMissing { active: KeyId },
}

/// Lower-case hexadecimal digits.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(|digit| char::from(HEX[usize::from(digit)])).collect()
}
