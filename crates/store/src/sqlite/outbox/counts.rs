//! Items by target and state, counted in parts: a large outbox is not read whole for a number.

use std::collections::BTreeMap;

use counterfoil_core::delivery::State;
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, params};

use super::targets::{self, Target};
use crate::outbox::{OutboxStats, TargetView};
use crate::outbox_steps::waits;

/// One look reads at most this many items, in count: a few milliseconds.
const SLICE_ITEMS: usize = 100_000;

/// Items of one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tally {
    counts: [u64; 8],
    /// When the oldest one was accepted that still waits.
    oldest_ms: Option<i64>,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.oldest_ms = match (self.oldest_ms, other.oldest_ms) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
    }
}

type Tallies = BTreeMap<i64, Tally>;

/// A part of the outbox, counted. Damaged items count by what they show.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Slice {
    tallies: Tallies,
    /// The key that the next part begins behind; `None` at the end.
    next: Option<Vec<u8>>,
}

/// Counts the items behind the key `after`; an empty one stands before all.
pub(super) fn slice(connection: &Connection, after: &[u8]) -> rusqlite::Result<Slice> {
    slice_of(connection, after, SLICE_ITEMS)
}

fn slice_of(connection: &Connection, after: &[u8], items: usize) -> rusqlite::Result<Slice> {
    let mut statement = connection.prepare_cached(
        "SELECT operation_key, target_no, state, created_at_ms FROM outbox \
         WHERE operation_key > ?1 ORDER BY operation_key LIMIT ?2",
    )?;
    let limit = i64::try_from(items).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![after, limit])?;
    let mut slice = Slice::default();
    let (mut counted, mut last) = (0, [0; 16]);
    while let Some(row) = rows.next()? {
        (counted, last) = (counted + 1, row.get(0)?);
        let tally = slice.tallies.entry(row.get(1)?).or_default();
        let Some(state) = State::from_code(row.get(2)?) else { continue };
        let one = &mut tally.counts[state as usize];
        *one += 1;
        if waits(state) {
            let created = row.get(3)?;
            tally.oldest_ms = Some(tally.oldest_ms.map_or(created, |at: i64| at.min(created)));
        }
    }
    slice.next = (counted >= items).then(|| last.to_vec());
    Ok(slice)
}

/// The counts, put together from one part at each look.
#[derive(Debug, Default)]
pub(in crate::sqlite) struct Round {
    after: Vec<u8>,
    so_far: Tallies,
    /// Of the last whole round.
    whole: Option<Tallies>,
}

impl Round {
    /// Where the next look begins.
    pub(super) fn after(&self) -> Vec<u8> {
        self.after.clone()
    }

    /// Adds a part that began behind `after`.
    pub(super) fn add(&mut self, after: &[u8], slice: Slice) {
        // Another look may have been at the same part meanwhile.
        if self.after != after {
            return;
        }
        for (target_no, tally) in &slice.tallies {
            self.so_far.entry(*target_no).or_default().add(tally);
        }
        match slice.next {
            Some(next) => self.after = next,
            None => {
                self.whole = Some(std::mem::take(&mut self.so_far));
                self.after = Vec::new();
            }
        }
    }

    /// The counts of the last whole round, and before there is one those that were found so far.
    fn known(&self) -> &Tallies {
        self.whole.as_ref().unwrap_or(&self.so_far)
    }

    pub(super) fn stats(&self, targets: &[Target]) -> OutboxStats {
        let mut all = Tally::default();
        self.known().values().for_each(|tally| all.add(tally));
        let count = |wanted: fn(&Target) -> bool| targets.iter().filter(|t| wanted(t)).count();
        OutboxStats {
            counts: all.counts,
            oldest: all.oldest_ms.map(Timestamp::from_ms),
            parked_targets: count(|target| target.state.parked.is_some()) as u64,
            paused_targets: count(|target| target.state.paused.is_some()) as u64,
        }
    }

    pub(super) fn views(&self, targets: Vec<Target>) -> Vec<TargetView> {
        let view = |target: Target| {
            let tally = self.known().get(&target.number).copied().unwrap_or_default();
            TargetView {
                target: target.name,
                state: target.state,
                counts: tally.counts,
                oldest: tally.oldest_ms.map(Timestamp::from_ms),
            }
        };
        targets.into_iter().map(view).collect()
    }
}

/// A part of the counts with all targets, in one snapshot.
pub(super) fn look(
    connection: &Connection,
    after: &[u8],
) -> rusqlite::Result<(Slice, Vec<Target>)> {
    Ok((slice(connection, after)?, targets::all(connection)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_outbox_is_counted_part_by_part() {
        // Promise: each look is bounded, and a whole round counts every item once by its target and
        // state, with the oldest that waits.
        let connection = Connection::open_in_memory().expect("memory");
        connection
            .execute_batch(
                "CREATE TABLE outbox (operation_key BLOB PRIMARY KEY, target_no INTEGER, \
                 state INTEGER, created_at_ms INTEGER);
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 24)
                 INSERT INTO outbox SELECT unhex(printf('%032x', i)), i % 2, i % 4, 1000 + i FROM n;",
            )
            .expect("made");
        let mut round = Round::default();
        let looks: Vec<u64> = (0..4)
            .map(|_| {
                let after = round.after();
                let slice = slice_of(&connection, &after, 10).expect("read");
                round.add(&after, slice);
                round.stats(&[]).counts.iter().sum()
            })
            .collect();
        assert_eq!(looks, [10, 20, 24, 24]);
        let stats = round.stats(&[]);
        assert_eq!(stats.counts[..4], [6; 4]);
        assert_eq!(stats.oldest, Some(Timestamp::from_ms(1001)));
        round.add(&[1], Slice { tallies: Tallies::default(), next: None });
        assert_eq!(round.stats(&[]), stats, "a look at another part counts for nothing");
    }
}
