//! A guarded server from its start to the last commit: the relay on one side, the ledger on the
//! other. The ledger is opened while the server starts, so that nobody waits for it in vain.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::guard::{CallGuard, Opened};
use super::link::Link;
use super::settings::{Upstream, WrapSettings};
use super::tools::Plans;
use super::{Guard, PassGuard, WrapOptions, over_stdio, relay};
use crate::config::{Environment, Settings};
use crate::{ledger, serve};

/// A list of tools has at most so many pages.
const PAGE_LIMIT: usize = 1000;
/// A server that has not told its tools by then will not.
const EXPLAIN_LIMIT: Duration = Duration::from_secs(30);
/// Between the two ends of our own client, in bytes.
const PIPE_BYTES: usize = 64 * 1024;

/// Guards a server until the client leaves or `stop` is cancelled, then waits for what was begun and
/// closes the ledger.
///
/// # Errors
/// If the server or the ledger cannot be used, or the server came back as another one.
pub async fn run(
    options: WrapOptions,
    settings: Settings,
    rules: Arc<WrapSettings>,
    env: &Environment,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (slot, opened) = watch::channel(None);
    let caller = serve::stdio_caller(settings.principal.clone());
    let guard = CallGuard::new(opened, caller, Arc::clone(&rules));
    let ending = CancellationToken::new();
    let opening = {
        let (settings, command, env) = (settings.clone(), options.command.clone(), env.clone());
        let (stop, rules, ending) = (stop.clone(), Arc::clone(&rules), ending.clone());
        let directory = std::env::current_dir().context("there is no current directory")?;
        tokio::spawn(async move {
            let opened = open(&settings, &rules, &command, &directory, &env).await;
            match opened {
                Ok(opened) => {
                    opened.engine.keep_direct(&ending);
                    slot.send_replace(Some(Arc::clone(&opened)));
                    Ok((opened, slot))
                }
                Err(error) => {
                    // Nothing can be guarded: the server is stopped too.
                    stop.cancel();
                    Err(error)
                }
            }
        })
    };
    let settler = tokio::spawn(Arc::clone(&guard).settle(ending.clone()));
    let upkeep = tokio::spawn(upkeep(Arc::clone(&guard), settings.clone()));
    let served = over_stdio(options, guard as Arc<dyn Guard>, stop).await;
    ending.cancel();
    upkeep.abort();
    let _ = settler.await;
    let opening = opening.await.context("the ledger was not opened")?;
    // A server that cannot be started is the better reason.
    let (opened, _slot) = match (served.is_err(), opening) {
        (_, Ok(opened)) => opened,
        (true, Err(_)) => return Ok(served?),
        (false, Err(error)) => return Err(error),
    };
    if !opened.engine.drain(settings.drain).await {
        tracing::error!("calls did not settle in time; they stay unknown");
    }
    if let Err(error) = opened.engine.close().await {
        tracing::error!(%error, "the ledger's last batch failed");
    }
    Ok(served?)
}

async fn upkeep(guard: Arc<CallGuard>, settings: Settings) {
    if let Some(opened) = guard.opened().await.filter(|_| settings.retention_job) {
        opened.engine.keep_retention(settings.retention_interval).await;
    }
}

async fn open(
    settings: &Settings,
    rules: &WrapSettings,
    command: &[std::ffi::OsString],
    directory: &std::path::Path,
    env: &Environment,
) -> anyhow::Result<Arc<Opened>> {
    let engine = ledger::open_small(settings).await?;
    let (command, arguments) = command.split_first().context("there is no command")?;
    let upstream = Upstream { command, arguments, directory };
    // The oldest key: a change of the active one must not make the server another.
    let (_, oldest) = engine.keys().iter().min_by_key(|(id, _)| id.0).context("there is no key")?;
    let key = rules.upstream_key(upstream, env, oldest);
    Ok(Arc::new(Opened { engine, key }))
}

/// Starts a server, asks it for its tools as a client would, and stops it.
///
/// # Errors
/// If it cannot be started, or does not tell its tools.
pub async fn plans_of(
    options: WrapOptions,
    rules: Arc<WrapSettings>,
    stop: CancellationToken,
) -> anyhow::Result<Plans> {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (input, output) = tokio::io::split(theirs);
    let link = Link::over(input, output, options.max_line_bytes);
    let relayed = tokio::spawn(relay(link, options, Arc::new(PassGuard), stop.child_token()));
    let mut client = Client::over(ours);
    let mut plans = Plans::new(rules);
    let asked = tokio::time::timeout(EXPLAIN_LIMIT, client.learn(&mut plans)).await;
    let asked = asked.unwrap_or_else(|_| {
        Err(anyhow::anyhow!("the server said nothing of its tools within {EXPLAIN_LIMIT:?}"))
    });
    drop(client);
    relayed.await.context("the relay was stopped")??;
    asked?;
    Ok(plans)
}

/// The smallest client that can ask for a list of tools, in both eras of the protocol.
struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    output: tokio::io::WriteHalf<DuplexStream>,
    last_id: u64,
}

impl Client {
    fn over(stream: DuplexStream) -> Self {
        let (input, output) = tokio::io::split(stream);
        Self { lines: BufReader::new(input).lines(), output, last_id: 0 }
    }

    async fn learn(&mut self, plans: &mut Plans) -> anyhow::Result<()> {
        let info = json!({ "name": "counterfoil", "version": env!("CARGO_PKG_VERSION") });
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info,
        });
        let answer = self.ask("initialize", hello).await?;
        let mut about = json!({});
        if answer.get("result").is_some() {
            self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        } else {
            about = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": info,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let mut cursor = None::<String>;
        for _ in 0..PAGE_LIMIT {
            let mut params = json!({ "_meta": about });
            if let Some(cursor) = &cursor {
                params["cursor"] = serde_json::from_str(cursor).context("a cursor is JSON")?;
            }
            let line = self.ask_line("tools/list", params).await?;
            let frame = super::Frame::read(line).context("the server's answer")?;
            let Some(result) = frame.raw(super::Field::Result) else {
                bail!(
                    "the server does not list its tools: it has none, answered an error, or ended \
                     (what it said is above)"
                );
            };
            cursor = plans.learn(result)?;
            if cursor.is_none() {
                return Ok(());
            }
        }
        bail!("the server's list of tools has no end")
    }

    async fn ask(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        let line = self.ask_line(method, params).await?;
        serde_json::from_str(&line).context("the server's answer is not JSON")
    }

    /// The answer's line; what else the server says meanwhile is passed over.
    async fn ask_line(&mut self, method: &str, params: Value) -> anyhow::Result<String> {
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.say(&request).await?;
        loop {
            let line = self.lines.next_line().await?.context("the server ended")?;
            let frame = super::Frame::read(line.clone());
            let is_answer = frame.is_ok_and(|frame| {
                frame.kind() == super::Kind::Reply
                    && frame.raw(super::Field::Id) == Some(id.to_string().as_bytes())
            });
            if is_answer {
                return Ok(line);
            }
        }
    }

    async fn say(&mut self, message: &Value) -> anyhow::Result<()> {
        self.output.write_all(format!("{message}\n").as_bytes()).await?;
        Ok(self.output.flush().await?)
    }
}
