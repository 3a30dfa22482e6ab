//! The directory that holds a server's state: the ledger, its keys, its configuration.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::mounts::{self, OnlyThisHost, UnsafeFilesystem};

/// The ledger's file in a data directory.
pub const LEDGER_FILE: &str = "ledger.db";
/// The keys' directory in a data directory.
pub const KEYS_DIR: &str = "keys";
/// The file of bearer tokens in a data directory.
pub const TOKENS_FILE: &str = "tokens.json";
/// The configuration's file in a data directory.
pub const CONFIG_FILE: &str = "counterfoil.toml";

/// A data directory that exists and, if it was prepared, can be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir {
    path: PathBuf,
}

/// Why a directory cannot hold a ledger.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Neither given nor to be derived.
    #[error(
        "no data directory: neither --data-dir, COUNTERFOIL_DATA_DIR, XDG_DATA_HOME nor HOME says \
         where it is; give --data-dir DIR"
    )]
    Unknown,
    /// The path is something else.
    #[error("the data directory {} is not a directory; give --data-dir another path", .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// It does not exist, and this command makes none.
    #[error(
        "there is no data directory {}; give --data-dir the directory of a server that has run",
        .path.display()
    )]
    Absent {
        /// The path.
        path: PathBuf,
    },
    /// It could not be made.
    #[error(
        "the data directory {} cannot be made: {cause}; make it yourself (mode 0700, owned by the \
         user that runs counterfoil), or give --data-dir another path",
        .path.display()
    )]
    CannotMake {
        /// The path.
        path: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
    /// Nothing can be written in it.
    #[error(
        "the data directory {} cannot be written: {cause}; a ledger needs to write there even to \
         be read: correct its owner, its mode or a read-only mount, or give --data-dir another path",
        .path.display()
    )]
    NotWritable {
        /// The path.
        path: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
    /// Others could put a file of theirs in the place of the ledger or of its settings.
    #[error(
        "the data directory {} can be changed by other users (mode {mode:04o}); run `chmod 700 {}`, \
         or give --data-dir a directory of your own",
        .path.display(), .path.display()
    )]
    Exposed {
        /// The path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Its file system can lose commits.
    #[error(transparent)]
    Filesystem(#[from] UnsafeFilesystem),
}

impl DataDir {
    /// Makes the directory (mode 0700) if it is absent and checks that a ledger is safe in it.
    ///
    /// # Errors
    /// [`DataDirError`]; on an unsafe file system nothing was made.
    pub fn prepare(path: &Path, vouched: Option<OnlyThisHost>) -> Result<Self, DataDirError> {
        Self::prepare_on(&mount_table(), path, vouched)
    }

    /// As [`prepare`](Self::prepare), with the mount table handed in.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_on(
        mount_table: &[u8],
        path: &Path,
        vouched: Option<OnlyThisHost>,
    ) -> Result<Self, DataDirError> {
        mounts::check(mount_table, path, vouched)?;
        if path.exists() && !path.is_dir() {
            return Err(DataDirError::NotADirectory { path: path.to_owned() });
        }
        make_private(path)
            .map_err(|cause| DataDirError::CannotMake { path: path.to_owned(), cause })?;
        Self::usable(mount_table, path, vouched)
    }

    /// A directory that a server has used.
    ///
    /// # Errors
    /// [`DataDirError`]; nothing is ever made.
    pub fn existing(path: &Path, vouched: Option<OnlyThisHost>) -> Result<Self, DataDirError> {
        if !path.exists() {
            return Err(DataDirError::Absent { path: path.to_owned() });
        }
        if !path.is_dir() {
            return Err(DataDirError::NotADirectory { path: path.to_owned() });
        }
        Self::usable(&mount_table(), path, vouched)
    }

    /// Where the directory is if nobody says: `$XDG_DATA_HOME/counterfoil`, else
    /// `~/.local/share/counterfoil` (XDG Base Directory Specification 0.8, "Environment
    /// variables": an unset, empty or relative value does not count).
    ///
    /// # Errors
    /// [`DataDirError::Unknown`] if the environment does not tell.
    pub fn default_path(
        var: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<PathBuf, DataDirError> {
        let absolute = |name| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute("XDG_DATA_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
            .map(|base| base.join("counterfoil"))
            .ok_or(DataDirError::Unknown)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The ledger's file.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.path.join(LEDGER_FILE)
    }

    /// The keys' directory.
    #[must_use]
    pub fn keys(&self) -> PathBuf {
        self.path.join(KEYS_DIR)
    }

    fn usable(
        mount_table: &[u8],
        path: &Path,
        vouched: Option<OnlyThisHost>,
    ) -> Result<Self, DataDirError> {
        // Again, now that every link on the way exists; the ledger itself may be one too.
        mounts::check(mount_table, path, vouched)?;
        mounts::check(mount_table, &path.join(LEDGER_FILE), vouched)?;
        let not_writable = |cause| DataDirError::NotWritable { path: path.to_owned(), cause };
        if let Some(mode) = writable_by_others(path).map_err(not_writable)? {
            return Err(DataDirError::Exposed { path: path.to_owned(), mode });
        }
        probe(path).map_err(not_writable)?;
        Ok(Self { path: path.to_owned() })
    }
}

/// Makes `path` with mode 0700. What exists keeps its mode.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The permission bits of a directory in which others than its owner can make and remove files.
pub(crate) fn writable_by_others(dir: &Path) -> io::Result<Option<u32>> {
    let mode = fs::metadata(dir)?.mode() & 0o7777;
    Ok((mode & 0o022 != 0).then_some(mode))
}

/// Writes a file there: permission bits alone do not tell of read-only mounts and quotas.
fn probe(dir: &Path) -> io::Result<()> {
    let file = dir.join(format!(".writable-{}", std::process::id()));
    fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&file)?;
    fs::remove_file(&file)
}

/// The mount table of this process. Empty where the system has none in this form (macOS), which
/// refuses nothing.
fn mount_table() -> Vec<u8> {
    fs::read("/proc/self/mountinfo").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_new_directory_is_private_and_an_old_one_keeps_its_mode() {
        // Promise: nobody else reads ledger or keys, and a chosen mode is not changed.
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("a/b");
        let dir = DataDir::prepare(&path, None).expect("usable");
        let mode = |path: &Path| fs::metadata(path).expect("exists").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(fs::read_dir(&path).expect("listed").count(), 0, "the probe is gone");
        assert_eq!(dir.ledger(), path.join("ledger.db"));
        assert_eq!(dir.keys(), path.join("keys"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).expect("set");
        DataDir::prepare(&path, None).expect("usable");
        assert_eq!(mode(&path), 0o750);
    }

    #[test]
    fn a_directory_that_others_can_change_is_refused() {
        // Promise: nobody else can put a ledger, a key or settings in the place of ours; whoever
        // may only read is let be.
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("data");
        for (mode, is_good) in [
            (0o700, true),
            (0o755, true),
            (0o750, true),
            (0o770, false),
            (0o720, false),
            (0o777, false),
            (0o1777, false),
            (0o2775, false),
            (0o702, false),
        ] {
            make_private(&path).expect("made");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            for opened in [DataDir::prepare(&path, None), DataDir::existing(&path, None)] {
                assert_eq!(opened.is_ok(), is_good, "{mode:o}: {opened:?}");
                let Err(error) = opened else { continue };
                let words = error.to_string();
                assert!(words.contains(&format!("chmod 700 {}", path.display())), "{words}");
                assert!(words.contains(&format!("mode {mode:04o}")), "{words}");
            }
        }
    }

    #[test]
    fn what_cannot_hold_a_ledger_is_refused_with_the_remedy() {
        // Promise: a bad data directory stops the start; the message names it and what to do.
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let file = scratch.path().join("file");
        fs::write(&file, "x").expect("written");
        let check = |error: DataDirError, words: &str| {
            let text = error.to_string();
            assert!(text.contains(words), "{text}");
            assert!(text.contains("--data-dir"), "{text}");
        };
        check(DataDir::prepare(&file, None).expect_err("a file"), "is not a directory");
        check(DataDir::existing(&file, None).expect_err("a file"), "is not a directory");
        check(DataDir::prepare(&file.join("x"), None).expect_err("below"), "cannot be made");
        let absent = scratch.path().join("absent");
        check(DataDir::existing(&absent, None).expect_err("absent"), "there is no data directory");
        assert!(!absent.exists());
        // Nobody, root included, makes a file there.
        check(
            DataDir::existing(Path::new("/proc/self"), None).expect_err("proc"),
            "cannot be written",
        );
        let table = b"1 0 0:1 / / rw - nfs4 filer:/ rw\n";
        let error = DataDir::prepare_on(table, &absent, Some(OnlyThisHost)).expect_err("nfs");
        check(error, "lies on `nfs4`");
        assert!(!absent.exists(), "nothing is made on an unsafe file system");
    }

    #[test]
    fn a_link_does_not_carry_the_ledger_to_an_unsafe_file_system() {
        // Promise: it is the ledger that must not lie on a network file system, wherever the
        // directory is that names it.
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let root = scratch.path().canonicalize().expect("exists");
        let (data, filer) = (root.join("data"), root.join("filer"));
        make_private(&data).and_then(|()| make_private(&filer)).expect("made");
        let table = format!(
            "1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {} rw - nfs4 filer:/ rw\n",
            filer.display()
        );
        DataDir::prepare_on(table.as_bytes(), &data, None).expect("local");
        fs::write(filer.join("ledger.db"), "x").expect("written");
        std::os::unix::fs::symlink(filer.join("ledger.db"), data.join(LEDGER_FILE)).expect("made");
        let error = DataDir::prepare_on(table.as_bytes(), &data, None).expect_err("nfs");
        assert!(error.to_string().contains("lies on `nfs4`"), "{error}");
    }

    #[test]
    fn the_default_follows_the_xdg_rules() {
        // Promise: without a flag the data lies where a user of this system expects it.
        let check = |xdg: Option<&str>, home: Option<&str>, expected: Option<&str>| {
            let var = |name: &str| match name {
                "XDG_DATA_HOME" => xdg.map(OsString::from),
                "HOME" => home.map(OsString::from),
                _ => None,
            };
            assert_eq!(DataDir::default_path(var).ok(), expected.map(PathBuf::from));
        };
        check(Some("/x"), Some("/h"), Some("/x/counterfoil"));
        check(None, Some("/h"), Some("/h/.local/share/counterfoil"));
        check(Some(""), Some("/h"), Some("/h/.local/share/counterfoil"));
        check(Some("rel"), Some("/h"), Some("/h/.local/share/counterfoil"));
        check(None, Some(""), None);
        check(None, None, None);
    }
}
