//! One pass over a line: is it a JSON-RPC message, and where do its few members stand that the
//! relay must understand? No tree is built and nothing is copied.

use std::ops::Range;

use counterfoil_core::json::{self, JsonLimits, Value};

/// Deepest nesting that is followed, in levels.
const MAX_DEPTH: usize = 512;
/// Keys of ours, which nobody else may say.
pub(super) const OUR_PREFIX: &str = "io.counterfoil/";

/// A member that the relay knows, by where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Field {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    /// Of `params` or `result`.
    Meta,
    /// Of `params`.
    Name,
    Arguments,
    RequestId,
    RequestState,
    InputResponses,
    Cursor,
    Uri,
    /// Of `params`: the token that a progress notification is about.
    ProgressOf,
    /// Of `params` or `result` of the handshake.
    ProtocolVersion,
    Capabilities,
    /// Of `result`.
    SupportedVersions,
    NextCursor,
    Task,
    /// Of `_meta`.
    ProgressToken,
    SubscriptionId,
    RevisionOfRequest,
}

const FIELD_COUNT: usize = Field::RevisionOfRequest as usize + 1;

/// The level at which a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Top,
    Params,
    Result,
    Meta,
}

/// Where the known members' values stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    spans: [Option<(u32, u32)>; FIELD_COUNT],
    /// Whether a known member stands twice at its level.
    pub(super) repeats: bool,
    /// Whether `_meta` has a key with [`OUR_PREFIX`].
    pub(super) has_ours: bool,
}

impl Seen {
    pub(super) fn span(&self, field: Field) -> Option<Range<usize>> {
        self.spans[field as usize].map(|(start, end)| start as usize..end as usize)
    }

    fn note(&mut self, field: Field, span: Range<usize>) {
        let place = &mut self.spans[field as usize];
        self.repeats |= place.is_some();
        // Lines are far below 4 GiB: the reader's limit is less.
        place.get_or_insert((span.start as u32, span.end as u32));
    }
}

/// The bytes are no JSON object at that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotJson;

/// Reads one JSON object that begins at `start`; where its known members are, and where it ends.
///
/// The grammar is RFC 8259, but for the bytes of strings, whose UTF-8 is for the caller to check.
pub(super) fn object_at(bytes: &[u8], start: usize) -> Result<(Seen, usize), NotJson> {
    if bytes.len() >= u32::MAX as usize {
        return Err(NotJson);
    }
    let mut scan = Scan { bytes, at: start, seen: Seen::default(), closers: Vec::new() };
    scan.space();
    scan.object(Level::Top)?;
    Ok((scan.seen, scan.at))
}

/// The parts of the object at `span` that must go so that no key of ours is left in it.
pub(super) fn our_members(bytes: &[u8], span: Range<usize>) -> Vec<Range<usize>> {
    members(bytes, span).map(|members| cuts(&members)).unwrap_or_default()
}

/// The members of the object at `span`; `None` if there is none.
pub(super) fn members(bytes: &[u8], span: Range<usize>) -> Option<Vec<Member>> {
    let mut scan = Scan { bytes, at: span.start, seen: Seen::default(), closers: Vec::new() };
    scan.members().ok()
}

/// A member takes the comma before it along, or the one after it where none stands before.
fn cuts(members: &[Member]) -> Vec<Range<usize>> {
    let mut cuts: Vec<Range<usize>> = Vec::new();
    let mut kept_end = None;
    for (at, member) in members.iter().enumerate() {
        if !member.is_ours {
            kept_end = Some(member.span.end);
            continue;
        }
        let cut = match (kept_end, members.get(at + 1)) {
            (Some(end), _) => end..member.span.end,
            (None, Some(next)) => member.span.start..next.span.start,
            (None, None) => member.span.clone(),
        };
        match cuts.last_mut() {
            Some(last) if last.end >= cut.start => last.end = cut.end,
            _ => cuts.push(cut),
        }
    }
    cuts
}

/// One member of an object.
pub(super) struct Member {
    /// From the first byte of its key to the last one of its value.
    pub(super) span: Range<usize>,
    pub(super) value: Range<usize>,
    /// Its key, raw JSON.
    pub(super) key: Range<usize>,
    pub(super) is_ours: bool,
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    seen: Seen,
    closers: Vec<u8>,
}

