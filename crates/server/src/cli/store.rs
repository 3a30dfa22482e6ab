//! `counterfoil store`: a ledger's file as a whole.

mod check;
mod clock;
mod purge;

use clap::{Args, Subcommand};
use counterfoil_store::RetentionState;
use serde_json::{Value, json};

use crate::cli::exit::Exit;
use crate::config::Environment;

/// Check a ledger's file, and purge what its retention has ended
#[derive(Debug, Args)]
pub(super) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    Check(check::CheckArgs),
    Purge(purge::PurgeArgs),
    ConfirmClock(clock::ConfirmArgs),
}

/// Runs the verb.
///
/// # Errors
/// If the ledger is not there, is none, or cannot be used.
pub(super) async fn run(args: StoreArgs, env: &Environment) -> anyhow::Result<Exit> {
    match args.command {
        StoreCommand::Check(args) => check::run(&args),
        StoreCommand::Purge(args) => purge::run(&args, env).await,
        StoreCommand::ConfirmClock(args) => clock::run(&args, env).await,
    }
}

/// How retention stands, as JSON.
fn clock_json(state: &RetentionState) -> Value {
    json!({
        "ledgerTime": state.ledger_time.to_rfc3339(),
        "wallTime": state.wall_time.to_rfc3339(),
        "purgeTime": state.purge_time.map(|time| time.to_rfc3339()),
        "stopped": state.stopped.map(|jump| json!({
            "noticedAt": jump.noticed_at.to_rfc3339(),
            "jumpedByMs": jump.by_ms,
        })),
        "confirmed": state.confirmed.as_ref().map(|said| json!({
            "at": said.at.to_rfc3339(),
            "by": said.by,
        })),
    })
}

/// How retention stands, in lines.
fn clock_lines(state: &RetentionState) -> Vec<String> {
    let mut lines = vec![
        format!("the ledger's time is {}", state.ledger_time.to_rfc3339()),
        format!("this machine's clock shows {}", state.wall_time.to_rfc3339()),
    ];
    if let Some(time) = state.purge_time.filter(|time| *time < state.ledger_time) {
        lines.push(format!(
            "purges go by {}: they catch up by an hour at each look after a time that no clock \
             vouches for",
            time.to_rfc3339()
        ));
    }
    if let Some(said) = &state.confirmed {
        lines.push(format!("confirmed by {} at {}", said.by, said.at.to_rfc3339()));
    }
    lines
}
