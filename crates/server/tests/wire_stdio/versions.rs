//! Which protocol revisions are served, and how a connection opens.

use counterfoil::wire::{DrainCause, Ended};
use serde_json::json;

use crate::support::{Client, call, modern, request_of_version, text};

fn initialize(version: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    }})
    .to_string()
}

#[tokio::test]
async fn initialize_never_agrees_to_a_revision_that_is_not_served() {
    // Promise: the handshake answers with 2025-06-18 or 2025-11-25 and nothing else.
    for (asked, answered) in [
        ("2024-11-05", "2025-11-25"),
        ("2025-03-26", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("9999-12-31", "2025-11-25"),
        ("", "2025-11-25"),
    ] {
        let mut client = Client::connect();
        client.send(initialize(asked)).await;
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        assert_eq!(client.reply().await["result"]["protocolVersion"], answered, "{asked}");
        let legacy = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":1}}}"#;
        client.send(legacy).await;
        assert_eq!(text(&client.reply().await), r#"{"a":1}"#, "{asked}");
    }
}

#[tokio::test]
async fn a_request_of_another_revision_is_refused() {
    // Promise: -32022 names the served revisions, both before and after the lifecycle opened.
    let mut client = Client::connect();
    let check = async |client: &mut Client| {
        for version in ["2024-11-05", "2025-03-26", "9999-12-31"] {
            for (method, rest) in [("server/discover", ""), ("tools/call", r#""name":"echo""#)] {
                client.send(request_of_version(version, "1", method, rest)).await;
                let error = client.reply().await["error"].take();
                assert_eq!(error["code"], -32022, "{version} {method}: {error}");
                let served = json!(["2025-06-18", "2025-11-25", "2026-07-28"]);
                assert_eq!(error["data"]["supported"], served);
            }
        }
    };
    check(&mut client).await;
    client.send(call("1", "echo", "{}")).await;
    assert_eq!(text(&client.reply().await), "{}");
    check(&mut client).await;
}

#[tokio::test]
async fn stray_messages_before_the_lifecycle_do_not_end_the_connection() {
    // Promise: a probe, its cancellation, and stray answers leave the connection usable.
    let mut client = Client::connect();
    let stray = [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":3,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/unknown"}"#,
    ];
    for frame in stray {
        client.send(frame).await;
    }
    client.send(modern("1", "server/discover", "")).await;
    assert!(client.reply().await["result"]["supportedVersions"].is_array());
    client.send(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await;
    assert_eq!(client.reply().await["id"], 2);
    // Refused by the SDK, and so not the opening of a lifecycle.
    client.send(r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#).await;
    assert_eq!(client.reply().await["error"]["code"], -32602);
    for frame in stray {
        client.send(frame).await;
    }
    client.send(call("4", "echo", "{}")).await;
    assert_eq!(text(&client.reply().await), "{}");
    client.close_input();
    let expected = Ended { cause: DrainCause::EndOfInput, opened: true, unanswered_count: 0 };
    assert_eq!(client.ended().await, expected);
}

#[tokio::test]
async fn leaving_before_the_lifecycle_is_no_error() {
    // Promise: a client that connects only to probe, or not even that, is served quietly.
    for probe in [None, Some(modern("1", "server/discover", ""))] {
        let mut client = Client::connect();
        if let Some(probe) = probe {
            client.send(probe).await;
            client.reply().await;
        }
        client.close_input();
        let expected = Ended { cause: DrainCause::EndOfInput, opened: false, unanswered_count: 0 };
        assert_eq!(client.ended().await, expected);
    }
    let client = Client::connect();
    client.shutdown.cancel();
    let expected = Ended { cause: DrainCause::Shutdown, opened: false, unanswered_count: 0 };
    assert_eq!(client.ended().await, expected);
}
