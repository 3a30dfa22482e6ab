//! The worker: takes items out of the outbox, sends them, and brings what happened back. It decides
//! nothing about an item; the ledger's transaction does, by the core's rules.
//!
//! Each target has a loop of its own, so that one that hangs holds up no other. A loop that panics is
//! started again; an item that it held is reported all the same.

mod batch;
mod bucket;
mod guarded;
mod held;
mod keeper;
mod lane;
mod last_sends;
mod numbers;
mod reporter;
mod turn;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use counterfoil_core::delivery::{Alarm, TargetName};
use counterfoil_core::identity::OperationKey;
use counterfoil_store::{Outbox, UnderWay};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::Engine;
use crate::target::{Target, TargetLimits};
use lane::Lane;
pub use numbers::{BreakerState, DeliveryNumbers, Outcome, TargetNumbers};
use reporter::{Inbox, Note};

/// Pauses before a loop that panicked is started again.
const RESTART: std::ops::Range<Duration> = Duration::from_millis(100)..Duration::from_secs(30);
/// A loop that ran so long is well.
const WELL_AFTER: Duration = Duration::from_secs(60);
/// At the drain limit requests are given up. They get so long to end, and their reports as long
/// again.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How a worker works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelivererOptions {
    /// How long a lease is beyond a whole request: from the claim to the first byte. Items of a
    /// worker that died wait so long in addition.
    pub lease_margin: Duration,
    /// How often it looks for what other processes made.
    pub poll: Duration,
    /// How often it looks after items that no loop comes by.
    pub upkeep: Duration,
    /// How long requests under way may go on after it was told to stop.
    pub drain_limit: Duration,
    /// Only these of the targets; `None` for all.
    pub only: Option<Vec<TargetName>>,
}

impl Default for DelivererOptions {
    fn default() -> Self {
        Self {
            lease_margin: Duration::from_secs(5),
            poll: Duration::from_secs(1),
            upkeep: Duration::from_secs(30),
            drain_limit: Duration::from_secs(30),
            only: None,
        }
    }
}

/// Why there is no worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DelivererError {
    /// The ledger has no outbox.
    #[error("this ledger keeps no outbox, so there is nothing to deliver; use another store")]
    NoOutbox,
    /// Two targets have one name.
    #[error("two targets are called `{0}`; give one of them another name")]
    Twice(TargetName),
    /// A target's limit breaks its rule.
    #[error("target `{target}`: {setting} {rule}")]
    Limit {
        /// The target.
        target: TargetName,
        /// The setting's name.
        setting: &'static str,
        /// The rule, and the remedy.
        rule: &'static str,
    },
    /// There is no such target.
    #[error("no target is called `{wanted}`; the targets are: {known}")]
    Unknown {
        /// What was asked for.
        wanted: TargetName,
        /// Those that are there, separated by commas.
        known: String,
    },
}

/// A worker. An engine has one at most: see [`Engine::start_worker`].
#[derive(Debug)]
pub struct Deliverer {
    engine: Arc<Engine>,
    outbox: Arc<dyn Outbox>,
    targets: Vec<(Arc<dyn Target>, TargetLimits)>,
    /// Every configured target, those too that this worker leaves to others.
    known: Arc<[TargetName]>,
    options: DelivererOptions,
}

/// What the tasks of one worker share.
#[derive(Debug)]
struct Desk {
    engine: Arc<Engine>,
    outbox: Arc<dyn Outbox>,
    options: DelivererOptions,
    /// Nothing new is begun.
    stopping: CancellationToken,
    /// What is under way is given up.
    abandon: CancellationToken,
    /// Batches, requests and searches.
    tasks: TaskTracker,
    /// The ledger does not take reports now.
    is_stuck: AtomicBool,
    /// What was claimed here and is not reported yet.
    under_way: UnderWay,
}

impl Deliverer {
    /// Checks the targets; nothing is begun.
    ///
    /// # Errors
    /// [`DelivererError`] with the first target or limit that breaks a rule.
    pub fn new(
        engine: Arc<Engine>,
        targets: Vec<Arc<dyn Target>>,
        options: DelivererOptions,
    ) -> Result<Self, DelivererError> {
        let outbox = Arc::clone(engine.outbox().ok_or(DelivererError::NoOutbox)?);
        let mut known = BTreeSet::new();
        let mut limited = Vec::with_capacity(targets.len());
        for target in targets {
            let limits = target.limits();
            check(target.name(), &limits)?;
            if !known.insert(target.name().clone()) {
                return Err(DelivererError::Twice(target.name().clone()));
            }
            limited.push((target, limits));
        }
        if let Some(only) = &options.only {
            if let Some(wanted) = only.iter().find(|name| !known.contains(name)) {
                let known: Vec<&str> = known.iter().map(TargetName::as_str).collect();
                let known = known.join(", ");
                return Err(DelivererError::Unknown { wanted: wanted.clone(), known });
            }
            limited.retain(|(target, _)| only.contains(target.name()));
        }
        let known = known.into_iter().collect();
        Ok(Self { engine, outbox, targets: limited, known, options })
    }

