//! A client that speaks raw lines through the real `counterfoil wrap`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::scripted;

/// When a test that hangs is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Wrap {
    /// Its ledger and its settings: every tool of the server only reads, so that the relay has it.
    _scratch: TempDir,
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

/// How a wrap ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// Lines that were not read before.
    pub(crate) rest: Vec<String>,
    pub(crate) stderr: String,
}

impl Wrap {
    /// A scripted server behind a wrap, named `srv`.
    pub(crate) fn start(role: &str) -> Self {
        Self::of(&scripted::command(role))
    }

    pub(crate) fn of(command: &[impl AsRef<str>]) -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        let rules = scratch.path().join("rules.toml");
        std::fs::write(&rules, scripted::settings()).expect("written");
        let mut process = Command::new(env!("CARGO_BIN_EXE_counterfoil"))
            .args(["wrap", "--name", "srv", "--data-dir"])
            .arg(scratch.path().join("data"))
            .arg("--preset")
            .arg(rules)
            .arg("--")
            .args(command.iter().map(AsRef::as_ref))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                if sender.send(line.expect("text")).is_err() {
                    return;
                }
            }
        });
        let mut stderr = process.stderr.take().expect("piped");
        let stderr = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let input = process.stdin.take();
        Self { _scratch: scratch, process, input, lines, stderr: Some(stderr) }
    }

    /// Opens a session of 2025-11-25, and has the tools listed: what is surely read-only is the
    /// relay's from then on.
    pub(crate) fn initialized(self) -> Self {
        let reply = self.with_initialize();
        self.check_initialized(&reply);
        let listed = self.ask(r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#);
        assert!(listed["result"]["tools"].is_array(), "{listed}");
        self
    }

    fn check_initialized(&self, reply: &Value) {
        assert_eq!(reply["result"]["serverInfo"]["name"], "scripted", "{reply}");
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    /// The reply to `initialize`.
    pub(crate) fn with_initialize(&self) -> Value {
        self.ask(
            r#"{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}"#,
        )
    }

    pub(crate) fn send(&self, line: &str) {
        let mut input = self.input.as_ref().expect("open");
        input.write_all(format!("{line}\n").as_bytes()).expect("written");
    }

    pub(crate) fn send_bytes(&self, bytes: &[u8]) {
        self.input.as_ref().expect("open").write_all(bytes).expect("written");
    }

    /// The next line that comes.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line")
    }

    pub(crate) fn message(&self) -> Value {
        serde_json::from_str(&self.line()).expect("JSON")
    }

    pub(crate) fn ask(&self, line: &str) -> Value {
        self.send(line);
        self.message()
    }

    /// Sends a call of one of the scripted tools.
    pub(crate) fn call(&self, id: &str, tool: &str, arguments: &str) {
        self.send(&call(id, tool, arguments));
    }

    /// Sends a call to a wrap that may have ended; whether it still runs.
    pub(crate) fn tries_to_call(&mut self) -> bool {
        let line = format!("{}\n", call("\"again\"", "received", "{}"));
        let _ = self.input.as_ref().expect("open").write_all(line.as_bytes());
        self.process.try_wait().expect("a child").is_none()
    }

    /// The line that the server got for a call of the tool `received`, sent as it stands.
    pub(crate) fn received(&self, line: &str) -> String {
        let reply = self.ask(line);
        reply["result"]["received"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
    }

    /// The most memory that the gateway ever had resident.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).expect("Linux");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("told");
        peak.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("sent");
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Stops reading, as a client that has crashed.
    pub(crate) fn close_output(&mut self) {
        let (_, nobody) = channel();
        self.lines = nobody;
    }

    /// Closes the input, and waits for the end.
    pub(crate) fn end(mut self) -> Ended {
        self.close_input();
        self.wait()
    }

    pub(crate) fn wait(mut self) -> Ended {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait().expect("a child") {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "the wrap does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let stderr = self.stderr.take().expect("once").join().expect("read");
        let rest = self.lines.iter().collect();
        Ended { code: status.code(), signal: status.signal(), rest, stderr }
    }
}

impl Drop for Wrap {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn call(id: &str, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

/// Waits until `done`, or fails.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}: waited in vain");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process is there, as itself or as a zombie.
pub(crate) fn lives(pid: &str) -> bool {
    std::path::Path::new("/proc").join(pid).exists()
}
