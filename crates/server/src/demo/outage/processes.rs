//! The processes of the outage: the help desk, the workers, the server; each of them this program.

use std::ffi::OsStr;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::demo::{PRINCIPAL, own_command};

/// The variable that holds the help desk's token.
pub(super) const TOKEN: &str = "COUNTERFOIL_DEMO_TOKEN";
/// No process takes longer to begin or to end.
const LIMIT: Duration = Duration::from_secs(60);

/// Where everything of one run is.
#[derive(Debug)]
pub(super) struct Place {
    directory: PathBuf,
    address: SocketAddr,
}

impl Place {
    /// Writes the configuration, for a help desk that will listen on `address`.
    pub(super) fn new(directory: &Path, address: SocketAddr) -> anyhow::Result<Self> {
        let place = Self { directory: directory.to_owned(), address };
        let text = include_str!("counterfoil.toml").replace("{address}", &address.to_string());
        std::fs::write(place.file("counterfoil.toml"), text)
            .context("cannot write the configuration")?;
        Ok(place)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `counterfoil serve --stdio --no-worker`.
    pub(super) fn server(&self) -> anyhow::Result<Command> {
        let mut command = self.on_ledger(["serve", "--stdio", "--no-worker"], "server.log")?;
        command.args(["--principal", PRINCIPAL]);
        Ok(command)
    }

    /// `counterfoil worker`, with its log in a file.
    pub(super) fn start_worker(&self, log: &str) -> anyhow::Result<Running> {
        let mut command = self.on_ledger(["worker"], log)?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Running::start(command)
    }

    /// `counterfoil demo desk`; it listens when this returns.
    pub(super) async fn start_desk(&self, faults: &[&str], log: &str) -> anyhow::Result<Running> {
        let mut command = self.command(log)?;
        command.args(["demo", "desk", "--token-env", TOKEN, "--address"]);
        command.arg(self.address.to_string()).arg("--tickets").arg(self.file("tickets.jsonl"));
        for fault in faults {
            command.args(["--fault", fault]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut desk = Running::start(command)?;
        let out = desk.child.stdout.take().context("the help desk has no stdout")?;
        let mut line = String::new();
        let told = timeout(LIMIT, BufReader::new(out).read_line(&mut line)).await;
        told.context("the help desk did not start in time")??;
        ensure!(
            line.trim_end() == format!("http://{}", self.address),
            "the help desk did not start; see {}",
            self.file(log).display()
        );
        Ok(desk)
    }

    fn on_ledger<const N: usize>(&self, words: [&str; N], log: &str) -> anyhow::Result<Command> {
        let mut command = self.command(log)?;
        command.args(words).arg("--data-dir").arg(self.file("data"));
        command.arg("--config").arg(self.file("counterfoil.toml"));
        Ok(command)
    }

    fn command(&self, log: &str) -> anyhow::Result<Command> {
        let mut command = own_command()?;
        // The settings of whoever runs the demo are for their own ledgers.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"COUNTERFOIL_") {
                command.env_remove(name);
            }
        }
        let log = File::create_new(self.file(log)).context("cannot write a process's log")?;
        command.env(TOKEN, OsStr::new("a-demo-secret")).stderr(log).kill_on_drop(true);
        Ok(command)
    }
}

/// A process that runs.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
}

impl Running {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        Ok(Self { child: command.spawn().context("cannot start a process of the demo")? })
    }

    /// `kill -9`, and waits until it is gone.
    pub(super) async fn kill(mut self) -> anyhow::Result<()> {
        use std::os::unix::process::ExitStatusExt as _;
        self.child.start_kill().context("a process had ended before it was killed")?;
        let status = self.ended().await?;
        ensure!(status.signal() == Some(9), "a process was to be killed, and ended with {status}");
        Ok(())
    }

    /// SIGTERM, and waits until it has ended well.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        let id = self.child.id().context("a process had ended before it was stopped")?;
        let pid =
            i32::try_from(id).ok().and_then(Pid::from_raw).context("this is no process ID")?;
        kill_process(pid, Signal::TERM).context("cannot stop a process")?;
        let status = self.ended().await?;
        ensure!(status.success(), "a process was told to stop, and ended with {status}");
        Ok(())
    }

    async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        let waited = timeout(LIMIT, self.child.wait()).await;
        waited.context("a process did not end in time")?.context("cannot wait for a process")
    }
}
