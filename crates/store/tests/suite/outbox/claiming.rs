//! Who holds an item, for how long, and when it may be sent.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{Alarm, Contract, Lease, State, Terms, Work};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::operation;
use counterfoil_store::UnderWay;
use counterfoil_store::outbox::{BeginSend, Begun, Claim, Happened, Reported, TargetAction};

use super::super::calls::{BOOT, call};
use super::{
    DESK, Desk, KEY, KEY_AND_LOOKUP, LEASE, LOOKUP, OTHER_BOOT, OutboxFactory, QUEUED, applied, at,
    begin, claim, name, refused, report, secs, terms, unauthorized, unknown, unreachable,
};

const MS: Duration = Duration::from_millis(1);
/// For so long a key of a day's lifetime is used.
const KEY_USED_FOR: Duration = Duration::from_secs(23 * 3600);

pub async fn what_is_due_is_leased_once_the_earliest_first<F: OutboxFactory>() {
    // Promise: an item has one holder, whoever asks and how often; the order is that of time, and
    // no other target's items are given.
    let desk = Desk::<F>::new();
    let mut keys = Vec::new();
    for id in ["op-1", "op-2", "op-3"] {
        keys.push(desk.fresh(id, KEY).await);
        desk.pass(secs(1));
    }
    desk.accept(&call("else"), "elsewhere", terms(KEY)).await;
    assert!(desk.claim(0).await.items.is_empty());
    let first = desk.claim(2).await;
    let claimed: Vec<OperationKey> = first.items.iter().map(|item| item.delivery.key).collect();
    assert_eq!(claimed, keys[..2]);
    let item = &first.items[0];
    let lease = Lease { boot: BOOT, until: at(secs(3) + LEASE), probe: false };
    assert_eq!((item.work, item.delivery.state), (Work::Send, State::Leased));
    assert_eq!((item.delivery.fence, item.delivery.lease), (1, Some(lease)));
    assert_eq!((item.delivery.attempts_count, item.delivery.next_attempt_at), (0, None));
    assert_eq!(desk.item(keys[0]).await, item.delivery);
    assert_eq!(*item.request, *b"POST /op-1");
    let rest = desk.claim_as(Claim { boot: OTHER_BOOT, ..claim(10) }).await;
    assert_eq!(rest.items.len(), 1);
    assert_eq!(rest.items[0].delivery.key, keys[2]);
    assert!(desk.claim(10).await.items.is_empty());
}

pub async fn of_many_workers_each_item_has_one<F: OutboxFactory>() {
    // Promise: workers that ask at once never hold one item twice.
    let desk = Desk::<F>::new();
    for number in 0..40 {
        desk.fresh(&format!("op-{number}"), KEY).await;
    }
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let outbox = Arc::clone(&desk.outbox);
            tokio::spawn(async move { outbox.claim(claim(7)).await.expect("the ledger works") })
        })
        .collect();
    let mut keys = Vec::new();
    for task in tasks {
        keys.extend(task.await.expect("ends").items.iter().map(|item| item.delivery.key));
    }
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 40);
}

pub async fn a_lease_that_ended_is_taken_back<F: OutboxFactory>() {
    // Promise: what a worker held and never began is given to the next one when the lease has ended
    // and not before, costs no attempt, and is refused to the first one from then on.
    let mut desk = Desk::<F>::new();
    let key = desk.fresh("op-1", Contract::Never).await;
    let lost = desk.one().await;
    desk.reopen().await;
    desk.pass(LEASE - MS);
    assert!(desk.claim(10).await.items.is_empty());
    desk.pass(MS);
    let taken = desk.claim_as(Claim { boot: OTHER_BOOT, ..claim(10) }).await;
    assert_eq!(taken.items.len(), 1, "{taken:?}");
    assert_eq!((taken.items[0].delivery.fence, taken.items[0].delivery.attempts_count), (2, 0));
    assert_eq!(desk.begin(&lost).await, Begun::NotHeld);
    assert_eq!(desk.begin(&taken.items[0]).await, Begun::Send);
    assert_eq!(desk.bench.kinds(key).await, ["accepted", "attempt_started"]);
}

