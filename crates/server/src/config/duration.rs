//! Spans of time as people write them: seconds as a number, or `10m`, `36h`, `1h30m`.

use std::time::Duration;

/// In milliseconds, largest first, as they must follow each other in a text.
const UNITS: [(&str, f64); 5] =
    [("d", 86_400_000.0), ("h", 3_600_000.0), ("m", 60_000.0), ("s", 1000.0), ("ms", 1.0)];

/// Longest span, in seconds: one hundred years. A longer one is a slip of the pen.
const LONGEST_S: f64 = 100.0 * 365.0 * 86_400.0;

const FORM: &str =
    "write seconds as a number, or text such as \"10m\", \"36h\", \"30d\" or \"1h30m\"";

/// Seconds, to the nearest millisecond. Zero is a span.
///
/// # Errors
/// Rule and remedy, if the number is not finite, negative or over one hundred years.
pub(super) fn from_seconds(seconds: f64) -> Result<Duration, String> {
    if !seconds.is_finite() {
        return Err(format!("a time span must be finite; {FORM}"));
    }
    if seconds < 0.0 {
        return Err(format!("a time span cannot be negative; {FORM}"));
    }
    if seconds > LONGEST_S {
        return Err(format!("a time span is at most 100 years; {FORM}"));
    }
    Ok(Duration::from_millis((seconds * 1000.0).round() as u64))
}

/// A text of numbers with units `d`, `h`, `m`, `s`, `ms`, each at most once and largest first;
/// a number alone is seconds.
///
/// # Errors
/// As [`from_seconds`]; and if the text has another form.
pub fn from_text(text: &str) -> Result<Duration, String> {
    let malformed = || format!("that is not a time span; {FORM}");
    let unsigned = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    if ["nan", "inf", "infinity"].contains(&unsigned.as_str()) {
        return from_seconds(f64::NAN);
    }
    if text.starts_with('-') && decimal(&unsigned).is_some() {
        return from_seconds(-1.0);
    }
    if let Some(seconds) = decimal(text) {
        return from_seconds(seconds);
    }
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut total_ms = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(malformed)?;
        let (count, after) = rest.split_at(digits);
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, unit_ms) = units.find(|(name, _)| *name == unit).ok_or_else(malformed)?;
        total_ms += decimal(count).ok_or_else(malformed)? * unit_ms;
        rest = after;
    }
    if text.is_empty() { Err(malformed()) } else { from_seconds(total_ms / 1000.0) }
}

/// The shortest text that [`from_text`] reads as that span, cut to whole milliseconds: `1h30m`.
pub(super) fn to_text(span: Duration) -> String {
    let mut rest_ms = span.as_millis();
    let mut text = String::new();
    for (name, unit_ms) in UNITS {
        let unit_ms = unit_ms as u128;
        if rest_ms >= unit_ms {
            text.push_str(&format!("{}{name}", rest_ms / unit_ms));
            rest_ms %= unit_ms;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// Digits with at most one point between them: no sign, no exponent, no blank.
fn decimal(text: &str) -> Option<f64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (digits(whole) && digits(fraction)).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_they_are_written() {
        // Promise: a deadline lasts as long as its text says, to the millisecond.
        let cases: &[(&str, u64)] = &[
            ("0", 0),
            ("600", 600_000),
            ("1.5", 1500),
            ("10m", 600_000),
            ("36h", 129_600_000),
            ("30d", 2_592_000_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("250ms", 250),
            ("0.5h", 1_800_000),
            ("0s", 0),
        ];
        for (text, ms) in cases {
            assert_eq!(from_text(text), Ok(Duration::from_millis(*ms)), "{text}");
        }
    }

    #[test]
    fn a_span_that_is_shown_is_the_one_that_was_read() {
        // Promise: what `config check` prints can be written into a file and means the same.
        for (text, shown) in [
            ("0", "0s"),
            ("1.5", "1s500ms"),
            ("600", "10m"),
            ("90m", "1h30m"),
            ("30d", "30d"),
            ("93784.005", "1d2h3m4s5ms"),
        ] {
            let span = from_text(text).expect("a span");
            assert_eq!(to_text(span), shown);
            assert_eq!(from_text(shown), Ok(span));
        }
    }

    #[test]
    fn spans_that_mean_nothing_or_two_things_are_refused() {
        // Promise: no deadline is guessed, and none is infinite.
        for text in [
            "", " ", "m", "10 m", "10M", "10mm", "1m1h", "1m1m", "1h30", "ten", "1e3", "1,5h",
            ".5s", "1.s", "1..5s", "10min", "１0s", "10m ",
        ] {
            let error = from_text(text).expect_err(text);
            assert!(error.starts_with("that is not a time span; "), "{text}: {error}");
        }
        for text in ["nan", "NaN", "inf", "-inf", "+inf", "Infinity"] {
            assert!(from_text(text).expect_err(text).contains("finite"), "{text}");
        }
        assert!(from_text("-5").expect_err("negative").contains("negative"));
        assert!(from_text("99999d").expect_err("long").contains("100 years"));
        for seconds in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.1, 1e300] {
            assert!(from_seconds(seconds).is_err(), "{seconds}");
        }
    }
}
