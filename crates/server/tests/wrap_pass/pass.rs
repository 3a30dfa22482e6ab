//! What travels untouched, and the few members that are rewritten.

use crate::world::{Wrap, call};

/// The number of ours for the first request of an opened session.
const FIRST_NUMBER: usize = 3;

#[test]
fn a_message_travels_byte_for_byte_but_for_its_id() {
    // Promise: key order, spaces, escapes, big integers and unknown members reach the server and the
    // client as they were written; request IDs come back with their type and digits.
    let wrap = Wrap::start("").initialized();
    let strange = r#"{ "params" :{"name":"received","arguments":{"b":1E40,"a":123456789012345678901234567890,"é":"\u00e9\/\ud83d\ude00"},"x":[1.0,-0.0]} , "future":{"id":7}, "method":"tools\/call","id":ID,"jsonrpc":"2.0"}"#;
    for (at, id) in ["1", "\"1\"", "9007199254740993", "\"\\u0061\"", "-7"].iter().enumerate() {
        let reply = wrap.ask(&strange.replace("ID", id));
        let received = reply["result"]["received"].as_str().expect("text").to_owned();
        let number = (at + FIRST_NUMBER).to_string();
        assert_eq!(received, strange.replace("ID", &number));
        assert_eq!(
            reply["id"].to_string(),
            serde_json::from_str::<serde_json::Value>(id).expect("JSON").to_string()
        );
    }
    let odd = r#"{"result":{"z":1e400,"a":18446744073709551616,"e":"\u0061\/","_meta":{"k":1}}, "id":ID,"more":null,"jsonrpc":"2.0"}"#;
    let text = serde_json::to_string(&format!("{odd}\n")).expect("JSON");
    wrap.call("\"q\"", "raw", &format!("{{\"text\":{text}}}"));
    assert_eq!(wrap.line(), odd.replace("ID", "\"q\""));
    assert_eq!(wrap.end().code, Some(0));
}

#[test]
fn unknown_methods_and_errors_pass() {
    // Promise: what the relay does not know it passes on, both ways.
    let wrap = Wrap::start("").initialized();
    for method in
        ["resources/read", "prompts/list", "completion/complete", "x/never-heard-of", "ping"]
    {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":"i","method":"{method}","params":{{"uri":"a:b"}}}}"#);
        assert!(wrap.received(&line).contains(method), "{method}");
    }
    let error = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-1,"message":"m","data":[1E2]}}"#;
    let text = serde_json::to_string(&format!("{error}\n")).expect("JSON");
    wrap.call("3", "raw", &format!("{{\"text\":{text}}}"));
    assert_eq!(wrap.line(), error.replace("ID", "3"));
    let note = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"n":1e3}}"#;
    let text = serde_json::to_string(&format!("{note}\n")).expect("JSON");
    wrap.call("4", "raw", &format!("{{\"text\":{text}}}"));
    assert_eq!(wrap.line(), note);
}

#[test]
fn ids_of_equal_text_are_two_requests() {
    // Promise: requests 1 and "1" in flight together each get their own answer.
    let wrap = Wrap::start("").initialized();
    wrap.call("1", "silent", "{}");
    wrap.call("\"1\"", "received", r#"{"mine":"text"}"#);
    let reply = wrap.message();
    assert_eq!(reply["id"], "1");
    // The request 1 is still open, and so cannot be asked again.
    let refused = wrap.ask(&call("1", "received", "{}"));
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&1.into(), &(-32600).into()));
}

#[test]
fn ten_parallel_calls_get_ten_answers() {
    // Promise: calls in flight together are never confused.
    let wrap = Wrap::start("").initialized();
    for n in 0..10 {
        wrap.call(&format!("\"call {n}\""), "received", &format!("{{\"n\":{n}}}"));
    }
    for _ in 0..10 {
        let reply = wrap.message();
        let id = reply["id"].as_str().expect("text");
        let n = id.strip_prefix("call ").expect("ours");
        let received = reply["result"]["received"].as_str().expect("text");
        assert!(received.contains(&format!("{{\"n\":{n}}}")), "{id}: {received}");
    }
}

#[test]
fn progress_and_cancellation_find_their_request() {
    // Promise: tokens and cancelled IDs are restored to what the other side knows.
    let wrap = Wrap::start("").initialized();
    let line = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":"tok\u0065n"}}}"#;
    wrap.send(line);
    assert_eq!(
        wrap.line(),
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":"tok\u0065n"}}"#
    );
    assert_eq!(wrap.message()["id"], 5);
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log").display().to_string();
    let wrap = Wrap::start(&format!("log={log}")).initialized();
    wrap.call("\"gone\"", "silent", "{}");
    wrap.send(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"gone"}}"#,
    );
    // Cancelling what nobody asked reaches nobody.
    wrap.send(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"other"}}"#,
    );
    wrap.received(&call("7", "received", "{}"));
    let log = std::fs::read_to_string(log).expect("a log");
    let cancelled: Vec<&str> = log.lines().filter(|line| line.contains("cancelled")).collect();
    assert_eq!(
        cancelled,
        [r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#]
    );
    // The ID is free again.
    wrap.received(&call("\"gone\"", "received", "{}"));
}

