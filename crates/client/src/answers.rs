//! What the user answers when a server asks for input, given before the call.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

/// Answers by key. `Debug` shows the keys alone, since answers may be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Answers(BTreeMap<String, String>);

/// An answer could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// There is no `=`, or nothing before it. The text is not shown, as it may be secret.
    #[error("an answer has the form KEY=TEXT, for example body=Hello; this one has no key")]
    NoKey,
    /// The key came twice.
    #[error("the answer `{0}` is given twice; give it once")]
    Twice(String),
}

impl Answers {
    /// From `KEY=TEXT` items. `KEY` is a form's field, or `INPUT.FIELD` where two inputs have
    /// fields of one name.
    ///
    /// # Errors
    /// [`AnswerError`] if an item has no key or a key comes twice.
    pub fn from_items<'a>(items: impl IntoIterator<Item = &'a str>) -> Result<Self, AnswerError> {
        let mut answers = BTreeMap::new();
        for item in items {
            let (key, text) = item.split_once('=').ok_or(AnswerError::NoKey)?;
            if key.is_empty() {
                return Err(AnswerError::NoKey);
            }
            if answers.insert(key.to_owned(), text.to_owned()).is_some() {
                return Err(AnswerError::Twice(key.to_owned()));
            }
        }
        Ok(Self(answers))
    }

    /// Whether there is none; then elicitation is not announced.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fills in a flat form (a JSON Schema object with primitive properties).
    ///
    /// # Errors
    /// What is missing or does not fit, for the user: names and types, no values.
    pub(crate) fn fill(&self, input: &str, schema: &Value) -> Result<Value, Vec<String>> {
        let none = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&none);
        let required = schema["required"].as_array();
        let is_required =
            |name: &str| required.is_some_and(|names| names.iter().any(|given| given == name));
        let mut content = Map::new();
        let mut missing = Vec::new();
        for (name, property) in properties {
            let alone = properties.len() == 1;
            match self.find(input, name, alone).map(|text| typed(text, property)) {
                Some(Ok(value)) => {
                    content.insert(name.clone(), value);
                }
                Some(Err(kind)) => missing.push(format!("{name} (must be of type {kind})")),
                None if is_required(name) => missing.push(name.clone()),
                None => {}
            }
        }
        if content.is_empty() && missing.is_empty() && !properties.is_empty() {
            // An empty acceptance of a form nobody answered would be an answer made up here.
            missing.extend(properties.keys().cloned());
        }
        if missing.is_empty() { Ok(Value::Object(content)) } else { Err(missing) }
    }

    fn find(&self, input: &str, field: &str, alone: bool) -> Option<&str> {
        let exact = self.0.get(&format!("{input}.{field}"));
        let by_input = || self.0.get(input).filter(|_| alone);
        exact.or_else(|| self.0.get(field)).or_else(by_input).map(String::as_str)
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The text as the property's type, or the name of the type that it is not.
fn typed(text: &str, property: &Value) -> Result<Value, &'static str> {
    match property["type"].as_str() {
        Some("boolean") => match text {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err("boolean"),
        },
        Some("integer") => text.parse::<i64>().map(Value::from).map_err(|_| "integer"),
        Some("number") => {
            let number: Option<Value> = serde_json::from_str(text).ok();
            number.filter(Value::is_number).ok_or("number")
        }
        Some("array") => Ok(text.split(',').map(Value::from).collect()),
        _ => Ok(Value::from(text)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_is_filled_with_the_users_words_or_not_at_all() {
        // Promise: nothing is made up: what is missing or does not fit is named, without values.
        let body = json!({"properties": {"body": {"type": "string"}}, "required": ["body"]});
        let typed = json!({"properties": {
            "n": {"type": "integer"}, "x": {"type": "number"}, "b": {"type": "boolean"},
            "s": {"type": "string", "enum": ["p"]}, "l": {"type": "array"}}});
        let optional = json!({"properties": {"a": {"type": "string"}}});
        type Expected = Result<Value, Vec<&'static str>>;
        let cases: [(&[&str], &Value, Expected); 11] = [
            (&["body=Hi=there"], &body, Ok(json!({"body": "Hi=there"}))),
            (&["body="], &body, Ok(json!({"body": ""}))),
            (&["form.body=Hi", "body=no"], &body, Ok(json!({"body": "Hi"}))),
            (&["form=Hi"], &body, Ok(json!({"body": "Hi"}))),
            (&["title=Hi"], &body, Err(vec!["body"])),
            (
                &["n=3", "x=0.5", "b=true", "s=p", "l=u,v"],
                &typed,
                Ok(json!({"n": 3, "x": 0.5, "b": true, "s": "p", "l": ["u", "v"]})),
            ),
            (&["n=secret"], &typed, Err(vec!["n (must be of type integer)"])),
            (&["b=yes"], &typed, Err(vec!["b (must be of type boolean)"])),
            (&["x=\"1\""], &typed, Err(vec!["x (must be of type number)"])),
            (&["z=1"], &optional, Err(vec!["a"])),
            (&[], &json!({"type": "object", "properties": {}}), Ok(json!({}))),
        ];
        for (items, schema, expected) in cases {
            let answers = Answers::from_items(items.iter().copied()).expect("good items");
            let filled = answers.fill("form", schema);
            let expected = expected.map_err(|names| names.into_iter().map(String::from).collect());
            assert_eq!(filled, expected, "{items:?}");
        }
    }

    #[test]
    fn answers_are_read_strictly_and_never_shown() {
        // Promise: an answer is never guessed, and its text is in no error and no debug output.
        for (items, expected) in [
            (vec!["secret"], AnswerError::NoKey),
            (vec!["=secret"], AnswerError::NoKey),
            (vec!["a=secret", "a=secret"], AnswerError::Twice("a".into())),
        ] {
            let error = Answers::from_items(items).expect_err("bad items");
            assert_eq!(error, expected);
            assert!(!error.to_string().contains("secret"));
        }
        let answers = Answers::from_items(["body=secret"]).expect("good");
        assert_eq!(format!("{answers:?}"), "{\"body\"}");
    }
}
