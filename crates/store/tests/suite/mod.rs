//! The conformance suite: every sentence of the contract as cases that know no back end. A new back
//! end brings a [`Factory`].
#![allow(dead_code, unreachable_pub, reason = "shared by several test programs, each uses a part")]
#![allow(
    clippy::print_stderr,
    reason = "what cannot be tested here is said, not skipped in silence"
)]

pub mod admission;
pub mod calls;
pub mod cancelling;
pub mod clock;
pub mod concurrency;
pub mod direct;
pub mod effects;
pub mod factories;
pub mod finishing;
pub mod keys;
pub mod listing;
pub mod mounts;
pub mod outbox;
pub mod resolving;
pub mod retention;
pub mod rollback;
pub mod times;

use std::sync::Arc;

use counterfoil_core::identity::OperationKey;
use counterfoil_core::observation::Snapshot;
use counterfoil_core::record::Record;
use counterfoil_core::refusal::Refusal;
use counterfoil_core::time::Timestamp;
use counterfoil_store::{Answer, AuditEvent, LocalEffect, Store, StoreError};

use calls::TestCall;
use clock::TestClock;
use effects::{Look, Probe};

/// What a back end can do. A case that needs what it cannot do says so and ends.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// What was committed is there after the ledger is opened again.
    pub durable: bool,
    /// Effects can run SQL.
    pub sql: bool,
    /// Several stores can be open on one ledger at once.
    pub shared: bool,
}

/// Makes ledgers of one back end.
pub trait Factory: Sized {
    const NAME: &'static str;
    const CAPABILITIES: Capabilities;

    /// A place for one new ledger with the clock and the horizon given.
    fn new(clock: Arc<TestClock>, horizon: Timestamp) -> Self;

    /// Opens the ledger, or opens it again.
    fn open(&self) -> Arc<dyn Store>;
}

/// One ledger under test.
pub struct Bench<F> {
    pub factory: F,
    pub clock: Arc<TestClock>,
    pub store: Arc<dyn Store>,
}

impl<F: Factory> Bench<F> {
    pub fn new() -> Self {
        Self::with_horizon(Timestamp::from_ms(0))
    }

    pub fn with_horizon(horizon: Timestamp) -> Self {
        let clock = Arc::new(TestClock::new());
        let factory = F::new(Arc::clone(&clock), horizon);
        let store = factory.open();
        Self { factory, clock, store }
    }

    /// Closes and opens again, where that keeps anything. Says loudly if it does not.
    pub async fn reopen(&mut self) {
        if !F::CAPABILITIES.durable {
            eprintln!("{}: not durable, goes on without reopening", F::NAME);
            return;
        }
        self.store.close().await.expect("closes");
        self.store = self.factory.open();
    }

    pub async fn submit(
        &self,
        call: &TestCall,
        effect: &(impl LocalEffect + Clone),
    ) -> Result<Answer, StoreError> {
        self.store.submit(call.with(effect.clone())).await.map(|committed| committed.into_answer())
    }

    pub async fn fresh(&self, call: &TestCall, effect: &Probe) -> Record {
        match self.submit(call, effect).await {
            Ok(Answer::Fresh(record)) => *record,
            other => panic!("{}: wanted Fresh, got {other:?}", call.id),
        }
    }

    pub async fn replayed(&self, call: &TestCall, effect: &Probe) -> Record {
        match self.submit(call, effect).await {
            Ok(Answer::Replayed(record)) => *record,
            other => panic!("{}: wanted Replayed, got {other:?}", call.id),
        }
    }

    pub async fn refused(&self, call: &TestCall, effect: &Probe) -> Refusal {
        match self.submit(call, effect).await {
            Ok(Answer::Refused(refusal)) => refusal,
            other => panic!("{}: wanted Refused, got {other:?}", call.id),
        }
    }

    pub async fn look_up(&self, call: &TestCall) -> Snapshot {
        self.store.look_up(&call.tenant(), &call.operation_id()).await.expect("readable")
    }

    pub async fn audit(&self, key: OperationKey) -> Vec<AuditEvent> {
        self.store.audit(key).await.expect("readable")
    }

    /// The kinds of an operation's audit events, in order.
    pub async fn kinds(&self, key: OperationKey) -> Vec<String> {
        self.audit(key).await.into_iter().map(|event| event.kind).collect()
    }

    /// Whether a declared table holds a row with this text.
    pub async fn has_row(&self, table: &'static str, column: &'static str, text: &str) -> bool {
        let look = Look { table, column, text: text.to_owned() };
        match self.submit(&calls::call(&calls::uuid_v7(self.store.now().as_ms())), &look).await {
            Err(StoreError::EffectFailed { reason, refused: true }) => reason == "seen true",
            other => panic!("wanted a refusal that says what was seen, got {other:?}"),
        }
    }
}
