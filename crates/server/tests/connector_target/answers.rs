//! What each answer does to an item, from the wire to the ledger.

use std::time::Duration;

use counterfoil_core::delivery::{ErrorClass, State};

use crate::desk::{Desk, Wire, answer, created};
use crate::world::{World, desk};

const PLAIN: &str = "/tickets";
const WITH_ARGUMENT: &str = "/tickets/{{ args.subject }}";

/// How an item stands after one answer under contract `never` with one attempt.
#[derive(Debug, Clone, Copy)]
enum After {
    Delivered(&'static str),
    /// The attempt may have been done.
    InDoubt(ErrorClass),
    /// The attempt is proved to have done nothing.
    Dead(ErrorClass),
    /// The target is parked, and the attempt does not count.
    Parks(ErrorClass),
}

async fn check(path: &str, wire: Wire, expected: After) {
    let told = format!("{path} {wire:?}");
    let service = Desk::start(move |_, _| wire.clone()).await;
    let toml = desk("never", &service.origin(), path);
    let world = World::new(&toml.replace("max_attempts = 3", "max_attempts = 1")).await;
    let key = world.submit("op-1", r#"{"subject":"printer"}"#).await;
    let worker = world.work();
    service.arrived(1).await;
    worker.stop().await;
    let view = world.view(key).await;
    let item = &view.delivery;
    let class = item.last_error.as_ref().map(|(class, _)| *class);
    let parked = view.target.parked.as_ref().map(|parked| parked.class);
    match expected {
        After::Delivered(id) => {
            assert_eq!(item.state, State::Delivered, "{told}: {item:?}");
            assert_eq!(item.external_id.as_deref(), Some(id), "{told}");
        }
        After::InDoubt(expected) => {
            assert_eq!((item.state, class), (State::InDoubt, Some(expected)), "{told}");
            assert_eq!(item.unknown_count, 1, "{told}");
        }
        After::Dead(expected) => {
            assert_eq!((item.state, class), (State::DeadLetter, Some(expected)), "{told}");
            assert!(item.is_proved_absent(), "{told}: {item:?}");
        }
        After::Parks(expected) => {
            assert_eq!((item.state, parked), (State::Queued, Some(expected)), "{told}");
            assert_eq!((item.attempts_count, item.unknown_count), (0, 0), "{told}");
        }
    }
    assert_eq!(service.requests(), 1, "{told}: sent once");
}

#[tokio::test]
async fn statuses_prove_what_the_table_says_and_nothing_more() {
    // Promise: a status that is not listed leaves the outcome unknown; what stops everybody parks the
    // target; what speaks of one address ends that item alone.
    use After::{Dead, InDoubt, Parks};
    let cases: &[(&[u16], &str, After)] = &[
        (&[300, 302, 304, 307, 308], PLAIN, InDoubt(ErrorClass::Undeclared)),
        (&[200, 202, 204, 207], PLAIN, InDoubt(ErrorClass::Unreadable)),
        (&[400, 408, 409, 413, 415, 422, 451], PLAIN, InDoubt(ErrorClass::Undeclared)),
        (&[500, 501, 502, 503, 504, 599], PLAIN, InDoubt(ErrorClass::ServerError)),
        (&[401, 403, 407], PLAIN, Parks(ErrorClass::Credential)),
        (&[404, 405, 410], PLAIN, Parks(ErrorClass::Missing)),
        (&[401, 407], WITH_ARGUMENT, Parks(ErrorClass::Credential)),
        (&[403], WITH_ARGUMENT, Dead(ErrorClass::Credential)),
        (&[404, 405, 410], WITH_ARGUMENT, Dead(ErrorClass::Missing)),
        (&[429], PLAIN, Dead(ErrorClass::RateLimited)),
    ];
    for (statuses, path, expected) in cases {
        for status in *statuses {
            check(path, answer(*status, "", "<html>no</html>"), *expected).await;
        }
    }
    let limited = "x-ratelimit-remaining: 0\r\n";
    for path in [PLAIN, WITH_ARGUMENT] {
        check(path, answer(403, limited, ""), Dead(ErrorClass::RateLimited)).await;
    }
}

#[tokio::test]
async fn a_refusal_is_one_only_in_the_targets_own_shape() {
    // Promise: a proxy's 400 proves nothing; the target's own does.
    for status in [400, 413, 415, 422] {
        let own = answer(status, "", r#"{"error":"too long"}"#);
        check(PLAIN, own, After::Dead(ErrorClass::Rejected)).await;
        for body in [r#"{"error":7}"#, r#"{"error":"cut"#, "[]", "error"] {
            let other = answer(status, "", body);
            check(PLAIN, other, After::InDoubt(ErrorClass::Undeclared)).await;
        }
    }
}

#[tokio::test]
async fn a_success_without_the_promised_id_is_no_success() {
    // Promise: external IDs that are missing, null or not text never make an item delivered, and
    // neither does a page of HTML.
    for body in [
        "{}",
        r#"{"id":null}"#,
        r#"{"id":""}"#,
        r#"{"id":" "}"#,
        r#"{"id":{}}"#,
        r#"{"id":["t"]}"#,
        r#"{"id":true}"#,
        r#"{"id":1.5}"#,
        r#"{"id":"a\nb"}"#,
        r#"{"id":"t-1"} x"#,
        r#"{"id":"t-1","id":"t-2"}"#,
        "[]",
        "",
        "<html>created</html>",
    ] {
        check(PLAIN, answer(201, "", body), After::InDoubt(ErrorClass::Unreadable)).await;
    }
    check(PLAIN, answer(201, "", r#"{"id":"t-9"}"#), After::Delivered("t-9")).await;
    check(
        PLAIN,
        answer(201, "", r#"{"id":18446744073709551615}"#),
        After::Delivered("18446744073709551615"),
    )
    .await;
    // Of another success than the declared one, nothing is believed.
    let other = answer(200, "", r#"{"id":"t-9"}"#);
    check(PLAIN, other, After::InDoubt(ErrorClass::Unreadable)).await;
}

#[tokio::test]
async fn what_got_no_answer_is_unknown() {
    // Promise: a reset, a silence and a cut answer after the request has left are never taken for
    // "not sent".
    let no_reply = After::InDoubt(ErrorClass::NoReply);
    for wire in [Wire::Reset, Wire::Hang, Wire::Say(String::new()), Wire::Say("HTTP/1.1 2".into())]
    {
        check(PLAIN, wire, no_reply).await;
    }
    let cut = Wire::Say("HTTP/1.1 201 Created\r\ncontent-length: 99\r\n\r\n{\"id\":\"t\"}".into());
    check(PLAIN, cut, After::InDoubt(ErrorClass::Unreadable)).await;
}

#[tokio::test]
async fn what_never_left_is_sent_again() {
    // Promise: a refused connection and a name that does not resolve burn attempts and prove that
    // nothing was done.
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = closed.local_addr().expect("bound").port();
    drop(closed);
    for (origin, expected) in [
        (format!("http://127.0.0.1:{port}"), ErrorClass::Connect),
        ("http://no-such-host.invalid".into(), ErrorClass::Dns),
    ] {
        let world = World::new(&desk("never", &origin, PLAIN)).await;
        let key = world.submit("op-1", r#"{"subject":"printer"}"#).await;
        let item = world.settle(key).await.delivery;
        let class = item.last_error.as_ref().map(|(class, _)| *class);
        assert_eq!((item.state, class), (State::DeadLetter, Some(expected)), "{item:?}");
        assert_eq!(item.attempts_count, 3);
        assert!(item.is_proved_absent());
    }
}

/// The pause after a 429 with this header, and whether it parked the target.
async fn pause(value: &str) -> (Duration, bool) {
    let wire = answer(429, &format!("retry-after: {value}\r\n"), "");
    let service = Desk::start(move |_, _| wire.clone()).await;
    let toml = desk("never", &service.origin(), PLAIN)
        .replace("backoff_base = \"1ms\"", "backoff_base = \"50s\"")
        .replace("backoff_cap = \"4ms\"", "backoff_cap = \"100s\"");
    let world = World::new(&toml).await;
    let key = world.submit("op-1", r#"{"subject":"printer"}"#).await;
    let worker = world.work();
    service.arrived(1).await;
    worker.stop().await;
    let view = world.view(key).await;
    let due = view.delivery.next_attempt_at.expect("queued");
    (due.since(view.delivery.updated_at), view.target.parked.is_some())
}

#[tokio::test]
async fn a_pause_that_is_asked_for_is_kept_within_reason() {
    // Promise: nonsense falls back to our own pause, which is never zero; a past date is the
    // shortest pause; a date a minute ahead is waited for; a pause of years parks the target, and
    // no item sleeps longer than its cap.
    let (own, cap) = (Duration::from_secs(51), Duration::from_secs(100));
    for nonsense in ["-5", "abc", ""] {
        let (pause, parked) = pause(nonsense).await;
        assert!(!pause.is_zero() && pause < own && !parked, "{nonsense:?}: {pause:?}");
    }
    let (past, parked) = pause("Sun, 06 Nov 1994 08:49:37 GMT").await;
    assert!(past >= Duration::from_secs(1) && past < own && !parked, "{past:?}");
    let (asked, parked) = pause("60").await;
    assert!(asked >= Duration::from_secs(60) && asked <= cap && !parked, "{asked:?}");
    let ahead = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(75);
    let date = ahead.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let (asked, parked) = pause(&date).await;
    // The seconds that the test itself took are not waited for again.
    assert!(asked > own && asked <= cap && !parked, "{date}: {asked:?}");
    let (long, parked) = pause("1e9").await;
    assert!(long == cap && parked, "{long:?}");
}

#[tokio::test]
async fn a_date_between_two_seconds_is_waited_for_whole() {
    // Promise: a date that is 59.2 s ahead when the answer comes is waited for at least 60 s: a part
    // of a second is never cut off.
    let service = Desk::start(|_, _| {
        // Dates have whole seconds: the answer comes when 0.8 of one has passed.
        let past_the_second = || jiff::Timestamp::now().subsec_millisecond();
        while past_the_second() < 800 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ahead = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
        let date = ahead.strftime("%a, %d %b %Y %H:%M:%S GMT");
        answer(429, &format!("retry-after: {date}\r\n"), "")
    })
    .await;
    let toml = desk("never", &service.origin(), PLAIN)
        .replace("backoff_cap = \"4ms\"", "backoff_cap = \"100s\"");
    let world = World::new(&toml).await;
    let key = world.submit("op-1", r#"{"subject":"printer"}"#).await;
    let worker = world.work();
    service.arrived(1).await;
    worker.stop().await;
    let item = world.view(key).await.delivery;
    let pause = item.next_attempt_at.expect("queued").since(item.updated_at);
    // A machine that took a second for the answer has waited that second already.
    let (least, most) = (Duration::from_secs(60), Duration::from_secs(100));
    assert!(pause >= least && pause <= most, "{pause:?}");
}

#[tokio::test]
async fn a_search_that_is_refused_parks_the_target_and_costs_nothing() {
    // Promise: a credential that may not search is told as one that may not send: the target is
    // parked with the class, no search is spent, and when it may again the effect is found.
    for status in [401, 403] {
        let service = Desk::start(move |seen, shelf| {
            if seen.method == "POST" {
                shelf.make(seen);
                return Wire::Reset;
            }
            if shelf.seen.len() <= 6 {
                return answer(status, "", "who?");
            }
            let subject = shelf.effects[0].member("subject");
            answer(200, "", &format!(r#"{{"items":[{{"id":"t-1","subject":"{subject}"}}]}}"#))
        })
        .await;
        let world = World::new(&desk("lookup", &service.origin(), PLAIN)).await;
        let key = world.submit("op-1", r#"{"subject":"printer"}"#).await;
        let worker = world.work();
        service.arrived(2).await;
        worker.stop().await;
        while service.requests() <= 6 {
            let before = service.requests();
            let view = world.view(key).await;
            assert_eq!((view.delivery.state, view.delivery.lookups_count), (State::Queued, 0));
            assert_eq!(view.target.parked.expect("parked").class, ErrorClass::Credential);
            world.clock.advance(Duration::from_secs(301));
            let worker = world.work();
            service.arrived(before + 1).await;
            worker.stop().await;
        }
        let view = world.settle(key).await;
        assert_eq!(view.delivery.state, State::Delivered, "{status}: {:?}", view.delivery);
        assert_eq!((view.target.parked, service.effects()), (None, 1), "{status}");
    }
}

#[tokio::test]
async fn a_lost_credential_burns_no_attempt_and_loses_nothing() {
    // Promise: while a target answers 401 one item tries it now and then; when it accepts us again
    // everything is delivered, each with its first attempt.
    let service = Desk::start(|_, shelf| {
        let closed = shelf.seen.len() <= 4;
        if closed { answer(401, "", "who?") } else { created() }
    })
    .await;
    let world = World::new(&desk("never", &service.origin(), PLAIN)).await;
    let mut keys = Vec::new();
    for number in 0..3 {
        keys.push(world.submit(&format!("op-{number}"), r#"{"subject":"printer"}"#).await);
    }
    // All of the first claim may meet the 401; later only one item at a time does.
    let worker = world.work();
    service.arrived(1).await;
    worker.stop().await;
    while service.requests() <= 4 {
        let before = service.requests();
        for key in &keys {
            let view = world.view(*key).await;
            assert_eq!(view.delivery.state, State::Queued);
            assert_eq!(view.delivery.attempts_count, 0, "nothing burnt");
            assert_eq!(view.target.parked.expect("parked").class, ErrorClass::Credential);
        }
        world.clock.advance(Duration::from_secs(301));
        let worker = world.work();
        service.arrived(before + 1).await;
        worker.stop().await;
        if service.requests() <= 4 {
            assert_eq!(service.requests(), before + 1, "one item tries it");
        }
    }
    for key in &keys {
        let item = world.settle(*key).await.delivery;
        assert_eq!((item.state, item.attempts_count), (State::Delivered, 1), "{item:?}");
    }
}
