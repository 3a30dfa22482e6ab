//! The MCP server: lists the tools, hands each call to its tool, and turns what comes back into a
//! reply. Nothing is decided here.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::identity::Caller;
use counterfoil_core::refusal::Refusal;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ElicitRequestParams,
    ElicitationAction, ElicitationCapability, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::tools::{Toolbox, reply};
use crate::wire::{self, RawCall};

/// The extension under which we say that our replies carry operations.
const EXTENSION: &str = "io.counterfoil/operations";
/// How long a user of an older client may take to answer a form.
const FORM_LIMIT: Duration = Duration::from_secs(600);

/// The server's side of one connection, or of one request over HTTP.
#[derive(Debug, Clone)]
pub struct Handler {
    tools: Toolbox,
    origin: Origin,
    /// Cancelled when the client can send nothing more, or the server is told to stop: an answer
    /// that is waited for never comes.
    input_closed: CancellationToken,
    metrics: Arc<Metrics>,
}

/// Where a call's caller and raw form are found.
#[derive(Debug, Clone)]
enum Origin {
    /// The connection has one caller; the wire puts the raw form into each request.
    Connection(Caller),
    /// The gate puts a [`GatedCall`] into each HTTP request.
    HttpRequest,
}

/// What the HTTP gate knows of a request that it let in.
#[derive(Debug, Clone)]
pub(crate) struct GatedCall {
    pub(crate) caller: Caller,
    pub(crate) raw: RawCall,
}

/// Why a call has no result.
#[derive(Debug)]
pub enum CallError {
    /// A refusal of ours: a tool error.
    Refused(Refusal),
    /// A protocol error.
    Protocol(ErrorData),
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ErrorData> for CallError {
    fn from(error: ErrorData) -> Self {
        Self::Protocol(error)
    }
}

impl Handler {
    /// For a connection whose caller is known.
    #[must_use]
    pub fn new(tools: Toolbox, caller: Caller, input_closed: CancellationToken) -> Self {
        Self { tools, origin: Origin::Connection(caller), input_closed, metrics: Arc::default() }
    }

    /// For HTTP requests that the gate let in, each with its own caller.
    pub(crate) const fn over_http(
        tools: Toolbox,
        input_closed: CancellationToken,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { tools, origin: Origin::HttpRequest, input_closed, metrics }
    }

    /// Caller and raw form of one call; `None` where the transport left them out.
    fn gated(&self, context: &RequestContext<RoleServer>) -> Option<GatedCall> {
        match &self.origin {
            Origin::Connection(caller) => {
                let raw = context.extensions.get::<RawCall>()?.clone();
                Some(GatedCall { caller: caller.clone(), raw })
            }
            Origin::HttpRequest => {
                let parts = context.extensions.get::<http::request::Parts>()?;
                parts.extensions.get::<GatedCall>().cloned()
            }
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder().enable_tools().build();
        capabilities.extensions =
            Some([(EXTENSION.to_owned(), rmcp::model::JsonObject::new())].into_iter().collect());
        ServerConfig::new(capabilities)
            .with_server_info(reply::server_info())
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
            .with_instructions(
                "Give every call that changes something an operation_id of your own and keep it. \
                 If a reply is lost, call get_operation_status with that ID; a missing reply is \
                 never a reason to send the request again under a new ID, and neither is an answer \
                 that says pending: it is delivered in the background. If you have lost the ID \
                 too, list_operations finds it.",
            )
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        wire::supported_versions()
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.get(name).cloned()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut list = ListToolsResult::with_all_items(self.tools.tools().to_vec());
        list.meta = Some(reply::own_meta());
        Ok(list)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(call) = self.gated(&context) else {
            // Without the bytes as they came nothing can be compared safely.
            return Err(ErrorData::internal_error("the transport kept no raw request", None));
        };
        let client = ClientSide { context: &context, input_closed: &self.input_closed };
        let is_shared = matches!(self.origin, Origin::HttpRequest);
        // Boxed: the future is large, and the SDK holds it in its own.
        let dispatched = Box::pin(self.tools.call(&request.name, &call, &client, is_shared));
        // Over HTTP nothing of ours stands outside of the SDK to catch a panic.
        wire::answering_panics(async {
            let came = dispatched.await;
            self.metrics.count_call(self.tools.word(&request.name), &came);
            match came {
                Ok(response) => Ok(response),
                Err(CallError::Refused(refusal)) => Ok(reply::refused(&refusal).into()),
                Err(CallError::Protocol(error)) => Err(error),
            }
        })
        .await
    }
}

/// What a tool may know of, and ask from, the client of the call.
#[derive(Debug)]
pub struct ClientSide<'a> {
    context: &'a RequestContext<RoleServer>,
    input_closed: &'a CancellationToken,
}

/// What a user of an older client answered.
#[derive(Debug)]
pub struct Elicited {
    /// `accept`, `decline` or `cancel`.
    pub action: String,
    content: Option<serde_json::Value>,
}

impl Elicited {
    /// A text field of the form.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.content.as_ref()?.get(name)?.as_str()
    }
}

impl ClientSide<'_> {
    /// Whether the call speaks a revision in which a result can ask for input.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.context
            .protocol_version()
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
    }

    /// Whether the client declared that it can fill forms. An empty declaration means forms.
    #[must_use]
    pub fn can_fill_forms(&self) -> bool {
        let declared = self.context.client_capabilities();
        declared.as_ref().is_some_and(fills_forms)
    }

    /// Whether the client has taken the call back.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.context.ct.is_cancelled()
    }

    /// Cancelled when the client takes the call back, or the connection that it came by ends.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.context.ct.clone()
    }

    /// Cancelled when the client can send nothing more, or the server is told to stop: what is
    /// waited for may take longer than anybody listens.
    #[must_use]
    pub const fn gone(&self) -> &CancellationToken {
        self.input_closed
    }

    /// Asks an older client, which answers on its own connection.
    ///
    /// # Errors
    /// Words on why no answer came.
    pub async fn elicit(&self, params: ElicitRequestParams) -> Result<Elicited, String> {
        let asked = self.context.peer.create_elicitation_with_timeout(params, Some(FORM_LIMIT));
        let answer = tokio::select! {
            answer = asked => answer.map_err(|_| "the client gave no answer".to_owned())?,
            () = self.context.ct.cancelled() => return Err("the call was cancelled".into()),
            () = self.input_closed.cancelled() => {
                return Err("the client has gone, or the server is stopping".into());
            },
        };
        let action = match answer.action {
            ElicitationAction::Accept => "accept",
            ElicitationAction::Decline => "decline",
            ElicitationAction::Cancel => "cancel",
            // An action of a later revision is no answer that we know how to use.
            _ => "unknown",
        };
        Ok(Elicited { action: action.into(), content: answer.content })
    }
}

fn fills_forms(capabilities: &ClientCapabilities) -> bool {
    match &capabilities.elicitation {
        None => false,
        Some(ElicitationCapability { form: None, url: Some(_), .. }) => false,
        Some(_) => true,
    }
}
