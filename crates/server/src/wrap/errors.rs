//! Replies of the relay's own: what it cannot pass on, it answers.

use bytes::Bytes;
use serde_json::{Value, json};

use super::frame::{NotAFrame, Pieces};

pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
pub(super) const INVALID_PARAMS: i32 = -32602;
pub(super) const INTERNAL_ERROR: i32 = -32603;
/// MCP 2026-07-28: no revision in common.
pub(super) const UNSUPPORTED_REVISION: i32 = -32022;

/// An error reply to the request with this raw ID; to none that could be read if there is no ID.
pub(super) fn error_line(id: Option<&[u8]>, code: i32, message: &str) -> Pieces {
    reply_line(id, "error", error_member(code, message))
}

/// Raw JSON of an `error` member.
pub(super) fn error_member(code: i32, message: &str) -> Bytes {
    json!({ "code": code, "message": message }).to_string().into()
}

/// The same with the revisions that are understood (MCP 2026-07-28).
pub(super) fn revision_error(message: &str, supported: &[&str], requested: Option<&str>) -> Bytes {
    let data = json!({ "supported": supported, "requested": requested });
    json!({ "code": UNSUPPORTED_REVISION, "message": message, "data": data }).to_string().into()
}

/// A reply with one raw member, `result` or `error`.
pub(super) fn reply_line(id: Option<&[u8]>, member: &str, body: Bytes) -> Pieces {
    let mut head = br#"{"jsonrpc":"2.0","id":"#.to_vec();
    head.extend_from_slice(id.unwrap_or(b"null"));
    head.extend_from_slice(format!(",\"{member}\":").as_bytes());
    [head.into(), body, Bytes::from_static(b"}")].into_iter().collect()
}

/// The code of a refused line.
pub(super) fn code_of(fault: NotAFrame) -> i32 {
    match fault {
        NotAFrame::NotJson => PARSE_ERROR,
        NotAFrame::NotAMessage => INVALID_REQUEST,
        NotAFrame::Ambiguous => INVALID_PARAMS,
    }
}

/// `notifications/cancelled` for a request with the number `id`.
pub(super) fn cancelled_line(id: u64, reason: &str) -> Pieces {
    let reason = Value::from(reason);
    let line = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":{reason}}}}}"#
    );
    Bytes::from(line).into()
}
