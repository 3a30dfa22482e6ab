//! `counterfoil demo`: the main job, in front of your eyes.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use crate::cli::exit::Exit;
use crate::demo;
use crate::demo::desk::{self, DeskArgs};
use crate::output;

/// See a reply vanish after its commit, and the record answer
///
/// Starts a real server in a process of its own, calls its tool as a client, lets the server die
/// after the commit and before the reply, and recovers the stored result from the ledger. Tells on
/// stderr what happens and prints the facts as JSON on stdout.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil demo
  counterfoil demo --output-dir ./what-happened --json
  counterfoil demo desk --address 127.0.0.1:9000")]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct DemoArgs {
    #[command(subcommand)]
    part: Option<Part>,

    /// Where the ledger and the raw transcripts go; must not exist yet [default: a new folder in
    /// the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Only the JSON on stdout, and nothing on stderr
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Part {
    Desk(DeskArgs),
}

/// Runs the demo.
///
/// # Errors
/// Whatever goes otherwise than promised.
pub(super) async fn run(args: DemoArgs) -> anyhow::Result<Exit> {
    if let Some(Part::Desk(args)) = &args.part {
        desk::run(args).await?;
        return Ok(Exit::Done);
    }
    let directory = match args.output_dir {
        Some(directory) => directory,
        None => fresh_directory()?,
    };
    let report = demo::run(&directory, args.json).await?;
    output::json(&report)?;
    Ok(Exit::Done)
}

/// A name in the temporary directory that nothing has yet.
fn fresh_directory() -> anyhow::Result<PathBuf> {
    let mut bytes = [0_u8; 4];
    getrandom::fill(&mut bytes).context("the system gives no randomness")?;
    let name = format!("counterfoil-demo-{:08x}", u32::from_ne_bytes(bytes));
    Ok(std::env::temp_dir().join(name))
}
