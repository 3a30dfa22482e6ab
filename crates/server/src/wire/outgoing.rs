//! From the SDK's messages to frames: the client's own IDs are put back.

use rmcp::model::{
    ErrorCode, ErrorData, GetMeta, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
    ServerNotification, ServerResult,
};
use serde::Serialize;

use super::flight::{Answer, Flights};
use super::message::Fault;

/// A message on its way out. Whoever holds it has the only right to answer its request.
#[derive(Debug)]
pub(super) struct Outgoing {
    message: ServerJsonRpcMessage,
    answer: Option<Answer>,
}

impl Outgoing {
    /// `None` for an answer that is no longer wanted: the request was cancelled.
    pub(super) fn new(mut message: ServerJsonRpcMessage, flights: &Flights) -> Option<Self> {
        restore_subscription_id(&mut message, flights);
        if let JsonRpcMessage::Error(error) = &mut message
            && error.error.code == ErrorCode::METHOD_NOT_FOUND
        {
            error.error.message = unknown_method(&error.error.message).into();
        }
        let number = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let answer = match number {
            Some(RequestId::Number(number)) => Some(flights.answer(*number)?),
            // The SDK repeats only numbers that it was given.
            Some(RequestId::String(_)) => return None,
            None => None,
        };
        Some(Self { message, answer })
    }

    /// The JSON text, without line feeds.
    pub(super) fn frame(&self) -> Vec<u8> {
        let id = self.answer.as_ref().map(|answer| answer.id().as_json());
        match &self.message {
            JsonRpcMessage::Response(response) => envelope(id, "result", &response.result),
            JsonRpcMessage::Error(error) => envelope(id, "error", &error.error),
            message => serde_json::to_vec(message),
        }
        .unwrap_or_else(|error| {
            tracing::error!(%error, "a message cannot be written as JSON");
            let error = ErrorData::internal_error("the result cannot be written as JSON", None);
            envelope(id, "error", &error).expect("this error has no map and no float")
        })
    }
}

/// The SDK gives the bare name, however long it is.
fn unknown_method(name: &str) -> String {
    const LONGEST_CHARS: usize = 64;
    let mut shown: String = name.chars().take(LONGEST_CHARS).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    format!("method `{shown}` is not known to this server")
}

/// The refusal of a frame, as JSON text. Its `id` is absent where it could not be read (MCP
/// 2026-07-28, Base Protocol, Error Responses).
pub(super) fn fault(fault: &Fault) -> Vec<u8> {
    let error = ErrorData::new(fault.code, fault.message.clone(), fault.data.clone());
    let id = fault.id.as_ref().map(|id| id.as_json());
    envelope(id, "error", &error).expect("an error without data has no map and no float")
}

/// One answer: `member` is `result` or `error`; `id` is JSON text.
pub(super) fn envelope<T: Serialize>(
    id: Option<&str>,
    member: &str,
    body: &T,
) -> serde_json::Result<Vec<u8>> {
    let mut frame = br#"{"jsonrpc":"2.0","#.to_vec();
    if let Some(id) = id {
        frame.extend_from_slice(b"\"id\":");
        frame.extend_from_slice(id.as_bytes());
        frame.push(b',');
    }
    frame.push(b'"');
    frame.extend_from_slice(member.as_bytes());
    frame.extend_from_slice(b"\":");
    serde_json::to_writer(&mut frame, body)?;
    frame.push(b'}');
    Ok(frame)
}

/// Subscriptions are named by the ID of the request that opened them, inside of `_meta`.
fn restore_subscription_id(message: &mut ServerJsonRpcMessage, flights: &Flights) {
    let client_id = |number: Option<RequestId>| match number {
        Some(RequestId::Number(number)) => flights.id_of(number).map(|id| id.to_request_id()),
        _ => None,
    };
    match message {
        JsonRpcMessage::Notification(message) => {
            let notification: &mut ServerNotification = &mut message.notification;
            if let Some(id) = client_id(notification.get_meta().subscription_id()) {
                notification.get_meta_mut().set_subscription_id(id);
            }
        }
        JsonRpcMessage::Response(response) => {
            if let ServerResult::SubscriptionsListenResult(result) = &mut response.result
                && let Some(id) = client_id(result.meta.subscription_id())
            {
                result.meta.set_subscription_id(id);
            }
        }
        JsonRpcMessage::Request(_) | JsonRpcMessage::Error(_) => {}
    }
}
