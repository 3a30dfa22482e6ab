//! Byte spans of JSON: which bytes hold which member, so that a text can be changed in one place and
//! stays as it is everywhere else.

use std::ops::Range;

/// Bytes of a text.
pub type Span = Range<usize>;

/// Nesting that is followed; past it a text counts as unreadable.
const MAX_LEVELS: usize = 512;

/// Which texts are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// JSON (RFC 8259).
    Json,
    /// With comments and trailing commas, as editors write their settings.
    WithComments,
}

/// One member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name; `None` for one that is no text of Unicode.
    pub name: Option<String>,
    /// The name as it is written, quotes and all.
    pub key: Span,
    /// The value as it is written.
    pub value: Span,
}

/// A text that is looked into and not decoded.
#[derive(Debug, Clone, Copy)]
pub struct Raw<'a> {
    text: &'a [u8],
    syntax: Syntax,
}

impl<'a> Raw<'a> {
    /// A text of JSON. Brackets and strings are checked, the spelling of numbers and words is not:
    /// who needs that parses the text as well.
    #[must_use]
    pub fn json(text: &'a [u8]) -> Self {
        Self { text, syntax: Syntax::Json }
    }

    /// A text with comments and trailing commas.
    #[must_use]
    pub fn with_comments(text: &'a [u8]) -> Self {
        Self { text, syntax: Syntax::WithComments }
    }

    /// The bytes of a span.
    #[must_use]
    pub fn bytes(&self, span: &Span) -> &'a [u8] {
        &self.text[span.clone()]
    }

    /// The one value that fills the text, blanks aside.
    #[must_use]
    pub fn whole(&self) -> Option<Span> {
        self.value_from(0)
    }

    /// The one value that fills the text from `at` on, blanks aside.
    #[must_use]
    pub fn value_from(&self, at: usize) -> Option<Span> {
        let mut cursor = self.cursor(at, self.text.len());
        cursor.blanks()?;
        let value = cursor.value()?;
        cursor.blanks()?;
        (cursor.at == self.text.len()).then_some(value)
    }

    /// The members of the object that stands at `span`, in their order; `None` if it is none.
    #[must_use]
    pub fn members(&self, span: &Span) -> Option<Vec<Member>> {
        let mut members = Vec::new();
        self.each_part(span, (b'{', b'}'), |cursor| {
            let key = cursor.string()?;
            cursor.blanks()?;
            cursor.take(b':')?;
            cursor.blanks()?;
            let value = cursor.value()?;
            let name = serde_json::from_slice(self.bytes(&key)).ok();
            members.push(Member { name, key, value });
            Some(())
        })?;
        Some(members)
    }

    /// The elements of the list that stands at `span`; `None` if it is none.
    #[must_use]
    pub fn elements(&self, span: &Span) -> Option<Vec<Span>> {
        let mut elements = Vec::new();
        self.each_part(span, (b'[', b']'), |cursor| {
            elements.push(cursor.value()?);
            Some(())
        })?;
        Some(elements)
    }

    /// The text at `span`, decoded; `None` if it is no text.
    #[must_use]
    pub fn string(&self, span: &Span) -> Option<String> {
        serde_json::from_slice(self.bytes(span)).ok()
    }

    fn each_part(
        &self,
        span: &Span,
        (open, close): (u8, u8),
        mut part: impl FnMut(&mut Cursor<'a>) -> Option<()>,
    ) -> Option<()> {
        let mut cursor = self.cursor(span.start, span.end);
        cursor.take(open)?;
        cursor.blanks()?;
        if cursor.take(close).is_some() {
            return (cursor.at == span.end).then_some(());
        }
        loop {
            part(&mut cursor)?;
            cursor.blanks()?;
            if cursor.take(b',').is_some() {
                cursor.blanks()?;
                let trailing = self.syntax == Syntax::WithComments && cursor.peek() == Some(close);
                if !trailing {
                    continue;
                }
            }
            cursor.take(close)?;
            return (cursor.at == span.end).then_some(());
        }
    }

    fn cursor(&self, at: usize, end: usize) -> Cursor<'a> {
        Cursor { text: &self.text[..end], at, syntax: self.syntax }
    }
}

/// The only member of that name. Two are as good as none: readers would not agree on which counts.
#[must_use]
pub fn only<'m>(members: &'m [Member], name: &str) -> Option<&'m Member> {
    let mut found = members.iter().filter(|it| it.name.as_deref() == Some(name));
    found.next().filter(|_| found.next().is_none())
}

/// Whether a member has that name.
#[must_use]
pub fn has(members: &[Member], name: &str) -> bool {
    members.iter().any(|it| it.name.as_deref() == Some(name))
}

/// Changes to one text, made all at once. The spans are those of the old text and do not overlap.
#[derive(Debug, Default)]
pub struct Edits(Vec<(Span, Vec<u8>)>);

