//! TOML as JSON: schemas as they are, bodies as templates.

use std::collections::BTreeSet;

use counterfoil_core::json::{JsonLimits, Number, Value as Lossless, parse};
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::DeValue;

use super::form::Field;
use super::template::{Json, Text};

/// Bodies nest at most this deep.
const MAX_DEPTH: usize = 32;

/// A schema: a table, or a text of JSON.
pub(super) fn schema(field: &Field<'_>) -> Option<Value> {
    let found = match field.value.get_ref() {
        DeValue::String(text) => parse(text.as_bytes(), &JsonLimits::default())
            .map_err(|error| format!("the text is no JSON: {error}; correct it"))
            .and_then(|value| {
                serde_json::from_str(&value.to_json())
                    .map_err(|_| "a number is out of range; correct it".to_owned())
            }),
        value => plain(value, 0),
    };
    found.map_err(|words| field.problem(words)).ok()
}

/// What the names that a template uses are held against.
pub(crate) type NamesRule<'a> = &'a dyn Fn(&BTreeSet<String>) -> Result<(), String>;

/// A body or a structured result: every text is a template. A mistake is told where it stands.
pub(crate) fn template(field: &Field<'_>, names: NamesRule<'_>) -> Option<Json> {
    templated(field.value, names, 0).map_err(|(at, words)| field.problem_at(at, words)).ok()
}

/// A plain value, for comparison.
pub(crate) fn fixed(value: &DeValue<'_>) -> Result<Lossless, String> {
    let plain = plain(value, 0)?;
    let text = plain.to_string();
    parse(text.as_bytes(), &JsonLimits::default()).map_err(|error| error.to_string())
}

/// The mistake's place is a byte offset in the file.
fn templated(
    value: &Spanned<DeValue<'_>>,
    names: NamesRule<'_>,
    depth: usize,
) -> Result<Json, (usize, String)> {
    let at = value.span().start;
    let here = |words: String| (at, words);
    if depth > MAX_DEPTH {
        return Err(here(format!("this nests over {MAX_DEPTH} levels; flatten it")));
    }
    Ok(match value.get_ref() {
        DeValue::String(text) => {
            let text = Text::parse(text).map_err(here)?;
            names(&text.names()).map_err(here)?;
            Json::Text(text)
        }
        DeValue::Array(elements) => Json::Array(
            elements
                .iter()
                .map(|element| templated(element, names, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => {
            let mut members = Vec::new();
            for (name, member) in table {
                let name: &str = name.get_ref();
                if name.contains("{{") {
                    let words = format!("`{name}`: names are fixed, only values are templates");
                    return Err(here(words));
                }
                members.push((name.to_owned(), templated(member, names, depth + 1)?));
            }
            Json::Object(members)
        }
        DeValue::Float(digits) => Json::Fixed(Lossless::Number(
            Number::from_literal(digits.as_str())
                .ok_or_else(|| here("JSON has no such number; write it as 1.5 or 15".into()))?,
        )),
        other => Json::Fixed(fixed(other).map_err(here)?),
    })
}

fn plain(value: &DeValue<'_>, depth: usize) -> Result<Value, String> {
    if depth > 2 * MAX_DEPTH {
        return Err("this nests too deep; flatten it".into());
    }
    Ok(match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
            .map_err(|_| "an integer is beyond 64 bits; write it as text")?
            .into(),
        DeValue::Float(digits) => digits
            .as_str()
            .parse::<f64>()
            .ok()
            .and_then(serde_json::Number::from_f64)
            .ok_or("JSON has no such number; write a finite one")?
            .into(),
        DeValue::Boolean(is) => Value::from(*is),
        DeValue::Datetime(_) => return Err("JSON has no dates; write it as text".into()),
        DeValue::Array(elements) => Value::Array(
            elements
                .iter()
                .map(|element| plain(element.get_ref(), depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => {
            let mut members = Map::new();
            for (name, member) in table {
                let name: &str = name.get_ref();
                members.insert(name.to_owned(), plain(member.get_ref(), depth + 1)?);
            }
            Value::Object(members)
        }
    })
}
