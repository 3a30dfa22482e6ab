//! MCP round trips, whatever the wire: the product's server with its durable ledger and with one in
//! memory, beside the same server and tool without any ledger.

use std::path::Path;

use anyhow::ensure;
use serde_json::json;

use super::figures::{Check, Figure, Report, Round, Spread};
use super::load::peak_memory_bytes;
use super::plan::Plan;
use super::raw_side::RawLedger;
use super::work::{ENDLESS, Ids, Pool, Workload};
use crate::child::{ChildOptions, StoreKind};
use crate::process::Process;
use crate::raw::tool_call;

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
/// How many calls are in flight while a server gets warm.
const WARM_UP_IN_FLIGHT: usize = 64;

/// One call: the operation's ID, title and body.
pub type Issue = (counterfoil_core::identity::OperationId, String, String);

/// A server under measurement, and the client's side of it.
#[expect(async_fn_in_trait, reason = "called here alone, and never from another task")]
pub trait McpServer: Sized {
    /// Starts it and connects.
    ///
    /// # Errors
    /// If it does not start.
    async fn start(options: &ChildOptions) -> anyhow::Result<Self>;

    /// Keeps `in_flight` calls under way until the pool gives no more.
    ///
    /// # Errors
    /// If a call fails or makes no issue.
    async fn round(&mut self, in_flight: usize, pool: Pool<Issue>) -> anyhow::Result<Round>;

    /// The server.
    fn process(&self) -> &Process;

    /// Ends it.
    ///
    /// # Errors
    /// If it fails in the end.
    async fn stop(self) -> anyhow::Result<()>;
}

/// How the figures of a wire are named, and what is promised of them.
#[derive(Debug)]
pub struct Told {
    /// The figures' name.
    pub name: &'static str,
    /// The wire, in words.
    pub wire: &'static str,
    /// The time of a guarded call with the ledger in memory, at most, in unguarded calls.
    pub in_memory: f64,
    /// The rate of durable calls with 16 in flight, at least, as a part of the rate at which a call
    /// would pass that pays for the protocol and for the commit, one after the other.
    pub of_sum_at_16: Option<f64>,
}

/// Measures one call after the other, and 16 in flight.
///
/// # Errors
/// If a server fails or refuses.
pub async fn run<S: McpServer>(
    plan: &Plan,
    directory: &Path,
    told: &Told,
) -> anyhow::Result<Report> {
    let directory = &directory.join(told.name);
    std::fs::create_dir(directory)?;
    let mut servers = Vec::new();
    for (variant, store, unguarded) in SERVERS {
        let place = directory.join(variant.replace([',', ' '], "_"));
        let options =
            ChildOptions { store, unguarded, real_clock: true, ..ChildOptions::new(&place) };
        servers.push(S::start(&options).await?);
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
                rounds[turn.side][turn.pair].add(server.round(in_flight, pool).await?);
            } else {
                let pool = Pool::fill(count, plan.slice, || workload.row());
                let slice = tokio::task::block_in_place(|| raw.limit_round(in_flight, &pool))?;
                limit[turn.pair].add(slice);
            }
        }
        report.add(told.of(in_flight, &rounds, &limit));
    }
    let durable = servers[DURABLE].process().pid().as_raw_nonzero();
    let peak = peak_memory_bytes(&durable.to_string())?;
    let words = format!("server with a durable ledger over {}: peak resident bytes", told.wire);
    report.checks.push(Check::at_most(words, peak as f64, PEAK_BYTES));
    for server in servers {
        server.stop().await?;
    }
    Ok(report)
}

/// One message that makes an issue.
#[must_use]
pub fn message(id: u64, (operation_id, title, body): &Issue) -> String {
    let arguments = json!({ "operation_id": operation_id.as_str(), "title": title, "body": body });
    tool_call(&json!(id), "create_issue", &arguments.to_string())
}

/// The text of an answer.
///
/// # Errors
/// If the issue was not made by this very call.
pub fn applied(answer: &[u8]) -> anyhow::Result<&str> {
    let text = std::str::from_utf8(answer)?;
    let applied = text.contains("\"applied\"") && !text.contains("\"replayed\":true");
    ensure!(applied, "a call did not make its issue: {text}");
    Ok(text)
}

async fn warm_up<S: McpServer>(
    plan: &Plan,
    servers: &mut [S],
    raw: &mut RawLedger,
    workload: &mut Workload,
) -> anyhow::Result<()> {
    for (server, (_, store, unguarded)) in servers.iter_mut().zip(SERVERS) {
        // One insert after the other takes its time; its log needs less to get warm.
        let one_by_one = unguarded && store == StoreKind::Sqlite;
        let count = if one_by_one { plan.warm_up_count / 50 } else { plan.warm_up_count };
        let pool = Pool::fill(count, ENDLESS, || workload.issue());
        server.round(WARM_UP_IN_FLIGHT, pool).await?;
    }
    let pool = Pool::fill(plan.warm_up_count, ENDLESS, || workload.row());
    tokio::task::block_in_place(|| raw.limit_round(WARM_UP_IN_FLIGHT, &pool))?;
    Ok(())
}

impl Told {
    fn of(&self, in_flight: usize, rounds: &[Vec<Round>], limit: &[Round]) -> Report {
        let Self { name, wire, .. } = *self;
        let mut report = Report::default();
        let unguarded = &rounds[UNGUARDED];
        let sums: Vec<f64> = unguarded
            .iter()
            .zip(limit)
            .map(|(protocol, commit)| 1.0 / (1.0 / protocol.rate() + 1.0 / commit.rate()))
            .collect();
        let of_sum =
            Spread::of(rounds[DURABLE].iter().zip(&sums).map(|(ours, sum)| ours.rate() / sum));
        for (at, (variant, ..)) in SERVERS.iter().enumerate() {
            report.results.push(match at {
                DURABLE => Figure::alone(name, variant, in_flight, &rounds[at])
                    .against(Spread::of(sums.clone()).median, of_sum),
                UNGUARDED => Figure::alone(name, variant, in_flight, &rounds[at]),
                _ => Figure::paired(name, variant, in_flight, &rounds[at], unguarded),
            });
        }
        let beside = format!("raw SQLite, batched, beside {wire}");
        report.results.push(Figure::alone("raw_limit", &beside, in_flight, limit));
        let slower = Spread::of(
            unguarded
                .iter()
                .zip(&rounds[MEMORY])
                .map(|(bare, guarded)| bare.rate() / guarded.rate()),
        );
        let words =
            format!("{wire}, {in_flight} in flight, ledger in memory: time in unguarded calls");
        report.checks.push(Check::at_most(words, slower, self.in_memory));
        if let Some(bound) = self.of_sum_at_16.filter(|_| in_flight == 16) {
            let words = format!("{wire}, 16 in flight, durable: part of 1/(1/unguarded + 1/limit)");
            report.checks.push(Check::at_least(words, of_sum, bound));
        }
        report
    }
}
