//! Many callers at once, callers that leave, and the end.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use counterfoil_core::observation::Snapshot;
use counterfoil_store::{Answer, StoreError};
use tokio::task::JoinSet;

use super::calls::call;
use super::effects::{First, NOTES, note, probe};
use super::{Bench, Factory};

pub async fn of_many_callers_with_one_id_one_makes_the_effect<F: Factory>() {
    // Promise: however many send the same operation at once, it is applied once, and all of them
    // get that one's result.
    let bench = Arc::new(Bench::<F>::new());
    let effect = note("body");
    let mut callers = JoinSet::new();
    for _ in 0..64 {
        let submission = call("op-1").with(effect.clone());
        let store = Arc::clone(&bench.store);
        callers.spawn(async move { store.submit(submission).await });
    }
    let (mut fresh, mut replayed) = (0, 0);
    while let Some(outcome) = callers.join_next().await {
        let record = match outcome.expect("no panic").expect("commits").into_answer() {
            Answer::Fresh(record) => {
                fresh += 1;
                record
            }
            Answer::Replayed(record) => {
                replayed += 1;
                record
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(record.effect.as_ref().map(|row| row.id), Some(1));
    }
    assert_eq!((fresh, replayed, effect.calls()), (1, 63, 1));
}

pub async fn each_of_many_ids_takes_effect_once<F: Factory>() {
    // Promise: callers that share a transaction neither lose nor double anything, also when some
    // of them fail in it.
    let bench = Bench::<F>::new();
    let mut callers = JoinSet::new();
    for number in 0..300 {
        let fails = number % 3 == 0;
        let effect = if fails { probe(First::PanicsAfterInsert) } else { note("body") };
        let submission = call(&format!("op-{number}")).with(effect);
        let store = Arc::clone(&bench.store);
        callers.spawn(async move { (number, fails, store.submit(submission).await) });
    }
    let mut rows = Vec::new();
    while let Some(outcome) = callers.join_next().await {
        let (number, fails, answer) = outcome.expect("no panic");
        match answer {
            Ok(committed) => match committed.into_answer() {
                Answer::Fresh(record) if !fails => rows.push(record.effect.expect("a row").id),
                other => panic!("{number}: {other:?}"),
            },
            Err(error) => assert!(fails && error == StoreError::EffectPanicked, "{error}"),
        }
    }
    rows.sort_unstable();
    assert_eq!(rows, (1..=200).collect::<Vec<_>>());
    for number in [0, 1, 298, 299] {
        let found = bench.look_up(&call(&format!("op-{number}"))).await != Snapshot::Absent;
        assert_eq!(found, number % 3 != 0, "{number}");
    }
}

pub async fn a_caller_that_leaves_undoes_nothing<F: Factory>() {
    // Promise: what was handed over is committed whole, whoever waits for it.
    let mut bench = Bench::<F>::new();
    let call = call("op-1");
    let effect = note("body");
    let mut submitted = bench.store.submit(call.with(effect.clone()));
    let _: Poll<_> = submitted.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(submitted);
    bench.reopen().await;
    bench.replayed(&call, &effect).await;
    assert_eq!(effect.calls(), 1);
    assert!(bench.has_row(NOTES, "text", "body").await);
}

pub async fn a_call_that_was_never_begun_does_nothing<F: Factory>() {
    // Promise: a future that nobody polled has handed nothing over.
    let bench = Bench::<F>::new();
    drop(bench.store.submit(call("op-1").with(note("body"))));
    assert_eq!(bench.look_up(&call("op-1")).await, Snapshot::Absent);
}

pub async fn closing_keeps_what_was_handed_over_and_takes_no_more<F: Factory>() {
    // Promise: after close every call is told so, and what was queued before is committed.
    let bench = Bench::<F>::new();
    let queued: Vec<_> = (0..20)
        .map(|number| {
            let submission = call(&format!("op-{number}")).with(note("body"));
            let store = Arc::clone(&bench.store);
            let mut future = Box::pin(async move { store.submit(submission).await });
            let first = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            (future, first)
        })
        .collect();
    bench.store.close().await.expect("closes");
    for (future, first) in queued {
        let answer = match first {
            Poll::Ready(answer) => answer,
            Poll::Pending => future.await,
        };
        assert!(matches!(answer.expect("commits").answer(), Answer::Fresh(_)));
    }
    let store = &bench.store;
    let call = call("late");
    let late = store.submit(call.with(note("body"))).await;
    assert_eq!(late.err(), Some(StoreError::Closed));
    let late = store.look_up(&call.tenant(), &call.operation_id()).await;
    assert_eq!(late.err(), Some(StoreError::Closed));
    assert_eq!(store.info().await.err(), Some(StoreError::Closed));
    store.close().await.expect("closing twice is no error");
}