    /// Works until `shutdown` is cancelled. Then nothing more is claimed, what was claimed and not
    /// sent goes back, requests under way have the drain limit to end, and everything is reported.
    pub async fn run(self, shutdown: CancellationToken) {
        let (reports, inbox) = unbounded_channel();
        let under_way = UnderWay::default();
        let lanes = self.lanes(&reports, &under_way);
        let (drain_limit, stopping) = (self.options.drain_limit, shutdown.child_token());
        let desk = Arc::new(Desk {
            engine: self.engine,
            outbox: self.outbox,
            options: self.options,
            stopping: stopping.clone(),
            abandon: CancellationToken::new(),
            tasks: TaskTracker::new(),
            is_stuck: AtomicBool::new(false),
            under_way,
        });
        // Whoever drops this future stops the loops too.
        let _stop = stopping.clone().drop_guard();
        let last = CancellationToken::new();
        let inbox: Inbox = Arc::new(Mutex::new(inbox));
        let (report_desk, told) = (Arc::clone(&desk), last.clone());
        // It ends by itself, behind everything else, and is never stopped before.
        let reporter = tokio::spawn(supervise(CancellationToken::new(), None, move || {
            reporter::run(Arc::clone(&report_desk), Arc::clone(&inbox), told.clone())
        }));
        let loops = TaskTracker::new();
        for lane in lanes.iter() {
            let (lane, desk) = (Arc::clone(lane), Arc::clone(&desk));
            loops.spawn(supervise(stopping.clone(), Some(Arc::clone(&lane)), move || {
                turn::run(Arc::clone(&lane), Arc::clone(&desk))
            }));
        }
        let (poll_desk, keep_desk, known) = (Arc::clone(&desk), Arc::clone(&desk), self.known);
        loops.spawn(supervise(stopping.clone(), None, move || {
            keeper::poll(Arc::clone(&poll_desk), Arc::clone(&lanes))
        }));
        loops.spawn(supervise(stopping.clone(), None, move || {
            keeper::keep(Arc::clone(&keep_desk), Arc::clone(&known))
        }));
        stopping.cancelled().await;
        loops.close();
        desk.tasks.close();
        let told_at = Instant::now();
        let all_ended = || async { tokio::join!(loops.wait(), desk.tasks.wait()) };
        if timeout(drain_limit, all_ended()).await.is_err() {
            tracing::warn!(
                limit_s = drain_limit.as_secs(),
                "requests were still under way at the drain limit and are given up; whether they \
                 were done is found out as their contracts say"
            );
            desk.abandon.cancel();
            let _ = timeout(LAST_WORDS, all_ended()).await;
        }
        last.cancel();
        let until = told_at + drain_limit + 2 * LAST_WORDS;
        if timeout_at(until, reporter).await.is_err() {
            tracing::error!("not every report got into the ledger; their leases will end");
        }
    }

    fn lanes(&self, reports: &UnboundedSender<Note>, under_way: &UnderWay) -> Arc<[Arc<Lane>]> {
        let lane = |(target, limits): &(Arc<dyn Target>, TargetLimits)| {
            let bell = self.engine.wakes().bell(target.name());
            let numbers = self.engine.delivery_numbers().of(target.name());
            let (target, margin) = (Arc::clone(target), self.options.lease_margin);
            let shared = (bell, numbers, under_way.clone());
            Arc::new(Lane::new(target, *limits, margin, shared, reports.clone()))
        };
        self.targets.iter().map(lane).collect()
    }
}

impl Desk {
    /// Counts and tells what an operator must hear of.
    fn alarm(&self, target_name: &TargetName, key: OperationKey, alarm: Alarm) {
        self.engine.delivery_numbers().of(target_name).count_alarm(alarm);
        let item = format!("{:032x}", u128::from_be_bytes(*key.as_bytes()));
        match alarm {
            Alarm::LateContradiction => tracing::error!(
                %target_name, item,
                "the target has done what was settled as not applied"
            ),
            Alarm::ManyMatches => tracing::error!(
                %target_name, item,
                "the target holds more than one effect of one operation"
            ),
            Alarm::KeyReused => tracing::error!(
                %target_name, item,
                "the target knows the key from another request"
            ),
            Alarm::InDoubt => tracing::warn!(
                %target_name, item,
                "an item is in doubt: look at the target, then `counterfoil operation resolve`"
            ),
            Alarm::DeadLetter => tracing::warn!(
                %target_name, item,
                "an item is a dead letter: `counterfoil delivery show` tells why"
            ),
        }
    }
}

/// Runs a loop until it ends by itself; one that panics is started again, ever later.
async fn supervise<F>(stopping: CancellationToken, lane: Option<Arc<Lane>>, start: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut pause = RESTART.start;
    loop {
        let begun = Instant::now();
        if tokio::spawn(start()).await.is_ok() {
            return;
        }
        if let Some(lane) = &lane {
            lane.numbers.count_restart();
        }
        let target_name = lane.as_ref().map(|lane| lane.name.as_str());
        tracing::error!(target_name, "a loop of the worker panicked and is started again");
        if begun.elapsed() > WELL_AFTER {
            pause = RESTART.start;
        }
        tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            () = sleep(pause) => {}
        }
        pause = (pause * 2).min(RESTART.end);
    }
}

fn check(target: &TargetName, limits: &TargetLimits) -> Result<(), DelivererError> {
    let refuse =
        |setting, rule| Err(DelivererError::Limit { target: target.clone(), setting, rule });
    if limits.concurrency_count == 0 {
        return refuse("concurrency", "is 0; at least one request must be let through");
    }
    if limits.rate_per_s.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
        return refuse("rate", "is not a finite number over 0; leave it out for no limit");
    }
    if limits.send_limit.is_zero() {
        return refuse("timeout", "is 0; give the target time to answer");
    }
    let (base, cap) = limits.breaker_open;
    if limits.breaker_failures_count > 0 && (base.is_zero() || cap < base) {
        return refuse(
            "breaker_open",
            "is 0 or longer than its own cap; give a pause, and at least as much as the cap",
        );
    }
    Ok(())
}
