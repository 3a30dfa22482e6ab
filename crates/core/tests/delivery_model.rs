//! Random histories of one item against a modelled target: two workers, lost and late replies,
//! workers that stall or die, searches with a lag, an operator. Whatever happens, the target holds at
//! most one effect, and an operation that is said to be not applied has none.

use std::time::Duration;

use counterfoil_core::delivery::{
    Contract, Delivery, ErrorClass, Event, Lease, LookupEnd, SendEnd, State, TargetName, Terms,
    Then, Withdrawal, Work, step,
};
use counterfoil_core::identity::{BootId, OperationKey};
use counterfoil_core::operation::{self, State as OperationState};
use counterfoil_core::record::StoredResult;
use counterfoil_core::time::Timestamp;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

const SEND_LIMIT_MS: u64 = 100;
/// Longer than a request takes: a worker may stall before its first byte.
const LEASE_MS: u64 = 600;
/// The target's search shows an effect so long after it was made.
const LAG_MS: u64 = 50;
const LIFETIME_MS: u64 = 2000;

fn contract(number: u8) -> Contract {
    let lifetime = Duration::from_millis(LIFETIME_MS);
    let absence_after = Some(Duration::from_millis(SEND_LIMIT_MS + LAG_MS));
    match number % 6 {
        0 => Contract::Key { lifetime },
        1 => Contract::Lookup { absence_after },
        2 => Contract::KeyAndLookup { lifetime, absence_after },
        3 => Contract::Never,
        4 => Contract::Lookup { absence_after: None },
        _ => Contract::AtLeastOnce,
    }
}

fn terms(contract: Contract) -> Terms {
    Terms {
        contract,
        max_attempts_count: 4,
        backoff_base: Duration::from_millis(10),
        backoff_cap: Duration::from_millis(400),
        send_limit: Duration::from_millis(SEND_LIMIT_MS),
        deliver_within: None,
    }
    .check()
    .expect("good terms")
}

/// A request that left, or may still leave, its sender.
#[derive(Debug, Clone)]
struct UnderWay {
    by: (BootId, i64),
    /// Nothing is written after this.
    until: u64,
    /// The target did it, or found that it had done it.
    answered: bool,
    /// It was refused: the target will never do it.
    refused: bool,
}

struct World {
    now: u64,
    item: Delivery,
    operation: OperationState,
    under_way: Vec<UnderWay>,
    /// When each effect was made.
    effects: Vec<u64>,
    /// When the target first saw the key.
    key_seen: Option<u64>,
}

impl World {
    fn new(contract: Contract) -> Self {
        let target = TargetName::parse("desk").expect("a name");
        let key = OperationKey::from_bytes([7; 16]);
        Self {
            now: 1000,
            item: Delivery::accepted(key, target, terms(contract), Timestamp::from_ms(1000)),
            operation: operation::step(None, operation::Event::Accept).expect("begins").to(),
            under_way: Vec::new(),
            effects: Vec::new(),
            key_seen: None,
        }
    }

    fn at(&self, ms: u64) -> Timestamp {
        Timestamp::from_ms(i64::try_from(ms).expect("small"))
    }

    fn take(&mut self, event: Event) -> bool {
        let before = self.item.clone();
        let Ok(change) = step(&self.item, event, self.at(self.now)) else { return false };
        if before.state.is_final() {
            let same = Delivery {
                late_contradiction: before.late_contradiction,
                external_id: before.external_id.clone(),
                updated_at: before.updated_at,
                ..change.delivery.clone()
            };
            assert_eq!(same, before, "what has ended stays ended");
        }
        if change.fenced {
            assert_eq!(change.delivery.attempts_count, before.attempts_count);
            assert_eq!(change.delivery.fence, before.fence);
        }
        assert!(change.delivery.fence >= before.fence);
        if change.delivery.state == State::Sending && before.state != State::Sending {
            assert_eq!(before.state, State::Leased, "nothing is sent that was not claimed");
        }
        if let Some(event) = change.operation {
            self.operation = operation::step(Some(self.operation), event)
                .unwrap_or_else(|illegal| panic!("{illegal}: {before:?}"))
                .to();
        }
        self.item = change.delivery;
        true
    }

    fn claim(&mut self, worker: u8) {
        if self.item.next_attempt_at.is_none_or(|due| due > self.at(self.now)) {
            return;
        }
        let lease = Lease {
            boot: BootId::from_bytes([worker; 16]),
            until: self.at(self.now + LEASE_MS),
            probe: false,
        };
        self.take(Event::Claim { lease });
    }

    fn holder(&self) -> Option<(BootId, i64)> {
        self.item.lease.map(|lease| (lease.boot, self.item.fence))
    }

    fn begin(&mut self) {
        let (Some(by), State::Leased) = (self.holder(), self.item.state) else { return };
        let until = self.now + LEASE_MS;
        let before = self.item.attempts_count;
        if self.take(Event::BeginSend { by, lease_until: self.at(until) })
            && self.item.state == State::Sending
        {
            assert_eq!(self.item.attempts_count, before + 1);
            self.under_way.push(UnderWay { by, until, answered: false, refused: false });
        }
    }

    /// The target gets the request, if it is still being written.
    fn execute(&mut self, which: usize) {
        let Some(request) = self.under_way.get_mut(which) else { return };
        if self.now > request.until || request.refused || request.answered {
            return;
        }
        request.answered = true;
        let has_keys = matches!(
            self.item.terms.contract,
            Contract::Key { .. } | Contract::KeyAndLookup { .. }
        );
        let remembered = self.key_seen.is_some_and(|seen| self.now < seen + LIFETIME_MS);
        if has_keys && remembered {
            return;
        }
        self.key_seen = Some(self.now);
        self.effects.push(self.now);
    }

