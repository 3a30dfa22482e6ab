//! The steps that every back end takes alike. Pure: a back end differs only in how it keeps rows.

use std::path::PathBuf;
use std::time::Duration;

use counterfoil_core::admission::{Admitted, Authority};
use counterfoil_core::identity::BootId;
use counterfoil_core::limits::{MAX_NOTE_BYTES, MAX_RESULT_BYTES, OWNER_LEASE};
use counterfoil_core::observation::{EffectSeen, row_is_missing};
use counterfoil_core::operation::{Event, Phase, State, Transition, Verdict, step};
use counterfoil_core::record::{EffectRef, Owner, Record, Resolution, StoredResult};
use counterfoil_core::refusal::Refusal;
use counterfoil_core::time::Timestamp;

use crate::contract::{Answer, Resolve, Resolved};
use crate::effect::{EffectError, EffectRow};
use crate::error::StoreError;

/// A record with what only the ledger keeps beside it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kept {
    pub(crate) record: Record,
    /// The last owner. Unlike [`Record::owner`] it stays after settlement: by it a process
    /// recognises its own settlement after a lost acknowledgement.
    pub(crate) owner: Owner,
    /// From settlement to the end of replay; whole milliseconds.
    pub(crate) retention: Duration,
}

impl Kept {
    /// The record that a fresh call begins with: claimed, under the first fence.
    pub(crate) fn begin(admitted: &Admitted, now: Timestamp) -> Self {
        let attempt = admitted.attempt();
        let owner = Owner { boot: attempt.boot, fence: 1, lease_until: now.plus(OWNER_LEASE) };
        let caller = admitted.caller();
        Self {
            record: Record {
                key: attempt.key,
                tenant: caller.tenant.clone(),
                operation_id: admitted.operation_id().clone(),
                principal: caller.principal.clone(),
                tool_id: admitted.tool_id().clone(),
                tool_version: admitted.tool_version().clone(),
                binding: admitted.binding().clone(),
                nature: counterfoil_core::record::Nature::Local,
                state: State::InProgress(Phase::Claimed),
                owner: Some(owner),
                effect: None,
                result: None,
                nonce: attempt.nonce,
                created_at: now,
                authority_ends_at: match admitted.authority() {
                    Authority::Present => None,
                    Authority::Until(end) => Some(end),
                },
                settled_at: None,
                retention_ends_at: None,
                purged: false,
                resolution: None,
            },
            owner,
            retention: admitted.retention().as_duration(),
        }
    }

    /// Takes a step of the state machine that leaves the operation unfinished.
    pub(crate) fn advance(&mut self, transition: Transition) {
        self.record.state = transition.to();
    }

    /// Takes a step of the state machine to a state that ages, with the result to replay. A direct
    /// operation may have none: its upstream's answer stands beside it.
    pub(crate) fn settle(
        &mut self,
        transition: Transition,
        result: impl Into<Option<StoredResult>>,
        now: Timestamp,
    ) {
        self.record.state = transition.to();
        self.record.owner = None;
        self.record.result = result.into();
        // What was answered and purged may still be settled, and then it has something to tell again.
        self.record.purged = false;
        self.record.settled_at = Some(now);
        self.record.retention_ends_at = Some(now.plus(self.retention));
    }

    /// Whether the retention of a settled or answered operation has ended. What is unfinished or in
    /// doubt never expires.
    pub(crate) fn has_expired(&self, until: Timestamp) -> bool {
        self.record.state.ages() && self.record.retention_ends_at.is_some_and(|end| end <= until)
    }

    /// Forgets the result. Identity and digests stay.
    pub(crate) fn purge(&mut self) {
        self.record.result = None;
        self.record.purged = true;
    }

    /// Whether the whole record may be forgotten, since its ID will be refused by its own time.
    pub(crate) fn is_forgettable(&self, until: Timestamp, horizon: Timestamp) -> bool {
        self.has_expired(until)
            && self.record.operation_id.embedded_time().is_some_and(|time| time < horizon)
            && self.record.created_at < horizon
    }

    /// Whether this run still owns the unfinished rest. Equality of the fence decides, not time: a
    /// lease that ended and that nobody took may still finish.
    pub(crate) fn may_finish(&self, boot: BootId, fence: i64) -> bool {
        self.record.state == State::InProgress(Phase::FirstCommit) && self.was_owned(boot, fence)
    }

    /// Whether this run was the last owner.
    pub(crate) fn was_owned(&self, boot: BootId, fence: i64) -> bool {
        self.owner.boot == boot && self.owner.fence == fence
    }
}

