//! One course for each operation: what was told of it over intervals of time, and its target's log of
//! effects, must fit one order in which it is unknown first and settled, once, then.

use std::collections::BTreeMap;
use std::fmt;

use super::{Event, Physical, Saw};

/// What was told of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Nothing that settles it.
    Unknown,
    /// It is there, under this name where one was told.
    Applied(Option<String>),
    /// It is not there.
    NotApplied,
}

/// All that is known of one operation. Times are of one clock, whichever.
#[derive(Debug, Clone, Default)]
pub struct Course {
    /// Whether its contract allows more than one effect.
    pub at_least_once: bool,
    /// An operator gave the word `not_applied` before anybody could know: that word binds nothing.
    pub mistaken: bool,
    /// It was acknowledged as taken in.
    pub accepted: bool,
    /// The ledger has it at the end.
    pub recorded: bool,
    /// What the ledger says of it at the end, if it was looked at.
    pub at_the_end: Option<Told>,
    /// What was told, from its question to its answer.
    pub tells: Vec<(u64, u64, Told)>,
    /// The target's log: when, and under which name.
    pub effects: Vec<(u64, String)>,
}

/// A rule of courses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CourseRule {
    /// At most one effect, but under `at_least_once`.
    OneEffect,
    /// What was acknowledged is recorded, and what was told as settled is so at the end.
    NothingLost,
    /// `applied` is told of an effect that is there by then, and under a name that it has.
    AppliedIsThere,
    /// `not_applied` is told of nothing that is ever there.
    NotAppliedIsNot,
    /// What was told fits one order: unknown, and settled after it, in one way.
    OneOrder,
    /// No effect of what was never recorded.
    RecordedFirst,
}

/// A rule that an operation breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The rule.
    pub rule: CourseRule,
    /// The operation.
    pub operation_id: String,
    /// What was found.
    pub found: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: operation {}: {}", self.rule, self.operation_id, self.found)
    }
}

/// Judges every course. Empty: every rule holds.
#[must_use]
pub fn check_courses(courses: &BTreeMap<String, Course>) -> Vec<Broken> {
    let mut broken = Vec::new();
    for (id, course) in courses {
        let found = format!("{course:?}");
        broken.extend(course.broken().into_iter().map(|rule| Broken {
            rule,
            operation_id: id.clone(),
            found: found.clone(),
        }));
    }
    broken
}

/// The courses of a history of calls, whose places are its times, with the physical rows.
#[must_use]
pub fn courses_of(history: &[Event], physical: &Physical) -> BTreeMap<String, Course> {
    let mut courses: BTreeMap<String, Course> = BTreeMap::new();
    let mut asked = BTreeMap::new();
    for (place, event) in (0_u64..).zip(history) {
        let (from, id, saw) = match event {
            Event::Invoke { call, operation_id, .. } => {
                asked.insert(*call, (place, operation_id));
                continue;
            }
            Event::Return { call, saw } => match asked.get(call) {
                Some((from, id)) => (*from, *id, saw),
                None => continue,
            },
            Event::Lost { .. } => continue,
        };
        let told = match saw {
            Saw::Settled(outcome) => {
                Told::of_state(&outcome.state, outcome.effect_ids.first().map(i64::to_string))
            }
            Saw::Unknown => Told::Unknown,
            Saw::Refused(_) | Saw::Nothing => continue,
        };
        courses.entry(id.clone()).or_default().tells.push((from, place, told));
    }
    for effect in &physical.effects {
        let course = courses.entry(effect.operation_id.clone()).or_default();
        // The row says not when: it may have been there from the first.
        course.effects.push((0, effect.id.to_string()));
    }
    for (id, course) in &mut courses {
        let state = physical.operations.as_ref().map(|states| states.get(id));
        course.recorded = state.is_none_or(|state| state.is_some());
        let name = course.effects.first().map(|(_, name)| name.clone());
        course.at_the_end = state.flatten().map(|state| Told::of_state(state, name));
    }
    courses
}

impl Told {
    /// What a state's word says; `partial` is there, too.
    #[must_use]
    pub fn of_state(state: &str, name: Option<String>) -> Self {
        match state {
            "applied" | "partial" => Self::Applied(name),
            "not_applied" => Self::NotApplied,
            _ => Self::Unknown,
        }
    }
}

impl Course {
    /// The rules that it breaks.
    #[must_use]
    pub fn broken(&self) -> Vec<CourseRule> {
        let rules = [
            (CourseRule::OneEffect, self.one_effect()),
            (CourseRule::NothingLost, self.nothing_lost()),
            (CourseRule::AppliedIsThere, self.applied_is_there()),
            (CourseRule::NotAppliedIsNot, self.not_applied_is_not()),
            (CourseRule::OneOrder, self.one_order()),
            (CourseRule::RecordedFirst, self.recorded_first()),
        ];
        rules.into_iter().filter(|(_, holds)| !holds).map(|(rule, _)| rule).collect()
    }

    fn settled(&self) -> impl Iterator<Item = &(u64, u64, Told)> {
        self.tells.iter().filter(|(_, _, told)| *told != Told::Unknown && !self.is_mistake(told))
    }

    fn is_mistake(&self, told: &Told) -> bool {
        self.mistaken && *told == Told::NotApplied
    }

    fn one_effect(&self) -> bool {
        self.at_least_once || self.effects.len() <= 1
    }

    fn nothing_lost(&self) -> bool {
        let is_kept = |told: &Told| self.at_the_end.as_ref().is_none_or(|end| end == told);
        (!self.accepted || self.recorded) && self.settled().all(|(_, _, told)| is_kept(told))
    }

