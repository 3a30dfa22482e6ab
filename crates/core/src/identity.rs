//! Who asks and for which effect: the names that bind an operation, validated once.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::limits::{MAX_NAME_BYTES, MAX_OPERATION_ID_BYTES, MAX_TOOL_BYTES};
use crate::time::Timestamp;

/// Why a name was refused. The only cause is its text; the message gives the rule and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {problem}")]
pub struct InvalidName {
    what: &'static str,
    problem: String,
}

impl InvalidName {
    /// The field that was refused, for example `operation_id`.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.what
    }
}

pub(crate) fn validated(
    what: &'static str,
    text: &str,
    max_bytes: usize,
) -> Result<String, InvalidName> {
    let refuse = |problem: String| Err(InvalidName { what, problem });
    if text.is_empty() {
        return refuse(format!("is empty; give 1 to {max_bytes} bytes of text"));
    }
    if text.len() > max_bytes {
        return refuse(format!("has {} bytes; at most {max_bytes} are allowed", text.len()));
    }
    if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control()) {
        return refuse(format!(
            "holds the control character U+{:04X} at byte {at}; use printable text",
            c as u32
        ));
    }
    if text.chars().all(char::is_whitespace) {
        return refuse("is blank; give at least one character that is not white space".into());
    }
    Ok(text.to_owned())
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $field:literal, $max:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            #[doc = concat!("Takes `", $field, "` as it was given; nothing is trimmed or folded.")]
            ///
            /// # Errors
            /// [`InvalidName`] if the text is empty, blank, too long or holds a control character.
            pub fn parse(text: &str) -> Result<Self, InvalidName> {
                validated($field, text, $max).map(Self)
            }

            /// The text, exactly as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;
            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// The caller's name for one intended effect: unique within a tenant of one ledger.
    OperationId,
    "operation_id",
    MAX_OPERATION_ID_BYTES
);
name_type!(
    /// The authenticated caller. It comes from configuration or authentication, never from an
    /// argument.
    Principal,
    "principal",
    MAX_NAME_BYTES
);
name_type!(
    /// A space of operation IDs. Principals of one tenant share it and still cannot see each
    /// other's operations; tenants never meet.
    Tenant,
    "tenant",
    MAX_NAME_BYTES
);
name_type!(
    /// The ledger's own name, kept inside it; a store bound to another backend refuses to open.
    BackendId,
    "backend_id",
    MAX_NAME_BYTES
);
name_type!(
    /// The tool that is called.
    ToolId,
    "tool_id",
    MAX_TOOL_BYTES
);
name_type!(
    /// The version of the tool's contract; part of the fingerprint.
    ToolVersion,
    "tool_version",
    MAX_NAME_BYTES
);

/// Tenant and principal of one request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The space of operation IDs.
    pub tenant: Tenant,
    /// Who asks within it.
    pub principal: Principal,
}

/// How an operation ID is indexed: 16 bytes, whatever its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexKey {
    /// What the bytes are.
    pub kind: IndexKind,
    /// The ID's own bytes (time-ordered) or the first half of its SHA-256.
    pub bytes: [u8; 16],
}

/// What the 16 bytes of an [`IndexKey`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IndexKind {
    /// A UUIDv7 in canonical lower-case text: its own bytes, in order of time.
    TimeOrdered = 1,
    /// Any other text: a digest, compared in full on a hit.
    Digest = 2,
}

impl OperationId {
    /// The key of the unique index. Two texts with one digest key are told apart by their text.
    #[must_use]
    pub fn index_key(&self) -> IndexKey {
        if let Some(bytes) = uuid_v7_bytes(&self.0) {
            return IndexKey { kind: IndexKind::TimeOrdered, bytes };
        }
        let digest = Sha256::digest(self.0.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        IndexKey { kind: IndexKind::Digest, bytes }
    }

    /// The time inside a UUIDv7 (RFC 9562, section 5.7), or `None` for any other text.
    #[must_use]
    pub fn embedded_time(&self) -> Option<Timestamp> {
        let bytes = uuid_v7_bytes(&self.0)?;
        let ms = bytes[..6].iter().fold(0_i64, |ms, byte| (ms << 8) | i64::from(*byte));
        Some(Timestamp::from_ms(ms))
    }
}

/// The bytes of a UUIDv7 in canonical lower-case text (RFC 9562, section 4); `None` otherwise.
fn uuid_v7_bytes(text: &str) -> Option<[u8; 16]> {
    let raw = text.as_bytes();
    if raw.len() != 36 {
        return None;
    }
    let mut bytes = [0_u8; 16];
    let mut nibbles = 0_usize;
    for (at, &c) in raw.iter().enumerate() {
        if matches!(at, 8 | 13 | 18 | 23) {
            if c != b'-' {
                return None;
            }
            continue;
        }
        let value = match c {
            b'0'..=b'9' => c - b'0',
            b'a'..=b'f' => c - b'a' + 10,
            _ => return None,
        };
        bytes[nibbles / 2] = (bytes[nibbles / 2] << 4) | value;
        nibbles += 1;
    }
    let version_7 = bytes[6] >> 4 == 7;
    let rfc_variant = bytes[8] >> 6 == 0b10;
    (version_7 && rfc_variant).then_some(bytes)
}

macro_rules! id16 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// From its 16 bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// Its 16 bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }
    };
}

id16!(
    /// The ledger's internal key of an operation: a UUIDv7 that the engine makes.
    OperationKey
);
id16!(
    /// One attempt to write: random, made anew for each call, so that a writer recognises its own
    /// row after a lost acknowledgement.
    Nonce
);
id16!(
    /// One run of one process that opened the ledger.
    BootId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_ids_that_cannot_name_an_effect_are_refused() {
        // Promise: a bad ID is refused with the rule, and is never folded into another ID.
        let long = "x".repeat(129);
        let cases: &[(&str, &str)] = &[
            ("", "is empty"),
            (" \u{a0}", "is blank"),
            (&long, "at most 128"),
            ("a\nb", "U+000A at byte 1"),
            ("a\u{0}", "U+0000"),
            ("\u{85}", "U+0085"),
        ];
        for (text, expected) in cases {
            let error = OperationId::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
            assert!(error.starts_with("operation_id "), "{error}");
        }
        let exact = "é".repeat(64);
        assert_eq!(OperationId::parse(&exact).expect("128 bytes").as_str(), exact);
    }

    #[test]
    fn only_canonical_uuid_v7_is_indexed_by_its_own_bytes() {
        // Promise: an ID that carries its time is indexed in order of time; all others by digest.
        let v7 = "01939a3c-0f6b-7000-8000-00000000abcd";
        let key = OperationId::parse(v7).expect("valid").index_key();
        assert_eq!(key.kind, IndexKind::TimeOrdered);
        assert_eq!(key.bytes[..2], [0x01, 0x93]);
        for other in [
            v7.to_uppercase(),
            v7.replace("-7000-", "-4000-"),
            v7.replace("-8000-", "-c000-"),
            v7.replace('-', "_"),
            format!("{{{v7}}}"),
            "case-03".to_owned(),
        ] {
            let id = OperationId::parse(&other).expect("valid");
            assert_eq!(id.index_key().kind, IndexKind::Digest, "{other}");
            assert_eq!(id.embedded_time(), None);
        }
    }

    #[test]
    fn the_time_inside_a_uuid_v7_is_read_in_milliseconds() {
        // Promise: an ID from the future can be recognised (RFC 9562, appendix A.6 example).
        let id = OperationId::parse("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").expect("valid");
        assert_eq!(id.embedded_time(), Some(Timestamp::from_ms(1_645_557_742_000)));
    }
}
