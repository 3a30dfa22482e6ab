//! What a report, a lookup or the end of a lease makes of a direct operation.

use std::time::Duration;

use crate::direct::{Direct, Meaning};
use crate::operation::{Event, IllegalTransition, Outcome, Phase, State, Transition, step};
use crate::record::Record;
use crate::time::Timestamp;

/// An identity that was taken and for which nothing was sent is settled as not applied after this
/// time, by whichever process comes by.
pub const UNSENT_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// What the sender of a request saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// An answer, and what it means.
    Answer(Meaning),
    /// Not one byte left, and none will. The same ID may be sent again.
    NotSent,
    /// Not one byte left, and the caller took the call back: it is over.
    Withdrawn,
    /// It may have arrived, and no answer will come.
    Lost,
}

/// How a look at the upstream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupEnd {
    /// The effect is there.
    Found,
    /// It is not, by a complete answer about a marker that we put into the effect.
    Absent {
        /// When the look began.
        began: Timestamp,
        /// How long after the last send an absence proves anything.
        absence_after: Duration,
    },
}

/// What is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A step of the state machine. Where the answer is kept is up to its meaning.
    Step(Transition),
    /// The latest request was handed back: the operation waits for it again, as it did before.
    BackToAsked,
    /// The upstream says that it did what is settled as not applied: an alarm, and no step.
    LateContradiction,
    /// Nothing: whoever reports holds the operation no more, and has no evidence.
    Nothing,
}

/// Decides on the report of a sender; `holds` says whether its run and fence still own the operation.
///
/// # Errors
/// [`IllegalTransition`] if a holder reports what its operation's state has no room for.
pub fn report(
    record: &Record,
    item: &Direct,
    holds: bool,
    leg: u32,
    report: Report,
) -> Result<Change, IllegalTransition> {
    let from = record.state;
    let dispatched = from == State::InProgress(Phase::Dispatched);
    if holds && (dispatched || from == State::InProgress(Phase::Claimed)) {
        let event = match report {
            Report::Answer(Meaning::Applied) => Event::Learn(Outcome::Applied),
            Report::Answer(Meaning::NotApplied) => Event::Learn(Outcome::NotApplied),
            Report::Answer(Meaning::Answered) => Event::Answer,
            Report::Answer(Meaning::Asks) => Event::Ask,
            Report::Answer(Meaning::Unknown) | Report::Lost => Event::Learn(Outcome::Unknown),
            Report::NotSent | Report::Withdrawn if leg > 1 => return Ok(Change::BackToAsked),
            Report::NotSent if dispatched => Event::HandBack,
            Report::NotSent => Event::Lapse,
            Report::Withdrawn => Event::Learn(Outcome::NotApplied),
        };
        return step(Some(from), event).map(Change::Step);
    }
    Ok(late(from, item, report))
}

/// Whoever does not hold the operation any more changes nothing by what it does not know; evidence
/// settles what is not settled.
fn late(from: State, item: &Direct, report: Report) -> Change {
    let event = match report {
        Report::Answer(Meaning::Applied) if from == State::NotApplied => {
            return if item.late_contradiction {
                Change::Nothing
            } else {
                Change::LateContradiction
            };
        }
        Report::Answer(Meaning::Applied) => Event::Learn(Outcome::Applied),
        Report::Answer(Meaning::Answered) if from == State::InDoubt => Event::Answer,
        _ => return Change::Nothing,
    };
    step(Some(from), event).map_or(Change::Nothing, Change::Step)
}

/// Decides on what a look at the upstream found. Absence proves something only if the look began
/// long enough after the last possible send.
#[must_use]
pub fn look_up_ended(record: &Record, item: &Direct, end: LookupEnd) -> Change {
    if record.state != State::InDoubt {
        return Change::Nothing;
    }
    let outcome = match end {
        LookupEnd::Found => Outcome::Applied,
        LookupEnd::Absent { began, absence_after } => {
            let Some(last) = item.last_send_until else { return Change::Nothing };
            if item.leg > 1 || began < last.plus(absence_after) {
                return Change::Nothing;
            }
            Outcome::NotApplied
        }
    };
    step(Some(State::InDoubt), Event::Learn(outcome)).map_or(Change::Nothing, Change::Step)
}

/// Decides on an operation in progress whose owner's lease has ended.
#[must_use]
pub fn lapse(record: &Record, now: Timestamp) -> Change {
    if record.owner.is_none_or(|owner| now < owner.lease_until) {
        return Change::Nothing;
    }
    let event = match record.state {
        State::InProgress(Phase::Claimed) if now >= record.created_at.plus(UNSENT_LIMIT) => {
            Event::Learn(Outcome::NotApplied)
        }
        State::InProgress(Phase::Dispatched | Phase::AwaitingInput) => Event::Lapse,
        _ => return Change::Nothing,
    };
    step(Some(record.state), event).map_or(Change::Nothing, Change::Step)
}

/// Whether the account of an operation that is settled as not applied must say that it may have
/// happened.
#[must_use]
pub fn late_contradiction(record: &Record, item: &Direct) -> bool {
    record.state == State::NotApplied && item.late_contradiction
}
