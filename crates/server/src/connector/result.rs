//! What a tool answers for a request that was applied: a declared rendering of the target's answer.

use std::sync::Arc;

use counterfoil_core::json::{Object, Value};
use counterfoil_core::record::StoredResult;

use super::schema::Schema;
use super::template::{Json, Scope, Text};

/// A tool's result as a template over `reply` (the target's answer, or the match of a lookup) and
/// `external_id`.
#[derive(Debug, Default)]
pub struct ResultTemplate {
    /// For people.
    pub text: Option<Text>,
    /// For programs.
    pub structured: Option<Json>,
    /// What the structured part must conform to.
    pub output: Option<Arc<Schema>>,
}

impl ResultTemplate {
    /// The result, stored as `{"text": ..., "structured": ...}`, the second only where it is
    /// declared and conforms to the output schema. What cannot be rendered falls back to words of
    /// ours: the effect is there, whatever its answer looks like.
    #[must_use]
    pub fn render(
        &self,
        connector: &str,
        reply: Option<&Value>,
        external_id: Option<&str>,
    ) -> StoredResult {
        let id = external_id.map_or(Value::Null, Value::from);
        let scope =
            Scope::new(vec![("reply", reply.unwrap_or(&Value::Null)), ("external_id", &id)]);
        let own_words = || match external_id {
            Some(id) => format!("{connector} did it; its ID there is {id}"),
            None => format!("{connector} did it"),
        };
        let text = self.text.as_ref().and_then(|text| text.render(&scope).ok());
        let mut stored = Object::new();
        stored.insert("text", text.unwrap_or_else(own_words));
        let structured = self.structured.as_ref().and_then(|it| it.render(&scope).ok());
        let conforms =
            |value: &Value| self.output.as_ref().is_none_or(|schema| schema.check(value).is_ok());
        if let Some(value) = structured.filter(conforms) {
            stored.insert("structured", value);
        }
        let text = Value::Object(stored).to_json();
        StoredResult::from_json(text).unwrap_or_else(|_| StoredResult::from_text(&own_words()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use counterfoil_core::json::{JsonLimits, parse};
    use serde_json::json;

    fn rendered(structured: &str, reply: &str) -> String {
        let schema = json!({
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        });
        let member = Json::Text(Text::parse(structured).expect("a template"));
        let template = ResultTemplate {
            text: Some(Text::parse("Issue {{ reply.number }}").expect("a template")),
            structured: Some(Json::Object(vec![("number".into(), member)])),
            output: Some(Arc::new(Schema::of_object(schema).expect("a schema"))),
        };
        let reply = parse(reply.as_bytes(), &JsonLimits::default()).expect("JSON");
        template.render("desk", Some(&reply), Some("7")).as_json().to_owned()
    }

    #[test]
    fn a_result_is_rendered_or_said_in_our_words_but_never_against_its_schema() {
        // Promise: what a tool declares as its output is what it gives, or it gives text alone.
        let number = "{{ reply.number }}";
        assert_eq!(
            rendered(number, r#"{"number":9007199254740993}"#),
            r#"{"text":"Issue 9007199254740993","structured":{"number":9007199254740993}}"#
        );
        assert_eq!(rendered(number, r#"{"number":"x"}"#), r#"{"text":"Issue x"}"#);
        assert_eq!(rendered(number, "{}"), r#"{"text":"desk did it; its ID there is 7"}"#);
        assert_eq!(rendered("{{ reply.number }}!", r#"{"number":1}"#), r#"{"text":"Issue 1"}"#);
    }
}
