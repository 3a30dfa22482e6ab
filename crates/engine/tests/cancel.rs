//! Calls that their callers take back, before and after the operation was handed over.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use counterfoil_core::admission::{Admitted, Authority, Call};
use counterfoil_core::fingerprint::{KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{
    BackendId, Caller, OperationId, Principal, Tenant, ToolId, ToolVersion,
};
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_core::observation::{ObservedState, Snapshot};
use counterfoil_core::record::{EffectRef, StoredResult};
use counterfoil_core::time::Lifetimes;
use counterfoil_engine::{CancellationToken, Effect, Engine};
use counterfoil_store::{
    Completion, EffectContext, EffectError, EffectTx, MemoryOptions, MemoryStore, Store,
};

/// An effect that says when it runs, and waits until it may go on.
#[derive(Debug)]
struct Held {
    entered: SyncSender<()>,
    may_go_on: Mutex<Receiver<()>>,
}

impl Effect for Held {
    fn apply(
        &self,
        _tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        self.entered.send(()).expect("the test listens");
        self.may_go_on.lock().expect("one call").recv().expect("the test lets it go on");
        Ok(Completion::Whole { row: None, result: StoredResult::from_text("done") })
    }

    fn follow_up(
        &self,
        _tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
        _first: &EffectRef,
    ) -> Result<StoredResult, EffectError> {
        unreachable!("the effect is whole")
    }
}

struct Bench {
    store: Arc<MemoryStore>,
    engine: Arc<Engine>,
    caller: Caller,
}

impl Bench {
    async fn new() -> Self {
        let name = BackendId::parse("test").expect("valid");
        let store = Arc::new(MemoryStore::new(&MemoryOptions::new(name)).expect("no tables"));
        let key = SecretKey::from_bytes(&[1; 32]).expect("long enough");
        let keys = KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("one key");
        let engine = Engine::open(Arc::clone(&store) as Arc<dyn Store>, keys, Lifetimes::default());
        let engine = Arc::new(engine.await.expect("opens"));
        let caller = Caller {
            tenant: Tenant::parse("local").expect("valid"),
            principal: Principal::parse("alice").expect("valid"),
        };
        Self { store, engine, caller }
    }

    fn admit(&self, title: &str) -> Admitted {
        let arguments = format!(r#"{{"title":"{title}"}}"#);
        let arguments = parse(arguments.as_bytes(), &JsonLimits::default()).expect("JSON");
        self.engine
            .admit(&Call {
                caller: &self.caller,
                tool_id: &ToolId::parse("tool").expect("valid"),
                tool_version: &ToolVersion::parse("1").expect("valid"),
                profile: Profile::JcsV1,
                operation_id: &OperationId::parse("op-1").expect("valid"),
                arguments: &arguments,
                call_arguments: &arguments,
                continuation_state: None,
                input_responses: None,
                authority: Authority::Present,
            })
            .expect("canonical")
    }

    /// The state of the operation and the kinds of its audit events; `None` without a record.
    async fn found(&self) -> Option<(&'static str, Vec<String>)> {
        let id = OperationId::parse("op-1").expect("valid");
        match self.store.look_up(&self.caller.tenant, &id).await.expect("readable") {
            Snapshot::Found { record, .. } => {
                let events = self.store.audit(record.key).await.expect("readable");
                let kinds = events.into_iter().map(|event| event.kind).collect();
                Some((record.state.as_str(), kinds))
            }
            _ => None,
        }
    }
}

/// What the caller does while its effect runs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Does {
    Waits,
    Cancels,
    CancelsAndGoes,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_effect_settles_and_the_wish_is_on_record() {
    // Promise: a cancellation after the operation was handed over undoes and hides nothing; it is
    // on record even if nobody waits for the outcome, and a repeat gets the stored result.
    let noted = ["applied", "cancel_requested"].as_slice();
    for (does, kinds) in
        [(Does::Waits, &noted[..1]), (Does::Cancels, noted), (Does::CancelsAndGoes, noted)]
    {
        let bench = Bench::new().await;
        let (entered, has_entered) = sync_channel(1);
        let (go_on, may_go_on) = sync_channel(1);
        let held = Arc::new(Held { entered, may_go_on: Mutex::new(may_go_on) });
        let cancelled = CancellationToken::new();
        let (engine, first) = (Arc::clone(&bench.engine), bench.admit("one"));
        let token = cancelled.clone();
        let effect = Arc::clone(&held);
        let waiting =
            tokio::spawn(async move { engine.execute_cancellable(first, effect, token).await });
        tokio::task::spawn_blocking(move || has_entered.recv()).await.unwrap().unwrap();
        if does != Does::Waits {
            cancelled.cancel();
        }
        if does == Does::CancelsAndGoes {
            waiting.abort();
        }
        go_on.send(()).unwrap();
        if let Ok(outcome) = waiting.await {
            assert_eq!(outcome.expect("settles").state(), ObservedState::Applied, "{does:?}");
        }
        let again = bench.engine.execute(bench.admit("one"), held.clone()).await.expect("replays");
        assert!(again.replayed() && again.result_json() == Some("\"done\""), "{does:?}");
        assert!(bench.engine.drain(std::time::Duration::from_secs(60)).await);
        let (state, found) = bench.found().await.expect("a record");
        assert_eq!(state, "applied");
        assert_eq!(found, kinds, "{does:?}");
    }
}

#[tokio::test]
async fn a_refused_call_is_nothing_that_could_be_cancelled() {
    // Promise: the trail of an operation holds nothing of a request that conflicted with it; a
    // repeat that is taken back is on record once.
    let bench = Bench::new().await;
    let (entered, _has_entered) = sync_channel(1);
    let (go_on, may_go_on) = sync_channel(1);
    go_on.send(()).unwrap();
    let held = Arc::new(Held { entered, may_go_on: Mutex::new(may_go_on) });
    bench.engine.execute(bench.admit("one"), held.clone()).await.expect("applies");
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let call = |title: &str| {
        bench.engine.execute_cancellable(bench.admit(title), held.clone(), cancelled.clone())
    };
    call("other").await.expect_err("a conflict");
    assert_eq!(bench.found().await.expect("a record").1, ["applied"]);
    for _ in 0..2 {
        assert!(call("one").await.expect("replays").replayed());
    }
    assert_eq!(bench.found().await.expect("a record").1, ["applied", "cancel_requested"]);
}
