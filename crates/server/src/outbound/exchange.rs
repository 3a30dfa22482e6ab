//! One request and its answer over one connection.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use counterfoil_core::delivery::ErrorClass;
use http::header::{CONNECTION, CONTENT_ENCODING, HOST, HeaderValue};
use http::{HeaderMap, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};

use super::dial::{Channel, Endpoint, NoChannel};
use super::{Answer, Body, Fetched, Outbound, OutboundRequest};

impl Outbound {
    /// Sends the request once and waits for its answer. Nothing leaves unless the whole time that
    /// a request may take is left before `deadline`; at `deadline` nothing is written any more.
    pub async fn fetch(&self, request: OutboundRequest, deadline: Instant) -> Fetched {
        self.exchange(request, deadline, self.limits.total).await
    }

    /// As [`fetch`](Self::fetch) for a request without an effect: it is sent as long as any time is
    /// left, and waits no longer than `deadline`.
    pub async fn fetch_read_only(&self, request: OutboundRequest, deadline: Instant) -> Fetched {
        self.exchange(request, deadline, Duration::from_millis(1)).await
    }

    async fn exchange(
        &self,
        request: OutboundRequest,
        deadline: Instant,
        least_left: Duration,
    ) -> Fetched {
        let until = (deadline, least_left);
        let Some(to) = Endpoint::of(&request.uri) else {
            return not_sent(ErrorClass::Local, "the URL names no http service".into());
        };
        let mut message = match compose(request, self.limits.keep_idle.is_none()) {
            Ok(message) => message,
            Err(words) => return not_sent(ErrorClass::Local, words.into()),
        };
        if let Some(keep) = self.limits.keep_idle {
            while let Some(channel) = self.pool.take(&to, keep) {
                match self.send(channel, &to, message, until).await {
                    Sent::Fetched(fetched) => return fetched,
                    // The connection had closed: it gave the request back untouched.
                    Sent::Untouched(back) => message = back,
                }
            }
        }
        let channel = match self.dial(&to).await {
            Ok(channel) => channel,
            Err(NoChannel { class, words }) => return not_sent(class, words),
        };
        match self.send(channel, &to, message, until).await {
            Sent::Fetched(fetched) => fetched,
            Sent::Untouched(_) => {
                not_sent(ErrorClass::Connect, "the connection closed before it was used".into())
            }
        }
    }

    async fn send(
        &self,
        mut channel: Channel,
        to: &Endpoint,
        message: Request<Full<Bytes>>,
        (deadline, least_left): (Instant, Duration),
    ) -> Sent {
        let total = self.limits.total;
        let now = Instant::now();
        // A process that was held up must not write when its lease is another's.
        if deadline.saturating_duration_since(now) < least_left {
            let words = "too little of the lease was left to send it".into();
            return Sent::Fetched(not_sent(ErrorClass::Local, words));
        }
        let end = deadline.min(now + total);
        let answered =
            tokio::time::timeout_at(end.into(), channel.sender.try_send_request(message));
        let response = match answered.await {
            Err(_) => return Sent::Fetched(lost(format!("no answer within {total:?}"))),
            Ok(Ok(response)) => response,
            Ok(Err(mut failed)) => {
                return match failed.take_message() {
                    Some(back) => Sent::Untouched(back),
                    None => Sent::Fetched(lost(words_of(failed.error()))),
                };
            }
        };
        let (head, body) = response.into_parts();
        let body = self.read(&head.headers, body, end).await;
        if self.limits.keep_idle.is_some() && matches!(body, Body::Whole(_)) {
            self.keep(channel, to).await;
        }
        Sent::Fetched(Fetched::Answer(Answer { status: head.status, headers: head.headers, body }))
    }

    async fn read(&self, headers: &HeaderMap, mut body: Incoming, end: Instant) -> Body {
        let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
        if encodings.any(|it| !it.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Body::Unreadable("it came encoded, which was not asked for");
        }
        let most = self.limits.max_answer_bytes;
        if body.size_hint().lower() > most as u64 {
            return Body::Unreadable("it is longer than allowed");
        }
        let mut whole = BytesMut::new();
        loop {
            match tokio::time::timeout_at(end.into(), body.frame()).await {
                Err(_) => return Body::Unreadable("it did not end in time"),
                Ok(None) => return Body::Whole(whole.freeze()),
                Ok(Some(Err(_))) => return Body::Unreadable("it ended too soon"),
                Ok(Some(Ok(frame))) => {
                    let Ok(piece) = frame.into_data() else { continue };
                    if whole.len() + piece.len() > most {
                        return Body::Unreadable("it is longer than allowed");
                    }
                    whole.extend_from_slice(&piece);
                }
            }
        }
    }

    /// Keeps the connection if it can carry another request at once.
    async fn keep(&self, mut channel: Channel, to: &Endpoint) {
        const MOMENT: Duration = Duration::from_millis(5);
        if matches!(tokio::time::timeout(MOMENT, channel.sender.ready()).await, Ok(Ok(()))) {
            self.pool.give(to.clone(), channel);
        }
    }
}

/// What one connection made of a request.
enum Sent {
    Fetched(Fetched),
    /// Nothing was written: here it is again.
    Untouched(Request<Full<Bytes>>),
}

fn not_sent(class: ErrorClass, words: String) -> Fetched {
    Fetched::NotSent { class, words }
}

const fn lost(words: String) -> Fetched {
    Fetched::Lost { words }
}

/// The request as it goes over the wire: the path in its first line, the host in a header.
fn compose(request: OutboundRequest, alone: bool) -> Result<Request<Full<Bytes>>, &'static str> {
    let OutboundRequest { method, uri, headers, body } = request;
    let authority = uri.authority().ok_or("the URL has no host")?;
    if authority.as_str().contains('@') {
        return Err("the URL holds a user name; give a credential instead");
    }
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| "the host is unusable")?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path: Uri = path.parse().map_err(|_| "the path is unusable")?;
    let mut message = Request::new(Full::new(body));
    *message.method_mut() = method;
    *message.uri_mut() = path;
    *message.headers_mut() = headers;
    message.headers_mut().insert(HOST, host);
    if alone {
        message.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(message)
}

/// The deepest cause: hyper's own words name none.
fn words_of(error: &hyper::Error) -> String {
    if error.is_parse() {
        return "what came is no HTTP answer".into();
    }
    if error.is_incomplete_message() {
        return "the connection was closed before an answer came".into();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    format!("the connection ended before an answer came: {cause}")
}
