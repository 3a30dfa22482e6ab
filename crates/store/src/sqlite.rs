//! The default back end: one SQLite file, one writing thread, a few reading ones.
//!
//! What it rests on: a write-ahead log with `synchronous=FULL`, so that what was answered is on
//! the medium; one transaction for a record, its effect and its audit events; and the rule that
//! nobody is answered before the commit. Several processes may use one file.

mod cells;
mod check;
mod commands;
mod connection;
mod create;
mod declared;
mod direct;
mod due;
mod effects;
mod faults;
mod findings;
mod gather;
mod guard;
mod key_usage;
mod keys;
mod list;
mod log;
mod migrations;
mod notes;
mod numbers;
mod open;
mod options;
mod outbox;
mod pace;
mod purge;
mod readers;
mod recall;
mod reserve;
mod retention;
mod rows;
mod stats;
#[cfg(test)]
mod tests;
mod upkeep;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use counterfoil_core::fingerprint::KeyRing;
use counterfoil_core::identity::{BackendId, OperationId, OperationKey, Principal, Tenant};
use counterfoil_core::observation::Snapshot;
use counterfoil_core::time::Timestamp;
use tokio::sync::{oneshot, watch};

pub use check::check;
pub use findings::{CheckRefused, CheckReport, OperationProblem};
pub use options::SqliteOptions;

use crate::clock::SharedMark;
use crate::contract::{
    AuditEvent, Committed, Finish, LedgerInfo, LedgerStats, Resolve, Resolved, Store, StoreFuture,
    Submission,
};
use crate::error::StoreError;
use crate::keys::checks;
use crate::listing::{KeyUsage, ListQuery, Page};
use crate::retention::{Purge, Purged, RetentionState};
use commands::{Command, Done};
use due::Place;
use log::Helper;
use notes::CancelNote;
use readers::{Question, READER_COUNT, READER_WAIT, ReadThread};
use stats::{Counts, Round};
use writer::{Job, Writer};

/// The version of the ledger's schema that this library makes and knows.
pub const SCHEMA_VERSION: i64 = migrations::KNOWN_VERSION;

/// The version of the SQLite that is linked, such as `3.51.3`.
#[must_use]
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// A ledger in a SQLite file.
///
/// Dropping it commits what was handed over and waits for that; [`Store::close`] does the same
/// without blocking.
///
/// While it is open, no code of the same process may open the file by other means than SQLite:
/// closing any other handle on it would drop the file locks that SQLite holds (POSIX, `fcntl`).
///
/// ```
/// use counterfoil_store::{SqliteOptions, SqliteStore, Store};
///
/// # let directory = tempfile::tempdir()?;
/// let mut options = SqliteOptions::new(directory.path().join("ledger.db"));
/// options.lock_wait = std::time::Duration::from_millis(200);
/// let store = SqliteStore::open(&options)?;
/// assert!(store.backend_id().as_str().starts_with("bk-"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    backend_id: BackendId,
    mark: Arc<SharedMark>,
    /// `None` once it is closed.
    queues: Mutex<Option<Queues>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    counts: Arc<Counts>,
    round: Mutex<Round>,
    /// Closed when the writer, the last thread to end, has ended.
    ended: watch::Receiver<()>,
    /// How far the tombstones were looked through.
    place: Mutex<Place>,
    /// What was counted of the outbox.
    outbox_round: Mutex<outbox::Round>,
}

#[derive(Debug)]
struct Queues {
    jobs: Sender<Job>,
    questions: Sender<Question>,
}

impl SqliteStore {
    /// Opens a ledger, or makes it. It blocks for some milliseconds, and for up to 5 seconds while
    /// another process holds the file's lock.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the file is no usable ledger (it is left as it is),
    /// [`StoreError::Busy`], [`StoreError::Full`] or [`StoreError::Io`] if it cannot be used now.
    pub fn open(options: &SqliteOptions) -> Result<Self, StoreError> {
        let path = std::path::absolute(&options.path).map_err(|error| StoreError::Io {
            path: options.path.clone(),
            cause: error.to_string(),
        })?;
        // SQLite keeps the log beside the file itself, wherever a symbolic link to it is.
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        let opened = open::open(options, &path)?;
        let mark = Arc::clone(&opened.session.mark);
        let (alive, ended) = watch::channel(());
        let (jobs, job_queue) = channel();
        let (questions, question_queue) = channel();
        let question_queue = Arc::new(Mutex::new(question_queue));
        let mut readers = Vec::with_capacity(READER_COUNT);
        for _ in 0..READER_COUNT {
            let reader = ReadThread {
                connection: open::reader(&path, READER_WAIT)?,
                mark: Arc::clone(&mark),
                path: path.clone(),
            };
            let queue = Arc::clone(&question_queue);
            readers.push(spawn("counterfoil-read", &path, move || reader.run(&queue))?);
        }
        let backend_id = opened.row.backend_id.clone();
        let mut writer = Writer::new(
            opened.session,
            backend_id.clone(),
            options.lock_wait,
            options.writer_cache_kib,
        );
        let counts = writer.counts();
        let helper = Helper::new(questions.clone());
        let writer = spawn("counterfoil-write", &path, move || {
            writer.run(&job_queue, helper);
            // The connection that closes last writes the log back and removes it; two that close
            // at once may each leave that to the other.
            for reader in readers {
                let _ = reader.join();
            }
            drop(writer);
            drop(alive);
        })?;
        Ok(Self {
            path,
            backend_id,
            mark,
            queues: Mutex::new(Some(Queues { jobs, questions })),
            writer: Mutex::new(Some(writer)),
            counts,
            round: Mutex::default(),
            ended,
            place: Mutex::default(),
            outbox_round: Mutex::default(),
        })
    }

