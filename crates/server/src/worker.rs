//! The worker of a process: delivers what the ledger's outbox holds to the targets of the settings.

use std::sync::Arc;

use anyhow::Context as _;
use counterfoil_core::delivery::TargetName;
use counterfoil_engine::{CancellationToken, Deliverer, DelivererOptions, Engine, Target};

use crate::config::{Environment, Settings};
use crate::connector::{self, Connectors};

/// The targets that the settings declare. Authorities are only looked for where a target speaks
/// https: those of the system, or of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
///
/// # Errors
/// If a connector is wrong, or there is no authority to trust.
pub fn targets(settings: &Settings, env: &Environment) -> anyhow::Result<Vec<Arc<dyn Target>>> {
    let connectors = Connectors::load(settings)?;
    let needs_tls = connectors.iter().any(|it| it.origin().starts_with("https:"));
    let tls = needs_tls
        .then(|| counterfoil_client::tls_config(None))
        .transpose()
        .context("a connector speaks https")?;
    Ok(connector::targets(&connectors, env, tls.as_ref()))
}

/// A worker for the settings' targets, or for those of them that are named.
///
/// # Errors
/// As [`targets`], and if a target's limits are bad or there is none of a given name.
pub fn of(
    engine: &Arc<Engine>,
    settings: &Settings,
    env: &Environment,
    only: Option<Vec<TargetName>>,
) -> anyhow::Result<Deliverer> {
    let options =
        DelivererOptions { drain_limit: settings.drain, only, ..DelivererOptions::default() };
    Ok(Deliverer::new(Arc::clone(engine), targets(settings, env)?, options)?)
}

/// Starts a server's own worker, unless the settings leave that to others. It stops with `shutdown`,
/// and at the latest when the engine is drained.
///
/// # Errors
/// As [`of`].
pub fn start(
    engine: &Arc<Engine>,
    settings: &Settings,
    env: &Environment,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    if settings.worker {
        engine.start_worker(of(engine, settings, env, None)?, shutdown);
    }
    Ok(())
}
