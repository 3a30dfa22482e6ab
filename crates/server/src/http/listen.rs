//! Accepts connections within their limits, serves each, and ends them all.

use std::collections::HashMap;
use std::io::{self, Write};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::conn::{ConnState, TimedIo};
use super::held::HeldBody;
use super::limits::HttpLimits;
use crate::metrics::Metrics;

/// Headers of one request, in count.
const MAX_HEADERS: usize = 64;
/// Bytes of one request's head.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// After an accept that failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Where all places are taken and none is idle.
const NO_PLACE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\
    Content-Length: 64\r\nRetry-After: 1\r\nConnection: close\r\n\r\n\
    this server has as many connections as it takes; try again soon\n";

/// What every connection is served by.
#[derive(Clone)]
pub(super) struct Listener {
    pub(super) router: Router,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) limits: HttpLimits,
    pub(super) metrics: Arc<Metrics>,
    /// Cancelled to stop: connections end after the request that is under way.
    pub(super) stopping: CancellationToken,
}

/// The open connections.
#[derive(Debug, Default)]
struct Connections(Mutex<HashMap<u64, Arc<ConnState>>>);

impl Listener {
    /// Accepts until told to stop, then lets what is under way end within `drain_limit`. Says
    /// whether everything ended by itself.
    pub(super) async fn run(self, listener: TcpListener, drain_limit: Duration) -> bool {
        let connections = Arc::new(Connections::default());
        let tasks = TaskTracker::new();
        let mut number = 0_u64;
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.stopping.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    self.accept_failed(&error, &connections).await;
                    continue;
                }
            };
            if connections.count() >= self.limits.max_connections {
                if !connections.end_stalest() {
                    self.metrics.connections_refused.add_one();
                    turn_away(stream);
                    continue;
                }
                self.metrics.connections_evicted.add_one();
                // Lets the one that ends give its place back.
                tokio::task::yield_now().await;
            }
            number += 1;
            let state = ConnState::new();
            connections.insert(number, &state);
            let (serving, connections) = (self.clone(), Arc::clone(&connections));
            tasks.spawn(async move {
                let _open = serving.metrics.connections.hold();
                tokio::select! {
                    () = serving.serve(stream, &state) => {}
                    () = state.end.cancelled() => {}
                }
                connections.remove(number);
            });
        }
        // From here on nobody can connect.
        drop(listener);
        tasks.close();
        let drained = tokio::time::timeout(drain_limit, tasks.wait()).await.is_ok();
        if !drained {
            connections.end_all();
            tasks.wait().await;
        }
        drained
    }

    async fn serve(&self, stream: TcpStream, state: &Arc<ConnState>) {
        // Small answers must not wait for the acknowledgement of the ones before (RFC 896).
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection was gone before it was served");
            return;
        }
        let Some(tls) = &self.tls else { return self.serve_http(stream, state).await };
        match tokio::time::timeout(self.limits.head_time, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.serve_http(stream, state).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake did not end in time"),
        }
    }

    async fn serve_http<S>(&self, stream: S, state: &Arc<ConnState>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let limits = &self.limits;
        let io = TimedIo::new(stream, Arc::clone(state), limits.head_time, limits.write_stall_time);
        let service = service_fn(|request: Request<Incoming>| {
            let busy = state.begin();
            let mut router = self.router.clone();
            async move {
                let response: Response = match router.call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                };
                Ok::<_, io::Error>(response.map(|body| Body::new(HeldBody::new(body, busy))))
            }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(limits.idle_time)
            .max_headers(MAX_HEADERS)
            .max_header_size(MAX_HEAD_BYTES);
        let mut connection = pin!(http.serve_connection(TokioIo::new(io), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            // Its words are of the protocol alone.
            tracing::debug!(%error, "a connection ended");
        }
    }

    async fn accept_failed(&self, error: &io::Error, connections: &Connections) {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
            return;
        }
        tracing::error!(%error, "no connection can be accepted now; raise the limit of open files");
        if connections.end_stalest() {
            self.metrics.connections_evicted.add_one();
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

impl Connections {
    fn count(&self) -> usize {
        self.lock().len()
    }

    fn insert(&self, number: u64, state: &Arc<ConnState>) {
        self.lock().insert(number, Arc::clone(state));
    }

    fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// Ends the connection that has been idle for longest; whether there was an idle one.
    fn end_stalest(&self) -> bool {
        let now = Instant::now();
        let mut table = self.lock();
        let idle = table.iter().filter_map(|(number, c)| Some((c.idle_since(now)?, *number)));
        let Some((_, number)) = idle.min() else { return false };
        if let Some(state) = table.remove(&number) {
            state.end.cancel();
        }
        true
    }

    fn end_all(&self) {
        for state in self.lock().values() {
            state.end.cancel();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<ConnState>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says why, as well as can be without waiting.
fn turn_away(stream: TcpStream) {
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(NO_PLACE);
    }
}
