//! What stands against a whole target, or against whoever asked: nothing is burnt by it.

use counterfoil_core::delivery::{
    Contract, ErrorClass, ParkReason, Parked, Paused, State, TargetState,
};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::operation;
use counterfoil_store::outbox::{Begun, Claim, Happened, Revoked, TargetAction, TargetOrder};

use super::super::calls::{TestCall, call, caller};
use super::{
    CANCEL, DAY, DESK, Desk, KEY, OutboxFactory, QUEUED, applied, at, claim, name, refused, secs,
    terms, unauthorized, unknown, unreachable,
};

pub async fn a_parked_target_is_tried_with_one_item_at_a_time<F: OutboxFactory>() {
    // Promise: an answer that stops everybody parks the target once, and costs no item an attempt;
    // then one item tries it now and then, at growing pauses, until it answers again.
    let mut desk = Desk::<F>::new();
    for number in 0..4 {
        desk.fresh(&format!("op-{number}"), Contract::Never).await;
    }
    let items = desk.claim(2).await.items;
    for (item, news) in items.iter().zip([true, false]) {
        desk.begin(item).await;
        let reported = desk.report(item, Happened::Sent(unauthorized())).await;
        assert_eq!((reported.state, reported.parked_target), (Some(State::Queued), news));
        assert_eq!(reported.alarm, None);
        assert_eq!(desk.item(item.delivery.key).await.attempts_count, 0);
    }
    let parked = |probes_count, probe_at| {
        Some(Parked {
            class: ErrorClass::Credential,
            words: "refused".into(),
            since: at(secs(0)),
            probes_count,
            probe_at,
        })
    };
    desk.reopen().await;
    assert_eq!(desk.view(items[0].delivery.key).await.target.parked, parked(0, at(secs(5))));
    desk.pass(secs(4));
    assert!(desk.claim(10).await.items.is_empty());
    desk.pass(secs(1));
    let probe = desk.one().await;
    assert!(probe.delivery.lease.is_some_and(|lease| lease.probe));
    assert!(desk.claim(10).await.items.is_empty(), "nobody else tries before the next turn");
    assert_eq!(desk.view(probe.delivery.key).await.target.parked, parked(1, at(secs(15))));
    desk.begin(&probe).await;
    let reported = desk.report(&probe, Happened::Sent(unauthorized())).await;
    assert!(!reported.parked_target);
    assert_eq!(desk.item(probe.delivery.key).await.attempts_count, 0);
    desk.pass(secs(10));
    desk.attempt(applied()).await;
    assert_eq!(desk.view(probe.delivery.key).await.target, TargetState::default());
    assert_eq!(desk.claim(10).await.items.len(), 3);
}

pub async fn a_target_is_parked_apart_from_the_others<F: OutboxFactory>() {
    // Promise: what stands against one target stops no other.
    let desk = Desk::<F>::new();
    desk.fresh("op-1", KEY).await;
    desk.accept(&call("op-2"), "mail", terms(KEY)).await;
    desk.attempt(unauthorized()).await;
    desk.pass(secs(1));
    assert!(desk.claim(10).await.items.is_empty());
    let others = desk.claim_as(Claim { target: name("mail"), ..claim(10) }).await;
    assert_eq!(others.items.len(), 1);
    assert!(others.items[0].delivery.lease.is_some_and(|lease| !lease.probe));
}

pub async fn a_pause_stops_everything_and_a_resume_tries_at_once<F: OutboxFactory>() {
    // Promise: an operator's pause gives nobody an item, however long; a resume lets a parked target
    // be tried at once; who and why are kept.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    desk.attempt(unauthorized()).await;
    desk.tell_target(TargetAction::Pause).await;
    let paused = Paused { who: "olga".into(), reason: "seen".into(), since: at(secs(0)) };
    assert_eq!(desk.view(key).await.target.paused, Some(paused.clone()));
    desk.pass(DAY);
    assert!(desk.claim(10).await.items.is_empty());
    desk.tell_target(TargetAction::Pause).await;
    assert_eq!(desk.view(key).await.target.paused, Some(paused), "since when stays");
    desk.tell_target(TargetAction::Resume).await;
    assert_eq!(desk.view(key).await.target.paused, None);
    let probe = desk.one().await;
    desk.begin(&probe).await;
    desk.report(&probe, Happened::Sent(unauthorized())).await;
    desk.pass(secs(1));
    assert!(desk.claim(10).await.items.is_empty());
    desk.tell_target(TargetAction::Resume).await;
    assert!(desk.one().await.delivery.lease.is_some_and(|lease| lease.probe));
}

