//! Pauses between attempts: capped exponential backoff with full jitter, and what a target's
//! Retry-After (RFC 9110, section 10.2.3) comes to.

use std::time::Duration;

use crate::time::Timestamp;

/// The pause before attempt number `tries + 2`: uniform between a millisecond and
/// `min(cap, base * 2^tries)`, from the randomness of `seed`.
#[must_use]
pub fn backoff(base: Duration, cap: Duration, tries: u32, seed: u64) -> Duration {
    let widest = base.saturating_mul(1_u32.checked_shl(tries.min(31)).unwrap_or(u32::MAX)).min(cap);
    let ms = u64::try_from(widest.as_millis()).unwrap_or(u64::MAX).max(1);
    // The high half of the product is uniform below `ms`, as good as the seed is.
    let part = (u128::from(seed) * u128::from(ms)) >> 64;
    Duration::from_millis(1 + u64::try_from(part).expect("below ms"))
}

/// A pause that a target asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// As long as asked, but no longer than the cap.
    pub pause: Duration,
    /// Whether it was longer.
    pub over_cap: bool,
}

/// Holds a pause that a target asked for below our own cap.
#[must_use]
pub fn pause_asked_for(asked: Duration, cap: Duration) -> Asked {
    Asked { pause: asked.min(cap), over_cap: asked > cap }
}

/// An answer that asks for no pause at all still gets this one.
const SHORTEST_ASKED: Duration = Duration::from_secs(1);
/// A year: more than anybody waits, and far from overflow.
const LONGEST_ASKED_S: u64 = 366 * 86_400;

/// Reads a Retry-After value (RFC 9110, section 10.2.3: a number of seconds, or a date). A date that
/// has passed is a pause of a second, a part of a second counts as a whole one, and a number that
/// is not whole or too large for anybody to wait is taken as it is meant. `None` for text that is
/// neither: our own pause then stands, which is never zero.
#[must_use]
pub fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim_matches([' ', '\t']);
    let asked = match value.bytes().next()? {
        b'0'..=b'9' => {
            let seconds: f64 = value.parse().ok()?;
            // The comparison is false for what is no number.
            let whole = if seconds < 3.2e7 { seconds.ceil() } else { 3.2e7 };
            // Neither negative nor beyond 3.2e7.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            Duration::from_secs((whole as u64).min(LONGEST_ASKED_S))
        }
        _ => {
            let until = http_date(value)?;
            let ms = u64::try_from(until.since(now).as_millis()).unwrap_or(u64::MAX);
            Duration::from_secs(ms.div_ceil(1000).min(LONGEST_ASKED_S))
        }
    };
    Some(asked.max(SHORTEST_ASKED))
}

/// An HTTP-date in any of its three forms (RFC 9110, section 5.6.7), always in GMT.
fn http_date(value: &str) -> Option<Timestamp> {
    const FORMS: [&str; 3] =
        ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let civil = FORMS.iter().find_map(|form| jiff::civil::DateTime::strptime(form, value).ok())?;
    let zoned = civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Timestamp::from_ms(zoned.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT, the date of the RFC's examples.
    const DATE_MS: i64 = 784_111_777_000;

    #[test]
    fn a_retry_after_is_never_zero_and_never_a_guess() {
        // Promise: what the target asked for is kept; nonsense falls back to our own pause, and no
        // value makes us hammer the target.
        let now = Timestamp::from_ms(DATE_MS);
        let seconds = |s| Some(Duration::from_secs(s));
        let cases = [
            ("120", seconds(120)),
            (" 7\t", seconds(7)),
            ("0", seconds(1)),
            ("1.5", seconds(2)),
            ("1e9", seconds(LONGEST_ASKED_S)),
            ("99999999999999999999", seconds(LONGEST_ASKED_S)),
            ("9e999", seconds(LONGEST_ASKED_S)),
            ("-5", None),
            ("abc", None),
            ("", None),
            (" ", None),
            ("+5", None),
            ("5 s", None),
            ("NaN", None),
            ("inf", None),
            ("Sun, 06 Nov 1994 08:50:37 GMT", seconds(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", seconds(60)),
            ("Sun Nov  6 08:50:37 1994", seconds(60)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", seconds(1)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", seconds(1)),
            ("Sun, 06 Nov 2094 08:49:37 GMT", None),
            ("Sat, 06 Nov 2094 08:49:37 GMT", seconds(LONGEST_ASKED_S)),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("Sun, 31 Feb 1994 08:49:37 GMT", None),
        ];
        for (value, expected) in cases {
            assert_eq!(retry_after(value, now), expected, "{value:?}");
        }
        // Dates have whole seconds: a part of one is waited for.
        let later = Timestamp::from_ms(DATE_MS + 800);
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:50:37 GMT", later), seconds(60));
    }

    #[test]
    fn a_pause_doubles_to_its_cap_and_is_spread_over_all_of_it() {
        // Promise: many items that failed together do not come back together.
        let (base, cap) = (Duration::from_millis(100), Duration::from_secs(10));
        for (tries, widest) in [(0, 100), (1, 200), (4, 1600), (6, 6400), (7, 10_000), (99, 10_000)]
        {
            let pause = |seed| backoff(base, cap, tries, seed);
            assert_eq!(pause(0), Duration::from_millis(1), "never zero");
            assert_eq!(pause(u64::MAX), Duration::from_millis(widest));
            let middle = pause(u64::MAX / 2).as_millis();
            assert!(middle.abs_diff(u128::from(widest) / 2) <= 1, "{tries}: {middle}");
        }
        assert_eq!(backoff(Duration::MAX, Duration::MAX, u32::MAX, 0).as_millis(), 1);
    }

    #[test]
    fn a_pause_that_is_asked_for_is_held_below_the_cap() {
        // Promise: a target cannot put an item to sleep for a year.
        let cap = Duration::from_secs(60);
        for (asked, pause, over_cap) in [(1, 1, false), (60, 60, false), (61, 60, true)] {
            let expected = Asked { pause: Duration::from_secs(pause), over_cap };
            assert_eq!(pause_asked_for(Duration::from_secs(asked), cap), expected);
        }
    }
}
