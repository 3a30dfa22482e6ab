//! What a fault makes of a message: steps for the proxy. Pure code over bytes.

use serde_json::Value;

use super::frames::Frame;
use super::plan::{Direction, Fault, Plan, Position};

/// What the proxy does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Passes these bytes on.
    Pass(Vec<u8>),
    /// Waits until the client is done.
    Hold,
    /// Sends the whole message once more, over HTTP as a request of its own.
    Again(Vec<u8>),
    /// Passes nothing more on, either way, and says nothing of it.
    Swallow,
    /// Ends both connections.
    Cut,
}

/// Behind a message, and of no protocol.
const GARBAGE: &[u8] = b"\xff\xfe{]\x00\n";

/// The steps of `plan` for a message that speaks of `operation`.
pub(super) fn steps(plan: &Plan, frame: &Frame, operation: &str) -> Vec<Step> {
    let bytes = &frame.bytes;
    let at = plan.position.offset(frame.head, bytes.len());
    let (before, after) = (bytes[..at].to_vec(), bytes[at..].to_vec());
    match (plan.fault, plan.position) {
        (Fault::Drop, _) => vec![Step::Pass(before), Step::Swallow],
        (Fault::Delay, _) => vec![Step::Pass(before), Step::Hold, Step::Pass(after)],
        (Fault::Duplicate, Position::First) => {
            vec![Step::Pass(bytes.clone()), Step::Pass(bytes.clone())]
        }
        (Fault::Duplicate, Position::After) => {
            vec![Step::Pass(bytes.clone()), Step::Hold, Step::Again(bytes.clone())]
        }
        (Fault::Duplicate, _) => vec![Step::Pass(before), Step::Pass(bytes.clone())],
        (Fault::Truncate, _) => vec![Step::Pass(before), Step::Cut],
        (Fault::Corrupt, Position::After) => vec![Step::Pass([bytes, GARBAGE].concat())],
        (Fault::Corrupt, _) => {
            let mut changed = bytes.clone();
            // All of it is ASCII, so that it is no UTF-8 afterwards.
            changed[at] ^= 0x80;
            vec![Step::Pass(changed)]
        }
        (Fault::StripState, _) => vec![Step::Pass(without_state(frame))],
        (Fault::Swap, _) => {
            vec![Step::Pass(replaced(bytes, operation.as_bytes(), other(operation).as_bytes()))]
        }
        (Fault::Misname, _) => vec![Step::Pass(misnamed(frame, plan.direction))],
    }
}

/// Another operation ID of the same length.
pub(super) fn other(operation: &str) -> String {
    let mut other = operation.to_owned();
    let last = other.pop().unwrap_or('a');
    other.push(if last == 'z' { 'y' } else { 'z' });
    other
}

fn without_state(frame: &Frame) -> Vec<u8> {
    let (head, body) = frame.bytes.split_at(frame.head);
    let text = String::from_utf8_lossy(body);
    const MEMBER: &str = r#""requestState":""#;
    let Some(from) = text.find(MEMBER) else { return frame.bytes.clone() };
    let end =
        text[from + MEMBER.len()..].find('"').map_or(text.len(), |at| from + MEMBER.len() + at + 1);
    // The comma before or behind it goes, too.
    let (from, end) = match (text[..from].ends_with(','), text[end..].starts_with(',')) {
        (true, _) => (from - 1, end),
        (false, true) => (from, end + 1),
        (false, false) => (from, end),
    };
    let body = format!("{}{}", &text[..from], &text[end..]);
    let head = with_length(&String::from_utf8_lossy(head), body.len());
    [head.as_bytes(), body.as_bytes()].concat()
}

fn with_length(head: &str, length: usize) -> String {
    let lines = head.split_inclusive("\r\n").map(|line| match line.split_once(':') {
        Some((name, _)) if name.eq_ignore_ascii_case("content-length") => {
            format!("{name}: {length}\r\n")
        }
        _ => line.to_owned(),
    });
    lines.collect()
}

fn misnamed(frame: &Frame, direction: Direction) -> Vec<u8> {
    debug_assert_eq!(direction, Direction::Reply, "a request may have any ID");
    let messages = frame.messages.iter().filter_map(|text| serde_json::from_slice(text).ok());
    let ids = messages.map(|message: Value| message["id"].to_string());
    let Some(id) = ids.into_iter().find(|id| id != "null") else { return frame.bytes.clone() };
    let mut changed = id.clone().into_bytes();
    let at = if id.ends_with('"') { id.len() - 2 } else { id.len() - 1 };
    changed[at] = if changed[at] == b'9' { b'8' } else { b'9' };
    let old = format!(r#""id":{id}"#);
    replaced(&frame.bytes, old.as_bytes(), &[br#""id":"#, &changed[..]].concat())
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(old.len()).position(|window| window == old) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(new);
        rest = &rest[at + old.len()..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Who, Wire};
    use super::*;

    fn frame() -> Frame {
        let body = r#"{"id":1,"requestState":"s","op":"call-a"}"#;
        let head = format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
        Frame {
            bytes: format!("{head}{body}").into_bytes(),
            head: head.len(),
            messages: vec![body.into()],
        }
    }

    fn steps_of(fault: Fault, position: Position) -> Vec<Step> {
        let direction = Direction::Reply;
        let plan = Plan { wire: Wire::HttpJson, who: Who::Raw, fault, direction, position };
        steps(&plan, &frame(), "call-a")
    }

    #[test]
    fn each_fault_does_what_it_is_called() {
        // Promise: the bytes that a fault lets through are those that its name says.
        let whole = frame().bytes;
        let last = whole.len() - 1;
        assert_eq!(
            steps_of(Fault::Drop, Position::Last),
            [Step::Pass(whole[..last].to_vec()), Step::Swallow]
        );
        assert_eq!(
            steps_of(Fault::Delay, Position::First),
            [Step::Pass(Vec::new()), Step::Hold, Step::Pass(whole.clone())]
        );
        assert_eq!(
            steps_of(Fault::Truncate, Position::After),
            [Step::Pass(whole.clone()), Step::Cut]
        );
        assert_eq!(
            steps_of(Fault::Duplicate, Position::Last),
            [Step::Pass(whole[..last].to_vec()), Step::Pass(whole.clone())]
        );
        let [Step::Pass(corrupt)] = &steps_of(Fault::Corrupt, Position::Last)[..] else {
            panic!("one step")
        };
        assert_eq!(corrupt[..last], whole[..last]);
        assert!(std::str::from_utf8(corrupt).is_err());
    }

    #[test]
    fn what_is_rewritten_stays_a_message() {
        // Promise: a stripped, swapped or misnamed message is refused for what it says, not for its
        // form.
        let text = |fault| {
            let [Step::Pass(bytes)] = &steps_of(fault, Position::First)[..] else {
                panic!("one step")
            };
            String::from_utf8(bytes.clone()).expect("text")
        };
        let stripped = text(Fault::StripState);
        assert!(
            stripped.ends_with("content-length: 22\r\n\r\n{\"id\":1,\"op\":\"call-a\"}"),
            "{stripped}"
        );
        assert!(text(Fault::Swap).contains(r#""op":"call-z""#));
        assert!(text(Fault::Misname).contains(r#""id":9,"#));
    }
}
