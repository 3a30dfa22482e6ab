//! MCP over Streamable HTTP: one server, many callers, each known by its token.
//!
//! A request passes, in this order: the limits of connections ([`listen`](self)), the name by which
//! the server was reached and the page that it came from, the caller's token, the caller's share,
//! the raw reader of the wire, the headers of the protocol, and then the SDK. What the SDK hands on
//! carries its caller and its lossless form; JSON-RPC IDs, sessions and connections prove nothing.
//!
//! Deliberately absent: HTTP/2 (the clients of MCP do not need it, and each stream of it would need
//! the limits of a connection), and half-closed sockets: a client that closes its sending side has
//! left, and on revision 2026-07-28 has thereby cancelled its request.

mod auth;
mod conn;
mod gate;
mod health;
mod held;
mod limits;
mod listen;
mod names;
mod numbers;
mod open_files;
mod pages;
mod refuse;
mod sessions;
pub mod tls;
mod versions;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use counterfoil_engine::Engine;
use http::StatusCode;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use crate::handler::Handler;
use crate::metrics::Metrics;
use crate::tools::Toolbox;
use gate::Gate;
use health::Health;
use limits::Principals;
use names::Names;
use sessions::Sessions;

pub use auth::Auth;
pub use limits::HttpLimits;
pub use names::{HostRule, OriginRule};
pub use open_files::make_room_for;

/// Where MCP is served.
pub const MCP_PATH: &str = "/mcp";

/// What an HTTP server runs with.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// How callers are known.
    pub auth: Auth,
    /// Names by which the server is reached, besides its own address.
    pub allowed_hosts: Vec<HostRule>,
    /// Origins whose pages may call. None by default.
    pub allowed_origins: Vec<OriginRule>,
    /// What clients may take.
    pub limits: HttpLimits,
    /// Certificate and key, if the server itself ends TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// How long a stopping server lets requests end.
    pub drain_limit: Duration,
}

/// Connections that the system holds for us until they are accepted, in count; the system may have
/// a lower limit of its own (`net.core.somaxconn`). Past it a new one waits for a second or more.
const BACKLOG: u32 = 4096;

/// Listens on an address. Must be called within a tokio runtime.
///
/// # Errors
/// [`io::Error`] if the address is taken or not this machine's.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that starts again must not wait for the connections of the one before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `shutdown` is cancelled; then lets requests end, and returns. The ledger stays
/// open: whoever opened it closes it.
///
/// # Errors
/// [`io::Error`] if the listener's address cannot be told.
pub async fn serve(
    tools: Toolbox,
    listener: TcpListener,
    options: HttpOptions,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let metrics = Arc::new(Metrics::default());
    let engine = Arc::clone(tools.engine());
    let handler = Handler::over_http(tools, shutdown.clone(), Arc::clone(&metrics));
    run(handler, engine, listener, options, metrics, shutdown).await
}

/// The same with another handler behind the same gate. `engine` gives the time by which tokens
/// expire, and says whether the server is ready.
///
/// # Errors
/// [`io::Error`] if the listener's address cannot be told.
pub async fn serve_handler(
    handler: impl ServerHandler + Clone,
    engine: Arc<Engine>,
    listener: TcpListener,
    options: HttpOptions,
    shutdown: CancellationToken,
) -> io::Result<()> {
    run(handler, engine, listener, options, Arc::default(), shutdown).await
}

async fn run(
    handler: impl ServerHandler + Clone,
    engine: Arc<Engine>,
    listener: TcpListener,
    options: HttpOptions,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let sdk = CancellationToken::new();
    let router = router(
        handler,
        &engine,
        address,
        &options,
        &metrics,
        &Ends { stopping: &shutdown, sdk: &sdk },
    );
    let listening = listen::Listener {
        router,
        tls: options.tls.map(TlsAcceptor::from),
        limits: options.limits,
        metrics,
        stopping: shutdown,
    };
    if !listening.run(listener, options.drain_limit).await {
        tracing::warn!(
            limit_s = options.drain_limit.as_secs(),
            "the drain limit passed: requests were cut off, and their outcome is unknown to them"
        );
    }
    // Only now: the SDK would answer what is under way with an error.
    sdk.cancel();
    Ok(())
}

/// What ends a server.
struct Ends<'a> {
    /// No new work is taken.
    stopping: &'a CancellationToken,
    /// What is under way is given up.
    sdk: &'a CancellationToken,
}

fn router(
    handler: impl ServerHandler + Clone,
    engine: &Arc<Engine>,
    address: SocketAddr,
    options: &HttpOptions,
    metrics: &Arc<Metrics>,
    ends: &Ends<'_>,
) -> Router {
    let limits = &options.limits;
    let names = Names::new(address, &options.allowed_hosts, &options.allowed_origins);
    let sessions =
        Sessions::new(limits.max_sessions, limits.session_idle, Arc::clone(&metrics.sessions));
    let gate = Arc::new(Gate {
        auth: options.auth.clone(),
        names: names.clone(),
        limits: *limits,
        principals: Principals::new(limits),
        sessions: Arc::clone(&sessions),
        metrics: Arc::clone(metrics),
        engine: Arc::clone(engine),
        stopping: ends.stopping.clone(),
    });
    let health = Arc::new(Health {
        engine: Arc::clone(engine),
        auth: options.auth.clone(),
        names,
        metrics: Arc::clone(metrics),
        metrics_need_token: !address.ip().is_loopback(),
        stopping: ends.stopping.clone(),
        last: tokio::sync::Mutex::default(),
    });
    // Names, origins and lengths are the gate's to check, before anything is read.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_json_response(true)
        .with_max_request_body_bytes(limits.json.max_bytes)
        .with_cancellation_token(ends.sdk.clone());
    let mcp = StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
    let mcp = Router::new()
        .route_service(MCP_PATH, mcp)
        .route_layer(from_fn_with_state(Arc::clone(&gate), gate::pass))
        .route_layer(from_fn_with_state(gate, pages::admit));
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .with_state(health)
        .merge(mcp)
        .fallback(|| async {
            refuse::plain(
                StatusCode::NOT_FOUND,
                "there is nothing here; MCP is served at /mcp, the state at /healthz, /readyz and \
                 /metrics",
            )
        })
}

#[cfg(test)]
mod tests;
