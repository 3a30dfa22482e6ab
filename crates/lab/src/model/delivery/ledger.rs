//! What the ledger does: it runs the product's step in one transaction and keeps item and record
//! together, as the stores do. The twins' lies are told here.

use counterfoil_core::delivery::{
    Change, ErrorClass, Event, Lease, LookupEnd, ParkReason, SendEnd, State, Then, Withdrawal, Work,
};
use counterfoil_core::identity::BootId;
use counterfoil_core::operation::{self, Phase, Verdict};
use counterfoil_core::record::StoredResult;

use super::desk::{Action, AtTarget, Desk, End, Order, Refusal, Saw, Sender, Sent, Worker};
use super::item::{Held, Item, Tick, at, boot};
use super::target::{answer, lose};
use super::{DeliveryModel, SEND_LIMIT, Twin};
use crate::model::rules::Rule;
use crate::model::world::Word;

impl DeliveryModel {
    /// Takes a step.
    pub(super) fn act(&self, desk: &mut Desk, action: Action) {
        match action {
            Action::Tick => desk.now += 1,
            Action::Claim(worker) => self.claim(desk, worker),
            Action::TakeBack => self.take_back(desk),
            Action::Begin { worker, heard } => self.begin(desk, worker, heard),
            Action::Send(worker) => self.send(desk, worker),
            Action::HandBack(worker) => self.hand_back(desk, worker),
            Action::Block(worker) => self.block(desk, worker),
            Action::Crash(worker) => crash(desk, worker),
            Action::Search { worker, saw } => search(desk, worker, saw),
            Action::Tell(worker) => self.tell(desk, worker),
            Action::Do(which) => self.execute(desk, which),
            Action::Refuse(which) => {
                if let Some(sent) = &mut desk.sends[usize::from(which)] {
                    sent.target = AtTarget::Refused;
                    desk.left.failures = desk.left.failures.saturating_sub(1);
                }
            }
            Action::Answer { sent, kind } => answer(desk, sent, kind),
            Action::Lose(which) => {
                lose(desk, which);
                desk.left.failures = desk.left.failures.saturating_sub(1);
            }
            Action::Report(which) => self.report(desk, which),
            Action::Repeat(which) => {
                desk.left.repeats -= 1;
                self.report(desk, which);
            }
            Action::Order(order) => {
                desk.left.orders -= 1;
                self.order(desk, order);
            }
        }
    }

    /// One step of the item with its part of the record, in one transaction.
    fn take(&self, desk: &mut Desk, event: Event) -> Option<Change> {
        let (item, change) = self.mould.step(&desk.item, event, desk.now).ok()?;
        self.learn(desk, change.operation);
        desk.item = item;
        if self.is(Twin::ContradictionDropped) {
            desk.item.contradicted = false;
        }
        if self.is(Twin::DeadLetterSettles) && item.state == State::DeadLetter {
            desk.operation = operation::State::NotApplied;
        }
        Some(change)
    }

    fn learn(&self, desk: &mut Desk, event: Option<operation::Event>) {
        let Some(event) = event else { return };
        match operation::step(Some(desk.operation), event) {
            Ok(transition) => desk.operation = transition.to(),
            // The store would set both aside; they must never come to it.
            Err(_) => desk.broken.unless(false, Rule::RecordAgrees),
        }
    }

    fn claim(&self, desk: &mut Desk, worker: u8) {
        if desk.revoked {
            self.take(desk, Event::Park(ParkReason::PrincipalRevoked));
            return;
        }
        let until = at(desk.now + self.promise.lease());
        let lease = Lease { boot: boot(worker), until, probe: false };
        self.take(desk, Event::Claim { lease });
        if desk.item.state == State::Leased {
            desk.left.claims -= 1;
            let work = self.mould.cast(&desk.item).work(at(desk.now));
            let looks = work == Some(Work::LookUp);
            desk.workers[usize::from(worker)] = Worker::Holds { fence: desk.item.fence, looks };
        }
    }

    fn take_back(&self, desk: &mut Desk) {
        match desk.item.lease {
            Some(held) if held.until <= desk.now => {
                if self.is(Twin::LapseIsUnsent) && desk.item.state == State::Sending {
                    let by = (boot(held.worker), i64::from(desk.item.fence));
                    self.take(desk, Event::HandBack { by });
                } else {
                    self.take(desk, Event::Lapse { seed: 0 });
                }
            }
            _ => {}
        }
    }

