//! What was told to a live caller, and what was not.

use std::time::Duration;

use counterfoil_core::direct::Report;
use counterfoil_core::refusal::Code;
use counterfoil_store::direct::{Begin, Told};

use super::super::calls::call;
use super::{APPLIED, DirectFactory, Wire, at, begin, joining, plain, with};

pub async fn only_an_answer_can_be_told<F: DirectFactory>() {
    // Promise: what has no answer stays unanswered, whatever is noted of it.
    let wire = Wire::<F>::new();
    let hold = wire.send_joining(&call("own-1")).await;
    wire.tell(hold.key, true).await;
    assert_eq!(wire.view(hold.key).await.item.answered_at, None);
    wire.moved(plain(hold, Report::Lost)).await;
    wire.tell(hold.key, true).await;
    wire.check_refused(joining(&call("own-2")), Code::OperationInDoubt, "own-1", true).await;
    wire.moved(with(hold, APPLIED, "late")).await;
    assert_eq!(wire.view(hold.key).await.item.answered_at, None, "a report tells nobody");
    wire.pass(Duration::from_secs(1));
    wire.tell(hold.key, true).await;
    let item = wire.view(hold.key).await.item;
    assert_eq!((item.answered_at, item.open_slot), (Some(at(Duration::from_secs(1))), false));
}

pub async fn what_was_told_in_vain_is_unanswered_again<F: DirectFactory>() {
    // Promise: a caller that was gone after all is told when it comes back, instead of a second effect.
    let mut wire = Wire::<F>::new();
    let hold = wire.send_joining(&call("own-1")).await;
    wire.moved(with(hold, APPLIED, "done")).await;
    wire.tell(hold.key, true).await;
    wire.tell(hold.key, false).await;
    wire.reopen().await;
    let item = wire.view(hold.key).await.item;
    assert_eq!((item.answered_at, item.open_slot), (None, true));
    assert!(wire.replayed(joining(&call("own-2"))).await.joined);
}

pub async fn a_slot_that_was_taken_meanwhile_stays_taken<F: DirectFactory>() {
    // Promise: there is one operation that an equal call joins, also if an earlier one turns out not to
    // have been told.
    let wire = Wire::<F>::new();
    let first = wire.send_joining(&call("own-1")).await;
    wire.moved(with(first, APPLIED, "one")).await;
    wire.tell(first.key, true).await;
    let second = wire.send_joining(&call("own-2")).await;
    wire.tell(first.key, false).await;
    assert!(!wire.view(first.key).await.item.open_slot);
    assert!(wire.view(second.key).await.item.open_slot);
    wire.check_refused(joining(&call("own-3")), Code::OperationInProgress, "own-2", true).await;
}

pub async fn a_note_is_kept_although_its_call_is_refused<F: DirectFactory>() {
    // Promise: a refused call's notes are noted all the same.
    let wire = Wire::<F>::new();
    let first = wire.send(&call("op-1")).await;
    wire.moved(with(first, APPLIED, "one")).await;
    let other = super::super::calls::TestCall { arguments: r#"{"t":2}"#, ..call("op-2") };
    wire.send(&other).await;
    let told = vec![Told { key: first.key, answered: true }];
    wire.refused(Begin { told, ..begin(&other) }).await;
    assert!(wire.view(first.key).await.item.answered_at.is_some());
}
