//! What the command line asks for, checked before anything is written or started.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use counterfoil_client::{AnswerError, Answers, LIST_TOOL, Limits, STATUS_TOOL, id_in};
use counterfoil_core::canonical::{CanonicalError, jcs_v1};
use counterfoil_core::identity::{InvalidName, OperationId, Principal};
use counterfoil_core::json::{self, JsonError, JsonLimits};
use serde_json::{Map, Value};

use super::CallArgs;
use super::server::{BadServer, GivenServer};

/// A checked command line.
pub(super) struct Plan {
    pub(super) tool: String,
    pub(super) target: Target,
    /// Whether the ID was made here.
    pub(super) is_new: bool,
    pub(super) answers: Answers,
    /// `None` for a question alone, where there is no place for one.
    pub(super) journal: Option<PathBuf>,
    /// The journal as it was typed, for the commands that are printed.
    given_journal: Option<PathBuf>,
    pub(super) principal: Option<Principal>,
    pub(super) limits: Limits,
    pub(super) json: bool,
    pub(super) server: GivenServer,
}

/// What is called.
pub(super) enum Target {
    /// The status of an operation: a read.
    Status(OperationId),
    /// A tool that only reads; because the user said so, or, if the server agrees, by its name.
    Read { arguments: Map<String, Value>, is_told: bool },
    /// A tool that may write.
    Write { operation_id: OperationId, arguments: Map<String, Value> },
}

