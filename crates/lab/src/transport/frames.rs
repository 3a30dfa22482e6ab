//! Whole messages in one direction of a connection, byte for byte: lines, or messages of HTTP/1.1
//! with the MCP messages in them.

use crate::http_bodies::Bodies;
use crate::transcript::Side;

/// A message as it passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// All of it.
    pub bytes: Vec<u8>,
    /// How much of it is HTTP's head.
    pub head: usize,
    /// The MCP messages in it.
    pub messages: Vec<Vec<u8>>,
}

/// Cuts a stream into messages.
#[derive(Debug)]
pub(super) struct Frames {
    pending: Vec<u8>,
    http: Option<(Bodies, Vec<Vec<u8>>)>,
    from: Side,
    /// What comes is none of the protocol, and is no longer cut.
    lost: bool,
}

impl Frames {
    pub(super) fn lines(from: Side) -> Self {
        Self { pending: Vec::new(), http: None, from, lost: false }
    }

    pub(super) fn http(from: Side) -> Self {
        let http = Some((Bodies::new(from), Vec::new()));
        Self { pending: Vec::new(), http, from, lost: false }
    }

    /// The messages that end within these bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        for byte in bytes {
            self.pending.push(*byte);
            if self.ends(*byte) {
                frames.push(self.take());
            }
        }
        frames
    }

    /// What never became a message.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    fn ends(&mut self, byte: u8) -> bool {
        let Some((bodies, messages)) = &mut self.http else { return byte == b'\n' };
        if self.lost {
            return false;
        }
        let before = bodies.ended_count();
        match bodies.feed(&[byte]) {
            Ok(found) => messages.extend(found),
            Err(_) => self.lost = true,
        }
        bodies.ended_count() > before
    }

    fn take(&mut self) -> Frame {
        let bytes = std::mem::take(&mut self.pending);
        let Some((bodies, messages)) = &mut self.http else {
            let message = bytes.strip_suffix(b"\n").unwrap_or(&bytes).to_vec();
            return Frame { bytes, head: 0, messages: vec![message] };
        };
        *bodies = Bodies::new(self.from);
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let head = head.map_or(0, |at| at + 4);
        Frame { bytes, head, messages: std::mem::take(messages) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_one_message() {
        // Promise: a fault is placed in the message that it is meant for, and no byte is lost.
        let one =
            b"POST /mcp HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        let bytes = [&one[..], &one[..]].concat();
        let mut frames = Frames::http(Side::Client);
        let found = frames.feed(&bytes);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].bytes, one);
        assert_eq!(&found[1].bytes[found[1].head..], b"{}");
        assert_eq!(found[1].messages, [b"{}".to_vec()]);
        let mut lines = Frames::lines(Side::Server);
        assert_eq!(lines.feed(b"a\nb").len(), 1);
        assert_eq!(lines.rest(), b"b");
    }
}
