//! Canonical JSON in both profiles: RFC 8785's own examples, the edges of the number rules, and
//! what holds for every value.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod common;

use common::{json, values};
use counterfoil_core::canonical::{CanonicalErrorKind, jcs_v1, strict_v1};
use counterfoil_core::json::{JsonLimits, Object, Value, parse};
use proptest::prelude::*;

fn jcs(text: &str) -> Result<String, CanonicalErrorKind> {
    let bytes = jcs_v1(&json(text)).map_err(|error| error.kind)?;
    Ok(String::from_utf8(bytes).expect("canonical JSON is UTF-8"))
}

fn strict(text: &str) -> Result<String, CanonicalErrorKind> {
    let bytes = strict_v1(&json(text)).map_err(|error| error.kind)?;
    Ok(String::from_utf8(bytes).expect("canonical JSON is UTF-8"))
}

#[test]
fn rfc_8785_sample_gives_the_rfc_s_bytes() {
    // Promise: jcs-v1 is RFC 8785 (sections 3.2.2 and 3.2.4).
    let input = r#"{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"#;
    let bytes =
        "7b 22 6c 69 74 65 72 61 6c 73 22 3a 5b 6e 75 6c 6c 2c 74 72 75 65 2c 66 61 6c 73 65
        5d 2c 22 6e 75 6d 62 65 72 73 22 3a 5b 33 33 33 33 33 33 33 33 33 2e 33 33 33 33 33 33 33 2c
        31 65 2b 33 30 2c 34 2e 35 2c 30 2e 30 30 32 2c 31 65 2d 32 37 5d 2c 22 73 74 72 69 6e 67 22
        3a 22 e2 82 ac 24 5c 75 30 30 30 66 5c 6e 41 27 42 5c 22 5c 5c 5c 5c 5c 22 2f 22 7d";
    let bytes: Vec<u8> =
        bytes.split_whitespace().map(|hex| u8::from_str_radix(hex, 16).unwrap()).collect();
    assert_eq!(jcs_v1(&json(input)).unwrap(), bytes);
}

#[test]
fn keys_are_ordered_by_each_profile_s_rule() {
    // Promise: jcs-v1 orders keys by UTF-16 unit (RFC 8785, section 3.2.3), strict-v1 by scalar.
    let input = r#"{
      "\u20ac": "Euro Sign",
      "\r": "Carriage Return",
      "\ufb33": "Hebrew Letter Dalet With Dagesh",
      "1": "One",
      "\ud83d\ude00": "Emoji: Grinning Face",
      "\u0080": "Control",
      "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let check = |canonical: String, order: [&str; 7]| {
        let value = json(&canonical);
        let names: Vec<&str> =
            value.as_object().unwrap().iter().filter_map(|(_, name)| name.as_str()).collect();
        assert!(names.iter().zip(order).all(|(name, start)| name.starts_with(start)), "{names:?}");
    };
    let jcs_order = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"];
    let strict_order = ["Carriage", "One", "Control", "Latin", "Euro", "Hebrew", "Emoji"];
    check(jcs(input).unwrap(), jcs_order);
    check(strict(input).unwrap(), strict_order);
}

