//! What the outbox is compared with: raw SQLite that writes the same rows and the same states. It
//! makes no digest, decides nothing and reads back only what it needs to find its rows.

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use rusqlite::{Connection, params};

use super::delivery_side::BATCH_COUNT;
use super::figures::Round;
use super::raw_side::RawLedger;
use super::work::{Pool, Row, now_ms};

/// At most this many operations share a transaction, as in the ledger.
const GROUP_COUNT: usize = 256;
const TENANT_NO: i64 = 1;
const RETENTION_MS: i64 = 30 * 86_400_000;
const LEASE_MS: i64 = 60_000;
const CHECK: [u8; 16] = [3; 16];
const BOOT: [u8; 16] = [1; 16];

/// A file with an outbox that no ledger writes to.
#[derive(Debug)]
pub struct RawOutbox {
    path: PathBuf,
    connection: Connection,
}

/// A row under way: its key, and what its audit events repeat of the operation.
struct Held {
    key: [u8; 16],
    operation_id: Vec<u8>,
    principal: Vec<u8>,
}

impl RawOutbox {
    /// Makes a ledger's file in `directory` and takes it over.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn create(directory: &Path) -> anyhow::Result<Self> {
        let raw = RawLedger::create(directory)?;
        let (path, connection) = (raw.path().to_owned(), raw.into_connection());
        connection.set_prepared_statement_cache_capacity(64);
        connection.execute_batch(
            "INSERT INTO outbox_targets (target_no, name) VALUES (1, x'62656e6368');
             INSERT INTO outbox_terms (terms_no, terms) VALUES (1, x'7b7d')",
        )?;
        Ok(Self { path, connection })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `callers` threads and one writer, which commits what is waiting together.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn accept(&mut self, callers: usize, pool: &Pool<Row>) -> anyhow::Result<Round> {
        let (jobs, queue) = channel::<(usize, Row)>();
        let (replies, answers): (Vec<_>, Vec<_>) = (0..callers).map(|_| channel::<()>()).unzip();
        let connection = &mut self.connection;
        let barrier = &Barrier::new(callers + 1);
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || write_groups(connection, &queue, &replies));
            let threads: Vec<_> = answers
                .into_iter()
                .enumerate()
                .map(|(caller, answer)| {
                    let jobs = jobs.clone();
                    scope.spawn(move || {
                        let mut latencies = Vec::new();
                        barrier.wait();
                        let start = Instant::now();
                        while let Some(row) = pool.take(start) {
                            let begun = Instant::now();
                            // A writer that failed says so itself.
                            if jobs.send((caller, row)).is_err() || answer.recv().is_err() {
                                break;
                            }
                            latencies.push(begun.elapsed());
                        }
                        latencies
                    })
                })
                .collect();
            drop(jobs);
            barrier.wait();
            let start = Instant::now();
            let mut latencies = Vec::new();
            for thread in threads {
                latencies.extend(thread.join().expect("a caller does not panic"));
            }
            let elapsed = start.elapsed();
            writer.join().expect("the writer does not panic")?;
            Ok(Round::new(elapsed, latencies))
        })
    }

    /// Takes `count` rows through the same states, in batches, three transactions each.
    ///
    /// # Errors
    /// If SQLite fails, or fewer rows are due.
    pub fn deliver(&mut self, count: usize) -> anyhow::Result<Round> {
        let mut latencies = Vec::with_capacity(count);
        let start = Instant::now();
        while latencies.len() < count {
            let begun = Instant::now();
            let wanted = BATCH_COUNT.min(count - latencies.len());
            let held = self.claim(wanted)?;
            ensure!(held.len() == wanted, "only {} of {wanted} rows are due", held.len());
            self.begin_send(&held)?;
            self.report(&held)?;
            latencies.extend(std::iter::repeat_n(begun.elapsed(), held.len()));
        }
        Ok(Round::new(start.elapsed(), latencies))
    }

    fn claim(&mut self, count: usize) -> anyhow::Result<Vec<Held>> {
        let now = now_ms();
        let transaction = self.connection.transaction()?;
        let held: Vec<Held> = transaction
            .prepare_cached(
                "SELECT d.operation_key, o.operation_id, o.principal, r.request FROM outbox d \
                 JOIN outbox_requests r ON r.operation_key = d.operation_key \
                 JOIN operations o ON o.operation_key = d.operation_key \
                 WHERE d.target_no = 1 AND d.next_attempt_ms <= ?1 AND d.quarantined = 0 \
                 ORDER BY d.next_attempt_ms, d.operation_key LIMIT ?2",
            )?
            .query_map(params![now, count as i64], |row| {
                row.get::<_, Vec<u8>>(3)?;
                Ok(Held { key: row.get(0)?, operation_id: row.get(1)?, principal: row.get(2)? })
            })?
            .collect::<Result<_, _>>()?;
        {
            let mut lease = transaction.prepare_cached(
                "UPDATE outbox SET state = 1, fence = fence + 1, lease_boot = ?2, \
                 lease_until_ms = ?3, lease_probe = 0, next_attempt_ms = NULL, \
                 updated_at_ms = ?4, row_check = ?5 WHERE operation_key = ?1",
            )?;
            for Held { key, .. } in &held {
                let (key, boot) = (key.as_slice(), BOOT.as_slice());
                lease.execute(params![key, boot, now + LEASE_MS, now, CHECK.as_slice()])?;
            }
        }
        keep_mark(&transaction, now)?;
        transaction.commit()?;
        Ok(held)
    }

    fn begin_send(&mut self, all: &[Held]) -> anyhow::Result<()> {
        let now = now_ms();
        let transaction = self.connection.transaction()?;
        {
            let mut begin = transaction.prepare_cached(
                "UPDATE outbox SET state = 2, attempts = attempts + 1, first_dispatch_ms = ?2, \
                 lease_until_ms = ?3, last_send_until_ms = ?3, updated_at_ms = ?2, \
                 row_check = ?4 WHERE operation_key = ?1",
            )?;
            for held in all {
                let key = held.key.as_slice();
                begin.execute(params![key, now, now + LEASE_MS, CHECK.as_slice()])?;
                held.audit(&transaction, now, b"attempt_started")?;
            }
        }
        keep_mark(&transaction, now)?;
        Ok(transaction.commit()?)
    }

    fn report(&mut self, all: &[Held]) -> anyhow::Result<()> {
        let now = now_ms();
        let transaction = self.connection.transaction()?;
        {
            let mut item = transaction.prepare_cached(
                "UPDATE outbox SET state = 3, lease_boot = NULL, lease_until_ms = NULL, \
                 lease_probe = NULL, last_send_until_ms = ?3, external_id = ?2, \
                 updated_at_ms = ?3, row_check = ?4 WHERE operation_key = ?1",
            )?;
            let mut operation = transaction.prepare_cached(
                "UPDATE operations SET state = 1, phase = 0, result = ?2, settled_at_ms = ?3, \
                 retention_ends_ms = ?4, row_check = ?5 WHERE operation_key = ?1",
            )?;
            for held in all {
                let (key, check) = (held.key.as_slice(), CHECK.as_slice());
                let result = b"\"created 1234567\"".as_slice();
                operation.execute(params![key, result, now, now + RETENTION_MS, check])?;
                held.audit(&transaction, now, b"delivered")?;
                item.execute(params![key, b"1234567".as_slice(), now, check])?;
            }
        }
        keep_mark(&transaction, now)?;
        Ok(transaction.commit()?)
    }
}

