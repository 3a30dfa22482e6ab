//! The consumer's rules: what is believed, field by field, and what follows.

use serde_json::{Value, json};

use super::*;

const ID: &str = "case-03";

fn expected() -> Expected {
    Expected {
        operation_id: OperationId::parse(ID).expect("valid"),
        principal: Some(Principal::parse("alice").expect("valid")),
        backend: Some(BackendId::parse("ledger-1").expect("valid")),
    }
}

/// What an honest server says of an applied issue.
fn applied() -> Value {
    json!({
        "operationId": ID, "principal": "alice", "backend": "ledger-1",
        "state": "applied", "authoritative": true, "freshWriteAuthorized": false,
        "observedAt": "2026-01-31T09:30:00.000Z", "scope": "words",
        "scopeBinding": {"operationId": ID, "principal": "alice", "backend": "ledger-1"},
        "matchingIds": [1], "detail": "settled", "storedResult": "created 1",
    })
}

/// `base` with the members of `changes` in place of its own.
fn with(mut base: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().expect("changes are an object") {
        base[name] = value.clone();
    }
    base
}

fn judge(expected: &Expected, seen: &Value) -> Result<Belief, NotBelieved> {
    accept(expected, &serde_json::from_value(seen.clone()).expect("an observation"))
}

#[test]
fn what_is_believed_settles_the_effect_and_never_leads_to_a_send() {
    // Promise: an observation that agrees with itself settles the effect; applied returns the
    // stored result, everything else stops.
    use {Action as A, Effect as E, Submission as S};
    let cases = [
        ("applied", json!({}), S::Admitted, E::Applied, A::ReturnStoredResult),
        (
            "applied, result is the row's object",
            json!({"storedResult": {"effectId": 1, "title": "t"}}),
            S::Admitted,
            E::Applied,
            A::ReturnStoredResult,
        ),
        (
            "applied elsewhere: no row of ours",
            json!({"matchingIds": [], "storedResult": {"ok": true}}),
            S::Admitted,
            E::Applied,
            A::ReturnStoredResult,
        ),
        (
            "applied, the row was changed later",
            json!({"detail": "effect_changed_later"}),
            S::Admitted,
            E::Applied,
            A::ReturnStoredResult,
        ),
        (
            "applied, purged",
            json!({"detail": "purged", "storedResult": null}),
            S::Admitted,
            E::Applied,
            A::Stop,
        ),
        (
            "partial",
            json!({"state": "partial", "storedResult": "created 1; watcher absent"}),
            S::Admitted,
            E::Partial,
            A::Stop,
        ),
        (
            "not applied",
            json!({"state": "not_applied", "matchingIds": [], "storedResult": "refused"}),
            S::Admitted,
            E::NotApplied,
            A::Stop,
        ),
        (
            "not applied, unproved",
            json!({"state": "not_applied", "detail": "resolved_without_proof",
                   "matchingIds": [], "storedResult": null}),
            S::Admitted,
            E::NotApplied,
            A::Stop,
        ),
        (
            "another zone is a zone",
            json!({"observedAt": "2026-01-31T10:30:00+01:00"}),
            S::Admitted,
            E::Applied,
            A::ReturnStoredResult,
        ),
    ];
    for (name, changes, submission, effect, action) in cases {
        let belief = judge(&expected(), &with(applied(), &changes));
        assert_eq!(belief, Ok(Belief { submission, effect, action }), "{name}");
    }
}

#[test]
fn an_unknown_that_is_believed_stays_unknown_and_stops() {
    // Promise: no record, an unfinished and a doubtful one prove nothing, whatever the detail.
    for detail in [
        "no_record",
        "in_progress",
        "first_step_committed",
        "queued",
        "leased",
        "sending",
        "parked",
        "dead_letter",
        "late_contradiction",
        "in_doubt",
        "effect_missing",
        "quarantined",
    ] {
        let changes = json!({"state": "unknown", "authoritative": false, "detail": detail,
                             "matchingIds": [], "storedResult": null});
        let belief = judge(&expected(), &with(applied(), &changes)).expect("believed");
        assert_eq!(
            belief,
            Belief { action: Action::Stop, ..after_transport_failure() },
            "{detail}"
        );
    }
}