pub async fn what_was_under_way_when_its_lease_ended_may_be_done<F: OutboxFactory>() {
    // Promise: a worker that was lost between its first byte and its report leaves an attempt of
    // unknown outcome, which the contract decides on.
    for (contract, state, operation, next) in [
        (Contract::Never, State::InDoubt, operation::State::InDoubt, None),
        (KEY, State::Queued, QUEUED, Some(Work::Send)),
        (Contract::AtLeastOnce, State::Queued, QUEUED, Some(Work::Send)),
        (LOOKUP, State::Queued, QUEUED, Some(Work::LookUp)),
        (KEY_AND_LOOKUP, State::Queued, QUEUED, Some(Work::Send)),
    ] {
        let desk = Desk::<F>::new();
        let key = desk.fresh("op-1", contract).await;
        desk.sending().await;
        desk.pass(LEASE);
        let claimed = desk.claim(10).await;
        assert!(claimed.items.is_empty(), "{contract:?}: there is a pause");
        let alarm = (state == State::InDoubt).then_some((key, Alarm::InDoubt));
        assert_eq!(claimed.alarms, Vec::from_iter(alarm), "{contract:?}");
        let item = desk.item(key).await;
        assert_eq!((item.attempts_count, item.unknown_count), (1, 1), "{contract:?}");
        assert_eq!(item.last_send_until, Some(at(LEASE)));
        desk.check(key, state, operation).await;
        desk.pass(secs(1));
        let again = desk.claim(10).await.items.pop().map(|item| item.work);
        assert_eq!(again, next, "{contract:?}");
    }
}

pub async fn only_the_holder_begins_to_send<F: OutboxFactory>() {
    // Promise: run and fence decide together; nobody else gets leave to send, and the asking costs
    // the item nothing.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let ghost = OperationKey::from_bytes([0xff; 16]);
    let queued = BeginSend { key, boot: BOOT, fence: 0, lease: LEASE };
    assert_eq!(desk.begin_all(&[queued]).await, [Begun::NotHeld]);
    let held = begin(&desk.one().await);
    let wrong = [
        BeginSend { boot: OTHER_BOOT, ..held },
        BeginSend { fence: 0, ..held },
        BeginSend { fence: 2, ..held },
        BeginSend { key: ghost, ..held },
    ];
    let before = desk.item(key).await;
    assert!(desk.begin_all(&wrong).await.iter().all(|begun| *begun == Begun::NotHeld));
    assert_eq!(desk.item(key).await, before);
    assert_eq!(desk.begin_all(&[held]).await, [Begun::Send]);
}

pub async fn a_beginning_is_recorded_before_the_first_byte<F: OutboxFactory>() {
    // Promise: leave to send is given after the attempt is on record, with a lease that covers the
    // whole request; asking again after a lost acknowledgement is the same attempt.
    let mut desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let item = desk.one().await;
    desk.pass(secs(10));
    assert_eq!(desk.begin(&item).await, Begun::Send);
    let begun = desk.item(key).await;
    assert_eq!((begun.state, begun.fence, begun.attempts_count), (State::Sending, 1, 1));
    assert_eq!(begun.first_dispatch_at, Some(at(secs(10))));
    assert_eq!(begun.lease.map(|lease| lease.until), Some(at(secs(10) + LEASE)));
    assert_eq!(begun.last_send_until, Some(at(secs(10) + LEASE)));
    desk.reopen().await;
    assert_eq!(desk.item(key).await, begun);
    desk.pass(secs(5));
    assert_eq!(desk.begin(&item).await, Begun::Send);
    let again = desk.item(key).await;
    assert_eq!((again.attempts_count, again.first_dispatch_at), (1, Some(at(secs(10)))));
    assert_eq!(again.lease.map(|lease| lease.until), Some(at(secs(15) + LEASE)));
    assert_eq!(again.last_send_until, Some(at(secs(15) + LEASE)));
    let short = BeginSend { lease: secs(1), ..begin(&item) };
    assert_eq!(desk.begin_all(&[short]).await, [Begun::Send]);
    assert_eq!(desk.item(key).await.lease, again.lease, "never shorter than it was");
    assert_eq!(desk.bench.kinds(key).await, ["accepted", "attempt_started"]);
    desk.report(&item, Happened::Sent(applied())).await;
    assert_eq!(desk.begin(&item).await, Begun::NotHeld);
}

