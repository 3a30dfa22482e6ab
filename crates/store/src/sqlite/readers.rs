//! The threads that read. Each read is one short transaction of its own, and none of them writes.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use counterfoil_core::identity::{OperationId, OperationKey, Tenant};
use counterfoil_core::observation::Snapshot;
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, Row};
use tokio::sync::oneshot;

use super::commands::set_aside;
use super::due::{self, Due, Search};
use super::effects::look;
use super::faults::{Fault, store_error};
use super::key_usage::Counted;
use super::keys::unknown;
use super::list::{PAGE_UNITS, list};
use super::log;
use super::open::read_ledger_row;
use super::outbox::Ask;
use super::rows::{Found, find_by_id};
use super::stats::{Slice, slice};
use super::upkeep::Upkeep;
use crate::clock::SharedMark;
use crate::contract::{AuditEvent, LedgerInfo};
use crate::error::StoreError;
use crate::keys::KeyCheck;
use crate::listing::{KeyUsage, ListQuery, Page};

/// How many threads read.
pub(super) const READER_COUNT: usize = 2;

/// A reader waits at most this long for a lock; in a WAL there is hardly one.
pub(super) const READER_WAIT: Duration = Duration::from_secs(1);

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// A question, and whoever waits for the answer.
#[derive(Debug)]
pub(super) enum Question {
    LookUp {
        tenant: Tenant,
        operation_id: OperationId,
        reply: Reply<Snapshot>,
    },
    List {
        query: ListQuery,
        reply: Reply<Page>,
    },
    KeysInUse {
        reply: Reply<Vec<KeyUsage>>,
    },
    Audit {
        key: OperationKey,
        reply: Reply<Vec<AuditEvent>>,
    },
    Info {
        reply: Reply<LedgerInfo>,
    },
    /// Whether the ledger knows all of these keys already.
    KnowsKeys {
        checks: Vec<KeyCheck>,
        reply: Reply<bool>,
    },
    Slice {
        after: Vec<u8>,
        reply: Reply<Slice>,
    },
    Upkeep {
        reply: Reply<Upkeep>,
    },
    Due {
        search: Box<Search>,
        reply: Reply<Due>,
    },
    Outbox(Ask),
    /// Not a question: the log is to be written back into the file.
    WriteBack {
        done: log::Done,
    },
}

/// One reading thread's state.
#[derive(Debug)]
pub(super) struct ReadThread {
    pub(super) connection: Connection,
    pub(super) mark: Arc<SharedMark>,
    pub(super) path: PathBuf,
}

impl ReadThread {
    /// Works until every sender is gone and the queue is empty.
    pub(super) fn run(self, queue: &Mutex<Receiver<Question>>) {
        loop {
            // Held while waiting: the others queue up behind the lock, which wakes one at a time.
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
            match next {
                Ok(question) => self.answer(question),
                Err(_) => return,
            }
        }
    }

    // A caller that has gone wants no answer: the failed sends are no errors.
    fn answer(&self, question: Question) {
        match question {
            Question::WriteBack { done } => {
                log::write_back(&self.connection);
                drop(done);
            }
            Question::LookUp { tenant, operation_id, reply } => {
                let _ = reply.send(self.in_snapshot(|c| self.look_up(c, &tenant, &operation_id)));
            }
            Question::List { query, reply } => {
                let _ = reply.send(self.in_snapshot(|c| {
                    self.note_times(c)?;
                    list(c, &query, PAGE_UNITS)
                }));
            }
            Question::KeysInUse { reply } => {
                let _ = reply.send(self.keys_in_use());
            }
            Question::Audit { key, reply } => {
                let _ = reply.send(self.in_snapshot(|c| audit(c, key)));
            }
            Question::Info { reply } => {
                let _ = reply.send(self.in_snapshot(info));
            }
            Question::KnowsKeys { checks, reply } => {
                let _ = reply.send(self.knows_keys(&checks));
            }
            Question::Slice { after, reply } => {
                let _ = reply.send(self.in_snapshot(|c| slice(c, &after)));
            }
            Question::Upkeep { reply } => {
                let _ = reply.send(self.in_snapshot(Upkeep::read));
            }
            Question::Outbox(ask) => ask.answer(self),
            Question::Due { search, reply } => {
                let _ = reply.send(self.in_snapshot(|c| due::search(c, &search)));
            }
        }
    }

