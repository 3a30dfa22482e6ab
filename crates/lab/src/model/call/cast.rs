//! The product's own values behind the model's small ones: calls as admission makes them, records as
//! a store keeps them, and what the product says to each, asked once.

use counterfoil_core::admission::{Admitted, Attempt, Authority, Call};
use counterfoil_core::fingerprint::Profile;
use counterfoil_core::identity::{BootId, Caller, Nonce, OperationId, OperationKey};
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_core::observation::{EffectSeen, Snapshot, observe};
use counterfoil_core::operation;
use counterfoil_core::record::{EffectRef, Nature, Record, StoredResult};
use counterfoil_core::seal::{Expected, StateClaims, StateRefused, seal};
use counterfoil_core::time::{Span, Timestamp};

use super::desk::{Asks, Rec, Request, Tick, World};
use crate::model::shown::Shown;
use crate::model::world::{Word, backend, caller, plain_id, record, ring, tool};

/// A continuation state is good for so long.
const STATE: Tick = 3;
/// Its authority to write lasts so long.
pub(super) const AUTHORITY: Tick = 2;
/// The moment of tick 0: the time that is in the UUIDv7.
const EPOCH_MS: i64 = 1_800_000_000_000;
/// A UUIDv7 of that moment.
const TIMED_ID: &str = "01a3185c-5000-7000-8000-000000000001";

/// The moment as the ledger has it.
pub(super) fn at(tick: Tick) -> Timestamp {
    Timestamp::from_ms(EPOCH_MS + i64::from(tick) * 1000)
}

const ALL_ASKS: [Asks; 3] = [Asks::First, Asks::Changed, Asks::Stranger];
const WORDS: [Option<Word>; 3] = [None, Some(Word::Proved), Some(Word::Unproved)];

/// All that the product is asked.
#[derive(Debug, Clone)]
pub(super) struct Cast {
    ticks: Tick,
    /// By ID, who asks, slot and tick of issue.
    calls: Vec<Prepared>,
    /// By ID and who asks.
    first_rounds: Vec<Admitted>,
    shown: Vec<Shown>,
    absent: Shown,
}

/// One continuation: as admission has it, and what its sealed state says.
#[derive(Debug, Clone)]
struct Prepared {
    admitted: Admitted,
    /// The same call, if nobody looked at its authority.
    unlimited: Admitted,
    claims: StateClaims,
}

impl Cast {
    pub(super) fn new(horizon: Tick) -> Self {
        let ticks = horizon + 1;
        let (mut calls, mut first_rounds) = (Vec::new(), Vec::new());
        for is_timed in [false, true] {
            for asks in ALL_ASKS {
                first_rounds.push(admit(is_timed, asks, None, Authority::Present));
                for slot in [0, 1] {
                    for issued in 0..ticks {
                        calls.push(prepare(is_timed, Request { asks, slot, issued }));
                    }
                }
            }
        }
        Self { ticks, calls, first_rounds, shown: accounts(), absent: absent() }
    }

    fn prepared(&self, world: World, request: Request) -> &Prepared {
        let place = usize::from(world.is_timed) * 3 + request.asks as usize;
        let place = place * 2 + usize::from(request.slot);
        &self.calls[place * usize::from(self.ticks) + usize::from(request.issued)]
    }

    /// The call as admission has it.
    pub(super) fn call(&self, world: World, request: Request, is_limited: bool) -> &Admitted {
        let prepared = self.prepared(world, request);
        if is_limited { &prepared.admitted } else { &prepared.unlimited }
    }

    /// The first round of a call.
    pub(super) fn first_round(&self, world: World, asks: Asks) -> &Admitted {
        &self.first_rounds[usize::from(world.is_timed) * 3 + asks as usize]
    }

    /// Whether a continuation may use its state now.
    pub(super) fn permits(
        &self,
        world: World,
        request: Request,
        now: Tick,
    ) -> Result<(), StateRefused> {
        let claims = &self.prepared(world, request).claims;
        let (method, digest) = ("tools/call", [request.asks as u8; 32]);
        let expected = Expected {
            operation_id: &claims.operation_id,
            tenant: &claims.tenant,
            principal: &claims.principal,
            method,
            tool_id: &claims.tool_id,
            tool_version: &claims.tool_version,
            arguments_digest: &digest,
        };
        claims.permits(&expected, at(now).as_ms())
    }

    /// The record as a store would read it back.
    pub(super) fn record(&self, world: World, rec: &Rec) -> Record {
        let call = self.call(world, rec.maker, true);
        let is_settled = rec.state.is_terminal();
        let has_effect = rec.state != operation::State::InProgress(operation::Phase::Claimed);
        Record {
            operation_id: call.operation_id().clone(),
            principal: call.caller().principal.clone(),
            binding: call.binding().clone(),
            state: rec.state,
            effect: has_effect.then(effect),
            result: (is_settled && !rec.is_purged).then(result),
            created_at: at(0),
            settled_at: rec.settled_at.map(at),
            retention_ends_at: rec.settled_at.map(|tick| at(tick + retention(world))),
            purged: rec.is_purged,
            resolution: rec.word.map(Word::resolution),
            ..record(Nature::Local)
        }
    }

