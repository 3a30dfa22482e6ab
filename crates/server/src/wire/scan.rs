//! Finds the request ID in a frame that cannot be read as a whole, so that its refusal has one.

use counterfoil_core::json::{self, JsonLimits, Value};

use super::{MAX_ID_BYTES, WireId};

/// Deepest nesting followed; past it the scan gives up, since its memory grows with the depth.
const MAX_LEVELS: usize = 64 * 1024;

/// What a reply to an unreadable frame needs to know of it.
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    /// The top-level `id`, if there is exactly one and it can be repeated unchanged. Withheld for
    /// a frame that answers one of *our* requests: its ID counts ours, and an error reply with it
    /// could be taken for the answer to a request of the client's own.
    pub(crate) id: Option<WireId>,
    /// What the frame answers, for whoever has sent requests: an `id`, and no `method`.
    pub(crate) answers: Option<Answers>,
}

/// What is known of an answer that cannot be read, or was not kept.
#[derive(Debug)]
pub(crate) struct Answers {
    /// Of the request; there is exactly one, and it can be read.
    pub(crate) id: WireId,
    /// It has a result and no error.
    pub(crate) is_result: bool,
    /// The result has `isError: true`.
    pub(crate) is_error: bool,
    /// The result may be something else than a complete one: it has another `resultType`, or a
    /// `task`, or a key that was not read.
    pub(crate) is_of_other_type: bool,
}

impl Envelope {
    pub(crate) fn of(frame: &[u8]) -> Envelope {
        let mut scanner = Scanner::default();
        scanner.push(frame);
        scanner.finish()
    }
}

/// Walks the top level of one JSON object, byte by byte and in bounded memory.
///
/// Tolerant of everything that does not change the structure: invalid UTF-8, unpaired surrogates,
/// bad literals, any depth up to [`MAX_LEVELS`]. Stops where brackets do not match; what stood
/// before counts.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    at: At,
    /// The current key, or the scalar value of an `id`, raw, cut after [`MAX_ID_BYTES`].
    token: Vec<u8>,
    key: Key,
    /// Whether the last byte of the current string was an unpaired backslash.
    escaped: bool,
    /// Inside a nested value: whether in a string, and the closers that are due.
    in_nested_string: bool,
    closers: Vec<u8>,
    /// Every `id` seen; `None` for one that cannot be repeated.
    ids: Vec<Option<WireId>>,
    has_method: bool,
    has_result: bool,
    has_error: bool,
    near: Near,
    is_error: bool,
    is_of_other_type: bool,
}

/// How far a member of the result that says what the result is was read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Near {
    #[default]
    Nothing,
    IsErrorKey,
    IsErrorColon,
    TypeKey,
    TypeColon,
    /// A string that, as a key, makes the result something else than a complete one.
    OddKey,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    #[default]
    Start,
    BeforeKey,
    InKey,
    AfterKey,
    BeforeValue,
    InString,
    InBare,
    InNested,
    End,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Key {
    Id,
    Result,
    #[default]
    Other,
}

