//! `counterfoil principal` and `counterfoil tenant`: who may not write any more.

use clap::{Args, Subcommand};
use counterfoil_core::identity::{Principal, Tenant};
use counterfoil_store::outbox::{Outbox, RevokeOrder, Revoked};
use serde_json::{Value, json};

use super::operation::note_text;
use super::table::table;
use super::{ledger, who};
use crate::cli::exit::Exit;
use crate::config::{Environment, Flags, LocationArgs, Settings};
use crate::output;

/// Keep a principal from writing, or let it write again
///
/// Concerns what is delivered later: new calls of the revoked are refused, and what waits is parked
/// before its first byte. To end bearer tokens see `counterfoil token revoke`.
#[derive(Debug, Args)]
pub(super) struct PrincipalArgs {
    #[command(subcommand)]
    command: PrincipalCommand,
}

#[derive(Debug, Subcommand)]
enum PrincipalCommand {
    List(ListArgs),
    /// Refuse a principal's new deliveries, and hold back those that wait
    ///
    /// What a worker is sending at that moment ends as it ends. What waits is parked when its turn
    /// comes, keeps its attempts, and goes on after a restore.
    #[command(after_long_help = "\
Example:
  counterfoil principal revoke alice --reason \"left the company\"")]
    Revoke(PrincipalOrder),
    /// Let a revoked principal write again, and send what was held back
    #[command(after_long_help = "\
Example:
  counterfoil principal restore alice --reason \"was a mistake\"")]
    Restore(PrincipalOrder),
}

/// Keep a tenant with all its principals from writing, or let it write again
///
/// As `counterfoil principal`, for all of a tenant at once.
#[derive(Debug, Args)]
pub(super) struct TenantArgs {
    #[command(subcommand)]
    command: TenantCommand,
}

#[derive(Debug, Subcommand)]
enum TenantCommand {
    List(ListArgs),
    /// Refuse a tenant's new deliveries, and hold back those that wait
    #[command(after_long_help = "\
Example:
  counterfoil tenant revoke acme --reason \"contract ended\"")]
    Revoke(TenantOrder),
    /// Let a revoked tenant write again, and send what was held back
    ///
    /// A principal that was revoked by itself stays revoked.
    #[command(after_long_help = "\
Example:
  counterfoil tenant restore acme --reason \"contract renewed\"")]
    Restore(TenantOrder),
}

/// List who is revoked, with who said so and why; changes nothing
#[derive(Debug, Args)]
struct ListArgs {
    /// List as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: LocationArgs,
}

// No documentation of its own: it would become that of the command.
#[derive(Debug, Args)]
struct PrincipalOrder {
    /// The principal
    #[arg(value_name = "NAME", value_parser = Principal::parse)]
    name: Principal,
    /// Its tenant; over stdio it is `local`
    #[arg(long, value_name = "TENANT", value_parser = Tenant::parse, default_value = "local")]
    tenant: Tenant,
    #[command(flatten)]
    why: WhyArgs,
}

// As above.
#[derive(Debug, Args)]
struct TenantOrder {
    /// The tenant
    #[arg(value_name = "NAME", value_parser = Tenant::parse)]
    name: Tenant,
    #[command(flatten)]
    why: WhyArgs,
}

