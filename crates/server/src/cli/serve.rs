//! `counterfoil serve`: runs a server.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{ArgGroup, Args};
use counterfoil_engine::Engine;
use counterfoil_store::{Clock as _, SystemClock};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::UsageError;
use crate::cli::exit::Exit;
use crate::config::{Environment, Flags, HttpArgs, LocalOnly, Settings, SettingsArgs};
use crate::connector::Connectors;
use crate::http::{self, Auth, HttpOptions, MCP_PATH, tls};
use crate::tokens::LiveTokens;
use crate::tools::Toolbox;
use crate::wire::WireLimits;
use crate::{ledger, output, serve, worker};

/// Serve tools to MCP clients
///
/// With --stdio the client starts this process and talks to it over its stdin and stdout. With
/// --http many clients share one server; each is known by its bearer token (`counterfoil token`),
/// and MCP is served at /mcp, the server's state at /healthz, /readyz and /metrics. Logs go to
/// stderr. The first start makes the data directory, the ledger and a key. A server that is told to
/// stop (SIGTERM, SIGINT or the end of its input) lets the running calls end first.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("wire").required(true).args(["stdio", "http"]))]
#[command(after_long_help = "\
Examples:
  counterfoil serve --stdio
  counterfoil serve --stdio --data-dir ./state --principal alice
  counterfoil serve --http 127.0.0.1:8787
  counterfoil serve --http 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem \\
      --http-allowed-hosts mcp.example.com

In the configuration of an MCP client:
  {\"mcpServers\": {\"counterfoil\": {\"command\": \"counterfoil\", \"args\": [\"serve\", \"--stdio\"]}}}
  {\"mcpServers\": {\"counterfoil\": {\"url\": \"http://127.0.0.1:8787/mcp\",
    \"headers\": {\"Authorization\": \"Bearer cf_...\"}}}}")]
pub(super) struct ServeArgs {
    /// Speak MCP over stdin and stdout
    #[arg(long)]
    stdio: bool,
    /// Speak MCP over HTTP at this address and port; port 0 takes a free one
    ///
    /// An address of other machines' reach needs tokens. Put TLS in front of it, or give --tls-cert
    /// and --tls-key.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    http: Option<SocketAddr>,
    /// Leave deliveries to `counterfoil worker`, which must run on the same ledger
    ///
    /// The same as worker = false in the configuration.
    #[arg(long)]
    no_worker: bool,
    #[command(flatten)]
    http_settings: HttpArgs,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Serves until the client leaves or the process is told to stop.
///
/// # Errors
/// Whatever keeps the server from starting.
pub(super) async fn run(args: ServeArgs, env: &Environment) -> anyhow::Result<Exit> {
    let flags = Flags::from(&args.settings).and(&args.http_settings);
    let (mut settings, connectors) = Settings::load_with_connectors(&flags, env)?;
    settings.worker &= !args.no_worker;
    let doubts = settings.doubts();
    doubts.iter().for_each(|doubt| output::note(format_args!("warning: {doubt}")));
    let shutdown = serve::shutdown_signal().context("the process cannot watch for SIGTERM")?;
    if let Some(address) = args.http {
        return over_http(address, &settings, connectors, env, shutdown).await;
    }
    let engine = ledger::open_engine(&settings).await?;
    worker::start(&engine, &settings, env, &shutdown)?;
    let job = retention_job(&settings, &engine);
    let limits = WireLimits { drain_limit: settings.drain, ..WireLimits::default() };
    let caller = serve::stdio_caller(settings.principal.clone());
    let tools = Toolbox::new(engine, connectors);
    let ended = serve::stdio(tools, caller, rmcp::transport::stdio_pipes(), limits, shutdown);
    let ended = ended.await;
    // The ledger is closed by now, or could not be: either way there is nothing left to purge.
    job.abort();
    let ended = ended?;
    tracing::info!(cause = ?ended.cause, unanswered = ended.unanswered_count, "served");
    Ok(Exit::Done)
}

async fn over_http(
    address: SocketAddr,
    settings: &Settings,
    connectors: Connectors,
    env: &Environment,
    shutdown: CancellationToken,
) -> anyhow::Result<Exit> {
    let tls = match (&settings.http.tls_cert, &settings.http.tls_key) {
        (Some(cert), Some(key)) => Some(tls::load(cert, key)?),
        _ => None,
    };
    let auth = auth(address, settings)?;
    let listener = http::bind(address).with_context(|| {
        format!("the server cannot listen on {address}; give --http another address or port")
    })?;
    let bound = listener.local_addr().context("the listener has no address")?;
    let engine = ledger::open_engine(settings).await?;
    worker::start(&engine, settings, env, &shutdown)?;
    let mut limits = settings.http.limits;
    limits.max_connections = http::make_room_for(limits.max_connections);
    tell(bound, tls.is_some(), &auth);
    let options = HttpOptions {
        auth,
        allowed_hosts: settings.http.allowed_hosts.clone(),
        allowed_origins: settings.http.allowed_origins.clone(),
        limits,
        tls,
        drain_limit: settings.drain,
    };
    let job = retention_job(settings, &engine);
    let tools = Toolbox::new(engine, connectors);
    let served = serve::http(tools, listener, options, shutdown).await;
    job.abort();
    served?;
    Ok(Exit::Done)
}

/// How callers are known on `address`.
fn auth(address: SocketAddr, settings: &Settings) -> anyhow::Result<Auth> {
    let loopback = address.ip().is_loopback();
    if settings.http.no_auth.is_some() {
        if !loopback {
            return Err(UsageError(format!(
                "{address} can be reached from other machines, and http.no_auth = \"{}\" lets \
                 everybody in who reaches it; leave http.no_auth out and make tokens, or listen on \
                 127.0.0.1",
                LocalOnly::WORD
            ))
            .into());
        }
        return Ok(Auth::LocalOnly(serve::stdio_caller(settings.principal.clone())));
    }
    let file = settings.tokens_file()?;
    let tokens = LiveTokens::open(&file)?;
    if !loopback && !tokens.any_live(SystemClock.wall()) {
        return Err(UsageError(format!(
            "{address} can be reached from other machines, and there is no token that could be \
             asked for: {} has none that is valid; make one with `counterfoil token create \
             --principal NAME`, or listen on 127.0.0.1",
            file.display()
        ))
        .into());
    }
    Ok(Auth::Tokens(Arc::new(tokens)))
}

/// Tells a person where the server is and what is missing.
fn tell(bound: SocketAddr, tls: bool, auth: &Auth) {
    let scheme = if tls { "https" } else { "http" };
    output::note(format_args!("serving MCP at {scheme}://{bound}{MCP_PATH}"));
    match auth {
        Auth::LocalOnly(caller) => output::note(format_args!(
            "warning: no token is asked for: every process of this machine calls as `{}`",
            caller.principal
        )),
        Auth::Tokens(tokens) if !tokens.any_live(SystemClock.wall()) => output::note(format_args!(
            "nobody is let in yet: {} has no valid token; make one with `counterfoil token create \
             --principal NAME`, which counts at once",
            tokens.path().display()
        )),
        Auth::Tokens(_) if !tls && !bound.ip().is_loopback() => output::note(
            "warning: tokens and calls travel unencrypted; put TLS in front of this server, or \
             give --tls-cert and --tls-key",
        ),
        Auth::Tokens(_) => {}
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address with its port, such as 127.0.0.1:8787, 0.0.0.0:8787 or [::1]:8787".to_owned()
    })
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
