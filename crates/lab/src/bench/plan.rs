//! How long and how often everything is measured.

use std::time::Duration;

/// The sizes of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How many interleaved rounds each figure is the median of. They are many and short, so that
    /// the two of a pair meet the same disk.
    pub pair_count: usize,
    /// How long a round lasts at most.
    pub round: Duration,
    /// How many operations are prepared for a round of many callers; it ends early without more.
    pub prepared_count: usize,
    /// How many operations warm a file up: the log has its full size afterwards and is used again.
    pub warm_up_count: usize,
    /// The numbers of callers.
    pub callers: &'static [usize],
    /// The sizes of ledgers between which growth is measured, in operations. The second one is what
    /// the later ones are compared with.
    pub growth_sizes: &'static [usize],
    /// How many operations the bytes per operation are averaged over.
    pub bytes_count: usize,
    /// How many operations the measured process makes whose memory is looked at.
    pub memory_count: usize,
}

impl Plan {
    /// What the figures of the project are measured with.
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            pair_count: 25,
            round: Duration::from_millis(120),
            prepared_count: 10_000,
            warm_up_count: 12_000,
            callers: &[1, 16, 64, 256],
            growth_sizes: &[0, 100_000, 1_000_000],
            bytes_count: 10_000,
            memory_count: 50_000,
        }
    }

    /// The same with a ledger of five million operations.
    #[must_use]
    pub const fn full() -> Self {
        Self {
            growth_sizes: &[0, 100_000, 1_000_000, 5_000_000],
            memory_count: 500_000,
            ..Self::standard()
        }
    }

    /// Whether everything runs; its figures mean nothing.
    #[must_use]
    pub const fn quick() -> Self {
        Self {
            pair_count: 1,
            round: Duration::from_millis(40),
            prepared_count: 100,
            warm_up_count: 100,
            callers: &[1, 16],
            growth_sizes: &[0, 200, 400],
            bytes_count: 200,
            memory_count: 200,
        }
    }

    /// How many operations to prepare for a round of `callers`.
    #[must_use]
    pub const fn prepared_for(&self, callers: usize) -> usize {
        // Each caller waits for its commit, which takes at least some 50 us.
        let reachable = callers * (self.round.as_micros() as usize / 50);
        if reachable < self.prepared_count { reachable } else { self.prepared_count }
    }
}
