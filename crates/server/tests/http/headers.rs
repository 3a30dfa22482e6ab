//! The headers of HTTP and of the protocol, one row each.

use serde_json::{Value, json};

use crate::client::{LEGACY, MODERN, Request};
use crate::server::{Server, Start};

const ID: &str = "0123456789abcdef";

fn good() -> Request {
    Request::create(&json!(7), ID, "t")
}

#[tokio::test]
async fn headers_say_what_the_body_says_or_nothing_is_done() {
    // Promise: whoever routes by the headers and whoever reads the body see one and the same call.
    let server = Server::start().await;
    let token = server.token("alice");
    let list = || Request::modern(&json!(7), "tools/list", json!({}));
    let cases: Vec<(&str, Request, u16, Option<i64>)> = vec![
        ("version missing", good().without("MCP-Protocol-Version"), 400, Some(-32020)),
        ("version of another", good().instead("MCP-Protocol-Version", LEGACY), 400, Some(-32020)),
        (
            "version unknown",
            good().instead("MCP-Protocol-Version", "1999-01-01"),
            400,
            Some(-32022),
        ),
        (
            "version not served",
            good().instead("MCP-Protocol-Version", "2024-11-05"),
            400,
            Some(-32022),
        ),
        ("version twice", good().with("MCP-Protocol-Version", MODERN), 400, Some(-32020)),
        ("version empty", good().instead("MCP-Protocol-Version", ""), 400, Some(-32022)),
        ("method missing", good().without("Mcp-Method"), 400, Some(-32020)),
        ("method of another", good().instead("Mcp-Method", "tools/list"), 400, Some(-32020)),
        ("method twice", good().with("Mcp-Method", "tools/call"), 400, Some(-32020)),
        ("name missing", good().without("Mcp-Name"), 400, Some(-32020)),
        ("name of another", good().instead("Mcp-Name", "get_operation_status"), 400, Some(-32020)),
        ("name twice", good().with("Mcp-Name", "create_issue"), 400, Some(-32020)),
        ("name in bad base64", good().instead("Mcp-Name", "=?base64?!?="), 400, Some(-32020)),
        ("kind of body", good().instead("Content-Type", "text/plain"), 415, None),
        ("kind of answer", good().instead("Accept", "application/json"), 406, None),
        ("no kind of answer", good().without("Accept"), 406, None),
        (
            "unknown method",
            Request::modern(&json!(7), "tools/explode", json!({})),
            404,
            Some(-32601),
        ),
        (
            "method of older versions",
            Request::modern(&json!(7), "logging/setLevel", json!({})),
            404,
            Some(-32601),
        ),
        ("session of nobody", good().with("Mcp-Session-Id", "x"), 404, Some(-32600)),
        (
            "session twice",
            good().with("Mcp-Session-Id", "x").with("Mcp-Session-Id", "y"),
            400,
            Some(-32020),
        ),
        ("good list", list(), 200, None),
    ];
    let mut client = server.connect().await;
    for (name, request, status, code) in cases {
        let reply = client.ask(&request.by(&token)).await;
        assert_eq!(reply.status, status, "{name}: {}", reply.text());
        if let Some(code) = code {
            assert_eq!(reply.code(), Some(code), "{name}: {}", reply.text());
            assert_eq!(reply.json()["id"], json!(7), "{name}: {}", reply.text());
        }
    }
    let unknown = Request::create(&json!(7), ID, "t").instead("MCP-Protocol-Version", "1999-01-01");
    let error = client.ask(&unknown.by(&token)).await.json()["error"].clone();
    assert_eq!(error["data"]["supported"], json!(["2025-06-18", "2025-11-25", "2026-07-28"]));
    assert_eq!(error["data"]["requested"], "1999-01-01");
    // After all this the operation is still to be made.
    assert_eq!(client.ask(&Request::status_of(ID).by(&token)).await.state(), "unknown");
    let base64 = good().instead("Mcp-Name", "=?base64?Y3JlYXRlX2lzc3Vl?=").by(&token);
    assert_eq!(client.ask(&base64).await.state(), "applied");
    server.stop().await;
}

