//! What the rest of a ledger makes of direct operations: retention, lists, operators, cancellations.

use counterfoil_core::direct::Report;
use counterfoil_core::listing::Stage;
use counterfoil_core::observation::{Detail, ObservedState};
use counterfoil_core::operation::Verdict;
use counterfoil_core::record::Resolution;
use counterfoil_core::refusal::Code;
use counterfoil_core::time::Span;
use counterfoil_store::direct::{Begin, Begun, Concluded, Conclusion};
use counterfoil_store::{ListQuery, Purge, Resolve, Resolved};

use super::super::calls::{TestCall, call, ring, uuid_v7};
use super::{
    ANSWERED, APPLIED, ASKS, DAY, DirectFactory, HOUR, LEASE, REFUSED, Wire, begin, joining, later,
    plain, text_of, with,
};

fn say(call: &TestCall, verdict: Verdict, proof: Option<&str>) -> Resolve {
    Resolve {
        tenant: call.tenant(),
        operation_id: call.operation_id(),
        verdict,
        who: "olga".into(),
        reason: "looked".into(),
        proof: proof.map(str::to_owned),
    }
}

pub async fn answers_age_and_doubt_does_not<F: DirectFactory>() {
    // Promise: retention takes answers, memos and results of what is settled or answered, never of what
    // waits for evidence; identities stay and are never new work.
    let wire = Wire::<F>::new();
    let brief = |id: &str| TestCall { retention: Span::from_secs(60), ..call(id) };
    let memo: Option<std::sync::Arc<[u8]>> = Some(b"memo".as_slice().into());
    let mut keys = Vec::new();
    for (id, report) in
        [("op-1", APPLIED), ("op-2", ANSWERED), ("op-3", Report::Lost), ("op-4", ASKS)]
    {
        let (hold, _) = wire.sent(Begin { memo: memo.clone(), ..begin(&brief(id)) }).await;
        wire.moved(with(hold, report, id)).await;
        keys.push(hold.key);
    }
    let purged = wire.ledger.purge(Purge::new(LEASE)).await.expect("the ledger works");
    assert_eq!(purged.results_count, 0);
    wire.pass(DAY * 2);
    let mut count = 0;
    loop {
        let purged = wire.ledger.purge(Purge::new(LEASE)).await.expect("the ledger works");
        count += purged.results_count;
        if !purged.more {
            break;
        }
    }
    assert_eq!(count, 2);
    for (at, is_kept) in [false, false, true, true].into_iter().enumerate() {
        let view = wire.view(keys[at]).await;
        assert_eq!((view.record.purged, view.memo.is_some()), (!is_kept, is_kept), "{at}");
        let reply = wire.ledger.reply(keys[at], 1).await.expect("the ledger works");
        assert_eq!(reply.is_some(), at == 3, "{at}");
    }
    wire.check_refused(begin(&brief("op-1")), Code::OperationRetentionExpired, "op-1", false).await;
    wire.check_refused(begin(&brief("op-2")), Code::OperationRetentionExpired, "op-2", false).await;
    wire.check_refused(begin(&brief("op-3")), Code::OperationInDoubt, "op-3", false).await;
    // What an operator says of it later is kept, and ages anew.
    let said = say(&brief("op-2"), Verdict::Applied, Some("seen"));
    assert!(matches!(wire.ledger.resolve(said).await, Ok(Resolved::Done(_))));
    let replayed = wire.replayed(begin(&brief("op-2"))).await;
    assert!(!replayed.view.record.purged && replayed.view.record.result.is_some());
}

pub async fn tombstones_of_the_past_are_forgotten_whole<F: DirectFactory>() {
    // Promise: a record below the horizon goes with all that stands beside it, and its ID is refused by
    // its own time.
    let wire = Wire::<F>::new();
    let id = uuid_v7(wire.ledger.now().as_ms());
    let brief = TestCall { retention: Span::from_secs(60), ..call(&id) };
    let hold = wire.send(&brief).await;
    wire.moved(with(hold, APPLIED, "done")).await;
    for _ in 0..500 {
        wire.pass(DAY);
        wire.ledger.purge(Purge::new(LEASE)).await.expect("the ledger works");
    }
    let which = super::WhichDirect::Key(hold.key);
    assert_eq!(wire.ledger.direct_view(which).await, Ok(None));
    wire.check_refused(begin(&brief), Code::OperationRetentionExpired, &id, false).await;
}

pub async fn what_was_answered_is_not_unsettled<F: DirectFactory>() {
    // Promise: nothing waits for an operation whose upstream answered: counts, lists and keys say so.
    let wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    let unsettled = async || wire.ledger.stats().await.expect("the ledger works").unsettled;
    assert_eq!(unsettled().await, 1);
    wire.moved(with(hold, ANSWERED, "no")).await;
    assert_eq!(unsettled().await, 0);
    let list = async |stages: &[Stage]| {
        let stages = stages.to_vec();
        let query = ListQuery { stages, ..ListQuery::of_tenant(call("op-1").tenant()) };
        wire.ledger.list(query).await.expect("the ledger works").operations
    };
    assert!(list(&Stage::UNSETTLED).await.is_empty());
    let listed = list(&[Stage::Answered]).await;
    let told = listed.iter().map(|line| (line.observed, line.detail)).collect::<Vec<_>>();
    assert_eq!(told, [(ObservedState::Unknown, Detail::AnsweredWithError)]);
    let usage = wire.ledger.keys_in_use().await.expect("the ledger works");
    assert_eq!((usage[0].unsettled_count, usage[0].needed_count), (0, 1));
    wire.ledger.bind_keys(&ring(&[(1, 1)])).await.expect("the same key");
}

