//! Runs one connection from its first byte to its end.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorData, ProtocolVersion, ServerConfig, ServerResult,
};
use rmcp::service::{
    NotificationContext, QuitReason, RequestContext, ServerInitializeError, serve_server,
};
use rmcp::{RoleServer, Service};

use super::{DrainCause, Ended, StdioTransport};

/// Why a connection could not be served to its end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The SDK gave up during the handshake. Its text may repeat the client's message.
    #[error("the MCP handshake failed; the client must open with initialize or server/discover")]
    Handshake(#[source] Box<ServerInitializeError>),
    /// The SDK's own loop panicked.
    #[error("the service loop failed")]
    Loop(#[source] tokio::task::JoinError),
}

/// Serves `service` on `transport` until the client leaves or the shutdown signal is given.
///
/// A client that leaves before it opens a lifecycle is no error. A handler that panics is answered
/// with -32603: without that, its caller would wait for ever.
///
/// # Errors
///
/// If the handshake fails, or if the SDK's loop panics.
pub async fn serve<S>(service: S, transport: StdioTransport) -> Result<Ended, ServeError>
where
    S: Service<RoleServer>,
{
    let flights = transport.flights();
    let opened = match serve_server(PanicGuard(service), transport).await {
        Ok(running) => match running.waiting().await {
            Ok(QuitReason::JoinError(error)) | Err(error) => return Err(ServeError::Loop(error)),
            Ok(_) => true,
        },
        Err(ServerInitializeError::ConnectionClosed(_)) => false,
        Err(error) => return Err(ServeError::Handshake(Box::new(error))),
    };
    let cause = flights.draining().map_or(DrainCause::EndOfInput, |(cause, _)| cause);
    Ok(Ended { cause, opened, unanswered_count: flights.pending_count() })
}

/// Runs a handler; a panic of it becomes an error reply.
pub(crate) async fn answering_panics<T>(
    handled: impl Future<Output = Result<T, ErrorData>>,
) -> Result<T, ErrorData> {
    AssertUnwindSafe(handled).catch_unwind().await.unwrap_or_else(|_| {
        // The panic hook has reported where; the payload may hold values of the call.
        tracing::error!("a request handler panicked");
        Err(ErrorData::internal_error(
            "the request failed inside the server: its outcome is unknown, so ask for the \
             status of the operation or send the same operation ID again",
            None,
        ))
    })
}

/// Turns the panic of a handler into an error reply.
struct PanicGuard<S>(S);

impl<S: Service<RoleServer>> Service<RoleServer> for PanicGuard<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        // Boxed: the SDK's dispatch future is large, and is held twice here.
        answering_panics(Box::pin(self.0.handle_request(request, context))).await
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        self.0.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.0.supported_protocol_versions()
    }
}
