//! A server of your own that guards its own table: one tool, `refund`, whose row commits with the
//! operation's record. Run it under any MCP client, or try it at once:
//!
//!     cargo build --release --example refund_desk
//!     counterfoil call refund --operation-id refund-A1 --args '{"order": "A1", "cents": 500}' \
//!         -- target/release/examples/refund_desk ./refunds
//!
//! The effect is `impl Effect for Refund`; everything else is what any MCP server has.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use counterfoil::tools::arguments::{Arguments, invalid};
use counterfoil::wire::{self, RawCall, StdioTransport, WireLimits};
use counterfoil_core::admission::{Authority, Call};
use counterfoil_core::fingerprint::{KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{Caller, Principal, Tenant, ToolId, ToolVersion};
use counterfoil_core::json::Value;
use counterfoil_core::record::StoredResult;
use counterfoil_core::refusal::Refusal;
use counterfoil_core::time::Lifetimes;
use counterfoil_engine::{Effect, Engine};
use counterfoil_store::sqlite::{SqliteOptions, SqliteStore};
use counterfoil_store::{Completion, EffectContext, EffectError, EffectRow, EffectTx};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool, object,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS refunds (
    id INTEGER PRIMARY KEY, order_number TEXT NOT NULL, cents INTEGER NOT NULL CHECK (cents > 0)
)";

/// The effect: one row in our own table.
#[derive(Debug)]
struct Refund {
    order: String,
    cents: i64,
}

impl Effect for Refund {
    fn apply(
        &self,
        tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        let sql = tx.sql().ok_or_else(|| EffectError::Failed("this store has no SQL".into()))?;
        sql.execute(
            "INSERT INTO refunds (order_number, cents) VALUES (?1, ?2)",
            &[self.order.as_str().into(), self.cents.into()],
        )?;
        let id = sql.last_insert_id();
        let result = json!({ "effectId": id, "order": self.order, "cents": self.cents });
        Ok(Completion::Whole {
            row: Some(EffectRow { table: "refunds", id }),
            result: StoredResult::from_json(result.to_string())
                .map_err(|error| EffectError::Failed(error.to_string()))?,
        })
    }
}

#[derive(Debug)]
struct RefundDesk {
    engine: Arc<Engine>,
    caller: Caller,
}

impl RefundDesk {
    async fn refund(&self, raw: &RawCall) -> Result<CallToolResult, Refusal> {
        let arguments = raw.arguments().cloned().unwrap_or(Value::Null);
        let known = ["operation_id", "order", "cents"];
        let read = Arguments::read("refund", &known, &arguments, raw.meta())?;
        let operation_id = read.operation_id(raw.meta())?;
        // From here on every refusal names the operation.
        let refund = read_refund(&read).map_err(|refusal| refusal.for_operation(&operation_id))?;

        let mut without_id = arguments.clone();
        if let Some(object) = without_id.as_object_mut() {
            object.remove("operation_id");
        }
        let admitted = self.engine.admit(&Call {
            caller: &self.caller,
            tool_id: &ToolId::parse("refund").expect("a valid name"),
            tool_version: &ToolVersion::parse("1").expect("a valid version"),
            profile: Profile::JcsV1,
            operation_id: &operation_id,
            arguments: &without_id,
            call_arguments: &without_id,
            continuation_state: None,
            input_responses: None,
            authority: Authority::Present,
        })?;
        let settled = self.engine.execute(admitted, Arc::new(refund)).await?;
        Ok(counterfoil::tools::reply::settled(&settled))
    }
}

fn read_refund(arguments: &Arguments<'_>) -> Result<Refund, Refusal> {
    let order = arguments.required_text("order", 64)?.to_owned();
    match arguments.integer("cents")? {
        Some(cents) if cents > 0 => Ok(Refund { order, cents }),
        _ => Err(invalid("refund needs `cents`: a whole number above 0")),
    }
}

impl ServerHandler for RefundDesk {
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
        let schema = json!({
            "type": "object",
            "properties": {
                "operation_id": { "type": "string" },
                "order": { "type": "string" },
                "cents": { "type": "integer", "minimum": 1 }
            },
            "required": ["operation_id", "order", "cents"]
        });
        let refund = Tool::new("refund", "Refunds an order, once for each ID.", object(schema));
        Ok(ListToolsResult::with_all_items(vec![
            refund,
            counterfoil::tools::operation_status::definition(),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let raw = context.extensions.get::<RawCall>().expect("our transport keeps the raw call");
        let result = match &*request.name {
            "refund" => self.refund(raw).await,
            "get_operation_status" => {
                counterfoil::tools::operation_status::call(&self.engine, &self.caller, raw).await
            }
            other => return Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
        };
        Ok(result.unwrap_or_else(|refusal| counterfoil::tools::reply::refused(&refusal)).into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.ok_or("give a folder for the ledger: refund_desk ./refunds")?;
    std::fs::create_dir_all(&directory)?;
    let mut options = SqliteOptions::new(directory.join("ledger.db"));
    options.schema = Some(SCHEMA.to_owned());
    let store = Arc::new(SqliteStore::open(&options)?);
    // A real server has a secret key of its own: 32 random bytes from a file of mode 0600.
    let key = SecretKey::from_bytes(b"an example's key, 32 bytes or more")?;
    let keys = KeyRing::new(KeyId(1), [(KeyId(1), key)])?;
    let engine = Arc::new(Engine::open(store, keys, Lifetimes::default()).await?);

    let caller =
        Caller { tenant: Tenant::parse("local")?, principal: Principal::parse("example")? };
    let desk = RefundDesk { engine: Arc::clone(&engine), caller };
    let transport = StdioTransport::spawn(
        tokio::io::stdin(),
        tokio::io::stdout(),
        WireLimits::default(),
        Default::default(),
    );
    wire::serve(desk, transport).await?;
    engine.drain(std::time::Duration::from_secs(30)).await;
    engine.close().await?;
    Ok(())
}
