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
    let python = std::env::var_os(PYTHON).unwrap_or_else(|| OsString::from("python3"));
    let output = Command::new(&python)
        .arg(program())
        .arg(ledger)
        .output()
        .with_context(|| format!("cannot run {}; install Python 3.10", python.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the ledger cannot be read back: {errors}");
    let rows: Rows = serde_json::from_slice(&output.stdout).context("the read-back is no JSON")?;
    ensure!(rows.integrity == "ok", "the ledger is damaged: {}", rows.integrity);
    ensure!(rows.foreign_key_violations == 0, "references lead nowhere");
    Ok(rows)
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/python/readback.py")
}

impl Rows {
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
