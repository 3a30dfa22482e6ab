//! What a guard sees of the relay: its calls, their way to the server, and what became of answers.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::wrap::{
    Alone, Answer, Body, CallFrame, CallPort, CallToken, DEFAULT_MAX_LINE_BYTES, Guard, Link, Lost,
    PageInfo, StopTimes, Upstream, UpstreamEvent, UpstreamReply, UpstreamState, WrapError,
    WrapOptions, alone, relay,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::scripted;
use crate::world::{PATIENCE, call};

/// Takes every call, and answers with what it saw.
#[derive(Default)]
struct Witness {
    upstream: Mutex<Option<Upstream>>,
    told: Mutex<HashMap<CallToken, bool>>,
    events: Mutex<Vec<UpstreamEvent>>,
}

impl Guard for Witness {
    fn attach(&self, upstream: Upstream) {
        *self.upstream.lock().expect("whole") = Some(upstream);
    }

    fn takes(&self, call: &CallFrame) -> bool {
        call.tool() != "received"
    }

    fn call(self: Arc<Self>, call: CallFrame, port: CallPort) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            if call.tool() == "panic" {
                panic!("as the test wants");
            }
            if call.tool() == "until-cancelled" {
                port.cancelled().cancelled().await;
            }
            let seen = match port.send(&call.params()).await {
                Ok(UpstreamReply::Whole(reply)) => match reply.body_without_ours() {
                    Body::Result(result) => format!("result {}", String::from_utf8_lossy(&result)),
                    Body::Error(error) => format!("error {}", String::from_utf8_lossy(&error)),
                },
                Ok(UpstreamReply::TooLarge { is_complete, is_error, .. }) => {
                    format!("too large, result {is_complete}, error {is_error}")
                }
                Err(Lost::NotSent(_)) => "not sent".to_owned(),
                Err(Lost::Unknown(_)) => "unknown".to_owned(),
            };
            Answer { body: Body::Result(json!({ "seen": seen }).to_string().into()) }
        })
    }

    fn told(&self, call: CallToken, written: bool) {
        self.told.lock().expect("whole").insert(call, written);
    }

    fn rewrite_tools(&self, result: &[u8], page: &PageInfo) -> Option<Vec<u8>> {
        assert_eq!((page.is_first, page.is_last), (true, true));
        Some([b"{\"was\":", result, b"}"].concat())
    }

    fn hears(&self, event: UpstreamEvent) {
        self.events.lock().expect("whole").push(event);
    }
}

fn options(role: &str) -> WrapOptions {
    WrapOptions {
        name: "srv".to_owned(),
        command: scripted::command(role).into_iter().map(Into::into).collect(),
        program: PathBuf::from(env!("CARGO_BIN_EXE_counterfoil")),
        max_line_bytes: DEFAULT_MAX_LINE_BYTES,
        stop_times: StopTimes::default(),
    }
}

struct Session {
    guard: Arc<Witness>,
    input: DuplexStream,
    output: Lines<BufReader<DuplexStream>>,
    stop: CancellationToken,
    relay: JoinHandle<Result<(), WrapError>>,
}

impl Session {
    async fn start(role: &str) -> Self {
        let guard = Arc::new(Witness::default());
        let (input, theirs_in) = tokio::io::duplex(1 << 20);
        let (theirs_out, output) = tokio::io::duplex(1 << 20);
        let stop = CancellationToken::new();
        let link = Link::over(theirs_in, theirs_out, DEFAULT_MAX_LINE_BYTES);
        let relay = tokio::spawn(relay(link, options(role), Arc::clone(&guard) as _, stop.clone()));
        let output = BufReader::new(output).lines();
        let mut session = Self { guard, input, output, stop, relay };
        let upstream = session.upstream();
        assert_eq!(upstream.state(), UpstreamState::NotReady);
        let ask = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
        session.ask(ask).await;
        session.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        upstream.wait_ready(Instant::now() + PATIENCE).await.expect("ready");
        session
    }

    fn upstream(&self) -> Upstream {
        loop {
            if let Some(upstream) = self.guard.upstream.lock().expect("whole").clone() {
                return upstream;
            }
            std::thread::yield_now();
        }
    }

    async fn send(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.expect("written");
    }

    async fn message(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await;
        let line = line.expect("in time").expect("read").expect("a line");
        serde_json::from_str(&line).expect("JSON")
    }

    async fn ask(&mut self, line: &str) -> Value {
        self.send(line).await;
        self.message().await
    }

