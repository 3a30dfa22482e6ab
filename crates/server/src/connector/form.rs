//! Reads tables of TOML whose values keep their places, so that every mistake is told at once with
//! file, line and column. A table is the unvalidated twin of what is read from it.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::{Place, Problem, from_seconds, hide_secrets, nearest, parse_span, place};

/// One file's text.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// A table that is being read. What was not asked for when it is finished is a mistake.
pub(crate) struct Form<'a> {
    file: &'a SourceFile,
    /// Its name with those of the tables around it.
    pub(crate) name: String,
    table: &'a DeTable<'a>,
    at: usize,
    asked: RefCell<Vec<&'static str>>,
    problems: &'a RefCell<Vec<Problem>>,
}

/// One value in a table.
pub(crate) struct Field<'a> {
    file: &'a SourceFile,
    pub(crate) name: String,
    pub(crate) value: &'a Spanned<DeValue<'a>>,
    problems: &'a RefCell<Vec<Problem>>,
}

impl<'a> Form<'a> {
    pub(crate) fn new(
        file: &'a SourceFile,
        name: String,
        table: &'a DeTable<'a>,
        at: usize,
        problems: &'a RefCell<Vec<Problem>>,
    ) -> Self {
        Self { file, name, table, at, asked: RefCell::default(), problems }
    }

    /// How many mistakes there are so far, in every table.
    pub(crate) fn problems_count(&self) -> usize {
        self.problems.borrow().len()
    }

    /// Where the table begins.
    pub(crate) fn place(&self) -> Place {
        place(&self.file.path, &self.file.text, self.at)
    }

    pub(crate) fn file(&self) -> &'a SourceFile {
        self.file
    }

    /// A mistake of the table as a whole.
    pub(crate) fn problem(&self, words: impl Into<String>) {
        let subject = format!("[{}]", self.name);
        self.problems.borrow_mut().push(Problem::new(self.place(), subject, words.into()));
    }

    /// A mistake about a key that is not there.
    pub(crate) fn missing(&self, key: &str, words: &str) {
        let subject = format!("{}.{key}", self.name);
        let words = format!("this is missing; {words}");
        self.problems.borrow_mut().push(Problem::new(self.place(), subject, words));
    }

    pub(crate) fn field(&self, key: &'static str) -> Option<Field<'a>> {
        self.asked.borrow_mut().push(key);
        let value = self.table.get(key)?;
        Some(self.field_of(key, value))
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn field_of(&self, key: &str, value: &'a Spanned<DeValue<'a>>) -> Field<'a> {
        let name = format!("{}.{key}", self.name);
        Field { file: self.file, name, value, problems: self.problems }
    }

    /// A table that stands inside this one, under a name of the writer's own.
    pub(crate) fn inside(&self, name: String, table: &'a DeTable<'a>, at: usize) -> Form<'a> {
        Form::new(self.file, name, table, at, self.problems)
    }

    /// A table inside.
    pub(crate) fn table(&self, key: &'static str) -> Option<Form<'a>> {
        let field = self.field(key)?;
        match field.value.get_ref() {
            DeValue::Table(table) => Some(Form::new(
                self.file,
                field.name,
                table,
                field.value.span().start,
                self.problems,
            )),
            _ => {
                field.problem(format!(
                    "this is a table; write [{}] on a line of its own",
                    field.name
                ));
                None
            }
        }
    }

    /// Tables inside, in order.
    pub(crate) fn tables(&self, key: &'static str) -> Vec<Form<'a>> {
        let Some(field) = self.field(key) else { return Vec::new() };
        let wrong = || {
            field.problem(format!("these are tables; begin each with [[{}]]", field.name));
            Vec::new()
        };
        let DeValue::Array(elements) = field.value.get_ref() else { return wrong() };
        let mut found = Vec::new();
        for element in elements {
            let DeValue::Table(table) = element.get_ref() else { return wrong() };
            let name = field.name.clone();
            found.push(Form::new(self.file, name, table, element.span().start, self.problems));
        }
        found
    }

    /// Every member, of a table whose names are the writer's own.
    pub(crate) fn members(&self) -> Vec<(String, usize, Field<'a>)> {
        let member = |(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let name: &std::borrow::Cow<'a, str> = key.get_ref();
            (name.to_string(), key.span().start, self.field_of(name, value))
        };
        self.table.iter().map(member).collect()
    }

    /// Tells of every key that nobody asked for, and how many mistakes there are now.
    pub(crate) fn finish(self) -> usize {
        let asked = self.asked.borrow();
        for (key, value) in self.table {
            let key_name: &str = key.get_ref();
            if asked.contains(&key_name) {
                continue;
            }
            let known = asked.iter().map(|it| (*it).to_owned());
            let words = match nearest(key_name, known, 2.max(key_name.len() / 4)) {
                Some(near) => format!("there is no such key; use {near}"),
                None => format!("there is no such key; use one of: {}", asked.join(", ")),
            };
            let field = self.field_of(key_name, value);
            let place = place(&self.file.path, &self.file.text, key.span().start);
            self.problems.borrow_mut().push(Problem::new(place, field.subject(), words));
        }
        self.problems_count()
    }

    /// A value by a rule on texts.
    pub(crate) fn parsed<T>(
        &self,
        key: &'static str,
        rule: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.field(key)?.parsed(rule)
    }

    /// As [`parsed`](Self::parsed), and it must be there.
    pub(crate) fn needed<T>(
        &self,
        key: &'static str,
        what: &str,
        rule: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        match self.field(key) {
            Some(field) => field.parsed(rule),
            None => {
                self.missing(key, what);
                None
            }
        }
    }

    /// A span of time, or the default.
    pub(crate) fn span(&self, key: &'static str, standard: Duration) -> Option<Duration> {
        match self.field(key) {
            Some(field) => field.span(),
            None => Some(standard),
        }
    }

    /// A whole number within bounds, or the default.
    pub(crate) fn count(
        &self,
        key: &'static str,
        bounds: (i64, i64),
        standard: i64,
    ) -> Option<i64> {
        let Some(field) = self.field(key) else { return Some(standard) };
        let number = match field.value.get_ref() {
            DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix()).ok(),
            _ => None,
        };
        let number = number.filter(|number| (bounds.0..=bounds.1).contains(number));
        if number.is_none() {
            field.problem(format!("this is a whole number from {} to {}", bounds.0, bounds.1));
        }
        number
    }

    /// `true` or `false`; absent is `false`.
    pub(crate) fn flag(&self, key: &'static str) -> bool {
        let Some(field) = self.field(key) else { return false };
        if let DeValue::Boolean(is) = field.value.get_ref() {
            return *is;
        }
        field.problem("this is a switch; use true or false");
        false
    }
}

