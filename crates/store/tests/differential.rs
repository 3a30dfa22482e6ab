//! SQLite against the plain model: random histories must get the same answers, observations and
//! audit trails from both.

mod suite;

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::admission::Authority;
use counterfoil_core::identity::{BackendId, BootId, OperationKey};
use counterfoil_core::observation::observe;
use counterfoil_core::operation::Verdict;
use counterfoil_core::time::{Span, Timestamp};
use counterfoil_store::{Finish, LocalEffect, Resolve, Store, StoreError, Submission};
use proptest::prelude::*;
use suite::Factory;
use suite::calls::{BOOT, TestCall, call, caller, ring};
use suite::clock::{START_MS, TestClock};
use suite::effects::{First, Goes, Probe, TAGS, probe, run};
use suite::factories::{Memory, Sqlite};

const HORIZON_MS: i64 = START_MS - 60_000;

/// Few IDs, tenants and principals, so that histories meet.
const IDS: [&str; 5] = [
    "a",
    "b",
    // A minute before the start, when the horizon stands; one more; and an hour ahead.
    "019e807a-01a0-7000-8000-000000000001",
    "019e807a-019f-7000-8000-000000000002",
    "019e80b1-da80-7000-8000-000000000003",
];
const TENANTS: [&str; 2] = ["local", "other"];
const PRINCIPALS: [&str; 2] = ["alice", "bob"];
const ARGUMENTS: [&str; 2] = [r#"{"n":1}"#, r#"{"n":2}"#];

#[derive(Debug, Clone)]
enum Act {
    Submit { who: Who, effect: Plan, authority: Option<i64>, retention_s: u64, keys: usize },
    Finish { attempts_ago: u64, other_boot: bool, fence: i64, effect: Plan },
    Resolve { who: Who, applied: bool, proof: bool },
    NoteCancel { who: Who },
    DeleteTag { id: i64 },
    BindKeys { keys: usize },
    Pass { ms: u64 },
    SetClock { ms: i64 },
    LookUp { who: Who },
    Reopen,
}

#[derive(Debug, Clone, Copy)]
struct Who {
    id: usize,
    tenant: usize,
    principal: usize,
    arguments: usize,
}

#[derive(Debug, Clone)]
struct Plan {
    first: First,
    follow_up: Goes,
    compensate: Goes,
}

fn rings(which: usize) -> counterfoil_core::fingerprint::KeyRing {
    ring([&[(1, 1)][..], &[(2, 2), (1, 1)], &[(2, 2)], &[(1, 9)]][which])
}

fn who() -> impl Strategy<Value = Who> {
    // Mostly one tenant and one principal: rare differences meet common histories.
    let id = prop_oneof![6 => 0..2_usize, 1 => 2..IDS.len()];
    (id, 0..12_usize, 0..8_usize, 0..8_usize).prop_map(|(id, tenant, principal, arguments)| Who {
        id,
        tenant: usize::from(tenant == 0),
        principal: usize::from(principal == 0),
        arguments: usize::from(arguments == 0),
    })
}

fn goes() -> impl Strategy<Value = Goes> {
    prop_oneof![3 => Just(Goes::Well), 2 => Just(Goes::Fails), 1 => Just(Goes::Panics)]
}

fn plan() -> impl Strategy<Value = Plan> {
    let first = prop_oneof![
        5 => Just(First::Note),
        5 => Just(First::Step),
        1 => Just(First::NoRow),
        1 => Just(First::FailsAfterInsert),
        1 => Just(First::RefusesAfterInsert),
        1 => Just(First::PanicsAfterInsert),
        1 => Just(First::NamesNothing),
    ];
    (first, goes(), goes()).prop_map(|(first, follow_up, compensate)| Plan {
        first,
        follow_up,
        compensate,
    })
}

fn act() -> impl Strategy<Value = Act> {
    let keys = prop_oneof![6 => Just(0_usize), 2 => Just(1), 1 => Just(2), 1 => Just(3)];
    let authority = prop::option::weighted(0.3, -5_000..60_000_i64);
    let retention_s = prop_oneof![3 => Just(86_400_u64), 1 => Just(20)];
    prop_oneof![
        8 => (who(), plan(), authority, retention_s, keys.clone()).prop_map(
            |(who, effect, authority, retention_s, keys)| {
                Act::Submit { who, effect, authority, retention_s, keys }
            }
        ),
        6 => (1..6_u64, prop::bool::weighted(0.1), 0..3_i64, plan()).prop_map(
            |(attempts_ago, other_boot, fence, effect)| {
                let fence = fence.max(1);
                Act::Finish { attempts_ago, other_boot, fence, effect }
            }
        ),
        3 => (who(), any::<bool>(), any::<bool>())
            .prop_map(|(who, applied, proof)| Act::Resolve { who, applied, proof }),
        2 => who().prop_map(|who| Act::NoteCancel { who }),
        1 => (1..4_i64).prop_map(|id| Act::DeleteTag { id }),
        1 => keys.prop_map(|keys| Act::BindKeys { keys }),
        2 => (0..40_000_u64).prop_map(|ms| Act::Pass { ms }),
        1 => (-100_000_000..100_000_000_i64).prop_map(|ms| Act::SetClock { ms }),
        2 => who().prop_map(|who| Act::LookUp { who }),
        1 => Just(Act::Reopen),
    ]
}

/// One back end on its way through a history, with a clock of its own that moves alike.
struct Side {
    store: Arc<dyn Store>,
    clock: Arc<TestClock>,
}

impl Side {
    /// What an act comes to, in words. A SQLite ledger is the only one that can be reopened, which
    /// must change nothing that anybody can see.
    async fn act(&mut self, act: &Act, number: u64, reopen: Option<&Sqlite>) -> String {
        match act {
            Act::Submit { who, effect, authority, retention_s, keys } => {
                let call = TestCall {
                    authority: authority.map_or(Authority::Present, |ms| {
                        Authority::Until(Timestamp::from_ms(START_MS + ms))
                    }),
                    retention: Span::from_secs(*retention_s),
                    keys: rings(*keys),
                    ..who.call()
                };
                let admitted = call.admit_as(number);
                self.submit(Submission { admitted, effect: Arc::new(effect.probe()) }).await
            }
            Act::Finish { attempts_ago, other_boot, fence, effect } => {
                let boot = if *other_boot { BootId::from_bytes([8; 16]) } else { BOOT };
                let key = key(number.saturating_sub(*attempts_ago));
                let effect: Arc<dyn LocalEffect> = Arc::new(effect.probe());
                let finish = Finish { key, boot, fence: *fence, effect };
                format!("{:?}", self.store.finish(finish).await)
            }
            Act::Resolve { who, applied, proof } => {
                let said = Resolve {
                    tenant: who.call().tenant(),
                    operation_id: who.call().operation_id(),
                    verdict: if *applied { Verdict::Applied } else { Verdict::NotApplied },
                    who: "olga".into(),
                    reason: "seen".into(),
                    proof: proof.then(|| "how".into()),
                };
                format!("{:?}", self.store.resolve(said).await)
            }
            Act::NoteCancel { who } => {
                let (call, principal) = (who.call(), PRINCIPALS[who.principal]);
                let caller = caller(call.tenant, principal);
                let id = call.operation_id();
                let noted = self.store.note_cancel(&caller.tenant, &id, &caller.principal).await;
                format!("{noted:?} {}", self.look(*who).await)
            }
            Act::DeleteTag { id } => {
                let id = *id;
                let effect = run(move |tx| tx.delete(TAGS, id).map(drop));
                let admitted = call(&format!("delete-{number}")).admit_as(number);
                self.submit(Submission { admitted, effect: Arc::new(effect) }).await
            }
            Act::BindKeys { keys } => format!("{:?}", self.store.bind_keys(&rings(*keys)).await),
            Act::Pass { ms } => {
                self.clock.pass(Duration::from_millis(*ms));
                format!("{}", self.store.now().as_ms())
            }
            Act::SetClock { ms } => {
                self.clock.set_by_ms(*ms);
                format!("{}", self.store.now().as_ms())
            }
            Act::LookUp { who } => self.look(*who).await,
            Act::Reopen => {
                // The time that passed in this process since the last write is forgotten with it,
                // so something is written first.
                let admitted = call(&format!("reopen-{number}")).admit_as(number);
                let effect = Arc::new(probe(First::NoRow));
                let written = self.submit(Submission { admitted, effect }).await;
                if let Some(factory) = reopen {
                    self.store.close().await.expect("closes");
                    self.store = factory.open();
                }
                written
            }
        }
    }

    async fn submit(&self, submission: Submission) -> String {
        match self.store.submit(submission).await {
            Ok(committed) => format!("{:?}", committed.into_answer()),
            // The path is the only thing that may differ.
            Err(StoreError::Io { cause, .. }) => cause,
            Err(error) => format!("{error:?}"),
        }
    }

    /// What everyone may see of an operation, byte for byte, and its audit trail.
    async fn look(&self, who: Who) -> String {
        let (call, mut seen) = (who.call(), String::new());
        let id = call.operation_id();
        let snapshot = self.store.look_up(&call.tenant(), &id).await.expect("readable");
        let now = self.store.now();
        let backend = BackendId::parse("test").expect("valid");
        assert_eq!(self.store.backend_id(), &backend);
        for principal in PRINCIPALS {
            let caller = caller(call.tenant, principal);
            let account = observe(&caller, &id, &backend, &snapshot, now);
            seen.push_str(&format!("{account:?}\n"));
        }
        if let counterfoil_core::observation::Snapshot::Found { record, .. } = &snapshot {
            seen.push_str(&format!("{:?}\n", self.store.audit(record.key).await));
        }
        format!("{seen}{snapshot:?}")
    }
}

impl Who {
    fn call(self) -> TestCall {
        TestCall {
            tenant: TENANTS[self.tenant],
            principal: PRINCIPALS[self.principal],
            arguments: ARGUMENTS[self.arguments],
            ..call(IDS[self.id])
        }
    }
}

impl Plan {
    fn probe(&self) -> Probe {
        let (follow_up, compensate) = (self.follow_up, self.compensate);
        Probe { follow_up, compensate, ..probe(self.first.clone()) }
    }
}

fn key(number: u64) -> OperationKey {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    OperationKey::from_bytes(key)
}

async fn check_history(history: &[Act]) {
    let horizon = Timestamp::from_ms(HORIZON_MS);
    let clocks = [Arc::new(TestClock::new()), Arc::new(TestClock::new())];
    let memory = Memory::new(Arc::clone(&clocks[0]), horizon);
    let sqlite = Sqlite::new(Arc::clone(&clocks[1]), horizon);
    let mut model = Side { store: memory.open(), clock: Arc::clone(&clocks[0]) };
    let mut tested = Side { store: sqlite.open(), clock: Arc::clone(&clocks[1]) };
    for (number, act) in history.iter().enumerate() {
        let number = number as u64;
        let expected = model.act(act, number, None).await;
        let found = tested.act(act, number, Some(&sqlite)).await;
        assert_eq!(found, expected, "act {number}: {act:?}");
    }
    for id in 0..IDS.len() {
        for tenant in 0..TENANTS.len() {
            let who = Who { id, tenant, principal: 0, arguments: 0 };
            assert_eq!(tested.look(who).await, model.look(who).await, "{who:?}");
        }
    }
    tested.store.close().await.expect("closes");
    let report = counterfoil_store::sqlite::check(&sqlite.options.path).expect("a ledger");
    // A row that another effect deleted is a lost effect to the check, and here it is meant.
    let meant = |problem: &String| {
        problem.contains("made is gone; see ")
            && history.iter().any(|a| matches!(a, Act::DeleteTag { .. }))
    };
    assert!(report.problems.iter().all(meant), "{report:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_history_gets_the_same_answers(history in prop::collection::vec(act(), 1..40)) {
        // Promise: both back ends keep one contract, whatever is asked of them in whatever order.
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runs");
        runtime.block_on(check_history(&history));
    }
}

/// `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(64)
}
