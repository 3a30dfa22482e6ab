//! `counterfoil demo`: the main job, in front of your eyes.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};

use crate::cli::exit::Exit;
use crate::demo;
use crate::demo::desk::{self, DeskArgs};
use crate::demo::outage;
use crate::demo::wrap;
use crate::demo::wrap::notes::{self, NotesArgs};
use crate::output;

/// See a reply vanish after its commit, and the record answer
///
/// Starts a real server in a process of its own, calls its tool as a client, lets the server die
/// after the commit and before the reply, and recovers the stored result from the ledger. Tells on
/// stderr what happens and prints the facts as JSON on stdout. `demo outage` shows deliveries to a
/// service that is down, and `demo desk` is such a service, to try a connector against.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil demo
  counterfoil demo --output-dir ./what-happened --json
  counterfoil demo outage
  counterfoil demo wrap
  counterfoil demo desk --address 127.0.0.1:9000")]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct DemoArgs {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    output: OutputArgs,
}

/// What every demo takes.
#[derive(Debug, Args)]
struct OutputArgs {
    /// Where the ledger and the raw transcripts go; must not exist yet [default: a new folder in
    /// the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Only the JSON on stdout, and nothing on stderr
    #[arg(long)]
    json: bool,
}

impl OutputArgs {
    fn directory(self) -> anyhow::Result<PathBuf> {
        self.output_dir.map_or_else(fresh_directory, Ok)
    }
}

/// See the service behind a tool fail, and every ticket arrive once
///
/// Starts a help desk, a server and workers in processes of their own. A client submits ten tickets
/// while the help desk is down; the worker is killed in mid-send, the help desk comes back and
/// answers wrongly after it has filed. Then the help desk counts: ten tickets, each once. Takes about
/// ten seconds, tells on stderr what happens and prints the numbers as JSON on stdout. The exit code
/// is 1 if a promise was broken.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil demo outage
  counterfoil demo outage --output-dir ./what-happened --json")]
struct OutageArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// See a server that knows nothing of us die in mid-call, and its result come back
///
/// Puts `counterfoil wrap` in front of a small server of notes in a process of its own. The server
/// writes a note and dies before it answers; the guard sends nothing again, looks with the server's
/// own search, and gives the result to the caller that asks again. Tells on stderr what happens and
/// prints the facts as JSON on stdout.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil demo wrap
  counterfoil demo wrap --output-dir ./what-happened --json")]
struct WrapDemoArgs {
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Part {
    Outage(OutageArgs),
    Wrap(WrapDemoArgs),
    Desk(DeskArgs),
    Notes(NotesArgs),
}

/// Runs the demo.
///
/// # Errors
/// Whatever goes otherwise than promised.
pub(super) async fn run(args: DemoArgs) -> anyhow::Result<Exit> {
    match args.part {
        None => {
            let quiet = args.output.json;
            output::json(&demo::run(&args.output.directory()?, quiet).await?)?;
        }
        Some(Part::Outage(OutageArgs { output })) => {
            let quiet = output.json;
            let seen = outage::run(&output.directory()?, quiet).await?;
            output::json(&seen.report)?;
            ensure!(seen.broken.is_empty(), "a promise was broken: {}", seen.broken.join("; "));
        }
        Some(Part::Wrap(WrapDemoArgs { output })) => {
            let quiet = output.json;
            output::json(&wrap::run(&output.directory()?, quiet).await?)?;
        }
        Some(Part::Desk(args)) => desk::run(&args).await?,
        Some(Part::Notes(args)) => notes::run(&args).await?,
    }
    Ok(Exit::Done)
}

/// A name in the temporary directory that nothing has yet.
fn fresh_directory() -> anyhow::Result<PathBuf> {
    let mut bytes = [0_u8; 4];
    getrandom::fill(&mut bytes).context("the system gives no randomness")?;
    let name = format!("counterfoil-demo-{:08x}", u32::from_ne_bytes(bytes));
    Ok(std::env::temp_dir().join(name))
}
