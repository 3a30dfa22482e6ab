//! The loop of one target: sleeps until there is work and room for it, claims what it can start at
//! once, and hands it on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use counterfoil_core::time::Timestamp;
use counterfoil_store::StoreError;
use counterfoil_store::outbox::{Claim, Claimed};
use tokio::time::{Instant, sleep, sleep_until};

use super::Desk;
use super::batch::{self, Asked};
use super::lane::{Grant, Lane, Slots};

/// Pauses after a claim that failed, or gave nothing where there should have been something.
const TROUBLE: std::ops::Range<Duration> = Duration::from_millis(20)..Duration::from_secs(5);
/// Between two looks at whether the ledger takes reports again.
const STUCK: Duration = Duration::from_millis(100);
/// No sleep is longer: the ledger's clock may be set forward meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// What a turn came to.
enum Turn {
    /// There may be more to do at once.
    Again,
    /// Nothing is due before then, as far as was known.
    Due(Instant),
    /// Nothing to do before then, or before the bell rings.
    Wait(Option<Instant>),
    /// The ledger gave nothing: rest, whatever rings.
    Trouble,
    /// The ledger is closed.
    Closed,
}

/// Works until the worker stops or the ledger is closed.
pub(super) async fn run(lane: Arc<Lane>, desk: Arc<Desk>) {
    // A loop that was started again does not know what the last one knew.
    lane.bell.look();
    let mut pause = TROUBLE.start;
    while !desk.stopping.is_cancelled() {
        let wait = match turn(&lane, &desk).await {
            Turn::Closed => return,
            Turn::Again => {
                pause = TROUBLE.start;
                continue;
            }
            Turn::Trouble => {
                tokio::select! {
                    biased;
                    () = desk.stopping.cancelled() => return,
                    () = sleep(pause) => {}
                }
                pause = (pause * 2).min(TROUBLE.end);
                continue;
            }
            Turn::Due(at) => (Some(at), true),
            Turn::Wait(at) => (at, false),
        };
        pause = TROUBLE.start;
        let longest = Instant::now() + LONGEST_SLEEP;
        let (until, is_due) = (wait.0.unwrap_or(longest).min(longest), wait.1);
        tokio::select! {
            biased;
            () = desk.stopping.cancelled() => return,
            () = sleep_until(until) => {
                if is_due {
                    // What was due may be done by now, as a lease that would have ended is: a look
                    // costs less than a claim that finds nothing.
                    lane.bell.take_due();
                    lane.bell.look();
                }
            }
            // Behind the time, so that a bell that rings on and on does not hide that work is due.
            () = lane.bell.rung() => {}
        }
    }
}

async fn turn(lane: &Arc<Lane>, desk: &Arc<Desk>) -> Turn {
    if lane.bell.take_look() {
        match desk.outbox.next_due(lane.name.clone()).await {
            Ok(due) => lane.bell.put_due(due),
            Err(error) => {
                lane.bell.look();
                return trouble(lane, &error);
            }
        }
    }
    let Some(due) = lane.bell.due() else { return Turn::Wait(None) };
    let now = desk.outbox.now();
    if due > now {
        return Turn::Due(Instant::now() + due.since(now).min(LONGEST_SLEEP));
    }
    if desk.is_stuck.load(Ordering::Acquire) {
        return Turn::Wait(Some(Instant::now() + STUCK));
    }
    match lane.grant() {
        Grant::Busy => Turn::Wait(None),
        Grant::Until(at) => Turn::Wait(Some(at)),
        Grant::Start { slots, probe } => claim(lane, desk, slots, probe).await,
    }
}

async fn claim(lane: &Arc<Lane>, desk: &Arc<Desk>, slots: Slots, probe: bool) -> Turn {
    // What is told while the claim runs is not lost under what the claim finds.
    let due = lane.bell.take_due();
    let asked = Asked::now(desk, lane);
    let claim = Claim {
        target: lane.name.clone(),
        boot: desk.engine.boot(),
        lease: lane.lease,
        max_count: slots.count(),
        probe,
        under_way: desk.under_way.clone(),
    };
    // Never dropped half-way: what it leased would wait for the end of its lease.
    match desk.outbox.claim(claim).await {
        Err(error) => {
            lane.bell.put_due(due);
            trouble(lane, &error)
        }
        Ok(claimed) => {
            lane.bell.put_due(claimed.next_due);
            for (key, alarm) in &claimed.alarms {
                desk.alarm(&lane.name, *key, *alarm);
                desk.engine.wakes().changed(*key);
            }
            if claimed.items.is_empty() {
                return if is_odd(&claimed, desk.outbox.now()) {
                    // It says that there is something, and gives nothing: ask anew, later.
                    lane.bell.take_due();
                    lane.bell.look();
                    Turn::Trouble
                } else {
                    Turn::Again
                };
            }
            if probe {
                lane.begin_probe();
            }
            lane.numbers.count_claimed(claimed.items.len());
            let (batch_lane, batch_desk) = (Arc::clone(lane), Arc::clone(desk));
            desk.tasks.spawn(batch::run(batch_lane, batch_desk, claimed.items, slots, asked));
            Turn::Again
        }
    }
}

fn is_odd(claimed: &Claimed, now: Timestamp) -> bool {
    claimed.alarms.is_empty() && claimed.next_due.is_some_and(|due| due <= now)
}

fn trouble(lane: &Lane, error: &StoreError) -> Turn {
    if matches!(error, StoreError::Closed) {
        return Turn::Closed;
    }
    tracing::warn!(
        target_name = %lane.name,
        error = error.kind(),
        "deliveries wait for the ledger; nothing is sent meanwhile"
    );
    Turn::Trouble
}
