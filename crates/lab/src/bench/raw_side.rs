//! What the ledger is compared with: raw SQLite that writes the same rows to the same tables,
//! without anything that makes a ledger of them. No digest is made, nothing is decided.
//!
//! Two forms: the *single* one is what a careful program does without group commit, one
//! transaction with the fewest statements for each operation. The *limit* is what a writing thread
//! can reach at best: callers as threads, a bare channel, and for each operation and each batch the
//! statements that the ledger issues.

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use counterfoil_core::identity::BackendId;
use counterfoil_store::{SqliteOptions, SqliteStore};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension as _, Statement, params};

use super::figures::Round;
use super::work::{Pool, Row, now_ms};

/// At most this many operations share a transaction, as in the ledger.
const BATCH_LIMIT: usize = 256;

const TABLE: &[u8] = b"issues";
const TENANT_NO: i64 = 1;
const RETENTION_MS: i64 = 30 * 86_400_000;
const LEASE_MS: i64 = 30_000;

/// A file with a ledger's tables that no ledger writes to.
#[derive(Debug)]
pub struct RawLedger {
    path: PathBuf,
    connection: Connection,
}

impl RawLedger {
    /// Makes a ledger's file in `directory` and takes it over.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn create(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join("raw.db");
        let mut options = SqliteOptions::new(&path);
        options.backend_id = Some(BackendId::parse("bench")?);
        options.tables = counterfoil::tools::issue_effect::tables();
        drop(SqliteStore::open(&options)?);
        let raw = Self::open(&path)?;
        let sql = "INSERT INTO tenants (tenant_no, name) VALUES (?1, ?2)";
        raw.connection.execute(sql, params![TENANT_NO, b"local".as_slice()])?;
        Ok(raw)
    }

    /// Opens such a file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let connection = Connection::open(path)?;
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
        anyhow::ensure!(mode == "wal", "the file has journal mode {mode}");
        // As the ledger does: statements are not compiled again when their parameters change.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "cache_size", -16 * 1024)?;
        connection.pragma_update(None, "temp_store", "memory")?;
        Ok(Self { path: path.into(), connection })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its connection, for other tables.
    #[must_use]
    pub fn into_connection(self) -> Connection {
        self.connection
    }

    /// One thread, one transaction for each operation, until the pool gives no more.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn single_round(&self, pool: &Pool<Row>) -> anyhow::Result<Round> {
        let mut statements = Fewest::prepare(&self.connection)?;
        let mut latencies = Vec::new();
        let start = Instant::now();
        while let Some(row) = pool.take(start) {
            let begun = Instant::now();
            statements.begin.execute([])?;
            statements.write(&self.connection, &row)?;
            statements.commit.execute([])?;
            latencies.push(begun.elapsed());
        }
        Ok(Round::new(start.elapsed(), latencies))
    }

    /// `callers` threads and one writer, which batches what is waiting.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn limit_round(&mut self, callers: usize, pool: &Pool<Row>) -> anyhow::Result<Round> {
        let (jobs, queue) = channel::<(usize, Row)>();
        let (replies, answers): (Vec<_>, Vec<_>) = (0..callers).map(|_| channel()).unzip();
        let barrier = Barrier::new(callers + 1);
        let connection = &mut self.connection;
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || write_batches(connection, &queue, &replies));
            let start_of = |caller: usize, jobs: Sender<(usize, Row)>, answer: Receiver<()>| {
                let barrier = &barrier;
                move || call(barrier, pool, caller, &jobs, &answer)
            };
            let threads: Vec<_> = answers
                .into_iter()
                .enumerate()
                .map(|(caller, answer)| scope.spawn(start_of(caller, jobs.clone(), answer)))
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

    /// Adds `count` rows as fast as possible, in the way in which the ledger writes them, so that
    /// its pages are as full as a ledger's. Nothing is durable until the log is written back.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn fill(&self, count: usize, mut make: impl FnMut() -> Row) -> anyhow::Result<()> {
        self.connection.pragma_update(None, "synchronous", "off")?;
        self.connection.pragma_update(None, "cache_size", -65_536)?;
        {
            let mut statements = Same::prepare(&self.connection)?;
            let mut left = count;
            while left > 0 {
                let batch = left.min(10_000);
                statements.begin()?;
                for _ in 0..batch {
                    statements.write(&self.connection, &make())?;
                }
                statements.commit()?;
                left -= batch;
            }
        }
        self.connection.pragma_update(None, "synchronous", "full")?;
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}

/// One caller: hands a row over and waits for its commit.
fn call(
    barrier: &Barrier,
    pool: &Pool<Row>,
    caller: usize,
    jobs: &Sender<(usize, Row)>,
    answer: &Receiver<()>,
) -> Vec<Duration> {
    let mut latencies = Vec::new();
    barrier.wait();
    let start = Instant::now();
    while let Some(row) = pool.take(start) {
        let begun = Instant::now();
        if jobs.send((caller, row)).is_err() || answer.recv().is_err() {
            // The writer has failed and says so itself.
            break;
        }
        latencies.push(begun.elapsed());
    }
    latencies
}

