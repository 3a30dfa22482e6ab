//! The relay's shared state: who is connected, what is open, and where a line goes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::errors::{INTERNAL_ERROR, cancelled_line, error_line};
use super::frame::Pieces;
use super::from_client::request_item;
use super::handshake::Session;
use super::ids::{Ids, Listen, Owner, Purpose, Upward};
use super::link::{Item, Outlet};
use super::port::upstream_of;
use super::scan::Field;
use super::{Generation, Guard, Lost, UpstreamEvent, UpstreamState};

/// Most requests of the client that are open at the same time; the next one is refused.
pub(super) const MAX_OPEN: usize = 4096;
/// Most bytes of requests that wait for a child to come back.
const MAX_WAITING_BYTES: usize = 32 * 1024 * 1024;

/// What the tasks of one relay share.
pub(super) struct Relay {
    /// The server's name, for people.
    pub(super) name: String,
    pub(super) guard: Arc<dyn Guard>,
    pub(super) client: Outlet,
    /// Longest line of either side, in bytes.
    pub(super) max_line_bytes: usize,
    /// The guard's calls.
    pub(super) calls: TaskTracker,
    pub(super) noise: Noise,
    state: Mutex<State>,
    readiness: watch::Sender<Readiness>,
}

pub(super) struct State {
    pub(super) ids: Ids,
    pub(super) session: Session,
    stage: Stage,
    /// Requests for the next child, in their order.
    waiting: VecDeque<Item>,
    waiting_bytes: usize,
    /// The client's side has ended; nobody answers the server's requests any more.
    pub(super) client_left: bool,
}

/// Where the server is in its life.
#[derive(Clone, Debug)]
enum Stage {
    /// It starts, or is told again what was agreed on.
    Waiting,
    Open(Generation, Outlet),
    /// It will not come back.
    Over,
}

/// What [`Upstream::wait_ready`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready(Generation),
    NotReady,
    Over,
}

impl Relay {
    pub(super) fn new(
        name: String,
        guard: Arc<dyn Guard>,
        client: Outlet,
        max_line_bytes: usize,
    ) -> Arc<Self> {
        let state = State {
            ids: Ids::default(),
            session: Session::default(),
            stage: Stage::Waiting,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            client_left: false,
        };
        let relay = Arc::new(Self {
            name,
            guard,
            client,
            max_line_bytes,
            calls: TaskTracker::new(),
            noise: Noise::default(),
            state: Mutex::new(state),
            readiness: watch::Sender::new(Readiness::NotReady),
        });
        relay.guard.attach(upstream_of(&relay));
        relay
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the state")
    }

    /// Sends a line to the client. Where it reads no more, the line is dropped.
    pub(super) async fn tell_client(&self, line: impl Into<Pieces>) {
        let _ = self.client.put(Item::new(line)).await;
    }

    /// Answers a request of the client with an error of ours.
    pub(super) async fn refuse(&self, id: Option<&[u8]>, code: i32, message: &str) {
        self.tell_client(error_line(id, code, message)).await;
    }

    /// Sends a line to the server, if there is one: nothing that belongs to one child is of use to
    /// the next.
    pub(super) async fn tell_server(&self, line: impl Into<Pieces>) {
        let outlet = self.lock().outlet();
        if let Some((_, outlet)) = outlet {
            let _ = outlet.put(Item::new(line)).await;
        }
    }

    /// The same from where the server is read: it may read nothing before it is read itself.
    pub(super) fn tell_server_soon(&self, line: impl Into<Pieces>) {
        let outlet = self.lock().outlet();
        if let Some((_, outlet)) = outlet {
            put_soon(outlet, line.into());
        }
    }

    /// Sends a request to the server, or keeps it for the next child; the caller has opened it.
    pub(super) async fn send_up(&self, mut item: Item) {
        loop {
            let Some((generation, outlet)) = self.keep_unless_open(&mut item) else { return };
            let Err(returned) = outlet.put(item).await else { return };
            // That child's pipe is closed. Its supervisor may not know yet.
            item = returned;
            let mut state = self.lock();
            if state.outlet().is_some_and(|(current, _)| current == generation) {
                return state.keep(item);
            }
        }
    }

