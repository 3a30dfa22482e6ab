//! What a call comes to: fresh, replayed or refused.

use std::time::Duration;

use counterfoil_core::admission::Authority;
use counterfoil_core::observation::{EffectSeen, Snapshot};
use counterfoil_core::operation::State;
use counterfoil_core::refusal::Code;
use counterfoil_core::time::{Span, Timestamp};

use super::calls::{TestCall, call, uuid_v7};
use super::clock::START_MS;
use super::effects::{First, Goes, NOTES, note, probe, two_steps};
use super::{Bench, Factory};

const DAY: Duration = Duration::from_secs(86_400);

pub async fn a_fresh_call_keeps_everything_that_it_is_bound_to<F: Factory>() {
    // Promise: record, effect and audit event are there together, and say who, what and when.
    let bench = Bench::<F>::new();
    let authority_end = Timestamp::from_ms(START_MS + 5_000);
    let call = TestCall { authority: Authority::Until(authority_end), ..call("op-1") };
    let admitted = call.admit();
    let effect = note("body");
    let submission = counterfoil_store::Submission {
        admitted: admitted.clone(),
        effect: std::sync::Arc::new(effect.clone()),
    };
    let answer = bench.store.submit(submission).await.expect("commits").into_answer();
    let counterfoil_store::Answer::Fresh(record) = answer else { panic!("{answer:?}") };

    let now = Timestamp::from_ms(START_MS);
    assert_eq!(record.key, admitted.attempt().key);
    assert_eq!(record.nonce, admitted.attempt().nonce);
    assert_eq!(record.binding, *admitted.binding());
    assert_eq!(record.tenant.as_str(), "local");
    assert_eq!(record.principal.as_str(), "alice");
    assert_eq!(record.tool_id.as_str(), "create_note");
    assert_eq!(record.tool_version.as_str(), "1");
    assert_eq!(record.operation_id.as_str(), "op-1");
    assert_eq!(record.state, State::Applied);
    assert_eq!(record.owner, None);
    assert_eq!(record.result.as_ref().map(|r| r.as_json()), Some("\"created 1\""));
    assert_eq!(record.authority_ends_at, Some(authority_end));
    assert_eq!((record.created_at, record.settled_at), (now, Some(now)));
    assert_eq!(record.retention_ends_at, Some(now.plus(30 * DAY)));
    assert_eq!((record.purged, record.resolution), (false, None));
    let row = record.effect.as_ref().expect("a row");
    assert_eq!((row.table.as_str(), row.id), (NOTES, 1));

    let snapshot = bench.look_up(&call).await;
    assert_eq!(snapshot, Snapshot::Found { record: record.clone(), effect: EffectSeen::Same });
    let events = bench.audit(record.key).await;
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].seq, events[0].at, events[0].kind.as_str()), (1, now, "applied"));
    assert_eq!((events[0].identity.as_str(), events[0].who.as_str()), ("op-1", "alice"));
    assert!(bench.has_row(NOTES, "text", "body").await);
    assert_eq!(effect.calls(), 1);
}

pub async fn an_exact_repeat_gets_the_stored_result<F: Factory>() {
    // Promise: however often and however late it is repeated, the effect happens once.
    let mut bench = Bench::<F>::new();
    let call = call("op-1");
    let effect = note("body");
    let first = bench.fresh(&call, &effect).await;
    for _ in 0..3 {
        assert_eq!(bench.replayed(&call, &effect).await, first);
        bench.reopen().await;
        bench.clock.pass(DAY);
    }
    assert_eq!(effect.calls(), 1);
    assert_eq!(bench.kinds(first.key).await, ["applied"]);
}

