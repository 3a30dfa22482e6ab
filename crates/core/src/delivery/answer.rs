//! What an HTTP answer proves. One table: a status proves something only where it is in it, and
//! everything else leaves the outcome unknown.

use std::time::Duration;

use crate::delivery::outcome::{ErrorClass, Then};

/// What was seen of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerSeen {
    /// The status code.
    pub status: u16,
    /// What the connector's declarations make of status and body.
    pub declared: Declared,
    /// Whether an argument stands in the URL: then "not found" speaks of the item and not of the
    /// target.
    pub url_holds_arguments: bool,
    /// Whether the answer has headers of a rate limit that is used up.
    pub rate_limited: bool,
    /// The pause that it asks for, from [`retry_after`](crate::retry::retry_after).
    pub retry_after: Option<Duration>,
}

/// What a connector's declarations make of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// Nothing is declared for it.
    Nothing,
    /// A success whose body is what the target promised.
    Success,
    /// The status of a success, and a body that is not what the target promised.
    BrokenSuccess,
    /// The target's own declared error shape: it looked at the request and refused it.
    Refusal,
    /// This answer is declared to mean that nothing was done, and that a retry may succeed.
    NotDone,
    /// The key was used with another request.
    KeyReused,
    /// A failure that the target replays from its own store for this key.
    KeyReplayed,
}

/// What an answer proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The target did it.
    Applied,
    /// The target did not do it.
    NotApplied(ErrorClass, Then),
    /// Nothing.
    Unknown(ErrorClass, Option<Duration>),
}

