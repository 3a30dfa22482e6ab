//! Reads what a target's answers mean, what the tool's result is, and how a lookup is read.

use std::sync::Arc;

use super::form::{Field, Form};
use super::pointer::Pointer;
use super::read_request::{RequestTemplate, search};
use super::result::ResultTemplate;
use super::rules::{
    AnswerRule, BodyRule, Compare, DECLARABLE, JsonKind, LookupRules, Matching, Meaning, OwnAnswer,
    Pages, REFUSALS, ResponseRules, Shape,
};
use super::schema::Schema;
use super::template::Text;
use super::vocabulary::{Vocabulary, check_result};
use super::{header, toml_json};

/// Successes: 202 and 207 promise nothing, and 206 is half an answer.
const SUCCESSES: &[u16] = &[200, 201, 203, 204, 205, 208];
/// Statuses that tell whether an address names something.
const PRESENCE: &[u16] = &[200, 201, 203, 204, 404, 410];

/// A lookup: its request, the text that a match has, and the rules for its answer.
pub(super) struct Lookup {
    pub(super) template: LookupTemplate,
    pub(super) rules: LookupRules,
}

/// A search that waits for its values.
#[derive(Debug)]
pub(super) struct LookupTemplate {
    pub(super) request: RequestTemplate,
    /// The text that a match's field is compared with; `None` where the status alone tells.
    pub(super) expected: Option<Text>,
}

impl LookupTemplate {
    /// The unique names by which it finds the effect: all of them must stand in the request too.
    pub(super) fn identity_names(&self) -> Vec<&'static str> {
        let names = match &self.expected {
            Some(expected) => expected.names(),
            None => self.request.url.names(),
        };
        let unique = ["marker", "key", "operation_id"];
        unique.into_iter().filter(|name| names.contains(*name)).collect()
    }
}

impl Lookup {
    /// Whether `op-10` would be found by a search for `op-1`: nothing but an ID that its caller
    /// chose tells matches apart, and it may stand anywhere in their texts. `callers_key`: `key` is
    /// that ID too.
    pub(super) fn takes_a_part_for_all(&self, callers_key: bool) -> bool {
        let Some(expected) = &self.template.expected else { return false };
        let names = expected.names();
        let ours = names.contains("marker") || (names.contains("key") && !callers_key);
        let is_part =
            matches!(self.rules.matching, Matching::Items { compare: Compare::Contains, .. });
        is_part && !ours
    }
}

/// `[success]`, `[[answer]]` and `[result]`.
pub(super) fn responses(
    form: &Form<'_>,
    output: Option<&Arc<Schema>>,
    url_holds_arguments: bool,
) -> Option<ResponseRules> {
    let success = success(form);
    let answers: Vec<Option<AnswerRule>> = form.tables("answer").into_iter().map(answer).collect();
    let result = result(form, output);
    let (success, body, external_id) = success?;
    Some(ResponseRules {
        success,
        body,
        external_id,
        answers: answers.into_iter().collect::<Option<_>>()?,
        result: result?,
        url_holds_arguments,
    })
}

type Success = (Vec<u16>, BodyRule, Option<Pointer>);

fn success(form: &Form<'_>) -> Option<Success> {
    if !form.has("success") {
        form.field("success");
        form.missing("success", "say which statuses mean that the request was applied");
        return None;
    }
    let table = form.table("success")?;
    let words = "; 202 and 207 do not say that it was applied";
    let statuses = match table.field("status") {
        Some(field) => field.statuses(SUCCESSES, words),
        None => {
            table.missing("status", "list them, for example [201]");
            None
        }
    };
    let text = table.field("text");
    let external_id = table.field("external_id");
    let has_id = external_id.is_some();
    let external_id = external_id.and_then(|field| field.parsed(Pointer::parse));
    let body = match table.field("body") {
        None if text.is_some() => Some("text".to_owned()),
        None => Some("json".to_owned()),
        Some(field) => field.parsed(|text| match text {
            "json" | "text" | "ignored" => Ok(text.to_owned()),
            _ => Err("a body is \"json\", \"text\" or \"ignored\"".into()),
        }),
    };
    let body = body.and_then(|word| body_rule(&table, &word, text.as_ref()));
    if has_id && body.as_ref().is_some_and(|body| *body != BodyRule::Json) {
        table.problem("has an external_id, which only a JSON body holds; write body = \"json\"");
    }
    table.finish();
    if has_id && external_id.is_none() {
        return None;
    }
    Some((statuses?, body?, external_id))
}

