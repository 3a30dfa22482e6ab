//! What senders report, in time and late.

use counterfoil_core::direct::{Meaning, Report};
use counterfoil_core::operation::State;
use counterfoil_core::refusal::Code;
use counterfoil_store::direct::{Concluded, Conclusion, Hold};

use super::super::calls::{BOOT, TestCall, call};
use super::{
    ANSWERED, APPLIED, ASKED, ASKS, CLAIMED, DAY, DirectFactory, LEASE, OTHER_BOOT, REFUSED, Wire,
    at, begin, plain, reply, result, text_of, with,
};

pub async fn every_report_of_the_holder_has_its_end<F: DirectFactory>() {
    // Promise: what the holder saw decides, by one table; and said again it changes nothing.
    let wire = Wire::<F>::new();
    let table = [
        (APPLIED, State::Applied, "learned_applied"),
        (REFUSED, State::NotApplied, "learned_not_applied"),
        (ANSWERED, State::Answered, "answered"),
        (ASKS, ASKED, "asked_for_input"),
        (Report::Answer(Meaning::Unknown), State::InDoubt, "learned_nothing"),
        (Report::Lost, State::InDoubt, "learned_nothing"),
        (Report::NotSent, CLAIMED, "handed_back"),
        (Report::Withdrawn, State::NotApplied, "learned_not_applied"),
    ];
    for (number, (report, state, kind)) in table.into_iter().enumerate() {
        let hold = wire.send(&call(&format!("op-{number}"))).await;
        let said = Conclusion { why: Some("why".into()), ..with(hold, report, "it") };
        let moved = wire.moved(said.clone()).await;
        assert_eq!(moved.record.state, state, "{report:?}");
        assert_eq!(moved.record.settled_at.is_some(), state.ages(), "{report:?}");
        assert_eq!(moved.record.result, None, "{report:?}");
        let events = wire.bench.audit(hold.key).await;
        let last = events.last().map(|event| (event.kind.as_str(), event.reason.as_deref()));
        assert_eq!(last, Some((kind, Some("why"))), "{report:?}");
        let (Concluded::Moved(again) | Concluded::Stale(again)) = wire.conclude(said).await else {
            panic!("{report:?}")
        };
        assert_eq!((again.record, again.item), (moved.record, moved.item), "{report:?}");
        assert_eq!(wire.bench.audit(hold.key).await, events, "{report:?}");
    }
}

pub async fn what_was_handed_back_may_be_sent_at_once<F: DirectFactory>() {
    // Promise: after "not one byte left" the same ID is sent by whoever comes next, and whoever handed
    // it back may not.
    let wire = Wire::<F>::new();
    let first = wire.send(&call("op-1")).await;
    let view = wire.moved(plain(first, Report::NotSent)).await;
    assert_eq!((view.record.state, view.item.last_send_until), (CLAIMED, None));
    assert_eq!(wire.dispatch(first).await, None);
    wire.stale(plain(first, Report::Lost)).await;
    let (second, _) = wire.sent(begin(&call("op-1"))).await;
    assert_eq!(wire.dispatch(first).await, None);
    let waits = wire.waits(begin(&call("op-2"))).await;
    wire.moved(plain(waits, Report::NotSent)).await;
    wire.sent(begin(&call("op-2"))).await;
    let kinds = ["claimed", "handed_back", "taken_up", "dispatched"];
    assert_eq!(wire.kinds(waits.key).await, kinds);
    wire.moved(with(second, APPLIED, "done")).await;
}

pub async fn what_was_withdrawn_is_over<F: DirectFactory>() {
    // Promise: a call that its caller took back before it was sent never becomes an effect.
    let wire = Wire::<F>::new();
    let hold = wire.waits(begin(&call("op-1"))).await;
    let view = wire.moved(plain(hold, Report::Withdrawn)).await;
    assert_eq!(view.record.state, State::NotApplied);
    assert!(view.record.result.is_some());
    let replayed = wire.replayed(begin(&call("op-1"))).await;
    assert_eq!(replayed.view.record, view.record);
    assert_eq!(wire.dispatch(hold).await, None);
}

