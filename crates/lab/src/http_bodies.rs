//! The MCP messages in one direction of an HTTP/1.1 connection (RFC 9112), found without decoding
//! them: bodies of `application/json`, and the data of each event of `text/event-stream`.
//!
//! Heads are looked at and dropped, so that no token gets into a transcript.

use anyhow::{Context as _, ensure};

use crate::transcript::Side;

/// A head that is longer is none of ours.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Takes bytes as they come and gives the messages that they complete.
#[derive(Debug)]
pub struct Bodies {
    from: Side,
    /// What was not looked at yet.
    pending: Vec<u8>,
    /// The body so far; of a stream of events, the event so far.
    body: Vec<u8>,
    kind: Kind,
    part: Part,
    ended_count: usize,
}

/// What a body holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Json,
    Events,
    Other,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Head,
    /// As many bytes of body.
    Sized(usize),
    ChunkSize,
    /// As many bytes, with the line end after them.
    Chunk(usize),
    Trailers,
    UntilClose,
}

impl Bodies {
    /// For what `from` sends.
    #[must_use]
    pub const fn new(from: Side) -> Self {
        Self {
            from,
            pending: Vec::new(),
            body: Vec::new(),
            kind: Kind::Other,
            part: Part::Head,
            ended_count: 0,
        }
    }

    /// How many messages of HTTP have ended so far, whatever was in them.
    #[must_use]
    pub const fn ended_count(&self) -> usize {
        self.ended_count
    }

    /// The messages that end within these bytes.
    ///
    /// # Errors
    /// If this is not HTTP/1.1.
    pub fn feed(&mut self, bytes: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
        self.pending.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while self.step(&mut messages)? {}
        Ok(messages)
    }

    /// The message that the end of the connection cut short, if there is one.
    #[must_use]
    pub fn cut(self) -> Option<Vec<u8>> {
        (self.kind != Kind::Other && !self.body.is_empty()).then_some(self.body)
    }

