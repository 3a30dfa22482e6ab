//! A scripted MCP server over an in-memory pipe. It counts what arrives, does what the script
//! says, and checks at each write that the identity was on disk before it.

#![allow(dead_code, reason = "each test program uses its part of this")]

pub(crate) mod script;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use counterfoil_client::{Answers, ConnectError, Connection, Connector, Journal, Watcher};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use tokio::sync::watch;

/// What the server does with one request.
#[derive(Debug, Clone)]
pub(crate) enum Do {
    Reply(Value),
    Error(i32, &'static str, Value),
    /// Closes the connection without a reply.
    Die,
    /// Never replies.
    Hang,
    /// Makes the watcher stop, and never replies.
    Stop,
    /// Writes a line that is no reply, and then closes the connection.
    Garble,
    /// Asks by classic elicitation; then replies, errors or dies.
    Elicit(Box<Do>),
}

/// The server's script and what it has seen.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) modern: bool,
    pub(crate) schema: Value,
    pub(crate) legs: VecDeque<Do>,
    pub(crate) statuses: VecDeque<Do>,
    /// How the sessions begin; once this is used up, well.
    pub(crate) sessions: VecDeque<Do>,
    pub(crate) journal: PathBuf,
    pub(crate) writes: Vec<Value>,
    pub(crate) asks: Vec<Value>,
    pub(crate) elicitation_announced: Vec<bool>,
    pub(crate) elicited: Vec<Value>,
    pub(crate) unsaved_writes_count: usize,
    pub(crate) writes_after_ask_count: usize,
    pub(crate) stop: watch::Sender<bool>,
}

/// Stops when the server says so, and notes the further tries.
#[derive(Debug)]
pub(crate) struct Onlooker {
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) tries: Mutex<Vec<(u32, u32)>>,
}

impl Watcher for Onlooker {
    async fn stopped(&self) {
        let mut stop = self.stop.clone();
        stop.wait_for(|stop| *stop).await.expect("the world outlives the call");
    }

    fn asks_again(&self, number: u32, most: u32) {
        self.tries.lock().expect("not poisoned").push((number, most));
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Fake(pub(crate) Arc<Mutex<World>>);

impl Connector for Fake {
    async fn connect(&self, answers: &Answers) -> Result<Connection, ConnectError> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (read, write) = tokio::io::split(theirs);
        let session = Session { world: self.0.clone(), lines: BufReader::new(read).lines(), write };
        tokio::spawn(session.run());
        Connection::open(tokio::io::split(ours), answers).await
    }

    fn name(&self) -> &str {
        "fake"
    }
}

struct Session {
    world: Arc<Mutex<World>>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
}

impl Session {
    async fn run(mut self) {
        while let Ok(Some(line)) = self.lines.next_line().await {
            let message: Value = serde_json::from_str(&line).expect("the client writes JSON");
            if message.get("id").is_none() || message.get("method").is_none() {
                continue;
            }
            let what = self.decide(&message);
            if !Box::pin(self.perform(&message["id"], what)).await {
                return;
            }
        }
    }

    fn decide(&self, message: &Value) -> Do {
        let mut world = self.world.lock().expect("no test panics while it holds the lock");
        let params = &message["params"];
        match message["method"].as_str().expect("a method") {
            "server/discover" if world.modern => {
                let capabilities = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
                world.elicitation_announced.push(capabilities.get("elicitation").is_some());
                let discovered = json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"});
                world.sessions.pop_front().unwrap_or(Do::Reply(discovered))
            }
            "initialize" => {
                world
                    .elicitation_announced
                    .push(params["capabilities"].get("elicitation").is_some());
                Do::Reply(json!({
                    "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "fake", "version": "1"}}))
            }
            "tools/list" => Do::Reply(json!({
                "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                "tools": [{"name": "create_issue", "inputSchema": world.schema}]})),
            "tools/call" if params["name"] == "get_operation_status" => {
                world.asks.push(params.clone());
                world.statuses.pop_front().unwrap_or(Do::Die)
            }
            "tools/call" => {
                world.note_write(params);
                world.legs.pop_front().unwrap_or(Do::Die)
            }
            _ => Do::Error(-32601, "unknown method", Value::Null),
        }
    }

    /// Says whether the session goes on.
    async fn perform(&mut self, id: &Value, what: Do) -> bool {
        match what {
            Do::Reply(result) => {
                self.line(json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
                true
            }
            Do::Error(code, message, data) => {
                let error = json!({"code": code, "message": message, "data": data});
                self.line(json!({"jsonrpc": "2.0", "id": id, "error": error})).await;
                true
            }
            Do::Hang => true,
            Do::Stop => {
                self.world.lock().expect("not poisoned").stop.send_replace(true);
                true
            }
            Do::Die => false,
            Do::Garble => {
                let _ = self.write.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":\n").await;
                false
            }
            Do::Elicit(then) => {
                let schema = json!({"type": "object", "required": ["body"],
                                    "properties": {"body": {"type": "string"}}});
                self.line(json!({"jsonrpc": "2.0", "id": 900, "method": "elicitation/create",
                    "params": {"message": "body?", "requestedSchema": schema}}))
                    .await;
                while let Ok(Some(line)) = self.lines.next_line().await {
                    let answer: Value = serde_json::from_str(&line).expect("JSON");
                    if answer["id"] == 900 {
                        let mut world = self.world.lock().expect("not poisoned");
                        world.elicited.push(answer["result"].clone());
                        break;
                    }
                }
                Box::pin(self.perform(id, *then)).await
            }
        }
    }

    async fn line(&mut self, message: Value) {
        // The client may have gone; then nobody reads it.
        let _ = self.write.write_all(format!("{message}\n").as_bytes()).await;
    }
}

impl World {
    fn note_write(&mut self, params: &Value) {
        let argument = params["arguments"]["operation_id"].as_str();
        let meta = params["_meta"]["io.counterfoil/operationId"].as_str();
        let saved = Journal::read(&self.journal).expect("the journal is there");
        let is_saved = saved.iter().any(|saved| {
            let id = saved.entry.operation_id.as_ref().map(|id| id.as_str());
            id.is_some() && (id == argument || id == meta)
        });
        // A call without an ID is saved as such; from its second leg on by the server's ID.
        let minted = saved.iter().filter(|saved| saved.entry.operation_id.is_some()).count();
        let without_id = argument.is_none() && meta.is_none();
        let enough = if without_id { self.writes.is_empty() || minted > 0 } else { is_saved };
        self.unsaved_writes_count += usize::from(!enough || saved.is_empty());
        self.writes_after_ask_count += usize::from(!self.asks.is_empty());
        self.writes.push(params.clone());
    }
}
