//! From a URL to a connection: resolve, vet, connect, shake hands. Nothing of a request leaves here.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use counterfoil_core::delivery::ErrorClass;
use http::Uri;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::task::AbortOnDropHandle;

use super::Outbound;

/// Where a connection goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Endpoint {
    tls: bool,
    host: String,
    port: u16,
}

/// A connection that carries one request at a time.
pub(super) struct Channel {
    pub(super) sender: SendRequest<Full<Bytes>>,
    _task: AbortOnDropHandle<()>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) struct NoChannel {
    pub(super) class: ErrorClass,
    pub(super) words: String,
}

impl Endpoint {
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        (!host.is_empty()).then_some(Self { tls, host, port })
    }
}

impl Outbound {
    /// A new connection, within the limit for connecting.
    pub(super) async fn dial(&self, to: &Endpoint) -> Result<Channel, NoChannel> {
        let limit = self.limits.connect;
        tokio::time::timeout(limit, self.dial_unbounded(to)).await.unwrap_or_else(|_| {
            let words = format!("no connection to {} within {limit:?}", to.host);
            Err(NoChannel { class: ErrorClass::Connect, words })
        })
    }

    async fn dial_unbounded(&self, to: &Endpoint) -> Result<Channel, NoChannel> {
        let stream = self.connect(to).await?;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small packets may wait");
        }
        if !to.tls {
            return shake_hands(stream, to).await;
        }
        let no_tls = |cause: String| NoChannel {
            class: ErrorClass::Tls,
            words: format!("no TLS with {}: {}", to.host, shortened(&cause)),
        };
        let Some(tls) = &self.tls else { return Err(no_tls("no authority is trusted".into())) };
        let name = ServerName::try_from(to.host.clone()).map_err(|e| no_tls(e.to_string()))?;
        let connector = TlsConnector::from(Arc::clone(tls));
        let stream = connector.connect(name, stream).await.map_err(|e| no_tls(e.to_string()))?;
        shake_hands(stream, to).await
    }

    /// To the first of the vetted addresses that answers.
    async fn connect(&self, to: &Endpoint) -> Result<TcpStream, NoChannel> {
        let failed = |class, words| NoChannel { class, words };
        let found = self.names.addresses(&to.host, to.port).await.map_err(|error| {
            failed(ErrorClass::Dns, format!("{} does not resolve: {error}", to.host))
        })?;
        let vetted: Vec<SocketAddr> =
            found.iter().copied().filter(|address| self.policy.admits(address.ip())).collect();
        let Some(first) = found.first() else {
            return Err(failed(ErrorClass::Dns, format!("{} has no address", to.host)));
        };
        if vetted.is_empty() {
            let words = format!(
                "{} is at {}, which is not a public address, or is reached without TLS; if that is \
                 meant, name it in the connector's allow_networks",
                to.host,
                first.ip()
            );
            return Err(failed(ErrorClass::Dns, words));
        }
        let mut last = None;
        for address in vetted {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        let cause = last.map_or_else(String::new, |error| error.to_string());
        Err(failed(ErrorClass::Connect, format!("no connection to {}: {cause}", to.host)))
    }
}

/// A certificate names as many names as its owner likes.
fn shortened(cause: &str) -> String {
    const MOST: usize = 200;
    cause.chars().filter(|it| !it.is_control()).take(MOST).collect()
}

async fn shake_hands<S>(stream: S, to: &Endpoint) -> Result<Channel, NoChannel>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| NoChannel {
            class: ErrorClass::Connect,
            words: format!("no connection to {}: {error}", to.host),
        })?;
    let task = AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a service ended");
        }
    }));
    Ok(Channel { sender, _task: task })
}
