//! Durable delivery, without IO: what a target promises, what an attempt came to, and where an item
//! of the outbox goes next. The store runs [`step`] inside its transaction; the worker only
//! reports what it saw.
//!
//! An item belongs to one operation. It may be sent while every earlier attempt is *proved* not to
//! have taken effect, or while the target's contract makes a repeat harmless. Everything else waits
//! for evidence: a look at the target, or an operator.

mod answer;
mod breaker;
mod contract;
mod draft;
mod event;
mod item;
mod outcome;
mod step;
mod target;

pub use answer::{AnswerSeen, Declared, Proof, judge};
pub use breaker::{Breaker, BreakerGate, BreakerLimits};
pub use contract::{Contract, InvalidTerms, Terms, WireTerms};
pub use event::{Alarm, Change, Event, IllegalStep, TargetChange};
pub use item::{ALL_STATES, Delivery, Ended, Lease, ParkReason, State, Withdrawal, Work};
pub use outcome::{ErrorClass, LookupEnd, SendEnd, Then};
pub use step::step;
pub use target::{Gate, Parked, Paused, TargetName, TargetState};
