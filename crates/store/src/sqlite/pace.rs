//! Two servers on one file: who has just committed leaves room for the other. SQLite's write lock
//! has no queue, so a busy writer would take it again before a waiting one wakes up.

use std::time::{Duration, Instant};

/// Longer than the step in which a connection waits for the lock.
const GAP: Duration = Duration::from_millis(1);

/// A rival that never got in cannot be seen; so a gap is left at least this often.
const GAP_EVERY: Duration = Duration::from_millis(50);

/// Decides when the writer leaves the lock alone.
#[derive(Debug)]
pub(super) struct Pace {
    rival: bool,
    /// SQLite's count of other connections' commits.
    version: Option<i64>,
    last_gap: Instant,
    last_batch: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { rival: false, version: None, last_gap: now, last_batch: now }
    }

    /// Leaves a gap since the last batch if another writer was seen, or none was left for long.
    pub(super) fn before_batch(&mut self) {
        let idle = self.last_batch.elapsed();
        if idle < GAP {
            if !self.rival && self.last_gap.elapsed() < GAP_EVERY {
                return;
            }
            std::thread::sleep(GAP);
        }
        self.rival = false;
        self.last_gap = Instant::now();
    }

    pub(super) fn after_batch(&mut self) {
        self.last_batch = Instant::now();
    }

    /// Takes note whether the lock had to be waited for.
    pub(super) fn saw_rival(&mut self, waited: bool) {
        self.rival |= waited;
    }

    /// Takes note of the count of other connections' commits.
    pub(super) fn saw_version(&mut self, version: i64) {
        self.rival |= self.version.is_some_and(|known| known != version);
        self.version = Some(version);
    }
}
