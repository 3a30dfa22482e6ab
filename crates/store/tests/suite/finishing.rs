//! The step after a first commit: done, taken back, or neither.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::identity::{BootId, OperationKey};
use counterfoil_core::observation::{EffectSeen, Snapshot};
use counterfoil_core::operation::{Phase, State};
use counterfoil_core::record::Record;
use counterfoil_core::refusal::{Code, Retry};
use counterfoil_core::time::Timestamp;
use counterfoil_store::{Answer, Finish, StoreError};

use super::calls::{BOOT, call};
use super::clock::START_MS;
use super::effects::{Goes, NOTES, Probe, TAGS, note, two_steps};
use super::{Bench, Factory};

/// Finishes as the owner, and expects to be the one who settles.
pub async fn finish<F: Factory>(bench: &Bench<F>, begun: &Record, effect: &Probe) -> Record {
    match finish_as(bench, begun, effect, BOOT, 1).await {
        Ok(Answer::Fresh(record)) => *record,
        other => panic!("wanted Fresh, got {other:?}"),
    }
}

pub async fn finish_as<F: Factory>(
    bench: &Bench<F>,
    begun: &Record,
    effect: &Probe,
    boot: BootId,
    fence: i64,
) -> Result<Answer, StoreError> {
    let effect = Arc::new(effect.clone());
    let finish = Finish { key: begun.key, boot, fence, effect };
    bench.store.finish(finish).await.map(|committed| committed.into_answer())
}

pub async fn a_first_step_commits_alone_and_is_owned<F: Factory>() {
    // Promise: after the first commit the operation is in progress, with an owner, a fence and a
    // lease on the ledger's clock; it is not run again.
    let mut bench = Bench::<F>::new();
    let call = call("op-1");
    let effect = two_steps(Goes::Well, Goes::Well);
    let begun = bench.fresh(&call, &effect).await;
    assert_eq!(begun.state, State::InProgress(Phase::FirstCommit));
    let owner = begun.owner.expect("an owner");
    assert_eq!((owner.boot, owner.fence), (BOOT, 1));
    assert_eq!(owner.lease_until, Timestamp::from_ms(START_MS + 30_000));
    assert_eq!((&begun.result, begun.settled_at), (&None, None));
    bench.reopen().await;
    assert_eq!(bench.refused(&call, &effect).await.code(), Code::OperationInProgress);
    let snapshot = bench.look_up(&call).await;
    let found = Snapshot::Found { record: Box::new(begun.clone()), effect: EffectSeen::Same };
    assert_eq!(snapshot, found);
    assert_eq!(bench.kinds(begun.key).await, ["first_step_committed"]);
    assert_eq!(effect.calls(), 1);
}

pub async fn each_ending_is_told_as_it_was<F: Factory>() {
    // Promise: whole, taken back, or partly; each with its result, its audit trail and its rows,
    // and a replay repeats nothing.
    struct Case {
        follow_up: Goes,
        compensate: Goes,
        state: State,
        result: &'static str,
        kinds: &'static [&'static str],
        seen: EffectSeen,
        second_row: bool,
    }
    let undone = |follow_up, result| Case {
        follow_up,
        compensate: Goes::Well,
        state: State::NotApplied,
        result,
        kinds: &["first_step_committed", "compensated", "undone"],
        seen: EffectSeen::Missing,
        second_row: false,
    };
    let partly = |follow_up, compensate| Case {
        follow_up,
        compensate,
        state: State::Partial,
        result: "\"created 1; a later step failed\"",
        kinds: &["first_step_committed", "compensation_failed", "partial"],
        seen: EffectSeen::Same,
        second_row: false,
    };
    let whole = Case {
        follow_up: Goes::Well,
        compensate: Goes::Well,
        state: State::Applied,
        result: "\"created 1\"",
        kinds: &["first_step_committed", "applied"],
        seen: EffectSeen::Same,
        second_row: true,
    };
    for case in [
        whole,
        undone(Goes::Fails, "\"1 was taken back, because a later step said no\""),
        undone(Goes::Panics, "\"1 was taken back, because a later step panicked\""),
        partly(Goes::Fails, Goes::Fails),
        partly(Goes::Panics, Goes::Fails),
        partly(Goes::Fails, Goes::Panics),
    ] {
        let what = format!("{:?}, {:?}", case.follow_up, case.compensate);
        let mut bench = Bench::<F>::new();
        let call = call("op-1");
        let effect = two_steps(case.follow_up, case.compensate);
        let begun = bench.fresh(&call, &effect).await;
        bench.clock.pass(Duration::from_secs(5));
        let ended = finish(&bench, &begun, &effect).await;
        let calls = effect.calls();
        assert_eq!(ended.state, case.state, "{what}");
        assert_eq!(ended.result.as_ref().map(|r| r.as_json()), Some(case.result), "{what}");
        assert_eq!(ended.owner, None);
        assert_eq!(ended.settled_at, Some(Timestamp::from_ms(START_MS + 5_000)));
        assert_eq!(bench.kinds(begun.key).await, case.kinds, "{what}");
        bench.reopen().await;
        assert_eq!(bench.replayed(&call, &effect).await, ended, "{what}");
        assert_eq!(effect.calls(), calls, "{what}");
        let Snapshot::Found { effect: seen, .. } = bench.look_up(&call).await else {
            panic!("{what}: no record")
        };
        assert_eq!(seen, case.seen, "{what}");
        assert_eq!(bench.has_row(TAGS, "word", "second").await, case.second_row, "{what}");
    }
}

