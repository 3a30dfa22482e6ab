//! What must hold in every state that a model reaches, and the set of what was found broken.

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rule {
    /// One identity has at most one effect, unless the owner of the target accepts doubles.
    OneEffect,
    /// What was told to be applied is there.
    NothingLost,
    /// After `applied`, `partial` or `not_applied` nothing else is told; a target that contradicts
    /// `not_applied` later makes it unknown.
    StaysSettled,
    /// `not_applied` is told only if nothing happened, and nothing happens afterwards; an operator's
    /// word without proof is told as such.
    NotAppliedIsTrue,
    /// What is absent, unfinished or in doubt is told as unknown.
    UnsettledIsUnknown,
    /// No status grants a write, and no client takes a missing reply for a grant.
    NothingGrants,
    /// Whoever lost its claim changes nothing, but for evidence that the effect is there.
    StaleCompletesNothing,
    /// A dead letter is not the end: its operation is unknown, and it can be sent again.
    DeadLetterIsOpen,
    /// What an operator ended is never sent again.
    EndedStaysEnded,
    /// After an unknown attempt a key is sent only while the target remembers it.
    KeyWithinLifetime,
    /// No byte leaves before the attempt is on record.
    RecordedBeforeSent,
    /// Nothing of a revoked principal begins to be sent.
    RevokedNotSent,
    /// Record and delivery never contradict each other.
    RecordAgrees,
    /// Record and effect are committed together.
    CommittedTogether,
    /// A changed request conflicts, another principal's too, and is told nothing of the first.
    ChangedConflicts,
    /// No effect is made after the authority of its continuation ended.
    AuthorityEnds,
    /// An identity whose retention ended is never new work.
    ExpiredIsNoWork,
}

impl Rule {
    /// The rule in words: the name of the property.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OneEffect => "at most one effect for one identity",
            Self::NothingLost => "nothing acknowledged is lost",
            Self::StaysSettled => "nothing else is told after a settled state",
            Self::NotAppliedIsTrue => "not_applied is never told of what happened or may happen",
            Self::UnsettledIsUnknown => "absent, unfinished and in doubt are unknown",
            Self::NothingGrants => "no status and no missing reply grants a fresh write",
            Self::StaleCompletesNothing => "a stale fence completes nothing",
            Self::DeadLetterIsOpen => "a dead letter is not terminal",
            Self::EndedStaysEnded => "what an operator ended is never sent again",
            Self::KeyWithinLifetime => "a key is not forwarded after its lifetime",
            Self::RecordedBeforeSent => "nothing is sent before it is on record",
            Self::RevokedNotSent => "nothing of a revoked principal begins to be sent",
            Self::RecordAgrees => "record and delivery agree",
            Self::CommittedTogether => "record and effect are committed together",
            Self::ChangedConflicts => "a changed request conflicts and learns nothing",
            Self::AuthorityEnds => "no effect after the end of its authority",
            Self::ExpiredIsNoWork => "an expired identity is never new work",
        }
    }
}

/// The rules that were found broken on the way to a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Broken(u32);

impl Broken {
    /// Notes that `rule` is broken, unless it `holds`.
    pub(super) const fn unless(&mut self, holds: bool, rule: Rule) {
        if !holds {
            self.0 |= 1 << rule as u8;
        }
    }

    /// Whether `rule` was found broken.
    pub(super) const fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u8) != 0
    }
}