#[test]
fn the_server_asks_the_client() {
    // Promise: sampling, elicitation and roots work, with the server's own ID and token restored.
    let wrap = Wrap::start("").initialized();
    wrap.call("8", "ask", "{}");
    let asked = wrap.message();
    assert_eq!(asked["method"], "sampling/createMessage");
    let number = asked["id"].clone();
    assert_eq!(asked["params"]["_meta"]["progressToken"], number);
    wrap.send(&format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{"n":1E2}}}}"#));
    let reply = wrap.message();
    let answer = reply["result"]["answer"].as_str().expect("text");
    assert_eq!(
        answer,
        format!(r#"{{"jsonrpc":"2.0","id":"ask-{}","result":{{"n":1E2}}}}"#, reply_id(answer))
    );
    // A second answer to the same question is nobody's.
    wrap.send(&format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#));
    wrap.received(&call("9", "received", "{}"));
}

/// The server's own number in `"ask-N"`.
fn reply_id(answer: &str) -> &str {
    answer.split("ask-").nth(1).and_then(|rest| rest.split('"').next()).expect("an id")
}

#[test]
fn keys_of_ours_pass_in_neither_direction() {
    // Promise: nobody but the guard says `io.counterfoil/*`.
    let wrap = Wrap::start("").initialized();
    let got = wrap.received(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"received","_meta":{ "io.counterfoil/a":{"x":1}, "b":2 , "io.counterfoil\/c":3}}}"#,
    );
    assert_eq!(
        got,
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"received","_meta":{ "b":2}}}"#
    );
    let reply = r#"{"jsonrpc":"2.0","id":ID,"result":{"_meta":{"io.counterfoil/operation":{"state":"applied"}},"content":[]}}"#;
    let text = serde_json::to_string(&format!("{reply}\n")).expect("JSON");
    wrap.call("2", "raw", &format!("{{\"text\":{text}}}"));
    assert_eq!(wrap.line(), r#"{"jsonrpc":"2.0","id":2,"result":{"_meta":{},"content":[]}}"#);
}

#[test]
fn a_bad_line_of_the_client_is_refused_with_its_id() {
    // Promise: what two readers could understand differently reaches no server.
    let wrap = Wrap::start("").initialized();
    let cases: &[(&[u8], &str, i64)] = &[
        (b"{\"id\":1,", "1", -32700),
        (b"no json", "null", -32700),
        (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}]", "null", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"x\",\"v\":\"\xff\"}", "\"a\"", -32700),
        (b"{\"id\":3,\"method\":\"x\"}", "3", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"x\"}", "null", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"x\",\"method\":\"y\"}", "4", -32602),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":{\"name\":\"a\",\"n\\u0061me\":\"b\"}}", "5", -32602),
    ];
    for (line, id, code) in cases {
        wrap.send_bytes(&[line, &b"\n"[..]].concat());
        let reply = wrap.message();
        let seen = (reply["id"].to_string(), reply["error"]["code"].as_i64());
        assert_eq!(seen, ((*id).to_owned(), Some(*code)), "{}", String::from_utf8_lossy(line));
    }
    wrap.received(&call("1", "received", "{}"));
}

#[test]
fn a_long_answer_costs_few_copies_of_itself() {
    // Promise: a result of 10 MiB takes at most three times its size in memory.
    let wrap = Wrap::start("").initialized();
    wrap.received(&call("1", "received", "{}"));
    let before = wrap.peak_memory_kib();
    wrap.call("2", "big", &format!("{{\"bytes\":{}}}", 10 << 20));
    assert!(wrap.line().len() > 10 << 20);
    let grown = wrap.peak_memory_kib() - before;
    assert!(grown <= 3 * 10 * 1024, "{grown} KiB");
}

#[test]
fn long_answers_are_whole_and_those_past_the_limit_are_bounded_errors() {
    // Promise: an answer travels whole up to the limit; past it the call gets an error and the
    // session lives.
    let wrap = Wrap::start("").initialized();
    for bytes in [65_537, 1 << 20, 11 << 20] {
        wrap.call("\"big\"", "big", &format!("{{\"bytes\":{bytes}}}"));
        let line = wrap.line();
        assert!(
            line.starts_with(r#"{"jsonrpc":"2.0","id":"big","result":{"isError":false,"t":"xx"#)
        );
        assert!(line.len() > bytes && line.len() < bytes + 100, "{bytes}: {}", line.len());
    }
    wrap.call("\"huge\"", "big", &format!("{{\"bytes\":{}}}", 33 << 20));
    let line = wrap.line();
    assert!(line.len() < 1000 && line.contains("-32603") && line.contains("`srv`"), "{line}");
    let sent = "y".repeat(3 << 20);
    let got = wrap.received(&call("1", "received", &format!("{{\"y\":\"{sent}\"}}")));
    assert_eq!(got.len(), call("6", "received", &format!("{{\"y\":\"{sent}\"}}")).len());
}