pub async fn a_failed_compensation_has_an_identity_of_its_own<F: Factory>() {
    // Promise: the failed compensation stays visible as its own event, with its reason.
    let bench = Bench::<F>::new();
    let effect = two_steps(Goes::Panics, Goes::Fails);
    let begun = bench.fresh(&call("op-1"), &effect).await;
    finish(&bench, &begun, &effect).await;
    let events = bench.audit(begun.key).await;
    let seen: Vec<_> = events
        .iter()
        .map(|e| (e.seq, e.identity.as_str(), e.who.as_str(), e.reason.as_deref()))
        .collect();
    assert_eq!(
        seen,
        [
            (1, "op-1", "alice", None),
            (2, "op-1/compensation/1", "alice", Some("said no")),
            (3, "op-1", "alice", Some("panicked")),
        ]
    );
}

pub async fn only_the_fence_decides_who_finishes<F: Factory>() {
    // Promise: another run or another fence finishes nothing and is told what the record is; an
    // ended lease that nobody took still finishes; a late second finish is a replay.
    let bench = Bench::<F>::new();
    let effect = two_steps(Goes::Well, Goes::Well);
    let begun = bench.fresh(&call("op-1"), &effect).await;
    for (boot, fence) in [(BootId::from_bytes([8; 16]), 1), (BOOT, 2), (BOOT, 0)] {
        match finish_as(&bench, &begun, &effect, boot, fence).await {
            Ok(Answer::Refused(refusal)) => {
                assert_eq!(refusal.code(), Code::OperationInProgress);
                assert_eq!(refusal.operation_id().map(|id| id.as_str()), Some("op-1"));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(effect.calls(), 1);
    bench.clock.pass(Duration::from_secs(86_400));
    let ended = finish(&bench, &begun, &effect).await;
    assert_eq!(ended.state, State::Applied);
    match finish_as(&bench, &begun, &effect, BOOT, 1).await {
        Ok(Answer::Replayed(record)) => assert_eq!(*record, ended),
        other => panic!("{other:?}"),
    }
    assert_eq!(effect.calls(), 2);
}

pub async fn what_was_never_begun_is_not_finished<F: Factory>() {
    // Promise: a finish makes no operation out of nothing, and none out of a settled one.
    let bench = Bench::<F>::new();
    let effect = two_steps(Goes::Well, Goes::Well);
    let nowhere = Finish {
        key: OperationKey::from_bytes([9; 16]),
        boot: BOOT,
        fence: 1,
        effect: Arc::new(effect.clone()),
    };
    let error = bench.store.finish(nowhere).await.expect_err("no such operation");
    assert_eq!(error.retry(), Retry::StatusOnly);
    let settled = bench.fresh(&call("op-1"), &note("body")).await;
    match finish_as(&bench, &settled, &effect, BOOT, 1).await {
        Ok(Answer::Replayed(record)) => assert_eq!(*record, settled),
        other => panic!("{other:?}"),
    }
    assert_eq!(effect.calls(), 0);
    assert!(!bench.has_row(NOTES, "text", "second").await);
}