    /// What a status tells whoever asks.
    pub(super) fn shown(&self, rec: Option<&Rec>, has_row: bool, is_own: bool) -> Shown {
        let Some(rec) = rec.filter(|_| is_own) else { return self.absent };
        let state = operation::ALL_STATES
            .iter()
            .position(|state| *state == rec.state)
            .expect("ALL_STATES has all of them");
        let word = match rec.word {
            None => 0,
            Some(Word::Proved) => 1,
            Some(Word::Unproved) => 2,
        };
        let place = (state * 2 + usize::from(has_row)) * 2 + usize::from(rec.is_purged);
        self.shown[place * 3 + word]
    }
}

/// How long a record may be replayed.
pub(super) const fn retention(world: World) -> Tick {
    if world.is_timed { 1 } else { 3 }
}

fn effect() -> EffectRef {
    EffectRef { table: "issues".into(), id: 1, digest: [3; 32] }
}

fn result() -> StoredResult {
    StoredResult::from_text("created 1")
}

fn who(asks: Asks) -> Caller {
    caller(if asks == Asks::Stranger { "bob" } else { "alice" })
}

fn id(is_timed: bool) -> OperationId {
    if is_timed { OperationId::parse(TIMED_ID).expect("a UUID is an ID") } else { plain_id() }
}

fn admit(is_timed: bool, asks: Asks, sealed: Option<&str>, authority: Authority) -> Admitted {
    let json = |text: &str| parse(text.as_bytes(), &JsonLimits::default()).expect("it is JSON");
    let arguments = json(match asks {
        Asks::First | Asks::Stranger => r#"{"title":"a"}"#,
        Asks::Changed => r#"{"title":"b"}"#,
    });
    let answers = json(r#"{"body":"c"}"#);
    let (tool_id, tool_version) = tool();
    let call = Call {
        caller: &who(asks),
        tool_id: &tool_id,
        tool_version: &tool_version,
        profile: Profile::JcsV1,
        operation_id: &id(is_timed),
        arguments: &arguments,
        call_arguments: &arguments,
        continuation_state: sealed,
        input_responses: sealed.map(|_| &answers),
        authority,
    };
    let attempt = Attempt {
        key: OperationKey::from_bytes([1; 16]),
        nonce: Nonce::from_bytes([2; 16]),
        boot: BootId::from_bytes([3; 16]),
    };
    Admitted::admit(&call, &ring(), Span::from_secs(1), attempt).expect("it has a canonical form")
}

fn prepare(is_timed: bool, request: Request) -> Prepared {
    let owner = who(request.asks);
    let (tool_id, tool_version) = tool();
    let end = |lasts: Tick| at(request.issued + lasts);
    let claims = StateClaims {
        operation_id: id(is_timed).to_string(),
        tenant: owner.tenant.to_string(),
        principal: owner.principal.to_string(),
        method: "tools/call".into(),
        tool_id: tool_id.to_string(),
        tool_version: tool_version.to_string(),
        arguments_digest: [request.asks as u8; 32],
        issued_at_ms: at(request.issued).as_ms(),
        expires_at_ms: end(STATE).as_ms(),
        authority_ends_at_ms: end(AUTHORITY).as_ms(),
        nonce: [request.slot; 16],
    };
    let sealed = seal(&ring(), &claims).expect("its deadlines are after its issue");
    let authority = Authority::Until(end(AUTHORITY));
    Prepared {
        admitted: admit(is_timed, request.asks, Some(&sealed), authority),
        unlimited: admit(is_timed, request.asks, Some(&sealed), Authority::Present),
        claims,
    }
}

fn absent() -> Shown {
    let (owner, id) = (caller("alice"), plain_id());
    Shown::of(&observe(&owner, &id, &backend(), &Snapshot::Absent, at(0)), &owner, &id)
}

fn accounts() -> Vec<Shown> {
    let (owner, id) = (caller("alice"), plain_id());
    let mut accounts = Vec::new();
    for state in operation::ALL_STATES {
        for seen in [EffectSeen::Missing, EffectSeen::Same] {
            for purged in [false, true] {
                for word in WORDS {
                    let result = (state.is_terminal() && !purged).then(result);
                    let record = Record {
                        state,
                        effect: Some(effect()),
                        result,
                        purged,
                        resolution: word.map(Word::resolution),
                        ..record(Nature::Local)
                    };
                    let found = Snapshot::Found { record: Box::new(record), effect: seen };
                    let told = observe(&owner, &id, &backend(), &found, at(0));
                    accounts.push(Shown::of(&told, &owner, &id));
                }
            }
        }
    }
    accounts
}