/// What is wrong with the command line. Values of arguments and answers are not shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("--args cannot be read from {from}: {source}")]
    Unreadable { from: String, source: std::io::Error },
    #[error("--args: {0}")]
    Json(#[from] JsonError),
    #[error("--args: {0}")]
    Number(#[from] CanonicalError),
    #[error("--args must be a JSON object, for example '{{\"title\":\"Broken link\"}}'")]
    NotAnObject,
    #[error("--answer: {0}")]
    Answer(#[from] AnswerError),
    #[error("{0}")]
    Name(#[from] InvalidName),
    #[error("the argument `{0}` must be text, as it is the operation's ID")]
    IdNotText(&'static str),
    #[error("--operation-id differs from the argument `{0}`; give the ID once")]
    TwoIds(&'static str),
    #[error("{STATUS_TOOL} takes `operation_id` and nothing else")]
    NotAQuestion,
    #[error("--read is for a tool that has no operation: leave the argument `{0}` or --read out")]
    ReadWithId(&'static str),
    #[error(transparent)]
    Server(#[from] BadServer),
    #[error(
        "there is no place for the journal: neither XDG_STATE_HOME nor HOME is an absolute \
             path; set one of them, or give --journal FILE"
    )]
    NoJournal,
}

impl Plan {
    pub(super) fn new(args: CallArgs) -> Result<Self, Problem> {
        let server = GivenServer::new(args.http, args.server)?;
        let arguments = read_arguments(&args.arguments)?;
        let answers = Answers::from_items(args.answers.iter().map(String::as_str))?;
        let principal = args.principal.as_deref().map(Principal::parse).transpose()?;
        let given = given_id(args.operation_id.as_deref(), &arguments)?;
        let is_new = given.is_none();
        let tool = args.tool.expect("clap requires a tool");
        let target = if tool == STATUS_TOOL {
            let others = arguments.keys().any(|key| key != "operation_id");
            Target::Status(given.filter(|_| !others).ok_or(Problem::NotAQuestion)?)
        } else if args.read || tool == LIST_TOOL && given.is_none() {
            if let Some((field, _)) = id_in(&arguments) {
                return Err(Problem::ReadWithId(field));
            }
            Target::Read { arguments, is_told: args.read }
        } else {
            let operation_id = given.map_or_else(new_id, Ok)?;
            Target::Write { operation_id, arguments }
        };
        let given_journal = args.journal.clone();
        let journal = match (journal_of(args.journal), &target) {
            (Ok(path), _) => Some(path),
            (Err(_), Target::Status(_) | Target::Read { .. }) => None,
            (Err(problem), Target::Write { .. }) => return Err(problem),
        };
        let time = Duration::from_secs(args.timeout);
        let limits = Limits { call: time, reconcile: time, ..Limits::default() };
        let json = args.json;
        Ok(Self {
            tool,
            target,
            is_new,
            answers,
            journal,
            given_journal,
            principal,
            limits,
            json,
            server,
        })
    }

    /// The command that asks what became of the operation, for a shell; empty for a read.
    pub(super) fn ask_again(&self) -> String {
        let (Target::Status(id) | Target::Write { operation_id: id, .. }) = &self.target else {
            return String::new();
        };
        let (principal, journal) = (self.principal.as_ref(), self.given_journal.as_deref());
        let question = Question { operation_id: id, principal, journal };
        question.to(&self.server.words())
    }
}

/// A question about an operation, as a command for a shell.
pub(super) struct Question<'q> {
    pub(super) operation_id: &'q OperationId,
    pub(super) principal: Option<&'q Principal>,
    /// If it is not in its default place.
    pub(super) journal: Option<&'q Path>,
}

impl Question<'_> {
    /// The command that asks the server that these words name.
    pub(super) fn to(&self, server: &[OsString]) -> String {
        let question = serde_json::json!({"operation_id": self.operation_id}).to_string();
        let mut words = vec!["counterfoil".into(), "call".into(), STATUS_TOOL.into()];
        words.extend(["--args".into(), quoted(OsStr::new(&question))]);
        if let Some(journal) = self.journal {
            words.extend(["--journal".into(), quoted(journal.as_os_str())]);
        }
        if let Some(principal) = self.principal {
            words.extend(["--principal".into(), quoted(OsStr::new(principal.as_str()))]);
        }
        words.extend(server.iter().map(|word| quoted(word)));
        words.join(" ")
    }
}

/// The journal that is named, else the one in its default place.
pub(super) fn journal_of(given: Option<PathBuf>) -> Result<PathBuf, Problem> {
    let default = || default_journal(|name| std::env::var_os(name));
    given.or_else(default).ok_or(Problem::NoJournal)
}

fn read_arguments(given: &str) -> Result<Map<String, Value>, Problem> {
    let limits = JsonLimits::default();
    let text = if given == "-" {
        read_some(std::io::stdin().lock(), &limits)
            .map_err(|source| Problem::Unreadable { from: "stdin".into(), source })?
    } else if let Some(path) = given.strip_prefix('@') {
        let file = std::fs::File::open(path).and_then(|file| read_some(file, &limits));
        file.map_err(|source| Problem::Unreadable { from: format!("`{path}`"), source })?
    } else {
        given.as_bytes().to_vec()
    };
    // The strict reader refuses what two readers could understand differently, and the canonical
    // form refuses the integers that would be rounded on the way.
    jcs_v1(&json::parse(&text, &limits)?)?;
    match serde_json::from_slice(&text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        _ => Err(Problem::NotAnObject),
    }
}

/// Reads at most one byte more than is allowed, so that the strict reader can say what is wrong.
fn read_some(from: impl Read, limits: &JsonLimits) -> std::io::Result<Vec<u8>> {
    let most = u64::try_from(limits.max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = Vec::new();
    from.take(most).read_to_end(&mut text)?;
    Ok(text)
}

/// The ID from the option, else from the arguments.
fn given_id(
    option: Option<&str>,
    arguments: &Map<String, Value>,
) -> Result<Option<OperationId>, Problem> {
    let option = option.map(OperationId::parse).transpose()?;
    let Some((field, value)) = id_in(arguments) else { return Ok(option) };
    let text = value.as_str().ok_or(Problem::IdNotText(field))?;
    match option {
        Some(id) if id.as_str() != text => Err(Problem::TwoIds(field)),
        Some(id) => Ok(Some(id)),
        None => Ok(Some(OperationId::parse(text)?)),
    }
}

fn new_id() -> Result<OperationId, InvalidName> {
    OperationId::parse(&uuid::Uuid::now_v7().to_string())
}

/// By the XDG base directory specification, a path that is not absolute is ignored.
fn default_journal(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("counterfoil/calls.jsonl"))
}

/// One word for a POSIX shell.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_in_the_state_directory() {
        // Promise: the journal has one known place, and a relative path never moves it.
        let cases: [(Option<&str>, Option<&str>, Option<&str>); 5] = [
            (Some("/x"), Some("/home/a"), Some("/x/counterfoil/calls.jsonl")),
            (None, Some("/home/a"), Some("/home/a/.local/state/counterfoil/calls.jsonl")),
            (Some("x"), Some("/h"), Some("/h/.local/state/counterfoil/calls.jsonl")),
            (Some(""), Some("/h"), Some("/h/.local/state/counterfoil/calls.jsonl")),
            (None, None, None),
        ];
        for (state, home, expected) in cases {
            let variable = |name: &str| match name {
                "XDG_STATE_HOME" => state.map(OsString::from),
                _ => home.map(OsString::from),
            };
            assert_eq!(default_journal(variable), expected.map(PathBuf::from));
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        // Promise: the printed command can be pasted as it is.
        let cases = [
            ("serve", "serve"),
            ("--db=a/b.db", "--db=a/b.db"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("{\"operation_id\":\"x\"}", "'{\"operation_id\":\"x\"}'"),
            ("$HOME", "'$HOME'"),
        ];
        for (word, expected) in cases {
            assert_eq!(quoted(OsStr::new(word)), expected);
        }
    }
}
