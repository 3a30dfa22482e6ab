//! The README's first command, held to every word of what it promises.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_counterfoil"))
        .arg("demo")
        .args(arguments)
        .output()
        .expect("the binary runs")
}

fn report(output: &Output) -> Value {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON document")
}

fn frames(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the transcript is there");
    let line = |line: &str| serde_json::from_str::<Value>(line).expect("a line of JSON");
    text.lines().map(line).collect()
}

#[test]
fn the_reply_vanishes_and_the_record_answers() {
    // Promise: one command shows case 03 for real, on stderr for people and on stdout for programs.
    let room = tempfile::tempdir().expect("a temporary directory");
    let directory = room.path().join("out");
    let output = demo(&["--output-dir", directory.to_str().expect("UTF-8")]);
    let report = report(&output);
    assert_eq!(report["case"], "03");
    assert_eq!(report["input_required"], true);
    assert_eq!(report["operation_id"], "case-03");
    assert_eq!(report["transport_after_commit"], "unknown; no reply");
    let backend = report["status"]["backend"].as_str().expect("the ledger's name").to_owned();
    assert_eq!(
        report["status"],
        json!({
            "operationId": "case-03", "principal": "alice", "backend": backend,
            "state": "applied", "authoritative": true, "freshWriteAuthorized": false,
            "matchingIds": [1], "storedResult": "created 1"
        })
    );
    assert_eq!(
        report["replay"],
        json!({ "operationId": "case-03", "effectId": 1, "replayed": true, "state": "applied" })
    );
    assert_eq!(report["physical_issue_rows"], 1);
    assert_eq!(report["physical_operation_rows"], 1);
    assert_eq!(report["raw_artifacts"], directory.to_str().expect("UTF-8"));

    let told = String::from_utf8_lossy(&output.stderr);
    for words in ["dies before the reply", "the record answers", "1 issue"] {
        assert!(told.contains(words), "{told}");
    }
    assert!(!told.contains('\u{1b}'), "no colours where nobody looks");

    // The transcripts are the evidence: the continuation was sent and never answered.
    let first = frames(&directory.join("first.jsonl"));
    let last = first.last().expect("some frames");
    assert_eq!(last["from"], "client");
    assert!(last["bytes"].as_str().expect("text").contains("requestState"));
    let second = frames(&directory.join("second.jsonl"));
    let calls = second.iter().filter(|frame| {
        frame["from"] == "client"
            && frame["bytes"].as_str().is_some_and(|b| b.contains("tools/call"))
    });
    assert_eq!(calls.count(), 2, "the status, and the replay that the demo shows");
}

#[test]
fn json_silences_the_account_and_an_existing_folder_is_refused() {
    // Promise: --json is for programs, and nothing that exists is overwritten.
    let room = tempfile::tempdir().expect("a temporary directory");
    let directory = room.path().join("out");
    let path = directory.to_str().expect("UTF-8");
    let output = demo(&["--json", "--output-dir", path]);
    assert_eq!(report(&output)["physical_issue_rows"], 1);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");

    let again = demo(&["--json", "--output-dir", path]);
    assert_eq!(again.status.code(), Some(1));
    let told = String::from_utf8_lossy(&again.stderr);
    assert!(told.contains(path) && told.contains("must not exist yet"), "{told}");
}
