//! The seam to a transport: a link is lines in and lines out. Stdio is one, and so is a child.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::frame::Pieces;
use crate::wire::{Envelope, FrameReader, WireLine};

/// Lines that wait for a pipe, in count and in bytes; whoever has the next one waits with it.
const QUEUE_COUNT: usize = 64;
const QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// What is written by one system call, if that many bytes wait.
const BATCH_BYTES: usize = 64 * 1024;

/// Both directions of one peer.
pub struct Link {
    pub(super) source: Box<dyn LineSource>,
    pub(super) outlet: Outlet,
    pub(super) writer: LinkWriter,
}

/// Writes what the outlet takes; ends when the peer no longer reads or every outlet is gone, and
/// gives back what it did not begin to write.
pub(super) struct LinkWriter {
    task: JoinHandle<Vec<Item>>,
    give_up: CancellationToken,
}

/// Where lines come from.
pub trait LineSource: Send {
    /// The next line, or `None` at the end. Not cancel-safe.
    fn next(&mut self) -> BoxFuture<'_, io::Result<Option<Incoming>>>;
}

/// One line, without its line end.
#[derive(Debug)]
pub enum Incoming {
    Line(Bytes),
    /// A line past the limit, which was not kept.
    TooLong(TooLong),
}

/// What is known of a line that was not kept.
#[derive(Debug)]
pub struct TooLong {
    pub(super) size_bytes: u64,
    pub(super) envelope: Envelope,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    /// A link over a pair of byte streams, with lines of at most `max_line_bytes`.
    pub fn over<R, W>(input: R, output: W, max_line_bytes: usize) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (outlet, receiver) = Outlet::new();
        let closed = outlet.closed.clone();
        let give_up = CancellationToken::new();
        let pipe = Pipe { output, give_up: give_up.clone() };
        let writer = LinkWriter { task: tokio::spawn(write(pipe, receiver, closed)), give_up };
        Self { source: Box::new(FrameReader::new(input, max_line_bytes)), outlet, writer }
    }
}

impl LinkWriter {
    /// What was not begun, once the peer no longer reads or every outlet is gone. One that hangs in a
    /// pipe that nobody reads gives up after `patience`.
    pub(super) async fn unsent(mut self, patience: Duration) -> Vec<Item> {
        let ended = match timeout(patience, &mut self.task).await {
            Ok(ended) => ended,
            Err(_) => {
                self.give_up.cancel();
                self.task.await
            }
        };
        ended.unwrap_or_default()
    }
}

impl<R: AsyncRead + Send + Unpin> LineSource for FrameReader<R> {
    fn next(&mut self) -> BoxFuture<'_, io::Result<Option<Incoming>>> {
        Box::pin(async {
            Ok(FrameReader::next(self).await?.map(|line| match line {
                WireLine::Line(line) => Incoming::Line(line.into()),
                WireLine::Oversized { size_bytes, envelope } => {
                    Incoming::TooLong(TooLong { size_bytes, envelope })
                }
            }))
        })
    }
}

/// A line on its way out.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) pieces: Pieces,
    /// Set before anybody can know otherwise: some byte was handed to the pipe.
    pub(super) sent: Option<Arc<AtomicBool>>,
    /// Of a request: its number.
    pub(super) number: Option<u64>,
    /// Told when the whole line was handed to the pipe.
    pub(super) written: Option<oneshot::Sender<()>>,
    room: Option<OwnedSemaphorePermit>,
}

impl Item {
    pub(super) fn new(pieces: impl Into<Pieces>) -> Self {
        Self { pieces: pieces.into(), sent: None, number: None, written: None, room: None }
    }

    /// Out of the queue, while it waits for another one.
    pub(super) fn without_room(self) -> Self {
        Self { room: None, ..self }
    }
}

/// The sending side; clones share one pipe.
#[derive(Clone, Debug)]
pub(super) struct Outlet {
    queue: mpsc::Sender<Item>,
    room: Arc<Semaphore>,
    closed: CancellationToken,
}

impl Outlet {
    fn new() -> (Self, mpsc::Receiver<Item>) {
        let (queue, receiver) = mpsc::channel(QUEUE_COUNT);
        let room = Arc::new(Semaphore::new(QUEUE_BYTES));
        (Self { queue, room, closed: CancellationToken::new() }, receiver)
    }

    /// Hands one line over, after those before it; waits while too many wait.
    ///
    /// # Errors
    /// The line itself, if nobody reads any more: not one byte of it was sent.
    pub(super) async fn put(&self, mut item: Item) -> Result<(), Item> {
        let bytes = item.pieces.len().clamp(1, QUEUE_BYTES);
        let wanted = u32::try_from(bytes).expect("clamped");
        item.room = tokio::select! {
            biased;
            room = Arc::clone(&self.room).acquire_many_owned(wanted) => room.ok(),
            () = self.closed.cancelled() => None,
        };
        self.queue.send(item).await.map_err(|refused| refused.0)
    }

