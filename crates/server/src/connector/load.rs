//! Finds every connector: in the configuration's own file, and in the files and directories that it
//! names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil_core::delivery::TargetName;
use toml::de::{DeTable, DeValue};

use super::form::{Form, SourceFile};
use super::{Connector, read};
use crate::config::{CONNECTOR_TABLE, ConfigError, Place, Problem, Settings, place, text_of};

/// So many connectors at most.
const MOST_CONNECTORS: usize = 256;

/// Every connector of a configuration.
#[derive(Debug, Clone, Default)]
pub struct Connectors {
    by_name: BTreeMap<TargetName, Arc<Connector>>,
}

impl Connectors {
    /// Reads those of the configuration's file and of the files and directories that it names.
    ///
    /// # Errors
    /// [`ConfigError`] with every mistake of every connector.
    pub fn load(settings: &Settings) -> Result<Self, ConfigError> {
        let (connectors, mut problems) = Self::read(settings);
        problems.sort_by(|a, b| a.place.cmp(&b.place));
        if problems.is_empty() { Ok(connectors) } else { Err(ConfigError::new(problems)) }
    }

    /// As [`load`](Self::load), with the mistakes beside the connectors that have none.
    pub(crate) fn read(settings: &Settings) -> (Self, Vec<Problem>) {
        let mut found = Found::default();
        if let Some(path) = &settings.config_file
            && let Ok(text) = text_of(path)
        {
            // What is wrong with the file as a whole has been told by the settings' own reader.
            found.file(path, text, Kind::Configuration);
        }
        for path in &settings.connectors {
            found.path(path);
        }
        found.end()
    }

    /// The connector of that name.
    #[must_use]
    pub fn get(&self, name: &TargetName) -> Option<&Arc<Connector>> {
        self.by_name.get(name)
    }

