//! The operation state machine: one `(state, event)` match. An illegal pair is an error that names
//! both, and no state leads from a settled effect to another write.

/// Where an operation stands. `Applied`, `Partial` and `NotApplied` are terminal for writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Begun and not settled; the phase says what may already have happened.
    InProgress(Phase),
    /// The effect happened, whole.
    Applied,
    /// A part of the effect happened and stays visible; the rest did not.
    Partial,
    /// Proved not to have happened.
    NotApplied,
    /// It may have happened. Only a lookup or an operator settles it.
    InDoubt,
    /// It may have happened, and nothing waits for it: the upstream answered, with an error or with
    /// something else that does not say. Its answer is kept and ages.
    Answered,
}

/// What may already have happened to an operation in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing: the identity is taken, nothing was sent.
    Claimed,
    /// Perhaps the whole effect: the dispatch was recorded before its first byte.
    Dispatched,
    /// The first of several steps is committed.
    FirstCommit,
    /// An item of the outbox has the effect in hand; its delivery says what may have happened.
    Queued,
    /// Perhaps a part of the effect: the upstream asked for input in answer to what was sent.
    AwaitingInput,
}

/// What an attempt at a remote effect proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The effect happened.
    Applied,
    /// Definitely not: never sent, or refused before any effect.
    NotApplied,
    /// Nobody knows.
    Unknown,
}

/// What an operator says after looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The effect is there.
    Applied,
    /// The effect is not there and nothing will still make it.
    NotApplied,
}

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A local effect commits whole, with its record.
    Apply,
    /// The first step of a local effect commits, with its record.
    CommitFirst,
    /// The remaining steps are done.
    FinishWhole,
    /// A later step failed, and so did its compensation.
    FinishPartly,
    /// A later step failed, and its compensation took the first one back.
    Undo,
    /// The identity is taken for a direct effect that waits for its turn.
    Claim,
    /// A direct effect is about to be sent.
    Dispatch,
    /// The attempt, or a conclusive lookup, ended.
    Learn(Outcome),
    /// The upstream asked for input: another request of the same operation may follow.
    Ask,
    /// The upstream answered and did not say what became of the effect.
    Answer,
    /// What was recorded as about to be sent was not, not one byte of it.
    HandBack,
    /// The owner's lease ended without a result.
    Lapse,
    /// The effect goes into the outbox, with its record.
    Accept,
    /// An operator ends a delivery that is proved not to have been made.
    Withdraw,
    /// An operator decides.
    Resolve(Verdict),
    /// An operator takes the target's word that it did what was settled as not applied. Only a
    /// delivery of which the target said so comes to it.
    Correct,
}

/// A legal step. Only [`step`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    from: Option<State>,
    event: Event,
    to: State,
}

/// The pair of state and event has no meaning: the caller asked for a step that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the event {event:?} is illegal in the state {}", .from.map_or("absent".into(), |s| format!("{s:?}")))]
pub struct IllegalTransition {
    /// The state, `None` for an absent operation.
    pub from: Option<State>,
    /// The event.
    pub event: Event,
}