    /// Waits until everything that was put before is written, or the peer no longer reads.
    pub(super) async fn flush(&self) {
        let (written, done) = oneshot::channel();
        let mut nothing = Item::new(Bytes::new());
        nothing.written = Some(written);
        if self.put(nothing).await.is_ok() {
            let _ = done.await;
        }
    }

    /// Whether lines wait for the peer to read.
    pub(super) fn is_crowded(&self) -> bool {
        self.queue.capacity() == 0 || self.room.available_permits() == 0
    }

    /// Cancelled once the peer no longer reads.
    pub(super) fn closed(&self) -> &CancellationToken {
        &self.closed
    }
}

/// A line that is partly or not yet written.
struct Unwritten {
    /// Where it ends in the batch; a large line is a batch by itself.
    end: usize,
    item: Item,
}

/// The peer's side, as long as it is worth waiting for.
struct Pipe<W> {
    output: W,
    give_up: CancellationToken,
}

impl<W: AsyncWrite + Unpin> Pipe<W> {
    /// Hands over some bytes, at least one.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        tokio::select! {
            biased;
            count = self.output.write(bytes) => match count? {
                0 => Err(io::ErrorKind::WriteZero.into()),
                count => Ok(count),
            },
            () = self.give_up.cancelled() => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        tokio::select! {
            biased;
            flushed = self.output.flush() => flushed,
            () = self.give_up.cancelled() => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(
    mut output: Pipe<W>,
    mut queue: mpsc::Receiver<Item>,
    closed: CancellationToken,
) -> Vec<Item> {
    let mut batch = Vec::with_capacity(4096);
    while let Some(first) = queue.recv().await {
        let mut pending = vec![first];
        let mut bytes = pending[0].pieces.len();
        while bytes < BATCH_BYTES {
            let Ok(next) = queue.try_recv() else { break };
            bytes += next.pieces.len();
            pending.push(next);
        }
        let failed = match write_batch(&mut output, &mut batch, pending).await {
            Ok(()) => continue,
            Err(unsent) => unsent,
        };
        closed.cancel();
        queue.close();
        let mut unsent = failed;
        while let Some(item) = queue.recv().await {
            unsent.push(item);
        }
        return unsent;
    }
    // The peer sees the end of its input when `output` is dropped.
    closed.cancel();
    Vec::new()
}

/// Writes whole lines; on failure those of which nothing was written.
async fn write_batch<W: AsyncWrite + Unpin>(
    output: &mut Pipe<W>,
    batch: &mut Vec<u8>,
    items: Vec<Item>,
) -> Result<(), Vec<Item>> {
    let mut lines = VecDeque::with_capacity(items.len());
    let mut rest = items.into_iter();
    while let Some(item) = rest.next() {
        if item.pieces.len() < BATCH_BYTES {
            item.pieces.iter().for_each(|piece| batch.extend_from_slice(piece));
            if !item.pieces.is_empty() {
                batch.push(b'\n');
            }
            lines.push_back(Unwritten { end: batch.len(), item });
            continue;
        }
        let written = flush(output, batch, &mut lines).await;
        if written.is_err() || write_large(output, &item).await.is_err() {
            let mut unsent = into_unsent(lines);
            unsent.extend(not_begun(item));
            unsent.extend(rest);
            return Err(unsent);
        }
        tell(item);
    }
    match flush(output, batch, &mut lines).await {
        Ok(()) => Ok(()),
        Err(_) => Err(into_unsent(lines)),
    }
}

/// Writes the batch; the lines that are left over after a failure stay. Whoever waits for a line is
/// told once it is handed over: the peer may answer it before it takes the next one.
async fn flush<W: AsyncWrite + Unpin>(
    output: &mut Pipe<W>,
    batch: &mut Vec<u8>,
    lines: &mut VecDeque<Unwritten>,
) -> io::Result<()> {
    let mut at = 0;
    while at < batch.len() {
        let begun = at + output.write(&batch[at..]).await?;
        // The first one that is left begins before `at`.
        let mut start = at;
        for line in lines.iter() {
            if start < begun {
                mark(&line.item);
            }
            start = line.end;
        }
        at = begun;
        if lines.front().is_some_and(|line| line.end <= at) {
            output.flush().await?;
        }
        while lines.front().is_some_and(|line| line.end <= at) {
            lines.pop_front().into_iter().for_each(|line| tell(line.item));
        }
    }
    batch.clear();
    output.flush().await?;
    lines.drain(..).for_each(|line| tell(line.item));
    Ok(())
}

async fn write_large<W: AsyncWrite + Unpin>(output: &mut Pipe<W>, item: &Item) -> io::Result<()> {
    for piece in item.pieces.iter().map(|piece| &piece[..]).chain([&b"\n"[..]]) {
        let mut rest = piece;
        while !rest.is_empty() {
            let count = output.write(rest).await?;
            mark(item);
            rest = &rest[count..];
        }
    }
    output.flush().await
}

fn mark(item: &Item) {
    if let Some(sent) = &item.sent {
        sent.store(true, Ordering::Relaxed);
    }
}

fn tell(item: Item) {
    if let Some(written) = item.written {
        // Whoever asked may have gone; the line went out all the same.
        let _ = written.send(());
    }
}

fn not_begun(item: Item) -> Option<Item> {
    let begun = item.sent.as_ref().is_some_and(|sent| sent.load(Ordering::Relaxed));
    (!begun).then_some(item)
}

fn into_unsent(lines: VecDeque<Unwritten>) -> Vec<Item> {
    lines.into_iter().filter_map(|line| not_begun(line.item)).collect()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// The writer ends by itself.
    const NEVER: Duration = Duration::from_secs(3600);

    fn item(line: &str) -> (Item, Arc<AtomicBool>) {
        let sent = Arc::new(AtomicBool::new(false));
        let mut item = Item::new(Bytes::copy_from_slice(line.as_bytes()));
        item.sent = Some(Arc::clone(&sent));
        (item, sent)
    }

    /// A link whose peer gets what is written through a pipe of `bytes`.
    fn link(bytes: usize) -> (Link, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(bytes);
        (Link::over(tokio::io::empty(), ours, 1 << 20), theirs)
    }

    #[tokio::test]
    async fn lines_of_every_size_are_written_in_their_order() {
        // Promise: small lines that share one write and large ones that have many keep their order.
        let (link, mut peer) = link(1000);
        let sizes = [10, 70_000, 0, 3, 65_536, 1, 200_000];
        let lines: Vec<String> = sizes.iter().map(|size| "x".repeat(*size + 1)).collect();
        let expected: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let writing = async {
            for line in &lines {
                assert!(link.outlet.put(item(line).0).await.is_ok());
            }
            link.outlet.flush().await;
            drop(link.outlet);
        };
        let mut read = String::new();
        let (_, count) = tokio::join!(writing, peer.read_to_string(&mut read));
        assert_eq!((count.expect("text"), read == expected), (expected.len(), true));
    }

    #[tokio::test]
    async fn what_was_not_begun_is_given_back() {
        // Promise: a line of which a single byte was handed over counts as sent, and no other one.
        for (capacity, begun_count) in [(0, 0), (1, 1), (5, 1), (6, 2), (10, 2), (11, 3)] {
            let (link, peer) = link(capacity.max(1));
            if capacity == 0 {
                drop(peer);
                let (first, sent) = item("abcde");
                let _ = link.outlet.put(first).await;
                link.outlet.closed().cancelled().await;
                let unsent = link.writer.unsent(NEVER).await;
                assert_eq!((unsent.len(), sent.load(Ordering::Relaxed)), (1, false));
                continue;
            }
            let (items, marks): (Vec<_>, Vec<_>) = (0..3).map(|_| item("abcd")).unzip();
            for item in items {
                assert!(link.outlet.put(item).await.is_ok());
            }
            // The writer fills the pipe, and then stands.
            while marks.iter().filter(|sent| sent.load(Ordering::Relaxed)).count() < begun_count {
                tokio::task::yield_now().await;
            }
            drop(peer);
            let unsent = link.writer.unsent(NEVER).await;
            let begun = marks.iter().filter(|sent| sent.load(Ordering::Relaxed)).count();
            assert_eq!((begun, unsent.len()), (begun_count, 3 - begun_count), "{capacity}");
            assert!(link.outlet.put(item("late").0).await.is_err());
        }
    }

    #[tokio::test]
    async fn a_pipe_that_nobody_reads_gives_back_what_was_not_begun() {
        // Promise: a request that was queued for a server that hangs is known as not sent.
        let (link, peer) = link(6);
        let (items, marks): (Vec<_>, Vec<_>) = (0..3).map(|_| item("abcd")).unzip();
        for item in items {
            assert!(link.outlet.put(item).await.is_ok());
        }
        let begun = || marks.iter().filter(|sent| sent.load(Ordering::Relaxed)).count();
        while begun() < 2 {
            tokio::task::yield_now().await;
        }
        let unsent = link.writer.unsent(Duration::ZERO).await;
        assert_eq!((begun(), unsent.len()), (2, 1));
        assert!(link.outlet.closed().is_cancelled());
        drop(peer);
    }

    #[tokio::test]
    async fn a_line_is_told_as_written_before_the_next_one_is_taken() {
        // Promise: a client that answers at once what it has read is known to have read it.
        let (link, mut peer) = link(5);
        let (written, done) = oneshot::channel();
        let mut first = item("abcd").0;
        first.written = Some(written);
        let second = item("efgh").0;
        // Both are one batch, and the pipe takes one.
        assert!(link.outlet.put(first).await.is_ok());
        assert!(link.outlet.put(second).await.is_ok());
        let told = timeout(Duration::from_secs(60), done).await;
        assert_eq!(told.ok(), Some(Ok(())), "the second line was waited for");
        let mut read = [0; 10];
        peer.read_exact(&mut read).await.expect("both lines");
        assert_eq!(&read, b"abcd\nefgh\n");
    }
}
