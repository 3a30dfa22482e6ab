//! `create_issue`: the built-in multi-round tool. Round one asks for the body and hands out sealed
//! state, writing nothing; the continuation writes record and issue in one transaction.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use counterfoil_core::admission::{Admitted, Authority, Call};
use counterfoil_core::fingerprint::Profile;
use counterfoil_core::identity::{Caller, OperationId, ToolId, ToolVersion};
use counterfoil_core::json::{Object, Value};
use counterfoil_core::limits::{MAX_BODY_BYTES, MAX_TITLE_BYTES};
use counterfoil_core::refusal::{Refusal, Retry};
use counterfoil_engine::{Engine, FirstRound, StateBinding};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, ClientCapabilities, ElicitationCapability, FormElicitationCapability,
    InputRequest, InputRequests, InputRequiredResult, Tool, ToolAnnotations,
};
use serde_json::json;

use super::answer::{Answer, form, read_answer};
use super::arguments::{Arguments, check_text, invalid};
use super::issue_effect::{CreateIssue, Mode};
use super::reply::{self, Operation};
use crate::handler::{CallError, ClientSide};
use crate::wire::{RawCall, state_refused};

/// The tool's name.
pub const NAME: &str = "create_issue";
/// The version of the tool's contract, part of every fingerprint.
const VERSION: &str = "1";
const ARGUMENTS: [&str; 4] = ["operation_id", "title", "mode", "body"];
const BINDING: StateBinding = StateBinding { method: "tools/call" };
/// What a call without arguments brings.
static NO_ARGUMENTS: LazyLock<Value> = LazyLock::new(|| Value::Object(Object::default()));
/// How often an older client is asked again for an answer that cannot be used.
const LEGACY_ROUNDS: usize = 3;

/// One call, read.
#[derive(Debug)]
struct Request<'a> {
    operation_id: OperationId,
    title: String,
    mode: Mode,
    body: Option<String>,
    /// As given, with the operation ID in it whichever way it came.
    arguments: Cow<'a, Value>,
    /// The same without the operation ID.
    call_arguments: Value,
}

/// Answers one call.
///
/// # Errors
/// [`CallError`]: a refusal, or a protocol error for a state or a client that cannot be used.
pub async fn call(
    engine: &Arc<Engine>,
    caller: &Caller,
    raw: &RawCall,
    client: &ClientSide<'_>,
) -> Result<CallToolResponse, CallError> {
    let request = read(raw)?;
    let plain = admit(engine, caller, &request, None, None, Authority::Present)?;
    match (raw.request_state(), raw.input_responses()) {
        (None | Some(Value::Null), None | Some(Value::Null)) => {
            start(engine, caller, &request, plain, client).await
        }
        (Some(Value::String(state)), answers) => {
            let authority = engine
                .open_state(state, &plain, BINDING)
                .map_err(|_| CallError::Protocol(state_refused()))?;
            let continuation = Continuation { state, authority };
            resume(engine, caller, &request, &continuation, answers, client).await
        }
        // Answers without their state, or a state that is not text.
        _ => Err(CallError::Protocol(state_refused())),
    }
}

struct Continuation<'a> {
    state: &'a str,
    authority: Authority,
}

/// Round one, or a call that brings everything at once.
async fn start(
    engine: &Arc<Engine>,
    caller: &Caller,
    request: &Request<'_>,
    plain: Admitted,
    client: &ClientSide<'_>,
) -> Result<CallToolResponse, CallError> {
    if let Some(body) = &request.body {
        return execute(engine, request, body, plain, client).await;
    }
    if let FirstRound::Settled(settled) = engine.first_round(&plain).await? {
        return Ok(reply::settled(&settled).into());
    }
    if client.is_modern() {
        if !client.can_fill_forms() {
            return Err(CallError::Protocol(needs_form_elicitation()));
        }
        let state = engine
            .issue_state(&plain, BINDING)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        return Ok(ask(request, state).into());
    }
    let body = match ask_legacy(request, client).await? {
        Answer::Accepted(body) => body,
        Answer::NotAccepted(action) => return Ok(not_accepted(request, action)),
        Answer::Unusable => {
            let why = "the answers that the client gave could not be used";
            return Err(no_body(request, why).into());
        }
    };
    let answers = accepted(&body);
    let admitted = admit(engine, caller, request, None, Some(&answers), Authority::Present)?;
    execute(engine, request, &body, admitted, client).await
}

