//! The official conformance suite of MCP against the product's wire layer, through `wrap`, and with
//! the product's client.

mod acts;
pub mod bridge;
pub mod client;
pub mod fixtures;
pub mod server;
pub mod suite;
pub mod table;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use suite::{Places, Way};
use table::Table;

/// The revisions, newest first.
const REVISIONS: &[&str] = &["2026-07-28", "2025-11-25", "2025-06-18"];

/// What is run.
#[derive(Debug, Args)]
pub struct ConformanceArgs {
    /// Where ./test has installed the suite
    #[arg(long, value_name = "DIR", default_value = ".cache/conformance")]
    suite_dir: PathBuf,
    /// Write the table to this file
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    write: Option<PathBuf>,
    /// Fail if anything that passes in this file does not pass now
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Run this revision alone; may be given more than once
    #[arg(long = "revision", value_name = "DATE", value_parser = clap::builder::PossibleValuesParser::new(REVISIONS))]
    revisions: Vec<String>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the suite in every way; true if nothing is worse than it was, or fails without a reason.
///
/// # Errors
/// If the suite cannot be run.
pub async fn run(args: &ConformanceArgs) -> anyhow::Result<(String, bool)> {
    let places = Places::find(&args.suite_dir)?;
    let mut table = Table::default();
    for revision in REVISIONS {
        if !args.revisions.is_empty() && !args.revisions.iter().any(|chosen| chosen == revision) {
            continue;
        }
        for way in [Way::Direct, Way::Wrapped, Way::Client] {
            let _ = writeln!(std::io::stderr(), "conformance: {revision}, {}", way.word());
            table.add((way, revision), places.run(way, revision).await?);
        }
    }
    let mut complaints = table.unexplained();
    if let Some(file) = &args.check {
        let document = std::fs::read_to_string(file)
            .with_context(|| format!("{} cannot be read", file.display()))?;
        complaints.extend(table.regressions(&document));
    }
    if let Some(file) = &args.write {
        std::fs::write(file, table.document())?;
    }
    let printed = if args.json {
        table.json().to_string()
    } else {
        let mut text = table.summary();
        text.push_str(&complaints.join("\n"));
        text.trim_end().to_owned()
    };
    Ok((printed, complaints.is_empty()))
}
