//! The last look before the first byte, and what attempts and searches came to.

use counterfoil_core::delivery::{Change, ParkReason, State};
use counterfoil_core::time::Timestamp;

use super::change::{By, Taken};
use super::items::{self, Item};
use crate::outbox::{BeginSend, Begun, Report, Reported};
use crate::outbox_steps as steps;
use crate::sqlite::commands::Session;
use crate::sqlite::faults::Fault;
use crate::sqlite::rows;

impl Session {
    /// Records for each item that its first byte is about to leave.
    ///
    /// # Errors
    /// [`Fault`]; what was written is then to be rolled back.
    pub(super) fn begin_send(&mut self, begins: &[BeginSend]) -> Result<Vec<Begun>, Fault> {
        let now = self.mark.now();
        begins.iter().map(|begin| self.begin_one(begin, now)).collect()
    }

    fn begin_one(&mut self, begin: &BeginSend, now: Timestamp) -> Result<Begun, Fault> {
        let Some((mut item, record)) = self.pair(begin.key)? else { return Ok(Begun::NotHeld) };
        let mut kept = match record {
            rows::Found::Kept(kept) => *kept,
            rows::Found::Absent => return self.withhold(begin, &"it has no operation"),
            rows::Found::Damaged(damage) => return self.withhold(begin, &damage),
        };
        let against = self.stands_against(&kept.record.tenant, &kept.record.principal)?;
        let Some(change) = self.before_first_byte(&item, against, begin, now)? else {
            return Ok(Begun::NotHeld);
        };
        match self.take_with(&mut item, &mut kept, &change, By::Worker, now)? {
            Taken::SetAside => Ok(Begun::Withheld(None)),
            Taken::Whole { .. } => Ok(match item.delivery.state {
                State::Sending => Begun::Send,
                _ => Begun::Withheld(change.alarm),
            }),
        }
    }

    fn before_first_byte(
        &mut self,
        item: &Item,
        against: Option<ParkReason>,
        begin: &BeginSend,
        now: Timestamp,
    ) -> Result<Option<Change>, Fault> {
        // A target that cannot be read is sent nothing.
        let is_paused =
            self.sound_target(item.target_no)?.is_none_or(|target| target.state.paused.is_some());
        Ok(steps::begin_send(&item.delivery, begin, against, is_paused, now))
    }

    /// Nothing is sent for an operation that cannot be read.
    fn withhold(&mut self, begin: &BeginSend, why: &dyn std::fmt::Display) -> Result<Begun, Fault> {
        items::set_aside(&self.connection, begin.key.as_bytes(), why)?;
        self.stamp(self.mark.now());
        Ok(Begun::Withheld(None))
    }

    /// Takes reports on attempts and searches.
    ///
    /// # Errors
    /// As [`begin_send`](Self::begin_send).
    pub(super) fn report(&mut self, reports: &[Report]) -> Result<Vec<Reported>, Fault> {
        let now = self.mark.now();
        reports.iter().map(|report| self.report_one(report, now)).collect()
    }

    fn report_one(&mut self, report: &Report, now: Timestamp) -> Result<Reported, Fault> {
        let nothing = |state| Reported { state, alarm: None, fenced: true, parked_target: false };
        let Some((mut item, record)) = self.pair(report.key)? else { return Ok(nothing(None)) };
        let Some(change) = steps::report(&item.delivery, report, now) else {
            return Ok(nothing(Some(item.delivery.state)));
        };
        let parked_target = match self.take_found(&mut item, record, &change, By::Worker, now)? {
            Taken::Whole { parked_target } => parked_target,
            Taken::SetAside => false,
        };
        Ok(Reported {
            state: Some(item.delivery.state),
            alarm: change.alarm,
            fenced: change.fenced,
            parked_target,
        })
    }
}
