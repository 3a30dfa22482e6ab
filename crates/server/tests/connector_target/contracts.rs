//! What each contract makes of an attempt whose outcome nobody knows.

use std::time::Duration;

use counterfoil_core::delivery::{ErrorClass, State};
use counterfoil_store::outbox::Directed;

use crate::desk::{Desk, Seen, Shelf, Wire, answer, created};
use crate::world::{World, desk};

const HTML: &str = "<html><h1>502 Bad Gateway</h1></html>";
const ARGUMENTS: &str = r#"{"subject":"printer"}"#;

/// Everything whose subject contains what is searched for.
fn search(seen: &Seen, shelf: &Shelf) -> Wire {
    let wanted = seen.path.split("q=").nth(1).expect("a search");
    let found: Vec<String> = shelf
        .effects
        .iter()
        .filter(|it| it.member("subject").contains(wanted))
        .enumerate()
        .map(|(at, it)| format!(r#"{{"id":"t-{at}","subject":"{}"}}"#, it.member("subject")))
        .collect();
    answer(200, "", &format!(r#"{{"items":[{}]}}"#, found.join(",")))
}

#[tokio::test]
async fn a_gateways_page_after_the_effect_makes_no_second_one() {
    // Promise: HTML with a 502 after the target applied is unknown and never a result: `key` sends
    // the same key again, `lookup` finds it, `never` leaves it to a person, each with one effect.
    for (contract, state, posts) in [
        ("key", State::Delivered, 2),
        ("lookup", State::Delivered, 1),
        ("never", State::InDoubt, 1),
    ] {
        let service = Desk::start(move |seen, shelf| {
            if seen.method == "GET" {
                return search(seen, shelf);
            }
            let is_first = shelf.seen.len() == 1;
            if contract == "key" {
                shelf.make_once(seen)
            } else {
                shelf.make(seen)
            }
            if is_first { answer(502, "content-type: text/html\r\n", HTML) } else { created() }
        })
        .await;
        let world = World::new(&desk(contract, &service.origin(), "/tickets")).await;
        let key = world.submit("op-1", ARGUMENTS).await;
        let view = world.settle(key).await;
        assert_eq!(view.delivery.state, state, "{contract}: {:?}", view.delivery);
        assert_eq!(service.effects(), 1, "{contract}");
        let sent = service.shelf().seen.iter().filter(|it| it.method == "POST").count();
        assert_eq!(sent, posts, "{contract}");
        let result = view.record.result.map(|result| result.as_json().to_owned());
        assert!(!result.unwrap_or_default().contains("html"), "{contract}");
    }
}

#[tokio::test]
async fn what_a_complete_search_did_not_find_in_time_is_sent_again() {
    // Promise: absence counts only so long after the last possible write; then, and not before, the
    // request goes out once more.
    let service = Desk::start(|seen, shelf| {
        if seen.method == "GET" {
            return search(seen, shelf);
        }
        if shelf.seen.len() == 1 {
            return Wire::Reset;
        }
        shelf.make(seen);
        created()
    })
    .await;
    let world = World::new(&desk("lookup", &service.origin(), "/tickets")).await;
    let key = world.submit("op-1", ARGUMENTS).await;
    let worker = world.work();
    service.arrived(2).await;
    worker.stop().await;
    let item = world.view(key).await.delivery;
    assert_eq!((item.state, item.unknown_count), (State::Queued, 1), "{item:?}");
    world.clock.advance(Duration::from_secs(6));
    let item = world.settle(key).await.delivery;
    assert_eq!((item.state, item.unknown_count), (State::Delivered, 0), "{item:?}");
    let methods: Vec<String> = service.shelf().seen.iter().map(|it| it.method.clone()).collect();
    assert_eq!(methods, ["POST", "GET", "GET", "POST"]);
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_search_that_may_have_missed_it_proves_nothing() {
    // Promise: a failed search, an answer without the list or with elements that cannot be judged,
    // and two matches never lead to another attempt.
    for (body, status) in [
        (r#"{"items":[{"id":"1"}]}"#, 200),
        (r#"{"items":[{"id":"1","subject":7}]}"#, 200),
        (r#"{"items":{}}"#, 200),
        ("{}", 200),
        ("<html></html>", 200),
        (r#"{"items":[]}"#, 206),
        (r#"{"items":[]}"#, 502),
        ("", 404),
        ("TWO", 200),
    ] {
        let service = Desk::start(move |seen, shelf| {
            if seen.method == "POST" {
                shelf.make(seen);
                return Wire::Reset;
            }
            let marker = seen.path.split("q=").nth(1).expect("a search");
            let two = format!(
                r#"{{"items":[{{"id":"1","subject":"{marker}"}},{{"id":"2","subject":"{marker}"}}]}}"#
            );
            answer(status, "", if body == "TWO" { &two } else { body })
        })
        .await;
        let world = World::new(&desk("lookup", &service.origin(), "/tickets")).await;
        let key = world.submit("op-1", ARGUMENTS).await;
        let worker = world.work();
        service.arrived(1).await;
        worker.stop().await;
        world.clock.advance(Duration::from_secs(60));
        let item = world.settle(key).await.delivery;
        assert_eq!(item.state, State::InDoubt, "{body}: {item:?}");
        let class = item.last_error.expect("told").0;
        let expected = if body == "TWO" { ErrorClass::ManyMatches } else { ErrorClass::LookupOpen };
        assert_eq!(class, expected, "{body}");
        let sent = service.shelf().seen.iter().filter(|it| it.method == "POST").count();
        assert_eq!(sent, 1, "{body}");
    }
}

#[tokio::test]
async fn a_proxys_not_found_is_not_the_targets() {
    // Promise: where a status tells of the effect, an absence counts only in the target's own shape;
    // a 404 of something in between proves nothing, and nothing is sent again.
    const STATUS: &str = "found = [200]\nabsent = [404]\nexternal_id = \"/id\"\n\
        absent_answer = { at = \"/error\", type = \"string\", values = [\"no such ticket\"] }\n";
    for (body, state, posts) in [
        ("<html>not here</html>", State::InDoubt, 1),
        (r#"{"error":"no route"}"#, State::InDoubt, 1),
        (r#"{"error":"no such ticket"}"#, State::Delivered, 2),
    ] {
        let service = Desk::start(move |seen, shelf| {
            if seen.method == "GET" {
                return answer(404, "", body);
            }
            if shelf.seen.len() == 1 { Wire::Reset } else { created() }
        })
        .await;
        let toml = desk("lookup", &service.origin(), "/tickets");
        let list = "items = \"/items\"\nfield = \"/subject\"\ncontains = \"{{ marker }}\"\n\
                    external_id = \"/id\"\ncomplete = true\n";
        assert!(toml.contains(list), "{toml}");
        let world = World::new(&toml.replace(list, STATUS)).await;
        let key = world.submit("op-1", ARGUMENTS).await;
        let worker = world.work();
        service.arrived(1).await;
        worker.stop().await;
        world.clock.advance(Duration::from_secs(60));
        let item = world.settle(key).await.delivery;
        assert_eq!(item.state, state, "{body}: {item:?}");
        let sent = service.shelf().seen.iter().filter(|it| it.method == "POST").count();
        assert_eq!(sent, posts, "{body}");
    }
}

#[tokio::test]
async fn one_key_for_all_attempts_restarts_and_redrives() {
    // Promise: the target sees the same Idempotency-Key and body over attempts, a restart of the
    // worker and a redrive; what ran out of attempts is a dead letter that is told, listed and
    // survives the restart.
    let service = Desk::start(|seen, shelf| {
        shelf.make_once(seen);
        if shelf.seen.len() <= 4 { answer(503, "", "busy") } else { created() }
    })
    .await;
    let mut world = World::new(&desk("key", &service.origin(), "/tickets")).await;
    let key = world.submit("op-1", ARGUMENTS).await;
    let item = world.settle(key).await.delivery;
    assert_eq!((item.state, item.attempts_count), (State::DeadLetter, 3), "{item:?}");
    let kinds: Vec<String> = world.audit(key).await.into_iter().map(|it| it.0).collect();
    assert!(kinds.contains(&"dead_letter".to_owned()), "{kinds:?}");
    world.restart().await;
    let stats = world.engine.outbox_stats().await.expect("readable").expect("an outbox");
    assert_eq!(stats.counts[State::DeadLetter as usize], 1);
    assert!(matches!(world.redrive(key).await, Directed::Done(_)));
    world.restart().await;
    let item = world.settle(key).await.delivery;
    assert_eq!((item.state, item.attempts_count), (State::Delivered, 5), "{item:?}");
    let shelf = service.shelf();
    let first = &shelf.seen[0];
    assert!(!first.header("idempotency-key").is_empty());
    for seen in &shelf.seen {
        assert_eq!(seen.header("idempotency-key"), first.header("idempotency-key"));
        assert_eq!((&seen.body, &seen.path), (&first.body, &first.path));
    }
    assert_eq!((shelf.seen.len(), shelf.effects.len()), (5, 1));
}

#[tokio::test]
async fn a_webhook_without_keys_is_not_called_twice_unless_that_was_chosen() {
    // Promise: accepted and then answered with 500 is unknown; only `at_least_once` sends it again.
    for (contract, state, requests) in
        [("never", State::InDoubt, 1), ("at_least_once", State::Delivered, 2)]
    {
        let service = Desk::start(|seen, shelf| {
            shelf.make(seen);
            if shelf.seen.len() == 1 { answer(500, "", "oops") } else { created() }
        })
        .await;
        let world = World::new(&desk(contract, &service.origin(), "/hook")).await;
        let key = world.submit("op-1", ARGUMENTS).await;
        let item = world.settle(key).await.delivery;
        assert_eq!(item.state, state, "{contract}: {item:?}");
        assert_eq!(service.requests(), requests, "{contract}");
    }
}