pub async fn the_fence_decides_and_not_the_time<F: DirectFactory>() {
    // Promise: a lease that ended and that nobody took is still its owner's.
    let wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    wire.pass(DAY);
    let view = wire.moved(with(hold, REFUSED, "no")).await;
    assert_eq!(view.record.state, State::NotApplied);
    // Whoever gave its word cannot take it back by saying that nothing happened.
    let hold = wire.send(&call("op-2")).await;
    wire.moved(plain(hold, Report::Lost)).await;
    wire.stale(with(hold, REFUSED, "no")).await;
    wire.moved(plain(hold, Report::Lost)).await;
}

pub async fn a_late_answer_settles_what_is_in_doubt<F: DirectFactory>() {
    // Promise: whoever lost an operation is believed about what the upstream did or answered, and not
    // about what it did not.
    let wire = Wire::<F>::new();
    let table = [
        (APPLIED, Some(State::Applied)),
        (ANSWERED, Some(State::Answered)),
        (REFUSED, None),
        (ASKS, None),
        (Report::Lost, None),
        (Report::NotSent, None),
        (Report::Withdrawn, None),
    ];
    for (number, (report, state)) in table.into_iter().enumerate() {
        let hold = wire.send(&call(&format!("op-{number}"))).await;
        wire.pass(LEASE);
        assert_eq!(wire.lapse().await, 1, "{report:?}");
        let said = with(hold, report, "late");
        match state {
            None => assert_eq!(wire.stale(said).await.record.state, State::InDoubt),
            Some(state) => {
                let moved = wire.moved(said.clone()).await;
                assert_eq!(moved.record.state, state, "{report:?}");
                assert_eq!(text_of(&moved), Some("late".into()), "{report:?}");
                wire.stale(said).await;
            }
        }
    }
    assert_eq!(wire.in_doubt("memory").await.len(), 5);
}

pub async fn a_late_answer_reaches_whoever_has_it_now<F: DirectFactory>() {
    // Promise: evidence of the effect settles an operation that another run has taken up, which then
    // may not send it.
    let wire = Wire::<F>::new();
    let first = wire.waits(begin(&call("op-1"))).await;
    wire.pass(LEASE);
    let again = TestCall { boot: OTHER_BOOT, ..call("op-1") };
    let second = wire.waits(begin(&again)).await;
    wire.moved(with(first, APPLIED, "late")).await;
    assert_eq!(wire.dispatch(second).await, None);
    assert_eq!(wire.state(first.key).await, State::Applied);
}

pub async fn a_late_answer_against_a_settled_operation_is_told<F: DirectFactory>() {
    // Promise: an upstream that did what is settled as not applied raises the alarm once, and the
    // operation stays as it is.
    let wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    wire.moved(with(hold, REFUSED, "no")).await;
    let said = with(hold, APPLIED, "yes");
    let Concluded::LateContradiction(view) = wire.conclude(said.clone()).await else {
        panic!("no alarm")
    };
    assert!(view.item.late_contradiction);
    assert_eq!(view.record.state, State::NotApplied);
    assert_eq!(text_of(&view), Some("no".into()));
    assert!(!matches!(wire.conclude(said).await, Concluded::LateContradiction(_)));
    let kinds = ["dispatched", "learned_not_applied", "late_contradiction"];
    assert_eq!(wire.kinds(hold.key).await, kinds);
    // An answer that is known already is no contradiction.
    let hold = wire.send(&call("op-2")).await;
    wire.moved(with(hold, APPLIED, "yes")).await;
    wire.conclude(with(hold, REFUSED, "no")).await;
    assert_eq!(wire.state(hold.key).await, State::Applied);
}

