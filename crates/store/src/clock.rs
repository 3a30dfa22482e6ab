//! The clocks that a ledger is handed, and the ledger's own time, which never runs backwards.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use counterfoil_core::time::Timestamp;

use crate::retention::clock::Reading;

/// Wall and boot time. Production uses [`SystemClock`]; the fault lab hands in fixed ones.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The wall clock. It may jump in either direction.
    fn wall(&self) -> Timestamp;

    /// Time since an arbitrary point before the process began, suspended time included. It only
    /// grows.
    fn since_boot(&self) -> Duration;

    /// Names the point that [`since_boot`](Self::since_boot) counts from, so that another process
    /// knows whether it counts from the same one. `None`: that cannot be known.
    fn boot(&self) -> Option<[u8; 16]> {
        None
    }
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
    }

    fn since_boot(&self) -> Duration {
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let now = rustix::time::clock_gettime(id);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    #[cfg(target_os = "linux")]
    fn boot(&self) -> Option<[u8; 16]> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        uuid::Uuid::parse_str(text.trim()).ok().map(uuid::Uuid::into_bytes)
    }
}

/// The ledger's time: the wall clock, but never before the ledger's high-water mark plus the time
/// that really passed since that mark was read. A wall clock that was set forward and back
/// therefore stops nothing and turns no finished deadline into a future one.
#[derive(Debug)]
pub struct LedgerClock<'a> {
    clock: &'a dyn Clock,
    high_water: Timestamp,
    read_at: Duration,
}

impl<'a> LedgerClock<'a> {
    /// From the high-water mark that the ledger holds, read just now.
    pub fn new(clock: &'a dyn Clock, high_water: Timestamp) -> Self {
        Self { clock, high_water, read_at: clock.since_boot() }
    }

    /// From a mark that was read when the boot-time clock stood at `read_at`.
    pub fn resume(clock: &'a dyn Clock, high_water: Timestamp, read_at: Duration) -> Self {
        Self { clock, high_water, read_at }
    }

    /// The ledger's time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let passed = self.clock.since_boot().saturating_sub(self.read_at);
        self.clock.wall().max(self.high_water.plus(passed))
    }
}

/// What a process knows of its ledger's times: the highest mark and the horizon, for those who write
/// and those who only read.
#[derive(Debug)]
pub(crate) struct SharedMark {
    clock: Arc<dyn Clock>,
    /// The mark, and where the boot-time clock stood when it was read.
    known: Mutex<(Timestamp, Duration)>,
    horizon_ms: AtomicI64,
    boot: [u8; 16],
    /// What the clocks showed when the ledger was opened.
    opened: Reading,
}

impl SharedMark {
    pub(crate) fn new(clock: Arc<dyn Clock>, high_water: Timestamp, horizon: Timestamp) -> Self {
        let since_boot = clock.since_boot();
        // Without a name of the boot, this opening is one of its own.
        let boot = clock.boot().unwrap_or_else(|| {
            let mut own = [0; 16];
            getrandom::fill(&mut own)
                .expect("the system has randomness; without it nothing is safe");
            own
        });
        let wall = clock.wall();
        let opened = Reading { ledger: wall.max(high_water), wall, since_boot, boot };
        let horizon_ms = AtomicI64::new(horizon.as_ms());
        Self { clock, known: Mutex::new((high_water, since_boot)), horizon_ms, boot, opened }
    }

    /// All clocks now, and as they were when the ledger was opened.
    pub(crate) fn readings(&self) -> (Reading, Reading) {
        let since_boot = self.clock.since_boot();
        let (wall, ledger) = (self.clock.wall(), self.now());
        (Reading { ledger, wall, since_boot, boot: self.boot }, self.opened)
    }

    /// Takes note of the ledger's horizon.
    pub(crate) fn set_horizon(&self, horizon: Timestamp) {
        self.horizon_ms.store(horizon.as_ms(), Ordering::Relaxed);
    }

    /// The horizon as it was last read.
    pub(crate) fn horizon(&self) -> Timestamp {
        Timestamp::from_ms(self.horizon_ms.load(Ordering::Relaxed))
    }

    /// Takes note of a mark that was read or written just now.
    pub(crate) fn raise(&self, high_water: Timestamp) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let read_at = self.clock.since_boot();
        if high_water > known.0.plus(read_at.saturating_sub(known.1)) {
            *known = (high_water, read_at);
        }
    }

    /// The ledger's time now.
    pub(crate) fn now(&self) -> Timestamp {
        let (high_water, read_at) = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        LedgerClock::resume(&*self.clock, high_water, read_at).now()
    }
}
