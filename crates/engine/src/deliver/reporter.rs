//! Brings what happened into the ledger, in batches. A report that the ledger does not take now is
//! tried for as long as the process lives.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use counterfoil_core::delivery::State;
use counterfoil_store::StoreError;
use counterfoil_store::outbox::{Report, Reported};
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Desk;
use super::guarded::guarded;
use super::lane::Lane;
use crate::engine::{FINISH_RETRY, passes};

/// Reports of one transaction, at most.
const MOST_COUNT: usize = 256;

/// A ledger that takes so long for reports is stuck: nothing new is begun meanwhile.
const SLOW: Duration = Duration::from_millis(500);

/// A report on its way. While there are many of one target, no more of its items are claimed.
#[derive(Debug)]
pub(super) struct Note {
    lane: Arc<Lane>,
    report: Report,
    /// The item tried a parked target or an open breaker.
    is_probe: bool,
}

impl Note {
    pub(super) fn new(lane: &Arc<Lane>, report: Report, is_probe: bool) -> Self {
        lane.report_begun();
        Self { lane: Arc::clone(lane), report, is_probe }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.lane.under_way.remove(self.report.key);
        self.lane.report_ended();
    }
}

/// The reports' way in. A reporter that was started again takes it over.
pub(super) type Inbox = Arc<Mutex<UnboundedReceiver<Note>>>;

/// Why a batch was not taken.
enum Refused {
    /// Nothing will be taken any more.
    Closed,
    /// Something in it cannot be taken.
    Unfit,
}

/// Takes reports until `last` is cancelled and none is left, or the ledger is closed.
pub(super) async fn run(desk: Arc<Desk>, inbox: Inbox, last: CancellationToken) {
    let mut inbox = inbox.lock().await;
    let mut waiting = VecDeque::new();
    loop {
        if waiting.is_empty() {
            tokio::select! {
                biased;
                note = inbox.recv() => match note {
                    Some(note) => waiting.push_back(note),
                    None => return,
                },
                () = last.cancelled() => return,
            }
        }
        while waiting.len() < MOST_COUNT
            && let Ok(note) = inbox.try_recv()
        {
            waiting.push_back(note);
        }
        let batch: Vec<Note> = waiting.drain(..).collect();
        if desk.deliver_reports(batch).await.is_err() {
            return;
        }
    }
}

/// The ledger is closed.
struct Closed;

impl Desk {
    async fn deliver_reports(&self, batch: Vec<Note>) -> Result<(), Closed> {
        match self.commit(&batch).await {
            Ok(answers) => self.tell_all(&batch, &answers),
            Err(Refused::Closed) => return Err(Closed),
            // One by one: what is wrong with one must not hold back the others.
            Err(Refused::Unfit) => {
                for note in batch {
                    let note = std::slice::from_ref(&note);
                    match self.commit(note).await {
                        Ok(answers) => self.tell_all(note, &answers),
                        Err(Refused::Closed) => return Err(Closed),
                        Err(Refused::Unfit) => {
                            tracing::error!(
                                "a report on an item cannot be taken; run `counterfoil store check`"
                            );
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// What cannot be recorded is not begun: while this takes long, or fails, no loop claims.
    async fn commit(&self, batch: &[Note]) -> Result<Vec<Reported>, Refused> {
        let mut committing = pin!(self.try_to_commit(batch));
        let answers = tokio::select! {
            biased;
            answers = &mut committing => answers,
            () = sleep(SLOW) => {
                self.is_stuck.store(true, Ordering::Release);
                committing.await
            }
        };
        self.is_stuck.store(false, Ordering::Release);
        answers
    }

    async fn try_to_commit(&self, batch: &[Note]) -> Result<Vec<Reported>, Refused> {
        let mut pause = FINISH_RETRY.start;
        loop {
            let reports: Vec<_> = batch.iter().map(|note| note.report.clone()).collect();
            match guarded(self.outbox.report(reports)).await {
                Ok(Ok(answers)) => return Ok(answers),
                Ok(Err(StoreError::Closed)) => {
                    tracing::error!(
                        count = batch.len(),
                        "the ledger closed before all reports were in it; their leases will end"
                    );
                    return Err(Refused::Closed);
                }
                Ok(Err(error)) if passes(&error) => {
                    tracing::warn!(error = error.kind(), "reports wait for the ledger");
                    self.is_stuck.store(true, Ordering::Release);
                    sleep(pause).await;
                    pause = (pause * 2).min(FINISH_RETRY.end);
                }
                Ok(Err(_)) | Err(_) => return Err(Refused::Unfit),
            }
        }
    }

    fn tell_all(&self, batch: &[Note], answers: &[Reported]) {
        for (note, answer) in batch.iter().zip(answers) {
            self.tell(note, answer);
        }
    }

    fn tell(&self, note: &Note, answer: &Reported) {
        let lane = &note.lane;
        if answer.fenced {
            lane.numbers.count_fenced();
        } else if answer.state == Some(State::Delivered) {
            lane.numbers.count_delivered();
        }
        if let Some(alarm) = answer.alarm {
            self.alarm(&lane.name, note.report.key, alarm);
        }
        if answer.parked_target {
            lane.numbers.count_parked();
            tracing::error!(
                target_name = %lane.name,
                "the target accepts nothing from us and is parked; nothing is lost: put its \
                 credential or address right, and it is tried again by itself, or at once by \
                 `counterfoil target resume`"
            );
        }
        // What waits again may be due soon; a probe may have opened the target.
        if note.is_probe || answer.parked_target || answer.state == Some(State::Queued) {
            lane.bell.look();
        }
        self.engine.wakes().changed(note.report.key);
    }
}
