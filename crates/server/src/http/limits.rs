//! What a client may take: requests a second, requests at a time, streams, each by principal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use counterfoil_core::identity::Caller;
use counterfoil_core::json::JsonLimits;

/// Limits of one HTTP server. No default is a promise; each can be set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HttpLimits {
    /// Limits of one message; its `max_bytes` is that of a request's body.
    pub json: JsonLimits,
    /// Open connections, in count. Past it the longest idle one makes room, or the new one is
    /// turned away.
    pub max_connections: usize,
    /// Requests of one principal under way at a time, in count; as many open streams of older
    /// clients besides.
    pub max_in_flight: usize,
    /// Requests of one principal in a second, in count; as many may come at once. Zero does not
    /// limit.
    pub max_rate: u32,
    /// Sessions of older clients, in count; one principal has at most a quarter of them.
    pub max_sessions: usize,
    /// How long a session of an older client lives without any message.
    pub session_idle: Duration,
    /// How long a request's head may take from its first byte to its last, and a TLS handshake.
    pub head_time: Duration,
    /// How long a request's body may take.
    pub body_time: Duration,
    /// How long a connection may stand without a request.
    pub idle_time: Duration,
    /// How long a client may leave what is sent to it unread.
    pub write_stall_time: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            json: JsonLimits::default(),
            max_connections: 1024,
            // Group commits do nine tenths of their best with so many; more from one principal
            // would mostly wait longer.
            max_in_flight: 64,
            // Far above an agent, which thinks between calls, and below what a server does, so
            // that a program in a loop leaves room for the others.
            max_rate: 1000,
            max_sessions: 1024,
            session_idle: Duration::from_secs(15 * 60),
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(75),
            write_stall_time: Duration::from_secs(60),
        }
    }
}

/// What each principal takes now. Holds one entry for each principal that ever came in, of which
/// there are as many as the tokens name.
#[derive(Debug)]
pub(super) struct Principals {
    max_in_flight: usize,
    max_rate: u32,
    taken: Mutex<HashMap<Caller, Taken>>,
}

#[derive(Debug)]
struct Taken {
    in_flight: usize,
    streams: usize,
    /// Requests that may still come at once.
    left: f64,
    left_at: Instant,
}

/// What is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request that will be answered.
    Request,
    /// A stream that stays open until its session ends.
    Stream,
}

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limited {
    /// The limit, in words.
    pub(super) limit: Limit,
    /// When it is worth trying again.
    pub(super) retry_after: Duration,
}

/// A limit that was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// Too many at a time.
    InFlight(usize),
    /// Too many in a second.
    Rate(u32),
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InFlight(count) => {
                write!(f, "{count} requests of this principal are under way, which is the limit")
            }
            Self::Rate(count) => {
                write!(f, "this principal is limited to {count} requests a second")
            }
        }
    }
}

/// The right to one request or stream, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    principals: Arc<Principals>,
    caller: Caller,
    kind: Kind,
}

impl Principals {
    pub(super) fn new(limits: &HttpLimits) -> Arc<Self> {
        let (max_in_flight, max_rate) = (limits.max_in_flight, limits.max_rate);
        Arc::new(Self { max_in_flight, max_rate, taken: Mutex::default() })
    }

    /// Takes one, at the monotonic time `now`.
    pub(super) fn take(
        self: &Arc<Self>,
        caller: &Caller,
        kind: Kind,
        now: Instant,
    ) -> Result<Permit, Limited> {
        let capacity = f64::from(self.max_rate);
        let mut table = self.lock();
        let taken = table.entry(caller.clone()).or_insert_with(|| Taken {
            in_flight: 0,
            streams: 0,
            left: capacity,
            left_at: now,
        });
        let refilled = now.saturating_duration_since(taken.left_at).as_secs_f64() * capacity;
        taken.left = (taken.left + refilled).min(capacity);
        taken.left_at = now;
        if self.max_rate > 0 && taken.left < 1.0 {
            let retry_after = Duration::from_secs_f64((1.0 - taken.left) / capacity);
            return Err(Limited { limit: Limit::Rate(self.max_rate), retry_after });
        }
        let count = taken.count(kind);
        if *count >= self.max_in_flight {
            let retry_after = Duration::from_secs(1);
            return Err(Limited { limit: Limit::InFlight(self.max_in_flight), retry_after });
        }
        *count += 1;
        taken.left -= 1.0;
        Ok(Permit { principals: Arc::clone(self), caller: caller.clone(), kind })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Caller, Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    const fn count(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Request => &mut self.in_flight,
            Kind::Stream => &mut self.streams,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(taken) = self.principals.lock().get_mut(&self.caller) {
            *taken.count(self.kind) -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_core::identity::{Principal, Tenant};

    use super::*;

    fn caller(principal: &str) -> Caller {
        Caller {
            tenant: Tenant::parse("t").unwrap(),
            principal: Principal::parse(principal).unwrap(),
        }
    }

    #[test]
    fn one_principal_cannot_take_anothers_share() {
        // Promise: limits hold by principal, and what ends is given back.
        let limits = HttpLimits { max_in_flight: 2, max_rate: 0, ..HttpLimits::default() };
        let principals = Principals::new(&limits);
        let now = Instant::now();
        let take = |who: &str, kind| principals.take(&caller(who), kind, now);
        let first = take("alice", Kind::Request).unwrap();
        let _second = take("alice", Kind::Request).unwrap();
        assert_eq!(take("alice", Kind::Request).unwrap_err().limit, Limit::InFlight(2));
        let _stream = take("alice", Kind::Stream).unwrap();
        let _other = take("bob", Kind::Request).unwrap();
        drop(first);
        assert!(take("alice", Kind::Request).is_ok());
    }

    #[test]
    fn requests_come_back_with_time() {
        // Promise: the rate is a rate: after a burst one more comes free each 1/rate s.
        let limits = HttpLimits { max_rate: 4, ..HttpLimits::default() };
        let principals = Principals::new(&limits);
        let start = Instant::now();
        let take = |ms| {
            let now = start + Duration::from_millis(ms);
            principals.take(&caller("alice"), Kind::Request, now).map(drop)
        };
        for _ in 0..4 {
            take(0).unwrap();
        }
        let limited = take(0).unwrap_err();
        assert_eq!(
            limited,
            Limited { limit: Limit::Rate(4), retry_after: Duration::from_millis(250) }
        );
        assert!(take(249).is_err());
        take(250).unwrap();
        assert!(take(250).is_err());
        for _ in 0..4 {
            take(60_000).unwrap();
        }
        assert!(take(60_000).is_err(), "time that passed long ago is not saved up");
    }
}