    /// The last look before the first byte, as the stores take it.
    fn begin(&self, desk: &mut Desk, worker: u8, heard: bool) {
        let Worker::Holds { fence, .. } = desk.workers[usize::from(worker)] else { return };
        let is_leased = desk.item.state == State::Leased && holds(&desk.item, worker, fence);
        let until = desk.now + self.promise.lease();
        let event = if desk.revoked && is_leased && !self.is(Twin::RevokedIsSent) {
            Event::Park(ParkReason::PrincipalRevoked)
        } else {
            Event::BeginSend { by: by(worker, fence), lease_until: at(until) }
        };
        let is_sending = desk.item.state == State::Sending && holds(&desk.item, worker, fence);
        let mut taken = self.take(desk, event).is_some();
        if self.is(Twin::RenewsUnchecked) && is_sending {
            desk.item.lease = Some(Held { worker, until });
            taken = true;
        }
        let begun = taken && desk.item.state == State::Sending;
        desk.broken.unless(!(begun && is_leased && desk.revoked), Rule::RevokedNotSent);
        if heard {
            desk.workers[usize::from(worker)] =
                if begun { Worker::Begun { fence, until } } else { Worker::Idle };
        } else {
            desk.left.repeats -= 1;
        }
    }

    fn send(&self, desk: &mut Desk, worker: u8) {
        let fence = match desk.workers[usize::from(worker)] {
            Worker::Begun { fence, .. } | Worker::Holds { fence, .. } => fence,
            Worker::Idle | Worker::Looked { .. } => return,
        };
        let Some(place) = desk.sends.iter().position(Option::is_none) else { return };
        let until = desk.now + SEND_LIMIT;
        let is_recorded = !(desk.item.state == State::Leased && desk.item.fence == fence);
        desk.broken.unless(is_recorded, Rule::RecordedBeforeSent);
        let outlives_key = match (self.lifetime(), desk.item.first) {
            (Some(lifetime), Some(first)) => until > first + lifetime,
            _ => false,
        };
        desk.broken.unless(!(outlives_key && desk.item.unknown > 0), Rule::KeyWithinLifetime);
        let (target, sender) = (AtTarget::Awaited, Sender::Waits);
        desk.sends[place] = Some(Sent { worker, fence, until, target, sender });
        desk.workers[usize::from(worker)] = Worker::Idle;
    }

    fn hand_back(&self, desk: &mut Desk, worker: u8) {
        let held = desk.workers[usize::from(worker)];
        let (Worker::Begun { fence, .. } | Worker::Holds { fence, .. }) = held else { return };
        self.take(desk, Event::HandBack { by: by(worker, fence) });
        desk.workers[usize::from(worker)] = Worker::Idle;
    }

    fn block(&self, desk: &mut Desk, worker: u8) {
        let Worker::Holds { fence, .. } = desk.workers[usize::from(worker)] else { return };
        if holds(&desk.item, worker, fence) {
            self.take(desk, Event::Park(ParkReason::AccountChanged));
        }
        desk.left.orders -= 1;
        desk.workers[usize::from(worker)] = Worker::Idle;
    }

    fn tell(&self, desk: &mut Desk, worker: u8) {
        let Worker::Looked { fence, begun, saw } = desk.workers[usize::from(worker)] else {
            return;
        };
        desk.workers[usize::from(worker)] = Worker::Idle;
        let end = lookup_end(saw, if self.is(Twin::AbsenceAtOnce) { u8::MAX } else { begun });
        let event = |by| Event::LookedUp { by, end: end.clone(), seed: 0 };
        self.hear(desk, (worker, fence), saw == Saw::One, event);
    }

    fn report(&self, desk: &mut Desk, which: u8) {
        let Some(sent) = &mut desk.sends[usize::from(which)] else { return };
        let (Sender::Knows(end) | Sender::Reported(end)) = sent.sender else { return };
        sent.sender = Sender::Reported(end);
        let from = (sent.worker, sent.fence);
        let is_refusal = matches!(end, End::Refused(_));
        let event = |by| Event::Sent { by, end: send_end(end), seed: 0 };
        let unknown = desk.item.unknown;
        self.hear(desk, from, end == End::Applied, event);
        if self.is(Twin::RefusalOverridesUnknown) && is_refusal {
            desk.item.unknown = 0;
        }
        if self.is(Twin::StaleRefusalIsProof) && is_refusal && unknown > 0 {
            desk.item.unknown = unknown - 1;
        }
        let held_before = desk.item.fence == from.1;
        let is_stale_change = desk.item.unknown < unknown && !held_before;
        desk.broken.unless(!is_stale_change, Rule::StaleCompletesNothing);
    }

    /// A worker's report, which may be of an item that it has lost.
    fn hear(
        &self,
        desk: &mut Desk,
        (worker, fence): (u8, u8),
        is_there: bool,
        event: impl Fn((BootId, i64)) -> Event,
    ) {
        let before = desk.item;
        let is_held = holds(&before, worker, fence);
        let from = match before.lease {
            Some(held) if self.is(Twin::NoFencing) => by(held.worker, before.fence),
            _ => by(worker, fence),
        };
        let fenced = self.take(desk, event(from)).is_some_and(|change| change.fenced);
        desk.evidence |= is_there;
        if is_held {
            return;
        }
        let after = desk.item;
        let kept = after.fence == before.fence && after.attempts == before.attempts;
        let holds = match is_there {
            true => kept,
            false => after == before,
        };
        desk.broken.unless(holds && fenced, Rule::StaleCompletesNothing);
    }

