//! One target as this process presses it: its slots, its rate, its circuit breaker. It outlives its
//! loop, which may be started again, and the requests under way.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use counterfoil_core::delivery::{
    Breaker, BreakerGate, BreakerLimits, ErrorClass, LookupEnd, SendEnd, TargetName,
};
use counterfoil_store::UnderWay;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::bucket::Bucket;
use super::last_sends::LastSends;
use super::numbers::{BreakerState, TargetNumbers};
use super::reporter::Note;
use crate::target::{Target, TargetLimits};
use crate::wakes::Bell;

/// Reports that may wait for the ledger before no more is claimed: the target's concurrency, but
/// not less than this.
const LEAST_BACKLOG_COUNT: usize = 64;
/// After an item came back because the ledger was too slow, the loop rests.
const REST: Duration = Duration::from_secs(1);

/// One target.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) target: Arc<dyn Target>,
    pub(super) name: TargetName,
    pub(super) limits: TargetLimits,
    /// From the call that makes it: a whole request, and some time before its first byte.
    pub(super) lease: Duration,
    pub(super) bell: Arc<Bell>,
    pub(super) numbers: Arc<TargetNumbers>,
    /// The items of all targets that this process has in its hands.
    pub(super) under_way: UnderWay,
    pub(super) last_sends: LastSends,
    pub(super) reports: UnboundedSender<Note>,
    started: Instant,
    pressure: Mutex<Pressure>,
    unreported_count: AtomicUsize,
}

#[derive(Debug)]
struct Pressure {
    breaker: Breaker,
    bucket: Option<Bucket>,
    under_way_count: usize,
    rests_until: Option<Instant>,
}

/// Whether items may be claimed.
#[derive(Debug)]
pub(super) enum Grant {
    /// As many as there are slots.
    Start { slots: Slots, probe: bool },
    /// None before then.
    Until(Instant),
    /// None before something ends, which rings the bell.
    Busy,
}

impl Lane {
    pub(super) fn new(
        target: Arc<dyn Target>,
        limits: TargetLimits,
        margin: Duration,
        (bell, numbers, under_way): (Arc<Bell>, Arc<TargetNumbers>, UnderWay),
        reports: UnboundedSender<Note>,
    ) -> Self {
        let (open_base, open_cap) = limits.breaker_open;
        let breaker = Breaker::new(BreakerLimits {
            failures_count: limits.breaker_failures_count,
            open_base,
            open_cap,
        });
        let bucket = limits.rate_per_s.map(|rate| Bucket::new(rate, Duration::ZERO));
        let (under_way_count, rests_until) = (0, None);
        Self {
            name: target.name().clone(),
            target,
            limits,
            lease: limits.send_limit + margin,
            bell,
            numbers,
            under_way,
            last_sends: LastSends::default(),
            reports,
            started: Instant::now(),
            pressure: Mutex::new(Pressure { breaker, bucket, under_way_count, rests_until }),
            unreported_count: AtomicUsize::new(0),
        }
    }

    /// Takes as many slots as may be filled now.
    pub(super) fn grant(self: &Arc<Self>) -> Grant {
        let now = self.started.elapsed();
        let mut pressure = self.pressure();
        if let Some(until) = pressure.rests_until.filter(|until| *until > Instant::now()) {
            return Grant::Until(until);
        }
        let free = self.limits.concurrency_count.saturating_sub(pressure.under_way_count);
        if free == 0 || self.is_backed_up() {
            return Grant::Busy;
        }
        let (most, probe) = match pressure.breaker.gate(now) {
            BreakerGate::Closed => (free, false),
            BreakerGate::Probe => (1, true),
            BreakerGate::Open { until } => return Grant::Until(self.started + until),
        };
        let count = match &mut pressure.bucket {
            None => most,
            Some(bucket) => {
                let count = bucket.available(now).min(most);
                if count == 0 {
                    return Grant::Until(self.started + bucket.ready_at());
                }
                bucket.take(count);
                count
            }
        };
        pressure.under_way_count += count;
        Grant::Start { slots: Slots { lane: Arc::clone(self), count }, probe }
    }

