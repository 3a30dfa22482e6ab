//! The terminal of whoever waits for a call: what is said on the way, and their wish to stop.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use counterfoil_client::Watcher;
use tokio_util::sync::CancellationToken;

/// Says on `err` how a call goes, and stops at a signal.
pub(super) struct Screen<'e, E> {
    err: Mutex<&'e mut E>,
    tells_tries: bool,
    stop: CancellationToken,
}

impl<'e, E: Write + Send> Screen<'e, E> {
    pub(super) const fn new(err: &'e mut E, tells_tries: bool, stop: CancellationToken) -> Self {
        Self { err: Mutex::new(err), tells_tries, stop }
    }

    /// A line for who waits. If it cannot be written, the call still matters more.
    pub(super) fn say(&self, words: &str) {
        let mut err = self.err.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = writeln!(err, "{words}") {
            tracing::debug!(%error, "stderr cannot be written");
        }
    }
}

impl<E: Write + Send> Watcher for Screen<'_, E> {
    async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    fn asks_again(&self, number: u32, most: u32) {
        if self.tells_tries {
            self.say(&format!("still asking, try {number} of {most}"));
        }
    }
}