fn body_rule(table: &Form<'_>, word: &str, text: Option<&Field<'_>>) -> Option<BodyRule> {
    match (word, text) {
        ("text", Some(field)) => field.parsed(|text| {
            let text = text.trim();
            if text.is_empty() {
                Err("give the text that means success".into())
            } else {
                Ok(BodyRule::Text(text.to_owned()))
            }
        }),
        ("text", None) => {
            table.missing("text", "give the text that means success");
            None
        }
        (_, Some(field)) => {
            field.problem("only body = \"text\" is compared; remove this, or write that");
            None
        }
        ("json", None) => Some(BodyRule::Json),
        _ => Some(BodyRule::Ignored),
    }
}

fn answer(table: Form<'_>) -> Option<AnswerRule> {
    let words = "; every other has a fixed meaning";
    let statuses = match table.field("status") {
        Some(field) => field.statuses(DECLARABLE, words),
        None => {
            table.missing("status", "list the statuses that this is about");
            None
        }
    };
    let known = Meaning::ALL.map(Meaning::as_str).join(", ");
    let means = table.needed("means", &format!("use one of {known}"), |text| {
        let found = Meaning::ALL.into_iter().find(|meaning| meaning.as_str() == text);
        found.ok_or_else(|| format!("there is no such meaning; use one of {known}"))
    });
    let has_shape = table.has("at") || table.has("text");
    let shape = shape(&table);
    let has_header = table.has("header");
    let header = answer_header(&table);
    if let (Some(statuses), Some(means)) = (&statuses, means)
        && let Some(rule) = against(statuses, means, has_shape, has_header)
    {
        table.problem(rule);
    }
    table.finish();
    if (has_shape && shape.is_none()) || (has_header && header.is_none()) {
        return None;
    }
    let own = OwnAnswer { shape, header };
    Some(AnswerRule { statuses: statuses?, own, means: means? })
}

/// Why these statuses cannot mean that.
fn against(
    statuses: &[u16],
    means: Meaning,
    has_shape: bool,
    has_header: bool,
) -> Option<&'static str> {
    let all = |known: &[u16]| statuses.iter().all(|status| known.contains(status));
    match means {
        Meaning::Refused if !all(REFUSALS) && !all(&[409]) => Some(
            "says that a server error is a refusal; only 400, 409, 413, 415 and 422 can be one",
        ),
        Meaning::Refused if !has_shape => Some(
            "calls an answer a refusal by its status alone, which a proxy can send too; describe \
             the target's own error body with at and type, or with text",
        ),
        Meaning::NotApplied if !all(&[409, 503]) => {
            Some("can be said of 409 and 503 alone; other statuses do not prove it")
        }
        Meaning::Applied if !all(&[409]) => Some("can be said of 409 alone"),
        Meaning::KeyReused if !all(&[400, 409, 422]) => {
            Some("can be said of 400, 409 and 422 alone")
        }
        Meaning::KeyReused | Meaning::KeyReplayed if !has_shape && !has_header => {
            Some("needs a body's shape or a header by which the target's own answer is known")
        }
        _ => None,
    }
}

