//! The writing commands, each inside a transaction that somebody else begins and commits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::admission::{Decision, LedgerTime, decide};
use counterfoil_core::identity::{OperationId, OperationKey, Tenant};
use counterfoil_core::operation::Event;
use counterfoil_core::record::{EffectRef, Nature, StoredResult};
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::connection::Patience;
use super::direct;
use super::due::Due;
use super::effects::{self, SqliteEffects};
use super::faults::{Fault, Kind, kind};
use super::guard::Guard;
use super::keys;
use super::log::LogLength;
use super::notes::CancelNote;
use super::numbers::Numbers;
use super::outbox;
use super::rows::{self, Found};
use super::upkeep::Upkeep;
use crate::clock::SharedMark;
use crate::contract::{Answer, Finish, Resolve, Resolved, Submission};
use crate::cut_point;
use crate::effect::{Completion, EffectContext, EffectError, EffectRow, EffectTx};
use crate::error::StoreError;
use crate::keys::KeyCheck;
use crate::steps::{
    AuditLine, COMPENSATED, COMPENSATION_FAILED, Kept, NOT_THERE, RESERVED, check_result,
    compensation_identity, effect_failed, effect_words, finish_too_late, first_step, key_taken,
    last_step, nothing_to_finish, replay, resolve, wrong_row,
};
use crate::tables::{Tables, is_identifier, is_reserved};

/// The writer's connection, with what its commands need.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) guard: Guard,
    pub(super) patience: Patience,
    pub(super) log_length: LogLength,
    pub(super) tables: Arc<Tables>,
    pub(super) mark: Arc<SharedMark>,
    pub(super) path: PathBuf,
    pub(super) numbers: Numbers,
    pub(super) seen: outbox::Seen,
    /// The latest time that the present transaction was stamped with; `None` if it wrote nothing.
    pub(super) stamped: Option<Timestamp>,
    /// The mark that the ledger had when the present transaction began.
    pub(super) kept_mark: Timestamp,
    /// The space that is kept for settling is gone: no new work is begun.
    pub(super) no_room: bool,
}

/// A command, as the writer takes it.
#[derive(Debug)]
pub(super) enum Command {
    Submit(Submission),
    Finish(Finish),
    Resolve(Resolve),
    NoteCancel(CancelNote),
    /// Look at the clocks; the horizon stays so far behind.
    WatchClock(Duration),
    Purge(Due),
    ConfirmClock(String),
    BindKeys(Vec<KeyCheck>),
    /// Writes and commits something, to prove that it can be done.
    Probe,
    Outbox(outbox::Command),
    Direct(direct::Command),
}

impl Command {
    /// Whether it settles what was begun: it may use the space that is kept for that.
    pub(super) const fn settles(&self) -> bool {
        match self {
            Self::Finish(_) | Self::Resolve(_) => true,
            Self::Outbox(command) => command.settles(),
            Self::Direct(command) => command.settles(),
            _ => false,
        }
    }
}

/// What a command came to, to be answered after the commit.
#[derive(Debug)]
pub(super) enum Done {
    Answer(Answer),
    Resolved(Resolved),
    Noted,
    Upkeep(Box<Upkeep>),
    /// The counts of results and tombstones.
    Purged((u64, u64)),
    KeysBound,
    Probed,
    Outbox(outbox::Done),
    Direct(direct::Done),
}

/// How the step after the first commit went.
enum Followed {
    Whole(StoredResult),
    Undone { why: String },
    Partly { why: String, compensation: String },
}

impl Session {
    /// Runs one command.
    ///
    /// # Errors
    /// [`Fault`]; what the command wrote is then to be rolled back.
    pub(super) fn run(&mut self, command: &Command) -> Result<Done, Fault> {
        match command {
            Command::Submit(submission) => self.submit(submission).map(Done::Answer),
            Command::Finish(finish) => self.finish(finish).map(Done::Answer),
            Command::Resolve(said) => self.resolve(said).map(Done::Resolved),
            Command::NoteCancel(note) => self.note_cancel(note).map(|()| Done::Noted),
            Command::WatchClock(span) => self.watch_clock(*span).map(Box::new).map(Done::Upkeep),
            Command::Purge(due) => self.purge(due).map(Done::Purged),
            Command::ConfirmClock(who) => self.confirm_clock(who).map(Box::new).map(Done::Upkeep),
            Command::BindKeys(checks) => {
                let now = self.mark.now();
                if keys::bind(&self.connection, &self.path, checks, now)? {
                    self.stamp(now);
                }
                Ok(Done::KeysBound)
            }
            Command::Outbox(command) => self.run_outbox(command).map(Done::Outbox),
            Command::Direct(command) => self.run_direct(command).map(Done::Direct),
            Command::Probe if self.no_room => {
                Err(Fault::Command(StoreError::Full { path: self.path.clone() }))
            }
            Command::Probe => {
                self.move_mark(self.mark.now())?;
                Ok(Done::Probed)
            }
        }
    }

