//! The one thread that writes. It takes whatever commands are waiting, runs them in one transaction,
//! each in a savepoint of its own, commits once, and only then answers each caller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use counterfoil_core::identity::BackendId;
use rusqlite::Error;
use tokio::sync::oneshot;

use super::commands::{Command, Done, Session};
use super::faults::{Fault, Kind, kind, store_error};
use super::gather::{BATCH_LIMIT, Last, first, gather};
use super::log::{Helper, LogKeeper};
use super::open::{read_ledger_row, reopen};
use super::pace::Pace;
use super::recall::recall;
use super::reserve::Reserve;
use super::stats::Counts;
use crate::clock::SharedMark;
use crate::error::StoreError;
use crate::tables::Tables;
#[cfg(feature = "cut-points")]
use crate::{contract::Answer, cut_point};

/// A command and whoever waits for its answer.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) command: Command,
    /// What the transaction decided; told to the caller after the commit.
    pub(super) held: Option<Result<Done, StoreError>>,
    reply: oneshot::Sender<Result<Done, StoreError>>,
}

impl Job {
    pub(super) fn new(command: Command) -> (Self, oneshot::Receiver<Result<Done, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { command, held: None, reply }, answer)
    }

    pub(super) fn answer(self) {
        let outcome = self.held.unwrap_or(Err(StoreError::CommitUnknown));
        // A caller that has gone does not undo what is committed.
        let _ = self.reply.send(outcome);
        // The effect's last owner may be here, and its end is not ours: a panic there would end
        // the writer, and with it everybody's ledger.
        let command = AssertUnwindSafe(self.command);
        if catch_unwind(move || drop(command)).is_err() {
            tracing::error!("an effect panicked while it was dropped");
        }
    }
}

/// What became of a batch's shared transaction.
enum Together {
    /// Every job holds its outcome.
    Decided,
    /// Nothing of it is committed; each command needs a transaction of its own.
    Apart,
    /// Nobody knows whether it is committed.
    Unknown,
}

/// The writer's state.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None` after a failed commit, until the file could be opened again.
    pub(super) session: Option<Session>,
    backend_id: BackendId,
    lock_wait: Duration,
    cache_kib: u32,
    pace: Pace,
    reserve: Reserve,
    /// The reserve was given up for settling: until it is there again, nothing new is begun.
    no_room: bool,
    tables: Arc<Tables>,
    mark: Arc<SharedMark>,
    path: std::path::PathBuf,
    counts: Arc<Counts>,
    pub(super) log: LogKeeper,
}

impl Writer {
    pub(super) fn new(
        session: Session,
        backend_id: BackendId,
        lock_wait: Duration,
        cache_kib: u32,
    ) -> Self {
        Self {
            backend_id,
            lock_wait,
            cache_kib,
            pace: Pace::new(),
            reserve: Reserve::beside(&session.path),
            no_room: false,
            tables: Arc::clone(&session.tables),
            mark: Arc::clone(&session.mark),
            path: session.path.clone(),
            counts: Arc::default(),
            log: LogKeeper::new(),
            session: Some(session),
        }
    }

    fn reopen(&self) -> Result<Session, StoreError> {
        reopen(&self.path, &self.backend_id, &self.tables, &self.mark, self.cache_kib)
    }

    /// What it has committed, as it goes on.
    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Works until every sender is gone and the queue is empty.
    pub(super) fn run(&mut self, queue: &Receiver<Job>, helper: Helper) {
        self.log.helper = Some(helper);
        self.work_off(queue);
        // The readers end when nobody can ask them any more.
        self.log.helper = None;
    }

    fn work_off(&mut self, queue: &Receiver<Job>) {
        let mut batch = Vec::with_capacity(BATCH_LIMIT);
        let mut last = Last::default();
        loop {
            gather(queue, &mut batch, last);
            if batch.is_empty() {
                let Some(first) = first(queue) else { return };
                batch.push(first);
                gather(queue, &mut batch, Last::default());
            }
            self.pace.before_batch();
            let (command_count, begun) = (batch.len(), Instant::now());
            self.run_batch(&mut batch);
            last = Last { command_count, took: begun.elapsed() };
            self.pace.after_batch();
            self.keep_log();
        }
    }

