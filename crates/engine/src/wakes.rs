//! Who must hear what within one process: a target's loop that there is work, a caller that its
//! item changed. What other processes do is found by looking now and then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use counterfoil_core::delivery::TargetName;
use counterfoil_core::identity::OperationKey;
use counterfoil_core::time::Timestamp;
use tokio::sync::Notify;

/// The bells of this process.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    bells: Mutex<HashMap<TargetName, Arc<Bell>>>,
    waiters: Mutex<HashMap<OperationKey, Waiter>>,
}

#[derive(Debug, Default)]
struct Waiter {
    changed: Arc<Notify>,
    waiting_count: usize,
}

impl Wakes {
    /// The bell of a target's loop.
    pub(crate) fn bell(&self, target: &TargetName) -> Arc<Bell> {
        Arc::clone(lock(&self.bells).entry(target.clone()).or_default())
    }

    /// An item for `target` is due at `at`.
    pub(crate) fn due_at(&self, target: &TargetName, at: Timestamp) {
        if let Some(bell) = lock(&self.bells).get(target) {
            bell.due_at(at);
        }
    }

    /// Something became of an item.
    pub(crate) fn changed(&self, key: OperationKey) {
        if let Some(waiter) = lock(&self.waiters).get(&key) {
            waiter.changed.notify_waiters();
        }
    }

    /// Registers a caller that waits for an item, until the value is dropped.
    pub(crate) fn wait_for(&self, key: OperationKey) -> Waiting<'_> {
        let mut waiters = lock(&self.waiters);
        let waiter = waiters.entry(key).or_default();
        waiter.waiting_count += 1;
        Waiting { wakes: self, key, changed: Arc::clone(&waiter.changed) }
    }
}

/// A caller that waits for an item.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    wakes: &'a Wakes,
    key: OperationKey,
    pub(crate) changed: Arc<Notify>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiters = lock(&self.wakes.waiters);
        if let Some(waiter) = waiters.get_mut(&self.key) {
            waiter.waiting_count -= 1;
            if waiter.waiting_count == 0 {
                waiters.remove(&self.key);
            }
        }
    }
}

/// Wakes one target's loop, and knows when there is work for it.
#[derive(Debug)]
pub(crate) struct Bell {
    notify: Notify,
    /// The earliest known time of work, in milliseconds; [`i64::MAX`] if none is known.
    due_ms: AtomicI64,
    /// Whether the ledger must be asked when there is work.
    look: AtomicBool,
}

impl Default for Bell {
    fn default() -> Self {
        let (notify, due_ms) = (Notify::new(), AtomicI64::new(i64::MAX));
        Self { notify, due_ms, look: AtomicBool::new(true) }
    }
}

impl Bell {
    /// There is work at `at`.
    pub(crate) fn due_at(&self, at: Timestamp) {
        if self.due_ms.fetch_min(at.as_ms(), Ordering::AcqRel) > at.as_ms() {
            self.notify.notify_one();
        }
    }

    /// There may be work: ask the ledger when.
    pub(crate) fn look(&self) {
        self.look.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// There is room for more work.
    pub(crate) fn ring(&self) {
        self.notify.notify_one();
    }

    /// Whether the ledger must be asked; it counts as asked from now on.
    pub(crate) fn take_look(&self) -> bool {
        self.look.swap(false, Ordering::AcqRel)
    }

    /// When there is work, as far as is known.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        known(self.due_ms.load(Ordering::Acquire))
    }

    /// The same, and forgets it: what is told from now on is kept apart.
    pub(crate) fn take_due(&self) -> Option<Timestamp> {
        known(self.due_ms.swap(i64::MAX, Ordering::AcqRel))
    }

    /// What the loop itself learned. Wakes nobody.
    pub(crate) fn put_due(&self, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.due_ms.fetch_min(at.as_ms(), Ordering::AcqRel);
        }
    }

    /// Waits for the next ring; one that came since the last wait counts.
    pub(crate) async fn rung(&self) {
        self.notify.notified().await;
    }
}

fn known(ms: i64) -> Option<Timestamp> {
    (ms != i64::MAX).then(|| Timestamp::from_ms(ms))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
