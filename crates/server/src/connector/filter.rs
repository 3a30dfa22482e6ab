//! The filters of templates that could grow a text without bound, each with a limit.

use counterfoil_core::json::Value as Json;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::template::MAX_RENDERED_BYTES;

fn too_long() -> Error {
    Error::new(ErrorKind::InvalidOperation, "the text would be too long")
}

fn text(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String | ValueKind::Number | ValueKind::Bool => Ok(value.to_string()),
        kind => Err(Error::new(ErrorKind::InvalidOperation, format!("{kind} is no text"))),
    }
}

/// The elements of a list with `separator` between them.
pub(super) fn join(list: &Value, separator: Option<&str>) -> Result<String, Error> {
    let mut joined = String::new();
    for (index, element) in list.try_iter()?.enumerate() {
        if index > 0 {
            joined.push_str(separator.unwrap_or(""));
        }
        joined.push_str(&text(&element)?);
        if joined.len() > MAX_RENDERED_BYTES {
            return Err(too_long());
        }
    }
    Ok(joined)
}

/// One member of each element: `map(attribute="name")`.
pub(super) fn map(list: &Value, options: Kwargs) -> Result<Vec<Value>, Error> {
    let attribute: &str = options.get("attribute")?;
    options.assert_all_used()?;
    let member = |element: Value| {
        let found = element.get_attr(attribute)?;
        if found.is_undefined() { Err(Error::from(ErrorKind::UndefinedError)) } else { Ok(found) }
    };
    list.try_iter()?.map(member).collect()
}

/// `value` with each `from` replaced by `to`.
pub(super) fn replace(value: &Value, from: &str, to: &str) -> Result<String, Error> {
    let value = text(value)?;
    let count = value.matches(from).count();
    if count.saturating_mul(to.len()).saturating_add(value.len()) > MAX_RENDERED_BYTES {
        return Err(too_long());
    }
    Ok(value.replace(from, to))
}

/// The first `count` characters.
pub(super) fn truncate(value: &Value, count: usize) -> Result<String, Error> {
    Ok(text(value)?.chars().take(count).collect())
}

/// A number or switch as text.
pub(super) fn string(value: &Value) -> Result<String, Error> {
    text(value)
}

/// The value as JSON text.
pub(super) fn tojson(value: &Value) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let written = match value.as_str() {
        Some(text) => Json::from(text).to_json(),
        None => serde_json::to_string(value).map_err(|_| ErrorKind::BadSerialization)?,
    };
    if written.len() > MAX_RENDERED_BYTES { Err(too_long()) } else { Ok(written) }
}
