//! What this process's worker counts, for metrics. Labels are targets' names and our own words.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use counterfoil_core::delivery::{Alarm, ErrorClass, SendEnd, TargetName};

const CLASSES_COUNT: usize = ErrorClass::ALL.len();

/// The counts of every target of this process.
#[derive(Debug, Default)]
pub struct DeliveryNumbers(Mutex<BTreeMap<TargetName, Arc<TargetNumbers>>>);

impl DeliveryNumbers {
    /// Every target with its counts, by name.
    #[must_use]
    pub fn all(&self) -> Vec<(TargetName, Arc<TargetNumbers>)> {
        let targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        targets.iter().map(|(name, numbers)| (name.clone(), Arc::clone(numbers))).collect()
    }

    pub(super) fn of(&self, target: &TargetName) -> Arc<TargetNumbers> {
        let mut targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(targets.entry(target.clone()).or_default())
    }
}

/// The counts of one target. Counters only grow.
#[derive(Debug, Default)]
pub struct TargetNumbers {
    applied: AtomicU64,
    not_applied: [AtomicU64; CLASSES_COUNT],
    unknown: [AtomicU64; CLASSES_COUNT],
    lookups: AtomicU64,
    claimed: AtomicU64,
    delivered: AtomicU64,
    dead_letters: AtomicU64,
    in_doubt: AtomicU64,
    fenced: AtomicU64,
    late_contradictions: AtomicU64,
    many_matches: AtomicU64,
    keys_reused: AtomicU64,
    parked: AtomicU64,
    restarts: AtomicU64,
    breaker: AtomicU8,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Done.
    Applied,
    /// Proved not done.
    NotApplied(ErrorClass),
    /// Nobody knows.
    Unknown(ErrorClass),
}

impl Outcome {
    /// The outcome's word, and the word of the failure's class; that is empty where nothing failed.
    #[must_use]
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Applied => ("applied", ""),
            Self::NotApplied(class) => ("not_applied", class.as_str()),
            Self::Unknown(class) => ("unknown", class.as_str()),
        }
    }
}

/// What a target's circuit breaker lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Everything.
    Closed,
    /// Nothing but a probe now and then.
    Open,
}

impl TargetNumbers {
    /// Ended attempts, by outcome; those that never happened are left out.
    #[must_use]
    pub fn attempts(&self) -> Vec<(Outcome, u64)> {
        let by_class = |counts: &[AtomicU64; CLASSES_COUNT], outcome: fn(ErrorClass) -> Outcome| {
            let pairs = ErrorClass::ALL.into_iter().zip(counts);
            pairs.map(|(class, count)| (outcome(class), get(count))).collect::<Vec<_>>()
        };
        let mut all = vec![(Outcome::Applied, get(&self.applied))];
        all.extend(by_class(&self.not_applied, Outcome::NotApplied));
        all.extend(by_class(&self.unknown, Outcome::Unknown));
        all.retain(|(_, count)| *count > 0);
        all
    }

    /// Searches for an effect that ended.
    #[must_use]
    pub fn lookups_count(&self) -> u64 {
        get(&self.lookups)
    }

    /// Items that were claimed.
    #[must_use]
    pub fn claimed_count(&self) -> u64 {
        get(&self.claimed)
    }

    /// Items that were delivered.
    #[must_use]
    pub fn delivered_count(&self) -> u64 {
        get(&self.delivered)
    }

    /// Items that became dead letters.
    #[must_use]
    pub fn dead_letters_count(&self) -> u64 {
        get(&self.dead_letters)
    }

    /// Items that ended in doubt.
    #[must_use]
    pub fn in_doubt_count(&self) -> u64 {
        get(&self.in_doubt)
    }

    /// Reports on items that the reporter had lost.
    #[must_use]
    pub fn fenced_count(&self) -> u64 {
        get(&self.fenced)
    }

    /// Effects that came to light after their operations were settled as not applied.
    #[must_use]
    pub fn late_contradictions_count(&self) -> u64 {
        get(&self.late_contradictions)
    }

    /// Searches that found more than one effect.
    #[must_use]
    pub fn many_matches_count(&self) -> u64 {
        get(&self.many_matches)
    }

    /// Answers that a key was used with another request.
    #[must_use]
    pub fn keys_reused_count(&self) -> u64 {
        get(&self.keys_reused)
    }

    /// How often the target was parked.
    #[must_use]
    pub fn parked_count(&self) -> u64 {
        get(&self.parked)
    }

    /// How often the target's loop was started again after a panic.
    #[must_use]
    pub fn restarts_count(&self) -> u64 {
        get(&self.restarts)
    }

    /// The circuit breaker's state.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        match self.breaker.load(Ordering::Relaxed) {
            0 => BreakerState::Closed,
            _ => BreakerState::Open,
        }
    }

    pub(super) fn count_attempt(&self, end: &SendEnd) {
        add(match end {
            SendEnd::Applied { .. } => &self.applied,
            SendEnd::NotApplied { class, .. } => &self.not_applied[*class as usize],
            SendEnd::Unknown { class, .. } => &self.unknown[*class as usize],
        });
    }

    pub(super) fn count_lookup(&self) {
        add(&self.lookups);
    }

    pub(super) fn count_claimed(&self, count: usize) {
        self.claimed.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn count_delivered(&self) {
        add(&self.delivered);
    }

    pub(super) fn count_fenced(&self) {
        add(&self.fenced);
    }

    pub(super) fn count_parked(&self) {
        add(&self.parked);
    }

    pub(super) fn count_restart(&self) {
        add(&self.restarts);
    }

    pub(super) fn count_alarm(&self, alarm: Alarm) {
        let counters: &[&AtomicU64] = match alarm {
            Alarm::LateContradiction => &[&self.late_contradictions],
            Alarm::DeadLetter => &[&self.dead_letters],
            Alarm::InDoubt => &[&self.in_doubt],
            // These two end in doubt as well.
            Alarm::ManyMatches => &[&self.many_matches, &self.in_doubt],
            Alarm::KeyReused => &[&self.keys_reused, &self.in_doubt],
        };
        counters.iter().for_each(|counter| add(counter));
    }

    pub(super) fn show_breaker(&self, state: BreakerState) {
        self.breaker.store(u8::from(state == BreakerState::Open), Ordering::Relaxed);
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_told_apart_by_outcome_and_class() {
        // Promise: the number under a class is that class's, for each of them.
        for class in ErrorClass::ALL {
            let numbers = TargetNumbers::default();
            let words = String::new();
            numbers.count_attempt(&SendEnd::Unknown { class, words, retry_after: None });
            assert_eq!(numbers.attempts(), [(Outcome::Unknown(class), 1)]);
        }
    }
}