fn answer_header(table: &Form<'_>) -> Option<(http::HeaderName, String)> {
    let name = table.field("header");
    let value = table.field("header_value");
    match (name, value) {
        (None, None) => None,
        (Some(name), Some(value)) => {
            let name = name.parsed(header::name);
            let value = value.parsed(|text| header::check_value(text).map(|()| text.to_owned()));
            name.zip(value)
        }
        (Some(_), None) => {
            table.missing("header_value", "give the value that the header has then");
            None
        }
        (None, Some(value)) => {
            value.problem("give the header's name in header");
            None
        }
    }
}

fn shape(table: &Form<'_>) -> Option<Shape> {
    let (at, kind, values, text) =
        (table.field("at"), table.field("type"), table.field("values"), table.field("text"));
    match (at, text) {
        (Some(_), Some(text)) => {
            text.problem("there is an at already; give one of the two");
            None
        }
        (None, Some(text)) => {
            for field in [kind, values].into_iter().flatten() {
                field.problem("this goes with at, not with text; remove it");
            }
            let texts = text.texts()?;
            if texts.is_empty() || texts.iter().any(|it| it.trim().is_empty()) {
                text.problem("list the whole bodies that the target answers with");
                return None;
            }
            Some(Shape::Text(texts.iter().map(|it| it.trim().to_owned()).collect()))
        }
        (Some(at), None) => {
            let at = at.parsed(Pointer::parse);
            let known = JsonKind::ALL.map(JsonKind::as_str).join(", ");
            let Some(kind) = kind else {
                table.missing("type", &format!("use one of {known}"));
                return None;
            };
            let kind = kind.parsed(|text| {
                let found = JsonKind::ALL.into_iter().find(|kind| kind.as_str() == text);
                found.ok_or_else(|| format!("there is no such type; use one of {known}"))
            });
            let values = match values {
                None => Some(Vec::new()),
                Some(field) => list(&field),
            };
            Some(Shape::Json { at: at?, kind: kind?, values: values? })
        }
        (None, None) => {
            for field in [kind, values].into_iter().flatten() {
                field.problem("this goes with at, which says where it stands; give it");
            }
            None
        }
    }
}

fn list(field: &Field<'_>) -> Option<Vec<counterfoil_core::json::Value>> {
    let elements = field.value.get_ref().as_array().filter(|elements| !elements.is_empty());
    let Some(elements) = elements else {
        field.problem("list the values; leave it out for any");
        return None;
    };
    let fixed = elements.iter().map(|element| toml_json::fixed(element.get_ref()));
    fixed.collect::<Result<_, _>>().map_err(|words| field.problem(words)).ok()
}

fn result(form: &Form<'_>, output: Option<&Arc<Schema>>) -> Option<ResultTemplate> {
    if !form.has("result") {
        form.field("result");
        return Some(ResultTemplate { output: output.cloned(), ..ResultTemplate::default() });
    }
    let table = form.table("result")?;
    let has_text = table.has("text");
    let text = table.parsed("text", |text| {
        let text = Text::parse(text)?;
        check_result(&text.names())?;
        Ok(text)
    });
    let structured = table.field("structured");
    let has_structured = structured.is_some();
    let structured = structured.and_then(|field| {
        let template = toml_json::template(&field, &check_result)?;
        if output.is_none() {
            field.problem("without an [output] schema nobody knows its form; declare one");
        }
        Some(template)
    });
    table.finish();
    if (has_text && text.is_none()) || (has_structured && structured.is_none()) {
        return None;
    }
    Some(ResultTemplate { text, structured, output: output.cloned() })
}

/// The `[lookup]` table.
pub(super) fn lookup(
    form: &Form<'_>,
    words: &Vocabulary<'_>,
    output: Option<&Arc<Schema>>,
) -> Option<Lookup> {
    let table = form.table("lookup")?;
    let request = search(&table, words);
    let by_status = table.has("found") || table.has("absent");
    let matching = if by_status { statuses(&table) } else { items(&table, words) };
    let external_id = table.field("external_id");
    let has_id = external_id.is_some();
    let external_id = external_id.and_then(|field| field.parsed(Pointer::parse));
    let result = result(&table, output);
    if let (true, Some(request)) = (!by_status, &request)
        && request.method == http::Method::HEAD
    {
        table.problem("searches a list with HEAD, which has no body; use GET");
    }
    table.finish();
    if has_id && external_id.is_none() {
        return None;
    }
    let (matching, expected) = matching?;
    let rules = LookupRules { matching, external_id, result: result? };
    Some(Lookup { template: LookupTemplate { request: request?, expected }, rules })
}