impl Scan<'_> {
    /// An object whose members are known by `level`.
    fn object(&mut self, level: Level) -> Result<(), NotJson> {
        self.take(b'{')?;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let (key, _) = self.key()?;
            let field = self.field(level, key);
            self.space();
            let start = self.at;
            match field.and_then(|field| below(level, field)) {
                Some(level) if self.peek() == Some(b'{') => self.object(level)?,
                _ => self.value()?,
            }
            if let Some(field) = field {
                self.seen.note(field, start..self.at);
            }
            self.space();
            match self.next() {
                Some(b',') => self.space(),
                Some(b'}') => return Ok(()),
                _ => return Err(NotJson),
            }
        }
    }

    /// The members of an object, which stand at their keys' first and their values' last byte.
    fn members(&mut self) -> Result<Vec<Member>, NotJson> {
        let mut members = Vec::new();
        self.take(b'{')?;
        loop {
            self.space();
            if self.peek() == Some(b'}') {
                return Ok(members);
            }
            let start = self.at;
            let (key, has_escapes) = self.key()?;
            let is_ours = is_ours(&self.bytes[key.clone()], has_escapes);
            self.space();
            let value = self.at;
            self.value()?;
            members.push(Member { span: start..self.at, value: value..self.at, key, is_ours });
            self.space();
            match self.next() {
                Some(b',') => {}
                _ => return Ok(members),
            }
        }
    }

    fn field(&mut self, level: Level, key: Range<usize>) -> Option<Field> {
        let raw = &self.bytes[key];
        let decoded;
        let name = if raw.contains(&b'\\') {
            decoded = decode(raw)?;
            decoded.as_bytes()
        } else {
            &raw[1..raw.len() - 1]
        };
        self.seen.has_ours |= level == Level::Meta && name.starts_with(OUR_PREFIX.as_bytes());
        known(level, name)
    }

    /// A key with its colon; where it stands with its quotes, and whether it has escapes.
    fn key(&mut self) -> Result<(Range<usize>, bool), NotJson> {
        let start = self.at;
        let has_escapes = self.string()?;
        let end = self.at;
        self.space();
        self.take(b':')?;
        Ok((start..end, has_escapes))
    }

    /// Any value, without recursion.
    fn value(&mut self) -> Result<(), NotJson> {
        let base = self.closers.len();
        loop {
            self.space();
            match self.peek().ok_or(NotJson)? {
                b'"' => {
                    self.string()?;
                }
                b'{' => {
                    if !self.opens(b'}')? {
                        self.key()?;
                        continue;
                    }
                }
                b'[' => {
                    if !self.opens(b']')? {
                        continue;
                    }
                }
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => self.word(b"null")?,
                _ => self.number()?,
            }
            loop {
                if self.closers.len() == base {
                    return Ok(());
                }
                self.space();
                let closer = self.closers.last().copied();
                match self.next() {
                    Some(b',') => {
                        if closer == Some(b'}') {
                            self.space();
                            self.key()?;
                        }
                        break;
                    }
                    byte if byte.is_some() && byte == closer => {
                        self.closers.pop();
                    }
                    _ => return Err(NotJson),
                }
            }
        }
    }

    /// Enters a container; whether it was empty and is left again.
    fn opens(&mut self, closer: u8) -> Result<bool, NotJson> {
        self.at += 1;
        self.space();
        if self.peek() == Some(closer) {
            self.at += 1;
            return Ok(true);
        }
        if self.closers.len() >= MAX_DEPTH {
            return Err(NotJson);
        }
        self.closers.push(closer);
        Ok(false)
    }

    /// A string; whether it has escapes.
    fn string(&mut self) -> Result<bool, NotJson> {
        self.take(b'"')?;
        let mut has_escapes = false;
        loop {
            self.at += plain_prefix(&self.bytes[self.at..]);
            match self.next() {
                Some(b'"') => return Ok(has_escapes),
                Some(b'\\') => {
                    has_escapes = true;
                    self.escape()?;
                }
                _ => return Err(NotJson),
            }
        }
    }

    fn escape(&mut self) -> Result<(), NotJson> {
        match self.next() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(()),
            Some(b'u') => {
                let digits = self.bytes.get(self.at..self.at + 4).ok_or(NotJson)?;
                self.at += 4;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(()).ok_or(NotJson)
            }
            _ => Err(NotJson),
        }
    }

    fn number(&mut self) -> Result<(), NotJson> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.digits()? {
            1 => {}
            count if self.bytes[self.at - count] == b'0' => return Err(NotJson),
            _ => {}
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<usize, NotJson> {
        let rest = &self.bytes[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { Err(NotJson) } else { Ok(count) }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), NotJson> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(NotJson);
        }
        self.at += word.len();
        Ok(())
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Result<(), NotJson> {
        if self.next() == Some(byte) { Ok(()) } else { Err(NotJson) }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += usize::from(byte.is_some());
        byte
    }
}

