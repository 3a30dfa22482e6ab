//! The write-ahead log: written back into the file between transactions, after their callers have
//! been answered, and cut once it has grown large.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::commands::Session;

/// From this many pages on (16 MiB) the log is written back, so that it begins anew. More makes
/// pages that change often cost less; reading becomes slower with the length of the log.
const WRITE_BACK_PAGES: u32 = 4096;
/// Where a reader stood in the way, it is tried again after this many pages more.
const WRITE_BACK_STEP_PAGES: u32 = 1024;

/// Once the log has been written back it is cut to this size.
pub(super) const LOG_LIMIT_BYTES: u64 = 64 * 1024 * 1024;
/// What a page takes in the log: itself and its header.
const FRAME_BYTES: u64 = 4096 + 24;

/// A checkpoint that cuts the log waits at most this long for readers.
const CUT_WAIT: Duration = Duration::from_millis(50);
/// And is not tried again before this time has passed.
const CUT_PAUSE: Duration = Duration::from_secs(1);

/// How long the log is, as the writer's last commit found it.
#[derive(Debug, Clone, Default)]
pub(super) struct LogLength(Arc<AtomicU32>);

impl LogLength {
    /// Asks the connection to tell the length after each commit. SQLite then writes nothing back
    /// by itself.
    pub(super) fn watch(connection: &mut Connection) -> rusqlite::Result<Self> {
        let length = Self::default();
        let told = length.clone();
        connection.wal_hook(Some(move |_: &mut Wal, page_count: std::ffi::c_int| {
            told.0.store(u32::try_from(page_count).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(length)
    }

    fn page_count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// When the log is written back and cut.
#[derive(Debug)]
pub(super) struct LogKeeper {
    write_back_at: u32,
    pub(super) cut_after: Instant,
}

impl LogKeeper {
    pub(super) fn new() -> Self {
        Self { write_back_at: WRITE_BACK_PAGES, cut_after: Instant::now() }
    }

    /// Called between two transactions.
    pub(super) fn keep(&mut self, session: &Session) {
        let page_count = session.log_length.page_count();
        if u64::from(page_count) * FRAME_BYTES > LOG_LIMIT_BYTES {
            self.cut(session);
        } else if page_count < WRITE_BACK_PAGES {
            self.write_back_at = WRITE_BACK_PAGES;
        } else if page_count >= self.write_back_at {
            self.write_back_at = page_count + WRITE_BACK_STEP_PAGES;
            checkpoint(session, "PRAGMA wal_checkpoint(PASSIVE)");
        }
    }

    /// Readers may prevent it for a while.
    fn cut(&mut self, session: &Session) {
        if Instant::now() < self.cut_after {
            return;
        }
        self.cut_after = Instant::now() + CUT_PAUSE;
        session.patience.allow(CUT_WAIT);
        checkpoint(session, "PRAGMA wal_checkpoint(TRUNCATE)");
        session.patience.allow(Duration::ZERO);
        let _ = session.patience.take_waited();
    }
}

fn checkpoint(session: &Session, sql: &str) {
    let outcome = session
        .connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row([], |_| Ok(())));
    if let Err(error) = outcome {
        tracing::warn!(%error, "the ledger's log could not be written back yet");
    }
}
