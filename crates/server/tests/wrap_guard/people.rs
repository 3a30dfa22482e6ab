//! What a person sees of guarded calls, and decides.

use serde_json::{Value, json};

use crate::client::{Client, MODERN, check_answered, check_refused, text};
use crate::world::World;

/// One operation of each end: applied, answered with an error, not applied, in doubt.
fn operations(client: &Client) {
    for (id, step) in [
        ("done", "ok:sentinel-result"),
        ("failed", r#"result:{"content":[],"isError":true}"#),
        ("refused", r#"error:{"code":-32602,"message":"m"}"#),
        ("lost", "exit"),
    ] {
        let call =
            json!({ "operation_id": id, "secret": "sentinel-argument", "steps": ["effect", step] });
        client.act(id, &call);
    }
}

fn ids(listed: &Value) -> Vec<&str> {
    let operations = listed["operations"].as_array().expect("a list");
    let mut ids: Vec<_> =
        operations.iter().map(|it| it["operationId"].as_str().expect("text")).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn guarded_calls_are_listed_and_shown() {
    // Promise: an operator finds each call with its tool, its state and its trail, and nothing of
    // arguments and answers unasked.
    let world = World::new("");
    let client = world.open(MODERN);
    operations(&client);
    assert_eq!(ids(&world.told(&["operation", "list"])), ["done", "failed", "lost", "refused"]);
    assert_eq!(ids(&world.told(&["operation", "list", "--unsettled"])), ["lost"]);
    for (state, id) in [
        ("applied", "done"),
        ("not_applied", "refused"),
        ("in_doubt", "lost"),
        ("answered", "failed"),
    ] {
        assert_eq!(ids(&world.told(&["operation", "list", "--state", state])), [id], "{state}");
    }
    for (id, state, seen, last) in [
        ("done", "applied", "settled", "learned_applied"),
        ("failed", "answered", "answered_with_error", "answered"),
        ("refused", "not_applied", "settled", "learned_not_applied"),
        ("lost", "in_doubt", "in_doubt", "learned_nothing"),
    ] {
        let shown = world.told(&["operation", "show", id]);
        assert_eq!(
            (&shown["state"], &shown["callersSee"]["detail"]),
            (&json!(state), &json!(seen)),
            "{shown}"
        );
        assert_eq!(shown["tool"]["id"], "srv/act");
        assert_eq!(shown["tool"]["version"], "1");
        let trail = world.trail(id);
        assert_eq!(trail.first().map(String::as_str), Some("dispatched"), "{trail:?}");
        assert_eq!(trail.last().map(String::as_str), Some(last), "{trail:?}");
        for command in [["operation", "show", id], ["audit", "show", id]] {
            let (code, said) = world.command(&command);
            assert_eq!(code, Some(0), "{said}");
            assert!(!said.contains("sentinel"), "{said}");
        }
    }
    drop(client);
}

#[test]
fn a_person_settles_what_is_in_doubt() {
    // Promise: what no look settles a person does, once, with name and reason on record; the caller
    // is told, and the call is never sent again.
    let world = World::new("");
    let client = world.open(MODERN);
    operations(&client);
    let resolve = |id: &str, verdict: &str, more: &[&str]| {
        let base = ["operation", "resolve", id, verdict, "--reason", "looked", "--as", "mara"];
        world.command(&[&base[..], more].concat())
    };
    let (code, said) = resolve("lost", "--applied", &["--proof", "change 7"]);
    assert_eq!(code, Some(0), "{said}");
    let call = |id: &str, step: &str| {
        let call =
            json!({ "operation_id": id, "secret": "sentinel-argument", "steps": ["effect", step] });
        client.act(&format!("again-{id}"), &call)
    };
    let reply = call("lost", "exit");
    check_answered(&reply, "applied", true);
    assert!(text(&reply).contains("operator"), "{reply}");
    assert_eq!(client.status("s", "lost")["detail"], "resolved_by_operator");
    let trail = world.told(&["audit", "show", "lost"]);
    let last = trail["audit"].as_array().expect("a list").last().expect("an event");
    assert_eq!(
        (&last["who"], &last["reason"], &last["proof"]),
        (&json!("mara"), &json!("looked"), &json!("change 7"))
    );
    // What is settled stays; what was answered is nobody's to settle but with a proof.
    for id in ["lost", "done"] {
        let (code, said) = resolve(id, "--not-applied", &["--proof", "p"]);
        assert_eq!(code, Some(4), "{id}: {said}");
    }
    assert_eq!(world.effects(), 4);
}

#[test]
fn a_person_without_a_proof_opens_no_second_effect() {
    // Promise: `--not-applied` without a proof tells the caller not to go on; with one, status still
    // grants nothing.
    let world = World::new("");
    let client = world.open(MODERN);
    for (id, more, detail) in [
        ("a", &[][..], "resolved_without_proof"),
        ("b", &["--proof", "looked at the table"], "resolved_by_operator"),
    ] {
        let call = json!({ "operation_id": id, "n": id, "steps": ["effect", "exit"] });
        check_refused(&client.act(id, &call), "operation_in_doubt", "status_only");
        let base =
            ["operation", "resolve", id, "--not-applied", "--reason", "looked", "--as", "mara"];
        let (code, said) = world.command(&[&base[..], more].concat());
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(client.status(&format!("s-{id}"), id)["detail"], detail);
        let reply = client.act(&format!("{id}2"), &call);
        check_answered(&reply, "not_applied", true);
        assert_ne!(crate::client::said(&reply)["retry"], "new_operation", "{reply}");
    }
    assert_eq!(world.effects(), 2);
}
