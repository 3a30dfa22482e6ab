//! The gate before the SDK: who, how much, and the message itself read raw. What passes carries its
//! caller and its lossless form with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::BytesMut;
use counterfoil_core::identity::Caller;
use counterfoil_core::refusal::{Code, Refusal};
use counterfoil_engine::Engine;
use futures_util::StreamExt;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, StatusCode};
use rmcp::model::{ErrorCode, ErrorData};
use tokio_util::sync::CancellationToken;

use super::auth::Auth;
use super::held::HeldBody;
use super::limits::{HttpLimits, Kind, Limited, Permit, Principals};
use super::names::Names;
use super::sessions::{InUse, Reservation, Sessions};
use super::{refuse, versions};
use crate::handler::GatedCall;
use crate::metrics::Metrics;
use crate::tokens::Right;
use crate::tools::reply;
use crate::wire::{self, Body as Message, BodyRequest};

/// A body of a principal that is over its limit is read up to here, to tell the caller of a tool
/// in the tool's own terms.
const LIMITED_BODY_BYTES: usize = 64 * 1024;

/// What the gate goes by.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) auth: Auth,
    pub(super) names: Names,
    pub(super) limits: HttpLimits,
    pub(super) principals: Arc<Principals>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) engine: Arc<Engine>,
    /// Cancelled when the server begins to stop.
    pub(super) stopping: CancellationToken,
}

/// A request that was let in but not yet read.
struct Entered {
    caller: Caller,
    /// What it takes of the principal's share; or that there is none left.
    taken: Result<Permit, Limited>,
}

/// What a response holds on to until it is sent.
#[derive(Debug)]
struct Holds {
    _permit: Option<Permit>,
    _session: Option<InUse>,
    _counted: crate::metrics::Held,
}

/// Lets a request through to the SDK, or answers it.
pub(super) async fn pass(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let counted = gate.metrics.in_flight.hold();
    let mut method = None;
    let passed = gate.answer(request, next, &mut method).await;
    let (mut response, holds, is_stream) = match passed {
        Ok(passed) => (passed.response, (passed.permit, passed.session), passed.is_stream),
        Err(response) => (*response, (None, None), false),
    };
    gate.metrics.count_request(method.as_deref(), response.status().as_u16());
    refuse::mark(&mut response);
    let holds = Holds { _permit: holds.0, _session: holds.1, _counted: counted };
    response.map(|body| {
        Body::new(if is_stream {
            HeldBody::until(body, holds, gate.stopping.clone())
        } else {
            HeldBody::new(body, holds)
        })
    })
}

/// The answer of the SDK, with what it holds on to.
struct Passed {
    response: Response,
    permit: Option<Permit>,
    session: Option<InUse>,
    /// A stream without an end of its own.
    is_stream: bool,
}

