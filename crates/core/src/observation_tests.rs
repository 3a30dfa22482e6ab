//! What others see of an operation: one case per state, phase, row and resolution.

use serde_json::{Value, json};

use super::*;
use crate::fingerprint::{Fingerprint, KeyId, Profile};
use crate::identity::{Nonce, OperationKey, Principal, Tenant, ToolId, ToolVersion};
use crate::record::{Binding, EffectRef, StoredResult};

fn caller(principal: &str) -> Caller {
    Caller {
        tenant: Tenant::parse("local").expect("valid"),
        principal: Principal::parse(principal).expect("valid"),
    }
}

fn id(text: &str) -> OperationId {
    OperationId::parse(text).expect("valid")
}

fn record(state: State) -> Record {
    Record {
        key: OperationKey::from_bytes([1; 16]),
        tenant: Tenant::parse("local").expect("valid"),
        operation_id: id("case-03"),
        principal: Principal::parse("alice").expect("valid"),
        tool_id: ToolId::parse("create_issue").expect("valid"),
        tool_version: ToolVersion::parse("1").expect("valid"),
        binding: Binding {
            profile: Profile::StrictV1,
            key_id: KeyId(1),
            full: Fingerprint::from_bytes([2; 32]),
            call: Fingerprint::from_bytes([3; 32]),
        },
        nature: crate::record::Nature::Local,
        state,
        owner: None,
        effect: Some(EffectRef { table: "issues".into(), id: 1, digest: [4; 32] }),
        result: Some(StoredResult::from_text("created 1")),
        nonce: Nonce::from_bytes([5; 16]),
        created_at: Timestamp::from_ms(0),
        authority_ends_at: None,
        settled_at: None,
        retention_ends_at: None,
        purged: false,
        resolution: None,
    }
}

fn see(principal: &str, asked: &str, snapshot: &Snapshot) -> Observation {
    let backend = BackendId::parse("ledger-1").expect("valid");
    observe(&caller(principal), &id(asked), &backend, snapshot, Timestamp::from_ms(0))
}

fn found(record: Record, effect: EffectSeen) -> Snapshot {
    Snapshot::Found { record: Box::new(record), effect }
}

/// `[state, detail, matchingIds, storedResult, retry]` as alice sees them.
fn summary(snapshot: &Snapshot) -> Value {
    let seen = see("alice", "case-03", snapshot);
    json!([
        seen.state.as_str(),
        seen.detail.as_str(),
        seen.matching_ids,
        seen.stored_result,
        seen.retry().as_str(),
    ])
}

#[test]
fn each_state_is_seen_as_what_it_proves() {
    // Promise: applied, partial and not applied rest on the record, the row and the result
    // together; everything unfinished, in doubt or contradictory is unknown.
    use EffectSeen::{Changed, Missing, NotLocal, Same};
    use State::{Applied, InDoubt, InProgress, NotApplied, Partial};
    let unknown = |detail: &str| json!(["unknown", detail, [], null, "status_only"]);
    let cases = [
        (Applied, Same, json!(["applied", "settled", [1], "created 1", "none"])),
        (Applied, Changed, json!(["applied", "effect_changed_later", [1], "created 1", "none"])),
        (Applied, Missing, unknown("effect_missing")),
        (Applied, NotLocal, json!(["applied", "settled", [], "created 1", "none"])),
        (Partial, Same, json!(["partial", "settled", [1], "created 1", "none"])),
        (Partial, Changed, json!(["partial", "effect_changed_later", [1], "created 1", "none"])),
        (Partial, Missing, unknown("effect_missing")),
        (NotApplied, Missing, json!(["not_applied", "settled", [], "created 1", "none"])),
        (NotApplied, Same, json!(["not_applied", "settled", [], "created 1", "none"])),
        (NotApplied, Changed, json!(["not_applied", "settled", [], "created 1", "none"])),
        (NotApplied, NotLocal, json!(["not_applied", "settled", [], "created 1", "none"])),
        (InProgress(Phase::Claimed), NotLocal, unknown("in_progress")),
        (InProgress(Phase::Dispatched), NotLocal, unknown("in_progress")),
        (InProgress(Phase::FirstCommit), Same, unknown("first_step_committed")),
        (InDoubt, NotLocal, unknown("in_doubt")),
    ];
    for (state, effect, expected) in cases {
        let seen = summary(&found(record(state), effect));
        assert_eq!(seen, expected, "{state:?}, row {effect:?}");
    }
}

