//! Random histories of one direct operation against a modelled upstream: two runs, requests that are
//! slow, lost or answered late, questions, ended leases, looks at the upstream and an operator.
//! Whatever happens, no request leaves twice, and an operation that is proved not applied has no effect.
//! Two broken twins show that the model would notice.

use std::collections::HashMap;
use std::time::Duration;

use counterfoil_core::admission::{Admitted, Attempt, Authority, Call, LedgerTime};
use counterfoil_core::direct::{
    AnswerShape, Change, Direct, ErrorMeans, Leg, LookupEnd, Report, Turn, Upstream, decide, lapse,
    look_up_ended, meaning, report,
};
use counterfoil_core::fingerprint::{Fingerprint, KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{
    BootId, Caller, Nonce, OperationId, OperationKey, Principal, Tenant, ToolId, ToolVersion,
};
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_core::operation::{Event, Phase, State, Verdict, step};
use counterfoil_core::record::{Nature, Owner, Record, Resolution};
use counterfoil_core::time::{Span, Timestamp};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

const LEASE_MS: i64 = 100;
/// The upstream does what it does at most so long after the request left.
const EXECUTION_MS: i64 = 150;
/// A look shows an effect so long after it was made.
const LAG_MS: i64 = 50;
const ASKED_MS: i64 = 1000;
const ANSWERS: [&str; 2] = [r#"{"sure":true}"#, r#"{"sure":false}"#];

/// The rules as they are, or with one of them broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Twin {
    Sound,
    /// The end of a lease makes what was sent sendable again.
    LapseFrees,
    /// An absence proves something at once.
    EarlyAbsence,
}

/// The right to send one request, as its sender has it.
#[derive(Debug, Clone)]
struct Sender {
    run: BootId,
    fence: i64,
    leg: u32,
    /// It was told that the dispatch is on record, and may write until then.
    may_write_until: Option<i64>,
    left_at: Option<i64>,
    executed: bool,
    /// The upstream refused it before it began, or the sender gave it up unsent.
    is_dead: bool,
}

struct World {
    twin: Twin,
    now: i64,
    kept: Option<(Record, Direct)>,
    /// The last owner; it stays after the end.
    owner: (BootId, i64),
    asked: HashMap<u32, Fingerprint>,
    senders: Vec<Sender>,
    /// When each effect, or part of one, was made.
    effects: Vec<i64>,
    violation: Option<String>,
}

fn admitted(run: BootId, answers: Option<&str>) -> Admitted {
    let json = |text: &str| parse(text.as_bytes(), &JsonLimits::default()).expect("JSON");
    let key = SecretKey::from_bytes(&[1; 32]).expect("long enough");
    let keys = KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("a ring");
    let caller = Caller {
        tenant: Tenant::parse("local").expect("valid"),
        principal: Principal::parse("alice").expect("valid"),
    };
    let (arguments, answers) = (json("{}"), answers.map(json));
    let call = Call {
        caller: &caller,
        tool_id: &ToolId::parse("memory__create").expect("valid"),
        tool_version: &ToolVersion::parse("1").expect("valid"),
        profile: Profile::JcsV1,
        operation_id: &OperationId::parse("op").expect("valid"),
        arguments: &arguments,
        call_arguments: &arguments,
        continuation_state: answers.as_ref().map(|_| "sealed"),
        input_responses: answers.as_ref(),
        authority: Authority::Present,
    };
    let (key, nonce) = (OperationKey::from_bytes([7; 16]), Nonce::from_bytes([7; 16]));
    let attempt = Attempt { key, nonce, boot: run };
    Admitted::admit(&call, &keys, Span::from_secs(86_400), attempt).expect("canonical")
}

fn begun(call: &Admitted, now: Timestamp) -> (Record, Direct) {
    let caller = call.caller();
    let record = Record {
        key: call.attempt().key,
        tenant: caller.tenant.clone(),
        operation_id: call.operation_id().clone(),
        principal: caller.principal.clone(),
        tool_id: call.tool_id().clone(),
        tool_version: call.tool_version().clone(),
        binding: call.binding().clone(),
        nature: Nature::Direct,
        state: step(None, Event::Claim).expect("begins").to(),
        owner: None,
        effect: None,
        result: None,
        nonce: call.attempt().nonce,
        created_at: now,
        authority_ends_at: None,
        settled_at: None,
        retention_ends_at: None,
        purged: false,
        resolution: None,
    };
    let item = Direct {
        key: record.key,
        upstream: Upstream::parse("memory").expect("valid"),
        minted: false,
        open_slot: false,
        answered_at: None,
        repeat_of: None,
        leg: 1,
        leg_digest: record.binding.full,
        last_send_until: None,
        late_contradiction: false,
    };
    (record, item)
}

impl World {
    fn new(twin: Twin) -> Self {
        Self {
            twin,
            now: 1000,
            kept: None,
            owner: (BootId::from_bytes([0; 16]), 0),
            asked: HashMap::new(),
            senders: Vec::new(),
            effects: Vec::new(),
            violation: None,
        }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn state(&self) -> Option<State> {
        self.kept.as_ref().map(|(record, _)| record.state)
    }

    fn violated(&mut self, words: String) {
        self.violation.get_or_insert(words);
    }

    /// Takes an event of the state machine; whoever is in progress keeps its owner.
    fn take(&mut self, event: Event) {
        let (boot, fence) = self.owner;
        let Some((record, _)) = &mut self.kept else { return };
        let Ok(transition) = step(Some(record.state), event) else { return };
        record.state = transition.to();
        let lease_until = record.owner.map_or(Self::at(self.now), |owner| owner.lease_until);
        let in_progress = matches!(record.state, State::InProgress(_));
        record.owner = in_progress.then_some(Owner { boot, fence, lease_until });
    }

    fn give_to(&mut self, run: BootId, until: i64) {
        self.owner = (run, self.owner.1 + 1);
        let owner = Owner { boot: run, fence: self.owner.1, lease_until: Self::at(until) };
        if let Some((record, _)) = &mut self.kept {
            record.owner = Some(owner);
        }
    }

    fn call(&mut self, run: BootId, leg: Leg, answers: usize, ready: bool) {
        let answers = (leg != Leg::First).then_some(ANSWERS[answers % ANSWERS.len()]);
        let call = admitted(run, answers);
        let time = LedgerTime { now: Self::at(self.now), horizon: Self::at(0) };
        let kept = self.kept.as_ref().map(|(record, item)| (record, item));
        let turn = decide(&call, leg, kept, |leg| self.asked.get(&leg).copied(), time);
        match turn {
            Turn::Fresh => self.kept = Some(begun(&call, Self::at(self.now))),
            Turn::TakeUp => {}
            Turn::Next => {
                if let Some((_, item)) = &mut self.kept {
                    item.leg = leg.number();
                    item.leg_digest = call.binding().full;
                }
            }
            Turn::Replay { .. } | Turn::Refuse(_) | Turn::Unfit => return,
        }
        self.give_to(run, self.now + LEASE_MS);
        let leg = self.kept.as_ref().map_or(1, |(_, item)| item.leg);
        let (may_write_until, fence) = (None, self.owner.1);
        self.senders.push(Sender {
            run,
            fence,
            leg,
            may_write_until,
            left_at: None,
            executed: false,
            is_dead: false,
        });
        if ready || leg > 1 {
            self.dispatch(self.senders.len() - 1);
        }
    }

    fn holds(&self, sender: &Sender) -> bool {
        let leg = self.kept.as_ref().map(|(_, item)| item.leg);
        self.owner == (sender.run, sender.fence) && leg == Some(sender.leg)
    }

    fn dispatch(&mut self, which: usize) {
        let Some(sender) = self.senders.get(which).cloned() else { return };
        let claimed = State::InProgress(Phase::Claimed);
        let asked = State::InProgress(Phase::AwaitingInput);
        if !self.holds(&sender) || sender.is_dead {
            return;
        }
        if self.state() == Some(claimed) || (self.state() == Some(asked) && sender.leg > 1) {
            self.take(Event::Dispatch);
            self.prolong(which);
        }
    }

    /// The lease is prolonged by whoever holds it.
    fn prolong(&mut self, which: usize) {
        let Some(sender) = self.senders.get(which).cloned() else { return };
        if !self.holds(&sender) || self.state() != Some(State::InProgress(Phase::Dispatched)) {
            return;
        }
        let until = self.now + LEASE_MS;
        if let Some((record, item)) = &mut self.kept {
            record.owner = record.owner.map(|o| Owner { lease_until: Self::at(until), ..o });
            item.last_send_until = item.last_send_until.max(Some(Self::at(until)));
        }
        self.senders[which].may_write_until = Some(until);
    }

    /// The first byte leaves: only before the lease ends, by the sender's own clock.
    fn leave(&mut self, which: usize) {
        let now = self.now;
        let Some(sender) = self.senders.get_mut(which) else { return };
        let may_write = sender.may_write_until.is_some_and(|until| now < until);
        if !may_write || sender.left_at.is_some() || sender.is_dead {
            return;
        }
        sender.left_at = Some(now);
        let leg = sender.leg;
        let left = self.senders.iter().filter(|s| s.leg == leg && s.left_at.is_some()).count();
        if left > 1 {
            self.violated(format!("request {leg} left {left} times"));
        }
    }

    /// The upstream does its part of what has left.
    fn execute(&mut self, which: usize) {
        let now = self.now;
        let Some(sender) = self.senders.get_mut(which) else { return };
        let is_due = sender.left_at.is_some_and(|left| now <= left + EXECUTION_MS);
        if is_due && !sender.executed && !sender.is_dead {
            sender.executed = true;
            self.effects.push(now);
        }
    }

    /// A sender tells what it saw. What it saw is true of the upstream.
    fn tell(&mut self, which: usize, how: u8, means: ErrorMeans) {
        let Some(sender) = self.senders.get_mut(which) else { return };
        let shape = |shape| Report::Answer(meaning(shape, sender.leg, means));
        let left = sender.left_at.is_some();
        let said = match how % 11 {
            0 if sender.executed => shape(AnswerShape::Result { is_error: false }),
            1 | 8..=10 if sender.executed => shape(AnswerShape::InputRequired),
            2 if left && !sender.executed => {
                sender.is_dead = true;
                shape(AnswerShape::Error { code: -32602 })
            }
            // An error that says what its declaration says of it.
            3 if left => match means {
                ErrorMeans::Applied if !sender.executed => return,
                ErrorMeans::NotApplied if sender.executed => return,
                ErrorMeans::NotApplied => {
                    sender.is_dead = true;
                    shape(AnswerShape::Result { is_error: true })
                }
                _ => shape(AnswerShape::Result { is_error: true }),
            },
            4 if left => shape(AnswerShape::Task),
            5 if !left => {
                sender.is_dead = true;
                Report::NotSent
            }
            6 if !left => {
                sender.is_dead = true;
                Report::Withdrawn
            }
            7 if left => Report::Lost,
            _ => return,
        };
        let sender = sender.clone();
        self.report(&sender, said);
    }

    fn report(&mut self, sender: &Sender, said: Report) {
        let holds = self.holds(sender);
        let Some((record, item)) = &self.kept else { return };
        let from = record.state;
        let Ok(change) = report(record, item, holds, sender.leg, said) else { return };
        match change {
            Change::Nothing => {}
            Change::LateContradiction => {
                if let Some((_, item)) = &mut self.kept {
                    item.late_contradiction = true;
                }
            }
            Change::BackToAsked => {
                let earlier = sender.leg - 1;
                if let Some((_, item)) = &mut self.kept {
                    item.leg = earlier;
                    item.leg_digest = self.asked[&earlier];
                }
                self.take(Event::Ask);
                self.give_to(self.owner.0, self.now + ASKED_MS);
            }
            Change::Step(transition) => {
                self.take(transition.event());
                if transition.event() == Event::Ask {
                    let leg = sender.leg;
                    if let Some((record, item)) = &mut self.kept {
                        self.asked.insert(leg, item.leg_digest);
                        let lease_until = Self::at(self.now + ASKED_MS);
                        record.owner = record.owner.map(|o| Owner { lease_until, ..o });
                    }
                }
                if matches!(transition.event(), Event::HandBack | Event::Lapse) {
                    if let Some((_, item)) = &mut self.kept {
                        item.last_send_until = None;
                    }
                    self.give_to(self.owner.0, self.now);
                }
            }
        }
        if from.is_terminal() && self.state() != Some(from) {
            self.violated(format!("{from:?} became {:?}", self.state()));
        }
    }

    fn lapse(&mut self) {
        let Some((record, _)) = &self.kept else { return };
        let Change::Step(transition) = lapse(record, Self::at(self.now)) else { return };
        let was_sent = record.state == State::InProgress(Phase::Dispatched);
        self.take(transition.event());
        if self.twin == Twin::LapseFrees && was_sent {
            if let Some((record, _)) = &mut self.kept {
                record.state = State::InProgress(Phase::Claimed);
            }
            self.give_to(self.owner.0, self.now);
        }
        self.owner.1 += 1;
    }

    fn look(&mut self, stall_ms: i64) {
        let began = self.now;
        let is_seen = self.effects.iter().any(|made| made + LAG_MS <= began);
        self.now += stall_ms;
        let Some((record, item)) = &self.kept else { return };
        let absence_ms = match self.twin {
            Twin::EarlyAbsence => 0,
            _ => EXECUTION_MS + LAG_MS,
        };
        let absence_after = Duration::from_millis(absence_ms.unsigned_abs());
        let item = match self.twin {
            Twin::EarlyAbsence => Direct { last_send_until: Some(Self::at(0)), ..item.clone() },
            _ => item.clone(),
        };
        let end = match is_seen {
            true => LookupEnd::Found,
            false => LookupEnd::Absent { began: Self::at(began), absence_after },
        };
        if let Change::Step(transition) = look_up_ended(record, &item, end) {
            self.take(transition.event());
        }
    }

    /// An operator says what it sees; without proof it may be wrong.
    fn operator(&mut self, says_applied: bool) {
        let Some((record, _)) = &mut self.kept else { return };
        if record.owner.is_some_and(|owner| Self::at(self.now) < owner.lease_until) {
            return;
        }
        if says_applied && self.effects.is_empty() {
            return;
        }
        let verdict = if says_applied { Verdict::Applied } else { Verdict::NotApplied };
        if let Ok(transition) = step(Some(record.state), Event::Resolve(verdict)) {
            record.state = transition.to();
            record.owner = None;
            record.resolution = Some(match verdict {
                Verdict::Applied => Resolution::Proved,
                Verdict::NotApplied => Resolution::Unproved,
            });
            self.owner.1 += 1;
        }
    }

    fn check(&mut self) {
        let Some((record, item)) = &self.kept else { return };
        let is_excused = item.late_contradiction || record.resolution == Some(Resolution::Unproved);
        let words = match record.state {
            State::NotApplied if !is_excused && !self.effects.is_empty() => {
                "not applied, and it is"
            }
            State::Applied if self.effects.is_empty() => "applied, and it is not",
            _ => return,
        };
        let words = format!("{words}: {item:?} {:?}", self.senders);
        self.violated(words);
    }
}

fn run_of(number: u8) -> BootId {
    BootId::from_bytes([1 + number % 2; 16])
}

fn play(twin: Twin, means: ErrorMeans, actions: &[(u8, u8, u8)]) -> World {
    let mut world = World::new(twin);
    for (action, detail, more) in actions {
        // The latest senders have the most to do.
        let count = world.senders.len();
        let which = count.saturating_sub(1 + usize::from(*more) % 2);
        let leg = world.kept.as_ref().map_or(1, |(_, item)| item.leg);
        match action % 16 {
            0 | 1 => world.now += i64::from(*detail),
            2 | 3 => world.call(run_of(*more), Leg::First, 0, detail % 3 > 0),
            4 | 5 => {
                let leg = Leg::Later(leg + 1 - u32::from(detail % 8 == 0));
                world.call(run_of(*more), leg, usize::from(*detail), detail % 3 > 0);
            }
            6 => world.dispatch(which),
            7 | 8 => world.leave(which),
            9 => world.execute(which),
            10..=12 => world.tell(which, *detail, means),
            13 => world.lapse(),
            14 => world.look(i64::from(detail % 64)),
            _ if detail % 8 == 0 => world.operator(more % 2 == 0),
            _ => world.prolong(which),
        }
        world.check();
    }
    // What still can happen, happens; and is told.
    for which in 0..world.senders.len() {
        world.leave(which);
        world.execute(which);
        world.check();
        if world.violation.is_none() && world.senders[which].executed {
            world.tell(which, 0, means);
            world.check();
        }
    }
    world
}

fn means_of(number: u32) -> ErrorMeans {
    [ErrorMeans::Unknown, ErrorMeans::NotApplied, ErrorMeans::Applied][number as usize % 3]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_request_leaves_twice_whatever_happens(
        means in 0_u32..3,
        actions in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..80),
    ) {
        // Promise: each request of an operation leaves at most once, "not applied" is never wrong but
        // by an operator without proof or with the alarm raised, and "applied" rests on an effect.
        let world = play(Twin::Sound, means_of(means), &actions);
        prop_assert_eq!(world.violation, None);
    }
}

/// Plays the same histories each time; gives what the worlds came to.
fn histories(twin: Twin) -> Vec<World> {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 20..120);
    let history = |round| {
        let actions = strategy.new_tree(&mut runner).expect("a tree").current();
        play(twin, means_of(round), &actions)
    };
    (0..3000).map(history).collect()
}

