//! Reads a tool's arguments from their lossless JSON: every refusal names path, rule and remedy.

use counterfoil_core::identity::OperationId;
use counterfoil_core::json::{Object, Value};
use counterfoil_core::refusal::{Code, Refusal};

use crate::connector::SUPPORT_TICKET;
use crate::wire::{RawCall, meta};

/// The argument that names the operation.
pub const OPERATION_ID: &str = "operation_id";
/// The same of the tool for support tickets.
pub const TICKET_KEY: &str = "idempotency_key";

/// The arguments of one call, held against the names that the tool knows.
#[derive(Debug)]
pub struct Arguments<'a> {
    tool: &'static str,
    /// The argument that names the operation.
    id_field: &'static str,
    object: &'a Object,
}

impl<'a> Arguments<'a> {
    /// Refuses what is not an object, and every name that the tool does not know.
    ///
    /// # Errors
    /// [`Refusal`] with `invalid_argument`.
    pub fn read(
        tool: &'static str,
        known: &[&str],
        value: &'a Value,
        call_meta: Option<&Value>,
    ) -> Result<Arguments<'a>, Refusal> {
        let object = value
            .as_object()
            .ok_or_else(|| invalid(format!("the arguments of {tool} must be a JSON object")))?;
        let id_field = if known.contains(&TICKET_KEY) { TICKET_KEY } else { OPERATION_ID };
        let arguments = Self { tool, id_field, object };
        for (name, _) in object.iter() {
            if !known.contains(&name) {
                let refusal = invalid(unknown_argument(tool, name, known));
                // The refusal names the operation if its ID can be read all the same.
                return Err(match arguments.operation_id(call_meta) {
                    Ok(id) => refusal.for_operation(&id),
                    Err(_) => refusal,
                });
            }
        }
        Ok(arguments)
    }

    /// A text of at most `max_bytes`, or `None` if it is absent.
    ///
    /// # Errors
    /// [`Refusal`] with `invalid_argument` if it is not text or blank, `too_large` if over the
    /// limit.
    pub fn text(&self, name: &str, max_bytes: usize) -> Result<Option<&'a str>, Refusal> {
        let Some(value) = self.object.get(name) else { return Ok(None) };
        let text = value
            .as_str()
            .ok_or_else(|| invalid(format!("$.arguments.{name} must be a JSON string")))?;
        check_text(&format!("$.arguments.{name}"), text, max_bytes)?;
        Ok(Some(text))
    }

    /// As [`text`](Self::text), and it must be there.
    ///
    /// # Errors
    /// As [`text`](Self::text), and `invalid_argument` if it is absent.
    pub fn required_text(&self, name: &str, max_bytes: usize) -> Result<&'a str, Refusal> {
        self.text(name, max_bytes)?.ok_or_else(|| {
            invalid(format!("{} needs the argument `{name}`: give it as a JSON string", self.tool))
        })
    }

    /// `true` or `false`, or `None` if it is absent.
    ///
    /// # Errors
    /// [`Refusal`] with `invalid_argument` if it is anything else.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        let Some(value) = self.object.get(name) else { return Ok(None) };
        let flag = value.as_bool();
        flag.map(Some).ok_or_else(|| invalid(format!("$.arguments.{name} must be true or false")))
    }

    /// An integer, however it is written (`1.0` is 1), or `None` if it is absent.
    ///
    /// # Errors
    /// [`Refusal`] with `invalid_argument` if it is anything else, or beyond 64 bits.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(value) = self.object.get(name) else { return Ok(None) };
        let integer = value.as_number().and_then(|number| number.as_i64());
        integer
            .map(Some)
            .ok_or_else(|| invalid(format!("$.arguments.{name} must be a whole number")))
    }

    /// The operation ID, which may come as the tool's own argument for it or as
    /// `_meta["io.counterfoil/operationId"]`; if both are there they must agree.
    ///
    /// # Errors
    /// As [`operation_id`].
    pub fn operation_id(&self, call_meta: Option<&Value>) -> Result<OperationId, Refusal> {
        operation_id(self.tool, self.id_field, self.object, call_meta)
    }
}

/// The operation ID of a call, from the argument `field` or from
/// `_meta["io.counterfoil/operationId"]`; if both are there they must agree.
///
/// # Errors
/// [`Refusal`] with `operation_id_required` if neither is there, `invalid_argument` if one is not
/// usable or they differ.
pub fn operation_id(
    tool: &str,
    field: &str,
    arguments: &Object,
    call_meta: Option<&Value>,
) -> Result<OperationId, Refusal> {
    let in_meta =
        call_meta.and_then(Value::as_object).and_then(|meta| meta.get(meta::OPERATION_ID));
    let read = |value: &Value, place: &str| {
        let text =
            value.as_str().ok_or_else(|| invalid(format!("{place} must be a JSON string")))?;
        OperationId::parse(text).map_err(|error| invalid(format!("{place}: {error}")))
    };
    let argument = arguments.get(field);
    let argument = argument.map(|v| read(v, &format!("$.arguments.{field}"))).transpose()?;
    let in_meta =
        in_meta.map(|v| read(v, &format!("$._meta[\"{}\"]", meta::OPERATION_ID))).transpose()?;
    match (argument, in_meta) {
        (Some(a), Some(b)) if a != b => Err(invalid(format!(
            "the argument {field} and _meta[\"{}\"] differ; give one of them, or both with the \
             same text",
            meta::OPERATION_ID
        ))),
        (Some(id), _) | (None, Some(id)) => Ok(id),
        (None, None) => Err(Refusal::new(
            Code::OperationIdRequired,
            format!(
                "{tool} needs an {field}: a text of your own that names this one effect, for \
                 example a UUID; keep it, and send the same one if you must ask again"
            ),
            None,
        )),
    }
}

