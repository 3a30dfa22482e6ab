//! Runs the real binary in a directory and an environment of its own.

#![allow(dead_code, reason = "each test program uses its part of this")]

pub(crate) mod ledger;
pub(crate) mod outbox;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// The user and group `nobody` of Linux: the overflow ID.
const NOBODY: u32 = 65534;

/// A data directory, still to be made, and an environment without the caller's settings.
pub(crate) struct Bench {
    scratch: TempDir,
    data_dir: PathBuf,
    variables: Vec<(String, String)>,
    removed: Vec<&'static str>,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let data_dir = scratch.path().join("data");
        Self { scratch, data_dir, variables: Vec::new(), removed: Vec::new() }
    }

    /// Another data directory.
    pub(crate) fn in_dir(mut self, dir: &Path) -> Self {
        self.data_dir = dir.to_owned();
        self
    }

    pub(crate) fn with_env(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Makes the data directory, for its owner alone.
    pub(crate) fn make_data_dir(&self) {
        fs::DirBuilder::new().mode(0o700).create(&self.data_dir).expect("made");
    }

    /// Without a variable that is set otherwise.
    pub(crate) fn without_env(mut self, name: &'static str) -> Self {
        self.removed.push(name);
        self
    }

    /// A path in the data directory; empty for the directory itself.
    pub(crate) fn data(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.data_dir.clone() } else { self.data_dir.join(name) }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.command(Path::new(env!("CARGO_BIN_EXE_counterfoil")), arguments).output().into()
    }

    /// Starts a server that lives until its stdin is closed; what it says is not read.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_counterfoil")), arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("started")
    }

    /// With `input` on stdin.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Ended {
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_counterfoil")), arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let mut stdin = child.stdin.take().expect("piped");
        let input = input.to_vec();
        // From another thread: a child that writes before it has read all would wait for us.
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let ended = child.wait_with_output().into();
        // A child that refuses early reads no more.
        let _ = writer.join().expect("the writer does not panic");
        ended
    }

    /// As a user whom permissions bind, even where the tests run as root.
    pub(crate) fn run_unprivileged(&self, arguments: &[&str]) -> Ended {
        if !rustix::process::geteuid().is_root() {
            return self.run(arguments);
        }
        // The build's directory may be closed to others.
        let scratch = self.scratch.path();
        let binary = scratch.join("counterfoil");
        // Copied by a process of its own: were the copy open for writing here, a child that another
        // test starts at that moment would inherit it, and nobody can run a file that is written.
        let copied =
            Command::new("cp").arg(env!("CARGO_BIN_EXE_counterfoil")).arg(&binary).status();
        assert!(copied.expect("cp runs").success());
        for path in [scratch, &binary] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
        }
        let mut command = self.command(&binary, arguments);
        command.uid(NOBODY).gid(NOBODY).output().into()
    }

    /// With a stdout that nobody reads.
    pub(crate) fn run_with_closed_stdout(&self, arguments: &[&str]) -> Ended {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_counterfoil")), arguments);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().expect("started");
        child.wait_with_output().into()
    }

    fn command(&self, binary: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary);
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.scratch.path())
            .env("USER", "tester")
            .env("COUNTERFOIL_DATA_DIR", &self.data_dir)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.scratch.path())
            .stdin(Stdio::null());
        for name in &self.removed {
            command.env_remove(name);
        }
        command
    }
}

impl Ended {
    /// # Panics
    /// If it did not end well.
    pub(crate) fn done(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// # Panics
    /// If it did not end with `code` and an error on stderr.
    pub(crate) fn failed(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self
    }
}

impl From<std::io::Result<Output>> for Ended {
    fn from(output: std::io::Result<Output>) -> Self {
        let output = output.expect("the binary runs");
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
