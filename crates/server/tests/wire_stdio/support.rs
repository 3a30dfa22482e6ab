//! A small server and a client that writes raw bytes.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use counterfoil::wire::{self, Ended, RawCall, StdioTransport, WireLimits};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ProtocolVersion, ServerCapabilities, ServerConfig, SubscriptionFilter,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Only against a hang of the test itself: nothing asserts on time.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Tools: `echo` gives the raw arguments back, `wait` does so once the gate opens, `panic` panics.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) completed: Arc<AtomicUsize>,
    entered: mpsc::UnboundedSender<()>,
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        wire::supported_versions()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        ctx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let raw = ctx.extensions.get::<RawCall>().unwrap().clone();
        self.entered.send(()).unwrap();
        match &*request.name {
            "wait" => self.gate.acquire().await.unwrap().forget(),
            "panic" => panic!("as the test wants"),
            _ => {}
        }
        self.completed.fetch_add(1, Ordering::SeqCst);
        let text = raw.arguments().map_or_else(String::new, |arguments| arguments.to_json());
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    fn accepted_subscription_filter(
        &self,
        asked: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(asked.clone())
    }

    async fn listen(&self, _subscription: SubscriptionContext) -> Result<(), ErrorData> {
        Ok(())
    }
}

/// One connection: a served `Tools`, and the client's ends of its two pipes.
pub(crate) struct Client {
    pub(crate) tools: Tools,
    pub(crate) shutdown: CancellationToken,
    input: Option<DuplexStream>,
    output: Option<BufReader<DuplexStream>>,
    entered: mpsc::UnboundedReceiver<()>,
    served: JoinHandle<Ended>,
}

impl Client {
    pub(crate) fn connect() -> Self {
        Self::connect_with(WireLimits::default())
    }

    pub(crate) fn connect_with(limits: WireLimits) -> Self {
        let (entered_tx, entered) = mpsc::unbounded_channel();
        let tools = Tools {
            gate: Arc::new(Semaphore::new(0)),
            completed: Arc::default(),
            entered: entered_tx,
        };
        let (input, server_input) = duplex(64 * 1024);
        let (output, server_output) = duplex(64 * 1024);
        let shutdown = CancellationToken::new();
        let transport =
            StdioTransport::spawn(server_input, server_output, limits, shutdown.clone());
        let handler = tools.clone();
        let served = tokio::spawn(async move { wire::serve(handler, transport).await.unwrap() });
        Self {
            tools,
            shutdown,
            input: Some(input),
            output: Some(BufReader::new(output)),
            entered,
            served,
        }
    }

    pub(crate) async fn send(&mut self, frame: impl AsRef<[u8]>) {
        self.send_unfinished(frame).await;
        self.send_unfinished("\n").await;
    }

    /// Sends bytes without a line end.
    pub(crate) async fn send_unfinished(&mut self, bytes: impl AsRef<[u8]>) {
        within(self.input.as_mut().unwrap().write_all(bytes.as_ref())).await.unwrap();
    }

    /// The next frame, or `None` at the end of output.
    pub(crate) async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        within(self.output.as_mut().unwrap().read_line(&mut line)).await.unwrap();
        line.ends_with('\n').then(|| line.trim_end().to_owned())
    }

    pub(crate) async fn reply(&mut self) -> Value {
        let line = self.line().await.expect("the server should answer");
        serde_json::from_str(&line).unwrap()
    }

    /// Waits until one more tool call has reached its handler.
    pub(crate) async fn entered(&mut self) {
        within(self.entered.recv()).await.unwrap();
    }

    /// Closes the server's standard input.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Closes the server's standard output.
    pub(crate) fn close_output(&mut self) {
        self.output = None;
    }

    pub(crate) async fn ended(self) -> Ended {
        within(self.served).await.unwrap()
    }

    pub(crate) fn completed_count(&self) -> usize {
        self.tools.completed.load(Ordering::SeqCst)
    }
}

pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(WATCHDOG, future).await.expect("nothing happened: the test hangs")
}

/// A 2026-07-28 request; `id` and `rest` (further members of `params`) are raw JSON.
pub(crate) fn modern(id: &str, method: &str, rest: &str) -> String {
    request_of_version("2026-07-28", id, method, rest)
}

pub(crate) fn request_of_version(version: &str, id: &str, method: &str, rest: &str) -> String {
    let comma = if rest.is_empty() { "" } else { "," };
    format!(
        r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}","io.modelcontextprotocol/clientCapabilities":{{}}}}{comma}{rest}}},"id":{id}}}"#
    )
}

pub(crate) fn call(id: &str, tool: &str, arguments: &str) -> String {
    modern(id, "tools/call", &format!(r#""name":"{tool}","arguments":{arguments}"#))
}

/// The text of a tool's result.
pub(crate) fn text(reply: &Value) -> &str {
    reply["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {reply}"))
}
