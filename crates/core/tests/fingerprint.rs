//! Fingerprints against the published vectors, and what each field and key changes.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

use counterfoil_core::canonical::CanonicalError;
use counterfoil_core::fingerprint::{
    CallBinding, Fingerprint, KeyError, KeyId, KeyRing, KeyRingError, Profile, SecretKey,
    call_fingerprint, fingerprint, strict_v1_digest,
};
use counterfoil_core::json::{JsonLimits, Value, parse};

const VECTORS: &str = include_str!("data/fingerprint-strict-v1.json");

fn json(text: &str) -> Value {
    parse(text.as_bytes(), &JsonLimits::default()).expect("the test's JSON is good")
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no text {name}"))
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).unwrap_or_else(|| panic!("no list {name}"))
}

fn key() -> SecretKey {
    SecretKey::from_bytes(&std::array::from_fn::<u8, 32, _>(|i| i as u8)).unwrap()
}

fn hex(bytes: [u8; 32]) -> String {
    Fingerprint::from_bytes(bytes).to_hex()
}

#[test]
fn strict_v1_accepts_every_vector_with_its_digest() {
    // Promise: strict-v1 is byte for byte what the published vectors say.
    let vectors = json(VECTORS);
    let key = SecretKey::from_hex(text(&vectors, "key_hex")).unwrap();
    let accept = list(&vectors, "accept");
    assert_eq!(accept.len(), 27);
    for vector in accept {
        let request = vector.get("request").unwrap();
        let answers = request.get("input_responses").filter(|answers| !answers.is_null());
        let call = CallBinding {
            tenant: "not part of the published digest",
            principal: request.get("principal").and_then(Value::as_str),
            tool_id: text(request, "tool_id"),
            tool_version: text(request, "tool_version"),
            arguments: request.get("arguments").unwrap(),
            continuation_state: request.get("continuation_state").and_then(Value::as_str),
            input_responses: answers,
        };
        let digest = strict_v1_digest(&key, &call).unwrap();
        assert_eq!(hex(digest), text(vector, "fingerprint"), "{}", text(vector, "name"));
    }
}

#[test]
fn strict_v1_refuses_every_vector_and_names_the_path() {
    // Promise: what must be refused is refused, and the error leads to it.
    let vectors = json(VECTORS);
    let paths = [
        ("fraction", "$.arguments.n"),
        ("integer above the safe range", "$.arguments.n"),
        ("integer below the safe range", "$.arguments.n"),
        ("huge exponent", "$.arguments.n"),
        ("unpaired surrogate in a value", "$.s"),
        // The key cannot be shown, so the path is its object's.
        ("unpaired surrogate in a key", "$"),
        ("duplicate key", "$.a"),
        ("short key", "the key has 31 bytes; it needs at least 32"),
    ];
    let reject = list(&vectors, "reject");
    assert_eq!(reject.len(), paths.len());
    for (vector, (name, named)) in reject.iter().zip(paths) {
        assert_eq!(text(vector, "name"), name);
        let key_hex = vector.get("key_hex").and_then(Value::as_str);
        let error = match SecretKey::from_hex(key_hex.unwrap_or(text(&vectors, "key_hex"))) {
            Err(error) => error.to_string(),
            Ok(key) => match parse(text(vector, "arguments").as_bytes(), &JsonLimits::default()) {
                Err(error) => error.to_string(),
                Ok(arguments) => {
                    let call = CallBinding { arguments: &arguments, ..plain(&Value::Null) };
                    strict_v1_digest(&key, &call).expect_err(name).to_string()
                }
            },
        };
        let shown = [format!("at {named} "), format!("at {named},"), format!("{named}:")];
        assert!(shown.iter().any(|shown| error.contains(shown)), "{name}: {error}");
    }
}

/// A call with every field set.
fn plain(arguments: &Value) -> CallBinding<'_> {
    CallBinding {
        tenant: "acme",
        principal: Some("alice"),
        tool_id: "send",
        tool_version: "1",
        arguments,
        continuation_state: Some("state-A"),
        input_responses: None,
    }
}

