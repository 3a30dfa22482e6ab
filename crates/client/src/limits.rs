//! How long the consumer waits and how often it asks.

use std::time::Duration;

/// Bounds of one call and of what follows a lost reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For connecting and for the whole call with all its rounds, each.
    pub call: Duration,
    /// For reconciling in total: connecting, asking and waiting.
    pub reconcile: Duration,
    /// A status is asked for at most this often.
    pub questions_count: u32,
    /// The first wait between two questions; each later one is twice as long.
    pub first_wait: Duration,
    /// No wait between two questions is longer.
    pub longest_wait: Duration,
    /// A call has at most this many rounds: the first request and its continuations.
    pub rounds_count: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(60),
            reconcile: Duration::from_secs(60),
            questions_count: 8,
            first_wait: Duration::from_millis(200),
            longest_wait: Duration::from_secs(5),
            rounds_count: 8,
        }
    }
}

impl Limits {
    /// The wait after the question with this number, counted from zero.
    #[must_use]
    pub(crate) fn wait_after(&self, question: u32) -> Duration {
        let factor = 2_u32.saturating_pow(question);
        self.first_wait.saturating_mul(factor).min(self.longest_wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_cap() {
        // Promise: a server that is down is not hammered, and no wait grows without bound.
        let limits = Limits::default();
        let waits: Vec<u128> =
            [0, 1, 2, 4, 5, 40, u32::MAX].map(|n| limits.wait_after(n).as_millis()).to_vec();
        assert_eq!(waits, [200, 400, 800, 3200, 5000, 5000, 5000]);
    }
}
