//! One connection's bytes, with its clocks: a head that dribbles in, and a reader that stands
//! still, end the connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

/// What others may know of a connection.
#[derive(Debug)]
pub(super) struct ConnState {
    /// Whether a request is under way.
    busy: AtomicBool,
    /// Requests that have begun, in count.
    begun: AtomicU64,
    /// Since when no request is under way.
    idle_since: Mutex<Instant>,
    /// Cancelled to end the connection at once.
    pub(super) end: CancellationToken,
}

/// A connection that just answered may still be sending: it is not idle for this long.
const SETTLED: Duration = Duration::from_millis(250);

impl ConnState {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            busy: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            idle_since: Mutex::new(Instant::now()),
            end: CancellationToken::new(),
        })
    }

    /// A request has begun; it is under way until the returned value is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.busy.store(true, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Since when the connection stands without a request; `None` if ending it now would cut
    /// something off.
    pub(super) fn idle_since(&self, now: Instant) -> Option<Instant> {
        if self.busy.load(Ordering::Relaxed) {
            return None;
        }
        let since = *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        let settled = self.begun.load(Ordering::Relaxed) == 0 || now >= since + SETTLED;
        settled.then_some(since)
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Busy(Arc<ConnState>);

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

/// The bytes of one connection.
#[derive(Debug)]
pub(super) struct TimedIo<S> {
    stream: S,
    state: Arc<ConnState>,
    head_time: Duration,
    write_stall_time: Duration,
    /// Runs while a head is awaited: from the start of the connection, and from the first byte of
    /// each further request.
    head: Clock,
    /// Runs while the client does not take what is written.
    stall: Clock,
    /// How many requests had begun when the head's clock was last set.
    begun: u64,
}

#[derive(Debug)]
struct Clock {
    sleep: Pin<Box<Sleep>>,
    runs: bool,
}

impl Clock {
    fn stopped() -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), runs: false }
    }

    fn start(&mut self, time: Duration) {
        self.sleep.as_mut().reset(Instant::now() + time);
        self.runs = true;
    }

    /// Whether it runs and has run out.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.runs && self.sleep.as_mut().poll(cx).is_ready()
    }
}

impl<S> TimedIo<S> {
    pub(super) fn new(
        stream: S,
        state: Arc<ConnState>,
        head_time: Duration,
        write_stall_time: Duration,
    ) -> Self {
        let (mut head, stall) = (Clock::stopped(), Clock::stopped());
        head.start(head_time);
        Self { stream, state, head_time, write_stall_time, head, stall, begun: 0 }
    }

    /// Stops the head's clock once the request has begun.
    fn note_requests(&mut self) {
        let begun = self.state.begun.load(Ordering::Relaxed);
        if begun != self.begun {
            self.begun = begun;
            self.head.runs = false;
        }
    }

    fn poll_stalled<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stall.runs = false;
            return polled;
        }
        if !self.stall.runs {
            self.stall.start(self.write_stall_time);
        }
        if self.stall.poll_over(cx) {
            tracing::debug!("a client left its answer unread for too long");
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.note_requests();
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buffer) {
            let busy = this.state.busy.load(Ordering::Relaxed);
            if !busy && !this.head.runs && buffer.filled().len() > before {
                this.head.start(this.head_time);
            }
            return Poll::Ready(read);
        }
        if this.head.poll_over(cx) {
            tracing::debug!("the head of a request did not arrive in time");
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.poll_stalled(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.poll_stalled(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.poll_stalled(polled, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        let shut = ready!(self.poll_stalled(polled, cx));
        Poll::Ready(shut)
    }
}
