//! Who looks on while a call runs: told how it goes, and free to stop waiting.

use std::future::Future;

/// Looks on.
pub trait Watcher: Sync {
    /// Ends when the user stops waiting; called again, it still ends. Nothing is taken back by
    /// it: what was sent stays sent, and its effect is then unknown.
    fn stopped(&self) -> impl Future<Output = ()> + Send;

    /// A status is about to be asked for once more: try `number`, counted from one, of at most
    /// `most`.
    fn asks_again(&self, number: u32, most: u32);
}

/// Nobody looks on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watcher for Unwatched {
    async fn stopped(&self) {
        std::future::pending().await
    }

    fn asks_again(&self, _number: u32, _most: u32) {}
}
