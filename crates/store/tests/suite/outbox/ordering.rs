//! What operators may order of an item, and what nobody may.

use std::time::Duration;

use counterfoil_core::delivery::{Contract, Ended, State, Terms};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::operation::{self, Verdict};
use counterfoil_core::record::Resolution;
use counterfoil_store::outbox::{Action, Directed, Happened, Which};
use counterfoil_store::{Resolve, Resolved, UnderWay};

use super::super::calls::{TestCall, call};
use super::{
    ABANDON, CANCEL, DAY, Desk, KEY, LEASE, OutboxFactory, QUEUED, REDRIVE, applied, at, order,
    refused, secs, terms, unknown,
};

/// How an item came to where it is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Past {
    Queued,
    /// Queued again after an attempt that may have been done.
    Retried,
    Leased,
    Sending,
    /// Leased, and its lease has ended; nobody took it back.
    LeaseEnded,
    /// The same while it was being sent.
    SendingEnded,
    /// The same, and nothing makes a repeat harmless.
    SendingEndedForGood,
    Delivered,
    /// A dead letter of which nothing was done.
    Dead,
    /// A dead letter of which something may have been done, under this contract.
    DeadAfterUnknown(Contract),
    /// The same, and the target has forgotten its key since.
    DeadAndForgotten,
    Parked,
    ParkedAfterUnknown,
    InDoubt,
    Cancelled,
    Abandoned,
}

impl Past {
    /// Whether whatever comes next takes it back first.
    fn has_lapsed(self) -> bool {
        matches!(self, Self::LeaseEnded | Self::SendingEnded | Self::SendingEndedForGood)
    }
}

async fn reach<F: OutboxFactory>(desk: &Desk<F>, past: Past) -> OperationKey {
    let contract = match past {
        Past::DeadAfterUnknown(contract) => contract,
        Past::InDoubt | Past::SendingEndedForGood => Contract::Never,
        _ => KEY,
    };
    let key = desk.fresh("op-1", contract).await;
    match past {
        Past::Queued => {}
        Past::Leased | Past::LeaseEnded => {
            desk.one().await;
        }
        Past::Sending | Past::SendingEnded | Past::SendingEndedForGood => {
            desk.sending().await;
        }
        Past::Delivered => {
            desk.attempt(applied()).await;
        }
        Past::Dead | Past::Abandoned => {
            desk.attempt(refused()).await;
        }
        Past::Retried | Past::InDoubt => {
            desk.attempt(unknown()).await;
        }
        Past::DeadAfterUnknown(_) | Past::DeadAndForgotten => {
            desk.attempt(unknown()).await;
            desk.pass(secs(1));
            desk.attempt(refused()).await;
        }
        Past::Parked => park(desk).await,
        Past::ParkedAfterUnknown => {
            desk.attempt(unknown()).await;
            desk.pass(secs(1));
            park(desk).await;
        }
        Past::Cancelled => {
            desk.order(key, CANCEL).await;
        }
    }
    match past {
        Past::DeadAndForgotten => desk.pass(DAY),
        past if past.has_lapsed() => desk.pass(LEASE),
        Past::Abandoned => {
            desk.order(key, ABANDON).await;
        }
        _ => {}
    }
    key
}

async fn park<F: OutboxFactory>(desk: &Desk<F>) {
    let item = desk.one().await;
    desk.revoke(&call("op-1"), false, true).await;
    desk.begin(&item).await;
}

pub async fn every_order_is_taken_or_refused_by_what_may_have_happened<F: OutboxFactory>() {
    // Promise: what may have been done is never told as not done, and is never sent again unless the
    // contract still makes that harmless; what is refused changes nothing.
    let not_applied = Some((State::Cancelled, operation::State::NotApplied));
    let in_doubt = Some((State::InDoubt, operation::State::InDoubt));
    let queued = Some((State::Queued, QUEUED));
    // The item's past; after redrive, cancel, abandon.
    let table = [
        (Past::Queued, None, not_applied, not_applied),
        (Past::Retried, None, in_doubt, None),
        (Past::Leased, None, None, None),
        (Past::Sending, None, None, None),
        (Past::LeaseEnded, None, not_applied, not_applied),
        (Past::SendingEnded, None, in_doubt, None),
        (Past::SendingEndedForGood, None, None, None),
        (Past::Delivered, None, None, None),
        (Past::Dead, queued, None, not_applied),
        (Past::DeadAfterUnknown(KEY), queued, None, None),
        (Past::DeadAfterUnknown(Contract::AtLeastOnce), queued, None, None),
        (Past::DeadAndForgotten, in_doubt, None, None),
        (Past::Parked, None, not_applied, not_applied),
        (Past::ParkedAfterUnknown, None, in_doubt, None),
        (Past::InDoubt, None, None, None),
        (Past::Cancelled, None, None, None),
        (Past::Abandoned, None, None, None),
    ];
    for (past, redrive, cancel, abandon) in table {
        for (action, expected) in [(REDRIVE, redrive), (CANCEL, cancel), (ABANDON, abandon)] {
            check_order::<F>(past, action, expected).await;
        }
    }
}

