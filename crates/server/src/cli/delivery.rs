//! `counterfoil delivery`: what is delivered later, what became of it, and what only a person can
//! order.

mod filter;
mod list;
mod order;
mod outcome;
mod predict;
mod report;
mod request;
mod show;

use clap::{Args, Subcommand};

use super::{ledger, who};
use crate::cli::exit::Exit;
use crate::config::{Environment, Flags, Settings};
use order::Verb;
pub(super) use report::{target_json, target_words};

/// List deliveries, look at one, send dead letters again, or end what should not be sent
///
/// A delivery is named by its ticket's ID (tkt_…), or by its operation's ID and --tenant. A server
/// may be running on the same ledger; its worker sees within a second what was ordered here.
#[derive(Debug, Args)]
pub(super) struct DeliveryArgs {
    #[command(subcommand)]
    command: DeliveryCommand,
}

#[derive(Debug, Subcommand)]
enum DeliveryCommand {
    List(list::ListArgs),
    Show(show::ShowArgs),
    /// Send dead letters again, each with its own key and bytes
    ///
    /// Grants as many attempts again as the first time. Refused where a repeat could do it twice: an
    /// attempt may have been done, and the target's contract makes no repeat harmless. What a key
    /// protected, and the target may have forgotten meanwhile, ends in doubt instead.
    #[command(after_long_help = "\
Examples:
  counterfoil delivery redrive tkt_0199c0a7d9e87c3aa1f5b2c4d6e8f001 --reason \"the desk is back\"
  counterfoil delivery redrive --target helpdesk --class connect --reason \"outage\" --dry-run
  counterfoil delivery redrive --target helpdesk --older-than 1h --reason \"outage\" --yes

With filters and no --state, dead letters are meant. Exits with 4 if anything was refused or could
not be done; the summary tells what and why. To run it again is safe.")]
    Redrive(Box<order::OrderArgs>),
    /// End deliveries that wait, so that they are never sent
    ///
    /// Takes what is queued or parked. If nothing can have happened the operation ends as not
    /// applied; if an attempt may have been done it is in doubt, for `counterfoil operation resolve`.
    #[command(after_long_help = "\
Examples:
  counterfoil delivery cancel ticket-4711 --reason \"the customer called it off\"
  counterfoil delivery cancel --target pager --older-than 2h --reason \"too late to page\" --yes

With filters and no --state, what is queued or parked is meant. Exits with 4 if anything was refused
or is in doubt now; the summary tells what and why.")]
    Cancel(Box<order::OrderArgs>),
    /// Give dead letters up for good, where nothing can have happened
    ///
    /// The operation ends as not applied, and can never be sent again. Refused if an attempt may have
    /// been done: look at the target, then use `counterfoil operation resolve`.
    #[command(after_long_help = "\
Examples:
  counterfoil delivery abandon tkt_0199c0a7d9e87c3aa1f5b2c4d6e8f001 --reason \"entered by hand\"
  counterfoil delivery abandon --target helpdesk --class rejected --reason \"bad form\" --yes

With filters and no --state, dead letters are meant. Exits with 4 if anything was refused; the
summary tells what and why.")]
    Abandon(Box<order::OrderArgs>),
}

/// Runs the verb.
///
/// # Errors
/// Whatever keeps the ledger from being opened, read or written, and bad usage.
pub(super) async fn run(args: DeliveryArgs, env: &Environment) -> anyhow::Result<Exit> {
    use DeliveryCommand::{Abandon, Cancel, List, Redrive, Show};
    let location = match &args.command {
        List(args) => &args.location,
        Show(args) => &args.location,
        Redrive(args) | Cancel(args) | Abandon(args) => {
            args.check()?;
            &args.location
        }
    };
    let settings = Settings::load(&Flags::from(location), env)?;
    let (outbox, dir) = ledger::open(&settings).await?;
    let by = || who::of_process(env);
    let done = match &args.command {
        List(args) => list::list(&*outbox, args).await,
        Show(args) => show::show(&*outbox, args).await,
        Redrive(args) => order::run(&*outbox, args, Verb::Redrive, by).await,
        Cancel(args) => order::run(&*outbox, args, Verb::Cancel, by).await,
        Abandon(args) => order::run(&*outbox, args, Verb::Abandon, by).await,
    };
    outbox.close().await?;
    done.map_err(|error| ledger::for_operator(error, &dir))
}

#[cfg(test)]
#[path = "delivery/tests.rs"]
mod tests;