    /// The server's pipe, or else the request is kept or answered.
    fn keep_unless_open(&self, item: &mut Item) -> Option<(Generation, Outlet)> {
        let mut state = self.lock();
        if let Some(open) = state.outlet() {
            return Some(open);
        }
        let number = item.number.unwrap_or_default();
        let is_over = matches!(state.stage, Stage::Over);
        if is_over || state.waiting_bytes + item.pieces.len() > MAX_WAITING_BYTES {
            drop(state);
            self.refuse_unsent(number);
        } else {
            state.keep(std::mem::replace(item, Item::new(Bytes::new())));
        }
        None
    }

    /// Answers an open request that cannot be sent.
    fn refuse_unsent(&self, number: u64) {
        let upward = self.lock().ids.answered(number, false);
        if let Some(upward) = upward {
            self.refuse_owner(upward.owner);
        }
    }

    fn refuse_owner(&self, owner: Owner) {
        let why = format!("the server `{}` does not run, and was not sent the request", self.name);
        match owner {
            Owner::Client { raw, .. } => {
                let line = error_line(Some(&raw), INTERNAL_ERROR, &why);
                put_soon(self.client.clone(), line);
            }
            Owner::Port(port) => {
                let _ = port.send(Err(Lost::NotSent(why)));
            }
        }
    }

    /// Lets the client's messages through to a child, after the requests that were kept.
    /// `told_initialized`: the child knows already that the client has finished the handshake.
    pub(super) async fn open(
        &self,
        generation: Generation,
        outlet: Outlet,
        told_initialized: bool,
    ) {
        let mut initialized = None;
        loop {
            let next = {
                let mut state = self.lock();
                let next = state.take_waiting();
                if next.is_none() {
                    state.stage = Stage::Open(generation, outlet.clone());
                    initialized = state.session.initialized().filter(|_| !told_initialized);
                }
                next
            };
            let Some(item) = next else { break };
            if let Err(item) = outlet.put(item).await {
                return self.lock().keep_first(item);
            }
        }
        if let Some(line) = initialized {
            // It came while the child was told the rest.
            let _ = outlet.put(Item::new(line)).await;
        }
        self.note_readiness();
    }

    /// The child has gone; `over`: for good.
    pub(super) fn shut(&self, generation: Generation, over: bool) {
        let was_open = {
            let mut state = self.lock();
            let was_open = matches!(state.stage, Stage::Open(..));
            state.stage = if over { Stage::Over } else { Stage::Waiting };
            was_open
        };
        self.note_readiness();
        if was_open {
            self.guard.hears(UpstreamEvent::Down(generation));
        }
    }

    /// No child will come any more: nobody waits for one.
    pub(super) fn over(&self) {
        self.lock().stage = Stage::Over;
        self.note_readiness();
    }

    /// Puts back what a child's pipe did not take.
    pub(super) fn take_back(&self, unsent: Vec<Item>) {
        for item in unsent.into_iter().rev() {
            let Some(number) = item.number else { continue };
            let mut state = self.lock();
            match state.ids.upward(number).map(|upward| &upward.owner) {
                Some(Owner::Client { .. }) => state.keep_first(item),
                Some(Owner::Port(_)) => {
                    drop(state);
                    self.refuse_unsent(number);
                }
                None => {}
            }
        }
    }

    /// Tells everybody whose request went with a child that it `why`, and closes what the child had
    /// asked. One that never ran has read nothing of what stood in its pipe.
    pub(super) async fn give_up_lost(&self, why: &str, never_ran: bool) {
        let (lost, asked) = {
            let mut state = self.lock();
            (state.ids.lost(), state.ids.drop_downward())
        };
        for (number, upward) in lost {
            match (upward.owner, upward.purpose) {
                (owner, _) if never_ran => self.refuse_owner(owner),
                (owner @ Owner::Client { .. }, Purpose::Listen(listen)) => {
                    self.listen_again(number, owner, listen);
                }
                (Owner::Client { raw, .. }, _) => {
                    let text = format!(
                        "the server `{}` {why} while it had this request; the outcome is unknown: \
                         it may or may not have been done",
                        self.name
                    );
                    self.refuse(Some(&raw), INTERNAL_ERROR, &text).await;
                }
                (Owner::Port(port), _) => {
                    let text = format!("the server `{}` {why} while it had the request", self.name);
                    let _ = port.send(Err(Lost::Unknown(text)));
                }
            }
        }
        for number in asked {
            self.tell_client(cancelled_line(number, "the server that asked has ended")).await;
        }
    }

