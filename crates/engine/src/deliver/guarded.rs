//! Other people's futures: a panic in one is a value, not the end of a loop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// The future panicked. Its words went to the process's panic hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Panicked;

/// Runs `work` and catches its panic.
pub(super) async fn guarded<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    // Nothing of ours is behind the future but what it borrowed for reading, and it is never
    // polled again after a panic.
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}

/// The same for a call that does not wait.
pub(super) fn guarded_call<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| Panicked)
}
