//! `counterfoil target`: where deliveries go, and whether they may.

use clap::{Args, Subcommand};
use counterfoil_core::delivery::{ALL_STATES, State, TargetName};
use counterfoil_core::time::Timestamp;
use counterfoil_store::StoreError;
use counterfoil_store::outbox::{Outbox, TargetAction, TargetOrder, TargetView};
use serde_json::{Value, json};

use super::delivery::{target_json, target_words};
use super::operation::note_text;
use super::table::table;
use super::{UsageError, ledger, who};
use crate::cli::exit::Exit;
use crate::config::{Environment, Flags, LocationArgs, Settings};
use crate::connector::Connectors;
use crate::output;

/// List targets, keep one from being sent to, or let it go on
#[derive(Debug, Args)]
pub(super) struct TargetArgs {
    #[command(subcommand)]
    command: TargetCommand,
}

#[derive(Debug, Subcommand)]
enum TargetCommand {
    List(ListArgs),
    /// Send nothing to a target until it is resumed
    ///
    /// Its items stay queued and lose no attempt. What is under way ends.
    #[command(after_long_help = "\
Example:
  counterfoil target pause helpdesk --reason \"maintenance until 18:00\"")]
    Pause(OrderArgs),
    /// Let a paused target go on, and try a parked one at once
    ///
    /// A parked target answered that it takes nothing from us, as with a credential that it refuses:
    /// put that right first. It is open again as soon as it takes one item.
    #[command(after_long_help = "\
Example:
  counterfoil target resume helpdesk --reason \"the token is renewed\"")]
    Resume(OrderArgs),
}

/// List the targets that deliveries were accepted for; changes nothing
///
/// A target is open, parked by its own answer (it takes nothing from us) or paused by an operator.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  counterfoil target list --json")]
struct ListArgs {
    /// List as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: LocationArgs,
}

