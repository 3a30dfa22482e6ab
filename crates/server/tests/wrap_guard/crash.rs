//! The gateway is killed while it has a call.

use serde_json::json;

use crate::child::{EFFECTS, HOLD};
use crate::client::{ERAS, LEGACY, MODERN, check_answered, check_refused, operation, text};
use crate::world::{WITH_LOOKUP, World, until};

#[test]
fn a_call_that_was_not_sent_can_be_taken_up_after_a_kill() {
    // Promise: a gateway that is killed before it sent anything leaves an operation that the same ID
    // goes on with, once, as soon as its owner's lease has ended.
    let world = World::new("");
    let client = world.open(LEGACY);
    client.act("0", &json!({ "steps": ["ok"] }));
    world.touch(HOLD);
    world.kill_server();
    until("a successor that is not ready", || world.births().len() == 2);
    let call = json!({ "operation_id": "op-1", "n": 1, "steps": ["effect", "ok:one"] });
    client.send_call("1", "act", &call);
    let phase = || {
        let (code, said) = world.command(&["operation", "show", "op-1", "--json"]);
        code.filter(|code| *code == 0)?;
        let shown: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        shown["phase"].as_str().map(str::to_owned)
    };
    until("the identity is taken", || phase().as_deref() == Some("claimed"));
    client.kill();
    world.remove(HOLD);
    let client = world.open(LEGACY);
    until("the end of the lease", || {
        let reply = client.act("again", &call);
        if reply["result"]["isError"] == true {
            check_refused(&reply, "operation_in_progress", "status_only");
            return false;
        }
        check_answered(&reply, "applied", false);
        text(&reply) == "done one"
    });
    assert_eq!(world.effects(), 1);
    check_answered(&client.act("2", &call), "applied", true);
    assert!(world.trail("op-1").contains(&"taken_up".to_owned()));
}

#[test]
fn a_call_that_was_sent_is_unknown_after_a_kill() {
    // Promise: what was sent before a kill is never in progress for ever: without a look it is in
    // doubt, and is not sent again.
    for era in [LEGACY, MODERN] {
        let world = World::new("");
        let client = world.open(era);
        let call = json!({ "operation_id": "op-1", "n": 1,
            "steps": ["effect", "touch:begun", "wait:never"] });
        client.send_call("1", "act", &call);
        world.wait_for("begun");
        client.kill();
        let client = world.open(era);
        until("the end of the lease", || client.status("s", "op-1")["detail"] == "in_doubt");
        check_refused(&client.act("2", &call), "operation_in_doubt", "status_only");
        assert_eq!((world.calls(), world.effects()), (1, 1));
    }
}

#[test]
fn a_call_that_was_sent_is_found_after_a_kill() {
    // Promise: where the tool can be looked for, the next gateway settles what the killed one left,
    // with nobody asking; then the ID gives what was found.
    for era in ERAS {
        let world = World::new(WITH_LOOKUP);
        let client = world.open(era);
        let call = json!({ "operation_id": "op-1", "n": 1,
            "steps": ["effect", "touch:begun", "wait:never"] });
        client.send_call("1", "act", &call);
        world.wait_for("begun");
        client.kill();
        let client = world.open(era);
        until("a look", || world.told(&["operation", "show", "op-1"])["state"] == "applied");
        let reply = client.act("2", &call);
        check_answered(&reply, "applied", true);
        assert_eq!(text(&reply), "It was found.");
        assert_eq!((world.calls(), world.effects()), (1, 1));
    }
}

#[test]
fn a_call_that_goes_on_with_anothers_operation_carries_its_marker() {
    // Promise: what is put into an effect so that it is found again is that of the operation on record,
    // and not of the call that happens to send it: a look would prove the absence of what is there.
    let marked = "[wrap.tools.act.marker]\nargument = \"mark\"\nvalue = \"{{ operation_id }}\"\n";
    let world = World::new(marked);
    let client = world.open(LEGACY);
    client.act("0", &json!({ "steps": ["ok"] }));
    world.touch(HOLD);
    world.kill_server();
    until("a successor that is not ready", || world.births().len() == 2);
    let call = json!({ "n": 1, "steps": ["effect", "ok:one"] });
    client.send_call("1", "act", &call);
    let unsettled = ["operation", "list", "--unsettled", "--json"];
    until("the identity is taken", || world.command(&unsettled).1.contains("in_progress"));
    client.kill();
    world.remove(HOLD);
    let client = world.open(LEGACY);
    let mut reply = client.act("again", &call);
    until("the end of the lease", || {
        let taken_up = reply["result"]["isError"] != true;
        if !taken_up {
            reply = client.act("again", &call);
        }
        taken_up
    });
    let joined = operation(&reply);
    assert!(world.trail(&joined).contains(&"taken_up".to_owned()), "{reply}");
    let effects = world.lines(EFFECTS);
    let effect: serde_json::Value = serde_json::from_str(&effects[0]).expect("JSON");
    assert_eq!((effects.len(), effect["mark"].as_str()), (1, Some(&*joined)), "{effect}");
}