    fn report(&mut self, which: usize, how: u8, seed: u64) {
        let Some(request) = self.under_way.get_mut(which) else { return };
        let result = StoredResult::from_text("done");
        let words = String::new();
        let end = match how % 4 {
            0 if request.answered => SendEnd::Applied { external_id: None, result },
            1 if !request.answered => {
                request.refused = true;
                let then = if seed.is_multiple_of(3) {
                    Then::DeadLetter
                } else {
                    Then::Retry { after: None }
                };
                SendEnd::NotApplied { class: ErrorClass::Rejected, words, then }
            }
            2 if !request.answered => {
                request.refused = true;
                SendEnd::NotApplied { class: ErrorClass::Credential, words, then: Then::ParkTarget }
            }
            _ => SendEnd::Unknown { class: ErrorClass::NoReply, words, retry_after: None },
        };
        let by = request.by;
        if matches!(end, SendEnd::Unknown { .. }) {
            // Its sender gave up: nothing more is written.
            request.until = request.until.min(self.now);
        }
        self.take(Event::Sent { by, end, seed });
    }

    fn look(&mut self, seed: u64, stall_ms: u64) {
        let (Some(by), State::Leased) = (self.holder(), self.item.state) else { return };
        if self.item.work(self.at(self.now)) != Some(Work::LookUp) {
            return;
        }
        let begun_at = self.at(self.now);
        let seen = self.effects.iter().filter(|made| **made + LAG_MS <= self.now).count();
        self.now += stall_ms;
        let end = match seen {
            0 => LookupEnd::Absent { begun_at },
            1 => LookupEnd::Found { external_id: None, result: StoredResult::from_text("found") },
            _ => LookupEnd::Many,
        };
        self.take(Event::LookedUp { by, end, seed });
    }

    fn check(&self, doubles_allowed: bool) {
        if !doubles_allowed {
            assert!(self.effects.len() <= 1, "{:?}: {:?}", self.effects, self.item);
        }
        if self.operation == OperationState::NotApplied {
            assert!(self.effects.is_empty(), "said to be not applied: {:?}", self.item);
        }
        if self.operation == OperationState::Applied {
            assert!(!self.effects.is_empty(), "said to be applied: {:?}", self.item);
        }
    }
}

fn run(kind: u8, actions: &[(u8, u8, u64)]) -> World {
    let contract = contract(kind);
    let mut world = World::new(contract);
    let doubles_allowed = contract == Contract::AtLeastOnce;
    for (action, detail, seed) in actions {
        let which = usize::from(*detail) % world.under_way.len().max(1);
        match action % 16 {
            0..=2 => world.now += u64::from(*detail) * 2,
            3 => world.claim(1 + detail % 2),
            // One that has nothing else to do, and waits until the item is due.
            4 | 5 => {
                let due = world.item.next_attempt_at.map_or(0, Timestamp::as_ms);
                world.now = world.now.max(u64::try_from(due).expect("positive"));
                world.claim(1 + detail % 2);
                if detail % 3 > 0 {
                    world.begin();
                }
            }
            6 | 7 => world.begin(),
            8 | 9 => world.execute(which),
            10 | 11 => world.report(which, *detail / 8, *seed),
            12 => world.look(*seed, u64::from(detail % 8) * 10),
            13 => {
                world.take(Event::Lapse { seed: *seed });
            }
            14 => {
                world.take(Event::Redrive);
            }
            _ => {
                let how = if detail % 8 == 3 { Withdrawal::Cancel } else { Withdrawal::Abandon };
                if detail % 4 == 3 {
                    world.take(Event::Withdraw(how));
                }
            }
        }
        world.check(doubles_allowed);
    }
    // Whoever still can, writes.
    for which in 0..world.under_way.len() {
        world.execute(which);
        world.check(doubles_allowed);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn at_most_one_effect_whatever_happens(
        kind in 0_u8..6,
        actions in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u64>()), 0..80),
    ) {
        // Promise: after a dispatch that may have taken effect there is no other, unless the key,
        // proven absence or `at_least_once` allows it; and "not applied" is never wrong.
        run(kind, &actions);
    }
}

#[test]
fn the_histories_reach_every_end() {
    // Promise: the property above is not true for want of anything happening.
    let mut reached = std::collections::BTreeSet::new();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = prop::collection::vec((any::<u8>(), any::<u8>(), any::<u64>()), 40..160);
    for round in 0..3000_u32 {
        let actions = strategy.new_tree(&mut runner).expect("a tree").current();
        let kind = u8::try_from(round % 6).expect("small");
        let world = run(kind, &actions);
        reached.insert((kind, world.item.state));
        if world.item.attempts_count > 1 {
            reached.insert((kind + 100, State::Sending));
        }
    }
    for kind in 0..6 {
        assert!(reached.contains(&(kind, State::Delivered)), "{kind}");
        assert!(reached.contains(&(kind, State::Cancelled)), "{kind}");
        assert!(reached.contains(&(kind + 100, State::Sending)), "{kind}: more than one attempt");
    }
    for kind in [0, 1, 2, 3, 4] {
        assert!(reached.contains(&(kind, State::InDoubt)), "{kind}");
    }
    for kind in [0, 5] {
        assert!(reached.contains(&(kind, State::DeadLetter)), "{kind}");
    }
}
