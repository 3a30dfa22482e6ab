//! The one task that writes, so that a frame is never torn and a closed pipe is never a panic.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::DrainCause;
use super::flight::Flights;

/// Frames that wait for the pipe, in count; whoever has the next one waits with it.
const QUEUE_COUNT: usize = 64;

/// The sending side; clones share one task.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    queue: mpsc::Sender<Outgoing>,
}

#[derive(Debug)]
struct Outgoing {
    /// One JSON text without line feeds.
    frame: Vec<u8>,
    written: oneshot::Sender<()>,
}

impl Writer {
    /// Starts the task; it ends when `stop` is cancelled or every clone is gone.
    pub(super) fn spawn<W>(output: W, flights: Flights, stop: CancellationToken) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (queue, receiver) = mpsc::channel(QUEUE_COUNT);
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = run(output, receiver, flights) => {}
            }
        });
        Self { queue }
    }

    /// Writes and flushes one frame. Returns when that is done, or when it never will be: a reply
    /// that nobody reads is not an error of the one who sent it.
    pub(super) async fn write(&self, frame: Vec<u8>) {
        let (written, done) = oneshot::channel();
        if self.queue.send(Outgoing { frame, written }).await.is_ok() {
            // An error means that the task has ended: the same as a closed pipe.
            let _ = done.await;
        }
    }
}

async fn run<W>(mut output: W, mut queue: mpsc::Receiver<Outgoing>, flights: Flights)
where
    W: AsyncWrite + Unpin,
{
    while let Some(Outgoing { mut frame, written }) = queue.recv().await {
        frame.push(b'\n');
        if let Err(error) = write_all(&mut output, &frame).await {
            tracing::warn!(%error, "the client no longer reads: its replies are dropped");
            flights.drain(DrainCause::OutputClosed);
            break;
        }
        // The sender may have gone; its frame went out whole all the same.
        let _ = written.send(());
    }
    // After a failure: take what comes and drop it, so that nobody waits for the pipe.
    while queue.recv().await.is_some() {}
}

async fn write_all<W: AsyncWrite + Unpin>(output: &mut W, frame: &[u8]) -> io::Result<()> {
    output.write_all(frame).await?;
    output.flush().await
}
