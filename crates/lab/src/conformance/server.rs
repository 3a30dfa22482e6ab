//! The server that the official suite looks at: its fixtures behind the product's own wire, over
//! HTTP or stdio.

#![expect(deprecated, reason = "the older revisions have it, and the suite asks for it")]

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Args;
use counterfoil::http::{self, Auth, HttpLimits, HttpOptions, OriginRule};
use counterfoil::serve;
use counterfoil::wire::{self, StdioTransport, WireLimits};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult,
    GetPromptRequestParams, GetPromptResponse, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities,
    ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::acts;
use super::fixtures::Fixtures;
use crate::child::{ChildOptions, StoreKind};
use crate::process::say_ready;

/// What the fixture server is told.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Serve over HTTP at this address, to whoever reaches it; stdio otherwise
    #[arg(long, value_name = "ADDR")]
    pub http: Option<SocketAddr>,
}

/// The fixtures, and what their calls remember.
#[derive(Debug, Clone)]
pub struct FixtureServer {
    pub(super) fixtures: Arc<Fixtures>,
    pub(super) memory: Arc<Memory>,
}

/// What outlives a call.
#[derive(Debug, Default)]
pub struct Memory {
    /// Which round a state that was handed out stands for.
    states: Mutex<HashMap<String, usize>>,
    /// Who listens for changes.
    listeners: Mutex<HashMap<u64, SubscriptionSink>>,
}

/// Serves until the client leaves, or a signal comes.
///
/// # Errors
/// If the server cannot start.
pub async fn run(args: &ServerArgs) -> anyhow::Result<()> {
    let shutdown = serve::shutdown_signal()?;
    let handler = FixtureServer::new()?;
    match args.http {
        Some(address) => over_http(handler, address, shutdown).await,
        None => {
            let (input, output) = rmcp::transport::stdio_pipes();
            let transport = StdioTransport::spawn(input, output, WireLimits::default(), shutdown);
            wire::serve(handler, transport).await?;
            Ok(())
        }
    }
}

async fn over_http(
    handler: FixtureServer,
    address: SocketAddr,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let mut options = ChildOptions::new(scratch.path());
    options.store = StoreKind::Memory;
    options.real_clock = true;
    let served = HttpOptions {
        auth: Auth::LocalOnly(options.caller()?),
        allowed_hosts: Vec::new(),
        // The suite's own page, which no server of ours lets in by default.
        allowed_origins: vec![OriginRule::parse("http://127.0.0.1:*").map_err(anyhow::Error::msg)?],
        limits: HttpLimits { max_rate: 0, ..HttpLimits::default() },
        tls: None,
        drain_limit: std::time::Duration::from_secs(1),
    };
    let engine = Arc::new(options.engine().await?);
    let listener = http::bind(address)?;
    say_ready(Some(listener.local_addr()?))?;
    http::serve_handler(handler, engine, listener, served, shutdown).await?;
    Ok(())
}

impl FixtureServer {
    /// With nothing remembered.
    ///
    /// # Errors
    /// If the fixtures are not what the SDK's types say.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { fixtures: Arc::new(Fixtures::read()?), memory: Arc::default() })
    }
}

impl Memory {
    /// A state for this round that nobody can guess.
    pub(super) fn seal(&self, round: usize) -> Result<String, ErrorData> {
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let state: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        lock(&self.states).insert(state.clone(), round);
        Ok(state)
    }

    /// The round of a state, if it is one of ours.
    pub(super) fn open(&self, state: &str) -> Option<usize> {
        lock(&self.states).get(state).copied()
    }

    /// Whoever listens now.
    pub(super) fn listeners(&self) -> Vec<SubscriptionSink> {
        lock(&self.listeners).values().cloned().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Data as the SDK's type.
pub(super) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| {
        ErrorData::internal_error(format!("the fixture is no result: {error}"), None)
    })
}

/// A list, with what a cache may do with it.
fn list<T: DeserializeOwned>(name: &str, items: Value) -> Result<T, ErrorData> {
    typed(json!({ name: items, "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public" }))
}

fn values<T: serde::Serialize>(items: impl Iterator<Item = T>) -> Value {
    items.map(|item| serde_json::to_value(item).unwrap_or_default()).collect()
}

impl ServerHandler for FixtureServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tool_list_changed()
                .enable_prompts()
                .enable_prompts_list_changed()
                .enable_resources()
                .enable_resources_subscribe()
                .enable_resources_list_changed()
                .enable_completions()
                .enable_logging()
                .build(),
        )
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        wire::supported_versions()
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let mut tools = self.fixtures.tools.iter();
        tools.find(|tool| tool.definition.name == name).map(|tool| tool.definition.clone())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        list("tools", values(self.fixtures.tools.iter().map(|tool| &tool.definition)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        acts::call(self, request, &context).await
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        list("prompts", values(self.fixtures.prompts.iter().map(|prompt| &prompt.definition)))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        acts::prompt(self, request, &context)
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        list("resources", values(self.fixtures.resources.iter().map(|one| &one.definition)))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        list("resourceTemplates", values(self.fixtures.templates.iter()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let mut fixed = self.fixtures.resources.iter();
        let number = uri.strip_prefix("test://template/").and_then(|it| it.strip_suffix("/data"));
        let content = match (fixed.find(|one| one.definition.uri == uri), number) {
            (Some(one), _) => one.content.clone(),
            (None, Some(id)) => json!({
                "uri": uri, "mimeType": "application/json",
                "text": json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") })
                    .to_string(),
            }),
            (None, None) => {
                let words = format!("there is no resource {uri}");
                return Err(ErrorData::resource_not_found(words, Some(json!({ "uri": uri }))));
            }
        };
        Ok(list::<ReadResourceResult>("contents", json!([content]))?.into())
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let begun = &request.argument.value;
        typed(json!({
            "completion": { "values": [format!("{begun}1"), format!("{begun}2")], "total": 2,
                            "hasMore": false },
            "resultType": "complete",
        }))
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let key = u64::from_ne_bytes(random);
        lock(&self.memory.listeners).insert(key, context.sink().clone());
        context.cancelled().await;
        lock(&self.memory.listeners).remove(&key);
        Ok(())
    }
}
