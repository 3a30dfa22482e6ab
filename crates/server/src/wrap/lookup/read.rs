//! Reads `[wrap.tools.NAME.lookup]` and `[wrap.tools.NAME.marker]`. What could never prove what it
//! claims is a mistake of the settings.

use std::collections::BTreeSet;

use toml::de::DeValue;

use super::condition::{Condition, Test};
use super::{Lookup, Marker};
use crate::connector::Pointer;
use crate::connector::form::{Field, Form};
use crate::connector::template::{Json, Text};
use crate::connector::toml_json;

/// What templates about a call may name.
const OF_CALL: &[&str] = &["args", "marker", "operation_id", "dispatched_at"];
/// What tells one operation from every other.
const IDENTITY: &[&str] = &["marker", "operation_id"];
/// A condition has exactly one of these.
const TESTS: &[&str] = &[
    "equals", "includes", "excludes", "contains", "lacks", "starts", "ends", "line", "length",
    "is_error",
];
const MOST_ELEMENTS: i64 = 1_000_000;

/// Reads `[wrap.tools.NAME.marker]`.
pub(in crate::wrap) fn marker(form: Form<'_>) -> Option<Marker> {
    let argument = form.needed("argument", "name the argument that carries the marker", |text| {
        if text.is_empty() {
            Err("this is empty; name an argument".into())
        } else {
            Ok(text.into())
        }
    });
    let value = json(&form, "value", OF_CALL);
    if !form.has("value") {
        form.missing("value", "write such as \"{{ args.message }} {{ marker }}\"");
    }
    let names = value.as_ref().map(Json::names).unwrap_or_default();
    if value.is_some() && !IDENTITY.iter().any(|name| names.contains(*name)) {
        form.problem("puts no `{{ marker }}` into the argument; write it into value");
    }
    let before = form.problems_count();
    let unknown = form.finish() > before;
    Some(Marker { argument: argument?, value: value? }).filter(|_| !unknown)
}

/// Reads `[wrap.tools.NAME.lookup]`.
pub(in crate::wrap) fn lookup(form: Form<'_>, marker: Option<&Marker>) -> Option<Lookup> {
    let before = form.problems_count();
    let tool = form.needed("tool", "name a read-only tool of the same server", |text| {
        if text.is_empty() { Err("this is empty; name a tool".into()) } else { Ok(text.to_owned()) }
    });
    let arguments = json(&form, "arguments", OF_CALL).unwrap_or(Json::Object(Vec::new()));
    let applied = conditions(&form, "applied");
    let not_applied = conditions(&form, "not_applied");
    if !form.has("applied") {
        form.missing("applied", "say what the result shows when the effect is there");
    }
    let absence_after = if form.has("absence_after") {
        form.span("absence_after", Default::default())
    } else {
        None
    };
    let is_complete = form.flag("complete");
    let (text, structured) = result(&form);
    if form.has("not_applied") {
        let proof = Proof { arguments: &arguments, not_applied: &not_applied, is_complete, marker };
        proof.check(&form);
    } else if form.has("absence_after") {
        form.problem(
            "has absence_after and no not_applied; say what the result shows when there is no \
             effect, or remove it",
        );
    }
    let is_clean = form.finish() == before;
    let lookup =
        Lookup { tool: tool?, arguments, applied, not_applied, absence_after, text, structured };
    is_clean.then_some(lookup)
}

/// What a claim of absence rests on.
struct Proof<'a> {
    arguments: &'a Json,
    not_applied: &'a [Condition],
    is_complete: bool,
    marker: Option<&'a Marker>,
}

impl Proof<'_> {
    fn check(&self, form: &Form<'_>) {
        if !form.has("absence_after") {
            form.missing(
                "absence_after",
                "without it an effect that was not found may still come; give the longest time that \
                 a call takes to take effect and to be seen, or remove not_applied",
            );
        }
        if !self.is_complete {
            form.missing(
                "complete",
                "write complete = true if the tool's answer is always the whole of it, or remove \
                 not_applied: what stands on another page is not absent",
            );
        }
        let Some(marker) = self.marker else {
            form.problem(
                "claims absence by not_applied without a text of its own in the effect: add \
                 [... .marker], or remove not_applied",
            );
            return;
        };
        let put = marker.value.names();
        let looked: BTreeSet<String> = self
            .not_applied
            .iter()
            .flat_map(Condition::names)
            .chain(self.arguments.names())
            .collect();
        let shared: Vec<_> =
            IDENTITY.iter().filter(|it| looked.contains(**it) && put.contains(**it)).collect();
        if shared.is_empty() {
            form.problem(
                "claims absence by not_applied and does not look for the text that the marker puts \
                 into the effect; use `{{ marker }}` in both",
            );
        }
        let by_part = self
            .not_applied
            .iter()
            .any(|it| it.takes_parts() && it.names().contains("operation_id"));
        if by_part {
            form.problem(
                "looks for a text that holds the caller's own ID, and one ID can be a part of \
                 another; use `{{ marker }}`",
            );
        }
    }
}

