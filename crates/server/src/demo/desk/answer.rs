//! One connection of the help desk: HTTP/1.1, and the ways in which an answer can go wrong.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::Desk;
use super::book::Filed;
use super::fault::{Fault, Kind};

const MAX_BODY_BYTES: usize = 1 << 20;

type Answer = Response<Full<Bytes>>;

/// Ends the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the help desk resets this connection")]
struct Reset;

/// Answers the requests of one connection.
pub(super) async fn connection(desk: Arc<Desk>, stream: TcpStream) {
    let resets = Arc::new(AtomicBool::new(false));
    let io = TokioIo::new(Resettable { stream, resets: Arc::clone(&resets) });
    let service = service_fn(move |request| {
        let (desk, resets) = (Arc::clone(&desk), Arc::clone(&resets));
        async move {
            let answer = answer(&desk, request).await;
            resets.store(answer.is_err(), Ordering::Relaxed);
            answer
        }
    });
    // What ends a connection is the client's affair, or was told to.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
}

async fn answer(desk: &Desk, request: Request<Incoming>) -> Result<Answer, Reset> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match (method, path.as_str()) {
        (Method::GET, "/account") => Ok(json_answer(StatusCode::OK, &json!(desk.account()))),
        (Method::GET, "/tickets") => {
            let tickets = json!({ "tickets": desk.book().tickets() });
            Ok(json_answer(StatusCode::OK, &tickets))
        }
        (Method::POST, "/tickets") => file(desk, request).await,
        _ => Ok(refusal(StatusCode::NOT_FOUND, "there is only /tickets and /account")),
    }
}

/// The texts of a ticket.
#[derive(Debug, Deserialize)]
struct Texts {
    subject: String,
    description: String,
}

async fn file(desk: &Desk, request: Request<Incoming>) -> Result<Answer, Reset> {
    let given = |name: header::HeaderName| {
        request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    if let Some(token) = &desk.token
        && given(header::AUTHORIZATION) != Some(format!("Bearer {token}"))
    {
        return Ok(refusal(StatusCode::UNAUTHORIZED, "the token is missing or wrong"));
    }
    let key = given(header::HeaderName::from_static("idempotency-key"));
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await;
    let texts = body.ok().and_then(|it| serde_json::from_slice::<Texts>(&it.to_bytes()).ok());
    let Some(texts) = texts else {
        return Ok(refusal(StatusCode::BAD_REQUEST, "give subject and description as JSON"));
    };
    desk.requests.fetch_add(1, Ordering::Relaxed);
    let fault = desk.next_fault();
    if fault.is_some_and(|fault| !fault.applied) {
        return wrong(desk, fault.expect("it was looked at")).await;
    }
    let key = key.filter(|_| !desk.ignores_keys);
    // The write blocks this thread for the length of one write to the disk, which a desk may.
    let filed = desk.book().file(key.as_deref(), &texts.subject, &texts.description);
    let (status, id) = match filed {
        Ok(Filed::New(id)) => (StatusCode::CREATED, id),
        Ok(Filed::Again(id)) => {
            desk.repeats.fetch_add(1, Ordering::Relaxed);
            (StatusCode::OK, id)
        }
        Ok(Filed::KeyReused) => {
            return Ok(refusal(StatusCode::UNPROCESSABLE_ENTITY, "key_reused"));
        }
        Err(error) => {
            tracing::error!(%error, "the ticket could not be written");
            return Ok(refusal(StatusCode::INTERNAL_SERVER_ERROR, "the ticket was not written"));
        }
    };
    match fault {
        Some(fault) => wrong(desk, fault).await,
        None => Ok(json_answer(status, &json!({ "id": id }))),
    }
}

/// Goes wrong; whether the ticket was filed is settled by now.
async fn wrong(desk: &Desk, fault: Fault) -> Result<Answer, Reset> {
    match fault.kind {
        Kind::Error => Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, "out of order")),
        Kind::Html => {
            let page = "<html><body><h1>502 Bad Gateway</h1></body></html>";
            Ok(page_answer(StatusCode::BAD_GATEWAY, "text/html", page.into()))
        }
        Kind::Busy => {
            let mut answer = refusal(StatusCode::TOO_MANY_REQUESTS, "too many requests");
            answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(1));
            Ok(answer)
        }
        Kind::Reset => Err(Reset),
        Kind::Hang => {
            // The guard counts down when the client gives up and this future is dropped.
            let _waits = Waits::new(&desk.hanging);
            pending().await
        }
    }
}

/// Counts one that waits.
#[derive(Debug)]
struct Waits<'a>(&'a AtomicU64);

impl<'a> Waits<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn refusal(status: StatusCode, words: &str) -> Answer {
    json_answer(status, &json!({ "error": words }))
}

fn json_answer(status: StatusCode, body: &Value) -> Answer {
    page_answer(status, "application/json", body.to_string())
}

fn page_answer(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    answer
}

/// A connection that can end with a reset in place of an orderly close.
#[derive(Debug)]
struct Resettable {
    stream: TcpStream,
    resets: Arc<AtomicBool>,
}

impl Drop for Resettable {
    fn drop(&mut self) {
        if self.resets.load(Ordering::Relaxed) {
            // Where the system refuses, the client sees a closed connection: as good a fault.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Resettable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Resettable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.resets.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
