//! What a run prints: progress, and the table at the end.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use serde_json::json;

use super::Run;
use crate::evidence::{CellResult, Manifest, Status, cell_name};

/// Says something while the run goes on.
pub(super) fn say(words: &str) {
    // A closed stderr must not end the run.
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// The verdicts and where they came from.
pub(super) fn json(
    manifest: &Manifest,
    results: &[CellResult],
    digest: &str,
) -> anyhow::Result<String> {
    let passed_count = results.iter().filter(|result| result.status == Status::Pass).count();
    let report = json!({
        "manifest": manifest, "results": results, "passedCount": passed_count, "digest": digest,
    });
    Ok(serde_json::to_string_pretty(&report)?)
}

/// A line for each case, a column for each SDK over each transport, and the reasons below.
pub(super) fn text(run: &Run, digest: &str, took: Duration) -> String {
    let ways: Vec<(&str, &str)> = run
        .sdks
        .iter()
        .flat_map(|sdk| run.transports.iter().map(|over| (sdk.as_str(), over.as_str())))
        .collect();
    let find = |cell: &str| run.results.iter().find(|result| result.cell == cell);
    let mut out = format!("{:<56}", run.suite.as_str());
    for (sdk, over) in &ways {
        let _ = write!(out, " {:<16}", format!("{sdk}/{over}"));
    }
    for (case, words) in run.suite.cases() {
        let _ = write!(out, "\n{:<56}", format!("{case} {words}"));
        for (sdk, over) in &ways {
            let status = find(&cell_name(sdk, over, case)).map_or("-", |it| it.status.as_str());
            let _ = write!(out, " {status:<16}");
        }
    }
    let lines: Vec<&str> = out.lines().map(str::trim_end).collect();
    let mut out = lines.join("\n");
    for result in run.results.iter().filter(|result| result.status != Status::Pass) {
        let _ = write!(out, "\n\n{}: {}: {}", result.cell, result.status.as_str(), result.words);
    }
    let passed = run.results.iter().filter(|result| result.status == Status::Pass).count();
    let (count, seconds) = (run.results.len(), took.as_secs_f64());
    let _ = write!(out, "\n\n{passed} of {count} passed in {seconds:.1} s");
    let _ = write!(out, "\nevidence in {}, digest {digest}", run.out.display());
    out
}
