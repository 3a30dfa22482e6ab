//! What the worker delivers to. A target reports what it saw; what follows is the core's to decide.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use counterfoil_core::delivery::{LookupEnd, ParkReason, SendEnd, TargetName};
use counterfoil_core::time::Timestamp;

/// The future of a target's report.
pub type TargetFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One destination. Whatever goes wrong is a report, never a panic and never an error: a target
/// that panics all the same is taken for one whose outcome is unknown.
pub trait Target: Debug + Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> &TargetName;

    /// How hard it may be pressed.
    fn limits(&self) -> TargetLimits;

    /// What stands against this one request, before it is sent. `maybe_sent`: an earlier attempt
    /// may have taken effect.
    ///
    /// # Errors
    /// [`ParkReason`] if it must wait for a person.
    fn check(&self, request: &[u8], maybe_sent: bool) -> Result<(), ParkReason>;

    /// Sends the frozen request once. No retry, redirect or proxy beneath it. Before the first byte
    /// it makes sure that `deadline` leaves the whole time that a request may take, else it reports
    /// [`ErrorClass::Local`](counterfoil_core::delivery::ErrorClass::Local); by `deadline` it has
    /// stopped writing.
    fn send(&self, request: Arc<[u8]>, deadline: Instant) -> TargetFuture<'_, SendEnd>;

    /// Searches for the effect of the frozen request. `begun_at` is the store's time at which it was
    /// asked for.
    fn look_up(
        &self,
        request: Arc<[u8]>,
        begun_at: Timestamp,
        deadline: Instant,
    ) -> TargetFuture<'_, LookupEnd>;
}

/// How hard a target may be pressed, by each process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetLimits {
    /// Requests under way at a time; at least 1.
    pub concurrency_count: usize,
    /// Requests begun per second; `None` does not limit.
    pub rate_per_s: Option<f64>,
    /// From the begin of a connection to the last byte of an answer.
    pub send_limit: Duration,
    /// Failures of the destination in a row that open its circuit breaker; 0 for no breaker.
    pub breaker_failures_count: u32,
    /// How long it stays open at first, and at most: it doubles.
    pub breaker_open: (Duration, Duration),
}
