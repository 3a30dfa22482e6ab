//! Direct operations in SQLite: the commands for the writer, the questions for the readers.

mod check;
mod items;
mod reads;
mod replies;
mod shelf;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::admission::LedgerTime;
use counterfoil_core::direct::{Reply, Upstream};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::record::Record;
use counterfoil_core::refusal::Refusal;
use counterfoil_core::time::Timestamp;
use rusqlite::Connection;

use super::SqliteStore;
use super::commands::{self, Session};
use super::faults::Fault;
use crate::contract::{Resolved, StoreFuture};
use crate::cut_point;
use crate::direct::{
    Begin, Begun, Concluded, Conclusion, DirectLedger, DirectView, Hold, LookupFound, Replayed,
    Told, WhichDirect,
};
use crate::direct_steps::{self as steps, Ended, Pair, Seen, Turned};
use crate::error::StoreError;
use crate::steps::Kept;
pub(super) use check::{check_directs, direct_leads_to};
pub(super) use items::purge as purge_answers;
use replies::Packed;
use shelf::{SqlShelf, damaged};

/// A command about direct operations, as the writer takes it.
#[derive(Debug)]
pub(super) enum Command {
    Begin(Box<Begin>),
    Dispatch(Hold, Duration),
    /// Reports, each with its answer as it is to be kept.
    Conclude(Vec<(Conclusion, Option<Packed>)>),
    Renew(Vec<Hold>, Duration),
    Tell(Vec<Told>),
    Lapse(usize),
    SettleByLookup(Box<LookupFound>),
}

/// What a command came to, to be answered after the commit.
#[derive(Debug)]
pub(super) enum Done {
    Begun(Opened),
    /// The hold, and until when its lease is.
    Dispatched(Option<(Hold, Timestamp)>),
    Concluded(Vec<Closed>),
    Renewed(Vec<bool>),
    Told,
    Lapsed(usize),
    Settled(Option<Box<Shown>>),
}

/// What a call came to, its answer still packed.
#[derive(Debug)]
pub(super) enum Opened {
    Send(Hold, Box<Record>),
    Wait(Hold, Box<Record>),
    Replay { shown: Box<Shown>, leg: u32, joined: bool },
    Refused { refusal: Refusal, joined: bool },
    Unfit,
}

/// What a report came to, its answer still packed.
#[derive(Debug)]
pub(super) enum Closed {
    Moved(Box<Shown>),
    Stale(Box<Shown>),
    LateContradiction(Box<Shown>),
}

/// An operation with the answer that goes with it.
#[derive(Debug)]
pub(super) struct Shown {
    pair: Pair,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    None,
    Read(Box<replies::Read>),
    /// The one that the command brought.
    Given,
}

impl Command {
    /// Whether it settles what was begun: it may use the space that is kept for that.
    pub(super) const fn settles(&self) -> bool {
        matches!(self, Self::Conclude(_) | Self::Lapse(_) | Self::SettleByLookup(_))
    }
}

impl Session {
    /// Runs one command about direct operations.
    ///
    /// # Errors
    /// [`Fault`]; what the command wrote is then to be rolled back.
    pub(super) fn run_direct(&mut self, command: &Command) -> Result<Done, Fault> {
        let now = self.mark.now();
        let time = LedgerTime { now, horizon: self.mark.horizon() };
        let shelf = &mut SqlShelf { session: self, now };
        Ok(match command {
            Command::Begin(asked) => {
                let turned = steps::begin(shelf, asked, time)?;
                Done::Begun(self.opened(turned)?)
            }
            Command::Dispatch(hold, lease) => {
                let until = now.plus(*lease);
                let held = steps::dispatch(shelf, *hold, until, now)?;
                Done::Dispatched(held.map(|hold| (hold, until)))
            }
            Command::Conclude(reports) => {
                let mut closed = Vec::with_capacity(reports.len());
                for (said, answer) in reports {
                    let shelf = &mut SqlShelf { session: self, now };
                    let ended = steps::conclude(shelf, said, answer.as_ref(), now)?;
                    closed.push(self.closed(ended)?);
                }
                Done::Concluded(closed)
            }
            Command::Renew(holds, lease) => {
                let until = now.plus(*lease);
                let held = holds.iter().map(|hold| steps::renew(shelf, hold, until));
                Done::Renewed(held.collect::<Result<_, _>>()?)
            }
            Command::Tell(told) => {
                told.iter().try_for_each(|told| steps::tell(shelf, *told, now))?;
                Done::Told
            }
            Command::Lapse(max_count) => Done::Lapsed(steps::lapse(shelf, *max_count, now)?),
            Command::SettleByLookup(found) => {
                let seen = steps::settle_by_lookup(shelf, found, now)?;
                Done::Settled(seen.map(|seen| self.shown(seen)).transpose()?.map(Box::new))
            }
        })
    }

