//! The outbox in SQLite: the commands for the writer, the questions for the readers.

mod accept;
mod change;
mod check;
mod claim;
mod counts;
mod items;
mod orders;
mod pair;
mod reads;
mod revoked;
mod seen;
mod send;
mod targets;
#[cfg(test)]
mod tests;

use std::sync::{Arc, PoisonError};

use counterfoil_core::delivery::{TargetName, TargetState};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::time::Timestamp;
use rusqlite::Connection;

use super::SqliteStore;
use super::commands::{self, Session};
use super::faults::Fault;
use super::readers::Question;
use super::rows::{Found, find_by_id};
use crate::contract::StoreFuture;
use crate::cut_point;
use crate::error::StoreError;
use crate::outbox::{
    Acceptance, Accepted, BeginSend, Begun, Claim, Claimed, DeliveryPage, DeliveryQuery,
    DeliveryView, Directed, Order, Outbox, OutboxStats, Report, Reported, RevokeOrder, Revoked,
    TakenBack, TargetOrder, TargetView, Which,
};
use crate::under_way::UnderWay;
pub(super) use check::{LATE_CONTRADICTION, check_outbox, delivery_leads_to};
pub(super) use counts::Round;
pub(super) use items::purge_request;
pub(super) use orders::ParkedPlace;
pub(super) use reads::Ask;
pub(super) use seen::Seen;
pub(super) use targets::Target;

/// A command of the outbox, as the writer takes it.
#[derive(Debug)]
pub(super) enum Command {
    Accept(Box<Acceptance>),
    Claim(Claim),
    BeginSend(Vec<BeginSend>),
    Report(Vec<Report>),
    TakeBackLapsed(UnderWay, usize),
    /// Whether what nobody here knows is parked, too.
    MatchTargets(Vec<TargetName>, bool, usize),
    Direct(Order),
    DirectTarget(TargetOrder),
    SetRevoked(RevokeOrder),
    Release(RevokeOrder, ParkedPlace),
}

/// What a command came to, to be answered after the commit.
#[derive(Debug)]
pub(super) enum Done {
    Accepted(Accepted),
    Claimed(Claimed),
    Begun(Vec<Begun>),
    Reported(Vec<Reported>),
    TakenBack(Vec<TakenBack>),
    Counted(usize),
    Directed(Vec<Directed>),
    Target(TargetState),
    Revoked,
    Released(Option<ParkedPlace>),
}

impl Command {
    /// Whether it settles what was begun: it may use the space that is kept for that.
    pub(super) const fn settles(&self) -> bool {
        matches!(self, Self::Report(_) | Self::Direct(_))
    }

    /// Whether it leads to more writing: nothing of that is begun without room to end it. An
    /// acceptance decides for itself, since one that was accepted before only needs its answer.
    const fn begins(&self) -> bool {
        matches!(
            self,
            Self::Claim(_) | Self::BeginSend(_) | Self::TakeBackLapsed(..) | Self::MatchTargets(..)
        )
    }
}

impl Session {
    /// Runs one command of the outbox.
    ///
    /// # Errors
    /// [`Fault`]; what the command wrote is then to be rolled back.
    pub(super) fn run_outbox(&mut self, command: &Command) -> Result<Done, Fault> {
        if self.no_room && command.begins() {
            return Err(Fault::Command(StoreError::Full { path: self.path.clone() }));
        }
        match command {
            Command::Accept(asked) => self.accept(asked).map(Done::Accepted),
            Command::Claim(asked) => self.claim(asked).map(Done::Claimed),
            Command::BeginSend(begins) => self.begin_send(begins).map(Done::Begun),
            Command::Report(reports) => self.report(reports).map(Done::Reported),
            Command::TakeBackLapsed(under_way, most) => {
                self.take_back_lapsed(under_way, *most).map(Done::TakenBack)
            }
            Command::MatchTargets(known, parks, most) => {
                self.match_targets(known, *parks, *most).map(Done::Counted)
            }
            Command::Direct(order) => self.direct(order).map(Done::Directed),
            Command::DirectTarget(order) => self.direct_target(order).map(Done::Target),
            Command::SetRevoked(order) => self.set_revoked(order).map(|()| Done::Revoked),
            Command::Release(order, after) => self.release(order, *after).map(Done::Released),
        }
    }
}

