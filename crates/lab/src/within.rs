//! The bound on every wait of the lab: a guard against a hang, on which no test asserts.

use std::time::Duration;

use anyhow::Context as _;

/// Far above anything that works takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for `future`, not for ever.
///
/// # Errors
/// If [`PATIENCE`] ends first; `what` is named.
pub async fn within<F: Future>(what: &str, future: F) -> anyhow::Result<F::Output> {
    tokio::time::timeout(PATIENCE, future)
        .await
        .with_context(|| format!("{what}: nothing happened for {} s", PATIENCE.as_secs()))
}
