//! The digests of a bundle: one list for one tree. Checking makes the list anew and compares the
//! bytes, so that no change of either can be missed.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};

use super::SUMS;

/// Most files of a bundle: a bound on what a damaged one can cost.
const MOST_FILES: usize = 100_000;

/// The list for this tree as it is now, in the form of `sha256sum`, sorted by path.
///
/// # Errors
/// If a file cannot be read, or something is neither file nor directory.
pub(super) fn list(bundle: &Path) -> anyhow::Result<String> {
    let mut paths = Vec::new();
    walk(bundle, "", &mut paths)?;
    paths.sort();
    let mut text = String::new();
    for path in paths.iter().filter(|path| *path != SUMS) {
        let bytes = fs::read(bundle.join(path)).with_context(|| format!("cannot read {path}"))?;
        text.push_str(&format!("{}  {path}\n", digest(&bytes)));
    }
    Ok(text)
}

/// SHA-256 in hexadecimal digits.
#[must_use]
pub(super) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What differs between the list that a bundle has and the one that its files have.
#[must_use]
pub(super) fn difference(kept: &str, found: &str) -> Option<String> {
    if kept == found {
        return None;
    }
    let entries = |text: &str| -> std::collections::BTreeMap<String, String> {
        let pairs = text.lines().filter_map(|line| line.split_once("  "));
        pairs.map(|(digest, path)| (path.to_owned(), digest.to_owned())).collect()
    };
    let (kept, found) = (entries(kept), entries(found));
    let changed = found.iter().find_map(|(path, digest)| match kept.get(path) {
        None => Some(format!("{path} is not in {SUMS}: it was added, or its name was changed")),
        Some(other) if other != digest => {
            Some(format!("{path} has not the digest that {SUMS} gives: one of them was changed"))
        }
        Some(_) => None,
    });
    let missing = || {
        let path = kept.keys().find(|path| !found.contains_key(*path))?;
        Some(format!("{path} is in {SUMS} and is not there"))
    };
    let form = || format!("{SUMS} is not in the form in which it is written");
    Some(changed.or_else(missing).unwrap_or_else(form))
}

fn walk(dir: &Path, prefix: &str, paths: &mut Vec<String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().context("a file's name is not UTF-8")?;
        ensure!(!name.contains(['\n', '\\']), "a file's name has a line end or a backslash");
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), &format!("{path}/"), paths)?;
        } else if kind.is_file() {
            paths.push(path);
        } else {
            bail!("{path} is neither a file nor a directory");
        }
        ensure!(paths.len() <= MOST_FILES, "there are more than {MOST_FILES} files");
    }
    Ok(())
}
