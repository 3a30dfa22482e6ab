//! The reader: RFC 8259's grammar by recursive descent, bounded in depth.

use super::run::plain_run;
use super::{DEPTH_CEILING, JsonError, JsonErrorKind, JsonLimits, Number, Object, Trail, Value};

/// Objects up to this many members are searched for duplicate keys pair by pair; larger ones are
/// sorted, so that no object costs more than n log n.
const PAIRWISE_MEMBERS: usize = 16;

/// Reads one JSON value that fills the whole of `bytes`, white space around it aside.
///
/// # Errors
///
/// If `bytes` is not UTF-8, not one JSON value by RFC 8259 (a byte order mark is refused, section
/// 8.1), has a duplicate key or an unpaired surrogate, or exceeds `limits`.
///
/// # Example
///
/// ```
/// use counterfoil_core::json::{JsonLimits, parse};
///
/// let value = parse(br#"{"n": 9007199254740993}"#, &JsonLimits::default())?;
/// assert_eq!(value.to_json(), r#"{"n":9007199254740993}"#);
/// # Ok::<(), counterfoil_core::json::JsonError>(())
/// ```
pub fn parse(bytes: &[u8], limits: &JsonLimits) -> Result<Value, JsonError> {
    read(bytes, limits).map_err(|fault| JsonError {
        path: fault.trail.render(),
        offset: fault.offset,
        kind: fault.kind,
    })
}

/// Length in bytes of the number that `bytes` begins with, by RFC 8259, section 6.
pub(super) fn number_len(bytes: &[u8]) -> Option<usize> {
    let digits_from = |at: usize| bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    let integer = digits_from(at);
    if integer == 0 || (integer > 1 && bytes[at] == b'0') {
        return None;
    }
    at += integer;
    if bytes.get(at) == Some(&b'.') {
        let fraction = digits_from(at + 1);
        if fraction == 0 {
            return None;
        }
        at += 1 + fraction;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits_from(at + 1 + sign);
        if exponent == 0 {
            return None;
        }
        at += 1 + sign + exponent;
    }
    Some(at)
}

/// A refusal on its way out of the recursion; each container adds its step.
struct Fault {
    trail: Trail,
    offset: usize,
    kind: JsonErrorKind,
}

impl Fault {
    fn new(offset: usize, kind: JsonErrorKind) -> Self {
        Self { trail: Trail::default(), offset, kind }
    }

    fn within_key(mut self, key: &str) -> Self {
        self.trail.within_key(key);
        self
    }

    fn within_index(mut self, index: usize) -> Self {
        self.trail.within_index(index);
        self
    }
}

struct Reader<'a> {
    text: &'a str,
    /// Next byte to read.
    at: usize,
    limits: &'a JsonLimits,
    max_depth: usize,
    /// Members and elements read so far.
    members: usize,
}

fn read(bytes: &[u8], limits: &JsonLimits) -> Result<Value, Fault> {
    if bytes.len() > limits.max_bytes {
        let kind = JsonErrorKind::TooLarge { max_bytes: limits.max_bytes };
        return Err(Fault::new(limits.max_bytes, kind));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Fault::new(error.valid_up_to(), JsonErrorKind::NotUtf8))?;
    let max_depth = limits.max_depth.min(DEPTH_CEILING);
    let mut reader = Reader { text, at: 0, limits, max_depth, members: 0 };
    if text.starts_with('\u{feff}') {
        return Err(reader.syntax("no byte order mark before the value"));
    }
    reader.skip_white_space();
    let value = reader.value(0)?;
    reader.skip_white_space();
    if reader.at < text.len() {
        return Err(Fault::new(reader.at, JsonErrorKind::TrailingData));
    }
    Ok(value)
}

