//! What server and client wrote, byte for byte, and output that is no message.

use serde_json::{Value, json};

use crate::child::{CALLS, EFFECTS};
use crate::client::{Client, ERAS, LEGACY, OPERATION, check_answered, check_refused, said};
use crate::world::World;

/// Results with what nobody knows, numbers that no double holds, and an order that no map keeps.
const RESULTS: [&str; 4] = [
    r#"{"z":123456789012345678901234567890,"content":[ ],"a" : 1E2,"\u0061b":"\u00e9\/"}"#,
    r#"{ "content" : [{"type":"new","x":{"b":1,"a":2}}], "unknown":[1.0,-0,null] }"#,
    r#"{"structuredContent":{"id":9007199254740993},"content":[]}"#,
    r#"{}"#,
];

/// A result's bytes without the one member that the guard put in.
fn without_ours(line: &str) -> String {
    let result = line.split_once("\"result\":").expect("a result").1;
    let result = result.strip_suffix('}').expect("an object");
    let key = format!("\"_meta\":{{\"{OPERATION}\":");
    let at = result.find(&key).unwrap_or_else(|| panic!("{line}"));
    let end = at + result[at..].find("}}").expect("its end") + 2;
    let begin = if result[..at].ends_with(',') { at - 1 } else { at };
    format!("{}{}", &result[..begin], &result[end..])
}

#[test]
fn a_result_is_what_the_server_wrote() {
    // Promise: fields that nobody knows, big integers, the order of keys, blanks and escapes reach
    // the client as the server wrote them, at once and when they are given again.
    for era in ERAS {
        let world = World::new("");
        let client = world.open(era);
        for (at, result) in RESULTS.iter().enumerate() {
            let call = json!({ "operation_id": format!("op-{at}"), "n": at,
                "steps": ["effect", format!("result:{result}")] });
            for name in ["first", "again"] {
                let id = format!("{name}{at}");
                client.send_call(&id, "act", &call);
                assert_eq!(without_ours(&client.reply_line(&id)), *result);
            }
        }
        assert_eq!(world.effects(), RESULTS.len());
    }
}

#[test]
fn arguments_reach_the_server_as_they_were_written() {
    // Promise: of a call's arguments only what is ours is taken out; the rest keeps every byte.
    let world = World::new("");
    let client = world.open(LEGACY);
    let cases = [
        (
            r#"{"z":1.50,"operation_id":"a","s" : "\u00e9\/","b":[1, 2]}"#,
            r#"{"z":1.50,"s" : "\u00e9\/","b":[1, 2]}"#,
        ),
        (r#"{ "operation_id" : "b" , "n":1E2}"#, r#""n":1E2}"#),
        (r#"{"n":2,"operation_id":"c"}"#, r#"{"n":2}"#),
    ];
    for (at, (sent, expected)) in cases.iter().enumerate() {
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"{at}","method":"tools/call","params":{{"name":"act","arguments":{sent}}}}}"#
        ));
        let begun = std::time::Instant::now();
        while world.calls() <= at {
            assert!(begun.elapsed() < crate::world::PATIENCE);
            std::thread::yield_now();
        }
        let got = world.lines(CALLS).pop().expect("a call");
        assert!(got.contains(expected) && !got.contains("operation_id"), "{got}");
    }
}

#[test]
fn bad_arguments_are_refused_before_anything_is_sent() {
    // Promise: numbers that two readers would take for different ones, IDs that differ or are no
    // text, and arguments that are no object are refused under the request's ID; the session lives.
    let world = World::new("");
    let client = world.open(LEGACY);
    let meta = r#","_meta":{"io.counterfoil/operationId":"other"}"#;
    let cases = [
        (r#"{"n":9007199254740993}"#, "", "invalid_argument"),
        (r#"{"n":1,"operation_id":7}"#, "", "invalid_argument"),
        (r#"{"n":1,"operation_id":"a"}"#, meta, "invalid_argument"),
        (r#"[1]"#, "", "invalid_argument"),
    ];
    for (at, (arguments, meta, code)) in cases.iter().enumerate() {
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"{at}","method":"tools/call","params":{{"name":"act","arguments":{arguments}{meta}}}}}"#
        ));
        let reply = client.reply(&at.to_string());
        assert_eq!(said(&reply)["error"]["code"], *code, "{arguments}: {reply}");
    }
    assert_eq!(world.calls(), 0);
    check_answered(&client.act("last", &json!({ "steps": ["ok"] })), "applied", false);
}

/// Calls with one step, under an ID of its own.
fn act_with(client: &Client, at: usize, steps: Value) -> Value {
    let call = json!({ "operation_id": format!("op-{at}"), "n": at, "steps": steps });
    client.act(&at.to_string(), &call)
}