    fn submit(&mut self, submission: &Submission) -> Result<Answer, Fault> {
        let (admitted, effect) = (&submission.admitted, &submission.effect);
        let now = self.mark.now();
        let tenant = &admitted.caller().tenant;
        let record = match rows::find_by_id(&self.connection, tenant, admitted.operation_id())? {
            Found::Absent => None,
            Found::Kept(kept) => Some(kept.record),
            Found::Damaged(damage) => return Err(set_aside(admitted.operation_id(), damage)),
        };
        let time = LedgerTime { now, horizon: self.mark.horizon() };
        match (decide(admitted, record.as_ref(), time), record) {
            (Decision::Refuse(refusal), _) => return Ok(Answer::Refused(refusal)),
            (Decision::Replay, Some(record)) => {
                let seen = effects::look(&self.connection, record.effect.as_ref())?;
                return Ok(replay(record, seen));
            }
            (Decision::Replay, None) => unreachable!("decide() replays only a record"),
            (Decision::Fresh, _) => {}
        }
        if self.no_room {
            return Err(Fault::Command(StoreError::Full { path: self.path.clone() }));
        }
        self.stamp(now);
        let mut kept = Kept::begin(admitted, now);
        let tenant_no = self.tenant_no(tenant)?;
        rows::insert(&self.connection, tenant_no, &kept).map_err(|error| match kind(&error) {
            Kind::Constraint => Fault::Command(key_taken(self.path.clone())),
            _ => Fault::Sqlite(error),
        })?;
        cut_point!("store.after_ledger_insert");
        let context = context(&kept, now);
        let completion = self
            .call_effect(kept.record.key, |tx| effect.apply(tx, &context))?
            .map_err(|error| Fault::Command(effect_failed(error)))?;
        cut_point!("store.after_effect_insert");
        let (transition, row) = match &completion {
            Completion::Whole { row, .. } => (first_step(Event::Apply), row.as_ref()),
            Completion::FirstStep { row } => (first_step(Event::CommitFirst), Some(row)),
        };
        kept.record.effect = row.map(|row| self.effect_ref(row)).transpose()?;
        match completion {
            Completion::Whole { result, .. } => {
                check_result(&result).map_err(Fault::Command)?;
                kept.settle(transition, result, now);
            }
            Completion::FirstStep { .. } => kept.advance(transition),
        }
        rows::update(&self.connection, &kept)?;
        let line = AuditLine::of_caller(&kept.record, transition.audit_kind(), None);
        self.audit(&kept, now, &line)?;
        Ok(Answer::Fresh(Box::new(kept.record)))
    }

    fn finish(&mut self, finish: &Finish) -> Result<Answer, Fault> {
        let now = self.mark.now();
        let mut kept = match rows::find_by_key(&self.connection, finish.key)? {
            Found::Absent => return Err(Fault::Command(nothing_to_finish())),
            Found::Damaged(damage) => return Err(set_aside_key(finish.key, damage)),
            Found::Kept(kept) => *kept,
        };
        if !kept.may_finish(finish.boot, finish.fence) {
            return Ok(finish_too_late(kept));
        }
        let Some(first) = kept.record.effect.clone() else {
            unreachable!("a record in FirstCommit without an effect is damaged")
        };
        self.stamp(now);
        let followed = self.follow_up(finish, &kept, &first, now)?;
        let effect = &finish.effect;
        let (event, reason) = match &followed {
            Followed::Whole(_) => (Event::FinishWhole, None),
            Followed::Undone { why } => (Event::Undo, Some(why)),
            Followed::Partly { why, .. } => (Event::FinishPartly, Some(why)),
        };
        let result = self.call_effect(finish.key, |_| {
            Ok(match &followed {
                Followed::Whole(result) => result.clone(),
                Followed::Undone { why } => effect.undone_result(&first, why),
                Followed::Partly { .. } => effect.partial_result(&first),
            })
        })?;
        let result = result.map_err(|error| Fault::Command(effect_failed(error)))?;
        check_result(&result).map_err(Fault::Command)?;
        if let Followed::Whole(_) = followed {
            // The step may have changed the row as it meant to; "later" begins here.
            kept.record.effect = Some(self.reread(&first)?);
        }
        let transition = last_step(&kept.record, event);
        kept.settle(transition, result, now);
        rows::update(&self.connection, &kept)?;
        self.audit_compensation(&kept, now, &followed)?;
        let kind = transition.audit_kind();
        let reason = reason.map(String::as_str);
        self.audit(&kept, now, &AuditLine::of_caller(&kept.record, kind, reason))?;
        Ok(Answer::Fresh(Box::new(kept.record)))
    }

