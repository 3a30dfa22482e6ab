//! A client of a wrapped server that writes its own bytes: calls side by side, each answered or
//! lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::oneshot;

use crate::process::Pipes;
use crate::within::within;

/// What a reply says that its caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum May {
    /// Nothing: it is settled.
    Rest,
    /// Send the same call again.
    SendAgain,
    /// Ask for the status.
    Ask,
}

/// What a caller knows after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// A reply.
    Reply {
        /// The state that it tells.
        state: String,
        /// What may be done.
        may: May,
        /// Whether the reply is a kept one.
        replayed: bool,
    },
    /// No reply: the gateway died.
    Lost,
}

type Waiting = HashMap<u64, oneshot::Sender<Value>>;

/// A connection to a gateway. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Gateway {
    input: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    /// Who waits for a reply; `None` once none comes any more.
    waiting: Arc<Mutex<Option<Waiting>>>,
    next: Arc<AtomicU64>,
}

impl Gateway {
    /// Shakes hands.
    ///
    /// # Errors
    /// If the gateway dies before.
    pub async fn open(pipes: Pipes) -> anyhow::Result<Self> {
        let waiting = Arc::new(Mutex::new(Some(Waiting::new())));
        tokio::spawn(hand_out(pipes.output, Arc::clone(&waiting)));
        let input = Arc::new(tokio::sync::Mutex::new(Some(pipes.input)));
        let gateway = Self { input, waiting, next: Arc::default() };
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": { "name": "counterfoil-lab", "version": "1" },
        });
        let asked = within("the server shakes hands", gateway.ask("initialize", &hello)).await?;
        let said = asked.context("the gateway died in the handshake")?;
        ensure!(said["result"].is_object(), "no handshake: {said}");
        gateway.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        Ok(gateway)
    }

    /// Calls a tool for an operation.
    pub async fn call(&self, tool: &str, mut arguments: Value, id: &str) -> Told {
        arguments["operation_id"] = id.into();
        let said = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments })).await;
        let Some(said) = said else { return Told::Lost };
        // A kept JSON-RPC error is an answer too; it has no room for more.
        if said["error"].is_object() {
            return Told::Reply { state: "error".into(), may: May::Ask, replayed: false };
        }
        read(&said["result"]["_meta"]["io.counterfoil/operation"])
    }

    /// Asks how an operation stands.
    pub async fn status(&self, id: &str) -> Told {
        let arguments = json!({ "operation_id": id });
        let params = json!({ "name": "get_operation_status", "arguments": arguments });
        let Some(said) = self.ask("tools/call", &params).await else { return Told::Lost };
        let seen = &said["result"]["structuredContent"];
        let state = seen["state"].as_str().unwrap_or("unknown").to_owned();
        let may = match (state.as_str(), seen["detail"].as_str()) {
            // It was never heard of, or it was not sent yet: the same call is safe.
            ("unknown", Some("no_record")) => May::SendAgain,
            ("unknown", Some("answered_with_error")) => May::Rest,
            ("unknown", _) => May::Ask,
            _ => May::Rest,
        };
        Told::Reply { state, may, replayed: false }
    }

    /// Lets the gateway end.
    pub async fn close(&self) {
        self.input.lock().await.take();
    }

    async fn ask(&self, method: &str, params: &Value) -> Option<Value> {
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        let (told, answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.insert(id, told);
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        if !self.send(&request).await {
            return None;
        }
        answer.await.ok()
    }

    async fn send(&self, message: &Value) -> bool {
        let mut input = self.input.lock().await;
        let Some(input) = input.as_mut() else { return false };
        let line = format!("{message}\n");
        input.write_all(line.as_bytes()).await.is_ok() && input.flush().await.is_ok()
    }
}

fn read(said: &Value) -> Told {
    let may = match said["retry"].as_str() {
        Some("none" | "new_operation") => May::Rest,
        Some("same_operation") => May::SendAgain,
        _ => May::Ask,
    };
    let state = said["state"].as_str().unwrap_or("unknown").to_owned();
    Told::Reply { state, may, replayed: said["replayed"] == true }
}

async fn hand_out(output: ChildStdout, waiting: Arc<Mutex<Option<Waiting>>>) {
    let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // A line that a kill cut short is no reply.
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let Some(id) = message["id"].as_u64().filter(|_| message["method"].is_null()) else {
            continue;
        };
        let told = lock().as_mut().and_then(|waiting| waiting.remove(&id));
        if let Some(told) = told {
            // A caller that left wants no reply.
            let _ = told.send(message);
        }
    }
    // Whoever still waits learns that nothing comes.
    lock().take();
}
