//! The exact decimal value of a number literal, without rounding and without ever expanding an
//! exponent: `1e999999999999` costs as much as its text.

use super::Number;

/// Exponents stop here. No text that fits in memory reaches it by its digits, so two *different*
/// values meet only where both are absurd, and those are refused before they are compared.
const EXPONENT_CAP: i64 = 1 << 60;

/// `(-1)^negative * digits * 10^exponent`, normalised: `digits`, which are `head` and then `tail`,
/// have neither leading nor trailing zeros and are empty for zero, whose sign and exponent are
/// dropped. Borrows from its literal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decimal<'a> {
    negative: bool,
    head: &'a str,
    tail: &'a str,
    exponent: i64,
}

impl<'a> Decimal<'a> {
    pub(crate) fn of(number: &'a Number) -> Self {
        Self::of_literal(number.literal())
    }

    /// `literal` must be a number by RFC 8259, section 6; ECMAScript's number texts are too.
    pub(crate) fn of_literal(literal: &'a str) -> Self {
        let (negative, unsigned) = match literal.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, literal),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)),
            None => (unsigned, 0),
        };
        let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let (mut head, mut tail) = (integer.trim_start_matches('0'), fraction);
        tail = tail.trim_end_matches('0');
        // What the last digit counts: fractions below one, zeros cut from an integer above.
        let mut scale = -as_i64(tail.len());
        if tail.is_empty() {
            head = head.trim_end_matches('0');
            scale = as_i64(integer.trim_start_matches('0').len() - head.len());
        }
        if head.is_empty() {
            tail = tail.trim_start_matches('0');
        }
        if head.is_empty() && tail.is_empty() {
            return Decimal { negative: false, head, tail, exponent: 0 };
        }
        // Lengths are far below the cap, so the sum cannot overflow.
        Decimal { negative, head, tail, exponent: exponent + scale }
    }

    pub(crate) fn is_integral(&self) -> bool {
        self.exponent >= 0
    }

    /// The value, if it is integral and fits.
    pub(crate) fn to_i128(self) -> Option<i128> {
        if !self.is_integral() {
            return None;
        }
        let mut magnitude: i128 = 0;
        for digit in self.digits() {
            magnitude = magnitude.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
        }
        if magnitude != 0 {
            let power = 10_i128.checked_pow(u32::try_from(self.exponent).ok()?)?;
            magnitude = magnitude.checked_mul(power)?;
        }
        Some(if self.negative { -magnitude } else { magnitude })
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.head.bytes().chain(self.tail.bytes())
    }
}

impl PartialEq for Decimal<'_> {
    /// Equality of values, however the digits are split.
    fn eq(&self, other: &Self) -> bool {
        self.negative == other.negative
            && self.exponent == other.exponent
            && self.digits().eq(other.digits())
    }
}

/// The exponent part after its `e`, stopped at the cap.
fn read_exponent(text: &str) -> i64 {
    let (negative, digits) = match text.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let magnitude = digits.iter().fold(0_i64, |sum, digit| {
        sum.saturating_mul(10).saturating_add(i64::from(digit - b'0')).min(EXPONENT_CAP)
    });
    if negative { -magnitude } else { magnitude }
}

fn as_i64(length: usize) -> i64 {
    i64::try_from(length).expect("no text in memory is longer than i64::MAX bytes")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Decimal;

    #[test]
    fn equal_values_are_equal_however_they_are_written() {
        // Promise: 12345.0 and 12345, 1e2 and 100, -0 and 0 are one value; neighbours are not.
        let check = |left: &str, right: &str, equal: bool| {
            let same = Decimal::of_literal(left) == Decimal::of_literal(right);
            assert_eq!(same, equal, "{left} and {right}");
        };
        check("12345.0", "12345", true);
        check("1e2", "100", true);
        check("1E+2", "100", true);
        check("0.01e4", "100", true);
        check("-0", "0", true);
        check("-0.000e99999999999999999999", "0", true);
        check("9007199254740993", "9007199254740992", false);
        check("1200.0300e3", "1200030", true);
        check("12.34", "1234e-2", true);
        check("0.00120", "12e-4", true);
        check("100.5", "1005e-1", true);
        check("12.34", "123.4", false);
        check("1e400", "1e401", false);
        check("1", "-1", false);
        check("0.1", "1", false);
    }

    #[test]
    fn integers_are_read_exactly_and_absurd_exponents_cost_nothing() {
        // Promise: no literal, however large its exponent, is expanded or rounded.
        let check = |literal: &str, value: Option<i128>| {
            assert_eq!(Decimal::of_literal(literal).to_i128(), value, "{literal}");
        };
        check("100e-2", Some(1));
        check("-1.50e1", Some(-15));
        check("9223372036854775808", Some(9_223_372_036_854_775_808));
        check("0e999999999999999999999999", Some(0));
        check("1.5", None);
        check("1e-999999999999999999999999", None);
        check("1e999999999999999999999999", None);
        check("10e999999999999999999999999", None);
        check("0.01e-999999999999999999999999", None);
        check("1e39", None);
    }

    /// The same by joining the digits first, as one would on paper.
    fn on_paper(literal: &str) -> (bool, String, i64) {
        let (mantissa, exponent) = literal.split_once('e').unwrap_or((literal, "0"));
        let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let negative = integer.starts_with('-');
        let joined = format!("{}{fraction}", integer.trim_start_matches('-'));
        let significant = joined.trim_end_matches('0');
        let dropped = (joined.len() - significant.len()) as i64 - fraction.len() as i64;
        let digits = significant.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return (false, digits, 0);
        }
        (negative, digits, exponent.parse::<i64>().expect("short") + dropped)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Promise: splitting the digits at the point instead of joining them changes no value.
        #[test]
        fn digits_are_the_same_split_or_joined(
            left in "-?(0|[1-9][01]{0,5})(\\.[01]{1,5})?(e-?[0-9])?",
            right in "-?(0|[1-9][01]{0,5})(\\.[01]{1,5})?(e-?[0-9])?",
        ) {
            let split = Decimal::of_literal(&left);
            let (negative, digits, exponent) = on_paper(&left);
            let made: String = split.digits().map(char::from).collect();
            prop_assert_eq!((split.negative, made, split.exponent), (negative, digits, exponent));
            let equal = split == Decimal::of_literal(&right);
            prop_assert_eq!(equal, on_paper(&left) == on_paper(&right));
        }
    }
}
