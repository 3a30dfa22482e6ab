//! Servers that print what is no message.

use crate::world::{Wrap, call};

fn raw(wrap: &Wrap, id: &str, text: &str) {
    let text = serde_json::to_string(text).expect("JSON");
    wrap.call(id, "raw", &format!("{{\"text\":{text}}}"));
}

#[test]
fn other_output_is_reported_and_passed_over() {
    // Promise: a banner before, between or glued to messages costs none of them, and a person is
    // told which server prints it.
    let wrap = Wrap::start("banner").initialized();
    let ok = r#"{"jsonrpc":"2.0","id":ID,"result":{"ok":1}}"#;
    for (at, text) in [
        format!("listening\n{ok}\n"),
        format!("listening{ok}\n"),
        format!("{ok}listening\n"),
        format!("\\xff\\xfe{ok}\n"),
        format!("\n\n  {ok}\r\n"),
    ]
    .iter()
    .enumerate()
    {
        raw(&wrap, &format!("\"{at}\""), text);
        let reply = wrap.message();
        assert_eq!((&reply["id"], &reply["result"]["ok"]), (&at.to_string().into(), &1.into()));
    }
    // What only clients ask is the server's log of our own words.
    raw(
        &wrap,
        "7",
        &format!("log {{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/call\"}}\n{ok}\n"),
    );
    assert_eq!(wrap.message()["id"], 7);
    let ended = wrap.end();
    assert!(ended.stderr.contains("server=srv"), "{}", ended.stderr);
    assert_eq!((ended.code, ended.rest.len()), (Some(0), 0));
}

#[test]
fn an_unreadable_answer_is_an_unknown_outcome() {
    // Promise: a call whose answer is broken ends, as unknown, and the next ones work.
    let wrap = Wrap::start("").initialized();
    for broken in [
        r#"{"jsonrpc":"2.0","id":ID,"result":{"n":NaN}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"t":"\xff"}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{},"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"res"#,
        r#"glued{"jsonrpc":"2.0","id":ID,"result":{"n":NaN}}"#,
    ] {
        raw(&wrap, "\"b\"", &format!("{broken}\n"));
        let reply = wrap.message();
        let text = reply["error"]["message"].as_str().unwrap_or_else(|| panic!("{reply}"));
        assert!(reply["id"] == "b" && text.contains("unknown") && text.contains("`srv`"), "{text}");
    }
    wrap.received(&call("1", "received", "{}"));
}

#[test]
fn answers_to_nobody_are_dropped() {
    // Promise: a second answer, and one to a request that nobody made, reach no call.
    let wrap = Wrap::start("").initialized();
    let ok = r#"{"jsonrpc":"2.0","id":ID,"result":{"first":true}}"#;
    let second = r#"{"jsonrpc":"2.0","id":ID,"result":{"first":false}}"#;
    let others = r#"{"jsonrpc":"2.0","id":9999,"result":{}}
{"jsonrpc":"2.0","id":"x","result":{}}
"#;
    raw(&wrap, "1", &format!("{others}{ok}\n{second}\n"));
    assert_eq!(wrap.message()["result"]["first"], true);
    wrap.received(&call("2", "received", "{}"));
    let ended = wrap.end();
    assert!(ended.rest.is_empty() && ended.stderr.contains("server=srv"), "{ended:?}");
}

#[test]
fn a_call_that_is_never_answered_holds_up_nobody() {
    // Promise: other calls go on beside it, and its cancellation is relayed.
    let wrap = Wrap::start("").initialized();
    wrap.call("1", "silent", "{}");
    wrap.received(&call("2", "received", "{}"));
    wrap.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    wrap.received(&call("1", "received", "{}"));
    assert_eq!(wrap.end().code, Some(0));
}
