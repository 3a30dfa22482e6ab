//! What an operator reads, from records made by hand.

use super::*;
use counterfoil_core::fingerprint::{Fingerprint, KeyId, Profile};
use counterfoil_core::identity::{
    BackendId, BootId, Nonce, OperationKey, Principal, ToolId, ToolVersion,
};
use counterfoil_core::listing::Listed;
use counterfoil_core::observation::EffectSeen;
use counterfoil_core::operation::Event;
use counterfoil_core::record::{Binding, EffectRef, Owner, StoredResult};
use counterfoil_core::time::Timestamp;
use counterfoil_store::{AuditEvent, Cursor, Page};

const SECRET: &str = "hunter2";

fn at(second: i64) -> Timestamp {
    Timestamp::from_ms(1_767_225_600_000 + second * 1000)
}

fn id() -> OperationId {
    OperationId::parse("ticket-4711").expect("valid")
}

fn record(state: State) -> Record {
    let settled = state.is_terminal();
    let owned = matches!(state, State::InProgress(_));
    Record {
        key: OperationKey::from_bytes([1; 16]),
        tenant: Tenant::parse("local").expect("valid"),
        operation_id: id(),
        principal: Principal::parse("alice").expect("valid"),
        tool_id: ToolId::parse("create_issue").expect("valid"),
        tool_version: ToolVersion::parse("1").expect("valid"),
        binding: Binding {
            profile: Profile::StrictV1,
            key_id: KeyId(1),
            full: Fingerprint::from_bytes([2; 32]),
            call: Fingerprint::from_bytes([3; 32]),
        },
        nature: counterfoil_core::record::Nature::Local,
        state,
        owner: owned.then(|| Owner {
            boot: BootId::from_bytes([0xb0; 16]),
            fence: 2,
            lease_until: at(30),
        }),
        effect: Some(EffectRef { table: "issues".into(), id: 17, digest: [4; 32] }),
        result: settled.then(|| StoredResult::from_text(SECRET)),
        nonce: Nonce::from_bytes([5; 16]),
        created_at: at(0),
        authority_ends_at: Some(at(3600)),
        settled_at: settled.then(|| at(1)),
        retention_ends_at: settled.then(|| at(2_592_001)),
        purged: false,
        resolution: None,
    }
}

fn event(seq: i64, kind: &str, identity: &str, reason: Option<&str>) -> AuditEvent {
    AuditEvent {
        seq,
        at: at(seq),
        kind: kind.into(),
        identity: identity.into(),
        who: "alice".into(),
        reason: reason.map(str::to_owned),
        proof: None,
    }
}

/// The report of `record` as text and as JSON, with and without its result.
fn report(record: Record, effect: EffectSeen, audit: &[AuditEvent], show_result: bool) -> String {
    let backend = BackendId::parse("desk").expect("valid");
    let snapshot = Snapshot::Found { record: Box::new(record.clone()), effect };
    let report = Report::new(&backend, &snapshot, &record, audit, at(60));
    let json = serde_json::to_string_pretty(&report.to_json(show_result)).expect("JSON");
    format!("{}\n\n{json}", report.to_text(show_result))
}

#[test]
fn a_settled_operation_is_shown_without_its_result() {
    // Promise: `operation show` tells all that an operator needs, and no result unless asked.
    let audit = [event(1, "applied", "ticket-4711", None)];
    let shown = report(record(State::Applied), EffectSeen::Same, &audit, false);
    assert!(!shown.contains(SECRET), "{shown}");
    insta::assert_snapshot!(shown);
    let asked = report(record(State::Applied), EffectSeen::Same, &audit, true);
    assert_eq!(asked.matches(SECRET).count(), 2, "{asked}");
}

#[test]
fn an_unfinished_operation_shows_its_owner_and_what_callers_see() {
    // Promise: what a crash left between two steps is shown as it is: unknown, owned, first step in.
    let audit = [event(1, "first_step_committed", "ticket-4711", None)];
    let record = record(State::InProgress(Phase::FirstCommit));
    insta::assert_snapshot!(report(record, EffectSeen::Same, &audit, false));
}

