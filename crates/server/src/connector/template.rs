//! Templates: text with `{{ expression }}` in it, and nothing else. No statements, so no loops; the
//! expressions are minijinja's, with a short list of filters, a budget and a limit on their output.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;

use counterfoil_core::json::{Number, Object, Value};
use minijinja::value::ValueKind;
use minijinja::{Environment, Expression, UndefinedBehavior, filters, tests};

use super::filter;
use super::scan::{Piece, pieces};

/// No rendered text is longer.
pub(super) const MAX_RENDERED_BYTES: usize = 1024 * 1024;
/// Steps that one expression may take; the length of the texts that it works on counts too.
const FUEL: u64 = 8_000_000;
/// Expressions nest at most this deep.
const DEPTH: usize = 64;

/// The language: strict about what is missing, and without anything that grows or loops.
static LANGUAGE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut language = Environment::empty();
    language.set_undefined_behavior(UndefinedBehavior::Strict);
    language.set_fuel(Some(FUEL));
    language.set_recursion_limit(DEPTH);
    language.add_filter("default", filters::default);
    language.add_filter("lower", filters::lower);
    language.add_filter("upper", filters::upper);
    language.add_filter("trim", filters::trim);
    language.add_filter("length", filters::length);
    language.add_filter("first", filters::first);
    language.add_filter("last", filters::last);
    language.add_filter("join", filter::join);
    language.add_filter("map", filter::map);
    language.add_filter("replace", filter::replace);
    language.add_filter("truncate", filter::truncate);
    language.add_filter("string", filter::string);
    language.add_filter("tojson", filter::tojson);
    language.add_test("defined", tests::is_defined);
    language.add_test("undefined", tests::is_undefined);
    language.add_test("none", tests::is_none);
    language.add_test("string", tests::is_string);
    language.add_test("number", tests::is_number);
    language
});

/// Why a template gives no value. Names the expression, never an argument's value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{{{{ {expression} }}}}` {problem}")]
pub struct RenderError {
    /// As it stands in the configuration.
    pub expression: String,
    /// The rule and the remedy.
    pub problem: String,
}

/// What expressions see: the arguments as `args`, and named values beside them.
pub struct Scope<'a> {
    /// The arguments or the reply, by the name that templates use, in both forms.
    roots: Vec<(&'static str, &'a Value, minijinja::Value)>,
    values: minijinja::Value,
}

impl<'a> Scope<'a> {
    /// Values for every name that the template may use.
    #[must_use]
    pub fn new(roots: Vec<(&'static str, &'a Value)>) -> Self {
        let both = |(name, value): (&'static str, &'a Value)| (name, value, to_template(value));
        Self::of(roots.into_iter().map(both).collect())
    }

    /// The same with one more value, or another for its name; those that are there are shared.
    #[must_use]
    pub fn with(&self, name: &'static str, value: &'a Value) -> Self {
        let others = self.roots.iter().filter(|(known, ..)| *known != name).cloned();
        Self::of(others.chain([(name, value, to_template(value))]).collect())
    }

    fn of(roots: Vec<(&'static str, &'a Value, minijinja::Value)>) -> Self {
        let values = map(roots.iter().map(|(name, _, value)| ((*name).to_owned(), value.clone())));
        Self { roots, values }
    }

    fn root(&self, name: &str) -> Option<&'a Value> {
        self.roots.iter().find(|(known, ..)| *known == name).map(|(_, value, _)| *value)
    }
}

impl fmt::Debug for Scope<'_> {
    /// The names alone: values may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.roots.iter().map(|(name, ..)| name)).finish()
    }
}

/// One compiled expression.
pub(super) struct Expr {
    source: String,
    /// `args.a.b` alone: the value is taken as it is, its number's literal too.
    path: Option<Vec<String>>,
    compiled: Expression<'static, 'static>,
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{{ {} }}}}", self.source)
    }
}

