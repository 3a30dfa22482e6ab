//! Headers that stand for arguments, which none of our own tools has: with a tool that does.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use counterfoil_core::fingerprint::{KeyId, KeyRing, SecretKey};
use counterfoil_core::identity::{BackendId, Caller, Principal, Tenant};
use counterfoil_core::time::Lifetimes;
use counterfoil_store::{MemoryOptions, MemoryStore};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use tower_service::Service;

use super::*;

/// Has one tool, with an argument that is also sent as `Mcp-Param-Region`.
#[derive(Clone)]
struct Annotated;

impl ServerHandler for Annotated {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let schema = json!({
            "type": "object",
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" } }
        });
        let schema = Arc::new(rmcp::model::object(schema));
        (name == "deploy").then(|| Tool::new("deploy", "for this test", schema))
    }

    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(Vec::new()).into())
    }
}

async fn app() -> Router {
    let name = BackendId::parse("test").unwrap();
    let store = MemoryStore::new(&MemoryOptions::new(name)).unwrap();
    let key = SecretKey::from_bytes(&[7; 32]).unwrap();
    let ring = KeyRing::new(KeyId(1), [(KeyId(1), key)]).unwrap();
    let engine = Engine::open(Arc::new(store), ring, Lifetimes::default()).await.unwrap();
    let options = HttpOptions {
        auth: Auth::LocalOnly(Caller {
            tenant: Tenant::parse("t").unwrap(),
            principal: Principal::parse("p").unwrap(),
        }),
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        limits: HttpLimits::default(),
        tls: None,
        drain_limit: Duration::ZERO,
    };
    let ends = Ends { stopping: &CancellationToken::new(), sdk: &CancellationToken::new() };
    let address = SocketAddr::from(([127, 0, 0, 1], 80));
    router(Annotated, &Arc::new(engine), address, &options, &Arc::default(), &ends)
}

fn deploy(arguments: &Value, headers: &[&str]) -> Request {
    let body = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {
            "name": "deploy", "arguments": arguments,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}
            }
        }
    });
    let mut request = http::Request::post("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "deploy");
    for value in headers {
        request = request.header("mcp-param-region", *value);
    }
    request.body(Body::from(body.to_string())).unwrap()
}

#[tokio::test]
async fn a_header_that_stands_for_an_argument_says_what_the_argument_says() {
    // Promise: who routes by `Mcp-Param-*` and who reads the body see one and the same argument.
    let mut app = app().await;
    let region = |value: Value| json!({ "region": value });
    let cases: &[(Value, &[&str], u16)] = &[
        (region(json!("eu")), &["eu"], 200),
        (region(json!("é")), &["=?base64?w6k=?="], 200),
        (json!({}), &[], 200),
        (region(Value::Null), &[], 200),
        (region(json!("eu")), &["us"], 400),
        (region(json!("eu")), &[], 400),
        (region(json!("eu")), &["eu", "eu"], 400),
        (json!({}), &["eu"], 400),
        (region(json!("eu")), &["=?base64?!?="], 400),
    ];
    for (arguments, headers, status) in cases {
        let response: Response = app.call(deploy(arguments, headers)).await.unwrap();
        assert_eq!(response.status().as_u16(), *status, "{arguments} {headers:?}");
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let code = body["error"]["code"].as_i64();
        assert_eq!((&body["id"], code), (&json!(7), (*status == 400).then_some(-32020)), "{body}");
    }
}
