//! Which call may be sent, and which is not.

use std::time::Duration;

use counterfoil_core::direct::Report;
use counterfoil_core::operation::State;
use counterfoil_core::record::Nature;
use counterfoil_core::refusal::Code;
use counterfoil_store::Answer;
use counterfoil_store::direct::{Begin, WhichDirect};

use super::super::calls::{BOOT, TestCall, call, ring};
use super::super::effects::note;
use super::{
    ANSWERED, APPLIED, CLAIMED, DAY, DirectFactory, LEASE, OTHER_BOOT, REFUSED, SENT, Wire, at,
    begin, plain, text_of, upstream, with,
};

pub async fn a_call_is_on_record_before_it_is_sent<F: DirectFactory>() {
    // Promise: whoever may send finds on record that it is about to, with who, until when, and where.
    let mut wire = Wire::<F>::new();
    let memo = Some(b"{\"name\":\"x\"}".as_slice().into());
    let (hold, record) = wire.sent(Begin { memo: memo.clone(), ..begin(&call("op-1")) }).await;
    assert_eq!((hold.boot, hold.fence, hold.leg), (BOOT, 1, 1));
    wire.reopen().await;
    let view = wire.view(hold.key).await;
    assert_eq!(view.record, record);
    assert_eq!((record.state, record.nature), (SENT, Nature::Direct));
    assert_eq!(record.owner.map(|owner| owner.lease_until), Some(at(LEASE)));
    assert_eq!((view.item.leg, view.item.minted, view.item.open_slot), (1, false, false));
    assert_eq!(view.item.upstream, upstream("memory"));
    assert_eq!(view.item.last_send_until, Some(at(LEASE)));
    assert_eq!((view.reply, view.memo), (None, memo));
    assert_eq!(wire.kinds(hold.key).await, ["dispatched"]);
    let by_id = WhichDirect::Id(record.tenant.clone(), record.operation_id.clone());
    let by_id = wire.ledger.direct_view(by_id).await.expect("the ledger works");
    assert_eq!(by_id.expect("there is one").record, record);
}

pub async fn a_claim_waits_and_is_dispatched_by_its_owner_alone<F: DirectFactory>() {
    // Promise: between claim and dispatch nothing may be sent; the fence, not the time, says whose
    // the dispatch is, and said twice it is one.
    let wire = Wire::<F>::new();
    let hold = wire.waits(begin(&call("op-1"))).await;
    assert_eq!(wire.state(hold.key).await, CLAIMED);
    assert_eq!(wire.view(hold.key).await.item.last_send_until, None);
    wire.check_refused(begin(&call("op-1")), Code::OperationInProgress, "op-1", false).await;
    let other = super::Hold { boot: OTHER_BOOT, ..hold };
    assert_eq!(wire.dispatch(other).await, None);
    assert_eq!(wire.dispatch(super::Hold { fence: 2, ..hold }).await, None);
    wire.pass(LEASE * 2);
    assert_eq!(wire.dispatch(hold).await, Some(hold), "nobody took it");
    assert_eq!(wire.dispatch(hold).await, Some(hold));
    assert_eq!(wire.view(hold.key).await.item.last_send_until, Some(at(LEASE * 3)));
    assert_eq!(wire.kinds(hold.key).await, ["claimed", "dispatched"]);
    wire.moved(plain(hold, Report::Lost)).await;
    assert_eq!(wire.dispatch(hold).await, None);
}

