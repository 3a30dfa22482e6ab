//! The end of a client, of a gateway, and of a server, with guarded calls under way.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::child::{DEAF, HEARD};
use crate::client::{Client, ERAS, LEGACY, MODERN, check_answered, said, text};
use crate::world::{World, lives, until};

#[test]
fn a_server_that_asks_after_the_client_has_left_is_answered() {
    // Promise: a question to a client that has left is an error at once; the call that asked goes on
    // to its end, and its answer is kept.
    let world = World::new("");
    let mut client = world.open(LEGACY);
    let call = json!({ "operation_id": "op-1", "n": 1,
        "steps": ["touch:begun", "wait:go", "sample", "effect", "ok:alone"] });
    client.send_call("1", "act", &call);
    world.wait_for("begun");
    client.close_input();
    // The end of the input is read before the server goes on: a call after it is refused or unread.
    until("the call is taken back", || {
        world.trail("op-1").contains(&"cancel_requested".to_owned())
    });
    world.touch("go");
    let ended = client.wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.rest.iter().all(|line| !line.contains("sampling")), "{ended:?}");
    let heard = world.lines(HEARD);
    let heard: Value = serde_json::from_str(&heard[0]).expect("JSON");
    assert!(heard["error"]["code"].is_number(), "{heard}");
    let client = world.open(LEGACY);
    check_answered(&client.act("2", &call), "applied", true);
    assert_eq!(world.effects(), 1);
}

#[test]
fn a_signal_waits_for_what_was_begun() {
    // Promise: SIGTERM ends the gateway with 0 after its call has ended, even with a server that is
    // deaf to it; nothing of it is lost.
    for era in ERAS {
        let world = World::new("");
        world.touch(DEAF);
        let client = world.open(era);
        let call = json!({ "operation_id": "op-1", "n": 1,
            "steps": ["effect", "touch:begun", "wait:go", "ok:late"] });
        client.send_call("1", "act", &call);
        world.wait_for("begun");
        client.signal(Signal::TERM);
        world.touch("go");
        let ended = client.wait();
        assert_eq!((ended.code, ended.signal), (Some(0), None), "{ended:?}");
        assert!(ended.rest.iter().any(|line| line.contains("done late")), "{ended:?}");
        let pid = world.births()[0].to_string();
        assert!(!std::path::Path::new("/proc").join(pid).exists());
        let client = world.open(era);
        check_answered(&client.act("2", &call), "applied", true);
        assert_eq!(world.effects(), 1);
        drop(client);
    }
}

#[test]
fn a_command_that_does_not_exist_is_told_and_leaves_a_sound_ledger() {
    // Promise: a mistyped command ends with 127 and a sentence, and the next start works.
    let world = World::new("");
    let mut gateway = world.gateway(&["no-such-server-anywhere"]);
    let ended = Client::start(&mut gateway, MODERN).wait();
    assert_eq!(ended.code, Some(127));
    assert!(ended.stderr.contains("no-such-server-anywhere was not found"), "{}", ended.stderr);
    let client = world.open(MODERN);
    check_answered(&client.act("1", &json!({ "steps": ["ok"] })), "applied", false);
}

#[test]
fn a_call_to_a_server_that_cannot_be_started_is_told_so() {
    // Promise: where no server will come, a call that waits for one is refused at once as not sent,
    // and the same ID goes on with it later.
    let world = World::new("");
    let client = Client::start(&mut world.gateway(&["/etc/passwd"]), MODERN);
    let call = json!({ "n": 1, "steps": ["effect", "ok"] });
    let meta = json!({ "io.counterfoil/operationId": "op-1" });
    let params = json!({ "name": "act", "arguments": call, "_meta": meta });
    let reply = client.ask("1", "tools/call", params.clone());
    assert_eq!(said(&reply)["retry"], "same_operation", "{reply}");
    assert!(text(&reply).contains("was not sent"), "{reply}");
    assert_eq!(client.wait().code, Some(1));
    let client = world.open(MODERN);
    let sent = || {
        let reply = client.ask("2", "tools/call", params.clone());
        let is_held = said(&reply)["error"]["code"] == "operation_in_progress";
        assert!(is_held || said(&reply)["state"] == "applied", "{reply}");
        !is_held
    };
    until("the end of the lease", sent);
    assert_eq!(world.effects(), 1);
}

#[test]
fn reconnects_and_a_kill_leave_no_server() {
    // Promise: after a hundred clients with a guarded call each and a kill -9 of the last gateway, no
    // server is left, and every call is on record.
    let world = World::new("");
    for n in 0..100 {
        let client = world.open(if n % 2 == 0 { LEGACY } else { MODERN });
        let reply = client.act("1", &json!({ "n": n, "steps": ["effect", "ok"] }));
        check_answered(&reply, "applied", false);
        if n == 99 {
            client.kill();
        } else {
            assert_eq!(client.end().code, Some(0));
        }
    }
    let births = world.births();
    assert_eq!((births.len(), world.effects()), (100, 100));
    // A zombie here is one that this machine's first process has not collected yet.
    until("no server is left", || !births.iter().any(|pid| lives(*pid)));
}
