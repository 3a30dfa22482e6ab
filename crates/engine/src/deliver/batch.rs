//! What was claimed together: checked, recorded as about to be sent, and then sent or looked for at
//! the same time.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{ErrorClass, LookupEnd, SendEnd, Then, Work};
use counterfoil_core::time::Timestamp;
use counterfoil_store::StoreError;
use counterfoil_store::outbox::{Begun, ClaimedItem, Happened};
use tokio::time::{Instant, sleep, sleep_until};

use super::Desk;
use super::guarded::{guarded, guarded_call};
use super::held::Held;
use super::lane::{Lane, Slots};
use crate::engine::{FINISH_RETRY, passes};

/// The moment before a call that made or renewed a lease, on both clocks: the lease ends no earlier
/// than its length after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    at: Instant,
    ledger_at: Timestamp,
    lease: Duration,
}

impl Asked {
    pub(super) fn now(desk: &Desk, lane: &Lane) -> Self {
        Self { at: Instant::now(), ledger_at: desk.outbox.now(), lease: lane.lease }
    }

    /// When it must be over.
    fn deadline(&self) -> Instant {
        self.at + self.lease
    }

    /// What is left of the lease. The monotonic clock stands still while the machine sleeps, the
    /// ledger's may be set: the one that leaves less counts.
    fn left(&self, desk: &Desk) -> Duration {
        let passed = desk.outbox.now().since(self.ledger_at).max(self.at.elapsed());
        self.lease.saturating_sub(passed)
    }
}

/// Works off what one claim gave. Each item is reported, whatever happens here.
pub(super) async fn run(
    lane: Arc<Lane>,
    desk: Arc<Desk>,
    items: Vec<ClaimedItem>,
    mut slots: Slots,
    claimed: Asked,
) {
    let boot = desk.engine.boot();
    let (mut good, mut broken) = (Vec::new(), Vec::new());
    for item in items {
        let (work, is_probe) = (item.work, item.delivery.lease.is_some_and(|lease| lease.probe));
        let is_ours_already = desk.under_way.contains(item.delivery.key);
        let held = Held::new(&lane, (boot, desk.engine.random_u64()), slots.take_one(), item);
        // Another took it from us when our lease had ended, and lost it: first ours comes to its end.
        if is_ours_already {
            lane.rest();
            continue;
        }
        // What is dropped here goes back: nobody starts anything while the worker stops, or while
        // the target is known to be down.
        if desk.stopping.is_cancelled() || (lane.is_open() && !is_probe) {
            continue;
        }
        // A search as another account, or elsewhere, would miss what is there.
        let request = held.request();
        match (work, guarded_call(|| lane.target.check(&request, held.is_maybe_sent()))) {
            (_, Ok(Err(reason))) => held.report(Happened::Blocked(reason)),
            (Work::Send, Ok(Ok(()))) => good.push(held),
            (Work::Send, Err(_)) => broken.push(held),
            (Work::LookUp, _) => {
                desk.tasks.spawn(look_up(Arc::clone(&desk), held, claimed));
            }
        }
    }
    drop(slots);
    let (good_count, begun) = (good.len(), Asked::now(&desk, &lane));
    good.append(&mut broken);
    for (at, held) in begin_send(&lane, &desk, good, begun).await {
        if at < good_count {
            desk.tasks.spawn(send(Arc::clone(&desk), held, begun));
        } else {
            // It counts: an item that breaks the connector must come to an end too.
            let end = not_sent("the connector failed before it sent anything");
            lane.numbers.count_attempt(&end);
            held.report(Happened::Sent(end));
        }
    }
}