impl Gate {
    async fn answer(
        &self,
        request: Request,
        next: Next,
        method: &mut Option<String>,
    ) -> Result<Passed, Box<Response>> {
        let entered = self.enter(&request)?;
        let (parts, body) = request.into_parts();
        if parts.method != Method::POST {
            return self.stream(entered, Request::from_parts(parts, body), next).await;
        }
        let max_bytes = match &entered.taken {
            Ok(_) => self.limits.json.max_bytes,
            Err(_) => LIMITED_BODY_BYTES,
        };
        let read = self.read(&parts.headers, body, max_bytes).await;
        let bytes = match (read, &entered.taken) {
            (Ok(bytes), _) => bytes,
            (Err(_), Err(limited)) => return Err(too_many(limited, None).into()),
            (Err(response), Ok(_)) => return Err(response),
        };
        let message = wire::read_body(&bytes, &self.limits.json).map_err(|refused| {
            tracing::debug!(code = refused.code, "refused a body");
            // MCP 2026-07-28, Streamable HTTP: a method that is not there is 404.
            let status = match ErrorCode(refused.code) {
                ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
                _ => StatusCode::BAD_REQUEST,
            };
            Box::new(refuse::json(status, refused.reply))
        })?;
        let call = match &message {
            Message::Request(call) => Some(call),
            _ => None,
        };
        *method = call.map(|call| call.method.clone());
        let permit = entered.taken.map_err(|limited| Box::new(self.limited(&limited, call)))?;
        match &message {
            Message::IgnoredNotification => {
                return Err(refuse::plain(StatusCode::ACCEPTED, "ignored").into());
            }
            Message::UnreadableReply => {
                let error = ErrorData::invalid_request("this answers no request of ours", None);
                return Err(refuse::rpc(StatusCode::BAD_REQUEST, None, &error).into());
            }
            Message::Request(_) | Message::Message => {}
        }
        let mut request = Request::from_parts(parts, Body::from(bytes));
        let (session, reservation) = self.session(&entered.caller, request.headers(), call).await?;
        if let Some(call) = call {
            let gated = GatedCall { caller: entered.caller, raw: call.raw.clone() };
            request.extensions_mut().insert(gated);
        }
        let response = next.run(request).await;
        if let Some(reservation) = reservation
            && let Some(id) = response.headers().get(versions::SESSION_HEADER)
        {
            let id = id.to_str().unwrap_or_default();
            self.sessions.bind(id, reservation).await;
        }
        Ok(Passed { response, permit: Some(permit), session, is_stream: false })
    }

    /// Everything that is checked before anything of a body is read.
    fn enter(&self, request: &Request) -> Result<Entered, Box<Response>> {
        if request.uri().query().is_some() {
            self.metrics.count_refused_login("query");
            return Err(refuse::and_close(refuse::plain(
                StatusCode::BAD_REQUEST,
                "this endpoint takes no query string; a token belongs into the header \
                 Authorization, and one that was sent in a URL should be revoked",
            ))
            .into());
        }
        let caller = self.auth.caller(request.headers(), Right::Tools, self.engine.now());
        let caller = caller.map_err(|refused| {
            self.metrics.count_refused_login(refused.word());
            Box::new(refused.response())
        })?;
        let kind = if request.method() == Method::GET { Kind::Stream } else { Kind::Request };
        let taken = self.principals.take(&caller, kind, Instant::now());
        Ok(Entered { caller, taken })
    }

