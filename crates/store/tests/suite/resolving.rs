//! What only a person can decide.

use std::time::Duration;

use counterfoil_core::identity::Tenant;
use counterfoil_core::observation::{EffectSeen, Snapshot};
use counterfoil_core::operation::{Event, State, Verdict};
use counterfoil_core::record::{Record, Resolution};
use counterfoil_core::refusal::Code;
use counterfoil_core::time::Timestamp;
use counterfoil_store::{Answer, Resolve, Resolved};

use super::calls::{BOOT, TestCall, call};
use super::clock::START_MS;
use super::effects::{Goes, TAGS, note, run, two_steps};
use super::finishing::finish_as;
use super::{Bench, Factory};

const LEASE: Duration = Duration::from_secs(30);

fn say(call: &TestCall, verdict: Verdict, proof: Option<&str>) -> Resolve {
    Resolve {
        tenant: call.tenant(),
        operation_id: call.operation_id(),
        verdict,
        who: "olga".into(),
        reason: "looked \"myself\"".into(),
        proof: proof.map(str::to_owned),
    }
}

async fn resolve<F: Factory>(bench: &Bench<F>, said: Resolve) -> Resolved {
    bench.store.resolve(said).await.expect("the ledger works")
}

async fn begun<F: Factory>(bench: &Bench<F>, call: &TestCall) -> Record {
    bench.fresh(call, &two_steps(Goes::Well, Goes::Well)).await
}

pub async fn an_unfinished_operation_is_settled_as_said<F: Factory>() {
    // Promise: an operator's word settles it, in one transaction with who, why and the proof.
    for (verdict, proof, state, kind, json) in [
        (
            Verdict::Applied,
            None,
            State::Applied,
            "resolved_applied",
            r#"{"resolved":"applied","by":"olga","reason":"looked \"myself\"","effectId":1}"#,
        ),
        (
            Verdict::NotApplied,
            Some("deleted by hand"),
            State::NotApplied,
            "resolved_not_applied",
            r#"{"resolved":"not_applied","by":"olga","reason":"looked \"myself\""}"#,
        ),
    ] {
        let mut bench = Bench::<F>::new();
        let call = call("op-1");
        let first = begun(&bench, &call).await;
        bench.clock.pass(LEASE);
        bench.reopen().await;
        let Resolved::Done(record) = resolve(&bench, say(&call, verdict, proof)).await else {
            panic!("{verdict:?}: not done")
        };
        let now = Timestamp::from_ms(START_MS).plus(LEASE);
        assert_eq!(record.state, state);
        assert_eq!(record.owner, None);
        assert_eq!(record.resolution, Some(Resolution::Proved));
        assert_eq!(record.result.as_ref().map(|r| r.as_json()), Some(json));
        assert_eq!(record.settled_at, Some(now));
        assert_eq!(record.retention_ends_at, Some(now.plus(Duration::from_secs(30 * 86_400))));
        let last = bench.audit(first.key).await.pop().expect("an event");
        assert_eq!((last.seq, last.at, last.kind.as_str()), (2, now, kind));
        assert_eq!((last.identity.as_str(), last.who.as_str()), ("op-1", "olga"));
        assert_eq!(
            (last.reason.as_deref(), last.proof.as_deref()),
            (Some("looked \"myself\""), proof)
        );
        assert_eq!(bench.replayed(&call, &note("x")).await, *record);
        // The process that had begun it comes back too late.
        match finish_as(&bench, &first, &two_steps(Goes::Well, Goes::Well), BOOT, 1).await {
            Ok(Answer::Replayed(kept)) => assert_eq!(kept, record),
            other => panic!("{other:?}"),
        }
        assert!(!bench.has_row(TAGS, "word", "second").await);
    }
}

pub async fn an_owner_is_left_to_work<F: Factory>() {
    // Promise: until its lease ends, on the ledger's clock, nobody takes an operation away.
    let bench = Bench::<F>::new();
    let call = call("op-1");
    begun(&bench, &call).await;
    let until = Timestamp::from_ms(START_MS).plus(LEASE);
    bench.clock.pass(LEASE - Duration::from_millis(1));
    for verdict in [Verdict::Applied, Verdict::NotApplied] {
        let said = say(&call, verdict, Some("sure"));
        assert_eq!(resolve(&bench, said).await, Resolved::Owned { until });
    }
    bench.clock.pass(Duration::from_millis(1));
    let done = resolve(&bench, say(&call, Verdict::Applied, None)).await;
    assert!(matches!(done, Resolved::Done(_)), "{done:?}");
}

