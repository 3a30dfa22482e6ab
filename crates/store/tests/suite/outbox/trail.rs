//! What the audit trail says of a delivery, whichever way it took.

use counterfoil_core::delivery::{Contract, LookupEnd, SendEnd};
use counterfoil_core::operation::Verdict;
use counterfoil_store::outbox::{Action, Happened, Which};
use counterfoil_store::{Resolve, UnderWay};

use super::super::calls::{call, caller};
use super::{
    ABANDON, CANCEL, DAY, Desk, HOUR, KEY, KEY_AND_LOOKUP, LEASE, LOOKUP, OutboxFactory, REDRIVE,
    applied, found, name, refused, secs, unauthorized, unknown, unreachable,
};

/// One thing that happens.
#[derive(Debug, Clone)]
enum Does {
    Attempt(SendEnd),
    Search(LookupEnd),
    SearchInVain,
    LoseLeased,
    LoseSending,
    HandBack,
    Order(Action),
    Resolve(Verdict),
    Forget,
    Know,
    Repeat,
    Pass(u64),
}

async fn do_one<F: OutboxFactory>(desk: &Desk<F>, does: Does) {
    let call = call("op-1");
    match does {
        Does::Attempt(end) => {
            desk.attempt(end).await;
        }
        Does::Search(end) => {
            desk.search(end).await;
        }
        Does::SearchInVain => {
            desk.search_in_vain().await;
        }
        Does::LoseLeased => {
            desk.one().await;
            lose(desk).await;
        }
        Does::LoseSending => {
            desk.sending().await;
            lose(desk).await;
        }
        Does::HandBack => {
            let item = desk.one().await;
            desk.report(&item, Happened::HandedBack).await;
        }
        Does::Order(action) => {
            let which = Which::Operation(call.tenant(), call.operation_id());
            desk.outbox.direct(super::order(vec![which], action)).await.expect("works");
        }
        Does::Resolve(verdict) => {
            let said = Resolve {
                tenant: call.tenant(),
                operation_id: call.operation_id(),
                verdict,
                who: "olga".into(),
                reason: "seen".into(),
                proof: None,
            };
            desk.outbox.resolve(said).await.expect("works");
        }
        Does::Forget => {
            desk.outbox.match_targets(Vec::new(), 9).await.expect("works");
        }
        Does::Know => {
            desk.outbox.match_targets(vec![name(super::DESK)], 9).await.expect("works");
        }
        Does::Repeat => {
            desk.accept(&call, super::DESK, super::terms(KEY)).await;
        }
        Does::Pass(s) => desk.pass(secs(s)),
    }
}

async fn lose<F: OutboxFactory>(desk: &Desk<F>) {
    desk.pass(LEASE);
    desk.outbox.take_back_lapsed(UnderWay::default(), 9).await.expect("works");
}

/// Way, contract, and the kinds after `accepted`.
fn ways() -> Vec<(Contract, Vec<Does>, Vec<&'static str>)> {
    use Does::{Attempt, HandBack, LoseLeased, LoseSending, Pass, Repeat, Resolve as Settle};
    let attempt = "attempt_started";
    let doubt = Contract::Never;
    vec![
        (KEY, vec![], vec![]),
        (KEY, vec![Attempt(applied())], vec![attempt, "delivered"]),
        (
            KEY,
            vec![Repeat, Attempt(applied()), Repeat],
            vec!["duplicate_submission", attempt, "delivered", "duplicate_submission"],
        ),
        (
            KEY,
            vec![Attempt(unreachable()), Pass(1), Attempt(applied())],
            vec![attempt, "retry_scheduled", attempt, "delivered"],
        ),
        (KEY, vec![LoseLeased, HandBack, Attempt(applied())], vec![attempt, "delivered"]),
        (KEY, vec![LoseSending], vec![attempt, "retry_scheduled"]),
        (doubt, vec![LoseSending], vec![attempt, "in_doubt"]),
        (
            doubt,
            vec![Attempt(unknown()), Settle(Verdict::Applied)],
            vec![attempt, "in_doubt", "resolved_applied"],
        ),
        (
            doubt,
            vec![Attempt(refused()), Settle(Verdict::NotApplied)],
            vec![attempt, "dead_letter", "resolved_not_applied"],
        ),
        (KEY, vec![Attempt(unauthorized())], vec![attempt, "target_parked"]),
    ]
}