pub async fn a_pause_holds_for_what_a_worker_has_already<F: OutboxFactory>() {
    // Promise: after an operator's pause no request begins; what is held goes back and lost nothing,
    // and what has begun is believed.
    let desk = Desk::<F>::new();
    let held = desk.fresh("held", KEY).await;
    let begun = desk.fresh("begun", KEY).await;
    let items = desk.claim(2).await.items;
    assert_eq!(desk.begin(&items[1]).await, Begun::Send);
    desk.tell_target(TargetAction::Pause).await;
    assert_eq!(desk.begin(&items[0]).await, Begun::Withheld(None));
    let item = desk.item(held).await;
    assert_eq!((item.state, item.attempts_count, item.lease), (State::Queued, 0, None));
    desk.report(&items[1], Happened::Sent(applied())).await;
    desk.check(begun, State::Delivered, operation::State::Applied).await;
    desk.tell_target(TargetAction::Resume).await;
    desk.attempt(applied()).await;
    desk.check(held, State::Delivered, operation::State::Applied).await;
}

pub async fn a_target_that_nobody_knows_yet_can_be_paused<F: OutboxFactory>() {
    // Promise: an operator can stop a target before its first item comes, and sees it in the list.
    let desk = Desk::<F>::new();
    let order = |action| TargetOrder {
        target: name(DESK),
        action,
        who: "olga".into(),
        reason: "not yet".into(),
    };
    let state = desk.outbox.direct_target(order(TargetAction::Pause)).await.expect("works");
    assert!(state.paused.is_some());
    desk.fresh("op-1", KEY).await;
    assert!(desk.claim(10).await.items.is_empty());
    let listed = desk.outbox.targets().await.expect("readable");
    assert_eq!((listed.len(), &listed[0].state), (1, &state));
    let state = desk.outbox.direct_target(order(TargetAction::Resume)).await.expect("works");
    assert_eq!(state, TargetState::default());
    desk.one().await;
}

pub async fn a_probe_of_an_open_breaker_burns_no_attempt<F: OutboxFactory>() {
    // Promise: one item tries a target whose breaker is open; that nobody answered costs it nothing.
    let desk = Desk::<F>::new();
    for number in 0..3 {
        desk.fresh(&format!("op-{number}"), Contract::Never).await;
    }
    let claimed = desk.claim_as(Claim { probe: true, ..claim(10) }).await;
    assert_eq!(claimed.items.len(), 1);
    let probe = &claimed.items[0];
    assert!(probe.delivery.lease.is_some_and(|lease| lease.probe));
    desk.begin(probe).await;
    desk.report(probe, Happened::Sent(unreachable())).await;
    let item = desk.item(probe.delivery.key).await;
    assert_eq!((item.state, item.attempts_count), (State::Queued, 0));
}

pub async fn items_of_targets_that_are_gone_wait_for_them<F: OutboxFactory>() {
    // Promise: an item whose connector was removed is parked and loses nothing; it goes on when the
    // connector is there again. Each call does a bounded part.
    let desk = Desk::<F>::new();
    let mut keys = Vec::new();
    for number in 0..3 {
        keys.push(desk.fresh(&format!("op-{number}"), KEY).await);
    }
    desk.accept(&call("mail"), "mail", terms(KEY)).await;
    let held = desk.claim_as(Claim { target: name("mail"), ..claim(1) }).await.items;
    let mail = || vec![name("mail")];
    assert_eq!(desk.outbox.match_targets(mail(), 2).await, Ok(2));
    assert_eq!(desk.outbox.match_targets(mail(), 2).await, Ok(1));
    assert_eq!(desk.outbox.match_targets(mail(), 2).await, Ok(0));
    for key in &keys {
        let item = desk.item(*key).await;
        assert_eq!((item.state, item.park), (State::Parked, Some(ParkReason::TargetUnknown)));
        assert_eq!(desk.bench.kinds(*key).await, ["accepted", "parked"]);
    }
    assert_eq!(desk.next_due().await, None);
    assert!(desk.claim(10).await.items.is_empty());
    desk.pass(secs(7));
    let both = vec![name(DESK), name("mail")];
    assert_eq!(desk.outbox.match_targets(both, 10).await, Ok(3));
    for key in &keys {
        let item = desk.item(*key).await;
        assert_eq!((item.state, item.park, item.attempts_count), (State::Queued, None, 0));
        assert_eq!(item.next_attempt_at, Some(at(secs(7))));
    }
    assert_eq!(desk.begin(&held[0]).await, Begun::Send);
}