impl Reader<'_> {
    /// `depth` is the number of containers around the value.
    fn value(&mut self, depth: usize) -> Result<Value, Fault> {
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => Err(self.syntax("a JSON value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Fault> {
        self.open(depth)?;
        let mut members = Vec::new();
        let mut key_offsets = Vec::new();
        if self.skip_past(b'}') {
            return Ok(Value::Object(Object::new()));
        }
        loop {
            self.check_room()?;
            if self.peek() != Some(b'"') {
                return Err(self.syntax("a key in double quotes"));
            }
            key_offsets.push(self.at);
            let key = self.string()?;
            self.skip_white_space();
            if !self.skip_past(b':') {
                return Err(self.syntax("':' after the key").within_key(&key));
            }
            self.skip_white_space();
            let value = self.value(depth).map_err(|fault| fault.within_key(&key))?;
            members.push((key, value));
            self.skip_white_space();
            if self.skip_past(b'}') {
                break;
            }
            if !self.skip_past(b',') {
                return Err(self.syntax("',' or '}' after the member"));
            }
            self.skip_white_space();
        }
        if let Some(index) = first_duplicate(&members) {
            let fault = Fault::new(key_offsets[index], JsonErrorKind::DuplicateKey);
            return Err(fault.within_key(&members[index].0));
        }
        Ok(Value::Object(Object::from_distinct(members)))
    }

    fn array(&mut self, depth: usize) -> Result<Value, Fault> {
        self.open(depth)?;
        let mut elements = Vec::new();
        if self.skip_past(b']') {
            return Ok(Value::Array(elements));
        }
        loop {
            self.check_room()?;
            let element = self.value(depth).map_err(|fault| fault.within_index(elements.len()))?;
            elements.push(element);
            self.skip_white_space();
            if self.skip_past(b']') {
                return Ok(Value::Array(elements));
            }
            if !self.skip_past(b',') {
                return Err(self.syntax("',' or ']' after the element"));
            }
            self.skip_white_space();
        }
    }

    /// Steps over the opening bracket and the white space behind it.
    fn open(&mut self, depth: usize) -> Result<(), Fault> {
        if depth > self.max_depth {
            let kind = JsonErrorKind::TooDeep { max_depth: self.max_depth };
            return Err(Fault::new(self.at, kind));
        }
        self.at += 1;
        self.skip_white_space();
        Ok(())
    }

    /// Counts one more member or element of the whole text.
    fn check_room(&mut self) -> Result<(), Fault> {
        if self.members < self.limits.max_members {
            self.members += 1;
            return Ok(());
        }
        let kind = JsonErrorKind::TooManyMembers { max_members: self.limits.max_members };
        Err(Fault::new(self.at, kind))
    }

    /// A string, from its opening quote.
    fn string(&mut self) -> Result<String, Fault> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = plain_run(rest.as_bytes());
            // Only ASCII ends the run, so this is a character boundary.
            out.push_str(&rest[..plain]);
            self.at += plain;
            let ended = self.skip_past(b'"');
            if !ended {
                match self.peek() {
                    Some(b'\\') => out.push(self.escape()?),
                    Some(_) => {
                        return Err(self.syntax("control characters in a string to be escaped"));
                    }
                    None => return Err(self.syntax("'\"' at the end of the string")),
                }
            }
            if out.len() > self.limits.max_string_bytes {
                let max_string_bytes = self.limits.max_string_bytes;
                return Err(Fault::new(start, JsonErrorKind::StringTooLong { max_string_bytes }));
            }
            if ended {
                return Ok(out);
            }
        }
    }

    /// An escape, from its backslash.
    fn escape(&mut self) -> Result<char, Fault> {
        let start = self.at;
        self.at += 1;
        let plain = match self.peek() {
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape(start);
            }
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.syntax("one of \" \\ / b f n r t u after '\\'")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// An escape behind its `\u`, with its second half if it has one. `start` is its backslash.
    fn unicode_escape(&mut self, start: usize) -> Result<char, Fault> {
        let unpaired = Fault::new(start, JsonErrorKind::UnpairedSurrogate);
        let first = self.hex4()?;
        let scalar = match first {
            0xd800..=0xdbff => {
                if !self.text[self.at..].starts_with("\\u") {
                    return Err(unpaired);
                }
                self.at += 2;
                let second = self.hex4()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(unpaired);
                }
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            0xdc00..=0xdfff => return Err(unpaired),
            other => other,
        };
        Ok(char::from_u32(scalar).expect("surrogates are dealt with, and pairs end at U+10FFFF"))
    }

    fn hex4(&mut self) -> Result<u32, Fault> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.syntax("four hexadecimal digits after '\\u'"));
            };
            value = value * 16 + digit;
            self.at += 1;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let rest = &self.text[self.at..];
        let Some(length) = number_len(rest.as_bytes()) else {
            return Err(self.syntax("a number such as 0, -12, 1.5 or 1e3"));
        };
        self.at += length;
        Ok(Value::Number(Number(rest[..length].into())))
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value, Fault> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.syntax("a JSON value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over `byte` if it is next.
    fn skip_past(&mut self, byte: u8) -> bool {
        let next = self.peek() == Some(byte);
        self.at += usize::from(next);
        next
    }

    fn skip_white_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn syntax(&self, expected: &'static str) -> Fault {
        Fault::new(self.at, JsonErrorKind::Syntax { expected })
    }
}

/// Index of the first member whose key an earlier member has.
fn first_duplicate(members: &[(String, Value)]) -> Option<usize> {
    let key = |index: usize| members[index].0.as_str();
    if members.len() <= PAIRWISE_MEMBERS {
        return (1..members.len()).find(|&later| (0..later).any(|i| key(i) == key(later)));
    }
    let mut order: Vec<(&str, usize)> =
        (0..members.len()).map(|index| (key(index), index)).collect();
    order.sort_unstable();
    order.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1).min()
}