    /// The connector of that tool.
    #[must_use]
    pub fn by_tool(&self, tool: &str) -> Option<&Arc<Connector>> {
        self.by_name.values().find(|connector| connector.tool.as_str() == tool)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Connector>> {
        self.by_name.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

/// Reads one file, or directory, of connectors alone.
///
/// # Errors
/// [`ConfigError`] with every mistake in it.
pub fn read_file(path: &Path) -> Result<Connectors, ConfigError> {
    read_files(&[path])
}

/// The same for several, as one configuration: names and tools are unique over all of them.
///
/// # Errors
/// [`ConfigError`] with every mistake in them.
pub fn read_files<P: AsRef<Path>>(paths: &[P]) -> Result<Connectors, ConfigError> {
    let mut found = Found::default();
    paths.iter().for_each(|path| found.path(path.as_ref()));
    let (connectors, mut problems) = found.end();
    problems.sort_by(|a, b| a.place.cmp(&b.place));
    if problems.is_empty() { Ok(connectors) } else { Err(ConfigError::new(problems)) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Has other tables too.
    Configuration,
    /// Has connectors alone.
    Connectors,
}

#[derive(Default)]
struct Found {
    connectors: Connectors,
    /// Where each name was declared, those too whose tables have mistakes.
    names: BTreeMap<TargetName, String>,
    problems: Vec<Problem>,
}

impl Found {
    fn end(self) -> (Connectors, Vec<Problem>) {
        (self.connectors, self.problems)
    }

    /// A file, or a directory's `*.toml` files in the order of their names.
    fn path(&mut self, path: &Path) {
        if !path.is_dir() {
            match text_of(path) {
                Ok(text) => self.file(path, text, Kind::Connectors),
                Err(words) => self.of_file(path, words),
            }
            return;
        }
        let entries = fs::read_dir(path).and_then(|entries| {
            entries.map(|entry| entry.map(|it| it.path())).collect::<Result<Vec<PathBuf>, _>>()
        });
        match entries {
            Err(cause) => self.of_file(path, format!("the directory cannot be read: {cause}")),
            Ok(mut files) => {
                files.retain(|file| {
                    file.extension().is_some_and(|it| it == "toml") && file.is_file()
                });
                files.sort();
                files.iter().for_each(|file| self.path(file));
            }
        }
    }

    fn of_file(&mut self, path: &Path, words: String) {
        let place = Place::File { path: path.to_owned(), line: 0, column: 0 };
        self.problems.push(Problem::new(place, String::new(), words));
    }

    fn file(&mut self, path: &Path, text: String, kind: Kind) {
        let file = SourceFile { path: path.to_owned(), text };
        let (table, faults) = DeTable::parse_recoverable(&file.text);
        // After a fault the parser guesses at the rest: what it then finds, a person did not write.
        if let Some(fault) = faults.iter().min_by_key(|it| it.span().map_or(0, |at| at.start)) {
            if kind == Kind::Connectors {
                let place = place(path, &file.text, fault.span().map_or(0, |span| span.start));
                let words =
                    format!("{}; correct the TOML here", fault.message().replace('\n', ", "));
                self.problems.push(Problem::new(place, String::new(), words));
            }
            return;
        }
        let mut tables = None;
        for (key, value) in table.get_ref() {
            let name: &str = key.get_ref();
            if name == CONNECTOR_TABLE {
                tables = Some(value);
            } else if kind == Kind::Connectors {
                let place = place(path, &file.text, key.span().start);
                let words = "a file of connectors holds [connector.NAME] tables alone; move other \
                             settings to counterfoil.toml, which --config names";
                self.problems.push(Problem::new(place, name.to_owned(), words.into()));
            }
        }
        let Some(tables) = tables else {
            if kind == Kind::Connectors {
                let words = "there is no connector in this file; begin one with [connector.NAME]";
                self.of_file(path, words.into());
            }
            return;
        };
        let problems = RefCell::new(Vec::new());
        let DeValue::Table(members) = tables.get_ref() else { return };
        for (key, value) in members {
            let key_name: &str = key.get_ref();
            let at = place(path, &file.text, key.span().start);
            let subject = format!("[{CONNECTOR_TABLE}.{key_name}]");
            let note = |words: String| {
                problems.borrow_mut().push(Problem::new(at.clone(), subject.clone(), words));
            };
            let DeValue::Table(inner) = value.get_ref() else {
                note(format!("a connector is a table; write [{CONNECTOR_TABLE}.NAME]"));
                continue;
            };
            let name = match TargetName::parse(key_name) {
                Ok(name) => name,
                Err(words) => {
                    note(words);
                    continue;
                }
            };
            let form = Form::new(
                &file,
                format!("{CONNECTOR_TABLE}.{name}"),
                inner,
                key.span().start,
                &problems,
            );
            let connector = read::connector(&name, form);
            if let Err(words) = self.add(name, connector, &at) {
                note(words);
            }
        }
        self.problems.extend(problems.into_inner());
    }

    /// Names and tools are unique over all files.
    fn add(
        &mut self,
        name: TargetName,
        connector: Option<Connector>,
        at: &Place,
    ) -> Result<(), String> {
        let here = match at {
            Place::File { path, line, .. } => format!("{}:{line}", path.display()),
            _ => String::new(),
        };
        if let Some(first) = self.names.get(&name) {
            return Err(format!("{first} declares a connector of this name; give it another"));
        }
        if self.names.len() >= MOST_CONNECTORS {
            return Err(format!("these are over {MOST_CONNECTORS} connectors; remove some"));
        }
        self.names.insert(name.clone(), here);
        let Some(connector) = connector else { return Ok(()) };
        if let Some(other) = self.connectors.by_tool(connector.tool.as_str()) {
            return Err(format!(
                "the tool {} is that of the connector {} ({}); give it another name with tool",
                connector.tool,
                other.name,
                other.declared_at()
            ));
        }
        self.connectors.by_name.insert(name, Arc::new(connector));
        Ok(())
    }
}
