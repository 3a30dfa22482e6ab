//! Values that nobody but the two ends may see: they are planted wherever a request can carry one,
//! and looked for wherever one could leak, at the most talkative log level.

mod common;

use std::os::unix::fs::PermissionsExt as _;

use common::{Bench, check_raw_applied, product_server};
use counterfoil_lab::process::Ended;
use counterfoil_lab::raw::{RawClient, cancel, continuation, request, tool_call};
use serde_json::{Value, json};

const SENTINEL: &str = "SENTINEL-7f3a9c";

/// Requests that are refused, each with the sentinel in it.
fn refused() -> Vec<Vec<u8>> {
    let id = json!("q");
    let call = |arguments: &str| tool_call(&id, "create_issue", arguments).into_bytes();
    let good = r#""operation_id":"k","title":"t""#;
    let and = |more: &str| call(&format!("{{{good},{more}}}"));
    let continued = |answers: &str, state: &str| {
        continuation(&id, &format!("{{{good}}}"), answers, state).into_bytes()
    };
    vec![
        and(&format!(r#""apiKey":"{SENTINEL}""#)),
        and(&format!(r#""headers":{{"Authorization":"Bearer {SENTINEL}"}}"#)),
        and(&format!(r#""mode":"{SENTINEL}""#)),
        and(&format!(r#""body":["{SENTINEL}"]"#)),
        and(&format!(r#""body":{{"password":"{SENTINEL}"}}"#)),
        and(&format!(r#""body":"{SENTINEL}","body":"{SENTINEL}""#)),
        and(&format!(r#""body":"{SENTINEL} \ud800""#)),
        and(&format!(r#""body":"{SENTINEL}" "x""#)),
        and(&format!(r#""body":{SENTINEL}"#)),
        call(&format!(r#"{{"title":"{SENTINEL}","body":"{SENTINEL}"}}"#)),
        call(&format!(r#"{{"operation_id":["{SENTINEL}"],"title":"t"}}"#)),
        call(&format!(r#"{{"operation_id":"{SENTINEL}\n","title":"t"}}"#)),
        call(&format!(r#"{{"operation_id":"k","title":"{}{SENTINEL}"}}"#, "t".repeat(600))),
        call(&format!(r#"["{SENTINEL}"]"#)),
        [call("@@")[..].split(|byte| *byte == b'@').next().expect("a head"), b"{\"a\":\"",
            SENTINEL.as_bytes(), b"\xff\"}}}"].concat(),
        continued("{}", &format!(r#""{SENTINEL}""#)),
        continued(&format!(r#"{{"body":{{"action":"{SENTINEL}"}}}}"#), "7"),
        continued(&format!(r#"{{"body":{{"action":"accept","content":{{"body":"{SENTINEL}"}}}}}}"#), "null"),
        request(&id, "tools/call", &format!(r#""name":["{SENTINEL}"]"#)).into_bytes(),
        request(&id, "tools/call", &format!(r#""name":"get_operation_status","arguments":{{"operation_id":"k","token":"{SENTINEL}"}}"#)).into_bytes(),
        request(&id, "initialize", &format!(r#""capabilities":"{SENTINEL}""#)).into_bytes(),
        request(&id, "prompts/get", &format!(r#""name":"{SENTINEL}","arguments":{{"a":"{SENTINEL}"}}"#)).into_bytes(),
    ]
}

/// Frames that get no reply, each with the sentinel in it.
fn unanswered() -> Vec<Vec<u8>> {
    vec![
        cancel(&json!("nobody")).replace("the lab", SENTINEL).into_bytes(),
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/{SENTINEL}","params":{{"a":"{SENTINEL}"}}}}"#).into_bytes(),
        format!(r#"{{"jsonrpc":"2.0","id":77,"result":{{"action":"{SENTINEL}"}}}}"#).into_bytes(),
    ]
}

#[tokio::test]
async fn planted_values_are_nowhere_but_where_they_belong() {
    // Promise: arguments, answers and keys never show in logs, errors, or audit, whatever the log
    // level; files are their owner's alone.
    let bench = Bench::new("secrets");
    let dir = bench.path("data");
    let launch = product_server(&dir, &[]).env("COUNTERFOIL_LOG", "trace").env("RUST_LOG", "trace");
    let mut client = RawClient::start(&launch).await.expect("it starts");
    // The title and the body are the issue's own text: they belong into the issue, and only there.
    let mut arguments = json!({ "operation_id": "k", "title": SENTINEL, "body": SENTINEL });
    check_raw_applied(&client.call("create_issue", &arguments).await.expect("a reply"), false);
    arguments["body"] = "other".into();
    let conflict = client.call("create_issue", &arguments).await.expect("a reply");
    assert!(!conflict.to_string().contains(SENTINEL), "{conflict}");
    let partial =
        json!({ "operation_id": "p", "title": SENTINEL, "body": SENTINEL, "mode": "partial" });
    let reply = client.call("create_issue", &partial).await.expect("a reply");
    assert!(!reply.to_string().contains(SENTINEL), "{reply}");
    for frame in refused() {
        let shown = String::from_utf8_lossy(&frame).into_owned();
        client.send(frame).await.expect("it reads");
        let reply = client.line().await.expect("it answers").expect("it lives");
        assert!(!reply.contains(SENTINEL), "{shown}\nwas answered with\n{reply}");
        let reply: Value = serde_json::from_str(&reply).expect("JSON");
        let error = !reply["error"].is_null() || reply["result"]["isError"] == true;
        assert!(error, "{shown}\nwas not refused\n{reply}");
    }
    for frame in unanswered() {
        client.send(frame).await.expect("it reads");
    }
    let asked = json!({ "operation_id": "k" });
    let status = client.call("get_operation_status", &asked).await.expect("a reply");
    assert!(!status.to_string().contains(SENTINEL), "{status}");
    check_files(&dir);
    client.close_input();
    assert!(!client.rest().await.expect("the output ends").contains(SENTINEL));
    assert_eq!(client.process().ended().await.expect("it ends"), Ended::Code(0));
    let stderr = client.process().stderr();
    assert!(stderr.contains("counterfoil"), "the log level had no effect: {stderr}");
    let key = std::fs::read_to_string(dir.join("keys/1.key")).expect("a key");
    for secret in [SENTINEL, key.trim()] {
        assert!(!stderr.contains(secret), "{stderr}");
    }
    let rows = bench.check_rows(2, &[("k", "applied"), ("p", "partial")]);
    assert_eq!(rows.rows("issues")[0]["body"], SENTINEL);
    for table in ["operations", "audit_events", "watchers"] {
        let text = format!("{:?}", rows.rows(table));
        assert!(!text.contains(SENTINEL), "{table}: {text}");
    }
}

/// Everything below the data directory is its owner's alone.
fn check_files(dir: &std::path::Path) {
    let mut seen = 0;
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let metadata = path.metadata().expect("metadata");
            let mode = metadata.permissions().mode() & 0o777;
            let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode, expected, "{}: {mode:o}", path.display());
            if metadata.is_dir() {
                folders.push(path);
            }
            seen += 1;
        }
    }
    assert!(seen >= 5, "ledger, log, index, keys and a key are there: {seen}");
}
