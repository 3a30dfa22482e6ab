//! The challenge pack against the right implementation of `docs/challenge.md`, and against wrong
//! ones that differ from it in one place each.

use std::path::Path;
use std::process::Command;

use counterfoil_lab::challenge::CHALLENGES;
use serde_json::Value;

const LAB: &str = env!("CARGO_BIN_EXE_counterfoil-lab");
const DOCS: &str = include_str!("../../../docs/challenge.md");

/// Mistakes: what it does, the place in the right program, what stands there instead, and the
/// challenge that is about it.
const MISTAKES: [(&str, &str, &str, &str); 13] = [
    (
        "ignores the answers",
        r#", q["state"], q["answers"]]"#,
        r#", q["state"]]"#,
        "changed-answers",
    ),
    ("ignores the nonce", r#"q["arguments"], q["state"], "#, r#"q["arguments"], "#, "new-nonce"),
    ("has no nonce", "secrets.token_hex(8)", r#"q["operation_id"]"#, "new-nonce"),
    (
        "ignores the principal",
        r#"[q["principal"], q["arguments"]"#,
        r#"[q["arguments"]"#,
        "other-principal",
    ),
    ("takes a stripped state", r#"if not q["state"]"#, "if False", "stripped-state"),
    ("guards nothing", "if known:", "if False:", "identical"),
    (
        "replays under another name",
        r#"{"outcome": "replay", "result": known["result"]} if same"#,
        r#"{"outcome": "applied", "result": known["result"]} if same"#,
        "identical",
    ),
    (
        "replays another result",
        r#""replay", "result": known["result"]"#,
        r#""replay", "result": "created 2""#,
        "identical",
    ),
    (
        "sends again when a reply is lost",
        r#"{"send": "status"}"#,
        r#"{"send": "continue"}"#,
        "lost-reply",
    ),
    ("sends again on unknown", r#"{"action": "stop", "#, r#"{"action": "continue", "#, "no-record"),
    (
        "takes unknown for not done",
        r#""stop", "effect": "unknown""#,
        r#""stop", "effect": "not_applied""#,
        "no-record",
    ),
    (
        "has a status that knows nothing",
        r#"return {"state": "applied""#,
        r#"return {"state": "unknown""#,
        "lost-reply",
    ),
    (
        "has a status that claims",
        r#"return {"state": "unknown"}"#,
        r#"return {"state": "applied", "result": "created 1"}"#,
        "no-record",
    ),
];

/// The program in the docs.
fn right() -> String {
    let (_, after) = DOCS.split_once("```python\n").expect("the docs have a Python program");
    after.split_once("```").expect("it ends").0.to_owned()
}

/// The program with one place changed.
fn wrong(from: &str, to: &str) -> String {
    let program = right();
    assert_eq!(program.matches(from).count(), 1, "the docs have one place '{from}'");
    program.replace(from, to)
}

/// Runs the pack; gives the names of what failed, with the words.
fn failed(program: &str) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("program.py");
    std::fs::write(&file, program).expect("written");
    // Without site packages it starts in half the time.
    run(&format!("{} -I -S {}", python(), quoted(&file)), "20")
}

fn run(command: &str, patience_s: &str) -> Vec<(String, String)> {
    let output = Command::new(LAB)
        .args(["challenge", "--json", "--patience-s", patience_s, "--cmd", command])
        .output()
        .expect("the lab runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let verdicts = report["challenges"].as_array().expect("verdicts");
    assert_eq!(verdicts.len(), CHALLENGES.len());
    let bad = verdicts.iter().filter(|verdict| verdict["passed"] == false);
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let bad: Vec<_> =
        bad.map(|verdict| (text(&verdict["challenge"]), text(&verdict["words"]))).collect();
    assert_eq!(output.status.success(), bad.is_empty(), "the exit code says the same");
    bad
}

fn python() -> String {
    quoted(Path::new(&counterfoil_lab::readback::python()))
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}

#[test]
fn the_right_implementation_of_the_docs_passes() {
    // Promise: the pack can be passed, by what its own reference shows.
    assert_eq!(failed(&right()), []);
}

#[test]
fn every_planted_mistake_is_caught_by_the_challenge_that_is_about_it() {
    // Promise: an implementation that forgets one binding, or sends again, does not pass.
    for (what, from, to, challenge) in MISTAKES {
        let found = failed(&wrong(from, to));
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&challenge), "{what}: {found:?}");
        assert!(names.len() < CHALLENGES.len(), "{what}: only what it is about fails: {found:?}");
    }
}

#[test]
fn a_program_that_does_not_answer_fails_in_words() {
    // Promise: silence, an early end and rubbish are failures, and never a pass or a hang.
    let cases = [
        ("exec sleep 600", "no answer within 1 s"),
        ("exit 0", "ended"),
        ("while read -r line; do echo nonsense; done", "not one JSON object"),
        ("while read -r line; do echo '[]'; done", "not one JSON object"),
        ("exec yes | tr -d '\\n'", "not one JSON object"),
        ("exec /nonexistent/program 2>/dev/null", "ended"),
    ];
    for (command, words) in cases {
        let found = run(command, "1");
        assert_eq!(found.len(), CHALLENGES.len(), "{command}: {found:?}");
        assert!(found.iter().all(|(_, said)| said.contains(words)), "{command}: {found:?}");
    }
}