// As above.
#[derive(Debug, Args)]
struct WhyArgs {
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

/// What is wanted of either noun.
enum Wanted<'a> {
    List { args: &'a ListArgs, of_principals: bool },
    Set { tenant: Tenant, principal: Option<Principal>, revoked: bool, why: &'a WhyArgs },
}

/// Runs a verb of `principal`.
///
/// # Errors
/// Whatever keeps the ledger from being opened, read or written.
pub(super) async fn run_principal(args: PrincipalArgs, env: &Environment) -> anyhow::Result<Exit> {
    let set = |order: &'_ PrincipalOrder| (order.tenant.clone(), Some(order.name.clone()));
    let wanted = match &args.command {
        PrincipalCommand::List(args) => Wanted::List { args, of_principals: true },
        PrincipalCommand::Revoke(order) => {
            let (tenant, principal) = set(order);
            Wanted::Set { tenant, principal, revoked: true, why: &order.why }
        }
        PrincipalCommand::Restore(order) => {
            let (tenant, principal) = set(order);
            Wanted::Set { tenant, principal, revoked: false, why: &order.why }
        }
    };
    run(&wanted, env).await
}

/// Runs a verb of `tenant`.
///
/// # Errors
/// As [`run_principal`].
pub(super) async fn run_tenant(args: TenantArgs, env: &Environment) -> anyhow::Result<Exit> {
    let set = |order: &'_ TenantOrder| order.name.clone();
    let wanted = match &args.command {
        TenantCommand::List(args) => Wanted::List { args, of_principals: false },
        TenantCommand::Revoke(order) => {
            Wanted::Set { tenant: set(order), principal: None, revoked: true, why: &order.why }
        }
        TenantCommand::Restore(order) => {
            Wanted::Set { tenant: set(order), principal: None, revoked: false, why: &order.why }
        }
    };
    run(&wanted, env).await
}

async fn run(wanted: &Wanted<'_>, env: &Environment) -> anyhow::Result<Exit> {
    let location = match wanted {
        Wanted::List { args, .. } => &args.location,
        Wanted::Set { why, .. } => &why.location,
    };
    let settings = Settings::load(&Flags::from(location), env)?;
    let (outbox, dir) = ledger::open(&settings).await?;
    let done = match wanted {
        Wanted::List { args, of_principals } => list(&*outbox, args, *of_principals).await,
        Wanted::Set { tenant, principal, revoked, why } => {
            let order = RevokeOrder {
                tenant: tenant.clone(),
                principal: principal.clone(),
                revoked: *revoked,
                who: why.who.clone().unwrap_or_else(|| who::of_process(env)),
                reason: why.reason.clone(),
            };
            set(&*outbox, order, why.json).await
        }
    };
    outbox.close().await?;
    done.map_err(|error| ledger::for_operator(error, &dir))
}

/// A tenant's own revocation counts for each of its principals, so `principal list` shows both.
async fn list(outbox: &dyn Outbox, args: &ListArgs, of_principals: bool) -> anyhow::Result<Exit> {
    let mut revoked = outbox.revoked().await?;
    revoked.retain(|entry| of_principals || entry.principal.is_none());
    if args.json {
        output::json(&json!({ "revoked": revoked.iter().map(as_json).collect::<Vec<_>>() }))?;
    } else if revoked.is_empty() {
        output::note("nobody is revoked");
    } else {
        let row = |entry: &Revoked| {
            [
                entry.tenant.to_string(),
                entry.principal.as_ref().map_or_else(|| "(all)".to_owned(), ToString::to_string),
                entry.since.to_rfc3339(),
                entry.who.clone(),
                entry.reason.clone(),
            ]
        };
        let rows: Vec<[String; 5]> = revoked.iter().map(row).collect();
        output::data(table(["TENANT", "PRINCIPAL", "REVOKED", "BY", "REASON"], &rows))?;
    }
    Ok(Exit::Done)
}

fn as_json(entry: &Revoked) -> Value {
    json!({
        "tenant": entry.tenant,
        "principal": entry.principal,
        "since": entry.since.to_rfc3339(),
        "who": entry.who,
        "reason": entry.reason,
    })
}

async fn set(outbox: &dyn Outbox, order: RevokeOrder, json: bool) -> anyhow::Result<Exit> {
    let named =
        |entry: &Revoked| entry.tenant == order.tenant && entry.principal == order.principal;
    let before = outbox.revoked().await?.into_iter().find(named);
    // Also where nothing changes: a release that was cut short goes on.
    outbox.set_revoked(order.clone()).await?;
    let whole_tenant = |entry: &Revoked| entry.tenant == order.tenant && entry.principal.is_none();
    let tenant_stands =
        order.principal.is_some() && outbox.revoked().await?.iter().any(whole_tenant);
    let words = words(&order, before.as_ref(), tenant_stands);
    if json {
        output::json(&json!({
            "tenant": order.tenant,
            "principal": order.principal,
            "revoked": order.revoked,
            "changed": before.is_some() != order.revoked,
            "message": words,
        }))?;
    } else {
        output::note(words);
    }
    Ok(Exit::Done)
}

fn words(order: &RevokeOrder, before: Option<&Revoked>, tenant_stands: bool) -> String {
    let tenant = &order.tenant;
    let whose = match &order.principal {
        Some(principal) => format!("the principal `{principal}` of the tenant `{tenant}`"),
        None => format!("the tenant `{tenant}`"),
    };
    let mut words = match (order.revoked, before) {
        (true, Some(entry)) => format!(
            "{whose} was revoked already, by {} since {}",
            entry.who,
            entry.since.to_rfc3339()
        ),
        (true, None) => format!(
            "{whose} is revoked: new calls are refused, and waiting deliveries are parked before \
             their first byte"
        ),
        (false, Some(_)) => format!("{whose} may write again; what was held back is queued"),
        (false, None) => format!("{whose} was not revoked; nothing was changed"),
    };
    if !order.revoked && tenant_stands {
        words.push_str(&format!(
            "\nits tenant is revoked, so nothing of it is sent yet: `counterfoil tenant restore \
             {tenant} --reason TEXT`"
        ));
    }
    words
}
