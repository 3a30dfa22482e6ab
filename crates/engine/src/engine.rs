//! The one path of a call: admit, execute, observe.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use counterfoil_core::admission::{
    Admitted, Attempt, Call, Decision, LedgerTime, decide_first_round,
};
use counterfoil_core::fingerprint::KeyRing;
use counterfoil_core::identity::{BackendId, BootId, Caller, Nonce, OperationId, OperationKey};
use counterfoil_core::observation::{Snapshot, row_is_missing};
use counterfoil_core::operation::State;
use counterfoil_core::record::Record;
use counterfoil_core::refusal::{Code, Refusal};
use counterfoil_core::time::{Lifetimes, Timestamp};
use counterfoil_store::outbox::OutboxStats;
use counterfoil_store::{
    Answer, DirectLedger, Finish, LedgerStats, LocalEffect, Outbox, Store, StoreError, Submission,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::deliver::{Deliverer, DeliveryNumbers};
use crate::direct::Keeper;
use crate::randomness::{Randomness, SystemRandomness};
use crate::reply::{Settled, refusal_from_store};
use crate::wakes::Wakes;

/// The shell around core and store. Cheap to share behind an [`Arc`].
#[derive(Debug)]
pub struct Engine {
    pub(crate) store: Arc<dyn Store>,
    /// The same ledger, if it has an outbox.
    outbox: Option<Arc<dyn Outbox>>,
    /// The same ledger, if it keeps direct operations, with those that are in hand.
    pub(crate) direct: Option<Keeper>,
    keys: KeyRing,
    lifetimes: Lifetimes,
    boot: BootId,
    randomness: Arc<dyn Randomness>,
    /// The time and the count of the last key that was made: see [`time_ordered`].
    last_key: AtomicU64,
    tasks: TaskTracker,
    /// The worker, if this process has one.
    workers: TaskTracker,
    stop_workers: CancellationToken,
    wakes: Wakes,
    numbers: Arc<DeliveryNumbers>,
}

/// What the first round of a call finds.
#[derive(Debug, Clone, PartialEq)]
pub enum FirstRound {
    /// No record: a continuation may be issued, or the effect made.
    Fresh,
    /// The effect was made by an equal call: here is its result, and nothing is to be asked.
    Settled(Box<Settled>),
}

/// Between two tries of a step that must not be lost.
pub(crate) const FINISH_RETRY: std::ops::Range<Duration> =
    Duration::from_millis(20)..Duration::from_millis(1000);

impl Engine {
    /// Binds the keys to the ledger.
    ///
    /// # Errors
    /// [`StoreError`] if the keys do not fit the ledger or it cannot be used.
    pub async fn open(
        store: Arc<dyn Store>,
        keys: KeyRing,
        lifetimes: Lifetimes,
    ) -> Result<Self, StoreError> {
        Self::bind(store, None, None, keys, lifetimes).await
    }

    /// The same for a ledger with an outbox, which can take in calls for delivery.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_with_outbox(
        outbox: Arc<dyn Outbox>,
        keys: KeyRing,
        lifetimes: Lifetimes,
    ) -> Result<Self, StoreError> {
        let store: Arc<dyn Store> = Arc::<dyn Outbox>::clone(&outbox);
        Self::bind(store, Some(outbox), None, keys, lifetimes).await
    }

    /// The same for a ledger with everything: an outbox, and operations that are sent while their
    /// caller waits.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_whole<L: Outbox + DirectLedger>(
        ledger: Arc<L>,
        keys: KeyRing,
        lifetimes: Lifetimes,
    ) -> Result<Self, StoreError> {
        let store: Arc<dyn Store> = Arc::<L>::clone(&ledger);
        let outbox: Arc<dyn Outbox> = Arc::<L>::clone(&ledger);
        Self::bind(store, Some(outbox), Some(ledger), keys, lifetimes).await
    }

    async fn bind(
        store: Arc<dyn Store>,
        outbox: Option<Arc<dyn Outbox>>,
        direct: Option<Arc<dyn DirectLedger>>,
        keys: KeyRing,
        lifetimes: Lifetimes,
    ) -> Result<Self, StoreError> {
        store.bind_keys(&keys).await?;
        let randomness: Arc<dyn Randomness> = Arc::new(SystemRandomness);
        let [boot] = random(&*randomness);
        Ok(Self {
            store,
            outbox,
            direct: direct.map(Keeper::new),
            keys,
            lifetimes,
            boot: BootId::from_bytes(boot),
            randomness,
            last_key: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            workers: TaskTracker::new(),
            stop_workers: CancellationToken::new(),
            wakes: Wakes::default(),
            numbers: Arc::default(),
        })
    }

    /// Takes its randomness from `randomness`, the name of its run included. For an engine that did
    /// nothing yet.
    #[must_use]
    pub fn with_randomness(mut self, randomness: Arc<dyn Randomness>) -> Self {
        self.randomness = randomness;
        let [boot] = self.random();
        self.boot = BootId::from_bytes(boot);
        self
    }

    /// Random bytes, 16 at a time.
    pub(crate) fn random<const N: usize>(&self) -> [[u8; 16]; N] {
        random(&*self.randomness)
    }

    /// 64 random bits.
    pub(crate) fn random_u64(&self) -> u64 {
        let [[bytes @ .., _, _, _, _, _, _, _, _]] = self.random();
        u64::from_ne_bytes(bytes)
    }

    /// The outbox of the ledger; `None` if it has none.
    #[must_use]
    pub const fn outbox(&self) -> Option<&Arc<dyn Outbox>> {
        self.outbox.as_ref()
    }

    /// What this process's worker counted.
    #[must_use]
    pub const fn delivery_numbers(&self) -> &Arc<DeliveryNumbers> {
        &self.numbers
    }

    /// Counts of the outbox; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub async fn outbox_stats(&self) -> Result<Option<OutboxStats>, StoreError> {
        match &self.outbox {
            Some(outbox) => outbox.outbox_stats().await.map(Some),
            None => Ok(None),
        }
    }

    pub(crate) const fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    /// Runs work that a leaving caller must not take with it.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn(work)
    }

    /// Runs work in the background that ends when the engine is drained: it is handed the word.
    pub(crate) fn spawn_worker<F: Future<Output = ()> + Send + 'static>(
        &self,
        work: impl FnOnce(CancellationToken) -> F,
    ) {
        self.workers.spawn(work(self.stop_workers.child_token()));
    }

    /// The ledger's ID.
    #[must_use]
    pub fn backend_id(&self) -> &BackendId {
        self.store.backend_id()
    }

    /// The keys that the ledger is bound to.
    #[must_use]
    pub const fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// The lifetimes of what this engine issues.
    #[must_use]
    pub const fn lifetimes(&self) -> Lifetimes {
        self.lifetimes
    }

    /// The run of this process.
    pub(crate) const fn boot(&self) -> BootId {
        self.boot
    }

    /// The ledger's time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.store.now()
    }

    /// Makes the call's fingerprints and gives the attempt its identities. Reads and writes
    /// nothing.
    ///
    /// # Errors
    /// [`Refusal`] if the arguments have no canonical form.
    pub fn admit(&self, call: &Call<'_>) -> Result<Admitted, Refusal> {
        // Asking the system once costs half.
        let [for_key, nonce] = self.random();
        let key = time_ordered(&self.last_key, self.store.now(), for_key);
        let attempt = Attempt {
            key: OperationKey::from_bytes(key),
            nonce: Nonce::from_bytes(nonce),
            boot: self.boot,
        };
        Admitted::admit(call, &self.keys, self.lifetimes.retention, attempt)
    }

    /// A fresh operation ID: a UUIDv7 of the ledger's time.
    #[must_use]
    pub fn mint_id(&self) -> OperationId {
        let [bytes] = self.random();
        let bytes = time_ordered(&self.last_key, self.store.now(), bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
        OperationId::parse(&text).expect("hexadecimal digits and dashes are an ID")
    }

    /// Looks whether an equal call was made before. Writes nothing.
    ///
    /// # Errors
    /// [`Refusal`] if the ID is bound to another request, expired, unfinished or in doubt, or the
    /// ledger cannot be read.
    pub async fn first_round(&self, call: &Admitted) -> Result<FirstRound, Refusal> {
        let id = call.operation_id();
        let snapshot = self.look_up(call.caller(), id).await?;
        let record = match &snapshot {
            Snapshot::Found { record, effect } => Some((&**record, *effect)),
            Snapshot::Absent => None,
            Snapshot::Quarantined => return Err(quarantined(id)),
        };
        let time = LedgerTime { now: self.store.now(), horizon: self.store.horizon() };
        match (decide_first_round(call, record.map(|(record, _)| record), time), record) {
            (Decision::Refuse(refusal), _) => Err(refusal),
            (Decision::Replay, Some((record, effect))) if row_is_missing(record, effect) => {
                Err(Refusal::effect_missing(id.clone()))
            }
            (Decision::Replay, Some((record, _))) => {
                Ok(FirstRound::Settled(Box::new(Settled::from_committed(record.clone(), true))))
            }
            (Decision::Replay | Decision::Fresh, _) => Ok(FirstRound::Fresh),
        }
    }

    /// Makes the effect once, or gives the result of the call that made it.
    ///
    /// Once begun, the work goes on in a task of the engine: a caller that goes away takes nothing
    /// with it.
    ///
    /// # Errors
    /// [`Refusal`] in the caller's terms. After `store_unavailable` the same call may be sent
    /// again.
    pub async fn execute(
        self: &Arc<Self>,
        admitted: Admitted,
        effect: Arc<dyn LocalEffect>,
    ) -> Result<Settled, Refusal> {
        self.execute_cancellable(admitted, effect, CancellationToken::new()).await
    }

    /// As [`execute`](Self::execute), for a call that its caller may take back. Once the operation
    /// was handed to the store the effect settles all the same; that `cancelled` came is then put
    /// on record, by the engine's own task.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn execute_cancellable(
        self: &Arc<Self>,
        admitted: Admitted,
        effect: Arc<dyn LocalEffect>,
        cancelled: CancellationToken,
    ) -> Result<Settled, Refusal> {
        let engine = Arc::clone(self);
        let id = admitted.operation_id().clone();
        let mut work = Box::pin(async move { engine.run(admitted, effect, &cancelled).await });
        // What need not wait is done here and now: a task would cost as much again.
        let begun = poll_fn(|context| {
            let poll = AssertUnwindSafe(|| work.as_mut().poll(context));
            Poll::Ready(catch_unwind(poll))
        });
        match begun.await {
            Ok(Poll::Ready(done)) => done,
            Ok(Poll::Pending) => {
                let task = self.tasks.spawn(work);
                task.await.unwrap_or_else(|_| Err(Refusal::in_progress(id)))
            }
            // It panicked after handing its work to the store, as a task may: nobody here knows
            // the end.
            Err(_) => Err(Refusal::in_progress(id)),
        }
    }

    async fn run(
        &self,
        admitted: Admitted,
        effect: Arc<dyn LocalEffect>,
        cancelled: &CancellationToken,
    ) -> Result<Settled, Refusal> {
        let id = admitted.operation_id().clone();
        let caller = admitted.caller().clone();
        let submission = Submission { admitted, effect: Arc::clone(&effect) };
        let committed = self
            .store
            .submit(submission)
            .await
            .map_err(|error| refusal_from_store(&error, Some(&id)))?;
        let (record, replayed) = match committed.into_answer() {
            Answer::Refused(refusal) => return Err(refusal),
            Answer::Replayed(record) => (*record, true),
            Answer::Fresh(record) => (*record, false),
        };
        let rest = async {
            match record.state {
                State::InProgress(_) => self.finish(record, effect).await,
                _ => Ok(Settled::from_committed(record, replayed)),
            }
        };
        self.noting(&caller, &id, cancelled, rest).await
    }

    /// Runs the step after a first commit. It is tried for as long as the process lives: a first
    /// step is never left alone because the ledger was busy for a while.
    async fn finish(
        &self,
        record: Record,
        effect: Arc<dyn LocalEffect>,
    ) -> Result<Settled, Refusal> {
        let id = record.operation_id.clone();
        let Some(owner) = record.owner else { return Err(Refusal::in_progress(id)) };
        let mut pause = FINISH_RETRY.start;
        loop {
            let finish = Finish {
                key: record.key,
                boot: owner.boot,
                fence: owner.fence,
                effect: Arc::clone(&effect),
            };
            match self.store.finish(finish).await.map(counterfoil_store::Committed::into_answer) {
                Ok(Answer::Fresh(record)) => return Ok(Settled::from_committed(*record, false)),
                Ok(Answer::Replayed(record)) => return Ok(Settled::from_committed(*record, true)),
                Ok(Answer::Refused(refusal)) => return Err(refusal),
                Err(error) if !passes(&error) => {
                    tracing::error!(
                        error = error.kind(),
                        "an operation was left unfinished; an operator decides"
                    );
                    return Err(Refusal::in_progress(id));
                }
                Err(error) => {
                    tracing::warn!(
                        error = error.kind(),
                        "an operation's last step waits for the ledger"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(FINISH_RETRY.end);
                }
            }
        }
    }

    pub(crate) async fn look_up(
        &self,
        caller: &Caller,
        id: &OperationId,
    ) -> Result<Snapshot, Refusal> {
        let read = self.store.look_up(&caller.tenant, id).await;
        read.map_err(|error| refusal_from_store(&error, Some(id)))
    }

    /// Runs a worker in the background, until `shutdown` is cancelled or the engine is drained.
    pub fn start_worker(&self, worker: Deliverer, shutdown: &CancellationToken) {
        let (stop, shutdown) = (self.stop_workers.child_token(), shutdown.clone());
        self.workers.spawn(async move {
            let run = worker.run(stop.clone());
            tokio::pin!(run);
            tokio::select! {
                biased;
                () = &mut run => return,
                () = shutdown.cancelled() => stop.cancel(),
            }
            run.await;
        });
    }

    /// Waits until every effect that was begun is settled, at most `limit`; says whether all were.
    /// A worker of this engine is told to stop, and has its own limit.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.stop_workers.cancel();
        self.workers.close();
        self.tasks.close();
        let settled = tokio::time::timeout(limit, self.tasks.wait());
        let settled = tokio::join!(settled, self.workers.wait()).0.is_ok();
        if let Some(keeper) = &self.direct {
            keeper.write_told().await;
        }
        settled
    }

    /// Proves that a write would be committed now, by committing the ledger's time.
    ///
    /// # Errors
    /// What a fresh call would get.
    pub async fn probe(&self) -> Result<(), StoreError> {
        self.store.probe().await
    }

    /// Counts and sizes of the ledger.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub async fn stats(&self) -> Result<LedgerStats, StoreError> {
        self.store.stats().await
    }

    /// Closes the ledger after what is queued is committed.
    ///
    /// # Errors
    /// [`StoreError`] if the last batch failed.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}

