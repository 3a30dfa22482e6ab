//! The SDK's HTTP client over [`Exchange`]: which answer is MCP, and which is only HTTP.
//!
//! The SDK chooses headers and sessions. What it would do to repeat a request is switched off:
//! sessions are not begun anew under one, and no stream is resumed.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::NeverRetry;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::exchange::Body;
use super::{Exchange, HttpProblem};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

type Failure = StreamableHttpError<HttpProblem>;

impl Exchange {
    /// As a transport of the SDK.
    pub(crate) fn into_transport(self) -> StreamableHttpClientTransport<Self> {
        // The address and the token are the exchange's own: the SDK's settings are printed.
        let mut config = StreamableHttpClientTransportConfig::with_uri("http://server.invalid/");
        config.reinit_on_expired_session = false;
        config.retry_config = Arc::new(NeverRetry::default());
        StreamableHttpClientTransport::with_client(self, config)
    }

    /// The answer to a POST.
    async fn judge(
        &self,
        message: &ClientJsonRpcMessage,
        response: Response<Body>,
    ) -> Result<StreamableHttpPostResponse, HttpProblem> {
        let id = match message {
            JsonRpcMessage::Request(request) => Some(&request.id),
            _ => None,
        };
        let status = response.status();
        let session = session_of(response.headers());
        match (kind_of(response.headers()), id) {
            (_, None) if status.is_success() => Ok(StreamableHttpPostResponse::Accepted),
            (_, Some(_)) if matches!(status.as_u16(), 202 | 204) => {
                Err(self.not_mcp("it took the request and answers nothing"))
            }
            (Kind::Json, Some(_)) if status.is_success() => {
                let body = response.into_body().collect().await?;
                let reply = serde_json::from_slice(&body);
                let reply = reply.map_err(|_| self.not_mcp("the body is no JSON-RPC message"))?;
                Ok(StreamableHttpPostResponse::Json(with_id(reply, id), session))
            }
            (Kind::Events, Some(_)) if status.is_success() => {
                let events = SseStream::from_bytes_stream(response.into_body()).boxed();
                Ok(StreamableHttpPostResponse::Sse(events, session))
            }
            (_, Some(_)) if status.is_success() => {
                Err(self.not_mcp("it is neither JSON nor a stream of events"))
            }
            (kind, Some(id)) => self.judge_refusal(message, id, kind, response).await,
            (_, None) => Err(self.status_of(&response)),
        }
    }

    /// An answer with a status of failure. A JSON-RPC error in it is the server's own word, where
    /// it is not about who may call, nor about a failure of whoever answers; for the SDK's first question any refusal but those says that
    /// the server is of an older revision.
    async fn judge_refusal(
        &self,
        message: &ClientJsonRpcMessage,
        id: &RequestId,
        kind: Kind,
        response: Response<Body>,
    ) -> Result<StreamableHttpPostResponse, HttpProblem> {
        let status = response.status();
        let only_http = self.status_of(&response);
        let about_caller = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if about_caller || status.is_redirection() {
            return Err(only_http);
        }
        let request = match message {
            JsonRpcMessage::Request(message) => &message.request,
            _ => return Err(only_http),
        };
        let is_call = matches!(request, ClientRequest::CallToolRequest(_));
        // Whatever a gateway that failed writes, it may have passed the request on before.
        let is_busy = status == StatusCode::TOO_MANY_REQUESTS;
        if status.is_server_error() || (is_busy && !is_call) {
            return Err(only_http);
        }
        if matches!(kind, Kind::Json) {
            let body = response.into_body().collect().await?;
            if let Ok(error @ JsonRpcMessage::Error(_)) = serde_json::from_slice(&body) {
                self.note(None);
                return Ok(StreamableHttpPostResponse::Json(with_id(error, Some(id)), None));
            }
        }
        if matches!(request, ClientRequest::DiscoverRequest(_)) {
            let error = ErrorData::invalid_request(only_http.to_string(), None);
            let error = ServerJsonRpcMessage::error(error, Some(id.clone()));
            return Ok(StreamableHttpPostResponse::Json(error, None));
        }
        Err(only_http)
    }
}

impl StreamableHttpClient for Exchange {
    type Error = HttpProblem;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let body = serde_json::to_vec(&message)?;
        let headers = headers_of(session_id.as_deref(), custom_headers);
        // Only a request's failure is the session's: a notification may fail beside it.
        let is_request = matches!(message, JsonRpcMessage::Request(_));
        let exchange = if is_request { self.clone() } else { self.aside() };
        let response = exchange.send(Method::POST, headers, body).await;
        let response = response.map_err(StreamableHttpError::Client)?;
        exchange.judge(&message, response).await.map_err(StreamableHttpError::Client)
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let headers = headers_of(Some(&session_id), custom_headers);
        let ended = self.aside().send(Method::DELETE, headers, Vec::new()).await;
        ended.map(drop).map_err(StreamableHttpError::Client)
    }

    /// Never: a stream that is resumed would hide a loss, and what a server says on its own does
    /// not matter for one call.
    async fn get_stream(
        &self,
        _uri: Arc<str>,
        _session_id: Option<Arc<str>>,
        _last_event_id: Option<String>,
        _auth_header: Option<String>,
        _custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        Err(StreamableHttpError::ServerDoesNotSupportSse)
    }
}

/// What a body is, by its media type.
enum Kind {
    Json,
    Events,
    Other,
}

fn kind_of(headers: &HeaderMap) -> Kind {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Kind::Json
    } else if essence.eq_ignore_ascii_case("text/event-stream") {
        Kind::Events
    } else {
        Kind::Other
    }
}

fn session_of(headers: &HeaderMap) -> Option<String> {
    headers.get(SESSION_ID)?.to_str().ok().map(str::to_owned)
}

fn headers_of(session: Option<&str>, more: HashMap<HeaderName, HeaderValue>) -> HeaderMap {
    let mut headers: HeaderMap = more.into_iter().collect();
    if let Some(session) = session.and_then(|session| HeaderValue::from_str(session).ok()) {
        headers.insert(SESSION_ID, session);
    }
    headers
}

/// The one answer of an HTTP request is the answer to it, though an error may not name it.
fn with_id(mut reply: ServerJsonRpcMessage, id: Option<&RequestId>) -> ServerJsonRpcMessage {
    if let JsonRpcMessage::Error(error) = &mut reply
        && error.id.is_none()
    {
        error.id = id.cloned();
    }
    reply
}