pub async fn only_what_its_reason_parked_is_released<F: OutboxFactory>() {
    // Promise: a connector that is there again releases no item of the revoked, and a restored
    // principal none whose connector is gone.
    let desk = Desk::<F>::new();
    let revoked = desk.fresh("revoked", KEY).await;
    let item = desk.one().await;
    desk.revoke(&call("x"), false, true).await;
    desk.begin(&item).await;
    let bob = TestCall { principal: "bob", ..call("bob") };
    let homeless = desk.fresh_on(&bob, terms(KEY)).await;
    assert_eq!(desk.outbox.match_targets(Vec::new(), 10).await, Ok(1));
    assert_eq!(desk.outbox.match_targets(vec![name("mail")], 10).await, Ok(0));
    desk.revoke(&bob, false, true).await;
    desk.revoke(&bob, false, false).await;
    assert_eq!(desk.item(homeless).await.park, Some(ParkReason::TargetUnknown));
    assert_eq!(desk.outbox.match_targets(vec![name(DESK)], 10).await, Ok(1));
    assert_eq!(desk.item(homeless).await.state, State::Queued);
    assert_eq!(desk.item(revoked).await.park, Some(ParkReason::PrincipalRevoked));
}

pub async fn the_revoked_are_stopped_before_the_first_byte<F: OutboxFactory>() {
    // Promise: after a revocation no request of that principal, or of that tenant, begins, not even
    // one that a worker holds already; a restore sends them all, once nothing else stands against
    // them.
    for (whole_tenant, reason) in
        [(false, ParkReason::PrincipalRevoked), (true, ParkReason::TenantRevoked)]
    {
        let desk = Desk::<F>::new();
        let held = desk.fresh("held", KEY).await;
        let item = desk.one().await;
        let waiting = desk.fresh("waiting", KEY).await;
        let far = TestCall { tenant: "far", ..call("far") };
        let others = desk.fresh_on(&far, terms(KEY)).await;
        desk.revoke(&call("x"), whole_tenant, true).await;
        assert_eq!(desk.begin(&item).await, Begun::Withheld(None));
        let claimed = desk.claim(10).await;
        let keys: Vec<OperationKey> = claimed.items.iter().map(|item| item.delivery.key).collect();
        assert_eq!(keys, [others]);
        assert!(claimed.alarms.is_empty());
        for key in [held, waiting] {
            let item = desk.item(key).await;
            assert_eq!((item.state, item.park, item.lease), (State::Parked, Some(reason), None));
            assert_eq!((item.attempts_count, item.next_attempt_at), (0, None));
            desk.check(key, State::Parked, QUEUED).await;
        }
        assert_eq!(desk.begin(&item).await, Begun::NotHeld);
        desk.pass(secs(9));
        desk.revoke(&call("x"), whole_tenant, false).await;
        for key in [held, waiting] {
            let item = desk.item(key).await;
            assert_eq!((item.state, item.park), (State::Queued, None));
            assert_eq!(item.next_attempt_at, Some(at(secs(9))));
            let last = desk.bench.audit(key).await.pop().expect("an event");
            assert_eq!((last.kind.as_str(), last.who.as_str()), ("unparked", "olga"));
        }
        assert_eq!(desk.claim(10).await.items.len(), 2);
    }
}

