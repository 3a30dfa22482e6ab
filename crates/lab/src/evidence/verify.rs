//! `counterfoil-lab verify DIR`: checks a bundle again, from its files alone. It starts no server
//! and opens no database.
//!
//! Refused is a bundle in which any byte differs from its digests; in which the cells asked for,
//! run and present are not one set; whose results say something that its files do not show; or that
//! holds a secret. What it cannot know is who made the bundle: keep the digest that a run prints.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::write::files_lack;
use super::{
    CELLS, CellResult, FACTS, FORMAT, MANIFEST, Manifest, RESULT, SDKS, SERVERS, STORE, SUMS,
    Status, TRANSCRIPTS, TRANSPORTS, cell_dir, cell_name, redact, sums,
};
use crate::cases::Suite;
use crate::readback;
use crate::transcript;

/// The command's arguments.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The bundle
    pub bundle: PathBuf,
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
    /// The digest that the run printed: the bundle must be that very one
    #[arg(long, value_name = "HEX")]
    pub digest: Option<String>,
    /// Read the stores' rows once more, with the Python program that knows the schema only
    #[arg(long)]
    pub read_back: bool,
}

/// What an intact bundle shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Digest of the digests.
    pub digest: String,
    /// `cases` or `controls`.
    pub suite: String,
    /// Number of cells.
    pub cells_count: usize,
    /// Number of cells that passed.
    pub passed_count: usize,
    /// The others, with their verdicts and words.
    pub not_passed: Vec<String>,
    /// Number of files.
    pub files_count: usize,
}

/// Checks a bundle.
///
/// # Errors
/// What is wrong with it: it is no evidence then.
pub fn verify(bundle: &Path) -> anyhow::Result<Findings> {
    let kept = fs::read(bundle.join(SUMS)).with_context(|| format!("there is no {SUMS}"))?;
    let kept = String::from_utf8(kept).with_context(|| format!("{SUMS} is not UTF-8"))?;
    if let Some(difference) = sums::difference(&kept, &sums::list(bundle)?) {
        bail!("{difference}");
    }
    let manifest = manifest(bundle)?;
    let paths: Vec<&str> = kept.lines().filter_map(|line| Some(line.split_once("  ")?.1)).collect();
    check_sets(&manifest, &paths)?;
    for path in &paths {
        check_place(path, &manifest)?;
        check_no_secret(bundle, path)?;
    }
    let results = manifest.ran.iter().map(|cell| check_cell(bundle, cell));
    let results = results.collect::<anyhow::Result<Vec<CellResult>>>()?;
    let not_passed = results.iter().filter(|result| result.status != Status::Pass);
    let not_passed: Vec<String> = not_passed
        .map(|result| format!("{}: {}: {}", result.cell, result.status.as_str(), result.words))
        .collect();
    Ok(Findings {
        digest: sums::digest(kept.as_bytes()),
        suite: manifest.suite,
        cells_count: results.len(),
        passed_count: results.len() - not_passed.len(),
        not_passed,
        files_count: paths.len(),
    })
}

/// Runs the command; whether every cell passed.
///
/// # Errors
/// If the bundle is refused.
pub fn run(args: &VerifyArgs) -> anyhow::Result<(String, bool)> {
    let refused = || format!("{} is refused", args.bundle.display());
    let findings = verify(&args.bundle).with_context(refused)?;
    if let Some(digest) = &args.digest {
        ensure!(
            findings.digest == digest.to_lowercase(),
            "{}: its digest is {}, not {digest}: it is another run's, or was made anew",
            refused(),
            findings.digest
        );
    }
    if args.read_back {
        read_back(&args.bundle).with_context(refused)?;
    }
    let passed = findings.not_passed.is_empty();
    let text = if args.json { serde_json::to_string_pretty(&findings)? } else { words(&findings) };
    Ok((text, passed))
}

fn words(findings: &Findings) -> String {
    let mut text = format!(
        "intact: {} files, {} of {} {} passed\ndigest {}",
        findings.files_count,
        findings.passed_count,
        findings.cells_count,
        findings.suite,
        findings.digest
    );
    for line in &findings.not_passed {
        text.push('\n');
        text.push_str(line);
    }
    text
}

fn manifest(bundle: &Path) -> anyhow::Result<Manifest> {
    let text =
        fs::read(bundle.join(MANIFEST)).with_context(|| format!("there is no {MANIFEST}"))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).with_context(|| format!("{MANIFEST} cannot be read"))?;
    let format = &manifest.format;
    ensure!(format == FORMAT, "the bundle's format is '{format}'; this program reads {FORMAT}");
    Ok(manifest)
}

