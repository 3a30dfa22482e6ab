//! The state of the model of calls: one ledger, one server that dies and comes back, two clients,
//! and a network that loses, repeats and delays.

use counterfoil_core::observation::ObservedState;
use counterfoil_core::operation;
use counterfoil_core::refusal::Code;

use crate::model::rules::Broken;
use crate::model::world::Word;

/// A moment, in ticks of a second.
pub(super) type Tick = u8;

/// What differs between the runs of one model: an initial state for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct World {
    /// Whether the effect has two steps, each with its own commit.
    pub(super) has_two_steps: bool,
    /// Who the second client is.
    pub(super) other: Other,
    /// Whether the ID carries its time and is forgotten in the end; retention is short then.
    pub(super) is_timed: bool,
}

/// Who the second client is, by what it asks for under the same ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Other {
    /// Another process of the same agent, with the same continuations.
    Same,
    /// The same principal with other arguments.
    Changed,
    /// Another principal.
    Stranger,
}

/// Everything there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Desk {
    pub(super) world: World,
    pub(super) now: Tick,
    pub(super) record: Option<Rec>,
    /// Whether the effect's row is there.
    pub(super) has_row: bool,
    /// How often an effect was committed under this ID, or for its intent under another.
    pub(super) made: u8,
    /// Whether the ledger has forgotten the operation, and refuses its ID by its time.
    pub(super) is_forgotten: bool,
    pub(super) has_horizon: bool,
    /// Whether retention has ended once.
    pub(super) has_expired: bool,
    /// The server's open transaction.
    pub(super) open: Option<Open>,
    /// The fence under which the server is still to take the second step.
    pub(super) rest: Option<u8>,
    /// When each continuation was issued: those that the first client uses, and the second's own.
    pub(super) issued: [[Option<Tick>; 2]; 2],
    pub(super) clients: [Client; 2],
    pub(super) left: Left,
    /// The settled state that a status told before.
    pub(super) told: Option<ObservedState>,
    pub(super) broken: Broken,
}

/// The record, cut to what can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Rec {
    /// The request that made it.
    pub(super) maker: Request,
    pub(super) state: operation::State,
    pub(super) fence: u8,
    pub(super) lease_until: Tick,
    pub(super) settled_at: Option<Tick>,
    pub(super) is_purged: bool,
    pub(super) word: Option<Word>,
}

/// A request: whose, with which continuation, issued when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) asks: Asks,
    pub(super) slot: u8,
    pub(super) issued: Tick,
}

/// Who asks for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Asks {
    /// The first client.
    First,
    /// Its principal, with other arguments.
    Changed,
    /// Another principal.
    Stranger,
}

/// An open transaction: record and effect of a fresh call, whose time is that of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Open {
    pub(super) client: u8,
    pub(super) request: Request,
    /// A broken ledger has committed the effect already, alone.
    pub(super) is_half_done: bool,
}

/// How the second step ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rest {
    /// It is done.
    Whole,
    /// It failed, and its compensation did.
    Partly,
    /// It failed, and the first was taken back.
    Undone,
}

/// A client's knowledge, and what is on its way to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// The continuations whose request is in the network: any number of copies of it.
    pub(super) sent: [bool; 2],
    /// The reply that it has not read yet.
    pub(super) reply: Option<Reply>,
}

/// What a client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// It has sent nothing.
    Idle,
    /// It waits for a reply.
    Waits,
    /// None came, or one that settles nothing: it can ask, and stop.
    Unknown,
    /// It was refused before anything was done.
    Refused,
    /// It knows what became of the effect.
    Knows(ObservedState),
}

/// A reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    /// Settled so.
    Settled(ObservedState),
    /// Refused with a code.
    Refused(Code),
    /// The continuation state is not valid.
    BadState,
}

/// How much of what goes wrong, and of what people do, is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Left {
    /// Deaths of the server.
    pub crashes: u8,
    /// Effects that fail in their transaction.
    pub failures: u8,
    /// Orders of the operator.
    pub orders: u8,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// The first client, which heard nothing, begins anew at the first round, and may be given
    /// another continuation.
    FirstRound,
    /// A client sends a continuation, or the same one again.
    Send {
        /// Who.
        client: u8,
        /// Which.
        slot: u8,
    },
    /// A copy of a request reaches the server, which decides on it.
    Take {
        /// Whose.
        client: u8,
        /// Which.
        slot: u8,
    },
    /// The effect fails; nothing of the transaction is left.
    Fail,
    /// The transaction commits.
    Commit,
    /// The server takes the second step, and commits it.
    Rest(Rest),
    /// The server dies, and with it what it had in memory and what nobody has read.
    Crash,
    /// A client waits no longer.
    GiveUp(u8),
    /// A client reads the reply.
    Read(u8),
    /// A client asks for the status and reads it.
    Ask(u8),
    /// Retention takes the result.
    Purge,
    /// The horizon passes the ID's time.
    MoveHorizon,
    /// The record is deleted.
    Forget,
    /// The operator says what became of an unfinished operation.
    Resolve {
        /// That it is there; else that it is not.
        applied: bool,
        /// And how they know: they took the row away.
        proof: bool,
    },
    /// A broken client sends under a fresh ID.
    SendAnew(u8),
}
