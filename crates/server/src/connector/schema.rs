//! JSON Schemas of arguments and results: read once, bounded, and never fetched from anywhere.

use std::fmt;

use counterfoil_core::json::Value as Lossless;
use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value, json};

use crate::config::nearest;

/// Schemas nest at most this deep, in levels of JSON.
const MAX_DEPTH: usize = 32;
/// A schema has at most so many objects and lists.
const MAX_PARTS: usize = 1000;
/// So many violations are told at once.
const MOST_TOLD: usize = 5;
/// Arguments that are ours, whatever the tool.
const RESERVED: &[&str] = &["operation_id", "repeat_of"];
/// Dialects that are known, without `http(s)://` and `#`.
const DIALECTS: &[&str] = &[
    "json-schema.org/draft/2020-12/schema",
    "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft-07/schema",
    "json-schema.org/draft-06/schema",
    "json-schema.org/draft-04/schema",
];
/// What makes a root more than a list of properties: it is left as it is then.
const COMPOSITION: &[&str] =
    &["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "not"];

/// A schema that values are held against.
pub struct Schema {
    json: Value,
    validator: Validator,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.json)
    }
}

impl Schema {
    /// A schema whose root is an object, as MCP asks of a tool's arguments and results.
    ///
    /// # Errors
    /// [`String`] with the rule and the remedy.
    pub fn of_object(json: Value) -> Result<Self, String> {
        let root = json.as_object().ok_or("a schema is a table, or JSON text of an object")?;
        if root.get("type") != Some(&Value::from("object")) {
            return Err("the schema's root has no `type = \"object\"`; add it".into());
        }
        if root.get("properties").is_some_and(|it| !it.is_object()) {
            return Err("`properties` is no table; write [... .properties.NAME]".into());
        }
        Bounds { parts_count: 0 }.visit(&json, 0)?;
        // Linear time for every pattern, and nothing is fetched.
        let validator = jsonschema::options()
            .with_pattern_options(PatternOptions::regex())
            .should_validate_formats(true)
            .offline()
            .build(&json)
            .map_err(|error| format!("that is no JSON Schema: {}; correct it", error.masked()))?;
        Ok(Self { json, validator })
    }

    /// A schema of a tool's arguments. A root that only lists properties refuses every other, unless
    /// it says otherwise.
    ///
    /// # Errors
    /// As [`of_object`](Self::of_object); and if it uses a name of ours.
    pub fn of_arguments(mut json: Value) -> Result<Self, String> {
        if let Some(root) = json.as_object_mut() {
            let properties = root.get("properties").and_then(Value::as_object);
            let taken = properties.and_then(|it| RESERVED.iter().find(|n| it.contains_key(**n)));
            if let Some(name) = taken {
                return Err(format!(
                    "`{name}` is an argument of every guarded tool already; give yours another name"
                ));
            }
            let plain = !COMPOSITION.iter().any(|word| root.contains_key(*word));
            if plain && !root.contains_key("additionalProperties") {
                root.insert("additionalProperties".into(), false.into());
            }
        }
        Self::of_object(json)
    }

    /// The schema itself.
    #[must_use]
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// The schema of arguments as a client sees it, with our `operation_id`, which is needed. A root
    /// that does more than list properties stays as it is: the ID then comes in `_meta`.
    #[must_use]
    pub fn published(&self) -> Map<String, Value> {
        let mut root = self.json.as_object().cloned().unwrap_or_default();
        let counts = ["maxProperties", "minProperties", "propertyNames"];
        if COMPOSITION.iter().chain(&counts).any(|word| root.contains_key(*word)) {
            return root;
        }
        let ours = json!({
            "type": "string",
            "minLength": 1,
            "maxLength": counterfoil_core::limits::MAX_OPERATION_ID_BYTES,
            "description": "Your own name for this one intended effect, for example a new UUID. \
                            Choose it before you call, and keep it: if the reply is lost or says \
                            pending, ask get_operation_status with it. The same ID with the same \
                            arguments never does it twice; another effect needs another ID.",
        });
        if let Some(properties) =
            root.entry("properties").or_insert_with(|| json!({})).as_object_mut()
        {
            properties.insert("operation_id".into(), ours);
        }
        if let Some(required) = root.entry("required").or_insert_with(|| json!([])).as_array_mut() {
            required.push("operation_id".into());
        }
        root
    }

