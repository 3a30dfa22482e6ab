//! The write-ahead log: written back into the file while transactions go on, and cut once it has
//! grown large.
//!
//! Writing back copies pages and synchronises the file, which takes as long as many commits. So a
//! reading thread does it beside the writer, again and again until little came in meanwhile; the
//! writer itself adds only that, between two transactions and after their callers were answered.
//! Then nothing is left, and the log begins anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::commands::Session;
use super::readers::Question;

/// Each time that the log has grown by this many pages (8 MiB), some of it is written back.
const STEP_PAGES: u32 = 2048;
/// From this many pages on (16 MiB) the rest is written back too, so that the log begins anew.
/// Reading becomes slower with the length of the log.
const FINISH_PAGES: u32 = 4096;
/// So much (2 MiB) the writer writes back itself. Where rows are in no order, pages that are far
/// apart take long, and everybody waits.
const LITTLE_PAGES: u32 = 512;
/// From this many pages on (48 MiB) it waits no longer until little is left.
const LATEST_PAGES: u32 = 12_288;

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

/// Asks a reading thread to write back.
#[derive(Debug)]
pub(super) struct Helper {
    pub(super) questions: Sender<Question>,
    busy: Arc<AtomicBool>,
}

impl Helper {
    pub(super) fn new(questions: Sender<Question>) -> Self {
        Self { questions, busy: Arc::default() }
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    fn ask(&self) {
        self.busy.store(true, Ordering::Release);
        let done = Done(Arc::clone(&self.busy));
        // Without readers the ledger is about to close, which writes everything back.
        let _ = self.questions.send(Question::WriteBack { done });
    }
}

/// Says when it is dropped that nobody writes back any more.
#[derive(Debug)]
pub(super) struct Done(Arc<AtomicBool>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// When the log is written back and cut.
#[derive(Debug)]
pub(super) struct LogKeeper {
    /// `None` before the writer runs and after.
    pub(super) helper: Option<Helper>,
    /// At this length the helper is asked next.
    next_at: u32,
    /// At this length it was asked last.
    asked_at: u32,
    pub(super) cut_after: Instant,
}

impl LogKeeper {
    pub(super) fn new() -> Self {
        Self { helper: None, next_at: STEP_PAGES, asked_at: 0, cut_after: Instant::now() }
    }

    /// Called between two transactions.
    pub(super) fn keep(&mut self, session: &Session) {
        let page_count = session.log_length.page_count();
        if u64::from(page_count) * FRAME_BYTES > LOG_LIMIT_BYTES {
            self.cut(session);
        }
        if page_count < STEP_PAGES {
            // It has begun anew.
            (self.next_at, self.asked_at) = (STEP_PAGES, 0);
            return;
        }
        match &self.helper {
            Some(helper) if helper.is_busy() => {}
            Some(_) if self.is_almost_done(page_count) => {
                (self.next_at, self.asked_at) = (page_count + STEP_PAGES, 0);
                write_back(&session.connection);
            }
            Some(helper) if page_count >= self.next_at || self.asked_at >= FINISH_PAGES => {
                (self.next_at, self.asked_at) = (page_count + STEP_PAGES, page_count);
                helper.ask();
            }
            Some(_) | None => {}
        }
    }

    /// Whether all is written back but what came in meanwhile, and that is little.
    fn is_almost_done(&self, page_count: u32) -> bool {
        let meanwhile = page_count.saturating_sub(self.asked_at);
        self.asked_at >= FINISH_PAGES && (meanwhile <= LITTLE_PAGES || page_count >= LATEST_PAGES)
    }

    /// Readers may prevent it for a while.
    fn cut(&mut self, session: &Session) {
        if Instant::now() < self.cut_after {
            return;
        }
        self.cut_after = Instant::now() + CUT_PAUSE;
        session.patience.allow(CUT_WAIT);
        checkpoint(&session.connection, "PRAGMA wal_checkpoint(TRUNCATE)");
        session.patience.allow(Duration::ZERO);
        let _ = session.patience.take_waited();
    }
}

/// Writes back what no reader needs any more where it is. Waits for nobody.
pub(super) fn write_back(connection: &Connection) {
    checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)");
}

fn checkpoint(connection: &Connection, sql: &str) {
    let outcome = connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row([], |_| Ok(())));
    if let Err(error) = outcome {
        tracing::warn!(%error, "the ledger's log could not be written back yet");
    }
}
