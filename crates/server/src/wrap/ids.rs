//! Request IDs, progress tokens and subscriptions, across the relay.
//!
//! Each side sees numbers of ours for what the other side began, so that no ID can meet another one
//! and an answer to a child that has died cannot reach its successor. What comes back is restored
//! with its JSON type and digits.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::frame::Frame;
use super::{CallToken, Lost, UpstreamReply};
use crate::wire::WireId;

/// Tokens of answered requests that may still make progress (tasks), in count.
const MAX_LONG_TOKENS: usize = 1024;
/// Numbers of cancelled requests whose answer may still come, in count.
const MAX_CANCELLED: usize = 1024;
/// Guarded calls that were answered and may still be cancelled, in count.
const MAX_ANSWERED: usize = 256;

/// A request that we sent upstream.
#[derive(Debug)]
pub(super) struct Upward {
    pub(super) owner: Owner,
    pub(super) purpose: Purpose,
    /// Some byte of it was handed to the child's pipe.
    pub(super) sent: Arc<AtomicBool>,
    /// The client's progress token, raw JSON.
    pub(super) token: Option<Bytes>,
}

impl Upward {
    pub(super) fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Who waits for the answer.
#[derive(Debug)]
pub(super) enum Owner {
    /// The client: the ID for our tables, and as it stood in its request.
    Client { id: WireId, raw: Bytes },
    /// A call of the guard, or a question of ours.
    Port(oneshot::Sender<Result<UpstreamReply, Lost>>),
}

/// What the relay must do when the answer comes.
#[derive(Debug)]
pub(super) enum Purpose {
    Plain,
    Initialize {
        params: Bytes,
    },
    Discover {
        params: Bytes,
        revision: Option<String>,
    },
    ToolsList {
        is_first: bool,
        revision: Option<String>,
    },
    /// `logging/setLevel`, kept for the next child.
    LogLevel {
        params: Bytes,
    },
    /// `resources/subscribe`, kept for the next child.
    Subscribe {
        uri: Bytes,
        params: Bytes,
    },
    Unsubscribe {
        uri: Bytes,
    },
    /// `subscriptions/listen`: a stream for as long as it is open, opened anew at the next child.
    Listen(Box<Listen>),
}

/// An open `subscriptions/listen`.
#[derive(Debug)]
pub(super) struct Listen {
    /// As the client sent it.
    pub(super) frame: Frame,
    /// The client was told that it stands; a second acknowledgement is kept from it.
    pub(super) acknowledged: bool,
}

/// A request of the child that the client answers.
#[derive(Debug)]
pub(super) struct Downward {
    /// The child's ID, raw JSON.
    pub(super) raw: Bytes,
    pub(super) id: WireId,
    /// The child's progress token, raw JSON.
    pub(super) token: Option<Bytes>,
}

/// What the client's open request is.
#[derive(Clone, Debug)]
pub(super) enum Open {
    Upstream(u64),
    Guarded { token: CallToken, cancelled: CancellationToken },
}

/// Everything that is open.
#[derive(Debug, Default)]
pub(super) struct Ids {
    last: u64,
    upward: HashMap<u64, Upward>,
    by_client: HashMap<WireId, Open>,
    long_tokens: VecDeque<(u64, Bytes)>,
    cancelled: VecDeque<u64>,
    answered_calls: VecDeque<(WireId, CallToken)>,
    downward: HashMap<u64, Downward>,
    by_server: HashMap<WireId, u64>,
}

impl Ids {
    /// A number that was never used.
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether the client has a request with this ID open.
    pub(super) fn is_open(&self, id: &WireId) -> bool {
        self.by_client.contains_key(id)
    }

    /// Count of the client's open requests.
    pub(super) fn open_count(&self) -> usize {
        self.by_client.len()
    }

    pub(super) fn open_upward(&mut self, number: u64, upward: Upward) {
        if let Owner::Client { id, .. } = &upward.owner {
            self.by_client.insert(id.clone(), Open::Upstream(number));
        }
        self.upward.insert(number, upward);
    }

    pub(super) fn open_guarded(&mut self, id: WireId, open: Open) {
        self.by_client.insert(id, open);
    }

    /// Ends a guarded call; whether the client still waits for it.
    pub(super) fn close_guarded(&mut self, id: &WireId, token: CallToken) -> bool {
        let is_it = matches!(self.by_client.get(id), Some(Open::Guarded { token: open, .. }) if *open == token);
        if is_it {
            self.by_client.remove(id);
            push_capped(&mut self.answered_calls, (id.clone(), token), MAX_ANSWERED);
        }
        is_it
    }

