//! `delivery show`: one item with all that an operator needs to decide.

use std::sync::Arc;

use clap::Args;
use counterfoil_core::identity::{OperationId, Tenant};
use counterfoil_store::StoreError;
use counterfoil_store::outbox::Outbox;
use serde_json::json;

use super::report::Report;
use crate::cli::exit::Exit;
use crate::cli::ticket::{absent_words, find, quarantined_words};
use crate::config::LocationArgs;
use crate::output;

/// Show one delivery, and what may be done with it now; changes nothing
///
/// Shows its state and attempts, the last error, the terms on which it is delivered, its target, and
/// for each order whether it would be taken and why not. The request holds the call's arguments and
/// is shown only with --request, its credential masked. The audit trail is at `counterfoil audit
/// show`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil delivery show tkt_0199c0a7d9e87c3aa1f5b2c4d6e8f001
  counterfoil delivery show ticket-4711 --tenant acme --request --json

Exits with 1 if the ledger has no such delivery. That proves nothing: the call may still arrive.")]
pub(super) struct ShowArgs {
    /// The ticket's ID, or its operation's
    #[arg(value_name = "ID", value_parser = OperationId::parse)]
    id: OperationId,
    /// The space of the operation's ID; over stdio it is `local`
    #[arg(long, value_name = "TENANT", value_parser = Tenant::parse, default_value = "local")]
    tenant: Tenant,
    /// Show the frozen request too
    #[arg(long)]
    request: bool,
    /// Show as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) location: LocationArgs,
}

/// Prints the item.
///
/// # Errors
/// If the ledger cannot be read or stdout cannot be written.
pub(super) async fn show(outbox: &dyn Outbox, args: &ShowArgs) -> anyhow::Result<Exit> {
    let found = match find(outbox, &args.tenant, &args.id).await {
        Ok(Some(view)) => Ok(view),
        Ok(None) => Err(("absent", absent_words(outbox, &args.tenant, &args.id))),
        Err(StoreError::Quarantined { .. }) => {
            Err(("quarantined", quarantined_words(args.id.as_str())))
        }
        Err(error) => return Err(error.into()),
    };
    let view = match found {
        Ok(view) => view,
        Err((detail, words)) if args.json => {
            output::json(&json!({
                "id": args.id, "tenant": args.tenant, "found": false, "detail": detail,
                "message": words,
            }))?;
            return Ok(Exit::Failed);
        }
        Err((_, words)) => {
            output::note(format_args!("error: {words}"));
            return Ok(Exit::Failed);
        }
    };
    let request: Option<Arc<[u8]>> = match args.request {
        true => outbox.request(view.delivery.key).await?,
        false => None,
    };
    let report = Report::new(outbox.backend_id(), &view, outbox.now());
    if args.json {
        output::json(&report.to_json(args.request, request.as_deref()))?;
    } else {
        output::data(report.to_text(args.request, request.as_deref()))?;
    }
    Ok(Exit::Done)
}
