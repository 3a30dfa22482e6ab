//! Writes a client's settings all at once, keeps what they were, and finds it again.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::wrap::clients::{ClientFile, Server, ServerKind, Wrapping};

/// The end of a copy's name; a number follows from the second on.
const BACKUP: &str = ".before-counterfoil";
/// So many copies are kept beside the first, which is the file as it was before we ever touched it.
pub(super) const NEWEST_KEPT: usize = 5;

/// Keeps `text` beside the file under a name of its own, readable by its owner alone: settings hold
/// secrets.
pub(super) fn backup(path: &Path, text: &[u8]) -> anyhow::Result<PathBuf> {
    let mut number = backups(path)?.last().map_or(1, |newest| newest + 1);
    loop {
        let copy = backup_path(path, number);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        match options.open(&copy) {
            Ok(mut file) => {
                let written = file.write_all(text).and_then(|()| file.sync_all());
                written.with_context(|| format!("{} cannot be written", copy.display()))?;
                return Ok(copy);
            }
            // Somebody else made it just now.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => {
                return Err(error).with_context(|| format!("{} cannot be made", copy.display()));
            }
        }
    }
}

/// Removes the copies that are neither the first nor among the newest, and says how many those were:
/// each holds the secrets of the settings.
pub(super) fn thin_out(path: &Path) -> anyhow::Result<usize> {
    let later: Vec<usize> = backups(path)?.into_iter().filter(|number| *number > 1).collect();
    let old = &later[..later.len().saturating_sub(NEWEST_KEPT)];
    for number in old {
        let copy = backup_path(path, *number);
        fs::remove_file(&copy).with_context(|| format!("{} cannot be removed", copy.display()))?;
    }
    Ok(old.len())
}

/// The numbers of the copies beside the file, the oldest first.
fn backups(path: &Path) -> anyhow::Result<Vec<usize>> {
    let dir = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let read = fs::read_dir(dir).with_context(|| format!("{} cannot be read", dir.display()))?;
    let first = backup_path(path, 1);
    let start = first.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
    let mut numbers = Vec::new();
    for entry in read {
        let name = entry.with_context(|| format!("{} cannot be read", dir.display()))?.file_name();
        let Some(end) = name.as_encoded_bytes().strip_prefix(&start[..]) else { continue };
        let number = match std::str::from_utf8(end).ok().map(|end| (end, end.strip_prefix('-'))) {
            Some(("", _)) => 1,
            Some((_, Some(digits))) => digits.parse().unwrap_or(0),
            _ => 0,
        };
        // Only names that we would give: a person may keep others beside them.
        if number > 0 && backup_path(path, number).file_name() == Some(&name) {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// What the file was before these servers were wrapped: the newest copy in which they are not, if
/// nothing but that changed since. Unwrapping alone would leave an empty list of arguments where there
/// was none.
pub(super) fn restored(path: &Path, file: &ClientFile, names: &[String]) -> Option<Vec<u8>> {
    let unwrapped = file.unwrapped(names);
    // Which words stand between the wrapping and the command is all one when they are taken away.
    let wrapping =
        Wrapping { command: "counterfoil".into(), uses_presets: false, mark: String::new() };
    let there_and_back = |copy: &ClientFile| {
        let wrapped = ClientFile::read(copy.wrapped(names, &wrapping)).ok()?;
        Some(wrapped.unwrapped(names))
    };
    let is_it = |copy: &ClientFile| {
        let is_wrapped =
            |it: &Server| names.contains(&it.name) && matches!(it.kind, ServerKind::Wrapped(_));
        !copy.servers().iter().any(is_wrapped) && there_and_back(copy).as_ref() == Some(&unwrapped)
    };
    let copies = backups(path).ok()?.into_iter().rev();
    let mut read = copies
        .filter_map(|number| fs::read(backup_path(path, number)).ok())
        .filter_map(|copy| ClientFile::read(copy).ok());
    read.find(is_it).map(|copy| copy.text().to_vec())
}

/// Puts `new` in the place of `old`, whole or not at all, with the file's own permissions.
///
/// # Errors
/// If the file is no longer `old`, or cannot be written.
pub(super) fn write(path: &Path, old: &[u8], new: &[u8]) -> anyhow::Result<()> {
    let shown = path.display();
    let mode = fs::metadata(path).with_context(|| format!("{shown} cannot be read"))?.permissions();
    let temporary = beside(path, ".counterfoil-new");
    let written = write_beside(&temporary, new, &mode)
        .with_context(|| format!("{} cannot be written", temporary.display()))
        .and_then(|()| {
            let now = fs::read(path).with_context(|| format!("{shown} cannot be read"))?;
            if now != old {
                bail!("{shown} was changed by somebody else meanwhile; run the command again");
            }
            fs::rename(&temporary, path).with_context(|| format!("{shown} cannot be replaced"))?;
            let parent = path.parent().unwrap_or(Path::new("."));
            File::open(parent)
                .and_then(|dir| dir.sync_all())
                .with_context(|| format!("{} cannot be synced", parent.display()))
        });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_beside(temporary: &Path, new: &[u8], mode: &Permissions) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(temporary)?;
    file.write_all(new)?;
    file.set_permissions(Permissions::from_mode(mode.mode() & 0o7777))?;
    file.sync_all()
}

fn backup_path(path: &Path, number: usize) -> PathBuf {
    let end = if number == 1 { BACKUP.to_owned() } else { format!("{BACKUP}-{number}") };
    beside(path, &end)
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path.file_name().unwrap_or_default());
    name.push(end);
    path.with_file_name(name)
}
