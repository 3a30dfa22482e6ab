//! What can happen in a state.

use counterfoil_core::delivery::State;

use stateright::Model as _;

use super::desk::{Action, AtTarget, Desk, Order, Saw, Sender, Worker};
use super::{DeliveryModel, Pace, SEND_LIMIT, Twin};

const ORDERS: [Order; 6] = [
    Order::Redrive,
    Order::Cancel,
    Order::Abandon,
    Order::Applied,
    Order::NotApplied,
    Order::NotAppliedUnproved,
];

impl DeliveryModel {
    /// Every step that may follow, in a fixed order.
    pub(super) fn list(&self, desk: &Desk, actions: &mut Vec<Action>) {
        let is_lapsed = desk.item.lease.is_some_and(|held| held.until <= desk.now);
        if is_lapsed && !self.is(Twin::NeverTakenBack) {
            actions.push(Action::TakeBack);
        }
        for worker in [0, 1] {
            self.of_worker(desk, worker, actions);
        }
        self.of_requests(desk, actions);
        let may_pass = !self.bounds.pace.is_prompt()
            || actions.iter().all(|action| self.next_state(desk, *action).is_none());
        self.of_trouble(desk, actions);
        if desk.now < self.bounds.horizon && may_pass {
            actions.push(Action::Tick);
        }
    }

    fn of_worker(&self, desk: &Desk, worker: u8, actions: &mut Vec<Action>) {
        match desk.workers[usize::from(worker)] {
            Worker::Idle => {
                let is_due = desk.item.due.is_some_and(|due| due <= desk.now);
                if desk.item.state == State::Queued && is_due && desk.left.claims > 0 {
                    actions.push(Action::Claim(worker));
                }
            }
            Worker::Holds { looks: false, .. } => {
                actions.push(Action::Begin { worker, heard: true });
                if self.is(Twin::SendsBeforeRecord) {
                    actions.push(Action::Send(worker));
                }
            }
            Worker::Holds { looks: true, .. } => {
                for saw in Self::may_be_seen(desk) {
                    actions.push(Action::Search { worker, saw: saw as u8 });
                }
            }
            Worker::Begun { until, .. } => {
                if desk.now + SEND_LIMIT <= until {
                    actions.push(Action::Send(worker));
                } else if self.bounds.pace.is_prompt() {
                    actions.push(Action::HandBack(worker));
                }
            }
            Worker::Looked { .. } => actions.push(Action::Tell(worker)),
        }
    }

    fn of_requests(&self, desk: &Desk, actions: &mut Vec<Action>) {
        for (which, sent) in (0..).zip(desk.sends.iter().flatten()) {
            if self.may_be_done(sent, desk.now) {
                actions.push(Action::Do(which));
            }
            match sent.sender {
                Sender::Waits if sent.target == AtTarget::Done => {
                    actions.push(Action::Answer { sent: which, kind: 0 });
                }
                Sender::Waits if sent.target == AtTarget::Refused => {
                    let kinds: &[u8] = match self.bounds.pace {
                        Pace::Returns => &[0, 2],
                        Pace::Free | Pace::Prompt => &[0, 1, 2],
                    };
                    let answer = |kind: &u8| Action::Answer { sent: which, kind: *kind };
                    actions.extend(kinds.iter().map(answer));
                }
                Sender::Knows(_) => actions.push(Action::Report(which)),
                Sender::Waits | Sender::Reported(_) | Sender::Gone => {}
            }
        }
    }

    /// What goes wrong, and what people do.
    fn of_trouble(&self, desk: &Desk, actions: &mut Vec<Action>) {
        let left = desk.left;
        let is_prompt = self.bounds.pace.is_prompt();
        let may_fail = !is_prompt || left.failures > 0;
        for worker in [0, 1] {
            let holds = desk.workers[usize::from(worker)];
            if matches!(holds, Worker::Holds { looks: false, .. }) && left.repeats > 0 {
                actions.push(Action::Begin { worker, heard: false });
            }
            if matches!(holds, Worker::Holds { .. } | Worker::Begun { .. }) && !is_prompt {
                actions.push(Action::HandBack(worker));
            }
            if matches!(holds, Worker::Holds { .. }) && left.orders > 0 && desk.item.attempts > 0 {
                actions.push(Action::Block(worker));
            }
            if matches!(holds, Worker::Holds { looks: true, .. }) && may_fail {
                actions.push(Action::Search { worker, saw: Saw::Nothing as u8 });
            }
            let has_requests = desk.sends.iter().flatten().any(|sent| {
                sent.worker == worker && matches!(sent.sender, Sender::Waits | Sender::Knows(_))
            });
            if left.crashes > 0 && (holds != Worker::Idle || has_requests) {
                actions.push(Action::Crash(worker));
            }
        }
        for (which, sent) in (0..).zip(desk.sends.iter().flatten()) {
            if self.may_be_done(sent, desk.now) && may_fail {
                actions.push(Action::Refuse(which));
            }
            match sent.sender {
                Sender::Waits if may_fail => actions.push(Action::Lose(which)),
                Sender::Reported(_) if left.repeats > 0 && !is_prompt => {
                    actions.push(Action::Repeat(which))
                }
                _ => {}
            }
        }
        if left.orders > 0 {
            actions.extend(ORDERS.map(Action::Order));
            let turn = if desk.revoked { Order::Restore } else { Order::Revoke };
            actions.push(Action::Order(turn));
        }
    }
}
