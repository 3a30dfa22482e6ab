//! Calls whose effects are delivered later: taken in durably now, and waited for as long as a caller
//! likes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::admission::Admitted;
use counterfoil_core::delivery::{State, TargetName, Terms};
use counterfoil_core::identity::{Caller, OperationId, OperationKey};
use counterfoil_core::refusal::{Code, Refusal};
use counterfoil_store::outbox::{Acceptance, Accepted, DeliveryView, Which};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::reply::refusal_from_store;

/// How soon a waiting caller looks for what another process did, at first and at the longest.
const LOOK: std::ops::Range<Duration> = Duration::from_millis(250)..Duration::from_millis(1000);
/// Nobody waits for longer.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

impl Engine {
    /// Takes a call in: its request is in the outbox when this returns, and will be delivered
    /// whatever becomes of this process. A call that was taken in before gives its item as it is
    /// now.
    ///
    /// The work runs in a task of the engine: a caller that goes away takes nothing with it. The
    /// answer is never [`Accepted::Refused`].
    ///
    /// # Errors
    /// [`Refusal`] in the caller's terms. After `store_unavailable` the same call may be sent
    /// again.
    pub async fn accept(
        self: &Arc<Self>,
        admitted: Admitted,
        target: TargetName,
        terms: Terms,
        request: Arc<[u8]>,
    ) -> Result<Accepted, Refusal> {
        let acceptance = Acceptance { admitted, target, terms, request };
        self.accept_cancellable(acceptance, CancellationToken::new()).await
    }

    /// As [`accept`](Self::accept), for a call that its caller may take back. That undoes nothing:
    /// it is put on record, and the delivery goes on.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn accept_cancellable(
        self: &Arc<Self>,
        acceptance: Acceptance,
        cancelled: CancellationToken,
    ) -> Result<Accepted, Refusal> {
        let engine = Arc::clone(self);
        let id = acceptance.admitted.operation_id().clone();
        let task = self.spawn(async move { engine.take_in(acceptance, &cancelled).await });
        // A panic behind the hand-over: whether it was committed, the same call again tells.
        task.await.unwrap_or_else(|_| Err(unacknowledged(id)))
    }

    async fn take_in(
        &self,
        acceptance: Acceptance,
        cancelled: &CancellationToken,
    ) -> Result<Accepted, Refusal> {
        let id = acceptance.admitted.operation_id().clone();
        let caller = acceptance.admitted.caller().clone();
        let target = acceptance.target.clone();
        let Some(outbox) = self.outbox() else { return Err(no_outbox(id)) };
        let accepted = outbox.accept(acceptance).await;
        let accepted = accepted.map_err(|error| refusal_from_store(&error, Some(&id)))?;
        match &accepted {
            Accepted::Refused(refusal) => return Err(refusal.clone()),
            Accepted::Fresh(view) => {
                self.wakes().due_at(&target, view.delivery.created_at);
            }
            Accepted::Duplicate(_) => {}
        }
        self.noting(&caller, &id, cancelled, async { Ok(accepted) }).await
    }

    /// As [`wait_for_delivery`](Self::wait_for_delivery) for the item of `view`, for a call that its
    /// caller may take back: that is put on record and ends the wait, as `stop` does. Gives the item
    /// as it was last seen.
    pub async fn await_delivery(
        self: &Arc<Self>,
        view: DeliveryView,
        limit: Duration,
        cancelled: &CancellationToken,
        stop: &CancellationToken,
    ) -> DeliveryView {
        if limit.is_zero() || rests(view.delivery.state) {
            return view;
        }
        let (answered, ended) = (CancellationToken::new(), CancellationToken::new());
        let _ends = ended.clone().drop_guard();
        self.note_unless(&view, answered.clone(), cancelled.clone(), ended);
        let seen = tokio::select! {
            biased;
            seen = self.wait_for_delivery(view.delivery.key, limit) => {
                // The end of an answered call cancels its token too, and nobody took it back.
                answered.cancel();
                seen
            }
            () = cancelled.cancelled() => None,
            () = stop.cancelled() => None,
        };
        seen.unwrap_or(view)
    }

    /// Notes a cancellation that comes before the wait was `answered`, in a task of the engine: the
    /// caller's own future goes with the caller, which is `ended`.
    fn note_unless(
        self: &Arc<Self>,
        view: &DeliveryView,
        answered: CancellationToken,
        cancelled: CancellationToken,
        ended: CancellationToken,
    ) {
        let engine = Arc::clone(self);
        let (tenant, principal) = (view.record.tenant.clone(), view.record.principal.clone());
        let caller = Caller { tenant, principal };
        let id = view.record.operation_id.clone();
        self.spawn(async move {
            tokio::select! {
                biased;
                () = answered.cancelled() => {}
                () = cancelled.cancelled() => engine.note_cancel(&caller, &id).await,
                () = ended.cancelled() => {}
            }
        });
    }

    /// Waits until nothing more happens to an item by itself, at most `limit`, and gives it as it
    /// is then. What this process reports is seen at once, what others report within a second.
    /// `None` if there is no such item, or the ledger could not be read all the while.
    pub async fn wait_for_delivery(
        &self,
        key: OperationKey,
        limit: Duration,
    ) -> Option<DeliveryView> {
        let outbox = self.outbox()?;
        let waiting = self.wakes().wait_for(key);
        let until = Instant::now() + limit.min(LONGEST_WAIT);
        let mut pause = LOOK.start;
        let mut seen = None;
        loop {
            // Listens before it looks: what comes between the two is not missed.
            let mut changed = pin!(waiting.changed.notified());
            changed.as_mut().enable();
            match outbox.delivery(Which::Key(key)).await {
                Ok(None) => return None,
                Ok(Some(view)) if rests(view.delivery.state) => return Some(view),
                Ok(Some(view)) => seen = Some(view),
                Err(error) => tracing::debug!(error = error.kind(), "an item could not be read"),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return seen;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep(pause.min(left)) => pause = (pause * 2).min(LOOK.end),
            }
        }
    }
}

/// Whether waiting is of no use: it is done, or needs a person.
const fn rests(state: State) -> bool {
    !matches!(state, State::Queued | State::Leased | State::Sending)
}

fn no_outbox(id: OperationId) -> Refusal {
    let words = "this server keeps no outbox, and nothing was done; start it on a ledger that \
                 delivers, and send the same operation again";
    Refusal::new(Code::StoreUnavailable, words, Some(id))
}

fn unacknowledged(id: OperationId) -> Refusal {
    let words = "whether the call was taken in is unknown; send the same operation again, its ID \
                 decides what happened";
    Refusal::new(Code::StoreUnavailable, words, Some(id))
}
