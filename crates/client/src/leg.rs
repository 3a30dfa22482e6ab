//! The legs of one call: its first request and its continuations. Each is sent by being used up.

use std::collections::BTreeMap;

use counterfoil_core::identity::OperationId;
use rmcp::ServiceError;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, InputRequest,
    InputRequiredResult, MetaObject, RequestMetaObject,
};
use serde_json::{Map, Value, json};

use crate::answers::Answers;
use crate::connection::{Writer, form_of};
use crate::http::HttpProblem;
use crate::identity::ID_META;

/// One request that is about to be sent. Not `Clone`: it is sent once.
#[derive(Debug)]
pub(crate) struct Leg {
    params: CallToolRequestParams,
    number: u32,
}

/// How a leg ended.
#[derive(Debug)]
pub(crate) enum LegEnd {
    /// With a result.
    Complete(CallToolResult),
    /// With a question to the user.
    Input(Pending),
    /// With an error in place of a result.
    Failed(ErrorData),
    /// With no reply, or with what cannot be read; why, in words.
    Broken(String),
    /// Over HTTP, and surely before anything was done for it.
    NotAdmitted(HttpProblem),
}

/// What the server asks, and the request that the answers belong to.
#[derive(Debug)]
pub(crate) struct Pending {
    params: CallToolRequestParams,
    number: u32,
    asked: InputRequiredResult,
}

impl Leg {
    /// The first request of a call; with its ID in `_meta` if it is not among the arguments.
    pub(crate) fn first(
        tool: &str,
        arguments: Map<String, Value>,
        id_for_meta: Option<&OperationId>,
    ) -> Self {
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        if let Some(id) = id_for_meta {
            let mut meta = MetaObject::new();
            meta.0.insert(ID_META.into(), id.as_str().into());
            params.meta = Some(RequestMetaObject(meta));
        }
        Self { params, number: 1 }
    }

    /// Counted from one.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    pub(crate) async fn send(self, writer: &Writer) -> LegEnd {
        let Self { params, number } = self;
        // Only what a continuation repeats is kept; the request itself is gone.
        let mut kept = CallToolRequestParams::new(params.name.clone());
        kept.arguments.clone_from(&params.arguments);
        kept.meta.clone_from(&params.meta);
        match writer.call(params).await {
            Ok(CallToolResponse::Complete(result)) => LegEnd::Complete(result),
            Ok(CallToolResponse::InputRequired(asked)) => {
                LegEnd::Input(Pending { params: kept, number, asked })
            }
            // No task was asked for; what it stands for cannot be read here.
            Ok(_) => LegEnd::Broken(writer.why(&ServiceError::UnexpectedResponse).await),
            Err(ServiceError::McpError(error)) => LegEnd::Failed(error),
            Err(error) => match writer.http_problem() {
                Some(problem) if problem.is_unsent() || problem.is_refusal() => {
                    LegEnd::NotAdmitted(problem)
                }
                _ => LegEnd::Broken(writer.why(&error).await),
            },
        }
    }
}

impl Pending {
    /// The `_meta` of the server's question.
    pub(crate) const fn meta(&self) -> Option<&MetaObject> {
        self.asked.meta.as_ref()
    }

    /// Whether the server only wants to be asked again, later.
    pub(crate) fn asks_nothing(&self) -> bool {
        self.asked.input_requests.as_ref().is_none_or(|requests| requests.is_empty())
    }

    /// The continuation with the user's answers.
    ///
    /// # Errors
    /// The names of what the answers leave open.
    pub(crate) fn answer(self, answers: &Answers) -> Result<Leg, Vec<String>> {
        let Self { mut params, number, asked } = self;
        let mut responses = BTreeMap::new();
        let mut missing = Vec::new();
        for (key, request) in asked.input_requests.iter().flatten() {
            let form = match request {
                InputRequest::Elicitation(request) => form_of(&request.params),
                _ => None,
            };
            match form.map(|form| answers.fill(key, &form)) {
                Some(Ok(content)) => {
                    responses.insert(key.clone(), json!({"action": "accept", "content": content}));
                }
                Some(Err(names)) => missing.extend(names),
                None => missing.push(format!("{key} (not a form: it cannot be answered here)")),
            }
        }
        if !missing.is_empty() {
            return Err(missing);
        }
        params.input_responses = (!responses.is_empty()).then_some(responses);
        params.request_state = asked.request_state;
        Ok(Leg { params, number: number + 1 })
    }
}
