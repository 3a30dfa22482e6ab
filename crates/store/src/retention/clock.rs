//! The time that purges go by. A purge cannot be taken back, so its clock is held to the time that
//! really passed: where the wall clock or the ledger's time ran away from it, purges stop until an
//! operator has looked.

use std::time::Duration;

use counterfoil_core::time::Timestamp;

use super::{ClockConfirmed, ClockJump, earlier};

/// A clock may be off by so much at each look; more is a jump.
const TOLERANCE: Duration = Duration::from_secs(3600);
const TOLERANCE_MS: i64 = 3_600_000;

/// All clocks, read at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The ledger's time.
    pub(crate) ledger: Timestamp,
    pub(crate) wall: Timestamp,
    /// Since an arbitrary point before the process began.
    pub(crate) since_boot: Duration,
    /// Names that point: two readings of one boot can be subtracted.
    pub(crate) boot: [u8; 16],
}

/// The last look at the clocks that found them right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The purges' time then.
    pub(crate) purge: Timestamp,
    pub(crate) at: Reading,
}

/// What a ledger keeps of its purges' time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PurgeClock {
    /// `None` before the first look.
    pub(crate) seen: Option<Seen>,
    pub(crate) stopped: Option<ClockJump>,
    pub(crate) confirmed: Option<ClockConfirmed>,
}

impl PurgeClock {
    /// Looks at the clocks. Before the first look of all, they are compared with what they showed
    /// when the ledger was opened.
    ///
    /// Within one boot the time that passed is known, and neither clock may differ from it by more
    /// than the tolerance. Between two boots it is not: a machine that was switched off looks like
    /// one whose clock was set ahead. Then the purges' time follows by at most the tolerance at
    /// each look, and only what cannot be is a jump: a wall clock that went back, or a ledger's
    /// time that ran ahead of it.
    pub(crate) fn look(&self, now: &Reading, opened: &Reading) -> Self {
        if self.stopped.is_some() {
            return self.clone();
        }
        let first = Seen { purge: opened.ledger, at: *opened };
        let seen = self.seen.unwrap_or(first);
        let behind_ms = ms_from(opened.wall, opened.ledger);
        let jump = match self.seen {
            None if behind_ms > TOLERANCE_MS => Some(-behind_ms),
            _ => seen.jump_ms(now),
        };
        if let Some(by_ms) = jump {
            let stopped = Some(ClockJump { noticed_at: now.wall, by_ms });
            return Self { stopped, ..self.clone() };
        }
        let reach = seen.purge.plus(seen.passed(now).unwrap_or_default()).plus(TOLERANCE);
        let purge = now.ledger.min(reach).max(seen.purge);
        Self { seen: Some(Seen { purge, at: *now }), ..self.clone() }
    }

    /// Takes an operator's word that the ledger's time is right.
    pub(crate) fn confirm(now: &Reading, by: &str) -> Self {
        Self {
            seen: Some(Seen { purge: now.ledger, at: *now }),
            stopped: None,
            confirmed: Some(ClockConfirmed { at: now.ledger, by: by.to_owned() }),
        }
    }

    /// The time that purges go by; `None` while they are stopped.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        if self.stopped.is_some() { None } else { self.seen.map(|seen| seen.purge) }
    }

    /// Where the horizon stands now. It never goes back.
    pub(crate) fn horizon(&self, before: Timestamp, span: Duration) -> Timestamp {
        self.time().map_or(before, |time| before.max(earlier(time, span)))
    }
}

impl Seen {
    /// The time that passed since, if it is known.
    fn passed(&self, now: &Reading) -> Option<Duration> {
        let same = now.boot == self.at.boot;
        same.then(|| now.since_boot.checked_sub(self.at.since_boot)).flatten()
    }

    /// By how much a clock moved beyond the time that passed, if that is a jump.
    fn jump_ms(&self, now: &Reading) -> Option<i64> {
        let wall = ms_from(self.at.wall, now.wall);
        let ledger = ms_from(self.at.ledger, now.ledger);
        let Some(passed) = self.passed(now) else {
            if wall < -TOLERANCE_MS {
                return Some(wall);
            }
            return Some(ledger.saturating_sub(wall)).filter(|ahead| *ahead > TOLERANCE_MS);
        };
        let passed = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        let (wall, ledger) = (wall.saturating_sub(passed), ledger.saturating_sub(passed));
        if wall.abs() > TOLERANCE_MS {
            return Some(wall);
        }
        // A ledger's time that stood still while nobody used it is no jump.
        Some(ledger).filter(|ahead| *ahead > TOLERANCE_MS)
    }
}

fn ms_from(earlier: Timestamp, later: Timestamp) -> i64 {
    later.as_ms().saturating_sub(earlier.as_ms())
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
