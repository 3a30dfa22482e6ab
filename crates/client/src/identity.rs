//! Where an operation's ID goes in a request: the argument that the tool declares for it, else
//! `_meta`.

use counterfoil_core::identity::OperationId;
use serde_json::{Map, Value};

/// Arguments that carry an operation's ID, the most telling first: a tool that had an
/// `operation_id` of its own before it was guarded gets the first one.
pub const ID_FIELDS: [&str; 3] = ["counterfoil_operation_id", "operation_id", "idempotency_key"];

/// The `_meta` key of a request for a tool that declares none of the arguments.
pub(crate) const ID_META: &str = "io.counterfoil/operationId";

/// The ID that the arguments themselves carry, with the name of its field.
#[must_use]
pub fn id_in(arguments: &Map<String, Value>) -> Option<(&'static str, &Value)> {
    ID_FIELDS.into_iter().find_map(|field| Some((field, arguments.get(field)?)))
}

/// Where the ID was put.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Into this argument.
    Argument(&'static str),
    /// Into `_meta`.
    Meta,
}

/// Two different IDs in one request. Which field, without the values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Disagrees(pub(crate) &'static str);

/// Puts the ID into the argument that `schema` declares for it; says if it belongs into `_meta`.
pub(crate) fn place(
    id: &OperationId,
    schema: Option<&Map<String, Value>>,
    arguments: &mut Map<String, Value>,
) -> Result<Place, Disagrees> {
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
    let declared = |field: &&str| properties.is_some_and(|all| all.contains_key(*field));
    let Some(field) = ID_FIELDS.into_iter().find(declared) else {
        return Ok(Place::Meta);
    };
    let old = arguments.insert(field.to_owned(), Value::from(id.as_str()));
    match old {
        Some(old) if old != *id.as_str() => Err(Disagrees(field)),
        _ => Ok(Place::Argument(field)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_id_goes_where_the_tool_declares_it() {
        // Promise: every server is reached by the ID in the place that it reads, and two different
        // IDs are never sent in one request.
        use Place::{Argument, Meta};
        let cases = [
            (json!({"operation_id": {}}), json!({}), Ok(Argument("operation_id"))),
            (
                json!({"operation_id": {}}),
                json!({"operation_id": "k"}),
                Ok(Argument("operation_id")),
            ),
            (json!({"idempotency_key": {}}), json!({}), Ok(Argument("idempotency_key"))),
            (
                json!({"operation_id": {}, "counterfoil_operation_id": {}}),
                json!({"operation_id": "theirs"}),
                Ok(Argument("counterfoil_operation_id")),
            ),
            (json!({"title": {}}), json!({}), Ok(Meta)),
            (
                json!({"operation_id": {}}),
                json!({"operation_id": "j"}),
                Err(Disagrees("operation_id")),
            ),
            (
                json!({"operation_id": {}}),
                json!({"operation_id": 1}),
                Err(Disagrees("operation_id")),
            ),
        ];
        let id = OperationId::parse("k").expect("valid");
        for (properties, mut arguments, expected) in cases {
            let schema = json!({"type": "object", "properties": properties});
            let arguments = arguments.as_object_mut().expect("an object");
            let placed = place(&id, schema.as_object(), arguments);
            assert_eq!(placed, expected, "{properties}");
            if let Ok(Argument(field)) = placed {
                assert_eq!(arguments[field], "k");
            }
        }
        assert_eq!(place(&id, None, &mut Map::new()), Ok(Meta));
    }
}