pub async fn an_operators_word_settles_what_nobody_sends<F: DirectFactory>() {
    // Promise: in doubt, asked and answered are settled as said; without proof "not applied" grants
    // nothing; what is settled is settled.
    let wire = Wire::<F>::new();
    let cases = [
        ("op-1", Report::Lost, Verdict::NotApplied, None, Resolution::Unproved),
        ("op-2", Report::Lost, Verdict::NotApplied, Some("log"), Resolution::Proved),
        ("op-3", ANSWERED, Verdict::NotApplied, None, Resolution::Unproved),
        ("op-4", ANSWERED, Verdict::Applied, None, Resolution::Proved),
        ("op-5", ASKS, Verdict::NotApplied, None, Resolution::Unproved),
        ("op-6", ASKS, Verdict::Applied, None, Resolution::Proved),
    ];
    for (id, report, verdict, proof, resolution) in cases {
        let hold = wire.send(&call(id)).await;
        let asked_until = Some(wire.ledger.now().plus(HOUR));
        wire.moved(Conclusion { asked_until, ..with(hold, report, "it") }).await;
        if report == ASKS {
            let owned = wire.ledger.resolve(say(&call(id), verdict, proof)).await;
            assert!(matches!(owned, Ok(Resolved::Owned { .. })), "{id}: {owned:?}");
            wire.pass(HOUR * 2);
        }
        match wire.ledger.resolve(say(&call(id), verdict, proof)).await {
            Ok(Resolved::Done(record)) => {
                assert!(record.state.is_terminal());
                assert_eq!(record.resolution, Some(resolution), "{id}");
            }
            other => panic!("{id}: {other:?}"),
        }
        let again = wire.ledger.resolve(say(&call(id), verdict, proof)).await;
        assert!(matches!(again, Ok(Resolved::Illegal(_))), "{id}: {again:?}");
        let replayed = wire.replayed(begin(&call(id))).await;
        assert!(replayed.view.record.result.is_some(), "{id}");
        assert_eq!(replayed.view.reply, None, "{id}: the operator's word, not the upstream's");
        assert!(!matches!(wire.begin(later(id, 2, "{}")).await, Begun::Send(..)), "{id}");
    }
    assert!(wire.in_doubt("memory").await.is_empty());
    let hold = wire.send(&call("op-7")).await;
    wire.pass(LEASE);
    let said = say(&call("op-7"), Verdict::NotApplied, None);
    assert!(matches!(wire.ledger.resolve(said).await, Ok(Resolved::Done(_))));
    let late = wire.conclude(with(hold, APPLIED, "yes")).await;
    assert!(matches!(late, Concluded::LateContradiction(_)), "{late:?}");
    let said = say(&call("op-7"), Verdict::Applied, Some("seen"));
    assert!(matches!(wire.ledger.resolve(said).await, Ok(Resolved::Illegal(_))));
    let waits = wire.waits(begin(&call("op-8"))).await;
    wire.pass(LEASE);
    let said = say(&call("op-8"), Verdict::NotApplied, None);
    assert!(matches!(wire.ledger.resolve(said).await, Ok(Resolved::Illegal(_))));
    assert_eq!(wire.dispatch(waits).await, Some(waits));
}

pub async fn a_cancellation_is_noted_once_for_each_request<F: DirectFactory>() {
    // Promise: that a caller took its call back is on record once for each request and changes nothing;
    // the effect is not hidden.
    let wire = Wire::<F>::new();
    let one = call("op-1");
    let caller = |call: &TestCall| super::super::calls::caller(call.tenant, call.principal);
    let cancel = async || {
        let principal = caller(&one).principal;
        wire.ledger.note_cancel(&one.tenant(), &one.operation_id(), &principal).await
    };
    let first = wire.send(&one).await;
    for _ in 0..2 {
        cancel().await.expect("the ledger works");
    }
    wire.moved(with(first, ASKS, "sure?")).await;
    cancel().await.expect("the ledger works");
    let (second, _) = wire.sent(later("op-1", 2, "{}")).await;
    for _ in 0..2 {
        cancel().await.expect("the ledger works");
    }
    let done = wire.moved(with(second, APPLIED, "done")).await;
    assert_eq!(text_of(&done), Some("done".into()));
    let kinds = [
        "dispatched",
        "cancel_requested",
        "asked_for_input",
        "dispatched",
        "cancel_requested",
        "learned_applied",
    ];
    assert_eq!(wire.kinds(first.key).await, kinds);
}

pub async fn a_closed_ledger_takes_nothing<F: DirectFactory>() {
    // Promise: after the close nothing is begun and nothing is reported.
    let wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    wire.ledger.close().await.expect("closes");
    let closed = counterfoil_store::StoreError::Closed;
    assert_eq!(wire.ledger.begin(joining(&call("own-1"))).await, Err(closed.clone()));
    let report = wire.ledger.conclude(vec![with(hold, REFUSED, "no")]).await;
    assert_eq!(report, Err(closed.clone()));
    assert_eq!(wire.ledger.conclude(vec![plain(hold, APPLIED)]).await, Err(closed));
}