pub async fn what_was_never_sent_is_taken_up<F: DirectFactory>() {
    // Promise: a claim whose owner is gone goes on under an equal call, once, and the late owner may
    // not send.
    let wire = Wire::<F>::new();
    let first = wire.waits(begin(&call("op-1"))).await;
    wire.pass(LEASE);
    let again = TestCall { boot: OTHER_BOOT, ..call("op-1") };
    let (second, record) = wire.sent(begin(&again)).await;
    assert_eq!((second.key, second.boot, second.fence), (first.key, OTHER_BOOT, 2));
    assert_eq!(record.state, SENT);
    assert_eq!(wire.dispatch(first).await, None);
    wire.check_refused(begin(&call("op-1")), Code::OperationInProgress, "op-1", false).await;
    assert_eq!(wire.kinds(first.key).await, ["claimed", "taken_up", "dispatched"]);
    let other = TestCall { arguments: r#"{"title":"two"}"#, ..call("op-2") };
    wire.waits(begin(&other)).await;
    wire.pass(LEASE);
    let changed = TestCall { arguments: r#"{"title":"three"}"#, ..call("op-2") };
    wire.check_refused(begin(&changed), Code::OperationConflict, "op-2", false).await;
}

pub async fn what_may_have_been_sent_is_never_sent_again<F: DirectFactory>() {
    // Promise: after a dispatch that may have taken effect the same call is refused, however long it
    // is ago.
    let wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    for wait in [Duration::ZERO, LEASE, DAY] {
        wire.pass(wait);
        wire.check_refused(begin(&call("op-1")), Code::OperationInProgress, "op-1", false).await;
    }
    wire.moved(plain(hold, Report::Lost)).await;
    assert_eq!(wire.state(hold.key).await, State::InDoubt);
    for wait in [Duration::ZERO, DAY] {
        wire.pass(wait);
        wire.check_refused(begin(&call("op-1")), Code::OperationInDoubt, "op-1", false).await;
    }
}

pub async fn an_equal_call_gets_the_kept_answer<F: DirectFactory>() {
    // Promise: the same ID with the same arguments gets what its operation was answered with, whatever
    // that was, byte for byte, and nothing is sent.
    let mut wire = Wire::<F>::new();
    let cases =
        [(APPLIED, State::Applied), (REFUSED, State::NotApplied), (ANSWERED, State::Answered)];
    for (at, (report, state)) in cases.into_iter().enumerate() {
        let call = call(&format!("op-{at}"));
        let hold = wire.send(&call).await;
        let moved = wire.moved(with(hold, report, "done")).await;
        assert_eq!((moved.record.state, text_of(&moved)), (state, Some("done".into())));
        wire.reopen().await;
        let replayed = wire.replayed(begin(&call)).await;
        assert_eq!((&replayed.view, replayed.leg, replayed.joined), (&moved, 1, false));
    }
}

pub async fn another_request_or_principal_conflicts_alike<F: DirectFactory>() {
    // Promise: changed arguments, another caller and another kind of operation under one ID are
    // refused with the same bytes, in every state.
    let wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    let changed = TestCall { arguments: r#"{"title":"two"}"#, ..call("op-1") };
    let foreign = TestCall { principal: "bob", ..call("op-1") };
    wire.bench.fresh(&call("op-2"), &note("one")).await;
    for _ in 0..2 {
        let (one, _) = wire.refused(begin(&changed)).await;
        let (two, _) = wire.refused(begin(&foreign)).await;
        assert_eq!((&one, one.code()), (&two, Code::OperationConflict));
        let (local, _) = wire.refused(begin(&call("op-2"))).await;
        assert_eq!((local.code(), local.message()), (one.code(), one.message()));
        wire.moved(with(hold, APPLIED, "done")).await;
    }
    assert!(matches!(
        wire.bench.submit(&call("op-1"), &note("one")).await,
        Ok(Answer::Replayed(_) | Answer::Refused(_))
    ));
    let elsewhere = TestCall { tenant: "far", ..call("op-1") };
    wire.send(&elsewhere).await;
}

pub async fn a_record_is_compared_under_its_own_key<F: DirectFactory>() {
    // Promise: what was bound under an earlier key is recognised, with an ID and without; a key that
    // is missing refuses and begins nothing.
    let wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    wire.moved(with(hold, APPLIED, "done")).await;
    let later = TestCall { keys: ring(&[(2, 2), (1, 1)]), ..call("op-1") };
    assert_eq!(text_of(&wire.replayed(begin(&later)).await.view), Some("done".into()));
    let idless = TestCall { id: "op-2".into(), ..later.clone() };
    assert!(wire.replayed(super::joining(&idless)).await.joined);
    let missing = TestCall { keys: ring(&[(2, 2)]), ..call("op-1") };
    wire.check_refused(begin(&missing), Code::StoreUnavailable, "op-1", false).await;
}

pub async fn of_many_callers_one_sends<F: DirectFactory>() {
    // Promise: however many equal calls come at once, with one ID or with none, one is sent.
    for identity in [begin as fn(&TestCall) -> Begin, super::joining] {
        let wire = Wire::<F>::new();
        let calls: Vec<_> = (0..16)
            .map(|number| {
                let own = TestCall { id: format!("own-{number}"), ..call("") };
                let one = call("op-1");
                let asked = identity(&one);
                let is_given = asked.identity == super::Identity::Given;
                let asked = if is_given { asked } else { identity(&own) };
                let ledger = std::sync::Arc::clone(&wire.ledger);
                tokio::spawn(async move { ledger.begin(asked).await.expect("the ledger works") })
            })
            .collect();
        let mut sent = 0;
        for call in calls {
            match call.await.expect("ran") {
                super::Begun::Send(..) => sent += 1,
                super::Begun::Refused { refusal, .. } => {
                    assert_eq!(refusal.code(), Code::OperationInProgress);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(sent, 1);
    }
}
