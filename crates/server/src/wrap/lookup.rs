//! Looking whether a tool's effect is there, by a read-only tool of the same server: what is asked,
//! what its result proves, and what is stored for an operation that was settled so. Sends nothing.

mod condition;
mod read;
mod same;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use counterfoil_core::json::{Object, Value, parse};
use counterfoil_core::time::Timestamp;

use self::condition::{Condition, Held};
use crate::connector::Schema;
use crate::connector::template::{Json, RenderError, Scope, Text};
use crate::wrap::raw::{Edits, Raw};
pub(super) use condition::limits;

pub(super) use read::{lookup as read_lookup, marker as read_marker};

/// What a person or a model is told where no template says more.
const SETTLED_WORDS: &str = "The operation was applied: its own reply was lost, and a look at the \
                             server found its effect. Do not send it again.";

/// How an operation's effect is looked for.
#[derive(Debug)]
pub struct Lookup {
    tool: String,
    arguments: Json,
    applied: Vec<Condition>,
    not_applied: Vec<Condition>,
    /// So long after the last possible send nothing can come any more.
    absence_after: Option<Duration>,
    text: Option<Text>,
    structured: Option<Json>,
}

/// The call whose effect is looked for.
#[derive(Clone, Copy)]
pub struct CallFacts<'a> {
    /// Its arguments, without ours.
    pub arguments: &'a Value,
    /// Its operation ID.
    pub operation_id: &'a str,
    /// The text that is unique to the operation.
    pub marker: &'a str,
    /// When it was recorded, which is before it was sent.
    pub dispatched_at: Timestamp,
}

/// What a look proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The effect is there.
    Applied,
    /// It is not there and can never come.
    NotApplied,
    /// It is there more than once: an alarm, and never a reason to send.
    Many,
    /// Nobody knows still, and why.
    Unknown(String),
}

/// What is stored as the result of an operation that was settled by a look.
#[derive(Clone, PartialEq)]
pub struct SettledResult {
    /// The `result` of the call, as JSON: `content`, `structuredContent` where there is one, and
    /// `isError` where a declared output schema could not be met.
    pub json: Vec<u8>,
    /// Whether it is a tool error, which says all the same that the effect was applied.
    pub is_error: bool,
}

/// A text of ours that is put into a call's effect, so that it is found again.
#[derive(Debug)]
pub struct Marker {
    argument: String,
    value: Json,
}

impl fmt::Debug for CallFacts<'_> {
    /// Without arguments, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallFacts")
            .field("operation_id", &self.operation_id)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SettledResult {
    /// Without content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.json.len();
        f.debug_struct("SettledResult")
            .field("bytes", &bytes)
            .field("is_error", &self.is_error)
            .finish()
    }
}

/// The values of [`CallFacts`] as templates see them.
struct Facts {
    operation_id: Value,
    marker: Value,
    dispatched_at: Value,
}

impl Facts {
    fn of(call: &CallFacts<'_>) -> Self {
        // Whole seconds: a time that tools compare with their own must not be later than it was.
        let time = call.dispatched_at.to_rfc3339();
        let seconds = time.split('.').next().unwrap_or_default();
        Self {
            operation_id: call.operation_id.into(),
            marker: call.marker.into(),
            dispatched_at: format!("{seconds}Z").into(),
        }
    }

    fn scope<'a>(&'a self, call: &CallFacts<'a>) -> Scope<'a> {
        Scope::new(vec![
            ("args", call.arguments),
            ("operation_id", &self.operation_id),
            ("marker", &self.marker),
            ("dispatched_at", &self.dispatched_at),
        ])
    }
}

impl Lookup {
    /// The read-only tool that is called.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The call's arguments that its own arguments are made from.
    pub fn needs(&self) -> impl Iterator<Item = String> {
        of_call(&self.arguments)
    }

    /// Whether a look can ever prove that there is no effect, and how long after the last possible
    /// send.
    #[must_use]
    pub fn absence_after(&self) -> Option<Duration> {
        self.absence_after.filter(|_| !self.not_applied.is_empty())
    }

    /// The arguments of the lookup tool, as JSON.
    ///
    /// # Errors
    /// [`RenderError`] if a template asks for what the call does not have: then nothing can be
    /// looked for.
    pub fn arguments(&self, call: &CallFacts<'_>) -> Result<String, RenderError> {
        let facts = Facts::of(call);
        Ok(self.arguments.render_whole(&facts.scope(call))?.to_json())
    }

