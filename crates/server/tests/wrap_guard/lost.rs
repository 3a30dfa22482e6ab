//! Replies that are lost between server, gateway and client.

use serde_json::json;

use crate::client::{ERAS, MODERN, check_answered, check_refused, operation, said, text};
use crate::world::{World, until};

#[test]
fn a_cancelled_call_goes_on_and_its_id_tells_how() {
    // Promise: a client that gives up ends nothing; under the same ID it learns that the call runs
    // on, then its result, and the effect is made once.
    for era in ERAS {
        let world = World::new("");
        let client = world.open(era);
        let call = json!({ "operation_id": "op-1", "n": 1,
            "steps": ["effect", "touch:begun", "wait:go", "ok:one"] });
        client.send_call("1", "act", &call);
        world.wait_for("begun");
        client.cancel("1");
        check_refused(&client.act("2", &call), "operation_in_progress", "status_only");
        assert_eq!(client.status("s", "op-1")["state"], "unknown");
        world.touch("go");
        until("the result", || client.status("s", "op-1")["state"] == "applied");
        for id in ["3", "4"] {
            let reply = client.act(id, &call);
            check_answered(&reply, "applied", true);
            assert_eq!(text(&reply), "done one");
        }
        assert!(world.trail("op-1").contains(&"cancel_requested".to_owned()));
        assert_eq!((world.calls(), world.effects()), (1, 1));
        let ended = client.end();
        assert!(ended.rest.is_empty(), "the cancelled call was answered: {ended:?}");
    }
}

#[test]
fn an_answer_long_after_the_client_has_left_is_kept() {
    // Promise: an answer that comes 20 s after the client left is on record, and the next client
    // gets it without a second effect.
    let world = World::new("");
    let mut client = world.open(MODERN);
    let call = json!({ "operation_id": "op-1", "n": 1,
        "steps": ["effect", "touch:begun", "idle:20", "ok:late"] });
    client.send_call("1", "act", &call);
    world.wait_for("begun");
    client.close_input();
    assert_eq!(client.wait().code, Some(0));
    let client = world.open(MODERN);
    let status = client.status("s", "op-1");
    assert_eq!((&status["state"], &status["detail"]), (&json!("applied"), &json!("settled")));
    assert!(status["storedResult"].to_string().contains("done late"), "{status}");
    assert_eq!(text(&client.act("2", &call)), "done late");
    assert_eq!((world.calls(), world.effects()), (1, 1));
}

#[test]
fn another_payload_under_a_running_id_conflicts() {
    // Promise: who reuses an ID for something else is told so, and nothing of the first call.
    let world = World::new("");
    let client = world.open(MODERN);
    let steps = json!(["effect", "touch:begun", "wait:go", "ok:sentinel"]);
    let first =
        json!({ "operation_id": "op-1", "amount": 10, "secret": "sentinel", "steps": steps });
    let other = json!({ "operation_id": "op-1", "amount": 20, "steps": ["effect", "ok"] });
    client.send_call("1", "act", &first);
    world.wait_for("begun");
    let running = client.act("2", &other);
    check_refused(&running, "operation_conflict", "none");
    world.touch("go");
    check_answered(&client.reply("1"), "applied", false);
    let done = client.act("3", &other);
    check_refused(&done, "operation_conflict", "none");
    for reply in [running, done] {
        assert!(!reply.to_string().contains("sentinel"), "{reply}");
    }
    assert_eq!(world.calls(), 1);
}

#[test]
fn what_was_not_sent_is_sent_to_the_next_server_and_nothing_twice() {
    // Promise: a call to a dead server reaches its successor; a call that a server had when it died
    // is unknown, never sent again, and answered at once; the session goes on.
    for era in ERAS {
        let world = World::new("");
        let client = world.open(era);
        client.act("0", &json!({ "steps": ["ok"] }));
        world.kill_server();
        let reply =
            client.act("1", &json!({ "operation_id": "op-1", "n": 1, "steps": ["effect", "ok"] }));
        check_answered(&reply, "applied", false);
        assert_eq!((world.births().len(), world.effects()), (2, 1));

        let lost = json!({ "operation_id": "op-2", "n": 2, "steps": ["effect", "touch:has-it"] });
        client.send_call("2", "act", &lost);
        world.wait_for("has-it");
        world.kill_server();
        let reply = client.reply("2");
        check_refused(&reply, "operation_in_doubt", "status_only");
        for words in ["may have taken effect", "Do not send it again", "get_operation_status"] {
            assert!(text(&reply).contains(words), "{words}: {reply}");
        }
        check_refused(&client.act("3", &lost), "operation_in_doubt", "status_only");
        assert_eq!(client.status("s", "op-2")["detail"], "in_doubt");
        check_answered(&client.act("4", &json!({ "n": 3, "steps": ["ok"] })), "applied", false);
        assert_eq!((world.births().len(), world.effects()), (3, 2));
        assert_eq!(client.end().code, Some(0));
    }
}

#[test]
fn ten_parallel_writes_are_ten_operations() {
    // Promise: calls that run at the same time are told apart, whatever the order of their answers.
    let world = World::new("");
    let client = world.open(MODERN);
    for n in 0..10 {
        let steps = json!([format!("touch:in-{n}"), "wait:go", "effect", format!("ok:{n}")]);
        client.send_call(&format!("c{n}"), "act", &json!({ "n": n, "steps": steps }));
    }
    for n in 0..10 {
        world.wait_for(&format!("in-{n}"));
    }
    world.touch("go");
    let mut operations = Vec::new();
    for n in (0..10).rev() {
        let reply = client.reply(&format!("c{n}"));
        check_answered(&reply, "applied", false);
        assert_eq!(text(&reply), format!("done {n}"));
        operations.push(operation(&reply));
    }
    operations.sort();
    operations.dedup();
    assert_eq!((operations.len(), world.effects()), (10, 10));
    let listed = world.told(&["operation", "list", "--state", "applied"]);
    assert_eq!(listed["operations"].as_array().expect("a list").len(), 10);
    check_answered(&client.act("after", &json!({ "steps": ["ok"] })), "applied", false);
}

#[test]
fn a_call_that_is_never_answered_holds_up_nobody() {
    // Promise: other calls go on beside it, it stays unknown, and its ID starts no second one.
    let world = World::new("");
    let client = world.open(MODERN);
    let silent = json!({ "operation_id": "op-1", "n": 1, "steps": ["effect", "touch:begun"] });
    client.send_call("1", "act", &silent);
    world.wait_for("begun");
    check_answered(&client.act("2", &json!({ "n": 2, "steps": ["ok"] })), "applied", false);
    check_refused(&client.act("3", &silent), "operation_in_progress", "status_only");
    // Without an ID it is the same call, too, and says how it would be another.
    let joined = client.act("4", &json!({ "n": 1, "steps": ["effect", "touch:begun"] }));
    check_refused(&joined, "operation_in_progress", "status_only");
    assert_eq!(said(&joined)["operationId"], "op-1");
    assert!(text(&joined).contains("repeat_of"), "{joined}");
    world.kill_server();
    check_refused(&client.reply("1"), "operation_in_doubt", "status_only");
    assert_eq!(world.effects(), 1);
}
