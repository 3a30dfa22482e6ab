//! Operations whose owners are gone, and what a look at the upstream makes of them.

use std::time::Duration;

use counterfoil_core::direct::{LookupEnd, Report};
use counterfoil_core::operation::State;
use counterfoil_core::refusal::Code;
use counterfoil_store::direct::{Begin, Concluded};

use super::super::calls::call;
use super::{
    APPLIED, CLAIMED, DAY, DirectFactory, HOUR, LEASE, SENT, Wire, at, begin, plain, result,
    upstream, with,
};

pub async fn what_may_have_been_sent_is_in_doubt<F: DirectFactory>() {
    // Promise: nothing stays in progress for ever: when its lease has ended, and not before, any
    // process moves it, once.
    let mut wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    wire.pass(LEASE - Duration::from_millis(1));
    assert_eq!(wire.lapse().await, 0);
    assert_eq!(wire.state(hold.key).await, SENT);
    wire.pass(Duration::from_millis(1));
    wire.reopen().await;
    assert_eq!(wire.lapse().await, 1);
    assert_eq!(wire.lapse().await, 0);
    let view = wire.view(hold.key).await;
    assert_eq!((view.record.state, view.record.owner), (State::InDoubt, None));
    assert_eq!(wire.kinds(hold.key).await, ["dispatched", "lease_lapsed"]);
    assert_eq!(wire.ledger.renew(vec![hold], LEASE).await, Ok(vec![false]));
    assert_eq!(wire.dispatch(hold).await, None);
}

pub async fn what_was_never_sent_is_settled_after_a_day<F: DirectFactory>() {
    // Promise: an identity without a dispatch waits a day for its call, and then it is proved that
    // nothing was done; a late owner may not send.
    let wire = Wire::<F>::new();
    let hold = wire.waits(begin(&call("op-1"))).await;
    wire.pass(DAY - Duration::from_millis(1));
    assert_eq!(wire.lapse().await, 0);
    assert_eq!(wire.state(hold.key).await, CLAIMED);
    wire.pass(Duration::from_millis(1));
    assert_eq!(wire.lapse().await, 1);
    assert_eq!(wire.state(hold.key).await, State::NotApplied);
    assert_eq!(wire.dispatch(hold).await, None);
    let replayed = wire.replayed(begin(&call("op-1"))).await;
    assert!(replayed.view.record.result.is_some());
    assert_eq!(wire.kinds(hold.key).await, ["claimed", "learned_not_applied"]);
    let held = wire.waits(begin(&call("op-2"))).await;
    wire.pass(DAY);
    wire.ledger.renew(vec![held], LEASE).await.expect("the ledger works");
    assert_eq!(wire.lapse().await, 0, "its owner is there");
}

pub async fn many_are_moved_in_parts<F: DirectFactory>() {
    // Promise: however many there are, one command moves as many as it was told, of every upstream, and
    // those that wait for their day stand in nobody's way.
    let wire = Wire::<F>::new();
    for number in 0..4 {
        wire.waits(begin(&call(&format!("claim-{number}")))).await;
    }
    for name in ["memory", "github"] {
        for number in 0..3 {
            let call = call(&format!("{name}-{number}"));
            wire.sent(Begin { upstream: upstream(name), ..begin(&call) }).await;
        }
    }
    wire.pass(LEASE);
    let mut counts = Vec::new();
    for _ in 0..3 {
        counts.push(wire.ledger.lapse(4).await.expect("the ledger works"));
    }
    assert_eq!(counts, [4, 2, 0]);
    assert_eq!(wire.in_doubt("memory").await.len(), 3);
    let page = async |after, most| {
        let found = wire.ledger.in_doubt(upstream("github"), after, most).await;
        let found = found.expect("the ledger works");
        found.into_iter().map(|view| view.record.key).collect::<Vec<_>>()
    };
    let all = page(None, 9).await;
    assert_eq!(all.len(), 3);
    assert_eq!(page(None, 2).await, all[..2]);
    assert_eq!(page(Some(all[1]), 2).await, all[2..]);
    assert!(wire.in_doubt("nobody").await.is_empty());
}