    /// A request without a message: an older client opens a stream or ends its session.
    async fn stream(
        &self,
        entered: Entered,
        request: Request,
        next: Next,
    ) -> Result<Passed, Box<Response>> {
        let permit = entered.taken.map_err(|limited| Box::new(too_many(&limited, None)))?;
        let is_stream = request.method() == Method::GET;
        let (session, _) = self.session(&entered.caller, request.headers(), None).await?;
        let mut response = next.run(request).await;
        if response.status() == StatusCode::ACCEPTED {
            // A session that is ended: some clients take 202 for a failure.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        Ok(Passed { response, permit: Some(permit), session, is_stream })
    }

    async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
        max_bytes: usize,
    ) -> Result<Bytes, Box<Response>> {
        let too_large = || {
            let words =
                format!("the body has over {max_bytes} bytes, which is the limit; send less");
            let error = ErrorData::parse_error(words, None);
            Box::new(refuse::and_close(refuse::rpc(StatusCode::PAYLOAD_TOO_LARGE, None, &error)))
        };
        let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let announced = announced.and_then(|length| length.parse::<usize>().ok());
        if announced.is_some_and(|length| length > max_bytes) {
            return Err(too_large());
        }
        let collected = collect(body.into_data_stream(), max_bytes);
        match tokio::time::timeout(self.limits.body_time, collected).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(Unread::TooLarge)) => Err(too_large()),
            Ok(Err(Unread::Broken)) => {
                let words = "the body ended before its end";
                Err(refuse::and_close(refuse::plain(StatusCode::BAD_REQUEST, words)).into())
            }
            Err(_) => {
                let seconds = self.limits.body_time.as_secs_f64();
                let words = format!("the body did not arrive within {seconds} s; nothing was done");
                Err(refuse::and_close(refuse::plain(StatusCode::REQUEST_TIMEOUT, words)).into())
            }
        }
    }

    /// The session that a request uses, or the place for one that it opens.
    async fn session(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        call: Option<&BodyRequest>,
    ) -> Result<(Option<InUse>, Option<Reservation>), Box<Response>> {
        let id = call.map(|call| &call.id);
        let opens = call.is_some_and(|call| call.method == "initialize");
        versions::check(headers, id, opens)?;
        match versions::session_id(headers, id)? {
            Some(session) => match self.sessions.use_by(session, caller) {
                Some(in_use) => Ok((Some(in_use), None)),
                None => {
                    // The same whether there is none or it is another's.
                    let words = "there is no such session, or it has ended: initialize again";
                    let error = ErrorData::invalid_request(words, None);
                    Err(refuse::rpc(StatusCode::NOT_FOUND, id, &error).into())
                }
            },
            None if opens => match self.sessions.reserve(caller).await {
                Ok(reservation) => Ok((None, Some(reservation))),
                Err(_) => {
                    let words = "this principal has as many sessions in use as it may; end one, or \
                                 use protocol version 2026-07-28, which needs none";
                    let error = ErrorData::internal_error(words, None);
                    let response = refuse::rpc(StatusCode::SERVICE_UNAVAILABLE, id, &error);
                    Err(refuse::retry_after(response, Duration::from_secs(1)).into())
                }
            },
            None => Ok((None, None)),
        }
    }

    /// The answer to a principal that is over its limit: a tool's caller reads it as a refusal of
    /// the tool, with what to do next.
    fn limited(&self, limited: &Limited, call: Option<&BodyRequest>) -> Response {
        let Some(call) = call.filter(|call| call.method == "tools/call") else {
            return too_many(limited, call);
        };
        let tool = call.raw.params().and_then(|params| params.get("name"));
        self.metrics.count_limited_call(tool.and_then(|name| name.as_str()));
        let words = format!(
            "{}; nothing was done, send the same call again after {} ms",
            limited.limit,
            limited.retry_after.as_millis().max(1)
        );
        let id = crate::tools::arguments::operation_id_of(&call.raw);
        let refusal = Refusal::new(Code::RateLimited, words, id);
        let reply = wire::result_reply(&call.id, &reply::refused(&refusal));
        refuse::retry_after(refuse::json(StatusCode::OK, reply), limited.retry_after)
    }
}

fn too_many(limited: &Limited, call: Option<&BodyRequest>) -> Response {
    let words = format!("{}; nothing was done, try again later", limited.limit);
    let error = ErrorData::internal_error(words, None);
    let id = call.map(|call| &call.id);
    let response = refuse::rpc(StatusCode::TOO_MANY_REQUESTS, id, &error);
    refuse::retry_after(response, limited.retry_after)
}

/// Why a body was not read to its end.
enum Unread {
    TooLarge,
    Broken,
}

/// Reads a body of at most `max_bytes`. Takes memory as bytes come, not as they are announced.
async fn collect(mut body: BodyDataStream, max_bytes: usize) -> Result<Bytes, Unread> {
    let Some(first) = body.next().await else { return Ok(Bytes::new()) };
    let first = first.map_err(|_| Unread::Broken)?;
    let mut all: Option<BytesMut> = None;
    while let Some(next) = body.next().await {
        let next = next.map_err(|_| Unread::Broken)?;
        let all = all.get_or_insert_with(|| BytesMut::from(&first[..]));
        if all.len() + next.len() > max_bytes {
            return Err(Unread::TooLarge);
        }
        all.extend_from_slice(&next);
    }
    match all {
        Some(all) => Ok(all.freeze()),
        None if first.len() > max_bytes => Err(Unread::TooLarge),
        None => Ok(first),
    }
}
