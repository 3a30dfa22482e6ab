//! `counterfoil operation`: what became of operations, and what only a person can decide.

mod json;
mod list;
mod report;

use clap::{ArgGroup, Args, Subcommand};
use counterfoil_core::identity::{OperationId, Tenant};
use counterfoil_core::limits::MAX_NOTE_BYTES;
use counterfoil_core::observation::Snapshot;
use counterfoil_core::operation::{IllegalTransition, Phase, State, Verdict};
use counterfoil_core::record::{Nature, Record, Resolution};
use counterfoil_store::outbox::{DeliveryView, Outbox, Which as WhichDelivery};
use counterfoil_store::{Resolve, Resolved, Store, StoreError};
use serde_json::json;

use super::ticket::{key_of, ticket_id};
use super::{ledger, who};
use crate::cli::exit::Exit;
use crate::config::{Environment, Flags, LocationArgs, Settings};
use crate::output;
use report::Report;

/// List operations, look at one, or settle one that only a person can settle
#[derive(Debug, Args)]
pub(super) struct OperationArgs {
    #[command(subcommand)]
    command: OperationCommand,
}

#[derive(Debug, Subcommand)]
enum OperationCommand {
    List(list::ListArgs),
    Show(ShowArgs),
    Resolve(ResolveArgs),
}

/// Show what the ledger has on an operation; changes nothing
///
/// Shows the record, whether the row that it names is still there as the effect left it, and the
/// audit trail. The result itself may be confidential and is shown only with --show-result.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil operation show 7c1e4a52-0c7b-4c58-9f6e-3a1f0f2f9a11
  counterfoil operation show ticket-4711 --show-result --json

Exits with 1 if the ledger has no such operation. That proves nothing: it may still arrive.")]
struct ShowArgs {
    #[command(flatten)]
    which: Which,
    /// Show the stored result too
    #[arg(long)]
    show_result: bool,
    /// Show as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: LocationArgs,
}

/// Settle an operation that is unfinished or in doubt
///
/// First look whether the effect is there: nothing here looks for you. An unfinished operation can
/// be resolved once its owner's lease (30 s) has ended; of one that is delivered later, the dead
/// letter and what is in doubt, and, as --applied, what was settled as not applied and of which the
/// target said later that it did it. Who, why and the proof stay in the audit trail. The operation is
/// never run again; --not-applied without --proof, while a sender may still be alive, does not tell
/// the caller to try again.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("verdict").required(true).args(["applied", "not_applied"]))]
#[command(after_long_help = "\
Examples:
  counterfoil operation resolve ticket-4711 --applied --reason \"the issue is there, I looked\"
  counterfoil operation resolve ticket-4711 --not-applied --as mara \\
      --reason \"the server died between the two steps; I removed the issue\" \\
      --proof \"issue 17 deleted, change 2231\"

Exits with 4 if the ledger refuses: the operation is settled, a server may still be at work on it,
or the ledger sees the contrary; with 1 if there is no such operation.")]
struct ResolveArgs {
    #[command(flatten)]
    which: Which,
    /// The effect is there
    #[arg(long)]
    applied: bool,
    /// The effect is not there, and nothing will still make it
    #[arg(long)]
    not_applied: bool,
    /// Why you say so
    #[arg(long, value_name = "TEXT", value_parser = note_text)]
    reason: String,
    /// Who says so [default: the user who runs this, else their number]
    #[arg(long = "as", alias = "who", value_name = "WHO", value_parser = note_text)]
    who: Option<String>,
    /// How you know; needed to contradict a row that the ledger sees
    #[arg(long, value_name = "TEXT", value_parser = note_text)]
    proof: Option<String>,
    /// Tell the outcome as JSON on stdout, and nothing on stderr
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: LocationArgs,
}

#[derive(Debug, Args)]
struct Which {
    /// The operation's ID, or its ticket's (tkt_…)
    #[arg(value_name = "ID", value_parser = OperationId::parse)]
    id: OperationId,
    /// The space of its ID; over stdio it is `local`
    #[arg(long, value_name = "TENANT", value_parser = Tenant::parse, default_value = "local")]
    tenant: Tenant,
}

