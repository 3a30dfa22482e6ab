//! Deliberately broken twins of the model: each lies to the product's decisions in one place, as a
//! broken product would. A check that does not catch its twin proves nothing.

use crate::model::rules::Rule;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Twin {
    /// An unknown outcome is tried again whatever the contract says.
    RetriesUnknown,
    /// A report counts for whoever holds the item now.
    NoFencing,
    /// A refusal is taken for the outcome of every earlier attempt.
    RefusalOverridesUnknown,
    /// A refusal that comes too late is proof all the same.
    StaleRefusalIsProof,
    /// What an operator ended can be sent again.
    RedriveAfterAbandon,
    /// The key is forwarded for ever.
    KeyForEver,
    /// An attempt that is asked for again is granted its time anew, however late.
    RenewsUnchecked,
    /// A search without a match is proof at once.
    AbsenceAtOnce,
    /// A worker that did not report is taken to have sent nothing.
    LapseIsUnsent,
    /// The request leaves before its attempt is on record.
    SendsBeforeRecord,
    /// A dead letter settles its operation.
    DeadLetterSettles,
    /// A cancellation ends what may have been done.
    CancelIgnoresUnknown,
    /// An operator's word without proof is told as proof.
    WordIsProof,
    /// A late contradiction is not kept.
    ContradictionDropped,
    /// Revocation is looked at when an item is claimed, and not before its first byte.
    RevokedIsSent,
    /// The status of what is not settled says `not_applied`.
    UnfinishedIsNotApplied,
    /// The status of what is unknown says that a new operation may be used.
    StatusGrants,
    /// What is being sent is told as applied.
    TellsBeforeOutcome,
    /// Nobody takes an item back from a worker that died.
    NeverTakenBack,
}

impl Twin {
    /// Every twin that is not safe, with the contract it is shown on and the rule that catches it.
    pub const ALL: [(Self, super::Promise, Rule); 20] = {
        use super::Promise::{Key, KeyAndLookup, Lookup, Never};
        [
            (Self::RetriesUnknown, Never, Rule::OneEffect),
            (Self::NoFencing, Key, Rule::StaleCompletesNothing),
            (Self::RefusalOverridesUnknown, Key, Rule::NotAppliedIsTrue),
            (Self::StaleRefusalIsProof, Key, Rule::StaleCompletesNothing),
            (Self::RedriveAfterAbandon, Never, Rule::EndedStaysEnded),
            (Self::RedriveAfterAbandon, Never, Rule::NotAppliedIsTrue),
            (Self::KeyForEver, Key, Rule::KeyWithinLifetime),
            (Self::KeyForEver, Key, Rule::OneEffect),
            (Self::RenewsUnchecked, Key, Rule::KeyWithinLifetime),
            (Self::AbsenceAtOnce, Lookup, Rule::OneEffect),
            (Self::LapseIsUnsent, Never, Rule::OneEffect),
            (Self::SendsBeforeRecord, Lookup, Rule::RecordedBeforeSent),
            (Self::DeadLetterSettles, Key, Rule::DeadLetterIsOpen),
            (Self::CancelIgnoresUnknown, KeyAndLookup, Rule::NotAppliedIsTrue),
            (Self::WordIsProof, Never, Rule::NotAppliedIsTrue),
            (Self::ContradictionDropped, Never, Rule::NotAppliedIsTrue),
            (Self::RevokedIsSent, Key, Rule::RevokedNotSent),
            (Self::UnfinishedIsNotApplied, Key, Rule::UnsettledIsUnknown),
            (Self::StatusGrants, Key, Rule::NothingGrants),
            (Self::TellsBeforeOutcome, Key, Rule::NothingLost),
        ]
    };
}