    /// The one item that tries an open breaker is on its way.
    pub(super) fn begin_probe(&self) {
        let now = self.started.elapsed();
        self.pressure().breaker.begin_probe(now);
    }

    /// Whether nothing but a probe may be sent now.
    pub(super) fn is_open(&self) -> bool {
        self.pressure().breaker.is_open()
    }

    /// Nothing is claimed for a moment.
    pub(super) fn rest(&self) {
        self.pressure().rests_until = Some(Instant::now() + REST);
    }

    /// What a request tells of the destination.
    pub(super) fn learn(&self, end: &SendEnd) {
        match end {
            SendEnd::NotApplied { class: ErrorClass::Local, .. }
            | SendEnd::Unknown { class: ErrorClass::Local, .. } => {}
            SendEnd::NotApplied { class, .. } | SendEnd::Unknown { class, .. }
                if class.is_destination_down() =>
            {
                self.is_down();
            }
            SendEnd::Applied { .. } | SendEnd::NotApplied { .. } | SendEnd::Unknown { .. } => {
                self.is_up();
            }
        }
    }

    /// What a search tells of the destination. One that failed says too little to count.
    pub(super) fn learn_lookup(&self, end: &LookupEnd) {
        if !matches!(end, LookupEnd::Open { .. }) {
            self.is_up();
        }
    }

    fn is_down(&self) {
        let now = self.started.elapsed();
        if self.pressure().breaker.on_failure(now) {
            self.numbers.show_breaker(BreakerState::Open);
            tracing::warn!(
                target_name = %self.name,
                "the target fails again and again: nothing is sent to it but one item now and then"
            );
        }
        self.bell.ring();
    }

    fn is_up(&self) {
        let mut pressure = self.pressure();
        let was_open = pressure.breaker.is_open();
        pressure.breaker.on_success();
        drop(pressure);
        if was_open {
            self.numbers.show_breaker(BreakerState::Closed);
            tracing::info!(target_name = %self.name, "the target answers again");
            self.bell.ring();
        }
    }

    /// A report is on its way to the ledger.
    pub(super) fn report_begun(&self) {
        self.unreported_count.fetch_add(1, Ordering::AcqRel);
    }

    /// A report is in the ledger, or never will be.
    pub(super) fn report_ended(&self) {
        if self.unreported_count.fetch_sub(1, Ordering::AcqRel) >= self.most_unreported_count() {
            self.bell.ring();
        }
    }

    fn is_backed_up(&self) -> bool {
        self.unreported_count.load(Ordering::Acquire) >= self.most_unreported_count()
    }

    fn most_unreported_count(&self) -> usize {
        self.limits.concurrency_count.max(LEAST_BACKLOG_COUNT)
    }

    fn pressure(&self) -> MutexGuard<'_, Pressure> {
        self.pressure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Slots that a claim may fill. What is not filled goes back.
#[derive(Debug)]
pub(super) struct Slots {
    lane: Arc<Lane>,
    count: usize,
}

impl Slots {
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// A slot for one claimed item.
    pub(super) fn take_one(&mut self) -> Slot {
        // A claim never gives more than was asked for; if it did, the item would still need one.
        match self.count.checked_sub(1) {
            Some(rest) => self.count = rest,
            None => self.lane.pressure().under_way_count += 1,
        }
        Slot { lane: Arc::clone(&self.lane) }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if self.count > 0 {
            let mut pressure = self.lane.pressure();
            pressure.under_way_count -= self.count;
            if let Some(bucket) = &mut pressure.bucket {
                bucket.put_back(self.count);
            }
            drop(pressure);
            // The loop may have found no room meanwhile, and waits for some.
            self.lane.bell.ring();
        }
    }
}

/// The place of one item under way.
#[derive(Debug)]
pub(super) struct Slot {
    lane: Arc<Lane>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.lane.pressure().under_way_count -= 1;
        self.lane.bell.ring();
    }
}
