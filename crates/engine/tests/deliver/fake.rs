//! A destination that does as it is told, and counts what it did.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as StdInstant};

use counterfoil_core::delivery::{ErrorClass, LookupEnd, ParkReason, SendEnd, TargetName, Then};
use counterfoil_core::record::StoredResult;
use counterfoil_core::time::Timestamp;
use counterfoil_engine::{Target, TargetFuture, TargetLimits};
use tokio::time::{Instant, sleep};

/// What the destination does with one request.
#[derive(Debug, Clone)]
pub(crate) struct Does {
    /// From the first byte to the effect.
    pub(crate) before: Duration,
    /// Whether there is an effect.
    pub(crate) applies: bool,
    /// From the effect to the answer.
    pub(crate) after: Duration,
    pub(crate) end: End,
}

/// How the sender sees it.
#[derive(Debug, Clone)]
pub(crate) enum End {
    Applied,
    NotApplied(ErrorClass, Then),
    Unknown(ErrorClass),
    Panics,
}

impl Does {
    pub(crate) const WELL: Self =
        Self { before: Duration::ZERO, applies: true, after: Duration::ZERO, end: End::Applied };

    /// Refused, or not reached; nothing was done.
    pub(crate) const fn nothing(class: ErrorClass, then: Then) -> Self {
        Self { applies: false, end: End::NotApplied(class, then), ..Self::WELL }
    }

    pub(crate) const fn lost(applies: bool) -> Self {
        Self { applies, end: End::Unknown(ErrorClass::NoReply), ..Self::WELL }
    }

    pub(crate) const fn after(after: Duration) -> Self {
        Self { after, ..Self::WELL }
    }
}

/// One request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) request: String,
    pub(crate) at: Instant,
}

type Script = Box<dyn FnMut(&str, usize) -> Does + Send>;

/// A destination.
pub(crate) struct Fake {
    name: TargetName,
    limits: TargetLimits,
    has_keys: bool,
    check: fn(&str) -> Result<(), ParkReason>,
    /// Told the request, and how many arrived before it.
    script: Mutex<Script>,
    arrivals: Mutex<Vec<Arrival>>,
    effects: Mutex<BTreeMap<String, u32>>,
    under_way: Mutex<(usize, usize)>,
    /// What was left for requests that came with too little time.
    too_late: Mutex<Vec<Duration>>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fake").field(&self.name).finish()
    }
}

pub(crate) fn limits() -> TargetLimits {
    TargetLimits {
        concurrency_count: 8,
        rate_per_s: None,
        send_limit: Duration::from_secs(10),
        breaker_failures_count: 0,
        breaker_open: (Duration::from_secs(1), Duration::from_secs(4)),
    }
}

impl Fake {
    pub(crate) fn new(script: impl FnMut(&str, usize) -> Does + Send + 'static) -> Self {
        Self {
            name: TargetName::parse("desk").expect("a name"),
            limits: limits(),
            has_keys: false,
            check: |_| Ok(()),
            script: Mutex::new(Box::new(script)),
            arrivals: Mutex::default(),
            effects: Mutex::default(),
            under_way: Mutex::default(),
            too_late: Mutex::default(),
        }
    }

    pub(crate) fn well() -> Self {
        Self::new(|_, _| Does::WELL)
    }

    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = TargetName::parse(name).expect("a name");
        self
    }

    pub(crate) fn limited(mut self, limits: TargetLimits) -> Self {
        self.limits = limits;
        self
    }

    /// It does a request that it knows once.
    pub(crate) fn with_keys(mut self) -> Self {
        self.has_keys = true;
        self
    }

    pub(crate) fn checked(mut self, check: fn(&str) -> Result<(), ParkReason>) -> Self {
        self.check = check;
        self
    }

    pub(crate) fn arc(self) -> Arc<Self> {
        Arc::new(self)
    }

    pub(crate) fn target_name(&self) -> TargetName {
        self.name.clone()
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().expect("no test panics in here").clone()
    }

    pub(crate) fn effects(&self) -> BTreeMap<String, u32> {
        let too_late = self.too_late.lock().expect("no test panics in here");
        assert!(too_late.is_empty(), "sent without time for a whole request: {too_late:?}");
        self.effects.lock().expect("no test panics in here").clone()
    }

    /// Most requests that were under way at a time.
    pub(crate) fn most_under_way(&self) -> usize {
        self.under_way.lock().expect("no test panics in here").1
    }

    fn apply(&self, request: &str) {
        let mut effects = self.effects.lock().expect("no test panics in here");
        let count = effects.entry(request.to_owned()).or_default();
        if !self.has_keys || *count == 0 {
            *count += 1;
        }
    }
}

fn text(request: &[u8]) -> String {
    String::from_utf8(request.to_vec()).expect("the tests send text")
}

fn applied(request: &str) -> SendEnd {
    let result = StoredResult::from_text("done");
    SendEnd::Applied { external_id: Some(format!("ext-{request}")), result }
}

impl Target for Fake {
    fn name(&self) -> &TargetName {
        &self.name
    }

    fn limits(&self) -> TargetLimits {
        self.limits
    }

    fn check(&self, request: &[u8], _maybe_sent: bool) -> Result<(), ParkReason> {
        (self.check)(&text(request))
    }

    fn send(&self, request: Arc<[u8]>, deadline: StdInstant) -> TargetFuture<'_, SendEnd> {
        Box::pin(async move {
            let (request, at) = (text(&request), Instant::now());
            let left = Instant::from_std(deadline).saturating_duration_since(at);
            if left < self.limits.send_limit {
                self.too_late.lock().expect("no test panics in here").push(left);
            }
            let number = {
                let mut arrivals = self.arrivals.lock().expect("no test panics in here");
                arrivals.push(Arrival { request: request.clone(), at });
                arrivals.len() - 1
            };
            let _counted = Counted::new(&self.under_way);
            let does = (self.script.lock().expect("no test panics in here"))(&request, number);
            sleep(does.before).await;
            if does.applies {
                self.apply(&request);
            }
            sleep(does.after).await;
            let words = "as the test wants".to_owned();
            match does.end {
                End::Applied => applied(&request),
                End::NotApplied(class, then) => SendEnd::NotApplied { class, words, then },
                End::Unknown(class) => SendEnd::Unknown { class, words, retry_after: None },
                End::Panics => panic!("the connector panics, as the test wants"),
            }
        })
    }

    fn look_up(
        &self,
        request: Arc<[u8]>,
        begun_at: Timestamp,
        _deadline: StdInstant,
    ) -> TargetFuture<'_, LookupEnd> {
        Box::pin(async move {
            let request = text(&request);
            let count = self
                .effects
                .lock()
                .expect("no test panics in here")
                .get(&request)
                .copied()
                .unwrap_or(0);
            match (count, applied(&request)) {
                (0, _) => LookupEnd::Absent { begun_at },
                (1, SendEnd::Applied { external_id, result }) => {
                    LookupEnd::Found { external_id, result }
                }
                _ => LookupEnd::Many,
            }
        })
    }
}

/// One request under way.
struct Counted<'a>(&'a Mutex<(usize, usize)>);

impl<'a> Counted<'a> {
    fn new(count: &'a Mutex<(usize, usize)>) -> Self {
        let mut now = count.lock().expect("no test panics in here");
        now.0 += 1;
        now.1 = now.1.max(now.0);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.lock().expect("no test panics in here").0 -= 1;
    }
}
