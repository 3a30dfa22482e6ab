//! One condition on the result of a lookup tool, and whether it holds.

use counterfoil_core::json::{JsonLimits, Value, parse};

use super::same::{equal, includes};
use crate::connector::Pointer;
use crate::connector::template::{Json, RenderError, Scope, Text};

/// A condition that repeats goes through at most so many elements.
const MOST_ELEMENTS: usize = 1000;

/// What must be so in a result.
#[derive(Debug)]
pub(super) struct Condition {
    /// Lists; the condition must hold for each element of the first, as `each`, and of the second,
    /// as `inner`.
    pub(super) loops: Vec<Json>,
    /// The condition counts only where this gives true.
    pub(super) when: Option<Json>,
    /// Whether the pointer goes into the JSON that stands as text in the first content block.
    pub(super) in_json_text: bool,
    pub(super) at: Pointer,
    /// The text is taken apart at each of these, and the test is one of its parts.
    pub(super) split: Option<String>,
    pub(super) test: Test,
    /// How often it is met, exactly; more often is an alarm.
    pub(super) count: Option<usize>,
}

/// What must be so at the place.
#[derive(Debug)]
pub(super) enum Test {
    Equals(Json),
    Includes(Json),
    Excludes(Json),
    /// One of the texts stands in the text.
    Contains(Vec<Text>),
    /// None of the texts does.
    Lacks(Vec<Text>),
    /// The text begins with one of them.
    Starts(Vec<Text>),
    /// The text ends with one of them.
    Ends(Vec<Text>),
    /// A line of the text is one of them.
    Line(Vec<Text>),
    /// So many elements.
    Length(usize),
    /// The tool's own word that it failed.
    IsError(bool),
}

/// Whether a condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Held {
    Yes,
    No,
    /// It is met more often than once for one effect.
    TooOften,
    /// The result is not of the form that the condition looks for, or the condition cannot be made.
    Unreadable(String),
}

impl Held {
    /// Both: an alarm first, then what could not be read.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::TooOften, _) | (_, Self::TooOften) => Self::TooOften,
            (Self::Unreadable(why), _) | (_, Self::Unreadable(why)) => Self::Unreadable(why),
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::No,
        }
    }
}

/// Whether every condition holds. Without any, nothing does.
pub(super) fn all(conditions: &[Condition], reply: &Value, scope: &Scope<'_>) -> Held {
    let is_error = reply.get("isError").and_then(Value::as_bool) == Some(true);
    let minds_errors = conditions.iter().any(|it| matches!(it.test, Test::IsError(_)));
    if is_error && !minds_errors {
        return Held::Unreadable("the lookup tool answered with an error".into());
    }
    let held = conditions.iter().map(|it| it.held(reply, scope));
    held.reduce(Held::and).unwrap_or(Held::No)
}

impl Condition {
    /// The names that its templates use.
    pub(super) fn names(&self) -> std::collections::BTreeSet<String> {
        let texts = |texts: &[Text]| texts.iter().flat_map(Text::names).collect::<Vec<_>>();
        let mut names: std::collections::BTreeSet<String> =
            self.loops.iter().chain(&self.when).flat_map(Json::names).collect();
        names.extend(match &self.test {
            Test::Equals(json) | Test::Includes(json) | Test::Excludes(json) => {
                json.names().into_iter().collect()
            }
            Test::Contains(it)
            | Test::Lacks(it)
            | Test::Starts(it)
            | Test::Ends(it)
            | Test::Line(it) => texts(it),
            Test::Length(_) | Test::IsError(_) => Vec::new(),
        });
        names
    }

    /// Whether a text that is a part of another would be taken for it.
    pub(super) fn takes_parts(&self) -> bool {
        matches!(self.test, Test::Contains(_) | Test::Lacks(_) | Test::Starts(_) | Test::Ends(_))
    }

    fn held(&self, reply: &Value, scope: &Scope<'_>) -> Held {
        self.looped(&self.loops, reply, scope).unwrap_or_else(|error| {
            Held::Unreadable(format!("the condition cannot be made: {error}"))
        })
    }

    fn looped(
        &self,
        loops: &[Json],
        reply: &Value,
        scope: &Scope<'_>,
    ) -> Result<Held, RenderError> {
        let Some((list, further)) = loops.split_first() else { return self.once(reply, scope) };
        let name = if further.len() + 1 == self.loops.len() { "each" } else { "inner" };
        let elements = match list.render(scope)? {
            Value::Array(elements) => elements,
            _ => return Ok(Held::Unreadable(format!("{name} is no list"))),
        };
        if elements.len() > MOST_ELEMENTS {
            return Ok(Held::Unreadable(format!("{name} has over {MOST_ELEMENTS} elements")));
        }
        let mut held = Held::Yes;
        for element in &elements {
            held = held.and(self.looped(further, reply, &scope.with(name, element))?);
        }
        Ok(held)
    }