async fn check_order<F: OutboxFactory>(
    past: Past,
    action: Action,
    expected: Option<(State, operation::State)>,
) {
    let desk = Desk::<F>::new();
    let key = reach(&desk, past).await;
    let (before, trail) = (desk.view(key).await, desk.bench.audit(key).await);
    let directed = desk.order(key, action).await;
    let after = desk.view(key).await;
    match (directed, expected) {
        (Directed::Illegal(illegal), None) => {
            assert_eq!(illegal.from, after.delivery.state, "{past:?} {action:?}");
            assert!(!illegal.rule.is_empty());
            if !past.has_lapsed() {
                assert_eq!(after, before, "{past:?} {action:?}");
                assert_eq!(desk.bench.audit(key).await, trail);
            }
        }
        (Directed::Done(item), Some(expected)) => {
            assert_eq!(*item, after.delivery, "{past:?} {action:?}");
            assert_eq!((item.state, after.record.state), expected, "{past:?} {action:?}");
            let last = desk.bench.audit(key).await.pop().expect("an event");
            assert_eq!(
                (last.who.as_str(), last.reason.as_deref()),
                ("olga", Some("seen")),
                "{past:?} {action:?}"
            );
        }
        (directed, _) => panic!("{past:?} {action:?}: {directed:?}"),
    }
}

pub async fn a_redrive_grants_new_attempts_for_the_same_request<F: OutboxFactory>() {
    // Promise: what is sent again is what was accepted, under its own key and fence, with as many
    // attempts and as much time as at first; it is due at once.
    let desk = Desk::<F>::new();
    let within = Terms { deliver_within: Some(secs(60)), ..terms(KEY) };
    let key = desk.fresh_on(&call("op-1"), within).await;
    desk.attempt(refused()).await;
    desk.pass(DAY);
    let Directed::Done(item) = desk.order(key, REDRIVE).await else { panic!("not done") };
    assert_eq!((item.attempts_count, item.attempt_limit), (1, 4));
    assert_eq!(item.deliver_by, Some(at(DAY + secs(60))));
    assert_eq!(item.next_attempt_at, Some(at(DAY)));
    let again = desk.sending().await;
    assert_eq!((*again.request).to_vec(), b"POST /op-1");
    assert_eq!((again.delivery.key, again.delivery.fence), (key, 2));
    desk.report(&again, Happened::Sent(applied())).await;
    desk.check(key, State::Delivered, operation::State::Applied).await;
}

pub async fn a_withdrawn_item_is_settled_with_a_result<F: OutboxFactory>() {
    // Promise: whoever asks for a cancelled or abandoned operation hears that it was not done, and
    // the item says how it ended.
    for (past, action, ended) in
        [(Past::Queued, CANCEL, Ended::Cancelled), (Past::Dead, ABANDON, Ended::Abandoned)]
    {
        let desk = Desk::<F>::new();
        let key = reach(&desk, past).await;
        desk.order(key, action).await;
        let view = desk.view(key).await;
        assert_eq!(view.delivery.ended, Some(ended));
        assert_eq!((view.delivery.next_attempt_at, view.delivery.lease), (None, None));
        assert!(view.record.result.is_some() && view.record.settled_at.is_some());
        assert!(view.record.retention_ends_at.is_some());
        let kinds = desk.bench.kinds(key).await;
        assert_eq!(kinds.last().map(String::as_str), Some(ended.as_str()));
        assert_eq!(desk.next_due().await, None);
        assert!(desk.claim(1).await.items.is_empty());
    }
}

pub async fn an_order_on_many_is_decided_one_by_one<F: OutboxFactory>() {
    // Promise: each item is found by its key or by its operation, and answered in order; one that is
    // not there, or named twice, stops no other.
    let desk = Desk::<F>::new();
    let first = desk.fresh("op-1", KEY).await;
    let second = desk.fresh("op-2", KEY).await;
    let local = desk.bench.fresh(&call("local"), &super::super::effects::note("body")).await;
    let by_name = |call: &TestCall| Which::Operation(call.tenant(), call.operation_id());
    let which = vec![
        Which::Key(first),
        by_name(&call("op-2")),
        by_name(&call("op-3")),
        by_name(&TestCall { tenant: "other", ..call("op-2") }),
        Which::Key(local.key),
        Which::Key(OperationKey::from_bytes([0xff; 16])),
        Which::Key(first),
    ];
    let directed = desk.outbox.direct(order(which, CANCEL)).await.expect("the ledger works");
    let done =
        |directed: &Directed, key| matches!(directed, Directed::Done(item) if item.key == key);
    assert!(done(&directed[0], first) && done(&directed[1], second), "{directed:?}");
    assert_eq!(directed[2..6], [const { Directed::Absent }; 4]);
    assert!(matches!(directed[6], Directed::Illegal(_)) && directed.len() == 7);
}

