//! Deliberately broken twins of the model of calls.

use crate::model::rules::Rule;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Twin {
    /// Nothing is looked up before the effect is made.
    GuardRemoved,
    /// The reply leaves before the commit.
    ReplyBeforeCommit,
    /// The effect commits first and its record in a transaction of its own.
    TwoTransactions,
    /// The end of retention frees the ID.
    ExpiryFreesId,
    /// A record is forgotten before its ID is refused by its time.
    ForgetsBeforeHorizon,
    /// The status of what is unknown lets a client send anew, and a client does.
    StatusGrants,
    /// A client takes a missing reply for leave to send anew.
    MissingReplyGrants,
    /// The status of what is not there says `not_applied`.
    AbsentIsNotApplied,
    /// The second step is finished by whoever began it, whatever an operator settled since.
    NoFencing,
    /// The end of authority is not looked at.
    AuthorityIgnored,
    /// A changed request gets the stored result.
    ReplaysToAnybody,
}

impl Twin {
    /// Every twin, with the rule that catches it.
    pub const ALL: [(Self, Rule); 12] = [
        (Self::GuardRemoved, Rule::OneEffect),
        (Self::ReplyBeforeCommit, Rule::NothingLost),
        (Self::TwoTransactions, Rule::CommittedTogether),
        (Self::TwoTransactions, Rule::OneEffect),
        (Self::ExpiryFreesId, Rule::ExpiredIsNoWork),
        (Self::ForgetsBeforeHorizon, Rule::ExpiredIsNoWork),
        (Self::StatusGrants, Rule::NothingGrants),
        (Self::MissingReplyGrants, Rule::OneEffect),
        (Self::AbsentIsNotApplied, Rule::UnsettledIsUnknown),
        (Self::NoFencing, Rule::StaleCompletesNothing),
        (Self::AuthorityIgnored, Rule::AuthorityEnds),
        (Self::ReplaysToAnybody, Rule::ChangedConflicts),
    ];
}
