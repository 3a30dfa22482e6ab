//! Strict, lossless JSON: what a client wrote, with every number literal kept and every ambiguity
//! refused, so that two readers of one message can never understand it differently.
//!
//! General-purpose decoders round large integers and let the last of two equal keys win. Both would
//! let two different requests share one fingerprint; hence this reader. The grammar is RFC 8259
//! exactly; beyond it, duplicate keys and unpaired surrogates are refused.

mod decimal;
mod parse;
mod path;
mod run;
mod write;

pub(crate) use decimal::Decimal;
pub use parse::parse;
pub(crate) use path::Trail;
pub(crate) use write::write_string;

/// Largest JSON text read by default, in bytes (4 MiB).
pub const DEFAULT_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Deepest nesting of arrays and objects read by default, in levels.
pub const DEFAULT_MAX_DEPTH: usize = 100;
/// Longest string or key read by default, in bytes of its decoded UTF-8 (1 MiB).
pub const DEFAULT_MAX_STRING_BYTES: usize = 1024 * 1024;
/// Most members of objects and elements of arrays, in one text together, read by default.
pub const DEFAULT_MAX_MEMBERS: usize = 100_000;
/// Deepest nesting that is ever read, in levels, whatever the limits say: reading, copying, and
/// dropping a value are recursive, and this keeps them well inside any thread's stack.
pub const DEPTH_CEILING: usize = 256;

/// What [`parse`] accepts at most. A text at a limit is read; one past it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonLimits {
    /// Length of the whole text, in bytes.
    pub max_bytes: usize,
    /// Nesting of arrays and objects, in levels: a bare scalar has none, `[]` has one. Values above
    /// [`DEPTH_CEILING`] count as the ceiling.
    pub max_depth: usize,
    /// Length of one string or key, in bytes of its decoded UTF-8.
    pub max_string_bytes: usize,
    /// Count of members of objects and elements of arrays, in the whole text together: it bounds
    /// the memory that a value takes beyond its strings, at some 100 bytes each.
    pub max_members: usize,
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self {
            max_bytes: DEFAULT_MAX_BYTES,
            max_depth: DEFAULT_MAX_DEPTH,
            max_string_bytes: DEFAULT_MAX_STRING_BYTES,
            max_members: DEFAULT_MAX_MEMBERS,
        }
    }
}

/// One JSON value.
///
/// Equality is of the text's content: members in the same order, numbers with the same literal.
/// Whether two values *mean* the same is for their canonical bytes to say ([`crate::canonical`]).
///
/// `Debug` shows content, which may be secret: never log a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Value>),
    Object(Object),
}

impl Value {
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<&Number> {
        match self {
            Value::Number(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Value::Object(value) => Some(value),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The member `name` of an object; `None` for a missing member and for anything but an object.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object()?.get(name)
    }

    /// Compact JSON text: no white space, members in their order, number literals unchanged,
    /// non-ASCII left as it is. [`parse`] reads it back to an equal value.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        write::write_value(&mut out, self);
        out
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Number(value.into())
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Number(value.into())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::String(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::String(value)
    }
}

impl From<Vec<Value>> for Value {
    fn from(value: Vec<Value>) -> Self {
        Value::Array(value)
    }
}

impl From<Object> for Value {
    fn from(value: Object) -> Self {
        Value::Object(value)
    }
}

/// A JSON number, as the literal that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number(Box<str>);

impl Number {
    /// A number from its literal; `None` unless the literal is a number by RFC 8259, section 6.
    pub fn from_literal(literal: &str) -> Option<Number> {
        let whole = parse::number_len(literal.as_bytes()) == Some(literal.len());
        whole.then(|| Number(literal.into()))
    }

    /// The literal, unchanged: `1.0` stays `1.0`.
    pub fn literal(&self) -> &str {
        &self.0
    }

    /// The value, if it is integral and in range. Decided on the decimal literal: `1e2` is 100,
    /// and nothing is rounded.
    pub fn as_i64(&self) -> Option<i64> {
        i64::try_from(Decimal::of(self).to_i128()?).ok()
    }

    /// The value, if it is integral and in range. Decided on the decimal literal: `1e2` is 100,
    /// and nothing is rounded.
    pub fn as_u64(&self) -> Option<u64> {
        u64::try_from(Decimal::of(self).to_i128()?).ok()
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Number(value.to_string().into())
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Number(value.to_string().into())
    }
}

/// A JSON object: members in the order in which they were written, no key twice.
///
/// Lookup is linear: objects in tool calls are small, and order is what has to be kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    members: Vec<(String, Value)>,
}

impl Object {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.members.iter_mut().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Members in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.members.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Count of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Takes a member out; the others keep their order.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let index = self.members.iter().position(|(key, _)| key == name)?;
        Some(self.members.remove(index).1)
    }

    /// Sets a member, at its old place if the key exists, else last. Returns the old value.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (name, value) = (name.into(), value.into());
        match self.get_mut(&name) {
            Some(old) => Some(std::mem::replace(old, value)),
            None => {
                self.members.push((name, value));
                None
            }
        }
    }

    /// From members whose keys are known to differ.
    fn from_distinct(members: Vec<(String, Value)>) -> Self {
        Self { members }
    }
}

impl FromIterator<(String, Value)> for Object {
    /// As by [`Object::insert`], one after the other.
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(members: I) -> Self {
        let mut object = Object::new();
        for (name, value) in members {
            object.insert(name, value);
        }
        object
    }
}

impl IntoIterator for Object {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.members.into_iter()
    }
}

/// Why a text was refused, and where. Names keys, never values: those may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (at {path}, byte {offset})")]
pub struct JsonError {
    /// Where in the document, such as `$.a[3].b`; long keys and long paths are shortened, to at
    /// most 1 KiB. A fault in a key itself has the path of its object.
    pub path: String,
    /// Where in the text, in bytes from its start.
    pub offset: usize,
    pub kind: JsonErrorKind,
}

impl JsonError {
    /// Whether the text may be good JSON that is too big for the limits, rather than bad JSON.
    pub fn is_too_large(&self) -> bool {
        self.kind.is_too_large()
    }
}

/// The rule that a text broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonErrorKind {
    #[error("the text is not valid UTF-8; JSON is sent as UTF-8")]
    NotUtf8,
    #[error("not valid JSON: expected {expected}")]
    Syntax { expected: &'static str },
    #[error("there is more text after the JSON value; send one value")]
    TrailingData,
    #[error("the object has this key twice; give each key once")]
    DuplicateKey,
    #[error(
        "a \\uD800 to \\uDFFF escape stands without its other half; send the character itself, or both escapes"
    )]
    UnpairedSurrogate,
    #[error("nested deeper than the limit of {max_depth} levels; flatten the value")]
    TooDeep { max_depth: usize },
    #[error("a string is longer than the limit of {max_string_bytes} bytes; shorten it")]
    StringTooLong { max_string_bytes: usize },
    #[error("more than {max_members} members and elements in all; send fewer")]
    TooManyMembers { max_members: usize },
    #[error("the text is longer than the limit of {max_bytes} bytes; send less")]
    TooLarge { max_bytes: usize },
}

impl JsonErrorKind {
    /// See [`JsonError::is_too_large`].
    pub fn is_too_large(self) -> bool {
        match self {
            Self::TooDeep { .. }
            | Self::StringTooLong { .. }
            | Self::TooManyMembers { .. }
            | Self::TooLarge { .. } => true,
            Self::NotUtf8
            | Self::Syntax { .. }
            | Self::TrailingData
            | Self::DuplicateKey
            | Self::UnpairedSurrogate => false,
        }
    }
}