#[test]
fn a_purge_keeps_the_state_and_a_lost_result_does_not() {
    // Promise: after its purge the state stays and says so; a settled row without a result that
    // nobody purged contradicts itself and is unknown.
    for (state, row, ids) in [
        (State::Applied, EffectSeen::Same, json!([1])),
        (State::Applied, EffectSeen::Changed, json!([1])),
        (State::Partial, EffectSeen::Same, json!([1])),
        (State::NotApplied, EffectSeen::NotLocal, json!([])),
    ] {
        let mut record = record(state);
        record.result = None;
        let lost = summary(&found(record.clone(), row));
        assert_eq!(lost, json!(["unknown", "quarantined", [], null, "status_only"]), "{state:?}");
        record.purged = true;
        let purged = summary(&found(record, row));
        let word = see_word(state);
        assert_eq!(purged, json!([word, "purged", ids, null, "none"]), "{state:?}, {row:?}");
    }
}

fn see_word(state: State) -> &'static str {
    match state {
        State::Applied => "applied",
        State::Partial => "partial",
        State::NotApplied => "not_applied",
        State::InProgress(_) | State::InDoubt | State::Answered => "unknown",
    }
}

#[test]
fn an_operators_word_is_told_apart_and_without_proof_grants_nothing() {
    // Promise: not applied by an operator without proof stays `status_only`.
    let cases = [
        (State::Applied, Resolution::Proved, "resolved_by_operator", "none"),
        (State::Partial, Resolution::Proved, "resolved_by_operator", "none"),
        (State::NotApplied, Resolution::Proved, "resolved_by_operator", "none"),
        (State::NotApplied, Resolution::Unproved, "resolved_without_proof", "status_only"),
    ];
    for (state, resolution, detail, retry) in cases {
        let mut record = record(state);
        record.resolution = Some(resolution);
        let seen = see("alice", "case-03", &found(record, EffectSeen::Same));
        assert_eq!((seen.detail.as_str(), seen.retry().as_str()), (detail, retry), "{state:?}");
    }
}

#[test]
fn what_is_not_the_callers_looks_exactly_like_nothing() {
    // Promise: status reveals nothing of another principal's operation, not even that it exists.
    let nothing = |principal| serde_json::to_value(see(principal, "case-03", &Snapshot::Absent));
    let mallory = nothing("mallory").expect("serializes");
    assert_eq!(mallory["detail"], "no_record");
    for state in [State::Applied, State::InProgress(Phase::Dispatched), State::InDoubt] {
        let foreign = see("mallory", "case-03", &found(record(state), EffectSeen::Same));
        assert_eq!(serde_json::to_value(foreign).expect("serializes"), mallory, "{state:?}");
    }
    let damaged = see("mallory", "case-03", &Snapshot::Quarantined);
    assert_eq!(serde_json::to_value(damaged).expect("serializes"), mallory);
    let other_id = see("alice", "case-04", &found(record(State::Applied), EffectSeen::Same));
    assert_eq!(other_id.detail, Detail::NoRecord, "a record under another ID is no record");
}

#[test]
fn no_observation_grants_a_write_and_only_settled_ones_are_authoritative() {
    // Promise: reading never grants; authority goes with a settled state and nothing else; no
    // observation says `new_operation` or `same_operation`; a consumer believes every one of them.
    use EffectSeen::{Changed, Missing, NotLocal, Same};
    let states = [
        State::Applied,
        State::Partial,
        State::NotApplied,
        State::InDoubt,
        State::InProgress(Phase::Claimed),
        State::InProgress(Phase::Dispatched),
        State::InProgress(Phase::FirstCommit),
    ];
    let resolutions = [None, Some(Resolution::Proved), Some(Resolution::Unproved)];
    let expected = crate::consumer::Expected {
        operation_id: id("case-03"),
        principal: Some(caller("alice").principal),
        backend: Some(BackendId::parse("ledger-1").expect("valid")),
    };
    for state in states {
        for row in [Same, Changed, Missing, NotLocal] {
            for resolution in resolutions {
                for (purged, has_result) in [(false, true), (false, false), (true, false)] {
                    let mut record = record(state);
                    record.resolution = resolution;
                    record.purged = purged;
                    record.result = has_result.then(|| StoredResult::from_text("done"));
                    let what = format!("{record:?}, {row:?}");
                    let seen = see("alice", "case-03", &found(record, row));
                    assert!(!seen.fresh_write_authorized, "{what}");
                    assert_eq!(seen.authoritative, seen.state != ObservedState::Unknown, "{what}");
                    assert!(matches!(seen.retry(), Retry::None | Retry::StatusOnly), "{what}");
                    let belief = crate::consumer::accept(&expected, &seen);
                    assert!(belief.is_ok(), "{what}: {belief:?}");
                }
            }
        }
    }
}