fn write_batches(
    connection: &Connection,
    queue: &Receiver<(usize, Row)>,
    replies: &[Sender<()>],
) -> anyhow::Result<()> {
    let mut statements = Same::prepare(connection)?;
    let mut batch = Vec::with_capacity(BATCH_LIMIT);
    while let Ok(first) = queue.recv() {
        batch.push(first);
        batch.extend(queue.try_iter().take(BATCH_LIMIT - 1));
        statements.begin()?;
        for (_, row) in &batch {
            statements.write(connection, row)?;
        }
        statements.commit()?;
        for (caller, _) in batch.drain(..) {
            // A caller waits for each of its answers.
            replies[caller].send(()).context("a caller has gone")?;
        }
    }
    Ok(())
}

/// The fewest statements that write an operation's rows.
struct Fewest<'c> {
    begin: Statement<'c>,
    operation: Statement<'c>,
    issue: Statement<'c>,
    audit: Statement<'c>,
    commit: Statement<'c>,
}

impl<'c> Fewest<'c> {
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            issue: connection.prepare(INSERT_ISSUE)?,
            operation: connection.prepare(
                "INSERT INTO operations (operation_key, tenant_no, id_kind, id_bytes, \
                 operation_id, principal, tool_id, tool_version, profile, key_id, fingerprint, \
                 call_fingerprint, state, phase, boot_id, fence, lease_until_ms, nonce, \
                 created_at_ms, retention_ms, effect_table, effect_row, effect_digest, result, \
                 settled_at_ms, retention_ends_ms, row_check) VALUES (?1, ?2, ?3, ?4, ?5, \
                 ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, \
                 ?23, ?24, ?25, ?26, ?27)",
            )?,
            audit: connection.prepare(
                "INSERT INTO audit_events (operation_key, seq, at_ms, kind, identity, who) \
                 VALUES (?1, 1, ?2, ?3, ?4, ?5)",
            )?,
            commit: connection.prepare("COMMIT")?,
        })
    }

    fn write(&mut self, connection: &Connection, row: &Row) -> rusqlite::Result<()> {
        let now = now_ms();
        let index = row.operation_id.index_key();
        insert_issue(&mut self.issue, row, now)?;
        let issue = connection.last_insert_rowid();
        self.operation.execute(params![
            row.key.as_slice(),
            TENANT_NO,
            index.kind as i64,
            index.bytes.as_slice(),
            row.operation_id.as_str().as_bytes(),
            b"alice".as_slice(),
            b"create_issue".as_slice(),
            b"1".as_slice(),
            1,
            1,
            row.fingerprint.as_slice(),
            row.call_fingerprint.as_slice(),
            1,
            0,
            row.boot.as_slice(),
            1,
            now + LEASE_MS,
            row.nonce.as_slice(),
            now,
            RETENTION_MS,
            TABLE,
            issue,
            row.effect_digest.as_slice(),
            result(issue).as_bytes(),
            now,
            now + RETENTION_MS,
            row.row_check.as_slice(),
        ])?;
        self.audit.execute(params![
            row.key.as_slice(),
            now,
            b"applied".as_slice(),
            row.operation_id.as_str().as_bytes(),
            b"alice".as_slice(),
        ])?;
        Ok(())
    }
}

/// The statements that the ledger issues, for each batch and each operation.
struct Same<'c> {
    begin: Statement<'c>,
    read_ledger: Statement<'c>,
    data_version: Statement<'c>,
    savepoint: Statement<'c>,
    find: Statement<'c>,
    operation: Statement<'c>,
    issue: Statement<'c>,
    read_issue: Statement<'c>,
    settle: Statement<'c>,
    audit: Statement<'c>,
    release: Statement<'c>,
    high_water: Statement<'c>,
    /// The ledger's mark; it is written only when it changes.
    high_water_ms: i64,
    commit: Statement<'c>,
}

