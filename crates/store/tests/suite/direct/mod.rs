//! The part of the suite for direct operations: calls on their way to an upstream that is not there.

pub mod beginning;
pub mod ending;
pub mod joining;
pub mod keeping;
pub mod legs;
pub mod looking;
pub mod telling;

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::direct::{Leg, LookupEnd, Meaning, Reply, ReplyKind, Report, Upstream};
use counterfoil_core::identity::{BootId, OperationId, OperationKey};
use counterfoil_core::operation::{Phase, State};
use counterfoil_core::record::{Record, StoredResult};
use counterfoil_core::refusal::{Code, Refusal};
use counterfoil_core::time::Timestamp;
use counterfoil_store::DirectLedger;
use counterfoil_store::direct::{
    Begin, Begun, Concluded, Conclusion, DirectView, Hold, Identity, LookupFound, Replayed, Told,
    WhichDirect,
};

use super::calls::{TestCall, call};
use super::clock::START_MS;
use super::{Bench, Factory};

/// A back end that keeps direct operations.
pub trait DirectFactory: Factory {
    /// Opens the ledger, or opens it again.
    fn open_direct(&self) -> Arc<dyn DirectLedger>;
}

/// Another run of a process.
pub const OTHER_BOOT: BootId = BootId::from_bytes([8; 16]);
/// How long a run of the tests owns an operation after its last word.
pub const LEASE: Duration = Duration::from_secs(15);
pub const HOUR: Duration = Duration::from_secs(3600);
pub const DAY: Duration = Duration::from_secs(86_400);

pub const CLAIMED: State = State::InProgress(Phase::Claimed);
pub const SENT: State = State::InProgress(Phase::Dispatched);
pub const ASKED: State = State::InProgress(Phase::AwaitingInput);

pub const APPLIED: Report = Report::Answer(Meaning::Applied);
pub const REFUSED: Report = Report::Answer(Meaning::NotApplied);
pub const ANSWERED: Report = Report::Answer(Meaning::Answered);
pub const ASKS: Report = Report::Answer(Meaning::Asks);

/// One ledger with its direct operations under test.
pub struct Wire<F> {
    pub bench: Bench<F>,
    pub ledger: Arc<dyn DirectLedger>,
}

impl<F: DirectFactory> Wire<F> {
    pub fn new() -> Self {
        let mut bench = Bench::<F>::new();
        let ledger = bench.factory.open_direct();
        bench.store = Arc::clone(&ledger) as Arc<dyn counterfoil_store::Store>;
        Self { bench, ledger }
    }

    /// Closes and opens again, where that keeps anything.
    pub async fn reopen(&mut self) {
        if !F::CAPABILITIES.durable {
            eprintln!("{}: not durable, goes on without reopening", F::NAME);
            return;
        }
        self.ledger.close().await.expect("closes");
        self.ledger = self.bench.factory.open_direct();
        self.bench.store = Arc::clone(&self.ledger) as Arc<dyn counterfoil_store::Store>;
    }

    pub fn pass(&self, time: Duration) {
        self.bench.clock.pass(time);
    }

    pub async fn begin(&self, begin: Begin) -> Begun {
        self.ledger.begin(begin).await.expect("the ledger works")
    }

    /// Begins a call that is sent at once.
    pub async fn send(&self, call: &TestCall) -> Hold {
        self.sent(begin(call)).await.0
    }

    /// Begins a call without an ID that is sent at once: its own ID was made for it.
    pub async fn send_joining(&self, call: &TestCall) -> Hold {
        self.sent(joining(call)).await.0
    }

    pub async fn sent(&self, asked: Begin) -> (Hold, Record) {
        match self.begin(asked).await {
            Begun::Send(hold, record) => (hold, *record),
            other => panic!("wanted Send, got {other:?}"),
        }
    }

    pub async fn waits(&self, asked: Begin) -> Hold {
        match self.begin(Begin { ready: false, ..asked }).await {
            Begun::Wait(hold, _) => hold,
            other => panic!("wanted Wait, got {other:?}"),
        }
    }

    pub async fn replayed(&self, asked: Begin) -> Replayed {
        match self.begin(asked).await {
            Begun::Replay(replayed) => *replayed,
            other => panic!("wanted Replay, got {other:?}"),
        }
    }

    pub async fn refused(&self, asked: Begin) -> (Refusal, bool) {
        match self.begin(asked).await {
            Begun::Refused { refusal, joined } => (refusal, joined),
            other => panic!("wanted Refused, got {other:?}"),
        }
    }

    /// The call is refused with that code, under that ID.
    pub async fn check_refused(&self, asked: Begin, code: Code, id: &str, joined: bool) {
        let (refusal, by_joining) = self.refused(asked).await;
        let named = refusal.operation_id().map(OperationId::as_str);
        assert_eq!((refusal.code(), named, by_joining), (code, Some(id), joined), "{refusal:?}");
    }

