//! A clock that only moves when it is told to.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use counterfoil_core::time::Timestamp;
use counterfoil_store::Clock;

/// Where the wall clock stands when a test begins: 2026-06-01T00:00:00Z.
pub const START_MS: i64 = 1_780_272_000_000;

#[derive(Debug)]
pub struct TestClock {
    wall_ms: AtomicI64,
    boot_ms: AtomicU64,
    boots: AtomicU64,
}

impl TestClock {
    pub fn new() -> Self {
        Self {
            wall_ms: AtomicI64::new(START_MS),
            boot_ms: AtomicU64::new(1_000_000),
            boots: AtomicU64::new(1),
        }
    }

    /// Lets real time pass: both clocks move.
    pub fn pass(&self, time: Duration) {
        let ms = time.as_millis() as u64;
        self.boot_ms.fetch_add(ms, Ordering::SeqCst);
        self.wall_ms.fetch_add(ms as i64, Ordering::SeqCst);
    }

    /// Sets the wall clock by some milliseconds, forward or back; no time passes.
    pub fn set_by_ms(&self, ms: i64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Switches the machine off for a time that its wall clock alone tells.
    pub fn switch_off(&self, time: Duration) {
        self.set_by_ms(time.as_millis() as i64);
        self.boot_ms.store(0, Ordering::SeqCst);
        self.boots.fetch_add(1, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_ms(self.wall_ms.load(Ordering::SeqCst))
    }

    fn since_boot(&self) -> Duration {
        Duration::from_millis(self.boot_ms.load(Ordering::SeqCst))
    }

    fn boot(&self) -> Option<[u8; 16]> {
        Some([self.boots.load(Ordering::SeqCst) as u8; 16])
    }
}
