//! What all of a simulated world shares: its clock, its one source of chance, its targets' logs, and
//! the history that is written of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use counterfoil_core::identity::{BackendId, OperationKey};
use counterfoil_core::time::Timestamp;
use counterfoil_engine::{Clock, Randomness};
use counterfoil_store::outbox::BeginSend;
use counterfoil_store::{MemoryOptions, MemoryStore};
use tokio::time::{Instant, sleep};

use super::Twin;
use super::plan::{Chance, Profile};
use crate::random::Random;

/// From the first byte of a request to the last of its answer.
pub(super) const SEND_LIMIT: Duration = Duration::from_secs(10);

/// The runtime's paused time as a ledger's clocks, with a wall clock that can be set.
#[derive(Debug)]
pub(super) struct SimClock {
    begun: Instant,
    ahead_ms: AtomicI64,
}

impl Clock for SimClock {
    fn wall(&self) -> Timestamp {
        let ahead = self.ahead_ms.load(Ordering::SeqCst);
        Timestamp::from_ms(1_780_272_000_000 + ahead).plus(self.since_boot())
    }

    fn since_boot(&self) -> Duration {
        self.begun.elapsed()
    }

    fn boot(&self) -> Option<[u8; 16]> {
        Some([7; 16])
    }
}

/// Whether a process still lives.
#[derive(Debug, Clone)]
pub(super) struct Life {
    pub(super) number: u64,
    is_dead: Arc<AtomicBool>,
}

impl Life {
    pub(super) fn new(number: u64) -> Self {
        Self { number, is_dead: Arc::default() }
    }

    pub(super) fn end(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
    }

    /// Never returns in a process that died: it hears nothing, and does nothing more.
    pub(super) async fn lives(&self) {
        if self.is_dead.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

/// The engine's randomness, from the seed.
#[derive(Debug)]
pub(super) struct Seeded(Mutex<Random>);

impl Randomness for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        let mut random = lock(&self.0);
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&random.next().to_le_bytes()[..part.len()]);
        }
    }
}

/// A target's log by operation: when, and the effect's name.
type Effects = BTreeMap<String, Vec<(u64, String)>>;

/// The world.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) profile: Profile,
    pub(super) twin: Option<Twin>,
    pub(super) clock: Arc<SimClock>,
    random: Mutex<Random>,
    log: Mutex<String>,
    has_faults: AtomicBool,
    steps_count: AtomicU64,
    effects: Mutex<Effects>,
    arrivals: Mutex<BTreeMap<String, u64>>,
    in_flight: Mutex<BTreeMap<String, i64>>,
    /// When a send was last begun.
    begun: Mutex<BTreeMap<OperationKey, Instant>>,
}

impl Shared {
    pub(super) fn new(seed: u64, profile: Profile, twin: Option<Twin>) -> Arc<Self> {
        let clock = Arc::new(SimClock { begun: Instant::now(), ahead_ms: AtomicI64::new(0) });
        Arc::new(Self {
            profile,
            twin,
            clock,
            random: Mutex::new(Random::new(seed)),
            log: Mutex::default(),
            has_faults: AtomicBool::new(true),
            steps_count: AtomicU64::new(0),
            effects: Mutex::default(),
            arrivals: Mutex::default(),
            in_flight: Mutex::default(),
            begun: Mutex::default(),
        })
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn note(&self, line: &str) {
        let now = self.now_ms();
        let _ = writeln!(lock(&self.log), "{now} {line}");
    }

    pub(super) fn history(&self) -> String {
        lock(&self.log).clone()
    }

    pub(super) fn roll(&self, end: u64) -> u64 {
        lock(&self.random).below(end)
    }

    pub(super) fn is_rolled(&self, one_in: u64) -> bool {
        self.roll(one_in) == 0
    }

    pub(super) fn is_hit(&self, what: Chance) -> bool {
        let often = self.profile.per_mille(what);
        often > 0 && self.is_faulty() && self.roll(1000) < often
    }

    pub(super) fn is_faulty(&self) -> bool {
        self.has_faults.load(Ordering::SeqCst)
    }

    pub(super) fn heal(&self) {
        self.has_faults.store(false, Ordering::SeqCst);
    }

    pub(super) fn seeded(&self) -> Arc<Seeded> {
        Arc::new(Seeded(Mutex::new(lock(&self.random).fork())))
    }

    /// How long an answer of the ledger takes.
    pub(super) fn pause(&self) -> Duration {
        let is_slow = self.is_hit(Chance::StoreStall);
        Duration::from_millis(if is_slow { self.roll(20_000) } else { 0 })
    }

    pub(super) async fn stall(&self) {
        let pause = self.pause();
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }

    pub(super) fn count_step(&self) {
        self.steps_count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn steps_count(&self) -> u64 {
        self.steps_count.load(Ordering::Relaxed)
    }

    pub(super) fn jump(&self, by_ms: i64) {
        self.clock.ahead_ms.fetch_add(by_ms, Ordering::SeqCst);
        self.note(&format!("the wall clock jumps by {by_ms} ms"));
    }

    /// A request is there; says how many were before it.
    pub(super) fn arrived(&self, id: &str) -> u64 {
        let mut arrivals = lock(&self.arrivals);
        let count = arrivals.entry(id.to_owned()).or_default();
        *count += 1;
        *count - 1
    }

    pub(super) fn in_flight(&self, id: &str, by: i64) {
        *lock(&self.in_flight).entry(id.to_owned()).or_default() += by;
    }

    /// Makes an effect, but under a known key only once; gives its name.
    pub(super) fn execute(&self, id: &str, once: bool) -> String {
        let now = self.now_ms();
        let name = {
            let mut effects = lock(&self.effects);
            let done = effects.entry(id.to_owned()).or_default();
            if !once || done.is_empty() {
                done.push((now, format!("ext-{id}-{}", done.len())));
            }
            done[done.len() - 1].1.clone()
        };
        self.note(&format!("{id}: executed as {name}"));
        name
    }

    pub(super) fn effects(&self, id: &str) -> Vec<(u64, String)> {
        lock(&self.effects).get(id).cloned().unwrap_or_default()
    }

    pub(super) fn all_effects(&self) -> Effects {
        lock(&self.effects).clone()
    }

    pub(super) fn begun(&self, begins: &[BeginSend]) {
        let mut begun = lock(&self.begun);
        begun.extend(begins.iter().map(|begin| (begin.key, Instant::now())));
    }

    /// Whether a request may still be on its way, or about to leave.
    pub(super) fn may_come(&self, id: &str, key: OperationKey) -> bool {
        let last = lock(&self.begun).get(&key).copied();
        last.is_some_and(|at| at.elapsed() < Duration::from_secs(60))
            || lock(&self.in_flight).get(id).is_some_and(|count| *count > 0)
    }
}

/// An empty ledger on the world's clock.
pub(super) fn empty_store(shared: &Shared) -> MemoryStore {
    let mut options = MemoryOptions::new(BackendId::parse("sim").expect("an ID"));
    options.clock = Arc::<SimClock>::clone(&shared.clock);
    MemoryStore::new(&options).expect("no tables")
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
