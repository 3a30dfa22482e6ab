//! Operations that are found by a look at the server.

use serde_json::json;

use crate::child::BLIND;
use crate::client::{ERAS, check_answered, check_refused, operation, text};
use crate::world::{WITH_LOOKUP, World, until};

#[test]
fn a_look_that_nobody_asked_for_opens_no_door_to_a_second_effect() {
    // Promise: after a look in the background settled an operation, an equal call without an ID gets
    // what was found; only the call after that answer is new work.
    for era in ERAS {
        let world = World::new(WITH_LOOKUP);
        let client = world.open(era);
        world.touch(BLIND);
        let call = json!({ "n": 1, "steps": ["effect", "once:lost:exit", "ok:new"] });
        let lost = client.act("1", &call);
        check_refused(&lost, "operation_in_doubt", "status_only");
        assert!(text(&lost).contains("It is being looked for with look"), "{lost}");
        let id = operation(&lost);
        // A look that fails proves nothing.
        assert_eq!(client.status("s", &id)["detail"], "in_doubt");
        world.remove(BLIND);
        until("a look", || world.told(&["operation", "show", &id])["state"] == "applied");
        let found = client.act("2", &call);
        check_answered(&found, "applied", true);
        assert_eq!((operation(&found), text(&found)), (id.clone(), "It was found."));
        let note =
            found["result"]["content"][1]["text"].as_str().unwrap_or_else(|| panic!("{found}"));
        assert!(note.contains(&format!("repeat_of: \"{id}\"")), "{note}");
        assert_eq!(world.effects(), 1);
        let new = client.act("3", &call);
        check_answered(&new, "applied", false);
        assert_eq!((text(&new), world.effects()), ("done new", 2));
    }
}

#[test]
fn whoever_asks_has_it_looked_for() {
    // Promise: the status tool looks at the server before it says that nobody knows.
    let world = World::new(WITH_LOOKUP);
    let client = world.open(crate::client::MODERN);
    world.touch(BLIND);
    let call = json!({ "operation_id": "op-1", "n": 1, "steps": ["effect", "exit"] });
    check_refused(&client.act("1", &call), "operation_in_doubt", "status_only");
    // The next server is there.
    client.send_call("l", "look", &json!({ "n": 1 }));
    assert_eq!(client.reply("l")["result"]["isError"], true);
    world.remove(BLIND);
    let status = client.status("s", "op-1");
    assert_eq!((&status["state"], &status["detail"]), (&json!("applied"), &json!("settled")));
    assert!(status["storedResult"].to_string().contains("It was found."), "{status}");
}

#[test]
fn what_is_not_found_and_what_is_found_twice_stay_unknown() {
    // Promise: absence proves nothing where no marker of ours is looked for, and more than one effect
    // is no proof either; nothing is sent again.
    let world = World::new(WITH_LOOKUP);
    let client = world.open(crate::client::MODERN);
    for (n, steps) in [(1, json!(["exit"])), (2, json!(["effect", "effect", "exit"]))] {
        let id = format!("op-{n}");
        let call = json!({ "operation_id": id, "n": n, "steps": steps });
        check_refused(&client.act(&format!("a{n}"), &call), "operation_in_doubt", "status_only");
        assert_eq!(client.status(&format!("s{n}"), &id)["detail"], "in_doubt");
        check_refused(&client.act(&format!("b{n}"), &call), "operation_in_doubt", "status_only");
    }
    assert_eq!(world.calls(), 2);
}

#[test]
fn a_look_that_cannot_be_made_is_told_of() {
    // Promise: a lookup whose template asks for what the call does not have is not silent: an operator
    // reads which tool's lookup to correct, and no argument.
    let world = World::new(&WITH_LOOKUP.replace("{{ args.n }}", "no. {{ args.n }}"));
    let client = world.open(crate::client::MODERN);
    let call = json!({ "operation_id": "op-1", "secret": "s3cret", "steps": ["exit"] });
    check_refused(&client.act("1", &call), "operation_in_doubt", "status_only");
    assert_eq!(client.status("s", "op-1")["detail"], "in_doubt");
    let stderr = client.end().stderr;
    assert!(stderr.contains("the lookup's arguments cannot be made from its call"), "{stderr}");
    assert!(stderr.contains("op-1") && stderr.contains("args.n"), "{stderr}");
    assert!(!stderr.contains("s3cret"), "{stderr}");
}
