//! `counterfoil store check`: whether a ledger is whole and agrees with itself.

use std::path::{Path, PathBuf};

use clap::Args;
use counterfoil_store::sqlite::{CheckReport, OperationProblem};
use serde_json::json;

use crate::cli::exit::Exit;
use crate::output::{self, printable};

/// Check that a ledger is whole and agrees with itself; changes nothing
///
/// Checks the file's structure, and each record against its digest, its effect's row and its audit
/// trail. A server may be running on it. Operations are named by their IDs, for
/// `counterfoil operation show`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  counterfoil store check ~/.local/share/counterfoil/ledger.db

Exits with 1 if anything is wrong.")]
pub(super) struct CheckArgs {
    /// The ledger's file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Tell the outcome as JSON on stdout, and nothing on stderr
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
///
/// # Errors
/// If the file is not there or is no ledger.
pub(super) fn run(args: &CheckArgs) -> anyhow::Result<Exit> {
    let report = counterfoil_store::sqlite::check(&args.file)?;
    if args.json {
        output::json(&as_json(&report))?;
    } else {
        tell(&args.file, &report)?;
    }
    Ok(if report.is_sound() { Exit::Done } else { Exit::Failed })
}

fn as_json(report: &CheckReport) -> serde_json::Value {
    let operation = |found: &OperationProblem| {
        json!({
            "operationId": found.operation_id,
            "tenant": found.tenant,
            "key": found.key,
            "problem": found.problem,
        })
    };
    json!({
        "sound": report.is_sound(),
        "backend": report.backend_id,
        "schemaVersion": report.schema_version,
        "operationsCount": report.operations_count,
        "states": report.states,
        "auditEvents": report.audit_events_count,
        "effectRows": report.effect_rows_count,
        "forgottenEffectRows": report.forgotten_effect_rows_count,
        "effectTables": report.effect_tables,
        "damagedRecords": report.damaged_records,
        "notes": report.notes,
        "problems": report.problems,
        "operations": report.operations.iter().map(operation).collect::<Vec<_>>(),
    })
}

fn tell(file: &Path, report: &CheckReport) -> std::io::Result<()> {
    let mut lines = vec![
        format!(
            "{}: ledger {}, schema {}",
            file.display(),
            report.backend_id,
            report.schema_version
        ),
        format!(
            "{} operations, {} audit events, {} effect rows compared",
            report.operations_count, report.audit_events_count, report.effect_rows_count
        ),
    ];
    if report.forgotten_effect_rows_count > 0 {
        lines.push(format!(
            "{} effect rows of operations that the ledger has forgotten",
            report.forgotten_effect_rows_count
        ));
    }
    lines.extend(report.states.iter().map(|(state, count)| format!("  {state}: {count}")));
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    lines.extend(report.problems.iter().map(|problem| format!("PROBLEM: {problem}")));
    lines.push(if report.is_sound() { "sound".into() } else { "NOT sound".into() });
    output::data(printable(&lines.join("\n")))
}
