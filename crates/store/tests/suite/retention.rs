//! What a ledger forgets: results after their retention, tombstones below the horizon, nothing while
//! its clock is in doubt.

use std::time::Duration;

use counterfoil_core::identity::OperationId;
use counterfoil_core::observation::{Snapshot, observe};
use counterfoil_core::operation::{State, Verdict};
use counterfoil_core::record::Record;
use counterfoil_core::refusal::Code;
use counterfoil_core::time::{Span, Timestamp};
use counterfoil_store::{ClockConfirmed, ClockJump, Purge, Purged, Resolve, RetentionState};

use super::calls::{TestCall, call, caller, uuid_v7};
use super::clock::START_MS;
use super::effects::{Goes, NOTES, note, two_steps};
use super::{Bench, Factory};

const DAY: Duration = Duration::from_secs(86_400);
const DAY_MS: i64 = 86_400_000;
const YEAR_MS: i64 = 365 * DAY_MS;
/// The retention of a call, unless it has another, and the horizon's least distance, in days.
const RETENTION_DAYS: u32 = 30;
const HORIZON_DAYS: u32 = 400;

pub fn purge() -> Purge {
    Purge::new(RETENTION_DAYS * DAY)
}

impl<F: Factory> Bench<F> {
    /// One step.
    pub async fn purge(&self, purge: Purge) -> Purged {
        self.store.purge(purge).await.expect("the ledger works")
    }

    /// All steps; the counts of results and tombstones.
    pub async fn purge_all(&self) -> (u64, u64) {
        let mut counts = (0, 0);
        loop {
            let purged = self.purge(purge()).await;
            counts.0 += purged.results_count;
            counts.1 += purged.tombstones_count;
            if !purged.more {
                return counts;
            }
        }
    }

    /// Lets days pass in which the clock was looked at.
    pub async fn live(&self, days: u32) {
        self.clock.pass(days * DAY);
    }

    pub async fn retention(&self) -> RetentionState {
        self.store.retention().await.expect("readable")
    }

    async fn record(&self, call: &TestCall) -> Option<Record> {
        match self.look_up(call).await {
            Snapshot::Found { record, .. } => Some(*record),
            Snapshot::Absent => None,
            Snapshot::Quarantined => panic!("{}: quarantined", call.id),
        }
    }
}

/// A call whose ID carries the time at which a test begins.
fn timed() -> TestCall {
    call(&uuid_v7(START_MS))
}

pub async fn a_result_goes_and_its_tombstone_stays<F: Factory>() {
    // Promise: once retention has ended the result is gone, and not before; identity, digests, the
    // effect's row and the audit trail stay; the ID stays refused, and the status says what is left.
    let mut bench = Bench::<F>::new();
    let (call, effect) = (call("op-1"), note("hello"));
    let whole = bench.fresh(&call, &effect).await;
    bench.clock.pass(RETENTION_DAYS * DAY - Duration::from_millis(1));
    assert_eq!(bench.purge_all().await, (0, 0));
    assert_eq!(bench.replayed(&call, &effect).await, whole);
    // What was passed over is looked at again a day later.
    bench.live(1).await;
    bench.reopen().await;
    assert_eq!(bench.purge_all().await, (1, 0));
    assert_eq!(bench.purge_all().await, (0, 0));
    bench.reopen().await;
    let tombstone = Record { result: None, purged: true, ..whole.clone() };
    assert_eq!(bench.record(&call).await, Some(tombstone));
    assert_eq!(bench.kinds(whole.key).await, ["applied"]);
    assert!(bench.has_row(NOTES, "text", "hello").await);
    let mut changed = call.clone();
    changed.arguments = r#"{"title":"two"}"#;
    for call in [&call, &changed] {
        let refusal = bench.refused(call, &effect).await;
        assert_eq!(refusal.code(), Code::OperationRetentionExpired);
    }
    let id = OperationId::parse("op-1").expect("valid");
    let (snapshot, backend) = (bench.look_up(&call).await, bench.store.backend_id().clone());
    let seen = observe(&caller("local", "alice"), &id, &backend, &snapshot, bench.store.now());
    assert_eq!((seen.state.as_str(), seen.detail.as_str()), ("applied", "purged"));
    assert!(seen.stored_result.is_none() && seen.authoritative);
    assert_eq!(bench.retention().await.results_purged_count, 1);
    assert_eq!(effect.calls(), 1);
}