    fn opened(&self, turned: Turned) -> Result<Opened, Fault> {
        Ok(match turned {
            Turned::Send(hold, record) => Opened::Send(hold, record),
            Turned::Wait(hold, record) => Opened::Wait(hold, record),
            Turned::Replay { seen, leg, joined } => {
                Opened::Replay { shown: Box::new(self.shown(*seen)?), leg, joined }
            }
            Turned::Refused { refusal, joined } => Opened::Refused { refusal, joined },
            Turned::Unfit => Opened::Unfit,
        })
    }

    fn closed(&self, ended: Ended) -> Result<Closed, Fault> {
        let shown = |seen: Box<Seen>| self.shown(*seen).map(Box::new);
        Ok(match ended {
            Ended::Moved(seen) => Closed::Moved(shown(seen)?),
            Ended::Stale(seen) => Closed::Stale(shown(seen)?),
            Ended::LateContradiction(seen) => Closed::LateContradiction(shown(seen)?),
        })
    }

    fn shown(&self, seen: Seen) -> Result<Shown, Fault> {
        let Seen { pair, shown, is_given } = seen;
        let answer = match shown {
            Some(_) if is_given => Answer::Given,
            Some(leg) => {
                let key = pair.item.key;
                let read = replies::find(&self.connection, key, leg)?;
                let read = read.map_err(|damage| Fault::Command(damaged(key, damage)))?;
                read.map_or(Answer::None, |read| Answer::Read(Box::new(read)))
            }
            None => Answer::None,
        };
        Ok(Shown { pair, answer })
    }

    /// Writes what an operator's word made of a direct operation beside its record.
    ///
    /// # Errors
    /// As [`run_direct`](Self::run_direct). The inner answer is what stands against it; nothing is to
    /// be written then.
    pub(super) fn keep_resolved(
        &mut self,
        before: &Kept,
        after: &Kept,
    ) -> Result<Result<(), Resolved>, Fault> {
        match items::beside(&self.connection, before.clone())? {
            items::Found::Kept(pair) => {
                let pair = Pair { kept: after.clone(), item: pair.item };
                items::update(&self.connection, &pair)?;
                Ok(Ok(()))
            }
            items::Found::Absent => Ok(Err(Resolved::Absent)),
            items::Found::Damaged(damage) => {
                let _ = damaged(before.record.key, damage);
                Ok(Err(Resolved::Quarantined))
            }
        }
    }

    /// The request of a direct operation that is the latest; of any other operation the first.
    pub(super) fn latest_leg(&self, kept: &Kept) -> Result<u32, Fault> {
        latest_leg(&self.connection, kept).map_err(Fault::Sqlite)
    }
}

/// The request of a direct operation that is the latest; of any other operation the first.
pub(super) fn latest_leg(connection: &Connection, kept: &Kept) -> rusqlite::Result<u32> {
    use counterfoil_core::record::Nature;
    if kept.record.nature != Nature::Direct {
        return Ok(1);
    }
    Ok(match items::beside(connection, kept.clone())? {
        items::Found::Kept(pair) => pair.item.leg,
        items::Found::Absent | items::Found::Damaged(_) => 1,
    })
}

