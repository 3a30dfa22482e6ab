//! What can happen in a state.

use stateright::Model as _;

use super::desk::{Action, Client, Desk, Other, Phase, Rest};
use super::{CallModel, Twin};

const ENDINGS: [Rest; 3] = [Rest::Whole, Rest::Partly, Rest::Undone];

impl CallModel {
    /// Every step that may follow, in a fixed order.
    pub(super) fn list(&self, desk: &Desk, actions: &mut Vec<Action>) {
        self.of_server(desk, actions);
        for client in [0, 1] {
            self.of_client(desk, client, actions);
        }
        let is_idle = !self.bounds.prompt
            || actions.iter().all(|action| self.next_state(desk, *action).is_none());
        self.of_trouble(desk, actions);
        // A transaction has one time: that of its decision.
        if desk.now < self.bounds.horizon && desk.open.is_none() && is_idle {
            actions.push(Action::Tick);
        }
    }

    fn of_server(&self, desk: &Desk, actions: &mut Vec<Action>) {
        if desk.open.is_some() {
            actions.push(Action::Commit);
        } else {
            for (number, client) in (0..).zip(&desk.clients) {
                for slot in [0, 1] {
                    if client.sent[usize::from(slot)] && self.is_of_use(client) {
                        actions.push(Action::Take { client: number, slot });
                    }
                }
            }
            if desk.rest.is_some() {
                actions.extend(ENDINGS.map(Action::Rest));
            }
        }
    }

    /// Where all is prompt a request is taken while its client waits, and not ever again.
    fn is_of_use(&self, client: &Client) -> bool {
        !self.bounds.prompt || (client.phase == Phase::Waits && client.reply.is_none())
    }

    fn of_client(&self, desk: &Desk, number: u8, actions: &mut Vec<Action>) {
        let client = &desk.clients[usize::from(number)];
        match client.phase {
            Phase::Idle | Phase::Unknown => {
                let issued = desk.issued[Self::shelf(desk, number)];
                for slot in [0, 1] {
                    let is_sent = client.sent[usize::from(slot)];
                    let may_send =
                        issued[usize::from(slot)].is_some() && (slot == 0 || number == 0);
                    if may_send && !(self.bounds.prompt && is_sent) {
                        actions.push(Action::Send { client: number, slot });
                    }
                }
                if number == 0 && client.phase == Phase::Unknown && issued[1].is_none() {
                    actions.push(Action::FirstRound);
                }
                if client.phase == Phase::Unknown {
                    actions.push(Action::Ask(number));
                    if self.is(Twin::MissingReplyGrants) || self.is(Twin::StatusGrants) {
                        actions.push(Action::SendAnew(number));
                    }
                }
            }
            Phase::Waits => {
                if client.reply.is_some() {
                    actions.push(Action::Read(number));
                }
            }
            Phase::Refused | Phase::Knows(_) => {}
        }
    }

    /// What goes wrong, what time brings, and what people do.
    fn of_trouble(&self, desk: &Desk, actions: &mut Vec<Action>) {
        for (number, client) in (0..).zip(&desk.clients) {
            if client.phase == Phase::Waits {
                actions.push(Action::GiveUp(number));
            }
        }
        if desk.open.is_some() && desk.left.failures > 0 {
            actions.push(Action::Fail);
        }
        let is_unread = desk.clients.iter().any(|client| client.reply.is_some());
        let has_memory = desk.open.is_some() || desk.rest.is_some() || is_unread;
        if has_memory && desk.left.crashes > 0 {
            actions.push(Action::Crash);
        }
        if desk.record.is_some() {
            actions.push(Action::Purge);
            if desk.world.is_timed {
                actions.push(Action::Forget);
            }
            if desk.left.orders > 0 {
                for (applied, proof) in [(true, false), (false, false), (false, true)] {
                    actions.push(Action::Resolve { applied, proof });
                }
            }
        }
        if desk.world.is_timed && !desk.has_horizon && desk.now > 1 {
            actions.push(Action::MoveHorizon);
        }
    }

    /// Where the continuations of a client are kept.
    pub(super) fn shelf(desk: &Desk, client: u8) -> usize {
        usize::from(client == 1 && desk.world.other != Other::Same)
    }
}