/// The ways on which people, or searches, have a part.
fn longer_ways() -> Vec<(Contract, Vec<Does>, Vec<&'static str>)> {
    use Does::{Attempt, Forget, Know, Order, Pass, Search, SearchInVain};
    let attempt = "attempt_started";
    let open = LookupEnd::Open { words: "status 503".into(), retry_after: None };
    vec![
        (KEY, vec![Forget, Know], vec!["parked", "unparked"]),
        (KEY, vec![Order(CANCEL)], vec!["cancelled"]),
        (
            KEY,
            vec![Attempt(unknown()), Order(CANCEL)],
            vec![attempt, "retry_scheduled", "cancelled_in_doubt"],
        ),
        (
            KEY,
            vec![Attempt(refused()), Order(REDRIVE), Order(REDRIVE), Attempt(applied())],
            vec![attempt, "dead_letter", "redriven", attempt, "delivered"],
        ),
        (KEY, vec![Attempt(refused()), Order(ABANDON)], vec![attempt, "dead_letter", "abandoned"]),
        (
            LOOKUP,
            vec![
                Attempt(unknown()),
                Pass(1),
                Search(open),
                Pass(1),
                SearchInVain,
                Pass(3600),
                Search(found()),
            ],
            vec![attempt, "retry_scheduled", "lookup_open", "lookup_open", "found"],
        ),
        (
            KEY_AND_LOOKUP,
            vec![Attempt(unknown()), Pass(DAY.as_secs()), SearchInVain],
            vec![attempt, "retry_scheduled", "proved_absent"],
        ),
        (
            KEY_AND_LOOKUP,
            vec![Attempt(unknown()), Pass(1), Attempt(refused()), Pass(HOUR.as_secs() * 24)],
            vec![attempt, "retry_scheduled", attempt, "lookup_scheduled"],
        ),
    ]
}

pub async fn every_way_of_an_item_is_on_record<F: OutboxFactory>() {
    // Promise: the trail holds each attempt's beginning and end and each order, in order, numbered
    // without a gap; what changed nothing for anybody leaves no line.
    for (contract, way, expected) in [ways(), longer_ways()].concat() {
        let desk = Desk::<F>::new();
        let key = desk.fresh("op-1", contract).await;
        for does in way.clone() {
            do_one(&desk, does).await;
        }
        let trail = desk.bench.audit(key).await;
        let kinds: Vec<&str> = trail.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, [vec!["accepted"], expected].concat(), "{way:?}");
        for (at, event) in trail.iter().enumerate() {
            assert_eq!((event.seq, event.identity.as_str()), (at as i64 + 1, "op-1"));
        }
    }
}

pub async fn an_event_says_who_and_why<F: OutboxFactory>() {
    // Promise: what a worker did stands under the caller's name with the failure's words; what an
    // operator ordered stands under the operator's, with the reason.
    let mut desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    desk.attempt(refused()).await;
    desk.pass(secs(4));
    desk.order(key, REDRIVE).await;
    desk.reopen().await;
    let trail = desk.bench.audit(key).await;
    let told: Vec<_> = trail
        .iter()
        .map(|event| (event.kind.as_str(), event.who.as_str(), event.reason.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            ("accepted", "alice", None),
            ("attempt_started", "alice", None),
            ("dead_letter", "alice", Some("rejected: refused")),
            ("redriven", "olga", Some("seen")),
        ]
    );
    assert_eq!(trail[3].at, super::at(secs(4)));
}

pub async fn a_call_taken_back_leaves_its_delivery_alone<F: OutboxFactory>() {
    // Promise: that a caller no longer waits is on record, and the accepted delivery goes on.
    let desk = Desk::<F>::new();
    let key = desk.fresh("op-1", KEY).await;
    let (call, who) = (call("op-1"), caller("local", "alice"));
    desk.outbox
        .note_cancel(&who.tenant, &call.operation_id(), &who.principal)
        .await
        .expect("works");
    desk.attempt(applied()).await;
    let kinds = desk.bench.kinds(key).await;
    assert_eq!(kinds, ["accepted", "cancel_requested", "attempt_started", "delivered"]);
}
