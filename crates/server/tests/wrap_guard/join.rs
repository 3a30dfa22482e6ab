//! Calls without an ID: which operation they are.

use serde_json::{Value, json};

use crate::child::HOLD;
use crate::client::{
    Client, ERAS, LEGACY, MODERN, check_answered, check_refused, operation, said, text,
};
use crate::world::{World, until};

/// A call whose answer is lost at the first time.
fn lost_once() -> Value {
    json!({ "n": 1, "steps": ["effect", "once:lost:exit", "ok:again"] })
}

fn repeat(call: &Value, of: &str) -> Value {
    let mut call = call.clone();
    call["repeat_of"] = of.into();
    call
}

#[test]
fn an_equal_call_joins_the_unanswered_one() {
    // Promise: an agent that asks again after a lost reply makes no second effect, and learns how it
    // would; `repeat_of` makes one, and a second `repeat_of` none.
    for era in ERAS {
        let world = World::new("");
        let client = world.open(era);
        let call = lost_once();
        let lost = client.act("1", &call);
        check_refused(&lost, "operation_in_doubt", "status_only");
        let first = operation(&lost);
        let joined = client.act("2", &call);
        check_refused(&joined, "operation_in_doubt", "status_only");
        assert_eq!(operation(&joined), first);
        assert!(text(&joined).contains(&format!("repeat_of: \"{first}\"")), "{joined}");
        assert_eq!(world.effects(), 1);
        let again = client.act("3", &repeat(&call, &first));
        check_answered(&again, "applied", false);
        assert_ne!(operation(&again), first);
        let once_more = client.act("4", &repeat(&call, &first));
        check_answered(&once_more, "applied", true);
        assert_eq!(operation(&once_more), operation(&again));
        assert_eq!(world.effects(), 2);
        let absent = client.act("5", &repeat(&call, "nobody-s"));
        assert_eq!(said(&absent)["error"]["code"], "invalid_argument", "{absent}");
        let mut other = repeat(&call, &first);
        other["n"] = 2.into();
        assert_eq!(said(&client.act("6", &other))["error"]["code"], "operation_conflict");
        assert_eq!(world.effects(), 2);
    }
}

/// A call that goes on until `go` is there.
fn held() -> Value {
    json!({ "n": 1, "steps": ["effect", "touch:begun", "wait:go", "ok:it"] })
}

/// The next equal call gets the answer of the earlier one, the one after that is new work.
fn check_joined_once(world: &World, client: &Client, call: &Value) {
    let joined = client.act("joins", call);
    check_answered(&joined, "applied", true);
    assert_eq!(text(&joined), "done it");
    let id = operation(&joined);
    let note = joined["result"]["content"][1]["text"].as_str().expect("a note");
    for words in ["had read", "settled at", &format!("repeat_of: \"{id}\"")] {
        assert!(note.contains(words), "{words}: {note}");
    }
    assert_eq!(world.effects(), 1);
    assert!(world.trail(&id).contains(&"joined".to_owned()));
    let new = client.act("new", call);
    check_answered(&new, "applied", false);
    assert_ne!(operation(&new), id);
    assert_eq!(world.effects(), 2);
}

#[test]
fn a_cancelled_call_is_unanswered() {
    // Promise: what nobody was told of is found by asking again, and is told once.
    for era in ERAS {
        let world = World::new("");
        let client = world.open(era);
        client.send_call("1", "act", &held());
        world.wait_for("begun");
        client.cancel("1");
        let joined = client.act("2", &held());
        check_refused(&joined, "operation_in_progress", "status_only");
        world.touch("go");
        let id = operation(&joined);
        until("its end", || client.status("s", &id)["state"] == "applied");
        check_joined_once(&world, &client, &held());
    }
}

#[test]
fn a_cancellation_after_the_answer_makes_it_unanswered() {
    // Promise: a client that did not wait for an answer that was written all the same finds it by
    // asking again.
    for era in ERAS {
        let world = World::new("");
        let client = world.open(era);
        world.touch("go");
        let first = client.act("1", &held());
        check_answered(&first, "applied", false);
        client.cancel("1");
        check_joined_once(&world, &client, &held());
        // Taken back twice, or by an ID that no call had: nothing.
        client.cancel("1");
        client.cancel("never");
        check_answered(&client.act("last", &held()), "applied", false);
        assert_eq!(world.effects(), 3);
    }
}

#[test]
fn an_answer_to_a_client_that_has_gone_is_unanswered() {
    // Promise: what a client left behind is found by the next one, without an ID.
    let notice = r#"raw:{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
    let steps = ["effect", "touch:begun", "wait:go", notice, "wait:nobody-reads", "ok:it"];
    let call = json!({ "n": 1, "steps": steps });
    for era in [LEGACY, MODERN] {
        let world = World::new("");
        let mut client = world.open(era);
        client.send_call("1", "act", &call);
        world.wait_for("begun");
        client.hang_up();
        world.touch("go");
        client.wait_for_hang_up();
        world.touch("nobody-reads");
        let ended = client.wait();
        assert_eq!(ended.code, Some(0));
        // The call was settled: nobody waits until the time for that is over.
        assert!(!ended.stderr.contains("did not settle"), "{}", ended.stderr);
        check_joined_once(&world, &world.open(era), &call);
    }
}

