//! What outlives a single call: leases that are prolonged while a request is out, notes of what was
//! told, and operations whose owners are gone.

use std::collections::HashMap;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use counterfoil_core::identity::OperationKey;
use counterfoil_store::DirectLedger;
use counterfoil_store::direct::{Hold, Told};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

/// How long a run owns an operation after its last word of it.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// A lease is prolonged after this part of it.
const RENEW_AFTER: Duration = Duration::from_secs(5);
/// How long a note may wait for a write to go with.
const TELL_AFTER: Duration = Duration::from_millis(250);
/// How often operations are looked for whose owners are gone.
const LAPSE_EVERY: Duration = Duration::from_secs(5);

/// The direct operations that this process has in hand.
#[derive(Debug)]
pub(crate) struct Keeper {
    ledger: Arc<dyn DirectLedger>,
    shared: Mutex<Shared>,
    /// There is something to do.
    wake: Notify,
}

#[derive(Debug, Default)]
struct Shared {
    held: HashMap<OperationKey, Held>,
    told: Vec<Told>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    hold: Hold,
    /// From before the write that made or prolonged the lease.
    since: Instant,
}

impl Keeper {
    pub(crate) fn new(ledger: Arc<dyn DirectLedger>) -> Self {
        Self { ledger, shared: Mutex::default(), wake: Notify::new() }
    }

    pub(crate) const fn ledger(&self) -> &Arc<dyn DirectLedger> {
        &self.ledger
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The notes to go with the next write.
    pub(super) fn take_told(&self) -> Vec<Told> {
        take(&mut self.lock().told)
    }

    /// Notes that could not be written with it.
    pub(super) fn give_back(&self, mut told: Vec<Told>) {
        if !told.is_empty() {
            let mut shared = self.lock();
            told.append(&mut shared.told);
            shared.told = told;
            self.wake.notify_one();
        }
    }

    pub(super) fn tell(&self, key: OperationKey, answered: bool) {
        self.lock().told.push(Told { key, answered });
        self.wake.notify_one();
    }

    /// From here on the lease is prolonged; `since` is from before the write that made it.
    pub(super) fn hold(&self, hold: Hold, since: Instant) {
        self.lock().held.insert(hold.key, Held { hold, since });
        self.wake.notify_one();
    }

    /// Lets go of one hold. A later one of the same operation stays.
    pub(super) fn let_go(&self, hold: &Hold) {
        let mut shared = self.lock();
        if shared.held.get(&hold.key).is_some_and(|held| held.hold == *hold) {
            shared.held.remove(&hold.key);
        }
    }

    pub(super) fn holds(&self, key: OperationKey) -> bool {
        self.lock().held.contains_key(&key)
    }

    /// Whether a request may leave now: the lease surely stands, by a clock that nobody sets.
    pub(super) fn surely_holds(&self, hold: &Hold) -> bool {
        self.lock()
            .held
            .get(&hold.key)
            .is_some_and(|held| held.hold == *hold && held.since.elapsed() < LEASE / 2)
    }

    /// Prolongs one lease now; whether it still holds.
    pub(super) async fn renew_now(&self, hold: Hold) -> bool {
        let since = Instant::now();
        match self.ledger.renew(vec![hold], LEASE).await.as_deref() {
            Ok([true]) => {
                self.hold(hold, since);
                true
            }
            _ => false,
        }
    }

    fn is_idle(&self) -> bool {
        let shared = self.lock();
        shared.held.is_empty() && shared.told.is_empty()
    }

    async fn renew_due(&self) {
        let due: Vec<Hold> = {
            let shared = self.lock();
            let due = shared.held.values().filter(|held| held.since.elapsed() >= RENEW_AFTER);
            due.map(|held| held.hold).collect()
        };
        if due.is_empty() {
            return;
        }
        let since = Instant::now();
        match self.ledger.renew(due.clone(), LEASE).await {
            Ok(holds) => {
                let mut shared = self.lock();
                for (hold, _) in due.iter().zip(holds).filter(|(_, still)| *still) {
                    if let Some(held) = shared.held.get_mut(&hold.key) {
                        held.since = since;
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "leases could not be prolonged; tried again"),
        }
    }

    pub(crate) async fn write_told(&self) {
        let told = self.take_told();
        if told.is_empty() {
            return;
        }
        if let Err(error) = self.ledger.tell(told.clone()).await {
            tracing::warn!(%error, "what was answered could not be noted; tried again");
            self.give_back(told);
        }
    }

    async fn lapse(&self) {
        match self.ledger.lapse(super::LAPSED_AT_ONCE).await {
            Ok(0) => {}
            Ok(count) => tracing::warn!(count, "operations were left unfinished by a process"),
            Err(error) => tracing::warn!(%error, "unfinished operations could not be looked for"),
        }
    }

    /// Works until `stop`, and once more then.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let mut lapse = interval(LAPSE_EVERY);
        lapse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !stop.is_cancelled() {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                _ = lapse.tick() => self.lapse().await,
                () = self.woken() => {
                    self.renew_due().await;
                    self.write_told().await;
                }
            }
        }
        self.write_told().await;
    }

    /// Some time after there is something to do: by then a write may have taken it along.
    async fn woken(&self) {
        if self.is_idle() {
            self.wake.notified().await;
        }
        tokio::time::sleep(TELL_AFTER).await;
    }
}

impl Engine {
    /// Keeps leases, notes and abandoned operations in order, in the background, until `stop` or
    /// until the engine is drained. Without it no lease is prolonged.
    pub fn keep_direct(self: &Arc<Self>, stop: &CancellationToken) {
        let engine = Arc::clone(self);
        let stop = stop.clone();
        self.spawn_worker(move |stopped| async move {
            let Some(keeper) = &engine.direct else { return };
            let both = CancellationToken::new();
            let run = keeper.run(both.clone());
            tokio::pin!(run);
            tokio::select! {
                biased;
                () = &mut run => return,
                () = stop.cancelled() => both.cancel(),
                () = stopped.cancelled() => both.cancel(),
            }
            run.await;
        });
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_core::identity::{BackendId, BootId};
    use counterfoil_store::memory::{MemoryOptions, MemoryStore};

    use super::*;

    #[test]
    fn whoever_lets_go_takes_nothing_from_the_next_holder() {
        // Promise: a call that ends late never ends the lease of the call that took its operation over.
        let options = MemoryOptions::new(BackendId::parse("b").expect("a name"));
        let keeper = Keeper::new(Arc::new(MemoryStore::new(&options).expect("a store")));
        let key = OperationKey::from_bytes([1; 16]);
        let hold = |fence| Hold { key, boot: BootId::from_bytes([2; 16]), fence, leg: 1 };
        keeper.hold(hold(1), Instant::now());
        keeper.hold(hold(2), Instant::now());
        keeper.let_go(&hold(1));
        assert!(keeper.holds(key));
        keeper.let_go(&hold(2));
        assert!(!keeper.holds(key));
    }
}
