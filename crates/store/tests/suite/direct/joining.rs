//! Calls without an ID: which operation they mean.

use std::time::Duration;

use counterfoil_core::direct::{LookupEnd, Report};
use counterfoil_core::refusal::Code;
use counterfoil_store::direct::{Begin, Identity};

use super::super::calls::{TestCall, call};
use super::{
    ANSWERED, APPLIED, DAY, DirectFactory, HOUR, LEASE, OTHER_BOOT, Wire, begin, joining, plain,
    repeating, result, text_of, with,
};

pub async fn what_is_unanswered_is_joined<F: DirectFactory>() {
    // Promise: the same arguments without an ID meet the operation whose outcome nobody told, in
    // progress, in doubt and settled, and are told which one it is.
    let wire = Wire::<F>::new();
    let hold = wire.send_joining(&call("own-1")).await;
    assert!(wire.view(hold.key).await.item.open_slot);
    wire.check_refused(joining(&call("own-2")), Code::OperationInProgress, "own-1", true).await;
    wire.moved(plain(hold, Report::Lost)).await;
    wire.pass(Duration::from_secs(5));
    wire.check_refused(joining(&call("own-3")), Code::OperationInDoubt, "own-1", true).await;
    wire.moved(with(hold, APPLIED, "late")).await;
    let replayed = wire.replayed(joining(&call("own-4"))).await;
    assert!(replayed.joined);
    assert_eq!(replayed.view.record.operation_id.as_str(), "own-1");
    assert_eq!(text_of(&replayed.view), Some("late".into()));
    let kinds = wire.kinds(hold.key).await;
    assert_eq!(kinds, ["dispatched", "learned_nothing", "learned_applied", "joined"]);
    let other = TestCall { arguments: r#"{"title":"two"}"#, ..call("own-5") };
    wire.send_joining(&other).await;
    let foreign = TestCall { principal: "bob", ..call("own-6") };
    wire.send_joining(&foreign).await;
    let elsewhere = TestCall { tenant: "far", ..call("own-7") };
    wire.send_joining(&elsewhere).await;
}

pub async fn a_background_lookup_opens_no_door<F: DirectFactory>() {
    // Promise: an operation that was settled while nobody was told is still the one that is meant; once
    // told, the same arguments are new work.
    let wire = Wire::<F>::new();
    let hold = wire.send_joining(&call("own-1")).await;
    wire.moved(plain(hold, Report::Lost)).await;
    wire.look_up(hold.key, LookupEnd::Found).await.expect("settled");
    let replayed = wire.replayed(joining(&call("own-2"))).await;
    assert_eq!((replayed.view.record.result, replayed.view.reply), (Some(result("found")), None));
    assert!(replayed.joined);
    wire.tell(hold.key, true).await;
    let second = wire.send_joining(&call("own-3")).await;
    assert_ne!(second.key, hold.key);
}

pub async fn what_was_answered_is_never_joined<F: DirectFactory>() {
    // Promise: after an answer, an error too, equal arguments without an ID are new work, and the same
    // ID still gets the kept answer.
    let wire = Wire::<F>::new();
    for (id, next, report) in [("own-1", "own-2", ANSWERED), ("own-3", "own-4", APPLIED)] {
        let title: &'static str = if id == "own-1" { r#"{"t":1}"# } else { r#"{"t":2}"# };
        let named = |id: &str| TestCall { arguments: title, ..call(id) };
        let hold = wire.send_joining(&named(id)).await;
        wire.moved(with(hold, report, "first")).await;
        let told = super::Told { key: hold.key, answered: true };
        // The note goes with the next call.
        let (second, _) = wire.sent(Begin { told: vec![told], ..joining(&named(next)) }).await;
        assert_ne!(second.key, hold.key);
        assert_eq!(text_of(&wire.replayed(begin(&named(id))).await.view), Some("first".into()));
    }
}

pub async fn operations_with_ids_are_joined_too<F: DirectFactory>() {
    // Promise: a call without an ID joins an unanswered operation that brought its own; two with IDs
    // stay two; and of several the oldest is meant.
    let wire = Wire::<F>::new();
    let first = wire.send(&call("op-1")).await;
    wire.pass(Duration::from_secs(1));
    let second = wire.send(&call("op-2")).await;
    assert_ne!(first.key, second.key);
    wire.check_refused(joining(&call("own-1")), Code::OperationInProgress, "op-1", true).await;
    wire.moved(with(first, APPLIED, "one")).await;
    wire.tell(first.key, true).await;
    wire.check_refused(joining(&call("own-2")), Code::OperationInProgress, "op-2", true).await;
    wire.moved(with(second, APPLIED, "two")).await;
    assert_eq!(text_of(&wire.replayed(joining(&call("own-3"))).await.view), Some("two".into()));
}

pub async fn what_is_too_old_is_not_joined<F: DirectFactory>() {
    // Promise: the age decides, and what is too old gives its place to the new operation, which is
    // the one that is meant from then on.
    let wire = Wire::<F>::new();
    let old = wire.send_joining(&call("own-1")).await;
    let given = TestCall { arguments: r#"{"title":"two"}"#, ..call("op-1") };
    wire.send(&given).await;
    wire.pass(DAY - Duration::from_millis(1));
    wire.check_refused(joining(&call("own-2")), Code::OperationInProgress, "own-1", true).await;
    wire.pass(Duration::from_millis(1));
    let shorter = Begin { identity: Identity::Joins(HOUR), ..begin(&call("own-3")) };
    let (new, _) = wire.sent(shorter).await;
    assert_ne!(new.key, old.key);
    assert!(!wire.view(old.key).await.item.open_slot);
    assert!(wire.view(new.key).await.item.open_slot);
    wire.check_refused(joining(&call("own-4")), Code::OperationInProgress, "own-3", true).await;
    let idless = TestCall { id: "own-5".into(), ..given };
    wire.send_joining(&idless).await;
}

pub async fn what_must_not_join_begins<F: DirectFactory>() {
    // Promise: where a tool's calls never join, each is an operation of its own.
    let wire = Wire::<F>::new();
    let minted = |id: &str| Begin { identity: Identity::Minted, ..begin(&call(id)) };
    let (first, _) = wire.sent(minted("own-1")).await;
    let (second, _) = wire.sent(minted("own-2")).await;
    assert_ne!(first.key, second.key);
    let item = wire.view(first.key).await.item;
    assert_eq!((item.minted, item.open_slot), (true, false));
    // An ID that was made twice is not two operations.
    wire.check_refused(minted("own-1"), Code::OperationInProgress, "own-1", false).await;
}

pub async fn a_wanted_repeat_is_made_once<F: DirectFactory>() {
    // Promise: whoever wants an operation again gets one more, and asked twice the same one more; a
    // call that does not say so means the repeat from then on.
    let wire = Wire::<F>::new();
    let first = wire.send_joining(&call("own-1")).await;
    wire.moved(plain(first, Report::Lost)).await;
    let (second, record) = wire.sent(repeating(&call("own-2"), "own-1")).await;
    assert_ne!(first.key, second.key);
    assert_eq!(record.operation_id.as_str(), "own-2");
    assert_eq!(wire.view(second.key).await.item.repeat_of, Some(first.key));
    assert!(!wire.view(first.key).await.item.open_slot);
    let again = repeating(&call("own-3"), "own-1");
    wire.check_refused(again, Code::OperationInProgress, "own-2", true).await;
    wire.check_refused(joining(&call("own-4")), Code::OperationInProgress, "own-2", true).await;
    wire.moved(with(second, APPLIED, "two")).await;
    let replayed = wire.replayed(repeating(&call("own-5"), "own-1")).await;
    assert_eq!((text_of(&replayed.view), replayed.joined), (Some("two".into()), true));
    wire.tell(second.key, true).await;
    let replayed = wire.replayed(repeating(&call("own-6"), "own-1")).await;
    assert_eq!(text_of(&replayed.view), Some("two".into()));
    let (third, _) = wire.sent(repeating(&call("own-7"), "own-2")).await;
    assert_eq!(wire.view(third.key).await.item.repeat_of, Some(second.key));
}

pub async fn a_repeat_of_what_is_not_ones_own_tells_nothing<F: DirectFactory>() {
    // Promise: absent and foreign are refused with the same bytes; other arguments conflict; nothing
    // is written.
    let wire = Wire::<F>::new();
    let hold = wire.send_joining(&call("own-1")).await;
    let (absent, joined) = wire.refused(repeating(&call("own-2"), "nobody")).await;
    assert_eq!((absent.code(), joined), (Code::InvalidArgument, false));
    let bob = TestCall { principal: "bob", ..call("own-3") };
    assert_eq!(wire.refused(repeating(&bob, "own-1")).await.0, absent);
    let changed = TestCall { arguments: r#"{"title":"two"}"#, ..call("own-4") };
    let (conflict, _) = wire.refused(repeating(&changed, "own-1")).await;
    assert_eq!(conflict.code(), Code::OperationConflict);
    assert!(wire.view(hold.key).await.item.open_slot, "it is still the one that is meant");
}

pub async fn a_joined_claim_is_taken_up<F: DirectFactory>() {
    // Promise: a call that joins what was never sent carries it on under its first ID.
    let wire = Wire::<F>::new();
    let first = wire.waits(joining(&call("own-1"))).await;
    wire.pass(LEASE);
    let again = TestCall { boot: OTHER_BOOT, ..call("own-2") };
    let (second, record) = wire.sent(joining(&again)).await;
    assert_eq!((second.key, second.boot), (first.key, OTHER_BOOT));
    assert_eq!(record.operation_id.as_str(), "own-1");
}