pub async fn an_operators_word_settles_what_nobody_sends<F: OutboxFactory>() {
    // Promise: a word settles record and item together, and only where no worker is at it; "not
    // applied" of what may have been done is believed only with a proof.
    let done = |state, resolution| Some((state, resolution));
    let applied = done(operation::State::Applied, Resolution::Proved);
    let surely_not = done(operation::State::NotApplied, Resolution::Proved);
    let perhaps_not = done(operation::State::NotApplied, Resolution::Unproved);
    // The item's past; after "applied", "not applied", "not applied" with a proof.
    let table = [
        (Past::Queued, None, None, None),
        (Past::Retried, None, None, None),
        (Past::Leased, None, None, None),
        (Past::Sending, None, None, None),
        (Past::LeaseEnded, None, None, None),
        (Past::SendingEnded, None, None, None),
        (Past::SendingEndedForGood, applied, perhaps_not, surely_not),
        (Past::Delivered, None, None, None),
        (Past::Dead, applied, surely_not, surely_not),
        (Past::DeadAfterUnknown(KEY), applied, perhaps_not, surely_not),
        (Past::Parked, None, None, None),
        (Past::InDoubt, applied, perhaps_not, surely_not),
        (Past::Cancelled, None, None, None),
    ];
    for (past, first, second, third) in table {
        check_word::<F>(past, Verdict::Applied, None, first).await;
        check_word::<F>(past, Verdict::NotApplied, None, second).await;
        check_word::<F>(past, Verdict::NotApplied, Some("asked the desk"), third).await;
    }
}

async fn check_word<F: OutboxFactory>(
    past: Past,
    verdict: Verdict,
    proof: Option<&str>,
    expected: Option<(operation::State, Resolution)>,
) {
    let desk = Desk::<F>::new();
    let key = reach(&desk, past).await;
    let (before, trail) = (desk.view(key).await, desk.bench.audit(key).await);
    let said = Resolve {
        tenant: call("op-1").tenant(),
        operation_id: call("op-1").operation_id(),
        verdict,
        who: "olga".into(),
        reason: "looked".into(),
        proof: proof.map(str::to_owned),
    };
    let resolved = desk.outbox.resolve(said).await.expect("the ledger works");
    let after = desk.view(key).await;
    match (resolved, expected) {
        (Resolved::Done(record), Some((state, resolution))) => {
            assert_eq!(*record, after.record);
            assert_eq!((record.state, record.resolution), (state, Some(resolution)), "{past:?}");
            let happened = state == operation::State::Applied;
            let item = if happened { State::Delivered } else { State::Cancelled };
            assert_eq!((after.delivery.state, after.delivery.ended), (item, Some(Ended::Resolved)));
            let trail = desk.bench.audit(key).await;
            let last = trail.last().expect("an event");
            assert_eq!((last.who.as_str(), last.proof.as_deref()), ("olga", proof));
            assert!(last.kind.starts_with("resolved_"), "{}", last.kind);
            assert!(matches!(desk.order(key, REDRIVE).await, Directed::Illegal(_)));
        }
        (refused, None) => {
            let held = after.delivery.lease.map(|lease| Resolved::Owned { until: lease.until });
            match held {
                Some(held) => assert_eq!(refused, held),
                None => assert!(matches!(refused, Resolved::Illegal(_)), "{past:?}: {refused:?}"),
            }
            if !past.has_lapsed() {
                assert_eq!((after, desk.bench.audit(key).await), (before, trail), "{past:?}");
            }
        }
        (resolved, _) => panic!("{past:?} {verdict:?} {proof:?}: {resolved:?}"),
    }
}

pub async fn what_was_withdrawn_while_a_worker_had_it_is_refused<F: OutboxFactory>() {
    // Promise: an order never overtakes a worker: it is refused until the attempt has ended, and
    // then it holds.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let item = desk.one().await;
    assert!(matches!(desk.order(key, CANCEL).await, Directed::Illegal(_)));
    desk.pass(LEASE + Duration::from_secs(1));
    desk.outbox.take_back_lapsed(UnderWay::default(), 1).await.expect("the ledger works");
    assert!(matches!(desk.order(key, CANCEL).await, Directed::Done(_)));
    assert_eq!(desk.begin(&item).await, counterfoil_store::outbox::Begun::NotHeld);
    desk.check(key, State::Cancelled, operation::State::NotApplied).await;
}
