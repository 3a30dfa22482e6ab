//! The MCP wire: what stands between a client's bytes and the handlers.
//!
//! A frame is read here before the SDK sees it, because typed decoding rounds integers, lets the
//! last of two equal keys win, and drops what it cannot read without a reply. What is ambiguous is
//! refused at once, with the request's ID; what passes is handed on together with its lossless
//! form ([`RawCall`]). Knows JSON-RPC and MCP; knows nothing of operations or databases.
//!
//! Deliberately absent: JSON-RPC batches (no served protocol revision has them), and a repair of
//! bad input (nothing is ever replaced by U+FFFD or cut to fit).

mod body;
mod call;
mod flight;
mod frame;
mod id;
mod message;
pub mod meta;
mod outgoing;
mod reader;
mod scan;
mod serve;
mod stdio;
mod writer;

use std::borrow::Cow;
use std::time::Duration;

use counterfoil_core::json::JsonLimits;
use rmcp::ErrorData;
use rmcp::model::ProtocolVersion;

pub use body::{Body, BodyRequest, RefusedBody, error_reply, read_body, result_reply};
pub use call::RawCall;
pub use flight::{DrainCause, Ended};
pub(crate) use frame::{Frame as WireLine, FrameReader};
pub use id::{MAX_ID_BYTES, WireId};
pub(crate) use message::TYPED_METHODS;
pub(crate) use scan::Envelope;
pub(crate) use serve::answering_panics;
pub use serve::{ServeError, serve};
pub use stdio::StdioTransport;

/// Most requests of one connection that are served at the same time, by default.
pub const DEFAULT_MAX_IN_FLIGHT_COUNT: usize = 1024;
/// Most bytes of the frames of requests in flight on one connection, by default (16 MiB).
pub const DEFAULT_MAX_IN_FLIGHT_BYTES: usize = 16 * 1024 * 1024;
/// Longest wait for requests in flight once a connection ends, by default.
pub const DEFAULT_DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// What one connection may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireLimits {
    /// Limits of one frame; its `max_bytes` is the length of a line without its line end.
    pub json: JsonLimits,
    /// Count of requests that wait for their answer; the next one is refused.
    pub max_in_flight_count: usize,
    /// Bytes of the frames that wait for their answer, together; a request that would go beyond it
    /// is refused. Each is held several times over while it is worked on.
    pub max_in_flight_bytes: usize,
    /// How long, after the end of input or the shutdown signal, requests in flight may still be
    /// answered.
    pub drain_limit: Duration,
}

impl Default for WireLimits {
    fn default() -> Self {
        Self {
            json: JsonLimits::default(),
            max_in_flight_count: DEFAULT_MAX_IN_FLIGHT_COUNT,
            max_in_flight_bytes: DEFAULT_MAX_IN_FLIGHT_BYTES,
            drain_limit: DEFAULT_DRAIN_LIMIT,
        }
    }
}

const SUPPORTED_VERSIONS: &[ProtocolVersion] =
    &[ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];

/// The protocol revisions that are served, oldest first.
///
/// Every `ServerHandler` here returns this from `supported_protocol_versions`. The SDK then refuses
/// a request that names another revision with -32022, and answers an `initialize` that names one
/// with the newest of these that has that handshake (2025-11-25), provided that the handler's
/// `get_info().protocol_version` is left alone or names a revision of this list.
pub fn supported_versions() -> Cow<'static, [ProtocolVersion]> {
    Cow::Borrowed(SUPPORTED_VERSIONS)
}

/// A bad, foreign, expired or stripped continuation state: one answer, whatever the cause, so that
/// nothing can be learned from it. An earlier leg may have committed, so the caller must ask.
#[must_use]
pub fn state_refused() -> ErrorData {
    ErrorData::invalid_params(
        "the continuation state is not usable for this request; ask get_operation_status what \
         became of the operation",
        Some(serde_json::json!({ "retry": "status_only" })),
    )
}
