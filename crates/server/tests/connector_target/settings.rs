//! A configuration that changes while items are queued.

use std::time::Duration;

use counterfoil_core::delivery::{ParkReason, State};
use counterfoil_store::outbox::{Directed, RevokeOrder};

use crate::desk::{Desk, Wire, answer, created};
use crate::world::{World, desk, tenant};

const ARGUMENTS: &str = r#"{"subject":"printer"}"#;

/// A desk that makes an effect at each request; the first connection is reset after it.
async fn forgetful() -> Desk {
    Desk::start(|seen, shelf| {
        shelf.make(seen);
        if shelf.seen.len() == 1 { Wire::Reset } else { created() }
    })
    .await
}

/// The same with a pause between attempts that no test waits for.
fn unhurried(toml: &str) -> String {
    toml.replace("backoff_base = \"1ms\"", "backoff_base = \"1h\"")
        .replace("backoff_cap = \"4ms\"", "backoff_cap = \"1h\"")
}

#[tokio::test]
async fn a_removed_connectors_items_wait_until_it_is_back() {
    // Promise: nothing is lost or sent elsewhere when a connector goes; when it is back, its items
    // are delivered.
    let service = Desk::start(|_, _| created()).await;
    let toml = desk("never", &service.origin(), "/tickets");
    let mut world = World::new(&toml).await;
    let key = world.submit("op-1", ARGUMENTS).await;
    world.configure(&toml.replace("connector.desk", "connector.other"));
    let item = world.settle(key).await.delivery;
    assert_eq!((item.state, item.park), (State::Parked, Some(ParkReason::TargetUnknown)));
    assert_eq!(service.requests(), 0);
    world.configure(&toml);
    let worker = world.work();
    service.arrived(1).await;
    worker.stop().await;
    assert_eq!(world.view(key).await.delivery.state, State::Delivered);
    assert_eq!(service.requests(), 1);
}

#[tokio::test]
async fn an_item_never_follows_its_connector_to_another_origin() {
    // Promise: a credential goes to the origin that is configured now, and a frozen request to the
    // one that it was made for; where they differ nothing is sent.
    let (old, new) = (Desk::start(|_, _| created()).await, Desk::start(|_, _| created()).await);
    let mut world = World::new(&desk("never", &old.origin(), "/tickets")).await;
    let key = world.submit("op-1", ARGUMENTS).await;
    world.configure(&desk("never", &new.origin(), "/tickets"));
    let item = world.settle(key).await.delivery;
    assert_eq!((item.state, item.park), (State::Parked, Some(ParkReason::AccountChanged)));
    assert_eq!((old.requests(), new.requests()), (0, 0));
    // Sent again while it still stands: it waits again. Put back: it goes where it was made for.
    assert!(matches!(world.redrive(key).await, Directed::Done(_)));
    assert_eq!(world.settle(key).await.delivery.state, State::Parked);
    world.configure(&desk("never", &old.origin(), "/tickets"));
    assert!(matches!(world.redrive(key).await, Directed::Done(_)));
    assert_eq!(world.settle(key).await.delivery.state, State::Delivered);
    assert_eq!((old.requests(), new.requests()), (1, 0));
}

#[tokio::test]
async fn what_may_be_done_under_one_account_is_neither_sent_nor_searched_for_under_another() {
    // Promise: a key of one account is unknown to another, and a search as another may not see what
    // is there: the item waits for a person.
    for contract in ["key", "lookup"] {
        let service = forgetful().await;
        let toml = unhurried(&desk(contract, &service.origin(), "/tickets"));
        let mut world = World::new(&toml).await;
        let key = world.submit("op-1", ARGUMENTS).await;
        let worker = world.work();
        service.arrived(1).await;
        worker.stop().await;
        assert_eq!(world.view(key).await.delivery.unknown_count, 1, "{contract}");
        world.configure(&toml.replace("account = \"bot\"", "account = \"other\""));
        world.clock.advance(Duration::from_secs(2 * 3600));
        let item = world.settle(key).await.delivery;
        let expected = (State::Parked, Some(ParkReason::AccountChanged));
        assert_eq!((item.state, item.park), expected, "{contract}: {item:?}");
        assert_eq!(service.requests(), 1, "{contract}");
    }
}

