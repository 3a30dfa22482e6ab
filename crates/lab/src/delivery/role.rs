//! `counterfoil-lab delivering`: a process of the product's own parts on one ledger that accepts
//! calls of connectors over MCP, delivers them, or both. Its leases and looks are short, so that what a killed
//! process held comes back soon.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use counterfoil::config::{Environment, Flags, Key, Settings};
use counterfoil::connector::{Connector, Connectors};
use counterfoil::tools::Toolbox;
use counterfoil::wire::WireLimits;
use counterfoil::{ledger, serve, worker};
use counterfoil_core::admission::{Authority, Call};
use counterfoil_core::delivery::TargetIdentity;
use counterfoil_core::fingerprint::Profile;
use counterfoil_core::identity::{Caller, OperationId};
use counterfoil_core::json::{Object, Value};
use counterfoil_engine::{Deliverer, DelivererOptions, Engine};
use counterfoil_store::outbox::Accepted;

use crate::desk::stdin_ends;
use crate::process::say_ready;

/// The process's command line.
#[derive(Debug, Clone, Args)]
pub struct DeliveringArgs {
    /// Where ledger, keys and `counterfoil.toml` are
    #[arg(long)]
    pub data_dir: PathBuf,
    /// Serve MCP on stdio, by the product's own code
    #[arg(long)]
    pub accepts: bool,
    /// Deliver what is accepted
    #[arg(long)]
    pub delivers: bool,
}

/// The settings of a data directory, with its connectors.
///
/// # Errors
/// If they are wrong.
pub fn settings(data_dir: &Path) -> anyhow::Result<(Settings, Connectors)> {
    let flags =
        Flags { config: None, values: vec![(Key::DataDir, data_dir.as_os_str().to_owned())] };
    Ok(Settings::load_with_connectors(&flags, &Environment::of_process())?)
}

/// Works until stdin ends, then stops as the product does.
///
/// # Errors
/// If it cannot start, or what was begun does not end.
pub async fn run(args: &DeliveringArgs) -> anyhow::Result<()> {
    let (settings, connectors) = settings(&args.data_dir)?;
    let shutdown = serve::shutdown_signal()?;
    let engine = ledger::open_engine(&settings).await?;
    if args.delivers {
        let targets = worker::targets(&settings, &Environment::of_process())?;
        let options = DelivererOptions {
            lease_margin: Duration::from_millis(500),
            poll: Duration::from_millis(20),
            upkeep: Duration::from_millis(500),
            ..DelivererOptions::default()
        };
        engine.start_worker(Deliverer::new(Arc::clone(&engine), targets, options)?, &shutdown);
    }
    say_ready(None)?;
    if args.accepts {
        let caller = serve::stdio_caller(settings.principal.clone());
        let limits = WireLimits { drain_limit: settings.drain, ..WireLimits::default() };
        let tools = Toolbox::new(engine, connectors);
        serve::stdio(tools, caller, rmcp::transport::stdio_pipes(), limits, shutdown).await?;
        return Ok(());
    }
    stdin_ends().await;
    anyhow::ensure!(engine.drain(settings.drain).await, "what was begun did not end");
    engine.close().await.context("the ledger did not close")
}

/// One call of a connector that files a ticket, as its tool makes it.
#[derive(Debug)]
pub struct OneCall {
    /// Where it is accepted.
    pub engine: Arc<Engine>,
    /// By what it is delivered.
    pub connector: Arc<Connector>,
    /// Who calls.
    pub caller: Caller,
    /// The operation; the ticket's title is its ID.
    pub id: OperationId,
}

impl OneCall {
    /// Renders the request and puts it into the outbox.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn accept(&self) -> anyhow::Result<Accepted> {
        let (engine, connector) = (&self.engine, &self.connector);
        let mut arguments = Object::default();
        arguments.insert("title", Value::String(self.id.as_str().to_owned()));
        let arguments = Value::Object(arguments);
        let admitted = engine.admit(&Call {
            caller: &self.caller,
            tool_id: &connector.tool,
            tool_version: &connector.version,
            profile: Profile::JcsV1,
            operation_id: &self.id,
            arguments: &arguments,
            call_arguments: &arguments,
            continuation_state: None,
            input_responses: None,
            authority: Authority::Present,
        })?;
        let identity = TargetIdentity {
            backend: engine.backend_id(),
            tenant: &self.caller.tenant,
            operation: &self.id,
        };
        let request = connector.freeze(&arguments, identity, engine.keys())?.encode().into();
        let (target, terms) = (connector.name.clone(), connector.terms);
        Ok(engine.accept(admitted, target, terms, request).await?)
    }
}
