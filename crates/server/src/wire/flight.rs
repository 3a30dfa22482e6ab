//! The requests in flight of one connection, and the end of that connection.
//!
//! The SDK is given a number of ours for every request and never the client's ID. It keys its
//! requests by ID alone, so that an ID used again while an earlier handler still runs (after a
//! cancellation, say) would get that handler's reply. A number is never used twice, so no reply
//! can reach another request, and the client's ID comes back with its type and digits.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;
use tokio::time::Instant;

use super::WireId;

/// Why a connection began to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainCause {
    /// The client closed its side: the normal end.
    EndOfInput,
    /// Reading failed, which is treated as the end of input.
    InputFailed,
    /// The shutdown signal was given.
    Shutdown,
    /// The client no longer reads what we write.
    OutputClosed,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What began the end.
    pub cause: DrainCause,
    /// Whether a protocol lifecycle was ever opened. A client may connect only to probe.
    pub opened: bool,
    /// Count of requests that were still unanswered when the drain limit passed. Each one's
    /// outcome is unknown to the client.
    pub unanswered_count: usize,
}

/// Why a request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Its ID is that of a request still in flight.
    Duplicate,
    /// As many requests are in flight as are allowed.
    Full,
    /// The frames of the requests in flight have as many bytes as are allowed.
    Heavy,
    /// The connection is ending.
    Draining,
}

/// Shared by the tasks of one connection.
#[derive(Clone, Debug)]
pub(super) struct Flights {
    table: Arc<Mutex<Table>>,
    progress: watch::Sender<Progress>,
    max_count: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Table {
    last_number: i64,
    by_id: HashMap<WireId, i64>,
    by_number: HashMap<i64, Flight>,
}

#[derive(Clone, Debug)]
struct Flight {
    id: WireId,
    bytes: usize,
}

/// Changed only while the table is locked, so that no request slips in behind a drain.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Requests admitted whose answer is neither written nor waived.
    pending_count: usize,
    /// The length of their frames together.
    pending_bytes: usize,
    draining: Option<(DrainCause, Instant)>,
}

impl Flights {
    pub(super) fn new(max_count: usize, max_bytes: usize) -> Self {
        let progress = watch::Sender::new(Progress::default());
        Self { table: Arc::default(), progress, max_count, max_bytes }
    }

    /// Takes a request in, whose frame has so many bytes, and gives it its number. A request alone
    /// is always taken.
    pub(super) fn admit(&self, id: WireId, bytes: usize) -> Result<i64, Refusal> {
        let mut table = self.lock();
        let progress = *self.progress.borrow();
        if progress.draining.is_some() {
            return Err(Refusal::Draining);
        }
        let number = table.last_number + 1;
        match table.by_id.entry(id.clone()) {
            Entry::Occupied(_) => return Err(Refusal::Duplicate),
            Entry::Vacant(_) if progress.pending_count >= self.max_count => {
                return Err(Refusal::Full);
            }
            Entry::Vacant(_)
                if progress.pending_count > 0
                    && progress.pending_bytes.saturating_add(bytes) > self.max_bytes =>
            {
                return Err(Refusal::Heavy);
            }
            Entry::Vacant(vacant) => vacant.insert(number),
        };
        table.by_number.insert(number, Flight { id, bytes });
        table.last_number = number;
        self.progress.send_modify(|progress| {
            progress.pending_count += 1;
            progress.pending_bytes += bytes;
        });
        Ok(number)
    }

    /// Waives the answer to a request; its number, if it was in flight. The SDK never answers a
    /// cancelled request, and an answer that it had already begun is dropped.
    pub(super) fn cancel(&self, id: &WireId) -> Option<i64> {
        let mut table = self.lock();
        let number = table.by_id.remove(id)?;
        let flight = table.by_number.remove(&number)?;
        self.settle_one(flight.bytes);
        Some(number)
    }

    /// Takes the one answer to request `number`; `None` if it was answered or cancelled before.
    /// The request counts as pending until the returned value is dropped.
    pub(super) fn answer(&self, number: i64) -> Option<Answer> {
        let mut table = self.lock();
        let flight = table.by_number.remove(&number)?;
        // From here the client may see the reply, and may use the ID again.
        table.by_id.remove(&flight.id);
        Some(Answer { flight, flights: self.clone() })
    }

    /// The client's ID of a request in flight.
    pub(super) fn id_of(&self, number: i64) -> Option<WireId> {
        self.lock().by_number.get(&number).map(|flight| flight.id.clone())
    }

    /// Begins the end of the connection, unless it has begun.
    pub(super) fn drain(&self, cause: DrainCause) {
        let _table = self.lock();
        self.progress.send_modify(|progress| {
            progress.draining.get_or_insert((cause, Instant::now()));
        });
    }

    /// When and why the end began.
    pub(super) fn draining(&self) -> Option<(DrainCause, Instant)> {
        self.progress.borrow().draining
    }

    pub(super) fn pending_count(&self) -> usize {
        self.progress.borrow().pending_count
    }

    /// Waits until the end has begun and no request is pending. Cancel-safe.
    pub(super) async fn drained(&self) {
        self.wait(|progress| progress.draining.is_some() && progress.pending_count == 0).await;
    }

    /// Waits until the end has begun; when it did. Cancel-safe.
    pub(super) async fn drain_start(&self) -> Instant {
        let progress = self.wait(|progress| progress.draining.is_some()).await;
        progress.draining.expect("waited for it").1
    }

    async fn wait(&self, until: impl FnMut(&Progress) -> bool) -> Progress {
        let mut progress = self.progress.subscribe();
        *progress.wait_for(until).await.expect("self holds a sender")
    }

    fn settle_one(&self, bytes: usize) {
        self.progress.send_modify(|progress| {
            progress.pending_count -= 1;
            progress.pending_bytes -= bytes;
        });
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("nothing panics while it holds the table")
    }
}

/// The right to answer one request, once.
#[derive(Debug)]
pub(super) struct Answer {
    flight: Flight,
    flights: Flights,
}

impl Answer {
    pub(super) fn id(&self) -> &WireId {
        &self.flight.id
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.flights.settle_one(self.flight.bytes);
    }
}
