//! Deliveries over HTTP to a server on this machine beside a bare client that sends the same
//! requests: the worker with a declared connector, ledger and all.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use counterfoil::config::Environment;
use counterfoil::{ledger, serve, worker};
use counterfoil_engine::{CancellationToken, Engine};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::delivery::Sizes;
use super::figures::{Check, Figure, Report, Round};
use crate::delivery::role::{OneCall, settings};
use crate::plain_http::{self, Response};
use crate::within::within;

const IN_FLIGHT: usize = 64;
/// The aim, as a part of the bare client.
const OF_BARE_CLIENT: f64 = 0.6;

/// Counts what it answers.
#[derive(Debug, Default)]
struct Server {
    answered: Mutex<Vec<Instant>>,
    changed: Notify,
}

impl Server {
    fn answer(&self) {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        self.changed.notify_one();
    }

    /// What was answered so far, if it is so many.
    fn if_all(&self, count: usize) -> Option<Vec<Instant>> {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        (answered.len() >= count).then(|| std::mem::take(&mut *answered))
    }

    async fn take(&self, count: usize) -> Vec<Instant> {
        loop {
            let changed = self.changed.notified();
            if let Some(all) = self.if_all(count) {
                return all;
            }
            changed.await;
        }
    }
}

/// Measures both sides in turns.
///
/// # Errors
/// If one of them fails.
pub async fn run(sizes: &Sizes, place: &Path) -> anyhow::Result<Report> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Arc::new(Server::default());
    let behind = Arc::clone(&server);
    tokio::spawn(plain_http::serve(listener, move |_| {
        behind.answer();
        async { Some(Response::json(201, &json!({ "id": 1_234_567 }))) }
    }));
    std::fs::write(place.join("counterfoil.toml"), configuration(address))?;
    let (settings, connectors) = settings(place)?;
    let engine = ledger::open_engine(&settings).await?;
    let caller = serve::stdio_caller(settings.principal.clone());
    let connector = connectors.iter().next().context("one connector")?;
    let plan = &sizes.plan;
    let mut rounds = [(); 2].map(|()| vec![Round::default(); plan.pair_count]);
    let mut next = 0;
    for turn in plan.turns(2) {
        let slice = if turn.side == 0 {
            let calls = (next..next + sizes.http_count).map(|number| OneCall {
                engine: Arc::clone(&engine),
                connector: Arc::clone(connector),
                caller: caller.clone(),
                id: number_id(number),
            });
            next += sizes.http_count;
            accept(calls.collect()).await?;
            let deliverer = worker::of(&engine, &settings, &Environment::of_process(), None)?;
            within("everything is delivered", drain(deliverer, &server, sizes.http_count)).await??
        } else {
            let bare = bare_client(address, sizes.http_count);
            let round = within("everything is sent", bare).await??;
            server.take(sizes.http_count).await;
            round
        };
        rounds[turn.side][turn.pair].add(slice);
    }
    close(&engine).await?;
    let variant = "beside a bare client; times are from the start to the answer";
    let figure = Figure::paired("deliver_http", variant, IN_FLIGHT, &rounds[0], &rounds[1]);
    let words = "delivered over HTTP with 64 in flight, part of a bare client (an aim)";
    let checks = vec![Check::at_least(words, figure.measured_ratio(), OF_BARE_CLIENT)];
    Ok(Report { results: vec![figure], checks, ..Report::default() })
}

fn number_id(number: usize) -> counterfoil_core::identity::OperationId {
    let id = format!("delivery-{number}");
    counterfoil_core::identity::OperationId::parse(&id).expect("a valid ID")
}

async fn accept(calls: Vec<OneCall>) -> anyhow::Result<()> {
    let accepting: Vec<_> =
        calls.into_iter().map(|call| tokio::spawn(async move { call.accept().await })).collect();
    for accepted in accepting {
        accepted.await??;
    }
    Ok(())
}

/// A worker from its start until everything is delivered and recorded.
async fn drain(
    deliverer: counterfoil_engine::Deliverer,
    server: &Server,
    count: usize,
) -> anyhow::Result<Round> {
    let shutdown = CancellationToken::new();
    let start = Instant::now();
    let running = tokio::spawn(deliverer.run(shutdown.clone()));
    let answered = server.take(count).await;
    shutdown.cancel();
    running.await?;
    let elapsed = start.elapsed();
    ensure!(answered.len() == count, "{} requests for {count} items", answered.len());
    Ok(Round::new(elapsed, answered.into_iter().map(|at| at - start).collect()))
}

/// As many connections as there are requests in flight, each with one after the other.
async fn bare_client(address: SocketAddr, count: usize) -> anyhow::Result<Round> {
    let body = json!({ "title": "delivery-1234567", "marker": "0".repeat(34) }).to_string();
    let request: Arc<str> = format!(
        "POST /tickets HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         idempotency-key: {}\r\ncontent-length: {}\r\n\r\n{body}",
        "0".repeat(43),
        body.len()
    )
    .into();
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(count));
    let start = Instant::now();
    let mut connections = Vec::new();
    for _ in 0..IN_FLIGHT {
        let (request, left) = (Arc::clone(&request), Arc::clone(&left));
        connections.push(tokio::spawn(send(address, request, left, start)));
    }
    let mut latencies = Vec::new();
    for connection in connections {
        latencies.extend(connection.await??);
    }
    Ok(Round::new(start.elapsed(), latencies))
}

async fn send(
    address: SocketAddr,
    request: Arc<str>,
    left: Arc<std::sync::atomic::AtomicUsize>,
    start: Instant,
) -> anyhow::Result<Vec<Duration>> {
    use std::sync::atomic::Ordering::SeqCst;
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut answer = Vec::new();
    let mut latencies = Vec::new();
    while left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
        stream.write_all(request.as_bytes()).await?;
        answer.clear();
        // The server's answers end with the one brace that they hold.
        while !answer.ends_with(b"}") {
            ensure!(stream.read_buf(&mut answer).await? > 0, "the server closed");
        }
        latencies.push(start.elapsed());
    }
    Ok(latencies)
}

async fn close(engine: &Engine) -> anyhow::Result<()> {
    engine.close().await.context("the ledger did not close")
}

fn configuration(address: SocketAddr) -> String {
    format!(
        r#"
[connector.bench]
tool = "bench"
description = "Files a ticket."
contract = "key"
url = "http://{address}/tickets"
timeout = "30s"
allow_networks = ["127.0.0.1"]

[connector.bench.arguments]
type = "object"
required = ["title"]
properties.title.type = "string"

[connector.bench.idempotency]
header = "Idempotency-Key"

[connector.bench.json]
title = "{{{{ args.title }}}}"
marker = "{{{{ marker }}}}"

[connector.bench.success]
status = [201]
external_id = "/id"

[connector.bench.result]
text = "Filed ticket {{{{ external_id }}}}"

[connector.bench.delivery]
key_lifetime = "24h"

[connector.bench.limits]
concurrency = {IN_FLIGHT}
breaker_failures = 0
"#
    )
}