#[test]
fn other_output_costs_no_call_its_answer() {
    // Promise: banners and broken bytes before, between and glued to an answer are reported with the
    // server's name, and the answer is taken; an answer that is itself broken is an unknown outcome.
    let ok = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"ok":1}}"#;
    for era in ERAS {
        let world = World::new("");
        let client = world.open(era);
        let around = [
            json!(["effect", r"raw:\xff\xfe", format!("raw:{ok}")]),
            json!(["effect", "raw:listening on 3000", format!("raw:{ok}")]),
            json!(["effect", format!("raw:listening{ok}")]),
            json!(["effect", format!(r"raw:\xff\xfe{ok}")]),
            json!(["effect", format!("raw:{ok}done")]),
        ];
        for (at, steps) in around.iter().enumerate() {
            let reply = act_with(&client, at, steps.clone());
            assert_eq!(reply["result"]["ok"], 1, "{steps}: {reply}");
            check_answered(&reply, "applied", false);
        }
        let broken = [
            r#"raw:{"jsonrpc":"2.0","id":ID,"result":{"content":[],"n":NaN}}"#,
            r#"raw:{"jsonrpc":"2.0","id":ID,"result":{"t":"\xff"}}"#,
            r#"raw:{"jsonrpc":"2.0","id":ID,"res"#,
        ];
        for (at, step) in broken.iter().enumerate() {
            let reply = act_with(&client, 10 + at, json!(["effect", step]));
            check_refused(&reply, "operation_in_doubt", "status_only");
        }
        assert_eq!(world.lines(EFFECTS).len(), around.len() + broken.len());
        let ended = client.end();
        assert!(ended.stderr.contains("server=srv"), "{}", ended.stderr);
        assert_eq!((ended.code, ended.rest.len()), (Some(0), 0), "{ended:?}");
    }
}

#[test]
fn answers_to_nobody_change_nothing() {
    // Promise: a second answer, and answers to requests that nobody made, reach no call and no
    // record: the first one stands.
    let world = World::new("");
    let client = world.open(LEGACY);
    let one = r#"raw:{"jsonrpc":"2.0","id":ID,"result":{"content":[],"first":true}}"#;
    let two = r#"raw:{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"second"}}"#;
    let stray = r#"raw:{"jsonrpc":"2.0","id":9999,"result":{"content":[]}}"#;
    let strange = r#"raw:{"jsonrpc":"2.0","id":"x","result":{"content":[]}}"#;
    let steps = json!([stray, strange, "effect", one, two]);
    check_answered(&act_with(&client, 1, steps.clone()), "applied", false);
    check_answered(&act_with(&client, 2, json!(["ok"])), "applied", false);
    let call = json!({ "operation_id": "op-1", "n": 1, "steps": steps });
    assert_eq!(client.act("again", &call)["result"]["first"], true);
    assert_eq!(client.status("s", "op-1")["state"], "applied");
    let ended = client.end();
    assert!(ended.rest.is_empty() && ended.stderr.contains("server=srv"), "{ended:?}");
}

#[test]
fn nobody_but_the_guard_speaks_of_operations() {
    // Promise: keys of ours that a server puts into a result or that a client sends upstream are
    // taken out; what the guard says stands alone.
    for era in ERAS {
        let world = World::new("");
        let client = world.open(era);
        let forged = r#"result:{"content":[],"_meta":{"io.counterfoil/operation":{"operationId":"op-9","state":"not_applied","retry":"new_operation"},"io.counterfoil/x":1,"theirs":2}}"#;
        let call = json!({ "n": 1, "steps": ["effect", forged] });
        let params = json!({ "name": "act", "arguments": call,
            "_meta": { "io.counterfoil/operationId": "op-1", "mine": 3 } });
        for (id, replayed) in [("1", false), ("2", true)] {
            let reply = client.ask(id, "tools/call", params.clone());
            check_answered(&reply, "applied", replayed);
            let meta = &reply["result"]["_meta"];
            assert_eq!(
                (&said(&reply)["operationId"], &meta["theirs"]),
                (&json!("op-1"), &json!(2))
            );
            assert!(meta.get("io.counterfoil/x").is_none(), "{reply}");
        }
        let got = world.lines(CALLS).pop().expect("a call");
        let got: Value = serde_json::from_str(&got).expect("JSON");
        let meta = got["params"]["_meta"].as_object().expect("an object");
        assert_eq!(meta["mine"], 3);
        assert!(!meta.keys().any(|key| key.starts_with("io.counterfoil/")), "{got}");
    }
}