    /// What the `result` of the lookup tool proves. `begun_after` is how long after the last
    /// possible send of any attempt the look began; `None` if a send may still be under way. A
    /// JSON-RPC error, or no answer, proves nothing and need not be asked for here.
    #[must_use]
    pub fn judge(
        &self,
        result: &[u8],
        call: &CallFacts<'_>,
        begun_after: Option<Duration>,
    ) -> Verdict {
        let Ok(reply) = parse(result, &limits()) else {
            return unknown("the lookup tool's result cannot be read");
        };
        let kind = reply.get("resultType").map(Value::as_str);
        if !matches!(kind, None | Some(Some("complete"))) {
            return unknown("the lookup tool did not answer at once");
        }
        let facts = Facts::of(call);
        let scope = facts.scope(call);
        let applied = condition::all(&self.applied, &reply, &scope);
        match applied {
            Held::Yes => return Verdict::Applied,
            Held::TooOften => return Verdict::Many,
            Held::No | Held::Unreadable(_) => {}
        }
        match condition::all(&self.not_applied, &reply, &scope) {
            Held::Yes => self.absent(begun_after),
            Held::TooOften => Verdict::Many,
            Held::No | Held::Unreadable(_) => Verdict::Unknown(match applied {
                Held::Unreadable(why) => why,
                _ => "the effect was not found, which does not prove that there is none".into(),
            }),
        }
    }

    fn absent(&self, begun_after: Option<Duration>) -> Verdict {
        match (self.absence_after, begun_after) {
            (Some(wait), Some(after)) if after >= wait => Verdict::NotApplied,
            _ => unknown("the effect was not found, and it may still come: look again later"),
        }
    }

    /// What to store for an operation that `result` proved to be applied. `output_schema` is the
    /// tool's own, as its server tells it. A template that cannot be rendered, or does not conform,
    /// gives words of ours; then a tool with an output schema answers with an error that says that
    /// the effect was applied.
    #[must_use]
    pub fn settled(
        &self,
        result: &[u8],
        call: &CallFacts<'_>,
        output_schema: Option<&[u8]>,
    ) -> SettledResult {
        let reply = parse(result, &limits()).unwrap_or(Value::Null);
        let facts = Facts::of(call);
        let scope = facts.scope(call).with("reply", &reply);
        let text = self.text.as_ref().and_then(|text| text.render(&scope).ok());
        let structured = self.structured.as_ref().and_then(|it| it.render(&scope).ok());
        let conforms = |value: &Value| match output_schema {
            None => value.as_object().is_some(),
            Some(schema) => serde_json::from_slice(schema)
                .ok()
                .and_then(|schema| Schema::of_object(schema).ok())
                .is_some_and(|schema| schema.check(value).is_ok()),
        };
        let structured = structured.filter(conforms);
        let is_error = output_schema.is_some() && structured.is_none();
        let mut block = Object::new();
        block.insert("type", "text");
        block.insert("text", text.unwrap_or_else(|| SETTLED_WORDS.to_owned()));
        let mut settled = Object::new();
        settled.insert("content", vec![Value::Object(block)]);
        if let Some(structured) = structured {
            settled.insert("structuredContent", structured);
        }
        if is_error {
            settled.insert("isError", true);
        }
        SettledResult { json: Value::Object(settled).to_json().into_bytes(), is_error }
    }
}

impl Marker {
    /// The argument that carries it.
    #[must_use]
    pub fn argument(&self) -> &str {
        &self.argument
    }

    /// The call's arguments that it is made from.
    pub fn needs(&self) -> impl Iterator<Item = String> {
        of_call(&self.value)
    }

    /// The arguments for the server, `arguments` being those of the call without ours: the one that
    /// carries the marker is replaced or added, all other bytes stay.
    ///
    /// # Errors
    /// [`RenderError`] if the template asks for what the call does not have.
    pub fn put(&self, arguments: &[u8], call: &CallFacts<'_>) -> Result<Vec<u8>, RenderError> {
        let facts = Facts::of(call);
        let written = self.value.render_whole(&facts.scope(call))?.to_json();
        let raw = Raw::json(arguments);
        let object = raw.whole().and_then(|span| Some((raw.members(&span)?, span)));
        let (members, span) = object.ok_or_else(|| RenderError {
            expression: self.argument.clone(),
            problem: "needs arguments that are an object".into(),
        })?;
        let mut edits = Edits::default();
        match members.iter().find(|it| it.name.as_deref() == Some(&*self.argument)) {
            Some(member) => edits.replace(member.value.clone(), written),
            None => {
                let name = Value::from(&*self.argument).to_json();
                edits.add_member(&span, &members, &format!("{name}:{written}"));
            }
        }
        Ok(edits.apply(arguments))
    }
}

/// The names right behind `args.` in a template.
fn of_call(template: &Json) -> impl Iterator<Item = String> {
    let first = |name: String| Some(name.strip_prefix("args.")?.split('.').next()?.to_owned());
    let names: std::collections::BTreeSet<String> =
        template.names().into_iter().filter_map(first).collect();
    names.into_iter()
}

fn unknown(why: &str) -> Verdict {
    Verdict::Unknown(why.to_owned())
}
