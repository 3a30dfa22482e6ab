//! What is counted of deliveries: the outbox, by what the ledger says, and this process's worker.

use std::sync::Arc;

use counterfoil_core::delivery::{ALL_STATES, TargetName};
use counterfoil_core::time::Timestamp;
use counterfoil_engine::{BreakerState, TargetNumbers};
use counterfoil_store::outbox::OutboxStats;

use super::Exposition;

/// Deliveries when the metrics are read.
#[derive(Debug)]
pub(crate) struct DeliveryNumbers {
    /// `None` if it could not be read, or there is none: then nothing is said.
    pub(crate) outbox: Option<OutboxStats>,
    /// The targets of this process's worker.
    pub(crate) targets: Vec<(TargetName, Arc<TargetNumbers>)>,
    /// The ledger's time.
    pub(crate) now: Timestamp,
}

type Count = fn(&TargetNumbers) -> u64;

/// One number for each target.
const BY_TARGET: [(&str, &str, Count); 10] = [
    ("counterfoil_delivery_claims_total", "Items that the worker claimed.", |n| n.claimed_count()),
    ("counterfoil_delivery_lookups_total", "Searches for an effect.", |n| n.lookups_count()),
    ("counterfoil_delivered_total", "Items that were delivered.", |n| n.delivered_count()),
    ("counterfoil_dead_letters_total", "Items that were given up.", |n| n.dead_letters_count()),
    ("counterfoil_in_doubt_total", "Items that only a person can settle.", |n| n.in_doubt_count()),
    ("counterfoil_fenced_completions_total", "Reports of a worker that had lost the item.", |n| {
        n.fenced_count()
    }),
    (
        "counterfoil_late_contradictions_total",
        "Effects found after their operations were settled as not applied.",
        |n| n.late_contradictions_count(),
    ),
    (
        "counterfoil_duplicate_effects_total",
        "Searches that found more than one effect of an operation.",
        |n| n.many_matches_count(),
    ),
    (
        "counterfoil_target_parkings_total",
        "How often the target stopped accepting anything from us.",
        |n| n.parked_count(),
    ),
    (
        "counterfoil_worker_restarts_total",
        "How often the target's loop was started again after a panic.",
        |n| n.restarts_count(),
    ),
];

impl DeliveryNumbers {
    pub(super) fn render(&self, text: &mut Exposition) {
        if let Some(outbox) = &self.outbox {
            self.render_outbox(outbox, text);
        }
        if !self.targets.is_empty() {
            self.render_targets(text);
        }
    }

    fn render_outbox(&self, outbox: &OutboxStats, text: &mut Exposition) {
        text.family("counterfoil_deliveries", "gauge", "Items of the outbox by their state.");
        for (state, count) in ALL_STATES.iter().zip(outbox.counts) {
            text.sample(&[("state", &state.as_str())], count);
        }
        text.family(
            "counterfoil_delivery_oldest_age_seconds",
            "gauge",
            "Age of the oldest item that still waits; 0 if none does.",
        );
        let age = outbox.oldest.map(|oldest| self.now.since(oldest)).unwrap_or_default();
        text.sample(&[], age.as_secs_f64());
        text.single(
            "counterfoil_targets_parked",
            "gauge",
            "Targets that accept nothing from us now.",
            outbox.parked_targets,
        );
        text.single(
            "counterfoil_targets_paused",
            "gauge",
            "Targets that an operator has paused.",
            outbox.paused_targets,
        );
    }

    fn render_targets(&self, text: &mut Exposition) {
        text.family(
            "counterfoil_delivery_attempts_total",
            "counter",
            "Requests that ended, by what came of them.",
        );
        for (target, numbers) in &self.targets {
            for (outcome, count) in numbers.attempts() {
                let (outcome, class) = outcome.words();
                text.sample(&[("target", target), ("outcome", &outcome), ("class", &class)], count);
            }
        }
        for (name, help, count) in BY_TARGET {
            text.family(name, "counter", help);
            for (target, numbers) in &self.targets {
                text.sample(&[("target", target)], count(numbers));
            }
        }
        text.family(
            "counterfoil_target_breaker_open",
            "gauge",
            "1 while the target's circuit breaker is open.",
        );
        for (target, numbers) in &self.targets {
            let is_open = numbers.breaker() == BreakerState::Open;
            text.sample(&[("target", target)], u8::from(is_open));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_is_told_by_state_and_age() {
        // Promise: an operator's alarms on depth and age can be built from these lines, and a
        // ledger without deliveries says so by zeros.
        let mut text = Exposition::default();
        let target = TargetName::parse("desk").expect("a name");
        let numbers = DeliveryNumbers {
            outbox: Some(OutboxStats {
                counts: [3, 0, 1, 0, 2, 0, 0, 0],
                oldest: Some(Timestamp::from_ms(1000)),
                parked_targets: 1,
                paused_targets: 0,
            }),
            targets: vec![(target, Arc::default())],
            now: Timestamp::from_ms(91_500),
        };
        numbers.render(&mut text);
        for line in [
            "counterfoil_deliveries{state=\"queued\"} 3",
            "counterfoil_deliveries{state=\"sending\"} 1",
            "counterfoil_deliveries{state=\"dead_letter\"} 2",
            "counterfoil_deliveries{state=\"cancelled\"} 0",
            "counterfoil_delivery_oldest_age_seconds 90.5",
            "counterfoil_targets_parked 1",
            "counterfoil_fenced_completions_total{target=\"desk\"} 0",
            "counterfoil_target_breaker_open{target=\"desk\"} 0",
        ] {
            assert!(text.0.lines().any(|found| found == line), "{line}\n{}", text.0);
        }
    }
}
