//! From one frame to one JSON-RPC message, or to the fault that says why not.
//!
//! The envelope (`jsonrpc`, `id`, `method`) is judged here on the lossless tree; the SDK decodes
//! only `method` and `params`, from the tree's own text, and so never sees an ID or a duplicate.

use counterfoil_core::json::{self, JsonError, JsonErrorKind, JsonLimits, Object, Value};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientNotification,
    ClientRequest, ErrorCode, GetExtensions, ProtocolVersion,
};
use serde::Deserialize;

use super::scan::Envelope;
use super::{MAX_ID_BYTES, RawCall, WireId};

/// One message of the client.
#[derive(Debug)]
pub(super) enum Message {
    /// Boxed, as is the reply: the SDK's enums are large.
    Request(Box<ClientRequest>, WireId),
    /// `notifications/cancelled`: the request it names, and the reason.
    Cancel(WireId, Option<String>),
    Notification(Box<ClientNotification>),
    /// The client's answer to a request of ours.
    Reply(Box<ClientJsonRpcMessage>),
    /// Allowed to be dropped: a notification that the SDK cannot read.
    Ignored(&'static str),
    /// An answer that the SDK cannot read.
    UnreadableReply,
}

/// Why a frame is refused. The message names the rule and the remedy, never a value.
#[derive(Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) id: Option<WireId>,
    pub(super) code: ErrorCode,
    pub(super) message: String,
    pub(super) data: Option<serde_json::Value>,
}

impl Fault {
    pub(super) fn new(id: Option<WireId>, code: ErrorCode, message: impl Into<String>) -> Self {
        Self { id, code, message: message.into(), data: None }
    }

    /// A line that was longer than `max_bytes` and was not kept.
    pub(super) fn oversized(envelope: Envelope, size_bytes: u64, max_bytes: usize) -> Self {
        let message = format!(
            "the frame has {size_bytes} bytes, past the limit of {max_bytes} bytes; send less"
        );
        Self::new(envelope.id, ErrorCode::PARSE_ERROR, message)
    }
}

/// Reads one frame.
///
/// # Errors
///
/// -32700 if the bytes are not JSON, -32600 if the JSON is no JSON-RPC message that MCP has, and
/// -32602 if the message is well formed but ambiguous, past a limit, or does not fit its method.
pub(super) fn read(frame: &[u8], limits: &JsonLimits) -> Result<Message, Fault> {
    let value = match json::parse(frame, limits) {
        Ok(value) => value,
        Err(error) => return Err(unreadable(frame, &error)),
    };
    let Value::Object(mut object) = value else {
        let message = "a frame must be one JSON object; batches are not part of the served \
                       protocol versions: send each message by itself";
        return Err(Fault::new(None, ErrorCode::INVALID_REQUEST, message));
    };
    let has_outcome = object.contains_key("result") || object.contains_key("error");
    let method = object.remove("method");
    if method.is_none() && has_outcome {
        return read_reply(frame, &object);
    }
    let id = object.get("id").map(WireId::from_value);
    let invalid =
        |message: &str| Err(Fault::new(id.clone().flatten(), ErrorCode::INVALID_REQUEST, message));
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return invalid("member jsonrpc must be \"2.0\"");
    }
    let Some(Value::String(method)) = method else {
        return invalid("member method must be there and be a string");
    };
    if has_outcome {
        return invalid("a request must have neither result nor error");
    }
    let params = object.remove("params");
    match id {
        None => Ok(read_notification(&method, params.as_ref())),
        Some(None) => Err(Fault::new(
            None,
            ErrorCode::INVALID_REQUEST,
            format!("member id must be a string or an integer of at most {MAX_ID_BYTES} bytes"),
        )),
        Some(Some(id)) => read_request(frame, id, &method, params),
    }
}

fn unreadable(frame: &[u8], error: &JsonError) -> Fault {
    let code = match error.kind {
        JsonErrorKind::NotUtf8
        | JsonErrorKind::Syntax { .. }
        | JsonErrorKind::TrailingData
        | JsonErrorKind::TooLarge { .. } => ErrorCode::PARSE_ERROR,
        JsonErrorKind::DuplicateKey
        | JsonErrorKind::UnpairedSurrogate
        | JsonErrorKind::TooDeep { .. }
        | JsonErrorKind::StringTooLong { .. }
        | JsonErrorKind::TooManyMembers { .. } => ErrorCode::INVALID_PARAMS,
    };
    Fault::new(Envelope::of(frame).id, code, error.to_string())
}

fn read_reply(frame: &[u8], object: &Object) -> Result<Message, Fault> {
    // A fault here must not carry the ID: see `Envelope`.
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        let message = "member jsonrpc of an answer must be \"2.0\"";
        return Err(Fault::new(None, ErrorCode::INVALID_REQUEST, message));
    }
    Ok(match serde_json::from_slice(frame) {
        Ok(reply) => Message::Reply(Box::new(reply)),
        Err(_) => Message::UnreadableReply,
    })
}

