//! Servers as child processes: started with a ready handshake, killed for sure, and asked how they
//! ended. Only processes that were started here are ever signalled.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::within::within;

/// The line on stderr with which a child of the lab says that it serves; where it listens, if it
/// does, stands behind it.
pub const READY: &str = "ready";

/// Says that this process serves, and at which address.
///
/// # Errors
/// If stderr is closed.
pub fn say_ready(address: Option<SocketAddr>) -> anyhow::Result<()> {
    let mut stderr = std::io::stderr().lock();
    match address {
        Some(address) => writeln!(stderr, "{READY} {address}"),
        None => writeln!(stderr, "{READY}"),
    }
    .context("stderr is closed")
}

/// A command line that starts a server.
#[derive(Debug, Clone)]
pub struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    /// Whether it says [`READY`]; the product's own server says nothing.
    says_ready: bool,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A running server.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pid: Pid,
    address: Option<SocketAddr>,
    stderr: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

/// The client's ends of a server's pipes.
#[derive(Debug)]
pub struct Pipes {
    /// What the server reads.
    pub input: ChildStdin,
    /// What the server writes.
    pub output: ChildStdout,
}

impl Launch {
    /// A child of the lab, which says when it is ready.
    #[must_use]
    pub fn child(lab: &Path, arguments: Vec<OsString>) -> Self {
        Self { program: lab.into(), arguments, environment: Vec::new(), says_ready: true }
    }

    /// Any other server. Its first reply is its handshake.
    #[must_use]
    pub fn server(program: &Path, arguments: Vec<OsString>) -> Self {
        Self { program: program.into(), arguments, environment: Vec::new(), says_ready: false }
    }

    /// The same with a variable in its environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().into(), value.as_ref().into()));
        self
    }

    /// The same behind a relay that keeps a raw transcript.
    #[must_use]
    pub fn through_relay(self, lab: &Path, transcript: &Path) -> Self {
        let mut arguments: Vec<OsString> =
            vec!["relay".into(), "--transcript".into(), transcript.into(), "--".into()];
        arguments.push(self.program.into());
        arguments.extend(self.arguments);
        Self { program: lab.into(), arguments, ..self }
    }

    /// Program and arguments, for connectors that start it by themselves.
    #[must_use]
    pub fn command_line(&self) -> (OsString, Vec<OsString>) {
        (self.program.clone().into(), self.arguments.clone())
    }

    /// Starts it and waits until it says that it is ready.
    ///
    /// # Errors
    /// If it does not start, or ends before it is ready; its stderr is shown.
    pub async fn start(&self) -> anyhow::Result<(Process, Pipes)> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let input = child.stdin.take().context("no stdin")?;
        let output = child.stdout.take().context("no stdout")?;
        let errors = child.stderr.take().context("no stderr")?;
        let raw = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = raw.context("the process has ended already")?;
        let stderr = Arc::new(Mutex::new(String::new()));
        let (says, ready) = oneshot::channel();
        let reader = tokio::spawn(keep_stderr(errors, Arc::clone(&stderr), says));
        let mut process = Process { child, pid, address: None, stderr, reader };
        if self.says_ready {
            let said = within("a child gets ready", ready).await?;
            ensure!(said.is_ok(), "the child ended before it was ready: {}", process.stderr());
            process.address = said?;
        }
        Ok((process, Pipes { input, output }))
    }
}

async fn keep_stderr(
    errors: ChildStderr,
    kept: Arc<Mutex<String>>,
    ready: oneshot::Sender<Option<SocketAddr>>,
) {
    let mut errors = BufReader::new(errors);
    let mut ready = Some(ready);
    let mut line = Vec::new();
    while errors.read_until(b'\n', &mut line).await.is_ok_and(|count| count > 0) {
        let text = String::from_utf8_lossy(&line);
        if let Some(address) = address_if_ready(&text)
            && let Some(ready) = ready.take()
        {
            // Whoever waited may have given up.
            let _ = ready.send(address);
        }
        kept.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        line.clear();
    }
}

/// Where a child listens, if it does; `None` if the line says something else.
fn address_if_ready(line: &str) -> Option<Option<SocketAddr>> {
    match line.trim_end().strip_prefix(READY)? {
        "" => Some(None),
        rest => rest.strip_prefix(' ')?.parse().ok().map(Some),
    }
}

impl Process {
    /// Where it listens, if it said so.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The process.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// What it has written to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a signal. The process was not waited for, so its number is still its own.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.pid, signal).with_context(|| format!("cannot signal {:?}", self.pid))
    }

    /// Waits until it has ended and all of its stderr is kept.
    ///
    /// # Errors
    /// If it does not end.
    pub async fn ended(&mut self) -> anyhow::Result<Ended> {
        let status = within("a process ends", self.child.wait()).await??;
        // A grandchild may hold stderr open; what it says later is not this process's.
        let _ = within("stderr ends", &mut self.reader).await?;
        how(status)
    }

    /// Kills it with SIGKILL and waits.
    ///
    /// # Errors
    /// If it did not die by that very signal: it had ended before, and the kill proves nothing.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        let ended = self.ended().await?;
        ensure!(ended == Ended::Signal(9), "killed, and yet it ended with {ended:?}");
        Ok(())
    }
}

fn how(status: ExitStatus) -> anyhow::Result<Ended> {
    let code = status.code().map(Ended::Code);
    code.or_else(|| status.signal().map(Ended::Signal)).context("neither exit code nor signal")
}
