//! Finds the settings of a wrapped server: presets first, then the configuration, the later the
//! stronger.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::presets::{PRESETS, by_name};
use super::read::{Draft, draft, preset_about};
use super::{ToolEffect, WrapSettings};
use crate::config::{
    CONNECTOR_TABLE, ConfigError, Place, Problem, WRAP_TABLE, nearest, place, text_given_by,
    text_of,
};
use crate::connector::form::{Form, SourceFile};

/// The table in which a preset says what it is about.
pub(super) const PRESET_TABLE: &str = "preset";

/// What kind of file is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Has other tables too, which others read.
    Configuration,
    /// Has `[wrap]` and `[preset]` alone.
    Preset(Option<&'static str>),
}

impl WrapSettings {
    /// Reads the presets that `presets` name (a name that is built in, or a file), then the `[wrap]`
    /// table of `config_file`. A later file overrides an earlier one key by key; a tool's own table
    /// replaces the earlier one whole. What is wrong with the configuration besides `[wrap]` is told
    /// by the settings' own reader.
    ///
    /// # Errors
    /// [`ConfigError`] with every mistake in every file.
    pub fn load(presets: &[String], config_file: Option<&Path>) -> Result<Self, ConfigError> {
        let mut loading = Loading::default();
        presets.iter().for_each(|preset| loading.preset(preset));
        if let Some(path) = config_file
            && let Ok(text) = text_of(path)
        {
            loading.file(path, text, Kind::Configuration);
        }
        loading.end()
    }

    /// The mistakes in the `[wrap]` table of `config_file`, what depends on presets aside.
    pub(crate) fn problems(config_file: &Path) -> Vec<Problem> {
        let mut loading = Loading::default();
        if let Ok(text) = text_of(config_file) {
            loading.file(config_file, text, Kind::Configuration);
        }
        loading.problems
    }

    /// As [`load`](Self::load), from the text of a preset that stands at `path`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn of_text(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut loading = Loading::default();
        loading.file(path, text.to_owned(), Kind::Preset(None));
        loading.end()
    }
}

#[derive(Default)]
struct Loading {
    settings: WrapSettings,
    /// Where the tools that are looked with are named: tool, the lookup's tool, place.
    looks: Vec<(String, String, Place)>,
    problems: Vec<Problem>,
}

impl Loading {
    fn end(mut self) -> Result<WrapSettings, ConfigError> {
        self.check_lookup_tools();
        self.problems.sort_by(|a, b| a.place.cmp(&b.place));
        if self.problems.is_empty() {
            Ok(self.settings)
        } else {
            Err(ConfigError::new(self.problems))
        }
    }

    /// One that is built in, or a file.
    fn preset(&mut self, name: &str) {
        if let Some(preset) = by_name(name) {
            let path = PathBuf::from(format!("presets/{}.toml", preset.name));
            self.file(&path, preset.text.to_owned(), Kind::Preset(Some(preset.name)));
            return;
        }
        let is_path = name.contains(['/', '\\']) || name.ends_with(".toml");
        let path = Path::new(name);
        let read = if is_path || path.exists() {
            text_given_by("--preset", path)
        } else {
            Err(unknown_preset(name))
        };
        match read {
            Ok(text) => self.file(path, text, Kind::Preset(None)),
            Err(words) => {
                let place = Place::CommandLine("--preset".into());
                self.problems.push(Problem::new(place, format!("--preset {name}"), words));
            }
        }
    }