#[tokio::test]
async fn what_was_never_sent_may_go_out_under_a_new_account() {
    // Promise: an item that no service has seen does not wait for a person.
    let service = Desk::start(|_, _| created()).await;
    let toml = desk("never", &service.origin(), "/tickets");
    let mut world = World::new(&toml).await;
    let key = world.submit("op-1", ARGUMENTS).await;
    world.configure(&toml.replace("account = \"bot\"", "account = \"other\""));
    assert_eq!(world.settle(key).await.delivery.state, State::Delivered);
}

#[tokio::test]
async fn a_connector_edited_in_place_changes_no_frozen_request() {
    // Promise: what was accepted is sent as it was accepted, whatever the template says now.
    let service = Desk::start(|_, _| created()).await;
    let toml = desk("never", &service.origin(), "/tickets");
    let mut world = World::new(&toml).await;
    let key = world.submit("op-1", ARGUMENTS).await;
    let edited =
        toml.replace("/tickets", "/v2").replace("subject = \"{{ args", "title = \"{{ args");
    assert_ne!(edited, toml);
    world.configure(&edited);
    assert_eq!(world.settle(key).await.delivery.state, State::Delivered);
    let shelf = service.shelf();
    assert_eq!(shelf.seen[0].path, "/tickets");
    assert!(shelf.seen[0].member("subject").starts_with("printer [cf"));
}

#[tokio::test]
async fn a_search_whose_matches_are_others_now_proves_nothing() {
    // Promise: an edited lookup does not take what an item's own effect looks like for its absence,
    // nor somebody else's for its presence: neither is it sent again, nor called delivered.
    for (from, to) in [
        // The effect's subject holds the marker; its body does not.
        ("field = \"/subject\"", "field = \"/body\""),
        (
            "items = \"/items\"\nfield = \"/subject\"\ncontains = \"{{ marker }}\"\nexternal_id = \
             \"/id\"\ncomplete = true\n",
            "found = [200]\nabsent = [404]\nabsent_answer = { at = \"/error\", type = \"string\" }\n",
        ),
    ] {
        let service = Desk::start(|seen, shelf| {
            if seen.method == "GET" {
                return answer(200, "", r#"{"items":[{"id":"9","subject":"x","body":"y"}]}"#);
            }
            shelf.make(seen);
            Wire::Reset
        })
        .await;
        let toml = desk("lookup", &service.origin(), "/tickets");
        let mut world = World::new(&toml).await;
        let key = world.submit("op-1", ARGUMENTS).await;
        let worker = world.work();
        // The request, and a search that was too early to prove anything.
        service.arrived(2).await;
        worker.stop().await;
        let edited = toml.replace(from, to);
        assert_ne!(edited, toml);
        world.configure(&edited);
        world.clock.advance(Duration::from_secs(60));
        let item = world.settle(key).await.delivery;
        assert_eq!(item.state, State::InDoubt, "{to}: {item:?}");
        let posts = service.shelf().seen.iter().filter(|it| it.method == "POST").count();
        assert_eq!((posts, service.effects()), (1, 1), "{to}");
    }
}

#[tokio::test]
async fn a_revoked_tenants_items_wait_until_it_is_restored() {
    // Promise: nothing of a revoked tenant is sent, and nothing of it is lost.
    let service = Desk::start(|_, _| created()).await;
    let world = World::new(&desk("never", &service.origin(), "/tickets")).await;
    let key = world.submit("op-1", ARGUMENTS).await;
    let order = |revoked| RevokeOrder {
        tenant: tenant(),
        principal: None,
        revoked,
        who: "olga".into(),
        reason: "left".into(),
    };
    let outbox = world.engine.outbox().expect("it has one");
    outbox.set_revoked(order(true)).await.expect("writable");
    let item = world.settle(key).await.delivery;
    assert_eq!((item.state, item.park), (State::Parked, Some(ParkReason::TenantRevoked)));
    assert_eq!(service.requests(), 0);
    outbox.set_revoked(order(false)).await.expect("writable");
    assert_eq!(world.settle(key).await.delivery.state, State::Delivered);
    assert_eq!(service.requests(), 1);
}
