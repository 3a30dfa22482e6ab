//! One message that came as a whole, as the body of an HTTP request: read by the rules of a frame.

use counterfoil_core::json::JsonLimits;
use rmcp::model::{CallToolResult, ErrorCode, ErrorData, GetExtensions};

use super::message::{self, Fault, Message};
use super::outgoing;
use super::{RawCall, WireId};

/// What a body holds.
#[derive(Debug)]
pub enum Body {
    /// A request, which gets one answer.
    Request(BodyRequest),
    /// A notification that the SDK can read, or the client's answer to a request of ours.
    Message,
    /// A notification that the SDK cannot read: allowed to be dropped.
    IgnoredNotification,
    /// An answer that the SDK cannot read.
    UnreadableReply,
}

/// A request of a client.
#[derive(Debug, Clone)]
pub struct BodyRequest {
    /// Its JSON-RPC ID.
    pub id: WireId,
    /// Its method, which may be one that nobody knows.
    pub method: String,
    /// Its lossless form.
    pub raw: RawCall,
}

/// Why a body goes no further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedBody {
    /// The JSON-RPC code.
    pub code: i32,
    /// The whole reply: a JSON-RPC error, with the request's ID where that could be read.
    pub reply: Vec<u8>,
}

/// Reads the body of one HTTP request.
///
/// # Errors
/// [`RefusedBody`] with the code that the same text gets on stdio; and -32600 for an ID that the
/// SDK would not repeat as it was written.
pub fn read_body(bytes: &[u8], limits: &JsonLimits) -> Result<Body, RefusedBody> {
    match message::read(bytes, limits).map_err(|fault| refused(&fault))? {
        Message::Request(request, id) => {
            if !id.is_exact() {
                let message = "member id must be a string, or an integer of 64 bits without \
                               fraction and exponent";
                return Err(refused(&Fault::new(Some(id), ErrorCode::INVALID_REQUEST, message)));
            }
            let raw = request.extensions().get::<RawCall>().cloned();
            let raw = raw.expect("the reader puts the raw form into every request");
            Ok(Body::Request(BodyRequest { id, method: request.method().to_owned(), raw }))
        }
        Message::Cancel(..) | Message::Notification(_) | Message::Reply(_) => Ok(Body::Message),
        Message::Ignored(_) => Ok(Body::IgnoredNotification),
        Message::UnreadableReply => Ok(Body::UnreadableReply),
    }
}

/// A JSON-RPC error as bytes. Without an ID where none could be read (MCP 2026-07-28, Base
/// Protocol, Error Responses).
#[must_use]
pub fn error_reply(id: Option<&WireId>, error: &ErrorData) -> Vec<u8> {
    outgoing::envelope(id.map(WireId::as_json), "error", error)
        .expect("an error's data is a JSON value, which can be written")
}

/// The result of a tool call as bytes.
#[must_use]
pub fn result_reply(id: &WireId, result: &CallToolResult) -> Vec<u8> {
    outgoing::envelope(Some(id.as_json()), "result", result)
        .expect("a result of ours holds JSON values, which can be written")
}

fn refused(fault: &Fault) -> RefusedBody {
    RefusedBody { code: fault.code.0, reply: outgoing::fault(fault) }
}
