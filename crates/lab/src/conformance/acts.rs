//! What the fixtures do when they are called.

#![expect(deprecated, reason = "the older revisions have it, and the suite asks for it")]

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
    CreateMessageRequestParams, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    InputRequest, InputRequests, InputRequiredResult, InputResponses, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::fixtures::Act;
use super::server::{FixtureServer, typed};

type Context = RequestContext<RoleServer>;

/// One asking fixture.
struct Asking<'a> {
    rounds: &'a [InputRequests],
    sealed: bool,
    declared_only: bool,
}

/// What an asking fixture says next.
enum Turn {
    Ask(InputRequiredResult),
    Done,
}

/// Calls a tool.
pub(super) async fn call(
    server: &FixtureServer,
    request: CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    let mut tools = server.fixtures.tools.iter();
    let Some(tool) = tools.find(|tool| tool.definition.name == request.name) else {
        return Err(ErrorData::invalid_params(format!("there is no tool {}", request.name), None));
    };
    let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
    let text = match &tool.act {
        Act::Say { result } => return Ok(typed::<CallToolResult>(result.clone())?.into()),
        Act::Ask { rounds, sealed, declared_only, says } => {
            let asking = Asking { rounds, sealed: *sealed, declared_only: *declared_only };
            let (answers, state) = (&request.input_responses, &request.request_state);
            match asking.turn(server, answers.as_ref(), state.as_deref(), context)? {
                Turn::Ask(asked) => return Ok(asked.into()),
                Turn::Done => format!("{says}: {}", json!(answers)),
            }
        }
        Act::Echo | Act::Embed => match arguments["value"].as_str() {
            Some(value) => value.to_owned(),
            None => return Err(ErrorData::invalid_params("the argument value is no text", None)),
        },
        Act::Elicit { params } => {
            let mut params = json!(params);
            if let Some(message) = arguments.get("message") {
                params["message"] = message.clone();
            }
            let answer = context.peer.create_elicitation(typed(params)?).await;
            let answer = answer.map_err(|error| internal(&error))?;
            format!("User response: {}", json!(answer))
        }
        Act::Sample => sample(&arguments, context).await?,
        Act::Log => {
            for line in ["started", "is at work", "completed"] {
                log(LoggingLevel::Info, &format!("Tool execution {line}"), context).await?;
            }
            "logged three lines".into()
        }
        Act::LogIfAsked => {
            if let Some(level) = context.meta.log_level() {
                log(level, "a level was asked for", context).await?;
            }
            "logged what was asked for".into()
        }
        Act::Progress => progress(context).await?,
        Act::Announce { list } => {
            for listener in server.memory.listeners() {
                // One who has left in the meantime hears nothing.
                let _ = match list.as_str() {
                    "tools" => listener.notify_tool_list_changed().await,
                    _ => listener.notify_prompt_list_changed().await,
                };
            }
            "announced".into()
        }
        Act::NeedSampling => {
            let declared = context.client_capabilities().unwrap_or_default();
            if declared.sampling.is_none() {
                let needed = ClientCapabilities::builder().enable_sampling().build();
                return Err(ErrorData::missing_required_client_capability(needed));
            }
            "the client has sampling".into()
        }
    };
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
}

/// Gets a prompt.
pub(super) fn prompt(
    server: &FixtureServer,
    request: GetPromptRequestParams,
    context: &Context,
) -> Result<GetPromptResponse, ErrorData> {
    let mut prompts = server.fixtures.prompts.iter();
    let Some(prompt) = prompts.find(|prompt| prompt.definition.name == request.name) else {
        return Err(ErrorData::invalid_params(
            format!("there is no prompt {}", request.name),
            None,
        ));
    };
    let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
    let text = |text: String| json!({ "type": "text", "text": text });
    let contents = match &prompt.act {
        Act::Say { result } => return Ok(typed::<GetPromptResult>(result.clone())?.into()),
        Act::Ask { rounds, sealed, declared_only, says } => {
            let asking = Asking { rounds, sealed: *sealed, declared_only: *declared_only };
            let (answers, state) = (&request.input_responses, &request.request_state);
            match asking.turn(server, answers.as_ref(), state.as_deref(), context)? {
                Turn::Ask(asked) => return Ok(asked.into()),
                Turn::Done => vec![text(format!("{says}: {}", json!(answers)))],
            }
        }
        Act::Embed => vec![
            json!({ "type": "resource", "resource": {
                "uri": arguments["resourceUri"], "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            } }),
            text("Please process the embedded resource above.".into()),
        ],
        _ => {
            let said = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
            let (first, second) = (said("arg1"), said("arg2"));
            vec![text(format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
        }
    };
    let message = |content| json!({ "role": "user", "content": content });
    let messages: Value = contents.into_iter().map(message).collect();
    Ok(typed::<GetPromptResult>(json!({ "messages": messages, "resultType": "complete" }))?.into())
}

impl Asking<'_> {
    fn turn(
        &self,
        server: &FixtureServer,
        answers: Option<&InputResponses>,
        state: Option<&str>,
        context: &Context,
    ) -> Result<Turn, ErrorData> {
        let round = match state.filter(|_| self.sealed) {
            Some(state) => server.memory.open(state).ok_or_else(|| {
                ErrorData::invalid_params("the state is none that was handed out here", None)
            })?,
            None => 0,
        };
        let declared = context.client_capabilities().unwrap_or_default();
        let mut asked = self.rounds[round].clone();
        asked.retain(|_, input| !self.declared_only || has(&declared, input));
        let answered = |name: &String| {
            answers.and_then(|answers| answers.get(name)).is_some_and(Value::is_object)
        };
        // Without its state an answer belongs to no round.
        let all = asked.keys().all(answered) && (state.is_some() || !self.sealed);
        let next = if all { round + 1 } else { round };
        match self.rounds.get(next) {
            None => Ok(Turn::Done),
            Some(inputs) => {
                let inputs = if all { inputs.clone() } else { asked };
                let state = if self.sealed { Some(server.memory.seal(next)?) } else { None };
                Ok(Turn::Ask(InputRequiredResult::new(Some(inputs), state)))
            }
        }
    }
}

/// Whether a client declared that it answers this.
fn has(declared: &ClientCapabilities, input: &InputRequest) -> bool {
    match input {
        InputRequest::Elicitation(_) => declared.elicitation.is_some(),
        InputRequest::CreateMessage(_) => declared.sampling.is_some(),
        InputRequest::ListRoots(_) => declared.roots.is_some(),
        _ => false,
    }
}

async fn sample(arguments: &Value, context: &Context) -> Result<String, ErrorData> {
    let asked: CreateMessageRequestParams = typed(json!({
        "messages": [{ "role": "user",
                       "content": { "type": "text", "text": arguments["prompt"] } }],
        "maxTokens": 100,
    }))?;
    let answer = context.peer.create_message(asked).await.map_err(|error| internal(&error))?;
    Ok(format!("LLM response: {}", json!(answer)))
}

async fn progress(context: &Context) -> Result<String, ErrorData> {
    for percent in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let report = ProgressNotificationParam::new(token, percent).with_total(100.0);
            context.peer.notify_progress(report).await.map_err(|error| internal(&error))?;
        }
    }
    Ok("reported progress three times".into())
}

async fn log(level: LoggingLevel, line: &str, context: &Context) -> Result<(), ErrorData> {
    let message = LoggingMessageNotificationParam::new(level, json!(line)).with_logger("fixtures");
    context.peer.notify_logging_message(message).await.map_err(|error| internal(&error))
}

fn internal(error: &dyn std::error::Error) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
