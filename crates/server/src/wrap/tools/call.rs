//! Takes what is ours out of a call: the server gets its arguments as the client wrote them.

use std::fmt;

use counterfoil_core::identity::OperationId;
use counterfoil_core::json::{Object, Value, parse};
use counterfoil_core::refusal::{Code, Refusal};

use super::{IdField, ToolPlan};
use crate::config::nearest;
use crate::tools::arguments::invalid;
use crate::wire::meta;
use crate::wrap::lookup::limits;
use crate::wrap::raw::{Edits, Raw};

/// In a call's `_meta`: the operation that is to be done once more.
pub const META_REPEAT_OF: &str = "io.counterfoil/repeatOf";

/// A call with what is ours taken out.
pub struct SplitCall {
    /// The operation that it names.
    pub operation_id: Option<OperationId>,
    /// The operation that it does once more.
    pub repeat_of: Option<OperationId>,
    /// The arguments without ours, for fingerprints and templates.
    pub arguments: Value,
    /// The same as the client wrote them, for the server; `None` where there were none.
    pub raw_arguments: Option<Vec<u8>>,
}

impl fmt::Debug for SplitCall {
    /// Without arguments, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SplitCall")
            .field("operation_id", &self.operation_id)
            .field("repeat_of", &self.repeat_of)
            .finish_non_exhaustive()
    }
}

/// Splits a call of a guarded tool. `arguments` and `call_meta` are the bytes of those members of
/// its `params`. Null or blank counts as not given: clients send that for what is optional.
///
/// # Errors
/// [`Refusal`] with `invalid_argument` if the arguments are no object or not strict JSON, if an ID
/// is not usable, or if argument and `_meta` differ; `too_large` over the limits of JSON.
pub fn split_call(
    plan: &ToolPlan,
    arguments: Option<&[u8]>,
    call_meta: Option<&[u8]>,
) -> Result<SplitCall, Refusal> {
    let call_meta = call_meta.map(|bytes| strict("$._meta", bytes)).transpose()?;
    let (id_name, repeat_name) = match &plan.id_field {
        IdField::Arguments { operation_id, repeat_of } => (Some(*operation_id), *repeat_of),
        IdField::MetaOnly(_) => (None, None),
    };
    let ours: Vec<&str> = id_name.into_iter().chain(repeat_name).collect();
    let mut values = Object::new();
    let mut raw_arguments = None;
    if let Some(bytes) = arguments.filter(|bytes| *bytes != b"null") {
        match strict("$.arguments", bytes)? {
            Value::Object(object) => values = object,
            _ => return Err(invalid("$.arguments must be a JSON object")),
        }
        raw_arguments = Some(without(&ours, bytes));
    }
    let mut given =
        |name: Option<&str>| name.and_then(|name| Some((name.to_owned(), values.remove(name)?)));
    let (id, repeat) = (given(id_name), given(repeat_name));
    let operation_id = agreed(id, call_meta.as_ref(), meta::OPERATION_ID)?;
    let repeat_of = agreed(repeat, call_meta.as_ref(), META_REPEAT_OF)?;
    if let (None, None, Some(id_name)) = (&operation_id, &repeat_of, id_name) {
        no_slip(plan, &values, id_name, repeat_name)?;
    }
    Ok(SplitCall { operation_id, repeat_of, arguments: Value::Object(values), raw_arguments })
}

/// Refuses a call whose ID stands under a name that is nearly ours and none of the tool's own: it would
/// go out as a call without one, and its caller would believe it named.
fn no_slip(
    plan: &ToolPlan,
    values: &Object,
    id_name: &str,
    repeat_name: Option<&str>,
) -> Result<(), Refusal> {
    let is_given = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        _ => true,
    };
    for (name, value) in values.iter() {
        let Some(meant) = meant(name, id_name, repeat_name) else { continue };
        if is_given(value) && plan.lacks_argument(name) {
            return Err(invalid(format!(
                "the argument {name} is none of {}'s, and the operation's ID is called {meant} here; \
                 nothing was done; call again with {meant} in its place, or leave it out (if the \
                 server does take {name}, give {id_name} besides)",
                plan.name
            )));
        }
    }
    Ok(())
}

/// Which argument of ours a name is probably meant for.
fn meant<'a>(name: &str, id_name: &'a str, repeat_name: Option<&'a str>) -> Option<&'a str> {
    const IDS: &[&str] =
        &["operationid", "counterfoiloperationid", "idempotencykey", "idempotencytoken"];
    const REPEATS: &[&str] = &["repeatof", "counterfoilrepeatof"];
    let letters: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let is_near =
        |known: &[&str]| nearest(&letters, known.iter().map(|it| (*it).to_owned()), 1).is_some();
    if is_near(IDS) {
        return Some(id_name);
    }
    repeat_name.filter(|_| is_near(REPEATS))
}

fn strict(path: &str, bytes: &[u8]) -> Result<Value, Refusal> {
    parse(bytes, &limits()).map_err(|error| {
        let code = if error.is_too_large() { Code::TooLarge } else { Code::InvalidArgument };
        Refusal::new(code, format!("{path} cannot be used: {error}"), None)
    })
}

/// The bytes of an object without the members of these names.
fn without(names: &[&str], bytes: &[u8]) -> Vec<u8> {
    let raw = Raw::json(bytes);
    let mut edits = Edits::default();
    if let Some(members) = raw.whole().and_then(|span| raw.members(&span)) {
        edits.remove_members(&members, |it| it.name.as_deref().is_some_and(|n| names.contains(&n)));
    }
    edits.apply(bytes)
}

/// The ID from an argument and from `_meta`, which must agree if both are there.
fn agreed(
    argument: Option<(String, Value)>,
    call_meta: Option<&Value>,
    meta_key: &str,
) -> Result<Option<OperationId>, Refusal> {
    let in_argument = match &argument {
        Some((name, value)) => id(value, &format!("$.arguments.{name}"))?,
        None => None,
    };
    let place = format!("$._meta[\"{meta_key}\"]");
    let in_meta = match call_meta.and_then(|it| it.get(meta_key)) {
        Some(value) => id(value, &place)?,
        None => None,
    };
    match (in_argument, in_meta) {
        (Some(a), Some(b)) if a != b => {
            let name = argument.map(|(name, _)| name).unwrap_or_default();
            Err(invalid(format!(
                "the argument {name} and _meta[\"{meta_key}\"] differ; give one of them, or both \
                 with the same text"
            )))
        }
        (a, b) => Ok(a.or(b)),
    }
}

fn id(value: &Value, place: &str) -> Result<Option<OperationId>, Refusal> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.trim().is_empty() => Ok(None),
        Value::String(text) => {
            OperationId::parse(text).map(Some).map_err(|error| invalid(format!("{place}: {error}")))
        }
        _ => Err(invalid(format!("{place} must be a JSON string"))),
    }
}
