//! The headers of the protocol itself: which revision, and which session.

use axum::response::Response;
use http::{HeaderMap, HeaderName, StatusCode};
use rmcp::model::{ErrorCode, ErrorData};
use serde_json::json;

use super::refuse;
use crate::wire::{self, WireId};

/// Names a session of an older client.
pub(super) const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
/// Names the revision that a message speaks.
pub(super) const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// Holds the revision's header against those that are served. `opens`: the message is an
/// `initialize`, which negotiates, so that the SDK judges it.
///
/// # Errors
/// The answer: 400 with -32022 for a revision that is not served, -32020 for a header that does
/// not say one, or is missing inside of a session.
pub(super) fn check(
    headers: &HeaderMap,
    id: Option<&WireId>,
    opens: bool,
) -> Result<(), Box<Response>> {
    if opens {
        return Ok(());
    }
    let served = wire::supported_versions();
    match one(headers, &VERSION_HEADER, id)? {
        None if headers.contains_key(SESSION_HEADER) => {
            let words = "the header MCP-Protocol-Version is missing; after initialize every \
                         request names the version that was agreed on";
            Err(mismatch(id, words).into())
        }
        None => Ok(()),
        Some(version) if served.iter().any(|known| known.as_str() == version) => Ok(()),
        Some(version) => {
            let requested: String = version.chars().take(64).collect();
            let known: Vec<&str> = served.iter().map(|version| version.as_str()).collect();
            let error = ErrorData::new(
                ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
                format!("this protocol version is not served; use one of {}", known.join(", ")),
                Some(json!({ "requested": requested, "supported": known })),
            );
            Err(refuse::rpc(StatusCode::BAD_REQUEST, id, &error).into())
        }
    }
}

/// The session that a request names, whatever its revision: by no other header does a request get
/// at another's session.
///
/// # Errors
/// The answer: 400 if the header does not say one session.
pub(super) fn session_id<'a>(
    headers: &'a HeaderMap,
    id: Option<&WireId>,
) -> Result<Option<&'a str>, Box<Response>> {
    one(headers, &SESSION_HEADER, id)
}

fn one<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    id: Option<&WireId>,
) -> Result<Option<&'a str>, Box<Response>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(value), None) => Ok(Some(value)),
        _ => Err(mismatch(id, &format!("the header {name} must come once and be ASCII")).into()),
    }
}

fn mismatch(id: Option<&WireId>, words: &str) -> Response {
    let error = ErrorData::header_mismatch(words.to_owned(), None);
    refuse::rpc(StatusCode::BAD_REQUEST, id, &error)
}
