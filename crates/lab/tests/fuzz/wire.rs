//! JSON-RPC lines: by the reader alone, and by a whole server that must outlive them.

use std::sync::Arc;

use counterfoil::serve;
use counterfoil::wire::{WireLimits, read_body};
use counterfoil_core::json::JsonLimits;
use counterfoil_lab::child::{ChildOptions, StoreKind};
use counterfoil_lab::raw::{continuation, request, tool_call};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, duplex};
use tokio_util::sync::CancellationToken;

use super::{cases, damage};

/// A good frame of some kind.
fn frame() -> impl Strategy<Value = String> {
    let id =
        prop_oneof![any::<i32>().prop_map(Value::from), "[a-z0-9 ]{0,8}".prop_map(Value::from)];
    let arguments = ("[A-Za-z0-9-]{1,20}", "[a-z ]{1,20}").prop_map(|(operation, title)| {
        json!({ "operation_id": operation, "title": title }).to_string()
    });
    (id, arguments, 0..5).prop_map(|(id, arguments, kind)| match kind {
        0 => tool_call(&id, "create_issue", &arguments),
        1 => tool_call(&id, "get_operation_status", r#"{"operation_id":"x"}"#),
        2 => continuation(&id, &arguments, r#"{"body":{"action":"decline"}}"#, r#""cf1.AAAA""#),
        3 => request(&id, "tools/list", r#""cursor":"x""#),
        _ => request(&id, "ping", r#""a":1"#),
    })
}

/// A frame or bytes without a line end, damaged several times or not at all.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop_oneof![
        4 => frame().prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..80),
    ];
    (bytes, prop::collection::vec(damage(), 0..4)).prop_map(|(mut bytes, damages)| {
        for damage in damages {
            bytes = damage.of(&bytes);
        }
        bytes.retain(|byte| *byte != b'\n');
        bytes
    })
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_line_is_read_or_refused_in_words(line in line()) {
        // Promise: no line panics the reader; a refusal is one JSON-RPC error with a standard code;
        // and what is taken is JSON to another reader too.
        match read_body(&line, &JsonLimits::default()) {
            Err(refused) => {
                let reply: Value = serde_json::from_slice(&refused.reply).expect("JSON");
                prop_assert_eq!(&reply["jsonrpc"], "2.0");
                prop_assert_eq!(&reply["error"]["code"], refused.code);
                prop_assert!((-32768..=-32020).contains(&refused.code), "{}", refused.code);
            }
            Ok(_) => {
                let other = serde_json::from_slice::<serde::de::IgnoredAny>(&line);
                prop_assert!(other.is_ok(), "{:?}", String::from_utf8_lossy(&line));
            }
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_refused(frame in frame(), at in any::<prop::sample::Index>()) {
        // Promise: a request with two meanings has none, wherever the second one stands.
        let places: Vec<usize> = frame.match_indices('{').map(|(at, _)| at + 1).collect();
        let at = places[at.index(places.len())];
        // An empty object gets one key twice; any other one a key of its own twice.
        let ends = frame[at..].starts_with('}');
        let twice = if ends { r#""zz":1,"zz":1"# } else { r#""zz":1,"zz":1,"# };
        let doubled = format!("{}{twice}{}", &frame[..at], &frame[at..]);
        let refused = read_body(doubled.as_bytes(), &JsonLimits::default());
        prop_assert!(refused.is_err(), "{}", doubled);
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn a_server_outlives_any_lines(lines in prop::collection::vec(line(), 40)) {
        // Promise: whatever a client sends, its next good request on the same connection is
        // answered.
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let answer = runtime.block_on(last_answer(lines));
        prop_assert_eq!(&answer["result"]["structuredContent"]["state"], "unknown");
    }
}

/// Sends the lines and then a good request; gives the reply to that.
async fn last_answer(lines: Vec<Vec<u8>>) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let options =
        ChildOptions { store: StoreKind::Memory, ..ChildOptions::new(&folder.path().join("data")) };
    let engine = Arc::new(options.engine().await.expect("an engine"));
    let (mut input, server_input) = duplex(1 << 20);
    let (output, server_output) = duplex(1 << 20);
    let caller = options.caller().expect("a name");
    let (streams, stop) = ((server_input, server_output), CancellationToken::new());
    let serving = serve::stdio(engine, caller, streams, WireLimits::default(), stop);
    let served = tokio::spawn(serving);
    let last = tool_call(&json!("the last one"), "get_operation_status", r#"{"operation_id":"q"}"#);
    for line in lines.into_iter().chain([last.into_bytes()]) {
        input.write_all(&line).await.expect("it reads");
        input.write_all(b"\n").await.expect("it reads");
    }
    let mut replies = BufReader::new(output).lines();
    let search = async {
        while let Some(line) = replies.next_line().await.expect("UTF-8") {
            let reply: Value = serde_json::from_str(&line).expect("a reply is JSON");
            if reply["id"] == "the last one" {
                return reply;
            }
        }
        panic!("the server has ended");
    };
    let reply = counterfoil_lab::within::within("the last answer", search).await;
    drop(input);
    drop(replies);
    counterfoil_lab::within::within("the server ends", served)
        .await
        .expect("it ends")
        .expect("no panic")
        .expect("in order");
    reply.expect("in time")
}