impl Scanner {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.at == At::End {
                return;
            }
            self.step(*byte);
        }
    }

    pub(super) fn finish(mut self) -> Envelope {
        let has_outcome = self.has_result || self.has_error;
        let id = match (self.ids.pop(), self.ids.is_empty()) {
            (Some(id), true) => id,
            _ => None,
        };
        let answers = id.clone().filter(|_| !self.has_method).map(|id| Answers {
            id,
            is_result: self.has_result && !self.has_error,
            is_error: self.is_error,
            is_of_other_type: self.is_of_other_type,
        });
        Envelope { id: id.filter(|_| self.has_method || !has_outcome), answers }
    }

    fn step(&mut self, byte: u8) {
        match self.at {
            At::Start => match byte {
                b'{' => self.at = At::BeforeKey,
                b' ' | b'\t' | b'\r' => {}
                _ => self.at = At::End,
            },
            At::BeforeKey => match byte {
                b'"' => self.begin(At::InKey, byte),
                b'}' => self.at = At::End,
                _ => {}
            },
            At::InKey => {
                if self.string_ends(byte) {
                    self.note_key();
                    self.at = At::AfterKey;
                }
            }
            At::AfterKey => match byte {
                b':' => self.at = At::BeforeValue,
                b' ' | b'\t' | b'\r' => {}
                _ => self.at = At::End,
            },
            At::BeforeValue => self.begin_value(byte),
            At::InString => {
                if self.string_ends(byte) {
                    self.end_value(true);
                }
            }
            At::InBare => match byte {
                b',' | b'}' | b']' | b'"' | b' ' | b'\t' | b'\r' => {
                    self.end_value(true);
                    if matches!(byte, b'}' | b']') {
                        self.at = At::End;
                    }
                }
                _ => self.keep(byte),
            },
            At::InNested => self.step_nested(byte),
            At::End => {}
        }
    }

    fn begin_value(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\r' => {}
            b'"' => self.begin(At::InString, byte),
            b'{' | b'[' => {
                self.begin(At::InNested, byte);
                self.in_nested_string = false;
                self.closers.push(closer(byte));
            }
            b',' => self.end_value(false),
            b'}' | b']' => {
                self.end_value(false);
                self.at = At::End;
            }
            _ => self.begin(At::InBare, byte),
        }
    }

    fn step_nested(&mut self, byte: u8) {
        if self.in_nested_string {
            self.in_nested_string = !self.string_ends(byte);
            if !self.in_nested_string && self.is_directly_in_result() {
                self.note_string();
            }
            return;
        }
        self.note_byte(byte);
        match byte {
            b'"' => {
                self.in_nested_string = true;
                self.escaped = false;
                if self.is_directly_in_result() {
                    self.token.clear();
                    self.token.push(byte);
                }
            }
            b'{' | b'[' if self.closers.len() < MAX_LEVELS => self.closers.push(closer(byte)),
            b'{' | b'[' => self.at = At::End,
            b'}' | b']' if self.closers.pop() != Some(byte) => self.at = At::End,
            b'}' | b']' if self.closers.is_empty() => self.end_value(false),
            _ => {}
        }
    }

    fn is_directly_in_result(&self) -> bool {
        self.key == Key::Result && self.closers.len() == 1
    }

    /// Takes in a string that stands directly in the result: a key, or a value.
    fn note_string(&mut self) {
        let is_type = self.near == Near::TypeColon;
        self.near = match &self.token[..] {
            kind if is_type => {
                self.is_of_other_type |= kind != b"\"complete\"";
                Near::Nothing
            }
            b"\"isError\"" => Near::IsErrorKey,
            b"\"resultType\"" => Near::TypeKey,
            b"\"task\"" => Near::OddKey,
            text if text.contains(&b'\\') => Near::OddKey,
            _ => Near::Nothing,
        };
    }

    /// Follows such a member beyond its key.
    fn note_byte(&mut self, byte: u8) {
        self.near = match (self.near, byte) {
            (near, b' ' | b'\t' | b'\r') | (near @ Near::TypeColon, b'"') => near,
            (Near::IsErrorKey, b':') => Near::IsErrorColon,
            (Near::TypeKey, b':') => Near::TypeColon,
            (Near::IsErrorColon, b't') => {
                self.is_error = true;
                Near::Nothing
            }
            (Near::TypeColon, _) | (Near::OddKey, b':') => {
                self.is_of_other_type = true;
                Near::Nothing
            }
            _ => Near::Nothing,
        };
    }

    fn begin(&mut self, at: At, byte: u8) {
        self.at = at;
        self.escaped = false;
        self.token.clear();
        self.token.push(byte);
    }

    fn keep(&mut self, byte: u8) {
        if self.token.len() <= MAX_ID_BYTES {
            self.token.push(byte);
        }
    }

    /// Takes one byte of a string in; whether it was the closing quote.
    fn string_ends(&mut self, byte: u8) -> bool {
        self.keep(byte);
        let ends = byte == b'"' && !self.escaped;
        self.escaped = byte == b'\\' && !self.escaped;
        ends
    }

    fn note_key(&mut self) {
        let key = json::parse(&self.token, &JsonLimits::default());
        self.key = Key::Other;
        match key.as_ref().ok().and_then(Value::as_str) {
            Some("id") => self.key = Key::Id,
            Some("method") => self.has_method = true,
            Some("result") => {
                self.has_result = true;
                self.key = Key::Result;
            }
            Some("error") => self.has_error = true,
            _ => {}
        }
    }

    fn end_value(&mut self, scalar: bool) {
        // Two are as good as many: the ID is then ambiguous.
        if self.key == Key::Id && self.ids.len() < 2 {
            let value = json::parse(&self.token, &JsonLimits::default()).ok();
            let id = value.as_ref().and_then(WireId::from_value);
            self.ids.push(id.filter(|_| scalar));
        }
        self.at = At::BeforeKey;
    }
}

