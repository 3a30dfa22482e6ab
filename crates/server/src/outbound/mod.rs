//! One HTTP request to a service, and exactly what is known of it afterwards: never sent, answered,
//! or lost.
//!
//! Nothing here sends a request twice. There is no redirect, no proxy, no HTTP/2 whose streams a
//! server may hand back, no decompression, and no retry but one: a request that an idle connection
//! gave back untouched goes out on a new one. Addresses are vetted after their resolution, and the
//! connection goes to the address that was vetted.

mod address;
mod dial;
mod exchange;
mod names;
mod pool;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use counterfoil_core::delivery::ErrorClass;
use http::{HeaderMap, Method, StatusCode, Uri};
use tokio_rustls::rustls::ClientConfig;

pub use address::AddressPolicy;

/// How a service is reached, and for how long.
#[derive(Debug, Clone)]
pub struct OutboundLimits {
    /// For name, connection and TLS handshake together.
    pub connect: Duration,
    /// From the first byte of a request to the last of its answer.
    pub total: Duration,
    /// A longer body is not read to its end.
    pub max_answer_bytes: usize,
    /// How long an idle connection may be used again; `None` gives each request its own. A server
    /// may close an idle one at any time, and a request that was on its way then is lost: reuse is
    /// for contracts that bear that.
    pub keep_idle: Option<Duration>,
}

/// A client for one service.
pub struct Outbound {
    limits: OutboundLimits,
    policy: AddressPolicy,
    tls: Option<Arc<ClientConfig>>,
    pool: pool::Pool,
    names: names::Names,
}

/// A request, with an absolute URL and every header but Host, Content-Length and Connection.
#[derive(Clone)]
pub struct OutboundRequest {
    /// The method.
    pub method: Method,
    /// `http` or `https`, with a host.
    pub uri: Uri,
    /// Sensitive ones are marked so.
    pub headers: HeaderMap,
    /// The body; empty for none.
    pub body: Bytes,
}

/// What is known of a request.
#[derive(Debug)]
pub enum Fetched {
    /// No byte of it left.
    NotSent {
        /// The kind of failure.
        class: ErrorClass,
        /// For people; nothing of the request is in it but its host.
        words: String,
    },
    /// The head of an answer came.
    Answer(Answer),
    /// It may have left, and no answer came.
    Lost {
        /// For people.
        words: String,
    },
}

/// An answer.
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, as far as it could be read.
    pub body: Body,
}

/// A body, as far as it could be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    /// All of it.
    Whole(Bytes),
    /// It was longer than allowed, ended too soon, took too long, or came encoded.
    Unreadable(&'static str),
}

impl Outbound {
    /// A client that goes only where `policy` lets it, and trusts whom `tls` trusts; without it
    /// nobody, so that `https` goes nowhere.
    #[must_use]
    pub fn new(
        limits: OutboundLimits,
        policy: AddressPolicy,
        tls: Option<Arc<ClientConfig>>,
    ) -> Self {
        let (pool, names) = (pool::Pool::default(), names::Names::default());
        Self { limits, policy, tls, pool, names }
    }
}

impl std::fmt::Debug for OutboundRequest {
    /// Without content: the URL can end with a secret, and arguments may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutboundRequest")
            .field("method", &self.method)
            .field("host", &self.uri.host())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Answer {
    /// Without content: a service may repeat what it was sent.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbound").field("limits", &self.limits).finish_non_exhaustive()
    }
}