/// Looks for the mark of a command whose commit was not acknowledged. Only an acceptance has one of
/// its own; everything else is safe to do again, and a claim's leases end by themselves.
pub(super) fn recall(connection: &Connection, command: &Command) -> rusqlite::Result<Option<Done>> {
    let Command::Accept(asked) = command else { return Ok(None) };
    let call = &asked.admitted;
    let found = find_by_id(connection, &call.caller().tenant, call.operation_id())?;
    let Found::Kept(kept) = found else { return Ok(None) };
    if kept.record.nonce != call.attempt().nonce {
        return Ok(None);
    }
    let view = reads::view(connection, kept.record.key)?.ok().flatten();
    Ok(view.map(|view| Done::Accepted(Accepted::Fresh(Box::new(view)))))
}

/// Where the fault lab may strike, after the commit.
pub(super) fn after_commit(done: &Done) {
    match done {
        Done::Accepted(Accepted::Fresh(_)) => {
            cut_point!("store.after_commit");
        }
        Done::Claimed(_) => {
            cut_point!("store.after_claim");
        }
        Done::Begun(_) => {
            cut_point!("store.after_begin_send");
        }
        Done::Reported(_) => {
            cut_point!("store.after_report");
        }
        _ => {}
    }
}

impl SqliteStore {
    async fn write_outbox(&self, command: Command) -> Result<Done, StoreError> {
        match self.write(commands::Command::Outbox(command)).await? {
            commands::Done::Outbox(done) => Ok(done),
            other => unreachable!("a command of the outbox comes to its own, not {other:?}"),
        }
    }

    pub(in crate::sqlite) async fn ask<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read(|reply| Question::Outbox(Ask::new(read, reply))).await
    }

    async fn match_known(
        &self,
        known: Vec<TargetName>,
        parks: bool,
        max_count: usize,
    ) -> Result<usize, StoreError> {
        let asked = known.clone();
        if !self.ask(move |c| reads::is_any_misplaced(c, &asked, parks)).await? {
            return Ok(0);
        }
        match self.write_outbox(Command::MatchTargets(known, parks, max_count)).await? {
            Done::Counted(count) => Ok(count),
            other => unreachable!("it comes to a count, not {other:?}"),
        }
    }

    /// Counts the next part; gives what is known of all.
    async fn counted<T>(
        &self,
        tell: impl FnOnce(&Round, Vec<Target>) -> T,
    ) -> Result<T, StoreError> {
        let lock = || self.outbox_round.lock().unwrap_or_else(PoisonError::into_inner);
        let after = lock().after();
        let behind = after.clone();
        let (slice, targets) = self.ask(move |c| counts::look(c, &behind)).await?;
        let mut round = lock();
        round.add(&after, slice);
        Ok(tell(&round, targets))
    }

    async fn revoke(&self, order: RevokeOrder) -> Result<(), StoreError> {
        self.write_outbox(Command::SetRevoked(order.clone())).await?;
        let mut place = (!order.revoked).then(ParkedPlace::default);
        while let Some(after) = place {
            place = match self.write_outbox(Command::Release(order.clone(), after)).await? {
                Done::Released(next) => next,
                other => unreachable!("a release comes to its place, not {other:?}"),
            };
        }
        Ok(())
    }
}

/// Takes the answer that a command comes to; it has no other.
macro_rules! answer {
    ($store:ident, $command:expr, $done:ident) => {
        Box::pin(async move {
            match $store.write_outbox($command).await? {
                Done::$done(answer) => Ok(answer),
                other => unreachable!("it comes to {}, not {other:?}", stringify!($done)),
            }
        })
    };
}