    pub async fn dispatch(&self, hold: Hold) -> Option<Hold> {
        self.ledger.dispatch(hold, LEASE).await.expect("the ledger works")
    }

    pub async fn conclude(&self, conclusion: Conclusion) -> Concluded {
        let mut all = self.ledger.conclude(vec![conclusion]).await.expect("the ledger works");
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    /// The report moves the operation.
    pub async fn moved(&self, conclusion: Conclusion) -> DirectView {
        match self.conclude(conclusion).await {
            Concluded::Moved(view) => *view,
            other => panic!("wanted Moved, got {other:?}"),
        }
    }

    /// The report changes nothing.
    pub async fn stale(&self, conclusion: Conclusion) -> DirectView {
        let before = self.view(conclusion.hold.key).await;
        match self.conclude(conclusion).await {
            Concluded::Stale(view) => {
                assert_eq!(before.record, view.record);
                *view
            }
            other => panic!("wanted Stale, got {other:?}"),
        }
    }

    pub async fn view(&self, key: OperationKey) -> DirectView {
        let view = self.ledger.direct_view(WhichDirect::Key(key)).await;
        view.expect("the ledger works").expect("there is such an operation")
    }

    pub async fn state(&self, key: OperationKey) -> State {
        self.view(key).await.record.state
    }

    pub async fn tell(&self, key: OperationKey, answered: bool) {
        self.ledger.tell(vec![Told { key, answered }]).await.expect("the ledger works");
    }

    pub async fn lapse(&self) -> usize {
        self.ledger.lapse(100).await.expect("the ledger works")
    }

    pub async fn in_doubt(&self, name: &str) -> Vec<OperationKey> {
        let found = self.ledger.in_doubt(upstream(name), None, 100).await;
        found.expect("the ledger works").into_iter().map(|view| view.record.key).collect()
    }

    pub async fn look_up(&self, key: OperationKey, end: LookupEnd) -> Option<DirectView> {
        let (result, how) = (result("found"), "open_nodes, by name".into());
        let found = LookupFound { key, end, result, how };
        self.ledger.settle_by_lookup(found).await.expect("the ledger works")
    }

    /// The kinds of an operation's audit events, in order.
    pub async fn kinds(&self, key: OperationKey) -> Vec<String> {
        self.bench.kinds(key).await
    }
}

pub fn upstream(name: &str) -> Upstream {
    Upstream::parse(name).expect("a good name")
}

/// A call with an ID of its own, to an upstream that is ready.
pub fn begin(call: &TestCall) -> Begin {
    Begin {
        admitted: call.admit(),
        upstream: upstream("memory"),
        leg: Leg::First,
        identity: Identity::Given,
        ready: true,
        lease: LEASE,
        memo: None,
        told: Vec::new(),
    }
}

/// The same without an ID, joining what is at most a day old.
pub fn joining(call: &TestCall) -> Begin {
    Begin { identity: Identity::Joins(DAY), ..begin(call) }
}

/// The same as a wanted repeat.
pub fn repeating(call: &TestCall, original: &str) -> Begin {
    let original = OperationId::parse(original).expect("valid");
    Begin { identity: Identity::Repeats(original), ..begin(call) }
}

/// A later request of the operation of a call.
pub fn later(id: &str, leg: u32, answers: &'static str) -> Begin {
    let call = TestCall { answers: Some(answers), ..call(id) };
    Begin { leg: Leg::Later(leg), ..begin(&call) }
}

/// A report without an answer.
pub fn plain(hold: Hold, report: Report) -> Conclusion {
    Conclusion { hold, report, reply: None, result: None, asked_until: None, why: None }
}

/// A report with the upstream's answer.
pub fn with(hold: Hold, report: Report, text: &str) -> Conclusion {
    let kind = match report {
        ASKS => ReplyKind::InputRequired,
        ANSWERED => ReplyKind::Error,
        _ => ReplyKind::Result,
    };
    let asked_until = (report == ASKS).then(|| at(HOUR));
    Conclusion { reply: Some(reply(kind, text)), asked_until, ..plain(hold, report) }
}

pub fn reply(kind: ReplyKind, text: &str) -> Reply {
    let json = Arc::from(format!("{{\"text\":\"{text}\"}}").into_bytes());
    Reply { kind, revision: "2026-07-28".into(), json }
}

/// The text of an answer that [`reply`] made.
pub fn text_of(view: &DirectView) -> Option<String> {
    view.reply.as_ref().map(|reply| {
        let json = String::from_utf8(reply.json.to_vec()).expect("UTF-8");
        json.trim_start_matches("{\"text\":\"").trim_end_matches("\"}").to_owned()
    })
}

pub fn result(text: &str) -> StoredResult {
    StoredResult::from_text(text)
}

/// So long after the beginning of a test.
pub fn at(time: Duration) -> Timestamp {
    Timestamp::from_ms(START_MS).plus(time)
}
