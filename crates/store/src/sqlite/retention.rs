//! Retention as the store's callers see it: the clock by the writer, the search by a reader, the batch
//! by the writer again.

use std::sync::PoisonError;

use counterfoil_core::time::Timestamp;

use super::SqliteStore;
use super::commands::{Command, Done};
use super::due::{Due, Place, Search};
use super::readers::Question;
use super::upkeep::Upkeep;
use crate::error::StoreError;
use crate::retention::{Purge, Purged, RetentionState};

impl SqliteStore {
    /// How retention stands, by the clocks as they are found now.
    pub(super) async fn retention_state(&self) -> Result<RetentionState, StoreError> {
        Ok(self.looked_at().await?.state(&self.mark))
    }

    pub(super) async fn purge_batch(&self, purge: Purge) -> Result<Purged, StoreError> {
        let upkeep = match self.write(Command::WatchClock(purge.span())).await? {
            Done::Upkeep(upkeep) => *upkeep,
            other => unreachable!("a look at the clocks comes to the upkeep, not {other:?}"),
        };
        // It is committed, so that nobody need wait for the next transaction to know it.
        self.mark.set_horizon(upkeep.horizon.max(self.mark.horizon()));
        let Some(until) = upkeep.clock.time() else {
            return Ok(self.told((0, 0), false, None, upkeep));
        };
        let place = *self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let search = Search {
            results: Some(upkeep.scan),
            tombstones: Some(place),
            ..search(&purge, until, upkeep.horizon)
        };
        let due = self.due(search).await?;
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = due.place;
        let more = due.more_results || due.more_tombstones;
        let held_back_by = due.held_back_by.clone();
        if due.results.is_empty() && due.tombstones.is_empty() && due.to == due.from {
            return Ok(self.told((0, 0), more, held_back_by, upkeep));
        }
        let counts = match self.write(Command::Purge(due)).await? {
            Done::Purged(counts) => counts,
            other => unreachable!("a purge comes to its counts, not {other:?}"),
        };
        let upkeep = self.read(|reply| Question::Upkeep { reply }).await?;
        Ok(self.told(counts, more, held_back_by, upkeep))
    }

    pub(super) async fn count_all_due(&self, purge: Purge) -> Result<Purged, StoreError> {
        let mut upkeep = self.looked_at().await?;
        upkeep.horizon = upkeep.clock.horizon(upkeep.horizon, purge.span());
        let (mut counts, mut held_back_by) = ((0, 0), None);
        if let Some(until) = upkeep.clock.time() {
            let mut search = Search {
                results: Some(upkeep.scan),
                tombstones: Some(Place::default()),
                ..search(&purge, until, upkeep.horizon)
            };
            while search.results.is_some() || search.tombstones.is_some() {
                let due = self.due(search).await?;
                counts.0 += due.results.len() as u64;
                counts.1 += due.tombstones.len() as u64;
                search.results = due.more_results.then_some(due.to);
                search.tombstones = due.more_tombstones.then_some(due.place);
                held_back_by = due.held_back_by;
            }
        }
        Ok(self.told(counts, false, held_back_by, upkeep))
    }

    /// What is kept, with the clocks as they are found now. Nothing of it is written.
    async fn looked_at(&self) -> Result<Upkeep, StoreError> {
        let mut upkeep = self.read(|reply| Question::Upkeep { reply }).await?;
        let (now, opened) = self.mark.readings();
        upkeep.clock = upkeep.clock.look(&now, &opened);
        Ok(upkeep)
    }

    async fn due(&self, search: Search) -> Result<Due, StoreError> {
        let search = Box::new(search);
        self.read(|reply| Question::Due { search, reply }).await
    }

    fn told(
        &self,
        (results_count, tombstones_count): (u64, u64),
        more: bool,
        held_back_by: Option<String>,
        upkeep: Upkeep,
    ) -> Purged {
        let state = upkeep.state(&self.mark);
        Purged { results_count, tombstones_count, more, held_back_by, state }
    }
}

/// A search that looks nowhere yet.
fn search(purge: &Purge, until: Timestamp, horizon: Timestamp) -> Search {
    Search {
        until,
        begun_before: purge.begun_before(until),
        horizon,
        limit_count: purge.limit_count.max(1) as usize,
        results: None,
        tombstones: None,
    }
}