    fn order(&self, desk: &mut Desk, order: Order) {
        match order {
            Order::Redrive => self.redrive(desk),
            Order::Cancel => self.withdraw(desk, Withdrawal::Cancel),
            Order::Abandon => self.withdraw(desk, Withdrawal::Abandon),
            Order::Applied => {
                if desk.effects > 0 {
                    self.resolve(desk, Verdict::Applied, false);
                }
            }
            Order::NotApplied => {
                if self.is_proved_absent(desk) {
                    self.resolve(desk, Verdict::NotApplied, true);
                }
            }
            Order::NotAppliedUnproved => self.resolve(desk, Verdict::NotApplied, false),
            Order::Revoke => desk.revoked = true,
            Order::Restore => {
                desk.revoked = false;
                if desk.item.park == Some(ParkReason::PrincipalRevoked) {
                    self.take(desk, Event::Unpark);
                }
            }
        }
    }

    /// Whether an operator can prove that the target did nothing and never will.
    pub(super) fn is_proved_absent(&self, desk: &Desk) -> bool {
        let may_be_done = desk.sends.iter().flatten().any(|sent| self.may_be_done(sent, desk.now));
        let may_be_sent = desk.workers.iter().any(|w| matches!(w, Worker::Begun { .. }));
        desk.effects == 0 && !may_be_done && !may_be_sent
    }

    fn redrive(&self, desk: &mut Desk) {
        self.take_back(desk);
        if self.is(Twin::RedriveAfterAbandon) && desk.item.state == State::Cancelled {
            desk.item.state = State::DeadLetter;
        }
        self.take(desk, Event::Redrive);
    }

    fn withdraw(&self, desk: &mut Desk, how: Withdrawal) {
        self.take_back(desk);
        if self.is(Twin::CancelIgnoresUnknown) {
            desk.item.unknown = 0;
        }
        self.take(desk, Event::Withdraw(how));
    }

    /// An operator's word, as the stores take it.
    fn resolve(&self, desk: &mut Desk, verdict: Verdict, has_proof: bool) {
        self.take_back(desk);
        let unknown = desk.item.unknown;
        let may_still_be_sent = matches!(
            desk.operation,
            operation::State::InProgress(Phase::Dispatched) | operation::State::InDoubt
        );
        if self.take(desk, Event::Resolve(verdict)).is_none() {
            return;
        }
        let unsure = verdict == Verdict::NotApplied && !has_proof;
        desk.word = Some(match unsure && (may_still_be_sent || unknown > 0) {
            true if !self.is(Twin::WordIsProof) => Word::Unproved,
            _ => Word::Proved,
        });
    }
}

/// A worker's run and fence.
fn by(worker: u8, fence: u8) -> (BootId, i64) {
    (boot(worker), i64::from(fence))
}

fn holds(item: &Item, worker: u8, fence: u8) -> bool {
    item.fence == fence && item.lease.is_some_and(|held: Held| held.worker == worker)
}

fn result() -> StoredResult {
    StoredResult::from_text("done")
}

fn crash(desk: &mut Desk, worker: u8) {
    desk.left.crashes -= 1;
    desk.workers[usize::from(worker)] = Worker::Idle;
    for sent in desk.sends.iter_mut().flatten().filter(|sent| sent.worker == worker) {
        sent.sender = Sender::Gone;
        // The bytes that it wrote are on their way.
        sent.until = sent.until.min(desk.now);
    }
}

fn search(desk: &mut Desk, worker: u8, saw: u8) {
    let Worker::Holds { fence, .. } = desk.workers[usize::from(worker)] else { return };
    let saw = [Saw::None, Saw::One, Saw::Many, Saw::Nothing][usize::from(saw)];
    if saw == Saw::Nothing {
        desk.left.failures = desk.left.failures.saturating_sub(1);
    }
    let begun = desk.now;
    desk.workers[usize::from(worker)] = Worker::Looked { fence, begun, saw };
}

/// What the searcher reports.
pub(super) fn lookup_end(saw: Saw, begun: Tick) -> LookupEnd {
    match saw {
        Saw::None => LookupEnd::Absent { begun_at: at(begun) },
        Saw::One => LookupEnd::Found { external_id: None, result: result() },
        Saw::Many => LookupEnd::Many,
        Saw::Nothing => LookupEnd::Open { words: String::new(), retry_after: None },
    }
}

/// What the sender reports.
pub(super) fn send_end(end: End) -> SendEnd {
    let words = String::new();
    match end {
        End::Applied => SendEnd::Applied { external_id: None, result: result() },
        End::Refused(kind) => {
            let (class, then) = match kind {
                Refusal::Later => (ErrorClass::RateLimited, Then::Retry { after: None }),
                Refusal::Never => (ErrorClass::Rejected, Then::DeadLetter),
                Refusal::Nobody => (ErrorClass::Credential, Then::ParkTarget),
            };
            SendEnd::NotApplied { class, words, then }
        }
        End::Unknown => SendEnd::Unknown { class: ErrorClass::NoReply, words, retry_after: None },
    }
}