    fn once(&self, reply: &Value, scope: &Scope<'_>) -> Result<Held, RenderError> {
        if let Some(when) = &self.when
            && when.render(scope)? != Value::Bool(true)
        {
            return Ok(Held::Yes);
        }
        if let Test::IsError(wanted) = self.test {
            let is_error = reply.get("isError").and_then(Value::as_bool) == Some(true);
            return Ok(yes(is_error == wanted));
        }
        let inner = if self.in_json_text { json_text(reply) } else { None };
        let whole = match (&inner, self.in_json_text) {
            (Some(inner), _) => inner,
            (None, true) => return Ok(unreadable("its first content block is no JSON text")),
            (None, false) => reply,
        };
        match self.at.find(whole) {
            Some(found) => self.test_at(found, scope),
            None => Ok(Held::Unreadable(format!("there is nothing at \"{}\"", self.at.as_str()))),
        }
    }

    fn test_at(&self, found: &Value, scope: &Scope<'_>) -> Result<Held, RenderError> {
        if let Test::Equals(wanted) = &self.test {
            return Ok(yes(equal(found, &wanted.render_whole(scope)?)));
        }
        match (&self.test, found) {
            (Test::Length(wanted), Value::Array(elements)) => Ok(yes(elements.len() == *wanted)),
            (Test::Includes(wanted), Value::Array(elements)) if self.count.is_some() => {
                let wanted = wanted.render_whole(scope)?;
                Ok(self.counted(elements.iter().filter(|it| includes(it, &wanted)).count()))
            }
            (Test::Includes(wanted), Value::Array(_) | Value::Object(_)) => {
                Ok(yes(includes(found, &wanted.render_whole(scope)?)))
            }
            (Test::Excludes(wanted), Value::Array(_) | Value::Object(_)) => {
                Ok(yes(!includes(found, &wanted.render_whole(scope)?)))
            }
            (Test::Length(_) | Test::Includes(_) | Test::Excludes(_), _) => {
                Ok(Held::Unreadable(format!("there is no list at \"{}\"", self.at.as_str())))
            }
            (_, Value::String(text)) => self.test_text(text, scope),
            _ => Ok(Held::Unreadable(format!("there is no text at \"{}\"", self.at.as_str()))),
        }
    }

    fn test_text(&self, text: &str, scope: &Scope<'_>) -> Result<Held, RenderError> {
        let (Test::Contains(wanted)
        | Test::Lacks(wanted)
        | Test::Starts(wanted)
        | Test::Ends(wanted)
        | Test::Line(wanted)) = &self.test
        else {
            return Ok(unreadable("there is a text where there should be none"));
        };
        let wanted: Vec<String> =
            wanted.iter().map(|it| it.render(scope)).collect::<Result<_, _>>()?;
        let parts = || text.split(self.split.as_deref().unwrap_or("\n"));
        let any = |fits: &dyn Fn(&str) -> bool| wanted.iter().any(|it| fits(it));
        let found = match (&self.test, &self.split) {
            (Test::Lacks(_), _) => return Ok(yes(!any(&|it| text.contains(it)))),
            (Test::Line(_), _) => text.lines().filter(|line| any(&|it| it == *line)).count(),
            (Test::Contains(_), Some(_)) => {
                parts().filter(|part| any(&|it| part.contains(it))).count()
            }
            (Test::Starts(_), Some(_)) => {
                parts().filter(|part| any(&|it| part.starts_with(it))).count()
            }
            (Test::Ends(_), Some(_)) => {
                parts().filter(|part| any(&|it| part.ends_with(it))).count()
            }
            (Test::Starts(_), None) => usize::from(any(&|it| text.starts_with(it))),
            (Test::Ends(_), None) => usize::from(any(&|it| text.ends_with(it))),
            _ if self.count.is_some() && any(&str::is_empty) => {
                return Ok(unreadable("an empty text stands everywhere"));
            }
            // Where it is not counted, an empty text is found, and once is enough.
            _ if self.count.is_none() => usize::from(any(&|it| text.contains(it))),
            _ => wanted.iter().map(|it| text.matches(it).count()).sum(),
        };
        Ok(if self.count.is_some() { self.counted(found) } else { yes(found > 0) })
    }

    fn counted(&self, found: usize) -> Held {
        match self.count {
            Some(wanted) if found == wanted => Held::Yes,
            Some(wanted) if found > wanted && wanted > 0 => Held::TooOften,
            _ => Held::No,
        }
    }
}

fn yes(is_so: bool) -> Held {
    if is_so { Held::Yes } else { Held::No }
}

fn unreadable(why: &str) -> Held {
    Held::Unreadable(why.to_owned())
}

/// The JSON that stands as text in the first content block.
fn json_text(reply: &Value) -> Option<Value> {
    let block = reply.get("content")?.as_array()?.first()?;
    let text = (block.get("type")?.as_str()? == "text").then(|| block.get("text")?.as_str())?;
    parse(text?.as_bytes(), &limits()).ok()
}

/// What is read of a lookup tool's result.
pub(in crate::wrap) fn limits() -> JsonLimits {
    let bytes = counterfoil_core::limits::MAX_RESULT_BYTES;
    JsonLimits {
        max_bytes: bytes,
        max_string_bytes: bytes,
        max_members: 1_000_000,
        ..JsonLimits::default()
    }
}
