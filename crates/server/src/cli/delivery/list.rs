//! `delivery list`: what the outbox holds, for people as a table and for programs as JSON.

use clap::Args;
use counterfoil_core::delivery::{Delivery, TargetState};
use counterfoil_core::identity::{OperationKey, Tenant};
use counterfoil_core::listing::{InvalidPageLimit, PageLimit};
use counterfoil_core::time::Timestamp;
use counterfoil_store::outbox::{DeliveryView, Outbox};
use serde_json::{Value, json};

use super::filter::FilterArgs;
use crate::cli::exit::Exit;
use crate::cli::table::{hex, table};
use crate::cli::ticket::{key_of_digits, ticket_id};
use crate::config::LocationArgs;
use crate::output;

/// List deliveries, the newest first; changes nothing
///
/// Shows no argument, no result and no credential. A page can be short, or empty, while there is
/// more: the command for the next page is told on stderr.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil delivery list --state dead_letter --state in_doubt
  counterfoil delivery list --target helpdesk --class connect --older-than 1h --all --json

States: queued, leased, sending, delivered, dead_letter, parked, in_doubt, cancelled. The column
MAYBE DONE counts the attempts that may have taken effect and are not proved not to have.")]
pub(super) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Only those of this tenant [default: all]
    #[arg(long, value_name = "TENANT", value_parser = Tenant::parse, help_heading = "Which")]
    tenant: Option<Tenant>,
    /// How many at most, 1 to 200 [default: 50]
    #[arg(long, value_name = "N", value_parser = limit, conflicts_with = "all")]
    limit: Option<PageLimit>,
    /// List all, page after page
    #[arg(long)]
    all: bool,
    /// Go on where the last page ended
    #[arg(long, value_name = "CURSOR", value_parser = cursor, conflicts_with = "all")]
    cursor: Option<OperationKey>,
    /// List as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) location: LocationArgs,
}

const HEAD: [&str; 9] = [
    "TICKET",
    "STATE",
    "TARGET",
    "ATTEMPTS",
    "MAYBE DONE",
    "LAST ERROR",
    "NEXT ATTEMPT",
    "ACCEPTED",
    "OPERATION",
];

/// What was read, only as it is shown: all of a large outbox must fit.
#[derive(Default)]
struct Shown {
    rows: Vec<[String; HEAD.len()]>,
    items: Vec<Value>,
    damaged_count: usize,
    next: Option<OperationKey>,
}

/// Prints a page, or all of them.
///
/// # Errors
/// If the ledger cannot be read or stdout cannot be written.
pub(super) async fn list(outbox: &dyn Outbox, args: &ListArgs) -> anyhow::Result<Exit> {
    args.filter.check_target(outbox).await?;
    let mut query = args.filter.query(args.tenant.clone(), &[], outbox.now());
    query.max_count = if args.all { usize::MAX } else { args.limit.unwrap_or_default().count() };
    query.after = args.cursor;
    let mut shown = Shown::default();
    loop {
        let page = outbox.deliveries(query.clone()).await?;
        if args.json {
            shown.items.extend(page.items.iter().map(item_json));
        } else {
            shown.rows.extend(page.items.iter().map(row));
        }
        shown.damaged_count += page.damaged_count;
        shown.next = page.next;
        query.after = page.next;
        if !args.all || page.next.is_none() {
            break;
        }
    }
    if args.json {
        output::json(&json!({
            "deliveries": shown.items,
            "damagedCount": shown.damaged_count,
            "nextCursor": shown.next.map(|key| hex(key.as_bytes())),
        }))?;
    } else {
        tell(outbox, &shown)?;
    }
    Ok(Exit::Done)
}

fn tell(outbox: &dyn Outbox, shown: &Shown) -> std::io::Result<()> {
    if !shown.rows.is_empty() {
        output::data(table(HEAD, &shown.rows))?;
    } else if shown.next.is_none() {
        let ledger = outbox.backend_id();
        output::note(format_args!("the ledger `{ledger}` has no such delivery"));
    }
    if shown.damaged_count > 0 {
        output::note(format_args!(
            "{} items fail their own checks and were left out: run `counterfoil store check` on \
             the ledger",
            shown.damaged_count
        ));
    }
    if let Some(next) = shown.next {
        let cursor = hex(next.as_bytes());
        output::note(format_args!(
            "there may be more: run the same command with --cursor {cursor}, or with --all"
        ));
    }
    Ok(())
}

fn row(view: &DeliveryView) -> [String; HEAD.len()] {
    let item = &view.delivery;
    let none = || "-".to_owned();
    [
        ticket_id(item.key),
        with_detail(item.state.as_str(), detail(item)),
        with_detail(item.target.as_str(), target_word(&view.target)),
        format!("{} of {}", item.attempts_count, item.attempt_limit),
        item.unknown_count.to_string(),
        item.last_error.as_ref().map_or_else(none, |(class, _)| class.as_str().to_owned()),
        item.next_attempt_at.map_or_else(none, Timestamp::to_rfc3339),
        item.created_at.to_rfc3339(),
        view.record.operation_id.to_string(),
    ]
}

fn with_detail(word: &str, detail: Option<&str>) -> String {
    detail.map_or_else(|| word.to_owned(), |detail| format!("{word} ({detail})"))
}

/// Why it is parked, or how a person ended it.
pub(super) fn detail(item: &Delivery) -> Option<&'static str> {
    item.park.map(|park| park.as_str()).or_else(|| item.ended.map(|ended| ended.as_str()))
}

/// What keeps a target from being sent to.
pub(super) const fn target_word(target: &TargetState) -> Option<&'static str> {
    match (&target.paused, &target.parked) {
        (Some(_), _) => Some("paused"),
        (None, Some(_)) => Some("parked"),
        (None, None) => None,
    }
}

/// One item for programs; `delivery show` begins with the same.
pub(super) fn item_json(view: &DeliveryView) -> Value {
    let (item, record) = (&view.delivery, &view.record);
    let time = |at: Option<Timestamp>| at.map(Timestamp::to_rfc3339);
    json!({
        "ticketId": ticket_id(item.key),
        "operationId": record.operation_id,
        "tenant": record.tenant,
        "principal": record.principal,
        "tool": { "id": record.tool_id, "version": record.tool_version },
        "target": item.target.as_str(),
        "targetState": target_word(&view.target).unwrap_or("open"),
        "state": item.state.as_str(),
        "detail": detail(item),
        "attempts": item.attempts_count,
        "attemptLimit": item.attempt_limit,
        "maybeDone": item.unknown_count,
        "nextAttemptAt": time(item.next_attempt_at),
        "deliverBy": time(item.deliver_by),
        "lastError": item.last_error.as_ref().map(|(class, words)| {
            json!({ "class": class.as_str(), "words": words })
        }),
        "externalId": item.external_id,
        "acceptedAt": item.created_at.to_rfc3339(),
        "changedAt": item.updated_at.to_rfc3339(),
    })
}

fn cursor(text: &str) -> Result<OperationKey, String> {
    key_of_digits(text)
        .ok_or_else(|| "give the cursor that the last page ended with, or leave it out".into())
}

fn limit(text: &str) -> Result<PageLimit, String> {
    let count = text.parse().map_err(|_| InvalidPageLimit);
    count.and_then(PageLimit::new).map_err(|error| error.to_string())
}
