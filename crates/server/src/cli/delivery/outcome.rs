//! What became of an order on some items: counts, refusals by their rule, and the items themselves.

use std::collections::BTreeMap;

use counterfoil_core::delivery::State;
use counterfoil_core::identity::OperationId;
use serde_json::{Value, json};

use super::order::Verb;
use crate::cli::exit::Exit;
use crate::output;

/// JSON names so many items at most of an order by filters: those that were not done.
const MAX_TOLD_COUNT: usize = 1000;
/// People are shown so many IDs for each rule.
const EXAMPLES_COUNT: usize = 3;

/// What became of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It is in doubt now: an attempt may have been done.
    InDoubt,
    /// Nothing was changed, by this rule.
    Refused(&'static str),
    Absent,
    Quarantined,
}

impl Outcome {
    const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::InDoubt => "in_doubt",
            Self::Refused(_) => "refused",
            Self::Absent => "absent",
            Self::Quarantined => "quarantined",
        }
    }

    /// Why it was not done, and the remedy.
    const fn rule(self) -> &'static str {
        match self {
            Self::Done => "",
            Self::InDoubt => {
                "an attempt may have been done; look at the target, then use `counterfoil operation \
                 resolve`"
            }
            Self::Refused(rule) => rule,
            Self::Absent => {
                "there is no such delivery; check the ID, --tenant and --data-dir, or look with \
                 `counterfoil delivery list`"
            }
            Self::Quarantined => {
                "its record or item fails its own checks; run `counterfoil store check FILE` on the \
                 ledger"
            }
        }
    }
}

/// One item and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) ticket_id: Option<String>,
    pub(super) operation_id: String,
    pub(super) tenant: Option<String>,
    pub(super) outcome: Outcome,
    /// Its state after the order, or the one for which it was refused.
    pub(super) state: Option<State>,
}

impl Told {
    /// Of an ID that leads to no item that can be believed.
    pub(super) fn without_item(id: &OperationId, outcome: Outcome) -> Self {
        let operation_id = id.to_string();
        Self { ticket_id: None, operation_id, tenant: None, outcome, state: None }
    }

    fn id(&self) -> &str {
        self.ticket_id.as_deref().unwrap_or(&self.operation_id)
    }

    fn as_json(&self) -> Value {
        json!({
            "ticketId": self.ticket_id,
            "operationId": self.operation_id,
            "tenant": self.tenant,
            "outcome": self.outcome.word(),
            "state": self.state.map(State::as_str),
            "rule": Some(self.outcome.rule()).filter(|rule| !rule.is_empty()),
        })
    }
}

/// Items that were not done for one reason.
#[derive(Debug, Default)]
struct Group {
    count: u64,
    examples: Vec<String>,
}

/// Everything that became of an order.
#[derive(Debug)]
pub(super) struct Summary {
    verb: Verb,
    is_dry_run: bool,
    by_filter: bool,
    done_count: u64,
    in_doubt_count: u64,
    refused_count: u64,
    absent_count: u64,
    quarantined_count: u64,
    /// By the outcome's word, the state and the rule.
    groups: BTreeMap<(&'static str, &'static str, &'static str), Group>,
    items: Vec<Told>,
    left_out_count: u64,
}

impl Summary {
    pub(super) fn new(verb: Verb, is_dry_run: bool, by_filter: bool) -> Self {
        Self {
            verb,
            is_dry_run,
            by_filter,
            done_count: 0,
            in_doubt_count: 0,
            refused_count: 0,
            absent_count: 0,
            quarantined_count: 0,
            groups: BTreeMap::new(),
            items: Vec::new(),
            left_out_count: 0,
        }
    }