impl Expr {
    fn compile(source: &str) -> Result<Self, String> {
        let source = source.trim();
        let compiled = LANGUAGE.compile_expression_owned(source.to_owned()).map_err(|error| {
            let words = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
            format!("the expression `{source}` cannot be read: {words}; correct it")
        })?;
        unknown_words(source)?;
        Ok(Self { source: source.to_owned(), path: plain_path(source), compiled })
    }

    /// The value; `None` if it is a name or member that is not there.
    fn value(&self, scope: &Scope<'_>) -> Result<Option<Value>, RenderError> {
        if let Some((root, members)) = self.path.as_ref().and_then(|path| path.split_first()) {
            let found = members.iter().try_fold(scope.root(root), |value, member| match value {
                Some(Value::Object(object)) => Ok(object.get(member)),
                None => Ok(None),
                Some(_) => Err(self.error(format!("asks for `{member}` of what is no object"))),
            })?;
            return Ok(found.cloned());
        }
        let value = self.compiled.eval(scope.values.clone()).map_err(|error| {
            use minijinja::ErrorKind;
            match error.kind() {
                ErrorKind::UndefinedError => self.not_given(),
                ErrorKind::OutOfFuel => {
                    self.error(format!("takes over {FUEL} steps; make it simpler"))
                }
                kind => self.error(format!("fails: {kind}")),
            }
        })?;
        from_template(&value).map_err(|problem| self.error(problem))
    }

    /// The value as text.
    fn text(&self, scope: &Scope<'_>) -> Result<String, RenderError> {
        match self.value(scope)? {
            Some(Value::String(text)) => Ok(text),
            Some(Value::Number(number)) => Ok(number.literal().to_owned()),
            Some(Value::Bool(is)) => Ok(is.to_string()),
            None => Err(self.not_given()),
            Some(Value::Null) => Err(self.error(
                "is null, which is no text; give a value, or write `(x or \"...\")` in the template"
                    .into(),
            )),
            Some(Value::Array(_) | Value::Object(_)) => Err(self.error(
                "is a list or an object, which is no text; use `| join(\", \")` or `| tojson`"
                    .into(),
            )),
        }
    }

    fn not_given(&self) -> RenderError {
        self.error(
            "uses a value that is not given; give the argument, or add `| default(...)` to the \
             template"
                .into(),
        )
    }

    fn error(&self, problem: String) -> RenderError {
        RenderError { expression: self.source.clone(), problem }
    }

    /// The names that it uses, members with a dot: `args.title`, `marker`.
    fn names(&self) -> impl Iterator<Item = String> {
        self.compiled.undeclared_variables(true).into_iter()
    }
}

/// A text with expressions in it.
#[derive(Debug)]
pub struct Text {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Literal(String),
    Expr(Expr),
}

impl Text {
    /// Reads a template.
    ///
    /// # Errors
    /// [`String`] with the rule and the remedy.
    pub fn parse(source: &str) -> Result<Self, String> {
        let parts = pieces(source)?.into_iter().map(|piece| match piece {
            Piece::Literal(text) => Ok(Part::Literal(text.to_owned())),
            Piece::Expr(source) => Expr::compile(source).map(Part::Expr),
        });
        Ok(Self { parts: parts.collect::<Result<_, String>>()? })
    }