pub async fn what_cannot_be_kept_is_settled_all_the_same<F: DirectFactory>() {
    // Promise: what the upstream did is never lost, only its words may be; up to the limit they are not.
    use counterfoil_core::limits::MAX_RESULT_BYTES;
    let mut wire = Wire::<F>::new();
    let sized = |length: usize| {
        let mut reply = reply(super::ReplyKind::Result, "");
        let mut json = vec![b' '; length - 2];
        json.splice(..0, *b"\"");
        json.push(b'"');
        reply.json = json.into();
        reply
    };
    for length in [65_537, 1 << 20, 11 << 20, MAX_RESULT_BYTES] {
        let hold = wire.send(&call(&format!("op-{length}"))).await;
        let reply = sized(length);
        let said = Conclusion { reply: Some(reply.clone()), ..plain(hold, APPLIED) };
        let view = wire.moved(said).await;
        assert_eq!(view.reply.as_deref(), Some(&reply));
        wire.reopen().await;
        let replayed = wire.replayed(begin(&call(&format!("op-{length}")))).await;
        assert!(replayed.view.reply.as_deref() == Some(&reply), "{length} bytes differ");
    }
    for words in [None, Some(result("too large"))] {
        let id = format!("op-large-{}", words.is_some());
        let hold = wire.send(&call(&id)).await;
        let reply = Some(sized(MAX_RESULT_BYTES + 1));
        let said = Conclusion { reply, result: words.clone(), ..plain(hold, APPLIED) };
        let view = wire.moved(said).await;
        assert_eq!((view.record.state, view.reply), (State::Applied, None));
        assert!(view.record.result.is_some());
        if words.is_some() {
            assert_eq!(view.record.result, words);
        }
        assert_eq!(wire.replayed(begin(&call(&id))).await.view.record, view.record);
    }
}

pub async fn reports_are_decided_one_by_one<F: DirectFactory>() {
    // Promise: in a batch each report has its own answer, in order.
    let wire = Wire::<F>::new();
    let mut holds = Vec::new();
    for number in 0..4 {
        holds.push(wire.send(&call(&format!("op-{number}"))).await);
    }
    let batch = vec![
        with(holds[0], APPLIED, "a"),
        with(Hold { boot: OTHER_BOOT, ..holds[1] }, REFUSED, "b"),
        plain(holds[2], Report::Lost),
        with(holds[0], APPLIED, "a"),
        with(holds[3], ANSWERED, "d"),
    ];
    let told = wire.ledger.conclude(batch).await.expect("the ledger works");
    let states: Vec<_> = told
        .iter()
        .map(|one| match one {
            Concluded::Moved(view) => (true, view.record.state, text_of(view)),
            Concluded::Stale(view) => (false, view.record.state, text_of(view)),
            Concluded::LateContradiction(_) => panic!("{one:?}"),
        })
        .collect();
    let expected = [
        (true, State::Applied, Some("a".to_owned())),
        (false, super::SENT, None),
        (true, State::InDoubt, None),
        (true, State::Applied, Some("a".to_owned())),
        (true, State::Answered, Some("d".to_owned())),
    ];
    assert_eq!(states, expected);
    wire.check_refused(begin(&call("op-2")), Code::OperationInDoubt, "op-2", false).await;
}

pub async fn a_lease_is_prolonged_by_its_holder_alone<F: DirectFactory>() {
    // Promise: a renewal moves the lease and the time until which the request may leave; others, and
    // the ended, get none.
    let wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    let claim = wire.waits(begin(&call("op-2"))).await;
    let ended = wire.send(&call("op-3")).await;
    wire.moved(with(ended, APPLIED, "done")).await;
    wire.pass(LEASE * 2);
    let other = Hold { boot: OTHER_BOOT, ..hold };
    let holds = vec![hold, other, claim, ended, Hold { fence: 7, ..hold }];
    let renewed = wire.ledger.renew(holds, LEASE).await.expect("the ledger works");
    assert_eq!(renewed, [true, false, true, false, false]);
    let view = wire.view(hold.key).await;
    assert_eq!(view.record.owner.map(|o| (o.boot, o.lease_until)), Some((BOOT, at(LEASE * 3))));
    assert_eq!(view.item.last_send_until, Some(at(LEASE * 3)));
    assert_eq!(wire.view(claim.key).await.item.last_send_until, None);
    assert_eq!(wire.lapse().await, 0);
}