#[test]
fn a_partial_effect_shows_the_failed_compensation_under_its_own_identity() {
    // Promise: a failed compensation stays visible, with its own identity and reason; text from the
    // ledger cannot steer the terminal.
    let mut resolved = event(4, "resolved", "ticket-4711", Some("line one\nline two\x1b[2J"));
    resolved.proof = Some("change 2231".into());
    let audit = [
        event(1, "first_step_committed", "ticket-4711", None),
        event(2, "compensation_failed", "ticket-4711#undo", Some("the row is locked")),
        event(3, "partial", "ticket-4711", Some("no such user")),
        resolved,
    ];
    let mut record = record(State::Partial);
    record.resolution = Some(Resolution::Proved);
    record.purged = true;
    record.result = None;
    let shown = report(record, EffectSeen::Changed, &audit, true);
    assert!(!shown.contains('\x1b'), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn a_list_is_read_by_people_and_by_programs() {
    // Promise: a list tells state and what callers see, never a result; text from the ledger cannot
    // steer the terminal or break a line.
    let mut odd = record(State::InProgress(Phase::FirstCommit));
    odd.operation_id = OperationId::parse("über\u{202e}4711").expect("valid");
    odd.principal = Principal::parse("a much longer name").expect("valid");
    let operations = vec![
        Listed::of(odd, EffectSeen::Same),
        Listed::of(record(State::Applied), EffectSeen::Missing),
        Listed::of(record(State::NotApplied), EffectSeen::Missing),
    ];
    let next = Some(Cursor::from_bytes([0xab; 16]));
    let page = Page { operations, damaged_count: 1, next };
    let tenant = Tenant::parse("local").expect("valid");
    let json = serde_json::to_string_pretty(&list::as_json(&page, &tenant)).expect("JSON");
    let shown = format!("{}\n\n{json}", list::table(&page.operations));
    assert!(!list::table(&page.operations).contains('\u{202e}'), "{shown}");
    assert!(!shown.contains(SECRET), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn every_outcome_of_a_resolve_has_its_words_and_exit_code() {
    // Promise: an operator always learns what happened, what was not changed and what to do next.
    let illegal = |from| {
        Resolved::Illegal(IllegalTransition { from, event: Event::Resolve(Verdict::Applied) })
    };
    let mut unproved = record(State::NotApplied);
    unproved.resolution = Some(Resolution::Unproved);
    let (table, row_id) = ("issues".to_owned(), 17);
    let cases = [
        (Resolved::Done(Box::new(record(State::Applied))), Exit::Done, "settled as applied"),
        (Resolved::Done(Box::new(unproved)), Exit::Done, "retry: status_only"),
        (Resolved::Absent, Exit::Failed, "no operation `ticket-4711`"),
        (Resolved::Quarantined, Exit::Failed, "counterfoil store check"),
        (illegal(Some(State::Applied)), Exit::Refused, "settled already, as applied"),
        (illegal(Some(State::Partial)), Exit::Refused, "settled already, as partial"),
        (
            illegal(Some(State::InProgress(Phase::Claimed))),
            Exit::Refused,
            "send the same call again with the same ID",
        ),
        (Resolved::Owned { until: at(30) }, Exit::Refused, "after 2026-01-01T00:00:30.000Z"),
        (
            Resolved::EffectStands { table: table.clone(), id: row_id },
            Exit::Refused,
            "row 17 of `issues`, and it is still there; nothing was changed: use --applied",
        ),
        (
            Resolved::EffectGone { table, id: row_id },
            Exit::Refused,
            "row 17 of `issues`, and it is gone; nothing was changed: use --not-applied",
        ),
    ];
    for (resolved, exit, words) in cases {
        let told = tell(&id(), &resolved, "mara");
        assert_eq!(told.exit, exit, "{resolved:?}");
        assert!(told.message.contains(words), "{words}\n{}", told.message);
        if exit == Exit::Refused {
            assert!(told.message.contains("nothing was changed"), "{}", told.message);
        }
        assert!(!told.message.contains(SECRET));
    }
}

#[test]
fn who_decides_is_always_known() {
    // Promise: no decision is recorded without a name.
    for bad in ["", " \n", "a\u{0}", &"x".repeat(MAX_NOTE_BYTES + 1)] {
        assert!(note_text(bad).is_err(), "{bad:?}");
    }
}