/// The cells that follow from what was asked, those that are named, and those that are there.
fn check_sets(manifest: &Manifest, paths: &[&str]) -> anyhow::Result<()> {
    let suite = Suite::named(&manifest.suite)
        .with_context(|| format!("there is no suite '{}'", manifest.suite))?;
    known(&manifest.sdks, &SDKS)?;
    known(&manifest.transports, &TRANSPORTS)?;
    let mut follow = BTreeSet::new();
    for sdk in &manifest.sdks {
        for transport in &manifest.transports {
            let cases = suite.cases().iter();
            follow.extend(cases.map(|(case, _)| cell_name(sdk, transport, case)));
        }
    }
    ensure!(!follow.is_empty(), "nothing was asked for");
    let requested = distinct(&manifest.requested, "requested")?;
    let ran = distinct(&manifest.ran, "ran")?;
    let there: BTreeSet<String> = paths
        .iter()
        .filter_map(|path| path.strip_prefix(CELLS)?.strip_prefix('/')?.strip_suffix(RESULT))
        .map(|cell| cell.trim_end_matches('/').to_owned())
        .collect();
    same(&follow, &requested, "follow from what was asked", "were requested")?;
    same(&requested, &ran, "were requested", "ran")?;
    same(&ran, &there, "ran", "have a result")
}

fn known(asked: &[String], names: &[&str]) -> anyhow::Result<()> {
    match asked.iter().find(|name| !names.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => bail!("'{name}' is none of {}", names.join(", ")),
    }
}

fn distinct(cells: &[String], what: &str) -> anyhow::Result<BTreeSet<String>> {
    let set: BTreeSet<String> = cells.iter().cloned().collect();
    ensure!(set.len() == cells.len(), "a cell stands twice under '{what}'");
    Ok(set)
}

fn same(
    one: &BTreeSet<String>,
    other: &BTreeSet<String>,
    what_one: &str,
    what_other: &str,
) -> anyhow::Result<()> {
    match one.symmetric_difference(other).next() {
        None => Ok(()),
        Some(cell) => bail!("the cells that {what_one} and those that {what_other} differ: {cell}"),
    }
}

/// Nothing lies in a bundle but what one is made of.
fn check_place(path: &str, manifest: &Manifest) -> anyhow::Result<()> {
    let known = path == MANIFEST
        || manifest.ran.iter().any(|cell| {
            let below = path.strip_prefix(CELLS).and_then(|rest| rest.strip_prefix('/'));
            let below = below.and_then(|rest| rest.strip_prefix(cell.as_str()));
            below.and_then(|rest| rest.strip_prefix('/')).is_some_and(|name| {
                [RESULT, SERVERS, FACTS, STORE].contains(&name)
                    || name.strip_prefix(TRANSCRIPTS).is_some_and(|rest| rest.starts_with('/'))
            })
        });
    ensure!(known, "{path} is no part of a bundle");
    Ok(())
}

fn check_no_secret(bundle: &Path, path: &str) -> anyhow::Result<()> {
    let file = bundle.join(path);
    ensure!(!redact::has_token(&fs::read(&file)?), "{path} holds a bearer token");
    if path.ends_with(".jsonl") {
        for frame in transcript::read(&file).with_context(|| path.to_owned())? {
            let state = unmarked_state(&frame.json());
            ensure!(!state, "{path} holds a sealed state: only its marker may be there");
        }
    }
    Ok(())
}

fn unmarked_state(message: &Value) -> bool {
    match message {
        Value::Object(members) => members.iter().any(|(name, value)| match value {
            Value::String(state) if name == "requestState" => {
                !state.is_empty() && !redact::is_state_marker(state)
            }
            other => unmarked_state(other),
        }),
        Value::Array(values) => values.iter().any(unmarked_state),
        _ => false,
    }
}

/// A result says what the files show.
fn check_cell(bundle: &Path, cell: &str) -> anyhow::Result<CellResult> {
    let dir = cell_dir(bundle, cell);
    let text = fs::read(dir.join(RESULT)).with_context(|| format!("{cell} has no {RESULT}"))?;
    let result: CellResult =
        serde_json::from_slice(&text).with_context(|| format!("{cell}: {RESULT}"))?;
    ensure!(result.cell == cell, "{cell} has the result of {}", result.cell);
    let case = cell.rsplit('/').next().unwrap_or_default();
    let lack = files_lack(&dir, case);
    if result.status == Status::Pass {
        ensure!(lack.is_empty(), "{cell} says pass, but its files do not show it: {lack}");
        ensure!(dir.join(STORE).is_file(), "{cell} says pass and has no {STORE}");
        ensure!(result.words.is_empty(), "{cell} says pass and gives a reason why it is none");
    } else {
        ensure!(!result.words.is_empty(), "{cell} is no pass and gives no reason");
    }
    ensure!(
        result.files_lack == lack,
        "{cell}: its files show something else than its result says of them: '{lack}', not '{}'",
        result.files_lack
    );
    Ok(result)
}

/// Reads the stores once more.
fn read_back(bundle: &Path) -> anyhow::Result<()> {
    for cell in manifest(bundle)?.ran {
        let dir = cell_dir(bundle, &cell);
        let (store, facts) = (dir.join(STORE), dir.join(FACTS));
        if store.exists() {
            let kept: Value = serde_json::from_slice(&fs::read(facts)?)?;
            let found: Value = serde_json::from_str(&readback::read_text(&store)?)?;
            ensure!(kept == found, "{cell}: {FACTS} differs from the rows of {STORE}");
        }
    }
    Ok(())
}