/// The continuation.
async fn resume(
    engine: &Arc<Engine>,
    caller: &Caller,
    request: &Request<'_>,
    continuation: &Continuation<'_>,
    answers: Option<&Value>,
    client: &ClientSide<'_>,
) -> Result<CallToolResponse, CallError> {
    let body = match read_answer(answers) {
        Answer::Accepted(body) => body,
        other => {
            // No usable answer writes nothing, but the record may be there already.
            let plain = admit(engine, caller, request, None, None, continuation.authority)?;
            if let FirstRound::Settled(settled) = engine.first_round(&plain).await? {
                return Ok(reply::settled(&settled).into());
            }
            return Ok(match other {
                Answer::NotAccepted(action) => not_accepted(request, action),
                // The same state again: asking anew must not extend its authority.
                _ => ask(request, continuation.state.to_owned()).into(),
            });
        }
    };
    let answers = accepted(&body);
    let admitted = admit(
        engine,
        caller,
        request,
        Some(continuation.state),
        Some(&answers),
        continuation.authority,
    )?;
    execute(engine, request, &body, admitted, client).await
}

async fn execute(
    engine: &Arc<Engine>,
    request: &Request<'_>,
    body: &str,
    admitted: Admitted,
    client: &ClientSide<'_>,
) -> Result<CallToolResponse, CallError> {
    if client.is_cancelled() {
        // Nothing was begun, and the reply is dropped.
        return Err(no_body(request, "the call was cancelled before anything was done").into());
    }
    let effect =
        CreateIssue { title: request.title.clone(), body: body.to_owned(), mode: request.mode };
    let settled =
        engine.execute_cancellable(admitted, Arc::new(effect), client.cancellation()).await?;
    Ok(reply::settled(&settled).into())
}

fn read(raw: &RawCall) -> Result<Request<'_>, Refusal> {
    let value = raw.arguments().unwrap_or(&NO_ARGUMENTS);
    let arguments = Arguments::read(NAME, &ARGUMENTS, value, raw.meta())?;
    let operation_id = arguments.operation_id(raw.meta())?;
    let named = |refusal: Refusal| refusal.for_operation(&operation_id);
    let title = arguments.required_text("title", MAX_TITLE_BYTES).map_err(named)?.to_owned();
    let mode = match arguments.text("mode", 16).map_err(named)? {
        None | Some("atomic") => Mode::Atomic,
        Some("partial") => Mode::Partial,
        Some(_) => {
            return Err(named(invalid("$.arguments.mode must be `atomic` or `partial`")));
        }
    };
    let body = arguments.text("body", MAX_BODY_BYTES).map_err(named)?.map(str::to_owned);
    let (call_arguments, arguments) = with_and_without_id(value, &operation_id);
    Ok(Request { operation_id, title, mode, body, arguments, call_arguments })
}

/// The arguments without the operation ID, and with it.
fn with_and_without_id<'a>(
    value: &'a Value,
    operation_id: &OperationId,
) -> (Value, Cow<'a, Value>) {
    let id = operation_id.as_str();
    let mut object = value.as_object().cloned().unwrap_or_default();
    let with = match object.remove("operation_id") {
        Some(Value::String(given)) if given == id => Cow::Borrowed(value),
        _ => {
            let mut with = value.as_object().cloned().unwrap_or_default();
            with.insert("operation_id", id);
            Cow::Owned(Value::Object(with))
        }
    };
    (Value::Object(object), with)
}

fn admit(
    engine: &Engine,
    caller: &Caller,
    request: &Request<'_>,
    continuation_state: Option<&str>,
    input_responses: Option<&Value>,
    authority: Authority,
) -> Result<Admitted, Refusal> {
    static TOOL: LazyLock<(ToolId, ToolVersion)> = LazyLock::new(|| {
        let valid = "the tool's own name and version are valid";
        (ToolId::parse(NAME).expect(valid), ToolVersion::parse(VERSION).expect(valid))
    });
    let (tool_id, tool_version) = &*TOOL;
    engine.admit(&Call {
        caller,
        tool_id,
        tool_version,
        profile: Profile::StrictV1,
        operation_id: &request.operation_id,
        arguments: &request.arguments,
        call_arguments: &request.call_arguments,
        continuation_state,
        input_responses,
        authority,
    })
}

/// The accepted answers as the fingerprint takes them: nothing but the action and the body.
fn accepted(body: &str) -> Value {
    let text = |text: &str| Value::String(text.to_owned());
    let object = |members: Vec<(&str, Value)>| {
        let mut object = Object::default();
        for (name, value) in members {
            object.insert(name, value);
        }
        Value::Object(object)
    };
    let content = object(vec![("body", text(body))]);
    object(vec![("body", object(vec![("action", text("accept")), ("content", content)]))])
}

