//! The one question of `create_issue` and its answers, for both ways of asking.

use counterfoil_core::json::Value;
use rmcp::model::{ElicitRequest, ElicitRequestParams, ElicitationSchema};
use serde_json::json;

use super::create_issue::usable_body;

/// What the user made of the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A body that can be used.
    Accepted(String),
    /// `decline` or `cancel`.
    NotAccepted(&'static str),
    /// Missing, or not in the form that was asked for: to be asked again.
    Unusable,
}

impl Answer {
    /// From an elicitation's action and the text of its `body` field.
    #[must_use]
    pub fn from_parts(action: &str, body: Option<&str>) -> Self {
        match (action, body) {
            ("decline", _) => Self::NotAccepted("decline"),
            ("cancel", _) => Self::NotAccepted("cancel"),
            ("accept", Some(body)) if usable_body(body) => Self::Accepted(body.to_owned()),
            _ => Self::Unusable,
        }
    }
}

/// Reads the answers of a continuation; keys that were not asked for are ignored.
#[must_use]
pub fn read_answer(answers: Option<&Value>) -> Answer {
    let member = |value: Option<&'_ Value>, name: &str| -> Option<Value> {
        value.and_then(Value::as_object).and_then(|object| object.get(name)).cloned()
    };
    let answer = member(answers, "body");
    let action = member(answer.as_ref(), "action");
    let content = member(answer.as_ref(), "content");
    let body = member(content.as_ref(), "body");
    Answer::from_parts(
        action.as_ref().and_then(Value::as_str).unwrap_or_default(),
        body.as_ref().and_then(Value::as_str),
    )
}

/// The question: one flat form with one text field.
#[must_use]
pub fn form(title: &str) -> ElicitRequest {
    let schema = json!({
        "type": "object",
        "properties": {
            "body": {
                "type": "string",
                "title": "Body",
                "description": "What the issue says",
                "minLength": 1
            }
        },
        "required": ["body"]
    });
    let requested_schema = ElicitationSchema::from_json_schema(rmcp::model::object(schema))
        .expect("the form is a flat object of text fields");
    ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: format!("What should the issue “{title}” say?"),
        requested_schema,
    })
}

#[cfg(test)]
mod tests {
    use counterfoil_core::json::{JsonLimits, parse};

    use super::*;

    #[test]
    fn only_an_accepted_text_is_an_answer() {
        // Promise: a missing or unusable answer writes nothing and is asked for again.
        let cases = [
            (
                r#"{"body":{"action":"accept","content":{"body":"x"}}}"#,
                Answer::Accepted("x".into()),
            ),
            (
                r#"{"other":1,"body":{"action":"accept","content":{"body":"x","more":2},"a":1}}"#,
                Answer::Accepted("x".into()),
            ),
            (r#"{"body":{"action":"decline"}}"#, Answer::NotAccepted("decline")),
            (
                r#"{"body":{"action":"cancel","content":{"body":"x"}}}"#,
                Answer::NotAccepted("cancel"),
            ),
            (r#"{"body":{"action":"accept","content":{"body":"  "}}}"#, Answer::Unusable),
            (r#"{"body":{"action":"accept","content":{"body":7}}}"#, Answer::Unusable),
            (r#"{"body":{"action":"accept"}}"#, Answer::Unusable),
            (r#"{"body":{"action":"yes","content":{"body":"x"}}}"#, Answer::Unusable),
            (r#"{"body":"x"}"#, Answer::Unusable),
            ("{}", Answer::Unusable),
            ("[]", Answer::Unusable),
        ];
        for (json, expected) in cases {
            let value = parse(json.as_bytes(), &JsonLimits::default()).expect("JSON");
            assert_eq!(read_answer(Some(&value)), expected, "{json}");
        }
        assert_eq!(read_answer(None), Answer::Unusable);
    }
}