pub async fn what_is_not_settled_never_expires<F: Factory>() {
    // Promise: an unfinished operation stays whatever its age, and its retention begins when it is
    // settled; a longer retention is kept to the end, and found when that comes.
    let bench = Bench::<F>::new();
    let begun = TestCall { retention: Span::from_secs(60), ..call("begun") };
    let long = TestCall { retention: Span::from_secs(60 * 86_400), ..call("long") };
    bench.fresh(&begun, &two_steps(Goes::Well, Goes::Well)).await;
    bench.fresh(&long, &note("long")).await;
    bench.fresh(&call("usual"), &note("usual")).await;
    bench.live(31).await;
    assert_eq!(bench.purge_all().await, (1, 0));
    bench.live(10).await;
    assert_eq!(bench.purge_all().await, (0, 0));
    let said = Resolve {
        tenant: begun.tenant(),
        operation_id: begun.operation_id(),
        verdict: Verdict::Applied,
        who: "olga".into(),
        reason: "seen".into(),
        proof: None,
    };
    bench.store.resolve(said).await.expect("settles");
    assert_eq!(bench.purge_all().await, (0, 0));
    bench.live(2).await;
    assert_eq!(bench.purge_all().await, (1, 0));
    assert_eq!(bench.record(&begun).await.map(|record| record.purged), Some(true));
    bench.live(18).await;
    assert_eq!(bench.purge_all().await, (1, 0));
    assert_eq!(bench.record(&long).await.map(|record| record.purged), Some(true));
}

pub async fn a_tombstone_goes_only_if_its_id_tells_its_age<F: Factory>() {
    // Promise: below the horizon a UUIDv7's record and trail may go, and the ID is refused by its
    // age alone; other IDs' tombstones stay for ever, and no purge touches a row of an effect.
    let mut bench = Bench::<F>::new();
    let (mine, other) = (timed(), call("no-uuid"));
    let acme = TestCall { tenant: "acme", ..timed() };
    let long = TestCall { retention: Span::from_secs(1000 * 86_400), ..timed() };
    let begun = timed();
    let keys =
        [bench.fresh(&mine, &note("mine")).await.key, bench.fresh(&acme, &note("acme")).await.key];
    let kept = bench.fresh(&other, &note("other")).await.key;
    bench.fresh(&long, &note("long")).await;
    bench.fresh(&begun, &two_steps(Goes::Well, Goes::Well)).await;
    bench.live(HORIZON_DAYS).await;
    assert_eq!(bench.purge_all().await, (3, 0), "the horizon is the ID's own time, not below it");
    let young = call(&uuid_v7(START_MS + i64::from(HORIZON_DAYS) * DAY_MS));
    bench.fresh(&young, &note("young")).await;
    bench.live(1).await;
    bench.reopen().await;
    assert_eq!(bench.purge_all().await, (0, 2));
    bench.reopen().await;
    for (call, key) in [&mine, &acme].into_iter().zip(keys) {
        assert_eq!(bench.record(call).await, None);
        assert!(bench.audit(key).await.is_empty());
        let refusal = bench.refused(call, &note("again")).await;
        assert_eq!(refusal.code(), Code::OperationRetentionExpired);
    }
    for (text, there) in [("mine", true), ("acme", true), ("again", false)] {
        assert_eq!(bench.has_row(NOTES, "text", text).await, there, "{text}");
    }
    assert_eq!(bench.kinds(kept).await, ["applied"]);
    let refusal = bench.refused(&other, &note("again")).await;
    assert_eq!(refusal.code(), Code::OperationRetentionExpired);
    let states = [&long, &begun, &young].map(|call| bench.record(call));
    let mut found = Vec::new();
    for record in states {
        found.push(record.await.map(|record| (record.state.as_str(), record.purged)));
    }
    let (settled, unfinished) = (Some(("applied", false)), Some(("in_progress", false)));
    assert_eq!(found, [settled, unfinished, settled]);
    assert!(bench.store.info().await.expect("readable").has_operations);
    assert_eq!(bench.retention().await.tombstones_purged_count, 2);
}

pub async fn a_purge_is_done_in_bounded_steps<F: Factory>() {
    // Promise: one transaction purges at most as many records as it is told, and says whether there
    // is more; what is asked for with limit 0 is one.
    let bench = Bench::<F>::new();
    for _ in 0..5 {
        bench.fresh(&timed(), &note("hello")).await;
    }
    bench.live(31).await;
    let step = |limit_count| bench.purge(Purge { limit_count, ..purge() });
    let told = |purged: Purged| (purged.results_count, purged.tombstones_count, purged.more);
    assert_eq!(told(step(2).await), (2, 0, true));
    assert_eq!(told(step(0).await), (1, 0, true));
    assert_eq!(told(step(2).await), (2, 0, false));
    assert_eq!(told(step(2).await), (0, 0, false));
    bench.live(HORIZON_DAYS).await;
    assert_eq!(told(step(3).await), (0, 3, true));
    assert_eq!(told(step(3).await), (0, 2, false));
    let counts = bench.retention().await;
    assert_eq!((counts.results_purged_count, counts.tombstones_purged_count), (5, 5));
}

