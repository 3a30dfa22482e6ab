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

/// Makes a round now and then. Without any target of its own it makes one alone, and leaves the
/// rest to the processes that have some: two that know different targets would undo each other's
/// work for ever.
pub(super) async fn keep(desk: Arc<Desk>, known: Arc<[TargetName]>) {
    let mut told = false;
    loop {
        match round(&desk, &known).await {
            Ok(()) if known.is_empty() => return,
            Ok(()) => told = false,
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
            () = desk.stopping.cancelled() => return,
            () = sleep(desk.options.upkeep) => {}
        }
    }
}

/// One round. The store writes only where there is something to do.
async fn round(desk: &Desk, known: &[TargetName]) -> Result<(), StoreError> {
    let mut lapsed_count = 0;
    for _ in 0..ROUND_STEPS_COUNT {
        let count = desk.outbox.take_back_lapsed(STEP_COUNT).await?;
        lapsed_count += count;
        if count < STEP_COUNT || desk.stopping.is_cancelled() {
            break;
        }
    }
    if lapsed_count > 0 {
        tracing::warn!(count = lapsed_count, "items of workers that went away were taken back");
    }
    for _ in 0..ROUND_STEPS_COUNT {
        if desk.outbox.match_targets(known.to_vec(), STEP_COUNT).await? < STEP_COUNT
            || desk.stopping.is_cancelled()
        {
            break;
        }
    }
    Ok(())
}