fn closer(open: u8) -> u8 {
    if open == b'{' { b'}' } else { b']' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_readable_id_is_found() {
        // Promise: a refusal names the request that it refuses, or no request at all.
        let deep = format!("{{\"a\":{}1{},\"id\":7}}", "[".repeat(10_000), "]".repeat(10_000));
        let bottomless = format!("{{\"a\":{}", "[{\"id\":3},".repeat(100_000));
        let cases: &[(&[u8], Option<&str>)] = &[
            (br#"{"id":7}"#, Some("7")),
            (br#" { "a" : {"id":1} , "id" : "7" , "b":[2]}"#, Some("\"7\"")),
            (br#"{"id":7,"v":NaN}"#, Some("7")),
            (br#"{"v":-Infinity,"id":7}"#, Some("7")),
            (b"{\"v\":\"\xff\xfe\",\"id\":7}", Some("7")),
            (b"{\"v\":\"\\ud800\",\"id\":7}", Some("7")),
            (br#"{"v":"\\","id":7}"#, Some("7")),
            (br#"{"v":"\"id\":3","id":7}"#, Some("7")),
            (br#"{"\u0069d":7}"#, Some("7")),
            (br#"{"id":7,"method""#, Some("7")),
            (br#"{"id":7 "id":8}"#, None),
            (br#"{"id":7,"\u0069d":7}"#, None),
            (br#"{"id":7"#, None),
            (br#"{"id":"7"#, None),
            (br#"{"id":"\ud800"}"#, None),
            (br#"{"id":[7]}"#, None),
            (br#"{"id":null}"#, None),
            (br#"{"id":,"a":1}"#, None),
            (br#"{"a":[},"id":7}"#, None),
            (br#"[{"id":7}]"#, None),
            (br#""id":7"#, None),
            (b"\xef\xbb\xbf{\"id\":7}", None),
            (br#"{"id":7,"result":{"a":1,"a":2}}"#, None),
            (br#"{"id":7,"error":NaN}"#, None),
            (br#"{"id":7,"method":"x","result":NaN}"#, Some("7")),
            (deep.as_bytes(), Some("7")),
            (bottomless.as_bytes(), None),
            (b"", None),
        ];
        for (frame, expected) in cases {
            let id = Envelope::of(frame).id.map(|id| id.to_string());
            assert_eq!(id.as_deref(), *expected, "{}", String::from_utf8_lossy(frame));
        }
    }

    #[test]
    fn an_answer_that_is_not_kept_says_what_it_is() {
        // Promise: an answer past the limit still tells whether it is an error, and whether it may be
        // something else than a complete result.
        let cases = [
            (r#"{"id":7,"result":{"content":[{"isError":true}],"isError":false}}"#, "7 true false"),
            (r#"{"result":{"a":"isError","isError" : true,"b":{}},"id":7}"#, "7 true true"),
            (r#"{"id":7,"result":{"a":"isError","t":true}}"#, "7 true false"),
            (r#"{"id":7,"result":{"x":{"isError":true}}}"#, "7 true false"),
            (r#"{"id":7,"error":{"isError":true}}"#, "7 false false"),
            (r#"{"id":7,"result":{"a":NaN,"isError":true"#, "7 true true"),
            (r#"{"id":7,"result":{"resultType":"complete","content":[]}}"#, "7 true false"),
            (r#"{"id":7,"result":{"a":"resultType","b":"x"}}"#, "7 true false"),
            (r#"{"id":7,"result":{"text":"a \\" task","x":[{"resultType":"y"}]}}"#, "7 true false"),
            (r#"{"id":7,"result":{"resultType" : "input_required"}}"#, "7 true false other"),
            (r#"{"id":7,"result":{"isError":true,"resultType":"new"}}"#, "7 true true other"),
            (r#"{"id":7,"result":{"resultType":7}}"#, "7 true false other"),
            (r#"{"id":7,"result":{"result\u0054ype":"complete"}}"#, "7 true false other"),
            (r#"{"id":7,"result":{"task":{"taskId":"1"}}}"#, "7 true false other"),
            (r#"{"id":7,"method":"x"}"#, "none"),
        ];
        for (frame, expected) in cases {
            let answers = Envelope::of(frame.as_bytes()).answers;
            let seen = answers.map(|a| {
                let other = if a.is_of_other_type { " other" } else { "" };
                format!("{} {} {}{other}", a.id, a.is_result, a.is_error)
            });
            assert_eq!(seen.as_deref().unwrap_or("none"), expected, "{frame}");
        }
    }

    #[test]
    fn a_frame_cut_anywhere_yields_its_id_or_none() {
        // Promise: bytes that are missing never turn one ID into another.
        let frame = br#"{"params":{"id":1},"id":1234,"method":"x"}"#;
        for cut in 0..=frame.len() {
            let id = Envelope::of(&frame[..cut]).id.map(|id| id.to_string());
            assert!(id.is_none() || id.as_deref() == Some("1234"), "cut at {cut}: {id:?}");
        }
    }
}