impl Which {
    /// The operation of a ticket, if this is a ticket's ID.
    async fn of_ticket(&self, store: &dyn Outbox) -> Result<Self, StoreError> {
        let Self { id, tenant } = self;
        let found = match key_of(id.as_str()) {
            Some(key) => store.delivery(WhichDelivery::Key(key)).await?,
            None => None,
        };
        let record = found.map(|view| view.record);
        let id = record.as_ref().map_or(id, |record| &record.operation_id).clone();
        let tenant = record.as_ref().map_or(tenant, |record| &record.tenant).clone();
        Ok(Self { id, tenant })
    }
}

/// Runs the verb.
///
/// # Errors
/// Whatever keeps the ledger from being opened or read.
pub(super) async fn run(args: OperationArgs, env: &Environment) -> anyhow::Result<Exit> {
    let location = match &args.command {
        OperationCommand::List(args) => &args.location,
        OperationCommand::Show(args) => &args.location,
        OperationCommand::Resolve(args) => &args.location,
    };
    let settings = Settings::load(&Flags::from(location), env)?;
    let (store, dir) = ledger::open(&settings).await?;
    let done = match &args.command {
        OperationCommand::List(args) => list::list(&*store, args).await,
        OperationCommand::Show(args) => show(&*store, args).await,
        OperationCommand::Resolve(args) => {
            let who = args.who.clone().unwrap_or_else(|| who::of_process(env));
            resolve(&*store, args, who).await
        }
    };
    store.close().await?;
    done.map_err(|error| ledger::for_operator(error, &dir))
}

async fn show(store: &dyn Outbox, args: &ShowArgs) -> anyhow::Result<Exit> {
    let Which { id, tenant } = &args.which.of_ticket(store).await?;
    let snapshot = store.look_up(tenant, id).await?;
    let Snapshot::Found { record, .. } = &snapshot else {
        let quarantined = snapshot == Snapshot::Quarantined;
        let words =
            if quarantined { quarantined_words(id) } else { absent_words(store, tenant, id) };
        if args.json {
            let state = if quarantined { "quarantined" } else { "absent" };
            output::json(&json!({
                "operationId": id, "tenant": tenant, "found": false, "detail": state,
                "message": words,
            }))?;
        } else {
            output::note(format_args!("error: {words}"));
        }
        return Ok(Exit::Failed);
    };
    let audit = store.audit(record.key).await?;
    let delivery = match is_deferred(record) {
        true => store.delivery(WhichDelivery::Key(record.key)).await?,
        false => None,
    };
    let delivery = delivery.as_ref();
    let report = Report::new(store.backend_id(), &snapshot, record, &audit, store.now());
    let report = report.with_delivery(delivery);
    if args.json {
        output::json(&report.to_json(args.show_result))?;
    } else {
        output::data(report.to_text(args.show_result))?;
        if !record.state.is_terminal() {
            output::note(next_step(id, record, delivery));
        }
    }
    Ok(Exit::Done)
}

async fn resolve(store: &dyn Outbox, args: &ResolveArgs, who: String) -> anyhow::Result<Exit> {
    let Which { id, tenant } = &args.which.of_ticket(store).await?;
    let verdict = if args.applied { Verdict::Applied } else { Verdict::NotApplied };
    let resolved = store
        .resolve(Resolve {
            tenant: tenant.clone(),
            operation_id: id.clone(),
            verdict,
            who: who.clone(),
            reason: args.reason.clone(),
            proof: args.proof.clone(),
        })
        .await?;
    let told = match &resolved {
        Resolved::Absent => Told::new("absent", Exit::Failed, absent_words(store, tenant, id)),
        other => tell(id, other, &who),
    };
    if args.json {
        output::json(&json!({
            "operationId": id,
            "tenant": tenant,
            "outcome": told.outcome,
            "state": told.state,
            "message": told.message,
        }))?;
    } else if told.exit == Exit::Done {
        output::note(told.message);
    } else {
        output::note(format_args!("error: {}", told.message));
    }
    Ok(told.exit)
}

/// An outcome in words.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    outcome: &'static str,
    exit: Exit,
    /// The operation's state, where it is known.
    state: Option<&'static str>,
    message: String,
}

impl Told {
    fn new(outcome: &'static str, exit: Exit, message: String) -> Self {
        Self { outcome, exit, state: None, message }
    }
}