    pub(super) fn in_snapshot<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let run = || {
            let transaction = self.connection.unchecked_transaction()?;
            let found = read(&transaction)?;
            transaction.finish()?;
            Ok(found)
        };
        run().map_err(|error| store_error(&error, &self.path, READER_WAIT))
    }

    fn look_up(
        &self,
        connection: &Connection,
        tenant: &Tenant,
        id: &OperationId,
    ) -> rusqlite::Result<Snapshot> {
        self.note_times(connection)?;
        Ok(match find_by_id(connection, tenant, id)? {
            Found::Kept(kept) if kept.record.operation_id == *id => {
                let effect = look(connection, kept.record.effect.as_ref())?;
                Snapshot::Found { record: Box::new(kept.record), effect }
            }
            Found::Absent | Found::Kept(_) => Snapshot::Absent,
            Found::Damaged(damage) => {
                let _ = set_aside(id, damage);
                Snapshot::Quarantined
            }
        })
    }

    /// So that no observation is dated before what it has seen, whoever wrote it.
    fn note_times(&self, connection: &Connection) -> rusqlite::Result<()> {
        if let Ok(row) = read_ledger_row(connection)? {
            self.mark.raise(row.high_water);
            self.mark.set_horizon(row.horizon);
        }
        Ok(())
    }

    fn keys_in_use(&self) -> Result<Vec<KeyUsage>, StoreError> {
        let now = self.mark.now();
        let mut counted = Counted::default();
        while self.in_snapshot(|c| counted.count_stretch(c, now))? {}
        Ok(counted.into_usage())
    }

    fn knows_keys(&self, checks: &[KeyCheck]) -> Result<bool, StoreError> {
        let now = self.mark.now();
        self.in_snapshot(|connection| match unknown(connection, &self.path, checks, now) {
            Ok(unknown) => Ok(Ok(unknown.is_empty())),
            Err(Fault::Command(refused)) => Ok(Err(refused)),
            Err(Fault::Sqlite(error)) => Err(error),
        })?
    }
}

fn audit(connection: &Connection, key: OperationKey) -> rusqlite::Result<Vec<AuditEvent>> {
    connection
        .prepare_cached(
            "SELECT seq, at_ms, kind, identity, who, reason, proof FROM audit_events \
             WHERE operation_key = ?1 ORDER BY seq",
        )?
        .query_map([key.as_bytes().as_slice()], |row| {
            Ok(AuditEvent {
                seq: row.get(0)?,
                at: Timestamp::from_ms(row.get(1)?),
                kind: text(row, 2)?.unwrap_or_default(),
                identity: text(row, 3)?.unwrap_or_default(),
                who: text(row, 4)?.unwrap_or_default(),
                reason: text(row, 5)?,
                proof: text(row, 6)?,
            })
        })?
        .collect()
}

/// Text that is kept as bytes. What damage made of it is shown as far as it can be.
fn text(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<String>> {
    let bytes: Option<Vec<u8>> = row.get(at)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

fn info(connection: &Connection) -> rusqlite::Result<LedgerInfo> {
    let row = read_ledger_row(connection)?.map_err(|_| rusqlite::Error::QueryReturnedNoRows)?;
    let has_operations = connection
        .prepare_cached(
            "SELECT tombstones_purged > 0 OR EXISTS (SELECT 1 FROM operations) FROM ledger",
        )?
        .query_row([], |row| row.get(0))?;
    let key_ids = connection
        .prepare_cached("SELECT key_id FROM keys ORDER BY key_id")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(LedgerInfo {
        backend_id: row.backend_id,
        incarnation: row.incarnation,
        schema_version: row.version,
        has_operations,
        key_ids,
    })
}
