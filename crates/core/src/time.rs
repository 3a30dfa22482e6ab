//! Points in time and deadlines. Time comes in as a value: nothing here reads a clock.

use std::time::Duration;

/// Milliseconds since 1970-01-01T00:00:00Z, leap seconds not counted. Negative is before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The first and last instants that can be written in RFC 3339 with any zone offset: the year 0,
/// and 9999-12-30T22:00:00Z.
const RANGE_MS: std::ops::RangeInclusive<i64> = -62_167_219_200_000..=253_402_207_200_000;

impl Timestamp {
    /// From milliseconds since the Unix epoch, held within what RFC 3339 can write with any offset
    /// (the years 0 to 9999).
    #[must_use]
    pub fn from_ms(ms: i64) -> Self {
        Self(ms.clamp(*RANGE_MS.start(), *RANGE_MS.end()))
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// This instant plus `duration`, cut to whole milliseconds; saturates at the year 9999.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        let ms = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self::from_ms(self.0.saturating_add(ms))
    }

    /// How long after `earlier` this instant is; zero if it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        u64::try_from(self.0.saturating_sub(earlier.0))
            .map_or(Duration::ZERO, Duration::from_millis)
    }

    /// RFC 3339 in UTC with milliseconds, for example `2026-01-31T09:30:00.000Z`.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        let instant = jiff::Timestamp::from_millisecond(self.0)
            .expect("from_ms keeps the value within the years that jiff can write");
        format!("{instant:.3}")
    }

    /// Reads RFC 3339 text. The zone is required (`Z` or an offset).
    ///
    /// # Errors
    /// [`InvalidTime`] if the text is not RFC 3339 or has no zone.
    pub fn parse_rfc3339(text: &str) -> Result<Self, InvalidTime> {
        let parsed: jiff::Timestamp =
            text.parse().map_err(|_| InvalidTime { text: text.chars().take(64).collect() })?;
        Ok(Self::from_ms(parsed.as_millisecond()))
    }
}

/// The text is not a time with a zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an RFC 3339 time with a zone; write it like 2026-01-31T09:30:00Z")]
pub struct InvalidTime {
    text: String,
}

/// A span of time that a deadline is made of: finite, above zero, at most 100 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(Duration);

/// Why a span was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "{seconds} s is not a usable time span: it must be finite, at least 1 ms and at most 100 years"
)]
pub struct InvalidSpan {
    seconds: f64,
}

const MAX_SPAN_S: f64 = 100.0 * 366.0 * 86_400.0;

impl Span {
    /// From seconds.
    ///
    /// # Errors
    /// [`InvalidSpan`] if the number is not finite, below one millisecond or over 100 years: a
    /// deadline made of it would not be after its issue time.
    pub fn from_secs_f64(seconds: f64) -> Result<Self, InvalidSpan> {
        if seconds.is_finite() && (0.001..=MAX_SPAN_S).contains(&seconds) {
            Ok(Self(Duration::from_millis((seconds * 1000.0).round() as u64)))
        } else {
            Err(InvalidSpan { seconds })
        }
    }

    /// A span of whole seconds known to be good.
    ///
    /// # Panics
    /// If `seconds` is zero or over 100 years; for constants.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        assert!(seconds > 0 && seconds <= 100 * 366 * 86_400);
        Self(Duration::from_secs(seconds))
    }

    /// As a standard duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        self.0
    }
}

/// The three clocks of an operation, as spans. They never stand in for each other: the state's
/// expiry says whether a sealed state can still be used, authority whether its continuation may
/// still write, retention whether the record may still be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// From issue to the end of a sealed state. Default 10 minutes.
    pub state: Span,
    /// From issue to the end of the continuation's authority to write. Default 1 hour.
    pub authority: Span,
    /// From settlement to the end of replay. Default 30 days.
    pub retention: Span,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            state: Span::from_secs(600),
            authority: Span::from_secs(3600),
            retention: Span::from_secs(30 * 86_400),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_make_no_deadline_are_refused() {
        // Promise: a deadline that is not finite, or not after its issue time, cannot be made.
        for bad in [0.0, -1.0, 0.0001, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            assert!(Span::from_secs_f64(bad).is_err(), "{bad}");
        }
        let span = Span::from_secs_f64(1.5).expect("good");
        assert_eq!(span.as_duration(), Duration::from_millis(1500));
    }

    #[test]
    fn times_are_written_and_read_with_their_zone() {
        // Promise: an observation's time has a zone, and one without is refused.
        let time = Timestamp::from_ms(1_700_000_000_123);
        assert_eq!(time.to_rfc3339(), "2023-11-14T22:13:20.123Z");
        assert_eq!(Timestamp::parse_rfc3339("2023-11-14T23:13:20.123+01:00"), Ok(time));
        for bad in ["2023-11-14T22:13:20", "2023-11-14", "now", ""] {
            assert!(Timestamp::parse_rfc3339(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        // Promise: an absurd clock never turns a future deadline into a past one.
        let end = Timestamp::from_ms(i64::MAX);
        assert_eq!(end.plus(Duration::from_secs(1)), end);
        assert_eq!(Timestamp::from_ms(5).since(Timestamp::from_ms(9)), Duration::ZERO);
        assert!(end.to_rfc3339().starts_with("9999-12-30"));
        assert!(Timestamp::from_ms(i64::MIN).to_rfc3339().starts_with("0000-01-01"));
    }
}
