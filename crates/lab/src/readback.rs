//! The physical rows of a ledger, read by a Python program that knows the schema and shares no code
//! with the server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::Value;

/// The interpreter, if it is not `python3`.
const PYTHON: &str = "COUNTERFOIL_TEST_PYTHON";
/// What the program reads.
const TABLES: [&str; 4] = ["operations", "issues", "watchers", "audit_events"];

/// The facts of one ledger.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Rows {
    /// `"ok"`, or what is wrong with the file.
    pub integrity: Value,
    /// References that lead nowhere.
    pub foreign_key_violations: u64,
    tables: BTreeMap<String, Table>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Table {
    count: u64,
    rows: Vec<Value>,
}

/// Reads a ledger back. A consistent copy is read, so that writers may live, have left or been
/// killed.
///
/// # Errors
/// If the program cannot be run, or finds that the file is no ledger.
pub fn read(ledger: &Path) -> anyhow::Result<Rows> {
    Rows::from_text(&read_text(ledger)?)
}

/// The same as the program prints it.
///
/// # Errors
/// As [`read`].
pub fn read_text(ledger: &Path) -> anyhow::Result<String> {
    let python = python();
    let output = Command::new(&python)
        .arg(program())
        .arg(ledger)
        .output()
        .with_context(|| format!("cannot run {}; install Python 3.10", python.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the ledger cannot be read back: {errors}");
    String::from_utf8(output.stdout).context("the read-back is not UTF-8")
}

/// The interpreter: the one that the environment names, the one that `./test` made, or any.
#[must_use]
pub fn python() -> OsString {
    let private = repository().join(".cache/venv/bin/python");
    let named = std::env::var_os(PYTHON).filter(|value| !value.is_empty());
    named.unwrap_or_else(|| {
        if private.exists() { private.into_os_string() } else { OsString::from("python3") }
    })
}

/// The work tree that this program was built from.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn program() -> PathBuf {
    repository().join("lab/python/readback.py")
}

impl Rows {
    /// The rows as the program printed them.
    ///
    /// # Errors
    /// If the text is not its output, a table is missing, or the ledger is damaged.
    pub fn from_text(text: &str) -> anyhow::Result<Self> {
        let rows: Self = serde_json::from_str(text).context("the read-back is no JSON")?;
        ensure!(rows.integrity == "ok", "the ledger is damaged: {}", rows.integrity);
        ensure!(rows.foreign_key_violations == 0, "references lead nowhere");
        for (name, table) in &rows.tables {
            let count = table.rows.len() as u64;
            ensure!(count == table.count, "table {name} has {count} rows and says {}", table.count);
        }
        for name in TABLES {
            ensure!(rows.tables.contains_key(name), "the read-back has no table {name}");
        }
        Ok(rows)
    }

    /// How many rows a table has.
    ///
    /// # Panics
    /// If the program does not read that table.
    #[must_use]
    pub fn count(&self, table: &str) -> u64 {
        self.table(table).count
    }

    /// The rows of a table in the order of their keys.
    ///
    /// # Panics
    /// If the program does not read that table.
    #[must_use]
    pub fn rows(&self, table: &str) -> &[Value] {
        &self.table(table).rows
    }

    /// The states of all operations, by operation ID.
    #[must_use]
    pub fn states(&self) -> BTreeMap<String, String> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let rows = self.rows("operations").iter();
        rows.map(|row| (word(&row["operation_id"]), word(&row["state"]))).collect()
    }

    fn table(&self, name: &str) -> &Table {
        self.tables.get(name).unwrap_or_else(|| panic!("the read-back has no table {name}"))
    }
}
