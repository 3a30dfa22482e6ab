//! The model of calls: one operation with a local effect, a server that dies before its commit or
//! between commit and reply, two clients that retry as it is or changed, the three clocks of a
//! continuation, and an operator. Every decision is the product's own.

mod actions;
mod cast;
mod clients;
mod desk;
mod judge;
mod ledger;
mod twin;

use counterfoil_core::observation::ObservedState;
use stateright::{Model, Property};

use cast::Cast;
pub use desk::{Action, Desk, Left, World};
use desk::{Client, Other, Phase};
pub use twin::Twin;

use crate::model::rules::{Broken, Rule};

/// How far the model goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The last tick.
    pub horizon: u8,
    /// What may go wrong, and what people may do.
    pub left: Left,
    /// Whether nothing is asked for but that all come to an end.
    pub prompt: bool,
}

/// The model.
#[derive(Debug, Clone)]
pub struct CallModel {
    bounds: Bounds,
    twin: Option<Twin>,
    cast: Cast,
}

impl CallModel {
    /// The product's decisions within those bounds, or one of their broken twins.
    #[must_use]
    pub fn new(bounds: Bounds, twin: Option<Twin>) -> Self {
        Self { bounds, twin, cast: Cast::new(bounds.horizon) }
    }

    fn is(&self, twin: Twin) -> bool {
        self.twin == Some(twin)
    }

    fn start(&self, world: World) -> Desk {
        let client = Client { phase: Phase::Idle, sent: [false; 2], reply: None };
        Desk {
            world,
            now: 0,
            record: None,
            has_row: false,
            made: 0,
            is_forgotten: false,
            has_horizon: false,
            has_expired: false,
            open: None,
            rest: None,
            issued: [[Some(0), None]; 2],
            clients: [client; 2],
            left: self.bounds.left,
            told: None,
            broken: Broken::default(),
        }
    }
}

/// Forgets what can make no difference any more, so that states that behave alike are equal.
fn tidy(desk: &mut Desk) {
    let now = desk.now;
    if let Some(rec) = &mut desk.record {
        rec.lease_until = if rec.lease_until <= now { 0 } else { rec.lease_until };
        if rec.state.is_terminal() {
            (rec.fence, rec.lease_until) = (0, 0);
        }
    }
}

/// The properties that must always hold, one for each rule.
macro_rules! always {
    ($($rule:ident),* $(,)?) => {
        vec![$(Property::always(
            Rule::$rule.as_str(),
            |_: &CallModel, desk: &Desk| !desk.broken.has(Rule::$rule),
        )),*]
    };
}

impl Model for CallModel {
    type State = Desk;
    type Action = Action;

    fn init_states(&self) -> Vec<Desk> {
        let mut worlds = Vec::new();
        for other in [Other::Same, Other::Changed, Other::Stranger] {
            for (has_two_steps, is_timed) in [(false, false), (true, false), (false, true)] {
                worlds.push(self.start(World { has_two_steps, other, is_timed }));
            }
        }
        worlds
    }

    fn actions(&self, desk: &Desk, actions: &mut Vec<Action>) {
        self.list(desk, actions);
    }

    fn next_state(&self, last: &Desk, action: Action) -> Option<Desk> {
        let mut desk = *last;
        self.act(&mut desk, action);
        self.judge(last, &mut desk);
        tidy(&mut desk);
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
            RecordAgrees,
            CommittedTogether,
            ChangedConflicts,
            AuthorityEnds,
            ExpiredIsNoWork,
        ];
        if self.bounds.prompt {
            properties.push(Property::always(ENDS, |model, desk| {
                !model.next_states(desk).is_empty() || Self::ends_well(desk)
            }));
        } else if self.twin.is_none() {
            properties.extend(self.reached());
        }
        properties
    }
}

/// What every path of a bounded model ends in.
pub const ENDS: &str = "every operation ends settled, and nobody waits for ever";

impl CallModel {
    /// Whether an end is one that may be left.
    fn ends_well(desk: &Desk) -> bool {
        let is_settled = desk.record.is_none_or(|record| record.state.is_terminal());
        let is_free = desk.open.is_none() && desk.rest.is_none();
        let no_one_waits = desk.clients.iter().all(|client| client.phase != Phase::Waits);
        is_settled && is_free && no_one_waits
    }

    /// What must be reached somewhere: else the rules hold for want of anything happening.
    fn reached(&self) -> Vec<Property<Self>> {
        let sometimes = Property::<Self>::sometimes;
        let mut reached = vec![
            sometimes("reaches applied", |_, desk| knows(desk, ObservedState::Applied)),
            sometimes("reaches partial", |_, desk| knows(desk, ObservedState::Partial)),
            sometimes("reaches not_applied", |_, desk| knows(desk, ObservedState::NotApplied)),
            sometimes("reaches a refusal", |_, desk| {
                desk.clients.iter().any(|client| client.phase == Phase::Refused)
            }),
            sometimes("reaches the end of retention", |_, desk| desk.has_expired),
            sometimes("reaches a purged result", |_, desk| {
                desk.record.is_some_and(|record| record.is_purged)
            }),
            sometimes("reaches a forgotten identity", |_, desk| desk.is_forgotten),
            sometimes("reaches a second continuation of one operation", |_, desk| {
                desk.issued[0][1].is_some() && desk.record.is_some()
            }),
        ];
        if self.bounds.left.orders > 0 {
            reached.push(sometimes("reaches an operator's word", |_, desk| {
                desk.record.is_some_and(|record| record.word.is_some())
            }));
        }
        if self.bounds.left.crashes > 0 {
            reached.push(sometimes("reaches applied in spite of every crash", |_, desk| {
                let knows = Phase::Knows(ObservedState::Applied);
                desk.left.crashes == 0 && desk.clients.iter().all(|client| client.phase == knows)
            }));
        }
        reached
    }
}

fn knows(desk: &Desk, state: ObservedState) -> bool {
    desk.clients.iter().any(|client| client.phase == Phase::Knows(state))
}