#[test]
fn rfc_8785_appendix_b_numbers() {
    // Promise: every finite double of RFC 8785, appendix B, is written as the RFC says.
    let check = |bits: u64, text: &str| {
        let literal = format!("{:e}", f64::from_bits(bits));
        assert_eq!(jcs(&literal).as_deref(), Ok(text), "{literal}");
        assert_eq!(jcs(text).as_deref(), Ok(text), "{text} is a fixed point");
    };
    check(0x0000_0000_0000_0000, "0");
    check(0x8000_0000_0000_0000, "0");
    check(0x0000_0000_0000_0001, "5e-324");
    check(0x8000_0000_0000_0001, "-5e-324");
    check(0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308");
    check(0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308");
    check(0x4340_0000_0000_0000, "9007199254740992");
    check(0xc340_0000_0000_0000, "-9007199254740992");
    check(0x4430_0000_0000_0000, "295147905179352830000");
    check(0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22");
    check(0x44b5_2d02_c7e1_4af6, "1e+23");
    check(0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23");
    check(0x444b_1ae4_d6e2_ef4e, "999999999999999700000");
    check(0x444b_1ae4_d6e2_ef4f, "999999999999999900000");
    check(0x444b_1ae4_d6e2_ef50, "1e+21");
    check(0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7");
    check(0x3eb0_c6f7_a0b5_ed8d, "0.000001");
    check(0x41b3_de43_5555_5553, "333333333.3333332");
    check(0x41b3_de43_5555_5554, "333333333.33333325");
    check(0x41b3_de43_5555_5555, "333333333.3333333");
    check(0x41b3_de43_5555_5556, "333333333.3333334");
    check(0x41b3_de43_5555_5557, "333333333.33333343");
    check(0xbecb_f647_612f_3696, "-0.0000033333333333333333");
    check(0x4314_3ff3_c1cb_0959, "1424953923781206.2");
    // The two errors of the table: one cannot be written in JSON, the other overflows.
    for literal in ["NaN", "Infinity", "-Infinity"] {
        assert!(parse(literal.as_bytes(), &JsonLimits::default()).is_err(), "{literal}");
    }
    assert_eq!(jcs("1.8e308"), Err(CanonicalErrorKind::NotFinite));
}

#[test]
fn jcs_integers_keep_their_value_or_are_refused() {
    // Promise: no integer is ever rounded; fractions round as RFC 8785 says.
    let check = |literal: &str, expected: Result<&str, CanonicalErrorKind>| {
        assert_eq!(jcs(literal).as_deref(), expected.as_ref().copied(), "{literal}");
    };
    let inexact = Err(CanonicalErrorKind::InexactInteger);
    let not_finite = Err(CanonicalErrorKind::NotFinite);
    check("1E30", Ok("1e+30"));
    check("9007199254740992", Ok("9007199254740992"));
    check("9007199254740993", inexact);
    check("9007199254740993.0", inexact);
    check("9.007199254740993e15", inexact);
    check("-9007199254740993", inexact);
    check("9007199254740994", Ok("9007199254740994"));
    // The double is this integer exactly, but its canonical form says another one.
    check("295147905179352825856", inexact);
    check("295147905179352830000", Ok("295147905179352830000"));
    check("100000000000000000000000", Ok("1e+23"));
    check("-0", Ok("0"));
    check("-0.0", Ok("0"));
    check("1.0", Ok("1"));
    check("1e400", not_finite);
    check("-1e999999999999999999999", not_finite);
    check("1e-400", Ok("0"));
    check("0.1", Ok("0.1"));
    check("0.10000000000000000000000000000001", Ok("0.1"));
    check("9007199254740992.5", Ok("9007199254740992"));
}

#[test]
fn strict_numbers_are_safe_integers_decided_on_the_literal() {
    // Promise: strict-v1 takes exactly the integers within 2^53 - 1, however they are written.
    let check = |literal: &str, expected: Result<&str, CanonicalErrorKind>| {
        assert_eq!(strict(literal).as_deref(), expected.as_ref().copied(), "{literal}");
    };
    let fraction = Err(CanonicalErrorKind::NotIntegral);
    let unsafe_range = Err(CanonicalErrorKind::OutsideSafeRange);
    check("1e2", Ok("100"));
    check("12345.0", Ok("12345"));
    check("1.0", Ok("1"));
    check("-0", Ok("0"));
    check("-0.0e5", Ok("0"));
    check("0e999999999999", Ok("0"));
    check("100e-2", Ok("1"));
    check("1.5e1", Ok("15"));
    check("9007199254740991", Ok("9007199254740991"));
    check("-9007199254740991.000", Ok("-9007199254740991"));
    check("9.007199254740991e15", Ok("9007199254740991"));
    check("9007199254740992", unsafe_range);
    check("-9007199254740992", unsafe_range);
    check("1e16", unsafe_range);
    check("1e400", unsafe_range);
    check("1e999999999999", unsafe_range);
    check("-1e99999999999999999999999999", unsafe_range);
    check("1.5", fraction);
    check("0.9999999999999999999999999", fraction);
    check("9007199254740991.1", fraction);
    check("1e-1", fraction);
    check("1e-999999999999", fraction);
}

#[test]
fn strings_are_escaped_as_little_as_json_allows() {
    // Promise: short escapes, lower-case \u00xx, all else as it is, in both profiles.
    let input = r#""\b\t\n\f\r\"\\\/\u0000\u001F\u007f\u00e9e\u0301\u2028\ud83d\ude80""#;
    let expected = "\"\\b\\t\\n\\f\\r\\\"\\\\/\\u0000\\u001f\u{7f}\u{e9}e\u{301}\u{2028}🚀\"";
    assert_eq!(strict(input).as_deref(), Ok(expected));
    assert_eq!(jcs(input).as_deref(), Ok(expected));
}

#[test]
fn a_refusal_names_the_path_and_no_value() {
    // Promise: the error leads to the number without showing it.
    let value = json(r#"{"a":[0,{"b c":1234.5}]}"#);
    let error = strict_v1(&value).unwrap_err();
    assert_eq!(error.path, r#"$.a[1]["b c"]"#);
    assert!(!format!("{error} {error:?}").contains("1234"), "{error}");
    let error = jcs_v1(&json("[9007199254740993]")).unwrap_err();
    assert_eq!(error.path, "$[0]");
    assert!(!format!("{error} {error:?}").contains("9007199254740993"), "{error}");
}

/// The same value with every object's members in reverse order.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Array(elements) => Value::Array(elements.iter().map(reversed).collect()),
        Value::Object(object) => {
            let mut members: Vec<(String, Value)> =
                object.iter().map(|(key, member)| (key.to_owned(), reversed(member))).collect();
            members.reverse();
            Value::Object(Object::from_iter(members))
        }
        other => other.clone(),
    }
}

fn reparsed(canonical: &[u8]) -> Value {
    parse(canonical, &JsonLimits::default()).expect("canonical JSON is JSON")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Promise: the jcs-v1 form is its own canonical form, and key order does not matter.
    #[test]
    fn jcs_is_a_fixed_point_and_ignores_key_order(
        value in values(any::<String>(), "-?[0-9]\\.[0-9]{1,20}(e-?[0-9]{1,2})?|-?[1-9][0-9]{0,14}"),
    ) {
        // Some literals are integers that a double cannot hold: those have no form to speak of.
        if let Ok(canonical) = jcs_v1(&value) {
            prop_assert_eq!(&jcs_v1(&reparsed(&canonical)).unwrap(), &canonical);
            prop_assert_eq!(&jcs_v1(&reversed(&value)).unwrap(), &canonical);
        }
    }

    /// Promise: the strict-v1 form is its own canonical form, and key order does not matter.
    #[test]
    fn strict_is_a_fixed_point_and_ignores_key_order(
        value in values(any::<String>(), "-?(0|[1-9][0-9]{0,14})(\\.0{1,5})?(e0)?"),
    ) {
        let canonical = strict_v1(&value).unwrap();
        prop_assert_eq!(&strict_v1(&reparsed(&canonical)).unwrap(), &canonical);
        prop_assert_eq!(&strict_v1(&reversed(&value)).unwrap(), &canonical);
    }

    /// Promise: the profiles differ only in numbers and in the order of non-ASCII keys.
    #[test]
    fn profiles_agree_on_ascii_keys_and_safe_integers(
        value in values("[ -~]{0,6}", "-?(0|[1-9][0-9]{0,14})(\\.0{1,5})?"),
    ) {
        prop_assert_eq!(strict_v1(&value).unwrap(), jcs_v1(&value).unwrap());
    }

    /// Promise: every finite double survives its canonical form bit for bit, zero's sign aside.
    #[test]
    fn every_double_survives(double in any::<f64>().prop_filter("finite", |d| d.is_finite())) {
        let canonical = jcs(&format!("{double:e}")).unwrap();
        prop_assert_eq!(canonical.parse::<f64>().unwrap(), double);
    }

    /// Promise: jcs-v1 orders keys by their UTF-16 units, whatever the keys are (RFC 8785, section
    /// 3.2.3): told from UTF-8, it is the order of the units themselves.
    #[test]
    fn jcs_orders_any_keys_by_utf16(keys in prop::collection::vec(key_of_every_length(), 1..24)) {
        let members = keys.iter().map(|key| (key.clone(), Value::Null));
        let canonical = reparsed(&jcs_v1(&Value::Object(Object::from_iter(members))).unwrap());
        let written: Vec<Vec<u16>> =
            canonical.as_object().unwrap().iter().map(|(key, _)| key.encode_utf16().collect()).collect();
        let mut expected: Vec<Vec<u16>> = keys.iter().map(|key| key.encode_utf16().collect()).collect();
        expected.sort();
        expected.dedup();
        prop_assert_eq!(written, expected);
    }

    /// Promise: an integer that is plain already is written as the same value with an exponent is.
    #[test]
    fn plain_integers_take_no_short_cut_to_another_text(literal in "-?(0|[1-9][0-9]{0,20})") {
        let detour = format!("{literal}.0e0");
        prop_assert_eq!(jcs(&literal), jcs(&detour));
        prop_assert_eq!(strict(&literal), strict(&detour));
    }
}

/// Keys whose characters have one to four bytes, many of them next to where the orders part.
fn key_of_every_length() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        any::<char>(),
        prop::char::range('a', 'c'),
        prop::char::range('\u{7f}', '\u{81}'),
        prop::char::range('\u{7fe}', '\u{801}'),
        prop::char::range('\u{d7fe}', '\u{d7ff}'),
        prop::char::range('\u{e000}', '\u{e001}'),
        prop::char::range('\u{fffd}', '\u{10001}'),
        prop::char::range('\u{10fffe}', '\u{10ffff}'),
    ];
    prop::collection::vec(character, 0..4).prop_map(|all| all.into_iter().collect())
}