#[test]
fn stored_forms_never_change() {
    // Promise: rows written today are recognised by every later version. The values were computed
    // by a separate program from the documented construction.
    let arguments = json(r#"{"to":"Zürich","amount":10.50}"#);
    let answers = json(r#"{"ok":true}"#);
    let jcs = CallBinding { input_responses: Some(&answers), ..plain(&arguments) };
    let check = |made: Result<Fingerprint, CanonicalError>, expected: &str| {
        assert_eq!(made.unwrap().to_hex(), expected);
    };
    check(
        fingerprint(Profile::JcsV1, &key(), &jcs),
        "d20af0d732131590e188f4086ed0f07e2b69e32f3454072edc7bc01cff022115",
    );
    check(
        call_fingerprint(Profile::JcsV1, &key(), &jcs),
        "17929a13431d68c603dac2f65603c03dacf950d41879d5449d0ee3d64508a3a2",
    );
    let arguments = json(r#"{"operation_id":"op-7","title":"Export fails"}"#);
    let strict =
        CallBinding { tool_id: "create_issue", continuation_state: None, ..plain(&arguments) };
    check(
        fingerprint(Profile::StrictV1, &key(), &strict),
        "36c573ddbc3376ab594aac010045e0c98c184d87b106cbef14c3e4faaf355175",
    );
    check(
        call_fingerprint(Profile::StrictV1, &key(), &strict),
        "0134f54f7586574932f1e68696263e713c45c9de611eee78579cbfa09ffca582",
    );
    let check_value = u128::from_be_bytes(key().check_value());
    assert_eq!(format!("{check_value:032x}"), "3990a73ca8c6e3a5f71c2c95ad14cacd");
}

#[test]
fn every_binding_changes_the_fingerprint() {
    // Promise: a change of any binding is seen; the call fingerprint sees the first round only.
    let arguments = json(r#"{"n":1}"#);
    let other_arguments = json(r#"{"n":2}"#);
    let answers = json("{}");
    let base = plain(&arguments);
    let first_round = [
        CallBinding { tenant: "other", ..base },
        CallBinding { principal: Some("bob"), ..base },
        CallBinding { principal: None, ..base },
        CallBinding { tool_id: "send2", ..base },
        CallBinding { tool_version: "2", ..base },
        CallBinding { arguments: &other_arguments, ..base },
    ];
    let later_rounds = [
        CallBinding { continuation_state: Some("state-B"), ..base },
        CallBinding { continuation_state: Some(""), ..base },
        CallBinding { continuation_state: None, ..base },
        CallBinding { input_responses: Some(&answers), ..base },
    ];
    for profile in [Profile::StrictV1, Profile::JcsV1] {
        let full = |call: &CallBinding<'_>| fingerprint(profile, &key(), call).unwrap();
        let call_only = |call: &CallBinding<'_>| call_fingerprint(profile, &key(), call).unwrap();
        for changed in first_round.iter().chain(&later_rounds) {
            // In strict-v1 the store keeps tenants apart, as the published digest has no tenant.
            let seen = profile == Profile::JcsV1 || changed.tenant == base.tenant;
            assert_eq!(full(changed) != full(&base), seen, "{profile:?} {changed:?}");
        }
        for changed in &first_round {
            assert_ne!(call_only(changed), call_only(&base), "{profile:?} {changed:?}");
        }
        for changed in &later_rounds {
            assert_eq!(call_only(changed), call_only(&base), "{profile:?} {changed:?}");
        }
        assert_ne!(full(&base), call_only(&base));
    }
    let digest = Fingerprint::from_bytes(strict_v1_digest(&key(), &base).unwrap());
    assert_ne!(digest, fingerprint(Profile::StrictV1, &key(), &base).unwrap());
}

#[test]
fn arguments_that_mean_the_same_have_one_fingerprint() {
    // Promise: how a number is written and how keys are ordered is not a change; a value is.
    let made = |profile, text: &str| {
        let arguments = json(text);
        let full = fingerprint(profile, &key(), &plain(&arguments))?;
        Ok::<_, CanonicalError>((full, call_fingerprint(profile, &key(), &plain(&arguments))?))
    };
    for profile in [Profile::StrictV1, Profile::JcsV1] {
        let check = |left: &str, right: &str, equal: bool| {
            let same = made(profile, left).unwrap() == made(profile, right).unwrap();
            assert_eq!(same, equal, "{profile:?}: {left} and {right}");
        };
        check(r#"{"n":12345.0}"#, r#"{"n":12345}"#, true);
        check(r#"{"n":1e2}"#, r#"{"n":100}"#, true);
        check(r#"{"n":-0}"#, r#"{"n":0}"#, true);
        check(r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#, true);
        check(r#"{"n":1}"#, r#"{"n":"1"}"#, false);
        check(r#"{"n":null}"#, "{}", false);
        assert!(made(profile, r#"{"n":9007199254740993}"#).is_err());
    }
}

#[test]
fn a_number_without_canonical_form_is_named_with_its_field() {
    // Promise: the path begins with the field, in every profile and every field.
    let good = json("{}");
    let fraction = json(r#"{"body":{"n":[0.5]}}"#);
    let rounded = json(r#"[9007199254740993]"#);
    let check = |profile: Profile, call: CallBinding<'_>, path: &str| {
        assert_eq!(fingerprint(profile, &key(), &call).unwrap_err().path, path);
    };
    let answered = |answers| CallBinding { input_responses: Some(answers), ..plain(&good) };
    check(Profile::StrictV1, plain(&fraction), "$.arguments.body.n[0]");
    check(Profile::StrictV1, answered(&fraction), "$.input_responses.body.n[0]");
    check(Profile::JcsV1, plain(&rounded), "$.arguments[0]");
    check(Profile::JcsV1, answered(&rounded), "$.input_responses[0]");
    let error = call_fingerprint(Profile::StrictV1, &key(), &plain(&fraction)).unwrap_err();
    assert_eq!(error.path, "$.arguments.body.n[0]");
}

#[test]
fn profiles_have_one_name_each() {
    // Promise: a stored profile name is read back; no other name is taken for one.
    for profile in [Profile::StrictV1, Profile::JcsV1] {
        assert_eq!(Profile::parse(profile.as_str()), Some(profile));
    }
    for name in ["", "strict", "JCS-V1", "jcs-v1 ", "strict-v2"] {
        assert_eq!(Profile::parse(name), None, "{name:?}");
    }
}

#[test]
fn bad_keys_are_refused_without_being_shown() {
    // Promise: a key is refused with length, rule and remedy, and never with its content.
    let good = "00112233445566778899aabbccddeeffFEDCBA98765432100123456789abcdef";
    let refused = |text: &str| SecretKey::from_hex(text).expect_err("must be refused");
    assert!(SecretKey::from_hex(good).is_ok());
    assert!(SecretKey::from_hex(&format!(" \t{good}{good}\r\n")).is_ok());
    assert_eq!(refused(""), KeyError::TooShort { length_bytes: 0 });
    assert_eq!(refused(&good[2..]), KeyError::TooShort { length_bytes: 31 });
    assert_eq!(refused(&good[1..]), KeyError::OddDigits { digit_count: 63 });
    assert_eq!(refused(&format!("{good}0g")), KeyError::NotHex { position: 66 });
    assert_eq!(refused(&format!("0x{good}")), KeyError::NotHex { position: 2 });
    assert_eq!(refused(&good.replacen('2', " ", 1)), KeyError::NotHex { position: 5 });
    assert_eq!(
        SecretKey::from_bytes(&[7; 31]).unwrap_err().to_string(),
        "the key has 31 bytes; it needs at least 32: generate 32 random bytes, written as 64 \
         hexadecimal digits"
    );
    let key = SecretKey::from_hex(good).unwrap();
    assert_eq!(format!("{key:?}"), "SecretKey(redacted)");
    assert!(SecretKey::from_bytes(&[7; 33]).is_ok());
    assert_ne!(SecretKey::from_bytes(&[7; 33]).unwrap().check_value(), key.check_value());
}

#[test]
fn a_ring_has_an_active_key_and_no_number_twice() {
    // Promise: a ring that could not tell its keys apart, or could not write, is refused.
    let keys = |ids: &[u32]| ids.iter().map(|id| (KeyId(*id), key())).collect::<Vec<_>>();
    let refused = |active, ids: &[u32]| KeyRing::new(KeyId(active), keys(ids)).unwrap_err();
    assert_eq!(refused(1, &[]), KeyRingError::Empty);
    assert_eq!(refused(3, &[1, 2]), KeyRingError::ActiveMissing { active: KeyId(3) });
    assert_eq!(refused(1, &[1, 2, 1]), KeyRingError::DuplicateId { id: KeyId(1) });

    let ring = KeyRing::new(KeyId(2), keys(&[9, 2])).unwrap();
    assert_eq!(ring.active().0, KeyId(2));
    assert!(ring.get(KeyId(9)).is_some() && ring.get(KeyId(1)).is_none());
    assert_eq!(ring.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [2, 9]);
    assert!(format!("{ring:?}").contains("redacted"));
}

#[test]
fn a_binding_s_debug_text_has_no_content() {
    // Promise: arguments, state and answers do not reach a log by way of Debug.
    let secret = json(r#"{"apiKey":"hunter2"}"#);
    let call = CallBinding {
        continuation_state: Some("hunter2"),
        input_responses: Some(&secret),
        ..plain(&secret)
    };
    let shown = format!("{call:?}");
    assert!(shown.contains("alice") && !shown.contains("hunter2"), "{shown}");
}
