//! The ledger's time, whatever the machine's clocks do.

use std::time::Duration;

use counterfoil_core::operation::Verdict;
use counterfoil_core::time::{Span, Timestamp};
use counterfoil_store::{Resolve, Resolved};

use super::calls::{TestCall, call, uuid_v7};
use super::clock::START_MS;
use super::effects::{Goes, note, two_steps};
use super::{Bench, Factory};

const DAY_MS: i64 = 86_400_000;
const YEAR_MS: i64 = 365 * DAY_MS;

pub async fn a_clock_set_ahead_and_back_turns_no_time_back<F: Factory>() {
    // Promise: no transaction is stamped before an earlier one, work goes on, and a deadline that
    // had passed stays passed.
    let mut bench = Bench::<F>::new();
    let effect = note("body");
    let short = TestCall { retention: Span::from_secs(60), ..call("before") };
    bench.fresh(&short, &effect).await;
    bench.clock.set_by_ms(YEAR_MS);
    let ahead = bench.fresh(&call("ahead"), &effect).await.created_at;
    assert_eq!(ahead, Timestamp::from_ms(START_MS + YEAR_MS));
    assert!(bench.store.now() >= ahead);
    bench.clock.set_by_ms(-YEAR_MS);
    assert!(bench.store.now() >= ahead);
    bench.clock.pass(Duration::from_secs(10));
    // The ledger's time goes on with the time that really passes.
    let back = bench.fresh(&call("back"), &effect).await.created_at;
    assert_eq!(back, ahead.plus(Duration::from_secs(10)));
    bench.reopen().await;
    assert!(bench.store.now() >= back);
    let after = bench.fresh(&call("after"), &effect).await.created_at;
    assert!(after >= back);
    bench.refused(&short, &effect).await;
}

pub async fn time_goes_on_at_its_pace_behind_a_slow_clock<F: Factory>() {
    // Promise: a wall clock that was set back stops no lease and no retention.
    let bench = Bench::<F>::new();
    let call = call("op-1");
    bench.fresh(&call, &two_steps(Goes::Well, Goes::Well)).await;
    bench.clock.set_by_ms(-YEAR_MS);
    let said = || Resolve {
        tenant: call.tenant(),
        operation_id: call.operation_id(),
        verdict: Verdict::Applied,
        who: "olga".into(),
        reason: "seen".into(),
        proof: None,
    };
    bench.clock.pass(Duration::from_secs(29));
    let owned = bench.store.resolve(said()).await.expect("works");
    assert!(matches!(owned, Resolved::Owned { .. }), "{owned:?}");
    bench.clock.pass(Duration::from_secs(1));
    let done = bench.store.resolve(said()).await.expect("works");
    assert!(matches!(done, Resolved::Done(_)), "{done:?}");
}

pub async fn reading_moves_no_time<F: Factory>() {
    // Promise: what a look through a wrong clock showed is not kept.
    let mut bench = Bench::<F>::new();
    bench.fresh(&call("op-1"), &note("body")).await;
    bench.clock.set_by_ms(DAY_MS);
    assert_eq!(bench.store.now(), Timestamp::from_ms(START_MS + DAY_MS));
    bench.look_up(&call("op-1")).await;
    bench.replayed(&call("op-1"), &note("body")).await;
    bench.clock.set_by_ms(-DAY_MS);
    assert_eq!(bench.store.now(), Timestamp::from_ms(START_MS));
    bench.reopen().await;
    let id = uuid_v7(START_MS);
    let record = bench.fresh(&call(&id), &note("body")).await;
    assert_eq!(record.created_at, Timestamp::from_ms(START_MS));
}

pub async fn a_probe_proves_a_commit_and_the_counts_tell_what_is_open<F: Factory>() {
    // Promise: ready means that a write was committed, and it is no operation; what is unsettled
    // is counted, and what is settled is not.
    let mut bench = Bench::<F>::new();
    bench.store.probe().await.expect("nothing stands in its way");
    assert!(!bench.store.info().await.expect("readable").has_operations);
    let stats = bench.store.stats().await.expect("readable");
    assert_eq!(stats.unsettled, 0);
    assert!(stats.committed_commands >= stats.commits && stats.commits >= stats.largest_batch);
    bench.fresh(&call("settled"), &note("body")).await;
    bench.fresh(&call("open"), &two_steps(Goes::Well, Goes::Well)).await;
    assert_eq!(bench.store.stats().await.expect("readable").unsettled, 1);
    bench.clock.set_by_ms(1000);
    bench.store.probe().await.expect("nothing stands in its way");
    let probed = bench.store.now();
    bench.reopen().await;
    if F::CAPABILITIES.durable {
        assert!(bench.store.now() >= probed);
        assert_eq!(bench.store.stats().await.expect("readable").unsettled, 1);
    }
    bench.store.close().await.expect("closes");
    assert!(bench.store.probe().await.is_err() && bench.store.stats().await.is_err());
}
