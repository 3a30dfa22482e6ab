//! Input that no honest client sends, over the product's own binary: it is refused with the
//! request's ID, nothing of it is stored, and the connection lives.

mod common;

use common::{
    Bench, LAB, check_applied, check_raw_applied, check_raw_refused, check_refused, check_settled,
    check_state_refused, close, product_server,
};
use counterfoil_lab::child::ChildOptions;
use counterfoil_lab::process::Ended;
use counterfoil_lab::raw::{RawClient, continuation, request, tool_call};
use counterfoil_lab::session::{Issue, Protocol, Session};
use serde_json::{Value, json};

const MODERN: Protocol = Protocol::V2026_07_28;

/// A call of `create_issue` whose arguments are these bytes.
fn call_with(arguments: &[u8]) -> Vec<u8> {
    let frame = tool_call(&json!("q"), "create_issue", "@@");
    let (head, tail) = frame.split_once("@@").expect("the mark is there");
    [head.as_bytes(), arguments, tail.as_bytes()].concat()
}

/// What a bad frame is refused with.
enum Refused {
    /// A JSON-RPC error with this code.
    Error(i64),
    /// A tool error with this code.
    Tool(&'static str),
}

fn bad_frames() -> Vec<(&'static str, Vec<u8>, Refused)> {
    use Refused::{Error, Tool};
    let with_id = |id: &str| {
        call_with(format!(r#"{{"operation_id":{id},"title":"t","body":"b"}}"#).as_bytes())
    };
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let large = format!(r#"{{"body":"{}"}}"#, "x".repeat(10 * 1024 * 1024));
    let good = r#""operation_id":"bad","title":"t""#;
    let and = |more: &str| call_with(format!("{{{good},{more}}}").as_bytes());
    vec![
        ("not UTF-8", call_with(b"{\"title\":\"\xff\xfe\"}"), Error(-32700)),
        ("NaN", call_with(br#"{"title":NaN}"#), Error(-32700)),
        ("10 MiB", call_with(large.as_bytes()), Error(-32700)),
        ("10,000 deep", call_with(deep.as_bytes()), Error(-32602)),
        ("lone surrogate", and(r#""body":"\ud800""#), Error(-32602)),
        ("duplicate key", and(r#""body":"a","body":"b""#), Error(-32602)),
        ("duplicate ID", and(r#""operation_id":"bad""#), Error(-32602)),
        ("empty ID", with_id(r#""""#), Tool("invalid_argument")),
        ("blank ID", with_id(r#"" \u00a0""#), Tool("invalid_argument")),
        ("long ID", with_id(&format!("{:?}", "i".repeat(129))), Tool("invalid_argument")),
        ("control character in ID", with_id(r#""a\nb""#), Tool("invalid_argument")),
        ("U+0000 in ID", with_id(r#""a\u0000""#), Tool("invalid_argument")),
        ("number as ID", with_id("7"), Tool("invalid_argument")),
        ("null as ID", with_id("null"), Tool("invalid_argument")),
        ("no ID", call_with(br#"{"title":"t","body":"b"}"#), Tool("operation_id_required")),
        ("array as arguments", call_with(b"[]"), Error(-32602)),
        ("unknown argument", and(r#""body":"b","bodi":"c""#), Tool("invalid_argument")),
        ("unknown mode", and(r#""body":"b","mode":"whole""#), Tool("invalid_argument")),
        (
            "number as title",
            call_with(br#"{"operation_id":"bad","title":1}"#),
            Tool("invalid_argument"),
        ),
        (
            "blank title",
            call_with(br#"{"operation_id":"bad","title":" "}"#),
            Tool("invalid_argument"),
        ),
        ("blank body", and(r#""body":"\t\n""#), Tool("invalid_argument")),
        (
            "large title",
            call_with(
                format!(r#"{{"operation_id":"bad","title":"{}","body":"b"}}"#, "t".repeat(513))
                    .as_bytes(),
            ),
            Tool("too_large"),
        ),
        (
            "ID from the future",
            with_id(r#""fffffffe-ffff-7000-8000-000000000000""#),
            Tool("invalid_argument"),
        ),
    ]
}

#[tokio::test]
async fn bad_frames_store_nothing_and_the_connection_lives() {
    // Promise: what is ambiguous, out of limits or not to be read is refused before anything
    // happens, with the request's ID, without repair and without an echo.
    let bench = Bench::new("bad-frames");
    let dir = bench.path("data");
    let mut client = RawClient::start(&product_server(&dir, &[])).await.expect("it starts");
    for (what, frame, refused) in bad_frames() {
        client.send(&frame).await.expect("it reads");
        let line = client.line().await.expect("it answers").expect("it lives");
        assert!(line.len() < 4096 && !line.contains('\u{fffd}'), "{what}: {line}");
        let reply: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(reply["id"], "q", "{what}: {line}");
        match refused {
            Refused::Error(code) => assert_eq!(reply["error"]["code"], code, "{what}: {line}"),
            Refused::Tool(code) => check_raw_refused(&reply, code),
        }
        let ping = client.call("get_operation_status", &json!({ "operation_id": "bad" })).await;
        let status = ping.expect("the connection lives");
        assert_eq!(status["result"]["structuredContent"]["detail"], "no_record", "{what}");
    }
    let stderr = client.process().stderr();
    assert!(!stderr.contains("panicked") && !stderr.contains("internal error"), "{stderr}");
    assert_eq!(client.close().await.expect("it ends"), Ended::Code(0));
    bench.check_rows(0, &[]);
}

#[tokio::test]
async fn member_order_and_escapes_do_not_change_a_request() {
    // Promise: a request is its JSON value: order, white space and escapes make no other one; any
    // changed value does, and shows nothing of the first.
    let bench = Bench::new("same-value");
    let dir = bench.path("data");
    let mut client = RawClient::start(&product_server(&dir, &[])).await.expect("it starts");
    let first = r#"{"operation_id":"k","title":"é","body":"s3cret"}"#;
    let same = [
        first,
        r#"{"body":"s3cret","title":"é","operation_id":"k"}"#,
        r#"{ "title" : "\u00e9", "operation_id" : "\u006b", "body" : "s3cret" }"#,
    ];
    for (number, arguments) in same.iter().enumerate() {
        client.send(tool_call(&json!(number), "create_issue", arguments)).await.expect("it reads");
        check_raw_applied(&client.reply().await.expect("it answers"), number > 0);
    }
    // The ID in `_meta` is the same ID.
    let meta = request(
        &json!(9),
        "tools/call",
        r#""name":"create_issue","arguments":{"title":"é","body":"s3cret"}"#,
    )
    .replacen(r#""_meta":{"#, r#""_meta":{"io.counterfoil/operationId":"k","#, 1);
    client.send(meta).await.expect("it reads");
    check_raw_applied(&client.reply().await.expect("it answers"), true);
    for changed in [
        r#"{"operation_id":"k","title":"é","body":"other"}"#,
        // The same letter in two characters: another text.
        r#"{"operation_id":"k","title":"e\u0301","body":"s3cret"}"#,
        r#"{"operation_id":"k","title":"é","body":"s3cret","mode":"partial"}"#,
        r#"{"operation_id":"k","title":"é","body":"s3cret","mode":"atomic"}"#,
    ] {
        client.send(tool_call(&json!(1), "create_issue", changed)).await.expect("it reads");
        let reply = client.reply().await.expect("it answers");
        check_raw_refused(&reply, "operation_conflict");
        assert!(!reply.to_string().contains("s3cret"), "{reply}");
    }
    assert_eq!(client.close().await.expect("it ends"), Ended::Code(0));
    bench.check_rows(1, &[("k", "applied")]);
}

/// Asks the lab for a state; the arguments come on top of the bench's defaults.
fn seal(options: &ChildOptions, operation_id: &str, title: &str) -> String {
    let output = std::process::Command::new(LAB)
        .args(["seal-state", "--operation-id", operation_id, "--title", title])
        .args(&options.to_arguments()[1..])
        .output()
        .expect("the lab runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
}

#[tokio::test]
async fn a_state_that_is_not_for_this_call_has_one_answer() {
    // Promise: a state of another principal, operation, request or server, an expired one and one
    // that was touched are refused in the same words, and nothing happens.
    let bench = Bench::new("bad-states");
    let options = bench.options();
    let session = Session::open(&common::launch(&options), MODERN).await.expect("it serves");
    let good = seal(&options, "k", "t");
    let bob = ChildOptions { principal: "bob".into(), ..options.clone() };
    let elsewhere = ChildOptions { data_dir: bench.path("elsewhere"), ..options.clone() };
    let expired = ChildOptions { clock_ms: options.clock_ms - 600_000, ..options.clone() };
    let flipped = |at: usize| {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).expect("ASCII")
    };
    let states = [
        ("another principal's", seal(&bob, "k", "t")),
        ("another operation's", seal(&options, "l", "t")),
        ("another request's", seal(&options, "k", "u")),
        ("under another key", seal(&elsewhere, "k", "t")),
        ("expired", seal(&expired, "k", "t")),
        ("flipped in the middle", flipped(good.len() / 2)),
        ("flipped at the end", flipped(good.len() - 2)),
        ("padded", format!("{good}=")),
        ("with a line end", format!("{good}\n")),
        ("cut", good[..good.len() / 2].to_owned()),
        ("empty", String::new()),
        ("too long", "cf1.".to_owned() + &"A".repeat(100_000)),
    ];
    let mut raw = RawClient::start(&common::launch(&options)).await.expect("it starts");
    let (arguments, answers) = (
        r#"{"operation_id":"k","title":"t"}"#,
        r#"{"body":{"action":"accept","content":{"body":"b"}}}"#,
    );
    let mut words = std::collections::BTreeSet::new();
    for (what, state) in &states {
        let state = json!(state).to_string();
        raw.send(continuation(&json!(1), arguments, answers, &state)).await.expect("it reads");
        let reply = raw.line().await.expect("it answers").expect("it lives");
        assert!(reply.contains("-32602"), "{what}: {reply}");
        words.insert(reply);
    }
    for state in ["7", "{}", "[]", "true"] {
        raw.send(continuation(&json!(1), arguments, answers, state)).await.expect("it reads");
        let reply = raw.line().await.expect("it answers").expect("it lives");
        assert!(reply.contains("-32602"), "{state}: {reply}");
    }
    assert_eq!(words.len(), 1, "{words:?}");
    assert_eq!(raw.close().await.expect("it ends"), Ended::Code(0));
    bench.check_rows(0, &[]);
    // The same call with its own state works: it was the states that were refused.
    let issue = Issue::new("k", "t", "b");
    let mut raw = RawClient::start(&common::launch(&options)).await.expect("it starts");
    raw.send(continuation(&json!(1), arguments, answers, &json!(good).to_string()))
        .await
        .expect("it reads");
    check_raw_applied(&raw.reply().await.expect("it answers"), false);
    raw.close().await.expect("it ends");
    check_state_refused(
        &session.caller().resume(&issue, Some(&states[0].1), issue.answers()).await,
    );
    close(session).await;
    bench.check_rows(1, &[("k", "applied")]);
}

#[tokio::test]
async fn an_answer_after_a_restart_completes_within_the_states_time() {
    // Promise: the question survives its server: nothing of it is kept there. Past the state's
    // time the answer is refused.
    for (seconds, completes) in [(599, true), (600, false)] {
        let bench = Bench::new(&format!("answer-after-restart-{seconds}"));
        let issue = Issue::new("k", "Export fails", "It stops at row 65,536.");
        let asking = bench.open(&bench.options(), MODERN).await;
        let state =
            asking.caller().call("create_issue", issue.arguments()).await.state().to_owned();
        close(asking).await;
        let mut options = bench.options();
        options.clock_ms += seconds * 1000;
        let session = bench.open(&options, MODERN).await;
        let reply = session.caller().resume(&issue, Some(&state), issue.answers()).await;
        if completes {
            check_applied(&reply, false);
        } else {
            check_state_refused(&reply);
        }
        close(session).await;
        bench.check_rows(u64::from(completes), if completes { &[("k", "applied")] } else { &[] });
    }
}

#[tokio::test]
async fn a_clock_behind_the_record_turns_nothing_back() {
    // Promise: the ledger's time never runs backwards: an expired record stays expired, and what
    // is written is stamped no earlier than what was there.
    let bench = Bench::new("clock-behind");
    let (old, new) = (Issue::new("old", "t", "b"), Issue::new("new", "t", "b"));
    let early = ChildOptions { retention_s: 60, ..bench.options() };
    let late = ChildOptions { clock_ms: early.clock_ms + 3_600_000, ..early.clone() };
    for (options, issue) in [(&early, &old), (&late, &new)] {
        let session = bench.open(options, MODERN).await;
        let made = session.caller().create_issue(issue).await;
        assert_eq!(made.content()["replayed"], false);
        close(session).await;
    }
    let session = bench.open(&early, MODERN).await;
    let caller = session.caller();
    let reply = caller.call("create_issue", old.arguments()).await;
    check_refused(&reply, "operation_retention_expired", "status_only");
    let newest = caller.create_issue(&Issue::new("newest", "t", "b")).await;
    check_settled(&newest, "applied", 3, "created 3", false);
    let status = caller.status("newest").await;
    assert_eq!(status.content()["observedAt"], "2027-01-15T09:00:00.000Z");
    close(session).await;
    let rows = bench.rows();
    let at: Vec<i64> =
        rows.rows("issues").iter().filter_map(|row| row["created_at_ms"].as_i64()).collect();
    assert_eq!(at, [early.clock_ms, late.clock_ms, late.clock_ms]);
}