/// Whether the fault is one of the moment: the same step may succeed later.
pub(crate) const fn passes(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Busy { .. }
            | StoreError::Full { .. }
            | StoreError::Io { .. }
            | StoreError::CommitUnknown
    )
}

fn quarantined(id: &OperationId) -> Refusal {
    Refusal::new(
        Code::OperationInDoubt,
        "the record of this operation fails its own checks, and nothing was done; an operator must \
         run `counterfoil store check`",
        Some(id.clone()),
    )
}

/// Random bytes, 16 at a time.
fn random<const N: usize>(source: &dyn Randomness) -> [[u8; 16]; N] {
    let mut bytes = [[0; 16]; N];
    source.fill(bytes.as_flattened_mut());
    bytes
}

/// A UUIDv7 (RFC 9562, section 5.7) for `now`. The 12 bits behind its milliseconds count (section
/// 6.2, method 1), so that each is after the one before and rows are appended in order; the other
/// bits are those of `bytes`. `last` keeps the milliseconds and the count of the last one.
fn time_ordered(last: &AtomicU64, now: Timestamp, mut bytes: [u8; 16]) -> [u8; 16] {
    let at = u64::try_from(now.as_ms()).unwrap_or(0) << 12;
    let next = |last: u64| at.max(last + 1);
    let before = last
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)))
        .expect("there is always a next one");
    let [_, _, time @ ..] = (next(before) >> 12).to_be_bytes();
    let [.., high, low] = next(before).to_be_bytes();
    bytes[..6].copy_from_slice(&time);
    bytes[6] = 0x70 | (high & 0x0f);
    bytes[7] = low;
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_uuids_of_their_time_in_the_order_in_which_they_are_made() {
        // Promise: rows are appended in order, however many begin in one millisecond and wherever
        // the clock goes.
        let last = AtomicU64::new(0);
        let key = |ms| time_ordered(&last, Timestamp::from_ms(ms), [0xff; 16]);
        let mut keys = vec![key(1_645_557_742_000)];
        // RFC 9562, appendix A.6, has this time.
        assert_eq!(keys[0][..8], [0x01, 0x7f, 0x22, 0xe2, 0x79, 0xb0, 0x70, 0x00]);
        keys.extend((0..5000).map(|_| key(1_645_557_742_000)));
        keys.push(key(5));
        keys.push(key(1_700_000_000_000));
        assert!(keys.is_sorted());
        assert!(keys.iter().all(|key| key[6] >> 4 == 7 && key[8] >> 6 == 0b10));
        assert!(keys.iter().all(|key| key[9..] == [0xff; 7]), "the rest is what was given");
    }
}