    fn file(&mut self, path: &Path, text: String, kind: Kind) {
        let file = SourceFile { path: path.to_owned(), text };
        let (table, faults) = DeTable::parse_recoverable(&file.text);
        // After a fault the parser guesses at the rest: what it then finds, a person did not write.
        if let Some(fault) = faults.iter().min_by_key(|it| it.span().map_or(0, |at| at.start)) {
            if kind != Kind::Configuration {
                let place = place(path, &file.text, fault.span().map_or(0, |span| span.start));
                let words =
                    format!("{}; correct the TOML here", fault.message().replace('\n', ", "));
                self.problems.push(Problem::new(place, String::new(), words));
            }
            return;
        }
        let problems = RefCell::new(Vec::new());
        let mut found = None;
        for (key, value) in table.get_ref() {
            let name: &str = key.get_ref();
            let at = key.span().start;
            match (name, value.get_ref()) {
                (WRAP_TABLE, DeValue::Table(inner)) => {
                    let form = Form::new(&file, WRAP_TABLE.into(), inner, at, &problems);
                    found = draft(form, if let Kind::Preset(name) = kind { name } else { None });
                }
                (PRESET_TABLE, DeValue::Table(inner)) if kind != Kind::Configuration => {
                    preset_about(Form::new(&file, PRESET_TABLE.into(), inner, at, &problems));
                }
                _ if kind == Kind::Configuration && name != WRAP_TABLE => {}
                _ => {
                    let words = match name {
                        WRAP_TABLE | PRESET_TABLE => "this is a table; write it in brackets",
                        CONNECTOR_TABLE => "connectors stand in the configuration, not in a preset",
                        _ => {
                            "a preset holds [wrap] and [preset] alone; move it to counterfoil.toml"
                        }
                    };
                    let place = place(path, &file.text, at);
                    problems.borrow_mut().push(Problem::new(place, name.into(), words.into()));
                }
            }
        }
        if kind != Kind::Configuration && !table.get_ref().contains_key(WRAP_TABLE) {
            let place = Place::File { path: path.to_owned(), line: 0, column: 0 };
            let words = "there is no [wrap] table in this preset; add one".to_owned();
            problems.borrow_mut().push(Problem::new(place, String::new(), words));
        }
        self.problems.extend(problems.into_inner());
        self.over(found.unwrap_or_default());
    }

    /// Puts what a file says over what was said before.
    fn over(&mut self, draft: Draft) {
        let settings = &mut self.settings;
        settings.name = draft.name.or_else(|| settings.name.take());
        if let Some(environment) = draft.environment {
            settings.environment = environment;
        }
        settings.trust_annotations = draft.trust_annotations.unwrap_or(settings.trust_annotations);
        settings.missing_id = draft.missing_id.unwrap_or(settings.missing_id);
        settings.join_age = draft.join_age.unwrap_or(settings.join_age);
        settings.max_result_bytes = draft.max_result_bytes.unwrap_or(settings.max_result_bytes);
        for tool in draft.tools {
            self.looks.retain(|(name, ..)| *name != tool.name);
            if let Some(lookup) = &tool.settings.lookup {
                self.looks.push((tool.name.clone(), lookup.tool().to_owned(), tool.place));
            }
            settings.tools.insert(tool.name, tool.settings.into());
        }
    }

    /// What is looked with must be declared to change nothing: it is called without being asked for.
    fn check_lookup_tools(&mut self) {
        for (name, with, place) in &self.looks {
            let effect = self.settings.tool(with).and_then(|it| it.effect);
            if effect == Some(ToolEffect::Read) {
                continue;
            }
            let key = toml_key(with);
            let words = format!(
                "looks with `{with}`, which is not declared to change nothing; add \
                 [{WRAP_TABLE}.tools.{key}] with effect = \"read\" if that is so"
            );
            let subject = format!("[{WRAP_TABLE}.tools.{}.lookup]", toml_key(name));
            self.problems.push(Problem::new(place.clone(), subject, words));
        }
    }
}

fn unknown_preset(name: &str) -> String {
    let known: Vec<&str> = PRESETS.iter().map(|it| it.name).collect();
    match nearest(name, known.iter().map(|it| (*it).to_owned()), 2) {
        Some(near) => format!("there is no such preset and no such file; use {near}"),
        None => format!(
            "there is no such preset and no such file; use one of {}, or the path of a file",
            known.join(", ")
        ),
    }
}

/// A tool's name as a key of TOML.
fn toml_key(name: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if !name.is_empty() && name.bytes().all(bare) { name.to_owned() } else { format!("{name:?}") }
}
