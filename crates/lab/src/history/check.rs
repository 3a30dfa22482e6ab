//! The checker: five rules, each over one operation's part of the history and its physical rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{CallNo, Digest, Event, Kind, Outcome, Physical, Saw};

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// An identity has at most one effect.
    OneEffect,
    /// What was acknowledged is there.
    NothingLost,
    /// Whoever asks again is told the same.
    SameAnswer,
    /// A settled effect stays settled: whoever asks later gets it, and nothing else.
    StaysSettled,
    /// An effect is there only if it was asked for, with those contents.
    WasAskedFor,
    /// The history itself makes sense; else it proves nothing.
    WellFormed,
}

/// A rule that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The operation.
    pub operation_id: String,
    /// What was found.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: operation {}: {}", self.rule, self.operation_id, self.found)
    }
}

/// Holds a history against the physical rows. Empty: every rule holds.
#[must_use]
pub fn check(history: &[Event], physical: &Physical) -> Vec<Violation> {
    let (operations, mut violations) = by_operation(history, physical);
    for (id, operation) in &operations {
        let mut report = |rule, found: Option<String>| {
            violations.extend(found.map(|found| Violation {
                rule,
                operation_id: (*id).clone(),
                found,
            }));
        };
        report(Rule::OneEffect, operation.several_effects());
        report(Rule::NothingLost, operation.lost());
        report(Rule::SameAnswer, operation.different_answers());
        report(Rule::StaysSettled, operation.unsettled_again());
        report(Rule::WasAskedFor, operation.not_asked_for());
    }
    violations
}

/// One operation's part.
#[derive(Debug, Default)]
struct Operation<'a> {
    calls: Vec<Call<'a>>,
    /// Row and contents.
    effects: Vec<(i64, &'a Digest)>,
    /// The recorded state, if there is a record.
    recorded: Option<&'a str>,
    /// Whether records are kept at all.
    has_records: bool,
}

/// A request, and its reply if one came. Places are positions in the history.
#[derive(Debug)]
struct Call<'a> {
    invoked_at: usize,
    kind: &'a Kind,
    returned: Option<(usize, &'a Saw)>,
}

fn by_operation<'a>(
    history: &'a [Event],
    physical: &'a Physical,
) -> (BTreeMap<&'a String, Operation<'a>>, Vec<Violation>) {
    let mut operations: BTreeMap<&String, Operation<'_>> = BTreeMap::new();
    let mut open: BTreeMap<CallNo, (&String, usize)> = BTreeMap::new();
    let mut violations = Vec::new();
    for (place, event) in history.iter().enumerate() {
        let (call, saw) = match event {
            Event::Invoke { call, kind, operation_id } => {
                let calls = &mut operations.entry(operation_id).or_default().calls;
                calls.push(Call { invoked_at: place, kind, returned: None });
                open.insert(*call, (operation_id, calls.len() - 1));
                continue;
            }
            Event::Return { call, saw } => (call, Some(saw)),
            Event::Lost { call } => (call, None),
        };
        match (open.remove(call), saw) {
            (Some((id, at)), Some(saw)) => {
                let operation = operations.entry(id).or_default();
                operation.calls[at].returned = Some((place, saw));
            }
            (Some(_), None) => {}
            (None, _) => violations.push(Violation {
                rule: Rule::WellFormed,
                operation_id: String::new(),
                found: format!("call {call} ends at {place} and is not open"),
            }),
        }
    }
    for effect in &physical.effects {
        let operation = operations.entry(&effect.operation_id).or_default();
        operation.effects.push((effect.id, &effect.digest));
    }
    if let Some(records) = &physical.operations {
        for (id, state) in records {
            operations.entry(id).or_default().recorded = Some(state);
        }
        operations.values_mut().for_each(|operation| operation.has_records = true);
    }
    (operations, violations)
}

impl<'a> Operation<'a> {
    /// The replies that settle it, in order.
    fn settled(&self) -> impl Iterator<Item = (&Call<'a>, usize, &'a Outcome)> {
        self.calls.iter().filter_map(|call| match call.returned {
            Some((place, Saw::Settled(outcome))) => Some((call, place, outcome)),
            _ => None,
        })
    }

    fn acknowledged_ids(&self) -> BTreeSet<i64> {
        self.settled().flat_map(|(_, _, outcome)| outcome.effect_ids.iter().copied()).collect()
    }

    fn several_effects(&self) -> Option<String> {
        let fresh_count = self.settled().filter(|(_, _, outcome)| outcome.fresh).count();
        let ids = self.acknowledged_ids();
        if self.effects.len() > 1 {
            return Some(format!("{} physical effects", self.effects.len()));
        }
        if ids.len() > 1 {
            return Some(format!("the effects {ids:?} were acknowledged"));
        }
        (fresh_count > 1).then(|| format!("{fresh_count} requests were told that they made it"))
    }

    fn lost(&self) -> Option<String> {
        let there: BTreeSet<i64> = self.effects.iter().map(|(id, _)| *id).collect();
        let missing: Vec<i64> = self.acknowledged_ids().difference(&there).copied().collect();
        if !missing.is_empty() {
            return Some(format!("the acknowledged effects {missing:?} are not there"));
        }
        let (_, _, said) = self.settled().next()?;
        if self.has_records && self.recorded != Some(said.state.as_str()) {
            return Some(format!(
                "{} was acknowledged, {:?} is recorded",
                said.state, self.recorded
            ));
        }
        None
    }

    fn different_answers(&self) -> Option<String> {
        let (_, _, first) = self.settled().next()?;
        let other = self
            .settled()
            .map(|(_, _, outcome)| outcome)
            .find(|outcome| (&outcome.state, &outcome.result) != (&first.state, &first.result))?;
        Some(format!("{first:?} and then {other:?}"))
    }

    fn unsettled_again(&self) -> Option<String> {
        let (settler, settled_at, _) = self.settled().min_by_key(|(_, place, _)| *place)?;
        let later = self.calls.iter().filter(|call| call.invoked_at > settled_at);
        for call in later {
            let Some((_, saw)) = call.returned else { continue };
            // Who asks for the same is given the effect; who asks for something else, nothing.
            let same = match (call.kind, settler.kind) {
                (Kind::Write(asked), Kind::Write(made)) => asked == made,
                (Kind::Write(asked), Kind::Status) => {
                    self.effects.first().is_none_or(|(_, made)| asked == *made)
                }
                (Kind::Status, _) => true,
            };
            let holds = match saw {
                Saw::Settled(outcome) => same && !outcome.fresh,
                Saw::Refused(code) => code == "store_unavailable" || !same,
                Saw::Unknown => false,
                Saw::Nothing => !same,
            };
            if !holds {
                return Some(format!("settled at {settled_at}, and then {:?}: {saw:?}", call.kind));
            }
        }
        None
    }

    fn not_asked_for(&self) -> Option<String> {
        let asked: Vec<&Digest> = self
            .calls
            .iter()
            .filter_map(|call| match call.kind {
                Kind::Write(digest) => Some(digest),
                Kind::Status => None,
            })
            .collect();
        if let Some((id, _)) = self.effects.iter().find(|(_, made)| !asked.contains(made)) {
            return Some(format!("the effect {id} was not asked for with these contents"));
        }
        let (_, made) = self.effects.first()?;
        let wrong = self.settled().find(|(call, _, outcome)| {
            let other = matches!(call.kind, Kind::Write(asked) if asked != *made);
            other && !outcome.effect_ids.is_empty()
        })?;
        Some(format!("a request with other contents was answered with {:?}", wrong.2))
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
