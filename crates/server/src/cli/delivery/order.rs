//! `delivery redrive`, `cancel` and `abandon`: an order on some items, in bounded batches.

use std::collections::BTreeSet;
use std::time::Instant;

use clap::Args;
use counterfoil_core::delivery::{Event, State, Withdrawal};
use counterfoil_core::identity::{OperationId, OperationKey, Tenant};
use counterfoil_store::StoreError;
use counterfoil_store::outbox::{Action, DeliveryView, Directed, Order, Outbox, Which};

use super::filter::FilterArgs;
use super::outcome::{Outcome, Summary, Told};
use super::predict;
use crate::cli::UsageError;
use crate::cli::exit::Exit;
use crate::cli::operation::note_text;
use crate::cli::ticket::{find, ticket_id};
use crate::config::LocationArgs;
use crate::output::Progress;

/// One transaction takes so many orders at most: a server on the same ledger waits for no more.
const BATCH_COUNT: usize = 100;
/// A batch that found the ledger locked is tried so often; nothing was written then.
const TRIES_COUNT: usize = 5;

// No documentation of its own: it would become that of the command.
#[derive(Debug, Args)]
pub(super) struct OrderArgs {
    /// Tickets' IDs, or their operations'
    #[arg(value_name = "ID", value_parser = OperationId::parse)]
    ids: Vec<OperationId>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only those of this tenant; for operations' IDs their space [default: all; for IDs local]
    #[arg(long, value_name = "TENANT", value_parser = Tenant::parse, help_heading = "Which")]
    tenant: Option<Tenant>,
    /// Why; kept in the audit trail
    #[arg(long, value_name = "TEXT", value_parser = note_text)]
    reason: String,
    /// Who says so [default: the user who runs this, else their number]
    #[arg(long, visible_alias = "as", value_name = "WHO", value_parser = note_text)]
    who: Option<String>,
    /// Do it to all that the filters fit
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Tell what would become of each, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Tell the progress on stderr even if that is no terminal
    #[arg(long)]
    progress: bool,
    /// Tell the outcome as JSON on stdout, and nothing on stderr but progress
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) location: LocationArgs,
}

impl OrderArgs {
    /// Whether it is clear which items are meant, and that they are meant.
    ///
    /// # Errors
    /// [`UsageError`] with the rule.
    pub(super) fn check(&self) -> Result<(), UsageError> {
        let refuse = |words: &str| Err(UsageError(words.to_owned()));
        match (self.ids.is_empty(), self.filter.is_empty()) {
            (true, true) => refuse(
                "no delivery is named; give IDs, or filters (--target, --state, --class, \
                 --older-than)",
            ),
            (false, false) => refuse(
                "IDs and filters do not go together; give the IDs alone, or filters that fit them",
            ),
            (true, false) if !self.yes && !self.dry_run => refuse(
                "filters may fit many deliveries; look first with --dry-run, then give --yes",
            ),
            _ => Ok(()),
        }
    }
}

/// What is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Redrive,
    Cancel,
    Abandon,
}

impl Verb {
    pub(super) const ALL: [Self; 3] = [Self::Redrive, Self::Cancel, Self::Abandon];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Cancel => "cancel",
            Self::Abandon => "abandon",
        }
    }

    /// What has been done.
    pub(super) const fn done_word(self) -> &'static str {
        match self {
            Self::Redrive => "redriven",
            Self::Cancel => "cancelled",
            Self::Abandon => "abandoned",
        }
    }

    pub(super) const fn event(self) -> Event {
        match self {
            Self::Redrive => Event::Redrive,
            Self::Cancel => Event::Withdraw(Withdrawal::Cancel),
            Self::Abandon => Event::Withdraw(Withdrawal::Abandon),
        }
    }

    const fn action(self) -> Action {
        match self {
            Self::Redrive => Action::Redrive,
            Self::Cancel => Action::Withdraw(Withdrawal::Cancel),
            Self::Abandon => Action::Withdraw(Withdrawal::Abandon),
        }
    }

    /// What is meant where no state is given.
    const fn states(self) -> &'static [State] {
        match self {
            Self::Redrive | Self::Abandon => &[State::DeadLetter],
            Self::Cancel => &[State::Queued, State::Parked],
        }
    }
}

/// Gives the order, and tells what became of it: also of the part that was done before a failure.
///
/// # Errors
/// If the ledger failed, or stdout cannot be written.
pub(super) async fn run(
    outbox: &dyn Outbox,
    args: &OrderArgs,
    verb: Verb,
    default_who: impl Fn() -> String,
) -> anyhow::Result<Exit> {
    args.filter.check_target(outbox).await?;
    let who = args.who.clone().unwrap_or_else(default_who);
    let mut summary = Summary::new(verb, args.dry_run, args.ids.is_empty());
    let mut given = Given { outbox, args, verb, who: &who, summary: &mut summary };
    let ended = match args.ids.is_empty() {
        true => given.by_filter().await,
        false => given.by_ids().await,
    };
    summary.tell(args.json, &who, &args.reason, ended.is_ok())?;
    ended?;
    Ok(summary.exit())
}

