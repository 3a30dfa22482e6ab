//! MCP over a pair of byte streams: the raw reader in front of the SDK, and the way back.
//!
//! Three tasks serve one connection: one reads frames and refuses the bad ones, one writes, and
//! the SDK's own loop sits between them and polls [`StdioTransport`].

use std::convert::Infallible;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::flight::Flights;
use super::outgoing::Outgoing;
use super::reader::Reader;
use super::writer::Writer;
use super::{DrainCause, WireLimits};

/// One connection, as a transport of the SDK.
///
/// `receive` ends only after every request in flight was answered, cancelled by the client, or
/// given up at the drain limit. Sending never fails: once the client no longer reads, replies are
/// dropped and the connection drains.
#[derive(Debug)]
pub struct StdioTransport {
    messages: mpsc::Receiver<ClientJsonRpcMessage>,
    flights: Flights,
    writer: Writer,
    lifecycle: Lifecycle,
    drain_limit: Duration,
    /// Ends the tasks.
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

/// Whether the SDK has entered its service loop. Before that, anything but a request is fatal to
/// its handshake, so the transport holds such messages back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifecycle {
    /// Nothing but probes so far.
    Probed,
    /// The request with this number was delivered and may open the lifecycle. If it does not, the
    /// SDK answers it before it asks for the next message.
    Opening(i64),
    Open,
}

impl StdioTransport {
    /// Starts to read. Cancelling `shutdown` drains the connection: requests in flight are
    /// finished, new ones refused.
    ///
    /// Must be called within a tokio runtime.
    pub fn spawn<R, W>(input: R, output: W, limits: WireLimits, shutdown: CancellationToken) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let stop = CancellationToken::new();
        let flights = Flights::new(limits.max_in_flight_count, limits.max_in_flight_bytes);
        let writer = Writer::spawn(output, flights.clone(), stop.clone());
        let (reader, messages) = Reader::new(input, limits, flights.clone(), writer.clone());
        spawn_until(stop.clone(), reader.run());
        let signalled = flights.clone();
        spawn_until(stop.clone(), async move {
            shutdown.cancelled().await;
            signalled.drain(DrainCause::Shutdown);
        });
        Self {
            messages,
            flights,
            writer,
            lifecycle: Lifecycle::Probed,
            drain_limit: limits.drain_limit,
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        }
    }

    pub(super) fn flights(&self) -> Flights {
        self.flights.clone()
    }

    async fn next_message(&mut self) -> Option<ClientJsonRpcMessage> {
        let (flights, limit) = (&self.flights, self.drain_limit);
        let overdue = async { tokio::time::sleep_until(flights.drain_start().await + limit).await };
        tokio::select! {
            biased;
            Some(message) = self.messages.recv() => Some(message),
            () = flights.drained() => None,
            () = overdue => {
                let unanswered_count = flights.pending_count();
                tracing::warn!(unanswered_count, "the drain limit passed: requests are given up");
                None
            }
        }
    }

    fn is_held_back(&mut self, message: &ClientJsonRpcMessage) -> bool {
        if self.lifecycle == Lifecycle::Open {
            return false;
        }
        let JsonRpcMessage::Request(request) = message else {
            return true;
        };
        if let RequestId::Number(number) = request.id
            && !is_probe(&request.request)
        {
            self.lifecycle = Lifecycle::Opening(number);
        }
        false
    }

    fn note_outcome(&mut self, message: &ServerJsonRpcMessage) {
        let Lifecycle::Opening(number) = self.lifecycle else {
            return;
        };
        let number = RequestId::Number(number);
        match message {
            JsonRpcMessage::Response(response) if response.id == number => {
                self.lifecycle = Lifecycle::Open;
            }
            JsonRpcMessage::Error(error) if error.id.as_ref() == Some(&number) => {
                self.lifecycle = Lifecycle::Probed;
            }
            _ => {}
        }
    }
}

impl Transport<RoleServer> for StdioTransport {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        self.note_outcome(&message);
        let outgoing = Outgoing::new(message, &self.flights);
        let writer = self.writer.clone();
        async move {
            if let Some(outgoing) = outgoing {
                writer.write(outgoing.frame()).await;
            }
            Ok(())
        }
    }

    // Not an `async fn`: the lifecycle has to be judged when the SDK *asks* for a message. What it
    // has left unanswered by then, it has taken as the opening of the lifecycle.
    fn receive(&mut self) -> impl Future<Output = Option<ClientJsonRpcMessage>> + Send {
        if matches!(self.lifecycle, Lifecycle::Opening(_)) {
            self.lifecycle = Lifecycle::Open;
        }
        async move {
            loop {
                let message = self.next_message().await?;
                if !self.is_held_back(&message) {
                    return Some(message);
                }
                tracing::debug!("dropped a message that came before the lifecycle began");
            }
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.stop.cancel();
        Ok(())
    }
}

/// What a client may send before it opens a lifecycle, without opening it.
fn is_probe(request: &ClientRequest) -> bool {
    matches!(request, ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_))
}

fn spawn_until(stop: CancellationToken, task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = task => {}
        }
    });
}