/// An operation ID that is no UUID has at least this many characters where strangers can try IDs.
const UNGUESSABLE_CHARS: usize = 16;

/// Refuses an operation ID that others could come upon by trying: whether an ID exists can be
/// inferred from a conflict.
///
/// # Errors
/// [`Refusal`] with `invalid_argument`. An ID that cannot be read passes: its tool refuses it.
pub fn check_unguessable(raw: &RawCall) -> Result<(), Refusal> {
    for text in operation_id_texts(raw) {
        let count = text.chars().count();
        if count < UNGUESSABLE_CHARS {
            return Err(Refusal::new(
                Code::InvalidArgument,
                format!(
                    "the operation ID has {count} characters; over HTTP it must be hard to guess: \
                     use a UUID, or at least {UNGUESSABLE_CHARS} characters"
                ),
                OperationId::parse(text).ok(),
            ));
        }
    }
    Ok(())
}

/// The operation that a call names, where one can be read: for refusals before its tool is known.
#[must_use]
pub fn operation_id_of(raw: &RawCall) -> Option<OperationId> {
    operation_id_texts(raw).find_map(|text| OperationId::parse(text).ok())
}

fn operation_id_texts(raw: &RawCall) -> impl Iterator<Item = &str> {
    let tool = raw.params().and_then(|params| params.get("name")).and_then(Value::as_str);
    let field = if tool == Some(SUPPORT_TICKET) { TICKET_KEY } else { OPERATION_ID };
    let argument = raw.arguments().and_then(|arguments| arguments.get(field));
    let in_meta = raw.meta().and_then(|all| all.get(meta::OPERATION_ID));
    [argument, in_meta].into_iter().flatten().filter_map(Value::as_str)
}

/// Holds a text against its limit and refuses a blank one.
///
/// # Errors
/// [`Refusal`] with `too_large` or `invalid_argument`.
pub fn check_text(path: &str, text: &str, max_bytes: usize) -> Result<(), Refusal> {
    if text.len() > max_bytes {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("{path} has {} bytes; at most {max_bytes} are allowed", text.len()),
            None,
        ));
    }
    if text.chars().all(char::is_whitespace) {
        return Err(invalid(format!("{path} is empty or blank; give some text")));
    }
    Ok(())
}

/// A refusal for an argument that breaks a rule.
pub fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(Code::InvalidArgument, message, None)
}

fn unknown_argument(tool: &str, name: &str, known: &[&str]) -> String {
    let shown: String = name.chars().take(64).collect();
    let nearest = known.iter().min_by_key(|candidate| distance(candidate, &shown));
    match nearest {
        Some(near) if distance(near, &shown) <= shown.chars().count().max(4) / 2 => {
            format!("{tool} has no argument `{shown}`; did you mean `{near}`?")
        }
        _ => format!("{tool} has no argument `{shown}`; it takes {}", known.join(", ")),
    }
}

/// The edit distance in characters, where a name that holds the other counts as near: `depth` for
/// `maxDepth`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    if !b.is_empty() && (a.contains(&b) || b.contains(&a)) {
        return 1;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use counterfoil_core::json::{JsonLimits, parse};

    use super::*;

    #[test]
    fn an_unknown_argument_is_refused_and_the_nearest_known_one_named() {
        // Promise: a misspelt argument is never silently ignored.
        let known = ["operation_id", "title", "maxDepth"];
        for (given, expected) in [
            ("depth", "did you mean `maxDepth`?"),
            ("titel", "did you mean `title`?"),
            ("operationId", "did you mean `operation_id`?"),
            ("zzzzzzzzzz", "it takes operation_id, title, maxDepth"),
        ] {
            let json = format!("{{\"{given}\":1}}");
            let value = parse(json.as_bytes(), &JsonLimits::default()).expect("valid JSON");
            let refusal = Arguments::read("tool", &known, &value, None).expect_err(given);
            assert_eq!(refusal.code(), Code::InvalidArgument);
            assert!(refusal.message().contains(expected), "{}", refusal.message());
            assert!(refusal.message().contains(given), "{}", refusal.message());
        }
    }

    #[test]
    fn the_operation_id_may_come_two_ways_and_must_agree() {
        // Promise: one identity for one effect, whichever way it arrives.
        let parsed = |text: &str| parse(text.as_bytes(), &JsonLimits::default()).expect("JSON");
        let check = |arguments: &str, meta: Option<&str>| {
            let (arguments, meta) = (parsed(arguments), meta.map(parsed));
            let known = ["operation_id"];
            let read = Arguments::read("tool", &known, &arguments, None).expect("known names");
            read.operation_id(meta.as_ref()).map(|id| id.to_string())
        };
        let in_meta = Some(r#"{"io.counterfoil/operationId":"a"}"#);
        assert_eq!(check(r#"{"operation_id":"a"}"#, None).as_deref(), Ok("a"));
        assert_eq!(check("{}", in_meta).as_deref(), Ok("a"));
        assert_eq!(check(r#"{"operation_id":"a"}"#, in_meta).as_deref(), Ok("a"));
        let code = |result: Result<String, Refusal>| result.expect_err("refused").code();
        assert_eq!(code(check(r#"{"operation_id":"b"}"#, in_meta)), Code::InvalidArgument);
        assert_eq!(code(check(r#"{"operation_id":7}"#, None)), Code::InvalidArgument);
        assert_eq!(code(check("{}", None)), Code::OperationIdRequired);
        assert_eq!(code(check("{}", Some("{}"))), Code::OperationIdRequired);
    }
}