    /// The properties of its root.
    pub fn properties(&self) -> impl Iterator<Item = &str> {
        let properties = self.json.get("properties").and_then(Value::as_object);
        properties.into_iter().flat_map(Map::keys).map(String::as_str)
    }

    /// Whether the root refuses properties that it does not list.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.json.get("additionalProperties") == Some(&Value::Bool(false))
            && !COMPOSITION.iter().any(|word| self.json.get(word).is_some())
    }

    /// Holds a value against the schema.
    ///
    /// # Errors
    /// [`String`] with path and rule of up to five violations, and no value.
    pub fn check(&self, value: &Lossless) -> Result<(), String> {
        if let (true, Some(object)) = (self.is_closed(), value.as_object()) {
            let unknown = object.iter().find(|(name, _)| !self.properties().any(|it| it == *name));
            if let Some((name, _)) = unknown {
                return Err(self.unknown(name));
            }
        }
        let plain: Value = serde_json::from_str(&value.to_json())
            .map_err(|_| "a number is beyond what JSON readers take; send it as text")?;
        self.check_plain(&plain)
    }

    /// As [`check`](Self::check), for a value that is ours.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_plain(&self, value: &Value) -> Result<(), String> {
        let told: Vec<String> = self
            .validator
            .iter_errors(value)
            .take(MOST_TOLD)
            .map(|error| format!("$.arguments{}: {}", dotted(&error), error.masked()))
            .collect();
        if told.is_empty() { Ok(()) } else { Err(told.join("; ")) }
    }

    fn unknown(&self, name: &str) -> String {
        let shown: String = name.chars().take(64).collect();
        let limit = 3.max(name.len() / 2);
        let near = nearest(name, self.properties().map(str::to_owned), limit).or_else(|| {
            let lower = name.to_lowercase();
            self.properties().find(|it| it.to_lowercase().contains(&lower)).map(str::to_owned)
        });
        match near {
            Some(near) => format!("there is no argument `{shown}`; did you mean `{near}`?"),
            None => {
                let known: Vec<&str> = self.properties().collect();
                format!("there is no argument `{shown}`; the tool has: {}", known.join(", "))
            }
        }
    }
}

fn dotted(error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path().to_string().replace('/', ".");
    path.chars().take(200).collect()
}

struct Bounds {
    parts_count: usize,
}

impl Bounds {
    fn visit(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        if !value.is_object() && !value.is_array() {
            return Ok(());
        }
        self.parts_count += 1;
        if depth > MAX_DEPTH {
            return Err(format!("the schema nests over {MAX_DEPTH} levels; flatten it"));
        }
        if self.parts_count > MAX_PARTS {
            return Err(format!("the schema has over {MAX_PARTS} parts; simplify it"));
        }
        match value {
            Value::Object(members) => members.iter().try_for_each(|(name, member)| {
                check_word(name, member)?;
                // Data, not schemas: what stands there is not followed.
                if ["const", "default", "enum", "examples"].contains(&name.as_str()) {
                    return Ok(());
                }
                self.visit(member, depth + 1)
            }),
            Value::Array(elements) => {
                elements.iter().try_for_each(|element| self.visit(element, depth + 1))
            }
            _ => Ok(()),
        }
    }
}