/// Looks for the mark of a command whose commit was not acknowledged: what it decided stands in the
/// ledger exactly so, under its run and fence. Everything else is safe to do again.
pub(super) fn recall(connection: &Connection, done: Done) -> rusqlite::Result<Option<Done>> {
    let find = |key: OperationKey| -> rusqlite::Result<Option<Pair>> {
        Ok(match items::find(connection, key)? {
            items::Found::Kept(pair) => Some(*pair),
            items::Found::Absent | items::Found::Damaged(_) => None,
        })
    };
    let stands = |shown: &Shown| -> rusqlite::Result<bool> {
        Ok(find(shown.pair.item.key)?.is_some_and(|pair| pair == shown.pair))
    };
    let is_there = match &done {
        Done::Begun(Opened::Send(hold, record) | Opened::Wait(hold, record)) => {
            find(hold.key)?.is_some_and(|pair| pair.kept.record == **record)
        }
        Done::Dispatched(Some((hold, until))) => find(hold.key)?.is_some_and(|pair| {
            use counterfoil_core::operation::{Phase, State};
            pair.was_held(hold)
                && pair.kept.owner.lease_until == *until
                && pair.kept.record.state == State::InProgress(Phase::Dispatched)
        }),
        Done::Concluded(closed) => {
            let mut all = true;
            for closed in closed {
                let (Closed::Moved(shown)
                | Closed::Stale(shown)
                | Closed::LateContradiction(shown)) = closed;
                all = all && stands(shown)?;
            }
            all
        }
        Done::Settled(Some(shown)) => stands(shown)?,
        _ => false,
    };
    Ok(is_there.then_some(done))
}

/// Where the fault lab may strike, after the commit.
pub(super) fn after_commit(done: &Done) {
    match done {
        Done::Begun(Opened::Wait(..)) => {
            cut_point!("store.after_direct_begin");
        }
        Done::Begun(Opened::Send(..)) => {
            cut_point!("store.after_direct_begin");
            cut_point!("store.after_direct_dispatch");
        }
        Done::Dispatched(Some(_)) => {
            cut_point!("store.after_direct_dispatch");
        }
        Done::Concluded(_) => {
            cut_point!("store.after_direct_conclude");
        }
        _ => {}
    }
}

impl Shown {
    /// The operation as its caller takes it. `given` is the answer that the command brought.
    fn view(self, given: Option<&Reply>) -> Result<DirectView, StoreError> {
        let Self { pair, answer } = self;
        let key = pair.item.key;
        let reply = match answer {
            Answer::None => None,
            Answer::Given => given.cloned(),
            Answer::Read(read) => Some(read.unpack().map_err(|damage| damaged(key, damage))?),
        };
        let Pair { kept, item } = pair;
        Ok(DirectView { record: kept.record, item, reply: reply.map(Arc::new), memo: None })
    }
}

impl Opened {
    fn begun(self) -> Result<Begun, StoreError> {
        Ok(match self {
            Self::Send(hold, record) => Begun::Send(hold, record),
            Self::Wait(hold, record) => Begun::Wait(hold, record),
            Self::Replay { shown, leg, joined } => {
                let view = shown.view(None)?;
                Begun::Replay(Box::new(Replayed { view, leg, joined }))
            }
            Self::Refused { refusal, joined } => Begun::Refused { refusal, joined },
            Self::Unfit => Begun::Unfit,
        })
    }
}

impl Closed {
    fn concluded(self, given: Option<&Reply>) -> Result<Concluded, StoreError> {
        Ok(match self {
            Self::Moved(shown) => Concluded::Moved(Box::new(shown.view(given)?)),
            Self::Stale(shown) => Concluded::Stale(Box::new(shown.view(given)?)),
            Self::LateContradiction(shown) => {
                Concluded::LateContradiction(Box::new(shown.view(given)?))
            }
        })
    }
}