    /// The ledger's file, as an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands a command over and waits for its commit.
    async fn write(&self, command: Command) -> Result<Done, StoreError> {
        let (job, answer) = Job::new(command);
        self.with_queues(|queues| queues.jobs.send(job).map_err(|_| StoreError::Closed))?;
        // Without an answer the writer has died with the command in hand.
        answer.await.unwrap_or(Err(StoreError::CommitUnknown))
    }

    async fn read<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Question,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let question = question(reply);
        self.with_queues(|queues| queues.questions.send(question).map_err(|_| StoreError::Closed))?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    fn with_queues(
        &self,
        send: impl FnOnce(&Queues) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        send(queues.as_ref().ok_or(StoreError::Closed)?)
    }

    fn lock_round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The threads work off their queues and end.
    fn stop_taking(&self) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Store for SqliteStore {
    fn info(&self) -> StoreFuture<'_, LedgerInfo> {
        Box::pin(self.read(|reply| Question::Info { reply }))
    }

    fn backend_id(&self) -> &BackendId {
        &self.backend_id
    }

    fn now(&self) -> Timestamp {
        self.mark.now()
    }

    fn horizon(&self) -> Timestamp {
        self.mark.horizon()
    }

    fn bind_keys(&self, keys: &KeyRing) -> StoreFuture<'_, ()> {
        let checks = checks(keys);
        Box::pin(async move {
            // Mostly there is nothing to write: then no lock of another process is waited for.
            let asked = checks.clone();
            if self.read(|reply| Question::KnowsKeys { checks: asked, reply }).await? {
                return Ok(());
            }
            self.write(Command::BindKeys(checks)).await.map(|_| ())
        })
    }

    fn submit(&self, submission: Submission) -> StoreFuture<'_, Committed> {
        Box::pin(async move { self.write(Command::Submit(submission)).await.map(answered) })
    }

    fn finish(&self, finish: Finish) -> StoreFuture<'_, Committed> {
        Box::pin(async move { self.write(Command::Finish(finish)).await.map(answered) })
    }

    fn resolve(&self, resolve: Resolve) -> StoreFuture<'_, Resolved> {
        Box::pin(async move {
            match self.write(Command::Resolve(resolve)).await? {
                Done::Resolved(resolved) => Ok(resolved),
                other => unreachable!("a Resolve comes to Resolved, not {other:?}"),
            }
        })
    }

    fn note_cancel(
        &self,
        tenant: &Tenant,
        operation_id: &OperationId,
        principal: &Principal,
    ) -> StoreFuture<'_, ()> {
        let note = CancelNote {
            tenant: tenant.clone(),
            operation_id: operation_id.clone(),
            principal: principal.clone(),
        };
        Box::pin(async move { self.write(Command::NoteCancel(note)).await.map(|_| ()) })
    }

    fn look_up(&self, tenant: &Tenant, operation_id: &OperationId) -> StoreFuture<'_, Snapshot> {
        let (tenant, operation_id) = (tenant.clone(), operation_id.clone());
        Box::pin(self.read(|reply| Question::LookUp { tenant, operation_id, reply }))
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Page> {
        Box::pin(self.read(|reply| Question::List { query, reply }))
    }

    fn keys_in_use(&self) -> StoreFuture<'_, Vec<KeyUsage>> {
        Box::pin(self.read(|reply| Question::KeysInUse { reply }))
    }

    fn audit(&self, key: OperationKey) -> StoreFuture<'_, Vec<AuditEvent>> {
        Box::pin(self.read(move |reply| Question::Audit { key, reply }))
    }

    fn probe(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.write(Command::Probe).await.map(|_| ()) })
    }

    fn stats(&self) -> StoreFuture<'_, LedgerStats> {
        Box::pin(async move {
            let after = self.lock_round().after();
            let behind = after.clone();
            let slice = self.read(|reply| Question::Slice { after: behind, reply }).await?;
            let unsettled = self.lock_round().add(&after, slice);
            Ok(self.counts.with_sizes(&self.path, unsettled))
        })
    }

    fn retention(&self) -> StoreFuture<'_, RetentionState> {
        Box::pin(self.retention_state())
    }

    fn purge(&self, purge: Purge) -> StoreFuture<'_, Purged> {
        Box::pin(self.purge_batch(purge))
    }

    fn count_due(&self, purge: Purge) -> StoreFuture<'_, Purged> {
        Box::pin(self.count_all_due(purge))
    }

    fn confirm_clock(&self, who: &str) -> StoreFuture<'_, RetentionState> {
        let who = who.to_owned();
        Box::pin(async move {
            match self.write(Command::ConfirmClock(who)).await? {
                Done::Upkeep(upkeep) => Ok(upkeep.state(&self.mark)),
                other => unreachable!("a confirmation comes to the upkeep, not {other:?}"),
            }
        })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.stop_taking();
            // Nothing is ever sent: the channel closes when the writer has ended.
            let mut ended = self.ended.clone();
            while ended.changed().await.is_ok() {}
            Ok(())
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.stop_taking();
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // An effect that holds the store may be what drops it, on the writer itself.
        if let Some(writer) = writer.filter(|w| w.thread().id() != std::thread::current().id()) {
            let _ = writer.join();
        }
    }
}

fn answered(done: Done) -> Committed {
    match done {
        Done::Answer(answer) => Committed::after_commit(answer),
        other => unreachable!("a submission comes to an answer, not {other:?}"),
    }
}

fn spawn(
    name: &str,
    path: &Path,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StoreError> {
    std::thread::Builder::new().name(name.into()).spawn(work).map_err(|error| StoreError::Io {
        path: path.to_owned(),
        cause: format!("no thread could be started: {error}"),
    })
}
