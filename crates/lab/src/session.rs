//! An MCP client of any served revision on a server that runs as a child, over stdio or HTTP. It
//! sends what it is told to send and sorts what comes back; it recovers nothing by itself.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use counterfoil::http::MCP_PATH;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    FormElicitationCapability, Implementation, InputResponses, ProtocolVersion,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt as _, Peer, RequestContext, RunningService,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport, UnixSocketHttpClient};
use rmcp::{ClientHandler, ErrorData, RoleClient, ServiceError};
use serde_json::{Value, json};
use tokio::process::ChildStdin;

use crate::process::{Ended, Launch, Process};
use crate::within::within;

/// A protocol revision that the product serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Asks its client in the middle of a call.
    V2025_06_18,
    /// As before.
    V2025_11_25,
    /// A result can ask for input; the call is continued with sealed state.
    V2026_07_28,
}

impl Protocol {
    /// All of them, the newest first.
    pub const ALL: [Self; 3] = [Self::V2026_07_28, Self::V2025_11_25, Self::V2025_06_18];
    /// Those with an `initialize` handshake and no continuation state.
    pub const LEGACY: [Self; 2] = [Self::V2025_11_25, Self::V2025_06_18];

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Whether a result can ask for input.
    #[must_use]
    pub const fn is_modern(self) -> bool {
        matches!(self, Self::V2026_07_28)
    }

    const fn version(self) -> ProtocolVersion {
        match self {
            Self::V2025_06_18 => ProtocolVersion::V_2025_06_18,
            Self::V2025_11_25 => ProtocolVersion::V_2025_11_25,
            Self::V2026_07_28 => ProtocolVersion::V_2026_07_28,
        }
    }
}

/// One issue to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The operation.
    pub operation_id: String,
    /// The issue's title.
    pub title: String,
    /// `atomic` or `partial`.
    pub mode: &'static str,
    /// What the user answers, or the argument `body`.
    pub body: String,
}

impl Issue {
    /// An atomic issue.
    #[must_use]
    pub fn new(operation_id: &str, title: &str, body: &str) -> Self {
        Self {
            operation_id: operation_id.into(),
            title: title.into(),
            mode: "atomic",
            body: body.into(),
        }
    }

    /// The same in two steps, of which the second fails.
    #[must_use]
    pub fn partial(self) -> Self {
        Self { mode: "partial", ..self }
    }

    /// The same with another body.
    #[must_use]
    pub fn body(self, body: &str) -> Self {
        Self { body: body.into(), ..self }
    }

    /// The arguments of round one.
    #[must_use]
    pub fn arguments(&self) -> Value {
        json!({ "operation_id": self.operation_id, "title": self.title, "mode": self.mode })
    }

    /// The arguments of a call that asks nothing.
    #[must_use]
    pub fn arguments_with_body(&self) -> Value {
        let mut arguments = self.arguments();
        arguments["body"] = self.body.as_str().into();
        arguments
    }

    /// The user's answers.
    #[must_use]
    pub fn answers(&self) -> Value {
        json!({ "body": { "action": "accept", "content": { "body": self.body } } })
    }
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A tool's result.
    Result {
        /// Its structured content.
        content: Value,
        /// Whether it is a tool error.
        is_error: bool,
        /// `_meta["io.counterfoil/operation"]`.
        operation: Value,
    },
    /// The server asks for input.
    InputRequired {
        /// The sealed state.
        state: Option<String>,
    },
    /// A JSON-RPC error.
    Error {
        /// Its code.
        code: i32,
        /// Its words.
        message: String,
        /// Its data.
        data: Value,
    },
    /// No reply came: the outcome is unknown.
    Lost(String),
}

impl Reply {
    /// The structured content of a result that is no error.
    ///
    /// # Panics
    /// If it is anything else.
    #[must_use]
    pub fn content(&self) -> &Value {
        match self {
            Self::Result { content, is_error: false, .. } => content,
            other => panic!("not a result: {other:?}"),
        }
    }

    /// The `{code, message, …}` of a refusal.
    ///
    /// # Panics
    /// If it is anything else.
    #[must_use]
    pub fn refusal(&self) -> &Value {
        match self {
            Self::Result { content, is_error: true, .. } => &content["error"],
            other => panic!("not a refusal: {other:?}"),
        }
    }