    pub(super) fn add(&mut self, told: Told) {
        let count = match told.outcome {
            Outcome::Done => &mut self.done_count,
            Outcome::InDoubt => &mut self.in_doubt_count,
            Outcome::Refused(_) => &mut self.refused_count,
            Outcome::Absent => &mut self.absent_count,
            Outcome::Quarantined => &mut self.quarantined_count,
        };
        *count += 1;
        let is_done = told.outcome == Outcome::Done;
        if !is_done {
            let state = told.state.map_or("", State::as_str);
            let key = (told.outcome.word(), state, told.outcome.rule());
            let group = self.groups.entry(key).or_default();
            group.count += 1;
            if group.examples.len() < EXAMPLES_COUNT {
                group.examples.push(told.id().to_owned());
            }
        }
        if self.by_filter && is_done {
            return;
        }
        if self.by_filter && self.items.len() >= MAX_TOLD_COUNT {
            self.left_out_count += 1;
        } else {
            self.items.push(told);
        }
    }

    /// Items that were met and cannot be believed.
    pub(super) fn add_damaged(&mut self, count: usize) {
        if count > 0 {
            self.quarantined_count += count as u64;
            let outcome = Outcome::Quarantined;
            let group = self.groups.entry((outcome.word(), "", outcome.rule())).or_default();
            group.count += count as u64;
        }
    }

    /// One line while it goes on.
    pub(super) fn in_short(&self) -> String {
        let not_done_count = self.total_count() - self.done_count;
        format!("{} {}, {not_done_count} not", self.done_count, self.verb.done_word())
    }

    /// 0 if all was done; 1 if there was nothing to be ordered about; else 4.
    pub(super) const fn exit(&self) -> Exit {
        let found = self.done_count + self.in_doubt_count + self.refused_count;
        let lost = self.absent_count + self.quarantined_count;
        match (found, lost) {
            (0, 1..) => Exit::Failed,
            _ if self.in_doubt_count + self.refused_count + lost > 0 => Exit::Refused,
            _ => Exit::Done,
        }
    }

    /// Prints it. `is_whole` is false if the ledger failed before the end.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub(super) fn tell(
        &self,
        as_json: bool,
        who: &str,
        reason: &str,
        is_whole: bool,
    ) -> std::io::Result<()> {
        if as_json {
            return output::json(&self.as_json(who, reason, is_whole));
        }
        if self.total_count() == 0 && is_whole {
            output::note("no delivery fits; nothing was changed");
            return Ok(());
        }
        output::data(output::printable(&self.as_text()))?;
        if !is_whole {
            output::note("the ledger failed before the end: what is told was done, and stays so");
        }
        if self.is_dry_run {
            output::note("nothing was changed");
        }
        Ok(())
    }

    /// What people read.
    pub(super) fn as_text(&self) -> String {
        let would = if self.is_dry_run { "would be " } else { "" };
        let mut lines = vec![format!("{} {would}{}", self.done_count, self.verb.done_word())];
        for ((word, state, rule), group) in &self.groups {
            let words = match *word {
                "in_doubt" if self.is_dry_run => "would be left in doubt".to_owned(),
                "in_doubt" => "are in doubt now".to_owned(),
                "refused" => format!("{would}refused, {state}"),
                other => other.to_owned(),
            };
            lines.push(format!("{} {words}: {rule}", group.count));
            lines.extend(group.examples.iter().map(|id| format!("    {id}")));
            let more_count = group.count - group.examples.len() as u64;
            if more_count > 0 && !group.examples.is_empty() {
                lines.push(format!("    and {more_count} more"));
            }
        }
        lines.join("\n")
    }

    /// What programs read.
    pub(super) fn as_json(&self, who: &str, reason: &str, is_whole: bool) -> Value {
        json!({
            "action": self.verb.as_str(),
            "who": who,
            "reason": reason,
            "dryRun": self.is_dry_run,
            "complete": is_whole,
            "done": self.done_count,
            "inDoubt": self.in_doubt_count,
            "refused": self.refused_count,
            "absent": self.absent_count,
            "quarantined": self.quarantined_count,
            "items": self.items.iter().map(Told::as_json).collect::<Vec<_>>(),
            "itemsLeftOut": self.left_out_count,
        })
    }

    const fn total_count(&self) -> u64 {
        self.done_count
            + self.in_doubt_count
            + self.refused_count
            + self.absent_count
            + self.quarantined_count
    }
}
