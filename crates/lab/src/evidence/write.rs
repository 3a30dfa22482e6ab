//! Writes a bundle: a cell when it has ended, the rest when all have.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rusqlite::{Connection, OpenFlags, backup::Backup};
use serde::Serialize;

use super::exchange;
use super::judge::{Cell, judge};
use super::{
    CellResult, FACTS, MANIFEST, Manifest, RESULT, Redactor, SERVERS, STORE, SUMS, ServerRun,
    Status, TRANSCRIPTS, cell_dir, sums,
};
use crate::readback::{self, Rows};
use crate::transcript::Line;

/// What a cell left, wherever it ran.
#[derive(Debug)]
pub struct Left<'a> {
    /// `SDK/TRANSPORT/CASE`.
    pub cell: &'a str,
    /// What its own checks said.
    pub status: Status,
    /// Why it is no pass.
    pub words: &'a str,
    /// Its servers, whose transcripts are paths below `folder`.
    pub runs: Vec<ServerRun>,
    /// Where the transcripts are.
    pub folder: &'a Path,
    /// Its ledger, if there is one.
    pub ledger: Option<PathBuf>,
    /// How long it took.
    pub took: Duration,
}

/// Writes one cell and gives its verdict: a pass needs the case's own checks and the files alone.
///
/// # Errors
/// If it cannot be written.
pub fn cell(bundle: &Path, left: Left<'_>) -> anyhow::Result<CellResult> {
    let case = left.cell.rsplit('/').next().unwrap_or_default().to_owned();
    let dir = cell_dir(bundle, left.cell);
    let transcripts = dir.join(TRANSCRIPTS);
    fs::create_dir_all(&transcripts)?;
    let mut redactor = Redactor::default();
    let runs = keep_transcripts(left.runs, left.folder, &transcripts, &mut redactor)?;
    json(&dir.join(SERVERS), &runs)?;
    let ledger = left.ledger.filter(|ledger| ledger.exists());
    if let Some(ledger) = &ledger {
        let copy = dir.join(STORE);
        copy_ledger(ledger, &copy)?;
        fs::write(dir.join(FACTS), readback::read_text(&copy)?)?;
    }
    let mut result = CellResult {
        cell: left.cell.to_owned(),
        status: left.status,
        words: redactor.redact(left.words),
        files_lack: String::new(),
        took_ms: u64::try_from(left.took.as_millis()).unwrap_or(u64::MAX),
    };
    result.files_lack = files_lack(&dir, &case);
    if result.status == Status::Pass && !result.files_lack.is_empty() {
        result.status = Status::Fail;
        result.words = format!("its own checks passed, but not its files: {}", result.files_lack);
    }
    json(&dir.join(RESULT), &result)?;
    Ok(result)
}

/// What is missing in a cell's files for the promise of its case; empty if nothing is.
#[must_use]
pub(super) fn files_lack(dir: &Path, case: &str) -> String {
    let verdict = read(dir).and_then(|cell| judge(case, &cell));
    verdict.err().map(|error| format!("{error:#}")).unwrap_or_default()
}

fn read(dir: &Path) -> anyhow::Result<Cell> {
    let text = |name: &str| {
        fs::read_to_string(dir.join(name)).with_context(|| format!("there is no {name}"))
    };
    let runs: Vec<ServerRun> = serde_json::from_str(&text(SERVERS)?).context(SERVERS)?;
    let exchanges = exchange::read(&dir.join(TRANSCRIPTS), &runs)?;
    Ok(Cell { runs, exchanges, rows: Rows::from_text(&text(FACTS)?)? })
}

/// Writes what all cells have in common, and the digests. Gives the digest of these: whoever keeps
/// it can tell this bundle from any other.
///
/// # Errors
/// If it cannot be written.
pub fn finish(bundle: &Path, manifest: &Manifest) -> anyhow::Result<String> {
    json(&bundle.join(MANIFEST), manifest)?;
    let list = sums::list(bundle)?;
    fs::write(bundle.join(SUMS), &list)?;
    Ok(sums::digest(list.as_bytes()))
}

/// Copies transcripts without their secrets, under names without folders.
fn keep_transcripts(
    runs: Vec<ServerRun>,
    from: &Path,
    to: &Path,
    redactor: &mut Redactor,
) -> anyhow::Result<Vec<ServerRun>> {
    let read = |run: ServerRun| {
        // A server that never served has none.
        let text = fs::read_to_string(from.join(&run.transcript)).unwrap_or_default();
        // A relay that was killed may leave a piece of a line.
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        (run, lines.collect::<Vec<Line>>())
    };
    let kept: Vec<(ServerRun, Vec<Line>)> = runs.into_iter().map(read).collect();
    for line in kept.iter().flat_map(|(_, lines)| lines) {
        redactor.learn(&line.json());
    }
    let write = |(index, (run, lines)): (usize, (ServerRun, Vec<Line>))| {
        let transcript = format!("{:02}-{}.jsonl", index + 1, run.principal);
        let mut text = String::new();
        for line in lines {
            text.push_str(&serde_json::to_string(&line.map_text(|text| redactor.redact(text)))?);
            text.push('\n');
        }
        fs::write(to.join(&transcript), text)?;
        Ok(ServerRun { transcript, ..run })
    };
    kept.into_iter().enumerate().map(write).collect()
}

/// One consistent snapshot, whatever its writers left in the log.
fn copy_ledger(ledger: &Path, copy: &Path) -> anyhow::Result<()> {
    ensure!(!copy.exists(), "{} exists", copy.display());
    let source = Connection::open_with_flags(ledger, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut target = Connection::open(copy)?;
    Backup::new(&source, &mut target)?.run_to_completion(i32::MAX, Duration::ZERO, None)?;
    // A copy with a log beside it would not be one file.
    target.pragma_update(None, "journal_mode", "DELETE")?;
    target.close().map_err(|(_, error)| error).context("the copy of the ledger is not closed")
}

fn json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
