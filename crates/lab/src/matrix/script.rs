//! The cells of the Python and TypeScript SDKs: a program in that language runs them and says on
//! stdout, a JSON object a line, what each came to and where its files are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{Run, Sdk};
use crate::cases::Over;
use crate::evidence::write::Left;
use crate::evidence::{ServerRun, Status, cell_name};
use crate::readback;
use crate::within::within;

/// Most of what is kept of a program's last words.
const TAIL_BYTES: usize = 2000;

/// A line of such a program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
enum Said {
    Versions { versions: BTreeMap<String, String> },
    Cell(Cell),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    case: String,
    status: Status,
    words: String,
    /// Where its servers' files are, and `servers.jsonl`.
    folder: Option<PathBuf>,
    ledger: Option<PathBuf>,
    took_ms: u64,
}

/// Runs a suite over one transport.
pub(super) async fn run(run: &mut Run, sdk: Sdk, over: Over) -> anyhow::Result<()> {
    let kept = tempfile::Builder::new().prefix("lab-").tempdir()?;
    let mut missing: BTreeSet<&str> = run.suite.cases().iter().map(|(case, _)| *case).collect();
    let failed = match start(run, sdk, over, kept.path()) {
        Ok(child) => follow(run, sdk, over, child, &mut missing).await?,
        Err(error) => format!("{error:#}"),
    };
    for case in missing {
        run.keep(Left {
            cell: &cell_name(sdk.as_str(), over.as_str(), case),
            status: Status::MachineryError,
            words: &format!("the cell was not run: {failed}"),
            runs: Vec::new(),
            folder: kept.path(),
            ledger: None,
            took: Duration::ZERO,
        })?;
    }
    Ok(())
}

fn start(run: &Run, sdk: Sdk, over: Over, kept: &Path) -> anyhow::Result<Child> {
    let lab = readback::repository().join("lab");
    let python = readback::python();
    let mut command = match sdk {
        Sdk::Python => {
            let mut command = Command::new(&python);
            command.arg(lab.join("python/run_cells.py"));
            command
        }
        Sdk::Rust | Sdk::Typescript => {
            let mut command = Command::new("node");
            command.arg(lab.join("typescript/run_cells.mjs"));
            command
        }
    };
    command.args([run.suite.as_str(), over.as_str()]);
    command
        .env("COUNTERFOIL_LAB_BIN", &run.lab)
        .env("COUNTERFOIL_LAB_KEEP", kept)
        .env("COUNTERFOIL_TEST_PYTHON", &python)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("the {} SDK's program cannot be started", sdk.as_str()))
}

/// Keeps each cell as it ends; what the program said of itself if one never did.
async fn follow(
    run: &mut Run,
    sdk: Sdk,
    over: Over,
    mut child: Child,
    missing: &mut BTreeSet<&str>,
) -> anyhow::Result<String> {
    let mut errors = child.stderr.take().context("no stderr")?;
    let said = tokio::spawn(async move {
        let mut text = Vec::new();
        // What was said before an error is kept.
        let _ = errors.read_to_end(&mut text).await;
        text
    });
    let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
    while let Ok(Ok(Some(line))) = within("a cell ends", lines.next_line()).await {
        match serde_json::from_str(&line) {
            Ok(Said::Versions { versions }) => run.versions.extend(versions),
            Ok(Said::Cell(cell)) if missing.remove(cell.case.as_str()) => {
                keep(run, sdk, over, &cell)?;
            }
            Ok(Said::Cell(cell)) => return Ok(format!("it ran '{}' unasked", cell.case)),
            Err(_) => return Ok(format!("it said something that is no report: {line}")),
        }
    }
    // If it hangs it is killed as the child is dropped.
    let status = within("the program ends", child.wait()).await??;
    let text = within("its stderr ends", said).await??;
    let tail = &text[text.len().saturating_sub(TAIL_BYTES)..];
    Ok(format!("its program ended with {status}: {}", String::from_utf8_lossy(tail).trim()))
}

fn keep(run: &mut Run, sdk: Sdk, over: Over, cell: &Cell) -> anyhow::Result<()> {
    let folder = cell.folder.clone().unwrap_or_default();
    let (runs, doubt) = match servers(&folder.join("servers.jsonl")) {
        Ok(runs) => (runs, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let (mut status, mut words) = (cell.status, cell.words.clone());
    if let (Status::Pass, Some(error)) = (status, doubt) {
        (status, words) = (Status::MachineryError, format!("{error:#}"));
    }
    run.keep(Left {
        cell: &cell_name(sdk.as_str(), over.as_str(), &cell.case),
        status,
        words: &words,
        runs,
        folder: &folder,
        ledger: cell.ledger.clone(),
        took: Duration::from_millis(cell.took_ms),
    })
}

/// The servers of a cell, in the order in which they started.
fn servers(path: &Path) -> anyhow::Result<Vec<ServerRun>> {
    let text = fs::read_to_string(path).context("the cell did not say which servers it had")?;
    let runs = text.lines().map(serde_json::from_str);
    let mut runs = runs.collect::<Result<Vec<ServerRun>, _>>().context("servers.jsonl")?;
    runs.sort_by_key(|run| run.number);
    Ok(runs)
}
