//! What a process has in its hands: items that it claimed and has not reported yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use counterfoil_core::identity::OperationKey;

/// The items of a process, counted: one that it lost and claimed again is there twice. Clones share
/// them. Where a lease has ended by a clock that was set forward, its holder is not dead: a process
/// knows that of its own.
#[derive(Debug, Clone, Default)]
pub struct UnderWay(Arc<Mutex<HashMap<OperationKey, u32>>>);

impl UnderWay {
    /// The process begins to work on an item; says whether it did already.
    pub fn add(&self, key: OperationKey) -> bool {
        let mut items = self.items();
        let count = items.entry(key).or_default();
        *count += 1;
        *count > 1
    }

    /// What it did is in the ledger, or is nobody's business any more.
    pub fn remove(&self, key: OperationKey) {
        let mut items = self.items();
        if let Some(count) = items.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                items.remove(&key);
            }
        }
    }

    /// Whether the process works on an item.
    #[must_use]
    pub fn contains(&self, key: OperationKey) -> bool {
        self.items().contains_key(&key)
    }

    fn items(&self) -> MutexGuard<'_, HashMap<OperationKey, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
