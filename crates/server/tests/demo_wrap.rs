//! `counterfoil demo wrap`, held to every word of what it promises.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

fn frames(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the transcript is there");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn a_server_dies_in_mid_call_and_its_result_comes_back() {
    // Promise: one command shows that a call whose server died is not sent again, is found, and is
    // answered to whoever asks again.
    let room = tempfile::tempdir().expect("a temporary directory");
    let directory = room.path().join("out");
    let output = Command::new(env!("CARGO_BIN_EXE_counterfoil"))
        .args(["demo", "wrap", "--output-dir", directory.to_str().expect("UTF-8")])
        // Whoever runs the demo has settings of their own, which are not for it.
        .env("COUNTERFOIL_PRINCIPAL", "somebody")
        .output()
        .expect("the binary runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");

    let report: Value =
        serde_json::from_slice(&output.stdout).expect("stdout is one JSON document");
    let expected = json!({
        "after_loss": "status_only",
        "status": "applied",
        "replayed": true,
        "new_work": true,
        "effects_of_lost_call": 1,
        "effects": 2,
    });
    assert_eq!(report, expected, "{told}");
    for words in ["no answer came", "it is not sent again", "the operation is applied", "2 notes"] {
        assert!(told.contains(words), "{words}\n{told}");
    }

    // The server's own file has the note of the lost call once, and that of the new one.
    let notes = std::fs::read_to_string(directory.join("notes.txt")).expect("the notes");
    assert_eq!(notes.lines().count(), 2, "{notes}");

    // The client sent the first call twice under one ID and the second one under its own.
    let ids: Vec<String> = frames(&directory.join("client.jsonl"))
        .iter()
        .filter(|frame| frame["from"] == "client")
        .filter_map(|frame| serde_json::from_str::<Value>(frame["bytes"].as_str()?).ok())
        .filter(|request| request["params"]["name"] == "add_note")
        .filter_map(|request| {
            request["params"]["arguments"]["operation_id"].as_str().map(str::to_owned)
        })
        .collect();
    assert_eq!(ids, ["demo-note-1", "demo-note-1", "demo-note-2"]);
}

#[test]
fn a_quiet_demo_says_nothing_but_its_facts() {
    // Promise: with --json a program reads the facts alone, and a directory is never written over.
    let room = tempfile::tempdir().expect("a temporary directory");
    let directory = room.path().join("out");
    let run = || {
        Command::new(env!("CARGO_BIN_EXE_counterfoil"))
            .args(["demo", "wrap", "--json", "--output-dir"])
            .arg(&directory)
            .output()
            .expect("the binary runs")
    };
    let output = run();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(report["effects"], 2);
    let again = run();
    assert!(!again.status.success(), "{again:?}");
    let told = String::from_utf8_lossy(&again.stderr);
    assert!(told.contains("must not exist yet"), "{told}");
}