impl Edits {
    /// Puts `new` in the place of `old`; an empty span inserts.
    pub fn replace(&mut self, old: Span, new: impl Into<Vec<u8>>) {
        self.0.push((old, new.into()));
    }

    /// Adds a member, written out, behind those of the object at `span`.
    pub fn add_member(&mut self, span: &Span, members: &[Member], written: &str) {
        self.add_part(span, members.last().map(|it| it.value.end), written);
    }

    /// Adds an element, written out, behind those of the list at `span`.
    pub fn add_element(&mut self, span: &Span, elements: &[Span], written: &str) {
        self.add_part(span, elements.last().map(|it| it.end), written);
    }

    fn add_part(&mut self, span: &Span, last_end: Option<usize>, written: &str) {
        match last_end {
            Some(end) => self.replace(end..end, format!(",{written}")),
            None => self.replace(span.start + 1..span.start + 1, written),
        }
    }

    /// Takes members away, each with the comma that goes with it.
    pub fn remove_members(&mut self, members: &[Member], is_removed: impl Fn(&Member) -> bool) {
        let last_kept = members.iter().rposition(|it| !is_removed(it));
        for (at, member) in members.iter().enumerate() {
            if is_removed(member) && last_kept.is_some_and(|last| at < last) {
                self.replace(member.key.start..members[at + 1].key.start, "");
            }
        }
        let Some(last) = members.last().filter(|it| is_removed(it)) else { return };
        let from = last_kept.map_or(members[0].key.start, |kept| members[kept].value.end);
        self.replace(from..last.value.end, "");
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text with every change in it. Insertions at one place stand in the order of their making.
    #[must_use]
    pub fn apply(mut self, text: &[u8]) -> Vec<u8> {
        self.0.sort_by_key(|(span, _)| span.start);
        let mut changed = Vec::with_capacity(text.len() + 512 * self.0.len());
        let mut at = 0;
        for (span, new) in &self.0 {
            changed.extend_from_slice(&text[at..span.start]);
            changed.extend_from_slice(new);
            at = span.end;
        }
        changed.extend_from_slice(&text[at..]);
        changed
    }
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    syntax: Syntax,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// White space, and comments where there are any; `None` for one that does not end.
    fn blanks(&mut self) -> Option<()> {
        loop {
            let rest = &self.text[self.at..];
            match rest {
                [b' ' | b'\t' | b'\r' | b'\n', ..] => self.at += 1,
                [b'/', b'/', ..] if self.syntax == Syntax::WithComments => {
                    self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                }
                [b'/', b'*', ..] if self.syntax == Syntax::WithComments => {
                    self.at += 4 + rest[2..].windows(2).position(|pair| pair == b"*/")?;
                }
                _ => return Some(()),
            }
        }
    }

    fn string(&mut self) -> Option<Span> {
        let start = self.at;
        self.take(b'"')?;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(start..self.at);
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    /// One value, without recursion.
    fn value(&mut self) -> Option<Span> {
        let start = self.at;
        let mut closers = Vec::new();
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                open @ (b'{' | b'[') => {
                    closers.push(if open == b'{' { b'}' } else { b']' });
                    self.at += 1;
                    if closers.len() > MAX_LEVELS {
                        return None;
                    }
                }
                close @ (b'}' | b']') => {
                    (closers.pop()? == close).then(|| self.at += 1)?;
                }
                b',' | b':' if !closers.is_empty() => self.at += 1,
                byte if byte == b'-' || byte.is_ascii_alphanumeric() => self.bare(),
                _ => return None,
            }
            if closers.is_empty() {
                return Some(start..self.at);
            }
            self.blanks()?;
        }
    }