    fn applied_is_there(&self) -> bool {
        let end = self.at_the_end.iter().map(|told| (u64::MAX, told));
        let told = self.tells.iter().map(|(_, until, told)| (*until, told));
        told.chain(end).all(|(until, told)| match told {
            Told::Applied(name) => self.effects.iter().any(|(at, effect)| {
                *at <= until && name.as_ref().is_none_or(|name| name == effect)
            }),
            Told::Unknown | Told::NotApplied => true,
        })
    }

    fn not_applied_is_not(&self) -> bool {
        let mut told = self.tells.iter().map(|(_, _, told)| told).chain(&self.at_the_end);
        self.mistaken || self.effects.is_empty() || !told.any(|told| *told == Told::NotApplied)
    }

    /// A moment must exist at which it settled: no later than the end of each answer that settles it,
    /// and no earlier than the begin of each question that found it unknown.
    fn one_order(&self) -> bool {
        let first = self.settled().next().map(|(_, _, told)| told);
        let agrees = self.settled().all(|(_, _, told)| Some(told) == first);
        let settled_by = self.settled().map(|(_, until, _)| *until).min().unwrap_or(u64::MAX);
        let unknown = self.tells.iter().filter(|(_, _, told)| *told == Told::Unknown);
        agrees && unknown.map(|(from, _, _)| *from).max().is_none_or(|from| from <= settled_by)
    }

    fn recorded_first(&self) -> bool {
        self.recorded || self.effects.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied() -> Told {
        Told::Applied(Some("e".into()))
    }

    fn good() -> Course {
        Course {
            accepted: true,
            recorded: true,
            at_the_end: Some(applied()),
            tells: vec![(0, 4, Told::Unknown), (3, 6, applied()), (5, 9, Told::Unknown)],
            effects: vec![(5, "e".into())],
            ..Course::default()
        }
    }

    #[test]
    fn each_rule_finds_what_breaks_it() {
        // Promise: the checker can fail, by the rule that was broken, and passes what is allowed.
        use CourseRule::*;
        type Plant = fn(&mut Course);
        let cases: [(Plant, &[CourseRule]); 12] = [
            (|_| {}, &[]),
            (|c| c.effects.push((7, "f".into())), &[OneEffect]),
            (
                |c| {
                    c.effects.push((7, "f".into()));
                    c.at_least_once = true;
                },
                &[],
            ),
            (
                |c| {
                    c.recorded = false;
                    c.effects.clear();
                    c.tells.clear();
                    c.at_the_end = None;
                },
                &[NothingLost],
            ),
            (|c| c.at_the_end = Some(Told::Unknown), &[NothingLost]),
            (|c| c.effects[0].0 = 7, &[AppliedIsThere]),
            (|c| c.effects[0].1 = "other".into(), &[AppliedIsThere]),
            (
                |c| {
                    c.tells = vec![(0, 1, Told::NotApplied)];
                    c.at_the_end = None;
                },
                &[NotAppliedIsNot],
            ),
            (
                |c| {
                    c.tells = vec![(0, 1, Told::NotApplied), (7, 8, applied())];
                    c.mistaken = true;
                },
                &[],
            ),
            (|c| c.tells.push((7, 8, Told::Unknown)), &[OneOrder]),
            (
                |c| {
                    c.tells.push((7, 8, Told::Applied(None)));
                    c.at_the_end = None;
                },
                &[OneOrder],
            ),
            (
                |c| {
                    c.accepted = false;
                    c.recorded = false;
                },
                &[RecordedFirst],
            ),
        ];
        for (number, (plant, expected)) in cases.into_iter().enumerate() {
            let mut course = good();
            plant(&mut course);
            let courses = BTreeMap::from([("op".to_owned(), course)]);
            let found: Vec<_> = check_courses(&courses).iter().map(|one| one.rule).collect();
            assert_eq!(found, expected, "case {number}");
        }
    }

    #[test]
    fn a_history_of_calls_gives_courses() {
        // Promise: a campaign's calls, rows and records reach the rules: a status that is taken back
        // is seen, and a record that is gone.
        use crate::history::{Digest, Effect, Kind, Outcome};
        let settled = Saw::Settled(Outcome {
            state: "applied".into(),
            effect_ids: vec![1],
            result: serde_json::Value::Null,
            fresh: false,
        });
        let history = |saws: [Saw; 2]| -> Vec<Event> {
            let pair = |(call, saw)| {
                let operation_id = "op".to_owned();
                [
                    Event::Invoke { call, kind: Kind::Status, operation_id },
                    Event::Return { call, saw },
                ]
            };
            saws.into_iter().enumerate().flat_map(pair).collect()
        };
        let physical = |is_recorded: bool| Physical {
            effects: vec![Effect {
                operation_id: "op".into(),
                id: 1,
                digest: Digest::of("title", "body"),
            }],
            operations: Some(
                is_recorded.then(|| ("op".to_owned(), "applied".to_owned())).into_iter().collect(),
            ),
        };
        let cases: [([Saw; 2], bool, &[CourseRule]); 3] = [
            ([Saw::Unknown, settled.clone()], true, &[]),
            ([settled.clone(), Saw::Unknown], true, &[CourseRule::OneOrder]),
            ([Saw::Unknown, settled], false, &[CourseRule::RecordedFirst]),
        ];
        for (saws, is_recorded, expected) in cases {
            let courses = courses_of(&history(saws), &physical(is_recorded));
            assert_eq!(courses["op"].broken(), expected);
        }
    }
}
