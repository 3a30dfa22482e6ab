//! Whether a call may begin an effect, gets the stored result, or is refused. Pure: the store hands
//! in the record and the time and runs the decision inside its transaction.

use crate::canonical::CanonicalError;
use crate::fingerprint::{
    CallBinding, Fingerprint, KeyRing, Profile, call_fingerprint, fingerprint,
};
use crate::identity::{BootId, Caller, Nonce, OperationId, OperationKey, ToolId, ToolVersion};
use crate::json::Value;
use crate::limits::MAX_ID_AHEAD;
use crate::operation::State;
use crate::record::{Binding, Nature, Record};
use crate::refusal::{Code, Refusal};
use crate::time::{Span, Timestamp};

/// Whether the caller may still write, apart from being authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// The caller's present authentication is its authority.
    Present,
    /// A continuation: its authority ends at this instant, whatever else is still valid.
    Until(Timestamp),
}

/// One call, read and authenticated, before its fingerprint is made.
#[derive(Debug)]
pub struct Call<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// The tool.
    pub tool_id: &'a ToolId,
    /// The version of the tool's contract.
    pub tool_version: &'a ToolVersion,
    /// How its bytes are made canonical.
    pub profile: Profile,
    /// The effect's identity.
    pub operation_id: &'a OperationId,
    /// The arguments as the full fingerprint takes them.
    pub arguments: &'a Value,
    /// The arguments without the operation ID, for the call fingerprint.
    pub call_arguments: &'a Value,
    /// The sealed state that the continuation brought, exactly as it came.
    pub continuation_state: Option<&'a str>,
    /// The accepted answers.
    pub input_responses: Option<&'a Value>,
    /// Whether the call may still write.
    pub authority: Authority,
}

/// Fresh identities for one attempt; made by the shell, which has randomness.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// The key of the record that this attempt would write.
    pub key: OperationKey,
    /// By which the writer recognises its own row.
    pub nonce: Nonce,
    /// The run of this process.
    pub boot: BootId,
}

/// A call that passed admission. Only [`Admitted::admit`] makes one.
#[derive(Debug, Clone)]
pub struct Admitted {
    caller: Caller,
    tool_id: ToolId,
    tool_version: ToolVersion,
    operation_id: OperationId,
    /// Under every key of the ring, the active one first: a record is compared under its own key.
    bindings: Vec<Binding>,
    authority: Authority,
    retention: Span,
    attempt: Attempt,
}

impl Admitted {
    /// Makes the fingerprints and binds them to the attempt.
    ///
    /// # Errors
    /// [`Refusal`] with `invalid_argument` if arguments or answers have no canonical form; the
    /// words give the JSON path.
    pub fn admit(
        call: &Call<'_>,
        keys: &KeyRing,
        retention: Span,
        attempt: Attempt,
    ) -> Result<Self, Refusal> {
        let refuse = |error: CanonicalError| {
            Refusal::new(Code::InvalidArgument, error.to_string(), Some(call.operation_id.clone()))
        };
        let binding = |arguments| CallBinding {
            tenant: call.caller.tenant.as_str(),
            principal: Some(call.caller.principal.as_str()),
            tool_id: call.tool_id.as_str(),
            tool_version: call.tool_version.as_str(),
            arguments,
            continuation_state: call.continuation_state,
            input_responses: call.input_responses,
        };
        let (active, _) = keys.active();
        let mut bindings = Vec::with_capacity(1);
        for (key_id, key) in keys.iter() {
            let made = Binding {
                profile: call.profile,
                key_id,
                full: fingerprint(call.profile, key, &binding(call.arguments)).map_err(refuse)?,
                call: call_fingerprint(call.profile, key, &binding(call.call_arguments))
                    .map_err(refuse)?,
            };
            if key_id == active {
                bindings.insert(0, made);
            } else {
                bindings.push(made);
            }
        }
        Ok(Self {
            caller: call.caller.clone(),
            tool_id: call.tool_id.clone(),
            tool_version: call.tool_version.clone(),
            operation_id: call.operation_id.clone(),
            bindings,
            authority: call.authority,
            retention,
            attempt,
        })
    }

    /// Who asks.
    #[must_use]
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The tool.
    #[must_use]
    pub const fn tool_id(&self) -> &ToolId {
        &self.tool_id
    }

    /// The version of the tool's contract.
    #[must_use]
    pub const fn tool_version(&self) -> &ToolVersion {
        &self.tool_version
    }

    /// The effect's identity.
    #[must_use]
    pub const fn operation_id(&self) -> &OperationId {
        &self.operation_id
    }

    /// The fingerprints under the active key, which a fresh record keeps.
    #[must_use]
    pub fn binding(&self) -> &Binding {
        self.bindings.first().expect("a key ring has its active key, and admit() puts it first")
    }

    /// The call fingerprint under whichever key makes it equal to `digest`, else under the active
    /// key: what was bound to this call before the active key changed is still recognised.
    #[must_use]
    pub fn call_digest_like(&self, digest: &[u8; 32]) -> [u8; 32] {
        let made = self.bindings.iter().map(|binding| binding.call.to_bytes());
        made.clone().find(|call| call == digest).unwrap_or_else(|| self.binding().call.to_bytes())
    }

    /// Whether the call may still write.
    #[must_use]
    pub const fn authority(&self) -> Authority {
        self.authority
    }

    /// How long after settlement the record may be replayed.
    #[must_use]
    pub const fn retention(&self) -> Span {
        self.retention
    }

    /// The identities of this attempt.
    #[must_use]
    pub const fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// The same call under the ID of an operation that it is to join.
    #[must_use]
    pub fn under(mut self, operation_id: OperationId) -> Self {
        self.operation_id = operation_id;
        self
    }

