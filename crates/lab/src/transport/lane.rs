//! A ledger with a server that listens, and what it takes to reach it: by a clean way, or through a
//! proxy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use counterfoil::data_dir::{DataDir, LEDGER_FILE, TOKENS_FILE};
use counterfoil::tokens::{self, NewToken, Right};
use counterfoil_client::{BearerToken, HttpConnector, HttpOptions, ServerUrl};
use counterfoil_store::{Clock as _, SystemClock};
use rusqlite::{Connection, OpenFlags};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::client::HttpWay;
use super::plan::Wire;
use crate::child::ChildOptions;
use crate::within::{PATIENCE, within};

/// The programs under test.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The lab's own, for servers without a ledger.
    pub lab: PathBuf,
    /// The product.
    pub product: PathBuf,
}

impl Programs {
    /// The lab's program at this path, and the product beside it.
    ///
    /// # Errors
    /// If the product is not there.
    pub fn beside(lab: &Path) -> anyhow::Result<Self> {
        let product = lab.with_file_name("counterfoil");
        ensure!(
            product.exists(),
            "{} is not there; run `cargo build --workspace --bins`",
            product.display()
        );
        Ok(Self { lab: lab.into(), product })
    }
}

/// A data directory and a server on it.
#[derive(Debug)]
pub(super) struct Lane {
    pub programs: Programs,
    pub guarded: bool,
    pub folder: PathBuf,
    /// Straight to the server.
    pub clean: HttpWay,
    server: tokio::process::Child,
}

impl Lane {
    /// Starts the server in a folder of its own.
    pub(super) async fn open(
        programs: &Programs,
        folder: PathBuf,
        guarded: bool,
        wire: Wire,
    ) -> anyhow::Result<Self> {
        let data = folder.join("data");
        DataDir::prepare(&data, None)?;
        let caller = ChildOptions::new(&data).caller()?;
        let new = NewToken { caller, rights: vec![Right::Tools], expires_at: None };
        let made = tokens::create(&data.join(TOKENS_FILE), &new, SystemClock.wall())?;
        let token = made.secret.reveal().to_owned();
        let mut command = command(programs, &data, guarded, true);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        let mut server = command.kill_on_drop(true).spawn().context("the server does not start")?;
        let errors = server.stderr.take().context("no stderr")?;
        let to = within("the server listens", address_in(errors)).await??;
        let mut clean = HttpWay { to, token, session: None };
        if wire == Wire::HttpSse {
            clean.open_session().await?;
        }
        Ok(Self { programs: programs.clone(), guarded, folder, clean, server })
    }

    /// A server of its own on the same ledger, over its pipes.
    pub(super) fn stdio_server(&self, name: &str) -> anyhow::Result<Command> {
        let mut command = command(&self.programs, &self.folder.join("data"), self.guarded, false);
        let errors = std::fs::File::create(self.folder.join(format!("{name}.stderr")))?;
        command.stderr(errors);
        Ok(command)
    }

    /// The ledger's file.
    pub(super) fn ledger(&self) -> PathBuf {
        self.folder.join("data").join(LEDGER_FILE)
    }

    /// The recovering client's way to a server at this address.
    pub(super) fn connector(&self, to: SocketAddr) -> anyhow::Result<HttpConnector> {
        let url = ServerUrl::parse(&format!("http://{to}{}", counterfoil::http::MCP_PATH))?;
        let token = Some(BearerToken::parse(&self.clean.token)?);
        Ok(HttpConnector::new(url, HttpOptions { token, ..HttpOptions::default() })?)
    }

    /// How many effects an operation has at this instant.
    pub(super) fn effect_count(&self, operation: &str) -> anyhow::Result<u64> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let ledger = Connection::open_with_flags(self.ledger(), flags)?;
        ledger.busy_timeout(PATIENCE)?;
        let count = "SELECT count(*) FROM issues WHERE operation_id = ?";
        let count: i64 = ledger.query_row(count, [operation.as_bytes()], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }

    /// Ends the server in order.
    pub(super) async fn close(&mut self) -> anyhow::Result<()> {
        let id = self.server.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        kill_process(id.context("the server has ended by itself")?, Signal::TERM)?;
        let status = within("the server ends", self.server.wait()).await??;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

fn command(programs: &Programs, data: &Path, guarded: bool, listens: bool) -> Command {
    if guarded {
        let mut command = Command::new(&programs.product);
        command.arg("serve").arg("--data-dir").arg(data);
        match listens {
            true => command.args(["--http", "127.0.0.1:0", "--http-max-rate", "0"]),
            false => command.args(["--stdio", "--principal", "alice"]),
        };
        command.env("COUNTERFOIL_LOG", "warn");
        return command;
    }
    let mut options = ChildOptions::new(data);
    options.unguarded = true;
    options.real_clock = true;
    options.http_max_rate = 0;
    options.http = listens.then(|| ([127, 0, 0, 1], 0).into());
    let mut command = Command::new(&programs.lab);
    command.args(options.to_arguments());
    command
}

/// The address that a server tells, the product's or the lab's; the rest is read and dropped.
async fn address_in(errors: tokio::process::ChildStderr) -> anyhow::Result<SocketAddr> {
    let mut lines = BufReader::new(errors).lines();
    let mut said = String::new();
    while let Some(line) = lines.next_line().await? {
        let words = line.split([' ', '/']);
        if let Some(address) = words.filter_map(|word| word.parse().ok()).next() {
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(address);
        }
        said.push_str(&line);
    }
    anyhow::bail!("the server ended before it listened: {said}")
}
