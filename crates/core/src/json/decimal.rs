//! The exact decimal value of a number literal, without rounding and without ever expanding an
//! exponent: `1e999999999999` costs as much as its text.

use super::Number;

/// Exponents stop here. No text that fits in memory reaches it by its digits, so two *different*
/// values meet only where both are absurd, and those are refused before they are compared.
const EXPONENT_CAP: i64 = 1 << 60;

/// `(-1)^negative * digits * 10^exponent`, normalised: `digits` has neither leading nor trailing
/// zeros and is empty for zero, whose sign and exponent are dropped. Equal values are equal
/// structures.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    pub(crate) fn of(number: &Number) -> Decimal {
        Self::of_literal(number.literal())
    }

    /// `literal` must be a number by RFC 8259, section 6; ECMAScript's number texts are too.
    pub(crate) fn of_literal(literal: &str) -> Decimal {
        let (negative, unsigned) = match literal.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, literal),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)),
            None => (unsigned, 0),
        };
        let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = format!("{integer}{fraction}");
        let significant = all_digits.trim_end_matches('0');
        let dropped = all_digits.len() - significant.len();
        let digits = significant.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Decimal { negative: false, digits, exponent: 0 };
        }
        // Lengths are far below the cap, so the sum cannot overflow.
        let exponent = exponent + as_i64(dropped) - as_i64(fraction.len());
        Decimal { negative, digits, exponent }
    }

    pub(crate) fn is_integral(&self) -> bool {
        self.exponent >= 0
    }

    /// The value, if it is integral and fits.
    pub(crate) fn to_i128(&self) -> Option<i128> {
        if !self.is_integral() {
            return None;
        }
        if self.digits.is_empty() {
            return Some(0);
        }
        let power = 10_i128.checked_pow(u32::try_from(self.exponent).ok()?)?;
        let magnitude = self.digits.parse::<i128>().ok()?.checked_mul(power)?;
        Some(if self.negative { -magnitude } else { magnitude })
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
}
