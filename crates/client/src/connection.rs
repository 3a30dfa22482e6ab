//! Connections to a server. A connection is turned into one that may send a single call, or into
//! one that can only ask; from outside this crate it can do neither.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil_core::identity::OperationId;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationCapability, Implementation, ProtocolVersion, Tool,
};
use rmcp::service::{ClientInitializeError, RequestContext, RunningService};
use rmcp::transport::IntoTransport;
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient, ServiceError,
};
use serde_json::{Map, Value};

use crate::answers::Answers;
use crate::child::{self, Gone, Process};
use crate::consumer::NotSent;
use crate::http::{Exchange, HttpProblem};
use crate::reply::error_in_words;
use crate::settle::STATUS_TOOL;

/// What a server with a ledger announces among its capabilities' extensions.
const LEDGER_EXTENSION: &str = "io.counterfoil/operations";

/// A child gets this long to end after its input was closed: a graceful end, then TERM, then KILL.
const CLOSE: Duration = Duration::from_secs(8);

/// The same where a user waits for the command to end.
const CLOSE_SOON: Duration = Duration::from_secs(2);

/// Opens fresh connections to one server.
pub trait Connector: Send + Sync {
    /// Opens one. Elicitation is announced if there are answers, and only then.
    fn connect(
        &self,
        answers: &Answers,
    ) -> impl Future<Output = Result<Connection, ConnectError>> + Send;

    /// The server's name for the journal: a program's name without its arguments, or an address.
    fn name(&self) -> &str;
}

/// No connection. Nothing was sent over it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no such program.
    #[error("the command `{0}` was not found; check its name and PATH")]
    NotFound(String),
    /// The program did not start.
    #[error("the command `{program}` did not start: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The server started and no protocol was agreed on.
    #[error("no MCP session with the server: {0}; is it an MCP server, and what is on its stderr?")]
    Handshake(String),
    /// The server started and left.
    #[error("{0}; run it by hand to see why")]
    Gone(Gone),
    /// It took too long.
    #[error("no MCP session with the server within {0:?}; is it an MCP server?")]
    TimedOut(Duration),
    /// HTTP got in the way.
    #[error(transparent)]
    Http(HttpProblem),
}

impl ConnectError {
    /// Whether waiting does not help.
    pub(crate) const fn is_lasting(&self) -> bool {
        match self {
            // A program that is not there does not come back by itself.
            Self::NotFound(_) => true,
            Self::Http(problem) => problem.is_lasting(),
            _ => false,
        }
    }
}

/// An MCP session with a server. It has no public method that sends.
pub struct Connection {
    service: RunningService<RoleClient, Handler>,
    server: Server,
}

/// What is known of the server beside the session.
enum Server {
    /// Nothing.
    Unseen,
    Child(Process),
    Http(Exchange),
}