    /// Takes one part off what is pending; whether there was one.
    fn step(&mut self, messages: &mut Vec<Vec<u8>>) -> anyhow::Result<bool> {
        match self.part {
            Part::Head => {
                let Some(head) = self.take_until(b"\r\n\r\n") else {
                    ensure!(self.pending.len() <= MAX_HEAD_BYTES, "a head without an end");
                    return Ok(false);
                };
                self.begin(&head)?;
                if self.part == Part::Sized(0) {
                    self.end(messages);
                }
            }
            Part::Sized(left) => {
                let taken = left.min(self.pending.len());
                if taken == 0 {
                    return Ok(false);
                }
                self.grow(taken, messages);
                self.part = Part::Sized(left - taken);
                if left == taken {
                    self.end(messages);
                }
            }
            Part::ChunkSize => {
                let Some(line) = self.take_until(b"\r\n") else { return Ok(false) };
                let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
                let size = usize::from_str_radix(std::str::from_utf8(digits)?.trim(), 16)
                    .context("a chunk without a size")?;
                self.part = if size == 0 { Part::Trailers } else { Part::Chunk(size) };
            }
            Part::Chunk(size) => {
                if self.pending.len() < size + 2 {
                    return Ok(false);
                }
                self.grow(size, messages);
                self.pending.drain(..2);
                self.part = Part::ChunkSize;
            }
            Part::Trailers => {
                let Some(line) = self.take_until(b"\r\n") else { return Ok(false) };
                if line.is_empty() {
                    self.end(messages);
                }
            }
            Part::UntilClose => {
                let rest = self.pending.len();
                self.grow(rest, messages);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Decides from a head what its body is.
    fn begin(&mut self, head: &[u8]) -> anyhow::Result<()> {
        let head = String::from_utf8_lossy(head);
        let (first, rest) = head.split_once("\r\n").unwrap_or((&head, ""));
        ensure!(first.contains("HTTP/1.1"), "no HTTP/1.1 but `{}`", first.escape_debug());
        let field = |name: &str| {
            let mut fields = rest.split("\r\n").filter_map(|line| line.split_once(':'));
            let found = fields.find(|(field, _)| field.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim().to_ascii_lowercase())
        };
        let kind = field("content-type").unwrap_or_default();
        self.kind = match kind.split(';').next().unwrap_or_default().trim() {
            "application/json" => Kind::Json,
            "text/event-stream" => Kind::Events,
            _ => Kind::Other,
        };
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        // RFC 9112, section 6.3.
        let bodiless = status.is_some_and(|code| code.starts_with('1') || code == "204");
        self.part = if bodiless {
            Part::Sized(0)
        } else if field("transfer-encoding").is_some_and(|coding| coding.ends_with("chunked")) {
            Part::ChunkSize
        } else if let Some(length) = field("content-length") {
            Part::Sized(length.parse().context("a Content-Length that is no number")?)
        } else if self.from == Side::Client {
            Part::Sized(0)
        } else {
            Part::UntilClose
        };
        Ok(())
    }

    fn grow(&mut self, count: usize, messages: &mut Vec<Vec<u8>>) {
        self.body.extend(self.pending.drain(..count));
        if self.kind == Kind::Events {
            while let Some(at) = find(&self.body, b"\n\n") {
                let event: Vec<u8> = self.body.drain(..at + 2).collect();
                messages.extend(data_of(&event));
            }
        }
    }

    fn end(&mut self, messages: &mut Vec<Vec<u8>>) {
        let body = std::mem::take(&mut self.body);
        if self.kind == Kind::Json && !body.is_empty() {
            messages.push(body);
        }
        (self.kind, self.part) = (Kind::Other, Part::Head);
        self.ended_count += 1;
    }

    /// What comes before `end`, both taken off.
    fn take_until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let at = find(&self.pending, end)?;
        let mut taken: Vec<u8> = self.pending.drain(..at + end.len()).collect();
        taken.truncate(at);
        Some(taken)
    }
}

/// The data of an event; `None` if it has none.
fn data_of(event: &[u8]) -> Option<Vec<u8>> {
    let lines = event.split(|byte| *byte == b'\n');
    let data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    let data: Vec<&[u8]> = data.map(|data| data.strip_prefix(b" ").unwrap_or(data)).collect();
    let data = data.join(&b'\n');
    (!data.is_empty()).then_some(data)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` whole, and in pieces of every small size; each way gives the same.
    #[track_caller]
    fn check(from: Side, bytes: &str, messages: &[&str], cut: Option<&str>) {
        let expected: Vec<Vec<u8>> = messages.iter().map(|text| text.as_bytes().into()).collect();
        for size in [bytes.len(), 1, 2, 3, 7] {
            let mut bodies = Bodies::new(from);
            let pieces = bytes.as_bytes().chunks(size);
            let found = pieces.flat_map(|piece| bodies.feed(piece).expect("HTTP/1.1"));
            assert_eq!(found.collect::<Vec<_>>(), expected, "in pieces of {size}");
            assert_eq!(bodies.cut(), cut.map(|text| text.as_bytes().to_vec()));
        }
    }

    #[test]
    fn every_message_is_found_however_the_bytes_come() {
        // Promise: a transcript of HTTP has each message once, whole, and no header.
        let post = "POST /mcp HTTP/1.1\r\nAuthorization: Bearer secret\r\n\
                    content-type: application/json\r\nContent-Length: 2\r\n\r\n";
        check(Side::Client, &format!("{post}{{}}{post}[]"), &["{}", "[]"], None);
        check(Side::Client, &format!("GET / HTTP/1.1\r\n\r\n{post}{{"), &[], Some("{"));
        let json = "Content-Type: application/json; charset=utf-8\r\n";
        let chunked = "Transfer-Encoding: chunked\r\n\r\n";
        let whole =
            format!("HTTP/1.1 200 OK\r\n{json}{chunked}1\r\n{{\r\n1;x=y\r\n}}\r\n0\r\n\r\n");
        check(Side::Server, &format!("{whole}{whole}"), &["{}", "{}"], None);
        check(Side::Server, &whole[..whole.len() - 5], &[], Some("{}"));
        let refused =
            "HTTP/1.1 401 No\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nwhy\n";
        let empty = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 None\r\n\r\n";
        check(Side::Server, &format!("{refused}{empty}{whole}"), &["{}"], None);
        check(Side::Server, &format!("HTTP/1.1 200 OK\r\n{json}\r\n{{}}"), &[], Some("{}"));
    }

    #[test]
    fn events_are_messages_as_soon_as_they_end() {
        // Promise: what a stream brought is kept, though the stream never ended.
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        let events = "id: 1\ndata:\n\nevent: message\ndata: {\ndata: }\n\n: note\n\ndata: [";
        let size = events.len();
        check(Side::Server, &format!("{head}{size:x}\r\n{events}\r\n"), &["{\n}"], Some("data: ["));
    }

    #[test]
    fn what_is_not_http_is_an_error() {
        // Promise: a relay that cannot read what passes says so, and keeps no half of it.
        for bytes in ["EHLO there\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"] {
            Bodies::new(Side::Server).feed(bytes.as_bytes()).expect_err(bytes);
        }
    }
}