/// What `answer` proves of an attempt.
#[must_use]
pub fn judge(answer: &AnswerSeen) -> Proof {
    let after = answer.retry_after;
    let unknown = |class| Proof::Unknown(class, after);
    match answer.declared {
        Declared::KeyReused => return unknown(ErrorClass::KeyReused),
        Declared::KeyReplayed => return unknown(ErrorClass::KeyReplayed),
        // A conflict can be declared to mean that an earlier attempt did it.
        Declared::Success if matches!(answer.status, 200..=299 | 409) => return Proof::Applied,
        Declared::BrokenSuccess => return unknown(ErrorClass::Unreadable),
        _ => {}
    }
    match (answer.status, answer.declared) {
        (429, _) => Proof::NotApplied(ErrorClass::RateLimited, Then::Retry { after }),
        (403, _) if answer.rate_limited => {
            Proof::NotApplied(ErrorClass::RateLimited, Then::Retry { after })
        }
        (401 | 407, _) => Proof::NotApplied(ErrorClass::Credential, Then::ParkTarget),
        (403, _) if answer.url_holds_arguments => {
            Proof::NotApplied(ErrorClass::Credential, Then::DeadLetter)
        }
        (403, _) => Proof::NotApplied(ErrorClass::Credential, Then::ParkTarget),
        (404 | 405 | 410, _) if answer.url_holds_arguments => {
            Proof::NotApplied(ErrorClass::Missing, Then::DeadLetter)
        }
        (404 | 405 | 410, _) => Proof::NotApplied(ErrorClass::Missing, Then::ParkTarget),
        (400 | 413 | 415 | 422, Declared::Refusal) => {
            Proof::NotApplied(ErrorClass::Rejected, Then::DeadLetter)
        }
        (409, Declared::Refusal) => Proof::NotApplied(ErrorClass::Rejected, Then::DeadLetter),
        (409 | 503, Declared::NotDone) => {
            Proof::NotApplied(ErrorClass::ServerError, Then::Retry { after })
        }
        (500..=599, _) => unknown(ErrorClass::ServerError),
        // A success that nothing is declared for, with a body of its own: an empty promise.
        (200..=299, _) => unknown(ErrorClass::Unreadable),
        _ => unknown(ErrorClass::Undeclared),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: AnswerSeen = AnswerSeen {
        status: 0,
        declared: Declared::Nothing,
        url_holds_arguments: false,
        rate_limited: false,
        retry_after: None,
    };
    const AFTER: Option<Duration> = Some(Duration::from_secs(7));

    fn check(cases: &[(&[u16], AnswerSeen, Proof)]) {
        for (statuses, seen, expected) in cases {
            for status in *statuses {
                let seen = AnswerSeen { status: *status, ..*seen };
                assert_eq!(judge(&seen), *expected, "{seen:?}");
            }
        }
    }

    #[test]
    fn a_status_that_is_not_listed_proves_nothing() {
        // Promise: whatever nobody declared leaves the outcome unknown; it is never taken for "not
        // done", and never for done.
        let unknown = |class| Proof::Unknown(class, None);
        check(&[
            (
                &[100, 101, 103, 300, 301, 302, 303, 304, 307, 308],
                SEEN,
                unknown(ErrorClass::Undeclared),
            ),
            (&[200, 201, 202, 204, 206, 207, 226], SEEN, unknown(ErrorClass::Unreadable)),
            (
                &[400, 402, 406, 408, 409, 411, 412, 413, 414, 415, 416, 417, 418, 421],
                SEEN,
                unknown(ErrorClass::Undeclared),
            ),
            (
                &[422, 423, 424, 425, 426, 428, 431, 451, 499, 0, 600, 999],
                SEEN,
                unknown(ErrorClass::Undeclared),
            ),
            (
                &[500, 501, 502, 503, 504, 505, 507, 511, 520, 599],
                SEEN,
                unknown(ErrorClass::ServerError),
            ),
        ]);
        // Nor does a declaration for another status.
        for declared in [Declared::Refusal, Declared::NotDone] {
            let seen = AnswerSeen { declared, ..SEEN };
            check(&[
                (&[402, 406, 408, 301], seen, unknown(ErrorClass::Undeclared)),
                (&[500, 502, 504], seen, unknown(ErrorClass::ServerError)),
            ]);
        }
        let success = AnswerSeen { declared: Declared::Success, ..SEEN };
        check(&[(&[500, 502], success, unknown(ErrorClass::ServerError))]);
    }

    #[test]
    fn what_is_declared_counts_where_it_may() {
        // Promise: a success is one only with the promised body; a refusal only in the target's own
        // shape.
        let seen = |declared| AnswerSeen { declared, retry_after: AFTER, ..SEEN };
        let rejected = Proof::NotApplied(ErrorClass::Rejected, Then::DeadLetter);
        let again = Proof::NotApplied(ErrorClass::ServerError, Then::Retry { after: AFTER });
        check(&[
            (&[200, 201, 202, 204, 409], seen(Declared::Success), Proof::Applied),
            (
                &[200, 201],
                seen(Declared::BrokenSuccess),
                Proof::Unknown(ErrorClass::Unreadable, AFTER),
            ),
            (&[400, 409, 413, 415, 422], seen(Declared::Refusal), rejected),
            (&[409, 503], seen(Declared::NotDone), again),
            (
                &[400, 409, 422],
                seen(Declared::KeyReused),
                Proof::Unknown(ErrorClass::KeyReused, AFTER),
            ),
            (
                &[500, 503, 400],
                seen(Declared::KeyReplayed),
                Proof::Unknown(ErrorClass::KeyReplayed, AFTER),
            ),
        ]);
    }

    #[test]
    fn what_stops_everybody_parks_the_target_and_what_speaks_of_the_item_does_not() {
        // Promise: a lost credential burns no attempts; one wrong address stops nobody else.
        let park = |class| Proof::NotApplied(class, Then::ParkTarget);
        let dead = |class| Proof::NotApplied(class, Then::DeadLetter);
        let in_url = AnswerSeen { url_holds_arguments: true, ..SEEN };
        let limited = AnswerSeen { rate_limited: true, retry_after: AFTER, ..in_url };
        let wait = Proof::NotApplied(ErrorClass::RateLimited, Then::Retry { after: AFTER });
        check(&[
            (&[401, 407], in_url, park(ErrorClass::Credential)),
            (&[401, 403, 407], SEEN, park(ErrorClass::Credential)),
            (&[404, 405, 410], SEEN, park(ErrorClass::Missing)),
            (&[403], in_url, dead(ErrorClass::Credential)),
            (&[404, 405, 410], in_url, dead(ErrorClass::Missing)),
            (&[403, 429], limited, wait),
        ]);
    }
}