/// An order as it was given, with what became of it so far.
struct Given<'a> {
    outbox: &'a dyn Outbox,
    args: &'a OrderArgs,
    verb: Verb,
    who: &'a str,
    summary: &'a mut Summary,
}

impl Given<'_> {
    async fn by_ids(&mut self) -> Result<(), StoreError> {
        let tenant = self.args.tenant.clone();
        let tenant = tenant.unwrap_or_else(|| Tenant::parse("local").expect("a good name"));
        let mut seen: BTreeSet<OperationKey> = BTreeSet::new();
        let mut progress = Progress::new(self.args.progress);
        for ids in self.args.ids.chunks(BATCH_COUNT) {
            let mut views = Vec::new();
            for id in ids {
                match find(self.outbox, &tenant, id).await {
                    // An item may be named by both of its IDs.
                    Ok(Some(view)) if seen.insert(view.delivery.key) => views.push(view),
                    Ok(Some(_)) => {}
                    Ok(None) => self.summary.add(Told::without_item(id, Outcome::Absent)),
                    Err(StoreError::Quarantined { .. }) => {
                        self.summary.add(Told::without_item(id, Outcome::Quarantined));
                    }
                    Err(error) => return Err(error),
                }
            }
            self.batch(&views).await?;
            progress.tell(self.summary.in_short());
        }
        Ok(())
    }

    /// Follows the pages, which stand in the order of acceptance: an item that changes its state
    /// stays in its place, and none is met twice.
    async fn by_filter(&mut self) -> Result<(), StoreError> {
        let (filter, tenant) = (&self.args.filter, self.args.tenant.clone());
        let mut query = filter.query(tenant, self.verb.states(), self.outbox.now());
        query.max_count = BATCH_COUNT;
        let mut progress = Progress::new(self.args.progress);
        loop {
            let begun = Instant::now();
            let page = self.outbox.deliveries(query.clone()).await?;
            self.summary.add_damaged(page.damaged_count);
            self.batch(&page.items).await?;
            progress.tell(self.summary.in_short());
            if page.next.is_none() {
                break;
            }
            query.after = page.next;
            // Between two batches a server on the same ledger has its turn.
            tokio::time::sleep(begun.elapsed()).await;
        }
        Ok(())
    }

    async fn batch(&mut self, views: &[DeliveryView]) -> Result<(), StoreError> {
        if views.is_empty() {
            return Ok(());
        }
        if self.args.dry_run {
            let now = self.outbox.now();
            for view in views {
                let outcome = match predict::outcome_of(&view.delivery, self.verb, now) {
                    Ok(State::InDoubt) => Outcome::InDoubt,
                    Ok(_) => Outcome::Done,
                    Err(rule) => Outcome::Refused(rule),
                };
                self.summary.add(told(view, outcome, view.delivery.state));
            }
            return Ok(());
        }
        let directed = self.direct(views).await?;
        for (view, directed) in views.iter().zip(directed) {
            self.summary.add(match directed {
                Directed::Done(item) if item.state == State::InDoubt => {
                    told(view, Outcome::InDoubt, item.state)
                }
                Directed::Done(item) => told(view, Outcome::Done, item.state),
                Directed::Illegal(illegal) => {
                    told(view, Outcome::Refused(illegal.rule), illegal.from)
                }
                Directed::Absent => Told::without_item(&view.record.operation_id, Outcome::Absent),
                Directed::Quarantined => {
                    Told::without_item(&view.record.operation_id, Outcome::Quarantined)
                }
            });
        }
        Ok(())
    }

    async fn direct(&self, views: &[DeliveryView]) -> Result<Vec<Directed>, StoreError> {
        let mut tries_count = 1;
        loop {
            let order = Order {
                which: views.iter().map(|view| Which::Key(view.delivery.key)).collect(),
                action: self.verb.action(),
                who: self.who.to_owned(),
                reason: self.args.reason.clone(),
            };
            match self.outbox.direct(order).await {
                Err(StoreError::Busy { .. }) if tries_count < TRIES_COUNT => tries_count += 1,
                other => return other,
            }
        }
    }
}

fn told(view: &DeliveryView, outcome: Outcome, state: State) -> Told {
    Told {
        ticket_id: Some(ticket_id(view.delivery.key)),
        operation_id: view.record.operation_id.to_string(),
        tenant: Some(view.record.tenant.to_string()),
        outcome,
        state: Some(state),
    }
}
