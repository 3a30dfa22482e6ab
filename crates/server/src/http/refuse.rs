//! The answers of the gate itself: a status, words that say rule and remedy, and no content.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use rmcp::model::ErrorData;

use crate::wire::{self, WireId};

/// Words for people.
pub(super) fn plain(status: StatusCode, words: impl Into<String>) -> Response {
    let mut words = words.into();
    words.push('\n');
    answer(status, "text/plain; charset=utf-8", words.into_bytes())
}

/// A JSON-RPC error.
pub(super) fn rpc(status: StatusCode, id: Option<&WireId>, error: &ErrorData) -> Response {
    json(status, wire::error_reply(id, error))
}

/// A JSON-RPC reply as bytes.
pub(super) fn json(status: StatusCode, reply: Vec<u8>) -> Response {
    answer(status, "application/json", reply)
}

/// 401, with the challenge of RFC 6750, section 3; `error` is its error code.
pub(super) fn challenge(
    status: StatusCode,
    error: Option<&'static str>,
    words: &'static str,
) -> Response {
    let mut response = plain(status, words);
    let value = match error {
        None => HeaderValue::from_static("Bearer"),
        Some(error) => {
            let text = format!("Bearer error=\"{error}\", error_description=\"{words}\"");
            HeaderValue::from_str(&text).expect("the words are ASCII without quotes")
        }
    };
    response.headers_mut().insert(WWW_AUTHENTICATE, value);
    response
}

/// The same answer, which names the time to wait in whole seconds (RFC 9110, section 10.2.3).
pub(super) fn retry_after(mut response: Response, wait: Duration) -> Response {
    let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// The same answer, after which the connection ends: the rest of the request is not read.
pub(super) fn and_close(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Marks what must not be kept, and not be taken for something else.
pub(super) fn mark(response: &mut Response) {
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

fn answer(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    mark(&mut response);
    response
}
