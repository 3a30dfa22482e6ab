//! A call that its caller takes back after it was handed over.

use std::time::Duration;

use counterfoil_core::identity::Principal;
use counterfoil_core::observation::Snapshot;
use counterfoil_core::operation::{State, Verdict};
use counterfoil_core::time::Timestamp;
use counterfoil_store::{Resolve, Resolved};

use super::calls::{TestCall, call};
use super::clock::START_MS;
use super::effects::{Goes, note, two_steps};
use super::finishing::finish;
use super::{Bench, Factory};

const CANCELLED: &str = "cancel_requested";

/// Notes it as that principal.
async fn note_cancel<F: Factory>(bench: &Bench<F>, call: &TestCall, principal: &str) {
    let who = Principal::parse(principal).expect("valid");
    let noted = bench.store.note_cancel(&call.tenant(), &call.operation_id(), &who);
    noted.await.expect("the ledger works");
}

pub async fn a_call_taken_back_is_on_record_and_settles_all_the_same<F: Factory>() {
    // Promise: a cancellation after the operation was handed over hides and undoes nothing; it is
    // on record once, with who and when, and replay works as ever.
    let mut bench = Bench::<F>::new();
    let (whole, effect) = (call("whole"), note("hello"));
    let record = bench.fresh(&whole, &effect).await;
    bench.clock.pass(Duration::from_secs(1));
    for _ in 0..3 {
        note_cancel(&bench, &whole, "alice").await;
    }
    bench.reopen().await;
    note_cancel(&bench, &whole, "alice").await;
    assert_eq!(bench.replayed(&whole, &effect).await, record);
    let events = bench.audit(record.key).await;
    assert_eq!(events.len(), 2);
    let event = &events[1];
    assert_eq!((event.seq, event.kind.as_str(), event.who.as_str()), (2, CANCELLED, "alice"));
    assert_eq!((event.identity.as_str(), &event.reason, &event.proof), ("whole", &None, &None));
    assert_eq!(event.at, Timestamp::from_ms(START_MS + 1000));

    let (steps, effect) = (call("steps"), two_steps(Goes::Well, Goes::Well));
    let begun = bench.fresh(&steps, &effect).await;
    note_cancel(&bench, &steps, "alice").await;
    assert_eq!(finish(&bench, &begun, &effect).await.state, State::Applied);
    assert_eq!(bench.kinds(begun.key).await, ["first_step_committed", CANCELLED, "applied"]);

    let left = call("left");
    let begun = bench.fresh(&left, &two_steps(Goes::Well, Goes::Well)).await;
    note_cancel(&bench, &left, "alice").await;
    bench.clock.pass(Duration::from_secs(30));
    let said = Resolve {
        tenant: left.tenant(),
        operation_id: left.operation_id(),
        verdict: Verdict::Applied,
        who: "olga".into(),
        reason: "looked".into(),
        proof: None,
    };
    assert!(matches!(bench.store.resolve(said).await, Ok(Resolved::Done(_))));
    let kinds = bench.kinds(begun.key).await;
    assert_eq!(kinds, ["first_step_committed", CANCELLED, "resolved_applied"]);
}

pub async fn only_the_callers_own_operation_is_noted<F: Factory>() {
    // Promise: taking back what was never begun, or is somebody else's, writes nothing.
    let bench = Bench::<F>::new();
    let (mine, absent) = (call("mine"), call("absent"));
    let elsewhere = TestCall { tenant: "acme", ..mine.clone() };
    let record = bench.fresh(&mine, &note("hello")).await;
    note_cancel(&bench, &mine, "bob").await;
    note_cancel(&bench, &elsewhere, "alice").await;
    note_cancel(&bench, &absent, "alice").await;
    assert_eq!(bench.kinds(record.key).await, ["applied"]);
    assert_eq!(bench.look_up(&absent).await, Snapshot::Absent);
    assert_eq!(bench.look_up(&elsewhere).await, Snapshot::Absent);
}
