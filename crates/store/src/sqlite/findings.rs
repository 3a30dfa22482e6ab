//! What a check of a ledger found, in words that an operator can go on with: operations bear their
//! callers' IDs, which `counterfoil operation show` finds, and not only the ledger's own keys.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use counterfoil_core::identity::{OperationId, Tenant};
use counterfoil_core::record::Record;

use super::faults::words;
use super::rows::Damage;

/// Of each kind of problem at most so many are told.
pub(super) const MAX_PROBLEMS: usize = 200;

/// The tenant of callers over stdio, which the commands take by default.
const DEFAULT_TENANT: &str = "local";

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// The ledger's ID.
    pub backend_id: String,
    /// The version of its schema.
    pub schema_version: i64,
    /// How many records there are, sound or not.
    pub operations_count: u64,
    /// How many records are in which state; damaged ones are in none.
    pub states: BTreeMap<&'static str, u64>,
    /// The keys of the records that fail their own checks, as UUIDs.
    pub damaged_records: Vec<String>,
    /// How many deliveries there are, sound or not.
    pub deliveries_count: u64,
    /// How many deliveries are in which state; damaged ones are in none.
    pub delivery_states: BTreeMap<&'static str, u64>,
    /// How many direct operations there are, sound or not.
    pub directs_count: u64,
    /// How many audit events there are.
    pub audit_events_count: u64,
    /// How many rows of effects were compared with their digests.
    pub effect_rows_count: u64,
    /// How many rows each table of effects holds, whoever made them.
    pub effect_tables: BTreeMap<String, u64>,
    /// How many rows of effects belong to operations that the ledger has forgotten, as it may.
    pub forgotten_effect_rows_count: u64,
    /// What is not wrong and still worth knowing: rows that somebody changed after their effect, and
    /// a clock that has stopped the purges.
    pub notes: Vec<String>,
    /// What is wrong, in words that hold no stored value but names of operations and tenants.
    /// Empty for a sound ledger.
    pub problems: Vec<String>,
    /// Those of the problems that are about one operation, with its names.
    pub operations: Vec<OperationProblem>,
}

/// A problem of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationProblem {
    /// The caller's ID; `None` if the record is too damaged to tell.
    pub operation_id: Option<OperationId>,
    /// The space of that ID; `None` if the record is too damaged to tell.
    pub tenant: Option<Tenant>,
    /// The ledger's own key of the record, as a UUID.
    pub key: String,
    /// The words that stand among [`CheckReport::problems`].
    pub problem: String,
}

/// Why a file was not checked. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckRefused {
    /// There is nothing at the path.
    #[error("there is no file at {}: give a ledger's file, for example DIR/ledger.db", .path.display())]
    Absent {
        /// The path.
        path: PathBuf,
    },
    /// The path is that of a directory.
    #[error("{} is a directory: give the ledger's file in it, {}", .path.display(), .path.join("ledger.db").display())]
    Directory {
        /// The path.
        path: PathBuf,
    },
    /// The file is something else, or so damaged that it cannot be told from that.
    #[error("{} cannot be read as a ledger ({cause}); nothing was changed: give a ledger's file, for example DIR/ledger.db, and if this is one, keep it and restore a backup", .path.display())]
    NoLedger {
        /// The file.
        path: PathBuf,
        /// What was found.
        cause: String,
    },
    /// The system does not let us read it, or another process holds it.
    #[error("{} cannot be read: {cause}; correct its owner or permissions, or stop the process that holds it", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: String,
    },
    /// The schema needs a newer or older binary.
    #[error("{} has schema version {version} and needs a binary that knows version {min_compatible}; this one knows {known}: use a newer counterfoil", .path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema's version.
        version: i64,
        /// The oldest version of the schema that a binary must know.
        min_compatible: i64,
        /// The version that this binary knows.
        known: i64,
    },
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    pub(super) fn problem(&mut self, problem: String) {
        match self.problems.len() {
            told if told < MAX_PROBLEMS => self.problems.push(problem),
            MAX_PROBLEMS => self.problems.push("and more, which are not told".into()),
            _ => {}
        }
    }

    /// Something about one operation is wrong.
    pub(super) fn wrong(&mut self, subject: &Subject, words: String) {
        let problem = words + &subject.see();
        if self.operations.len() < MAX_PROBLEMS {
            self.operations.push(OperationProblem {
                operation_id: subject.operation_id.clone(),
                tenant: subject.tenant.clone(),
                key: subject.key.clone(),
                problem: problem.clone(),
            });
        }
        self.problem(problem);
    }

    pub(super) fn damaged(&mut self, subject: &Subject, damage: &Damage) {
        self.wrong(subject, format!("{subject} is damaged: {damage}"));
        self.damaged_records.push(subject.key.clone());
    }

    /// Runs one part of the check; damage that stops it is a problem like any other.
    pub(super) fn part(
        &mut self,
        what: &str,
        part: impl FnOnce(&mut Self) -> rusqlite::Result<()>,
    ) {
        if let Err(error) = part(self) {
            self.problem(format!("{what} could not be read: {}", words(&error)));
        }
    }
}

