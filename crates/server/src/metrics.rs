//! What a server counts, and its text for Prometheus (exposition format 0.0.4).
//!
//! Every label's value is a word of ours, or the name of a configured target: a method that we know,
//! a status, a tool, an outcome. No argument, ID, principal, tenant or token can get into one.

mod delivery;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use counterfoil_store::LedgerStats;
use rmcp::model::CallToolResponse;

use crate::connector::SUPPORT_TICKET;
use crate::handler::CallError;
use crate::tools::{
    create_issue, list_operations, operation_audit, operation_status, support_ticket,
};
use crate::wire::TYPED_METHODS;
use crate::wire::meta::OPERATION;
pub(crate) use delivery::DeliveryNumbers;

/// The counts of one server.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Counters<(&'static str, u16)>,
    operations: Counters<Operation>,
    refused_logins: Counters<&'static str>,
    /// Connections that were turned away because all places were taken.
    pub(crate) connections_refused: Counter,
    /// Idle connections that made room for a new one.
    pub(crate) connections_evicted: Counter,
    /// Open connections.
    pub(crate) connections: Arc<Gauge>,
    /// Requests under way.
    pub(crate) in_flight: Arc<Gauge>,
    /// Sessions of older clients.
    pub(crate) sessions: Arc<Gauge>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Operation {
    tool: &'static str,
    outcome: &'static str,
    replayed: bool,
}

/// A count that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A count of what is there now.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicI64);

impl Gauge {
    /// Counts one until the returned value is dropped.
    pub(crate) fn hold(self: &Arc<Self>) -> Held {
        self.0.fetch_add(1, Ordering::Relaxed);
        Held(Arc::clone(self))
    }

    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One in a [`Gauge`].
#[derive(Debug)]
pub(crate) struct Held(Arc<Gauge>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counters told apart by labels of which there are few.
#[derive(Debug)]
struct Counters<K>(Mutex<BTreeMap<K, u64>>);

impl<K: Ord> Default for Counters<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Copy> Counters<K> {
    fn add_one(&self, key: K) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
    }

    fn all(&self) -> Vec<(K, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(key, count)| (*key, *count)).collect()
    }
}

impl Metrics {
    /// One HTTP request on the MCP endpoint, by its JSON-RPC method and the status it got.
    pub(crate) fn count_request(&self, method: Option<&str>, status: u16) {
        let known = |method| TYPED_METHODS.iter().find(|known| **known == method).copied();
        let method = method.map_or("none", |method| known(method).unwrap_or("other"));
        self.requests.add_one((method, status));
    }

    /// One request that was not let in.
    pub(crate) fn count_refused_login(&self, reason: &'static str) {
        self.refused_logins.add_one(reason);
    }

    /// One tool call, by what came of it. `tool` is a word of ours.
    pub(crate) fn count_call(
        &self,
        tool: &'static str,
        came: &Result<CallToolResponse, CallError>,
    ) {
        let (outcome, replayed) = match came {
            Err(CallError::Refused(refusal)) => (refusal.code().as_str(), false),
            Err(CallError::Protocol(_)) => ("protocol_error", false),
            Ok(CallToolResponse::Complete(result)) => {
                let said = result.meta.as_ref().and_then(|meta| meta.0.get(OPERATION));
                let member = |name| said.and_then(|said| said.get(name));
                let replayed = member("replayed").and_then(|value| value.as_bool());
                let state = member("state").and_then(|value| value.as_str());
                (state_word(state), replayed.unwrap_or(false))
            }
            Ok(_) => ("input_required", false),
        };
        self.operations.add_one(Operation { tool, outcome, replayed });
    }

    /// One tool call that was refused before it reached its tool.
    pub(crate) fn count_limited_call(&self, tool: Option<&str>) {
        let tool = tool_word(tool.unwrap_or_default());
        self.operations.add_one(Operation { tool, outcome: "rate_limited", replayed: false });
    }