    /// The sealed state of a result that asks.
    ///
    /// # Panics
    /// If it is anything else.
    #[must_use]
    pub fn state(&self) -> &str {
        match self {
            Self::InputRequired { state: Some(state) } => state,
            other => panic!("not a question with state: {other:?}"),
        }
    }
}

/// What the user of an older client makes of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Fills it.
    Body(String),
    /// Says no.
    Decline,
    /// Never answers.
    Silence,
}

/// A client on a server of its own.
#[derive(Debug)]
pub struct Session {
    service: RunningService<RoleClient, Handler>,
    process: Process,
    caller: Caller,
    over_http: Option<OverHttp>,
}

/// What stands between a client and a server over HTTP, and what both live by.
#[derive(Debug)]
struct OverHttp {
    relay: Process,
    /// A relay and a server end with their stdin.
    relay_input: ChildStdin,
    server_input: ChildStdin,
}

/// A way to a server over HTTP.
#[derive(Debug)]
pub struct HttpWay<'a> {
    /// The lab's program.
    pub lab: &'a Path,
    /// The relay's transcript.
    pub transcript: &'a Path,
    /// The socket at which the relay listens.
    pub socket: &'a Path,
    /// The caller's bearer token.
    pub token: &'a str,
}

/// Sends calls on a session. Clones share the session.
#[derive(Debug, Clone)]
pub struct Caller {
    peer: Peer<RoleClient>,
    protocol: Protocol,
    forms: Arc<Forms>,
}

#[derive(Debug)]
struct Forms {
    answer: Mutex<Answer>,
    asked_count: AtomicUsize,
}

#[derive(Debug)]
struct Handler {
    config: ClientConfig,
    forms: Arc<Forms>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.forms.asked_count.fetch_add(1, Ordering::SeqCst);
        let answer = self.forms.answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match answer {
            Answer::Body(body) => {
                Ok(ElicitResult::new(ElicitationAction::Accept)
                    .with_content(json!({ "body": body })))
            }
            Answer::Decline => Ok(ElicitResult::new(ElicitationAction::Decline)),
            Answer::Silence => std::future::pending().await,
        }
    }
}

impl Session {
    /// Starts the server and agrees with it on `protocol`.
    ///
    /// # Errors
    /// If the server does not start or does not speak that revision.
    pub async fn open(launch: &Launch, protocol: Protocol) -> anyhow::Result<Self> {
        let (process, pipes) = launch.start().await?;
        let transport = (pipes.output, pipes.input);
        let (service, caller) = shake_hands(transport, protocol, &process).await?;
        Ok(Self { service, process, caller, over_http: None })
    }

    /// Starts a server that listens, and agrees with it on the newest revision.
    ///
    /// # Errors
    /// If server or relay does not start, or the handshake fails.
    pub async fn open_http(launch: &Launch, way: &HttpWay<'_>) -> anyhow::Result<Self> {
        let (process, pipes) = launch.start().await?;
        let address = process.address().context("the server says no address")?;
        let mut arguments: Vec<OsString> = vec!["http-relay".into(), "--to".into()];
        arguments.extend([address.to_string().into(), "--transcript".into()]);
        arguments.extend([way.transcript.into(), "--unix".into(), way.socket.into()]);
        let (relay, relay_pipes) = Launch::child(way.lab, arguments).start().await?;
        let url = format!("http://{address}{MCP_PATH}");
        let socket = way.socket.to_str().context("the socket's path is UTF-8")?;
        let client = UnixSocketHttpClient::new(socket, &url);
        let config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(way.token);
        let transport = StreamableHttpClientTransport::with_client(client, config);
        let (service, caller) = shake_hands(transport, Protocol::V2026_07_28, &process).await?;
        let over_http =
            OverHttp { relay, relay_input: relay_pipes.input, server_input: pipes.input };
        Ok(Self { service, process, caller, over_http: Some(over_http) })
    }

    /// The side that sends; a clone can be used from another task.
    #[must_use]
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The server.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Closes the connection and waits for the server.
    ///
    /// # Errors
    /// If the server does not end.
    pub async fn close(mut self) -> anyhow::Result<Ended> {
        within("the session closes", self.service.close()).await??;
        self.server_ended().await
    }

    /// Waits for a server that ends by itself.
    ///
    /// # Errors
    /// If it does not end.
    pub async fn ended(mut self) -> anyhow::Result<Ended> {
        self.server_ended().await
    }