fn tell(id: &OperationId, resolved: &Resolved, who: &str) -> Told {
    match resolved {
        Resolved::Done(record) => Told {
            state: Some(record.state.as_str()),
            ..Told::new("resolved", Exit::Done, done_words(id, record, who))
        },
        Resolved::Absent => {
            Told::new("absent", Exit::Failed, format!("there is no operation `{id}`"))
        }
        Resolved::Quarantined => Told::new("quarantined", Exit::Failed, quarantined_words(id)),
        Resolved::Illegal(illegal) => Told {
            state: illegal.from.map(State::as_str),
            ..Told::new("illegal", Exit::Refused, illegal_words(id, illegal))
        },
        Resolved::Owned { until } => Told::new(
            "owned",
            Exit::Refused,
            format!(
                "a server may still be at work on operation `{id}`; nothing was changed: stop that \
                 server, or run this again after {}, when its lease ends",
                until.to_rfc3339()
            ),
        ),
        Resolved::EffectStands { table, id: row } => Told::new(
            "effect_stands",
            Exit::Refused,
            format!(
                "operation `{id}` made row {row} of `{table}`, and it is still there; nothing was \
                 changed: use --applied, or undo the effect and say how with --proof"
            ),
        ),
        Resolved::EffectGone { table, id: row } => Told::new(
            "effect_gone",
            Exit::Refused,
            format!(
                "operation `{id}` made row {row} of `{table}`, and it is gone; nothing was changed: \
                 use --not-applied, or find out who removed the row"
            ),
        ),
    }
}

fn done_words(id: &OperationId, record: &Record, who: &str) -> String {
    let mut words = format!(
        "operation `{id}` is settled as {}; the audit trail names {who} and the reason",
        record.state.as_str()
    );
    if record.resolution == Some(Resolution::Unproved) {
        words.push_str(
            "\nwithout --proof its callers are still told not to send it again (retry: status_only)",
        );
    }
    words
}

fn illegal_words(id: &OperationId, illegal: &IllegalTransition) -> String {
    match illegal.from {
        Some(state) if state.is_terminal() => format!(
            "operation `{id}` is settled already, as {}; nothing was changed, and what is settled \
             stays settled",
            state.as_str()
        ),
        Some(State::InProgress(Phase::Queued)) => format!(
            "the delivery of operation `{id}` is on its way; nothing was changed: run `counterfoil \
             delivery show {id}`, and wait for its outcome, or `counterfoil delivery cancel {id}` \
             first"
        ),
        Some(State::InProgress(Phase::Claimed)) => format!(
            "operation `{id}` was begun and nothing was sent; nothing was changed: the caller can \
             send the same call again with the same ID"
        ),
        Some(state) => format!(
            "operation `{id}` cannot be resolved while it is {}; nothing was changed: run \
             `counterfoil operation show` and wait for its server",
            state.as_str()
        ),
        None => format!("there is no operation `{id}`; nothing was changed"),
    }
}

/// Whether its effect is delivered later, from the outbox.
pub(super) fn is_deferred(record: &Record) -> bool {
    record.nature == Nature::Deferred
}

/// That there is no such operation, and what that proves.
pub(super) fn absent_words(store: &dyn Store, tenant: &Tenant, id: &OperationId) -> String {
    format!(
        "the ledger `{}` has no operation `{id}` for the tenant `{tenant}`; check the ID, --tenant \
         and --data-dir. It proves nothing: the call may still arrive",
        store.backend_id()
    )
}

/// That its record cannot be believed.
pub(super) fn quarantined_words(id: &OperationId) -> String {
    format!(
        "the record of operation `{id}` fails its own checks and was set aside; nothing in it is \
         believed: run `counterfoil store check FILE` on the ledger"
    )
}

fn next_step(id: &OperationId, record: &Record, delivery: Option<&DeliveryView>) -> String {
    if let Some(view) = delivery {
        return format!(
            "what may be done with its delivery: counterfoil delivery show {}",
            ticket_id(view.delivery.key)
        );
    }
    match record.state {
        State::InProgress(Phase::Claimed) => {
            "nothing was sent: the caller can send the same call again with the same ID".into()
        }
        _ => format!(
            "if no server is at work on it any more: look whether the effect is there, then run\n  \
             counterfoil operation resolve {id} --applied|--not-applied --reason TEXT"
        ),
    }
}

/// Text that an operator gives for the record.
pub(super) fn note_text(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("it is blank; write a few words that somebody can follow later".into());
    }
    if text.len() > MAX_NOTE_BYTES {
        return Err(format!("it has {} bytes; at most {MAX_NOTE_BYTES} are kept", text.len()));
    }
    if text.chars().any(|c| c.is_control() && c != '\n') {
        return Err("it holds control characters; use printable text".into());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
#[path = "operation/tests.rs"]
mod tests;