    pub(super) fn run_batch(&mut self, batch: &mut Vec<Job>) {
        self.no_room = self.no_room && !self.reserve.refill();
        let together = if batch.len() == 1 { Together::Apart } else { self.together(batch) };
        match together {
            Together::Decided => {}
            Together::Apart => {
                for mut job in batch.drain(..) {
                    self.alone(&mut job);
                    job.answer();
                }
            }
            Together::Unknown => self.recall(batch),
        }
        batch.drain(..).for_each(Job::answer);
    }

    /// Runs all commands in one transaction.
    fn together(&mut self, batch: &mut [Job]) -> Together {
        let session = match self.begin() {
            Ok(session) => session,
            Err(error) => {
                batch.iter_mut().for_each(|job| job.held = Some(Err(error.clone())));
                return Together::Decided;
            }
        };
        for job in batch.iter_mut() {
            match one_of_many(session, &job.command) {
                Ok(outcome) => job.held = Some(outcome),
                Err(NotShared) => {
                    roll_back(session);
                    return Together::Apart;
                }
            }
        }
        if session.seal().is_err() {
            roll_back(session);
            return Together::Apart;
        }
        match session.execute("COMMIT") {
            Ok(()) => {
                batch.iter().for_each(|job| after_commit(session, job.held.as_ref()));
                self.counts.committed(batch.len());
                Together::Decided
            }
            Err(error) if is_certain(session, &error) => {
                roll_back(session);
                Together::Apart
            }
            Err(_) => Together::Unknown,
        }
    }

    /// Runs one command in a transaction of its own. What settles an operation is tried once more
    /// with the space that is kept for it.
    fn alone(&mut self, job: &mut Job) {
        self.alone_once(job);
        if job.command.settles()
            && matches!(job.held, Some(Err(StoreError::Full { .. })))
            && self.reserve.release()
        {
            self.no_room = true;
            self.alone_once(job);
        }
    }

    fn alone_once(&mut self, job: &mut Job) {
        let session = match self.begin() {
            Ok(session) => session,
            Err(error) => {
                job.held = Some(Err(error));
                return;
            }
        };
        let done = match session.run(&job.command) {
            Ok(done) => done,
            Err(fault) => {
                job.held = Some(Err(session.explain(fault)));
                roll_back(session);
                return;
            }
        };
        match session.seal().and_then(|()| session.execute("COMMIT")) {
            Ok(()) => {
                job.held = Some(Ok(done));
                after_commit(session, job.held.as_ref());
                self.counts.committed(1);
            }
            Err(error) if is_certain(session, &error) => {
                job.held = Some(Err(session.explain(Fault::Sqlite(error))));
                roll_back(session);
            }
            Err(_) => {
                job.held = Some(Ok(done));
                self.recall(std::slice::from_mut(job));
            }
        }
    }

    /// Begins a transaction and reads what every command needs of the ledger.
    fn begin(&mut self) -> Result<&mut Session, StoreError> {
        if self.session.is_none() {
            let opened = self.reopen()?;
            self.session = Some(opened);
        }
        let Some(session) = &mut self.session else { unreachable!("it was just made") };
        let begun = session.begin(self.lock_wait);
        self.pace.saw_rival(session.patience.take_waited());
        begun?;
        match session.data_version() {
            Ok(version) => self.pace.saw_version(version),
            Err(error) => {
                let error = session.explain(Fault::Sqlite(error));
                roll_back(session);
                return Err(error);
            }
        }
        session.no_room = self.no_room;
        Ok(session)
    }

    /// After a commit whose acknowledgement was lost: opens the ledger again and looks, for each
    /// command, whether its own mark is there.
    pub(super) fn recall(&mut self, batch: &mut [Job]) {
        // First closed, then opened: the broken connection must not be the one that answers.
        self.session = None;
        tracing::error!("the ledger's commit was not acknowledged; opening it again to look");
        match self.reopen() {
            Ok(session) => {
                for job in batch {
                    let held = job.held.take();
                    job.held = Some(recall(&session.connection, &job.command, held));
                }
                self.session = Some(session);
            }
            Err(error) => {
                tracing::error!(%error, "the ledger could not be opened again");
                batch.iter_mut().for_each(|job| job.held = Some(Err(StoreError::CommitUnknown)));
            }
        }
    }

    /// Writes the log back and cuts it when it is time.
    pub(super) fn keep_log(&mut self) {
        if let Some(session) = &self.session {
            self.log.keep(session);
        }
    }
}