pub async fn the_fence_decides_and_not_the_time<F: OutboxFactory>() {
    // Promise: a lease that ended and that nobody took back may still be begun and finished.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", Contract::Never).await;
    let item = desk.one().await;
    desk.pass(LEASE * 2);
    assert_eq!(desk.begin(&item).await, Begun::Send);
    desk.pass(LEASE * 2);
    let reported = desk.report(&item, Happened::Sent(applied())).await;
    assert!(!reported.fenced, "{reported:?}");
    desk.check(key, State::Delivered, operation::State::Applied).await;
}

pub async fn what_is_handed_back_cost_nothing<F: OutboxFactory>() {
    // Promise: a worker that has no time left gives an item back, which is due at once and lost no
    // attempt; only its holder does that.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", Contract::Never).await;
    let item = desk.one().await;
    let back =
        Reported { state: Some(State::Queued), alarm: None, fenced: false, parked_target: false };
    desk.pass(secs(1));
    assert_eq!(desk.report(&item, Happened::HandedBack).await, back);
    let queued = desk.item(key).await;
    assert_eq!((queued.attempts_count, queued.lease), (0, None));
    assert_eq!(queued.next_attempt_at, Some(at(secs(1))));
    assert_eq!(desk.report(&item, Happened::HandedBack).await, Reported { fenced: true, ..back });
    let next = desk.one().await;
    let held = desk.item(key).await;
    assert!(desk.report(&item, Happened::HandedBack).await.fenced);
    assert_eq!(desk.item(key).await, held);
    desk.begin(&next).await;
    // Its holder says that what was begun never left: it is not counted.
    assert_eq!(desk.report(&next, Happened::HandedBack).await, back);
    assert_eq!(desk.item(key).await.attempts_count, 0);
}

pub async fn what_comes_too_late_is_settled_and_not_sent<F: OutboxFactory>() {
    // Promise: after its time for delivery an item is begun by nobody, neither when it is claimed
    // nor between claim and first byte; what was never done is a dead letter.
    let within = |time| Terms { deliver_within: Some(time), ..terms(Contract::Never) };
    let desk = Desk::<F>::new();
    let claimed_late = desk.fresh_on(&call("claimed"), within(secs(60))).await;
    desk.pass(secs(60) - MS);
    let begun_late = desk.fresh_on(&call("begun"), within(secs(1))).await;
    let item = desk.claim(10).await.items.remove(1);
    assert_eq!(item.delivery.key, begun_late);
    desk.pass(LEASE);
    assert_eq!(desk.begin(&item).await, Begun::Withheld(Some(Alarm::DeadLetter)));
    let claimed = desk.claim(10).await;
    assert!(claimed.items.is_empty());
    assert_eq!(claimed.alarms, [(claimed_late, Alarm::DeadLetter)]);
    for key in [claimed_late, begun_late] {
        desk.check(key, State::DeadLetter, QUEUED).await;
        assert_eq!(desk.item(key).await.attempts_count, 0);
    }
}

pub async fn a_key_that_ended_since_the_claim_is_not_used<F: OutboxFactory>() {
    // Promise: what was safe to send when it was claimed is looked at again before the first byte.
    for (contract, begun, state, work) in [
        (KEY, Begun::Withheld(Some(Alarm::InDoubt)), State::InDoubt, None),
        (KEY_AND_LOOKUP, Begun::Withheld(None), State::Queued, Some(Work::LookUp)),
    ] {
        let desk = Desk::<F>::new();
        let key = desk.fresh("op-1", contract).await;
        desk.attempt(unknown()).await;
        desk.pass(KEY_USED_FOR - MS);
        let item = desk.one().await;
        assert_eq!(item.work, Work::Send);
        desk.pass(MS);
        assert_eq!(desk.begin(&item).await, begun, "{contract:?}");
        assert_eq!(desk.item(key).await.attempts_count, 1);
        assert_eq!(desk.item(key).await.state, state);
        assert_eq!(desk.claim(1).await.items.pop().map(|item| item.work), work);
    }
}

