//! Whether the process lives, whether a write would commit, and what it counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::response::Response;
use counterfoil_engine::Engine;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::auth::Auth;
use super::names::Names;
use super::refuse;
use crate::metrics::{LedgerNumbers, Metrics};
use crate::tokens::Right;

/// A verdict counts for this long: however often it is asked for, the ledger is tried once.
const FRESH: Duration = Duration::from_secs(1);
/// A ledger that does not answer within this time is not ready.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// What the health endpoints go by.
#[derive(Debug)]
pub(super) struct Health {
    pub(super) engine: Arc<Engine>,
    pub(super) auth: Auth,
    pub(super) names: Names,
    pub(super) metrics: Arc<Metrics>,
    /// Whether the metrics need a token: the server can be reached from other machines.
    pub(super) metrics_need_token: bool,
    pub(super) stopping: CancellationToken,
    pub(super) last: Mutex<Option<(Instant, Verdict)>>,
}

/// Whether a write would commit, and else why not.
pub(super) type Verdict = Result<(), String>;

/// `GET /healthz`: the process answers.
pub(super) async fn alive() -> Response {
    refuse::plain(StatusCode::OK, "alive")
}

/// `GET /readyz`: a write was tried within the last second and would have been committed.
pub(super) async fn ready(State(health): State<Arc<Health>>) -> Response {
    match health.verdict().await {
        Ok(()) => refuse::plain(StatusCode::OK, "ready"),
        Err(why) => refuse::plain(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}")),
    }
}

/// `GET /metrics`: the counts, for Prometheus.
pub(super) async fn metrics(State(health): State<Arc<Health>>, request: Request) -> Response {
    if let Err(refused) = health.names.check(request.uri(), request.headers()) {
        return *refused;
    }
    if health.metrics_need_token {
        let now = health.engine.now();
        if let Err(refused) = health.auth.caller(request.headers(), Right::Metrics, now) {
            health.metrics.count_refused_login(refused.word());
            return refused.response();
        }
    }
    let ready = health.verdict().await.is_ok();
    // What the metrics cannot tell now they leave out: the rest is still worth reading.
    let stats = tokio::time::timeout(PROBE_LIMIT, health.engine.stats()).await;
    let numbers = LedgerNumbers { ready, stats: stats.ok().and_then(Result::ok) };
    let text = health.metrics.render(&numbers);
    let mut response = refuse::plain(StatusCode::OK, text.trim_end());
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

impl Health {
    async fn verdict(&self) -> Verdict {
        if self.stopping.is_cancelled() {
            return Err("the server is stopping".into());
        }
        if let Auth::Tokens(tokens) = &self.auth
            && !tokens.usable()
        {
            return Err("the list of tokens cannot be read, so nobody is let in".into());
        }
        // Held while the ledger is tried: whoever asks meanwhile gets the same verdict.
        let mut last = self.last.lock().await;
        if let Some((at, verdict)) = &*last
            && at.elapsed() < FRESH
        {
            return verdict.clone();
        }
        let probed = tokio::time::timeout(PROBE_LIMIT, self.engine.probe()).await;
        let verdict = match probed {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the ledger gave no answer within {} s", PROBE_LIMIT.as_secs())),
        };
        let was_ready = last.as_ref().is_none_or(|(_, verdict)| verdict.is_ok());
        match &verdict {
            Err(why) if was_ready => tracing::warn!(%why, "not ready"),
            Ok(()) if !was_ready => tracing::info!("ready again"),
            _ => {}
        }
        *last = Some((Instant::now(), verdict.clone()));
        verdict
    }
}