impl<'c> Same<'c> {
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            read_ledger: connection.prepare(
                "SELECT version, min_compatible, backend_id, incarnation, high_water_ms, \
                 horizon_ms FROM ledger WHERE one = 1",
            )?,
            data_version: connection.prepare("PRAGMA data_version")?,
            savepoint: connection.prepare("SAVEPOINT command")?,
            find: connection.prepare(FIND)?,
            operation: connection.prepare(
                "INSERT INTO operations (operation_key, tenant_no, id_kind, id_bytes, \
                 operation_id, principal, tool_id, tool_version, profile, key_id, fingerprint, \
                 call_fingerprint, state, phase, boot_id, fence, lease_until_ms, nonce, \
                 created_at_ms, authority_ends_ms, retention_ms, row_check) VALUES (?1, ?2, ?3, \
                 ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, NULL, \
                 ?20, zeroblob(16))",
            )?,
            issue: connection.prepare(INSERT_ISSUE)?,
            read_issue: connection.prepare("SELECT * FROM issues WHERE rowid = ?1")?,
            settle: connection.prepare(
                "UPDATE operations SET state = ?2, phase = ?3, fence = ?4, lease_until_ms = ?5, \
                 effect_table = ?6, effect_row = ?7, effect_digest = ?8, result = ?9, \
                 settled_at_ms = ?10, retention_ends_ms = ?11, purged = ?12, resolution = NULL, \
                 row_check = ?13 WHERE operation_key = ?1",
            )?,
            audit: connection.prepare(
                "INSERT INTO audit_events (operation_key, seq, at_ms, kind, identity, who, \
                 reason, proof) VALUES (?1, (SELECT coalesce(max(seq), 0) + 1 FROM audit_events \
                 WHERE operation_key = ?1), ?2, ?3, ?4, ?5, NULL, NULL)",
            )?,
            release: connection.prepare("RELEASE command")?,
            high_water: connection
                .prepare("UPDATE ledger SET high_water_ms = max(high_water_ms, ?1)")?,
            high_water_ms: 0,
            commit: connection.prepare("COMMIT")?,
        })
    }

    fn begin(&mut self) -> rusqlite::Result<()> {
        self.begin.execute([])?;
        self.high_water_ms = self.read_ledger.query_row([], |row| row.get(4))?;
        self.data_version.query_row([], |row| row.get::<_, i64>(0))?;
        Ok(())
    }

    fn commit(&mut self) -> rusqlite::Result<()> {
        let now = now_ms();
        if now > self.high_water_ms {
            self.high_water.execute([now])?;
        }
        self.commit.execute([])?;
        Ok(())
    }

    fn write(&mut self, connection: &Connection, row: &Row) -> rusqlite::Result<()> {
        let now = now_ms();
        let index = row.operation_id.index_key();
        self.savepoint.execute([])?;
        let key = params![b"local".as_slice(), index.kind as i64, index.bytes.as_slice()];
        self.find.query_row(key, |row| row.get::<_, i64>(10)).optional()?;
        self.operation.execute(params![
            row.key.as_slice(),
            TENANT_NO,
            index.kind as i64,
            index.bytes.as_slice(),
            row.operation_id.as_str().as_bytes(),
            b"alice".as_slice(),
            b"create_issue".as_slice(),
            b"1".as_slice(),
            1,
            1,
            row.fingerprint.as_slice(),
            row.call_fingerprint.as_slice(),
            0,
            1,
            row.boot.as_slice(),
            1,
            now + LEASE_MS,
            row.nonce.as_slice(),
            now,
            RETENTION_MS,
        ])?;
        insert_issue(&mut self.issue, row, now)?;
        let issue = connection.last_insert_rowid();
        self.read_issue.query_row([issue], |row| row.get_ref(1).map(|_| ()))?;
        self.settle.execute(params![
            row.key.as_slice(),
            1,
            0,
            1,
            now + LEASE_MS,
            TABLE,
            issue,
            row.effect_digest.as_slice(),
            result(issue).as_bytes(),
            now,
            now + RETENTION_MS,
            0,
            row.row_check.as_slice(),
        ])?;
        self.audit.execute(params![
            row.key.as_slice(),
            now,
            b"applied".as_slice(),
            row.operation_id.as_str().as_bytes(),
            b"alice".as_slice(),
        ])?;
        self.release.execute([])?;
        Ok(())
    }
}

const FIND: &str = "SELECT o.operation_key, t.name, o.operation_id, o.principal, o.tool_id, \
    o.tool_version, o.profile, o.key_id, o.fingerprint, o.call_fingerprint, o.state, o.phase, \
    o.boot_id, o.fence, o.lease_until_ms, o.effect_table, o.effect_row, o.effect_digest, \
    o.result, o.nonce, o.created_at_ms, o.authority_ends_ms, o.settled_at_ms, o.retention_ms, \
    o.retention_ends_ms, o.purged, o.resolution, o.quarantined, o.row_check, o.id_kind, \
    o.id_bytes FROM operations o LEFT JOIN tenants t ON t.tenant_no = o.tenant_no \
    WHERE o.tenant_no = (SELECT tenant_no FROM tenants WHERE name = ?1) AND o.id_kind = ?2 \
    AND o.id_bytes = ?3";

const INSERT_ISSUE: &str = "INSERT INTO issues (operation_key, title, body, operation_id, \
    created_at_ms) VALUES (?1, ?2, ?3, ?4, ?5)";

fn insert_issue(statement: &mut Statement<'_>, row: &Row, now: i64) -> rusqlite::Result<()> {
    statement.execute(params![
        row.key.as_slice(),
        row.title.as_bytes(),
        row.body.as_bytes(),
        row.operation_id.as_str().as_bytes(),
        now,
    ])?;
    Ok(())
}

fn result(issue: i64) -> String {
    format!("\"created {issue}\"")
}