pub async fn a_clock_a_year_ahead_and_back_purges_nothing<F: Factory>() {
    // Promise: a wall clock that jumped, for however short a time, stops purges and nothing else,
    // until an operator has said that the ledger's time is right; who and when stay on record.
    for looked_before in [false, true] {
        for purged_while_ahead in [false, true] {
            let mut bench = Bench::<F>::new();
            bench.fresh(&call("before"), &note("before")).await;
            if looked_before {
                assert_eq!(bench.purge_all().await, (0, 0));
            }
            let horizon = bench.retention().await.horizon;
            bench.clock.set_by_ms(YEAR_MS);
            bench.fresh(&call("ahead"), &note("ahead")).await;
            if purged_while_ahead {
                assert_eq!(bench.purge_all().await, (0, 0));
            }
            bench.clock.set_by_ms(-YEAR_MS);
            bench.fresh(&call("back"), &note("back")).await;
            assert_eq!(bench.purge_all().await, (0, 0));
            bench.reopen().await;
            bench.live(2).await;
            assert_eq!(bench.purge_all().await, (0, 0));
            let state = bench.retention().await;
            let jump = state.stopped.expect("stopped");
            assert_eq!(jump.by_ms, YEAR_MS);
            assert_eq!((state.purge_time, state.horizon), (None, horizon));
            let before = bench.record(&call("before")).await.expect("kept");
            assert!(before.result.is_some() && !before.purged);

            let confirmed = bench.store.confirm_clock("olga").await.expect("the ledger works");
            let at = bench.store.now();
            assert_eq!(confirmed.confirmed, Some(ClockConfirmed { at, by: "olga".into() }));
            assert_eq!((confirmed.stopped, confirmed.purge_time), (None, Some(at)));
            bench.reopen().await;
            assert_eq!(bench.purge_all().await, (1, 0));
            bench.live(31).await;
            assert_eq!(bench.purge_all().await, (2, 0));
            assert_eq!(bench.retention().await.confirmed, confirmed.confirmed);
        }
    }
}

pub async fn the_horizon_follows_time_that_passed<F: Factory>() {
    // Promise: the horizon stays 400 days, or a longer retention, behind; it moves by the time that
    // passed, and by one hour more at each look after a time that nothing vouches for; never back.
    let mut bench = Bench::<F>::new();
    let at = |days: i64, ms: i64| Timestamp::from_ms(START_MS + (days - 400) * DAY_MS + ms);
    bench.purge_all().await;
    assert_eq!(bench.retention().await.horizon, at(0, 0));
    bench.live(10).await;
    bench.purge_all().await;
    assert_eq!((bench.retention().await.horizon, bench.store.horizon()), (at(10, 0), at(10, 0)));
    let long = Purge::new(1000 * DAY);
    bench.purge(long).await;
    assert_eq!(bench.retention().await.horizon, at(10, 0));
    if F::CAPABILITIES.durable {
        bench.clock.switch_off(DAY);
        bench.reopen().await;
        for hours in 1..=3 {
            bench.purge_all().await;
            assert_eq!(bench.retention().await.horizon, at(10, hours * 3_600_000));
        }
        bench.store.confirm_clock("olga").await.expect("the ledger works");
        bench.purge_all().await;
        assert_eq!(bench.retention().await.horizon, at(11, 0));
    }
    let horizon = bench.retention().await.horizon;
    bench.clock.set_by_ms(-7_200_000);
    bench.purge_all().await;
    let state = bench.retention().await;
    assert_eq!(state.horizon, horizon);
    let noticed_at = state.wall_time;
    assert_eq!(state.stopped, Some(ClockJump { noticed_at, by_ms: -7_200_000 }));
}

pub async fn counting_writes_nothing<F: Factory>() {
    // Promise: what a purge would do is told without doing any of it, even on a stopped clock.
    let bench = Bench::<F>::new();
    let calls: Vec<TestCall> = (0..3).map(|_| timed()).collect();
    for call in &calls {
        bench.fresh(call, &note("hello")).await;
    }
    bench.purge_all().await;
    let before = bench.retention().await;
    bench.live(HORIZON_DAYS + 1).await;
    let count = |limit_count| bench.store.count_due(Purge { limit_count, ..purge() });
    for limit_count in [1, 500] {
        let due = count(limit_count).await.expect("readable");
        assert_eq!((due.results_count, due.tombstones_count, due.more), (3, 3, false));
        assert_eq!(due.state.purge_time, Some(bench.store.now()));
    }
    assert_eq!(bench.store.horizon(), before.horizon);
    for call in &calls {
        assert!(bench.record(call).await.is_some_and(|record| record.state == State::Applied));
    }
    assert_eq!(bench.purge_all().await, (3, 3));
    bench.clock.set_by_ms(YEAR_MS);
    let due = count(500).await.expect("readable");
    assert_eq!((due.results_count, due.tombstones_count), (0, 0));
    assert!(due.state.stopped.is_some());
    bench.clock.set_by_ms(-YEAR_MS);
    assert_eq!(bench.retention().await.stopped, None);
}