    async fn server_ended(&mut self) -> anyhow::Result<Ended> {
        let Some(OverHttp { mut relay, relay_input, server_input }) = self.over_http.take() else {
            return self.process.ended().await;
        };
        drop(server_input);
        let ended = self.process.ended().await?;
        drop(relay_input);
        let relay_ended = relay.ended().await?;
        ensure!(relay_ended == Ended::Code(0), "{relay_ended:?}: {}", relay.stderr());
        Ok(ended)
    }
}

/// Agrees with a server on `protocol`.
async fn shake_hands<T, E, A>(
    transport: T,
    protocol: Protocol,
    process: &Process,
) -> anyhow::Result<(RunningService<RoleClient, Handler>, Caller)>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let lifecycle = if protocol.is_modern() {
        ClientLifecycleMode::Discover { preferred_versions: vec![protocol.version()] }
    } else {
        ClientLifecycleMode::Initialize
    };
    let mut capabilities = ClientCapabilities::default();
    capabilities.elicitation =
        Some(ElicitationCapability::new().with_form(FormElicitationCapability::new()));
    let config = ClientConfig::new(capabilities, Implementation::new("counterfoil-lab", "1"))
        .with_protocol_version(protocol.version());
    let answer = Mutex::new(Answer::Decline);
    let forms = Arc::new(Forms { answer, asked_count: AtomicUsize::new(0) });
    let handler = Handler { config, forms: Arc::clone(&forms) };
    let opening = Box::pin(handler.serve_with_lifecycle(transport, lifecycle));
    let service = within("the handshake", opening).await?;
    let service = service.with_context(|| format!("no handshake: {}", process.stderr()))?;
    let caller = Caller { peer: service.peer().clone(), protocol, forms };
    Ok((service, caller))
}

impl Caller {
    /// What the user of an older client makes of the next forms.
    pub fn will_answer(&self, answer: Answer) {
        *self.forms.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// How many forms an older server has sent.
    #[must_use]
    pub fn asked_count(&self) -> usize {
        self.forms.asked_count.load(Ordering::SeqCst)
    }

    /// Sends one call with these arguments.
    pub async fn call(&self, tool: &'static str, arguments: Value) -> Reply {
        self.send(request(tool, arguments)).await
    }

    /// Sends a continuation.
    pub async fn resume(&self, issue: &Issue, state: Option<&str>, answers: Value) -> Reply {
        let answers: InputResponses =
            serde_json::from_value(answers).expect("answers are a JSON object");
        let mut call = request("create_issue", issue.arguments()).with_input_responses(answers);
        if let Some(state) = state {
            call = call.with_request_state(state);
        }
        self.send(call).await
    }

    /// Makes an issue in the way of the protocol: by continuation, or by a form in mid-call.
    pub async fn create_issue(&self, issue: &Issue) -> Reply {
        self.will_answer(Answer::Body(issue.body.clone()));
        let first = self.call("create_issue", issue.arguments()).await;
        match &first {
            Reply::InputRequired { state: Some(state) } => {
                self.resume(issue, Some(state), issue.answers()).await
            }
            _ => first,
        }
    }

    /// Asks for an operation's status.
    pub async fn status(&self, operation_id: &str) -> Reply {
        self.call("get_operation_status", json!({ "operation_id": operation_id })).await
    }

    /// The revision that was agreed on.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// # Panics
    /// If the server lives and does not answer: no fault of the lab makes it hang.
    async fn send(&self, call: CallToolRequestParams) -> Reply {
        let replied = within("a call is answered", self.peer.call_tool_once(call)).await;
        match replied.expect("a server answers, or is gone") {
            Ok(CallToolResponse::Complete(result)) => sorted(result),
            Ok(CallToolResponse::InputRequired(asked)) => {
                Reply::InputRequired { state: asked.request_state }
            }
            Ok(other) => Reply::Lost(format!("an unknown kind of result: {other:?}")),
            Err(ServiceError::McpError(error)) => Reply::Error {
                code: error.code.0,
                message: error.message.into_owned(),
                data: error.data.unwrap_or_default(),
            },
            Err(error) => Reply::Lost(error.to_string()),
        }
    }
}

fn request(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(tool).with_arguments(rmcp::model::object(arguments))
}

fn sorted(result: CallToolResult) -> Reply {
    let meta = serde_json::to_value(&result.meta).unwrap_or_default();
    Reply::Result {
        content: result.structured_content.unwrap_or_default(),
        is_error: result.is_error == Some(true),
        operation: meta["io.counterfoil/operation"].clone(),
    }
}
