//! What a reply says, and what may be concluded from it. Pure: nothing here sends.

use counterfoil_core::consumer::{Action, Belief, Effect, Submission};
use counterfoil_core::identity::OperationId;
use counterfoil_core::observation::ObservedState;
use counterfoil_core::refusal::{Code, Retry};
use rmcp::model::{CallToolResult, ErrorData, MetaObject};
use serde::Deserialize;
use serde_json::Value;

/// The `_meta` key of what Counterfoil says of an operation.
pub(crate) const OPERATION_META: &str = "io.counterfoil/operation";

/// JSON-RPC errors that come before any effect: unreadable or unknown requests, and the reserved
/// ones for headers, capabilities and versions (MCP 2026-07-28).
const BEFORE_ANY_EFFECT: [i32; 7] = [-32700, -32600, -32601, -32602, -32020, -32021, -32022];

const NOTHING_DONE: Belief = Belief {
    submission: Submission::NotAdmitted,
    effect: Effect::NotApplied,
    action: Action::Stop,
};

/// A call that was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The operation, if the call or the reply named one.
    pub operation_id: Option<OperationId>,
    /// What is known now.
    pub belief: Belief,
    /// The answer.
    pub reply: Reply,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The tool's result, also if it is an error of the tool's own.
    Result(ToolReply),
    /// The call was refused before anything was done for it.
    Refused(Refused),
    /// The server asked for input that was not given, and nothing more was sent. Names only.
    InputMissing(Vec<String>),
}

/// A tool's result.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolReply {
    /// The structured content; without one a single text, else the content blocks.
    pub value: Value,
    /// Whether the tool calls it an error.
    pub is_error: bool,
    /// What Counterfoil says of the operation; `None` from a server that is not guarded.
    pub operation: Option<Operation>,
}

/// What Counterfoil says of the operation that a result belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// The operation; `None` if its ID could not be read.
    pub operation_id: Option<OperationId>,
    /// What is known of its effect.
    #[serde(default = "unknown")]
    pub state: ObservedState,
    /// Whether an earlier call made the effect.
    #[serde(default)]
    pub replayed: bool,
    /// What may be done next.
    pub retry: Retry,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// A stable word such as `operation_conflict`, the number of a JSON-RPC error, or `http_401`
    /// for a status of HTTP.
    pub code: String,
    /// The server's words.
    pub message: String,
    /// What may be done next.
    pub retry: Retry,
    /// Where the tool wants to ask for input and this client announced no forms: the text
    /// arguments of the tool that were not given, one of which it most likely asks for.
    pub not_given: Vec<String>,
}

/// Why nothing is known of a call that was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LostReason {
    /// The connection ended, or the reply cannot be read.
    #[error("no reply came: {0}")]
    NoReply(String),
    /// The user waits no longer. The request may have left or not.
    #[error("the wait for its reply was interrupted")]
    Interrupted,
    /// The time is over.
    #[error("no reply came in time")]
    TimedOut,
    /// The server answered with an error after which an effect is possible.
    #[error("the server answered with an error that does not exclude an effect: {0}")]
    Error(String),
    /// What the reply says of the operation cannot be read, or is of another operation.
    #[error("the reply speaks of another operation, or of none that can be read")]
    OtherOperation,
    /// The server asked for more input than was given, after answers were sent.
    #[error("the server asked for more input, after it had got answers: {0}")]
    InputMissing(String),
    /// The server kept asking.
    #[error("the server still asked for input after {0} rounds")]
    TooManyRounds(u32),
    /// The ID that the server gave could not be saved, so nothing more was sent.
    #[error("the ID that the server gave could not be saved: {0}")]
    NotSaved(String),
}

/// An error as our own tools put it.
#[derive(Deserialize)]
pub(crate) struct ErrorBody {
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
}

const fn unknown() -> ObservedState {
    ObservedState::Unknown
}

/// What `_meta` says of the operation.
///
/// # Errors
/// [`LostReason::OtherOperation`] if it cannot be read, or is not of the operation `expected`.
pub(crate) fn operation_in(
    meta: Option<&MetaObject>,
    expected: Option<&OperationId>,
) -> Result<Option<Operation>, LostReason> {
    let Some(value) = meta.and_then(|meta| meta.0.get(OPERATION_META)) else {
        return Ok(None);
    };
    let operation = Operation::deserialize(value).map_err(|_| LostReason::OtherOperation)?;
    match (&operation.operation_id, expected) {
        (Some(named), Some(expected)) if named != expected => Err(LostReason::OtherOperation),
        _ => Ok(Some(operation)),
    }
}

/// Judges a result. `first` says that no earlier leg, and no answer, can have had an effect.
///
/// # Errors
/// [`LostReason`] if the result leaves open whether there was an effect that only a status tells.
pub(crate) fn judge_result(
    first: bool,
    expected: Option<&OperationId>,
    result: CallToolResult,
) -> Result<Finished, LostReason> {
    let operation = operation_in(result.meta.as_ref(), expected)?;
    let is_error = result.is_error == Some(true);
    let state = operation.as_ref().map(|operation| operation.state);
    let settled = state.is_some_and(|state| state != ObservedState::Unknown);
    let body = is_error.then(|| error_body(&result)).flatten();
    let named = operation.as_ref().and_then(|operation| operation.operation_id.clone());
    let operation_id = expected.cloned().or(named);

    if is_error && !first && !settled {
        let code = body.map_or_else(|| "isError".into(), |body| body.code);
        return Err(LostReason::Error(code));
    }
    if let (Some(operation), Some(body), false) = (&operation, body, settled) {
        let refused = Refused {
            code: body.code,
            message: body.message,
            retry: operation.retry,
            not_given: Vec::new(),
        };
        return Ok(refuse(operation_id, refused));
    }
    let belief = match state {
        Some(state) => belief_of(state, operation.as_ref().map(|operation| operation.retry)),
        None if is_error => belief_of(ObservedState::Unknown, None),
        None => belief_of(ObservedState::Applied, None),
    };
    let reply = ToolReply { value: value_of(result), is_error, operation };
    Ok(Finished { operation_id, belief, reply: Reply::Result(reply) })
}

