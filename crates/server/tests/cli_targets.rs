//! The `target`, `principal` and `tenant` commands of the real binary.

mod command;

use std::sync::Arc;

use command::Bench;
use command::outbox::{KEY, Outboxed, every_state, once};
use counterfoil_store::SystemClock;
use serde_json::Value as Json;

fn json(text: &str) -> Json {
    serde_json::from_str(text).expect(text)
}

#[test]
fn targets_are_listed_paused_and_resumed() {
    // Promise: an operator sees where deliveries stand and why, and stops and resumes a target with
    // a reason on record; a slip of the pen is no target.
    let bench = Bench::new();
    every_state(&bench.data(""));
    let list = bench.run(&["target", "list"]).done().stdout;
    let line = |name: &str| {
        let found = list.lines().find(|line| line.split_whitespace().next() == Some(name));
        found.expect(name).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(list.starts_with("TARGET "), "{list}");
    assert!(line("dead").starts_with("dead 0 0 0 1 0 0 - open"), "{list}");
    assert!(line("sending").starts_with("sending 0 1 0 0 0 0 2"), "{list}");
    assert!(line("paused").contains("paused by olga since"), "{list}");
    assert!(line("stopped").contains("(credential: 401: the credential is refused)"), "{list}");
    let of = |name: &str| -> Json {
        let listed = json(&bench.run(&["target", "list", "--json"]).done().stdout);
        let targets = listed["targets"].as_array().expect("a list").clone();
        targets.into_iter().find(|target| target["target"] == name).expect("listed")
    };
    assert_eq!(of("in-doubt")["items"]["in_doubt"], 1);
    assert_eq!(of("stopped")["state"]["parked"]["class"], "credential");

    let order = |verb: &str, name: &str| {
        bench.run(&["target", verb, name, "--reason", "the token is renewed", "--who", "mara"])
    };
    let paused = order("pause", "queued").done();
    assert!(paused.stderr.contains("nothing is sent to `queued` until it is resumed"));
    assert_eq!(of("queued")["state"]["paused"]["who"], "mara");
    let again = order("pause", "paused").done();
    assert!(again.stderr.contains("was paused already, by olga"), "{}", again.stderr);
    let open = order("resume", "paused").done();
    assert!(open.stderr.contains("the target `paused` is open"), "{}", open.stderr);
    let tried = order("resume", "stopped").done();
    assert!(tried.stderr.contains("is tried with one item at once"), "{}", tried.stderr);
    let unknown = order("pause", "quued").failed(2);
    assert!(unknown.stderr.contains("the targets are: "), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("queued"), "{}", unknown.stderr);
    bench.run(&["target", "pause", "queued"]).failed(2);

    // Resumed, each gives its one item to a worker.
    let ledger = Outboxed::open(&bench.data(""), Arc::new(SystemClock));
    assert_eq!(ledger.claim("queued", 1).len(), 0);
    assert_eq!(ledger.claim("paused", 1).len(), 1);
    ledger.close();
}

#[test]
fn a_ledger_without_targets_says_so() {
    // Promise: nothing to list is told, and is no failure; nothing can be paused then.
    let bench = Bench::new();
    Outboxed::open(&bench.data(""), Arc::new(SystemClock)).close();
    let list = bench.run(&["target", "list"]).done();
    assert_eq!(list.stdout, "");
    assert!(list.stderr.contains("has accepted nothing for any target"), "{}", list.stderr);
    let none = bench.run(&["target", "pause", "desk", "--reason", "r"]).failed(2);
    assert!(none.stderr.contains("none is configured"), "{}", none.stderr);
}

#[test]
fn the_revoked_are_held_back_until_they_are_restored() {
    // Promise: a revoked principal's or tenant's waiting deliveries are parked before their first
    // byte, are released by a restore, and who and why are told.
    let bench = Bench::new();
    let mut ledger = Outboxed::open(&bench.data(""), Arc::new(SystemClock));
    ledger.accept_for(("local", "alice"), "one", "desk", once(KEY));
    ledger.accept_for(("local", "bob"), "two", "desk", once(KEY));
    ledger.accept_for(("acme", "carol"), "three", "desk", once(KEY));
    let run = |arguments: &[&str]| {
        bench.run(&[arguments, &["--reason", "left", "--who", "mara"]].concat()).done().stderr
    };
    let nobody = bench.run(&["principal", "list"]).done();
    assert_eq!((nobody.stdout.as_str(), nobody.stderr.as_str()), ("", "nobody is revoked\n"));
    let told = run(&["principal", "revoke", "alice"]);
    assert!(told.contains("the principal `alice` of the tenant `local` is revoked"), "{told}");
    let told = run(&["tenant", "revoke", "acme"]);
    assert!(told.contains("the tenant `acme` is revoked"), "{told}");
    run(&["principal", "revoke", "carol", "--tenant", "acme"]);
    let told = run(&["principal", "revoke", "alice"]);
    assert!(told.contains("was revoked already, by mara since "), "{told}");

    let claimed = ledger.claim("desk", 10);
    let ids: Vec<_> = claimed.iter().map(|item| item.delivery.key).collect();
    assert_eq!(ids.len(), 1, "bob's alone: {ids:?}");
    let detail = |id: &str, tenant: &str| {
        let shown = bench.run(&["delivery", "show", id, "--tenant", tenant, "--json"]).done();
        let shown = json(&shown.stdout);
        (shown["state"].clone(), shown["detail"].clone(), shown["byItself"].clone())
    };
    let (state, why, next) = detail("one", "local");
    assert_eq!((&state, &why), (&"parked".into(), &"principal_revoked".into()));
    assert!(next.as_str().expect("words").contains("counterfoil principal restore alice"));
    let (state, why, next) = detail("three", "acme");
    assert_eq!((&state, &why), (&"parked".into(), &"tenant_revoked".into()));
    assert!(next.as_str().expect("words").contains("counterfoil tenant restore acme"));

    let listed = bench.run(&["principal", "list"]).done().stdout;
    assert_eq!(listed.lines().count(), 4, "{listed}");
    assert!(listed.contains("(all)") && listed.contains("mara") && listed.contains("left"));
    let listed = json(&bench.run(&["tenant", "list", "--json"]).done().stdout);
    assert_eq!(listed["revoked"].as_array().expect("a list").len(), 1);
    assert_eq!(listed["revoked"][0]["tenant"], "acme");

    let told = run(&["principal", "restore", "carol", "--tenant", "acme"]);
    assert!(told.contains("its tenant is revoked, so nothing of it is sent yet"), "{told}");
    let told = run(&["tenant", "restore", "acme"]);
    assert!(told.contains("may write again; what was held back is queued"), "{told}");
    let told = run(&["principal", "restore", "dora"]);
    assert!(told.contains("was not revoked; nothing was changed"), "{told}");
    let arguments = ["principal", "restore", "alice", "--reason", "back", "--json"];
    let told = bench.run(&arguments).done();
    assert_eq!((&json(&told.stdout)["changed"], told.stderr.as_str()), (&true.into(), ""));
    assert_eq!(ledger.claim("desk", 10).len(), 2);
    ledger.close();
}
