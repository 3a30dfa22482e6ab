//! What the clients do: the product's consumer, which asks after a missing reply and never sends
//! anything fresh; and what a person may do besides, which is to send the same again.

use counterfoil_core::consumer::{Action as Next, after_transport_failure};
use counterfoil_core::observation::ObservedState;
use counterfoil_core::refusal::Retry;

use super::desk::{Action, Asks, Desk, Phase, Reply};
use super::{CallModel, Twin};
use crate::model::rules::Rule;
use crate::model::shown::Shown;

impl CallModel {
    pub(super) fn of_clients(&self, desk: &mut Desk, action: Action) {
        match action {
            Action::Send { client, slot } => {
                let client = &mut desk.clients[usize::from(client)];
                client.sent[usize::from(slot)] = true;
                (client.phase, client.reply) = (Phase::Waits, None);
            }
            Action::GiveUp(client) => {
                let next = after_transport_failure().action;
                desk.broken.unless(next == Next::Reconcile, Rule::NothingGrants);
                let client = &mut desk.clients[usize::from(client)];
                (client.phase, client.reply) = (Phase::Unknown, None);
            }
            Action::Read(client) => self.read(desk, client),
            Action::Ask(client) => {
                let shown = self.status(desk, Self::asks(desk, client));
                if shown.believed && shown.state != ObservedState::Unknown {
                    desk.clients[usize::from(client)].phase = Phase::Knows(shown.state);
                }
            }
            Action::SendAnew(client) => {
                desk.made += 1;
                desk.clients[usize::from(client)].phase = Phase::Refused;
            }
            _ => {}
        }
    }

    fn read(&self, desk: &mut Desk, client: u8) {
        let Some(reply) = desk.clients[usize::from(client)].reply.take() else { return };
        let phase = match reply {
            Reply::Settled(ObservedState::Unknown) => Phase::Unknown,
            Reply::Settled(state) => Phase::Knows(state),
            Reply::Refused(code) => {
                desk.broken.unless(code.retry() != Retry::NewOperation, Rule::NothingGrants);
                match code.retry() {
                    Retry::None => Phase::Refused,
                    Retry::SameOperation | Retry::StatusOnly | Retry::NewOperation => {
                        Phase::Unknown
                    }
                }
            }
            // An earlier round may have taken effect.
            Reply::BadState => Phase::Unknown,
        };
        desk.clients[usize::from(client)].phase = phase;
    }

    /// The status that whoever asks so is told now.
    pub(super) fn status(&self, desk: &Desk, asks: Asks) -> Shown {
        let is_own = desk
            .record
            .is_some_and(|rec| (rec.maker.asks == Asks::Stranger) == (asks == Asks::Stranger));
        let mut shown = self.cast.shown(desk.record.as_ref(), desk.has_row, is_own);
        if self.is(Twin::StatusGrants) && shown.state == ObservedState::Unknown {
            shown.grants = true;
        }
        if self.is(Twin::AbsentIsNotApplied) && desk.record.is_none() {
            shown.state = ObservedState::NotApplied;
        }
        shown
    }
}
