//! What a worker's rounds do beside its loops, and beside other workers.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{Contract, State};
use counterfoil_core::identity::{BootId, OperationKey};
use counterfoil_engine::Engine;
use counterfoil_store::Outbox;
use counterfoil_store::outbox::{BeginSend, Begun, Claim, TargetAction, TargetOrder};

use crate::fake::Fake;
use crate::world::{Process, options, store, terms};

const MINUTE: Duration = Duration::from_secs(60);

async fn count(engine: &Arc<Engine>, key: OperationKey, kind: &str) -> usize {
    let events = engine.outbox().expect("it has one").audit(key).await.expect("readable");
    events.iter().filter(|event| event.kind == kind).count()
}

#[tokio::test(start_paused = true)]
async fn two_workers_with_different_targets_leave_each_others_items_alone() {
    // Promise: what a worker does not know it holds back once, when it starts; the worker that knows
    // it releases it, and then it stays released, however long both live.
    let store = store();
    let (desk, mail) = (Fake::well().arc(), Fake::well().named("mail").arc());
    let order = |action| TargetOrder {
        target: mail.target_name(),
        action,
        who: "olga".into(),
        reason: "maintenance".into(),
    };
    store.direct_target(order(TargetAction::Pause)).await.expect("works");
    let mut knows =
        Process::open(store.clone()).await.deliver(std::slice::from_ref(&mail), options());
    let key = knows.accept("op", &mail.target_name(), terms(Contract::Never)).await;
    let mut other = Process::open(store.clone()).await.deliver(&[desk], options());
    tokio::time::sleep(10 * MINUTE).await;
    let late = knows.accept("late", &mail.target_name(), terms(Contract::Never)).await;
    tokio::time::sleep(60 * MINUTE).await;
    for (key, most) in [(key, 1), (late, 0)] {
        assert_eq!(knows.item(key).await.delivery.state, State::Queued);
        assert_eq!(count(&knows.engine, key, "parked").await, most);
        assert_eq!(count(&knows.engine, key, "unparked").await, most);
    }
    store.direct_target(order(TargetAction::Resume)).await.expect("works");
    knows.all_rest_in(&[key, late], State::Delivered).await;
    knows.stop().await;
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_round_leaves_in_doubt_is_counted() {
    // Promise: an item that a dead worker was sending and that a round takes back is in the numbers
    // of its target, though this process has no loop for it.
    let store = store();
    let (desk, mail) = (Fake::well().arc(), Fake::well().named("mail").arc());
    let only = Some(vec![mail.target_name()]);
    let only_mail = counterfoil_engine::DelivererOptions { only, ..options() };
    let mut process = Process::open(store.clone()).await.deliver(&[desk.clone(), mail], only_mail);
    let key = process.accept("op", &desk.target_name(), terms(Contract::Never)).await;
    let boot = BootId::from_bytes([7; 16]);
    let claim = Claim {
        target: desk.target_name(),
        boot,
        lease: MINUTE,
        max_count: 1,
        probe: false,
        under_way: counterfoil_store::UnderWay::default(),
    };
    let fence = store.claim(claim).await.expect("works").items[0].delivery.fence;
    let begins = vec![BeginSend { key, boot, fence, lease: MINUTE }];
    assert_eq!(store.begin_send(begins).await.expect("works"), [Begun::Send]);
    process.all_rest_in(&[key], State::InDoubt).await;
    let numbers = process.engine.delivery_numbers().all();
    let desk_numbers = numbers.iter().find(|(name, _)| *name == desk.target_name());
    assert_eq!(desk_numbers.expect("counted").1.in_doubt_count(), 1);
    process.stop().await;
}
