//! A client that writes bytes and reads lines: for input that no SDK would send, and for seeing
//! every frame that comes back.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};

use crate::process::{Ended, Launch, Process};
use crate::within::within;

/// The newest revision: each request carries it, and there is no handshake.
const VERSION: &str = "2026-07-28";

/// A connection of bytes.
#[derive(Debug)]
pub struct RawClient {
    process: Process,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    last_id: u64,
}

impl RawClient {
    /// Starts the server. Nothing is sent.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start(launch: &Launch) -> anyhow::Result<Self> {
        let (process, pipes) = launch.start().await?;
        let output = Some(BufReader::with_capacity(1 << 16, pipes.output));
        Ok(Self { process, input: Some(pipes.input), output, last_id: 0 })
    }

    /// The server.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Sends one frame; the line end is added.
    ///
    /// # Errors
    /// If the server no longer reads.
    pub async fn send(&mut self, frame: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("the input is closed")?;
        let write = async {
            input.write_all(frame.as_ref()).await?;
            input.write_all(b"\n").await?;
            input.flush().await
        };
        within("the server reads", write).await?.context("the server no longer reads")
    }

    /// The next frame, `None` at the end of output.
    ///
    /// # Errors
    /// If the frame is not UTF-8 or does not end.
    pub async fn line(&mut self) -> anyhow::Result<Option<String>> {
        let output = self.output.as_mut().context("the output is closed")?;
        let mut line = String::new();
        within("the server writes", output.read_line(&mut line)).await??;
        if line.is_empty() {
            return Ok(None);
        }
        ensure!(line.ends_with('\n'), "a frame without its line end: {line:?}");
        line.pop();
        Ok(Some(line))
    }

    /// The next frame as JSON.
    ///
    /// # Errors
    /// If there is none.
    pub async fn reply(&mut self) -> anyhow::Result<Value> {
        let line = self.line().await?;
        let line = line.with_context(|| format!("no reply; stderr: {}", self.process.stderr()))?;
        serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))
    }

    /// Calls a tool and waits for the frame that answers it; what comes between is dropped.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn call(&mut self, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
        self.last_id += 1;
        let id = json!(format!("raw-{}", self.last_id));
        self.send(tool_call(&id, tool, &arguments.to_string())).await?;
        loop {
            let reply = self.reply().await?;
            if reply["id"] == id {
                return Ok(reply);
            }
        }
    }

    /// Everything that the server still writes. Ends with its output.
    ///
    /// # Errors
    /// If the output does not end.
    pub async fn rest(&mut self) -> anyhow::Result<String> {
        let mut output = self.output.take().context("the output is closed")?;
        let mut text = String::new();
        within("the output ends", output.read_to_string(&mut text)).await??;
        Ok(text)
    }

    /// Closes the server's standard input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Stops reading, as a client does that dies.
    pub fn close_output(&mut self) {
        self.output = None;
    }

    /// Closes both pipes and waits for the server.
    ///
    /// # Errors
    /// If it does not end.
    pub async fn close(mut self) -> anyhow::Result<Ended> {
        self.close_input();
        if self.output.is_some() {
            self.rest().await?;
        }
        self.process.ended().await
    }
}

/// A request of the newest revision; `rest` holds further members of `params` as raw JSON.
#[must_use]
pub fn request(id: &Value, method: &str, rest: &str) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "counterfoil-lab", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
    });
    let comma = if rest.is_empty() { "" } else { "," };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{meta}{comma}{rest}}}}}"#
    )
}

/// A tool call; `arguments` is raw JSON.
#[must_use]
pub fn tool_call(id: &Value, tool: &str, arguments: &str) -> String {
    request(id, "tools/call", &format!(r#""name":"{tool}","arguments":{arguments}"#))
}

/// A continuation of `create_issue`; arguments, answers and state are raw JSON.
#[must_use]
pub fn continuation(id: &Value, arguments: &str, answers: &str, state: &str) -> String {
    let rest = format!(
        r#""name":"create_issue","arguments":{arguments},"inputResponses":{answers},"requestState":{state}"#
    );
    request(id, "tools/call", &rest)
}

/// The notification that a request is taken back.
#[must_use]
pub fn cancel(id: &Value) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"the lab takes it back"}}}}"#
    )
}
