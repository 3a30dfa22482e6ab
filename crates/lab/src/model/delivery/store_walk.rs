//! Holds the model's ledger against a real one: a random walk through the model, with each of its
//! steps given to a store as a command, must leave the same item and the same record in both.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use counterfoil_core::admission::{Admitted, Attempt, Authority, Call};
use counterfoil_core::delivery::{ParkReason, TargetName, Withdrawal};
use counterfoil_core::fingerprint::Profile;
use counterfoil_core::identity::{BootId, Nonce, OperationKey};
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_core::operation::Verdict;
use counterfoil_core::time::{Span, Timestamp};
use counterfoil_store::outbox::{
    self, Acceptance, BeginSend, Happened, Report, RevokeOrder, TargetAction, TargetOrder, Which,
};
use counterfoil_store::{Clock, Outbox, Resolve, UnderWay};

use super::DeliveryModel;
use super::desk::{Action, Desk, Order, Sender, Worker};
use super::item::{at, boot, press, ticks};
use super::ledger::{lookup_end, send_end};
use crate::model::world::{caller, plain_id, ring, tool};
use crate::random::Random;

/// A clock that a walk sets forward.
#[derive(Debug, Clone, Default)]
pub struct WalkClock(Arc<AtomicI64>);

impl WalkClock {
    fn set(&self, tick: u8) {
        self.0.store(at(tick).as_ms(), Ordering::SeqCst);
    }
}

impl Clock for WalkClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_ms(self.0.load(Ordering::SeqCst))
    }

    fn since_boot(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst).unsigned_abs())
    }
}

/// Walks through the model and an empty store side by side; gives the number of steps.
///
/// # Errors
/// If the store fails, or item or record differ after a step; the words have the steps until then.
pub async fn walk(
    model: &DeliveryModel,
    seed: u64,
    (store, clock): (&dyn Outbox, &WalkClock),
) -> anyhow::Result<usize> {
    let target = TargetName::parse("desk").expect("four lower-case letters are a name");
    let key = OperationKey::from_bytes([7; 16]);
    let side = Side { model, store, key, target };
    let mut desk = model.start();
    let mut random = Random::new(seed);
    let mut taken: Vec<Action> = Vec::new();
    clock.set(0);
    side.accept().await?;
    loop {
        side.compare(&desk).await.with_context(|| format!("after {taken:?}"))?;
        let mut actions = Vec::new();
        model.list(&desk, &mut actions);
        if actions.is_empty() || taken.len() >= 80 {
            return Ok(taken.len());
        }
        let action = actions[random.below(actions.len() as u64) as usize];
        side.command(&desk, action).await.with_context(|| format!("after {taken:?}"))?;
        model.act(&mut desk, action);
        model.age(&mut desk);
        clock.set(desk.now);
        taken.push(action);
    }
}

/// The store's side of a walk.
struct Side<'a> {
    model: &'a DeliveryModel,
    store: &'a dyn Outbox,
    key: OperationKey,
    target: TargetName,
}