#[test]
fn the_json_has_exactly_the_published_fields() {
    // Promise: the fields of a status are stable; one more, one less or another word is refused.
    let snapshot = found(record(State::Applied), EffectSeen::Same);
    let seen = serde_json::to_value(see("alice", "case-03", &snapshot)).expect("serializes");
    assert_eq!(
        seen,
        json!({
            "operationId": "case-03", "principal": "alice", "backend": "ledger-1",
            "state": "applied", "authoritative": true, "freshWriteAuthorized": false,
            "observedAt": "1970-01-01T00:00:00.000Z",
            "scope": "the ledger's record of this operation for this principal, the row that it \
                      names, and its stored result, read in one snapshot",
            "scopeBinding": {"operationId": "case-03", "principal": "alice",
                             "backend": "ledger-1"},
            "matchingIds": [1], "detail": "settled", "storedResult": "created 1",
        })
    );
    let read = |value: Value| serde_json::from_value::<Observation>(value);
    assert!(read(seen.clone()).is_ok());
    for name in seen.as_object().expect("an object").keys() {
        let mut less = seen.clone();
        less.as_object_mut().expect("an object").remove(name);
        assert!(read(less).is_err(), "without {name}");
    }
    for (name, value) in [
        ("extra", json!(1)),
        ("state", json!("done")),
        ("detail", json!("fine")),
        ("authoritative", json!("yes")),
        ("matchingIds", json!(["1"])),
        ("scopeBinding", json!({"operationId": "case-03", "principal": "alice"})),
    ] {
        let mut changed = seen.clone();
        changed[name] = value;
        assert!(read(changed).is_err(), "{name}");
    }
}

#[test]
fn the_words_on_the_wire_are_those_of_the_json() {
    // Promise: text and JSON use the same word for a state and a detail.
    use Detail::{
        DeadLetter, EffectChangedLater, EffectMissing, FirstStepCommitted, InDoubt, InProgress,
        LateContradiction, Leased, NoRecord, Parked, Purged, Quarantined, Queued,
        ResolvedByOperator, ResolvedWithoutProof, Sending, Settled,
    };
    for detail in [
        Settled,
        Purged,
        EffectChangedLater,
        ResolvedByOperator,
        ResolvedWithoutProof,
        NoRecord,
        InProgress,
        FirstStepCommitted,
        Queued,
        Leased,
        Sending,
        Parked,
        DeadLetter,
        LateContradiction,
        InDoubt,
        EffectMissing,
        Quarantined,
    ] {
        assert_eq!(json!(detail), detail.as_str());
    }
    use ObservedState::{Applied, NotApplied, Partial, Unknown};
    for state in [Applied, Partial, NotApplied, Unknown] {
        assert_eq!(json!(state), state.as_str());
    }
}

#[test]
fn a_list_says_what_the_status_says() {
    // Promise: an operation that is found in a list stands there as its status tells it.
    use EffectSeen::{Changed, Missing, NotLocal, Same};
    for state in crate::operation::ALL_STATES {
        for effect in [NotLocal, Same, Changed, Missing] {
            for resolution in [None, Some(Resolution::Proved), Some(Resolution::Unproved)] {
                for purged in [false, true] {
                    let mut record = Record { resolution, purged, ..record(state) };
                    if purged {
                        record.result = None;
                    }
                    let listed = crate::listing::Listed::of(record.clone(), effect);
                    let told = see("alice", "case-03", &found(record, effect));
                    assert_eq!(
                        (listed.observed, listed.detail, listed.retry),
                        (told.state, told.detail, told.retry()),
                    );
                }
            }
        }
    }
}

