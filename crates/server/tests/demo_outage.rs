//! The README's second command, held to every word of what it promises.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the file is there");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn ten_tickets_arrive_once_each_through_an_outage_and_a_killed_worker() {
    // Promise: one command shows that nothing is lost or doubled, and the help desk itself counts.
    let room = tempfile::tempdir().expect("a temporary directory");
    let directory = room.path().join("out");
    let output = Command::new(env!("CARGO_BIN_EXE_counterfoil"))
        .args(["demo", "outage", "--output-dir", directory.to_str().expect("UTF-8")])
        // Whoever runs the demo has settings of their own, which are not for it.
        .env("COUNTERFOIL_STORE", "memory")
        .env("COUNTERFOIL_WORKER", "nonsense")
        .output()
        .expect("the binary runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");

    let report: Value =
        serde_json::from_slice(&output.stdout).expect("stdout is one JSON document");
    let names: Vec<&String> = report.as_object().expect("an object").keys().collect();
    assert_eq!(names, ["attempts", "delivered", "duplicates", "submitted", "target_effects"]);
    for (name, count) in
        [("submitted", 10), ("delivered", 10), ("target_effects", 10), ("duplicates", 0)]
    {
        assert_eq!(report[name], count, "{name}\n{told}");
    }
    // One in vain for the breaker's five, one killed, six that the desk answered wrongly.
    let attempts = report["attempts"].as_u64().expect("a number");
    assert!(attempts >= 10 + 7, "{attempts} attempts\n{told}");
    for words in ["\"connect\"", "is dead", "10 tickets, 0 doubles", "ten tickets, each once"] {
        assert!(told.contains(words), "{words}\n{told}");
    }

    // What the desk filed are the ten submissions, under the keys of the one who submitted.
    let mut keys: Vec<String> = lines(&directory.join("tickets.jsonl"))
        .iter()
        .map(|ticket| ticket["key"].as_str().expect("a key").to_owned())
        .collect();
    keys.sort();
    let expected: Vec<String> = (1..=10).map(|number| format!("outage-{number:02}")).collect();
    assert_eq!(keys, expected);

    // The client spoke MCP, and sent each ticket once and the tenth twice.
    let submissions = lines(&directory.join("client.jsonl"))
        .iter()
        .filter(|frame| frame["from"] == "client")
        .filter(|frame| {
            frame["bytes"].as_str().is_some_and(|b| b.contains("submit_support_ticket"))
        })
        .count();
    assert_eq!(submissions, 11);

    // No secret is in what it leaves behind.
    for entry in std::fs::read_dir(&directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let bytes = if path.is_file() { std::fs::read(&path).expect("read") } else { Vec::new() };
        assert!(!String::from_utf8_lossy(&bytes).contains("a-demo-secret"), "{}", path.display());
    }
}
