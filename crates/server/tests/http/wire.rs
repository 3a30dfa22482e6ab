//! The message itself: read raw, refused with the codes of stdio, never repaired.

use counterfoil::http::HttpLimits;
use serde_json::{Value, json};

use crate::client::{MODERN, Request};
use crate::server::Server;

/// A tool call whose arguments are this JSON text.
fn with_arguments(arguments: &str) -> Request {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientCapabilities":{{}}}},"name":"create_issue","arguments":{arguments}}}}}"#
    );
    raw(body)
}

fn raw(body: impl Into<Vec<u8>>) -> Request {
    Request::post(body)
        .with("MCP-Protocol-Version", MODERN)
        .with("Mcp-Method", "tools/call")
        .with("Mcp-Name", "create_issue")
}

/// Name, body, expected code and expected request ID.
fn bad_bodies(id: &str) -> Vec<(&'static str, Request, i64, Value)> {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    vec![
        (
            "duplicate key",
            with_arguments(&format!(
                r#"{{"operation_id":"{id}","title":"a","title":"b","body":"b"}}"#
            )),
            -32602,
            json!(7),
        ),
        (
            "lone surrogate",
            with_arguments(&format!(r#"{{"operation_id":"{id}","title":"\ud800","body":"b"}}"#)),
            -32602,
            json!(7),
        ),
        (
            "NaN",
            with_arguments(&format!(r#"{{"operation_id":"{id}","title":NaN,"body":"b"}}"#)),
            -32700,
            json!(7),
        ),
        (
            "not UTF-8",
            {
                let mut request =
                    with_arguments(&format!(r#"{{"operation_id":"{id}","title":"?","body":"b"}}"#));
                let at = request.body.iter().position(|byte| *byte == b'?').expect("there");
                request.body[at] = 0xff;
                request
            },
            -32700,
            json!(7),
        ),
        ("too deep", with_arguments(&deep), -32602, json!(7)),
        ("cut off", raw(r#"{"jsonrpc":"2.0","id":7,"method":"tools"#), -32700, json!(7)),
        ("empty", raw(""), -32700, Value::Null),
        ("a batch", raw(r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#), -32600, Value::Null),
        ("text", raw("hello"), -32700, Value::Null),
        ("two messages", raw("{\"id\":7}\n{\"id\":8}"), -32700, json!(7)),
        ("no jsonrpc", raw(r#"{"id":7,"method":"ping"}"#), -32600, json!(7)),
        ("id null", raw(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#), -32600, Value::Null),
        ("id 1.5", raw(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#), -32600, Value::Null),
        ("id 7.0", raw(r#"{"jsonrpc":"2.0","id":7.0,"method":"ping"}"#), -32600, json!(7.0)),
        (
            "params of another form",
            raw(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":7}}"#),
            -32602,
            json!(7),
        ),
        (
            "params no object",
            raw(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[7]}"#),
            -32602,
            json!(7),
        ),
        ("an answer to nothing", raw(r#"{"jsonrpc":"2.0","result":{}}"#), -32600, Value::Null),
    ]
}

#[tokio::test]
async fn what_is_ambiguous_or_broken_is_refused_with_its_id_and_nothing_is_stored() {
    // Promise: no byte of a bad body is guessed at; the connection goes on, and the same operation
    // ID is still free afterwards.
    let server = Server::start().await;
    let token = server.token("alice");
    let id = "0123456789abcdef";
    let mut client = server.connect().await;
    for (name, request, code, request_id) in bad_bodies(id) {
        let reply = client.ask(&request.by(&token)).await;
        assert_eq!((reply.status, reply.code()), (400, Some(code)), "{name}: {}", reply.text());
        let told = reply.json().get("id").cloned().unwrap_or(Value::Null);
        assert_eq!(told, request_id, "{name}: {}", reply.text());
    }
    let reply = client.ask(&Request::status_of(id).by(&token)).await;
    assert_eq!(reply.state(), "unknown");
    let reply = client.ask(&Request::create(&json!(1), id, "t").by(&token)).await;
    assert_eq!(reply.state(), "applied", "{}", reply.text());
    server.stop().await;
}

#[tokio::test]
async fn a_body_is_taken_up_to_its_limit_and_no_further() {
    // Promise: the limit is exact, holds with and without an announced length, and costs no more
    // memory than it says.
    let mut limits = HttpLimits::default();
    limits.json.max_bytes = 1000;
    let server = Server::with_limits(limits).await;
    let token = server.token("alice");
    let request = |size: usize| {
        let mut request = Request::create(&json!(1), "0123456789abcdef", "t").by(&token);
        let padding = size - request.body.len();
        request.body.splice(0..0, std::iter::repeat_n(b' ', padding));
        request
    };
    let chunked = |request: Request| {
        let head = request.head().replace(
            &format!("Content-Length: {}", request.body.len()),
            "Transfer-Encoding: chunked",
        );
        let mut bytes = head.into_bytes();
        for chunk in request.body.chunks(300) {
            bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\n\r\n");
        bytes
    };
    assert_eq!(server.ask(&request(1000)).await.state(), "applied");
    let mut client = server.connect().await;
    client.send(chunked(request(1000))).await;
    assert_eq!(client.reply().await.state(), "applied");
    let announced = server.ask(&request(1001)).await;
    let mut client = server.connect().await;
    client.send(chunked(request(1001))).await;
    for reply in [announced, client.reply().await] {
        assert_eq!((reply.status, reply.code()), (413, Some(-32700)), "{}", reply.text());
        assert!(reply.text().contains("1000 bytes"), "{}", reply.text());
    }
    server.stop().await;
}

#[tokio::test]
async fn a_notification_is_taken_and_never_answered() {
    // Promise: what needs no answer gets 202, even if nobody knows it.
    let server = Server::start().await;
    let token = server.token("alice");
    for method in ["notifications/cancelled", "notifications/nobody-knows-this"] {
        let body = json!({ "jsonrpc": "2.0", "method": method, "params": {} });
        let request = Request::post(body.to_string())
            .with("MCP-Protocol-Version", MODERN)
            .with("Mcp-Method", method);
        let reply = server.ask(&request.by(&token)).await;
        assert_eq!(reply.status, 202, "{method}: {}", reply.text());
    }
    server.stop().await;
}