fn result(form: &Form<'_>) -> (Option<Text>, Option<Json>) {
    let Some(result) = form.table("result") else { return (None, None) };
    let names = [OF_CALL, &["reply"]].concat();
    let text = result.field("text").and_then(|field| text_of(&field, &names));
    let structured = json(&result, "structured", &names);
    result.finish();
    (text, structured)
}

fn conditions(form: &Form<'_>, key: &'static str) -> Vec<Condition> {
    let tables = form.tables(key);
    if tables.is_empty() && form.has(key) {
        // What is no list of tables was told already; an empty list says nothing.
        if let Some(field) = form.field(key)
            && field.value.get_ref().as_array().is_some_and(|it| it.is_empty())
        {
            field.problem("this is empty; give a condition, or remove it");
        }
    }
    tables.into_iter().filter_map(condition).collect()
}

fn condition(form: Form<'_>) -> Option<Condition> {
    let mut known = OF_CALL.to_vec();
    let mut loops = Vec::new();
    for (key, name) in [("each", "each"), ("inner", "inner")] {
        if let Some(list) = json(&form, key, &known) {
            loops.push(list);
            known.push(name);
        }
    }
    if form.has("inner") && !form.has("each") {
        form.problem("has inner without each; name the outer list each");
    }
    let when = json(&form, "when", &known);
    let in_json_text = form.flag("json_text");
    let at = form.parsed("at", Pointer::parse);
    let at = if form.has("at") { at } else { Pointer::parse("").ok() };
    let given: Vec<&str> = TESTS.iter().copied().filter(|it| form.has(it)).collect();
    let test = test(&form, &known);
    if given.len() != 1 {
        form.problem(format!("is a condition with exactly one of {}", TESTS.join(", ")));
    }
    let split = form.parsed("split", |text| {
        if text.is_empty() { Err("this is empty; give a text".into()) } else { Ok(text.to_owned()) }
    });
    let of_parts = matches!(test, Some(Test::Contains(_) | Test::Starts(_) | Test::Ends(_)));
    if form.has("split") && !of_parts {
        form.problem(
            "takes a text apart and tests no part; split goes with contains, starts or ends",
        );
    }
    let count = form.has("count").then(|| form.count("count", (0, MOST_ELEMENTS), 1)).flatten();
    let counts = matches!(test, Some(Test::Includes(_) | Test::Contains(_) | Test::Line(_)))
        || (of_parts && split.is_some());
    if form.has("count") && !counts {
        form.problem(
            "counts what is found once at most; count goes with includes, contains or line, or with \
             split",
        );
    }
    form.finish();
    let count = count.and_then(|it| usize::try_from(it).ok());
    Some(Condition { loops, when, in_json_text, at: at?, split, test: test?, count })
}

fn test(form: &Form<'_>, known: &[&'static str]) -> Option<Test> {
    let texts = |key| form.field(key).and_then(|field| texts_of(&field, known));
    // Each key is asked for, so that none counts as unknown.
    let equals = json(form, "equals", known).map(Test::Equals);
    let includes = json(form, "includes", known).map(Test::Includes);
    let excludes = json(form, "excludes", known).map(Test::Excludes);
    let contains = texts("contains").map(Test::Contains);
    let lacks = texts("lacks").map(Test::Lacks);
    let starts = texts("starts").map(Test::Starts);
    let ends = texts("ends").map(Test::Ends);
    let line = texts("line").map(Test::Line);
    let length =
        form.count("length", (0, MOST_ELEMENTS), -1).and_then(|it| usize::try_from(it).ok());
    let is_error = form.flag("is_error");
    equals
        .or(includes)
        .or(excludes)
        .or(contains)
        .or(lacks)
        .or(starts)
        .or(ends)
        .or(line)
        .or(length.map(Test::Length))
        .or(form.has("is_error").then_some(Test::IsError(is_error)))
}

/// A JSON template.
fn json(form: &Form<'_>, key: &'static str, known: &[&str]) -> Option<Json> {
    toml_json::template(&form.field(key)?, &|names| check(names, known))
}

/// A text, or a list of alternatives.
fn texts_of(field: &Field<'_>, known: &[&str]) -> Option<Vec<Text>> {
    let texts = match field.value.get_ref() {
        DeValue::Array(elements) if !elements.is_empty() => field.texts()?,
        DeValue::Array(_) => {
            field.problem("this is empty; give a text");
            return None;
        }
        _ => vec![field.text()?],
    };
    let parsed = texts.iter().map(|text| {
        let text = Text::parse(text)?;
        check(&text.names(), known)?;
        Ok(text)
    });
    parsed.collect::<Result<_, String>>().map_err(|words| field.problem(words)).ok()
}

fn text_of(field: &Field<'_>, known: &[&str]) -> Option<Text> {
    field.parsed(|text| {
        let text = Text::parse(text)?;
        check(&text.names(), known)?;
        Ok(text)
    })
}

/// Refuses a name that will never have a value.
fn check(names: &BTreeSet<String>, known: &[&str]) -> Result<(), String> {
    let root = |name: &str| name.split(['.', '[']).next().unwrap_or_default().to_owned();
    match names.iter().find(|name| !known.contains(&root(name).as_str())) {
        None => Ok(()),
        Some(name) => Err(format!("there is no `{name}` here; use one of {}", known.join(", "))),
    }
}
