//! Reads `counterfoil.toml` into values with their places, with every mistake of form at once.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::LOG_VARIABLE;
use super::given::{Given, Key, Place, Value};
use super::problem::{Problem, hide_secrets, probably_meant};

/// The table of the connectors.
pub(crate) const CONNECTOR_TABLE: &str = "connector";
/// The table of wrapped servers.
pub(crate) const WRAP_TABLE: &str = "wrap";
/// A longer file is not a configuration.
const LONGEST_BYTES: u64 = 1024 * 1024;

/// What a file says.
#[derive(Default)]
pub(super) struct FileContent {
    pub(super) given: Vec<Given>,
    pub(super) problems: Vec<Problem>,
}

impl FileContent {
    /// A data directory's own file cannot say where the directory is.
    pub(super) fn inside_data_dir(mut self) -> Self {
        let (located, given) = self.given.into_iter().partition(|given| given.key == Key::DataDir);
        self.given = given;
        let located: Vec<Given> = located;
        self.problems.extend(located.iter().map(|given| {
            given.problem(
                "a data directory's own file cannot say where the directory is; remove the line, \
                 or name this file with --config"
                    .into(),
            )
        }));
        self
    }
}

/// Reads the file at `path`. What cannot be read is a problem among the others.
pub(super) fn read(path: &Path) -> FileContent {
    match text_of(path) {
        Ok(text) => parse(path, &text),
        Err(words) => {
            let place = Place::File { path: path.to_owned(), line: 0, column: 0 };
            FileContent {
                given: Vec::new(),
                problems: vec![Problem::new(place, String::new(), words)],
            }
        }
    }
}

/// Parses `text`, which stands at `path`.
pub(super) fn parse(path: &Path, text: &str) -> FileContent {
    let (table, faults) = DeTable::parse_recoverable(text);
    // After a fault the parser guesses at the rest: what it then finds, a person did not write.
    if let Some(fault) = faults.iter().min_by_key(|fault| fault.span().map_or(0, |at| at.start)) {
        let place = place(path, text, fault.span().map_or(0, |span| span.start));
        // The parser's words alone: its own display would show the line with its value.
        let words = format!("{}; correct the TOML here", fault.message().replace('\n', ", "));
        let problems = vec![Problem::new(place, String::new(), words)];
        return FileContent { given: Vec::new(), problems };
    }
    let mut reader = Reader { path, text, found: FileContent::default() };
    reader.table("", table.get_ref());
    reader.found
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    found: FileContent,
}

impl Reader<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name = match prefix {
                "" => key.get_ref().to_string(),
                prefix => format!("{prefix}.{}", key.get_ref()),
            };
            self.entry(&name, key.span().start, value);
        }
    }

    fn entry(&mut self, name: &str, key_at: usize, value: &Spanned<DeValue<'_>>) {
        // Connectors and wrapped servers have readers of their own: `crate::connector`,
        // `crate::wrap::settings`.
        if [CONNECTOR_TABLE, WRAP_TABLE].contains(&name)
            && matches!(value.get_ref(), DeValue::Table(_))
        {
            return;
        }
        let known = Key::ALL.into_iter().find(|key| key.name() == name);
        let is_table = Key::ALL.iter().any(|key| key.name().starts_with(&format!("{name}.")));
        match (known, value.get_ref()) {
            (None, DeValue::Table(inner)) if is_table || !inner.is_empty() => {
                self.table(name, inner);
            }
            (Some(key), inner) => {
                let place = place(self.path, self.text, value.span().start);
                let shown = match inner {
                    // Its span is that of its name.
                    DeValue::Table(_) => "(a table)".to_owned(),
                    _ => hide_secrets(name, &self.text[value.span()]),
                };
                self.found.given.push(Given { key, value: plain(inner), place, shown });
            }
            (None, _) => {
                let words = if is_table {
                    let table = format!("this is a table; write [{name}] on a line of its own");
                    match probably_meant(name).map(Key::name) {
                        Some(other) if !other.starts_with(name) => format!("{table}, or {other}"),
                        _ => table,
                    }
                } else {
                    unknown_words(name)
                };
                let shown = hide_secrets(name, &self.text[value.span()]);
                let subject = match value.get_ref() {
                    DeValue::Table(_) => format!("[{name}]"),
                    _ => format!("{name} = {shown}"),
                };
                self.found.problems.push(Problem::new(
                    place(self.path, self.text, key_at),
                    subject,
                    words,
                ));
            }
        }
    }
}

/// The rule and the remedy for a name that is no setting's.
fn unknown_words(name: &str) -> String {
    let first = name.split('.').next().unwrap_or_default();
    if ["log", "logs", "logging", "loglevel", "log_level", "log_filter"].contains(&first) {
        return format!(
            "what is logged is no setting of this file; use --log or {LOG_VARIABLE}, and remove \
             the line"
        );
    }
    match probably_meant(name) {
        Some(near) => format!("there is no such setting; use {}", near.name()),
        None => "there is no such setting; remove it".to_owned(),
    }
}

/// The place of a byte offset.
pub(crate) fn place(path: &Path, text: &str, offset: usize) -> Place {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Place::File {
        path: path.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
            .map_or(Value::Other("an integer beyond 64 bits"), Value::Integer),
        DeValue::Float(digits) => {
            digits.as_str().parse().map_or(Value::Other("a number out of range"), Value::Float)
        }
        DeValue::Boolean(is) => Value::Boolean(*is),
        DeValue::Datetime(_) => Value::Other("a date or time"),
        DeValue::Array(elements) => {
            let texts = elements.iter().map(|element| element.get_ref().as_str());
            let texts: Option<Vec<String>> = texts.map(|text| text.map(str::to_owned)).collect();
            texts.map_or(Value::Other("a list"), Value::Texts)
        }
        DeValue::Table(_) => Value::Other("a table"),
    }
}

pub(crate) fn text_of(path: &Path) -> Result<String, String> {
    text_given_by("--config", path)
}

/// As [`text_of`], of a file that another option names.
pub(crate) fn text_given_by(option: &str, path: &Path) -> Result<String, String> {
    let cannot = |cause: io::Error| {
        format!("the file cannot be read: {cause}; correct it, or give {option} another path")
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(LONGEST_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > LONGEST_BYTES {
        return Err(format!(
            "the file has over {LONGEST_BYTES} bytes and cannot be a configuration; give {option} \
             another path"
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("byte {} of the file is not UTF-8, as TOML must be; save it as UTF-8", at + 1)
    })
}
