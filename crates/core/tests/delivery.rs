//! Steps of a delivery as a store takes them.

use std::time::Duration;

use counterfoil_core::delivery::{
    Contract, Delivery, Event, Lease, ParkReason, State, TargetName, Terms, step,
};
use counterfoil_core::identity::{BootId, OperationKey};
use counterfoil_core::time::Timestamp;

const BOOT: BootId = BootId::from_bytes([7; 16]);
fn now() -> Timestamp {
    at(1_000)
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn leased() -> Delivery {
    let terms = Terms {
        contract: Contract::Never,
        max_attempts_count: 3,
        backoff_base: Duration::from_secs(1),
        backoff_cap: Duration::from_secs(60),
        send_limit: Duration::from_secs(10),
        deliver_within: None,
    };
    let target = TargetName::parse("desk").expect("a good name");
    let item = Delivery::accepted(OperationKey::from_bytes([1; 16]), target, terms, now());
    let lease = Lease { boot: BOOT, until: at(2_000), probe: false };
    step(&item, Event::Claim { lease }, now()).expect("it is queued").delivery
}

#[test]
fn asking_again_for_leave_to_send_is_the_same_attempt() {
    // Promise: after a lost acknowledgement the holder may ask again; the attempt is counted once,
    // and the lease only grows.
    let begin = |lease_until| Event::BeginSend { by: (BOOT, 1), lease_until };
    let first = step(&leased(), begin(at(5_000)), now()).expect("it is held");
    assert_eq!(first.audit, Some("attempt_started"));
    for (lease_until, expected) in [(at(9_000), at(9_000)), (at(3_000), at(5_000))] {
        let again = step(&first.delivery, begin(lease_until), at(1_500)).expect("still held");
        assert_eq!(again.audit, None);
        let item = again.delivery;
        assert_eq!((item.state, item.attempts_count), (State::Sending, 1));
        assert_eq!(item.first_dispatch_at, Some(now()));
        assert_eq!(item.lease.map(|lease| lease.until), Some(expected));
        assert_eq!(item.last_send_until, Some(expected));
    }
    for by in [(BOOT, 2), (BOOT, 0), (BootId::from_bytes([8; 16]), 1)] {
        let other = Event::BeginSend { by, lease_until: at(9_000) };
        assert!(step(&first.delivery, other, at(1_500)).is_err(), "{by:?}");
    }
}

#[test]
fn what_is_parked_is_held_by_nobody() {
    // Promise: an item that is held back has no holder whose lease could end.
    let parked =
        step(&leased(), Event::Park(ParkReason::PrincipalRevoked), now()).expect("it waits");
    assert_eq!(parked.delivery.state, State::Parked);
    assert_eq!((parked.delivery.lease, parked.delivery.next_attempt_at), (None, None));
    assert!(step(&parked.delivery, Event::Lapse { seed: 0 }, at(9_000)).is_err());
    let back = step(&parked.delivery, Event::Unpark, at(9_000)).expect("it is parked").delivery;
    assert_eq!(
        (back.state, back.park, back.next_attempt_at),
        (State::Queued, None, Some(at(9_000)))
    );
}
