//! Cancellations that meet their replies. The server runs in this process, so that a race can be
//! injected at one place: the effect is committed, and its reply has not left.

mod common;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use common::{Bench, check_raw_applied, note};
use counterfoil::serve;
use counterfoil::wire::WireLimits;
use counterfoil_lab::child::ChildOptions;
use counterfoil_lab::random::Random;
use counterfoil_lab::raw::{cancel, tool_call};
use counterfoil_lab::within::within;
use counterfoil_store::cut::{self, Cut};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const RACES: u64 = 1000;

/// When the cancellation comes, once the effect is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comes {
    /// Read by the server before the reply is let go.
    Before,
    /// At the same time.
    Beside,
    /// When the client has the reply.
    After,
}

/// A server in this process that waits between each commit and its reply.
struct Held {
    input: DuplexStream,
    replies: mpsc::UnboundedReceiver<Value>,
    committed: mpsc::UnboundedReceiver<()>,
    go: SyncSender<()>,
    counts: BTreeMap<String, usize>,
}

impl Comes {
    /// Half of the races are open.
    fn of(number: u64) -> Self {
        match number % 4 {
            0 => Self::Before,
            1 => Self::After,
            _ => Self::Beside,
        }
    }
}

impl Held {
    async fn serve(options: &ChildOptions) -> Self {
        let (says, committed) = mpsc::unbounded_channel();
        let (go, may_go) = sync_channel(1);
        let may_go: Mutex<Receiver<()>> = Mutex::new(may_go);
        cut::arm(Cut {
            at: "store.after_commit".into(),
            after: 0,
            action: Box::new(move |_| {
                says.send(()).expect("the test waits for it");
                let may_go = may_go.lock().unwrap_or_else(PoisonError::into_inner);
                may_go.recv().expect("the test lets it go");
            }),
        });
        let engine = Arc::new(options.engine().await.expect("an engine"));
        let (input, server_input) = duplex(1 << 16);
        let (output, server_output) = duplex(1 << 16);
        let streams = (server_input, server_output);
        let caller = options.caller().expect("a caller");
        let limits = WireLimits::default();
        let shutdown = CancellationToken::new();
        tokio::spawn(serve::stdio(engine, caller, streams, limits, shutdown));
        let (says, replies) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Some(line) = lines.next_line().await.expect("UTF-8") {
                says.send(serde_json::from_str(&line).expect("JSON")).expect("the test reads");
            }
        });
        Self { input, replies, committed, go, counts: BTreeMap::new() }
    }

    async fn send(&mut self, frame: String) {
        let line = format!("{frame}\n");
        let written = self.input.write_all(line.as_bytes());
        within("the server reads", written).await.expect("in time").expect("it reads");
    }

    /// Reads replies, and counts them, until the one with this ID.
    async fn until(&mut self, id: &str) -> Value {
        loop {
            let reply = within("a reply", self.replies.recv()).await.expect("in time");
            let reply = reply.expect("the server lives");
            let found = reply["id"].as_str().expect("an ID of ours").to_owned();
            *self.counts.entry(found.clone()).or_default() += 1;
            if found == id {
                return reply;
            }
        }
    }

    /// Asks something else and waits for the answer: all that was sent before has been read.
    async fn all_is_read(&mut self, number: u64) -> Value {
        let id = format!("status-{number}");
        let question = json!({ "operation_id": format!("k{number}") }).to_string();
        self.send(tool_call(&json!(id), "get_operation_status", &question)).await;
        self.until(&id).await
    }

    async fn race(&mut self, number: u64, comes: Comes, yields: u64) {
        let id = format!("call-{number}");
        let operation = format!("k{number}");
        let arguments = json!({ "operation_id": operation, "title": "t", "body": "b" });
        self.send(tool_call(&json!(id), "create_issue", &arguments.to_string())).await;
        within("a commit", self.committed.recv()).await.expect("in time").expect("it lives");
        let takes_back = cancel(&json!(id));
        match comes {
            Comes::Before => {
                self.send(takes_back).await;
                self.all_is_read(number).await;
                self.go.send(()).expect("it waits");
            }
            Comes::Beside => {
                self.go.send(()).expect("it waits");
                for _ in 0..yields {
                    tokio::task::yield_now().await;
                }
                self.send(takes_back).await;
            }
            Comes::After => {
                self.go.send(()).expect("it waits");
                check_raw_applied(&self.until(&id).await, false);
                self.send(takes_back).await;
            }
        }
        // Whatever came of it: asked now, the operation is settled.
        let status = self.all_is_read(number).await;
        assert_eq!(status["result"]["structuredContent"]["state"], "applied", "{comes:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_takes_back_at_most_the_reply() {
    // Promise: a cancellation after the commit hides no effect and takes nothing back but the
    // reply; a request gets at most one; the ledger says applied every time.
    let bench = Bench::new("cancel-races");
    let mut server = Held::serve(&ChildOptions::new(&bench.path("data"))).await;
    let mut random = Random::new(18);
    for number in 0..RACES {
        server.race(number, Comes::of(number), random.below(40)).await;
    }
    let mut beside = [0, 0];
    for number in 0..RACES {
        let reply_count = server.counts.get(&format!("call-{number}")).copied().unwrap_or(0);
        match Comes::of(number) {
            Comes::Before => assert_eq!(reply_count, 0, "race {number}"),
            Comes::After => assert_eq!(reply_count, 1, "race {number}"),
            Comes::Beside => beside[reply_count] += 1,
        }
    }
    let [silent, answered] = beside;
    note(&format!("of the open races {silent} got no reply, {answered} got one"));
    let rows = bench.rows();
    assert_eq!((rows.count("issues"), rows.count("operations")), (RACES, RACES));
    assert!(rows.states().values().all(|state| state == "applied"));
}
