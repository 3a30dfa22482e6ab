//! A server's directory, a ledger, and what both came to.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::child::{self, BIRTHS, CALLS, EFFECTS};
use crate::client::Client;

/// When a test that hangs is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The tool `act` is looked for with the tool `look`.
pub(crate) const WITH_LOOKUP: &str = r#"
[wrap.tools.look]
effect = "read"
[wrap.tools.act.lookup]
tool = "look"
arguments = { n = "{{ args.n }}" }
applied = [{ at = "/structuredContent/count", equals = 1 }]
result = { text = "It was found." }
"#;

pub(crate) struct World {
    scratch: TempDir,
}

impl World {
    /// With settings of `[wrap]`.
    pub(crate) fn new(settings: &str) -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        fs::create_dir(scratch.path().join("server")).expect("made");
        fs::write(scratch.path().join("rules.toml"), format!("[wrap]\n{settings}"))
            .expect("written");
        Self { scratch }
    }

    /// A file of the server.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join("server").join(name)
    }

    fn data(&self) -> String {
        self.scratch.path().join("data").display().to_string()
    }

    /// The gateway, not started.
    pub(crate) fn gateway(&self, command: &[impl AsRef<str>]) -> Command {
        let mut gateway = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        let rules = self.scratch.path().join("rules.toml");
        gateway
            .args(["wrap", "--name", "srv", "--data-dir", &self.data(), "--preset"])
            .arg(rules)
            .arg("--")
            .args(command.iter().map(AsRef::as_ref));
        for name in ["COUNTERFOIL_CONFIG", "COUNTERFOIL_LOG"] {
            gateway.env_remove(name);
        }
        gateway
    }

    /// A client whose session is open, through a gateway of its own.
    pub(crate) fn open(&self, era: &'static str) -> Client {
        self.start(era).opened()
    }

    pub(crate) fn start(&self, era: &'static str) -> Client {
        Client::start(&mut self.gateway(&child::command(&self.file(""))), era)
    }

    /// The same as [`open`](Self::open), with a setting from the environment.
    pub(crate) fn open_with(&self, era: &'static str, name: &str, value: &str) -> Client {
        let mut gateway = self.gateway(&child::command(&self.file("")));
        Client::start(gateway.env(name, value), era).opened()
    }

    /// A person's command over the ledger: its code and what it wrote to stdout.
    pub(crate) fn command(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let ended = Command::new(env!("CARGO_BIN_EXE_counterfoil"))
            .args(arguments)
            .args(["--data-dir", &self.data()])
            .output()
            .expect("ran");
        let stdout = String::from_utf8(ended.stdout).expect("text");
        let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        (ended.status.code(), if stdout.is_empty() { stderr } else { stdout })
    }

    /// The same, as JSON, of a command that does what it is told.
    pub(crate) fn told(&self, arguments: &[&str]) -> Value {
        let (code, said) = self.command(&[arguments, &["--json"]].concat());
        assert_eq!(code, Some(0), "{said}");
        serde_json::from_str(&said).expect("JSON")
    }

    /// The kinds of events on an operation's audit trail.
    pub(crate) fn trail(&self, operation: &str) -> Vec<String> {
        let told = self.told(&["audit", "show", operation]);
        let trail = told["audit"].as_array().expect("a list");
        trail.iter().map(|event| event["kind"].as_str().expect("a kind").to_owned()).collect()
    }

    pub(crate) fn touch(&self, name: &str) {
        fs::write(self.file(name), "").expect("written");
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).expect("removed");
    }

    /// Waits for a file of the server.
    pub(crate) fn wait_for(&self, name: &str) {
        until(name, || self.file(name).exists());
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How often the effect was made, by the server's own account.
    pub(crate) fn effects(&self) -> usize {
        self.lines(EFFECTS).len()
    }

    /// How many calls the server got.
    pub(crate) fn calls(&self) -> usize {
        self.lines(CALLS).len()
    }

    pub(crate) fn births(&self) -> Vec<i32> {
        self.lines(BIRTHS).iter().map(|pid| pid.parse().expect("a number")).collect()
    }

    /// Kills the server that lives. Its pipes are closed then.
    pub(crate) fn kill_server(&self) {
        let pid = *self.births().last().expect("one lives");
        kill_process(Pid::from_raw(pid).expect("positive"), Signal::KILL).expect("killed");
        until("it is dead", || !lives(pid));
    }
}

/// Waits until `done`, or fails.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}: waited in vain");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process runs; a zombie does not.
pub(crate) fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z") && !stat.contains(") X")
}
