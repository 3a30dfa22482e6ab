//! The worker of a process: delivers what the ledger's outbox holds to the targets of the settings.

use std::sync::Arc;

use counterfoil_core::delivery::TargetName;
use counterfoil_engine::{
    CancellationToken, Deliverer, DelivererError, DelivererOptions, Engine, Target,
};

use crate::config::Settings;

/// The targets that the settings declare.
#[must_use]
pub fn targets(_settings: &Settings) -> Vec<Arc<dyn Target>> {
    Vec::new()
}

/// A worker for the settings' targets, or for those of them that are named.
///
/// # Errors
/// [`DelivererError`] if a target's limits are bad or there is none of a given name.
pub fn of(
    engine: &Arc<Engine>,
    settings: &Settings,
    only: Option<Vec<TargetName>>,
) -> Result<Deliverer, DelivererError> {
    let options =
        DelivererOptions { drain_limit: settings.drain, only, ..DelivererOptions::default() };
    Deliverer::new(Arc::clone(engine), targets(settings), options)
}

/// Starts a server's own worker, unless the settings leave that to others. It stops with `shutdown`,
/// and at the latest when the engine is drained.
///
/// # Errors
/// As [`of`].
pub fn start(
    engine: &Arc<Engine>,
    settings: &Settings,
    shutdown: &CancellationToken,
) -> Result<(), DelivererError> {
    if settings.worker {
        engine.start_worker(of(engine, settings, None)?, shutdown);
    }
    Ok(())
}
