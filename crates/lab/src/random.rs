//! Random numbers from a printed seed: the same seed gives the same plan.

/// SplitMix64 (Steele, Lea and Flood, 2014): small, fast, and good enough to pick victims.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from zero up to, not including, `end`.
    ///
    /// # Panics
    /// If `end` is zero.
    pub const fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0);
        self.next() % end
    }

    /// True in `part` of `whole` cases.
    pub const fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// A sequence of its own that depends on this one's place.
    pub const fn fork(&mut self) -> Self {
        Self(self.next())
    }
}
