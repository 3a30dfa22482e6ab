//! HTTP/1.1 (RFC 9112) as little of it as the lab's own targets need: requests with a length, one
//! after the other on a connection that stays.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const MAX_BYTES: usize = 1024 * 1024;

/// What a target is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The field `Idempotency-Key`.
    pub key: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    head: String,
    body: Vec<u8>,
}

impl Response {
    /// A JSON body.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self::of(status, "application/json", body.to_string().into_bytes())
    }

    /// A text.
    #[must_use]
    pub fn text(status: u16, body: &str) -> Self {
        Self::of(status, "text/plain", body.into())
    }

    fn of(status: u16, kind: &str, body: Vec<u8>) -> Self {
        let head = format!(
            "HTTP/1.1 {status} Lab\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Self { head, body }
    }
}

/// Answers requests until the listener fails. Without an answer the connection is closed.
///
/// # Errors
/// If the listener fails.
pub async fn serve<F, A>(listener: TcpListener, answer: F) -> anyhow::Result<()>
where
    F: Fn(Request) -> A + Send + Sync + 'static,
    A: Future<Output = Option<Response>> + Send,
{
    let answer = Arc::new(answer);
    loop {
        let (stream, _) = listener.accept().await.context("the listener failed")?;
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            // A client that goes, or that speaks something else, is not waited for.
            let _ = converse(stream, &*answer).await;
        });
    }
}

async fn converse<F, A>(mut stream: TcpStream, answer: &F) -> anyhow::Result<()>
where
    F: Fn(Request) -> A,
    A: Future<Output = Option<Response>>,
{
    stream.set_nodelay(true)?;
    let mut pending = Vec::new();
    while let Some(request) = next(&mut stream, &mut pending).await? {
        let Some(response) = answer(request).await else { return Ok(()) };
        let mut bytes = response.head.into_bytes();
        bytes.extend_from_slice(&response.body);
        stream.write_all(&bytes).await?;
    }
    Ok(())
}

/// The next request; `None` if the client left between two.
async fn next(stream: &mut TcpStream, pending: &mut Vec<u8>) -> anyhow::Result<Option<Request>> {
    let head_length = loop {
        if let Some(at) = pending.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        ensure!(pending.len() < MAX_BYTES, "a head without an end");
        if stream.read_buf(pending).await? == 0 {
            ensure!(pending.is_empty(), "the head was cut short");
            return Ok(None);
        }
    };
    let head: Vec<u8> = pending.drain(..head_length).collect();
    let head = std::str::from_utf8(&head).context("a head is ASCII")?;
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target)) = (first.next(), first.next()) else {
        bail!("no request line");
    };
    let fields: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| {
        let found = fields.iter().find(|(given, _)| given.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    };
    let length: usize = field("content-length").unwrap_or("0").parse().context("a length")?;
    ensure!(length <= MAX_BYTES, "the body is too long");
    while pending.len() < length {
        ensure!(stream.read_buf(pending).await? > 0, "the body was cut short");
    }
    Ok(Some(Request {
        method: method.into(),
        target: target.into(),
        key: field("idempotency-key").map(Into::into),
        body: pending.drain(..length).collect(),
    }))
}