fn read_notification(method: &str, params: Option<&Value>) -> Message {
    if method == "notifications/cancelled" {
        let id = params.and_then(|params| params.get("requestId")).and_then(WireId::from_value);
        let reason = params.and_then(|params| params.get("reason")).and_then(Value::as_str);
        return match id {
            Some(id) => Message::Cancel(id, reason.map(str::to_owned)),
            None => Message::Ignored("a cancellation without a request ID"),
        };
    }
    match serde_json::from_str(&sdk_text(method, params)) {
        Ok(notification) => Message::Notification(Box::new(notification)),
        Err(_) => Message::Ignored("a notification that the SDK cannot read"),
    }
}

fn read_request(
    frame: &[u8],
    id: WireId,
    method: &str,
    params: Option<Value>,
) -> Result<Message, Fault> {
    if params.as_ref().is_some_and(|params| params.as_object().is_none()) {
        return Err(Fault::new(Some(id), ErrorCode::INVALID_PARAMS, "params must be an object"));
    }
    if REMOVED_METHODS.contains(&method) && speaks_without_sessions(params.as_ref()) {
        let message = format!(
            "the protocol version that this request names has no method {method}; older ones do"
        );
        return Err(Fault::new(Some(id), ErrorCode::METHOD_NOT_FOUND, message));
    }
    let decoded = match method {
        TOOL_CALL => decode_tool_call(frame, params.as_ref()),
        _ => serde_json::from_str(&sdk_text(method, params.as_ref())),
    };
    let mut request = match decoded {
        // What fits no typed request decodes as a custom one, and would then be answered as if the
        // method did not exist.
        Ok(ClientRequest::CustomRequest(_)) if TYPED_METHODS.contains(&method) => {
            return Err(misfit(id, method, params.as_ref()));
        }
        Ok(request) => request,
        Err(_) => return Err(misfit(id, method, params.as_ref())),
    };
    request.extensions_mut().insert(RawCall::new(id.clone(), params));
    Ok(Message::Request(Box::new(request), id))
}

/// Most of all requests, decoded as what it is: the SDK's own decoder tries every other request
/// first, on a copy. What comes of a frame is the same; the reader has refused whatever two
/// decoders could understand differently.
fn decode_tool_call(frame: &[u8], tree: Option<&Value>) -> serde_json::Result<ClientRequest> {
    #[derive(Deserialize)]
    struct ToolCall {
        params: CallToolRequestParams,
    }
    let ToolCall { mut params } = serde_json::from_slice(frame)?;
    let members = tree.and_then(Value::as_object).into_iter().flat_map(Object::iter);
    for (_, unknown) in members.filter(|(name, _)| !TOOL_CALL_MEMBERS.contains(name)) {
        // A number there that is out of its range must not get as far as the SDK.
        serde_json::from_str::<serde_json::Value>(&unknown.to_json())?;
    }
    let meta = params.meta.take();
    let mut request = CallToolRequest::new(params);
    // Where the SDK looks for it.
    if let Some(meta) = meta {
        request.extensions.insert(meta);
    }
    Ok(ClientRequest::CallToolRequest(request))
}

fn misfit(id: WireId, method: &str, params: Option<&Value>) -> Fault {
    let brings = |name| params.is_some_and(|params| params.get(name).is_some());
    if brings("requestState") || brings("inputResponses") {
        // A continuation that cannot be read is refused like any other bad state: an earlier leg
        // may have committed.
        let refused = super::state_refused();
        let fault = Fault::new(Some(id), refused.code, refused.message);
        return Fault { data: refused.data, ..fault };
    }
    // `method` is repeated only where it is one of ours; an unknown one may be anything.
    let name = TYPED_METHODS.iter().find(|known| **known == method);
    let message = match name {
        Some(name) => format!("params do not fit method {name}: see its schema"),
        None => "params cannot be read: a number may be out of range".to_owned(),
    };
    Fault::new(Some(id), ErrorCode::INVALID_PARAMS, message)
}

const TOOL_CALL: &str = "tools/call";
/// The members of its params that the SDK has a type for.
const TOOL_CALL_MEMBERS: [&str; 5] =
    ["_meta", "name", "arguments", "inputResponses", "requestState"];

/// Whether a request says by itself that it is of a revision without sessions.
fn speaks_without_sessions(params: Option<&Value>) -> bool {
    let meta = params.and_then(|params| params.get("_meta"));
    let named = meta.and_then(|meta| meta.get(PROTOCOL_VERSION)).and_then(Value::as_str);
    // Revisions are dates, so text compares as time does. One that is not served is refused by name.
    let first = ProtocolVersion::V_2026_07_28;
    named.is_some_and(|named| {
        named >= first.as_str()
            && super::supported_versions().iter().any(|served| served.as_str() == named)
    })
}

