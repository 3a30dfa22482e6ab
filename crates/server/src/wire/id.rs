//! JSON-RPC request IDs as the client wrote them, so that a reply carries the same type and digits.

use std::fmt;
use std::hash::{Hash, Hasher};

use counterfoil_core::json::Value;
use rmcp::model::RequestId;

/// Longest request ID, in bytes of its JSON text.
pub const MAX_ID_BYTES: usize = 1024;

/// The ID of one request: a string or an integer (MCP 2026-07-28, Base Protocol, Requests).
///
/// Equality is of meaning: `1` and `1.0` are one ID, `1` and `"1"` are two. It pairs a reply with
/// its request and is never the identity of an operation.
#[derive(Clone, Debug)]
pub struct WireId {
    key: Key,
    json: Box<str>,
}

impl WireId {
    /// `None` unless `value` is a string or an integer of at most [`MAX_ID_BYTES`].
    pub fn from_value(value: &Value) -> Option<WireId> {
        let key = match value {
            Value::String(text) => Key::Text(text.as_str().into()),
            Value::Number(number) => {
                let digits = match (number.as_i64(), number.as_u64()) {
                    (Some(value), _) => value.to_string(),
                    (None, Some(value)) => value.to_string(),
                    (None, None) => plain_integer(number.literal())?.to_owned(),
                };
                Key::Number(digits.into())
            }
            _ => return None,
        };
        let json = value.to_json();
        (json.len() <= MAX_ID_BYTES).then(|| WireId { key, json: json.into() })
    }

    /// The ID as JSON text: a number with the digits that were received, or a quoted string.
    pub fn as_json(&self) -> &str {
        &self.json
    }

    /// Whether the SDK's type says exactly this: text, or an integer of 64 bits that is written
    /// without fraction, exponent or sign of zero.
    pub(super) fn is_exact(&self) -> bool {
        match &self.key {
            Key::Text(_) => true,
            Key::Number(digits) => *digits == self.json && digits.parse::<i64>().is_ok(),
        }
    }

    /// The nearest thing that the SDK's type can say. An integer past 64 bits becomes a string.
    pub(super) fn to_request_id(&self) -> RequestId {
        match &self.key {
            Key::Text(text) => RequestId::String((&**text).into()),
            Key::Number(digits) => match digits.parse() {
                Ok(value) => RequestId::Number(value),
                Err(_) => RequestId::String((&**digits).into()),
            },
        }
    }
}

impl fmt::Display for WireId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.json)
    }
}

impl PartialEq for WireId {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for WireId {}

impl Hash for WireId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Number(Box<str>),
    Text(Box<str>),
}

/// `literal`, if it is an integer written without fraction or exponent.
fn plain_integer(literal: &str) -> Option<&str> {
    let digits = literal.strip_prefix('-').unwrap_or(literal);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(literal)
}

#[cfg(test)]
mod tests {
    use counterfoil_core::json::{JsonLimits, parse};

    use super::*;

    fn id(json: &str) -> Option<WireId> {
        WireId::from_value(&parse(json.as_bytes(), &JsonLimits::default()).expect("test input"))
    }

    #[test]
    fn ids_keep_their_type_and_their_digits() {
        // Promise: a reply carries the ID exactly as the request wrote it.
        for json in ["1", "1.0", "-7", "18446744073709551616", "9007199254740993", "\"1\"", "\"\""]
        {
            assert_eq!(id(json).map(|id| id.to_string()).as_deref(), Some(json));
        }
        for json in ["null", "1.5", "1e999", "true", "[1]", "{}"] {
            assert_eq!(id(json), None, "{json}");
        }
        assert_eq!(id(&format!("\"{}\"", "x".repeat(MAX_ID_BYTES))), None);
    }

    #[test]
    fn ids_are_equal_when_they_mean_the_same() {
        // Promise: 1 and "1" are two requests; 1 and 1.0 are one.
        for (left, right, equal) in [
            ("1", "1.0", true),
            ("10", "1e1", true),
            ("1", "\"1\"", false),
            ("9007199254740993", "9007199254740992", false),
        ] {
            assert_eq!(id(left) == id(right), equal, "{left} {right}");
        }
    }
}