/// Decides what `event` makes of an operation in state `from` (`None`: there is no record).
///
/// # Errors
/// [`IllegalTransition`] if the pair has no meaning, in particular for every event on a terminal
/// state but [`Event::Correct`], which leads to no write.
pub fn step(from: Option<State>, event: Event) -> Result<Transition, IllegalTransition> {
    use Phase::{AwaitingInput, Claimed, Dispatched, FirstCommit, Queued};
    use State::{Answered, Applied, InDoubt, InProgress, NotApplied, Partial};
    let to = match (from, event) {
        (None, Event::Apply) => Applied,
        (None, Event::CommitFirst) => InProgress(FirstCommit),
        (None, Event::Claim) => InProgress(Claimed),
        (None, Event::Dispatch) => InProgress(Dispatched),
        (None, Event::Accept) => InProgress(Queued),

        (Some(InProgress(FirstCommit)), Event::FinishWhole) => Applied,
        (Some(InProgress(FirstCommit)), Event::FinishPartly) => Partial,
        (Some(InProgress(FirstCommit)), Event::Undo) => NotApplied,
        // Nobody but a person can say what became of the remaining steps.
        (Some(InProgress(FirstCommit)), Event::Lapse) => InProgress(FirstCommit),

        (Some(InProgress(Claimed)), Event::Dispatch) => InProgress(Dispatched),
        (Some(InProgress(Claimed)), Event::Lapse) => InProgress(Claimed),
        (Some(InProgress(Claimed)), Event::Learn(Outcome::NotApplied)) => NotApplied,

        (Some(InProgress(Dispatched)), Event::Learn(Outcome::NotApplied)) => NotApplied,
        (Some(InProgress(Dispatched)), Event::Learn(Outcome::Unknown) | Event::Lapse) => InDoubt,
        (Some(InProgress(Dispatched)), Event::Ask) => InProgress(AwaitingInput),
        (Some(InProgress(Dispatched)), Event::HandBack) => InProgress(Claimed),
        (Some(InProgress(AwaitingInput)), Event::Dispatch) => InProgress(Dispatched),
        // What was sent before may have done its part, and nobody will go on with it.
        (Some(InProgress(AwaitingInput)), Event::Lapse) => InDoubt,
        // An answer that comes late is an answer all the same.
        (Some(InProgress(Dispatched) | InDoubt), Event::Answer) => Answered,
        // The delivery has no safe attempt left.
        (Some(InProgress(Queued)), Event::Learn(Outcome::Unknown)) => InDoubt,
        // Decided by the delivery, which knows that every attempt did nothing.
        (Some(InProgress(Queued)), Event::Withdraw) => NotApplied,
        // Evidence of the effect settles every operation that is not terminal, however late.
        (Some(InProgress(_) | InDoubt | Answered), Event::Learn(Outcome::Applied)) => Applied,
        (Some(InDoubt), Event::Learn(Outcome::NotApplied)) => NotApplied,
        (Some(InDoubt), Event::Learn(Outcome::Unknown)) => InDoubt,

        (
            Some(
                InProgress(FirstCommit | Dispatched | Queued | AwaitingInput) | InDoubt | Answered,
            ),
            Event::Resolve(verdict),
        ) => match verdict {
            Verdict::Applied => Applied,
            Verdict::NotApplied => NotApplied,
        },
        (Some(NotApplied), Event::Correct) => Applied,
        (from, event) => return Err(IllegalTransition { from, event }),
    };
    Ok(Transition { from, event, to })
}

impl Transition {
    /// The state before; `None` if there was no record.
    #[must_use]
    pub const fn from(&self) -> Option<State> {
        self.from
    }

    /// What happened.
    #[must_use]
    pub const fn event(&self) -> Event {
        self.event
    }

    /// The state after.
    #[must_use]
    pub const fn to(&self) -> State {
        self.to
    }

    /// The name under which the audit trail keeps the step.
    #[must_use]
    pub const fn audit_kind(&self) -> &'static str {
        match self.event {
            Event::Apply | Event::FinishWhole => "applied",
            Event::CommitFirst => "first_step_committed",
            Event::FinishPartly => "partial",
            Event::Undo => "undone",
            Event::Claim => "claimed",
            Event::Dispatch => "dispatched",
            Event::Learn(Outcome::Applied) => "learned_applied",
            Event::Learn(Outcome::NotApplied) => "learned_not_applied",
            Event::Learn(Outcome::Unknown) => "learned_nothing",
            Event::Ask => "asked_for_input",
            Event::Answer => "answered",
            Event::HandBack => "handed_back",
            Event::Lapse => "lease_lapsed",
            Event::Accept => "accepted",
            Event::Withdraw => "withdrawn",
            Event::Resolve(Verdict::Applied) => "resolved_applied",
            Event::Resolve(Verdict::NotApplied) => "resolved_not_applied",
            Event::Correct => "corrected_applied",
        }
    }
}

impl State {
    /// Whether no further write can come of the operation.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Applied | Self::Partial | Self::NotApplied)
    }

    /// Whether the record ages: it is terminal, or its upstream answered and nothing waits.
    #[must_use]
    pub const fn ages(self) -> bool {
        self.is_terminal() || matches!(self, Self::Answered)
    }

    /// The number under which a store keeps the state; the phase is kept beside it.
    #[must_use]
    pub const fn code(self) -> (i64, i64) {
        match self {
            Self::InProgress(Phase::Claimed) => (0, 1),
            Self::InProgress(Phase::Dispatched) => (0, 2),
            Self::InProgress(Phase::FirstCommit) => (0, 3),
            Self::InProgress(Phase::Queued) => (0, 4),
            Self::InProgress(Phase::AwaitingInput) => (0, 5),
            Self::Applied => (1, 0),
            Self::Partial => (2, 0),
            Self::NotApplied => (3, 0),
            Self::InDoubt => (4, 0),
            Self::Answered => (5, 0),
        }
    }

    /// The state kept under a pair of numbers; `None` for a pair that no version wrote.
    #[must_use]
    pub fn from_code(state: i64, phase: i64) -> Option<Self> {
        ALL_STATES.into_iter().find(|known| known.code() == (state, phase))
    }

    /// The word that operators see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress(_) => "in_progress",
            Self::Applied => "applied",
            Self::Partial => "partial",
            Self::NotApplied => "not_applied",
            Self::InDoubt => "in_doubt",
            Self::Answered => "answered",
        }
    }
}

