//! Servers that say other things about their tools later, or odd ones.

use std::fs;

use serde_json::{Value, json};

use crate::child::{CALLS, SHY, TOOLS};
use crate::client::{Client, ERAS, MODERN, check_answered, check_refused, operation, said, text};
use crate::world::World;

/// The tools as the client sees them.
fn list(client: &Client, id: &str) -> Vec<Value> {
    let reply = client.ask(id, "tools/list", json!({}));
    reply["result"]["tools"].as_array().unwrap_or_else(|| panic!("{reply}")).clone()
}

fn tool<'a>(tools: &'a [Value], name: &str) -> &'a Value {
    tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no {name}: {tools:?}"))
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

fn write_tools(world: &World, tools: &Value) {
    // One that reads meanwhile sees the old file or the new one.
    let (new, path) = (world.file("tools.new"), world.file(TOOLS));
    fs::write(&new, json!({ "tools": tools }).to_string()).expect("written");
    fs::rename(new, path).expect("renamed");
}

fn plain(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object", "properties": {} } })
}

#[test]
fn a_list_that_changes_is_relayed_and_read_anew() {
    // Promise: the client hears of the change and sees the new list with our arguments in it; what is
    // called under a name that was not listed when it is called is guarded.
    for era in ERAS {
        let world = World::new("");
        let client = world.open(era);
        write_tools(&world, &json!([plain("act")]));
        assert_eq!(names(&list(&client, "l1")), ["act", "get_operation_status"]);
        let notice = r#"raw:{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        // Renamed between list and call: the old name is still what was planned for it.
        write_tools(&world, &json!([plain("act_new")]));
        let call = json!({ "operation_id": "op-1", "n": 1, "steps": ["effect", notice, "ok"] });
        check_answered(&client.act("1", &call), "applied", false);
        assert_eq!(client.unasked()["method"], "notifications/tools/list_changed");
        // The new name, before the client has seen the new list.
        let call = json!({ "operation_id": "op-2", "n": 2, "steps": ["effect", "ok"] });
        let params = json!({ "name": "act_new", "arguments": call,
            "_meta": { "io.counterfoil/operationId": "op-2" } });
        check_answered(&client.ask("2", "tools/call", params.clone()), "applied", false);
        let tools = list(&client, "l2");
        assert_eq!(names(&tools), ["act_new", "get_operation_status"]);
        assert!(tool(&tools, "act_new")["inputSchema"]["properties"]["operation_id"].is_object());
        assert_eq!(world.effects(), 2);
    }
}

#[test]
fn a_tool_that_the_server_does_not_know_is_its_refusal() {
    // Promise: a call under a name that the server has given up gets the server's error, as a
    // proof that nothing was done, and a new name does not inherit the old one's operations.
    let world = World::new("");
    let client = world.open(MODERN);
    list(&client, "l");
    let gone = r#"error:{"code":-32602,"message":"Unknown tool: act"}"#;
    let call = json!({ "operation_id": "op-1", "n": 1, "steps": [gone] });
    assert_eq!(client.act("1", &call)["error"]["code"], -32602);
    assert_eq!(client.status("s", "op-1")["state"], "not_applied");
    let meta = json!({ "io.counterfoil/operationId": "op-1" });
    let params = json!({ "name": "act_new", "arguments": call, "_meta": meta });
    let other = client.ask("2", "tools/call", params);
    check_refused(&other, "operation_conflict", "none");
    assert_eq!((world.effects(), world.calls()), (0, 1));
}

#[test]
fn a_server_cannot_talk_itself_out_of_the_guard() {
    // Promise: hints are not believed, neither at first nor later; a server's own word on an
    // operation in its list does not stand in the way of ours.
    let world = World::new("");
    let client = world.open(MODERN);
    let mut hinted = plain("act");
    hinted["annotations"] = json!({ "readOnlyHint": true });
    hinted["_meta"] = json!({ "io.counterfoil/guarded": false });
    write_tools(&world, &json!([plain("act")]));
    list(&client, "l1");
    write_tools(&world, &json!([hinted]));
    let tools = list(&client, "l2");
    assert!(tool(&tools, "act")["inputSchema"]["properties"]["operation_id"].is_object());
    let call = json!({ "n": 1, "steps": ["effect", "exit"] });
    check_refused(&client.act("1", &call), "operation_in_doubt", "status_only");
    check_refused(&client.act("2", &call), "operation_in_doubt", "status_only");
    assert_eq!(world.effects(), 1);
    // The same from the beginning.
    let client = world.open(MODERN);
    check_refused(&client.act("3", &call), "operation_in_doubt", "status_only");
    assert_eq!(world.effects(), 1);
}

