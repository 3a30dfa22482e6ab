//! What the server and its ledger do: the product's decision inside one transaction, then the commit,
//! then the reply, as the stores and the engine do it. The twins' lies are told here.

use counterfoil_core::admission::{Decision, LedgerTime, decide, decide_first_round};
use counterfoil_core::observation::ObservedState;
use counterfoil_core::operation::{self, Event, Phase as Done, Verdict, step};
use counterfoil_core::refusal::Code;

use super::cast::{AUTHORITY, at, retention};
use super::desk::{Action, Asks, Desk, Open, Other, Phase, Rec, Reply, Request, Rest, Tick};
use super::{CallModel, Twin};
use crate::model::rules::Rule;
use crate::model::world::Word;

/// How long the owner of an unfinished operation is left alone.
const OWNER_LEASE: Tick = 1;

impl CallModel {
    /// Takes a step.
    pub(super) fn act(&self, desk: &mut Desk, action: Action) {
        match action {
            Action::Tick => {
                desk.now += 1;
                let is_over = |rec: &Rec| {
                    rec.settled_at.is_some_and(|tick| desk.now >= tick + retention(desk.world))
                };
                desk.has_expired |= desk.record.as_ref().is_some_and(is_over);
            }
            Action::FirstRound => self.first_round(desk),
            Action::Take { client, slot } => self.decide(desk, client, slot),
            Action::Fail => {
                desk.left.failures -= 1;
                if let Some(Open { client, .. }) = desk.open.take() {
                    reply(desk, client, Reply::Refused(Code::StoreUnavailable));
                }
            }
            Action::Commit => self.commit(desk),
            Action::Rest(end) => self.finish(desk, end),
            Action::Crash => {
                desk.left.crashes -= 1;
                (desk.open, desk.rest) = (None, None);
                desk.clients.iter_mut().for_each(|client| client.reply = None);
            }
            Action::Purge => self.purge(desk),
            Action::MoveHorizon => desk.has_horizon = true,
            Action::Forget => self.forget(desk),
            Action::Resolve { applied, proof } => self.resolve(desk, applied, proof),
            Action::Send { .. }
            | Action::GiveUp(_)
            | Action::Read(_)
            | Action::Ask(_)
            | Action::SendAnew(_) => self.of_clients(desk, action),
        }
    }

    /// Who a client is.
    pub(super) fn asks(desk: &Desk, client: u8) -> Asks {
        match (client, desk.world.other) {
            (0, _) | (_, Other::Same) => Asks::First,
            (_, Other::Changed) => Asks::Changed,
            (_, Other::Stranger) => Asks::Stranger,
        }
    }

    fn time(desk: &Desk) -> LedgerTime {
        let horizon = if desk.has_horizon { at(1) } else { at(0) };
        LedgerTime { now: at(desk.now), horizon }
    }

    fn first_round(&self, desk: &mut Desk) {
        let call = self.cast.first_round(desk.world, Asks::First);
        let record = desk.record.map(|rec| self.cast.record(desk.world, &rec));
        if decide_first_round(call, record.as_ref(), Self::time(desk)) == Decision::Fresh {
            desk.issued[0][1] = Some(desk.now);
        }
    }

    fn decide(&self, desk: &mut Desk, client: u8, slot: u8) {
        let issued = desk.issued[Self::shelf(desk, client)][usize::from(slot)];
        let Some(issued) = issued else { return };
        let request = Request { asks: Self::asks(desk, client), slot, issued };
        if self.cast.permits(desk.world, request, desk.now).is_err() {
            reply(desk, client, Reply::BadState);
            return;
        }
        let call = self.cast.call(desk.world, request, !self.is(Twin::AuthorityIgnored));
        let record = desk.record.map(|rec| self.cast.record(desk.world, &rec));
        let mut decision = decide(call, record.as_ref(), Self::time(desk));
        if self.is(Twin::GuardRemoved) {
            decision = Decision::Fresh;
        }
        if self.is(Twin::ReplaysToAnybody) && desk.record.is_some_and(|rec| rec.state.is_terminal())
        {
            decision = Decision::Replay;
        }
        if let Some(rec) = desk.record {
            let is_maker = rec.maker == request;
            desk.broken.unless(is_maker || is_silent(&decision, request), Rule::ChangedConflicts);
        }
        match decision {
            Decision::Fresh => {
                desk.open = Some(Open { client, request, is_half_done: false });
                if self.is(Twin::ReplyBeforeCommit) && !desk.world.has_two_steps {
                    reply(desk, client, Reply::Settled(ObservedState::Applied));
                }
            }
            Decision::Replay => {
                // The stores replay only while the row stands, by the account of the status.
                let shown = self.cast.shown(desk.record.as_ref(), desk.has_row, true);
                reply(desk, client, Reply::Settled(shown.state));
            }
            Decision::Refuse(refusal) => {
                reply(desk, client, Reply::Refused(refusal.code()));
            }
        }
    }