pub async fn whoever_is_revoked_twice_is_restored_twice<F: OutboxFactory>() {
    // Promise: an item goes on only when neither its principal nor its tenant is revoked.
    for principal_first in [false, true] {
        let desk = Desk::<F>::new();
        let key = desk.fresh("op-1", KEY).await;
        desk.revoke(&call("x"), false, true).await;
        desk.revoke(&call("x"), true, true).await;
        assert!(desk.claim(10).await.items.is_empty());
        assert_eq!(desk.item(key).await.state, State::Parked);
        desk.revoke(&call("x"), !principal_first, false).await;
        assert_eq!(desk.item(key).await.state, State::Parked);
        desk.revoke(&call("x"), principal_first, false).await;
        assert_eq!(desk.item(key).await.state, State::Queued);
    }
}

pub async fn who_is_revoked_is_told<F: OutboxFactory>() {
    // Promise: the list says who, since when, by whom and why; the first word stands, and taking it
    // back leaves nothing.
    let mut desk = Desk::<F>::new();
    assert_eq!(desk.outbox.revoked().await, Ok(Vec::new()));
    desk.revoke(&call("x"), false, true).await;
    desk.pass(secs(5));
    desk.revoke(&call("x"), true, true).await;
    desk.revoke(&call("x"), false, true).await;
    desk.reopen().await;
    let caller = caller("local", "alice");
    let entry = |principal, since_s| Revoked {
        tenant: caller.tenant.clone(),
        principal,
        since: at(secs(since_s)),
        who: "olga".into(),
        reason: "left".into(),
    };
    let mut told = desk.outbox.revoked().await.expect("readable");
    told.sort_by_key(|entry| entry.principal.clone());
    assert_eq!(told, [entry(None, 5), entry(Some(caller.principal.clone()), 0)]);
    desk.revoke(&call("x"), false, false).await;
    desk.revoke(&call("x"), false, false).await;
    assert_eq!(desk.outbox.revoked().await, Ok(vec![entry(None, 5)]));
}

pub async fn what_is_under_way_at_a_revocation_is_believed<F: OutboxFactory>() {
    // Promise: a request that had begun is not undone: its answer settles the operation.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let item = desk.sending().await;
    desk.revoke(&call("x"), true, true).await;
    let reported = desk.report(&item, Happened::Sent(applied())).await;
    assert!(!reported.fenced);
    desk.check(key, State::Delivered, operation::State::Applied).await;
}

pub async fn one_item_is_held_back_by_its_holder_alone<F: OutboxFactory>() {
    // Promise: a worker that finds another account's credential parks the item that it holds, and no
    // other's; nothing was sent, so it can be cancelled as not applied.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let lost = desk.one().await;
    desk.report(&lost, Happened::HandedBack).await;
    let blocked = || Happened::Blocked(ParkReason::AccountChanged);
    let before = desk.view(key).await;
    assert!(desk.report(&lost, blocked()).await.fenced);
    assert_eq!(desk.view(key).await, before);
    let item = desk.one().await;
    let reported = desk.report(&item, blocked()).await;
    assert_eq!((reported.state, reported.fenced), (Some(State::Parked), false));
    let parked = desk.item(key).await;
    assert_eq!((parked.park, parked.lease), (Some(ParkReason::AccountChanged), None));
    assert!(desk.report(&item, blocked()).await.fenced);
    desk.revoke(&call("x"), false, true).await;
    desk.revoke(&call("x"), false, false).await;
    assert_eq!(desk.item(key).await.state, State::Parked);
    desk.order(key, CANCEL).await;
    desk.check(key, State::Cancelled, operation::State::NotApplied).await;
}

pub async fn a_refusal_of_one_item_opens_the_target<F: OutboxFactory>() {
    // Promise: any answer that speaks of the item and not of us shows that the target is well.
    for end in [refused(), unknown()] {
        let desk = Desk::<F>::new();
        desk.fresh("op-1", KEY).await;
        desk.fresh("op-2", KEY).await;
        let items = desk.claim(2).await.items;
        desk.begin(&items[0]).await;
        desk.report(&items[0], Happened::Sent(unauthorized())).await;
        desk.begin(&items[1]).await;
        let opens = end == refused();
        desk.report(&items[1], Happened::Sent(end)).await;
        let target = desk.view(items[0].delivery.key).await.target;
        // A server error says nothing of that.
        assert_eq!(target.parked.is_none(), opens);
    }
}
