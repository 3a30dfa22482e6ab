//! The target of the model, and what its answers come to for the sender.

use super::desk::{AtTarget, Desk, End, Refusal, Saw, Sender, Sent};
use super::item::Tick;
use super::{DeliveryModel, LAG};

impl DeliveryModel {
    /// Whether a request may still be done.
    pub(super) fn may_be_done(&self, sent: &Sent, now: Tick) -> bool {
        sent.target == AtTarget::Awaited && now < sent.until + self.promise.grace()
    }

    /// The target does what a request asks for, unless it remembers its key.
    pub(super) fn execute(&self, desk: &mut Desk, which: u8) {
        let now = desk.now;
        let Some(sent) = &mut desk.sends[usize::from(which)] else { return };
        sent.target = AtTarget::Done;
        // What is past its lifetime was forgotten when the tick came.
        if self.lifetime().is_some() && desk.key_seen.is_some() {
            return;
        }
        desk.effects = desk.effects.saturating_add(1);
        desk.unindexed = Some(now);
        desk.key_seen = self.lifetime().map(|_| now);
    }

    /// What a search may show now: an effect that is not indexed yet may be missed.
    pub(super) fn may_be_seen(desk: &Desk) -> Vec<Saw> {
        let missed = u8::from(desk.unindexed.is_some_and(|made| desk.now < made + LAG));
        let least = desk.effects.saturating_sub(missed).min(2);
        (least..=desk.effects.min(2))
            .map(|count| [Saw::None, Saw::One, Saw::Many][usize::from(count)])
            .collect()
    }
}

/// The answer comes, if there is one.
pub(super) fn answer(desk: &mut Desk, which: u8, kind: u8) {
    let Some(sent) = &mut desk.sends[usize::from(which)] else { return };
    sent.sender = Sender::Knows(match sent.target {
        AtTarget::Done => End::Applied,
        AtTarget::Refused => {
            End::Refused([Refusal::Later, Refusal::Never, Refusal::Nobody][usize::from(kind)])
        }
        AtTarget::Awaited => return,
    });
}

/// No answer comes that could be understood. Its sender writes nothing more.
pub(super) fn lose(desk: &mut Desk, which: u8) {
    let now = desk.now;
    let Some(sent) = &mut desk.sends[usize::from(which)] else { return };
    sent.sender = Sender::Knows(End::Unknown);
    sent.until = sent.until.min(now);
}
