//! A clock that stands still, so that every deadline of a case is met or missed on purpose.

use std::time::Duration;

use counterfoil_core::time::Timestamp;
use counterfoil_store::Clock;

/// Shows one moment for as long as the process lives. A later moment is another process.
#[derive(Debug, Clone, Copy)]
pub struct FixedClock(Timestamp);

impl FixedClock {
    /// A clock that stands at `ms` milliseconds since the Unix epoch.
    #[must_use]
    pub fn at_ms(ms: i64) -> Self {
        Self(Timestamp::from_ms(ms))
    }
}

impl Clock for FixedClock {
    fn wall(&self) -> Timestamp {
        self.0
    }

    fn since_boot(&self) -> Duration {
        Duration::ZERO
    }
}