    /// The text, each expression's part passed through `escape`, which literals are not.
    ///
    /// # Errors
    /// [`RenderError`] for the first expression that gives no text.
    pub fn render_with(
        &self,
        scope: &Scope<'_>,
        escape: impl Fn(&str) -> String,
    ) -> Result<String, RenderError> {
        let mut rendered = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => rendered.push_str(text),
                Part::Expr(expr) => {
                    rendered.push_str(&escape(&expr.text(scope)?));
                    if rendered.len() > MAX_RENDERED_BYTES {
                        return Err(expr.error(format!(
                            "makes a text of over {MAX_RENDERED_BYTES} bytes; shorten the argument"
                        )));
                    }
                }
            }
        }
        Ok(rendered)
    }

    /// The text as it is.
    ///
    /// # Errors
    /// As [`render_with`](Self::render_with).
    pub fn render(&self, scope: &Scope<'_>) -> Result<String, RenderError> {
        self.render_with(scope, str::to_owned)
    }

    /// The literal text if there is no expression in it.
    #[must_use]
    pub fn as_literal(&self) -> Option<String> {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Literal(text) => Some(text.as_str()),
                Part::Expr(_) => None,
            })
            .collect()
    }

    /// The expression if the template is exactly one.
    #[must_use]
    fn as_expr(&self) -> Option<&Expr> {
        match &self.parts[..] {
            [Part::Expr(expr)] => Some(expr),
            _ => None,
        }
    }

    /// The literal text before the first expression.
    #[must_use]
    pub fn literal_start(&self) -> &str {
        match self.parts.first() {
            Some(Part::Literal(text)) => text,
            _ => "",
        }
    }

    /// The text with `placeholder` for each expression.
    #[must_use]
    pub fn shape(&self, placeholder: &str) -> String {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Literal(text) => text.as_str(),
                Part::Expr(_) => placeholder,
            })
            .collect()
    }

    /// The names that it uses: `args.title`, `marker`.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        let exprs = self.parts.iter().filter_map(|part| match part {
            Part::Expr(expr) => Some(expr),
            Part::Literal(_) => None,
        });
        exprs.flat_map(Expr::names).collect()
    }
}

/// A JSON value whose texts are templates. A text that is exactly one expression keeps the JSON type
/// of its value, and is left out with its key where the value is not given.
#[derive(Debug)]
pub enum Json {
    /// Null, a switch or a number, as configured.
    Fixed(Value),
    /// A text.
    Text(Text),
    /// A list.
    Array(Vec<Json>),
    /// Members with fixed names.
    Object(Vec<(String, Json)>),
}

/// What becomes of a text that is one expression whose value is not given.
#[derive(Debug, Clone, Copy)]
enum NotGiven {
    IsLeftOut,
    IsAnError,
}

impl Json {
    /// The value.
    ///
    /// # Errors
    /// [`RenderError`] for the first expression that gives none.
    pub fn render(&self, scope: &Scope<'_>) -> Result<Value, RenderError> {
        Ok(self.render_or_omit(scope, NotGiven::IsLeftOut)?.unwrap_or(Value::Null))
    }

    /// The value, with nothing left out: for a question, which would be a wider one without.
    ///
    /// # Errors
    /// [`RenderError`] for the first expression that gives none, or whose value is not given.
    pub fn render_whole(&self, scope: &Scope<'_>) -> Result<Value, RenderError> {
        Ok(self.render_or_omit(scope, NotGiven::IsAnError)?.unwrap_or(Value::Null))
    }

    fn render_or_omit(
        &self,
        scope: &Scope<'_>,
        not_given: NotGiven,
    ) -> Result<Option<Value>, RenderError> {
        Ok(Some(match self {
            Self::Fixed(value) => value.clone(),
            Self::Text(text) => match text.as_expr() {
                Some(expr) => {
                    return match (expr.value(scope)?, not_given) {
                        (None, NotGiven::IsAnError) => Err(expr.not_given()),
                        (value, _) => Ok(value),
                    };
                }
                None => Value::String(text.render(scope)?),
            },
            Self::Array(elements) => {
                let mut rendered = Vec::with_capacity(elements.len());
                for element in elements {
                    rendered.extend(element.render_or_omit(scope, not_given)?);
                }
                Value::Array(rendered)
            }
            Self::Object(members) => {
                let mut rendered = Object::new();
                for (name, member) in members {
                    if let Some(value) = member.render_or_omit(scope, not_given)? {
                        rendered.insert(name.clone(), value);
                    }
                }
                Value::Object(rendered)
            }
        }))
    }

    /// The names that its templates use.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        match self {
            Self::Fixed(_) => BTreeSet::new(),
            Self::Text(text) => text.names(),
            Self::Array(elements) => elements.iter().flat_map(Self::names).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, it)| it.names()).collect(),
        }
    }
}

