//! What is put into the outbox, and what a repeat gets.

use std::sync::Arc;

use counterfoil_core::delivery::{Contract, Delivery, State, TargetState};
use counterfoil_core::record::Nature;
use counterfoil_core::refusal::{Code, Refusal};
use counterfoil_store::outbox::{Accepted, DeliveryView, Happened, Which};

use super::super::calls::{TestCall, call};
use super::super::effects::note;
use super::{
    ABANDON, DAY, DESK, Desk, KEY, LEASE, OutboxFactory, QUEUED, acceptance, applied, at, name,
    refused, secs, terms, unknown,
};

async fn duplicate<F: OutboxFactory>(desk: &Desk<F>, call: &TestCall) -> DeliveryView {
    match desk.accept(call, DESK, terms(KEY)).await {
        Accepted::Duplicate(view) => *view,
        other => panic!("{}: wanted Duplicate, got {other:?}", call.id),
    }
}

async fn refusal<F: OutboxFactory>(desk: &Desk<F>, call: &TestCall) -> Refusal {
    match desk.accept(call, DESK, terms(KEY)).await {
        Accepted::Refused(refusal) => refusal,
        other => panic!("{}: wanted Refused, got {other:?}", call.id),
    }
}

pub async fn an_accepted_call_is_kept_whole<F: OutboxFactory>() {
    // Promise: record, item, request and audit event are there together, and after a restart too.
    let mut desk = Desk::<F>::new();
    let call = call("op-1");
    let terms = counterfoil_core::delivery::Terms { deliver_within: Some(DAY), ..terms(KEY) };
    let Accepted::Fresh(view) = desk.accept(&call, DESK, terms).await else { panic!("not fresh") };
    let key = view.record.key;
    desk.reopen().await;
    assert_eq!(desk.view(key).await, *view);
    assert_eq!(view.delivery, Delivery::accepted(key, name(DESK), terms, at(secs(0))));
    assert_eq!(view.delivery.deliver_by, Some(at(DAY)));
    assert_eq!(view.target, TargetState::default());
    let record = &view.record;
    assert_eq!((record.nature, record.state, &record.result), (Nature::Deferred, QUEUED, &None));
    assert_eq!((record.settled_at, record.retention_ends_at), (None, None));
    assert_eq!((record.principal.as_str(), record.tool_id.as_str()), ("alice", "create_note"));
    let [event] = &desk.bench.audit(key).await[..] else { panic!("one event") };
    assert_eq!(
        (event.kind.as_str(), event.who.as_str(), event.at),
        ("accepted", "alice", at(secs(0)))
    );
    assert_eq!(event.identity, "op-1");
    assert_eq!(*desk.one().await.request, *b"POST /op-1");
}

pub async fn a_repeat_gets_the_item_as_it_is_now<F: OutboxFactory>() {
    // Promise: whatever became of it, a repeat tells that, changes nothing of it, makes no second
    // item, and is on record.
    let desk = Desk::<F>::new();
    let (call, key) = (call("op-1"), desk.fresh("op-1", KEY).await);
    let mut count = 0;
    let mut states = Vec::new();
    let mut tell = async || {
        let before = desk.view(key).await;
        assert_eq!(duplicate(&desk, &call).await, before);
        assert_eq!(desk.view(key).await, before);
        count += 1;
        let kinds = desk.bench.kinds(key).await;
        let repeats = kinds.iter().filter(|kind| *kind == "duplicate_submission").count();
        assert_eq!(
            (repeats, kinds.last().map(String::as_str)),
            (count, Some("duplicate_submission"))
        );
        states.push(before.delivery.state);
    };
    tell().await;
    let item = desk.one().await;
    tell().await;
    desk.begin(&item).await;
    tell().await;
    desk.report(&item, Happened::Sent(refused())).await;
    tell().await;
    desk.order(key, super::REDRIVE).await;
    let item = desk.sending().await;
    desk.report(&item, Happened::Sent(applied())).await;
    tell().await;
    assert_eq!(
        states,
        [State::Queued, State::Leased, State::Sending, State::DeadLetter, State::Delivered]
    );
    assert!(desk.claim(10).await.items.is_empty());
}

pub async fn what_was_accepted_is_frozen<F: OutboxFactory>() {
    // Promise: an item keeps its target, its terms and its request, whatever the configuration
    // says when the call comes again.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", Contract::Never).await;
    let mut again = acceptance(&call("op-1"), "elsewhere", terms(Contract::AtLeastOnce));
    again.request = Arc::from(&b"another"[..]);
    let Ok(Accepted::Duplicate(view)) = desk.outbox.accept(again).await else {
        panic!("not a duplicate")
    };
    assert_eq!((&view.delivery.target, view.delivery.terms), (&name(DESK), terms(Contract::Never)));
    assert_eq!(view.record.key, key);
    assert_eq!(*desk.one().await.request, *b"POST /op-1");
}

