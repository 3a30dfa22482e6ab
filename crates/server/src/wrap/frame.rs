//! One JSON-RPC message as raw bytes, with the places of the members that the relay understands.
//! Everything else travels untouched; changes are made by splicing bytes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use counterfoil_core::json::{self, JsonLimits};

use super::scan::{self, Field, Seen};
use crate::wire::WireId;

/// What a message is (JSON-RPC 2.0, sections 4 and 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Notification,
    /// An answer, with a result or an error.
    Reply,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAFrame {
    /// JSON-RPC -32700.
    #[error("the line is not JSON in UTF-8; send one JSON-RPC message a line")]
    NotJson,
    /// JSON-RPC -32600.
    #[error(
        "the line is no JSON-RPC 2.0 request, notification or answer; send one object with \
         \"jsonrpc\": \"2.0\" (batches are not part of the served revisions)"
    )]
    NotAMessage,
    /// JSON-RPC -32602.
    #[error("a member that decides the meaning of the message stands twice; send it once")]
    Ambiguous,
}

/// One message. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct Frame {
    line: Bytes,
    seen: Arc<Seen>,
    kind: Kind,
}

impl Frame {
    /// Reads a whole line, without its line end.
    ///
    /// # Errors
    /// [`NotAFrame`].
    pub fn read(line: impl Into<Bytes>) -> Result<Self, NotAFrame> {
        let line = line.into();
        let (seen, end) = scan::object_at(&line, 0).map_err(|_| NotAFrame::NotJson)?;
        if !line[end..].iter().all(u8::is_ascii_whitespace) {
            return Err(NotAFrame::NotJson);
        }
        Self::of(line, seen)
    }

    /// Reads a message that begins at `start` of `line` and may have other bytes behind it; where
    /// it ends. The frame's bytes are those of the message alone.
    pub(super) fn read_at(line: &Bytes, start: usize) -> Result<(Self, usize), NotAFrame> {
        let rest = line.slice(start..);
        let (seen, end) = scan::object_at(&rest, 0).map_err(|_| NotAFrame::NotJson)?;
        Ok((Self::of(rest.slice(..end), seen)?, start + end))
    }

    fn of(line: Bytes, seen: Seen) -> Result<Self, NotAFrame> {
        if std::str::from_utf8(&line).is_err() {
            return Err(NotAFrame::NotJson);
        }
        let has = |field| seen.span(field).is_some();
        let outcomes = usize::from(has(Field::Result)) + usize::from(has(Field::Error));
        let kind = match (has(Field::Method), has(Field::Id), outcomes) {
            (true, true, 0) => Kind::Request,
            (true, false, 0) => Kind::Notification,
            (false, true, 1) => Kind::Reply,
            _ => return Err(NotAFrame::NotAMessage),
        };
        if seen.repeats {
            return Err(NotAFrame::Ambiguous);
        }
        let frame = Self { line, seen: Arc::new(seen), kind };
        let is_text = |field| frame.raw(field).is_none_or(|raw| raw.first() == Some(&b'"'));
        if frame.raw(Field::Jsonrpc) != Some(b"\"2.0\"") || !is_text(Field::Method) {
            return Err(NotAFrame::NotAMessage);
        }
        Ok(frame)
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// All bytes, without a line end.
    #[must_use]
    pub fn line(&self) -> &Bytes {
        &self.line
    }

    /// The raw JSON of a member's value.
    #[must_use]
    pub fn raw(&self, field: Field) -> Option<&[u8]> {
        self.span(field).map(|span| &self.line[span])
    }

    /// The same, sharing the line's memory.
    #[must_use]
    pub fn bytes(&self, field: Field) -> Option<Bytes> {
        self.span(field).map(|span| self.line.slice(span))
    }

    /// Where a member's value stands in [`Frame::line`].
    #[must_use]
    pub fn span(&self, field: Field) -> Option<Range<usize>> {
        self.seen.span(field)
    }

    /// Whether a member is there.
    #[must_use]
    pub fn has(&self, field: Field) -> bool {
        self.span(field).is_some()
    }

    /// The text of a member that is a string.
    #[must_use]
    pub fn text(&self, field: Field) -> Option<String> {
        self.raw(field).and_then(text)
    }

    /// The request ID, if it is one that MCP allows.
    #[must_use]
    pub fn id(&self) -> Option<WireId> {
        self.raw(Field::Id).and_then(wire_id)
    }

    /// Whether `_meta` has keys of ours.
    pub(super) fn has_ours(&self) -> bool {
        self.seen.has_ours
    }

    /// Changes that take our keys out of `_meta`.
    pub(super) fn strip_ours(&self, edits: &mut Edits) {
        if let Some(meta) = self.span(Field::Meta).filter(|_| self.has_ours()) {
            for cut in scan::our_members(&self.line, meta) {
                edits.replace(cut, Bytes::new());
            }
        }
    }

    /// The line with `edits` made. Bytes that stay are shared and not copied.
    #[must_use]
    pub fn splice(&self, mut edits: Edits) -> Pieces {
        edits.0.sort_by_key(|(span, _)| span.start);
        let mut pieces = Vec::with_capacity(2 * edits.0.len() + 1);
        let mut at = 0;
        for (span, bytes) in edits.0 {
            debug_assert!(at <= span.start, "edits do not overlap");
            pieces.push(self.line.slice(at..span.start));
            pieces.push(bytes);
            at = span.end;
        }
        pieces.push(self.line.slice(at..));
        pieces.retain(|piece| !piece.is_empty());
        Pieces(pieces)
    }
}

/// Changes to one line: spans of it and what stands there instead. They must not overlap.
#[derive(Clone, Debug, Default)]
pub struct Edits(Vec<(Range<usize>, Bytes)>);

impl Edits {
    /// Puts `bytes` in the place of `span`; an empty span inserts.
    pub fn replace(&mut self, span: Range<usize>, bytes: impl Into<Bytes>) {
        self.0.push((span, bytes.into()));
    }
}

/// A line to be written, in pieces, without a line end.
#[derive(Clone, Debug, Default)]
pub struct Pieces(Vec<Bytes>);

impl Pieces {
    pub fn iter(&self) -> std::slice::Iter<'_, Bytes> {
        self.0.iter()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    /// The bytes in one piece; a copy unless there is only one.
    #[must_use]
    pub fn joined(&self) -> Bytes {
        match &self.0[..] {
            [only] => only.clone(),
            pieces => pieces.concat().into(),
        }
    }
}

impl<B: Into<Bytes>> From<B> for Pieces {
    fn from(line: B) -> Self {
        Self(vec![line.into()])
    }
}

impl FromIterator<Bytes> for Pieces {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        Self(pieces.into_iter().filter(|piece| !piece.is_empty()).collect())
    }
}