    /// The text.
    pub(crate) fn render(&self, ledger: &LedgerNumbers) -> String {
        let mut text = Exposition::default();
        text.family("counterfoil_build_info", "gauge", "The version that runs.");
        text.sample(&[("version", &env!("CARGO_PKG_VERSION"))], 1);
        text.family("counterfoil_http_requests_total", "counter", "Requests on the MCP endpoint.");
        for ((method, status), count) in self.requests.all() {
            text.sample(&[("method", &method), ("status", &status)], count);
        }
        text.family("counterfoil_operations_total", "counter", "Tool calls by what came of them.");
        for (key, count) in self.operations.all() {
            let Operation { tool, outcome, replayed } = key;
            let labels: [(&str, &dyn fmt::Display); 3] =
                [("tool", &tool), ("outcome", &outcome), ("replayed", &replayed)];
            text.sample(&labels, count);
        }
        text.family(
            "counterfoil_http_unauthorized_total",
            "counter",
            "Requests that were not let in, by reason.",
        );
        for (reason, count) in self.refused_logins.all() {
            text.sample(&[("reason", &reason)], count);
        }
        let gauges = [
            ("counterfoil_http_requests_in_flight", &self.in_flight, "Requests under way."),
            ("counterfoil_http_connections", &self.connections, "Open connections."),
            ("counterfoil_http_sessions", &self.sessions, "Sessions of older clients."),
        ];
        for (name, gauge, help) in gauges {
            text.family(name, "gauge", help);
            text.sample(&[], gauge.get());
        }
        text.single(
            "counterfoil_http_connections_refused_total",
            "counter",
            "Connections turned away because all places were taken.",
            self.connections_refused.get(),
        );
        text.single(
            "counterfoil_http_connections_evicted_total",
            "counter",
            "Idle connections that made room for new ones.",
            self.connections_evicted.get(),
        );
        ledger.render(&mut text);
        text.0
    }
}

/// What the ledger says of itself when the metrics are read.
#[derive(Debug)]
pub(crate) struct LedgerNumbers {
    /// Whether a write would commit.
    pub(crate) ready: bool,
    /// `None` if it could not be read: then nothing is said.
    pub(crate) stats: Option<LedgerStats>,
    /// Of its outbox, and of this process's worker.
    pub(crate) delivery: DeliveryNumbers,
}

impl LedgerNumbers {
    fn render(&self, text: &mut Exposition) {
        text.single(
            "counterfoil_ready",
            "gauge",
            "1 if a write would commit now.",
            u64::from(self.ready),
        );
        self.delivery.render(text);
        let Some(stats) = &self.stats else { return };
        let numbers = [
            (
                "counterfoil_store_commits_total",
                "counter",
                "Transactions that were committed.",
                stats.commits,
            ),
            (
                "counterfoil_store_committed_commands_total",
                "counter",
                "Commands in them: divided by the transactions, the size of a batch.",
                stats.committed_commands,
            ),
            (
                "counterfoil_store_largest_batch",
                "gauge",
                "Commands in the largest transaction so far.",
                stats.largest_batch,
            ),
            ("counterfoil_store_bytes", "gauge", "Size of the ledger's file.", stats.file_bytes),
            (
                "counterfoil_store_wal_bytes",
                "gauge",
                "Size of the write-ahead log beside it.",
                stats.log_bytes,
            ),
            (
                "counterfoil_operations_unsettled",
                "gauge",
                "Operations in progress or in doubt.",
                stats.unsettled,
            ),
        ];
        for (name, kind, help, value) in numbers {
            text.single(name, kind, help, value);
        }
    }
}

/// The text as it grows.
#[derive(Debug, Default)]
struct Exposition(String, &'static str);

impl Exposition {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.1 = name;
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, labels: &[(&str, &dyn fmt::Display)], value: impl fmt::Display) {
        self.0.push_str(self.1);
        for (at, (name, label)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{open}{name}=\"{label}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    fn single(&mut self, name: &'static str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }
}

/// The names of our own tools.
pub(crate) const TOOL_WORDS: [&str; 6] = [
    create_issue::NAME,
    operation_status::NAME,
    list_operations::NAME,
    operation_audit::NAME,
    SUPPORT_TICKET,
    support_ticket::STATUS_NAME,
];

fn tool_word(name: &str) -> &'static str {
    TOOL_WORDS.into_iter().find(|known| *known == name).unwrap_or("other")
}

fn state_word(state: Option<&str>) -> &'static str {
    const STATES: [&str; 4] = ["applied", "partial", "not_applied", "unknown"];
    STATES.into_iter().find(|known| Some(*known) == state).unwrap_or("other")
}
