//! The first thing that a request meets: by which name it came, and from which page. Pages of
//! allowed origins are told what their browser wants to know (Fetch Standard, CORS protocol).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, VARY,
};
use http::{Method, StatusCode};

use super::gate::Gate;

/// Headers of our answers that a page may read.
const READABLE: HeaderValue =
    HeaderValue::from_static("mcp-session-id, www-authenticate, retry-after");
/// How a page may call.
const METHODS: HeaderValue = HeaderValue::from_static("POST, GET, DELETE");
/// How long a browser may remember that, in seconds.
const REMEMBERED_S: HeaderValue = HeaderValue::from_static("600");

/// Lets a request by if its name and its page are allowed.
pub(super) async fn admit(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let origin = match gate.names.check(request.uri(), request.headers()) {
        Ok(Some(origin)) => origin,
        Ok(None) => return next.run(request).await,
        Err(refused) => {
            gate.metrics.count_request(None, refused.status().as_u16());
            return *refused;
        }
    };
    let mut response =
        if is_preflight(&request) { preflight(&request) } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, READABLE);
    headers.append(VARY, HeaderValue::from_static("Origin"));
    response
}

/// A browser's question, which carries no token and does nothing.
fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight(request: &Request) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, REMEMBERED_S);
    // `Mcp-Param-*` has no end of names, and the origin was allowed by an operator.
    if let Some(wanted) = request.headers().get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    response
}