// No documentation of its own: it would become that of the command.
#[derive(Debug, Args)]
struct OrderArgs {
    /// The target
    #[arg(value_name = "NAME", value_parser = TargetName::parse)]
    name: TargetName,
    /// Why; kept on record
    #[arg(long, value_name = "TEXT", value_parser = note_text)]
    reason: String,
    /// Who says so [default: the user who runs this, else their number]
    #[arg(long, visible_alias = "as", value_name = "WHO", value_parser = note_text)]
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
/// Whatever keeps the ledger from being opened, read or written; a target that nobody knows.
pub(super) async fn run(args: TargetArgs, env: &Environment) -> anyhow::Result<Exit> {
    use TargetCommand::{List, Pause, Resume};
    let location = match &args.command {
        List(args) => &args.location,
        Pause(args) | Resume(args) => &args.location,
    };
    let (settings, connectors) = Settings::load_with_connectors(&Flags::from(location), env)?;
    let (outbox, dir) = ledger::open(&settings).await?;
    let by = |args: &OrderArgs| args.who.clone().unwrap_or_else(|| who::of_process(env));
    let done = match &args.command {
        List(args) => list(&*outbox, args).await,
        Pause(args) => order(&*outbox, &connectors, args, TargetAction::Pause, by(args)).await,
        Resume(args) => order(&*outbox, &connectors, args, TargetAction::Resume, by(args)).await,
    };
    outbox.close().await?;
    done.map_err(|error| ledger::for_operator(error, &dir))
}

async fn list(outbox: &dyn Outbox, args: &ListArgs) -> anyhow::Result<Exit> {
    let targets = counted(outbox).await?;
    if args.json {
        output::json(&json!({ "targets": targets.iter().map(as_json).collect::<Vec<_>>() }))?;
    } else if targets.is_empty() {
        let ledger = outbox.backend_id();
        output::note(format_args!("the ledger `{ledger}` has accepted nothing for any target"));
    } else {
        output::data(listed(&targets))?;
    }
    Ok(Exit::Done)
}

/// A large outbox is counted in parts, one at each look: looks until all was counted once.
async fn counted(outbox: &dyn Outbox) -> Result<Vec<TargetView>, StoreError> {
    let total =
        |targets: &[TargetView]| -> u64 { targets.iter().flat_map(|target| target.counts).sum() };
    let mut targets = outbox.targets().await?;
    loop {
        let again = outbox.targets().await?;
        let is_whole = total(&again) <= total(&targets);
        targets = again;
        if is_whole {
            return Ok(targets);
        }
    }
}

fn listed(targets: &[TargetView]) -> String {
    const HEAD: [&str; 9] = [
        "TARGET",
        "QUEUED",
        "UNDER WAY",
        "PARKED",
        "DEAD LETTERS",
        "IN DOUBT",
        "DELIVERED",
        "OLDEST WAITING",
        "STATE",
    ];
    let row = |view: &TargetView| {
        let count = |states: &[State]| -> String {
            let of = |state: &State| view.counts[*state as usize];
            states.iter().map(of).sum::<u64>().to_string()
        };
        [
            view.target.to_string(),
            count(&[State::Queued]),
            count(&[State::Leased, State::Sending]),
            count(&[State::Parked]),
            count(&[State::DeadLetter]),
            count(&[State::InDoubt]),
            count(&[State::Delivered]),
            view.oldest.map_or_else(|| "-".to_owned(), Timestamp::to_rfc3339),
            target_words(&view.state),
        ]
    };
    table(HEAD, &targets.iter().map(row).collect::<Vec<_>>())
}

fn as_json(view: &TargetView) -> Value {
    let counts = ALL_STATES
        .iter()
        .map(|state| (state.as_str().to_owned(), json!(view.counts[*state as usize])));
    json!({
        "target": view.target.as_str(),
        "state": target_json(&view.state),
        "items": counts.collect::<serde_json::Map<_, _>>(),
        "oldestWaiting": view.oldest.map(Timestamp::to_rfc3339),
    })
}

async fn order(
    outbox: &dyn Outbox,
    connectors: &Connectors,
    args: &OrderArgs,
    action: TargetAction,
    who: String,
) -> anyhow::Result<Exit> {
    let name = &args.name;
    let mut known: Vec<TargetName> =
        outbox.targets().await?.into_iter().map(|view| view.target).collect();
    known.extend(connectors.iter().map(|connector| connector.name.clone()));
    if !known.contains(name) {
        return Err(unknown(name, known).into());
    }
    let reason = args.reason.clone();
    let asked = TargetOrder { target: name.clone(), action, who: who.clone(), reason };
    let state = outbox.direct_target(asked).await?;
    let words = match (action, &state.paused, &state.parked) {
        (TargetAction::Resume, _, Some(_)) => format!(
            "the parked target `{name}` is tried with one item at once; it is open again if it \
             takes that"
        ),
        (TargetAction::Resume, ..) => format!("the target `{name}` is open"),
        (TargetAction::Pause, Some(paused), _) if paused.who != who => format!(
            "the target `{name}` was paused already, by {} since {}",
            paused.who,
            paused.since.to_rfc3339()
        ),
        (TargetAction::Pause, ..) => format!("nothing is sent to `{name}` until it is resumed"),
    };
    if args.json {
        output::json(&json!({
            "target": name.as_str(), "state": target_json(&state), "message": words,
        }))?;
    } else {
        output::note(words);
    }
    Ok(Exit::Done)
}

fn unknown(name: &TargetName, mut known: Vec<TargetName>) -> UsageError {
    known.sort();
    known.dedup();
    let known: Vec<&str> = known.iter().map(TargetName::as_str).collect();
    UsageError(match known.is_empty() {
        true => format!("there is no target `{name}`: none is configured, and none has deliveries"),
        false => format!("there is no target `{name}`; the targets are: {}", known.join(", ")),
    })
}