/// Judges an error in place of a result.
///
/// # Errors
/// [`LostReason`] unless it is the first leg's and excludes an effect, or is our own refusal.
pub(crate) fn judge_error(
    first: bool,
    expected: Option<&OperationId>,
    error: ErrorData,
) -> Result<Finished, LostReason> {
    let retry = retry_in(&error);
    let excludes_effect = retry.is_some() || BEFORE_ANY_EFFECT.contains(&error.code.0);
    if !first || !excludes_effect {
        return Err(LostReason::Error(error_in_words(&error)));
    }
    let refused = Refused {
        code: error.code.0.to_string(),
        message: error.message.into_owned(),
        retry: retry.unwrap_or(Retry::None),
        not_given: Vec::new(),
    };
    Ok(refuse(expected.cloned(), refused))
}

/// A first leg that was refused before it reached the tool. Once the cause is mended, the same call
/// may be sent. This call did nothing; where it brought an ID, an earlier one may have.
pub(crate) fn denied(operation_id: Option<OperationId>, code: String, message: String) -> Finished {
    let retry = Retry::SameOperation;
    let refused = Refused { code, message, retry, not_given: Vec::new() };
    let effect = if operation_id.is_some() { Effect::Unknown } else { Effect::NotApplied };
    let belief = Belief { effect, ..NOTHING_DONE };
    Finished { operation_id, belief, reply: Reply::Refused(refused) }
}

/// A first leg that asks for what the user did not give. Nothing more is sent.
pub(crate) fn input_missing(operation_id: Option<OperationId>, names: Vec<String>) -> Finished {
    Finished { operation_id, belief: NOTHING_DONE, reply: Reply::InputMissing(names) }
}

/// The name that JSON-RPC 2.0 or MCP 2026-07-28 gives to an error's number.
#[must_use]
pub fn name_of_code(code: &str) -> Option<&'static str> {
    Some(match code {
        "-32700" => "parse error",
        "-32600" => "invalid request",
        "-32601" => "method not found",
        "-32602" => "invalid params",
        "-32603" => "internal error",
        "-32020" => "header mismatch",
        "-32021" => "missing client capability",
        "-32022" => "unsupported protocol version",
        _ => return None,
    })
}

/// An error with its name, where it has one.
pub(crate) fn error_in_words(error: &ErrorData) -> String {
    let code = error.code.0.to_string();
    match name_of_code(&code) {
        Some(name) => format!("{name} ({code}): {}", error.message),
        None => format!("error {code}: {}", error.message),
    }
}

fn refuse(operation_id: Option<OperationId>, refused: Refused) -> Finished {
    let (submission, effect) = match refused.retry {
        // Another request has the ID, and what that one did is open.
        _ if refused.code == Code::OperationConflict.as_str() => {
            (Submission::NotAdmitted, Effect::Unknown)
        }
        Retry::None | Retry::NewOperation => (Submission::NotAdmitted, Effect::NotApplied),
        // This call did nothing; whether an earlier one did is open.
        Retry::StatusOnly => (Submission::NotAdmitted, Effect::Unknown),
        // A commit whose acknowledgement was lost is refused like this too.
        Retry::SameOperation => (Submission::Unknown, Effect::Unknown),
    };
    let belief = Belief { submission, effect, action: Action::Stop };
    Finished { operation_id, belief, reply: Reply::Refused(refused) }
}

const fn belief_of(state: ObservedState, retry: Option<Retry>) -> Belief {
    let (effect, action) = match (state, retry) {
        (ObservedState::Applied, _) => (Effect::Applied, Action::ReturnStoredResult),
        (ObservedState::Partial, _) => (Effect::Partial, Action::Stop),
        (ObservedState::NotApplied, _) => (Effect::NotApplied, Action::Stop),
        (ObservedState::Unknown, Some(Retry::StatusOnly)) => (Effect::Unknown, Action::Reconcile),
        (ObservedState::Unknown, _) => (Effect::Unknown, Action::Stop),
    };
    Belief { submission: Submission::Admitted, effect, action }
}

/// `{code, message}`: in the structured content of our own tools, in `_meta` of guarded ones.
pub(crate) fn error_body(result: &CallToolResult) -> Option<ErrorBody> {
    let in_content = result.structured_content.as_ref().and_then(|content| content.get("error"));
    let in_meta = || result.meta.as_ref()?.0.get(OPERATION_META)?.get("error");
    let body = in_content.or_else(in_meta)?;
    ErrorBody::deserialize(body).ok()
}

fn retry_in(error: &ErrorData) -> Option<Retry> {
    let data = error.data.as_ref()?;
    let in_meta = || data.get("_meta")?.get(OPERATION_META)?.get("retry");
    Retry::deserialize(data.get("retry").or_else(in_meta)?).ok()
}

pub(crate) fn value_of(result: CallToolResult) -> Value {
    if let Some(value) = result.structured_content {
        return value;
    }
    match result.content.as_slice() {
        [only] if only.as_text().is_some() => {
            only.as_text().map(|text| Value::from(text.text.clone())).unwrap_or_default()
        }
        blocks => serde_json::to_value(blocks).unwrap_or_default(),
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