impl SqliteStore {
    async fn write_direct(&self, command: Command) -> Result<Done, StoreError> {
        match self.write(commands::Command::Direct(command)).await? {
            commands::Done::Direct(done) => Ok(done),
            other => unreachable!("a command about direct operations comes to its own: {other:?}"),
        }
    }

    async fn conclude_all(&self, said: Vec<Conclusion>) -> Result<Vec<Concluded>, StoreError> {
        // Packed here, by the reporter: the writer has others to serve.
        let packed = said.iter().map(|said| said.reply.as_ref().and_then(Packed::of));
        let packed: Vec<_> = packed.collect();
        let given: Vec<_> = said.iter().map(|said| said.reply.clone()).collect();
        let reports = said.into_iter().zip(packed).collect();
        match self.write_direct(Command::Conclude(reports)).await? {
            Done::Concluded(closed) => closed
                .into_iter()
                .zip(&given)
                .map(|(closed, given)| closed.concluded(given.as_ref()))
                .collect(),
            other => unreachable!("reports come to Concluded, not {other:?}"),
        }
    }
}

/// Takes the answer that a command comes to; it has no other.
macro_rules! answer {
    ($store:ident, $command:expr, $done:pat => $answer:expr) => {
        Box::pin(async move {
            match $store.write_direct($command).await? {
                $done => $answer,
                other => unreachable!("it comes to {}, not {other:?}", stringify!($done)),
            }
        })
    };
}

impl DirectLedger for SqliteStore {
    fn begin(&self, begin: Begin) -> StoreFuture<'_, Begun> {
        answer!(self, Command::Begin(Box::new(begin)), Done::Begun(opened) => opened.begun())
    }

    fn dispatch(&self, hold: Hold, lease: Duration) -> StoreFuture<'_, Option<Hold>> {
        answer!(self, Command::Dispatch(hold, lease), Done::Dispatched(held) => {
            Ok(held.map(|(hold, _)| hold))
        })
    }

    fn conclude(&self, conclusions: Vec<Conclusion>) -> StoreFuture<'_, Vec<Concluded>> {
        Box::pin(self.conclude_all(conclusions))
    }

    fn renew(&self, holds: Vec<Hold>, lease: Duration) -> StoreFuture<'_, Vec<bool>> {
        answer!(self, Command::Renew(holds, lease), Done::Renewed(held) => Ok(held))
    }

    fn tell(&self, told: Vec<Told>) -> StoreFuture<'_, ()> {
        answer!(self, Command::Tell(told), Done::Told => Ok(()))
    }

    fn lapse(&self, max_count: usize) -> StoreFuture<'_, usize> {
        Box::pin(async move {
            // Mostly there is nothing to write: then no lock of another process is waited for.
            let now = self.mark.now();
            if !self.ask(move |c| shelf::is_any_due(c, now)).await? {
                return Ok(0);
            }
            match self.write_direct(Command::Lapse(max_count)).await? {
                Done::Lapsed(count) => Ok(count),
                other => unreachable!("it comes to a count, not {other:?}"),
            }
        })
    }

    fn settle_by_lookup(&self, found: LookupFound) -> StoreFuture<'_, Option<DirectView>> {
        answer!(self, Command::SettleByLookup(Box::new(found)), Done::Settled(shown) => {
            shown.map(|shown| shown.view(None)).transpose()
        })
    }

    fn in_doubt(
        &self,
        upstream: Upstream,
        after: Option<OperationKey>,
        max_count: usize,
    ) -> StoreFuture<'_, Vec<DirectView>> {
        Box::pin(self.ask(move |c| reads::in_doubt(c, &upstream, after, max_count)))
    }

    fn direct_view(&self, which: WhichDirect) -> StoreFuture<'_, Option<DirectView>> {
        Box::pin(async move { self.ask(move |c| reads::direct_view(c, &which)).await? })
    }

    fn reply(&self, key: OperationKey, leg: u32) -> StoreFuture<'_, Option<Reply>> {
        Box::pin(async move { self.ask(move |c| reads::reply(c, key, leg)).await? })
    }
}