fn ask(request: &Request<'_>, state: String) -> InputRequiredResult {
    let mut inputs = InputRequests::new();
    inputs.insert("body".into(), InputRequest::Elicitation(form(&request.title)));
    let mut result = InputRequiredResult::new(Some(inputs), Some(state));
    result.meta = Some(reply::operation_meta(&Operation {
        id: request.operation_id.as_str(),
        state: "unknown",
        replayed: false,
        retry: Retry::SameOperation,
        contract: None,
    }));
    result
}

async fn ask_legacy(request: &Request<'_>, client: &ClientSide<'_>) -> Result<Answer, Refusal> {
    if !client.can_fill_forms() {
        return Err(no_body(request, "this client cannot be asked for it"));
    }
    for _ in 0..LEGACY_ROUNDS {
        let given = client.elicit(form(&request.title).params).await;
        let given = given.map_err(|why| no_body(request, &why))?;
        let answer = Answer::from_parts(given.action.as_str(), given.text("body"));
        if answer != Answer::Unusable {
            return Ok(answer);
        }
    }
    Ok(Answer::Unusable)
}

fn not_accepted(request: &Request<'_>, action: &'static str) -> CallToolResponse {
    reply::not_accepted(request.operation_id.as_str(), action).into()
}

fn no_body(request: &Request<'_>, why: &str) -> Refusal {
    invalid(format!(
        "the issue needs a body and {why}; nothing was done: give it as the argument `body`"
    ))
    .for_operation(&request.operation_id)
}

fn needs_form_elicitation() -> ErrorData {
    let mut capabilities = ClientCapabilities::default();
    let form = ElicitationCapability::new().with_form(FormElicitationCapability::new());
    capabilities.elicitation = Some(form);
    let mut error = ErrorData::missing_required_client_capability(capabilities);
    error.message = "create_issue asks for the issue's body, so the client must declare \
                     elicitation.form, or pass the argument `body`"
        .into();
    error
}

/// What the tool takes and gives.
#[must_use]
pub fn definition() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "operation_id": {
                "type": "string", "minLength": 1, "maxLength": 128,
                "description": "Your own name for this one issue, for example a UUID. Keep it: if \
                                the reply is lost, ask get_operation_status with it instead of \
                                creating the issue again."
            },
            "title": { "type": "string", "minLength": 1, "maxLength": MAX_TITLE_BYTES },
            "mode": {
                "enum": ["atomic", "partial"], "default": "atomic",
                "description": "atomic: the issue in one transaction. partial: the issue, then a \
                                watcher as a second step that can fail."
            },
            "body": {
                "type": "string", "minLength": 1, "maxLength": MAX_BODY_BYTES,
                "description": "The issue's text. Leave it out and the user is asked for it."
            }
        },
        "required": ["operation_id", "title"],
        "additionalProperties": false
    });
    let output = json!({
        "type": "object",
        "properties": {
            "operationId": { "type": "string" },
            "effectId": { "type": "integer" },
            "state": { "enum": ["applied", "partial", "not_applied", "unknown"] },
            "replayed": { "type": "boolean" },
            "result": {},
            "action": { "enum": ["decline", "cancel"] },
            "error": error_schema()
        },
        "oneOf": [
            { "required": ["operationId", "state", "replayed", "result"] },
            { "required": ["operationId", "state", "action"] },
            { "required": ["error"] }
        ],
        "additionalProperties": false
    });
    let object = |schema: serde_json::Value| Arc::new(rmcp::model::object(schema));
    Tool::new(
        NAME,
        "Creates an issue, once for each operation_id: the same call again gives the stored \
         result, a changed one is refused. After a lost reply call get_operation_status.",
        object(input),
    )
    .with_raw_output_schema(object(output))
    .with_annotations(
        ToolAnnotations::with_title("Create an issue")
            .read_only(false)
            .destructive(false)
            .idempotent(true)
            .open_world(false),
    )
}

/// The schema of a refusal inside a tool's result.
#[must_use]
pub fn error_schema() -> serde_json::Value {
    json!({
        "type": "object",
        "properties": {
            "code": { "type": "string" },
            "message": { "type": "string" },
            "operationId": { "type": ["string", "null"] },
            "retry": { "enum": ["none", "same_operation", "status_only", "new_operation"] }
        },
        "required": ["code", "message", "operationId", "retry"],
        "additionalProperties": false
    })
}

/// A body within its limits, or not.
pub(super) fn usable_body(text: &str) -> bool {
    check_text("body", text, MAX_BODY_BYTES).is_ok()
}