pub async fn a_row_that_stands_needs_a_proof_against_it<F: Factory>() {
    // Promise: nobody says "it did not happen" while the ledger sees the row, without saying how
    // it was undone.
    let bench = Bench::<F>::new();
    let call = call("op-1");
    let first = begun(&bench, &call).await;
    bench.clock.pass(LEASE);
    let stands = Resolved::EffectStands { table: TAGS.into(), id: 1 };
    for no_proof in [None, Some(""), Some(" \n")] {
        assert_eq!(resolve(&bench, say(&call, Verdict::NotApplied, no_proof)).await, stands);
    }
    assert_eq!(bench.kinds(first.key).await, ["first_step_committed"]);
    let done = resolve(&bench, say(&call, Verdict::NotApplied, Some("moved"))).await;
    assert!(matches!(done, Resolved::Done(_)), "{done:?}");
}

pub async fn a_row_that_is_gone_was_not_applied<F: Factory>() {
    // Promise: nobody says "it happened" of a row that is gone; that it did not needs no proof.
    let bench = Bench::<F>::new();
    let call = call("op-1");
    begun(&bench, &call).await;
    let delete = run(|tx| tx.delete(TAGS, 1).map(drop));
    bench.submit(&super::calls::call("delete"), &delete).await.expect("deletes");
    let snapshot = bench.look_up(&call).await;
    assert!(matches!(snapshot, Snapshot::Found { effect: EffectSeen::Missing, .. }));
    bench.clock.pass(LEASE);
    let gone = Resolved::EffectGone { table: TAGS.into(), id: 1 };
    assert_eq!(resolve(&bench, say(&call, Verdict::Applied, Some("sure"))).await, gone);
    let Resolved::Done(record) = resolve(&bench, say(&call, Verdict::NotApplied, None)).await
    else {
        panic!("not done")
    };
    // A local effect has no sender that could still be at work.
    assert_eq!(record.resolution, Some(Resolution::Proved));
}

pub async fn a_settled_row_that_is_gone_is_not_replayed<F: Factory>() {
    // Promise: replay and status tell the same: where the row is gone, neither says "applied", and
    // the old ID still never becomes new work.
    let bench = Bench::<F>::new();
    let call = call("op-1");
    let effect = two_steps(Goes::Well, Goes::Well);
    let begun = bench.fresh(&call, &effect).await;
    super::finishing::finish(&bench, &begun, &effect).await;
    bench.replayed(&call, &effect).await;
    let delete = run(|tx| tx.delete(TAGS, 1).map(drop));
    bench.submit(&super::calls::call("delete"), &delete).await.expect("deletes");
    let refusal = bench.refused(&call, &effect).await;
    assert_eq!(refusal.code(), Code::OperationInDoubt);
    assert!(refusal.message().contains("the row that it made is gone"), "{refusal}");
    assert_eq!(effect.calls(), 2, "the two steps, and nothing since");
}

pub async fn what_is_settled_stays_settled<F: Factory>() {
    // Promise: no word of an operator changes a settled operation, not even the same word again.
    let bench = Bench::<F>::new();
    let applied = call("applied");
    let record = bench.fresh(&applied, &note("body")).await;
    let resolved = call("resolved");
    begun(&bench, &resolved).await;
    bench.clock.pass(LEASE);
    resolve(&bench, say(&resolved, Verdict::Applied, None)).await;
    for call in [&applied, &resolved] {
        for verdict in [Verdict::Applied, Verdict::NotApplied] {
            match resolve(&bench, say(call, verdict, Some("sure"))).await {
                Resolved::Illegal(illegal) => {
                    assert_eq!(illegal.from, Some(State::Applied));
                    assert_eq!(illegal.event, Event::Resolve(verdict));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(bench.replayed(&applied, &note("x")).await, record);
    assert_eq!(bench.kinds(record.key).await, ["applied"]);
}

pub async fn nothing_is_made_of_nothing<F: Factory>() {
    // Promise: an operation that is not there, or is another tenant's, is not resolved.
    let bench = Bench::<F>::new();
    let call = call("op-1");
    let absent = resolve(&bench, say(&call, Verdict::Applied, None)).await;
    assert_eq!(absent, Resolved::Absent);
    begun(&bench, &call).await;
    bench.clock.pass(LEASE);
    let foreign = Resolve {
        tenant: Tenant::parse("other").expect("valid"),
        ..say(&call, Verdict::Applied, None)
    };
    assert_eq!(resolve(&bench, foreign).await, Resolved::Absent);
    assert_eq!(bench.look_up(&super::calls::call("op-2")).await, Snapshot::Absent);
}