    fn bare(&mut self) {
        let of_word = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        self.at += self.text[self.at..].iter().take_while(of_word).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(text: &str, names: &[&str]) -> String {
        let raw = Raw::json(text.as_bytes());
        let members = raw.members(&raw.whole().expect(text)).expect(text);
        let mut edits = Edits::default();
        edits.remove_members(&members, |it| it.name.as_deref().is_some_and(|n| names.contains(&n)));
        String::from_utf8(edits.apply(text.as_bytes())).expect("UTF-8")
    }

    #[test]
    fn a_member_goes_with_its_comma_and_nothing_else() {
        // Promise: what is taken out leaves the bytes of all others as they were.
        for (text, expected) in [
            (r#"{"x":1}"#, "{}"),
            (r#"{ "x" : 1 }"#, "{  }"),
            (r#"{"x":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{"a":2,"x":{"x":"}"}}"#, r#"{"a":2}"#),
            (r#"{"a": 2, "x": [1], "b": 9007199254740993}"#, r#"{"a": 2, "b": 9007199254740993}"#),
            (r#"{"x":1,"y":2,"a":3,"x":4,"y":5}"#, r#"{"a":3}"#),
            (r#"{"\u0078":1,"a":"\"x\":1"}"#, r#"{"a":"\"x\":1"}"#),
            (r#"{"x":1,"y":2}"#, "{}"),
        ] {
            assert_eq!(removed(text, &["x", "y"]), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        // Promise: a text is changed only where it was understood.
        for text in [
            "",
            "[]",
            "1",
            r#"{"a"}"#,
            r#"{"a":1"#,
            r#"{"a":1,}"#,
            r#"{"a":1]"#,
            r#"{"a":"x}"#,
            "{,}",
            r#"{"a":1 "b":2}"#,
            r#"{'a':1}"#,
            r#"{"a":1}//"#,
            r#"{"a":\n}"#,
        ] {
            let raw = Raw::json(text.as_bytes());
            let members = raw.whole().and_then(|span| raw.members(&span));
            assert!(members.is_none(), "{text}: {members:?}");
        }
        let deep = "[".repeat(MAX_LEVELS + 1) + &"]".repeat(MAX_LEVELS + 1);
        assert_eq!(Raw::json(deep.as_bytes()).whole(), None);
    }

    #[test]
    fn comments_and_trailing_commas_are_blanks_where_they_are_allowed() {
        // Promise: an editor's settings can be read as they are.
        let text = "// one\n{ /* \"x\": 1, */ \"a\": [1, 2,], // \"y\"\n \"b\": {},\n}\n// end";
        let raw = Raw::with_comments(text.as_bytes());
        let members = raw.members(&raw.whole().expect("whole")).expect("an object");
        let names: Vec<_> = members.iter().filter_map(|it| it.name.as_deref()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(raw.elements(&members[0].value).map(|it| it.len()), Some(2));
        assert_eq!(Raw::with_comments(b"{} /* open").whole(), None);
        assert!(Raw::json(text.as_bytes()).whole().is_none());
    }

    #[test]
    fn insertions_stand_behind_what_was_there() {
        // Promise: what is added is one more part, in an empty and in a full object.
        for (text, expected) in [
            ("{}", r#"{"n":1}"#),
            ("{ }", r#"{"n":1 }"#),
            ("{\"a\" : 1 \n}", "{\"a\" : 1,\"n\":1 \n}"),
        ] {
            let raw = Raw::json(text.as_bytes());
            let span = raw.whole().expect("whole");
            let mut edits = Edits::default();
            edits.add_member(&span, &raw.members(&span).expect("an object"), "\"n\":1");
            assert_eq!(edits.apply(text.as_bytes()), expected.as_bytes());
        }
    }

    /// The value at a span, put together from its parts alone.
    fn rebuilt(raw: &Raw<'_>, span: &Span) -> serde_json::Value {
        if let Some(members) = raw.members(span) {
            let members = members
                .into_iter()
                .map(|it| (it.name.expect("a text of Unicode"), rebuilt(raw, &it.value)));
            return members.collect::<serde_json::Map<_, _>>().into();
        }
        if let Some(elements) = raw.elements(span) {
            return elements.iter().map(|it| rebuilt(raw, it)).collect::<Vec<_>>().into();
        }
        serde_json::from_slice(raw.bytes(span)).expect("a value")
    }

    fn any_json() -> impl proptest::strategy::Strategy<Value = serde_json::Value> {
        use proptest::prelude::*;
        let text = "[a-z{}\\[\\]:,\"\\\\/*\u{e9}\n ]{0,8}";
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u32>().prop_map(|it| (f64::from(it) / 8.0).into()),
            text.prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::btree_map(text, inner, 0..5)
                    .prop_map(|it| it.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest::proptest! {
        #[test]
        fn the_parts_of_a_text_are_the_parts_of_its_value(json in any_json(), is_pretty: bool) {
            // Promise: spans and a parser see one and the same value, in either syntax.
            let text = if is_pretty {
                serde_json::to_string_pretty(&json).expect("JSON")
            } else {
                json.to_string()
            };
            for raw in [Raw::json(text.as_bytes()), Raw::with_comments(text.as_bytes())] {
                let whole = raw.whole().expect("whole");
                proptest::prop_assert_eq!(&rebuilt(&raw, &whole), &json);
            }
        }

        #[test]
        fn no_bytes_whatever_bring_it_down(
            json in any_json(),
            at in proptest::prelude::any::<proptest::sample::Index>(),
            byte: u8,
            is_cut: bool,
        ) {
            // Promise: a broken text is unreadable, and nothing worse.
            let mut bytes = json.to_string().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if is_cut {
                bytes.truncate(at + 1);
            }
            for raw in [Raw::json(&bytes), Raw::with_comments(&bytes)] {
                if let Some(whole) = raw.whole() {
                    let _ = (raw.members(&whole), raw.elements(&whole), raw.string(&whole));
                }
            }
        }
    }
}
