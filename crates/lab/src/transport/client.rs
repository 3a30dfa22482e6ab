//! The lab's client of a faulty way: it writes its own bytes, and believes only a whole reply to its
//! own request about its own operation.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use counterfoil::http::MCP_PATH;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;

use super::frames::Frames;
use crate::raw::tool_call;
use crate::session::Reply;
use crate::transcript::Side;

/// The revision with sessions, whose replies are streams of events.
const LEGACY: &str = "2025-11-25";
const PIECE_BYTES: usize = 16 * 1024;

/// One call of a tool.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub id: String,
    pub tool: &'static str,
    pub arguments: Value,
    pub operation: &'a str,
}

/// A way to a server over HTTP: a connection for each request.
#[derive(Debug, Clone)]
pub(super) struct HttpWay {
    pub to: SocketAddr,
    pub token: String,
    /// Of the older revision; without one the newest is spoken.
    pub session: Option<String>,
}

impl HttpWay {
    /// Opens a session of the older revision.
    pub(super) async fn open_session(&mut self) -> anyhow::Result<()> {
        let hello = json!({
            "jsonrpc": "2.0", "id": "init", "method": "initialize",
            "params": {
                "protocolVersion": LEGACY, "capabilities": {},
                "clientInfo": { "name": "counterfoil-lab", "version": "1" },
            },
        });
        let head = self.whole(&hello.to_string()).await?;
        let session = head.lines().filter_map(|line| line.split_once(": "));
        let mut session = session.filter(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"));
        let (_, session) = session.next().with_context(|| format!("no session: {head}"))?;
        self.session = Some(session.to_owned());
        let opened = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let head = self.whole(&opened.to_string()).await?;
        ensure!(head.starts_with("HTTP/1.1 202"), "the session does not open: {head}");
        Ok(())
    }

    /// Posts a message and gives the head of the answer when all of it came.
    async fn whole(&self, body: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(self.to).await?;
        stream.write_all(&self.post(body, None)).await?;
        let (mut frames, mut piece) = (Frames::http(Side::Server), vec![0; PIECE_BYTES]);
        loop {
            let count = stream.read(&mut piece).await?;
            ensure!(count > 0, "the server ended the connection");
            if let Some(frame) = frames.feed(&piece[..count]).into_iter().next() {
                return Ok(String::from_utf8_lossy(&frame.bytes[..frame.head]).into_owned());
            }
        }
    }

    fn post(&self, body: &str, tool: Option<&str>) -> Vec<u8> {
        let Self { to, token, session } = self;
        let mut head = format!(
            "POST {MCP_PATH} HTTP/1.1\r\nhost: {to}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
        );
        let mut field = |name: &str, value: &str| {
            head.push_str(&format!("{name}: {value}\r\n"));
        };
        match (session, tool) {
            (Some(session), _) => {
                field("mcp-protocol-version", LEGACY);
                field("mcp-session-id", session);
            }
            (None, Some(tool)) => {
                field("mcp-protocol-version", "2026-07-28");
                field("mcp-method", "tools/call");
                field("mcp-name", tool);
            }
            (None, None) => {}
        }
        field("content-length", &body.len().to_string());
        format!("{head}\r\n{body}").into_bytes()
    }

    /// Calls a tool, until an answer comes, the connection ends, or the client gives up.
    pub(super) async fn call(&self, ask: &Ask<'_>, gives_up: &CancellationToken) -> Reply {
        let body = match self.session {
            Some(_) => json!({
                "jsonrpc": "2.0", "id": ask.id, "method": "tools/call",
                "params": { "name": ask.tool, "arguments": ask.arguments },
            })
            .to_string(),
            None => tool_call(&json!(ask.id), ask.tool, &ask.arguments.to_string()),
        };
        let post = self.post(&body, Some(ask.tool));
        let mut stream = match TcpStream::connect(self.to).await {
            Ok(stream) => stream,
            Err(error) => return Reply::Lost(error.to_string()),
        };
        if let Err(error) = stream.write_all(&post).await {
            return Reply::Lost(error.to_string());
        }
        await_reply(&mut stream, Frames::http(Side::Server), ask, gives_up).await
    }
}

/// Calls a tool over a server's pipes.
pub(super) async fn call_over(
    stream: &mut UnixStream,
    ask: &Ask<'_>,
    gives_up: &CancellationToken,
) -> Reply {
    let line = tool_call(&json!(ask.id), ask.tool, &ask.arguments.to_string());
    if let Err(error) = stream.write_all(format!("{line}\n").as_bytes()).await {
        return Reply::Lost(error.to_string());
    }
    await_reply(stream, Frames::lines(Side::Server), ask, gives_up).await
}

async fn await_reply(
    stream: &mut (impl AsyncRead + Unpin),
    mut frames: Frames,
    ask: &Ask<'_>,
    gives_up: &CancellationToken,
) -> Reply {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = tokio::select! {
            biased;
            read = stream.read(&mut piece) => read,
            () = gives_up.cancelled() => return Reply::Lost("the client gave up".into()),
        };
        let Ok(count @ 1..) = read else {
            return Reply::Lost("the connection ended".into());
        };
        for frame in frames.feed(&piece[..count]) {
            let found = frame.messages.iter().find_map(|message| read_reply(message, ask));
            if let Some(reply) = found {
                return reply;
            }
            if frame.head > 0 {
                return refused_by_http(&frame.bytes[..frame.head]);
            }
        }
    }
}

/// A whole answer of HTTP in which there is no reply to the call.
fn refused_by_http(head: &[u8]) -> Reply {
    let head = String::from_utf8_lossy(head);
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    match status {
        Some(code @ 400..=499) => {
            Reply::Error { code, message: "refused by HTTP".into(), data: Value::Null }
        }
        _ => Reply::Lost("an answer without a reply in it".into()),
    }
}

/// A reply to this very call; `None` if it is anything else.
fn read_reply(message: &[u8], ask: &Ask<'_>) -> Option<Reply> {
    let value: Value = serde_json::from_slice(message).ok()?;
    if value["id"] != ask.id || value.get("method").is_some() {
        return None;
    }
    if let Some(error) = value.get("error") {
        return Some(Reply::Error {
            code: error["code"].as_i64()?.try_into().ok()?,
            message: error["message"].as_str().unwrap_or_default().into(),
            data: error["data"].clone(),
        });
    }
    let result = &value["result"];
    let content = result["structuredContent"].clone();
    let is_error = result["isError"] == true;
    if !is_error && content["operationId"] != ask.operation {
        return Some(Reply::Lost("the reply speaks of another operation".into()));
    }
    let operation = result["_meta"]["io.counterfoil/operation"].clone();
    Some(Reply::Result { content, is_error, operation })
}
