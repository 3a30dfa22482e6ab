//! Whether the rules hold after a step, as far as two states show it; what only the step itself shows
//! is noted where it is taken.

use counterfoil_core::delivery::State;
use counterfoil_core::observation::{Detail, ObservedState};
use counterfoil_core::operation::{self, Phase};

use super::desk::{Desk, Left, MOST_SENDS, Sender, Sent, Worker};
use super::item::Tick;
use super::{DeliveryModel, LAG, Promise};
use crate::model::rules::Rule;
use crate::model::world::Word;

impl DeliveryModel {
    pub(super) fn judge(&self, before: &Desk, desk: &mut Desk) {
        let shown = self.shown(desk);
        let doubles = self.promise == Promise::AtLeastOnce;
        let mut broken = desk.broken;
        broken.unless(doubles || desk.effects <= 1, Rule::OneEffect);
        broken.unless(shown.state != ObservedState::Applied || desk.effects > 0, Rule::NothingLost);

        let contradicted =
            shown.state == ObservedState::Unknown && shown.detail == Detail::LateContradiction;
        broken.unless(
            match desk.told {
                None => true,
                Some(ObservedState::NotApplied) if contradicted => true,
                Some(told) => told == shown.state,
            },
            Rule::StaysSettled,
        );
        if shown.state != ObservedState::Unknown {
            desk.told = Some(shown.state);
        }

        // Told once, it must stay true; an operator's word without proof is told as no more.
        let was_told = desk.told == Some(ObservedState::NotApplied);
        let is_word = desk.word == Some(Word::Unproved)
            && (contradicted || shown.detail == Detail::ResolvedWithoutProof);
        broken.unless(!was_told || is_word || desk.effects == 0, Rule::NotAppliedIsTrue);
        broken.unless(
            shown.state != ObservedState::NotApplied || !desk.evidence,
            Rule::NotAppliedIsTrue,
        );
        broken.unless(
            desk.operation.is_terminal() || shown.state == ObservedState::Unknown,
            Rule::UnsettledIsUnknown,
        );
        broken.unless(!shown.grants, Rule::NothingGrants);
        broken.unless(shown.believed && shown.detail != Detail::Quarantined, Rule::RecordAgrees);
        broken.unless(
            desk.item.state != State::DeadLetter
                || desk.operation == operation::State::InProgress(Phase::Queued),
            Rule::DeadLetterIsOpen,
        );
        broken.unless(
            !before.item.state.is_final() || desk.item.state == before.item.state,
            Rule::EndedStaysEnded,
        );
        desk.broken = broken;
    }

    /// What time brings at the target: its search shows what was new, and keys are forgotten.
    pub(super) fn age(&self, desk: &mut Desk) {
        let (now, lifetime) = (desk.now, self.lifetime());
        desk.unindexed = desk.unindexed.filter(|made| now < made + LAG);
        desk.key_seen =
            desk.key_seen.filter(|seen| lifetime.is_some_and(|lifetime| now < seen + lifetime));
    }

    /// Forgets what can make no difference any more, and names the workers by what they do, so that
    /// states that behave alike are found to be equal.
    pub(super) fn tidy(&self, desk: &mut Desk) {
        let now = desk.now;
        for sent in &mut desk.sends {
            *sent = sent.and_then(|sent| self.tidy_request(desk.left, sent, now));
        }
        // The order of the rest, and with it their numbers, stays that of their sending.
        let mut kept = desk.sends.iter().flatten().copied();
        desk.sends = std::array::from_fn(|_| kept.next());
        let item = &mut desk.item;
        item.due = item.due.map(|due| if due <= now { 0 } else { due });
        if self.lifetime().is_none() {
            item.first = None;
        }
        if !self.mould.terms.contract.has_lookup() {
            item.last_until = None;
        }
        if item.state.is_final() {
            (item.attempts, item.limit, item.unknown, item.lookups) = (0, 0, 0, 0);
            (item.first, item.last_until) = (None, None);
            desk.left.claims = 0;
        }
        let swapped = swapped(desk);
        if order(&swapped) < order(desk) {
            *desk = swapped;
        }
    }

    /// A request, if anything can still come of it.
    fn tidy_request(&self, left: Left, sent: Sent, now: Tick) -> Option<Sent> {
        let may_be_done = self.may_be_done(&sent, now);
        let is_told = match sent.sender {
            Sender::Gone => true,
            Sender::Reported(_) => left.repeats == 0 || self.bounds.pace.is_prompt(),
            Sender::Waits | Sender::Knows(_) => false,
        };
        if is_told && !may_be_done {
            return None;
        }
        Some(if may_be_done { sent } else { Sent { until: 0, ..sent } })
    }
}

/// The same with the workers' names exchanged.
fn swapped(desk: &Desk) -> Desk {
    let mut desk = *desk;
    desk.workers.swap(0, 1);
    for sent in desk.sends.iter_mut().flatten() {
        sent.worker = 1 - sent.worker;
    }
    if let Some(held) = &mut desk.item.lease {
        held.worker = 1 - held.worker;
    }
    desk
}

/// By which of two names the workers go.
fn order(desk: &Desk) -> ([Worker; 2], Option<u8>, [Option<Sent>; MOST_SENDS]) {
    (desk.workers, desk.item.lease.map(|held| held.worker), desk.sends)
}
