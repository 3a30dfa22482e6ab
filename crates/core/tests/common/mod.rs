//! Generators and helpers that several tests share.

use counterfoil_core::json::{JsonLimits, Number, Object, Value, parse};
use proptest::prelude::*;

/// A value from text that must be good JSON.
pub(crate) fn json(text: &str) -> Value {
    parse(text.as_bytes(), &JsonLimits::default()).expect("the test's JSON is good")
}

/// Values up to 5 levels deep, with the given keys and number literals.
pub(crate) fn values(
    keys: impl Strategy<Value = String> + Clone + 'static,
    literals: impl Strategy<Value = String> + 'static,
) -> impl Strategy<Value = Value> {
    let number = literals.prop_map(|literal| {
        Value::Number(Number::from_literal(&literal).expect("the generator makes numbers"))
    });
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number,
        any::<String>().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        let members = prop::collection::vec((keys.clone(), inner.clone()), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(Value::Array),
            members.prop_map(|members| Value::Object(Object::from_iter(members))),
        ]
    })
}