#[test]
fn a_hint_that_is_believed_is_believed_once() {
    // Promise: even where hints are trusted, one that changes at run time changes nothing.
    let world = World::new("trust_annotations = true\n");
    let client = world.open(MODERN);
    let mut reads = plain("act");
    reads["annotations"] = json!({ "readOnlyHint": true });
    write_tools(&world, &json!([plain("act"), plain("get")]));
    list(&client, "l1");
    write_tools(&world, &json!([reads, plain("get")]));
    let tools = list(&client, "l2");
    assert!(tool(&tools, "act")["inputSchema"]["properties"]["operation_id"].is_object());
    let call = json!({ "n": 1, "steps": ["effect", "exit"] });
    for id in ["1", "2"] {
        check_refused(&client.act(id, &call), "operation_in_doubt", "status_only");
    }
    assert_eq!(world.effects(), 1);
    // A session that saw the hint first takes it for a read.
    let client = world.open(MODERN);
    let tools = list(&client, "l3");
    assert!(tool(&tools, "act")["inputSchema"]["properties"].get("operation_id").is_none());
    let reply = client.act("3", &json!({ "n": 2, "steps": ["ok"] }));
    assert!(reply["result"]["_meta"].is_null(), "{reply}");
}

#[test]
fn an_argument_of_that_name_stays_the_servers() {
    // Promise: a tool's own `operation_id` reaches it; ours has another name then, and both are told
    // apart. A schema that cannot take ours is left alone, and `_meta` carries the ID.
    for era in ERAS {
        let world = World::new("");
        let client = world.open(era);
        let own = json!({ "name": "act", "inputSchema": { "type": "object", "properties": {
            "operation_id": { "type": "string" } }, "required": ["operation_id"] } });
        let composed =
            json!({ "name": "act_any", "inputSchema": { "type": "object", "anyOf": [{}] } });
        write_tools(&world, &json!([own, composed.clone(), plain("get_operation_status")]));
        let tools = list(&client, "l");
        let properties = &tool(&tools, "act")["inputSchema"]["properties"];
        assert_eq!(properties["operation_id"], json!({ "type": "string" }));
        assert!(properties["counterfoil_operation_id"].is_object(), "{properties}");
        assert_eq!(tool(&tools, "act_any"), &composed);
        assert!(names(&tools).contains(&"counterfoil_get_operation_status"));
        let call = json!({ "operation_id": "theirs", "counterfoil_operation_id": "ours", "n": 1,
            "steps": ["effect", "ok"] });
        let reply = client.act("1", &call);
        assert_eq!(operation(&reply), "ours");
        let got = world.lines(CALLS).pop().expect("a call");
        assert!(
            got.contains("\"operation_id\":\"theirs\"") && !got.contains("counterfoil"),
            "{got}"
        );
        let call = json!({ "operation_id": "theirs", "n": 2, "steps": ["effect", "ok"] });
        let params = json!({ "name": "act_any", "arguments": call,
            "_meta": { "io.counterfoil/operationId": "by-meta" } });
        assert_eq!(operation(&client.ask("2", "tools/call", params)), "by-meta");
        client.send_call(
            "3",
            "counterfoil_get_operation_status",
            &json!({ "operation_id": "by-meta" }),
        );
        assert_eq!(client.reply("3")["result"]["structuredContent"]["state"], "applied");
        assert_eq!(world.effects(), 2);
    }
}

#[test]
fn a_list_that_cannot_be_read_leaves_every_tool_guarded() {
    // Promise: a server whose list is broken, or is an error, still has no unguarded write.
    for listed in [r#"{"tools":7}"#, r#"{"no":"list"}"#] {
        let world = World::new("");
        fs::write(world.file(TOOLS), listed).expect("written");
        let client = world.open(MODERN);
        let call = json!({ "n": 1, "steps": ["effect", "exit"] });
        let ask = |id: &str| {
            let params = json!({ "name": "act", "arguments": call,
                "_meta": { "io.counterfoil/operationId": "op-1" } });
            client.ask(id, "tools/call", params)
        };
        for id in ["1", "2"] {
            let reply = ask(id);
            check_refused(&reply, "operation_in_doubt", "status_only");
            assert_eq!(said(&reply)["operationId"], "op-1");
            assert!(text(&reply).contains("op-1"));
        }
        assert_eq!(world.effects(), 1);
    }
}

#[test]
fn a_server_that_ends_while_it_is_asked_for_its_tools_is_asked_again() {
    // Promise: where the ID stands is known before the first call is sent, though the first server
    // died of the question.
    for era in ERAS {
        let world = World::new("");
        world.touch(SHY);
        let client = world.open(era);
        let call = json!({ "operation_id": "op-1", "n": 1, "steps": ["effect", "ok"] });
        let reply = client.act("1", &call);
        check_answered(&reply, "applied", false);
        assert_eq!(operation(&reply), "op-1");
        assert!(!world.lines(CALLS)[0].contains("operation_id"));
        assert_eq!(world.births().len(), 2);
    }
}
