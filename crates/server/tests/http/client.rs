//! A client of HTTP/1.1 that writes and reads its own bytes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Only against a hang of the test itself: nothing asserts on time.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("answers are UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The code of a JSON-RPC error.
    pub(crate) fn code(&self) -> Option<i64> {
        self.json()["error"]["code"].as_i64()
    }

    /// The code of a tool's refusal.
    pub(crate) fn refusal(&self) -> String {
        let body = self.json();
        let code = body["result"]["structuredContent"]["error"]["code"].as_str();
        code.unwrap_or_else(|| panic!("no refusal: {body}")).to_owned()
    }

    /// The state of an operation.
    pub(crate) fn state(&self) -> String {
        let body = self.json();
        let state = body["result"]["structuredContent"]["state"].as_str();
        state.unwrap_or_else(|| panic!("no state: {body}")).to_owned()
    }

    /// The messages of an event stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.text().lines().filter_map(event).collect()
    }
}

/// The message in one line of an event stream.
pub(crate) fn event(line: &str) -> Option<Value> {
    let data = line.strip_prefix("data:")?.trim();
    serde_json::from_str(data).ok()
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
    read: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.expect("the server listens"))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The server may have closed: the answer tells.
        let _ = self.stream.write_all(bytes.as_ref()).await;
        let _ = self.stream.flush().await;
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn ask(&mut self, request: &Request) -> Reply {
        self.send(request.bytes()).await;
        self.reply().await
    }

    pub(crate) async fn reply(&mut self) -> Reply {
        self.try_reply().await.expect("the server answers")
    }

    /// The next answer; `None` if the server closes instead.
    pub(crate) async fn try_reply(&mut self) -> Option<Reply> {
        tokio::time::timeout(WATCHDOG, self.read_reply()).await.expect("the server never answered")
    }

    /// Status and headers alone: the body may have no end.
    pub(crate) async fn head(&mut self) -> Option<Reply> {
        tokio::time::timeout(WATCHDOG, self.read_head()).await.expect("the server never answered")
    }

    /// The next line of the body of a stream, whatever frames it came in.
    pub(crate) async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.windows(1).position(|w| w == b"\n") {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(String::from_utf8(line).expect("UTF-8").trim_end().to_owned());
            }
            let more = tokio::time::timeout(WATCHDOG, self.more()).await;
            if !more.expect("the server never went on") {
                return None;
            }
        }
    }

    /// The next message of an event stream.
    pub(crate) async fn message(&mut self) -> Option<Value> {
        loop {
            if let Some(message) = event(&self.line().await?) {
                return Some(message);
            }
        }
    }

    /// Whether the server closes, and sends nothing before it.
    pub(crate) async fn is_closed(&mut self) -> bool {
        assert!(self.read.is_empty(), "{:?}", String::from_utf8_lossy(&self.read));
        !tokio::time::timeout(WATCHDOG, self.more()).await.expect("the server never closed")
    }

    async fn read_reply(&mut self) -> Option<Reply> {
        let mut reply = self.read_head().await?;
        if let Some(length) = reply.header("content-length") {
            let length: usize = length.parse().expect("a number");
            reply.body = self.take(length).await?;
        } else if reply.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = self.take_line().await?;
                let size = usize::from_str_radix(size.trim(), 16).expect("a chunk's size");
                reply.body.extend(self.take(size).await?);
                self.take_line().await?;
                if size == 0 {
                    break;
                }
            }
        }
        Some(reply)
    }

    async fn read_head(&mut self) -> Option<Reply> {
        let line = self.take_line().await?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {line:?}"));
        let mut headers = HashMap::new();
        loop {
            let line = self.take_line().await?;
            if line.is_empty() {
                return Some(Reply { status, headers, body: Vec::new() });
            }
            let (name, value) = line.split_once(':').expect("a header");
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }

    async fn take_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8(self.read.drain(..end).collect()).expect("UTF-8");
                self.read.drain(..2);
                return Some(line);
            }
            if !self.more().await {
                return None;
            }
        }
    }

    async fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.read.len() < length {
            if !self.more().await {
                return None;
            }
        }
        Some(self.read.drain(..length).collect())
    }

    /// Reads more; whether there was any.
    async fn more(&mut self) -> bool {
        matches!(self.stream.read_buf(&mut self.read).await, Ok(count) if count > 0)
    }
}

/// A request, of which each part can be changed.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &'static str, target: &str) -> Self {
        let headers = vec![("Host".to_owned(), "localhost".to_owned())];
        Self { method, target: target.to_owned(), headers, body: Vec::new() }
    }

    pub(crate) fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// A body for the MCP endpoint, as the protocol wants it.
    pub(crate) fn post(body: impl Into<Vec<u8>>) -> Self {
        let mut request = Self::new("POST", "/mcp")
            .with("Content-Type", "application/json")
            .with("Accept", "application/json, text/event-stream");
        request.body = body.into();
        request
    }

    /// A request of revision 2026-07-28.
    pub(crate) fn modern(id: &Value, method: &str, params: Value) -> Self {
        let mut params = params;
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
            json!({ "elicitation": {} });
        let name = params["name"].as_str().map(str::to_owned);
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let request = Self::post(body.to_string())
            .with("MCP-Protocol-Version", MODERN)
            .with("Mcp-Method", method);
        match name {
            Some(name) => request.with("Mcp-Name", &name),
            None => request,
        }
    }

    /// A call of a tool, of revision 2026-07-28.
    pub(crate) fn call(id: &Value, tool: &str, arguments: Value) -> Self {
        Self::modern(id, "tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    pub(crate) fn create(id: &Value, operation_id: &str, title: &str) -> Self {
        let arguments = json!({ "operation_id": operation_id, "title": title, "body": "b" });
        Self::call(id, "create_issue", arguments)
    }

    pub(crate) fn status_of(operation_id: &str) -> Self {
        Self::call(&json!(1), "get_operation_status", json!({ "operation_id": operation_id }))
    }

    /// A request of an older revision, inside of a session or to open one.
    pub(crate) fn legacy(session: Option<&str>, body: &Value) -> Self {
        let request = Self::post(body.to_string());
        match session {
            Some(session) => {
                request.with("Mcp-Session-Id", session).with("MCP-Protocol-Version", LEGACY)
            }
            None => request,
        }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn instead(self, name: &str, value: &str) -> Self {
        self.without(name).with(name, value)
    }

    pub(crate) fn by(self, token: &str) -> Self {
        self.with("Authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head().into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Everything up to the body, which it announces.
    pub(crate) fn head(&self) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.method != "GET" {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        head + "\r\n"
    }
}
