//! The tool calls of a cell, each with what came back, read from its servers' transcripts.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::ServerRun;
use crate::transcript::{self, Frame, Side};

/// One tool call.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// Which of the cell's servers it went to.
    pub server: usize,
    /// Who called.
    pub principal: String,
    /// Where the server's clock stood, in milliseconds since the Unix epoch.
    pub clock_ms: i64,
    /// The tool.
    pub tool: String,
    /// `params`, but for `_meta`.
    pub params: Value,
    /// What came back.
    pub said: Said,
}

/// What came back from a tool call.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// Nothing.
    Lost,
    /// A question, with its state's marker.
    Asked(String),
    /// A settled effect.
    Settled(Settled),
    /// A refusal's code.
    Refused(String),
    /// The one error for a state that cannot be used.
    StateRefused,
    /// An observation.
    Observed(Value),
    /// Anything else.
    Other(Value),
}

/// A settled effect, as a reply tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// `applied` or `partial`.
    pub state: String,
    /// The row.
    pub effect_id: i64,
    /// The stored result.
    pub result: String,
    /// Whether it was made before.
    pub replayed: bool,
}

impl Exchange {
    /// The operation that it names.
    #[must_use]
    pub fn operation_id(&self) -> &str {
        self.params["arguments"]["operation_id"].as_str().unwrap_or_default()
    }

    /// The marker of the state that it brings.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.params["requestState"].as_str()
    }

    /// The answers that it brings; `null` if none.
    #[must_use]
    pub fn answers(&self) -> &Value {
        &self.params["inputResponses"]
    }

    /// Whether it is a call of `create_issue` that brings answers.
    #[must_use]
    pub fn continues(&self) -> bool {
        self.tool == "create_issue" && self.answers().is_object()
    }
}

/// The tool calls of all servers, in the order of the servers.
///
/// # Errors
/// If a transcript is missing or is none.
pub fn read(transcripts: &Path, runs: &[ServerRun]) -> anyhow::Result<Vec<Exchange>> {
    let mut all = Vec::new();
    for run in runs {
        ensure!(is_plain(&run.transcript), "'{}' is no name of a transcript", run.transcript);
        let frames = transcript::read(&transcripts.join(&run.transcript))?;
        all.extend(of_server(run, &frames)?);
    }
    Ok(all)
}

/// A name that stays in its directory.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}

fn of_server(run: &ServerRun, frames: &[Frame]) -> anyhow::Result<Vec<Exchange>> {
    let mut calls = Vec::new();
    for frame in frames.iter().filter(|frame| frame.from == Side::Client) {
        let message = frame.json();
        if message["method"] == "tools/call" {
            let reply = reply_to(&message["id"], frames)?;
            calls.push(exchange(run, &message["params"], reply.as_ref())?);
        }
    }
    Ok(calls)
}

fn reply_to(id: &Value, frames: &[Frame]) -> anyhow::Result<Option<Value>> {
    let replies = frames.iter().filter(|frame| frame.from == Side::Server && frame.whole);
    let replies = replies.map(Frame::json).filter(|message| {
        message["id"] == *id && (message.get("result").is_some() || message.get("error").is_some())
    });
    let mut replies: Vec<Value> = replies.collect();
    ensure!(replies.len() <= 1, "there are {} replies to request {id}", replies.len());
    Ok(replies.pop())
}

fn exchange(run: &ServerRun, params: &Value, reply: Option<&Value>) -> anyhow::Result<Exchange> {
    let mut params = params.clone();
    params.as_object_mut().context("a tool call has no params")?.remove("_meta");
    let tool = params["name"].as_str().unwrap_or_default().to_owned();
    Ok(Exchange {
        server: run.number,
        principal: run.principal.clone(),
        clock_ms: run.clock_ms,
        said: reply.map_or(Said::Lost, |reply| sort(&tool, reply)),
        tool,
        params,
    })
}

fn sort(tool: &str, reply: &Value) -> Said {
    let (result, error) = (&reply["result"], &reply["error"]);
    if error["code"] == -32602 && error["data"]["retry"] == "status_only" {
        return Said::StateRefused;
    }
    if let (Some("input_required"), Some(state)) =
        (result["resultType"].as_str(), result["requestState"].as_str())
    {
        return Said::Asked(state.to_owned());
    }
    let content = &result["structuredContent"];
    if let Some(code) = content["error"]["code"].as_str() {
        return Said::Refused(code.to_owned());
    }
    if tool == "get_operation_status" && content["state"].is_string() {
        return Said::Observed(content.clone());
    }
    settled(content).map_or_else(|| Said::Other(reply.clone()), Said::Settled)
}

fn settled(content: &Value) -> Option<Settled> {
    Some(Settled {
        state: content["state"].as_str()?.to_owned(),
        effect_id: content["effectId"].as_i64()?,
        result: content["result"].as_str()?.to_owned(),
        replayed: content["replayed"].as_bool()?,
    })
}