/// What the SDK decodes: the method first, so that its untagged unions fail fast.
fn sdk_text(method: &str, params: Option<&Value>) -> String {
    let method = Value::from(method).to_json();
    match params {
        Some(params) => format!("{{\"method\":{method},\"params\":{}}}", params.to_json()),
        None => format!("{{\"method\":{method}}}"),
    }
}

/// Names the revision of a request that belongs to no session.
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Methods that revision 2026-07-28 removed (its Key Changes). Whatever their params are, they are
/// unknown there, and not wrongly used.
const REMOVED_METHODS: &[&str] =
    &["initialize", "logging/setLevel", "ping", "resources/subscribe", "resources/unsubscribe"];

/// The methods for which the SDK has a request type.
pub(crate) const TYPED_METHODS: &[&str] = &[
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/directory/read",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "skills/get",
    "skills/list",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/update",
    TOOL_CALL,
    "tools/list",
];

#[cfg(test)]
mod tests {
    use rmcp::model::RequestMetaObject;

    use super::*;

    #[test]
    fn a_removed_method_is_unknown_and_not_misused() {
        // Promise: a client of 2026-07-28 that tries an old method learns that it is gone.
        let legacy = r#","uri":"test://a","level":"info","protocolVersion":"2025-11-25",
            "capabilities":{},"clientInfo":{"name":"c","version":"1"}"#;
        let meta = |version: &str| {
            format!(r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}"}}"#)
        };
        let code = |method: &str, params: &str| {
            let frame =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#);
            match read(frame.as_bytes(), &JsonLimits::default()) {
                Err(fault) => Some(fault.code),
                Ok(_) => None,
            }
        };
        for method in REMOVED_METHODS {
            let now = meta("2026-07-28");
            let gone = Some(ErrorCode::METHOD_NOT_FOUND);
            assert_eq!(code(method, &now), gone, "{method}");
            assert_eq!(code(method, &format!("{now}{legacy}")), gone, "{method}, as it was");
            for before in ["2025-11-25", "2099-01-01"] {
                let before = meta(before);
                assert_eq!(code(method, &format!("{before}{legacy}")), None, "{method} {before}");
            }
        }
        assert_eq!(code("tools/list", &meta("2026-07-28")), None);
    }

    #[test]
    fn a_tool_call_is_decoded_as_the_sdk_decodes_it() {
        // Promise: the short way gives what the SDK's own decoder gives, or fails where it does.
        let shown = |decoded: serde_json::Result<ClientRequest>| match decoded {
            Ok(ClientRequest::CallToolRequest(call)) => {
                let meta = call.extensions.get::<RequestMetaObject>().cloned();
                Some(format!("{:?} {meta:?}", call.params))
            }
            _ => None,
        };
        let deep =
            format!(r#"{{"name":"t","arguments":{}1{}}}"#, "{\"a\":".repeat(120), "}".repeat(120));
        let params = [
            r#"{"name":"t"}"#,
            r#"{"name":"t","arguments":null,"_meta":null,"requestState":null,"inputResponses":null}"#,
            r#"{"name":"t","arguments":{"a":[1,-1,1.5,1e300,18446744073709551615,null,"\ud83d\ude00"]}}"#,
            r#"{"name":"t","arguments":{"n":123456789012345678901234567890}}"#,
            r#"{"name":"t","arguments":{"n":1e999}}"#,
            r#"{"name":"t","other":{"n":1e999}}"#,
            r#"{"name":"t","arguments":[]}"#,
            r#"{"name":"t","arguments":{},"_meta":{"progressToken":7,"x":{"y":[]}}}"#,
            r#"{"name":"t","_meta":[]}"#,
            r#"{"name":"t","_meta":"x"}"#,
            r#"{"name":"t","task":{"ttl":1},"further":1}"#,
            r#"{"name":"t","requestState":"s","inputResponses":{"b":{"action":"accept","content":{"b":"x"}}}}"#,
            r#"{"name":"t","requestState":7}"#,
            r#"{"name":"t","inputResponses":{"b":7}}"#,
            r#"{"name":"t","inputResponses":[]}"#,
            r#"{"name":7}"#,
            r#"{"arguments":{}}"#,
            "{}",
            &deep,
        ];
        let mut decoded_count = 0;
        for params in params {
            let frame = format!(
                r#" {{"x":1e999,"id":1,"params":{params},"method":"tools\/call","jsonrpc":"2.0"}} "#
            );
            let by_sdk = format!(r#"{{"method":"tools/call","params":{params}}}"#);
            let tree = json::parse(
                params.as_bytes(),
                &JsonLimits { max_depth: 200, ..Default::default() },
            );
            let short = shown(decode_tool_call(frame.as_bytes(), tree.as_ref().ok()));
            decoded_count += usize::from(short.is_some());
            assert_eq!(short, shown(serde_json::from_str(&by_sdk)), "{params}");
        }
        assert!((8..params.len()).contains(&decoded_count), "some are good, some are not");
        assert!(decode_tool_call(br#"{"method":"tools/call","id":1}"#, None).is_err());
    }
}
