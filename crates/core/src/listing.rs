//! An operation as it stands in a list: what the status would say of it, without the stored result.

use crate::delivery::Delivery;
use crate::direct::Direct;
use crate::identity::{OperationId, OperationKey, Principal, Tenant, ToolId, ToolVersion};
use crate::limits::{DEFAULT_PAGE_COUNT, MAX_PAGE_COUNT};
use crate::observation::{
    Detail, EffectSeen, ObservedState, delivery_verdict, direct_verdict, retry_after, verdict,
};
use crate::operation::State;
use crate::record::{Nature, Record};
use crate::refusal::Retry;
use crate::time::Timestamp;

/// One line of a list. Made by the rules of the status, so that list and status never differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The ledger's own key.
    pub key: OperationKey,
    /// The space of the ID.
    pub tenant: Tenant,
    /// The caller's ID.
    pub operation_id: OperationId,
    /// Who asked.
    pub principal: Principal,
    /// The tool that was called.
    pub tool_id: ToolId,
    /// The tool's version.
    pub tool_version: ToolVersion,
    /// What kind of effect it has.
    pub nature: Nature,
    /// Where it stands in the ledger; for operators.
    pub state: State,
    /// What its own principal is told.
    pub observed: ObservedState,
    /// What `observed` alone does not tell.
    pub detail: Detail,
    /// What its principal may do next.
    pub retry: Retry,
    /// When the record was written.
    pub created_at: Timestamp,
    /// When a terminal state was reached.
    pub settled_at: Option<Timestamp>,
    /// Until when the record may be replayed.
    pub retention_ends_at: Option<Timestamp>,
}

impl Listed {
    /// From a record and what was seen, in the same snapshot, of the row that it names.
    #[must_use]
    pub fn of(record: Record, effect: EffectSeen) -> Self {
        let verdict = verdict(&record, effect);
        Self::with_verdict(record, verdict)
    }

    /// The same for an operation whose effect is delivered, with its delivery as it was in the same
    /// snapshot.
    #[must_use]
    pub fn of_delivery(record: Record, item: &Delivery) -> Self {
        let verdict = delivery_verdict(&record, item);
        Self::with_verdict(record, verdict)
    }

    /// The same for an operation that was sent while its caller waited.
    #[must_use]
    pub fn of_direct(record: Record, item: &Direct) -> Self {
        let verdict = direct_verdict(&record, item);
        Self::with_verdict(record, verdict)
    }

    fn with_verdict(record: Record, (observed, detail): (ObservedState, Detail)) -> Self {
        Self {
            key: record.key,
            tenant: record.tenant,
            operation_id: record.operation_id,
            principal: record.principal,
            tool_id: record.tool_id,
            tool_version: record.tool_version,
            nature: record.nature,
            state: record.state,
            observed,
            detail,
            retry: retry_after(observed, detail),
            created_at: record.created_at,
            settled_at: record.settled_at,
            retention_ends_at: record.retention_ends_at,
        }
    }
}

/// A state without its phase, as lists are filtered by it. Its number is the state's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Begun and not settled.
    InProgress = 0,
    /// The effect happened.
    Applied = 1,
    /// A part of it happened.
    Partial = 2,
    /// Proved not to have happened.
    NotApplied = 3,
    /// It may have happened.
    InDoubt = 4,
    /// Its upstream answered, and did not say whether it happened.
    Answered = 5,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::InProgress,
        Self::InDoubt,
        Self::Answered,
        Self::Applied,
        Self::Partial,
        Self::NotApplied,
    ];
    /// Those of operations that something still waits for.
    pub const UNSETTLED: [Self; 2] = [Self::InProgress, Self::InDoubt];

    /// The word that operators see; that of [`State::as_str`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Applied => "applied",
            Self::Partial => "partial",
            Self::NotApplied => "not_applied",
            Self::InDoubt => "in_doubt",
            Self::Answered => "answered",
        }
    }

    /// The stage of that exact word; `None` for any other.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == word)
    }
}

impl From<State> for Stage {
    fn from(state: State) -> Self {
        match state {
            State::InProgress(_) => Self::InProgress,
            State::Applied => Self::Applied,
            State::Partial => Self::Partial,
            State::NotApplied => Self::NotApplied,
            State::InDoubt => Self::InDoubt,
            State::Answered => Self::Answered,
        }
    }
}

/// How many operations a page holds at most: 1 to [`MAX_PAGE_COUNT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit(u16);

/// Why a page's size was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a page holds 1 to {MAX_PAGE_COUNT} operations; give such a number, or none for {DEFAULT_PAGE_COUNT}"
)]
pub struct InvalidPageLimit;

impl PageLimit {
    /// # Errors
    /// [`InvalidPageLimit`] if `count` is zero or over [`MAX_PAGE_COUNT`].
    pub const fn new(count: u16) -> Result<Self, InvalidPageLimit> {
        if count >= 1 && count <= MAX_PAGE_COUNT { Ok(Self(count)) } else { Err(InvalidPageLimit) }
    }

    /// The count.
    #[must_use]
    pub fn count(self) -> usize {
        usize::from(self.0)
    }
}

impl Default for PageLimit {
    fn default() -> Self {
        Self(DEFAULT_PAGE_COUNT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::ALL_STATES;

    #[test]
    fn a_stage_is_its_states_word_and_number() {
        // Promise: a filter finds exactly the records whose state it names.
        for state in ALL_STATES {
            let stage = Stage::from(state);
            assert_eq!(stage.as_str(), state.as_str());
            assert_eq!(stage as i64, state.code().0);
            assert_eq!(Stage::parse(state.as_str()), Some(stage));
            assert_eq!(Stage::UNSETTLED.contains(&stage), !state.ages());
        }
        assert_eq!(Stage::parse("Applied"), None);
    }

    #[test]
    fn a_page_is_bounded() {
        // Promise: no caller can ask for a page without end, or for one that never advances.
        for bad in [0, 201, u16::MAX] {
            assert_eq!(PageLimit::new(bad), Err(InvalidPageLimit));
        }
        for good in [1, 200] {
            assert_eq!(PageLimit::new(good).map(PageLimit::count), Ok(usize::from(good)));
        }
        assert_eq!(PageLimit::default().count(), 50);
    }
}
