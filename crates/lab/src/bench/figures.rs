//! What is measured and how it is told: rounds, their medians and spread, the JSON form that every
//! benchmark keeps.

use std::time::Duration;

use serde::Serialize;

use super::machine::Machine;

/// Timed work: how many operations were answered, in what time, and how long each took. A round is
/// made of slices; those of the sides that are compared take turns.
#[derive(Debug, Clone, Default)]
pub struct Round {
    elapsed: Duration,
    /// From handing over to answer, ascending.
    latencies: Vec<Duration>,
}

impl Round {
    /// From the latencies of all its operations.
    #[must_use]
    pub fn new(elapsed: Duration, mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self { elapsed, latencies }
    }

    /// Adds a slice.
    pub fn add(&mut self, slice: Self) {
        self.elapsed += slice.elapsed;
        self.latencies.extend(slice.latencies);
        self.latencies.sort_unstable();
    }

    /// The same, within another time: that of a load with rests.
    #[must_use]
    pub fn lasting(self, elapsed: Duration) -> Self {
        Self { elapsed, ..self }
    }

    /// How many operations were answered.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.latencies.len()
    }

    /// Operations per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.count() as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency that `part` of all operations stayed within, in milliseconds.
    #[must_use]
    pub fn percentile_ms(&self, part: f64) -> f64 {
        let last = self.count().saturating_sub(1);
        let at = (part * last as f64).round() as usize;
        self.latencies.get(at).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
    }
}

/// A median, and the least and greatest value that it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of at least one value.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (&min, &max) = (values.first().expect("one value"), values.last().expect("one value"));
        Self { median: values[values.len() / 2], min, max }
    }
}

/// The value of each round, taken together.
pub fn over(rounds: &[Round], value: impl Fn(&Round) -> f64) -> Spread {
    Spread::of(rounds.iter().map(value))
}

/// The quotient of each pair, taken together.
pub fn over_pairs(ours: &[Round], theirs: &[Round], value: impl Fn(&Round) -> f64) -> Spread {
    Spread::of(ours.iter().zip(theirs).map(|(a, b)| value(a) / value(b)))
}

/// One line of the results. Every benchmark of this program gives its own in this form.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: &'static str,
    /// Under which conditions, where one name has several.
    pub variant: String,
    /// How many callers, or calls in flight, there were.
    pub callers: usize,
    /// The median of the rounds.
    pub ops_per_s: f64,
    /// The median of what it is compared with.
    pub limit_ops_per_s: Option<f64>,
    /// The median of the quotients of each pair.
    pub ratio: Option<f64>,
    /// The median of the rounds' medians.
    pub p50_ms: f64,
    /// The median of the rounds' 99th percentiles.
    pub p99_ms: f64,
    /// The least and the greatest quotient.
    pub ratio_spread: Option<[f64; 2]>,
    /// The median of the quotients of the 99th percentiles.
    pub p99_ratio: Option<f64>,
    /// The least and the greatest of them.
    pub p99_ratio_spread: Option<[f64; 2]>,
    /// Bytes written to the log for each operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal_bytes_per_op: Option<f64>,
    /// Bytes that the ledger's file grew for each operation, without title, body and result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes_per_op: Option<f64>,
    /// The most memory that the process had resident.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

impl Figure {
    /// From rounds that were compared with nothing.
    #[must_use]
    pub fn alone(name: &'static str, variant: &str, callers: usize, rounds: &[Round]) -> Self {
        Self {
            name,
            variant: variant.into(),
            callers,
            ops_per_s: over(rounds, Round::rate).median,
            limit_ops_per_s: None,
            ratio: None,
            p50_ms: over(rounds, |round| round.percentile_ms(0.5)).median,
            p99_ms: over(rounds, |round| round.percentile_ms(0.99)).median,
            ratio_spread: None,
            p99_ratio: None,
            p99_ratio_spread: None,
            wal_bytes_per_op: None,
            disk_bytes_per_op: None,
            peak_memory_bytes: None,
        }
    }