fn statuses(table: &Form<'_>) -> Option<(Matching, Option<Text>)> {
    let list = |key: &'static str| match table.field(key) {
        Some(field) => field.statuses(PRESENCE, ""),
        None => {
            table.missing(key, "found and absent are given together");
            None
        }
    };
    let (found, absent) = (list("found"), list("absent"));
    let own = absent_answer(table);
    let (found, absent, own) = (found?, absent?, own?);
    if found.iter().any(|status| absent.contains(status)) {
        table.problem("has a status that means both found and absent; give it to one");
        return None;
    }
    Some((Matching::Status { found, absent, own }, None))
}

/// `[lookup.absent_answer]`: by what the target's own word of an absence is known.
fn absent_answer(table: &Form<'_>) -> Option<OwnAnswer> {
    if !table.has("absent_answer") {
        table.missing(
            "absent_answer",
            "a proxy answers 404 too; describe the target's own answer with at and type, with text, \
             or with header and header_value",
        );
        return None;
    }
    let form = table.table("absent_answer")?;
    let (has_shape, has_header) = (form.has("at") || form.has("text"), form.has("header"));
    let (shape, header) = (shape(&form), answer_header(&form));
    if !has_shape && !has_header {
        form.problem("describes nothing; give at and type, text, or header and header_value");
    }
    form.finish();
    if (shape.is_none() && header.is_none())
        || (has_shape && shape.is_none())
        || (has_header && header.is_none())
    {
        return None;
    }
    Some(OwnAnswer { shape, header })
}

fn items(table: &Form<'_>, words: &Vocabulary<'_>) -> Option<(Matching, Option<Text>)> {
    let items = table.needed("items", "say where the list stands, \"\" for all", Pointer::parse);
    let field =
        table.needed("field", "say where the compared text stands in an element", Pointer::parse);
    let text = |text: &str| {
        let text = Text::parse(text)?;
        words.check(&text.names())?;
        Ok(text)
    };
    let (equals, contains) = (table.field("equals"), table.field("contains"));
    let compared = match (equals, contains) {
        (Some(equals), None) => equals.parsed(text).map(|text| (Compare::Equals, text)),
        (None, Some(contains)) => contains.parsed(text).map(|text| (Compare::Contains, text)),
        (Some(_), Some(contains)) => {
            contains.problem("there is an equals already; give one of the two");
            None
        }
        (None, None) => {
            table.missing("contains", "give the text of a match: contains = \"{{ marker }}\"");
            None
        }
    };
    let pages = pages(table);
    let (compare, text) = compared?;
    let matching = Matching::Items { items: items?, field: field?, compare, pages: pages? };
    Some((matching, Some(text)))
}

fn pages(table: &Form<'_>) -> Option<Pages> {
    let max_pages = table.count("max_pages", (1, 100), 10);
    let next = table.field("next");
    let (link, complete) = (table.flag("link_header"), table.flag("complete"));
    let max_pages = u32::try_from(max_pages?).ok()?;
    match (next, link, complete) {
        (Some(next), false, false) => {
            Some(Pages::NextAt { next: next.parsed(Pointer::parse)?, max_pages })
        }
        (None, true, false) => Some(Pages::LinkHeader { max_pages }),
        (None, false, true) => Some(Pages::Complete),
        _ => {
            table.problem(
                "must say how one knows that every page was seen; give one of next = POINTER, \
                 link_header = true, and complete = true if the answer always holds everything",
            );
            None
        }
    }
}
