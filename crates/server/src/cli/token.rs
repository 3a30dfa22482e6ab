//! `counterfoil token`: the bearer tokens of a server that is reached over HTTP.

use clap::{Args, Subcommand};
use counterfoil_core::identity::{Caller, Principal, Tenant};
use counterfoil_core::time::Timestamp;
use counterfoil_store::{Clock as _, SystemClock};
use serde_json::json;

use crate::cli::exit::Exit;
use crate::config::{Environment, Flags, Settings, TokensArgs, parse_span};
use crate::data_dir::DataDir;
use crate::output;
use crate::tokens::{self, NewToken, Right, TokenEntry};

/// Make, list and revoke the tokens that callers over HTTP are known by
///
/// A token says whose calls its bearer makes: a principal, in a tenant. The file keeps nothing but
/// digests of tokens, and a server that runs sees each change at its next request.
#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    Create(CreateArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Make a token and print it, this once
///
/// It goes to stdout; its ID, by which it can be revoked, to stderr.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil token create --principal alice --tenant acme --expires 30d
  counterfoil token create --principal prometheus --allow metrics")]
struct CreateArgs {
    /// Whose calls its bearer makes
    #[arg(long, value_name = "NAME", value_parser = principal)]
    principal: Principal,
    /// The space of operation IDs that the principal shares; tenants never meet
    #[arg(long, value_name = "NAME", default_value = "local", value_parser = tenant)]
    tenant: Tenant,
    /// How long it is valid [default: until it is revoked]
    #[arg(long, value_name = "SPAN", value_parser = lifetime)]
    expires: Option<std::time::Duration>,
    /// What it allows
    #[arg(long, value_name = "RIGHT", value_delimiter = ',', default_value = "tools")]
    allow: Vec<AllowedRight>,
    /// Tell the outcome as JSON on stdout, and nothing on stderr
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: TokensArgs,
}

/// A right, as the command line says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum AllowedRight {
    /// Speak MCP: list and call tools
    Tools,
    /// Read /metrics where it needs a token
    Metrics,
}

/// List the tokens: IDs, whose they are and until when; never the tokens
#[derive(Debug, Args)]
struct ListArgs {
    /// List as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: TokensArgs,
}

/// Refuse a token from now on
///
/// A call that has begun may end; the next one is refused.
#[derive(Debug, Args)]
struct RevokeArgs {
    /// The token's ID (see `counterfoil token list`)
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    location: TokensArgs,
}

/// Runs the verb.
///
/// # Errors
/// [`tokens::TokensError`] and whatever the settings and the data directory give.
pub(super) fn run(args: TokenArgs, env: &Environment) -> anyhow::Result<Exit> {
    match args.command {
        TokenCommand::Create(args) => create(args, env),
        TokenCommand::List(args) => list(&args, env),
        TokenCommand::Revoke(args) => revoke(&args, env),
    }
}

fn create(args: CreateArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.location), env)?;
    let file = settings.tokens_file()?;
    if let Ok(dir) = settings.data_dir()
        && file.parent() == Some(dir)
    {
        DataDir::prepare(dir, settings.filesystem_override)?;
    }
    let now = SystemClock.wall();
    let mut rights: Vec<Right> = args.allow.iter().map(|right| Right::from(*right)).collect();
    rights.dedup();
    let new = NewToken {
        caller: Caller { tenant: args.tenant, principal: args.principal },
        rights,
        expires_at: args.expires.map(|span| now.plus(span)),
    };
    let made = tokens::create(&file, &new, now)?;
    if args.json {
        output::json(&json!({
            "id": made.id,
            "token": made.secret.reveal(),
            "tenant": new.caller.tenant.as_str(),
            "principal": new.caller.principal.as_str(),
            "rights": words(&new.rights),
            "expiresAt": new.expires_at.map(Timestamp::to_rfc3339),
        }))?;
        return Ok(Exit::Done);
    }
    output::data(made.secret.reveal())?;
    let until = new
        .expires_at
        .map_or("until it is revoked".into(), |end| format!("until {}", end.to_rfc3339()));
    output::note(format_args!(
        "made token {} for principal `{}` in tenant `{}`, valid {until}; it is shown this once: \
         keep it like a password",
        made.id, new.caller.principal, new.caller.tenant
    ));
    Ok(Exit::Done)
}