    /// Takes the last guarded call that was answered under this ID.
    pub(super) fn take_answered(&mut self, id: &WireId) -> Option<CallToken> {
        let at = self.answered_calls.iter().rposition(|(answered, _)| answered == id)?;
        self.answered_calls.remove(at).map(|(_, token)| token)
    }

    /// The client cancelled a request: it is open no more.
    pub(super) fn cancel(&mut self, id: &WireId) -> Option<Open> {
        let open = self.by_client.remove(id)?;
        if let Open::Upstream(number) = open {
            self.upward.remove(&number);
            push_capped(&mut self.cancelled, number, MAX_CANCELLED);
        }
        Some(open)
    }

    /// Whether `number` was cancelled: its answer is no surprise.
    pub(super) fn was_cancelled(&self, number: u64) -> bool {
        self.cancelled.contains(&number)
    }

    /// Tells every guarded call that its client has left.
    pub(super) fn leave(&self) {
        for open in self.by_client.values() {
            if let Open::Guarded { cancelled, .. } = open {
                cancelled.cancel();
            }
        }
    }

    /// Takes what `number` is the answer to. `is_task`: progress goes on after the answer.
    pub(super) fn answered(&mut self, number: u64, is_task: bool) -> Option<Upward> {
        let upward = self.upward.remove(&number)?;
        if let Owner::Client { id, .. } = &upward.owner {
            self.by_client.remove(id);
        }
        if let Some(token) = upward.token.clone().filter(|_| is_task) {
            push_capped(&mut self.long_tokens, (number, token), MAX_LONG_TOKENS);
        }
        Some(upward)
    }

    pub(super) fn upward(&mut self, number: u64) -> Option<&mut Upward> {
        self.upward.get_mut(&number)
    }

    /// The client's progress token behind a number of ours.
    pub(super) fn client_token(&self, number: u64) -> Option<Bytes> {
        let open = self.upward.get(&number).and_then(|upward| upward.token.clone());
        let long = || self.long_tokens.iter().find(|(of, _)| *of == number);
        open.or_else(|| long().map(|(_, token)| token.clone()))
    }

    /// The client's ID of the request behind a number of ours.
    pub(super) fn client_id(&self, number: u64) -> Option<Bytes> {
        match &self.upward.get(&number)?.owner {
            Owner::Client { raw, .. } => Some(raw.clone()),
            Owner::Port(_) => None,
        }
    }

    /// Takes the requests that the child had in hand when it went.
    pub(super) fn lost(&mut self) -> Vec<(u64, Upward)> {
        let mut numbers: Vec<u64> = self.upward.keys().copied().collect();
        // In the order in which they were asked.
        numbers.sort_unstable();
        numbers.retain(|number| self.upward[number].is_sent());
        numbers.into_iter().filter_map(|n| Some((n, self.answered(n, false)?))).collect()
    }

    /// Takes everything that was asked of the server.
    pub(super) fn take_all(&mut self) -> Vec<Upward> {
        let numbers: Vec<u64> = self.upward.keys().copied().collect();
        numbers.into_iter().filter_map(|number| self.answered(number, false)).collect()
    }

    /// A number for a request of the child; `None` if its ID is in use.
    pub(super) fn open_downward(&mut self, downward: Downward) -> Option<u64> {
        if self.by_server.contains_key(&downward.id) {
            return None;
        }
        let number = self.number();
        self.by_server.insert(downward.id.clone(), number);
        self.downward.insert(number, downward);
        Some(number)
    }

    /// Takes what the client's answer `number` is for.
    pub(super) fn close_downward(&mut self, number: u64) -> Option<Downward> {
        let downward = self.downward.remove(&number)?;
        self.by_server.remove(&downward.id);
        Some(downward)
    }

    /// The child cancelled its own request.
    pub(super) fn cancel_downward(&mut self, id: &WireId) -> Option<u64> {
        let number = self.by_server.remove(id)?;
        self.downward.remove(&number);
        Some(number)
    }

    /// The child's progress token behind a number of ours.
    pub(super) fn server_token(&self, number: u64) -> Option<Bytes> {
        self.downward.get(&number)?.token.clone()
    }

    /// Takes the numbers of the requests of a child that has gone.
    pub(super) fn drop_downward(&mut self) -> HashSet<u64> {
        self.by_server.clear();
        self.downward.drain().map(|(number, _)| number).collect()
    }
}

/// A number of ours as a peer repeats it: as a JSON number or, by some, as a string.
pub(super) fn our_number(raw: &[u8]) -> Option<u64> {
    let digits = match raw {
        [b'"', inside @ .., b'"'] => inside,
        bare => bare,
    };
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()
}

fn push_capped<T>(queue: &mut VecDeque<T>, item: T, max: usize) {
    if queue.len() == max {
        queue.pop_front();
    }
    queue.push_back(item);
}
