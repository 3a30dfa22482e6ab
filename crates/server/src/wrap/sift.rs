//! Finds the messages in a line of a server that prints other things to its stdout too.

use bytes::Bytes;
use memchr::memmem;

use super::frame::{Frame, NotAFrame};
use super::scan;
use crate::wire::Envelope;

/// Places of a line at which a message is looked for: more would make the work grow with the square
/// of its length.
const MAX_TRIES: usize = 16;
/// How messages begin. One of these that cannot be read is a broken message, and what stands in it
/// is its content and no message.
const HEADS: [&[u8]; 6] =
    [b"\"jsonrpc\"", b"\"id\"", b"\"method\"", b"\"params\"", b"\"result\"", b"\"error\""];

/// A part of a line.
#[derive(Debug)]
pub(super) enum Found {
    Message(Frame),
    /// Bytes that are no message, and what could be read of an answer that they may have been.
    Other {
        bytes: usize,
        envelope: Envelope,
    },
}

/// The parts of a line, in their order.
pub(super) fn sift(line: &Bytes) -> Vec<Found> {
    // Nearly every line is one message.
    if let Ok(frame) = Frame::read(line.clone()) {
        return vec![Found::Message(frame)];
    }
    if is_blank(line) {
        return Vec::new();
    }
    if memmem::find(line, b"\"jsonrpc\"").is_none() {
        return vec![other(line)];
    }
    let mut found = Vec::new();
    let mut begin = 0;
    let mut at = 0;
    for _ in 0..MAX_TRIES {
        let Some(brace) = memchr::memchr(b'{', &line[at..]) else { break };
        let brace = at + brace;
        match Frame::read_at(line, brace) {
            Ok((frame, end)) => {
                push_other(&mut found, &line[begin..brace]);
                found.push(Found::Message(frame));
                (begin, at) = (end, end);
            }
            Err(error) if !looks_like_message(&line[brace + 1..]) => {
                // Past an object that is whole, and past the brace of what is none.
                let whole = (error != NotAFrame::NotJson).then(|| scan::object_at(line, brace));
                at = whole.and_then(Result::ok).map_or(brace + 1, |(_, end)| end);
            }
            Err(_) => {
                push_other(&mut found, &line[begin..brace]);
                begin = brace;
                break;
            }
        }
    }
    push_other(&mut found, &line[begin..]);
    found
}

fn looks_like_message(inside: &[u8]) -> bool {
    let inside = inside.trim_ascii_start();
    HEADS.iter().any(|head| inside.starts_with(head))
}

fn push_other(found: &mut Vec<Found>, bytes: &[u8]) {
    if !is_blank(bytes) {
        found.push(other(bytes));
    }
}

fn other(bytes: &[u8]) -> Found {
    Found::Other { bytes: bytes.len(), envelope: Envelope::of(bytes) }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(line: &[u8]) -> Vec<String> {
        let shown = |found| match found {
            Found::Message(frame) => String::from_utf8_lossy(frame.line()).into_owned(),
            Found::Other { bytes, envelope } => match envelope.answers {
                Some(answers) => format!("{bytes} bytes, answers {}", answers.id),
                None => format!("{bytes} bytes"),
            },
        };
        sift(&Bytes::copy_from_slice(line)).into_iter().map(shown).collect()
    }

    #[test]
    fn messages_are_found_among_other_output() {
        // Promise: a banner before, between or behind messages costs none of them.
        let one = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let two = r#"{"jsonrpc":"2.0","method":"x"}"#;
        let check = |line: &str, expected: &[&str]| assert_eq!(parts(line.as_bytes()), expected);
        check(one, &[one]);
        check(&format!(" {one} \r"), &[&format!(" {one} \r")]);
        check("", &[]);
        check("Server v1.2 {debug: 1} ready", &["28 bytes"]);
        check(&format!("ready{one}"), &["5 bytes", one]);
        check(&format!("{one}ready"), &[one, "5 bytes"]);
        check(&format!("a{one}{two}b {two}"), &["1 bytes", one, two, "2 bytes", two]);
        check(&format!("cfg {{a: 1}} {{\"b\":2}} {one}"), &["19 bytes", one]);
        let mut bytes = b"\xff\xfe".to_vec();
        bytes.extend_from_slice(one.as_bytes());
        assert_eq!(parts(&bytes), ["2 bytes", one]);
    }

    #[test]
    fn what_stands_inside_a_broken_message_is_no_message() {
        // Promise: content that looks like an answer is never taken for one.
        let inner = r#"{"jsonrpc":"2.0","id":2,"result":{}}"#;
        let broken = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":NaN,"b":{inner}}}}}"#);
        assert_eq!(parts(broken.as_bytes()), [format!("{} bytes, answers 1", broken.len())]);
        let glued = format!("log {broken}");
        assert_eq!(parts(glued.as_bytes())[1], format!("{} bytes, answers 1", broken.len()));
        let unfit = format!("log {{\"jsonrpc\":\"2.0\",\"x\":{inner}}}");
        assert_eq!(parts(unfit.as_bytes())[1..], [format!("{} bytes", unfit.len() - 4)]);
    }

    #[test]
    fn a_line_of_braces_is_left_after_some_tries() {
        // Promise: no line costs work that grows with the square of its length.
        let line = format!("{}\"jsonrpc\"", "{\"a\":".repeat(200_000));
        assert_eq!(parts(line.as_bytes()).len(), 1);
    }
}
