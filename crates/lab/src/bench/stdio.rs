//! MCP round trips over stdio. The client is as cheap as one can be, so that what is measured is the
//! server.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::figures::{Report, Round};
use super::mcp::{self, Issue, McpServer, Told, applied, message};
use super::plan::Plan;
use super::work::Pool;
use crate::child::ChildOptions;
use crate::process::{Ended, Launch, Pipes, Process};
use crate::within::within;

const TOLD: Told = Told {
    name: "mcp_stdio",
    wire: "stdio",
    // The time of a guarded call with the ledger in memory, in unguarded calls.
    in_memory: 1.15,
    // Of what is left when the cost of protocol and of commit are added.
    of_sum_at_16: Some(0.60),
};

/// Measures one call after the other, and 16 in flight.
///
/// # Errors
/// If a server fails or refuses.
pub async fn run(plan: &Plan, directory: &Path) -> anyhow::Result<Report> {
    mcp::run::<Server>(plan, directory, &TOLD).await
}

/// A server and the client's ends of its pipes.
#[derive(Debug)]
pub(super) struct Server {
    process: Process,
    pipes: Pipes,
    last_id: u64,
}

impl McpServer for Server {
    async fn start(options: &ChildOptions) -> anyhow::Result<Self> {
        let lab = std::env::current_exe()?;
        let (process, pipes) = Launch::child(&lab, options.to_arguments()).start().await?;
        Ok(Self { process, pipes, last_id: 0 })
    }

    /// Keeps `in_flight` calls under way until the pool gives no more.
    async fn round(&mut self, in_flight: usize, pool: Pool<Issue>) -> anyhow::Result<Round> {
        let mut sent = HashMap::with_capacity(in_flight);
        let mut latencies = Vec::new();
        let mut input = Vec::new();
        let mut output = Vec::with_capacity(1 << 16);
        let start = Instant::now();
        let mut wanted = in_flight;
        loop {
            for _ in 0..wanted {
                let Some(issue) = pool.take(start) else { break };
                self.last_id += 1;
                input.extend_from_slice(message(self.last_id, &issue).as_bytes());
                input.push(b'\n');
                sent.insert(self.last_id, Instant::now());
            }
            if sent.is_empty() {
                return Ok(Round::new(start.elapsed(), latencies));
            }
            self.pipes.input.write_all(&input).await?;
            input.clear();
            let read = self.pipes.output.read_buf(&mut output);
            let count = within("the server answers", read).await??;
            ensure!(count > 0, "the server has gone: {}", self.process.stderr());
            let arrived = Instant::now();
            wanted = 0;
            let whole = output.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            for line in output[..whole].split_inclusive(|byte| *byte == b'\n') {
                let begun = sent.remove(&answered(line)?).context("an answer to no request")?;
                latencies.push(arrived.duration_since(begun));
                wanted += 1;
            }
            output.drain(..whole);
        }
    }

    fn process(&self) -> &Process {
        &self.process
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.pipes);
        let ended = self.process.ended().await?;
        ensure!(ended == Ended::Code(0), "a server ended with {ended:?}");
        Ok(())
    }
}

/// The ID of the request that a frame answers, if the issue was made.
fn answered(line: &[u8]) -> anyhow::Result<u64> {
    let text = applied(line)?;
    let (_, rest) = text.split_once("\"id\":").with_context(|| format!("no ID: {text}"))?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Ok(rest[..end].parse()?)
}