/// One line of the audit trail, before it has its number and time.
#[derive(Debug)]
pub(crate) struct AuditLine<'a> {
    pub(crate) kind: &'a str,
    pub(crate) identity: &'a str,
    pub(crate) who: &'a str,
    pub(crate) reason: Option<&'a str>,
    pub(crate) proof: Option<&'a str>,
}

impl<'a> AuditLine<'a> {
    /// A step that the operation's own caller brought about.
    pub(crate) fn of_caller(record: &'a Record, kind: &'a str, reason: Option<&'a str>) -> Self {
        Self {
            kind,
            identity: record.operation_id.as_str(),
            who: record.principal.as_str(),
            reason: reason.map(note),
            proof: None,
        }
    }

    /// What an operator decided.
    pub(crate) fn of_operator(record: &'a Record, kind: &'a str, said: &'a Resolve) -> Self {
        Self {
            kind,
            identity: record.operation_id.as_str(),
            who: &said.who,
            reason: Some(&said.reason),
            proof: said.proof.as_deref(),
        }
    }
}

/// The kind of audit event for a compensation that took the first step back.
pub(crate) const COMPENSATED: &str = "compensated";
/// The kind of audit event for a compensation that failed.
pub(crate) const COMPENSATION_FAILED: &str = "compensation_failed";

/// The kind of audit event for a call that its caller took back after it was handed over. It is no
/// step of the state machine.
pub(crate) const CANCEL_REQUESTED: &str = "cancel_requested";

/// The identity of an operation's compensation: it is a step of its own.
pub(crate) fn compensation_identity(record: &Record) -> String {
    format!("{}/compensation/1", record.operation_id)
}

/// The identity of one request of an operation: the first bears the operation's own.
pub(crate) fn leg_identity(record: &Record, leg: u32) -> String {
    match leg {
        0 | 1 => record.operation_id.to_string(),
        later => format!("{}/leg/{later}", record.operation_id),
    }
}

/// The step that an effect's first call comes to.
pub(crate) fn first_step(event: Event) -> Transition {
    step(None, event).expect("an absent operation begins with Apply and with CommitFirst")
}

/// The step that an unfinished operation's remaining work comes to.
pub(crate) fn last_step(record: &Record, event: Event) -> Transition {
    step(Some(record.state), event)
        .expect("may_finish() saw FirstCommit, which each of the finishing events leaves")
}

/// The answer to a repeated request: the stored result, as long as the effect's row stands.
pub(crate) fn replay(record: Record, seen: EffectSeen) -> Answer {
    if row_is_missing(&record, seen) {
        return Answer::Refused(Refusal::effect_missing(record.operation_id));
    }
    Answer::Replayed(Box::new(record))
}

/// The answer to a finish that came too late, by what the record is now.
pub(crate) fn finish_too_late(kept: Kept) -> Answer {
    let id = kept.record.operation_id.clone();
    match kept.record.state {
        State::InProgress(_) => Answer::Refused(Refusal::in_progress(id)),
        State::InDoubt => Answer::Refused(Refusal::in_doubt(id)),
        State::Applied | State::Partial | State::NotApplied | State::Answered => {
            Answer::Replayed(Box::new(kept.record))
        }
    }
}

/// What a finish of an operation that is not there comes to.
pub(crate) fn nothing_to_finish() -> StoreError {
    StoreError::Quarantined { reason: "no record has the key of this operation".into() }
}

/// What a fresh attempt comes to whose internal key another operation has.
pub(crate) fn key_taken(path: PathBuf) -> StoreError {
    let cause = "the attempt's operation key is another operation's; make a new one for each";
    StoreError::Io { path, cause: cause.into() }
}

/// What is wrong with a row that an effect says it made.
pub(crate) const RESERVED: &str = "which cannot be an effect's table";
/// What is wrong with a row that an effect says it made.
pub(crate) const NOT_THERE: &str = "which is not there";

/// What an effect comes to that names a wrong row.
pub(crate) fn wrong_row(row: &EffectRow, problem: &str) -> StoreError {
    let reason = format!("it named row {} of table `{}`, {problem}", row.id, row.table);
    StoreError::EffectFailed { reason, refused: false }
}

/// A result that is small enough to keep.
///
/// # Errors
/// [`StoreError::EffectFailed`] if it is over the limit.
pub(crate) fn check_result(result: &StoredResult) -> Result<(), StoreError> {
    let length = result.as_json().len();
    if length <= MAX_RESULT_BYTES {
        return Ok(());
    }
    Err(StoreError::EffectFailed {
        reason: format!("its result has {length} bytes; at most {MAX_RESULT_BYTES} can be stored"),
        refused: true,
    })
}

