//! A request as it was written, for handlers whose typed arguments have been rounded by decoding.

use std::fmt;
use std::sync::Arc;

use counterfoil_core::json::Value;

use super::WireId;

/// The lossless form of one request, in its `extensions`: `ctx.extensions.get::<RawCall>()`.
///
/// Admission reads arguments from here, never from the SDK's typed parameters. The request ID here
/// is the client's; the one in the SDK's context is our own number for it.
#[derive(Clone)]
pub struct RawCall(Arc<Inner>);

struct Inner {
    id: WireId,
    params: Option<Value>,
}

impl RawCall {
    pub(super) fn new(id: WireId, params: Option<Value>) -> Self {
        Self(Arc::new(Inner { id, params }))
    }

    /// The client's JSON-RPC ID of this request.
    pub fn id(&self) -> &WireId {
        &self.0.id
    }

    /// The whole `params` object; `None` when the request has none.
    pub fn params(&self) -> Option<&Value> {
        self.0.params.as_ref()
    }

    /// `params.arguments` of a tool call, of any JSON type.
    pub fn arguments(&self) -> Option<&Value> {
        self.member("arguments")
    }

    /// `params.inputResponses`: the answers of a call's second or later leg.
    pub fn input_responses(&self) -> Option<&Value> {
        self.member("inputResponses")
    }

    /// `params.requestState`: the sealed state of a call's second or later leg.
    pub fn request_state(&self) -> Option<&Value> {
        self.member("requestState")
    }

    /// `params._meta`.
    pub fn meta(&self) -> Option<&Value> {
        self.member("_meta")
    }

    fn member(&self, name: &str) -> Option<&Value> {
        self.0.params.as_ref()?.get(name)
    }
}

/// Shows the ID alone: arguments may be secret.
impl fmt::Debug for RawCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawCall").field("id", &self.0.id).finish_non_exhaustive()
    }
}