pub async fn a_changed_request_conflicts_and_learns_nothing<F: Factory>() {
    // Promise: a changed binding conflicts before any effect, and the words are the same for
    // changed arguments and for another principal.
    let bench = Bench::<F>::new();
    let original = call("op-1");
    bench.fresh(&original, &note("secret body")).await;
    let changed = [
        TestCall { arguments: r#"{"title":"two"}"#, ..original.clone() },
        TestCall { version: "2", ..original.clone() },
        TestCall { principal: "mallory", ..original.clone() },
        TestCall { principal: "mallory", arguments: "{}", ..original.clone() },
    ];
    let effect = note("other");
    let mut words = Vec::new();
    for call in &changed {
        let refusal = bench.refused(call, &effect).await;
        assert_eq!(refusal.code(), Code::OperationConflict, "{call:?}");
        words.push(refusal);
    }
    assert!(words.iter().all(|refusal| *refusal == words[0]));
    assert!(!words[0].message().contains("secret"));
    assert_eq!(effect.calls(), 0);
    assert!(!bench.has_row(NOTES, "text", "other").await);
}

pub async fn a_conflict_is_told_before_progress<F: Factory>() {
    // Promise: an ID that is still running says nothing of itself to a changed request.
    let bench = Bench::<F>::new();
    let running = call("op-1");
    bench.fresh(&running, &two_steps(Goes::Well, Goes::Well)).await;
    let changed = TestCall { arguments: "{}", ..running.clone() };
    let code = bench.refused(&changed, &note("x")).await.code();
    assert_eq!(code, Code::OperationConflict);
    let code = bench.refused(&running, &note("x")).await.code();
    assert_eq!(code, Code::OperationInProgress);
}

pub async fn tenants_never_meet<F: Factory>() {
    // Promise: the same ID in another tenant is another operation.
    let bench = Bench::<F>::new();
    let ours = call("op-1");
    let theirs = TestCall { tenant: "other", ..ours.clone() };
    let first = bench.fresh(&ours, &note("ours")).await;
    assert_eq!(bench.look_up(&theirs).await, Snapshot::Absent);
    let second = bench.fresh(&theirs, &note("theirs")).await;
    assert_ne!(first.key, second.key);
    assert_eq!(bench.replayed(&ours, &note("x")).await, first);
    assert_eq!(bench.replayed(&theirs, &note("x")).await, second);
}

pub async fn after_retention_the_id_is_refused_for_ever<F: Factory>() {
    // Promise: an expired identity is never new work, and its tombstone stays.
    let mut bench = Bench::<F>::new();
    let call = TestCall { retention: Span::from_secs(60), ..call("op-1") };
    let effect = note("body");
    let record = bench.fresh(&call, &effect).await;
    bench.clock.pass(Duration::from_millis(59_999));
    assert_eq!(bench.replayed(&call, &effect).await, record);
    for _ in 0..2 {
        bench.clock.pass(Duration::from_millis(1_001));
        bench.reopen().await;
        let refusal = bench.refused(&call, &effect).await;
        assert_eq!(refusal.code(), Code::OperationRetentionExpired);
    }
    assert_eq!(effect.calls(), 1);
    // The status still tells what became of it.
    let Snapshot::Found { record: kept, effect: seen } = bench.look_up(&call).await else {
        panic!("the tombstone is gone")
    };
    assert_eq!((*kept, seen), (record, EffectSeen::Same));
}

pub async fn retention_counts_from_settlement<F: Factory>() {
    // Promise: an operation that took long to settle may be replayed as long as any other.
    let bench = Bench::<F>::new();
    let call = TestCall { retention: Span::from_secs(60), ..call("op-1") };
    let effect = two_steps(Goes::Well, Goes::Well);
    let begun = bench.fresh(&call, &effect).await;
    assert_eq!((begun.settled_at, begun.retention_ends_at), (None, None));
    bench.clock.pass(10 * DAY);
    let finished = super::finishing::finish(&bench, &begun, &effect).await;
    let settled = Timestamp::from_ms(START_MS).plus(10 * DAY);
    assert_eq!(finished.settled_at, Some(settled));
    assert_eq!(finished.retention_ends_at, Some(settled.plus(Duration::from_secs(60))));
    bench.clock.pass(Duration::from_secs(59));
    bench.replayed(&call, &effect).await;
    bench.clock.pass(Duration::from_secs(1));
    assert_eq!(bench.refused(&call, &effect).await.code(), Code::OperationRetentionExpired);
}

pub async fn authority_ends_for_new_work_and_for_replay<F: Factory>() {
    // Promise: once a continuation's authority has ended it writes nothing and replays nothing,
    // while a lookup still recovers what happened.
    let bench = Bench::<F>::new();
    let end = Timestamp::from_ms(START_MS + 1_000);
    let used = TestCall { authority: Authority::Until(end), ..call("used") };
    let unused = TestCall { authority: Authority::Until(end), ..call("unused") };
    let effect = note("body");
    bench.fresh(&used, &effect).await;
    bench.clock.pass(Duration::from_millis(999));
    bench.replayed(&used, &effect).await;
    bench.clock.pass(Duration::from_millis(1));
    for call in [&used, &unused] {
        let code = bench.refused(call, &effect).await.code();
        assert_eq!(code, Code::OperationAuthorityExpired, "{}", call.id);
    }
    assert_eq!(effect.calls(), 1);
    assert!(matches!(bench.look_up(&used).await, Snapshot::Found { .. }));
    assert_eq!(bench.look_up(&unused).await, Snapshot::Absent);
}

pub async fn ids_that_carry_their_time_are_held_to_it<F: Factory>() {
    // Promise: an ID from the future is refused; one that is older than what the ledger remembers
    // is expired if there is no record of it, and replayed if there is one.
    const HORIZON_MS: i64 = START_MS - 1_000;
    let bench = Bench::<F>::with_horizon(Timestamp::from_ms(HORIZON_MS));
    let effect = note("body");
    let cases = [
        (START_MS + 300_001, Some(Code::InvalidArgument)),
        (START_MS + 300_000, None),
        (HORIZON_MS, None),
        (HORIZON_MS - 1, Some(Code::OperationRetentionExpired)),
    ];
    assert_eq!(bench.store.horizon(), Timestamp::from_ms(HORIZON_MS));
    for (at_ms, refused) in cases {
        let call = call(&uuid_v7(at_ms));
        match refused {
            Some(code) => assert_eq!(bench.refused(&call, &effect).await.code(), code, "{at_ms}"),
            None => {
                bench.fresh(&call, &effect).await;
                bench.replayed(&call, &effect).await;
            }
        }
    }
    assert_eq!(effect.calls(), 2);
}

pub async fn an_effect_without_a_row_is_an_effect<F: Factory>() {
    // Promise: what names no row has none to be missed.
    let bench = Bench::<F>::new();
    let record = bench.fresh(&call("op-1"), &probe(First::NoRow)).await;
    assert_eq!(record.effect, None);
    let snapshot = bench.look_up(&call("op-1")).await;
    assert!(matches!(snapshot, Snapshot::Found { effect: EffectSeen::NotLocal, .. }));
}

pub async fn ids_are_taken_as_they_are_given<F: Factory>() {
    // Promise: no ID is folded into another: case, accents, a UUID in capitals, blanks at its ends.
    let bench = Bench::<F>::new();
    let uuid = uuid_v7(START_MS);
    let long = "x".repeat(128);
    let ids = ["a", "A", " a", "a ", "á", "a\u{301}", &uuid, &uuid.to_uppercase(), "🧾", &long];
    for id in ids {
        bench.fresh(&call(id), &note(id)).await;
    }
    for id in ids {
        let record = bench.replayed(&call(id), &note(id)).await;
        assert_eq!(record.operation_id.as_str(), id);
    }
}
