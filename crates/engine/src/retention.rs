//! Retention in the background: purges in small steps, with long rests between them, for as long as
//! the ledger is open.

use std::time::{Duration, Instant};

use counterfoil_core::time::Timestamp;
use counterfoil_store::{ClockJump, Purge, Purged, StoreError};

use crate::engine::Engine;

/// One round makes at most so many steps: some thousand records, and the rest waits for the next.
const ROUND_STEPS_COUNT: u32 = 20;

/// After a step the ledger is left alone for so many times as long as the step took, so that a
/// round never takes more than a tenth of the writer.
const REST_FACTOR: u32 = 9;

/// But for no longer than this.
const LONGEST_REST: Duration = Duration::from_secs(10);

impl Engine {
    /// Purges one bounded step, by the retention of this engine.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed.
    pub async fn purge(&self) -> Result<Purged, StoreError> {
        self.store.purge(Purge::new(self.lifetimes().retention.as_duration())).await
    }

    /// Purges about every `interval`, until the ledger is closed. It may be dropped at any time:
    /// each step is whole or was not made.
    pub async fn keep_retention(&self, interval: Duration) {
        let mut told = None;
        // A short session too makes a round, and many that start together not at once.
        let mut pause = self.spread(interval / 10);
        loop {
            tokio::time::sleep(pause).await;
            match self.purge_round(&mut told).await {
                Ok(()) => {}
                Err(StoreError::Closed) => return,
                Err(error) => tracing::warn!(%error, "a purge waits for its next round"),
            }
            pause = interval * 3 / 4 + self.spread(interval / 2);
        }
    }

    /// Makes steps until there is nothing left to purge, or the round is over. `told` is the jump of
    /// the clock that was told before.
    async fn purge_round(&self, told: &mut Option<ClockJump>) -> Result<(), StoreError> {
        let mut counts = (0, 0);
        for _ in 0..ROUND_STEPS_COUNT {
            let begun = Instant::now();
            let purged = self.purge().await?;
            if let Some(jump) = purged.state.stopped {
                if told.replace(jump) != Some(jump) {
                    tell_stopped(jump);
                }
                return Ok(());
            }
            counts.0 += purged.results_count;
            counts.1 += purged.tombstones_count;
            if !purged.more {
                break;
            }
            tokio::time::sleep((begun.elapsed() * REST_FACTOR).min(LONGEST_REST)).await;
        }
        if counts != (0, 0) {
            tracing::info!(results = counts.0, tombstones = counts.1, "purged");
        }
        Ok(())
    }

    /// Some part of `range`, by the ledger's time and the run of this process.
    fn spread(&self, range: Duration) -> Duration {
        spread(self.store.now(), self.boot().as_bytes(), range)
    }
}

fn tell_stopped(jump: ClockJump) {
    tracing::warn!(
        by_s = jump.by_ms / 1000,
        noticed_at = jump.noticed_at.to_rfc3339(),
        "the clock jumped: operations go on, and nothing is purged until an operator has looked at \
         the clock and run `counterfoil store confirm-clock`"
    );
}

fn spread(now: Timestamp, boot: &[u8; 16], range: Duration) -> Duration {
    let (head, _) = boot.split_at(8);
    let run = head.iter().fold(0_u64, |run, byte| (run << 8) | u64::from(*byte));
    // A multiplication mixes the low digits of the time into the high ones (Knuth, TAOCP 6.4).
    let mixed = (run ^ now.as_ms().unsigned_abs()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    range / (1 << 16) * u32::try_from(mixed).expect("16 bits are left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_spread_over_its_range() {
        // Promise: servers that start together do not purge together, and none waits longer than
        // it was told.
        let range = Duration::from_secs(300);
        let run = |boot: u8, ms: i64| spread(Timestamp::from_ms(ms), &[boot; 16], range);
        let mut parts = [0; 4];
        for ms in 0..1000 {
            let pause = run(7, 1_780_272_000_000 + ms);
            assert!(pause < range);
            parts[(pause.as_secs() / 75) as usize] += 1;
        }
        assert!(parts.iter().all(|count| *count > 150), "{parts:?}");
        assert_ne!(run(1, 5), run(2, 5));
        assert_eq!(spread(Timestamp::from_ms(1), &[9; 16], Duration::ZERO), Duration::ZERO);
    }
}
