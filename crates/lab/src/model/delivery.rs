//! The model of deliveries: one operation, two workers, one target. Requests and answers get lost,
//! come late, or come to a worker that has lost the item; leases end; workers die; an operator does
//! what operators can do. Every decision is the product's own.

mod actions;
mod desk;
mod item;
mod judge;
mod ledger;
mod shown;
mod store_walk;
mod target;
mod twin;

use std::time::Duration;

use counterfoil_core::delivery::{Contract, State, Terms};
use counterfoil_core::operation::{self, Event};
use stateright::{Model, Property};

pub use desk::{Action, Desk, Left, Order};
use desk::{MOST_SENDS, Worker};
use item::{Mould, Tick, ticks};
use shown::Shown;
pub use store_walk::{WalkClock, walk};
pub use twin::Twin;

use crate::model::rules::{Broken, Rule};

/// What the target of a model promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Promise {
    /// It remembers keys for 6 ticks; leases are of 2.
    Key,
    /// It remembers keys for 4 ticks; leases are of 3, longer than the product's own margin.
    KeyShort,
    /// It can be searched, and absence is proved after 2 ticks.
    Lookup,
    /// It can be searched, and absence is never proved.
    LookupOpen,
    /// Both.
    KeyAndLookup,
    /// Neither.
    Never,
    /// Neither, and doubles are accepted.
    AtLeastOnce,
}

/// A request may still be done so long after its sender gave up.
const DELAY: Tick = 1;
/// The target's search may miss an effect for so long.
const LAG: Tick = 1;
/// From the first byte of a request to the last of its answer.
const SEND_LIMIT: Tick = 1;

impl Promise {
    /// Every promise.
    pub const ALL: [Self; 7] = [
        Self::Key,
        Self::KeyShort,
        Self::Lookup,
        Self::LookupOpen,
        Self::KeyAndLookup,
        Self::Never,
        Self::AtLeastOnce,
    ];

    /// The name of its model.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "delivery, key",
            Self::KeyShort => "delivery, key of a short life",
            Self::Lookup => "delivery, lookup",
            Self::LookupOpen => "delivery, lookup without proof",
            Self::KeyAndLookup => "delivery, key+lookup",
            Self::Never => "delivery, never",
            Self::AtLeastOnce => "delivery, at_least_once",
        }
    }

    /// How long the target remembers a key.
    const fn lifetime(self, pace: Pace) -> Option<Tick> {
        match self {
            Self::Key | Self::KeyShort | Self::KeyAndLookup if matches!(pace, Pace::Returns) => {
                Some(30)
            }
            Self::Key | Self::KeyAndLookup => Some(6),
            Self::KeyShort => Some(4),
            _ => None,
        }
    }

    const fn lease(self) -> Tick {
        if matches!(self, Self::KeyShort) { 3 } else { 2 }
    }

    /// From this long after its sender gave up nothing is done any more. With the short key there is
    /// no time between the end of the lease and the end of the key, so it must be done before.
    const fn grace(self) -> Tick {
        if matches!(self, Self::KeyShort) { 0 } else { DELAY + 1 }
    }

    fn contract(self, pace: Pace) -> Contract {
        let lifetime = self.lifetime(pace).map_or(Duration::ZERO, ticks);
        let absence_after = Some(ticks(DELAY + LAG));
        match self {
            Self::Key | Self::KeyShort => Contract::Key { lifetime },
            Self::Lookup => Contract::Lookup { absence_after },
            Self::LookupOpen => Contract::Lookup { absence_after: None },
            Self::KeyAndLookup => Contract::KeyAndLookup { lifetime, absence_after },
            Self::Never => Contract::Never,
            Self::AtLeastOnce => Contract::AtLeastOnce,
        }
    }
}

/// How far a model goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The last tick.
    pub horizon: u8,
    /// Attempts until an item is a dead letter.
    pub attempts: u8,
    /// What may go wrong, and what people may do.
    pub left: Left,
    /// Who waits for what.
    pub pace: Pace,
}

/// Who waits for what: what must happen in the end can be asked only of those who do their part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Anybody may wait with anything for ever.
    Free,
    /// Time passes only when there is nothing else to do.
    Prompt,
    /// The same with a target that fails a few times, refuses nothing for good, and remembers keys
    /// for longer than that lasts.
    Returns,
}

impl Pace {
    const fn is_prompt(self) -> bool {
        !matches!(self, Self::Free)
    }
}

/// The model.
#[derive(Debug, Clone)]
pub struct DeliveryModel {
    promise: Promise,
    bounds: Bounds,
    twin: Option<Twin>,
    mould: Mould,
    shown: shown::Table,
}

impl DeliveryModel {
    /// The product's decisions within those bounds, or one of their broken twins.
    #[must_use]
    pub fn new(promise: Promise, bounds: Bounds, twin: Option<Twin>) -> Self {
        let pause = Duration::from_millis(1);
        let terms = Terms {
            contract: promise.contract(bounds.pace),
            max_attempts_count: u32::from(bounds.attempts),
            backoff_base: pause,
            backoff_cap: pause,
            send_limit: ticks(SEND_LIMIT),
            deliver_within: None,
        };
        let terms = match (twin, terms.check()) {
            (_, Err(error)) => panic!("the model's terms are good ones: {error}"),
            (Some(Twin::KeyForEver), Ok(terms)) => {
                Terms { contract: Contract::Key { lifetime: ticks(200) }, ..terms }
            }
            (Some(Twin::RetriesUnknown), Ok(terms)) => {
                Terms { contract: Contract::AtLeastOnce, ..terms }
            }
            (_, Ok(terms)) => terms,
        };
        let mould = Mould::new(terms);
        let shown = shown::Table::new(&mould);
        Self { promise, bounds, twin, mould, shown }
    }

