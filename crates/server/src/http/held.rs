//! A response body that holds on to something until its last byte is sent, or until nobody wants
//! it any more.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A body that ends by itself, and at the latest when `stop` is cancelled.
pub(super) struct HeldBody<T> {
    body: Body,
    held: Option<T>,
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<T> HeldBody<T> {
    /// Drops `held` with the last byte.
    pub(super) fn new(body: Body, held: T) -> Self {
        Self { body, held: Some(held), stop: None }
    }

    /// As [`new`](Self::new), for a stream without an end of its own.
    pub(super) fn until(body: Body, held: T, stop: CancellationToken) -> Self {
        let stop = Some(Box::pin(stop.cancelled_owned()));
        Self { body, held: Some(held), stop }
    }
}

impl<T: Unpin> HttpBody for HeldBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let stopped = self.stop.as_mut().is_some_and(|stop| stop.as_mut().poll(cx).is_ready());
        let polled =
            if stopped { Poll::Ready(None) } else { Pin::new(&mut self.body).poll_frame(cx) };
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.held = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