fn check_word(name: &str, member: &Value) -> Result<(), String> {
    let Some(text) = member.as_str() else { return Ok(()) };
    match name {
        "$ref" | "$dynamicRef" | "$recursiveRef" if !text.starts_with('#') => Err(format!(
            "`{name}` points outside the schema, and nothing is ever fetched; copy the definition \
             into `$defs` and refer to `#/$defs/NAME`"
        )),
        "$schema" => {
            let plain = text.trim_start_matches("https://").trim_start_matches("http://");
            let known = DIALECTS.contains(&plain.trim_end_matches('#'));
            if known {
                Ok(())
            } else {
                Err("`$schema` names a dialect that is not known; leave it out for 2020-12".into())
            }
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use counterfoil_core::json::{JsonLimits, parse};

    fn schema() -> Schema {
        Schema::of_arguments(json!({
            "type": "object",
            "properties": {
                "title": {"type": "string", "maxLength": 5},
                "maxDepth": {"type": "integer"},
            },
            "required": ["title"],
        }))
        .expect("a schema")
    }

    fn check(arguments: &str) -> Result<(), String> {
        schema().check(&parse(arguments.as_bytes(), &JsonLimits::default()).expect("JSON"))
    }

    #[test]
    fn arguments_outside_the_schema_are_refused_without_their_values() {
        // Promise: a refused argument is named with its rule; its value is told to nobody.
        assert_eq!(check(r#"{"title":"a"}"#), Ok(()));
        for (arguments, words) in [
            (r#"{"title":"a","depth":1}"#, "no argument `depth`; did you mean `maxDepth`?"),
            (r#"{"title":"a","zzzzzzzzz":1}"#, "the tool has: maxDepth, title"),
            (r#"{}"#, "\"title\" is a required property"),
            (r#"{"title":"s3cret"}"#, "$.arguments.title"),
            (r#"{"title":"a","maxDepth":1.5}"#, "$.arguments.maxDepth"),
            (r#"{"title":"a","maxDepth":1e999}"#, "beyond what JSON readers take"),
        ] {
            let error = check(arguments).expect_err(arguments);
            assert!(error.contains(words), "{arguments}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn schemas_that_reach_out_or_have_no_end_are_refused() {
        // Promise: a schema is what stands in the file, bounded, in a dialect that is known.
        let mut deep = json!({"type": "string"});
        for _ in 0..20 {
            deep = json!({"type": "object", "properties": {"a": deep}});
        }
        let wide: Map<String, Value> =
            (0..MAX_PARTS).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
        let with = |member: Value| json!({"type": "object", "properties": {"a": member}});
        for (schema, words) in [
            (json!([]), "is a table"),
            (json!({}), "type = \"object\""),
            (json!({"type": "object", "properties": 1}), "`properties`"),
            (with(json!({"$ref": "https://example.test/s.json"})), "nothing is ever fetched"),
            (with(json!({"$ref": "other.json#/a"})), "nothing is ever fetched"),
            (with(json!({"$ref": "#/$defs/none"})), "no JSON Schema"),
            (json!({"type": "object", "$schema": "https://example.test/mine"}), "dialect"),
            (with(json!({"type": "text"})), "no JSON Schema"),
            (with(json!({"pattern": "("})), "no JSON Schema"),
            (deep, "over 32 levels"),
            (json!({"type": "object", "properties": wide}), "over 1000 parts"),
            (json!({"type": "object", "properties": {"operation_id": {}}}), "`operation_id`"),
        ] {
            let error = Schema::of_arguments(schema.clone()).expect_err(&schema.to_string());
            assert!(error.contains(words), "{error}");
        }
        let draft = json!({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"});
        assert!(Schema::of_arguments(draft).is_ok());
    }

    #[test]
    fn a_published_schema_has_our_argument() {
        // Promise: an agent sees how to name the effect, and a closed schema lets it; a root whose
        // meaning it would change is left alone.
        let published = Value::Object(schema().published());
        assert_eq!(published["properties"]["operation_id"]["type"], "string");
        assert_eq!(published["additionalProperties"], false);
        assert_eq!(published["required"], json!(["title", "operation_id"]));
        let bare = Schema::of_arguments(json!({"type": "object"})).expect("a schema");
        assert_eq!(bare.published()["required"], json!(["operation_id"]));
        for word in [json!({"maxProperties": 1}), json!({"oneOf": [{"required": ["a"]}]})] {
            let mut json = json!({"type": "object", "properties": {"a": {}}});
            json.as_object_mut().expect("an object").extend(word.as_object().expect("one").clone());
            let schema = Schema::of_arguments(json).expect("a schema");
            assert_eq!(Value::Object(schema.published()), *schema.json());
        }
    }
}
