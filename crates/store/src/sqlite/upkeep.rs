//! What the ledger's own row keeps for retention: the purges' clock, how far they have come, and
//! what they did.

use std::time::Duration;

use counterfoil_core::identity::OperationKey;
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, Row, params};

use super::faults::Fault;
use crate::clock::SharedMark;
use crate::retention::clock::{PurgeClock, Reading, Seen};
use crate::retention::{ClockConfirmed, ClockJump, RetentionState};

/// The part of the ledger's row that is about retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Upkeep {
    pub(super) clock: PurgeClock,
    pub(super) horizon: Timestamp,
    pub(super) scan: Scan,
    results_purged_count: u64,
    tombstones_purged_count: u64,
}

/// How far the records were looked through for results to purge. Records are kept in order of the
/// time at which they began, which is nearly that in which their retention ends; so a mark in that
/// order finds what is due, where an index would cost every single write an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Scan {
    /// The last record that was looked at; `None` before the first.
    pub(super) after: Option<OperationKey>,
    /// Records that were passed over, since they were unfinished or not due, and will be looked at
    /// again.
    pub(super) again: Option<Again>,
}

/// Where to begin again, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Again {
    /// The record before the first that was passed over; `None`: that is the ledger's first.
    pub(super) after: Option<OperationKey>,
    pub(super) at: Timestamp,
}

impl Upkeep {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        connection
            .prepare_cached(
                "SELECT purge_time_ms, seen_ledger_ms, seen_wall_ms, seen_boot_ms, seen_boot, \
                 stopped_at_ms, stopped_by_ms, confirmed_at_ms, confirmed_by, horizon_ms, \
                 scan_after, rescan_after, rescan_at_ms, results_purged, tombstones_purged \
                 FROM ledger",
            )?
            .query_row([], Self::of_row)
    }

    fn of_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let time = |at: usize| -> rusqlite::Result<Option<Timestamp>> {
            Ok(row.get::<_, Option<i64>>(at)?.map(Timestamp::from_ms))
        };
        let key = |at: usize| -> rusqlite::Result<Option<OperationKey>> {
            let bytes: Option<[u8; 16]> = row.get(at)?;
            Ok(bytes.map(OperationKey::from_bytes))
        };
        let count = |at: usize| -> rusqlite::Result<u64> {
            Ok(u64::try_from(row.get::<_, i64>(at)?).unwrap_or_default())
        };
        let boot: Option<[u8; 16]> = row.get(4)?;
        let since_boot: Option<i64> = row.get(3)?;
        let seen = match (time(0)?, time(1)?, time(2)?, since_boot, boot) {
            (Some(purge), Some(ledger), Some(wall), Some(since_boot), Some(boot)) => {
                let since_boot =
                    Duration::from_millis(u64::try_from(since_boot).unwrap_or_default());
                Some(Seen { purge, at: Reading { ledger, wall, since_boot, boot } })
            }
            _ => None,
        };
        let stopped = time(5)?.zip(row.get::<_, Option<i64>>(6)?);
        let confirmed = time(7)?.zip(row.get::<_, Option<Vec<u8>>>(8)?);
        let again = time(12)?;
        Ok(Self {
            clock: PurgeClock {
                seen,
                stopped: stopped.map(|(noticed_at, by_ms)| ClockJump { noticed_at, by_ms }),
                confirmed: confirmed.map(|(at, by)| ClockConfirmed {
                    at,
                    by: String::from_utf8_lossy(&by).into_owned(),
                }),
            },
            horizon: Timestamp::from_ms(row.get(9)?),
            scan: Scan {
                after: key(10)?,
                again: match again {
                    Some(at) => Some(Again { after: key(11)?, at }),
                    None => None,
                },
            },
            results_purged_count: count(13)?,
            tombstones_purged_count: count(14)?,
        })
    }

    /// As it is told to others.
    pub(super) fn state(self, mark: &SharedMark) -> RetentionState {
        let (now, _) = mark.readings();
        RetentionState {
            ledger_time: now.ledger,
            wall_time: now.wall,
            purge_time: self.clock.time(),
            stopped: self.clock.stopped,
            confirmed: self.clock.confirmed,
            horizon: self.horizon,
            results_purged_count: self.results_purged_count,
            tombstones_purged_count: self.tombstones_purged_count,
        }
    }
}

/// Keeps the clock and the horizon.
pub(super) fn keep_clock(
    connection: &Connection,
    clock: &PurgeClock,
    horizon: Timestamp,
) -> Result<(), Fault> {
    const SQL: &str = "UPDATE ledger SET purge_time_ms = ?1, seen_ledger_ms = ?2, \
        seen_wall_ms = ?3, seen_boot_ms = ?4, seen_boot = ?5, stopped_at_ms = ?6, \
        stopped_by_ms = ?7, confirmed_at_ms = ?8, confirmed_by = ?9, \
        horizon_ms = max(horizon_ms, ?10)";
    let seen = clock.seen.as_ref();
    let since_boot = |at: &Reading| i64::try_from(at.since_boot.as_millis()).unwrap_or(i64::MAX);
    connection.prepare_cached(SQL)?.execute(params![
        seen.map(|seen| seen.purge.as_ms()),
        seen.map(|seen| seen.at.ledger.as_ms()),
        seen.map(|seen| seen.at.wall.as_ms()),
        seen.map(|seen| since_boot(&seen.at)),
        seen.map(|seen| seen.at.boot.as_slice()),
        clock.stopped.map(|jump| jump.noticed_at.as_ms()),
        clock.stopped.map(|jump| jump.by_ms),
        clock.confirmed.as_ref().map(|said| said.at.as_ms()),
        clock.confirmed.as_ref().map(|said| said.by.as_bytes()),
        horizon.as_ms(),
    ])?;
    Ok(())
}

/// Adds to the counts, and keeps how far the search has come unless another process moved it.
pub(super) fn keep_progress(
    connection: &Connection,
    (results_count, tombstones_count): (u64, u64),
    scan: Option<&Scan>,
) -> Result<(), Fault> {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    connection
        .prepare_cached(
            "UPDATE ledger SET results_purged = results_purged + ?1, \
             tombstones_purged = tombstones_purged + ?2",
        )?
        .execute([number(results_count), number(tombstones_count)])?;
    let Some(scan) = scan else { return Ok(()) };
    let key = |key: Option<OperationKey>| key.map(|key| key.as_bytes().to_vec());
    connection
        .prepare_cached("UPDATE ledger SET scan_after = ?1, rescan_after = ?2, rescan_at_ms = ?3")?
        .execute(params![
            key(scan.after),
            key(scan.again.and_then(|again| again.after)),
            scan.again.map(|again| again.at.as_ms()),
        ])?;
    Ok(())
}
