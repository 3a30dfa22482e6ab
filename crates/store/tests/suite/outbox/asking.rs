//! What operators see of the outbox. Nothing that is asked for changes it.

use counterfoil_core::delivery::{ALL_STATES, ErrorClass, State, TargetName};
use counterfoil_core::identity::{OperationKey, Tenant};
use counterfoil_core::time::Timestamp;
use counterfoil_store::outbox::{
    DeliveryQuery, Happened, OutboxStats, TargetAction, TargetView, Which,
};
use counterfoil_store::{StoreError, UnderWay};

use super::super::calls::{TestCall, call};
use super::{
    CANCEL, DESK, Desk, KEY, OutboxFactory, applied, at, claim, name, order, refused, secs, terms,
    unauthorized, unknown,
};

async fn page<F: OutboxFactory>(
    desk: &Desk<F>,
    query: &DeliveryQuery,
) -> (Vec<String>, Option<OperationKey>) {
    let page = desk.outbox.deliveries(query.clone()).await.expect("readable");
    assert_eq!(page.damaged_count, 0);
    let ids = page.items.iter().map(|view| {
        assert_eq!(view.record.key, view.delivery.key);
        view.record.operation_id.to_string()
    });
    (ids.collect(), page.next)
}

pub async fn pages_hold_every_item_once_and_the_newest_first<F: OutboxFactory>() {
    // Promise: whoever follows the pages sees each item once, whatever is accepted meanwhile; the
    // last page says that it is the last, and no page is without bound.
    let desk = Desk::<F>::new();
    for number in 1..=6 {
        desk.fresh(&format!("op-{number}"), KEY).await;
    }
    desk.bench.fresh(&call("local"), &super::super::effects::note("body")).await;
    let two = DeliveryQuery { max_count: 4, ..DeliveryQuery::default() };
    let (ids, next) = page(&desk, &two).await;
    assert_eq!(ids, ["op-6", "op-5", "op-4", "op-3"]);
    desk.fresh("op-7", KEY).await;
    let rest = DeliveryQuery { after: next, ..two.clone() };
    assert_eq!(page(&desk, &rest).await, (vec!["op-2".into(), "op-1".into()], None));
    let exact = DeliveryQuery { max_count: 7, ..two };
    assert_eq!(page(&desk, &exact).await.1, None, "there is nothing more");
    for number in 8..=60 {
        desk.fresh(&format!("op-{number}"), KEY).await;
    }
    let (ids, next) = page(&desk, &DeliveryQuery::default()).await;
    assert_eq!(ids.len(), 50);
    assert!(next.is_some());
    let all = DeliveryQuery { max_count: usize::MAX, ..DeliveryQuery::default() };
    assert_eq!(page(&desk, &all).await.0.len(), 60);
}

pub async fn a_request_is_read_as_it_was_frozen<F: OutboxFactory>() {
    // Promise: an operator sees the very bytes that a worker sends, whatever became of the item.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let read = || async { desk.outbox.request(key).await.expect("readable") };
    let kept = read().await;
    let item = desk.sending().await;
    assert_eq!(kept, Some(item.request.clone()));
    desk.report(&item, Happened::Sent(applied())).await;
    assert_eq!(read().await, kept);
    let nowhere = OperationKey::from_bytes([0xee; 16]);
    assert_eq!(desk.outbox.request(nowhere).await.expect("readable"), None);
}

pub async fn a_list_holds_what_was_asked_for<F: OutboxFactory>() {
    // Promise: each filter holds by itself and with the others.
    let desk = Desk::<F>::new();
    desk.fresh("delivered", KEY).await;
    desk.attempt(applied()).await;
    desk.fresh("dead", KEY).await;
    desk.attempt(refused()).await;
    desk.fresh("retried", KEY).await;
    desk.attempt(unknown()).await;
    desk.pass(secs(10));
    desk.fresh("queued", KEY).await;
    desk.accept(&call("mail"), "mail", terms(KEY)).await;
    desk.fresh_on(&TestCall { tenant: "far", ..call("far") }, terms(KEY)).await;
    let any = DeliveryQuery::default;
    let far = Tenant::parse("far").expect("valid");
    let state = |state| vec![state];
    let all = ["far", "mail", "queued", "retried", "dead", "delivered"];
    let cases = [
        (any(), &all[..]),
        (DeliveryQuery { tenant: Some(far.clone()), ..any() }, &["far"]),
        (DeliveryQuery { target: Some(name("mail")), ..any() }, &["mail"]),
        (DeliveryQuery { target: Some(name("chat")), ..any() }, &[]),
        (DeliveryQuery { states: state(State::DeadLetter), ..any() }, &["dead"]),
        (
            DeliveryQuery { states: vec![State::Queued, State::Delivered], ..any() },
            &["far", "mail", "queued", "retried", "delivered"],
        ),
        (DeliveryQuery { class: Some(ErrorClass::Rejected), ..any() }, &["dead"]),
        (DeliveryQuery { class: Some(ErrorClass::ServerError), ..any() }, &["retried"]),
        (
            DeliveryQuery { accepted_until: Some(at(secs(9))), ..any() },
            &["retried", "dead", "delivered"],
        ),
        (DeliveryQuery { accepted_until: Some(at(secs(10))), ..any() }, &all),
        (
            DeliveryQuery {
                target: Some(name(DESK)),
                states: state(State::Queued),
                class: Some(ErrorClass::ServerError),
                accepted_until: Some(at(secs(0))),
                ..any()
            },
            &["retried"],
        ),
        (DeliveryQuery { tenant: Some(far), states: state(State::DeadLetter), ..any() }, &[]),
    ];
    for (query, expected) in cases {
        assert_eq!(page(&desk, &query).await.0, expected, "{query:?}");
        let mut one_by_one = Vec::new();
        let mut query = DeliveryQuery { max_count: 1, ..query };
        loop {
            let (ids, next) = page(&desk, &query).await;
            one_by_one.extend(ids);
            match next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        assert_eq!(one_by_one, expected, "{query:?}");
    }
}

pub async fn an_item_is_found_by_its_operation<F: OutboxFactory>() {
    // Promise: an item is found under its tenant and ID and under its key, and nowhere else.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let by_name = |tenant: &'static str, id| {
        let call = TestCall { tenant, ..call(id) };
        Which::Operation(call.tenant(), call.operation_id())
    };
    let view = desk.view(key).await;
    assert_eq!(desk.find(by_name("local", "op-1")).await, Some(view));
    assert_eq!(desk.find(by_name("other", "op-1")).await, None);
    assert_eq!(desk.find(by_name("local", "op-2")).await, None);
    assert_eq!(desk.find(Which::Key(OperationKey::from_bytes([0xff; 16]))).await, None);
}