impl Session {
    fn begin(&mut self, lock_wait: Duration) -> Result<(), StoreError> {
        self.check_in_place()?;
        let asked = Instant::now();
        self.patience.allow(lock_wait);
        let begun = self.execute("BEGIN IMMEDIATE");
        self.patience.allow(Duration::ZERO);
        begun.map_err(|error| store_error(&error, &self.path, asked.elapsed()))?;
        self.stamped = None;
        self.seen.clear();
        match read_ledger_row(&self.connection) {
            Ok(Ok(row)) => {
                self.mark.set_horizon(row.horizon);
                self.mark.raise(row.high_water);
                self.kept_mark = row.high_water;
                Ok(())
            }
            Ok(Err(cause)) => {
                roll_back(self);
                Err(StoreError::Io { path: self.path.clone(), cause })
            }
            Err(error) => {
                roll_back(self);
                Err(self.explain(Fault::Sqlite(error)))
            }
        }
    }

    /// A file that was moved or deleted beneath us would take commits that nobody finds again.
    fn check_in_place(&self) -> Result<(), StoreError> {
        let mut moved = 0;
        let asked =
            self.connection.file_control(Some("main"), rusqlite::FileControl::HasMoved(&mut moved));
        if asked.is_ok() && moved == 0 {
            return Ok(());
        }
        Err(StoreError::Io {
            path: self.path.clone(),
            cause: "the file was moved or deleted while it was open; put it back and start the \
                    server again"
                .into(),
        })
    }

    fn data_version(&self) -> rusqlite::Result<i64> {
        self.connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
    }

    /// Keeps the latest time that this transaction was stamped with as the ledger's mark, unless
    /// the ledger has it already: a millisecond has many transactions.
    fn seal(&self) -> rusqlite::Result<()> {
        match self.stamped {
            Some(stamped) if stamped > self.kept_mark => self
                .connection
                .prepare_cached("UPDATE ledger SET high_water_ms = max(high_water_ms, ?1)")?
                .execute([stamped.as_ms()])
                .map(|_| ()),
            _ => Ok(()),
        }
    }

    fn explain(&self, fault: Fault) -> StoreError {
        match fault {
            Fault::Command(error) => error,
            Fault::Sqlite(error) => store_error(&error, &self.path, Duration::ZERO),
        }
    }
}

/// The shared transaction is gone or not to be trusted.
struct NotShared;

/// Runs one of several commands of a transaction: what it wrote is kept whole, or not at all.
fn one_of_many(
    session: &mut Session,
    command: &Command,
) -> Result<Result<Done, StoreError>, NotShared> {
    let lost = |_: Error| NotShared;
    session.execute("SAVEPOINT command").map_err(lost)?;
    let outcome = match session.run(command) {
        Ok(done) => Ok(done),
        Err(fault) => {
            session.numbers.clear();
            session.seen.clear();
            if session.connection.is_autocommit() {
                return Err(NotShared);
            }
            if let Fault::Sqlite(error) = &fault
                && matches!(kind(error), Kind::Busy | Kind::Full | Kind::Io)
            {
                return Err(NotShared);
            }
            session.execute("ROLLBACK TO command").map_err(lost)?;
            Err(session.explain(fault))
        }
    };
    session.execute("RELEASE command").map_err(lost)?;
    Ok(outcome)
}

/// Whether a failed commit is known to have committed nothing: the transaction is still open, or
/// there was no room to write it. Anything else may have reached the disk.
fn is_certain(session: &Session, error: &Error) -> bool {
    !session.connection.is_autocommit() || kind(error) == Kind::Full
}

fn roll_back(session: &mut Session) {
    session.numbers.clear();
    session.seen.clear();
    if !session.connection.is_autocommit()
        && let Err(error) = session.execute("ROLLBACK")
    {
        tracing::error!(%error, "the ledger's transaction could not be rolled back");
    }
}

/// The transaction stands: the ledger's mark is known, and the fault lab may strike.
fn after_commit(session: &Session, held: Option<&Result<Done, StoreError>>) {
    if let Some(stamped) = session.stamped {
        session.mark.raise(stamped);
    }
    if let Some(Ok(Done::Outbox(done))) = held {
        super::outbox::after_commit(done);
    }
    if let Some(Ok(Done::Direct(done))) = held {
        super::direct::after_commit(done);
    }
    #[cfg(feature = "cut-points")]
    if let Some(Ok(Done::Answer(Answer::Fresh(record)))) = held {
        if record.state.is_terminal() {
            cut_point!("store.after_commit");
        } else {
            cut_point!("store.after_first_commit");
        }
    }
}