    /// Asks the next child for a stream that the client has open.
    fn listen_again(&self, number: u64, owner: Owner, listen: Box<Listen>) {
        let sent = Arc::new(AtomicBool::new(false));
        let token = listen.frame.bytes(Field::ProgressToken);
        let item = request_item(&listen.frame, number, Arc::clone(&sent));
        let purpose = Purpose::Listen(listen);
        let mut state = self.lock();
        state.ids.open_upward(number, Upward { owner, purpose, sent, token });
        state.keep(item);
    }

    /// Answers everything that is still open, when no child will come.
    pub(super) async fn refuse_all(&self, message: &str) {
        let open = {
            let mut state = self.lock();
            state.waiting.clear();
            state.waiting_bytes = 0;
            state.ids.take_all()
        };
        for upward in open {
            let is_sent = upward.is_sent();
            match upward.owner {
                Owner::Client { raw, .. } => {
                    self.refuse(Some(&raw), INTERNAL_ERROR, message).await;
                }
                Owner::Port(port) => {
                    let lost = if is_sent {
                        Lost::Unknown(message.to_owned())
                    } else {
                        Lost::NotSent(message.to_owned())
                    };
                    let _ = port.send(Err(lost));
                }
            }
        }
    }

    /// Tells waiters, and the guard, whether the server can be asked.
    pub(super) fn note_readiness(&self) {
        let readiness = {
            let state = self.lock();
            match &state.stage {
                Stage::Open(generation, _) if state.session.is_open() => {
                    Readiness::Ready(*generation)
                }
                Stage::Over => Readiness::Over,
                _ => Readiness::NotReady,
            }
        };
        if self.readiness.send_replace(readiness) != readiness
            && let Readiness::Ready(generation) = readiness
        {
            self.guard.hears(UpstreamEvent::Ready(generation));
        }
    }

    pub(super) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    pub(super) fn upstream_state(&self) -> UpstreamState {
        match *self.readiness.borrow() {
            Readiness::Ready(generation) => UpstreamState::Ready(generation),
            _ => UpstreamState::NotReady,
        }
    }

    /// The client's side has ended: its calls are told, and whoever asks it from now on is refused.
    pub(super) fn client_left(&self) {
        let mut state = self.lock();
        state.client_left = true;
        state.ids.leave();
    }

    /// Ends when nobody can be told anything any more.
    pub(super) fn client_gone(&self) -> &CancellationToken {
        self.client.closed()
    }
}

impl State {
    pub(super) fn outlet(&self) -> Option<(Generation, Outlet)> {
        match &self.stage {
            Stage::Open(generation, outlet) => Some((*generation, outlet.clone())),
            _ => None,
        }
    }

    fn keep(&mut self, item: Item) {
        self.waiting_bytes += item.pieces.len();
        self.waiting.push_back(item.without_room());
    }

    pub(super) fn keep_first(&mut self, item: Item) {
        self.waiting_bytes += item.pieces.len();
        self.waiting.push_front(item.without_room());
    }

    /// The next request that is still wanted.
    fn take_waiting(&mut self) -> Option<Item> {
        loop {
            let item = self.waiting.pop_front()?;
            self.waiting_bytes -= item.pieces.len();
            let is_wanted = item.number.is_some_and(|number| self.ids.upward(number).is_some());
            if is_wanted {
                return Some(item);
            }
        }
    }
}

/// Sends a line from where nothing can wait.
fn put_soon(outlet: Outlet, line: Pieces) {
    tokio::spawn(async move { outlet.put(Item::new(line)).await.is_ok() });
}

/// Counts what a server printed that is no message, and says when to report it: the first ten
/// times, and then ever more rarely.
#[derive(Debug, Default)]
pub(super) struct Noise(AtomicU64);

impl Noise {
    /// How often it happened, if it is to be reported.
    pub(super) fn count(&self) -> Option<u64> {
        let count = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        (count <= 10 || count.is_power_of_two()).then_some(count)
    }
}