#[test]
fn the_histories_reach_every_end() {
    // Promise: the property above is not true for want of anything happening.
    let worlds = histories(Twin::Sound);
    let reached = |state| worlds.iter().any(|world| world.state() == Some(state));
    for state in [State::Applied, State::NotApplied, State::Answered, State::InDoubt] {
        assert!(reached(state), "{state:?}");
    }
    let any = |is_so: &dyn Fn(&World) -> bool| worlds.iter().any(is_so);
    assert!(any(&|world| world.senders.iter().any(|s| s.leg > 2 && s.executed)), "many requests");
    assert!(any(&|world| world.kept.as_ref().is_some_and(|(_, item)| item.late_contradiction)));
    assert!(any(&|world| world.senders.iter().filter(|s| s.leg == 1).count() > 1), "taken up");
    assert!(worlds.iter().all(|world| world.violation.is_none()));
}

#[test]
fn broken_twins_are_caught() {
    // Promise: rules that free an ID at the end of a lease, or believe an absence at once, do not pass.
    for (twin, words) in [(Twin::LapseFrees, "left 2 times"), (Twin::EarlyAbsence, "not applied")] {
        let violations = histories(twin).into_iter().filter_map(|world| world.violation);
        assert!(violations.into_iter().any(|found| found.contains(words)), "{twin:?} passes");
    }
}