#[test]
fn one_part_that_disagrees_is_enough_not_to_believe() {
    // Promise: identity, scope binding, authority, time zone, effect IDs and stored result must
    // all agree; a forged or foreign account settles nothing.
    let bound = |name: &str| {
        let mut binding = applied()["scopeBinding"].clone();
        binding[name] = json!("other");
        json!({"scopeBinding": binding})
    };
    let unknown_but = |changes: Value| {
        with(
            json!({"state": "unknown", "authoritative": false, "detail": "no_record",
                   "matchingIds": [], "storedResult": null}),
            &changes,
        )
    };
    let cases = [
        ("another operation", json!({"operationId": "case-04"}), "operationId"),
        ("another principal", json!({"principal": "mallory"}), "principal"),
        ("another ledger", json!({"backend": "ledger-2"}), "backend"),
        ("bound to another operation", bound("operationId"), "scopeBinding"),
        ("bound to another principal", bound("principal"), "scopeBinding"),
        ("bound to another ledger", bound("backend"), "scopeBinding"),
        ("not authoritative", json!({"authoritative": false}), "authoritative is false"),
        ("grants a write", json!({"freshWriteAuthorized": true}), "freshWriteAuthorized"),
        ("no zone", json!({"observedAt": "2026-01-31T09:30:00"}), "observedAt"),
        ("no time", json!({"observedAt": "yesterday"}), "observedAt"),
        ("no time at all", json!({"observedAt": ""}), "observedAt"),
        ("a row twice", json!({"matchingIds": [1, 1]}), "twice"),
        ("two rows for one operation", json!({"matchingIds": [1, 2]}), "2 rows"),
        ("another row", json!({"matchingIds": [2]}), "another row"),
        ("a named row that is not there", json!({"matchingIds": []}), "another row"),
        ("the result names another row", json!({"storedResult": "created 7"}), "another row"),
        ("so does an object", json!({"storedResult": {"effectId": 7}}), "another row"),
        ("no result, not purged", json!({"storedResult": null}), "no stored result"),
        ("purged, and yet there", json!({"detail": "purged"}), "purged"),
        ("applied in progress", json!({"detail": "in_progress"}), "detail"),
        ("applied without record", json!({"detail": "no_record"}), "detail"),
        ("partial without result", json!({"state": "partial", "storedResult": null}), "stored"),
        ("not applied, with a row", json!({"state": "not_applied"}), "not_applied"),
        ("unknown and sure", unknown_but(json!({"authoritative": true})), "authoritative"),
        ("unknown and settled", unknown_but(json!({"detail": "settled"})), "detail"),
        ("unknown, with a row", unknown_but(json!({"matchingIds": [1]})), "unknown"),
        ("unknown, with a result", unknown_but(json!({"storedResult": "created 1"})), "unknown"),
        ("unknown that grants", unknown_but(json!({"freshWriteAuthorized": true})), "fresh"),
    ];
    for (name, changes, words) in cases {
        let error = judge(&expected(), &with(applied(), &changes)).expect_err(name).to_string();
        assert!(error.contains(words), "{name}: {error}");
        assert!(error.starts_with("the observation is not believed: "), "{error}");
        assert!(!error.contains("created 7") && !error.contains("mallory"), "{name}: {error}");
    }
}

#[test]
fn a_consumer_that_does_not_know_its_own_names_still_checks_the_binding() {
    // Promise: leaving principal and ledger open loosens those two checks and no other.
    let open = Expected { principal: None, backend: None, ..expected() };
    let other = json!({
        "principal": "bob", "backend": "ledger-9",
        "scopeBinding": {"operationId": ID, "principal": "bob", "backend": "ledger-9"},
    });
    assert!(judge(&open, &with(applied(), &other)).is_ok());
    assert!(judge(&open, &with(applied(), &json!({"principal": "bob"}))).is_err());
    assert!(judge(&open, &with(applied(), &json!({"operationId": "x"}))).is_err());
}

#[test]
fn after_a_lost_reply_nothing_is_known_and_the_only_step_is_to_ask() {
    // Promise: a missing reply never grants a fresh write.
    assert_eq!(
        after_transport_failure(),
        Belief {
            submission: Submission::Unknown,
            effect: Effect::Unknown,
            action: Action::Reconcile
        }
    );
}

#[test]
fn the_words_are_those_of_the_two_axes() {
    // Promise: what is printed uses the stable words.
    let submissions = [Submission::NotAdmitted, Submission::Admitted, Submission::Unknown];
    assert_eq!(submissions.map(Submission::as_str), ["not_admitted", "admitted", "unknown"]);
    let effects = [Effect::NotApplied, Effect::Applied, Effect::Partial, Effect::Unknown];
    assert_eq!(effects.map(Effect::as_str), ["not_applied", "applied", "partial", "unknown"]);
    let actions = [Action::Reconcile, Action::ReturnStoredResult, Action::Stop];
    assert_eq!(actions.map(Action::as_str), ["reconcile", "return_stored_result", "stop"]);
}
