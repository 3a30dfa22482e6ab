//! One request over one connection of its own. Where it fails, what is known of the request is
//! kept: whether it may have left.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyDataStream, BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::task::AbortOnDropHandle;

use super::{HttpProblem, Line};

/// An answer that is longer is not read to its end.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The requests of one session, and why the last of them got no answer.
#[derive(Clone)]
pub(crate) struct Exchange {
    line: Arc<Line>,
    last: Arc<Mutex<Option<HttpProblem>>>,
}

/// The body of an answer, in pieces. Once it is dropped, its connection is closed.
pub(super) struct Body {
    inner: BodyDataStream<Limited<Incoming>>,
    exchange: Exchange,
    _connection: AbortOnDropHandle<()>,
}

impl Exchange {
    /// For a new session.
    pub(super) fn new(line: Arc<Line>) -> Self {
        Self { line, last: Arc::default() }
    }

    /// Why the last request got no answer of MCP; `None` if it got one, or none was needed.
    pub(crate) fn problem(&self) -> Option<HttpProblem> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same session's, for a request whose failure does not matter.
    pub(super) fn aside(&self) -> Self {
        Self::new(self.line.clone())
    }

    pub(super) fn note(&self, problem: Option<HttpProblem>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    /// Sends a request with these headers beside its own, over a connection that carries no other,
    /// and returns the answer once its head is here.
    ///
    /// # Errors
    /// [`HttpProblem`], by which it is known whether anything left.
    pub(super) async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response<Body>, HttpProblem> {
        self.note(None);
        let sent = self.send_on_new_connection(method, headers, body).await;
        if let Err(problem) = &sent {
            self.note(Some(problem.clone()));
        }
        sent
    }

    async fn send_on_new_connection(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response<Body>, HttpProblem> {
        let request = self.request(method, headers, body)?;
        let stream = self.dial().await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| ended(&error))?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to the server ended");
            }
        }));
        let response = sender.send_request(request).await.map_err(|error| ended(&error))?;
        Ok(response.map(|body| Body {
            inner: Limited::new(body, MOST_BYTES).into_data_stream(),
            exchange: self.clone(),
            _connection: connection,
        }))
    }

    fn request(
        &self,
        method: Method,
        more: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Request<Full<Bytes>>, HttpProblem> {
        let Line { url, token, .. } = &*self.line;
        let unusable = |_| self.unreachable("its name cannot stand in a request");
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() =
            url.path().parse().map_err(|_| self.unreachable("its path cannot be sent"))?;
        let headers = request.headers_mut();
        headers.extend(more);
        headers.insert(HOST, HeaderValue::from_str(url.authority()).map_err(unusable)?);
        let me = concat!("counterfoil/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(me));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let accepted = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, accepted);
        match token {
            Some(token) => headers.insert(AUTHORIZATION, token.0.clone()),
            None => headers.remove(AUTHORIZATION),
        };
        Ok(request)
    }

    /// A connection, through TLS where the address says so.
    async fn dial(&self) -> Result<Box<dyn Wire>, HttpProblem> {
        let limit = self.line.connect_timeout;
        timeout(limit, self.dial_unbounded())
            .await
            .unwrap_or_else(|_| Err(self.unreachable(&format!("none within {limit:?}"))))
    }

    async fn dial_unbounded(&self) -> Result<Box<dyn Wire>, HttpProblem> {
        let Line { url, tls, stays_here, .. } = &*self.line;
        let stream = TcpStream::connect((url.host(), url.port())).await;
        let stream = stream.map_err(|error| self.unreachable(&error.to_string()))?;
        let peer = stream.peer_addr().map_err(|error| self.unreachable(&error.to_string()))?;
        if *stays_here && !peer.ip().is_loopback() {
            return Err(self.unreachable("its name led to another machine, and it has no TLS"));
        }
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small packets may wait");
        }
        let Some(tls) = tls else { return Ok(Box::new(stream)) };
        let no_tls = |why: String| HttpProblem::Tls { server: url.to_string(), why };
        let name = ServerName::try_from(url.host().to_owned());
        let name = name.map_err(|error| no_tls(error.to_string()))?;
        let stream = TlsConnector::from(tls.clone()).connect(name, stream).await;
        Ok(Box::new(stream.map_err(|error| no_tls(error.to_string()))?))
    }

    fn unreachable(&self, why: &str) -> HttpProblem {
        HttpProblem::Unreachable { server: self.line.url.to_string(), why: why.to_owned() }
    }

    /// What HTTP answered in place of MCP.
    pub(super) fn status_of<B>(&self, response: &Response<B>) -> HttpProblem {
        let wait = response.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok());
        let problem = HttpProblem::Status {
            status: response.status().as_u16(),
            had_token: self.line.token.is_some(),
            retry_after_s: wait.and_then(|wait| wait.trim().parse().ok()),
        };
        self.note(Some(problem.clone()));
        problem
    }

    pub(super) fn not_mcp(&self, what: &'static str) -> HttpProblem {
        let problem = HttpProblem::NotMcp(what);
        self.note(Some(problem.clone()));
        problem
    }
}

impl Body {
    /// The whole body.
    ///
    /// # Errors
    /// [`HttpProblem`] if it ends too soon or is too long.
    pub(super) async fn collect(mut self) -> Result<Vec<u8>, HttpProblem> {
        use futures_util::TryStreamExt as _;
        let mut all = Vec::new();
        while let Some(piece) = self.try_next().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }
}

impl Stream for Body {
    type Item = Result<Bytes, HttpProblem>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = std::task::ready!(Pin::new(&mut self.inner).poll_next(cx));
        Poll::Ready(next.map(|piece| {
            piece.map_err(|error| {
                let problem = if error.is::<LengthLimitError>() {
                    HttpProblem::NotMcp("its answer is longer than 16 MiB")
                } else {
                    HttpProblem::Ended("in the middle of it".into())
                };
                self.exchange.note(Some(problem.clone()));
                problem
            })
        }))
    }
}

/// A stream of bytes both ways.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// From here on the request may have left, whatever is said.
fn ended(error: &hyper::Error) -> HttpProblem {
    if error.is_parse() {
        return HttpProblem::NotMcp("it does not speak HTTP/1.1 here; is it https, or http?");
    }
    if error.is_incomplete_message() {
        return HttpProblem::Ended("the server closed it".into());
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let words = match cause.downcast_ref::<io::Error>() {
        Some(error) => error.to_string(),
        None => error.to_string(),
    };
    HttpProblem::Ended(words)
}
