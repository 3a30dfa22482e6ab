//! Credentials: read anew for each attempt, and seen by the target alone.

use std::io;
use std::sync::{Arc, Mutex};

use counterfoil_core::delivery::{ErrorClass, State};

use crate::desk::{Desk, Wire, answer, created};
use crate::world::{TOKEN, World, desk};

const ARGUMENT: &str = "argument-sentinel";

#[tokio::test]
async fn a_rotated_credential_is_taken_up_between_attempts() {
    // Promise: the secret is not frozen with the request; a new one is used at the next attempt,
    // with the same key and the same bytes. A missing one parks the target.
    let service = Desk::start(|seen, shelf| {
        let is_new = seen.header("authorization") == "Bearer new-token";
        if !is_new {
            return answer(401, "", "");
        }
        shelf.make_once(seen);
        created()
    })
    .await;
    let mut world = World::new(&desk("key", &service.origin(), "/tickets")).await;
    let key = world.submit("op-1", r#"{"subject":"printer"}"#).await;
    let worker = world.work();
    service.arrived(1).await;
    worker.stop().await;
    let parked = world.view(key).await.target.parked.expect("parked");
    assert_eq!(parked.class, ErrorClass::Credential);
    world.env = [("DESK_TOKEN", "new-token")].into_iter().collect();
    world.clock.advance(std::time::Duration::from_secs(301));
    let view = world.settle(key).await;
    assert_eq!((view.delivery.state, view.delivery.attempts_count), (State::Delivered, 1));
    assert!(view.target.parked.is_none());
    let shelf = service.shelf();
    assert_eq!(shelf.seen[0].header("authorization"), format!("Bearer {TOKEN}"));
    assert_eq!(shelf.seen[0].body, shelf.seen[1].body);
    let of = |at: usize| shelf.seen[at].header("idempotency-key");
    assert_eq!(of(0), of(1));
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic in here").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_secret_and_no_argument_is_in_logs_errors_or_the_audit_trail() {
    // Promise: even a target that repeats what it was sent, in every part of its answer, brings
    // neither a credential nor an argument into what people read; the credential is in no file.
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let echo = |status: u16| {
        answer(
            status,
            &format!("x-{TOKEN}: {ARGUMENT}\r\nretry-after: {TOKEN}\r\n"),
            &format!(r#"{{"error":"{ARGUMENT} {TOKEN}","id":{{"{TOKEN}":"{ARGUMENT}"}}}}"#),
        )
    };
    let mut wires: Vec<Wire> =
        [201, 302, 400, 401, 403, 404, 409, 422, 429, 500].into_iter().map(echo).collect();
    wires.push(Wire::Say(format!("{TOKEN} {ARGUMENT}\r\n\r\n")));
    wires.push(Wire::Reset);
    for wire in wires {
        let told = format!("{wire:?}");
        let service = Desk::start(move |_, _| wire.clone()).await;
        let toml = desk("never", &service.origin(), "/tickets/{{ args.subject }}");
        let world = World::new(&toml.replace("max_attempts = 3", "max_attempts = 1")).await;
        let key = world.submit("op-1", &format!(r#"{{"subject":"{ARGUMENT}"}}"#)).await;
        let worker = world.work();
        service.arrived(1).await;
        worker.stop().await;
        let view = world.view(key).await;
        let shown = format!("{:?} {:?} {:?}", view.delivery, view.target, world.audit(key).await);
        for secret in [TOKEN, ARGUMENT] {
            assert!(!shown.contains(secret), "{told}: {shown}");
        }
        let bytes = world.bytes();
        let is_kept = bytes.windows(TOKEN.len()).any(|it| it == TOKEN.as_bytes());
        assert!(!bytes.is_empty() && !is_kept, "{told}: the ledger holds the credential");
    }
    let logged = log.0.lock().expect("no panic in here");
    let logged = String::from_utf8_lossy(&logged);
    assert!(logged.contains("target"), "something was logged");
    for secret in [TOKEN, ARGUMENT] {
        assert!(!logged.contains(secret), "{logged}");
    }
}
