//! What an operator reads of a delivery, from items made by hand.

use std::time::Duration;

use counterfoil_core::delivery::{
    Contract, Delivery, ErrorClass, ParkReason, Parked, State, TargetName, TargetState, Terms,
};
use counterfoil_core::fingerprint::{Fingerprint, KeyId, Profile};
use counterfoil_core::identity::{
    BackendId, Nonce, OperationId, OperationKey, Principal, Tenant, ToolId, ToolVersion,
};
use counterfoil_core::operation::{self, Phase};
use counterfoil_core::record::{Binding, Nature, Record};
use counterfoil_core::time::Timestamp;
use counterfoil_store::outbox::DeliveryView;

use super::outcome::{Outcome, Summary, Told};
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_ms(1_767_225_600_000 + second * 1000)
}

fn record() -> Record {
    Record {
        key: OperationKey::from_bytes([0xa7; 16]),
        tenant: Tenant::parse("acme").expect("valid"),
        operation_id: OperationId::parse("ticket-4711").expect("valid"),
        principal: Principal::parse("alice").expect("valid"),
        tool_id: ToolId::parse("submit_support_ticket").expect("valid"),
        tool_version: ToolVersion::parse("1").expect("valid"),
        binding: Binding {
            profile: Profile::JcsV1,
            key_id: KeyId(1),
            full: Fingerprint::from_bytes([2; 32]),
            call: Fingerprint::from_bytes([3; 32]),
        },
        nature: Nature::Deferred,
        state: operation::State::InProgress(Phase::Queued),
        owner: None,
        effect: None,
        result: None,
        nonce: Nonce::from_bytes([5; 16]),
        created_at: at(0),
        authority_ends_at: None,
        settled_at: None,
        retention_ends_at: None,
        purged: false,
        resolution: None,
    }
}

/// An item after two attempts, of which one may have been done.
fn view(state: State, contract: Contract) -> DeliveryView {
    let terms = Terms {
        contract,
        max_attempts_count: 2,
        backoff_base: Duration::from_millis(500),
        backoff_cap: Duration::from_secs(90),
        send_limit: Duration::from_secs(10),
        deliver_within: Some(Duration::from_secs(3 * 86_400)),
    };
    let target = TargetName::parse("helpdesk").expect("valid");
    let accepted = Delivery::accepted(record().key, target, terms, at(0));
    let delivery = Delivery {
        state,
        fence: 2,
        attempts_count: 2,
        unknown_count: 1,
        first_dispatch_at: Some(at(1)),
        last_send_until: Some(at(20)),
        next_attempt_at: (state == State::Queued).then(|| at(300)),
        last_error: Some((ErrorClass::NoReply, "the connection\u{1b}[2J ended".into())),
        park: (state == State::Parked).then_some(ParkReason::TenantRevoked),
        updated_at: at(25),
        ..accepted
    };
    DeliveryView { record: record(), delivery, target: TargetState::default() }
}

fn shown(view: &DeliveryView) -> String {
    let backend = BackendId::parse("desk").expect("valid");
    let report = report::Report::new(&backend, view, at(60));
    let text = report.to_text(false, None);
    assert!(!text.contains('\u{1b}'), "{text}");
    let json = serde_json::to_string_pretty(&report.to_json(false, None)).expect("JSON");
    format!("{text}\n\n{json}")
}

#[test]
fn a_dead_letter_is_shown_with_what_may_be_done() {
    // Promise: whoever reads it knows what happened, what may be done and what forbids the rest;
    // text from outside cannot steer the terminal.
    let lifetime = Duration::from_secs(86_400);
    let absence_after = Some(Duration::from_secs(3600));
    let contract = Contract::KeyAndLookup { lifetime, absence_after };
    insta::assert_snapshot!(shown(&view(State::DeadLetter, contract)));
}

#[test]
fn an_item_that_is_held_back_is_shown_with_the_way_on() {
    // Promise: a parked item names what stands against it, and the command that puts it right.
    insta::assert_snapshot!(shown(&view(State::Parked, Contract::Never)));
}

#[test]
fn an_item_behind_a_parked_target_says_so() {
    // Promise: nobody searches an item for a fault that is its target's.
    let mut view = view(State::Queued, Contract::AtLeastOnce);
    view.target.parked = Some(Parked {
        class: ErrorClass::Credential,
        words: "401".into(),
        since: at(30),
        probes_count: 2,
        probe_at: at(90),
    });
    let text = shown(&view);
    for words in [
        "parked since 2026-01-01T00:00:30.000Z (credential: 401), tried 2 times since, again at",
        "`counterfoil target resume helpdesk --reason TEXT` tries at once",
        "at_least_once (a repeat may double it, and that is accepted)",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn a_summary_tells_what_was_not_done_and_ends_accordingly() {
    // Promise: an order on many never hides a refusal: counts, rules, IDs, and the exit code.
    let told = |outcome: Outcome| Told {
        ticket_id: Some("tkt_1".into()),
        operation_id: "op-1".into(),
        tenant: Some("local".into()),
        outcome,
        state: Some(State::Queued),
    };
    use Outcome::{Absent, Done, InDoubt, Quarantined, Refused};
    let cases: &[(&[Outcome], Exit, &str)] = &[
        (&[], Exit::Done, "0 redriven"),
        (&[Done, Done], Exit::Done, "2 redriven"),
        (&[Done, Refused("a rule")], Exit::Refused, "1 redriven\n1 refused, queued: a rule\n"),
        (&[Refused("a rule")], Exit::Refused, "0 redriven\n1 refused, queued: a rule\n    tkt_1"),
        (&[Done, InDoubt], Exit::Refused, "1 are in doubt now: an attempt may have been done"),
        (&[Absent], Exit::Failed, "1 absent: there is no such delivery"),
        (&[Done, Absent], Exit::Refused, "1 redriven\n1 absent"),
        (&[Quarantined, Absent], Exit::Failed, "counterfoil store check FILE"),
    ];
    for (outcomes, exit, words) in cases {
        let mut summary = Summary::new(Verb::Redrive, false, true);
        outcomes.iter().for_each(|outcome| summary.add(told(*outcome)));
        assert_eq!(summary.exit(), *exit, "{outcomes:?}");
        let text = summary.as_text();
        assert!(text.contains(words), "{words}\n{text}");
    }
    let mut summary = Summary::new(Verb::Cancel, true, true);
    (0..1500).for_each(|_| summary.add(told(Refused("a rule"))));
    let json = summary.as_json("mara", "a reason", true);
    assert_eq!(json["items"].as_array().expect("a list").len(), 1000);
    assert_eq!((&json["refused"], &json["itemsLeftOut"]), (&1500.into(), &500.into()));
    assert!(summary.as_text().contains("1500 would be refused, queued: a rule\n"));
    assert!(summary.as_text().ends_with("    and 1497 more"));
}