/// Every state that can be kept.
pub const ALL_STATES: [State; 10] = [
    State::InProgress(Phase::Claimed),
    State::InProgress(Phase::Dispatched),
    State::InProgress(Phase::FirstCommit),
    State::InProgress(Phase::Queued),
    State::InProgress(Phase::AwaitingInput),
    State::Applied,
    State::Partial,
    State::NotApplied,
    State::InDoubt,
    State::Answered,
];

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_EVENTS: [Event; 19] = [
        Event::Apply,
        Event::CommitFirst,
        Event::FinishWhole,
        Event::FinishPartly,
        Event::Undo,
        Event::Claim,
        Event::Dispatch,
        Event::Ask,
        Event::Answer,
        Event::HandBack,
        Event::Learn(Outcome::Applied),
        Event::Learn(Outcome::NotApplied),
        Event::Learn(Outcome::Unknown),
        Event::Lapse,
        Event::Accept,
        Event::Withdraw,
        Event::Resolve(Verdict::Applied),
        Event::Resolve(Verdict::NotApplied),
        Event::Correct,
    ];

    #[test]
    fn a_terminal_state_accepts_no_event_at_all() {
        // Promise: after an effect is settled there is no other; only that it was not applied can be
        // taken back, by the target's late word.
        for state in ALL_STATES.into_iter().filter(|s| s.is_terminal()) {
            for event in ALL_EVENTS {
                if (state, event) == (State::NotApplied, Event::Correct) {
                    assert_eq!(step(Some(state), event).map(|it| it.to()), Ok(State::Applied));
                    continue;
                }
                let refused = step(Some(state), event).expect_err("terminal");
                let text = refused.to_string();
                assert!(text.contains(&format!("{state:?}")), "{text}");
                assert!(text.contains(&format!("{event:?}")), "{text}");
            }
        }
    }

    #[test]
    fn only_an_absent_operation_begins() {
        // Promise: an identity that exists never becomes new work.
        for event in [Event::Apply, Event::CommitFirst, Event::Claim, Event::Accept] {
            assert!(step(None, event).is_ok());
            for state in ALL_STATES {
                assert!(step(Some(state), event).is_err(), "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn a_dispatched_effect_becomes_not_applied_only_by_proof_or_person() {
        // Promise: a missing answer is never taken for "it did not happen".
        let sent = [Phase::Dispatched, Phase::AwaitingInput].map(State::InProgress);
        for state in sent.into_iter().chain([State::InDoubt, State::Answered]) {
            for event in ALL_EVENTS {
                let Ok(transition) = step(Some(state), event) else { continue };
                let proved = matches!(
                    event,
                    Event::Learn(Outcome::NotApplied) | Event::Resolve(Verdict::NotApplied)
                );
                assert_eq!(transition.to() == State::NotApplied, proved, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn nothing_is_dispatched_twice() {
        // Promise: after a dispatch that may have taken effect there is no other. An upstream that
        // asked for input waits for the next request of the same call.
        for state in ALL_STATES {
            let allowed = [Phase::Claimed, Phase::AwaitingInput].map(State::InProgress);
            let allowed = allowed.contains(&state);
            assert_eq!(step(Some(state), Event::Dispatch).is_ok(), allowed, "{state:?}");
        }
    }

    #[test]
    fn every_state_survives_its_code() {
        // Promise: what is read back is what was kept; an unknown pair is not guessed at.
        for state in ALL_STATES {
            let (code, phase) = state.code();
            assert_eq!(State::from_code(code, phase), Some(state));
        }
        for pair in [(0, 0), (1, 1), (6, 0), (-1, 0)] {
            assert_eq!(State::from_code(pair.0, pair.1), None, "{pair:?}");
        }
    }
}
