//! What stands around the `result` or `error` of a reply, so that an answer that was recorded first
//! reaches the client in the bytes in which the server told it.

use super::Body;
use super::frame::{Edits, Frame, Pieces};
use super::scan::Field;

/// More than this around a body is not kept: it would be no shell.
const MAX_BYTES: usize = 4096;

/// A reply without its body.
#[derive(Debug)]
pub(super) struct Shell(Frame);

impl Shell {
    /// Copies what is not body, so that the reply's own bytes can be let go of.
    pub(super) fn of(reply: &Frame) -> Option<Self> {
        let body = reply.span(Field::Result).or_else(|| reply.span(Field::Error))?;
        let line = reply.line();
        if line.len() - body.len() > MAX_BYTES {
            return None;
        }
        Frame::read([&line[..body.start], b"{}", &line[body.end..]].concat()).ok().map(Self)
    }

    /// The reply with another ID, given raw, and another body; `None` if it is of the other kind.
    pub(super) fn around(&self, id: &[u8], body: &Body) -> Option<Pieces> {
        let (field, body) = match body {
            Body::Result(body) => (Field::Result, body),
            Body::Error(body) => (Field::Error, body),
        };
        let mut edits = Edits::default();
        edits.replace(self.0.span(Field::Id)?, id.to_vec());
        edits.replace(self.0.span(field)?, body.clone());
        Some(self.0.splice(edits))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn an_answer_is_told_in_the_servers_own_order() {
        // Promise: blanks, order and other members around a recorded answer stay as they came.
        let result = Body::Result(Bytes::from_static(b"{\"new\":1}"));
        let error = Body::Error(Bytes::from_static(b"{\"code\":-1}"));
        let cases = [
            (
                r#"{"result":{"old":[{}]},"jsonrpc":"2.0","id":3}"#,
                &result,
                Some(r#"{"result":{"new":1},"jsonrpc":"2.0","id":"c"}"#),
            ),
            (
                r#" { "x":1, "id" : 3 ,"result" : {"old":1}, "jsonrpc":"2.0" }"#,
                &result,
                Some(r#" { "x":1, "id" : "c" ,"result" : {"new":1}, "jsonrpc":"2.0" }"#),
            ),
            (
                r#"{"jsonrpc":"2.0","error":{"code":1,"message":"m"},"id":3}"#,
                &error,
                Some(r#"{"jsonrpc":"2.0","error":{"code":-1},"id":"c"}"#),
            ),
            (r#"{"jsonrpc":"2.0","id":3,"result":{}}"#, &error, None),
        ];
        for (line, body, expected) in cases {
            let reply = Frame::read(line.to_owned()).expect("a reply");
            let told = Shell::of(&reply).expect("short").around(b"\"c\"", body);
            let told = told.map(|line| String::from_utf8_lossy(&line.joined()).into_owned());
            assert_eq!(told.as_deref(), expected, "{line}");
        }
        let padded =
            format!(r#"{{"jsonrpc":"2.0","id":3,"result":{{}}{}}}"#, " ".repeat(MAX_BYTES));
        assert!(Shell::of(&Frame::read(padded).expect("a reply")).is_none());
    }
}
