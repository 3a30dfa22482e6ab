//! `counterfoil store purge`: forgets what retention has ended, now.

use std::time::Instant;

use clap::{ArgGroup, Args};
use counterfoil_store::{Purge, Purged, Store};
use serde_json::json;

use super::{clock_json, clock_lines};
use crate::cli::exit::Exit;
use crate::cli::ledger;
use crate::config::{Environment, Flags, LocationArgs, Settings};
use crate::output;

/// Purge what retention has ended
///
/// Purges the results of settled operations whose retention has ended, and the whole records of
/// those whose ID is a UUIDv7 from before the horizon (400 days ago, or the retention if that is
/// longer), which is refused by its own time from then on. Tombstones of other IDs, unfinished
/// operations and the rows that operations made stay for ever. A server does the same by itself,
/// unless retention.job = false.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("how").required(true).args(["dry_run", "yes"]))]
#[command(after_long_help = "\
Examples:
  counterfoil store purge --dry-run
  counterfoil store purge --yes --json

Exits with 4, and purges nothing, while the ledger's clock is in doubt: see
`counterfoil store confirm-clock`.")]
pub(super) struct PurgeArgs {
    /// Tell what would be purged, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Purge; it cannot be taken back
    #[arg(long)]
    yes: bool,
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
pub(super) async fn run(args: &PurgeArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.location), env)?;
    let purge = Purge::new(settings.lifetimes.retention.as_duration());
    let (store, dir) = ledger::open(&settings).await?;
    let purged =
        if args.dry_run { store.count_due(purge).await } else { to_the_end(&*store, purge).await };
    store.close().await?;
    tell(args, &purged.map_err(|error| ledger::for_operator(error.into(), &dir))?)
}

/// Makes steps until nothing is left. Between two of them a server on the same ledger has its turn.
async fn to_the_end(
    store: &dyn Store,
    purge: Purge,
) -> Result<Purged, counterfoil_store::StoreError> {
    let mut counts = (0, 0);
    loop {
        let begun = Instant::now();
        let purged = store.purge(purge).await?;
        counts.0 += purged.results_count;
        counts.1 += purged.tombstones_count;
        if !purged.more {
            return Ok(Purged { results_count: counts.0, tombstones_count: counts.1, ..purged });
        }
        tokio::time::sleep(begun.elapsed()).await;
    }
}

fn tell(args: &PurgeArgs, purged: &Purged) -> anyhow::Result<Exit> {
    let state = &purged.state;
    let exit = if state.stopped.is_some() { Exit::Refused } else { Exit::Done };
    if args.json {
        output::json(&json!({
            "dryRun": args.dry_run,
            "results": purged.results_count,
            "tombstones": purged.tombstones_count,
            "heldBackBy": purged.held_back_by,
            "horizon": state.horizon.to_rfc3339(),
            "resultsEver": state.results_purged_count,
            "tombstonesEver": state.tombstones_purged_count,
            "clock": clock_json(state),
        }))?;
        return Ok(exit);
    }
    let would = if args.dry_run { "would be " } else { "" };
    let mut lines = vec![
        format!("{} results {would}purged", purged.results_count),
        format!("{} tombstones {would}deleted", purged.tombstones_count),
        format!("the horizon {would}at {}", state.horizon.to_rfc3339()),
    ];
    lines.extend(clock_lines(state));
    output::data(lines.join("\n"))?;
    if let Some(table) = &purged.held_back_by {
        output::note(format_args!(
            "no tombstone is deleted while the table `{table}` has a foreign key to operations: \
             deleting one would reach its rows"
        ));
    }
    if let Some(jump) = state.stopped {
        output::note(format_args!(
            "error: nothing is purged: at {} a clock had jumped by {} s; look at the clock, and if \
             the ledger's time is right run `counterfoil store confirm-clock`",
            jump.noticed_at.to_rfc3339(),
            jump.by_ms / 1000
        ));
    }
    Ok(exit)
}
