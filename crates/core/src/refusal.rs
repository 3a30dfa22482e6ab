//! Refusals: a stable code, what the caller may do next, and words that say value, rule and remedy.

use serde::{Deserialize, Serialize};

use crate::identity::OperationId;

/// What a caller may do next with the operation it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Settled: there is nothing to send again.
    None,
    /// Send the same call again with the same operation ID.
    SameOperation,
    /// Do not send; ask for the status.
    StatusOnly,
    /// Proved not applied: a new operation ID may be used.
    NewOperation,
}

impl Retry {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SameOperation => "same_operation",
            Self::StatusOnly => "status_only",
            Self::NewOperation => "new_operation",
        }
    }
}

/// Why a call was refused. The words on the wire are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The ID is bound to another request.
    OperationConflict,
    /// The ID's operation is running, or was left unfinished.
    OperationInProgress,
    /// The ID's operation may have taken effect.
    OperationInDoubt,
    /// The continuation may no longer write.
    OperationAuthorityExpired,
    /// The record may no longer be replayed.
    OperationRetentionExpired,
    /// The tool needs an operation ID and none came.
    OperationIdRequired,
    /// An argument breaks a rule.
    InvalidArgument,
    /// Something is over a limit.
    TooLarge,
    /// Too many calls.
    RateLimited,
    /// The ledger cannot commit now.
    StoreUnavailable,
}

impl Code {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OperationConflict => "operation_conflict",
            Self::OperationInProgress => "operation_in_progress",
            Self::OperationInDoubt => "operation_in_doubt",
            Self::OperationAuthorityExpired => "operation_authority_expired",
            Self::OperationRetentionExpired => "operation_retention_expired",
            Self::OperationIdRequired => "operation_id_required",
            Self::InvalidArgument => "invalid_argument",
            Self::TooLarge => "too_large",
            Self::RateLimited => "rate_limited",
            Self::StoreUnavailable => "store_unavailable",
        }
    }

    /// What the caller of a call refused with this code may do next.
    #[must_use]
    pub const fn retry(self) -> Retry {
        match self {
            Self::OperationConflict
            | Self::InvalidArgument
            | Self::TooLarge
            | Self::OperationIdRequired => Retry::None,
            Self::OperationInProgress
            | Self::OperationInDoubt
            | Self::OperationAuthorityExpired
            | Self::OperationRetentionExpired => Retry::StatusOnly,
            Self::RateLimited | Self::StoreUnavailable => Retry::SameOperation,
        }
    }
}

/// A refusal on its way to the caller. Nothing was written for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", .code.as_str())]
pub struct Refusal {
    code: Code,
    message: String,
    operation_id: Option<OperationId>,
}

impl Refusal {
    /// A refusal with its words. The words must not show anything of another request.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>, operation_id: Option<OperationId>) -> Self {
        Self { code, message: message.into(), operation_id }
    }

    /// The ID is bound to another request. For changed arguments and for another principal the
    /// words are the same, so that the reply tells nothing about the other request.
    #[must_use]
    pub fn conflict(operation_id: OperationId) -> Self {
        Self::new(
            Code::OperationConflict,
            "this operation ID is already bound to a different request, and nothing was done; \
             to make a new effect use a new operation ID, to repeat a request send it unchanged",
            Some(operation_id),
        )
    }

    /// The record may no longer be replayed.
    #[must_use]
    pub fn retention_expired(operation_id: OperationId) -> Self {
        Self::new(
            Code::OperationRetentionExpired,
            "the time in which this operation ID could be replayed has ended, and nothing was \
             done; an old ID never becomes new work: ask get_operation_status what became of it",
            Some(operation_id),
        )
    }

    /// The continuation may no longer write.
    #[must_use]
    pub fn authority_expired(operation_id: OperationId) -> Self {
        Self::new(
            Code::OperationAuthorityExpired,
            "the authority of this continuation to write has ended, and nothing was done; ask \
             get_operation_status whether an earlier attempt took effect",
            Some(operation_id),
        )
    }

    /// The operation is running, or was left unfinished by a process that died.
    #[must_use]
    pub fn in_progress(operation_id: OperationId) -> Self {
        Self::new(
            Code::OperationInProgress,
            "this operation is in progress or was left unfinished, and nothing was done now; do \
             not send it again: ask get_operation_status, and if it stays unknown an operator \
             decides with `counterfoil operation resolve`",
            Some(operation_id),
        )
    }

    /// The record says that the effect happened, and its row is gone.
    #[must_use]
    pub fn effect_missing(operation_id: OperationId) -> Self {
        Self::new(
            Code::OperationInDoubt,
            "the record says that this effect happened, and the row that it made is gone: somebody \
             removed it; nothing was done now, and an old ID never becomes new work: an operator \
             can see the record with `counterfoil operation show`",
            Some(operation_id),
        )
    }

    /// The operation may have taken effect.
    #[must_use]
    pub fn in_doubt(operation_id: OperationId) -> Self {
        Self::new(
            Code::OperationInDoubt,
            "an earlier attempt may have taken effect and nobody knows, so nothing was done now; \
             do not send it again: check at the target, or let an operator decide with \
             `counterfoil operation resolve`",
            Some(operation_id),
        )
    }

    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// What the caller may do next.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        self.code.retry()
    }

    /// The words, without the code.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The operation that was asked for, if its ID could be read.
    #[must_use]
    pub const fn operation_id(&self) -> Option<&OperationId> {
        self.operation_id.as_ref()
    }

    /// The same refusal for a known operation.
    #[must_use]
    pub fn for_operation(mut self, operation_id: &OperationId) -> Self {
        self.operation_id = Some(operation_id.clone());
        self
    }
}