    /// Runs the step that follows the first commit, and its compensation if it fails; each is
    /// rolled back alone if it fails. A panic is a failure like any other.
    fn follow_up(
        &mut self,
        finish: &Finish,
        kept: &Kept,
        first: &EffectRef,
        now: Timestamp,
    ) -> Result<Followed, Fault> {
        let context = context(kept, now);
        let effect = &finish.effect;
        let step = self.attempt(finish.key, |tx| effect.follow_up(tx, &context, first))?;
        let why = match step {
            Ok(result) => return Ok(Followed::Whole(result)),
            Err(why) => why,
        };
        let taken_back = self.attempt(finish.key, |tx| effect.compensate(tx, &context, first))?;
        Ok(match taken_back {
            Ok(()) => Followed::Undone { why },
            Err(compensation) => Followed::Partly { why, compensation },
        })
    }

    /// Calls an effect inside a savepoint of its own. The inner `Err` is why it failed, in words;
    /// nothing of it is left then.
    fn attempt<T>(
        &mut self,
        key: OperationKey,
        call: impl FnOnce(&mut dyn EffectTx) -> Result<T, EffectError>,
    ) -> Result<Result<T, String>, Fault> {
        self.execute("SAVEPOINT step")?;
        let outcome = match self.call_effect(key, call) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(effect_words(error)),
            Err(Fault::Command(StoreError::EffectPanicked)) => Err("panicked".into()),
            // The store noticed a failure of the effect's that the savepoint survived.
            Err(Fault::Command(StoreError::EffectFailed { reason, .. }))
                if !self.connection.is_autocommit() =>
            {
                Err(reason)
            }
            Err(fault) => return Err(fault),
        };
        if outcome.is_err() {
            self.execute("ROLLBACK TO step")?;
        }
        self.execute("RELEASE step")?;
        Ok(outcome)
    }

    fn resolve(&mut self, said: &Resolve) -> Result<Resolved, Fault> {
        let now = self.mark.now();
        let kept = match rows::find_by_id(&self.connection, &said.tenant, &said.operation_id)? {
            Found::Kept(kept) if kept.record.operation_id == said.operation_id => *kept,
            Found::Absent | Found::Kept(_) => return Ok(Resolved::Absent),
            Found::Damaged(damage) => {
                let _ = set_aside(&said.operation_id, damage);
                return Ok(Resolved::Quarantined);
            }
        };
        if kept.record.nature == Nature::Deferred {
            return self.resolve_delivery(kept, said, now);
        }
        let seen = effects::look(&self.connection, kept.record.effect.as_ref())?;
        let before = kept.clone();
        let (kept, kind) = match resolve(kept, seen, said, now) {
            Ok(decided) => decided,
            Err(stands_against) => return Ok(stands_against),
        };
        if kept.record.nature == Nature::Direct
            && let Err(stands_against) = self.keep_resolved(&before, &kept)?
        {
            return Ok(stands_against);
        }
        self.stamp(now);
        rows::update(&self.connection, &kept)?;
        self.audit(&kept, now, &AuditLine::of_operator(&kept.record, kind, said))?;
        Ok(Resolved::Done(Box::new(kept.record)))
    }

    /// Calls an effect. The outer error is the store's view: it failed beneath the effect, the
    /// effect panicked, or the transaction is gone.
    fn call_effect<T>(
        &mut self,
        key: OperationKey,
        call: impl FnOnce(&mut dyn EffectTx) -> Result<T, EffectError>,
    ) -> Result<Result<T, EffectError>, Fault> {
        let mut tx = SqliteEffects::new(&self.connection, &self.guard, &self.tables, key);
        let outcome = catch_unwind(AssertUnwindSafe(|| call(&mut tx)));
        if let Some(fault) = tx.into_fault() {
            return Err(fault);
        }
        if self.connection.is_autocommit() {
            let reason = "the transaction was rolled back beneath it".into();
            return Err(Fault::Command(StoreError::EffectFailed { reason, refused: false }));
        }
        outcome.map_err(|_| Fault::Command(StoreError::EffectPanicked))
    }

    /// The row that an effect says it made, with its digest.
    fn effect_ref(&self, row: &EffectRow) -> Result<EffectRef, Fault> {
        let failed = |problem: &str| Fault::Command(wrong_row(row, problem));
        if !is_identifier(row.table) || is_reserved(row.table) {
            return Err(failed(RESERVED));
        }
        let digest = effects::read_digest(&self.connection, row.table, row.id)?
            .ok_or_else(|| failed(NOT_THERE))?;
        Ok(EffectRef { table: row.table.to_owned(), id: row.id, digest })
    }

    /// A row with its present digest; one that is gone keeps the digest that it had.
    fn reread(&self, first: &EffectRef) -> Result<EffectRef, Fault> {
        let digest = effects::read_digest(&self.connection, &first.table, first.id)?;
        Ok(EffectRef { digest: digest.unwrap_or(first.digest), ..first.clone() })
    }

    pub(super) fn tenant_no(&mut self, tenant: &Tenant) -> Result<i64, Fault> {
        if let Some(number) = self.numbers.tenants.get(tenant) {
            return Ok(*number);
        }
        let name = tenant.as_str().as_bytes();
        let known = self
            .connection
            .prepare_cached("SELECT tenant_no FROM tenants WHERE name = ?1")?
            .query_row([name], |row| row.get(0))
            .optional()?;
        let number = match known {
            Some(number) => number,
            None => {
                self.connection
                    .prepare_cached("INSERT INTO tenants (name) VALUES (?1)")?
                    .execute([name])?;
                self.connection.last_insert_rowid()
            }
        };
        self.numbers.tenants.insert(tenant.clone(), number);
        Ok(number)
    }

    fn audit_compensation(
        &self,
        kept: &Kept,
        now: Timestamp,
        followed: &Followed,
    ) -> Result<(), Fault> {
        let (kind, reason) = match followed {
            Followed::Whole(_) => return Ok(()),
            Followed::Undone { .. } => (COMPENSATED, None),
            Followed::Partly { compensation, .. } => {
                (COMPENSATION_FAILED, Some(compensation.as_str()))
            }
        };
        let identity = compensation_identity(&kept.record);
        let line = AuditLine::of_caller(&kept.record, kind, reason);
        self.audit(kept, now, &AuditLine { identity: &identity, ..line })
    }

    pub(super) fn audit(
        &self,
        kept: &Kept,
        now: Timestamp,
        line: &AuditLine<'_>,
    ) -> Result<(), Fault> {
        const SQL: &str = "INSERT INTO audit_events \
            (operation_key, seq, at_ms, kind, identity, who, reason, proof) VALUES (?1, \
            (SELECT coalesce(max(seq), 0) + 1 FROM audit_events WHERE operation_key = ?1), \
            ?2, ?3, ?4, ?5, ?6, ?7)";
        self.connection.prepare_cached(SQL)?.execute(params![
            kept.record.key.as_bytes().as_slice(),
            now.as_ms(),
            line.kind.as_bytes(),
            line.identity.as_bytes(),
            line.who.as_bytes(),
            line.reason.map(str::as_bytes),
            line.proof.map(str::as_bytes),
        ])?;
        Ok(())
    }

    pub(super) fn stamp(&mut self, now: Timestamp) {
        self.stamped = Some(self.stamped.map_or(now, |earlier| earlier.max(now)));
    }

    /// Moves the ledger's mark to `now`, and by a millisecond at least: SQLite writes nothing for a
    /// value that is there already, and a proof that writes can be committed must write.
    fn move_mark(&self, now: Timestamp) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("UPDATE ledger SET high_water_ms = max(high_water_ms + 1, ?1)")?
            .execute([now.as_ms()])
            .map(|_| ())
    }

    /// Runs one of the store's own statements that takes nothing and gives nothing.
    pub(super) fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(|_| ())
    }
}

fn context(kept: &Kept, now: Timestamp) -> EffectContext<'_> {
    EffectContext { operation_id: &kept.record.operation_id, operation_key: kept.record.key, now }
}

/// Raises the alarm about a damaged record. The words hold the ID, which is no secret, and the
/// check that failed.
pub(super) fn set_aside(id: &OperationId, damage: rows::Damage) -> Fault {
    tracing::error!(operation_id = %id, %damage, "a record of the ledger is damaged; set aside");
    Fault::Command(StoreError::Quarantined { reason: damage.to_string() })
}

pub(super) fn set_aside_key(key: OperationKey, damage: rows::Damage) -> Fault {
    let operation_key = uuid::Uuid::from_bytes(*key.as_bytes());
    tracing::error!(%operation_key, %damage, "a record of the ledger is damaged; set aside");
    Fault::Command(StoreError::Quarantined { reason: damage.to_string() })
}