    /// What the guard saw of one call.
    async fn seen(&mut self, tool: &str, arguments: &str) -> String {
        let reply = self.ask(&call("\"c\"", tool, arguments)).await;
        reply["result"]["seen"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
    }

    async fn told(&self, count: usize) -> Vec<bool> {
        let begun = Instant::now();
        loop {
            let told = self.guard.told.lock().expect("whole").clone();
            if told.len() >= count {
                let mut told: Vec<_> = told.into_iter().collect();
                told.sort();
                return told.into_iter().map(|(_, written)| written).collect();
            }
            assert!(begun.elapsed() < PATIENCE, "told of {} calls", told.len());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self) -> Result<(), WrapError> {
        drop(self.input);
        self.relay.await.expect("no panic")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_runs_its_calls_and_hears_what_became_of_them() {
    // Promise: a call's outcome is told apart as answered, too large, unknown or not sent, and the
    // guard knows whether its answer was written.
    let mut session = Session::start("").await;
    let raw = |text: &str| json!({ "text": format!("{text}\n") }).to_string();
    let cases = [
        (
            raw(r#"{"jsonrpc":"2.0","id":ID,"result":{"n":1E2,"_meta":{"io.counterfoil/x":1}}}"#),
            r#"result {"n":1E2,"_meta":{}}"#,
        ),
        (
            raw(r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-1,"message":"m"}}"#),
            r#"error {"code":-1,"message":"m"}"#,
        ),
        (raw(r#"{"jsonrpc":"2.0","id":ID,"result":{"n":NaN}}"#), "unknown"),
    ];
    for (arguments, expected) in &cases {
        assert_eq!(session.seen("raw", arguments).await, *expected, "{arguments}");
    }
    let huge = |error| format!("{{\"bytes\":{},\"isError\":{error}}}", 17 << 20);
    assert_eq!(session.seen("big", &huge(false)).await, "too large, result true, error false");
    assert_eq!(session.seen("big", &huge(true)).await, "too large, result true, error true");
    assert_eq!(session.seen("exit", "{}").await, "unknown");
    let upstream = session.upstream();
    let ready = upstream.wait_ready(Instant::now() + PATIENCE).await.expect("a successor");
    assert_eq!(ready.0, 2);
    let reply = session.ask(&call("\"p\"", "panic", "{}")).await;
    assert!(reply["error"]["message"].as_str().expect("text").contains("unknown"), "{reply}");
    assert_eq!(session.told(7).await, [true; 7]);
    let page = session.ask(r#"{"jsonrpc":"2.0","id":"t","method":"tools/list"}"#).await;
    assert!(page["result"]["was"]["received"].is_string(), "{page}");
    let events = session.guard.events.lock().expect("whole").clone();
    let generations = [1, 1, 2].map(counterfoil::wrap::Generation);
    let [first, down, second] = generations;
    let expected =
        [UpstreamEvent::Ready(first), UpstreamEvent::Down(down), UpstreamEvent::Ready(second)];
    assert_eq!(events, expected);
    session.end().await.expect("a good end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_outlives_its_cancellation_and_progress_reaches_its_client() {
    // Promise: a cancelled call runs to its end, is not answered, and is told to be unwritten.
    let mut session = Session::start("").await;
    session.send(&call("1", "until-cancelled", "{}")).await;
    session
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    // The scripted server has no such tool and ends: the outcome is not what is tested here.
    assert_eq!(session.told(1).await, [false]);
    session.upstream().wait_ready(Instant::now() + PATIENCE).await.expect("a successor");
    let line = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":"t"}}}"#;
    let progress = session.ask(line).await;
    assert_eq!(progress["params"]["progressToken"], "t");
    assert_eq!(session.message().await["result"]["seen"], "result {}");
    session.end().await.expect("a good end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_settle_before_the_server_is_ended() {
    // Promise: what is guarded is waited for when the client leaves; nothing is sent to a server
    // that has ended.
    let mut session = Session::start("").await;
    session.send(&call("1", "slow", r#"{"ms":300}"#)).await;
    let upstream = session.upstream();
    let asked = upstream.ask("x/question", br#"{"n":1}"#).await.expect("answered");
    let UpstreamReply::Whole(reply) = asked else { panic!("small") };
    let Body::Result(result) = reply.body() else { panic!("a result") };
    assert!(String::from_utf8_lossy(&result).contains("x/question"));
    let Session { guard, input, mut output, relay, .. } = session;
    drop(input);
    let line = output.next_line().await.expect("read").expect("the answer comes yet");
    assert!(line.contains("\"seen\":\"result {}\""), "{line}");
    relay.await.expect("no panic").expect("a good end");
    assert_eq!(guard.told.lock().expect("whole").values().collect::<Vec<_>>(), [&true]);
    let lost = upstream.ask("x", b"{}").await;
    assert!(matches!(lost, Err(Lost::NotSent(_))), "{lost:?}");
    assert_eq!(upstream.wait_ready(Instant::now() + PATIENCE).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_after_the_client_has_left_is_answered_with_an_error() {
    // Promise: a server that asks when nobody is there any more can finish its call.
    let mut session = Session::start("").await;
    session.send(&call("1", "slow", r#"{"ms":500}"#)).await;
    session.send(&call("2", "ask", "{}")).await;
    let Session { input, mut output, relay, .. } = session;
    drop(input);
    let mut lines = Vec::new();
    while let Some(line) = output.next_line().await.expect("read") {
        lines.push(line);
    }
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("the client has left"), "{lines:?}");
    relay.await.expect("no panic").expect("a good end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_the_relay_while_the_client_stays() {
    // Promise: the shutdown signal is enough.
    let session = Session::start("stays").await;
    session.stop.cancel();
    session.relay.await.expect("no panic").expect("a good end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_without_a_client_asks_in_either_era() {
    // Promise: what must be looked up can be, when no client is there; after a death too.
    for role in ["", "modern-unknown"] {
        let stop = CancellationToken::new();
        let Alone { upstream, ended } = alone(options(role), stop.clone());
        for generation in 1..3 {
            let ready = upstream.wait_ready(Instant::now() + PATIENCE).await.expect("ready");
            assert_eq!(ready.0, generation);
            let params = br#"{"name":"received","arguments":{}}"#;
            let asked = upstream.ask("tools/call", params).await.expect("answered");
            let UpstreamReply::Whole(reply) = asked else { panic!("small") };
            let line = String::from_utf8_lossy(reply.frame().line()).into_owned();
            assert_eq!(line.contains("2026-07-28"), role.is_empty(), "{line}");
            let lost = upstream.ask("tools/call", br#"{"name":"exit","arguments":{}}"#).await;
            assert!(matches!(lost, Err(Lost::Unknown(_))), "{lost:?}");
            while upstream.state() == UpstreamState::Ready(ready) {
                tokio::task::yield_now().await;
            }
        }
        stop.cancel();
        ended.await.expect("no panic").expect("a good end");
    }
}