impl Held {
    fn audit(&self, connection: &Connection, now: i64, kind: &[u8]) -> rusqlite::Result<()> {
        audit(connection, &self.key, now, kind, (&self.operation_id, &self.principal))
    }
}

const AUDIT: &str = "INSERT INTO audit_events (operation_key, seq, at_ms, kind, identity, who) \
    VALUES (?1, (SELECT coalesce(max(seq), 0) + 1 FROM audit_events WHERE operation_key = ?1), \
    ?2, ?3, ?4, ?5)";

fn audit(
    connection: &Connection,
    key: &[u8; 16],
    now: i64,
    kind: &[u8],
    (identity, who): (&[u8], &[u8]),
) -> rusqlite::Result<()> {
    let values = params![key.as_slice(), now, kind, identity, who];
    connection.prepare_cached(AUDIT)?.execute(values).map(|_| ())
}

/// The latest time that anything was stamped with, as every transaction of the ledger leaves it.
fn keep_mark(connection: &Connection, now: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE ledger SET high_water_ms = ?1 WHERE high_water_ms < ?1")?
        .execute([now])
        .map(|_| ())
}

fn write_groups(
    connection: &mut Connection,
    queue: &Receiver<(usize, Row)>,
    replies: &[Sender<()>],
) -> anyhow::Result<()> {
    let mut group = Vec::with_capacity(GROUP_COUNT);
    while let Ok(first) = queue.recv() {
        group.push(first);
        group.extend(queue.try_iter().take(GROUP_COUNT - 1));
        let transaction = connection.transaction()?;
        for (_, row) in &group {
            write(&transaction, row)?;
        }
        keep_mark(&transaction, now_ms())?;
        transaction.commit()?;
        for (caller, _) in group.drain(..) {
            replies[caller].send(()).context("a caller has gone")?;
        }
    }
    Ok(())
}

fn write(connection: &Connection, row: &Row) -> rusqlite::Result<()> {
    let now = now_ms();
    let index = row.operation_id.index_key();
    let (key, id) = (row.key.as_slice(), row.operation_id.as_str().as_bytes());
    connection
        .prepare_cached(
            "INSERT INTO operations (operation_key, tenant_no, id_kind, id_bytes, operation_id, \
             principal, tool_id, tool_version, profile, key_id, fingerprint, call_fingerprint, \
             state, phase, boot_id, fence, lease_until_ms, nonce, created_at_ms, retention_ms, \
             row_check, nature) VALUES (?1, ?2, ?3, ?4, ?5, x'616c696365', \
             x'6372656174655f6973737565', x'31', 1, 1, ?6, ?7, 0, 4, ?8, 1, ?9, ?10, ?9, ?11, ?12, 2)",
        )?
        .execute(params![
            key,
            TENANT_NO,
            index.kind as i64,
            index.bytes.as_slice(),
            id,
            row.fingerprint.as_slice(),
            row.call_fingerprint.as_slice(),
            row.boot.as_slice(),
            now,
            row.nonce.as_slice(),
            RETENTION_MS,
            row.row_check.as_slice(),
        ])?;
    connection
        .prepare_cached(
            "INSERT INTO outbox (operation_key, target_no, terms_no, state, fence, attempts, \
             attempt_limit, unknown, lookups, next_attempt_ms, late_contradiction, \
             created_at_ms, updated_at_ms, row_check) \
             VALUES (?1, 1, 1, 0, 0, 0, 10, 0, 0, ?2, 0, ?2, ?2, ?3)",
        )?
        .execute(params![key, now, CHECK.as_slice()])?;
    connection
        .prepare_cached(
            "INSERT INTO outbox_requests (operation_key, row_check, request) VALUES (?1, ?2, ?3)",
        )?
        .execute(params![key, CHECK.as_slice(), row.request()])?;
    audit(connection, &row.key, now, b"accepted", (id, b"alice"))
}
