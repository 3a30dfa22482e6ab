//! Effects that are sent while their caller waits: recorded as sent before the first byte, reported
//! whatever becomes of the caller, and given again to whoever asks again.
//!
//! What a request is and how it reaches its upstream is the embedder's: it implements [`Sender`].

mod course;
mod keeper;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::admission::Admitted;
use counterfoil_core::direct::{Direct, Leg, Meaning, Reply, Upstream};
use counterfoil_core::identity::{OperationId, OperationKey};
use counterfoil_core::record::{Record, StoredResult};
use counterfoil_core::refusal::Refusal;
use counterfoil_store::DirectLedger;
use counterfoil_store::direct::{DirectView, Identity, LookupFound, WhichDirect};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::reply::refusal_from_store;

pub(crate) use keeper::Keeper;

/// A boxed future of a sender.
pub type SenderFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How one request reaches its upstream.
pub trait Sender: Debug + Send + Sync + 'static {
    /// Whether the upstream could take the request at once.
    fn is_ready(&self) -> bool;

    /// Waits until it could; `Err` if it never will.
    fn ready(&self) -> SenderFuture<'_, Result<(), NeverReady>>;

    /// Sends the request and waits for its answer, however long that takes. It is called again only
    /// after [`Sent::Not`]. `record` is that of the operation, whose ID need not be the call's own: it
    /// may have joined it.
    fn send<'a>(&'a self, record: &'a Record) -> SenderFuture<'a, Sent>;
}

/// The upstream is gone for good, in words for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeverReady(pub String);

/// How sending a request ended.
#[derive(Debug, Clone)]
pub enum Sent {
    /// An answer came.
    Answered {
        /// What it means for the effect.
        meaning: Meaning,
        /// The answer, if it can be kept.
        reply: Option<Reply>,
        /// What to keep where the answer cannot be.
        result: Option<StoredResult>,
    },
    /// Not one byte of the request left. Why, in words.
    Not(String),
    /// It may have arrived, and no answer will come. Why, in words.
    Lost(String),
}

/// A call whose request is sent while its caller waits.
#[derive(Debug)]
pub struct DirectCall {
    /// The call.
    pub admitted: Admitted,
    /// Where its request goes.
    pub upstream: Upstream,
    /// Which request of its operation it is.
    pub leg: Leg,
    /// How the operation is found.
    pub identity: Identity,
    /// What a later look at the upstream needs to know of the call; kept until its answer is purged.
    pub memo: Option<Arc<[u8]>>,
    /// How the request is sent.
    pub sender: Arc<dyn Sender>,
    /// Cancelled when the caller takes its call back or leaves.
    pub cancelled: CancellationToken,
    /// How long the call waits for an upstream that is not ready.
    pub patience: Duration,
}

/// What a call to an upstream came to.
#[derive(Debug)]
pub enum DirectAnswer {
    /// The operation has an answer: this call's own, or a kept one.
    Answer {
        /// The operation, with the answer.
        view: DirectView,
        /// The request that it answers.
        leg: u32,
        /// Whether it was kept from an earlier call.
        replayed: bool,
        /// Whether the call brought no ID, and joined the operation.
        joined: bool,
    },
    /// It may have happened, and no answer came to this very call.
    Unknown {
        /// The operation.
        view: DirectView,
        /// Why nobody knows.
        why: String,
    },
    /// Nothing was sent. The same ID may be sent again, unless the caller took the call back.
    NotSent {
        /// The operation.
        view: DirectView,
        /// Why not.
        why: String,
    },
    /// Refused before anything was sent.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Whether the call brought no ID, and joined the operation that the refusal names.
        joined: bool,
    },
    /// The continuation fits nothing that this ledger asked for.
    Unfit,
}

impl Engine {
    /// The direct operations of the ledger; `None` if it keeps none.
    #[must_use]
    pub fn direct(&self) -> Option<&Arc<dyn DirectLedger>> {
        self.direct.as_ref().map(Keeper::ledger)
    }

