//! When two JSON values are the same, and when one stands in another.

use counterfoil_core::json::{Number, Value};

/// Whether two values are equal: members in any order, numbers by their value.
#[must_use]
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, value)| b.get(name).is_some_and(|it| equal(value, it)))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (a, b) => a == b,
    }
}

/// Whether `part` stands in `whole`: each member of an object in the member of that name, each
/// element of a list in some element, and everything else equal.
#[must_use]
pub(super) fn includes(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(name, value)| whole.get(name).is_some_and(|it| includes(it, value)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            part.iter().all(|value| whole.iter().any(|it| includes(it, value)))
        }
        (whole, part) => equal(whole, part),
    }
}

/// By value where both are whole numbers; a fraction is as near as a double can say.
fn same_number(a: &Number, b: &Number) -> bool {
    let whole = |it: &Number| it.as_i64().map(i128::from).or_else(|| it.as_u64().map(i128::from));
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => {
            let double = |it: &Number| it.literal().parse::<f64>().ok();
            a == b || (is_fraction(a) && is_fraction(b) && double(a) == double(b))
        }
        _ => false,
    }
}

/// Not a whole number beyond 64 bits, whose digits a double would drop.
fn is_fraction(number: &Number) -> bool {
    number.literal().parse::<f64>().is_ok_and(|it| it.fract() != 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use counterfoil_core::json::{JsonLimits, parse};

    fn value(text: &str) -> Value {
        parse(text.as_bytes(), &JsonLimits::default()).expect(text)
    }

    #[test]
    fn equality_is_of_meaning() {
        // Promise: order of members and spelling of numbers are no difference; a digit is one.
        for (a, b, expected) in [
            (r#"{"a":1,"b":[2]}"#, r#"{"b":[2.0],"a":1e0}"#, true),
            ("9007199254740993", "9007199254740992", false),
            ("36893488147419103233", "36893488147419103232", false),
            ("1.50", "1.5", true),
            ("[1,2]", "[2,1]", false),
            (r#"{"a":1}"#, r#"{"a":1,"b":2}"#, false),
            ("null", "false", false),
            (r#""1""#, "1", false),
        ] {
            assert_eq!(equal(&value(a), &value(b)), expected, "{a} {b}");
        }
    }

    #[test]
    fn a_part_stands_in_its_whole() {
        // Promise: what was written is found beside what was there before.
        let whole = r#"{"entities":[{"name":"A","observations":["x","y"]},{"name":"B"}],"n":1}"#;
        for (part, expected) in [
            (r#"{"entities":[{"name":"A","observations":["y"]}]}"#, true),
            (r#"{"entities":[{"name":"B"},{"name":"A"}]}"#, true),
            (r#"{"entities":[{"name":"B","observations":["x"]}]}"#, false),
            (r#"{"entities":[]}"#, true),
            (r#"{"entities":{}}"#, false),
            ("{}", true),
            ("[]", false),
        ] {
            assert_eq!(includes(&value(whole), &value(part)), expected, "{part}");
        }
    }
}
