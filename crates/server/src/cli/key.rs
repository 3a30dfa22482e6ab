//! `counterfoil key`: the keys of a ledger's fingerprints.

use std::path::Path;

use clap::{Args, Subcommand};
use counterfoil_core::fingerprint::KeyId;
use counterfoil_core::time::Timestamp;
use counterfoil_store::KeyUsage;
use serde_json::json;

use super::ledger;
use crate::cli::exit::Exit;
use crate::config::{Environment, Flags, LocationArgs, Settings};
use crate::data_dir::DataDir;
use crate::keys::{self, KeyEntry, KeysError};
use crate::output;

/// Make, list, activate and retire the keys of a ledger
///
/// Requests are recognised by keyed fingerprints. The first key is made with the ledger. To change
/// it: generate a new one, distribute its file to every server of the ledger, activate it, start
/// the servers again, and retire the old one when the ledger no longer needs it. A key that is lost
/// cannot be made again: back the data directory up.
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
    Retire(RetireArgs),
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
/// Two files with one check value hold the same key. A key that records of the ledger need, or
/// that is to be active, and whose file is gone is listed as MISSING.
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

/// Take a key out of use that no record needs any more
///
/// A record needs the key that it was made under while it is unsettled, and until its retention
/// ends. The file is not deleted but renamed to <N>.key.retired, which nothing reads: an older copy
/// of the ledger may need it. Do this after every server was started with another active key.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exits with 4 if the key is active, or a record needs it.")]
struct RetireArgs {
    /// The key's number
    #[arg(value_name = "N", value_parser = key_id)]
    id: KeyId,
    /// Tell the outcome as JSON on stdout, and nothing on stderr
    #[arg(long)]
    json: bool,
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
        KeyCommand::List(args) => list(&args, env).await,
        KeyCommand::Activate(args) => activate(&args, env),
        KeyCommand::Retire(args) => retire(&args, env).await,
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

async fn list(args: &ListArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.location), env)?;
    let dir = DataDir::existing(settings.data_dir()?, settings.filesystem_override)?;
    let needed = needed_keys(&settings, &dir).await;
    let entries = keys::list(&dir.keys(), settings.active_key, &needed)?;
    if args.json {
        let entry = |entry: &KeyEntry| {
            json!({
                "id": entry.id.0,
                "active": entry.active,
                "check": entry.check,
                "missing": entry.check.is_none(),
                "file": entry.file.to_string_lossy(),
            })
        };
        output::json(&entries.iter().map(entry).collect::<Vec<_>>())?;
        return Ok(Exit::Done);
    }
    output::data(table(&entries))?;
    for entry in entries.iter().filter(|entry| entry.check.is_none()) {
        output::note(format_args!(
            "key {} is missing: restore {} from the backup of this data directory (mode 0600); a \
             key cannot be generated again",
            entry.id,
            entry.file.display()
        ));
    }
    Ok(Exit::Done)
}

/// The keys that records of the ledger need. The keys can be listed without a ledger that opens.
async fn needed_keys(settings: &Settings, dir: &DataDir) -> Vec<KeyId> {
    match ledger::keys_in_use(settings, dir).await {
        Ok(usage) => {
            let needed = usage.into_iter().filter(|usage| usage.needed_count > 0);
            needed.map(|usage| KeyId(usage.key_id)).collect()
        }
        Err(error) => {
            output::note(output::printable(&format!(
                "note: keys that the ledger needs and that are missing are not listed: {error}"
            )));
            Vec::new()
        }
    }
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

async fn retire(args: &RetireArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.location), env)?;
    let dir = DataDir::existing(settings.data_dir()?, settings.filesystem_override)?;
    let (id, active) = (args.id, settings.active_key);
    let refused = match keys::check_retirable(&dir.keys(), id, active) {
        Err(error @ KeysError::StillActive { .. }) => Some(("active", error.to_string(), None)),
        Err(error) => return Err(error.into()),
        Ok(()) => {
            let in_use = ledger::keys_in_use(&settings, &dir).await?;
            let needed = in_use.into_iter().find(|u| u.key_id == id.0 && u.needed_count > 0);
            needed.map(|usage| ("needed", needed_words(id, &usage), Some(usage)))
        }
    };
    let Some((outcome, words, needed)) = refused else {
        let file = keys::retire(&dir.keys(), id, active)?;
        return retired(args, &file);
    };
    if args.json {
        output::json(&json!({
            "id": id.0,
            "outcome": outcome,
            "neededBy": needed.map_or(0, |usage| usage.needed_count),
            "unsettled": needed.map_or(0, |usage| usage.unsettled_count),
            "neededUntil": needed.and_then(|usage| usage.needed_until).map(Timestamp::to_rfc3339),
            "message": words,
        }))?;
    } else {
        output::note(format_args!("error: {words}"));
    }
    Ok(Exit::Refused)
}

fn retired(args: &RetireArgs, file: &Path) -> anyhow::Result<Exit> {
    let id = args.id;
    let words = format!(
        "key {id} is retired: nothing reads its file any more; keep it with the backups of the \
         ledger that were made before now"
    );
    if args.json {
        let file = file.to_string_lossy();
        output::json(&json!({ "id": id.0, "outcome": "retired", "file": file, "message": words }))?;
    } else {
        output::data(file.display())?;
        output::note(words);
    }
    Ok(Exit::Done)
}

fn needed_words(id: KeyId, usage: &KeyUsage) -> String {
    let mut words = format!(
        "key {id} is needed by {} of the ledger's operations, and stays as it is",
        usage.needed_count
    );
    if usage.unsettled_count > 0 {
        words.push_str(&format!(
            "; {} of them are unsettled: find them with `counterfoil operation list --unsettled`",
            usage.unsettled_count
        ));
    }
    if let Some(until) = usage.needed_until {
        words.push_str(&format!("; the last retention ends at {}", until.to_rfc3339()));
    }
    words
}

fn table(entries: &[KeyEntry]) -> String {
    let line = |entry: &KeyEntry| {
        let active = if entry.active { "yes" } else { "" };
        let check = entry.check.as_deref().unwrap_or("MISSING");
        format!("{:<4}  {active:<6}  {check:<8}  {}", entry.id.0, entry.file.display())
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