#[tokio::test]
async fn a_request_without_its_metadata_names_what_is_missing() {
    // Promise: a request of the newest revision carries its revision and capabilities itself.
    let server = Server::start().await;
    let token = server.token("alice");
    for missing in ["protocolVersion", "clientCapabilities"] {
        let mut request = good();
        let mut body: Value = serde_json::from_slice(&request.body).expect("JSON");
        let meta = body["params"]["_meta"].as_object_mut().expect("an object");
        meta.remove(&format!("io.modelcontextprotocol/{missing}"));
        request.body = body.to_string().into_bytes();
        let reply = server.ask(&request.by(&token)).await;
        assert_eq!((reply.status, reply.code()), (400, Some(-32602)), "{}", reply.text());
        assert!(reply.text().contains(missing), "{}", reply.text());
    }
    server.stop().await;
}

#[tokio::test]
async fn pages_of_an_allowed_origin_can_call_and_others_are_told_nothing() {
    // Promise: a browser learns what it must know to let an allowed page call; its question needs
    // no token and does nothing, and the call itself needs one.
    let server = Start { origins: &["https://app.example"], ..Start::default() }.run().await;
    let token = server.token("alice");
    let ask = |origin: &str| {
        Request { method: "OPTIONS", body: Vec::new(), ..good() }
            .with("Origin", origin)
            .with("Access-Control-Request-Method", "POST")
            .with("Access-Control-Request-Headers", "authorization,mcp-method")
    };
    let reply = server.ask(&ask("https://app.example")).await;
    assert_eq!(reply.status, 204);
    for (name, value) in [
        ("access-control-allow-origin", "https://app.example"),
        ("access-control-allow-headers", "authorization,mcp-method"),
        ("access-control-allow-methods", "POST, GET, DELETE"),
        ("vary", "Origin"),
    ] {
        assert_eq!(reply.header(name), Some(value));
    }
    let foreign = server.ask(&ask("https://evil.example")).await;
    assert_eq!((foreign.status, foreign.header("access-control-allow-origin")), (403, None));
    let without = server.ask(&good().with("Origin", "https://app.example")).await;
    assert_eq!(without.status, 401);
    assert_eq!(without.header("access-control-allow-origin"), Some("https://app.example"));
    let reply = server.ask(&good().with("Origin", "https://app.example").by(&token)).await;
    assert_eq!(reply.state(), "applied");
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(server.ask(&good().by(&token)).await.header("access-control-allow-origin"), None);
    server.stop().await;
}

#[tokio::test]
async fn strange_names_pages_and_urls_get_nothing() {
    // Promise: a browser cannot be used against the server, and a token in a URL is refused even
    // if the header has a good one.
    let start = Start { origins: &["https://app.example"], ..Start::default() };
    let server = start.run().await;
    let token = server.token("alice");
    let by = |request: Request| request.by(&token);
    let to = |target: &str| Request { target: target.into(), ..good() };
    let cases: Vec<(&str, Request, u16)> = vec![
        ("another host", by(good().instead("Host", "evil.example")), 403),
        ("no host", by(good().without("Host")), 400),
        ("two hosts", by(good().with("Host", "localhost")), 400),
        ("another origin", by(good().with("Origin", "https://evil.example")), 403),
        ("no origin", by(good().with("Origin", "null")), 403),
        ("allowed origin", by(good().with("Origin", "https://app.example")), 200),
        ("token in the URL", to(&format!("/mcp?access_token={token}")), 400),
        ("token in the URL too", by(to(&format!("/mcp?access_token={token}"))), 400),
        ("any query", by(to("/mcp?x=1")), 400),
        ("an empty query", by(to("/mcp?")), 400),
        ("another path", by(to("/")), 404),
        ("below the path", by(to("/mcp/x")), 404),
        (
            "GET without a session",
            by(Request::get("/mcp").with("Accept", "text/event-stream")),
            400,
        ),
        (
            "GET of the newest revision",
            by(Request::get("/mcp")
                .with("Accept", "text/event-stream")
                .with("MCP-Protocol-Version", MODERN)),
            405,
        ),
        ("PUT", by(Request { method: "PUT", ..good() }), 405),
        ("metrics of another host", Request::get("/metrics").instead("Host", "evil.example"), 403),
        ("health of any host", Request::get("/healthz").instead("Host", "10.0.0.1"), 200),
        ("readiness of any host", Request::get("/readyz").instead("Host", "10.0.0.1"), 200),
    ];
    for (name, request, status) in cases {
        let reply = server.ask(&request).await;
        assert_eq!(reply.status, status, "{name}: {}", reply.text());
        assert!(!reply.text().contains(&token), "{name}");
    }
    server.stop().await;
}