fn list(args: &ListArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.location), env)?;
    let file = settings.tokens_file()?;
    let entries = tokens::list(&file)?;
    if !file.exists() {
        output::note(format_args!(
            "there is no {}, so no token was ever made there; check --data-dir, or make one with \
             `counterfoil token create --principal NAME`",
            file.display()
        ));
    }
    let now = SystemClock.wall();
    if args.json {
        let entry = |entry: &TokenEntry| {
            json!({
                "id": entry.id,
                "tenant": entry.caller.tenant.as_str(),
                "principal": entry.caller.principal.as_str(),
                "rights": words(&entry.rights),
                "state": state(entry, now),
                "createdAt": entry.created_at.to_rfc3339(),
                "expiresAt": entry.expires_at.map(Timestamp::to_rfc3339),
                "revokedAt": entry.revoked_at.map(Timestamp::to_rfc3339),
            })
        };
        output::json(&entries.iter().map(entry).collect::<Vec<_>>())?;
    } else {
        output::data(table(&entries, now))?;
    }
    Ok(Exit::Done)
}

fn revoke(args: &RevokeArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.location), env)?;
    if tokens::revoke(&settings.tokens_file()?, &args.id, SystemClock.wall())? {
        output::note(format_args!("token {} is refused from now on", args.id));
    } else {
        output::note(format_args!("token {} was refused already", args.id));
    }
    Ok(Exit::Done)
}

fn table(entries: &[TokenEntry], now: Timestamp) -> String {
    let widest = |of: fn(&TokenEntry) -> usize, head: &str| {
        entries.iter().map(of).max().unwrap_or(0).max(head.len())
    };
    let tenant = widest(|entry| entry.caller.tenant.as_str().chars().count(), "TENANT");
    let principal = widest(|entry| entry.caller.principal.as_str().chars().count(), "PRINCIPAL");
    let head = format!(
        "{:<8}  {:<7}  {:<tenant$}  {:<principal$}  {:<13}  {:<24}  EXPIRES",
        "ID", "STATE", "TENANT", "PRINCIPAL", "RIGHTS", "CREATED"
    );
    let line = |entry: &TokenEntry| {
        format!(
            "{:<8}  {:<7}  {:<tenant$}  {:<principal$}  {:<13}  {:<24}  {}",
            entry.id,
            state(entry, now),
            output::printable(entry.caller.tenant.as_str()),
            output::printable(entry.caller.principal.as_str()),
            words(&entry.rights).join(","),
            entry.created_at.to_rfc3339(),
            entry.expires_at.map_or("never".into(), Timestamp::to_rfc3339),
        )
    };
    [head].into_iter().chain(entries.iter().map(line)).collect::<Vec<_>>().join("\n")
}

fn state(entry: &TokenEntry, now: Timestamp) -> &'static str {
    match (entry.revoked_at, entry.is_live(now)) {
        (Some(_), _) => "revoked",
        (None, true) => "valid",
        (None, false) => "expired",
    }
}

fn words(rights: &[Right]) -> Vec<&'static str> {
    rights.iter().map(|right| right.as_str()).collect()
}

impl From<AllowedRight> for Right {
    fn from(right: AllowedRight) -> Self {
        match right {
            AllowedRight::Tools => Self::Tools,
            AllowedRight::Metrics => Self::Metrics,
        }
    }
}

fn principal(text: &str) -> Result<Principal, String> {
    Principal::parse(text).map_err(|error| error.to_string())
}

fn tenant(text: &str) -> Result<Tenant, String> {
    Tenant::parse(text).map_err(|error| error.to_string())
}

fn lifetime(text: &str) -> Result<std::time::Duration, String> {
    match parse_span(text)? {
        span if span.is_zero() => {
            Err("a token must be valid for some time; give more than 0".into())
        }
        span => Ok(span),
    }
}