    /// Sends a call's request once, or gives what its operation was answered with.
    ///
    /// Once begun, the work goes on in a task of the engine: a caller that goes away takes nothing
    /// with it.
    pub async fn send(self: &Arc<Self>, call: DirectCall) -> DirectAnswer {
        let id = call.admitted.operation_id().clone();
        let engine = Arc::clone(self);
        let task = self.spawn(async move { engine.course(call).await });
        task.await.unwrap_or_else(|_| DirectAnswer::Refused {
            // It panicked after handing its work to the store: nobody here knows the end.
            refusal: Refusal::in_progress(id),
            joined: false,
        })
    }

    /// Notes that a reply with the operation's own result was written to a live caller, or that it
    /// was not after all. It is on record with the next write, or soon.
    pub fn tell(&self, key: OperationKey, answered: bool) {
        if let Some(keeper) = &self.direct {
            keeper.tell(key, answered);
        }
    }

    /// Whether this process has a request of the operation in hand: what a lease says of it, by a
    /// clock that may have been set, is not the end.
    #[must_use]
    pub fn holds(&self, key: OperationKey) -> bool {
        self.direct.as_ref().is_some_and(|keeper| keeper.holds(key))
    }

    /// The answer to an earlier request of an operation.
    ///
    /// # Errors
    /// [`Refusal`] with `store_unavailable` if the ledger cannot be read.
    pub async fn earlier_reply(
        &self,
        key: OperationKey,
        leg: u32,
    ) -> Result<Option<Reply>, Refusal> {
        let Some(direct) = self.direct() else { return Ok(None) };
        direct.reply(key, leg).await.map_err(|error| refusal_from_store(&error, None))
    }

    /// One direct operation, whoever's it is; for the upstream's own side.
    ///
    /// # Errors
    /// As [`earlier_reply`](Self::earlier_reply).
    pub async fn direct_view(&self, which: WhichDirect) -> Result<Option<DirectView>, Refusal> {
        let Some(direct) = self.direct() else { return Ok(None) };
        direct.direct_view(which).await.map_err(|error| refusal_from_store(&error, None))
    }

    /// Operations of an upstream that are in doubt, a page in the order of their keys.
    ///
    /// # Errors
    /// As [`earlier_reply`](Self::earlier_reply).
    pub async fn in_doubt(
        &self,
        upstream: &Upstream,
        after: Option<OperationKey>,
        max_count: usize,
    ) -> Result<Vec<DirectView>, Refusal> {
        let Some(direct) = self.direct() else { return Ok(Vec::new()) };
        let found = direct.in_doubt(upstream.clone(), after, max_count).await;
        found.map_err(|error| refusal_from_store(&error, None))
    }

    /// Settles an operation in doubt by what a look at its upstream proved.
    ///
    /// # Errors
    /// As [`earlier_reply`](Self::earlier_reply); saying it again is safe.
    pub async fn settle_by_lookup(
        &self,
        found: LookupFound,
    ) -> Result<Option<DirectView>, Refusal> {
        let Some(direct) = self.direct() else { return Ok(None) };
        let settled = direct.settle_by_lookup(found).await;
        settled.map_err(|error| refusal_from_store(&error, None))
    }

    /// Moves operations whose owners are gone: what may have been sent is in doubt from then on.
    /// Says how many.
    ///
    /// # Errors
    /// As [`earlier_reply`](Self::earlier_reply).
    pub async fn lapse_direct(&self) -> Result<usize, Refusal> {
        let Some(direct) = self.direct() else { return Ok(0) };
        direct.lapse(LAPSED_AT_ONCE).await.map_err(|error| refusal_from_store(&error, None))
    }
}

/// So many operations are moved by one transaction.
const LAPSED_AT_ONCE: usize = 100;

/// The parts of a view that an account is made of.
pub(crate) fn seen(view: &DirectView) -> (&Record, &Direct, Option<&Reply>) {
    (&view.record, &view.item, view.reply.as_deref())
}

/// No ledger of direct operations was given to this engine.
pub(crate) fn no_ledger(id: OperationId) -> Refusal {
    use counterfoil_core::refusal::Code;
    let words = "this ledger keeps no operations that are sent while their caller waits, and \
                 nothing was done";
    Refusal::new(Code::StoreUnavailable, words, Some(id))
}
