//! `counterfoil-lab matrix`: the twelve cases, or the controls, with every SDK over every
//! transport, into a bundle of evidence. Progress goes to stderr while it runs, the table to stdout
//! at the end.

mod rust;
mod script;
mod table;
mod versions;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use counterfoil_store::{Clock as _, SystemClock};

use crate::cases::{Over, Suite};
use crate::evidence::write::{self, Left};
use crate::evidence::{CellResult, FORMAT, Manifest, SDKS, Status, cell_name};
use crate::session::Protocol;

/// The command's arguments.
#[derive(Debug, Args)]
pub struct MatrixArgs {
    /// Whose client
    #[arg(long, value_enum, default_value_t = SdkChoice::All)]
    sdk: SdkChoice,
    /// How servers are reached
    #[arg(long, value_enum, default_value_t = TransportChoice::All)]
    transport: TransportChoice,
    /// Run the controls in place of the cases: servers without a ledger must duplicate
    #[arg(long)]
    unguarded: bool,
    /// Where the evidence goes: a directory that does not exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print the verdicts as JSON
    #[arg(long)]
    json: bool,
}

/// The SDKs of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SdkChoice {
    /// The official Rust SDK.
    Rust,
    /// The official Python SDK.
    Python,
    /// The official TypeScript SDK.
    Typescript,
    /// Each of them.
    All,
}

/// The transports of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TransportChoice {
    /// Pipes.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// Both.
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sdk {
    Rust,
    Python,
    Typescript,
}

impl Sdk {
    const ALL: [Self; 3] = [Self::Rust, Self::Python, Self::Typescript];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Rust => SDKS[0],
            Self::Python => SDKS[1],
            Self::Typescript => SDKS[2],
        }
    }
}

/// What runs, and what has run.
#[derive(Debug)]
struct Run {
    lab: PathBuf,
    out: PathBuf,
    suite: Suite,
    sdks: Vec<Sdk>,
    transports: Vec<Over>,
    results: Vec<CellResult>,
    versions: BTreeMap<String, String>,
}

/// Runs the matrix; what to print, and whether every cell passed.
///
/// # Errors
/// If the evidence cannot be written, or its directory exists.
pub async fn run(args: &MatrixArgs) -> anyhow::Result<(String, bool)> {
    new_directory(&args.out)?;
    let lab = std::env::current_exe()?;
    let mut run = Run {
        versions: versions::of_here(&lab)?,
        lab,
        out: args.out.clone(),
        suite: if args.unguarded { Suite::Controls } else { Suite::Cases },
        sdks: args.sdk.list(),
        transports: args.transport.list(),
        results: Vec::new(),
    };
    let (began, clock) = (Instant::now(), SystemClock.wall());
    for sdk in run.sdks.clone() {
        for over in run.transports.clone() {
            match sdk {
                Sdk::Rust => rust::run(&mut run, over).await?,
                Sdk::Python | Sdk::Typescript => script::run(&mut run, sdk, over).await?,
            }
        }
    }
    let manifest = run.manifest(clock.as_ms(), began);
    let digest = write::finish(&run.out, &manifest)?;
    let passed = run.results.iter().all(|result| result.status == Status::Pass);
    let text = if args.json {
        table::json(&manifest, &run.results, &digest)?
    } else {
        table::text(&run, &digest, began.elapsed())
    };
    Ok((text, passed))
}

/// Evidence is never overwritten and never mixed.
fn new_directory(out: &Path) -> anyhow::Result<()> {
    ensure!(!out.exists(), "{} exists; evidence goes into a new directory", out.display());
    if let Some(parent) = out.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    fs::create_dir(out).with_context(|| format!("cannot make {}", out.display()))
}

impl Run {
    fn cells(&self) -> Vec<String> {
        let mut cells = Vec::new();
        for sdk in &self.sdks {
            for over in &self.transports {
                let cases = self.suite.cases().iter();
                cells.extend(cases.map(|(case, _)| cell_name(sdk.as_str(), over.as_str(), case)));
            }
        }
        cells
    }

    fn manifest(&self, began_ms: i64, began: Instant) -> Manifest {
        let mut ran: Vec<String> = self.results.iter().map(|result| result.cell.clone()).collect();
        ran.sort();
        Manifest {
            format: FORMAT.into(),
            suite: self.suite.as_str().into(),
            protocol: Protocol::V2026_07_28.as_str().into(),
            sdks: self.sdks.iter().map(|sdk| sdk.as_str().into()).collect(),
            transports: self.transports.iter().map(|over| over.as_str().into()).collect(),
            requested: self.cells(),
            ran,
            versions: self.versions.clone(),
            began_ms,
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Keeps what a cell left, and says so.
    fn keep(&mut self, left: Left<'_>) -> anyhow::Result<()> {
        let cell = left.cell.to_owned();
        let result = write::cell(&self.out, left)
            .with_context(|| format!("the evidence of {cell} cannot be written"))?;
        self.results.push(result);
        let result = &self.results[self.results.len() - 1];
        let count = format!("[{}/{}]", self.results.len(), self.cells().len());
        let seconds = result.took_ms as f64 / 1000.0;
        let status = result.status.as_str();
        let words = result.words.lines().next().unwrap_or_default();
        table::say(format!("{count} {cell} {status} {seconds:.1} s {words}").trim_end());
        Ok(())
    }
}

impl SdkChoice {
    fn list(self) -> Vec<Sdk> {
        match self {
            Self::Rust => vec![Sdk::Rust],
            Self::Python => vec![Sdk::Python],
            Self::Typescript => vec![Sdk::Typescript],
            Self::All => Sdk::ALL.to_vec(),
        }
    }
}

impl TransportChoice {
    fn list(self) -> Vec<Over> {
        match self {
            Self::Stdio => vec![Over::Stdio],
            Self::Http => vec![Over::Http],
            Self::All => vec![Over::Stdio, Over::Http],
        }
    }
}
