//! Whether a call to a guarded tool may be sent, gets a kept answer, or is refused.

use crate::admission::{Admitted, LedgerTime, check_binding, check_fresh};
use crate::direct::Direct;
use crate::fingerprint::Fingerprint;
use crate::operation::{Phase, State};
use crate::record::{Binding, Nature, Record};
use crate::refusal::Refusal;

/// An operation has at most this many requests: an upstream that asks for input without end is
/// stopped there.
pub const LEG_LIMIT: u32 = 16;

/// Which request of an operation a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leg {
    /// The call itself.
    First,
    /// It brings answers to what the upstream asked; the number is at least 2.
    Later(u32),
}

impl Leg {
    /// The number, counted from 1.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::First => 1,
            Self::Later(number) => number,
        }
    }
}

/// What a call may do.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// There is no record: write it; then the request may be sent.
    Fresh,
    /// The identity was taken and nothing was sent, and its owner is gone: it goes on under this
    /// call.
    TakeUp,
    /// The next request of an operation whose upstream asked for input.
    Next,
    /// The same request was made before: give what it was answered with, or how it was settled.
    Replay {
        /// The request whose answer is meant.
        leg: u32,
    },
    /// Refused; nothing is written.
    Refuse(Refusal),
    /// The continuation fits nothing that this ledger asked for. What an earlier request did stays
    /// unknown.
    Unfit,
}

/// Decides on a call. `kept` is the record under its ID with what stands beside it; `leg_digest`
/// finds the fingerprint of an earlier request of that record. The order of the checks is that of
/// every call: principal, retention, fingerprint, authority, progress, replay.
#[must_use]
pub fn decide(
    call: &Admitted,
    leg: Leg,
    kept: Option<(&Record, &Direct)>,
    leg_digest: impl FnOnce(u32) -> Option<Fingerprint>,
    time: LedgerTime,
) -> Turn {
    let Some((record, item)) = kept else {
        return match (leg, check_fresh(call, time)) {
            (Leg::Later(_), _) => Turn::Unfit,
            (Leg::First, Ok(())) => Turn::Fresh,
            (Leg::First, Err(refusal)) => Turn::Refuse(refusal),
        };
    };
    let same =
        |made: &Binding, kept: &Binding| made.call == kept.call && made.profile == kept.profile;
    if let Err(refusal) = check_binding(call, record, time, same) {
        return Turn::Refuse(refusal);
    }
    if record.nature != Nature::Direct {
        return Turn::Refuse(Refusal::conflict(call.operation_id().clone()));
    }
    match leg {
        Leg::First => first(call, record, item, time),
        Leg::Later(number) => later(call, number, record, item, leg_digest),
    }
}

fn first(call: &Admitted, record: &Record, item: &Direct, time: LedgerTime) -> Turn {
    let id = || call.operation_id().clone();
    match record.state {
        State::InProgress(Phase::Claimed) => {
            let held = record.owner.is_some_and(|owner| time.now < owner.lease_until);
            if held { Turn::Refuse(Refusal::in_progress(id())) } else { Turn::TakeUp }
        }
        // Whoever comes back with the call alone is asked again what was asked then.
        State::InProgress(Phase::AwaitingInput) => Turn::Replay { leg: 1 },
        State::InProgress(_) if item.leg > 1 => Turn::Replay { leg: 1 },
        State::InProgress(_) => Turn::Refuse(Refusal::in_progress(id())),
        State::InDoubt => Turn::Refuse(Refusal::in_doubt(id())),
        State::Applied | State::Partial | State::NotApplied | State::Answered => {
            Turn::Replay { leg: item.leg }
        }
    }
}

fn later(
    call: &Admitted,
    number: u32,
    record: &Record,
    item: &Direct,
    leg_digest: impl FnOnce(u32) -> Option<Fingerprint>,
) -> Turn {
    let id = || call.operation_id().clone();
    let Ok(made) = call.binding_like(record) else { return Turn::Unfit };
    if number < 2 || number > item.leg + 1 {
        return Turn::Unfit;
    }
    if number == item.leg + 1 {
        return match record.state {
            State::InProgress(Phase::AwaitingInput) if number <= LEG_LIMIT => Turn::Next,
            State::InDoubt | State::InProgress(_) => Turn::Refuse(Refusal::in_doubt(id())),
            // It was settled without this request.
            State::Applied | State::Partial | State::NotApplied | State::Answered => {
                Turn::Replay { leg: item.leg }
            }
        };
    }
    let kept = if number == item.leg { Some(item.leg_digest) } else { leg_digest(number) };
    if kept != Some(made.full) {
        return Turn::Refuse(Refusal::conflict(id()));
    }
    if number < item.leg {
        return Turn::Replay { leg: number };
    }
    match record.state {
        State::InProgress(Phase::AwaitingInput) => Turn::Replay { leg: number },
        State::InProgress(_) => Turn::Refuse(Refusal::in_progress(id())),
        State::InDoubt => Turn::Refuse(Refusal::in_doubt(id())),
        State::Applied | State::Partial | State::NotApplied | State::Answered => {
            Turn::Replay { leg: item.leg }
        }
    }
}