/// Records that these are about to be sent; gives those that may be, with their places in `held`.
async fn begin_send(lane: &Lane, desk: &Desk, held: Vec<Held>, asked: Asked) -> Vec<(usize, Held)> {
    if held.is_empty() {
        return Vec::new();
    }
    let mut pause = FINISH_RETRY.start;
    let begun = loop {
        match desk.outbox.begin_send(held.iter().map(Held::begin).collect()).await {
            Ok(begun) => break begun,
            // Dropped, and so handed back.
            Err(StoreError::Closed) => return Vec::new(),
            // The same again tells what became of it, for as long as there is time to send.
            Err(error) if passes(&error) && asked.left(desk) > lane.limits.send_limit + pause => {
                sleep(pause).await;
                pause = (pause * 2).min(FINISH_RETRY.end);
            }
            Err(error) => {
                tracing::warn!(
                    target_name = %lane.name,
                    error = error.kind(),
                    "claimed items go back unsent: the ledger did not record that they are sent"
                );
                lane.rest();
                return Vec::new();
            }
        }
    };
    let mut to_send = Vec::new();
    for (at, (held, begun)) in held.into_iter().zip(begun).enumerate() {
        match begun {
            Begun::Send => to_send.push((at, held)),
            Begun::Withheld(alarm) => {
                let key = held.key();
                held.let_go();
                if let Some(alarm) = alarm {
                    desk.alarm(&lane.name, key, alarm);
                }
                desk.engine.wakes().changed(key);
                // It may be queued again, for a search.
                lane.bell.look();
            }
            Begun::NotHeld => held.let_go(),
        }
    }
    to_send
}

async fn send(desk: Arc<Desk>, mut held: Held, begun: Asked) {
    let lane = Arc::clone(&held.lane);
    if is_too_late(&desk, &lane, begun) {
        return;
    }
    let (target, request) = (Arc::clone(&lane.target), held.request());
    held.sending();
    let unknown = |words: &str| SendEnd::Unknown {
        class: ErrorClass::NoReply,
        words: words.to_owned(),
        retry_after: None,
    };
    let deadline = begun.deadline();
    let sending = guarded(async move { target.send(request, deadline.into_std()).await });
    let end = tokio::select! {
        biased;
        end = sending => end.unwrap_or_else(|_| unknown("the connector failed in mid-send")),
        () = sleep_until(deadline) => unknown("no whole answer within the request's time"),
        () = desk.abandon.cancelled() => unknown("the worker was stopped in mid-send"),
    };
    lane.numbers.count_attempt(&end);
    lane.learn(&end);
    held.report(Happened::Sent(end));
}

async fn look_up(desk: Arc<Desk>, held: Held, claimed: Asked) {
    let lane = Arc::clone(&held.lane);
    if is_too_late(&desk, &lane, claimed) {
        return;
    }
    let (target, request) = (Arc::clone(&lane.target), held.request());
    let open = |words: &str| LookupEnd::Open { words: words.to_owned(), retry_after: None };
    let begun_at = held.search_begins(desk.outbox.now());
    let deadline = claimed.deadline();
    let searching =
        guarded(async move { target.look_up(request, begun_at, deadline.into_std()).await });
    let end = tokio::select! {
        biased;
        end = searching => end.unwrap_or_else(|_| open("the connector failed in its search")),
        () = sleep_until(deadline) => open("the search did not end within its time"),
        // Left undone: dropped, and so handed back.
        () = desk.abandon.cancelled() => return,
    };
    lane.numbers.count_lookup();
    lane.learn_lookup(&end);
    held.report(Happened::LookedUp(end));
}

/// Whether the lease is too short for a whole request. The item is then left to go back, and the
/// loop rests: the ledger, or this process, is too slow.
fn is_too_late(desk: &Desk, lane: &Lane, asked: Asked) -> bool {
    let is_late = asked.left(desk) < lane.limits.send_limit;
    if is_late {
        tracing::warn!(
            target_name = %lane.name,
            "an item goes back unsent: too little of its lease was left for a whole request"
        );
        lane.rest();
    }
    is_late
}

fn not_sent(words: &str) -> SendEnd {
    SendEnd::NotApplied {
        class: ErrorClass::Local,
        words: words.to_owned(),
        then: Then::Retry { after: None },
    }
}
