//! What a connector's tool gives, as a schema: its declared result, or an account of ours.

use serde_json::{Map, Value, json};

use super::create_issue::error_schema;
use crate::connector::Schema;

/// The schema of every structured result of a tool whose results conform to `declared`.
#[must_use]
pub fn of_connector(declared: Option<&Schema>) -> Map<String, Value> {
    let text = || json!({ "type": "string" });
    let or_null = |name: &str| json!({ "type": [name, "null"] });
    let mut account = json!({
        "type": "object",
        "description": "What stands in place of a result: pending, not applied, without a result \
                        of its own, or refused.",
        "properties": {
            "operationId": text(),
            "state": { "enum": ["applied", "not_applied", "unknown"] },
            "detail": text(),
            "replayed": { "type": "boolean" },
            "contract": { "enum": ["key", "lookup", "key+lookup", "never", "at_least_once"] },
            "attempts": { "type": "integer", "minimum": 0 },
            "nextAttemptAt": or_null("string"),
            "lastError": or_null("string"),
            "externalId": or_null("string"),
            "message": text(),
            "error": error_schema(),
        },
        "oneOf": [
            { "required": [
                "operationId", "state", "detail", "replayed", "contract", "attempts",
                "nextAttemptAt", "lastError", "externalId", "message"
            ] },
            { "required": ["error"] }
        ],
        "additionalProperties": false
    });
    let Some(declared) = declared else {
        return account.as_object_mut().map(std::mem::take).unwrap_or_default();
    };
    let mut own = declared.json().clone();
    let mut root = Map::new();
    // A dialect is said at the root, and there alone.
    if let Some(dialect) = own.as_object_mut().and_then(|own| own.remove("$schema")) {
        root.insert("$schema".into(), dialect);
    }
    move_references(&mut own, "#/anyOf/0");
    root.insert("type".into(), "object".into());
    root.insert("anyOf".into(), json!([own, account]));
    root
}

/// References of a schema point from its root, which is moved to `place`. A part with an `$id` is a
/// root of its own.
fn move_references(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(members) => {
            if members.contains_key("$id") {
                return;
            }
            for (name, member) in members {
                match member {
                    Value::String(to) if name == "$ref" && (to == "#" || to.starts_with("#/")) => {
                        to.replace_range(..1, place);
                    }
                    // Data, not schemas.
                    _ if ["const", "default", "enum", "examples"].contains(&name.as_str()) => {}
                    _ => move_references(member, place),
                }
            }
        }
        Value::Array(elements) => {
            elements.iter_mut().for_each(|element| move_references(element, place));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_result_is_valid_wherever_its_schema_points() {
        // Promise: a tool's results conform to the schema that it publishes, in every dialect and
        // with references inside the declared schema; what is neither its result nor an account of
        // ours does not.
        let tree = |dialect: &str, keyword: &str| {
            json!({
                "$schema": dialect, "type": "object", "required": ["node"],
                "properties": { "node": { "$ref": format!("#/{keyword}/node") },
                                "enum": { "$ref": "#" } },
                keyword: { "node": { "type": "object", "properties": {
                    "next": { "$ref": format!("#/{keyword}/node") }, "n": { "type": "integer" } } } }
            })
        };
        for declared in [
            tree("https://json-schema.org/draft/2020-12/schema", "$defs"),
            tree("https://json-schema.org/draft/2019-09/schema", "$defs"),
            tree("http://json-schema.org/draft-07/schema#", "definitions"),
            tree("http://json-schema.org/draft-04/schema#", "definitions"),
        ] {
            let schema = Schema::of_object(declared.clone()).expect("a schema");
            let published = Value::Object(of_connector(Some(&schema)));
            let whole = Schema::of_object(published).expect("a schema");
            let good = json!({ "node": { "next": { "next": { "n": 1 } } } });
            assert_eq!(whole.check_plain(&good), Ok(()), "{declared}");
            let refused = json!({ "error": {
                "code": "too_large", "message": "m", "operationId": null, "retry": "none" } });
            assert_eq!(whole.check_plain(&refused), Ok(()), "{declared}");
            for bad in [json!({ "node": { "next": { "n": "x" } } }), json!({ "operationId": "x" })]
            {
                assert!(whole.check_plain(&bad).is_err(), "{declared}: {bad}");
            }
        }
    }
}
