//! Keeps the bytes of both directions of a connection as they passed.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A file of lines `{"from": "client" | "server", "bytes": "…"}`, one for each frame.
#[derive(Debug, Clone)]
pub(super) struct Transcript(Arc<Mutex<File>>);

impl Transcript {
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create_new(path)
            .with_context(|| format!("cannot write the transcript {}", path.display()))?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    fn keep(&self, from: &str, frame: &[u8]) {
        let line = serde_json::json!({ "from": from, "bytes": String::from_utf8_lossy(frame) });
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = writeln!(file, "{line}") {
            tracing::warn!(%error, "the transcript could not be written");
        }
    }
}

/// A stream whose bytes are kept as they pass.
#[derive(Debug)]
pub(super) struct Tee<S> {
    stream: S,
    from: &'static str,
    transcript: Transcript,
    pending: Vec<u8>,
}

impl<S> Tee<S> {
    pub(super) const fn new(stream: S, from: &'static str, transcript: Transcript) -> Self {
        Self { stream, from, transcript, pending: Vec::new() }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let frame: Vec<u8> = self.pending.drain(..=end).collect();
            self.transcript.keep(self.from, &frame);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tee<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = buffer.filled()[before..].to_vec();
        self.keep(&read);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tee<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.keep(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