#[test]
fn ids_of_the_caller_stay_apart_and_are_found() {
    // Promise: two IDs are two effects, however equal; a call without an ID finds one of them that
    // is unanswered.
    let world = World::new("");
    let client = world.open(MODERN);
    let call = |id: &str| {
        json!({ "operation_id": id, "n": 1,
        "steps": ["effect", "once:lost:exit", "ok"] })
    };
    check_refused(&client.act("1", &call("op-1")), "operation_in_doubt", "status_only");
    check_answered(&client.act("2", &call("op-2")), "applied", false);
    assert_eq!(world.effects(), 2);
    let mut without = call("");
    without.as_object_mut().expect("an object").remove("operation_id");
    let joined = client.act("3", &without);
    check_refused(&joined, "operation_in_doubt", "status_only");
    assert_eq!(operation(&joined), "op-1");
    let both = client.act("4", &repeat(&call("op-3"), "op-1"));
    assert_eq!(said(&both)["error"]["code"], "invalid_argument", "{both}");
    assert_eq!(world.effects(), 2);
}

#[test]
fn settings_say_what_becomes_of_a_call_without_an_id() {
    // Promise: `reject` sends nothing and says how to name the call; `mint` joins nothing.
    let world = World::new("missing_id = \"reject\"\n[wrap.tools.free]\nmissing_id = \"mint\"\n");
    let client = world.open(MODERN);
    let refused = client.act("1", &lost_once());
    assert_eq!(said(&refused)["error"]["code"], "operation_id_required", "{refused}");
    assert!(text(&refused).contains("operation_id") && world.calls() == 0);
    let call = |id: &str| {
        client.send_call(id, "free", &lost_once());
        client.reply(id)
    };
    let lost = call("2");
    check_refused(&lost, "operation_in_doubt", "status_only");
    let second = call("3");
    check_answered(&second, "applied", false);
    assert_ne!(operation(&second), operation(&lost));
    assert_eq!(world.effects(), 2);
}

#[test]
fn what_is_too_old_is_not_joined() {
    // Promise: an equal call joins only what is younger than the configured age.
    let world = World::new("join_age = \"2s\"\n");
    let client = world.open(MODERN);
    let first = operation(&client.act("1", &lost_once()));
    until("the age", || {
        let reply = client.act("2", &lost_once());
        if operation(&reply) == first {
            check_refused(&reply, "operation_in_doubt", "status_only");
            return false;
        }
        check_answered(&reply, "applied", false);
        true
    });
    assert_eq!(world.effects(), 2);
}

#[test]
fn an_error_that_was_answered_is_answered() {
    // Promise: an agent that tries again after an error does new work; under one ID it gets that
    // error again.
    for era in ERAS {
        let world = World::new("");
        let client = world.open(era);
        let failed = r#"result:{"content":[{"type":"text","text":"no"}],"isError":true}"#;
        let call = json!({ "n": 1, "steps": ["effect", failed] });
        let first = client.act("1", &call);
        check_answered(&first, "unknown", false);
        let second = client.act("2", &call);
        check_answered(&second, "unknown", false);
        assert_ne!(operation(&first), operation(&second));
        assert_eq!(world.effects(), 2);
        let mut named = call.clone();
        named["operation_id"] = "op-1".into();
        check_answered(&client.act("3", &named), "unknown", false);
        let again = client.act("4", &named);
        check_answered(&again, "unknown", true);
        assert_eq!((&again["result"]["isError"], text(&again)), (&json!(true), "no"));
        assert_eq!(client.status("s", "op-1")["detail"], "answered_with_error");
        assert_eq!(world.effects(), 3);
    }
}

#[test]
fn two_gateways_on_one_ledger_are_one_guard() {
    // Promise: a call that one gateway has under way is not sent by another, with an ID or without.
    let world = World::new("");
    let (one, two) = (world.open(LEGACY), world.open(MODERN));
    one.send_call("1", "act", &held());
    world.wait_for("begun");
    let joined = two.act("2", &held());
    check_refused(&joined, "operation_in_progress", "status_only");
    let mut named = held();
    named["operation_id"] = operation(&joined).into();
    check_refused(&two.act("3", &named), "operation_in_progress", "status_only");
    world.touch("go");
    check_answered(&one.reply("1"), "applied", false);
    check_answered(&two.act("4", &named), "applied", true);
    assert_eq!((world.calls(), world.effects()), (1, 1));
}

#[test]
fn a_call_that_is_taken_back_before_it_is_sent_was_not_made() {
    // Promise: what was never sent is settled as not applied, is never sent afterwards, and stands in
    // the way of the next equal call once, with words on how to go on.
    let world = World::new("");
    let client = world.open(LEGACY);
    client.act("0", &json!({ "steps": ["ok"] }));
    world.touch(HOLD);
    world.kill_server();
    until("a successor that is not ready", || world.births().len() == 2);
    let call = json!({ "n": 1, "steps": ["effect", "ok:now"] });
    client.send_call("1", "act", &call);
    let listed = |state: &str| {
        let listed = world.told(&["operation", "list", "--state", state]);
        let operation = listed["operations"].get(0)?;
        operation["operationId"].as_str().map(str::to_owned)
    };
    until("the identity is taken", || listed("in_progress").is_some());
    client.cancel("1");
    until("it is over", || listed("not_applied").is_some());
    world.remove(HOLD);
    let joined = client.act("2", &call);
    check_answered(&joined, "not_applied", true);
    assert_eq!(joined["result"]["isError"], true, "{joined}");
    assert_eq!(Some(operation(&joined)), listed("not_applied"));
    assert!(joined.to_string().contains("repeat_of"), "{joined}");
    assert_eq!(world.effects(), 0);
    check_answered(&client.act("3", &call), "applied", false);
    assert_eq!(world.effects(), 1);
}