    /// Record and effect in one transaction.
    fn commit(&self, desk: &mut Desk) {
        let Some(Open { client, request, is_half_done }) = desk.open.take() else { return };
        let at = desk.now;
        desk.broken.unless(at < request.issued + AUTHORITY, Rule::AuthorityEnds);
        desk.broken.unless(!desk.has_expired && !desk.is_forgotten, Rule::ExpiredIsNoWork);
        if !is_half_done {
            (desk.has_row, desk.made) = (true, desk.made + 1);
            if self.is(Twin::TwoTransactions) {
                desk.open = Some(Open { client, request, is_half_done: true });
                return;
            }
        }
        let event = if desk.world.has_two_steps { Event::CommitFirst } else { Event::Apply };
        let transition = step(None, event).expect("an absent operation begins");
        let is_settled = transition.to().is_terminal();
        desk.record = Some(Rec {
            maker: request,
            state: transition.to(),
            fence: 1,
            lease_until: at + OWNER_LEASE,
            settled_at: is_settled.then_some(at),
            is_purged: false,
            word: None,
        });
        if is_settled {
            if !self.is(Twin::ReplyBeforeCommit) {
                reply(desk, client, Reply::Settled(ObservedState::Applied));
            }
        } else {
            desk.rest = Some(1);
        }
    }

    /// The second step, if the server still owns it.
    fn finish(&self, desk: &mut Desk, end: Rest) {
        let (Some(fence), Some(mut rec)) = (desk.rest.take(), desk.record) else { return };
        let is_owner =
            rec.state == operation::State::InProgress(Done::FirstCommit) && rec.fence == fence;
        let client = u8::from(rec.maker.asks != Asks::First);
        if !is_owner && !self.is(Twin::NoFencing) {
            let shown = self.cast.shown(Some(&rec), desk.has_row, true);
            reply(desk, client, Reply::Settled(shown.state));
            return;
        }
        desk.broken.unless(is_owner, Rule::StaleCompletesNothing);
        let event = match end {
            Rest::Whole => Event::FinishWhole,
            Rest::Partly => Event::FinishPartly,
            Rest::Undone => Event::Undo,
        };
        let before =
            if is_owner { rec.state } else { operation::State::InProgress(Done::FirstCommit) };
        rec.state = step(Some(before), event).expect("a first commit is finished").to();
        rec.settled_at = Some(desk.now);
        desk.has_row &= end != Rest::Undone;
        desk.record = Some(rec);
        let told = match end {
            Rest::Whole => ObservedState::Applied,
            Rest::Partly => ObservedState::Partial,
            Rest::Undone => ObservedState::NotApplied,
        };
        reply(desk, client, Reply::Settled(told));
    }

    /// Whether the retention of a record has ended.
    fn is_over(desk: &Desk, rec: &Rec) -> bool {
        rec.settled_at.is_some_and(|tick| desk.now >= tick + retention(desk.world))
    }

    fn purge(&self, desk: &mut Desk) {
        let Some(rec) = desk.record.filter(|rec| Self::is_over(desk, rec)) else { return };
        desk.record = (!self.is(Twin::ExpiryFreesId)).then_some(Rec { is_purged: true, ..rec });
    }

    fn forget(&self, desk: &mut Desk) {
        let Some(rec) = desk.record.filter(|rec| Self::is_over(desk, rec)) else { return };
        let is_early = self.is(Twin::ForgetsBeforeHorizon);
        if rec.is_purged && (desk.has_horizon || is_early) {
            desk.record = None;
            desk.is_forgotten = true;
        }
    }

    /// An operator's word, as the stores take it.
    fn resolve(&self, desk: &mut Desk, applied: bool, proof: bool) {
        let Some(mut rec) = desk.record else { return };
        let verdict = if applied { Verdict::Applied } else { Verdict::NotApplied };
        let Ok(transition) = step(Some(rec.state), Event::Resolve(verdict)) else { return };
        if desk.now < rec.lease_until || desk.open.is_some() {
            return;
        }
        // Whoever proves that it is not there took the row away.
        match (applied, desk.has_row) {
            (true, false) => return,
            (false, true) if !proof => return,
            _ => {}
        }
        desk.left.orders -= 1;
        desk.has_row &= applied;
        rec.state = transition.to();
        rec.settled_at = Some(desk.now);
        rec.word = Some(Word::Proved);
        rec.fence += 1;
        desk.record = Some(rec);
    }
}

/// A reply on its way; of two that are on their way at once one is lost, and what comes after its
/// client gave up is not read.
fn reply(desk: &mut Desk, client: u8, reply: Reply) {
    let client = &mut desk.clients[usize::from(client)];
    if client.phase == Phase::Waits {
        client.reply = Some(reply);
    }
}

/// Whether a decision tells a request that did not make the record nothing of it. The end of
/// retention is told to its own principal.
fn is_silent(decision: &Decision, request: Request) -> bool {
    let Decision::Refuse(refusal) = decision else { return false };
    match refusal.code() {
        Code::OperationConflict => true,
        Code::OperationRetentionExpired => request.asks != Asks::Stranger,
        _ => false,
    }
}
