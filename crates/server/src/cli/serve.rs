//! `counterfoil serve`: runs a server.

use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use counterfoil_engine::Engine;
use tokio::task::JoinHandle;

use crate::cli::exit::Exit;
use crate::config::{Environment, Flags, Settings, SettingsArgs};
use crate::wire::WireLimits;
use crate::{ledger, output, serve};

/// Serve tools to an MCP client
///
/// The client starts this process and talks to it over its stdin and stdout; logs go to stderr. The
/// first start makes the data directory, the ledger and a key. A server that is told to stop
/// (SIGTERM, SIGINT or the end of its input) lets the running calls end first.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil serve --stdio
  counterfoil serve --stdio --data-dir ./state --principal alice
  counterfoil serve --stdio --store memory --log info

In the configuration of an MCP client:
  {\"mcpServers\": {\"counterfoil\": {\"command\": \"counterfoil\", \"args\": [\"serve\", \"--stdio\"]}}}")]
pub(super) struct ServeArgs {
    /// Speak MCP over stdin and stdout
    #[arg(long, required = true)]
    stdio: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Serves until the client leaves or the process is told to stop.
///
/// # Errors
/// Whatever keeps the server from starting.
pub(super) async fn run(args: ServeArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.settings), env)?;
    let doubts = settings.doubts();
    doubts.iter().for_each(|doubt| output::note(format_args!("warning: {doubt}")));
    let shutdown = serve::shutdown_signal().context("the process cannot watch for SIGTERM")?;
    let engine = ledger::open_engine(&settings).await?;
    let job = retention_job(&settings, &engine);
    let limits = WireLimits { drain_limit: settings.drain, ..WireLimits::default() };
    let caller = serve::stdio_caller(settings.principal.clone());
    let ended = serve::stdio(engine, caller, rmcp::transport::stdio_pipes(), limits, shutdown);
    let ended = ended.await;
    // The ledger is closed by now, or could not be: either way there is nothing left to purge.
    job.abort();
    let ended = ended?;
    tracing::info!(cause = ?ended.cause, unanswered = ended.unanswered_count, "served");
    Ok(Exit::Done)
}

/// Purges what retention has ended, for as long as the server runs.
fn retention_job(settings: &Settings, engine: &Arc<Engine>) -> JoinHandle<()> {
    let (engine, interval) = (Arc::clone(engine), settings.retention_interval);
    let wanted = settings.retention_job;
    tokio::spawn(async move {
        if wanted {
            engine.keep_retention(interval).await;
        }
    })
}
