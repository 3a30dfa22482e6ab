//! What a command came to whose commit was not acknowledged. Only its own mark in the ledger
//! proves that it is committed; absence proves nothing to the caller, who sends it again.

use counterfoil_core::operation::Verdict;
use rusqlite::{Connection, OptionalExtension, params};

use super::commands::{Command, Done};
use super::direct;
use super::notes::{CancelNote, is_noted};
use super::outbox;
use super::rows::{Found, find_by_id, find_by_key};
use crate::contract::{Answer, Finish, Resolve, Resolved, Submission};
use crate::direct_steps::JOINED;
use crate::error::StoreError;
use crate::keys::KeyCheck;
use crate::outbox_steps::DUPLICATE_SUBMISSION;
use crate::steps::{CANCEL_REQUESTED, Kept};

/// Looks for a command's mark. `held` is what the lost transaction had decided: an error of the
/// command's own stands, since it left nothing to commit.
pub(super) fn recall(
    connection: &Connection,
    command: &Command,
    held: Option<Result<Done, StoreError>>,
) -> Result<Done, StoreError> {
    let held = held.transpose()?;
    let found = match command {
        Command::Submit(submission) => submitted(connection, submission),
        Command::Finish(finish) => finished(connection, finish),
        Command::Resolve(said) => resolved(connection, said),
        Command::NoteCancel(note) => noted(connection, note),
        // Whatever became of it, doing it again does no harm.
        Command::WatchClock(_) | Command::Purge(_) | Command::ConfirmClock(_) => Ok(None),
        Command::Outbox(command) => {
            outbox::recall(connection, command).map(|done| done.map(Done::Outbox))
        }
        Command::Direct(_) => match held {
            Some(Done::Direct(done)) => {
                direct::recall(connection, done).map(|done| done.map(Done::Direct))
            }
            _ => Ok(None),
        },
        Command::BindKeys(checks) => bound(connection, checks),
        // It leaves no mark of its own, and what is asked is whether a commit is acknowledged.
        Command::Probe => Ok(None),
    };
    found.ok().flatten().ok_or(StoreError::CommitUnknown)
}

fn submitted(connection: &Connection, made: &Submission) -> rusqlite::Result<Option<Done>> {
    let admitted = &made.admitted;
    let found = find_by_id(connection, &admitted.caller().tenant, admitted.operation_id())?;
    Ok(kept_if(found, |kept| kept.record.nonce == admitted.attempt().nonce).map(fresh))
}

fn finished(connection: &Connection, finish: &Finish) -> rusqlite::Result<Option<Done>> {
    let found = find_by_key(connection, finish.key)?;
    let by_us =
        |kept: &Kept| kept.record.state.is_terminal() && kept.was_owned(finish.boot, finish.fence);
    Ok(kept_if(found, by_us).map(fresh))
}

fn resolved(connection: &Connection, said: &Resolve) -> rusqlite::Result<Option<Done>> {
    let found = find_by_id(connection, &said.tenant, &said.operation_id)?;
    let Some(kept) = kept_if(found, |kept| kept.record.operation_id == said.operation_id) else {
        return Ok(None);
    };
    let kind = match said.verdict {
        Verdict::Applied => "resolved_applied",
        Verdict::NotApplied => "resolved_not_applied",
    };
    let last = connection
        .prepare_cached(
            "SELECT kind = ?2 AND who = ?3 AND reason = ?4 AND proof IS ?5 FROM audit_events \
             WHERE operation_key = ?1 AND kind NOT IN (?6, ?7, ?8) ORDER BY seq DESC LIMIT 1",
        )?
        .query_row(
            params![
                kept.record.key.as_bytes().as_slice(),
                kind.as_bytes(),
                said.who.as_bytes(),
                said.reason.as_bytes(),
                said.proof.as_ref().map(String::as_bytes),
                CANCEL_REQUESTED.as_bytes(),
                DUPLICATE_SUBMISSION.as_bytes(),
                JOINED.as_bytes(),
            ],
            |row| row.get::<_, Option<bool>>(0),
        )
        .optional()?;
    let ours = last.flatten().unwrap_or(false);
    Ok(ours.then(|| Done::Resolved(Resolved::Done(Box::new(kept.record)))))
}

fn noted(connection: &Connection, note: &CancelNote) -> rusqlite::Result<Option<Done>> {
    let found = find_by_id(connection, &note.tenant, &note.operation_id)?;
    let Some(kept) = kept_if(found, |kept| note.concerns(kept)) else { return Ok(None) };
    let leg = direct::latest_leg(connection, &kept)?;
    Ok(is_noted(connection, &kept.record, leg)?.then_some(Done::Noted))
}

fn bound(connection: &Connection, checks: &[KeyCheck]) -> rusqlite::Result<Option<Done>> {
    let mut statement = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM keys WHERE key_id = ?1 AND check_value = ?2)",
    )?;
    for check in checks {
        let there: bool =
            statement.query_row(params![check.id, check.value.as_slice()], |row| row.get(0))?;
        if !there {
            return Ok(None);
        }
    }
    Ok(Some(Done::KeysBound))
}

fn kept_if(found: Found, ours: impl FnOnce(&Kept) -> bool) -> Option<Kept> {
    match found {
        Found::Kept(kept) if ours(&kept) => Some(*kept),
        Found::Kept(_) | Found::Absent | Found::Damaged(_) => None,
    }
}

fn fresh(kept: Kept) -> Done {
    Done::Answer(Answer::Fresh(Box::new(kept.record)))
}