pub async fn lapsed_items_of_every_target_are_taken_back<F: OutboxFactory>() {
    // Promise: a target that nobody claims from any more keeps no item held for ever; each call does
    // a bounded part and says how much.
    let desk = Desk::<F>::new();
    let mut keys = Vec::new();
    for target in ["desk", "mail", "chat"] {
        desk.accept(&call(target), target, terms(KEY)).await;
        let claimed = desk.claim_as(Claim { target: name(target), ..claim(1) }).await;
        keys.push(claimed.items[0].delivery.key);
    }
    assert_eq!(
        desk.outbox.take_back_lapsed(UnderWay::default(), 10).await.map(|it| it.len()),
        Ok(0)
    );
    desk.pass(LEASE);
    assert_eq!(
        desk.outbox.take_back_lapsed(UnderWay::default(), 2).await.map(|it| it.len()),
        Ok(2)
    );
    assert_eq!(
        desk.outbox.take_back_lapsed(UnderWay::default(), 2).await.map(|it| it.len()),
        Ok(1)
    );
    assert_eq!(
        desk.outbox.take_back_lapsed(UnderWay::default(), 2).await.map(|it| it.len()),
        Ok(0)
    );
    for key in keys {
        let item = desk.item(key).await;
        assert_eq!((item.state, item.lease), (State::Queued, None));
    }
}

pub async fn when_to_ask_again_is_told<F: OutboxFactory>() {
    // Promise: nobody sleeps past an item: the time told is that of the first item due, of the first
    // lease to end, or of the next look at a parked target; none is told while nothing can change.
    let desk = Desk::<F>::new();
    assert_eq!(desk.next_due().await, None);
    desk.fresh("op-1", KEY).await;
    desk.pass(secs(5));
    assert_eq!(desk.next_due().await, Some(at(secs(0))));
    let claimed = desk.claim(1).await;
    assert_eq!(claimed.next_due, Some(at(secs(5) + LEASE)));
    assert_eq!(desk.next_due().await, claimed.next_due);
    let item = &claimed.items[0];
    desk.begin(item).await;
    let mut late = report(item, Happened::Sent(unreachable()));
    late.seed = super::LONGEST;
    desk.report_all(vec![late]).await;
    assert_eq!(desk.next_due().await, Some(at(secs(6))));
    desk.tell_target(TargetAction::Pause).await;
    assert_eq!(desk.next_due().await, None);
    desk.tell_target(TargetAction::Resume).await;
    desk.pass(secs(1));
    desk.attempt(unauthorized()).await;
    let probe_at = at(secs(6 + 5));
    assert_eq!(desk.next_due().await, Some(probe_at));
    let shut = desk.claim(1).await;
    assert_eq!((shut.items.len(), shut.next_due), (0, Some(probe_at)));
    assert_eq!(desk.outbox.next_due(name("elsewhere")).await, Ok(None));
}

pub async fn a_batch_is_decided_one_by_one<F: OutboxFactory>() {
    // Promise: answers come in the order of the questions; what one item is refused concerns no
    // other, and an item twice in one batch is told twice and done once.
    let desk = Desk::<F>::new();
    let first = desk.fresh("op-1", KEY).await;
    let second = desk.fresh("op-2", KEY).await;
    let items = desk.claim(10).await.items;
    let (a, b) = (begin(&items[0]), begin(&items[1]));
    let wrong = BeginSend { fence: 9, ..a };
    let begun = desk.begin_all(&[wrong, a, a, b]).await;
    assert_eq!(begun, [Begun::NotHeld, Begun::Send, Begun::Send, Begun::Send]);
    assert_eq!(desk.item(first).await.attempts_count, 1);
    let mut ghost = report(&items[0], Happened::Sent(applied()));
    ghost.key = OperationKey::from_bytes([0xff; 16]);
    let reported = desk
        .report_all(vec![
            report(&items[0], Happened::Sent(applied())),
            ghost,
            report(&items[0], Happened::Sent(refused())),
            report(&items[0], Happened::Sent(applied())),
            report(&items[1], Happened::Sent(refused())),
        ])
        .await;
    let told: Vec<_> = reported.iter().map(|told| (told.state, told.fenced)).collect();
    assert_eq!(
        told,
        [
            (Some(State::Delivered), false),
            (None, true),
            (Some(State::Delivered), true),
            (Some(State::Delivered), true),
            (Some(State::DeadLetter), false),
        ]
    );
    assert_eq!(reported[4].alarm, Some(Alarm::DeadLetter));
    desk.check(first, State::Delivered, operation::State::Applied).await;
    desk.check(second, State::DeadLetter, QUEUED).await;
    assert_eq!(desk.bench.kinds(first).await, ["accepted", "attempt_started", "delivered"]);
    assert_eq!(desk.begin_all(&[]).await, []);
    assert_eq!(desk.report_all(Vec::new()).await, []);
    assert_eq!(DESK, desk.item(first).await.target.as_str());
}