/// Whether a key, with its quotes, is one of ours.
fn is_ours(raw: &[u8], has_escapes: bool) -> bool {
    if has_escapes {
        return decode(raw).is_some_and(|key| key.starts_with(OUR_PREFIX));
    }
    raw[1..].starts_with(OUR_PREFIX.as_bytes())
}

/// A JSON string's text; `None` for what is no text, such as an unpaired surrogate.
pub(super) fn decode(raw: &[u8]) -> Option<String> {
    match json::parse(raw, &JsonLimits::default()).ok()? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// The level inside a member, if the relay looks into it.
fn below(level: Level, field: Field) -> Option<Level> {
    match (level, field) {
        (Level::Top, Field::Params) => Some(Level::Params),
        (Level::Top, Field::Result) => Some(Level::Result),
        (Level::Params | Level::Result, Field::Meta) => Some(Level::Meta),
        _ => None,
    }
}

fn known(level: Level, name: &[u8]) -> Option<Field> {
    Some(match (level, name) {
        (Level::Top, b"jsonrpc") => Field::Jsonrpc,
        (Level::Top, b"id") => Field::Id,
        (Level::Top, b"method") => Field::Method,
        (Level::Top, b"params") => Field::Params,
        (Level::Top, b"result") => Field::Result,
        (Level::Top, b"error") => Field::Error,
        (Level::Params | Level::Result, b"_meta") => Field::Meta,
        (Level::Params | Level::Result, b"protocolVersion") => Field::ProtocolVersion,
        (Level::Params | Level::Result, b"capabilities") => Field::Capabilities,
        (Level::Params, b"name") => Field::Name,
        (Level::Params, b"arguments") => Field::Arguments,
        (Level::Params, b"requestId") => Field::RequestId,
        (Level::Params, b"requestState") => Field::RequestState,
        (Level::Params, b"inputResponses") => Field::InputResponses,
        (Level::Params, b"cursor") => Field::Cursor,
        (Level::Params, b"uri") => Field::Uri,
        (Level::Params, b"progressToken") => Field::ProgressOf,
        (Level::Meta, b"progressToken") => Field::ProgressToken,
        (Level::Result, b"supportedVersions") => Field::SupportedVersions,
        (Level::Result, b"nextCursor") => Field::NextCursor,
        (Level::Result, b"task") => Field::Task,
        (Level::Meta, b"io.modelcontextprotocol/subscriptionId") => Field::SubscriptionId,
        (Level::Meta, b"io.modelcontextprotocol/protocolVersion") => Field::RevisionOfRequest,
        _ => return None,
    })
}

/// How many bytes come before the first quote, backslash or control character. Eight at a time:
/// most of a long line is the inside of strings.
fn plain_prefix(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let zero_byte = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut count = 0;
    for chunk in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
        let quote = zero_byte(word ^ (ONES * u64::from(b'"')));
        let backslash = zero_byte(word ^ (ONES * u64::from(b'\\')));
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        if (quote | backslash | control) != 0 {
            break;
        }
        count += 8;
    }
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    count + bytes[count..].iter().position(ends).unwrap_or(bytes.len() - count)
}