fn counts(of: &[(State, u64)]) -> [u64; 8] {
    ALL_STATES.map(|state| {
        of.iter().find(|(counted, _)| *counted == state).map_or(0, |(_, count)| *count)
    })
}

async fn target<F: OutboxFactory>(desk: &Desk<F>, target: &TargetName) -> TargetView {
    let targets = desk.outbox.targets().await.expect("readable");
    targets.into_iter().find(|view| view.target == *target).expect("it is listed")
}

pub async fn counts_tell_what_is_where_and_since_when<F: OutboxFactory>() {
    // Promise: depth, oldest age, dead letters and parked targets are what the items say.
    let mut desk = Desk::<F>::new();
    assert_eq!(desk.outbox.outbox_stats().await, Ok(OutboxStats::default()));
    assert_eq!(desk.outbox.targets().await, Ok(Vec::new()));
    desk.fresh("delivered", KEY).await;
    desk.attempt(applied()).await;
    desk.fresh("dead", KEY).await;
    desk.attempt(refused()).await;
    desk.pass(secs(3));
    desk.fresh("leased", KEY).await;
    desk.one().await;
    desk.pass(secs(1));
    let cancelled = desk.fresh("cancelled", KEY).await;
    desk.order(cancelled, CANCEL).await;
    desk.fresh("queued", KEY).await;
    desk.accept(&call("mail"), "mail", terms(KEY)).await;
    let item = desk
        .claim_as(counterfoil_store::outbox::Claim { target: name("mail"), ..claim(1) })
        .await
        .items
        .remove(0);
    desk.begin(&item).await;
    desk.report(&item, counterfoil_store::outbox::Happened::Sent(unauthorized())).await;
    desk.tell_target(TargetAction::Pause).await;
    desk.reopen().await;
    let at_desk = [
        (State::Delivered, 1),
        (State::DeadLetter, 1),
        (State::Leased, 1),
        (State::Cancelled, 1),
        (State::Queued, 1),
    ];
    let names: Vec<String> = desk
        .outbox
        .targets()
        .await
        .expect("readable")
        .iter()
        .map(|view| view.target.to_string())
        .collect();
    assert_eq!(names, ["desk", "mail"]);
    let view = target(&desk, &name(DESK)).await;
    assert_eq!((view.counts, view.oldest), (counts(&at_desk), Some(at(secs(3)))));
    assert!(view.state.paused.is_some() && view.state.parked.is_none());
    let view = target(&desk, &name("mail")).await;
    assert_eq!((view.counts, view.oldest), (counts(&[(State::Queued, 1)]), Some(at(secs(4)))));
    assert!(view.state.parked.is_some());
    let mut all = counts(&at_desk);
    all[State::Queued as usize] += 1;
    let stats = desk.outbox.outbox_stats().await.expect("readable");
    let oldest: Option<Timestamp> = Some(at(secs(3)));
    assert_eq!(stats, OutboxStats { counts: all, oldest, parked_targets: 1, paused_targets: 1 });
}

pub async fn a_closed_outbox_takes_nothing<F: OutboxFactory>() {
    // Promise: after closing nothing is accepted, claimed or told.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let item = desk.one().await;
    let outbox = &desk.outbox;
    outbox.close().await.expect("closes");
    let asked = super::acceptance(&call("op-2"), DESK, terms(KEY));
    assert_eq!(outbox.accept(asked).await, Err(StoreError::Closed));
    assert_eq!(outbox.claim(claim(1)).await, Err(StoreError::Closed));
    assert_eq!(outbox.begin_send(vec![super::begin(&item)]).await, Err(StoreError::Closed));
    let told = super::report(&item, counterfoil_store::outbox::Happened::HandedBack);
    assert_eq!(outbox.report(vec![told]).await, Err(StoreError::Closed));
    assert_eq!(outbox.take_back_lapsed(UnderWay::default(), 1).await, Err(StoreError::Closed));
    assert_eq!(outbox.match_targets(Vec::new(), 1).await, Err(StoreError::Closed));
    let cancel = order(vec![Which::Key(key)], CANCEL);
    assert_eq!(outbox.direct(cancel).await, Err(StoreError::Closed));
    assert!(outbox.delivery(Which::Key(key)).await.is_err());
}