/// What an effect's error means for its command, which is rolled back.
pub(crate) fn effect_failed(error: EffectError) -> StoreError {
    let refused = matches!(error, EffectError::Refused(_));
    StoreError::EffectFailed { reason: effect_words(error), refused }
}

/// An effect's own words.
pub(crate) fn effect_words(error: EffectError) -> String {
    match error {
        EffectError::Refused(words) | EffectError::Failed(words) | EffectError::Store(words) => {
            words
        }
    }
}

/// Decides on an operator's word. `Ok` is the record as it becomes, and the kind of its event.
///
/// # Errors
/// [`Resolved`] with what stands against it; nothing is to be written then.
pub(crate) fn resolve(
    mut kept: Kept,
    seen: EffectSeen,
    said: &Resolve,
    now: Timestamp,
) -> Result<(Kept, &'static str), Resolved> {
    let transition =
        step(Some(kept.record.state), Event::Resolve(said.verdict)).map_err(Resolved::Illegal)?;
    if let Some(owner) = kept.record.owner.filter(|owner| now < owner.lease_until) {
        return Err(Resolved::Owned { until: owner.lease_until });
    }
    let has_proof = said.proof.as_ref().is_some_and(|proof| !proof.trim().is_empty());
    if let Some(EffectRef { table, id, .. }) = &kept.record.effect {
        let (table, id) = (table.clone(), *id);
        match (said.verdict, seen) {
            (Verdict::Applied, EffectSeen::Missing) => {
                return Err(Resolved::EffectGone { table, id });
            }
            (Verdict::NotApplied, EffectSeen::Same | EffectSeen::Changed) if !has_proof => {
                return Err(Resolved::EffectStands { table, id });
            }
            _ => {}
        }
    }
    // A local effect has no sender beside its owner, whose lease has ended; a remote one may. What an
    // upstream answered, or asked for, says nothing of what it had done by then.
    let may_still_be_sent = matches!(
        kept.record.state,
        State::InProgress(Phase::Dispatched | Phase::AwaitingInput)
            | State::InDoubt
            | State::Answered
    );
    let proved = has_proof || said.verdict == Verdict::Applied || !may_still_be_sent;
    let result = resolution_result(&kept.record, said);
    kept.settle(transition, result, now);
    kept.record.resolution = Some(if proved { Resolution::Proved } else { Resolution::Unproved });
    kept.owner.fence += 1;
    Ok((kept, transition.audit_kind()))
}

/// Settles as applied, by an operator's word, what was settled as not applied and of which the target
/// said later that it did it.
///
/// # Errors
/// [`Resolved::Illegal`] if it was not settled so.
pub(crate) fn correct(
    mut kept: Kept,
    said: &Resolve,
    now: Timestamp,
) -> Result<(Kept, &'static str), Resolved> {
    let transition = step(Some(kept.record.state), Event::Correct).map_err(Resolved::Illegal)?;
    if kept.record.purged {
        // Its retention has ended: only the verdict changes.
        kept.advance(transition);
    } else {
        let result = resolution_result(&kept.record, said);
        kept.settle(transition, result, now);
    }
    kept.record.resolution = Some(Resolution::Proved);
    kept.owner.fence += 1;
    Ok((kept, transition.audit_kind()))
}

/// The result to store for what an operator decided.
fn resolution_result(record: &Record, said: &Resolve) -> StoredResult {
    let text = |text: &str| StoredResult::from_text(text);
    let word = match said.verdict {
        Verdict::Applied => "applied",
        Verdict::NotApplied => "not_applied",
    };
    let effect = match (&record.effect, said.verdict) {
        (Some(effect), Verdict::Applied) => format!(r#","effectId":{}"#, effect.id),
        _ => String::new(),
    };
    let json = format!(
        r#"{{"resolved":"{word}","by":{},"reason":{}{effect}}}"#,
        text(&said.who).as_json(),
        text(&said.reason).as_json()
    );
    StoredResult::from_json(json).expect("every part is JSON")
}

/// A failed step's words, cut to what the audit trail keeps.
fn note(words: &str) -> &str {
    let end = (0..=MAX_NOTE_BYTES.min(words.len())).rev().find(|at| words.is_char_boundary(*at));
    &words[..end.unwrap_or(0)]
}
