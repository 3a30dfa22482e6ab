//! A circuit breaker: after some failures of the destination in a row nothing is sent but one probe
//! now and then. It belongs to one process and is not kept. No clock: the shell hands in its
//! monotonic time as a [`Duration`] since any fixed start.

use std::time::Duration;

/// When it opens and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Failures in a row that open it; 0 for never.
    pub failures_count: u32,
    /// How long it stays open at first; it doubles with each probe that fails.
    pub open_base: Duration,
    /// But no longer than this.
    pub open_cap: Duration,
}

/// What may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerGate {
    /// Whatever is due.
    Closed,
    /// One item, and nothing more before its outcome is known.
    Probe,
    /// Nothing.
    Open {
        /// Until then.
        until: Duration,
    },
}

/// A circuit breaker.
#[derive(Debug, Clone)]
pub struct Breaker {
    limits: BreakerLimits,
    failures_count: u32,
    open: Option<Open>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    until: Duration,
    probes_count: u32,
    probing: bool,
}

impl Breaker {
    /// A closed one.
    #[must_use]
    pub const fn new(limits: BreakerLimits) -> Self {
        Self { limits, failures_count: 0, open: None }
    }

    /// What may be sent at `now`. Asking changes nothing: see [`begin_probe`](Self::begin_probe).
    #[must_use]
    pub fn gate(&self, now: Duration) -> BreakerGate {
        match self.open {
            None => BreakerGate::Closed,
            // A probe whose outcome never comes must not shut the target for ever: the next turn
            // is taken when its time is over.
            Some(open) if now >= open.until => BreakerGate::Probe,
            Some(open) => BreakerGate::Open { until: open.until },
        }
    }

    /// The probe is on its way: nobody else tries until its outcome, or for another turn.
    pub fn begin_probe(&mut self, now: Duration) {
        let limits = self.limits;
        if let Some(open) = &mut self.open {
            open.probing = true;
            open.until = now + pause(limits, open.probes_count);
        }
    }

    /// The destination answered, whatever it said.
    pub fn on_success(&mut self) {
        self.failures_count = 0;
        self.open = None;
    }

    /// The destination was down; says whether that opened it.
    pub fn on_failure(&mut self, now: Duration) -> bool {
        self.failures_count = self.failures_count.saturating_add(1);
        let limits = self.limits;
        match &mut self.open {
            // Requests that were under way when it opened tell nothing new.
            Some(open) if !open.probing => false,
            Some(open) => {
                open.probing = false;
                open.probes_count = open.probes_count.saturating_add(1);
                open.until = now + pause(limits, open.probes_count);
                false
            }
            None if limits.failures_count > 0 && self.failures_count >= limits.failures_count => {
                let until = now + pause(limits, 0);
                self.open = Some(Open { until, probes_count: 0, probing: false });
                true
            }
            None => false,
        }
    }

    /// Whether it is open, for metrics.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

fn pause(limits: BreakerLimits, probes_count: u32) -> Duration {
    limits.open_base.saturating_mul(1 << probes_count.min(20)).min(limits.open_cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BreakerLimits = BreakerLimits {
        failures_count: 3,
        open_base: Duration::from_secs(1),
        open_cap: Duration::from_secs(4),
    };

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_not_before() {
        // Promise: a target that is down costs no attempts; one that is well now and then is not
        // shut out.
        let mut breaker = Breaker::new(LIMITS);
        for _ in 0..10 {
            assert!(!breaker.on_failure(at(0)));
            assert!(!breaker.on_failure(at(0)));
            breaker.on_success();
        }
        assert_eq!(breaker.gate(at(0)), BreakerGate::Closed);
        breaker.on_failure(at(0));
        breaker.on_failure(at(0));
        assert!(breaker.on_failure(at(5)), "the third opens it");
        assert!(breaker.is_open());
        assert_eq!(breaker.gate(at(5)), BreakerGate::Open { until: at(1005) });
    }

    #[test]
    fn one_probe_at_a_time_and_pauses_that_double_to_the_cap() {
        // Promise: an open breaker lets one item through a turn, ever more seldom.
        let mut breaker = Breaker::new(LIMITS);
        for _ in 0..3 {
            breaker.on_failure(at(0));
        }
        let mut now = at(1000);
        for pause in [2, 4, 4, 4] {
            assert_eq!(breaker.gate(now), BreakerGate::Probe);
            breaker.begin_probe(now);
            assert!(matches!(breaker.gate(now), BreakerGate::Open { .. }), "one is enough");
            assert!(!breaker.on_failure(now));
            let until = now + Duration::from_secs(pause);
            assert_eq!(breaker.gate(now), BreakerGate::Open { until });
            now = until;
        }
        breaker.begin_probe(now);
        breaker.on_success();
        assert_eq!(breaker.gate(now), BreakerGate::Closed);
    }

    #[test]
    fn stragglers_do_not_prolong_it_and_a_lost_probe_does_not_shut_it_for_ever() {
        // Promise: an open breaker always comes to its next probe.
        let mut breaker = Breaker::new(LIMITS);
        for _ in 0..9 {
            breaker.on_failure(at(0));
        }
        assert_eq!(breaker.gate(at(1)), BreakerGate::Open { until: at(1000) });
        breaker.begin_probe(at(1000));
        assert_eq!(breaker.gate(at(1999)), BreakerGate::Open { until: at(2000) });
        assert_eq!(breaker.gate(at(2000)), BreakerGate::Probe);
    }

    #[test]
    fn without_a_limit_it_never_opens() {
        // Promise: a breaker can be switched off.
        let mut breaker = Breaker::new(BreakerLimits { failures_count: 0, ..LIMITS });
        for _ in 0..100 {
            assert!(!breaker.on_failure(at(0)));
        }
        assert_eq!(breaker.gate(at(0)), BreakerGate::Closed);
    }
}
