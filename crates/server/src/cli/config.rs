//! `counterfoil config`: which settings are in force.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::UsageError;
use crate::cli::exit::Exit;
use crate::config::{Effective, EffectiveValue, Environment, Flags, SettingsArgs, StoreKind};
use crate::output::{self, printable};

/// Look at the settings
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    Check(CheckArgs),
}

/// Check the settings, and show which are in force and where each comes from
///
/// Reads what `serve` would read with the same flags, in the same environment, and makes nothing.
/// Every mistake of every source is told at once.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil config check
  counterfoil config check --config ./counterfoil.toml --json

Exits with 2 if a setting cannot be used.")]
struct CheckArgs {
    /// Tell the outcome as JSON on stdout, and nothing on stderr
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Runs the verb.
///
/// # Errors
/// Every mistake in the settings, unless they are told as JSON.
pub(super) fn run(args: &ConfigArgs, env: &Environment) -> anyhow::Result<Exit> {
    let ConfigCommand::Check(args) = &args.command;
    let effective = match load(args, env) {
        Ok(effective) => effective,
        Err(problems) if args.json => {
            output::json(&refused(&problems.each))?;
            return Ok(Exit::Usage);
        }
        Err(problems) => return Err(problems.error),
    };
    if args.json {
        output::json(&as_json(&effective))?;
    } else {
        output::data(table(&effective))?;
        let doubts = effective.settings.doubts();
        doubts.iter().for_each(|doubt| output::note(format_args!("warning: {doubt}")));
    }
    Ok(Exit::Done)
}

/// Why the settings cannot be used: for people as one error, for programs one by one.
struct Problems {
    error: anyhow::Error,
    each: Vec<String>,
}

fn load(args: &CheckArgs, env: &Environment) -> Result<Effective, Problems> {
    let flags = Flags::from(&args.settings);
    let effective = Effective::load(&flags, env)
        .map_err(|error| Problems { each: error.problems().collect(), error: error.into() })?;
    // Each setting is good by itself, and yet a server would not know where its ledger is.
    match effective.settings.data_dir() {
        Err(error) if effective.settings.store == StoreKind::Sqlite => {
            let words = error.to_string();
            Err(Problems { each: vec![words.clone()], error: UsageError(words).into() })
        }
        _ => Ok(effective),
    }
}

fn table(effective: &Effective) -> String {
    let mut rows = vec![["SETTING", "VALUE", "SOURCE"].map(str::to_owned)];
    rows.extend(effective.values.iter().map(|value| {
        let shown = value.value.as_deref().unwrap_or("-");
        [value.key.name().to_owned(), printable(shown), printable(&value.source.to_string())]
    }));
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let (name, value) = (width(0), width(1));
    let line = |row: &[String; 3]| format!("{:<name$}  {:<value$}  {}", row[0], row[1], row[2]);
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.push(match &effective.settings.config_file {
        Some(path) => format!("\nfile: {}", printable(&path.display().to_string())),
        None => "\nfile: none".to_owned(),
    });
    lines.join("\n")
}

fn as_json(effective: &Effective) -> Value {
    let value = |value: &EffectiveValue| {
        json!({
            "name": value.key.name(),
            "value": value.value,
            "source": value.source.kind(),
            "place": value.source.to_string(),
        })
    };
    json!({
        "usable": true,
        "file": effective.settings.config_file.as_ref().map(|path| path.to_string_lossy()),
        "settings": effective.values.iter().map(value).collect::<Vec<_>>(),
        "problems": [],
        "warnings": effective.settings.doubts(),
    })
}

fn refused(problems: &[String]) -> Value {
    json!({ "usable": false, "file": null, "settings": [], "problems": problems, "warnings": [] })
}