pub async fn another_request_or_principal_conflicts_alike<F: OutboxFactory>() {
    // Promise: an ID is bound to its request and its principal; the two conflicts are told apart by
    // nobody, and leave no trace.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let before = (desk.view(key).await, desk.bench.audit(key).await);
    let other_request = TestCall { arguments: r#"{"title":"two"}"#, ..call("op-1") };
    let other_principal = TestCall { principal: "bob", ..call("op-1") };
    let first = refusal(&desk, &other_request).await;
    assert_eq!(first.code(), Code::OperationConflict);
    assert_eq!(refusal(&desk, &other_principal).await, first);
    assert_eq!((desk.view(key).await, desk.bench.audit(key).await), before);
    let other_tenant = TestCall { tenant: "other", ..call("op-1") };
    let own = desk.fresh_on(&other_tenant, terms(KEY)).await;
    assert_ne!(own, key);
}

pub async fn a_local_operation_is_no_delivery<F: OutboxFactory>() {
    // Promise: an ID that a local effect has is not accepted as new work, and has no item.
    let desk = Desk::<F>::new();
    let call = call("op-1");
    let record = desk.bench.fresh(&call, &note("body")).await;
    assert_eq!(refusal(&desk, &call).await.code(), Code::OperationConflict);
    assert_eq!(desk.find(Which::Key(record.key)).await, None);
    assert_eq!(desk.find(Which::Operation(call.tenant(), call.operation_id())).await, None);
}

pub async fn the_revoked_have_nothing_accepted<F: OutboxFactory>() {
    // Promise: from the moment on at which a principal or its tenant is revoked nothing is accepted
    // of it, a repeat neither, and nobody else is concerned.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    for whole_tenant in [false, true] {
        desk.revoke(&call("x"), whole_tenant, true).await;
        for id in ["op-1", "new"] {
            let refused = refusal(&desk, &call(id)).await;
            assert_eq!(refused.code(), Code::OperationAuthorityExpired, "{refused}");
        }
        let bob = TestCall { principal: "bob", ..call(&format!("bob-{whole_tenant}")) };
        let bobs = desk.accept(&bob, DESK, terms(KEY)).await;
        assert_eq!(matches!(bobs, Accepted::Refused(_)), whole_tenant, "{bobs:?}");
        let far = TestCall { tenant: "far", ..call(&format!("far-{whole_tenant}")) };
        desk.fresh_on(&far, terms(KEY)).await;
        desk.revoke(&call("x"), whole_tenant, false).await;
    }
    assert_eq!(desk.bench.kinds(key).await, ["accepted"]);
    duplicate(&desk, &call("op-1")).await;
    desk.fresh("new", KEY).await;
}

pub async fn of_many_callers_one_makes_the_item<F: OutboxFactory>() {
    // Promise: however many ask at once under one ID, there is one item.
    let desk = Desk::<F>::new();
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let outbox = Arc::clone(&desk.outbox);
            let asked = acceptance(&call("op-1"), DESK, terms(KEY));
            tokio::spawn(async move { outbox.accept(asked).await.expect("the ledger works") })
        })
        .collect();
    let mut fresh_count = 0;
    for task in tasks {
        match task.await.expect("ends") {
            Accepted::Fresh(_) => fresh_count += 1,
            Accepted::Duplicate(_) => {}
            Accepted::Refused(refusal) => panic!("{refusal}"),
        }
    }
    assert_eq!(fresh_count, 1);
    assert_eq!(desk.claim(16).await.items.len(), 1);
}

pub async fn a_settled_delivery_expires_and_an_open_one_never<F: OutboxFactory>() {
    // Promise: retention takes the result of what is settled and then refuses its ID; a dead letter
    // and what waits are kept, with what is needed to send them.
    let desk = Desk::<F>::new();
    let delivered = desk.fresh("delivered", KEY).await;
    desk.attempt(applied()).await;
    let dead = desk.fresh("dead", KEY).await;
    desk.attempt(refused()).await;
    let gone = desk.fresh("abandoned", KEY).await;
    desk.attempt(refused()).await;
    desk.order(gone, ABANDON).await;
    let waiting = desk.fresh("waiting", KEY).await;
    desk.attempt(unknown()).await;
    desk.bench.purge_all().await;
    desk.bench.live(31).await;
    assert_eq!(desk.bench.purge_all().await, (2, 0));
    for (key, id) in [(delivered, "delivered"), (gone, "abandoned")] {
        let view = desk.view(key).await;
        assert!(view.record.purged && view.record.result.is_none(), "{id}");
        assert_eq!(refusal(&desk, &call(id)).await.code(), Code::OperationRetentionExpired);
    }
    duplicate(&desk, &call("waiting")).await;
    assert_eq!(duplicate(&desk, &call("dead")).await.delivery.key, dead);
    desk.order(dead, super::REDRIVE).await;
    let claimed = desk.claim(10).await;
    let requests: Vec<&[u8]> = claimed.items.iter().map(|item| &*item.request).collect();
    assert_eq!(requests, [b"POST /dead"]);
    // Its key's lifetime has ended long ago.
    assert_eq!(desk.item(waiting).await.state, State::InDoubt);
    desk.pass(LEASE);
}
