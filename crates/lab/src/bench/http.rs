//! MCP round trips over HTTP on revision 2026-07-28: the product's whole server, with its tokens and
//! its limits, through a real client of HTTP/1.1 that keeps a connection for each call in flight.

use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use counterfoil::data_dir::{DataDir, TOKENS_FILE};
use counterfoil::http::MCP_PATH;
use counterfoil::tokens::{self, NewToken, Right};
use counterfoil_store::{Clock as _, SystemClock};
use http::{Method, Request, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::process::Signal;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::figures::{Report, Round};
use super::mcp::{self, Issue, McpServer, Told, applied, message};
use super::plan::Plan;
use super::work::Pool;
use crate::child::ChildOptions;
use crate::process::{Ended, Launch, Pipes, Process};
use crate::within::within;

const TOLD: Told = Told { name: "mcp_http", wire: "HTTP", in_memory: 1.25, of_sum_at_16: None };

/// Measures one call after the other, and 16 in flight.
///
/// # Errors
/// If a server fails or refuses.
pub async fn run(plan: &Plan, directory: &Path) -> anyhow::Result<Report> {
    mcp::run::<Server>(plan, directory, &TOLD).await
}

/// A server and the connections to it.
#[derive(Debug)]
struct Server {
    process: Process,
    /// Held: a child ends with its input.
    _pipes: Pipes,
    address: String,
    authorization: String,
    connections: Vec<Connection>,
}

impl McpServer for Server {
    async fn start(options: &ChildOptions) -> anyhow::Result<Self> {
        DataDir::prepare(&options.data_dir, None)?;
        let rights = vec![Right::Tools];
        let token = NewToken { caller: options.caller()?, rights, expires_at: None };
        let token =
            tokens::create(&options.data_dir.join(TOKENS_FILE), &token, SystemClock.wall())?;
        let here = Some((Ipv4Addr::LOCALHOST, 0).into());
        let options = ChildOptions { http: here, http_max_rate: 0, ..options.clone() };
        let lab = std::env::current_exe()?;
        let (process, pipes) = Launch::child(&lab, options.to_arguments()).start().await?;
        let address = process.address().context("the child told no address")?.to_string();
        let authorization = format!("Bearer {}", token.secret.reveal());
        Ok(Self { process, _pipes: pipes, address, authorization, connections: Vec::new() })
    }

    async fn round(&mut self, in_flight: usize, pool: Pool<Issue>) -> anyhow::Result<Round> {
        while self.connections.len() < in_flight {
            let connection = Connection::open(&self.address, &self.authorization).await?;
            self.connections.push(connection);
        }
        let mut callers = JoinSet::new();
        let pool = Arc::new(pool);
        let start = Instant::now();
        for mut connection in self.connections.split_off(self.connections.len() - in_flight) {
            let pool = Arc::clone(&pool);
            callers.spawn(async move {
                let mut latencies = Vec::new();
                while let Some(issue) = pool.take(start) {
                    latencies.push(connection.call(&issue).await?);
                }
                anyhow::Ok((connection, latencies))
            });
        }
        let mut latencies = Vec::new();
        while let Some(ended) = within("a caller ends", callers.join_next()).await? {
            let (connection, taken) = ended??;
            self.connections.push(connection);
            latencies.extend(taken);
        }
        Ok(Round::new(start.elapsed(), latencies))
    }

    fn process(&self) -> &Process {
        &self.process
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.connections);
        self.process.signal(Signal::TERM)?;
        let ended = self.process.ended().await?;
        ensure!(ended == Ended::Code(0), "a server ended with {ended:?}");
        Ok(())
    }
}

/// One connection, which has one call under way at a time.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<String>,
    address: String,
    authorization: String,
    last_id: u64,
}

impl Connection {
    /// Connects; `authorization` goes with every call.
    ///
    /// # Errors
    /// If nobody listens.
    pub async fn open(address: &str, authorization: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.context("the server does not listen")?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Its end shows where the connection is used.
        tokio::spawn(connection);
        let (address, authorization) = (address.to_owned(), authorization.to_owned());
        Ok(Self { sender, address, authorization, last_id: 0 })
    }

    /// Makes one issue and tells how long the answer took.
    ///
    /// # Errors
    /// If the call is refused, or made no issue of its own.
    pub async fn call(&mut self, issue: &Issue) -> anyhow::Result<Duration> {
        self.last_id += 1;
        let request = Request::builder()
            .method(Method::POST)
            .uri(MCP_PATH)
            .header("host", &self.address)
            .header("authorization", &self.authorization)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", "create_issue")
            .body(message(self.last_id, issue))?;
        let begun = Instant::now();
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let body = collect(response.into_body()).await?;
        let latency = begun.elapsed();
        ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&body));
        applied(&body)?;
        Ok(latency)
    }
}

async fn collect(mut body: Incoming) -> anyhow::Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(data) = frame?.into_data() {
            all.extend_from_slice(&data);
        }
    }
    Ok(all)
}