impl Connection {
    /// Agrees with the server on 2026-07-28, or on an older revision by the old handshake.
    ///
    /// # Errors
    /// [`ConnectError::Handshake`] if no protocol was agreed on.
    pub async fn open<T, E, A>(transport: T, answers: &Answers) -> Result<Self, ConnectError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        };
        let handler = Handler { answers: answers.clone(), answered: AtomicBool::new(false) };
        let service = Box::pin(handler.serve_with_lifecycle(transport, lifecycle)).await;
        let service = service.map_err(|error| ConnectError::Handshake(handshake_words(&error)))?;
        Ok(Self { service, server: Server::Unseen })
    }

    /// The same over HTTP.
    ///
    /// # Errors
    /// [`ConnectError::Http`] if HTTP got in the way.
    pub(crate) async fn open_http(
        exchange: Exchange,
        answers: &Answers,
    ) -> Result<Self, ConnectError> {
        match Self::open(exchange.clone().into_transport(), answers).await {
            Ok(connection) => Ok(Self { server: Server::Http(exchange), ..connection }),
            Err(error) => Err(exchange.problem().map_or(error, ConnectError::Http)),
        }
    }

    /// How the server left, or what HTTP answered in its place; `None` if neither.
    pub(crate) async fn fault(&self) -> Option<ConnectError> {
        match &self.server {
            Server::Unseen => None,
            Server::Child(process) => process.gone().await.map(ConnectError::Gone),
            Server::Http(_) => self.http_problem().map(ConnectError::Http),
        }
    }

    /// Why the last request got no answer of MCP.
    pub(crate) fn http_problem(&self) -> Option<HttpProblem> {
        match &self.server {
            Server::Http(exchange) => exchange.problem(),
            Server::Unseen | Server::Child(_) => None,
        }
    }

    /// Why a request got no reply.
    pub(crate) async fn why(&self, error: &ServiceError) -> String {
        match self.fault().await {
            Some(ConnectError::Gone(gone)) => return gone.to_string(),
            Some(fault) => return fault.to_string(),
            None => {}
        }
        match error {
            ServiceError::McpError(error) => error_in_words(error),
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
                "the server closed the connection".into()
            }
            ServiceError::UnexpectedResponse => "the server's reply cannot be read".into(),
            other => other.to_string(),
        }
    }

    /// What the server declares of a tool.
    ///
    /// # Errors
    /// [`NotSent::NoSuchTool`] if it lists no such tool; else why it did not list its tools.
    pub(crate) async fn tool(&self, name: &str) -> Result<Tool, NotSent> {
        let error = match self.service.list_all_tools().await {
            Ok(tools) => {
                let found = tools.into_iter().find(|listed| listed.name == name);
                return found.ok_or_else(|| NotSent::NoSuchTool(name.to_owned()));
            }
            Err(error) => error,
        };
        Err(match self.fault().await {
            Some(fault) => NotSent::Connect(fault),
            None => NotSent::NoTools(self.why(&error).await),
        })
    }

    /// Whether the server says that it keeps a ledger of operations.
    pub(crate) fn keeps_ledger(&self) -> bool {
        let info = self.service.peer_info();
        let extensions = info.as_ref().and_then(|info| info.capabilities.extensions.as_ref());
        extensions.is_some_and(|extensions| extensions.contains_key(LEDGER_EXTENSION))
    }

    /// For the one call that is about to be sent.
    pub(crate) const fn into_writer(self) -> Writer {
        Writer(self)
    }

    /// For questions, and for nothing else.
    pub(crate) const fn into_asker(self) -> Asker {
        Asker(self)
    }

    /// For a call that only reads.
    pub(crate) const fn into_reader(self) -> Reader {
        Reader(self)
    }

    /// Closes the session and waits, for a bounded time, until a child has ended.
    pub(crate) async fn close(self) {
        self.close_within(CLOSE).await;
    }

    async fn close_within(mut self, limit: Duration) {
        if let Ok(None) | Err(_) = self.service.close_with_timeout(limit).await {
            tracing::warn!("the server's session did not close in time");
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// A connection for the legs of one call.
#[derive(Debug)]
pub(crate) struct Writer(Connection);

impl Writer {
    /// Sends one leg. Only a leg, which is used up by it, may call this.
    pub(crate) async fn call(
        &self,
        params: CallToolRequestParams,
    ) -> Result<CallToolResponse, ServiceError> {
        self.0.service.call_tool_once(params).await
    }

    /// Whether the server asked for input in the middle of a call, and got it: then its first leg
    /// may have done what else only a continuation does.
    pub(crate) fn has_answered(&self) -> bool {
        self.0.service.service().answered.load(Ordering::Acquire)
    }

    pub(crate) async fn why(&self, error: &ServiceError) -> String {
        self.0.why(error).await
    }

    /// What HTTP made of the last leg, if it got no answer of MCP.
    pub(crate) fn http_problem(&self) -> Option<HttpProblem> {
        self.0.http_problem()
    }

    pub(crate) async fn close(self) {
        self.0.close().await;
    }

    /// For a user who waits no longer.
    pub(crate) async fn close_soon(self) {
        self.0.close_within(CLOSE_SOON).await;
    }
}

/// A connection that can ask for a status, a read, and cannot call anything else.
#[derive(Debug)]
pub(crate) struct Asker(Connection);

impl Asker {
    pub(crate) async fn status(
        &self,
        operation_id: &OperationId,
    ) -> Result<CallToolResponse, ServiceError> {
        let mut arguments = Map::new();
        arguments.insert("operation_id".into(), operation_id.as_str().into());
        let params = CallToolRequestParams::new(STATUS_TOOL).with_arguments(arguments);
        self.0.service.call_tool_once(params).await
    }

    pub(crate) async fn why(&self, error: &ServiceError) -> String {
        self.0.why(error).await
    }

    /// Whether HTTP refused the question in a way that waiting does not change.
    pub(crate) fn is_refused_for_good(&self) -> bool {
        self.0.http_problem().is_some_and(|problem| problem.is_lasting())
    }

    pub(crate) async fn close(self) {
        self.0.close().await;
    }
}

/// A connection for one call that only reads.
#[derive(Debug)]
pub(crate) struct Reader(Connection);

impl Reader {
    pub(crate) async fn call(
        &self,
        params: CallToolRequestParams,
    ) -> Result<CallToolResponse, ServiceError> {
        self.0.service.call_tool_once(params).await
    }

    pub(crate) async fn why(&self, error: &ServiceError) -> String {
        self.0.why(error).await
    }

    pub(crate) async fn close(self) {
        self.0.close().await;
    }
}

/// Answers what older servers ask in the middle of a call.
struct Handler {
    answers: Answers,
    answered: AtomicBool,
}

impl ClientHandler for Handler {
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let content = form_of(&request).and_then(|form| self.answers.fill("", &form).ok());
        let Some(content) = content else {
            // Cancelled, not declined: nobody made a choice.
            return Ok(ElicitResult::new(ElicitationAction::Cancel));
        };
        self.answered.store(true, Ordering::Release);
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if !self.answers.is_empty() {
            // `{}` means that forms are understood.
            capabilities.elicitation = Some(ElicitationCapability::new());
        }
        let me = Implementation::new("counterfoil", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, me)
    }
}

fn handshake_words(error: &ClientInitializeError) -> String {
    use ClientInitializeError as E;
    match error {
        E::JsonRpcError(error) => error_in_words(error),
        E::LegacyFallbackFailed { fallback, .. } => handshake_words(fallback),
        E::ConnectionClosed(_) | E::TransportError { .. } => "it closed the connection".into(),
        E::NoCompatibleProtocolVersion { .. } => "it speaks none of our protocol versions".into(),
        _ => "what it answered is no MCP".into(),
    }
}

/// The schema of a form; `None` for an input of another kind.
pub(crate) fn form_of(request: &ElicitRequestParams) -> Option<Value> {
    match request {
        ElicitRequestParams::FormElicitationParams { requested_schema, .. } => {
            serde_json::to_value(requested_schema).ok()
        }
        _ => None,
    }
}

/// Runs a server as a child, over its stdin and stdout; its stderr is passed through.
pub struct ChildConnector {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    name: String,
}

impl ChildConnector {
    /// For a program found by its path or on PATH, with variables added to the environment.
    #[must_use]
    pub fn new(program: OsString, args: Vec<OsString>, env: Vec<(OsString, OsString)>) -> Self {
        let path = Path::new(&program);
        let name = path.file_name().unwrap_or(&program).to_string_lossy().into_owned();
        Self { program, args, env, name }
    }
}

impl Connector for ChildConnector {
    async fn connect(&self, answers: &Answers) -> Result<Connection, ConnectError> {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        let spawned = child::spawn(command, self.name.clone());
        let (pipes, process) = spawned.map_err(|source| {
            let program = self.program.to_string_lossy().into_owned();
            match source.kind() {
                io::ErrorKind::NotFound => ConnectError::NotFound(program),
                _ => ConnectError::Spawn { program, source },
            }
        })?;
        match Connection::open(pipes, answers).await {
            Ok(connection) => Ok(Connection { server: Server::Child(process), ..connection }),
            Err(error) => Err(process.gone().await.map_or(error, ConnectError::Gone)),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for ChildConnector {
    /// Arguments and environment may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildConnector").field("name", &self.name).finish_non_exhaustive()
    }
}
