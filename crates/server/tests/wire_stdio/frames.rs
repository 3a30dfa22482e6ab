//! Frames that must be refused, and what must come through unchanged.

use serde_json::{Value, json};

use crate::support::{Client, call, modern, text};

/// Sends `frame`, expects its refusal, and then that the connection still works.
async fn check(client: &mut Client, frame: &[u8], code: i64, id: Option<Value>) {
    let shown = String::from_utf8_lossy(&frame[..frame.len().min(200)]).into_owned();
    client.send(frame).await;
    let line = client.line().await.expect("a refusal");
    assert!(line.len() < 2048, "the refusal repeats its input: {shown}");
    assert!(!line.contains('\u{fffd}') && !line.contains("s3cret"), "{line}");
    let reply: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(reply["error"]["code"], code, "{shown}: {reply}");
    assert_eq!(reply.get("id"), id.as_ref(), "{shown}: {reply}");
    client.send(call("\"next\"", "echo", "{}")).await;
    assert_eq!(client.reply().await["id"], "next", "{shown}");
}

fn bad_frames() -> Vec<(Vec<u8>, i64, Option<Value>)> {
    let with_arguments = |arguments: &[u8]| {
        let frame = call("\"q\"", "echo", "@");
        let (head, tail) = frame.split_once('@').unwrap();
        [head.as_bytes(), arguments, tail.as_bytes()].concat()
    };
    let deep = ["[".repeat(10_000), "]".repeat(10_000)].concat();
    let big = format!("\"{}\"", "x".repeat(10 * 1024 * 1024));
    let long_string = format!("\"{}\"", "x".repeat(2 * 1024 * 1024));
    let q = || Some(json!("q"));
    vec![
        // Not JSON, or too long to be read.
        (b"hello".to_vec(), -32700, None),
        (b"\xff\xfe".to_vec(), -32700, None),
        (b"{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"pi".to_vec(), -32700, Some(json!(4))),
        (with_arguments(b"{\"v\":\"\xff\xfe s3cret\"}"), -32700, q()),
        (with_arguments(b"{\"v\":NaN}"), -32700, q()),
        (with_arguments(b"{\"v\":-Infinity}"), -32700, q()),
        (with_arguments(b"{\"v\":01}"), -32700, q()),
        (with_arguments(b"{\"v\":1,}"), -32700, q()),
        (with_arguments(big.as_bytes()), -32700, q()),
        // JSON, but ambiguous or past a limit.
        (with_arguments(deep.as_bytes()), -32602, q()),
        (with_arguments(long_string.as_bytes()), -32602, q()),
        (with_arguments(br#"{"a":"s3cret","a":2}"#), -32602, q()),
        (with_arguments(br#"{"v":"\ud800 s3cret"}"#), -32602, q()),
        (with_arguments(br#"{"\udc00":1}"#), -32602, q()),
        (br#"{"jsonrpc":"2.0","id":5,"method":"ping","id":6}"#.to_vec(), -32602, None),
        (br#"{"jsonrpc":"2.0","id":"\ud800","method":"ping"}"#.to_vec(), -32602, None),
        // JSON, but no request.
        (br#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#.to_vec(), -32600, None),
        (b"[]".to_vec(), -32600, None),
        (b"null".to_vec(), -32600, None),
        (b"{}".to_vec(), -32600, None),
        (br#"{"id":7,"method":"ping"}"#.to_vec(), -32600, Some(json!(7))),
        (br#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#.to_vec(), -32600, Some(json!(7))),
        (br#"{"jsonrpc":"2.0","id":"7"}"#.to_vec(), -32600, Some(json!("7"))),
        (br#"{"jsonrpc":"2.0","id":7,"method":3}"#.to_vec(), -32600, Some(json!(7))),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#.to_vec(), -32600, None),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#.to_vec(), -32600, None),
        (br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#.to_vec(), -32600, None),
        (br#"{"jsonrpc":"2.0","id":7,"method":"x","result":{}}"#.to_vec(), -32600, Some(json!(7))),
        // An answer to us: an error with its ID could be taken for a reply to the client's own.
        (br#"{"jsonrpc":"1.0","id":7,"result":{}}"#.to_vec(), -32600, None),
        (br#"{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}"#.to_vec(), -32602, None),
        // A request whose parameters do not fit.
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}"#.to_vec(),
            -32602,
            Some(json!(7)),
        ),
        (modern("7", "tools/call", r#""arguments":{}"#).into_bytes(), -32602, Some(json!(7))),
        (modern("7", "tools/call", r#""name":["s3cret"]"#).into_bytes(), -32602, Some(json!(7))),
        (modern("7", "initialize", "").into_bytes(), -32601, Some(json!(7))),
        (with_arguments(br#"{"v":1e400}"#), -32602, q()),
        // The SDK's own answers come through.
        (modern("7", "no/such/method", "").into_bytes(), -32601, Some(json!(7))),
        (
            modern("\"7\"", "resources/read", r#""uri":"x:y""#).into_bytes(),
            -32601,
            Some(json!("7")),
        ),
    ]
}

#[tokio::test]
async fn bad_frames_are_refused_and_the_connection_lives() {
    // Promise: what cannot be read is refused with a standard code and the request's ID, nothing
    // of it reaches a tool, and the next frame works.
    let mut client = Client::connect();
    let cases = bad_frames();
    for (frame, code, id) in &cases {
        check(&mut client, frame, *code, id.clone()).await;
    }
    assert_eq!(client.completed_count(), cases.len(), "only the good calls ran");
}

#[tokio::test]
async fn an_unknown_method_is_told_in_words_of_bounded_length() {
    // Promise: whoever calls a method that this server has not is told so, and no name floods the
    // reply.
    let cases = [
        ("no/such".to_owned(), "method `no/such` is not known to this server".to_owned()),
        ("x".repeat(500), format!("method `{}…` is not known to this server", "x".repeat(64))),
    ];
    let mut client = Client::connect();
    for (method, words) in cases {
        client.send(modern("7", &method, "")).await;
        assert_eq!(client.reply().await["error"]["message"], words);
    }
}

#[tokio::test]
async fn each_bad_frame_is_refused_as_the_first_of_its_connection_too() {
    // Promise: a bad first frame ends no connection, although no lifecycle was opened yet.
    for (frame, code, id) in bad_frames() {
        check(&mut Client::connect(), &frame, code, id).await;
    }
}

#[tokio::test]
async fn arguments_reach_the_handler_without_loss() {
    // Promise: number literals, member order and text come through as they were written.
    let mut client = Client::connect();
    for arguments in [
        r#"{"n":9007199254740993}"#,
        r#"{"n":9007199254740992}"#,
        r#"{"n":123456789012345678901234567890}"#,
        r#"{"z":1.0,"a":1e2,"m":-0}"#,
        r#"{"s":"é😀 \\u0000 \\n"}"#,
        r#"[1,"not an object"]"#,
    ] {
        let frame = call("1", "echo", arguments);
        client.send(&frame).await;
        let reply = client.reply().await;
        if arguments.starts_with('[') {
            assert_eq!(reply["error"]["code"], -32602, "{reply}");
        } else {
            assert_eq!(text(&reply), arguments);
        }
    }
}

#[tokio::test]
async fn white_space_between_frames_is_ignored() {
    // Promise: blank lines and CRLF line ends are no faults.
    let mut client = Client::connect();
    client.send("\n\r\n  \t\n").await;
    client.send(call("1", "echo", "{}") + "\r").await;
    assert_eq!(client.reply().await["id"], 1);
}

#[tokio::test]
async fn a_last_frame_without_line_end_is_served() {
    // Promise: a client that pipes one request in and closes gets its answer.
    let mut client = Client::connect();
    client.send_unfinished(call("1", "echo", "{}")).await;
    client.close_input();
    assert_eq!(client.reply().await["id"], 1);
}
