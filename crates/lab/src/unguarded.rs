//! The control: the same tools and tables without a ledger. Whatever asks for an issue gets another
//! one. A detector that never sees a duplicate proves nothing.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use counterfoil::tools::{create_issue, operation_status, reply};
use counterfoil::wire::{self, StdioTransport, WireLimits};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ElicitRequest, ElicitRequestParams,
    ElicitationSchema, InputRequest, InputRequests, InputRequiredResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// A server that remembers nothing.
#[derive(Debug, Clone)]
pub struct Unguarded {
    issues: Arc<Mutex<Issues>>,
}

/// Where the issues are.
#[derive(Debug)]
enum Issues {
    OnDisk(Connection),
    InMemory(Vec<[String; 3]>),
}

/// Serves until the client leaves.
///
/// # Errors
/// If the handshake fails.
pub async fn serve<R, W>(
    handler: Unguarded,
    (input, output): (R, W),
    limits: WireLimits,
    shutdown: CancellationToken,
) -> anyhow::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    wire::serve(handler, StdioTransport::spawn(input, output, limits, shutdown)).await?;
    Ok(())
}

impl Unguarded {
    /// Over the tables of a ledger that exists.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let ledger = Connection::open(path).context("cannot open the tables")?;
        ledger.pragma_update(None, "synchronous", "FULL")?;
        Ok(Self { issues: Arc::new(Mutex::new(Issues::OnDisk(ledger))) })
    }

    /// Over nothing: what a call costs without any storage.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { issues: Arc::new(Mutex::new(Issues::InMemory(Vec::new()))) }
    }

    fn insert(&self, operation_id: &str, title: &str, body: &str) -> rusqlite::Result<i64> {
        let mut issues = self.issues.lock().unwrap_or_else(PoisonError::into_inner);
        let row = match &mut *issues {
            Issues::OnDisk(ledger) => {
                ledger.execute(
                    "INSERT INTO issues (operation_key, title, body, operation_id, created_at_ms) \
                     VALUES (zeroblob(16), ?, ?, ?, 0)",
                    params![title.as_bytes(), body.as_bytes(), operation_id.as_bytes()],
                )?;
                ledger.last_insert_rowid()
            }
            Issues::InMemory(rows) => {
                rows.push([title, body, operation_id].map(str::to_owned));
                i64::try_from(rows.len()).unwrap_or(i64::MAX)
            }
        };
        counterfoil_store::cut_point!("store.after_commit");
        Ok(row)
    }

    fn create(&self, request: &CallToolRequestParams) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let answer = request.input_responses.as_ref().and_then(|all| all.get("body"));
        let answered = answer.and_then(|answer| text(&answer["content"]["body"]));
        let Some(body) = text(&arguments["body"]).or(answered) else {
            return Ok(ask().into());
        };
        let id = text(&arguments["operation_id"]).unwrap_or_default();
        let title = text(&arguments["title"]).unwrap_or_default();
        let row = self
            .insert(&id, &title, &body)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let content = json!({
            "operationId": id, "effectId": row, "state": "applied", "replayed": false,
            "result": format!("created {row}"),
        });
        // What the protocol asks of every result, guarded or not.
        Ok(CallToolResult::structured(content).with_meta(Some(reply::own_meta())).into())
    }
}

impl ServerHandler for Unguarded {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        wire::supported_versions()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = vec![create_issue::definition(), operation_status::definition()];
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match &*request.name {
            create_issue::NAME => self.create(&request),
            // Nothing is remembered, so nothing is known.
            operation_status::NAME => Ok(CallToolResult::structured(json!({
                "operationId": request.arguments.unwrap_or_default().get("operation_id"),
                "state": "unknown", "authoritative": false, "freshWriteAuthorized": false,
                "matchingIds": [], "storedResult": null,
            }))
            .into()),
            other => Err(ErrorData::invalid_params(format!("there is no tool {other}"), None)),
        }
    }
}

fn ask() -> InputRequiredResult {
    let schema = json!({
        "type": "object",
        "properties": { "body": { "type": "string", "title": "Body" } },
        "required": ["body"]
    });
    let requested_schema = ElicitationSchema::from_json_schema(rmcp::model::object(schema))
        .expect("a flat object of text fields");
    let form = ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "What should the issue say?".into(),
        requested_schema,
    });
    let mut inputs = InputRequests::new();
    inputs.insert("body".into(), InputRequest::Elicitation(form));
    InputRequiredResult::new(Some(inputs), Some("unguarded".into()))
}
