//! The strict reader: what it takes, what it refuses, and where it says the fault lies.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod common;

use common::{json, values};
use counterfoil_core::json::{
    DEPTH_CEILING, JsonErrorKind, JsonLimits, Number, Object, Value, parse,
};
use proptest::prelude::*;
use serde_json::value::RawValue;

fn syntax(kind: JsonErrorKind) -> bool {
    matches!(kind, JsonErrorKind::Syntax { .. })
}

#[test]
fn good_json_is_read_and_written_back_without_loss() {
    // Promise: nothing is rounded, reordered or replaced between reading and writing.
    let check = |text: &str, written: &str| assert_eq!(json(text).to_json(), written, "{text}");
    check(" \t\r\n null ", "null");
    check("[true,false]", "[true,false]");
    check("9007199254740993", "9007199254740993");
    check("[-0, 0.10, 1E+2, 1e-400, 12345.0]", "[-0,0.10,1E+2,1e-400,12345.0]");
    check(r#"{"b":1,"a":{"":[]},"c":{}}"#, r#"{"b":1,"a":{"":[]},"c":{}}"#);
    check(r#""\u0041\/\"\\\b\f\n\r\t\u0000\u001F""#, r#""A/\"\\\b\f\n\r\t\u0000\u001f""#);
    check(r#""\ud83d\uDE80 \uFFFD""#, "\"🚀 \u{fffd}\"");
    check("\"Zürich \u{7f}\u{2028}\u{feff}\"", "\"Zürich \u{7f}\u{2028}\u{feff}\"");
}

#[test]
fn bad_json_is_refused_with_the_place_of_the_fault() {
    // Promise: every ambiguity and every slip is refused, with path and byte offset.
    let check = |text: &str, kind: fn(JsonErrorKind) -> bool, path: &str, offset: usize| {
        let error = parse(text.as_bytes(), &JsonLimits::default()).expect_err(text);
        assert!(kind(error.kind), "{text}: {error}");
        assert_eq!((error.path.as_str(), error.offset), (path, offset), "{text}: {error}");
        assert!(!error.is_too_large(), "{text}: {error}");
    };
    let trailing = |kind| kind == JsonErrorKind::TrailingData;
    let duplicate = |kind| kind == JsonErrorKind::DuplicateKey;
    let surrogate = |kind| kind == JsonErrorKind::UnpairedSurrogate;

    check("", syntax, "$", 0);
    check("  ", syntax, "$", 2);
    check("\u{feff}{}", syntax, "$", 0);
    check("\u{a0}1", syntax, "$", 0);
    check("1 2", trailing, "$", 2);
    check("{}{}", trailing, "$", 2);
    check("[1,]", syntax, "$[1]", 3);
    check("[1 2]", syntax, "$", 3);
    check("[", syntax, "$[0]", 1);
    check("]", syntax, "$", 0);
    check("{", syntax, "$", 1);
    check(r#"{"a""#, syntax, "$.a", 4);
    check(r#"{"a":1,}"#, syntax, "$", 7);
    check("{a:1}", syntax, "$", 1);
    check("{'a':1}", syntax, "$", 1);
    check("[/*c*/1]", syntax, "$[0]", 1);
    check("nul", syntax, "$", 0);
    check("True", syntax, "$", 0);
    check("truex", trailing, "$", 4);
    for number in ["NaN", "Infinity", "-Infinity", "01", "-01", "00", "1.", ".5", "+1", "-", "1e"] {
        check(&format!(r#"{{"a":[0,{number}]}}"#), syntax, "$.a[1]", 8);
    }
    check("1e+", syntax, "$", 0);
    check("0x10", trailing, "$", 1);
    check("\"a\nb\"", syntax, "$", 2);
    check("\"abc", syntax, "$", 4);
    check(r#""\x""#, syntax, "$", 2);
    check(r#""\u12g4""#, syntax, "$", 5);
    check(r#""\u+123""#, syntax, "$", 3);
    check(r#"{"s":"\ud800"}"#, surrogate, "$.s", 6);
    check(r#"{"s":"\ud800x"}"#, surrogate, "$.s", 6);
    check(r#"{"s":"\ud800\u0041"}"#, surrogate, "$.s", 6);
    check(r#"{"s":"ab\udc00\ud800"}"#, surrogate, "$.s", 8);
    check(r#"{"\udc00":1}"#, surrogate, "$", 2);
    check(r#"{"a":1,"a":2}"#, duplicate, "$.a", 7);
    check(r#"{"a":1,"b":2,"\u0061":3}"#, duplicate, "$.a", 13);
    check(r#"{"x":[{"k y":1,"k y":1}]}"#, duplicate, r#"$.x[0]["k y"]"#, 15);
}

#[test]
fn a_duplicate_among_many_keys_is_found() {
    // Promise: large objects are searched too; the first repeated key is the one that is named.
    let keys: Vec<String> = (0..1000).map(|n| format!("\"k{n}\":0")).collect();
    assert_eq!(json(&format!("{{{}}}", keys.join(","))).as_object().unwrap().len(), 1000);
    let text = format!("{{{},\"k700\":0,\"k3\":0}}", keys.join(","));
    let error = parse(text.as_bytes(), &JsonLimits::default()).unwrap_err();
    assert_eq!(error.kind, JsonErrorKind::DuplicateKey);
    assert_eq!(error.path, "$.k700");
    assert!(text[error.offset..].starts_with("\"k700\":0,\"k3\""));
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    // Promise: no byte is replaced by U+FFFD; overlong forms and coded surrogates are not UTF-8.
    let check = |bytes: &[u8], offset: usize| {
        let error = parse(bytes, &JsonLimits::default()).unwrap_err();
        assert_eq!((error.kind, error.offset), (JsonErrorKind::NotUtf8, offset), "{bytes:?}");
    };
    check(b"\"\xff\"", 1);
    check(b"[\"\xc0\xaf\"]", 2);
    check(b"\"ab\xed\xa0\x80\"", 3);
    check(b"{\"a\":\"\xe2\x82", 6);
    check(b"\xff\xfe\"\0", 0);
}

#[test]
fn limits_refuse_what_is_past_them_and_take_what_is_at_them() {
    // Promise: each limit is exact, and its refusal is told from bad JSON.
    let limits = JsonLimits { max_bytes: 40, max_depth: 2, max_string_bytes: 4, max_members: 3 };
    let check = |text: &str, refused: Option<(JsonErrorKind, &str)>| match refused {
        None => assert!(parse(text.as_bytes(), &limits).is_ok(), "{text}"),
        Some((kind, path)) => {
            let error = parse(text.as_bytes(), &limits).expect_err(text);
            assert_eq!((error.kind, error.path.as_str()), (kind, path), "{text}");
            assert!(error.is_too_large(), "{text}");
        }
    };
    let too_deep = JsonErrorKind::TooDeep { max_depth: 2 };
    let too_long = JsonErrorKind::StringTooLong { max_string_bytes: 4 };
    let too_many = JsonErrorKind::TooManyMembers { max_members: 3 };

    check("[[1]]", None);
    check("[[[]]]", Some((too_deep, "$[0][0]")));
    check(r#"{"a":[{}]}"#, Some((too_deep, "$.a[0]")));
    check(r#""abcd""#, None);
    check(r#""\u0061bcd""#, None);
    check("\"éé\"", None);
    check(r#"["abcde"]"#, Some((too_long, "$[0]")));
    check("\"éé!\"", Some((too_long, "$")));
    check(r#"{"abcde":1}"#, Some((too_long, "$")));
    check("[1,2,3]", None);
    check("[1,2,3,4]", Some((too_many, "$")));
    check("[[1],2]", None);
    check("[[1],[2]]", Some((too_many, "$[1]")));
    check(r#"{"a":1,"b":1,"c":1}"#, None);
    check(r#"{"a":1,"b":1,"c":1,"d":1}"#, Some((too_many, "$")));
    check(&format!("1{}", " ".repeat(39)), None);
    let kind = JsonErrorKind::TooLarge { max_bytes: 40 };
    check(&format!("1{}", " ".repeat(40)), Some((kind, "$")));
}

#[test]
fn depth_never_exhausts_a_stack() {
    // Promise: whatever the limits say, reading, copying and dropping fit into a small stack.
    let limits = JsonLimits { max_depth: usize::MAX, ..JsonLimits::default() };
    let nested =
        |depth: usize| format!("{}{}", r#"[{"a":"#.repeat(depth / 2), "[".repeat(depth % 2));
    let closed = move |depth: usize| {
        format!("{}0{}{}", nested(depth), "]".repeat(depth % 2), "}]".repeat(depth / 2))
    };
    let work = move || {
        let deepest = parse(closed(DEPTH_CEILING).as_bytes(), &limits).unwrap();
        assert_eq!(deepest.clone(), deepest);
        assert_eq!(deepest.to_json(), closed(DEPTH_CEILING));
        assert!(counterfoil_core::canonical::jcs_v1(&deepest).is_ok());
        for depth in [DEPTH_CEILING + 1, 10_000, 1_000_000] {
            for text in [nested(depth), "[".repeat(depth)] {
                let limits = JsonLimits { max_bytes: usize::MAX, ..limits };
                let error = parse(text.as_bytes(), &limits).unwrap_err();
                assert_eq!(error.kind, JsonErrorKind::TooDeep { max_depth: DEPTH_CEILING });
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(512 * 1024).spawn(work).unwrap();
    thread.join().unwrap();
}

#[test]
fn errors_show_keys_shortened_and_values_never() {
    // Promise: an error is short, safe to print, and free of values.
    let secret = "hunter2";
    for text in [
        r#"{"password":"hunter2","password":"hunter2"}"#.to_owned(),
        r#"{"password":"hunter2\ud800"}"#.to_owned(),
        r#"{"password":"hunter2"#.to_owned(),
        r#"{"password":hunter2}"#.to_owned(),
        format!(r#"{{"a":"{secret}"}} {secret}"#),
    ] {
        let error = parse(text.as_bytes(), &JsonLimits::default()).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(secret), "{shown}");
    }

    let key = format!("\\u001b[31m{}", "ключ".repeat(1000));
    let text = format!("{}!", format!(r#"{{"{key}":"#).repeat(90));
    let error = parse(text.as_bytes(), &JsonLimits::default()).unwrap_err();
    assert!(error.path.len() <= 1024, "{} bytes", error.path.len());
    assert!(error.path.starts_with(r#"$["\u{1b}[31mключ"#), "{}", error.path);
    assert!(error.path.contains('…') && !error.path.contains('\u{1b}'), "{}", error.path);

    let text = format!("{}!", r#"{"a":[0,"#.repeat(20));
    let error = parse(text.as_bytes(), &JsonLimits::default()).unwrap_err();
    let end = ".a[1]".repeat(4);
    assert_eq!(error.path, format!("${end}…{end}"));
}

#[test]
fn objects_keep_their_order_when_changed() {
    // Promise: taking out or replacing one member moves no other.
    let mut value = json(r#"{"c":1,"a":2,"b":3}"#);
    let object = value.as_object_mut().unwrap();
    assert_eq!(object.insert("a", "new"), Some(json("2")));
    assert_eq!(object.insert("d", true), None);
    assert_eq!(object.remove("c"), Some(json("1")));
    assert_eq!(object.remove("c"), None);
    assert_eq!((object.len(), object.is_empty(), Object::new().is_empty()), (3, false, true));
    assert!(object.contains_key("d") && !object.contains_key("c"));
    assert_eq!(value.to_json(), r#"{"a":"new","b":3,"d":true}"#);
    assert_eq!(value.get("b").and_then(Value::as_number).and_then(Number::as_i64), Some(3));
}

#[test]
fn numbers_are_read_exactly_or_not_at_all() {
    // Promise: a literal becomes an integer only if it is that integer.
    let check = |literal: &str, signed: Option<i64>, unsigned: Option<u64>| {
        let number = Number::from_literal(literal).expect(literal);
        assert_eq!((number.as_i64(), number.as_u64()), (signed, unsigned), "{literal}");
    };
    check("1e2", Some(100), Some(100));
    check("-1.0", Some(-1), None);
    check("-0", Some(0), Some(0));
    check("9223372036854775808", None, Some(1 << 63));
    check("-9223372036854775808", Some(i64::MIN), None);
    check("18446744073709551616", None, None);
    check("0.5", None, None);
    for literal in ["", " 1", "1 ", "1x", "--1", "0b1", "１"] {
        assert_eq!(Number::from_literal(literal), None, "{literal:?}");
    }
    assert_eq!(Value::from(-7_i64).to_json(), "-7");
    assert_eq!(Value::from(u64::MAX).to_json(), u64::MAX.to_string());
}

/// Texts that are nearly JSON.
fn near_json() -> impl Strategy<Value = String> {
    const TOKENS: &[&str] = &[
        "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\":", "\"", "\\", "\\u00", "\\ud83d", "\\ude00",
        "0", "1", "-", ".", "e", "+", "true", "null", " ", "\n", "\u{1}", "é", "\u{feff}",
    ];
    prop::collection::vec(prop::sample::select(TOKENS), 0..14).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Promise: writing and reading again gives the same value.
    #[test]
    fn a_written_value_reads_back_equal(
        value in values(any::<String>(), "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,9})?([eE][+-]?[0-9]{1,5})?"),
    ) {
        prop_assert_eq!(json(&value.to_json()), value);
    }

    /// Promise: the grammar is that of another reader of RFC 8259, ambiguities aside.
    #[test]
    fn another_reader_agrees(text in near_json()) {
        let ours = parse(text.as_bytes(), &JsonLimits::default());
        let theirs = serde_json::from_str::<&RawValue>(&text);
        match ours {
            Ok(_) => prop_assert!(theirs.is_ok(), "only we take it"),
            Err(error) => {
                let ours_alone = matches!(
                    error.kind,
                    JsonErrorKind::DuplicateKey | JsonErrorKind::UnpairedSurrogate
                );
                prop_assert!(ours_alone || theirs.is_err(), "only we refuse it: {}", error);
            }
        }
    }

    /// Promise: no bytes make the reader panic.
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse(&bytes, &JsonLimits::default());
    }
}
