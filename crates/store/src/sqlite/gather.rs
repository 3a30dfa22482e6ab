//! Whom a transaction waits for. Callers who were just answered often come back at once; a
//! transaction that begins a moment too early leaves them out, and they wait for a whole commit
//! more. So the writer looks at its queue a little longer, in proportion to what a commit costs,
//! and never once nobody comes.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// At most this many commands share one transaction.
pub(super) const BATCH_LIMIT: usize = 256;

/// The writer looks on for this part of what the last transaction took, after the last arrival.
const QUIET_PART: u32 = 8;
/// And no longer than this: about what it takes to wake a caller that then comes back.
const LONGEST_QUIET: Duration = Duration::from_micros(25);
/// However many come, it begins after this many times the quiet that it waits for.
const QUIETS: u32 = 10;

/// How long an idle writer looks at its queue before it sleeps: about what a caller that was just
/// answered needs to come back. Waking a thread that sleeps costs as much again as the statements.
const LINGER: Duration = Duration::from_micros(50);

/// What the writer knows of the transaction before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Last {
    /// How many commands shared it.
    pub(super) command_count: usize,
    /// How long it took.
    pub(super) took: Duration,
}

/// Moves waiting commands into `batch` until it is full or nobody comes any more. Where neither the
/// last transaction was shared nor somebody waits already, there is no company to wait for.
pub(super) fn gather<T>(queue: &Receiver<T>, batch: &mut Vec<T>, last: Last) {
    let quiet = (last.took / QUIET_PART).min(LONGEST_QUIET);
    let start = Instant::now();
    let mut arrival = start;
    while batch.len() < BATCH_LIMIT {
        match queue.try_recv() {
            Ok(command) => {
                batch.push(command);
                arrival = Instant::now();
            }
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                let alone = batch.is_empty() && last.command_count <= 1;
                if alone || arrival.elapsed() >= quiet || start.elapsed() >= quiet * QUIETS {
                    return;
                }
                // Whoever was woken may be meant to run on this very processor.
                std::thread::yield_now();
            }
        }
    }
}

/// The next command, waited for as long as it takes; `None` when nobody can send one any more.
pub(super) fn first<T>(queue: &Receiver<T>) -> Option<T> {
    let start = Instant::now();
    while start.elapsed() < LINGER {
        match queue.try_recv() {
            Ok(job) => return Some(job),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::thread::yield_now(),
        }
    }
    queue.recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_waits_is_taken_in_order_and_never_too_much() {
        // Promise: a transaction takes what is waiting, in order, up to its limit; it waits for
        // nobody when its queue is closed, or when nobody has shared or is about to share it.
        let (send, queue) = channel();
        (0..BATCH_LIMIT + 3).for_each(|number| send.send(number).unwrap());
        let mut batch = Vec::new();
        gather(&queue, &mut batch, Last::default());
        assert_eq!(batch, (0..BATCH_LIMIT).collect::<Vec<_>>());
        batch.clear();
        gather(&queue, &mut batch, Last::default());
        assert_eq!(batch.len(), 3);
        batch.clear();
        let long = Duration::from_secs(3600);
        gather(&queue, &mut batch, Last { command_count: 1, took: long });
        assert!(batch.is_empty());
        drop(send);
        gather(&queue, &mut batch, Last { command_count: 64, took: long });
        assert!(batch.is_empty());
    }

    #[test]
    fn the_first_command_is_waited_for_until_nobody_can_send_one() {
        // Promise: a writer without work ends when its last caller has gone, and not before.
        let (send, queue) = channel();
        send.send(7).unwrap();
        drop(send);
        assert_eq!(first(&queue), Some(7));
        assert_eq!(first(&queue), None);
    }
}
