//! Runs one ledger, over stdio or HTTP, from the first byte to the last commit.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use counterfoil_core::identity::{Caller, Principal, Tenant};
use counterfoil_engine::Engine;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::handler::Handler;
use crate::http::HttpOptions;
use crate::tools::Toolbox;
use crate::wire::{self, Ended, ServeError, StdioTransport, WireLimits};

/// Serves MCP on a pair of byte streams until the client leaves or `shutdown` is cancelled, then
/// waits for every effect that was begun and closes the ledger.
///
/// # Errors
/// [`ServeError`] if the handshake failed. The ledger is drained and closed all the same.
pub async fn stdio<R, W>(
    tools: impl Into<Toolbox>,
    caller: Caller,
    (input, output): (R, W),
    limits: WireLimits,
    shutdown: CancellationToken,
) -> Result<Ended, ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let tools = tools.into();
    let engine = Arc::clone(tools.engine());
    let input_closed = shutdown.child_token();
    let input = WatchedInput { input, closed: input_closed.clone() };
    let handler = Handler::new(tools, caller, input_closed);
    let transport = StdioTransport::spawn(input, output, limits, shutdown);
    let ended = wire::serve(handler, transport).await;
    finish(&engine, limits.drain_limit).await;
    ended
}

/// Serves MCP over HTTP until `shutdown` is cancelled, then lets requests end, waits for every
/// effect that was begun and closes the ledger.
///
/// # Errors
/// [`std::io::Error`] if the listener cannot be used. The ledger is drained and closed all the same.
pub async fn http(
    tools: impl Into<Toolbox>,
    listener: TcpListener,
    options: HttpOptions,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let drain_limit = options.drain_limit;
    let tools = tools.into();
    let engine = Arc::clone(tools.engine());
    let served = crate::http::serve(tools, listener, options, shutdown).await;
    finish(&engine, drain_limit).await;
    served
}

/// Who calls over stdio: the principal of the settings, in the tenant `local`.
#[must_use]
pub fn stdio_caller(principal: Principal) -> Caller {
    Caller { tenant: Tenant::parse("local").expect("`local` is a name"), principal }
}

/// Waits for what was begun, and closes the ledger.
pub(crate) async fn finish(engine: &Engine, limit: Duration) {
    if !engine.drain(limit).await {
        tracing::error!(
            limit_s = limit.as_secs(),
            "effects were still unsettled at the drain limit; their operations stay unknown"
        );
    }
    if let Err(error) = engine.close().await {
        tracing::error!(%error, "the ledger did not close cleanly");
    }
}

/// Cancelled on SIGTERM or SIGINT.
///
/// # Errors
/// [`std::io::Error`] if the handlers cannot be installed.
pub fn shutdown_signal() -> std::io::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        cancelled.cancel();
    });
    Ok(token)
}

/// Tells when the client can send nothing more.
struct WatchedInput<R> {
    input: R,
    closed: CancellationToken,
}

impl<R: AsyncRead + Unpin> AsyncRead for WatchedInput<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.input).poll_read(cx, buffer);
        match &polled {
            Poll::Ready(Ok(())) if buffer.filled().len() == before => self.closed.cancel(),
            Poll::Ready(Err(_)) => self.closed.cancel(),
            _ => {}
        }
        polled
    }
}