impl<'a> Field<'a> {
    fn subject(&self) -> String {
        match self.value.get_ref() {
            DeValue::Table(_) => format!("[{}]", self.name),
            DeValue::Array(_) => self.name.clone(),
            _ => {
                let written = self.file.text.get(self.value.span()).unwrap_or_default();
                // Its own name says whether it may be secret, not those of the tables around it.
                let own = self.name.rsplit('.').next().unwrap_or_default();
                let own = if own == "key_lifetime" { "lifetime" } else { own };
                format!("{} = {}", self.name, hide_secrets(own, written))
            }
        }
    }

    /// A mistake in this value.
    pub(crate) fn problem(&self, words: impl Into<String>) {
        let place = place(&self.file.path, &self.file.text, self.value.span().start);
        self.problems.borrow_mut().push(Problem::new(place, self.subject(), words.into()));
    }

    /// A mistake inside this value, at a byte offset of the file.
    pub(crate) fn problem_at(&self, offset: usize, words: String) {
        let place = place(&self.file.path, &self.file.text, offset);
        let subject = format!("[{}]", self.name);
        self.problems.borrow_mut().push(Problem::new(place, subject, words));
    }

    /// A mistake in this value, which may be secret.
    pub(crate) fn secret_problem(&self, words: impl Into<String>) {
        let place = place(&self.file.path, &self.file.text, self.value.span().start);
        let subject = format!("{} = (hidden)", self.name);
        self.problems.borrow_mut().push(Problem::new(place, subject, words.into()));
    }

    pub(crate) fn text(&self) -> Option<String> {
        match self.value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => {
                self.problem("this is text; put it in quotes");
                None
            }
        }
    }

    pub(crate) fn parsed<T>(&self, rule: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        match rule(&self.text()?) {
            Ok(value) => Some(value),
            Err(words) => {
                self.problem(words);
                None
            }
        }
    }

    /// A span of time: seconds, or text such as `10m`.
    pub(crate) fn span(&self) -> Option<Duration> {
        let span = match self.value.get_ref() {
            DeValue::String(text) => parse_span(text),
            DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
                .map_or_else(|_| parse_span("?"), |number| from_seconds(number as f64)),
            DeValue::Float(digits) => {
                digits.as_str().parse().map_or_else(|_| parse_span("?"), from_seconds)
            }
            _ => parse_span("?"),
        };
        span.map_err(|words| self.problem(words)).ok()
    }

    /// A number above zero.
    pub(crate) fn positive(&self) -> Option<f64> {
        let number = match self.value.get_ref() {
            DeValue::Integer(digits) => {
                i64::from_str_radix(digits.as_str(), digits.radix()).ok().map(|it| it as f64)
            }
            DeValue::Float(digits) => digits.as_str().parse().ok(),
            _ => None,
        };
        let number = number.filter(|number: &f64| number.is_finite() && *number > 0.0);
        if number.is_none() {
            self.problem("this is a finite number above 0; leave it out for no limit");
        }
        number
    }

    /// A list of texts.
    pub(crate) fn texts(&self) -> Option<Vec<String>> {
        let texts = self.value.get_ref().as_array().and_then(|elements| {
            let texts = elements.iter().map(|element| element.get_ref().as_str());
            texts.map(|text| text.map(str::to_owned)).collect()
        });
        if texts.is_none() {
            self.problem("this is a list of texts; write [\"a\", \"b\"]");
        }
        texts
    }

    /// A list of HTTP statuses, each within `allowed`.
    pub(crate) fn statuses(&self, allowed: &[u16], words: &str) -> Option<Vec<u16>> {
        let numbers = self.value.get_ref().as_array().and_then(|elements| {
            let number = |element: &Spanned<DeValue<'_>>| match element.get_ref() {
                DeValue::Integer(digits) => {
                    u16::from_str_radix(digits.as_str(), digits.radix()).ok()
                }
                _ => None,
            };
            elements.iter().map(number).collect::<Option<Vec<u16>>>()
        });
        let good = numbers
            .filter(|numbers| !numbers.is_empty() && numbers.iter().all(|it| allowed.contains(it)));
        if good.is_none() {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            self.problem(format!("these are statuses among {}{words}", allowed.join(", ")));
        }
        good
    }
}