#[test]
fn a_delivery_is_seen_as_what_record_and_item_prove_together() {
    // Promise: until evidence settles a delivery it is unknown, told apart in the detail alone; a
    // record and an item that contradict each other are unknown; list and status say the same, and
    // a consumer believes every account.
    use State::{Applied, InDoubt, InProgress, NotApplied, Partial};
    use delivery::State as At;
    let queued = InProgress(Phase::Queued);
    let told = |state: State, at: At| match (state, at) {
        (Applied, At::Delivered) => ("applied", "settled", "none"),
        (NotApplied, At::Cancelled) => ("not_applied", "settled", "none"),
        (InDoubt, At::InDoubt) => ("unknown", "in_doubt", "status_only"),
        (
            InProgress(Phase::Queued),
            At::Queued | At::Leased | At::Sending | At::Parked | At::DeadLetter,
        ) => ("unknown", at.as_str(), "status_only"),
        _ => ("unknown", "quarantined", "status_only"),
    };
    for state in [Applied, Partial, NotApplied, InDoubt, queued, InProgress(Phase::Dispatched)] {
        for at in delivery::ALL_STATES {
            let (record, item) = delivered(state, at);
            let seen = see_delivery("alice", &record, &item);
            let (word, detail, retry) = told(state, at);
            let what = format!("{state:?}, {at:?}");
            assert_eq!((seen.state.as_str(), seen.detail.as_str()), (word, detail), "{what}");
            assert_eq!(seen.retry().as_str(), retry, "{what}");
            assert_eq!(seen.stored_result.is_some(), word != "unknown", "{what}");
            assert!(seen.matching_ids.is_empty() && !seen.fresh_write_authorized, "{what}");
            let listed = crate::listing::Listed::of_delivery(record, &item);
            assert_eq!((listed.observed, listed.detail), (seen.state, seen.detail), "{what}");
            let expected = crate::consumer::Expected {
                operation_id: id("case-03"),
                principal: Some(caller("alice").principal),
                backend: None,
            };
            let belief = crate::consumer::accept(&expected, &seen);
            assert!(belief.is_ok(), "{what}: {belief:?}");
        }
    }
}

#[test]
fn a_late_word_of_the_target_ends_not_applied() {
    // Promise: once the target said that it did it, nobody is told `not_applied` any more.
    let (record, mut item) = delivered(State::NotApplied, delivery::State::Cancelled);
    item.late_contradiction = true;
    let seen = see_delivery("alice", &record, &item);
    assert_eq!((seen.state, seen.detail), (ObservedState::Unknown, Detail::LateContradiction));
    assert_eq!((seen.authoritative, seen.retry()), (false, Retry::StatusOnly));
}

#[test]
fn a_foreign_delivery_looks_exactly_like_nothing() {
    // Promise: status reveals nothing of another principal's delivery, not even that it exists.
    let (record, item) = delivered(State::Applied, delivery::State::Delivered);
    let seen = see_delivery("mallory", &record, &item);
    assert_eq!(json!(seen), json!(see("mallory", "case-03", &Snapshot::Absent)));
}

fn delivered(state: State, at: delivery::State) -> (Record, Delivery) {
    let result = StoredResult::from_json(r#"{"text":"done"}"#).expect("JSON");
    let nature = crate::record::Nature::Deferred;
    let record = Record { effect: None, nature, result: Some(result), ..record(state) };
    let terms = delivery::Terms {
        contract: delivery::Contract::Never,
        max_attempts_count: 1,
        backoff_base: std::time::Duration::from_secs(1),
        backoff_cap: std::time::Duration::from_secs(1),
        send_limit: std::time::Duration::from_secs(1),
        deliver_within: None,
    };
    let target = delivery::TargetName::parse("desk").expect("a name");
    let mut item = Delivery::accepted(record.key, target, terms, Timestamp::from_ms(0));
    item.state = at;
    (record, item)
}

fn see_delivery(principal: &str, record: &Record, item: &Delivery) -> Observation {
    let backend = BackendId::parse("ledger-1").expect("valid");
    let seen = (record, item);
    observe_delivery(&caller(principal), &id("case-03"), &backend, seen, Timestamp::from_ms(0))
}
