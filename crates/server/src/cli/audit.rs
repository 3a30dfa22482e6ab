//! `counterfoil audit`: what happened to an operation, step by step, with who and why.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use counterfoil_core::identity::{OperationId, OperationKey, Tenant};
use counterfoil_core::observation::Snapshot;
use counterfoil_store::outbox::Outbox;
use counterfoil_store::{AuditEvent, StoreError};
use serde::Serialize;
use serde_json::json;

use super::ticket::{self, ticket_id};
use super::{ledger, operation};
use crate::cli::exit::Exit;
use crate::config::{Environment, Flags, LocationArgs, Settings};
use crate::output::{self, printable};

/// Show the audit trail of an operation
#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    Show(ShowArgs),
}

/// Show all that happened to an operation; changes nothing
///
/// Every step with its time, who took it, and the reason and the proof that a person gave. Holds no
/// argument, no result and no credential.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil audit show ticket-4711
  counterfoil audit show tkt_0199c0a7d9e87c3aa1f5b2c4d6e8f001 --json

Exits with 1 if the ledger has no such operation.")]
struct ShowArgs {
    /// The operation's ID, or its ticket's
    #[arg(value_name = "ID", value_parser = OperationId::parse)]
    id: OperationId,
    /// The space of the operation's ID; over stdio it is `local`
    #[arg(long, value_name = "TENANT", value_parser = Tenant::parse, default_value = "local")]
    tenant: Tenant,
    /// Show as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: LocationArgs,
}

/// Runs the verb.
///
/// # Errors
/// Whatever keeps the ledger from being opened or read.
pub(super) async fn run(args: AuditArgs, env: &Environment) -> anyhow::Result<Exit> {
    let AuditCommand::Show(args) = args.command;
    let settings = Settings::load(&Flags::from(&args.location), env)?;
    let (outbox, dir) = ledger::open(&settings).await?;
    let done = show(&*outbox, &args).await;
    outbox.close().await?;
    done.map_err(|error| ledger::for_operator(error, &dir))
}

/// An operation whose trail is wanted.
struct Subject {
    key: OperationKey,
    tenant: Tenant,
    id: OperationId,
    is_deferred: bool,
}

async fn show(outbox: &dyn Outbox, args: &ShowArgs) -> anyhow::Result<Exit> {
    let subject = match find(outbox, args).await? {
        Ok(subject) => subject,
        Err(words) => {
            if args.json {
                output::json(&json!({
                    "operationId": args.id, "tenant": args.tenant, "found": false,
                    "message": words,
                }))?;
            } else {
                output::note(format_args!("error: {words}"));
            }
            return Ok(Exit::Failed);
        }
    };
    let trail = outbox.audit(subject.key).await?;
    if args.json {
        output::json(&json!({
            "operationId": subject.id,
            "tenant": subject.tenant,
            "ticketId": subject.is_deferred.then(|| ticket_id(subject.key)),
            "found": true,
            "audit": trail.iter().map(EventJson::from).collect::<Vec<_>>(),
        }))?;
    } else {
        output::data(trail_text(&trail, &subject.id).trim_end())?;
    }
    Ok(Exit::Done)
}

/// The inner error is what to tell where there is none.
async fn find(outbox: &dyn Outbox, args: &ShowArgs) -> Result<Result<Subject, String>, StoreError> {
    if let Some(key) = ticket::key_of(args.id.as_str())
        && let Some(view) = outbox.delivery(counterfoil_store::outbox::Which::Key(key)).await?
    {
        let (tenant, id) = (view.record.tenant, view.record.operation_id);
        return Ok(Ok(Subject { key, tenant, id, is_deferred: true }));
    }
    Ok(match outbox.look_up(&args.tenant, &args.id).await? {
        Snapshot::Found { record, .. } => Ok(Subject {
            key: record.key,
            is_deferred: operation::is_deferred(&record),
            tenant: record.tenant,
            id: record.operation_id,
        }),
        Snapshot::Absent => Err(operation::absent_words(outbox, &args.tenant, &args.id)),
        Snapshot::Quarantined => Err(operation::quarantined_words(&args.id)),
    })
}

/// The trail, an event a line and what more there is below it. `own` is the operation's ID: a step
/// under another identity names it.
pub(super) fn trail_text(trail: &[AuditEvent], own: &OperationId) -> String {
    let mut text = String::new();
    let width = trail.iter().map(|event| event.kind.chars().count()).max().unwrap_or(0);
    for event in trail {
        let line = format!(
            "{:>3}  {}  {:<width$}  {}",
            event.seq,
            event.at.to_rfc3339(),
            event.kind,
            event.who
        );
        let _ = writeln!(text, "{}", printable(&line));
        let mut more = |name: &str, value: Option<&str>| {
            if let Some(value) = value {
                let value = printable(value).replace('\n', "\n             ");
                let _ = writeln!(text, "     {name}: {value}");
            }
        };
        let other = event.identity != own.as_str();
        more("under", (other && !event.identity.is_empty()).then_some(&event.identity));
        more("reason", event.reason.as_deref());
        more("proof", event.proof.as_deref());
    }
    text
}

/// One event for programs.
#[derive(Debug, Serialize)]
pub(super) struct EventJson<'a> {
    seq: i64,
    at: String,
    kind: &'a str,
    identity: &'a str,
    who: &'a str,
    reason: Option<&'a str>,
    proof: Option<&'a str>,
}

impl<'a> From<&'a AuditEvent> for EventJson<'a> {
    fn from(event: &'a AuditEvent) -> Self {
        Self {
            seq: event.seq,
            at: event.at.to_rfc3339(),
            kind: &event.kind,
            identity: &event.identity,
            who: &event.who,
            reason: event.reason.as_deref(),
            proof: event.proof.as_deref(),
        }
    }
}
