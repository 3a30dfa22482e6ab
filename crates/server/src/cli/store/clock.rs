//! `counterfoil store confirm-clock`: a person's word that the ledger's time is right.

use clap::Args;
use counterfoil_store::StoreError;
use serde_json::json;

use super::{clock_json, clock_lines};
use crate::cli::exit::Exit;
use crate::cli::operation::note_text;
use crate::cli::{ledger, who};
use crate::config::{Environment, Flags, LocationArgs, Settings};
use crate::output;

/// Let purges go on after the clock jumped
///
/// A purge cannot be taken back, so nothing is purged after a clock moved by over an hour more or
/// less than the time that passed; operations go on. Look at both times with `counterfoil store
/// purge --dry-run` first: by the ledger's time, which never goes back, results and tombstones
/// are purged from then on. Who confirmed it, and when, stays in the ledger.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil store confirm-clock
  counterfoil store confirm-clock --as mara --json")]
pub(super) struct ConfirmArgs {
    /// Who says so [default: the user who runs this, else their number]
    #[arg(long = "as", value_name = "WHO", value_parser = note_text)]
    who: Option<String>,
    /// Tell the outcome as JSON on stdout, and nothing on stderr
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: LocationArgs,
}

/// Runs the verb.
///
/// # Errors
/// If the ledger is not there or cannot be used.
pub(super) async fn run(args: &ConfirmArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.location), env)?;
    let who = args.who.clone().unwrap_or_else(|| who::of_process(env));
    let (store, dir) = ledger::open(&settings).await?;
    let before = store.retention().await;
    let confirmed = store.confirm_clock(&who).await;
    store.close().await?;
    let in_words = |error: StoreError| ledger::for_operator(error.into(), &dir);
    let (before, confirmed) = (before.map_err(in_words)?, confirmed.map_err(in_words)?);
    if args.json {
        let stopped = clock_json(&before)["stopped"].take();
        output::json(&json!({ "stoppedBefore": stopped, "clock": clock_json(&confirmed) }))?;
    } else {
        let purges =
            if before.stopped.is_some() { "purges go on" } else { "purges had not stopped" };
        output::note(format_args!("{}\n{purges}", clock_lines(&confirmed).join("\n")));
    }
    Ok(Exit::Done)
}
