//! Idle connections, each used again only for a short time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::dial::{Channel, Endpoint};

/// More idle connections than this are not kept for one endpoint.
const MOST_IDLE: usize = 64;

/// Idle connections, the freshest last.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<HashMap<Endpoint, Vec<(Channel, Instant)>>>,
}

impl Pool {
    /// The freshest that is still usable.
    pub(super) fn take(&self, from: &Endpoint, keep: Duration) -> Option<Channel> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let all = idle.get_mut(from)?;
        let oldest = Instant::now().checked_sub(keep);
        all.retain(|(channel, since)| {
            oldest.is_some_and(|oldest| *since >= oldest) && channel.sender.is_ready()
        });
        all.pop().map(|(channel, _)| channel)
    }

    /// Keeps one for another request.
    pub(super) fn give(&self, to: Endpoint, channel: Channel) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let all = idle.entry(to).or_default();
        if all.len() < MOST_IDLE {
            all.push((channel, Instant::now()));
        }
    }
}
