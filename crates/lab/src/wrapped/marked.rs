//! The processes of one campaign, found by a variable in their environment, which every child
//! inherits whoever its parent is by then. Nothing else is ever signalled.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// The variable.
pub const MARK: &str = "COUNTERFOIL_LAB_MARK";
/// What was killed is gone by then, or never will be.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);

/// What a process of a wrap is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `counterfoil wrap`.
    Gateway,
    /// Who cleans up after it.
    Reaper,
    /// The relay of the lab: the wrapped server, as the gateway sees it.
    Relay,
    /// The server behind the relay.
    Server,
}

/// One process.
#[derive(Debug, Clone, Copy)]
pub struct Marked {
    /// Which one.
    pub pid: Pid,
    /// What it is.
    pub role: Role,
}

impl Marked {
    /// Kills it; whether it was there.
    pub fn kill(self, mark: &str) -> bool {
        is_marked(self.pid, mark) && kill_process(self.pid, Signal::KILL).is_ok()
    }
}

/// All processes that carry the mark and run.
///
/// # Errors
/// If the system does not tell its processes.
pub fn all(mark: &str) -> anyhow::Result<Vec<Marked>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("kills are made on Linux alone")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = number.filter(|pid| is_marked(*pid, mark)) else { continue };
        let Some(role) = role_of(pid) else { continue };
        found.push(Marked { pid, role });
    }
    Ok(found)
}

/// Waits until none of them runs.
///
/// # Errors
/// If some stay; they are told.
pub async fn none(mark: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let left = all(mark)?;
        if left.is_empty() {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "these processes stay: {left:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// A process that has ended has no environment any more, and one of another user's shows none.
fn is_marked(pid: Pid, mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    let environment = std::fs::read(path(pid, "environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}

fn role_of(pid: Pid) -> Option<Role> {
    let line = std::fs::read(path(pid, "cmdline")).ok()?;
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    Some(match words.get(1).copied()? {
        b"wrap" => Role::Gateway,
        b"wrap-reaper" => Role::Reaper,
        b"relay" => Role::Relay,
        _ => Role::Server,
    })
}

fn path(pid: Pid, what: &str) -> std::path::PathBuf {
    Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join(what)
}
