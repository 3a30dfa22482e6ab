//! Canonical JSON against a second implementation, which is nothing but sorted maps and a few lines
//! of writing: it never sees the text, and shares no code.

use std::collections::BTreeMap;

use counterfoil_core::canonical::{jcs_v1, strict_v1};
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_lab::random::Random;
use proptest::prelude::*;

use super::{cases, damage};

const MOST: i64 = (1 << 53) - 1;

/// A value as the second implementation knows it.
#[derive(Debug, Clone)]
enum Tree {
    Null,
    Bool(bool),
    Integer(i64),
    Text(String),
    List(Vec<Tree>),
    /// In the order of bytes, which in UTF-8 is that of scalar values.
    Map(BTreeMap<String, Tree>),
}

fn trees() -> impl Strategy<Value = Tree> {
    let text = prop_oneof![any::<String>(), "[a-z\"\\\\/\u{0}-\u{1f}\u{e000}-\u{10ffff}]{0,6}"];
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::Bool),
        prop_oneof![-MOST..=MOST, -1000_i64..1000, Just(MOST), Just(-MOST)].prop_map(Tree::Integer),
        text.clone().prop_map(Tree::Text),
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Tree::List),
            prop::collection::btree_map(text.clone(), inner, 0..6).prop_map(Tree::Map),
        ]
    })
}

/// The canonical text, with keys ordered by scalar value, or by UTF-16 unit.
fn canonical(tree: &Tree, by_unit: bool, out: &mut String) {
    match tree {
        Tree::Null => out.push_str("null"),
        Tree::Bool(value) => out.push_str(&value.to_string()),
        Tree::Integer(value) => out.push_str(&value.to_string()),
        Tree::Text(text) => quote(text, out),
        Tree::List(values) => {
            for (index, value) in values.iter().enumerate() {
                out.push(if index == 0 { '[' } else { ',' });
                canonical(value, by_unit, out);
            }
            out.push_str(if values.is_empty() { "[]" } else { "]" });
        }
        Tree::Map(members) => {
            let mut members: Vec<(&String, &Tree)> = members.iter().collect();
            if by_unit {
                members.sort_by_key(|(name, _)| name.encode_utf16().collect::<Vec<u16>>());
            }
            for (index, (name, value)) in members.iter().enumerate() {
                out.push(if index == 0 { '{' } else { ',' });
                quote(name, out);
                out.push(':');
                canonical(value, by_unit, out);
            }
            out.push_str(if members.is_empty() { "{}" } else { "}" });
        }
    }
}

fn quote(text: &str, out: &mut String) {
    let short = [('"', '"'), ('\\', '\\'), ('\u{8}', 'b'), ('\u{9}', 't'), ('\u{a}', 'n')];
    let short = BTreeMap::from_iter(short.into_iter().chain([('\u{c}', 'f'), ('\u{d}', 'r')]));
    out.push('"');
    for char in text.chars() {
        match short.get(&char) {
            Some(letter) => out.extend(['\\', *letter]),
            None if char < ' ' => out.push_str(&format!("\\u{:04x}", char as u32)),
            None => out.push(char),
        }
    }
    out.push('"');
}

/// One of the many texts of a value.
fn noisy(tree: &Tree, noise: &mut Random, out: &mut String) {
    space(noise, out);
    match tree {
        Tree::Null => out.push_str("null"),
        Tree::Bool(value) => out.push_str(&value.to_string()),
        Tree::Integer(value) => number(*value, noise, out),
        Tree::Text(text) => noisy_quote(text, noise, out),
        Tree::List(values) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                noisy(value, noise, out);
            }
            out.push(']');
        }
        Tree::Map(members) => {
            let mut members: Vec<(&String, &Tree)> = members.iter().collect();
            for index in (1..members.len()).rev() {
                members.swap(index, noise.below(index as u64 + 1) as usize);
            }
            out.push('{');
            for (index, (name, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                space(noise, out);
                noisy_quote(name, noise, out);
                space(noise, out);
                out.push(':');
                noisy(value, noise, out);
            }
            out.push('}');
        }
    }
    space(noise, out);
}

fn space(noise: &mut Random, out: &mut String) {
    out.push_str(["", "", "", " ", "\t", "\r\n"][noise.below(6) as usize]);
}

fn number(value: i64, noise: &mut Random, out: &mut String) {
    let zero = if value == 0 && noise.below(2) == 0 { "-" } else { "" };
    let text = match noise.below(5) {
        0 => format!("{zero}{value}.0"),
        1 => format!("{zero}{value}e0"),
        2 => format!("{zero}{value}00E-2"),
        3 if value % 10 == 0 => format!("{}e+1", value / 10),
        _ => format!("{zero}{value}"),
    };
    out.push_str(&text);
}

fn noisy_quote(text: &str, noise: &mut Random, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        if char < ' ' || char == '"' || char == '\\' || noise.below(4) == 0 {
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                let hex = format!("{unit:04x}");
                let hex = if noise.below(2) == 0 { hex } else { hex.to_uppercase() };
                out.push_str(&format!("\\u{hex}"));
            }
        } else {
            out.push(char);
        }
    }
    out.push('"');
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn two_implementations_agree_on_every_text_of_a_value(tree in trees(), seed in any::<u64>()) {
        // Promise: equal values have equal bytes, whatever way they were written, in both profiles.
        let mut text = String::new();
        noisy(&tree, &mut Random::new(seed), &mut text);
        let value = parse(text.as_bytes(), &JsonLimits::default()).expect("good JSON");
        for (profile, by_unit) in [(strict_v1(&value), false), (jcs_v1(&value), true)] {
            let mut expected = String::new();
            canonical(&tree, by_unit, &mut expected);
            let found = String::from_utf8(profile.expect("integers")).expect("UTF-8");
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_double_comes_back_from_its_canonical_text(bits in any::<u64>()) {
        // Promise: jcs-v1 loses nothing of a double and never writes more than is needed.
        let double = f64::from_bits(bits);
        prop_assume!(double.is_finite());
        let literal = format!("{double:e}");
        let value = parse(literal.as_bytes(), &JsonLimits::default()).expect("a number");
        // A large double whose shortest digits are another integer is refused by rule.
        if let Ok(bytes) = jcs_v1(&value) {
            let text = String::from_utf8(bytes).expect("UTF-8");
            let back: f64 = text.parse().expect("a number");
            prop_assert_eq!(back, double, "{}", text);
            let digits = |text: &str| {
                let mantissa = text.split(['e', 'E']).next().unwrap_or_default().to_owned();
                let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
                digits.trim_matches('0').len()
            };
            prop_assert_eq!(digits(&text), digits(&literal), "{} {}", text, literal);
        }
    }

    #[test]
    fn damaged_text_never_panics_and_is_json_to_others_if_it_is_to_us(
        tree in trees(), seed in any::<u64>(), damage in damage()
    ) {
        // Promise: our reader takes no text that another strict reader does not take.
        let mut text = String::new();
        noisy(&tree, &mut Random::new(seed), &mut text);
        let text = damage.of(text.as_bytes());
        if let Ok(value) = parse(&text, &JsonLimits::default()) {
            let other = serde_json::from_slice::<serde::de::IgnoredAny>(&text);
            prop_assert!(other.is_ok(), "{:?}", String::from_utf8_lossy(&text));
            let again = parse(value.to_json().as_bytes(), &JsonLimits::default());
            prop_assert_eq!(again.expect("what we write we read"), value.clone());
            let _ = (strict_v1(&value), jcs_v1(&value));
        }
    }
}
