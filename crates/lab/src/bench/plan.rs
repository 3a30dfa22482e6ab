//! How long and how often everything is measured.

use std::time::Duration;

/// The sizes of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How many interleaved rounds each figure is the median of.
    pub pair_count: usize,
    /// How many slices a round has. The sides take turns slice by slice, so that a disk or a machine
    /// that is slow for a while is slow for all of them.
    pub slice_count: usize,
    /// How long a slice lasts at most.
    pub slice: Duration,
    /// How many operations are prepared for a slice of many callers; it ends early without more.
    pub prepared_count: usize,
    /// How many operations warm a file up: the log has its full size afterwards and is used again.
    pub warm_up_count: usize,
    /// The numbers of callers.
    pub callers: Vec<usize>,
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
    pub fn standard() -> Self {
        Self {
            pair_count: 9,
            slice_count: 10,
            slice: Duration::from_millis(25),
            prepared_count: 2_500,
            warm_up_count: 12_000,
            callers: vec![1, 16, 64, 256],
            growth_sizes: &[0, 100_000, 1_000_000],
            bytes_count: 10_000,
            memory_count: 50_000,
        }
    }

    /// The same with a ledger of five million operations.
    #[must_use]
    pub fn full() -> Self {
        Self {
            growth_sizes: &[0, 100_000, 1_000_000, 5_000_000],
            memory_count: 500_000,
            ..Self::standard()
        }
    }

    /// Whether everything runs; its figures mean nothing.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            pair_count: 1,
            slice_count: 2,
            slice: Duration::from_millis(20),
            prepared_count: 100,
            warm_up_count: 100,
            callers: vec![1, 16],
            growth_sizes: &[0, 200, 400],
            bytes_count: 200,
            memory_count: 200,
        }
    }

    /// How many operations to prepare for a slice of `callers`.
    #[must_use]
    pub const fn prepared_for(&self, callers: usize) -> usize {
        // Each caller waits for its commit, which takes at least some 50 us.
        let reachable = callers * (self.slice.as_micros() as usize / 50);
        if reachable < self.prepared_count { reachable } else { self.prepared_count }
    }

    /// The turns of `side_count` sides that are compared: for each pair the sides of every slice,
    /// with another one first each time.
    pub fn turns(&self, side_count: usize) -> impl Iterator<Item = Turn> + use<> {
        let (pair_count, slice_count) = (self.pair_count, self.slice_count);
        (0..pair_count).flat_map(move |pair| {
            (0..slice_count * side_count).map(move |turn| {
                let (slice, at) = (turn / side_count, turn % side_count);
                Turn { pair, side: (at + slice + pair) % side_count }
            })
        })
    }
}

/// Whose slice is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The pair that it belongs to.
    pub pair: usize,
    /// The side.
    pub side: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns_and_none_is_always_first() {
        // Promise: what is compared is measured side by side, the same number of times each.
        let plan = Plan { pair_count: 3, slice_count: 4, ..Plan::quick() };
        let turns: Vec<Turn> = plan.turns(3).collect();
        assert_eq!(turns.len(), 3 * 4 * 3);
        for (at, slice) in turns.chunks(3).enumerate() {
            let mut sides: Vec<usize> = slice.iter().map(|turn| turn.side).collect();
            assert_eq!(sides[0], (at % 4 + at / 4) % 3);
            sides.sort_unstable();
            assert_eq!(sides, [0, 1, 2]);
            assert!(slice.iter().all(|turn| turn.pair == at / 4));
        }
    }
}
