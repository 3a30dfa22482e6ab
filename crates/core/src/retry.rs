//! Pauses between attempts: capped exponential backoff with full jitter, and what a target's
//! Retry-After (RFC 9110, section 10.2.3) comes to.

use std::time::Duration;

/// The pause before attempt number `tries + 2`: uniform between a millisecond and
/// `min(cap, base * 2^tries)`, from the randomness of `seed`.
#[must_use]
pub fn backoff(base: Duration, cap: Duration, tries: u32, seed: u64) -> Duration {
    let widest = base.saturating_mul(1_u32.checked_shl(tries.min(31)).unwrap_or(u32::MAX)).min(cap);
    let ms = u64::try_from(widest.as_millis()).unwrap_or(u64::MAX).max(1);
    // The high half of the product is uniform below `ms`, as good as the seed is.
    let part = (u128::from(seed) * u128::from(ms)) >> 64;
    Duration::from_millis(1 + u64::try_from(part).expect("below ms"))
}

/// A pause that a target asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// As long as asked, but no longer than the cap.
    pub pause: Duration,
    /// Whether it was longer.
    pub over_cap: bool,
}

/// Holds a pause that a target asked for below our own cap.
#[must_use]
pub fn pause_asked_for(asked: Duration, cap: Duration) -> Asked {
    Asked { pause: asked.min(cap), over_cap: asked > cap }
}
