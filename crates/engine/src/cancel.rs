//! A caller that takes its call back after the operation was handed over: the effect settles all the
//! same, and the wish is put on record.

use std::pin::pin;

use counterfoil_core::identity::{Caller, OperationId};
use counterfoil_store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, FINISH_RETRY};

impl Engine {
    /// Does the rest of an operation that is recorded. A cancellation that comes before its end is
    /// noted at once, so that it is on record even if the process dies over the rest.
    pub(crate) async fn noting<T>(
        &self,
        caller: &Caller,
        id: &OperationId,
        cancelled: &CancellationToken,
        rest: impl Future<Output = T>,
    ) -> T {
        let mut rest = pin!(rest);
        tokio::select! {
            biased;
            () = cancelled.cancelled() => {
                tokio::join!(self.note_cancel(caller, id), rest).1
            }
            done = &mut rest => {
                if cancelled.is_cancelled() {
                    self.note_cancel(caller, id).await;
                }
                done
            }
        }
    }

    /// Tried for as long as the process lives, like the last step of an effect.
    pub(crate) async fn note_cancel(&self, caller: &Caller, id: &OperationId) {
        let mut pause = FINISH_RETRY.start;
        loop {
            match self.store.note_cancel(&caller.tenant, id, &caller.principal).await {
                Ok(()) | Err(StoreError::Closed | StoreError::Quarantined { .. }) => return,
                Err(error) => {
                    tracing::warn!(%error, "the note of a cancellation waits for the ledger");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(FINISH_RETRY.end);
                }
            }
        }
    }
}