/// The operation that a finding is about.
#[derive(Debug)]
pub(super) struct Subject {
    key: String,
    tenant: Option<Tenant>,
    operation_id: Option<OperationId>,
    /// Whether the ledger finds it under its ID.
    is_findable: bool,
}

impl Subject {
    /// Of a sound record.
    pub(super) fn of(record: &Record) -> Self {
        Self {
            key: uuid_text(*record.key.as_bytes()),
            tenant: Some(record.tenant.clone()),
            operation_id: Some(record.operation_id.clone()),
            is_findable: true,
        }
    }

    /// Of a record that is damaged in one column, under a key and names that may be damaged too.
    pub(super) fn unsure(
        key: &[u8],
        (tenant, operation_id): (Option<Tenant>, Option<OperationId>),
        damaged_column: &str,
    ) -> Self {
        Self {
            key: <[u8; 16]>::try_from(key).map_or_else(|_| "?".into(), uuid_text),
            is_findable: tenant.is_some() && operation_id.is_some() && damaged_column != "id_bytes",
            tenant,
            operation_id,
        }
    }

    /// How to look at it, to be put behind the words; empty if nothing would be found.
    pub(super) fn see(&self) -> String {
        let (true, Some(tenant), Some(id)) = (self.is_findable, &self.tenant, &self.operation_id)
        else {
            return String::new();
        };
        let tenant = match tenant.as_str() {
            DEFAULT_TENANT => String::new(),
            other => format!(" --tenant={}", shell_word(other)),
        };
        // An ID may look like a flag.
        let end_of_flags = if id.as_str().starts_with('-') { " --" } else { "" };
        let id = shell_word(id.as_str());
        format!("; see `counterfoil operation show{tenant}{end_of_flags} {id}`")
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.operation_id, &self.tenant) {
            (Some(id), Some(tenant)) => write!(f, "operation `{id}` of the tenant `{tenant}`"),
            (Some(id), None) => write!(f, "operation `{id}` of a tenant that cannot be read"),
            (None, _) => write!(f, "operation with the key {}", self.key),
        }
    }
}

/// `text` as one word of a POSIX shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@%+,=".contains(c);
    if text.chars().all(is_plain) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn uuid_text(key: [u8; 16]) -> String {
    uuid::Uuid::from_bytes(key).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_the_command_that_shows_it() {
        // Promise: what a check says of an operation can be pasted into a shell, whatever its ID.
        let cases = [
            (Some("local"), Some("op-1"), "state", "; see `counterfoil operation show op-1`"),
            (
                Some("far"),
                Some("op"),
                "state",
                "; see `counterfoil operation show --tenant=far op`",
            ),
            (Some("local"), Some("-x"), "state", "; see `counterfoil operation show -- -x`"),
            (
                Some("local"),
                Some("a b'$(c)"),
                "state",
                r"; see `counterfoil operation show 'a b'\''$(c)'`",
            ),
            (Some("local"), Some("op-1"), "id_bytes", ""),
            (None, Some("op-1"), "tenant_no", ""),
            (Some("local"), None, "operation_id", ""),
        ];
        for (tenant, id, column, expected) in cases {
            let tenant = tenant.map(|name| Tenant::parse(name).expect("valid"));
            let id = id.map(|name| OperationId::parse(name).expect("valid"));
            assert_eq!(Subject::unsure(&[1; 16], (tenant, id), column).see(), expected);
        }
    }
}
