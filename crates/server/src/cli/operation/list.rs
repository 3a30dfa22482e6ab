//! `operation list`: what a ledger has, for people as a table and for programs as JSON.

use clap::Args;
use counterfoil_core::identity::{Principal, Tenant, ToolId};
use counterfoil_core::listing::{InvalidPageLimit, Listed, PageLimit, Stage};
use counterfoil_core::time::Timestamp;
use counterfoil_store::{Cursor, ListQuery, Page, Store};
use serde_json::{Value, json};

use crate::cli::exit::Exit;
use crate::cli::table::hex;
use crate::config::LocationArgs;
use crate::output::{self, printable};

/// List the operations of a tenant, the newest first; changes nothing
///
/// Shows no argument and no result. A page can be short, or empty, while there is more: the
/// command for the next page is told on stderr.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil operation list --unsettled
  counterfoil operation list --principal alice --state applied --limit 200 --json

States: in_progress, in_doubt, answered, applied, partial, not_applied. The column CALLERS SEE is
what the operation's own caller is told by get_operation_status.")]
pub(super) struct ListArgs {
    /// The space of the IDs; over stdio it is `local`
    #[arg(long, value_name = "TENANT", value_parser = Tenant::parse, default_value = "local")]
    tenant: Tenant,
    /// Only this principal's
    #[arg(long, value_name = "NAME", value_parser = Principal::parse)]
    principal: Option<Principal>,
    /// Only calls of this tool
    #[arg(long, value_name = "TOOL", value_parser = ToolId::parse)]
    tool: Option<ToolId>,
    /// Only operations in this state; repeatable
    #[arg(long = "state", value_name = "STATE", value_parser = stage, conflicts_with = "unsettled")]
    states: Vec<Stage>,
    /// Only operations in progress or in doubt
    #[arg(long)]
    unsettled: bool,
    /// How many at most, 1 to 200 [default: 50]
    #[arg(long, value_name = "N", value_parser = limit)]
    limit: Option<PageLimit>,
    /// Go on where the last page ended
    #[arg(long, value_name = "CURSOR", value_parser = cursor)]
    cursor: Option<Cursor>,
    /// List as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) location: LocationArgs,
}

impl ListArgs {
    fn query(&self) -> ListQuery {
        let stages = if self.unsettled { Stage::UNSETTLED.to_vec() } else { self.states.clone() };
        ListQuery {
            principal: self.principal.clone(),
            tool_id: self.tool.clone(),
            stages,
            limit: self.limit.unwrap_or_default(),
            after: self.cursor,
            ..ListQuery::of_tenant(self.tenant.clone())
        }
    }
}

/// Prints one page.
///
/// # Errors
/// If the ledger cannot be read or stdout cannot be written.
pub(super) async fn list(store: &dyn Store, args: &ListArgs) -> anyhow::Result<Exit> {
    let page = store.list(args.query()).await?;
    if args.json {
        output::json(&as_json(&page, &args.tenant))?;
        return Ok(Exit::Done);
    }
    if !page.operations.is_empty() {
        output::data(table(&page.operations))?;
    } else if page.next.is_none() {
        output::note(format_args!(
            "the ledger `{}` has no such operation for the tenant `{}`; other tenants' are shown by \
             --tenant NAME, and all that is delivered by `counterfoil delivery list`",
            store.backend_id(),
            args.tenant
        ));
    }
    if page.damaged_count > 0 {
        output::note(format_args!(
            "{} records fail their own checks and were left out: run `counterfoil store check` on \
             the ledger",
            page.damaged_count
        ));
    }
    if let Some(next) = &page.next {
        output::note(format_args!(
            "there may be more: run the same command with --cursor {}",
            cursor_text(next)
        ));
    }
    Ok(Exit::Done)
}

/// The table of a page, without a line end after its last line.
pub(super) fn table(operations: &[Listed]) -> String {
    const HEAD: [&str; 7] =
        ["OPERATION", "STATE", "CALLERS SEE", "TOOL", "PRINCIPAL", "CREATED", "SETTLED"];
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(operations.iter().map(|listed| {
        [
            printable(listed.operation_id.as_str()),
            listed.state.as_str().to_owned(),
            format!("{} ({})", listed.observed.as_str(), listed.detail.as_str()),
            printable(listed.tool_id.as_str()),
            printable(listed.principal.as_str()),
            listed.created_at.to_rfc3339(),
            listed.settled_at.map_or_else(|| "-".to_owned(), Timestamp::to_rfc3339),
        ]
    }));
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let line = |row: &[String; HEAD.len()]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The same for programs: the names of an observation's fields where both tell the same.
pub(super) fn as_json(page: &Page, tenant: &Tenant) -> Value {
    let operation = |listed: &Listed| {
        json!({
            "operationId": listed.operation_id,
            "state": listed.state.as_str(),
            "callersSee": {
                "state": listed.observed, "detail": listed.detail, "retry": listed.retry,
            },
            "principal": listed.principal,
            "tool": { "id": listed.tool_id, "version": listed.tool_version },
            "createdAt": listed.created_at.to_rfc3339(),
            "settledAt": listed.settled_at.map(Timestamp::to_rfc3339),
            "retentionEndsAt": listed.retention_ends_at.map(Timestamp::to_rfc3339),
        })
    };
    json!({
        "tenant": tenant,
        "operations": page.operations.iter().map(operation).collect::<Vec<_>>(),
        "damagedCount": page.damaged_count,
        "nextCursor": page.next.as_ref().map(cursor_text),
    })
}

fn cursor_text(cursor: &Cursor) -> String {
    hex(cursor.as_bytes())
}

fn cursor(text: &str) -> Result<Cursor, String> {
    let number = Some(text).filter(|text| text.len() == 32 && !text.starts_with('+'));
    let number = number.and_then(|text| u128::from_str_radix(text, 16).ok());
    let bytes = number.ok_or("give the cursor that the last page ended with, or leave it out")?;
    Ok(Cursor::from_bytes(bytes.to_be_bytes()))
}

fn stage(word: &str) -> Result<Stage, String> {
    Stage::parse(word).ok_or_else(|| {
        let known = Stage::ALL.map(Stage::as_str).join(", ");
        format!("there is no such state; use one of: {known}")
    })
}

fn limit(text: &str) -> Result<PageLimit, String> {
    let count = text.parse().map_err(|_| InvalidPageLimit);
    count.and_then(PageLimit::new).map_err(|error| error.to_string())
}