    /// From pairs of rounds.
    #[must_use]
    pub fn paired(
        name: &'static str,
        variant: &str,
        callers: usize,
        rounds: &[Round],
        limit: &[Round],
    ) -> Self {
        let p99 = over_pairs(rounds, limit, |round| round.percentile_ms(0.99));
        let figure = Self {
            p99_ratio: Some(p99.median),
            p99_ratio_spread: Some([p99.min, p99.max]),
            ..Self::alone(name, variant, callers, rounds)
        };
        figure.against(over(limit, Round::rate).median, over_pairs(rounds, limit, Round::rate))
    }

    /// The quotient with its spread, for a check.
    #[must_use]
    pub fn measured_ratio(&self) -> Measured {
        Measured { value: self.ratio.unwrap_or_default(), spread: self.ratio_spread }
    }

    /// The quotient of the 99th percentiles with its spread, for a check.
    #[must_use]
    pub fn measured_p99(&self) -> Measured {
        Measured { value: self.p99_ratio.unwrap_or_default(), spread: self.p99_ratio_spread }
    }

    /// The same compared with a rate.
    #[must_use]
    pub fn against(self, limit_ops_per_s: f64, ratio: Spread) -> Self {
        Self {
            limit_ops_per_s: Some(limit_ops_per_s),
            ratio: Some(ratio.median),
            ratio_spread: Some([ratio.min, ratio.max]),
            ..self
        }
    }
}

/// Something that the project promises of a figure.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// What is promised.
    pub promise: String,
    /// What was measured: a median, where there are pairs.
    pub measured: f64,
    /// The least and the greatest value of a pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 2]>,
    /// Its bound.
    pub bound: f64,
    /// Whether the bound is the least or the greatest value.
    pub at_least: bool,
    /// Whether it was reached.
    pub met: bool,
}

impl Check {
    /// At least `bound`.
    #[must_use]
    pub fn at_least(promise: impl Into<String>, measured: impl Into<Measured>, bound: f64) -> Self {
        let Measured { value, spread } = measured.into();
        let met = value >= bound;
        Self { promise: promise.into(), measured: value, spread, bound, at_least: true, met }
    }

    /// At most `bound`.
    #[must_use]
    pub fn at_most(promise: impl Into<String>, measured: impl Into<Measured>, bound: f64) -> Self {
        let Measured { value, spread } = measured.into();
        let met = value <= bound;
        Self { promise: promise.into(), measured: value, spread, bound, at_least: false, met }
    }
}

/// A value, with its spread if it is the median of pairs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measured {
    value: f64,
    spread: Option<[f64; 2]>,
}

impl From<f64> for Measured {
    fn from(value: f64) -> Self {
        Self { value, spread: None }
    }
}

impl From<Spread> for Measured {
    fn from(Spread { median, min, max }: Spread) -> Self {
        Self { value: median, spread: Some([min, max]) }
    }
}

/// All that a run gives.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Where and when it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// The figures.
    pub results: Vec<Figure>,
    /// What is promised of them.
    pub checks: Vec<Check>,
}

impl Report {
    /// Takes another part's figures and checks.
    pub fn add(&mut self, other: Self) {
        self.results.extend(other.results);
        self.checks.extend(other.checks);
    }

    /// Whether every promise was kept.
    #[must_use]
    pub fn all_met(&self) -> bool {
        self.checks.iter().all(|check| check.met)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles_are_the_middle_and_the_rank() {
        // Promise: a figure is the median of its pairs, not their mean or their best.
        let ms = Duration::from_millis;
        let round = Round::new(ms(2000), (1..=100).rev().map(ms).collect());
        assert_eq!(round.count(), 100);
        assert!((round.rate() - 50.0).abs() < 1e-9);
        assert!((round.percentile_ms(0.5) - 51.0).abs() < 1.5);
        assert!((round.percentile_ms(0.99) - 99.0).abs() < 1.5);
        let spread = Spread::of([9.0, 1.0, 4.0]);
        assert_eq!(spread, Spread { median: 4.0, min: 1.0, max: 9.0 });
        let slow = Round::new(ms(4000), vec![ms(1); 100]);
        let ratio = over_pairs(&[slow], &[round], Round::rate);
        assert!((ratio.median - 0.5).abs() < 1e-9);
    }
}
