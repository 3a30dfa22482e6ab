//! MCP round trips over stdio: the product's server with its durable ledger and with one in memory,
//! beside the same server and tool without any ledger. The client is as cheap as one can be, so
//! that what is measured is the server.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::figures::{Check, Figure, Report, Round, Spread};
use super::load::peak_memory_bytes;
use super::plan::Plan;
use super::raw_side::RawLedger;
use super::work::{ENDLESS, Ids, Pool, Workload};
use crate::child::{ChildOptions, StoreKind};
use crate::process::{Ended, Launch, Pipes, Process};
use crate::raw::tool_call;
use crate::within::within;

/// Of what is left when the cost of protocol and of commit are added.
const OF_SUM_AT_16: f64 = 0.60;
/// The time of a guarded call with the ledger in memory, in unguarded calls.
const IN_MEMORY: f64 = 1.15;
const PEAK_BYTES: f64 = 64.0 * 1024.0 * 1024.0;

/// The servers under measurement.
const SERVERS: [(&str, StoreKind, bool); 4] = [
    ("guarded, durable", StoreKind::Sqlite, false),
    ("guarded, in memory", StoreKind::Memory, false),
    ("unguarded, nothing kept on disk", StoreKind::Memory, true),
    ("unguarded, one durable insert", StoreKind::Sqlite, true),
];
const DURABLE: usize = 0;
const MEMORY: usize = 1;
const UNGUARDED: usize = 2;

/// Measures one call after the other, and 16 in flight.
///
/// # Errors
/// If a server fails or refuses.
pub async fn run(plan: &Plan, directory: &Path) -> anyhow::Result<Report> {
    let mut servers = Vec::new();
    for (variant, store, unguarded) in SERVERS {
        let place = directory.join(variant.replace([',', ' '], "_"));
        servers.push(Server::start(&place, store, unguarded).await?);
    }
    let mut workload = Workload::new(Ids::TimeOrdered)?;
    let mut raw = RawLedger::create(directory)?;
    warm_up(plan, &mut servers, &mut raw, &mut workload).await?;
    let mut report = Report::default();
    for in_flight in [1, 16] {
        let mut rounds = vec![vec![Round::default(); plan.pair_count]; SERVERS.len()];
        let mut limit = vec![Round::default(); plan.pair_count];
        let count = plan.prepared_for(in_flight);
        for turn in plan.turns(SERVERS.len() + 1) {
            if let Some(server) = servers.get_mut(turn.side) {
                let pool = Pool::fill(count, plan.slice, || workload.issue());
                rounds[turn.side][turn.pair].add(server.round(in_flight, &pool).await?);
            } else {
                let pool = Pool::fill(count, plan.slice, || workload.row());
                let slice = tokio::task::block_in_place(|| raw.limit_round(in_flight, &pool))?;
                limit[turn.pair].add(slice);
            }
        }
        report.add(told(in_flight, &rounds, &limit));
    }
    let peak = peak_memory_bytes(&servers[DURABLE].pid().to_string())?;
    let words = "server with a durable ledger over stdio: peak resident bytes";
    report.checks.push(Check::at_most(words, peak as f64, PEAK_BYTES));
    for server in servers {
        server.stop().await?;
    }
    Ok(report)
}

async fn warm_up(
    plan: &Plan,
    servers: &mut [Server],
    raw: &mut RawLedger,
    workload: &mut Workload,
) -> anyhow::Result<()> {
    for (server, (_, store, unguarded)) in servers.iter_mut().zip(SERVERS) {
        // One insert after the other takes its time; its log needs less to get warm.
        let one_by_one = unguarded && store == StoreKind::Sqlite;
        let count = if one_by_one { plan.warm_up_count / 50 } else { plan.warm_up_count };
        let pool = Pool::fill(count, ENDLESS, || workload.issue());
        server.round(64, &pool).await?;
    }
    let pool = Pool::fill(plan.warm_up_count, ENDLESS, || workload.row());
    tokio::task::block_in_place(|| raw.limit_round(64, &pool))?;
    Ok(())
}