impl Side<'_> {
    async fn accept(&self) -> anyhow::Result<()> {
        let keys = ring();
        self.store.bind_keys(&keys).await?;
        let arguments = parse(b"{}", &JsonLimits::default())?;
        let (tool_id, tool_version) = tool();
        let call = Call {
            caller: &caller("alice"),
            tool_id: &tool_id,
            tool_version: &tool_version,
            profile: Profile::JcsV1,
            operation_id: &plain_id(),
            arguments: &arguments,
            call_arguments: &arguments,
            continuation_state: None,
            input_responses: None,
            authority: Authority::Present,
        };
        let (nonce, boot) = (Nonce::from_bytes([2; 16]), BootId::from_bytes([9; 16]));
        let attempt = Attempt { key: self.key, nonce, boot };
        let admitted = Admitted::admit(&call, &keys, Span::from_secs(3600), attempt)?;
        let (target, terms) = (self.target.clone(), self.model.mould.terms);
        let request = Arc::from(b"request".as_slice());
        self.store.accept(Acceptance { admitted, target, terms, request }).await?;
        Ok(())
    }

    async fn compare(&self, desk: &Desk) -> anyhow::Result<()> {
        let view = self.store.delivery(Which::Key(self.key)).await?.context("the item is gone")?;
        let item = press(&view.delivery);
        ensure!(item == desk.item, "the store has {item:?}, the model {:?}", desk.item);
        let state = view.record.state;
        ensure!(state == desk.operation, "the store has {state:?}, the model {:?}", desk.operation);
        let word = desk.word.map(crate::model::world::Word::resolution);
        let kept = view.record.resolution;
        ensure!(kept == word, "the store has {kept:?}, the model {word:?}");
        Ok(())
    }

    /// Gives the store what a step of the model means to it.
    async fn command(&self, desk: &Desk, action: Action) -> anyhow::Result<()> {
        match action {
            Action::Claim(worker) => self.claim(worker).await,
            Action::TakeBack => {
                Ok(self.store.take_back_lapsed(UnderWay::default(), 10).await.map(drop)?)
            }
            Action::Begin { worker, .. } => {
                let Some(fence) = fence(desk, worker) else { return Ok(()) };
                let lease = ticks(self.model.promise.lease());
                let begin = BeginSend { key: self.key, boot: boot(worker), fence, lease };
                Ok(self.store.begin_send(vec![begin]).await.map(drop)?)
            }
            Action::HandBack(worker) => self.report(desk, worker, Happened::HandedBack).await,
            Action::Block(worker) => {
                let what = Happened::Blocked(ParkReason::AccountChanged);
                self.report(desk, worker, what).await
            }
            Action::Tell(worker) => {
                let Worker::Looked { begun, saw, .. } = desk.workers[usize::from(worker)] else {
                    return Ok(());
                };
                let what = Happened::LookedUp(lookup_end(saw, begun));
                self.report(desk, worker, what).await
            }
            Action::Report(which) | Action::Repeat(which) => {
                let Some(sent) = desk.sends[usize::from(which)] else { return Ok(()) };
                let (Sender::Knows(end) | Sender::Reported(end)) = sent.sender else {
                    return Ok(());
                };
                let by = (sent.worker, i64::from(sent.fence));
                self.report_by(by, Happened::Sent(send_end(end))).await
            }
            Action::Order(order) => self.order(desk, order).await,
            Action::Tick
            | Action::Send(_)
            | Action::Crash(_)
            | Action::Search { .. }
            | Action::Do(_)
            | Action::Refuse(_)
            | Action::Answer { .. }
            | Action::Lose(_) => Ok(()),
        }
    }

    async fn claim(&self, worker: u8) -> anyhow::Result<()> {
        // The model has no target that is parked: whoever claims tries it.
        let order = TargetOrder {
            target: self.target.clone(),
            action: TargetAction::Resume,
            who: "walk".into(),
            reason: "walk".into(),
        };
        self.store.direct_target(order).await?;
        let claim = outbox::Claim {
            target: self.target.clone(),
            boot: boot(worker),
            lease: ticks(self.model.promise.lease()),
            max_count: 1,
            probe: false,
            // The model knows of no clock that the ledger does not own.
            under_way: UnderWay::default(),
        };
        self.store.claim(claim).await?;
        Ok(())
    }

    async fn report(&self, desk: &Desk, worker: u8, what: Happened) -> anyhow::Result<()> {
        match fence(desk, worker) {
            Some(fence) => self.report_by((worker, fence), what).await,
            None => Ok(()),
        }
    }

    async fn report_by(&self, by: (u8, i64), what: Happened) -> anyhow::Result<()> {
        let (worker, fence) = by;
        let report = Report { key: self.key, boot: boot(worker), fence, seed: 0, what };
        self.store.report(vec![report]).await?;
        Ok(())
    }

    async fn order(&self, desk: &Desk, order: Order) -> anyhow::Result<()> {
        let action = match order {
            Order::Redrive => outbox::Action::Redrive,
            Order::Cancel => outbox::Action::Withdraw(Withdrawal::Cancel),
            Order::Abandon => outbox::Action::Withdraw(Withdrawal::Abandon),
            Order::Applied if desk.effects == 0 => return Ok(()),
            Order::NotApplied if !self.model.is_proved_absent(desk) => return Ok(()),
            Order::Applied => return self.resolve(Verdict::Applied, None).await,
            Order::NotApplied => return self.resolve(Verdict::NotApplied, Some("seen")).await,
            Order::NotAppliedUnproved => return self.resolve(Verdict::NotApplied, None).await,
            Order::Revoke | Order::Restore => return self.revoke(order == Order::Revoke).await,
        };
        let order = outbox::Order {
            which: vec![Which::Key(self.key)],
            action,
            who: "walk".into(),
            reason: "walk".into(),
        };
        self.store.direct(order).await?;
        Ok(())
    }

    async fn resolve(&self, verdict: Verdict, proof: Option<&str>) -> anyhow::Result<()> {
        let resolve = Resolve {
            tenant: caller("alice").tenant,
            operation_id: plain_id(),
            verdict,
            who: "walk".into(),
            reason: "walk".into(),
            proof: proof.map(str::to_owned),
        };
        self.store.resolve(resolve).await?;
        Ok(())
    }

    async fn revoke(&self, revoked: bool) -> anyhow::Result<()> {
        let owner = caller("alice");
        let order = RevokeOrder {
            tenant: owner.tenant,
            principal: Some(owner.principal),
            revoked,
            who: "walk".into(),
            reason: "walk".into(),
        };
        self.store.set_revoked(order).await?;
        Ok(())
    }
}

/// The fence under which a worker took the item, if it knows of one.
fn fence(desk: &Desk, worker: u8) -> Option<i64> {
    match desk.workers[usize::from(worker)] {
        Worker::Idle => None,
        Worker::Holds { fence, .. }
        | Worker::Begun { fence, .. }
        | Worker::Looked { fence, .. } => Some(i64::from(fence)),
    }
}
