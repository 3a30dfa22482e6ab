//! What each kind of answer comes to, for its caller, for whoever asks again, and on record.

use serde_json::{Value, json};

use crate::child::TOOLS;
use crate::client::{ERAS, check_refused, operation, said, text};
use crate::world::World;

const SETTINGS: &str = r#"
[wrap.tools.act_not]
error_means = "not_applied"
[wrap.tools.act_yes]
error_means = "applied"
[wrap.tools.act_text]
error_texts = ["Error:"]
"#;

/// What the guard makes of one answer.
enum Expected {
    /// It is passed on, with this state and word on what next; the status is the second.
    Result { state: &'static str, retry: &'static str, detail: &'static str },
    /// It is passed on as the JSON-RPC error that it is; the status is this.
    Error { state: &'static str, detail: &'static str },
    /// Nobody knows.
    InDoubt,
}

use Expected::{Error, InDoubt, Result};

const APPLIED: Expected = Result { state: "applied", retry: "none", detail: "settled" };
const ANSWERED: Expected =
    Result { state: "unknown", retry: "none", detail: "answered_with_error" };
const REFUSED: Expected =
    Result { state: "not_applied", retry: "new_operation", detail: "settled" };

const TOOL_ERROR: &str = r#"result:{"content":[{"type":"text","text":"no"}],"isError":true}"#;

fn cases() -> Vec<(&'static str, &'static str, Expected)> {
    let refused = Error { state: "not_applied", detail: "settled" };
    let answered = || Error { state: "unknown", detail: "answered_with_error" };
    let mut cases = vec![
        ("act", r#"result:{"content":[]}"#, APPLIED),
        ("act", r#"result:{"content":[],"isError":false,"resultType":"complete"}"#, APPLIED),
        ("act", TOOL_ERROR, ANSWERED),
        ("act_not", TOOL_ERROR, REFUSED),
        ("act_yes", TOOL_ERROR, APPLIED),
        ("act_text", r#"result:{"content":[{"type":"text","text":"Error: no"}]}"#, ANSWERED),
        ("act_text", r#"result:{"content":[{"type":"text","text":"No Error: x"}]}"#, APPLIED),
        (
            "act",
            r#"result:{"resultType":"task","task":{"taskId":"t","status":"working"}}"#,
            ANSWERED,
        ),
        ("act", r#"result:{"task":{"taskId":"t","status":"working"}}"#, ANSWERED),
        ("act", r#"error:{"code":-32603,"message":"m"}"#, answered()),
        ("act", r#"error:{"code":-32000,"message":"m","data":{"a":1}}"#, answered()),
        ("act_not", r#"error:{"code":-32603,"message":"m"}"#, refused),
        (
            "act_yes",
            r#"error:{"code":-32603,"message":"m"}"#,
            Error { state: "applied", detail: "settled" },
        ),
        ("act", r#"result:{"content":[],"resultType":"new"}"#, InDoubt),
        ("act", r#"result:{"content":[],"resultType":7}"#, InDoubt),
        ("act", r#"result:[]"#, InDoubt),
        ("act", r#"error:{"message":"m"}"#, InDoubt),
        ("act", r#"raw:{"jsonrpc":"2.0","id":ID,"result":{"n":NaN}}"#, InDoubt),
        ("act", r#"raw:{"jsonrpc":"2.0","id":ID,"result":{"t":"\xff"}}"#, InDoubt),
        ("act", r#"raw:{"jsonrpc":"2.0","id":ID,"result":{},"error":{}}"#, InDoubt),
        ("act", "exit", InDoubt),
    ];
    for code in ["-32700", "-32600", "-32601", "-32602", "-32020", "-32021", "-32022"] {
        let step = format!("error:{{\"code\":{code},\"message\":\"m\"}}");
        let refused = Error { state: "not_applied", detail: "settled" };
        cases.push(("act", Box::leak(step.into_boxed_str()), refused));
    }
    cases
}

#[test]
fn each_kind_of_answer_is_told_kept_and_given_again() {
    // Promise: an answer that says what happened settles; any other answer of the server is given
    // to its caller and again to the same ID, and promises nothing; what cannot be read is unknown.
    // None of them is sent again under its ID.
    for era in ERAS {
        let world = World::new(SETTINGS);
        let schema = json!({ "type": "object", "properties": {} });
        let tools = ["act", "act_not", "act_yes", "act_text"]
            .map(|name| json!({ "name": name, "inputSchema": schema }));
        std::fs::write(world.file(TOOLS), json!({ "tools": tools }).to_string()).expect("written");
        let client = world.open(era);
        for (at, (tool, step, expected)) in cases().into_iter().enumerate() {
            let id = format!("op-{at}");
            let call = json!({ "operation_id": id, "n": at, "steps": ["effect", step] });
            let ask = |name: &str| {
                client.send_call(&format!("{name}{at}"), tool, &call);
                client.reply(&format!("{name}{at}"))
            };
            let (first, again) = (ask("first"), ask("again"));
            let status = client.status(&format!("status{at}"), &id);
            check(&format!("{era} {tool} {step}"), &expected, &first, &again, &status);
            assert_eq!(world.calls(), at + 1, "{era} {step}");
        }
        assert_eq!(client.end().code, Some(0));
    }
}

fn check(case: &str, expected: &Expected, first: &Value, again: &Value, status: &Value) {
    let (state, detail) = match expected {
        Result { state, retry, detail } => {
            for (reply, replayed) in [(first, false), (again, true)] {
                let said = said(reply);
                assert_eq!(
                    (&said["state"], &said["replayed"]),
                    (&json!(state), &json!(replayed)),
                    "{case}: {reply}"
                );
            }
            assert_eq!(said(first)["retry"], *retry, "{case}: {first}");
            let own = |reply: &Value| {
                let mut result = reply["result"].clone();
                result.as_object_mut().expect("an object").remove("_meta");
                result
            };
            assert_eq!(own(first), own(again), "{case}");
            (*state, *detail)
        }
        Error { state, detail } => {
            assert!(first["error"]["code"].is_number(), "{case}: {first}");
            assert_eq!(first["error"], again["error"], "{case}");
            (*state, *detail)
        }
        InDoubt => {
            for reply in [first, again] {
                check_refused(reply, "operation_in_doubt", "status_only");
            }
            ("unknown", "in_doubt")
        }
    };
    assert_eq!(
        (&status["state"], &status["detail"]),
        (&json!(state), &json!(detail)),
        "{case}: {status}"
    );
    // Who only looks is never told to go on.
    assert_ne!(said(again)["retry"], "new_operation", "{case}");
}

#[test]
fn lengths_up_to_the_cap_are_whole_and_past_it_is_a_bounded_error() {
    // Promise: an answer up to the cap is passed on and kept whole; one past it is an error of
    // bounded length, its operation stays applied, and the session goes on.
    let world = World::new("");
    let client = world.open(crate::client::MODERN);
    for size in [65_537, 1 << 20, 11 << 20] {
        let call = json!({ "operation_id": format!("op-{size}"), "n": size,
            "steps": ["effect", format!("big:{size}")] });
        for name in ["first", "again"] {
            let reply = client.act(&format!("{name}{size}"), &call);
            assert_eq!(text(&reply).len(), size);
            assert_eq!(said(&reply)["state"], "applied");
        }
    }
    for size in [17 << 20, 40 << 20] {
        let call = json!({ "operation_id": format!("op-{size}"), "n": size,
            "steps": ["effect", format!("big:{size}")] });
        for (name, replayed) in [("first", false), ("again", true)] {
            let id = format!("{name}{size}");
            client.send_call(&id, "act", &call);
            let line = client.reply_line(&id);
            assert!(line.len() < 2_000, "{} bytes", line.len());
            let reply = serde_json::from_str(&line).expect("JSON");
            crate::client::check_answered(&reply, "applied", replayed);
            assert_eq!(reply["result"]["isError"], true, "{reply}");
            assert!(text(&reply).contains("bytes"), "{reply}");
        }
        assert_eq!(client.status(&format!("s{size}"), &format!("op-{size}"))["state"], "applied");
    }
    // Without an ID: it was answered, so that an equal call is new work.
    let big = json!({ "n": 0, "steps": ["effect", format!("big:{}", 17 << 20)] });
    let first = operation(&client.act("x", &big));
    assert_ne!(operation(&client.act("y", &big)), first);
    assert_eq!(world.effects(), 7);
}