    /// How long the target remembers a key, if it does.
    const fn lifetime(&self) -> Option<Tick> {
        self.promise.lifetime(self.bounds.pace)
    }

    fn is(&self, twin: Twin) -> bool {
        self.twin == Some(twin)
    }

    fn start(&self) -> Desk {
        Desk {
            now: 0,
            item: self.mould.accepted(),
            operation: operation::step(None, Event::Accept).expect("an operation begins").to(),
            word: None,
            revoked: false,
            workers: [Worker::Idle; 2],
            sends: [None; MOST_SENDS],
            effects: 0,
            unindexed: None,
            key_seen: None,
            left: self.bounds.left,
            evidence: false,
            told: None,
            broken: Broken::default(),
        }
    }

    /// What a status tells of it now.
    fn shown(&self, desk: &Desk) -> Shown {
        let mut shown = self.shown.of(desk);
        match self.twin {
            Some(Twin::UnfinishedIsNotApplied) if !desk.operation.is_terminal() => {
                shown.state = counterfoil_core::observation::ObservedState::NotApplied;
            }
            Some(Twin::TellsBeforeOutcome) if desk.item.state == State::Sending => {
                shown.state = counterfoil_core::observation::ObservedState::Applied;
            }
            Some(Twin::StatusGrants) if !desk.operation.is_terminal() => shown.grants = true,
            _ => {}
        }
        shown
    }

    /// Whether nothing can happen any more.
    fn is_over(&self, desk: &Desk) -> bool {
        self.next_states(desk).is_empty()
    }

    /// Whether an end is one that may be left: settled, in doubt, or with an operator.
    fn ends_well(desk: &Desk) -> bool {
        desk.operation.is_terminal()
            || matches!(desk.item.state, State::InDoubt | State::DeadLetter | State::Parked)
    }
}

/// The properties that must always hold, one for each rule.
macro_rules! always {
    ($($rule:ident),* $(,)?) => {
        vec![$(Property::always(
            Rule::$rule.as_str(),
            |_: &DeliveryModel, desk: &Desk| !desk.broken.has(Rule::$rule),
        )),*]
    };
}

impl Model for DeliveryModel {
    type State = Desk;
    type Action = Action;

    fn init_states(&self) -> Vec<Desk> {
        vec![self.start()]
    }

    fn actions(&self, desk: &Desk, actions: &mut Vec<Action>) {
        self.list(desk, actions);
    }

    fn next_state(&self, last: &Desk, action: Action) -> Option<Desk> {
        let mut desk = *last;
        self.act(&mut desk, action);
        self.age(&mut desk);
        self.judge(last, &mut desk);
        self.tidy(&mut desk);
        (desk != *last).then_some(desk)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = always![
            OneEffect,
            NothingLost,
            StaysSettled,
            NotAppliedIsTrue,
            UnsettledIsUnknown,
            NothingGrants,
            StaleCompletesNothing,
            DeadLetterIsOpen,
            EndedStaysEnded,
            KeyWithinLifetime,
            RecordedBeforeSent,
            RevokedNotSent,
            RecordAgrees,
        ];
        if self.bounds.pace.is_prompt() {
            properties.push(Property::always(ENDS, |model, desk| {
                !model.is_over(desk) || Self::ends_well(desk)
            }));
            let may_repeat = !matches!(self.promise, Promise::Never | Promise::LookupOpen);
            if self.bounds.pace == Pace::Returns && may_repeat {
                properties.push(Property::always(DELIVERED, |model, desk| {
                    !model.is_over(desk) || desk.item.state == State::Delivered
                }));
            }
        } else if self.twin.is_none() {
            properties.extend(self.reached());
        }
        properties
    }
}

/// What every path of a bounded model ends in.
pub const ENDS: &str = "every operation ends settled, in doubt or with an operator";
/// What every path ends in where the target comes back.
pub const DELIVERED: &str = "an item whose target comes back ends delivered";

impl DeliveryModel {
    /// What must be reached somewhere: else the rules hold for want of anything happening.
    fn reached(&self) -> Vec<Property<Self>> {
        let sometimes = Property::<Self>::sometimes;
        let mut reached = vec![
            sometimes("reaches delivered", |_, desk| desk.item.state == State::Delivered),
            sometimes("reaches dead_letter", |_, desk| desk.item.state == State::DeadLetter),
            sometimes("reaches a second attempt", |_, desk| desk.item.attempts > 1),
        ];
        if self.bounds.left.orders > 0 {
            reached.extend([
                sometimes("reaches parked", |_, desk| desk.item.state == State::Parked),
                sometimes("reaches cancelled", |_, desk| desk.item.state == State::Cancelled),
                sometimes("reaches a redrive", |model, desk| {
                    let is_raised = desk.item.limit > model.bounds.attempts;
                    is_raised && desk.item.state == State::Sending
                }),
                sometimes("reaches a late contradiction", |_, desk| desk.item.contradicted),
            ]);
        }
        if self.promise != Promise::AtLeastOnce {
            let in_doubt = |_: &Self, desk: &Desk| desk.item.state == State::InDoubt;
            reached.push(sometimes("reaches in_doubt", in_doubt));
        } else {
            reached.push(sometimes("reaches a second effect", |_, desk| desk.effects > 1));
        }
        if matches!(self.promise, Promise::Lookup | Promise::KeyAndLookup) {
            reached.push(sometimes("reaches a proof of absence", |_, desk| {
                desk.item.lookups > 0 && desk.item.unknown == 0
            }));
        }
        reached
    }
}
