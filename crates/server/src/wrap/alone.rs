//! A session of our own with a server, when no client has one: for looking things up.

use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::link::Link;
use super::run::{WrapError, WrapOptions, relay};
use super::{
    Answer, CallFrame, CallPort, Generation, Guard, Lost, Upstream, UpstreamBackend, UpstreamReply,
    UpstreamState,
};

/// What the relay's own end of the session may hold, in bytes.
const PIPE_BYTES: usize = 64 * 1024;
/// Asked for first, and where the server knows no session without a handshake.
const MODERN: &str = "2026-07-28";
const WITH_HANDSHAKE: &str = "2025-11-25";

/// A running session without a client.
#[derive(Debug)]
pub struct Alone {
    /// Ready once the server has taken the session up.
    pub upstream: Upstream,
    /// Ends after the token that [`alone`] was given was cancelled, or with an error.
    pub ended: JoinHandle<Result<(), WrapError>>,
}

/// Starts a server and opens a session with it that has empty capabilities.
#[must_use]
pub fn alone(options: WrapOptions, stop: CancellationToken) -> Alone {
    let guard = Arc::new(Nobody::default());
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (input, output) = tokio::io::split(theirs);
    let link = Link::over(input, output, options.max_line_bytes);
    let upstream = Arc::clone(&guard);
    let ended = tokio::spawn(async move {
        let client = tokio::spawn(Client::new(ours).run());
        let ended = relay(link, options, guard, stop).await;
        client.abort();
        ended
    });
    Alone { upstream: Upstream::new(upstream as _), ended }
}

/// Takes no call, and keeps the way to the server.
#[derive(Default)]
struct Nobody {
    upstream: OnceLock<Upstream>,
    attached: CancellationToken,
}

impl Guard for Nobody {
    fn attach(&self, upstream: Upstream) {
        // There is one relay.
        let _ = self.upstream.set(upstream);
        self.attached.cancel();
    }

    fn takes(&self, _call: &CallFrame) -> bool {
        false
    }

    fn call(self: Arc<Self>, _call: CallFrame, _port: CallPort) -> BoxFuture<'static, Answer> {
        unreachable!("it takes no call")
    }
}

impl UpstreamBackend for Nobody {
    fn state(&self) -> UpstreamState {
        self.upstream.get().map_or(UpstreamState::NotReady, Upstream::state)
    }

    fn wait_ready(&self, deadline: Instant) -> BoxFuture<'_, Option<Generation>> {
        Box::pin(async move {
            timeout_at(deadline, self.attached.cancelled()).await.ok()?;
            self.upstream.get()?.wait_ready(deadline).await
        })
    }

    fn ask(&self, method: &str, params: &[u8]) -> BoxFuture<'_, Result<UpstreamReply, Lost>> {
        let (method, params) = (method.to_owned(), params.to_owned());
        Box::pin(async move {
            match self.upstream.get() {
                Some(upstream) => upstream.ask(&method, &params).await,
                None => Err(Lost::NotSent("the server is not started yet".to_owned())),
            }
        })
    }
}

/// The client's side of the handshake, and no more.
struct Client {
    lines: Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
    output: tokio::io::WriteHalf<DuplexStream>,
}

impl Client {
    fn new(stream: DuplexStream) -> Self {
        let (input, output) = tokio::io::split(stream);
        Self { lines: BufReader::new(input).lines(), output }
    }

    /// Opens the session, then answers what a server may ask of a client that can do nothing, until
    /// the relay has ended.
    async fn run(mut self) -> Option<()> {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": own_info(),
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        self.ask("discover", "server/discover", json!({ "_meta": meta })).await?;
        while let Some(message) = self.next().await {
            if message.get("method").is_some() {
                self.refuse(&message).await?;
                continue;
            }
            match (message["id"].as_str(), message.get("result").is_some()) {
                (Some("discover"), false) => {
                    let params = json!({
                        "protocolVersion": WITH_HANDSHAKE,
                        "capabilities": {},
                        "clientInfo": own_info(),
                    });
                    self.ask("initialize", "initialize", params).await?;
                }
                (Some("initialize"), true) => {
                    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
                    self.say(&note).await?;
                }
                (Some("initialize"), false) => {
                    tracing::error!("the server opens no session that we understand");
                }
                _ => {}
            }
        }
        Some(())
    }

    /// Pings are answered; of everything else we can do nothing.
    async fn refuse(&mut self, message: &Value) -> Option<()> {
        let Some(id) = message.get("id") else { return Some(()) };
        let reply = if message["method"] == "ping" {
            json!({ "jsonrpc": "2.0", "id": id, "result": {} })
        } else {
            let error = json!({ "code": -32601, "message": "this client can only ask" });
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        };
        self.say(&reply).await
    }

    async fn ask(&mut self, id: &str, method: &str, params: Value) -> Option<()> {
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await
    }

    async fn say(&mut self, message: &Value) -> Option<()> {
        self.output.write_all(format!("{message}\n").as_bytes()).await.ok()
    }

    async fn next(&mut self) -> Option<Value> {
        let line = self.lines.next_line().await.ok()??;
        Some(serde_json::from_str(&line).unwrap_or(Value::Null))
    }
}

fn own_info() -> Value {
    json!({ "name": "counterfoil", "version": env!("CARGO_PKG_VERSION") })
}