/// The text of a raw JSON string.
pub(super) fn text(raw: &[u8]) -> Option<String> {
    match raw {
        [b'"', inside @ .., b'"'] if !inside.contains(&b'\\') => {
            std::str::from_utf8(inside).ok().map(str::to_owned)
        }
        _ => scan::decode(raw),
    }
}

/// A raw request ID; `None` for what MCP does not allow as one.
pub(super) fn wire_id(raw: &[u8]) -> Option<WireId> {
    WireId::from_value(&json::parse(raw, &JsonLimits::default()).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn members_are_found_where_they_stand() {
        // Promise: a member counts at its own level alone, whatever its order, spaces and escapes.
        let line = r#" {"x":{"id":0,"method":"no"},"result" : { "content":[{"_meta":{"progressToken":1}}], "_meta" : {"progressToken":2,"io.modelcontextprotocol/subscriptionId":"s"},"nextCursor":null} ,"\u0069d": "a" ,"jsonrpc":"2.0"} "#;
        let frame = Frame::read(line).expect("a reply");
        assert_eq!(frame.kind(), Kind::Reply);
        for (field, raw) in [
            (Field::Id, Some("\"a\"")),
            (Field::Method, None),
            (Field::ProgressToken, Some("2")),
            (Field::SubscriptionId, Some("\"s\"")),
            (Field::NextCursor, Some("null")),
        ] {
            let seen = frame.raw(field).map(|raw| String::from_utf8_lossy(raw).into_owned());
            assert_eq!(seen.as_deref(), raw, "{field:?}");
        }
    }

    #[test]
    fn what_is_no_message_is_told_apart() {
        // Promise: each refusal names the rule that was broken.
        let deep = |levels| {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"a":{open}{close}}}}}"#)
        };
        let check = |line: &[u8], expected: Option<NotAFrame>| {
            let seen = Frame::read(Bytes::copy_from_slice(line)).err();
            assert_eq!(seen, expected, "{}", String::from_utf8_lossy(line));
        };
        check(br#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, None);
        check(br#"{"jsonrpc":"2.0","id":null,"error":{}}"#, None);
        check(deep(500).as_bytes(), None);
        check(deep(600).as_bytes(), Some(NotAFrame::NotJson));
        for line in [
            &br#"{"jsonrpc":"2.0","id":1,"method":"m"}{"#[..],
            br#"{"jsonrpc":"2.0","id":01,"method":"m"}"#,
            br#"{"jsonrpc":"2.0","id":1,"method":"m","p":+1}"#,
            br#"{"jsonrpc":"2.0","id":1,"method":"m",}"#,
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\tb\"}",
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc0\x80\"}",
            br#"["#,
            b"",
        ] {
            check(line, Some(NotAFrame::NotJson));
        }
        for line in [
            r#"{}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":2}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","result":1}"#,
        ] {
            check(line.as_bytes(), Some(NotAFrame::NotAMessage));
        }
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"method":"m","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":1,"na\u006de":2}}"#,
            r#"{"jsonrpc":"2.0","method":"m","params":{"_meta":{"progressToken":1,"progressToken":1}}}"#,
        ] {
            check(line.as_bytes(), Some(NotAFrame::Ambiguous));
        }
    }

    #[test]
    fn keys_of_ours_are_cut_out_with_their_commas() {
        // Promise: what is left of `_meta` is an object, and its other members keep their bytes.
        for (meta, left) in [
            (r#"{}"#, r#"{}"#),
            (r#"{ "io.counterfoil/a" : {"b":[1,2]} }"#, r#"{  }"#),
            (r#"{"a":1,"io.counterfoil/a":1}"#, r#"{"a":1}"#),
            (r#"{"io.counterfoil/a":1 , "a":1}"#, r#"{"a":1}"#),
            (r#"{"io.counterfoil/a":1,"io.counterfoil/b":1,"a" : 1}"#, r#"{"a" : 1}"#),
            (
                r#"{"a":1,"io.counterfoil/a":1,"b":2,"io.counterfoil\/b":1,"c":3}"#,
                r#"{"a":1,"b":2,"c":3}"#,
            ),
            (
                r#"{"io.counterfoilx/a":1,"x":{"io.counterfoil/a":1}}"#,
                r#"{"io.counterfoilx/a":1,"x":{"io.counterfoil/a":1}}"#,
            ),
        ] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"_meta":{meta}}}}}"#);
            let frame = Frame::read(line.clone()).expect("a reply");
            let mut edits = Edits::default();
            frame.strip_ours(&mut edits);
            let spliced = frame.splice(edits).joined();
            assert_eq!(String::from_utf8_lossy(&spliced), line.replace(meta, left));
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_filter("JSON has no others", |f| f.is_finite()).prop_map(Value::from),
            "\\PC*".prop_map(Value::from),
            "[\\x00-\\x7f]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a-z\"\\\\_]{0,10}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        // Promise: every JSON message is read, its result is found whole, and a change to it leaves
        // JSON behind; a line that is cut short is never taken for one.
        #[test]
        fn any_result_is_found_and_can_be_replaced(result in json(), cut in any::<prop::sample::Index>()) {
            let text = result.to_string();
            let line = format!(r#"{{"result": {text} ,"id":7,"jsonrpc":"2.0"}}"#);
            let frame = Frame::read(line.clone()).expect("a reply");
            prop_assert_eq!(frame.raw(Field::Result), Some(text.as_bytes()));
            let mut edits = Edits::default();
            edits.replace(frame.span(Field::Id).expect("there"), "\"new\"");
            let spliced: Value = serde_json::from_slice(&frame.splice(edits).joined()).expect("JSON");
            prop_assert_eq!(&spliced["id"], &Value::from("new"));
            prop_assert!(Frame::read(Bytes::copy_from_slice(&line.as_bytes()[..cut.index(line.len())])).is_err());
        }

        // Promise: the pass over a line agrees with a strict parser about what JSON is.
        #[test]
        fn damage_is_seen_as_a_strict_parser_sees_it(result in json(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut line = format!(r#"{{"x":{result},"method":"m","jsonrpc":"2.0"}}"#).into_bytes();
            let at = at.index(line.len());
            line[at] = byte;
            let is_json = json::parse(&line, &JsonLimits::default()).is_ok();
            let seen = Frame::read(Bytes::copy_from_slice(&line)).err();
            // Duplicate keys and unpaired surrogates of what is only passed on stay as they are.
            let agrees = if is_json { seen != Some(NotAFrame::NotJson) } else { true };
            prop_assert!(agrees, "{}: {seen:?}", String::from_utf8_lossy(&line));
            if serde_json::from_slice::<Value>(&line).is_err() && std::str::from_utf8(&line).is_ok() {
                let text = String::from_utf8_lossy(&line);
                let excused = text.contains("\\u") || text.contains('e') || text.contains('E');
                prop_assert!(seen.is_some() || excused, "{text}");
            }
        }
    }
}