/// Filters and tests are known only when they run: an unknown one is found by running the
/// expression without any value, which fails otherwise at the first name at the earliest.
fn unknown_words(source: &str) -> Result<(), String> {
    const FILTERS: &str = "default, first, join, last, length, lower, map, replace, string, \
                           tojson, trim, truncate, upper";
    let mut rest = source;
    while let Some((word, after)) = super::scan::next_filter(rest) {
        if LANGUAGE
            .empty_state()
            .apply_filter(word, &[])
            .is_err_and(|error| error.kind() == minijinja::ErrorKind::UnknownFilter)
        {
            return Err(format!("there is no filter `{word}`; use one of {FILTERS}"));
        }
        rest = after;
    }
    const TESTS: &[&str] = &["defined", "undefined", "none", "string", "number"];
    match super::scan::tests_of(source).into_iter().find(|word| !TESTS.contains(word)) {
        Some(word) => Err(format!("there is no test `{word}`; use one of {}", TESTS.join(", "))),
        None => Ok(()),
    }
}

/// The steps of `name.member.member`.
fn plain_path(source: &str) -> Option<Vec<String>> {
    let name = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !part.as_bytes()[0].is_ascii_digit()
    };
    const WORDS: &[&str] = &["none", "None", "true", "True", "false", "False"];
    let parts: Vec<String> = source.split('.').map(str::to_owned).collect();
    let plain = parts.iter().all(|part| name(part)) && !WORDS.contains(&parts[0].as_str());
    plain.then_some(parts)
}

/// Integers stay exact as far as 128 bits reach; other numbers become doubles, as their fingerprint
/// takes them.
fn to_template(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => minijinja::Value::from(()),
        Value::Bool(is) => minijinja::Value::from(*is),
        Value::Number(number) => number
            .as_i64()
            .map(minijinja::Value::from)
            .or_else(|| number.as_u64().map(minijinja::Value::from))
            .or_else(|| number.literal().parse::<i128>().ok().map(minijinja::Value::from))
            .or_else(|| number.literal().parse::<f64>().ok().map(minijinja::Value::from))
            .unwrap_or_else(|| minijinja::Value::from(number.literal())),
        Value::String(text) => minijinja::Value::from(text.as_str()),
        Value::Array(elements) => elements.iter().map(to_template).collect(),
        Value::Object(object) => {
            map(object.iter().map(|(name, member)| (name.to_owned(), to_template(member))))
        }
    }
}

fn map(members: impl Iterator<Item = (String, minijinja::Value)>) -> minijinja::Value {
    minijinja::Value::from(members.collect::<BTreeMap<String, minijinja::Value>>())
}

/// `None` for a value that is not there.
fn from_template(value: &minijinja::Value) -> Result<Option<Value>, String> {
    let number = |literal: String| {
        let number = Number::from_literal(&literal);
        number.map(Value::Number).ok_or_else(|| "gives a number that JSON does not have".to_owned())
    };
    Ok(Some(match value.kind() {
        ValueKind::Undefined => return Ok(None),
        ValueKind::None => Value::Null,
        ValueKind::Bool => Value::Bool(value.is_true()),
        ValueKind::Number => number(value.to_string())?,
        ValueKind::String => {
            let text = value.as_str().ok_or("gives text that is not UTF-8")?;
            if text.len() > MAX_RENDERED_BYTES {
                return Err(format!("makes a text of over {MAX_RENDERED_BYTES} bytes"));
            }
            Value::String(text.to_owned())
        }
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            let text = serde_json::to_string(value).map_err(|_| "gives what is no JSON value")?;
            let limits = counterfoil_core::json::JsonLimits::default();
            counterfoil_core::json::parse(text.as_bytes(), &limits)
                .map_err(|_| "gives what is no JSON value within the limits")?
        }
        _ => return Err("gives what is no JSON value".into()),
    }))
}