pub async fn what_is_found_settles<F: DirectFactory>() {
    // Promise: an effect that is seen at the upstream is applied, with the result of the look and how
    // it was made on record.
    let wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    assert_eq!(wire.look_up(hold.key, LookupEnd::Found).await, None, "its owner is at work");
    wire.moved(plain(hold, Report::Lost)).await;
    let view = wire.look_up(hold.key, LookupEnd::Found).await.expect("settled");
    assert_eq!(view.record.state, State::Applied);
    assert_eq!((view.record.result.clone(), view.reply), (Some(result("found")), None));
    assert_eq!(wire.look_up(hold.key, LookupEnd::Found).await, None);
    assert!(wire.in_doubt("memory").await.is_empty());
    let events = wire.bench.audit(hold.key).await;
    let last = events.last().map(|event| (event.kind.as_str(), event.reason.as_deref()));
    assert_eq!(last, Some(("learned_applied", Some("open_nodes, by name"))));
    assert_eq!(wire.replayed(begin(&call("op-1"))).await.view.record, view.record);
}

pub async fn absence_proves_from_its_time_on<F: DirectFactory>() {
    // Promise: an absence counts only if the look began long enough after the last possible send; the
    // upstream that did it all the same raises the alarm.
    let wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    wire.moved(plain(hold, Report::Lost)).await;
    let absent = |began| LookupEnd::Absent { began, absence_after: HOUR };
    let proof = at(LEASE + HOUR);
    let early = counterfoil_core::time::Timestamp::from_ms(proof.as_ms() - 1);
    assert_eq!(wire.look_up(hold.key, absent(early)).await, None);
    assert_eq!(wire.state(hold.key).await, State::InDoubt);
    let view = wire.look_up(hold.key, absent(proof)).await.expect("settled");
    assert_eq!(view.record.state, State::NotApplied);
    wire.check_settled(&call("op-1")).await;
    let late = wire.conclude(with(hold, APPLIED, "yes")).await;
    assert!(matches!(late, Concluded::LateContradiction(_)), "{late:?}");
    wire.check_settled(&call("op-1")).await;
}

pub async fn what_is_not_there_is_no_error<F: DirectFactory>() {
    // Promise: a key that no direct operation has is answered, and nothing is written.
    let wire = Wire::<F>::new();
    let local = wire.bench.fresh(&call("op-9"), &super::super::effects::note("one")).await.key;
    let nobody = counterfoil_core::identity::OperationKey::from_bytes([9; 16]);
    for key in [nobody, local] {
        let hold = super::Hold { key, boot: super::OTHER_BOOT, fence: 1, leg: 1 };
        assert_eq!(wire.dispatch(hold).await, None);
        assert_eq!(wire.ledger.renew(vec![hold], LEASE).await, Ok(vec![false]));
        wire.tell(key, true).await;
        assert_eq!(wire.ledger.reply(key, 1).await, Ok(None));
        let which = super::WhichDirect::Key(key);
        assert_eq!(wire.ledger.direct_view(which).await, Ok(None));
        let report = wire.ledger.conclude(vec![plain(hold, Report::Lost)]).await;
        assert!(matches!(report, Err(counterfoil_store::StoreError::Quarantined { .. })));
    }
    assert_eq!(wire.look_up(nobody, LookupEnd::Found).await, None);
    wire.check_refused(begin(&call("op-9")), Code::OperationConflict, "op-9", false).await;
}

impl<F: DirectFactory> Wire<F> {
    /// An equal call gets the settled operation, and nothing is sent.
    async fn check_settled(&self, call: &super::TestCall) {
        let replayed = self.replayed(begin(call)).await;
        assert_eq!(replayed.view.record.state, State::NotApplied);
    }
}
