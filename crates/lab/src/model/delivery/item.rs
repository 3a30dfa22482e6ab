//! One item of the outbox as the model keeps it: small enough to have millions of them, and turned
//! back into the product's own [`Delivery`] for every step.

use std::time::Duration;

use counterfoil_core::delivery::{
    Change, Delivery, Ended, Event, IllegalStep, Lease, ParkReason, State, TargetName, Terms, step,
};
use counterfoil_core::identity::{BootId, OperationKey};
use counterfoil_core::time::Timestamp;

/// A moment, in ticks of a second.
pub(super) type Tick = u8;

/// The moment as the product's clocks have it.
pub(super) fn at(tick: Tick) -> Timestamp {
    Timestamp::from_ms(i64::from(tick) * 1000)
}

/// That many ticks.
pub(super) const fn ticks(count: u8) -> Duration {
    Duration::from_secs(count as u64)
}

/// The tick at which a moment has come. The product's pauses are of a millisecond here, so what is
/// due within a tick is due at the next.
fn tick_of(moment: Timestamp) -> Tick {
    u8::try_from((moment.as_ms() + 999) / 1000).expect("the model's times are some ticks")
}

/// Who holds an item: a worker, until a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) worker: u8,
    pub(super) until: Tick,
}

/// One item. What is left out decides nothing: its key, its target, words, and times of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) state: State,
    pub(super) fence: u8,
    pub(super) lease: Option<Held>,
    pub(super) attempts: u8,
    pub(super) limit: u8,
    pub(super) unknown: u8,
    pub(super) lookups: u8,
    pub(super) first: Option<Tick>,
    pub(super) last_until: Option<Tick>,
    pub(super) due: Option<Tick>,
    pub(super) park: Option<ParkReason>,
    pub(super) ended: Option<Ended>,
    pub(super) contradicted: bool,
}

/// What every item of a model has in common.
#[derive(Debug, Clone)]
pub(super) struct Mould {
    key: OperationKey,
    target: TargetName,
    pub(super) terms: Terms,
}

impl Mould {
    pub(super) fn new(terms: Terms) -> Self {
        Self {
            key: OperationKey::from_bytes([7; 16]),
            target: TargetName::parse("desk").expect("four lower-case letters are a name"),
            terms,
        }
    }

    /// The item as it is accepted at tick 0.
    pub(super) fn accepted(&self) -> Item {
        let item = Delivery::accepted(self.key, self.target.clone(), self.terms, at(0));
        press(&item)
    }

    /// The product's own item.
    pub(super) fn cast(&self, item: &Item) -> Delivery {
        Delivery {
            key: self.key,
            target: self.target.clone(),
            terms: self.terms,
            state: item.state,
            fence: i64::from(item.fence),
            lease: item.lease.map(|held| Lease {
                boot: boot(held.worker),
                until: at(held.until),
                probe: false,
            }),
            attempts_count: u32::from(item.attempts),
            attempt_limit: u32::from(item.limit),
            unknown_count: u32::from(item.unknown),
            lookups_count: u32::from(item.lookups),
            first_dispatch_at: item.first.map(at),
            last_send_until: item.last_until.map(at),
            next_attempt_at: item.due.map(at),
            deliver_by: None,
            last_error: None,
            park: item.park,
            external_id: None,
            ended: item.ended,
            late_contradiction: item.contradicted,
            created_at: at(0),
            updated_at: at(0),
        }
    }

    /// Runs the product's own step, and gives the item as it becomes.
    pub(super) fn step(
        &self,
        item: &Item,
        event: Event,
        now: Tick,
    ) -> Result<(Item, Change), IllegalStep> {
        let change = step(&self.cast(item), event, at(now))?;
        Ok((press(&change.delivery), change))
    }
}

/// The run of a worker.
pub(super) const fn boot(worker: u8) -> BootId {
    BootId::from_bytes([worker + 1; 16])
}

/// What is kept of the product's item.
pub(super) fn press(item: &Delivery) -> Item {
    let small = |count: u32| u8::try_from(count).expect("the model's counts are small");
    Item {
        state: item.state,
        fence: u8::try_from(item.fence).expect("the model's claims are few"),
        lease: item.lease.map(|lease| Held {
            worker: lease.boot.as_bytes()[0] - 1,
            until: tick_of(lease.until),
        }),
        attempts: small(item.attempts_count),
        limit: small(item.attempt_limit),
        unknown: small(item.unknown_count),
        lookups: small(item.lookups_count),
        first: item.first_dispatch_at.map(tick_of),
        last_until: item.last_send_until.map(tick_of),
        due: item.next_attempt_at.map(tick_of),
        park: item.park,
        ended: item.ended,
        contradicted: item.late_contradiction,
    }
}