fn told(in_flight: usize, rounds: &[Vec<Round>], limit: &[Round]) -> Report {
    let mut report = Report::default();
    let unguarded = &rounds[UNGUARDED];
    // The rate at which a call would pass that pays for the protocol and for the commit, one after
    // the other.
    let sums: Vec<f64> = unguarded
        .iter()
        .zip(limit)
        .map(|(protocol, commit)| 1.0 / (1.0 / protocol.rate() + 1.0 / commit.rate()))
        .collect();
    let of_sum = Spread::of(rounds[DURABLE].iter().zip(&sums).map(|(ours, sum)| ours.rate() / sum));
    for (at, (variant, ..)) in SERVERS.iter().enumerate() {
        report.results.push(match at {
            DURABLE => Figure::alone("mcp_stdio", variant, in_flight, &rounds[at])
                .against(Spread::of(sums.clone()).median, of_sum),
            UNGUARDED => Figure::alone("mcp_stdio", variant, in_flight, &rounds[at]),
            _ => Figure::paired("mcp_stdio", variant, in_flight, &rounds[at], unguarded),
        });
    }
    report.results.push(Figure::alone("raw_limit", "raw SQLite, batched", in_flight, limit));
    let slower = Spread::of(
        unguarded.iter().zip(&rounds[MEMORY]).map(|(bare, guarded)| bare.rate() / guarded.rate()),
    );
    let words = format!("stdio, {in_flight} in flight, ledger in memory: time in unguarded calls");
    report.checks.push(Check::at_most(words, slower, IN_MEMORY));
    if in_flight == 16 {
        let words = "stdio, 16 in flight, durable: part of 1/(1/unguarded + 1/limit)";
        report.checks.push(Check::at_least(words, of_sum, OF_SUM_AT_16));
    }
    report
}

/// A server and the client's ends of its pipes.
#[derive(Debug)]
pub(super) struct Server {
    process: Process,
    pipes: Pipes,
    last_id: u64,
}

impl Server {
    pub(super) async fn start(
        place: &Path,
        store: StoreKind,
        unguarded: bool,
    ) -> anyhow::Result<Self> {
        let options =
            ChildOptions { store, unguarded, real_clock: true, ..ChildOptions::new(place) };
        let lab = std::env::current_exe()?;
        let (process, pipes) = Launch::child(&lab, options.to_arguments()).start().await?;
        Ok(Self { process, pipes, last_id: 0 })
    }

    /// Its process.
    pub(super) fn pid(&self) -> i32 {
        self.process.pid().as_raw_nonzero().get()
    }

    /// Keeps `in_flight` calls under way until the pool gives no more.
    pub(super) async fn round(
        &mut self,
        in_flight: usize,
        pool: &Pool<Issue>,
    ) -> anyhow::Result<Round> {
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
                input.extend_from_slice(frame(self.last_id, &issue).as_bytes());
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

    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.pipes);
        let ended = self.process.ended().await?;
        ensure!(ended == Ended::Code(0), "a server ended with {ended:?}");
        Ok(())
    }
}

type Issue = (counterfoil_core::identity::OperationId, String, String);

fn frame(id: u64, (operation_id, title, body): &Issue) -> String {
    let arguments = json!({ "operation_id": operation_id.as_str(), "title": title, "body": body });
    let mut frame = tool_call(&json!(id), "create_issue", &arguments.to_string());
    frame.push('\n');
    frame
}

/// The ID of the request that a frame answers, if the issue was made.
fn answered(line: &[u8]) -> anyhow::Result<u64> {
    let text = std::str::from_utf8(line)?;
    let applied = text.contains("\"applied\"") && !text.contains("\"replayed\":true");
    ensure!(applied, "a call did not make its issue: {text}");
    let (_, rest) = text.split_once("\"id\":").with_context(|| format!("no ID: {text}"))?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Ok(rest[..end].parse()?)
}