impl Outbox for SqliteStore {
    fn accept(&self, acceptance: Acceptance) -> StoreFuture<'_, Accepted> {
        answer!(self, Command::Accept(Box::new(acceptance)), Accepted)
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        answer!(self, Command::Claim(claim), Claimed)
    }

    fn begin_send(&self, begins: Vec<BeginSend>) -> StoreFuture<'_, Vec<Begun>> {
        answer!(self, Command::BeginSend(begins), Begun)
    }

    fn report(&self, reports: Vec<Report>) -> StoreFuture<'_, Vec<Reported>> {
        answer!(self, Command::Report(reports), Reported)
    }

    fn take_back_lapsed(
        &self,
        under_way: UnderWay,
        max_count: usize,
    ) -> StoreFuture<'_, Vec<TakenBack>> {
        Box::pin(async move {
            // Mostly there is nothing to write: then no lock of another process is waited for.
            let now = self.mark.now();
            if !self.ask(move |c| claim::is_any_lapsed(c, now)).await? {
                return Ok(Vec::new());
            }
            match self.write_outbox(Command::TakeBackLapsed(under_way, max_count)).await? {
                Done::TakenBack(taken) => Ok(taken),
                other => unreachable!("it comes to what was taken back, not {other:?}"),
            }
        })
    }

    fn match_targets(&self, known: Vec<TargetName>, max_count: usize) -> StoreFuture<'_, usize> {
        Box::pin(self.match_known(known, true, max_count))
    }

    fn release_known(&self, known: Vec<TargetName>, max_count: usize) -> StoreFuture<'_, usize> {
        Box::pin(self.match_known(known, false, max_count))
    }

    fn next_due(&self, target: TargetName) -> StoreFuture<'_, Option<Timestamp>> {
        let now = self.mark.now();
        Box::pin(self.ask(move |c| reads::due_of(c, &target, now)))
    }

    fn next_due_of(&self, targets: Vec<TargetName>) -> StoreFuture<'_, Vec<Option<Timestamp>>> {
        let now = self.mark.now();
        let look = move |c: &_| targets.iter().map(|name| reads::due_of(c, name, now)).collect();
        Box::pin(self.ask(look))
    }

    fn delivery(&self, which: Which) -> StoreFuture<'_, Option<DeliveryView>> {
        Box::pin(async move { self.ask(move |c| reads::delivery(c, &which)).await? })
    }

    fn request(&self, key: OperationKey) -> StoreFuture<'_, Option<Arc<[u8]>>> {
        Box::pin(async move { self.ask(move |c| reads::request(c, key)).await? })
    }

    fn deliveries(&self, query: DeliveryQuery) -> StoreFuture<'_, DeliveryPage> {
        Box::pin(self.ask(move |c| reads::deliveries(c, &query, reads::PAGE_UNITS)))
    }

    fn direct(&self, order: Order) -> StoreFuture<'_, Vec<Directed>> {
        answer!(self, Command::Direct(order), Directed)
    }

    fn targets(&self) -> StoreFuture<'_, Vec<TargetView>> {
        Box::pin(self.counted(|round, targets| round.views(targets)))
    }

    fn direct_target(&self, order: TargetOrder) -> StoreFuture<'_, TargetState> {
        answer!(self, Command::DirectTarget(order), Target)
    }

    fn set_revoked(&self, order: RevokeOrder) -> StoreFuture<'_, ()> {
        Box::pin(self.revoke(order))
    }

    fn revoked(&self) -> StoreFuture<'_, Vec<Revoked>> {
        Box::pin(self.ask(revoked::all))
    }

    fn outbox_stats(&self) -> StoreFuture<'_, OutboxStats> {
        Box::pin(self.counted(|round, targets| round.stats(&targets)))
    }
}
