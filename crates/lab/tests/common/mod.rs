//! What the lab's tests share: a data directory, servers on it, and the facts that are left.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

use std::io::Write as _;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use counterfoil_lab::cases::checks::{
    called_tools, check_applied, check_observed, check_refused, check_settled, check_state_refused,
    check_unknown,
};
use counterfoil_lab::cases::{self, Over};
use counterfoil_lab::child::ChildOptions;
use counterfoil_lab::process::{Ended, Launch};
use counterfoil_lab::readback::Rows;
use counterfoil_lab::session::{Protocol, Session};
use serde_json::{Value, json};

/// The lab's binary.
pub(crate) const LAB: &str = env!("CARGO_BIN_EXE_counterfoil-lab");

/// A bench of the lab whose ledger goes with it.
#[derive(Debug)]
pub(crate) struct Bench {
    inner: cases::Bench,
    // Dropped after its users.
    _folder: tempfile::TempDir,
}

impl Deref for Bench {
    type Target = cases::Bench;

    fn deref(&self) -> &cases::Bench {
        &self.inner
    }
}

/// Every revision over stdio, and the newest one over HTTP: where an older client may resume its
/// stream, a lost reply would not stay lost.
pub(crate) const WAYS: [(Protocol, Over); 4] = [
    (Protocol::V2026_07_28, Over::Stdio),
    (Protocol::V2026_07_28, Over::Http),
    (Protocol::V2025_11_25, Over::Stdio),
    (Protocol::V2025_06_18, Over::Stdio),
];

impl Bench {
    /// An empty bench. The transcripts stay under the build directory, by this name, until the next
    /// run; the ledger goes with the bench.
    pub(crate) fn new(name: &str) -> Self {
        let transcripts = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if transcripts.exists() {
            std::fs::remove_dir_all(&transcripts).expect("old transcripts can be removed");
        }
        std::fs::create_dir_all(&transcripts).expect("transcripts can be kept");
        let folder = tempfile::tempdir().expect("a folder for the ledger");
        let inner = cases::Bench::new(Path::new(LAB), folder.path(), &transcripts);
        Self { inner, _folder: folder }
    }

    /// A bench for one case in one protocol.
    pub(crate) fn of_case(case: &str, protocol: Protocol, over: Over) -> Self {
        let name = format!("case-{case}-{}-{over:?}", protocol.as_str()).to_lowercase();
        let new = Self::new(&name);
        Self { inner: new.inner.by(protocol, over), ..new }
    }

    /// The same with servers that keep no ledger.
    pub(crate) fn unguarded(self) -> Self {
        Self { inner: self.inner.unguarded(), ..self }
    }

    /// Starts a child behind a relay, and a client on it, over stdio.
    pub(crate) async fn open(&self, options: &ChildOptions, protocol: Protocol) -> Session {
        let (launch, _) = self.relayed(options);
        Session::open(&launch, protocol).await.expect("the child serves")
    }

    /// The physical rows.
    pub(crate) fn rows(&self) -> Rows {
        self.inner.rows().expect("the ledger can be read back")
    }

    /// Checks the physical rows: as many issues, and exactly these operations in these states.
    #[track_caller]
    pub(crate) fn check_rows(&self, issue_count: u64, states: &[(&str, &str)]) -> Rows {
        self.inner.check_rows(issue_count, states).expect("the ledger can be read back")
    }
}

/// The command line of a child.
pub(crate) fn launch(options: &ChildOptions) -> Launch {
    Launch::child(Path::new(LAB), options.to_arguments())
}

/// Ends a session in the normal way.
#[track_caller]
pub(crate) fn close(session: Session) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let ended = session.close().await.expect("the server ends");
        assert_eq!(ended, Ended::Code(0), "closed at {place}");
    }
}

/// Says something to whoever runs the tests, whether they pass or not.
pub(crate) fn note(words: &str) {
    writeln!(std::io::stderr(), "{words}").expect("stderr is open");
}

/// Whether the long form of the tests was asked for.
pub(crate) fn full() -> bool {
    std::env::var("COUNTERFOIL_TEST_FULL").is_ok_and(|value| value == "1")
}

/// The product's own binary, which cargo builds beside the lab's.
pub(crate) fn product() -> PathBuf {
    let path = Path::new(LAB).with_file_name("counterfoil");
    assert!(path.exists(), "{} is not built: run `cargo build -p counterfoil`", path.display());
    path
}

/// A write lock on a ledger, held by another process than its servers: this one.
#[derive(Debug)]
pub(crate) struct HeldLock(rusqlite::Connection);

impl HeldLock {
    pub(crate) fn take(ledger: &Path) -> Self {
        let connection = rusqlite::Connection::open(ledger).expect("the ledger opens");
        connection.busy_timeout(counterfoil_lab::within::PATIENCE).expect("a time-out can be set");
        connection.execute_batch("BEGIN IMMEDIATE").expect("the lock is free");
        Self(connection)
    }

    pub(crate) fn release(self) {
        self.0.execute_batch("ROLLBACK").expect("the lock is held");
        self.0.close().expect("nothing is left open");
    }
}

/// The product's own server on a data directory, as `alice`.
pub(crate) fn product_server(data_dir: &Path, more: &[&str]) -> Launch {
    let mut arguments: Vec<std::ffi::OsString> =
        vec!["serve".into(), "--stdio".into(), "--principal".into(), "alice".into()];
    arguments.extend(["--data-dir".into(), data_dir.into()]);
    arguments.extend(more.iter().map(Into::into));
    // What the tests' own environment sets must not reach it.
    Launch::server(&product(), arguments).env("COUNTERFOIL_LOG", "warn")
}

/// A reply to `create_issue` that came raw.
#[track_caller]
pub(crate) fn check_raw_applied(reply: &Value, replayed: bool) {
    let content = &reply["result"]["structuredContent"];
    assert_eq!(
        (&content["state"], &content["replayed"]),
        (&json!("applied"), &json!(replayed)),
        "{reply}"
    );
}

/// The code of a refusal that came raw.
#[track_caller]
pub(crate) fn check_raw_refused(reply: &Value, code: &str) {
    assert_eq!(reply["result"]["isError"], true, "{reply}");
    assert_eq!(reply["result"]["structuredContent"]["error"]["code"], code, "{reply}");
}

/// A small file system of its own. Unmounted when dropped, at the latest when its users have ended.
#[derive(Debug)]
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Says why if it cannot be had here.
    pub(crate) fn mount(path: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&path).expect("a mount point can be made");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m,mode=700", "counterfoil-lab"])
            .arg(&path)
            .output();
        match output {
            Ok(output) if output.status.success() => return Some(Self(path)),
            Ok(output) => note(String::from_utf8_lossy(&output.stderr).trim()),
            Err(error) => note(&format!("mount: {error}")),
        }
        note("NOT RUN: this needs a small tmpfs, and none can be mounted here");
        None
    }

    /// Makes it read-only.
    pub(crate) fn seal(&self) {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status();
        assert!(status.is_ok_and(|status| status.success()), "it is ours to remount");
    }

    /// Takes all the room that is left.
    pub(crate) fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = std::fs::File::create(&path).expect("there is room for a name");
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
