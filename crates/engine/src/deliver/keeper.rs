//! What the worker looks after besides its targets' loops: work that other processes made, leases
//! of targets that nobody claims from, items of targets that are not configured.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::TargetName;
use counterfoil_store::StoreError;
use tokio::time::sleep;

use super::Desk;
use super::lane::Lane;

/// A ledger that cannot be read is asked ever more seldom, down to this.
const LONGEST_POLL: Duration = Duration::from_secs(10);
/// Items of one step.
const STEP_COUNT: usize = 100;
/// Steps of one round; the rest waits for the next.
const ROUND_STEPS_COUNT: usize = 50;

/// Asks once a second, in one read for all targets, when there is work that this process did not
/// make.
pub(super) async fn poll(desk: Arc<Desk>, lanes: Arc<[Arc<Lane>]>) {
    if lanes.is_empty() {
        return;
    }
    let names: Vec<TargetName> = lanes.iter().map(|lane| lane.name.clone()).collect();
    let mut pause = desk.options.poll;
    loop {
        tokio::select! {
            biased;
            () = desk.stopping.cancelled() => return,
            () = sleep(pause) => {}
        }
        match desk.outbox.next_due_of(names.clone()).await {
            Ok(dues) => {
                for (lane, due) in lanes.iter().zip(dues) {
                    due.into_iter().for_each(|due| lane.bell.due_at(due));
                }
                pause = desk.options.poll;
            }
            Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::debug!(error = error.kind(), "the outbox could not be read");
                pause = (pause * 2).min(LONGEST_POLL.max(desk.options.poll));
            }
        }
    }
}

/// Makes a round now and then. What waits for targets that nobody here knows is parked in the first
/// round alone: two processes that know different targets would else undo each other's work for ever.
/// What knows its target releases it in any round. Without any target there is only the first.
pub(super) async fn keep(desk: Arc<Desk>, known: Arc<[TargetName]>) {
    let (mut told, mut is_first) = (false, true);
    loop {
        match round(&desk, &known, is_first).await {
            Ok(()) if known.is_empty() => return,
            Ok(()) => (told, is_first) = (false, false),
            Err(StoreError::Closed) => return,
            Err(error) => {
                if !told {
                    tracing::warn!(
                        error = error.kind(),
                        "the outbox's upkeep waits for the ledger"
                    );
                }
                told = true;
            }
        }
        tokio::select! {
            biased;
            () = desk.stopping.cancelled() => return,
            () = sleep(desk.options.upkeep) => {}
        }
    }
}

/// One round. The store writes only where there is something to do.
async fn round(desk: &Desk, known: &[TargetName], is_first: bool) -> Result<(), StoreError> {
    let mut lapsed_count = 0;
    for _ in 0..ROUND_STEPS_COUNT {
        let taken = desk.outbox.take_back_lapsed(desk.under_way.clone(), STEP_COUNT).await?;
        lapsed_count += taken.len();
        for item in &taken {
            if let Some(alarm) = item.alarm {
                desk.alarm(&item.target, item.key, alarm);
            }
            desk.engine.wakes().changed(item.key);
        }
        if taken.len() < STEP_COUNT || desk.stopping.is_cancelled() {
            break;
        }
    }
    if lapsed_count > 0 {
        tracing::warn!(count = lapsed_count, "items of workers that went away were taken back");
    }
    // The first round goes to its end, since no other one parks.
    while is_first
        && !desk.stopping.is_cancelled()
        && desk.outbox.match_targets(known.to_vec(), STEP_COUNT).await? == STEP_COUNT
    {}
    for _ in 0..ROUND_STEPS_COUNT {
        if desk.outbox.release_known(known.to_vec(), STEP_COUNT).await? < STEP_COUNT
            || desk.stopping.is_cancelled()
        {
            break;
        }
    }
    Ok(())
}
