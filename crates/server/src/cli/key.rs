//! `counterfoil key`: the keys of a ledger's fingerprints.

use clap::{Args, Subcommand};
use counterfoil_core::fingerprint::KeyId;
use serde_json::json;

use super::ledger;
use crate::cli::exit::Exit;
use crate::config::{Environment, Flags, LocationArgs, Settings};
use crate::data_dir::DataDir;
use crate::keys::{self, KeyEntry};
use crate::output;

/// Make, list and activate the keys of a ledger
///
/// Requests are recognised by keyed fingerprints. The first key is made with the ledger. To change
/// it: generate a new one, distribute its file to every server of the ledger, activate it, and keep
/// the old one until the last record that was made under it has gone. A key that is lost cannot be
/// made again: back the data directory up.
#[derive(Debug, Args)]
pub(super) struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    Generate(GenerateArgs),
    List(ListArgs),
    Activate(ActivateArgs),
}

/// Make a key of 32 random bytes
///
/// The file is <DATA-DIR>/keys/<N>.key, mode 0600. No file is ever replaced. The key becomes
/// active only if it is the first.
#[derive(Debug, Args)]
struct GenerateArgs {
    /// The key's number [default: the next one]
    #[arg(long, value_name = "N", value_parser = key_id)]
    id: Option<KeyId>,
    /// Tell the outcome as JSON on stdout, and nothing on stderr
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: LocationArgs,
}

/// List the keys: numbers, which one is active, and a check value; never the keys
///
/// Two files with one check value hold the same key.
#[derive(Debug, Args)]
struct ListArgs {
    /// List as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: LocationArgs,
}

/// Make new fingerprints under a key that every server has
///
/// Servers see the change at their next start. Requests that were recognised under another key
/// stay recognised as long as its file is there.
#[derive(Debug, Args)]
struct ActivateArgs {
    /// The key's number
    #[arg(value_name = "N", value_parser = key_id)]
    id: KeyId,
    #[command(flatten)]
    location: LocationArgs,
}

/// Runs the verb.
///
/// # Errors
/// [`keys::KeysError`] and whatever the settings and the data directory give.
pub(super) async fn run(args: KeyArgs, env: &Environment) -> anyhow::Result<Exit> {
    match args.command {
        KeyCommand::Generate(args) => generate(args, env).await,
        KeyCommand::List(args) => list(&args, env),
        KeyCommand::Activate(args) => activate(&args, env),
    }
}

async fn generate(args: GenerateArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.location), env)?;
    let dir = DataDir::prepare(settings.data_dir()?, settings.filesystem_override)?;
    let ledger = ledger::info(&settings, &dir).await?;
    let made = keys::generate(&dir.keys(), args.id, ledger.as_ref())?;
    if args.json {
        output::json(&json!({
            "id": made.id.0, "file": made.file.to_string_lossy(), "active": made.active,
        }))?;
        return Ok(Exit::Done);
    }
    output::data(made.file.display())?;
    output::note(format_args!("made key {}", made.id));
    if made.active {
        output::note("it is the first key and is active; back it up with the ledger");
    } else {
        output::note(format_args!(
            "it is not active yet: first copy the file (mode 0600) to the keys directory of every \
             server of this ledger, then run `counterfoil key activate {}` there and start them \
             again",
            made.id
        ));
    }
    Ok(Exit::Done)
}

fn list(args: &ListArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.location), env)?;
    let dir = DataDir::existing(settings.data_dir()?, settings.filesystem_override)?;
    let entries = keys::list(&dir.keys(), settings.active_key)?;
    if args.json {
        let entry = |entry: &KeyEntry| {
            json!({
                "id": entry.id.0,
                "active": entry.active,
                "check": entry.check,
                "file": entry.file.to_string_lossy(),
            })
        };
        output::json(&entries.iter().map(entry).collect::<Vec<_>>())?;
    } else {
        output::data(table(&entries))?;
    }
    Ok(Exit::Done)
}

fn activate(args: &ActivateArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.location), env)?;
    let dir = DataDir::existing(settings.data_dir()?, settings.filesystem_override)?;
    keys::activate(&dir.keys(), args.id)?;
    output::note(format_args!(
        "key {} is active; servers that run make fingerprints under it after their next start",
        args.id
    ));
    if let Some(set) = settings.active_key.filter(|set| *set != args.id) {
        output::note(format_args!(
            "the setting keys.active = {set} overrides this; remove it or change it"
        ));
    }
    Ok(Exit::Done)
}

fn table(entries: &[KeyEntry]) -> String {
    let line = |entry: &KeyEntry| {
        let active = if entry.active { "yes" } else { "" };
        format!("{:<4}  {active:<6}  {:<8}  {}", entry.id.0, entry.check, entry.file.display())
    };
    let head = format!("{:<4}  {:<6}  {:<8}  {}", "KEY", "ACTIVE", "CHECK", "FILE");
    [head].into_iter().chain(entries.iter().map(line)).collect::<Vec<_>>().join("\n")
}

fn key_id(text: &str) -> Result<KeyId, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(KeyId(number)),
        _ => Err("a key's number is 1, 2, 3 and so on".into()),
    }
}
