//! `counterfoil worker`: delivers, and serves nobody.

use std::ffi::OsString;

use anyhow::Context as _;
use clap::Args;
use counterfoil_core::delivery::TargetName;

use super::UsageError;
use crate::cli::exit::Exit;
use crate::config::{Environment, Flags, Key, LocationArgs, Settings, StoreKind};
use crate::{ledger, output, serve, worker};

/// Deliver what servers on this ledger have accepted
///
/// A server delivers by itself; a worker of its own is for a server with --no-worker, or for more
/// than one process that delivers. Any number may run on one ledger, with the same configuration:
/// each item is held by one of them at a time. Logs go to stderr. A worker that is told to stop
/// (SIGTERM, SIGINT) claims nothing more and lets the requests under way end first.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil worker --data-dir ./state
  counterfoil worker --data-dir ./state --target helpdesk --target tracker")]
pub(super) struct WorkerArgs {
    /// Deliver to this target only; may be given more than once [default: all]
    #[arg(long = "target", value_name = "NAME", value_parser = TargetName::parse)]
    targets: Vec<TargetName>,
    /// How long a stopping worker lets the requests under way end [default: 30s]
    #[arg(long, value_name = "SPAN")]
    drain: Option<OsString>,
    #[command(flatten)]
    location: LocationArgs,
}

/// Delivers until the process is told to stop.
///
/// # Errors
/// Whatever keeps the worker from starting.
pub(super) async fn run(args: &WorkerArgs, env: &Environment) -> anyhow::Result<Exit> {
    let mut flags = Flags::from(&args.location);
    flags.values.extend(args.drain.clone().map(|drain| (Key::Drain, drain)));
    let settings = Settings::load(&flags, env)?;
    let names = wanted(args, &settings, env)?;
    let shutdown = serve::shutdown_signal().context("the process cannot watch for SIGTERM")?;
    let engine = ledger::open_engine(&settings).await?;
    let only = (!args.targets.is_empty()).then(|| args.targets.clone());
    let deliverer = worker::of(&engine, &settings, env, only)?;
    output::note(format_args!("delivering to {}", names.join(", ")));
    deliverer.run(shutdown).await;
    serve::finish(&engine, settings.drain).await;
    Ok(Exit::Done)
}

/// The names of the targets that will be served.
fn wanted(
    args: &WorkerArgs,
    settings: &Settings,
    env: &Environment,
) -> anyhow::Result<Vec<String>> {
    if settings.store == StoreKind::Memory {
        return Err(UsageError(
            "a ledger in memory is seen by its own process alone, so there is nothing for a worker \
             to deliver; use store = \"sqlite\", or let `counterfoil serve` deliver"
                .to_owned(),
        ).into());
    }
    let known: Vec<String> =
        worker::targets(settings, env)?.iter().map(|target| target.name().to_string()).collect();
    if known.is_empty() {
        return Err(UsageError(
            "no connector is configured, so there is nobody to deliver to; declare one in \
             counterfoil.toml"
                .to_owned(),
        )
        .into());
    }
    if let Some(other) = args.targets.iter().find(|name| !known.contains(&name.to_string())) {
        return Err(UsageError(format!(
            "no connector is called `{other}`; the connectors are: {}",
            known.join(", ")
        ))
        .into());
    }
    let is_wanted = |name: &String| {
        args.targets.is_empty() || args.targets.iter().any(|wanted| wanted.as_str() == name)
    };
    Ok(known.into_iter().filter(is_wanted).collect())
}
