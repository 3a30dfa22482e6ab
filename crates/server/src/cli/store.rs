//! `counterfoil store`: a ledger's file as a whole.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::exit::Exit;

/// Check a ledger's file
#[derive(Debug, Args)]
pub(super) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    Check(CheckArgs),
}

/// Check that a ledger is whole and agrees with itself; changes nothing
///
/// Checks the file's structure, and each record against its digest, its effect's row and its audit
/// trail. A server may be running on it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  counterfoil store check ~/.local/share/counterfoil/ledger.db

Exits with 1 if anything is wrong.")]
struct CheckArgs {
    /// The ledger's file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Tell the outcome as JSON on stdout, and nothing on stderr
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
///
/// # Errors
/// If the file cannot be read at all.
pub(super) fn run(args: &StoreArgs) -> anyhow::Result<Exit> {
    match &args.command {
        StoreCommand::Check(args) => {
            anyhow::bail!("this build cannot check {} yet ({})", args.file.display(), args.json)
        }
    }
}
