//! A token bucket: how many requests may begin now. No clock: time comes in since a fixed start.

use std::time::Duration;

/// So much of a second's requests may begin at once, so that a limit holds over short times too.
const BURST_S: f64 = 0.1;

/// The bucket of one target.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    rate_per_s: f64,
    burst: f64,
    tokens: f64,
    filled_at: Duration,
}

impl Bucket {
    /// A full one; the rate is finite and over 0.
    pub(super) fn new(rate_per_s: f64, now: Duration) -> Self {
        let burst = (rate_per_s * BURST_S).max(1.0);
        Self { rate_per_s, burst, tokens: burst, filled_at: now }
    }

    /// How many requests may begin at `now`.
    pub(super) fn available(&mut self, now: Duration) -> usize {
        let passed = now.saturating_sub(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate_per_s).min(self.burst);
        self.filled_at = self.filled_at.max(now);
        // A sum of fractions may miss its whole number by a hair.
        (self.tokens + 1e-9).floor() as usize
    }

    /// So many begin.
    pub(super) fn take(&mut self, count: usize) {
        self.tokens -= count as f64;
    }

    /// So many did not begin after all.
    pub(super) fn put_back(&mut self, count: usize) {
        self.tokens = (self.tokens + count as f64).min(self.burst);
    }

    /// When the next batch may begin: half a burst at a time, so that a fast target does not cost a
    /// claim for each item.
    pub(super) fn ready_at(&self) -> Duration {
        let missing = (self.burst / 2.0).floor().max(1.0) - self.tokens;
        let wait_s = (missing / self.rate_per_s).max(0.0);
        // Rounded up: a sleep that ends a moment too early would find nothing.
        self.filled_at + Duration::from_secs_f64(wait_s.min(1e6)) + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_sees_more_than_its_rate() {
        // Promise: over any time the target gets its rate and one burst at most, and over a long
        // time not less than its rate.
        for rate in [0.5, 1.0, 7.0, 100.0, 5000.0] {
            let mut bucket = Bucket::new(rate, Duration::ZERO);
            let (mut now, mut begun) = (Duration::ZERO, 0_usize);
            let end = Duration::from_secs(20);
            while now < end {
                let count = bucket.available(now);
                bucket.take(count);
                begun += count;
                let most = now.as_secs_f64() * rate + (rate * BURST_S).max(1.0);
                assert!(begun as f64 <= most + 1e-6, "{rate}: {begun} at {now:?}");
                let next = bucket.ready_at();
                assert!(next > now, "{rate}: nothing is asked for in a busy loop");
                now = next;
            }
            assert!(begun as f64 >= 20.0 * rate * 0.9, "{rate}: {begun}");
        }
    }

    #[test]
    fn what_did_not_begin_can_begin_later() {
        // Promise: a claim that found less than it might have does not slow the target down.
        let mut bucket = Bucket::new(20.0, Duration::ZERO);
        assert_eq!(bucket.available(Duration::ZERO), 2);
        bucket.take(2);
        bucket.put_back(2);
        assert_eq!(bucket.available(Duration::ZERO), 2);
        bucket.put_back(50);
        assert_eq!(bucket.available(Duration::ZERO), 2, "a bucket holds a burst");
    }
}
