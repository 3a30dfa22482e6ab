//! The rotation of a ledger's key, end to end through the real binary: distribute, activate, retire.

mod command;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use command::ledger::{AnHourAgo, leave_ledger};
use command::{Bench, Ended};
use counterfoil_core::time::Span;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_counterfoil");

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("no JSON: {ended:?}"))
}

fn call(bench: &Bench, tool: &str, arguments: &str, more: &[&str]) -> Ended {
    let base = ["call", tool, "--json", "--args", arguments];
    let server = ["--", BINARY, "serve", "--stdio"];
    bench.run(&[&base[..], more, &server].concat())
}

/// Creates an issue by one call of the product's own client on the product's own server.
fn create(bench: &Bench, id: &str, title: &str) -> Ended {
    let arguments = format!(r#"{{"title":"{title}","body":"text"}}"#);
    call(bench, "create_issue", &arguments, &["--operation-id", id])
}

fn refusal(ended: &Ended) -> Value {
    json(ended)["refused"]["code"].clone()
}

fn key_of(bench: &Bench, id: &str) -> Value {
    let shown = bench.run(&["operation", "show", id, "--json"]).done();
    json(&shown)["fingerprint"]["keyId"].clone()
}

#[test]
fn after_a_rotation_old_operations_replay_and_new_ones_have_the_new_key() {
    // Promise: a new key makes no stored operation unrecognisable: it replays, conflicts and is
    // told by its status as before, while new operations are made under the new key.
    let bench = Bench::new();
    assert_eq!(json(&create(&bench, "op-1", "t").done())["result"]["replayed"], false);
    bench.run(&["key", "generate"]).done();
    bench.run(&["key", "activate", "2"]).done();

    assert_eq!(json(&create(&bench, "op-1", "t").done())["result"]["replayed"], true);
    let changed = create(&bench, "op-1", "another");
    assert_eq!((changed.code, refusal(&changed)), (Some(4), "operation_conflict".into()));
    let asked = call(&bench, "get_operation_status", r#"{"operation_id":"op-1"}"#, &[]).done();
    assert_eq!(json(&asked)["observation"]["state"], "applied");
    create(&bench, "op-2", "t").done();
    assert_eq!((key_of(&bench, "op-1"), key_of(&bench, "op-2")), (1.into(), 2.into()));
}

#[test]
fn a_key_that_records_need_is_neither_retired_nor_missed() {
    // Promise: while a record may be compared under a key, the key cannot be retired, and a server
    // without it, or with another key under its number, does not start.
    let bench = Bench::new();
    create(&bench, "op-1", "t").done();
    bench.run(&["key", "generate"]).done();
    let active = bench.run(&["key", "retire", "1"]).failed(4);
    assert!(active.stderr.contains("key 1 is active"), "{}", active.stderr);
    bench.run(&["key", "activate", "2"]).done();
    create(&bench, "op-2", "t").done();

    let needed = bench.run(&["key", "retire", "1"]).failed(4);
    assert!(needed.stderr.contains("needed by 1 of the ledger's operations"), "{}", needed.stderr);
    let needed = bench.run(&["key", "retire", "1", "--json"]);
    assert_eq!((needed.code, needed.stderr.as_str()), (Some(4), ""));
    let needed = json(&needed);
    assert_eq!(needed["outcome"], "needed");
    assert!(needed["neededUntil"].as_str().is_some_and(|until| until.ends_with('Z')), "{needed}");

    let [first, second, kept] = ["keys/1.key", "keys/2.key", "kept"].map(|name| bench.data(name));
    fs::rename(&first, &kept).expect("moved");
    let missing = bench.run(&["serve", "--stdio"]).failed(1);
    let words = format!("made under key 1, and {} is missing; restore that file", first.display());
    assert!(missing.stderr.contains(&words), "{}", missing.stderr);
    let listed = bench.run(&["key", "list"]).done();
    let line = listed.stdout.lines().nth(1).expect("key 1");
    assert!(line.starts_with("1             MISSING   "), "{}", listed.stdout);
    assert!(line.ends_with(first.to_str().expect("UTF-8")), "{}", listed.stdout);
    assert!(listed.stderr.contains("key 1 is missing: restore"), "{}", listed.stderr);
    let listed = json(&bench.run(&["key", "list", "--json"]).done());
    assert_eq!((&listed[0]["missing"], &listed[0]["check"]), (&true.into(), &Value::Null));
    assert_eq!(listed[1]["missing"], false);
    fs::copy(&second, &first).expect("copied");
    let other = bench.run(&["serve", "--stdio"]).failed(1);
    assert!(other.stderr.contains("keys/1.key is not the key that"), "{}", other.stderr);
    fs::rename(&kept, &first).expect("restored");
    assert_eq!(json(&create(&bench, "op-1", "t").done())["result"]["replayed"], true);
    let absent = bench.run(&["key", "retire", "7"]).failed(1);
    assert!(absent.stderr.contains("there is no key"), "{}", absent.stderr);
}

#[test]
fn an_unsettled_operation_keeps_its_key() {
    // Promise: what has no end of retention yet needs its key without end, and it can be found.
    let bench = Bench::new();
    leave_ledger(&bench.data(""), Arc::new(AnHourAgo), Span::from_secs(60), &["half"]);
    bench.run(&["key", "generate"]).done();
    bench.run(&["key", "activate", "2"]).done();
    let needed = bench.run(&["key", "retire", "1"]).failed(4);
    assert!(needed.stderr.contains("1 of them are unsettled"), "{}", needed.stderr);
    assert!(needed.stderr.contains("counterfoil operation list --unsettled"), "{}", needed.stderr);
}

#[test]
fn a_key_is_retired_when_the_last_record_is_out_of_retention() {
    // Promise: a retired key is no longer needed at a start, is kept for older copies of the
    // ledger, gives its number to no other key, and what was made under it stays refused.
    let bench = Bench::new().with_env("COUNTERFOIL_PRINCIPAL", "alice");
    leave_ledger(&bench.data(""), Arc::new(AnHourAgo), Span::from_secs(60), &["old"]);
    bench.run(&["key", "generate"]).done();
    bench.run(&["key", "activate", "2"]).done();
    let text = fs::read(bench.data("keys/1.key")).expect("read");
    let retired = bench.run(&["key", "retire", "1"]).done();
    let file = bench.data("keys/1.key.retired");
    assert_eq!(retired.stdout, format!("{}\n", file.display()));
    assert!(retired.stderr.contains("key 1 is retired"), "{}", retired.stderr);
    assert_eq!(fs::read(&file).expect("kept"), text);
    assert_eq!(fs::metadata(&file).expect("kept").permissions().mode() & 0o777, 0o600);
    assert!(!bench.data("keys/1.key").exists());

    create(&bench, "new", "t").done();
    assert_eq!(key_of(&bench, "new"), 2);
    let old = create(&bench, "old", "t");
    assert_eq!((old.code, refusal(&old)), (Some(4), "operation_retention_expired".into()));
    let third = bench.run(&["key", "generate"]).done();
    assert!(third.stdout.ends_with("keys/3.key\n"), "{}", third.stdout);
}