    /// The call fingerprint under each key, the active one first.
    pub fn call_digests(&self) -> impl Iterator<Item = &Fingerprint> {
        self.bindings.iter().map(|binding| &binding.call)
    }

    fn has_no_authority(&self, time: LedgerTime) -> bool {
        matches!(self.authority, Authority::Until(end) if time.now >= end)
    }

    /// The fingerprints under the key that a record was made with.
    ///
    /// # Errors
    /// [`Refusal`] if this server does not have that key.
    pub fn binding_like(&self, record: &Record) -> Result<&Binding, Refusal> {
        let kept = &record.binding;
        self.bindings.iter().find(|made| made.key_id == kept.key_id).ok_or_else(|| {
            Refusal::new(
                Code::StoreUnavailable,
                format!(
                    "the record of this operation was made under key {}, which this server does \
                     not have, so nothing can be compared and nothing was done; give the server \
                     that key",
                    kept.key_id.0
                ),
                Some(self.operation_id.clone()),
            )
        })
    }
}

/// The store's own time, read inside the transaction that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerTime {
    /// Now, on the store's clock.
    pub now: Timestamp,
    /// IDs that carry an older time and have no record are expired, not new.
    pub horizon: Timestamp,
}

/// What a call may do.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// There is no record: write it and make the effect.
    Fresh,
    /// The record is settled and the request is the same: give its stored result.
    Replay,
    /// Refused; nothing is written.
    Refuse(Refusal),
}

/// Decides on a call that could write. The order of the checks is part of the contract: principal,
/// retention, fingerprint, authority, progress, replay.
#[must_use]
pub fn decide(call: &Admitted, record: Option<&Record>, time: LedgerTime) -> Decision {
    check(call, record, time, |made, kept| made.full == kept.full && made.profile == kept.profile)
        .unwrap_or_else(Decision::Refuse)
}

/// Decides on the first round of a call that will ask for input. It writes nothing: `Fresh` means
/// that a continuation may be issued. A record is recognised by its call fingerprint, since an
/// honest retry starts at round one and has no continuation yet.
#[must_use]
pub fn decide_first_round(call: &Admitted, record: Option<&Record>, time: LedgerTime) -> Decision {
    check(call, record, time, |made, kept| made.call == kept.call && made.profile == kept.profile)
        .unwrap_or_else(Decision::Refuse)
}

fn check(
    call: &Admitted,
    record: Option<&Record>,
    time: LedgerTime,
    same: impl Fn(&Binding, &Binding) -> bool,
) -> Result<Decision, Refusal> {
    let Some(record) = record else {
        return check_fresh(call, time).map(|()| Decision::Fresh);
    };
    check_binding(call, record, time, same)?;
    if record.nature == Nature::Deferred {
        // It was accepted, and that is what is told again, with the delivery as it stands now.
        return Ok(Decision::Replay);
    }
    let id = || call.operation_id.clone();
    match record.state {
        State::InProgress(_) => Err(Refusal::in_progress(id())),
        State::InDoubt => Err(Refusal::in_doubt(id())),
        State::Applied | State::Partial | State::NotApplied | State::Answered => {
            Ok(Decision::Replay)
        }
    }
}

/// Whether a call without a record may begin one.
///
/// # Errors
/// [`Refusal`] if its ID carries a time that cannot be, or its authority has ended.
pub(crate) fn check_fresh(call: &Admitted, time: LedgerTime) -> Result<(), Refusal> {
    check_embedded_time(call, time)?;
    if call.has_no_authority(time) {
        return Err(Refusal::authority_expired(call.operation_id.clone()));
    }
    Ok(())
}

/// Whether a call may be told anything of a record: principal, retention, fingerprint, authority.
///
/// # Errors
/// [`Refusal`] by the first of them that does not hold.
pub(crate) fn check_binding(
    call: &Admitted,
    record: &Record,
    time: LedgerTime,
    same: impl Fn(&Binding, &Binding) -> bool,
) -> Result<(), Refusal> {
    let id = || call.operation_id.clone();
    // Two IDs can share a digest key; the store compares the text, and a caller of one of them
    // must never meet the other's record.
    if record.principal != call.caller.principal || record.operation_id != call.operation_id {
        return Err(Refusal::conflict(id()));
    }
    if record.retention_ends_at.is_some_and(|end| time.now >= end) {
        return Err(Refusal::retention_expired(id()));
    }
    if !same(call.binding_like(record)?, &record.binding) {
        return Err(Refusal::conflict(id()));
    }
    if call.has_no_authority(time) {
        return Err(Refusal::authority_expired(id()));
    }
    Ok(())
}

/// An ID that carries its time and has no record must be plausible: neither from the future, nor
/// older than what the ledger still remembers.
fn check_embedded_time(call: &Admitted, time: LedgerTime) -> Result<(), Refusal> {
    let Some(embedded) = call.operation_id.embedded_time() else { return Ok(()) };
    if embedded > time.now.plus(MAX_ID_AHEAD) {
        return Err(Refusal::new(
            Code::InvalidArgument,
            format!(
                "operation_id carries the time {}, more than {} minutes ahead of the ledger's \
                 clock ({}); make the ID with a right clock",
                embedded.to_rfc3339(),
                MAX_ID_AHEAD.as_secs() / 60,
                time.now.to_rfc3339()
            ),
            Some(call.operation_id.clone()),
        ));
    }
    if embedded < time.horizon {
        return Err(Refusal::retention_expired(call.operation_id.clone()));
    }
    Ok(())
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
