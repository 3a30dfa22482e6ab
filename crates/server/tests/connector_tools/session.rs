//! A client of the official SDK on the real binary over stdio. It holds every result against the
//! schema that the server publishes for the tool.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CallToolResult, MetaObject,
    ProtocolVersion, RequestMetaObject, Tool,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, RunningService};
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::world::World;

/// Only against a hang of the test itself: nothing asserts on time.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);

pub(crate) struct Session {
    service: RunningService<RoleClient, ()>,
    child: Child,
    pub(crate) tools: BTreeMap<String, Tool>,
    /// In the order in which they were listed.
    pub(crate) names: Vec<String>,
}

impl Session {
    pub(crate) async fn start(world: &World, principal: &str, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_counterfoil"))
            .args(["serve", "--stdio", "--principal", principal])
            .args(more)
            .env_clear()
            .env("COUNTERFOIL_DATA_DIR", world.data_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary runs");
        let pipes = (child.stdout.take().expect("piped"), child.stdin.take().expect("piped"));
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        };
        let service = ().serve_with_lifecycle(pipes, lifecycle).await.expect("a session");
        let listed = service.list_all_tools().await.expect("listed");
        let names = listed.iter().map(|tool| tool.name.to_string()).collect();
        let tools = listed.into_iter().map(|tool| (tool.name.to_string(), tool)).collect();
        Self { service, child, tools, names }
    }

    /// Calls a tool; its result must be what the tool's schema says.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.call_with(tool, arguments, None).await
    }

    /// The same, with an operation ID in `_meta`.
    pub(crate) async fn call_with(&self, tool: &str, arguments: Value, id: Option<&str>) -> Answer {
        let mut params = params(tool, &arguments);
        if let Some(id) = id {
            let mut meta = MetaObject::new();
            meta.0.insert("io.counterfoil/operationId".into(), id.into());
            params.meta = Some(RequestMetaObject(meta));
        }
        let called = tokio::time::timeout(WATCHDOG, self.service.call_tool_once(params)).await;
        match called.expect("an answer").expect("a result") {
            CallToolResponse::Complete(result) => {
                check(&self.tools[tool], &json!(result));
                Answer(result)
            }
            other => panic!("not complete: {other:?}"),
        }
    }

    /// Sends a call whose answer nobody waits for.
    pub(crate) async fn begin(&self, tool: &str, arguments: Value) -> RequestHandle<RoleClient> {
        let request = CallToolRequest::new(params(tool, &arguments)).into();
        let options = PeerRequestOptions::no_options();
        self.service.send_cancellable_request(request, options).await.expect("sent")
    }

    /// The status of an operation.
    pub(crate) async fn status(&self, id: &str) -> Value {
        self.call("get_operation_status", json!({ "operation_id": id })).await.body()
    }

    /// Asks until `reached` says that it came to that.
    pub(crate) async fn until(
        &self,
        tool: &str,
        arguments: Value,
        reached: impl Fn(&Value) -> bool,
    ) -> Value {
        let asking = async {
            loop {
                let body = self.call(tool, arguments.clone()).await.body();
                if reached(&body) {
                    return body;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WATCHDOG, asking).await.expect("it never came to that")
    }

    /// Lets the server end by itself.
    pub(crate) async fn close(mut self) {
        self.service.close_with_timeout(WATCHDOG).await.expect("closed");
        let ended = tokio::time::timeout(WATCHDOG, self.child.wait()).await;
        assert!(ended.expect("it ends").expect("waited for").success());
    }

    /// As a machine that fails.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }
}

fn params(tool: &str, arguments: &Value) -> CallToolRequestParams {
    let arguments = arguments.as_object().expect("an object").clone();
    CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments)
}

pub(crate) struct Answer(pub(crate) CallToolResult);

impl Answer {
    pub(crate) fn body(&self) -> Value {
        self.0.structured_content.clone().expect("structured")
    }

    pub(crate) fn is_error(&self) -> bool {
        self.0.is_error == Some(true)
    }

    /// What `_meta` says of the operation.
    pub(crate) fn operation(&self) -> Value {
        json!(self.0.meta)["io.counterfoil/operation"].clone()
    }

    /// The first text, which is for people.
    pub(crate) fn text(&self) -> String {
        json!(self.0.content)[0]["text"].as_str().expect("a text").to_owned()
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> String {
        assert!(self.is_error(), "{:?}", self.0);
        self.body()["error"]["code"].as_str().expect("a refusal").to_owned()
    }
}

/// Holds a result against its tool's schema, and its texts against its structured content.
pub(crate) fn check(tool: &Tool, result: &Value) {
    let schema = tool.output_schema.as_ref().expect("every tool publishes one");
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(&Value::Object((**schema).clone()))
        .expect("a schema");
    let body = &result["structuredContent"];
    let wrong: Vec<String> = validator.iter_errors(body).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{}: {wrong:?}: {body}", tool.name);
    let blocks = result["content"].as_array().expect("content");
    let repeated = blocks.iter().any(|block| {
        let text = block["text"].as_str().expect("a text");
        serde_json::from_str::<Value>(text).is_ok_and(|value| value == *body)
    });
    assert!(repeated, "{}: no text repeats {body}", tool.name);
}
