//! SQLite's outbox against the plain model: random histories must get the same answers, items and
//! audit trails from both.

mod suite;

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{
    ALL_STATES, Contract, ErrorClass, LookupEnd, ParkReason, SendEnd, State, TargetName, Terms,
    Then, Withdrawal,
};
use counterfoil_core::identity::{BootId, OperationKey};
use counterfoil_core::operation::Verdict;
use counterfoil_core::record::StoredResult;
use counterfoil_core::time::{Span, Timestamp};
use counterfoil_store::outbox::{
    Acceptance, Action, BeginSend, Claim, ClaimedItem, DeliveryQuery, Happened, Order, Report,
    RevokeOrder, TargetAction, TargetOrder, Which,
};
use counterfoil_store::{Outbox, Resolve, StoreError, UnderWay};
use proptest::prelude::*;
use suite::Factory;
use suite::calls::{BOOT, TestCall, call, caller};
use suite::clock::TestClock;
use suite::effects::note;
use suite::factories::{Memory, Sqlite};
use suite::outbox::OutboxFactory;

/// Few IDs, principals and targets, so that histories meet.
const IDS: [&str; 4] = ["a", "b", "c", "d"];
const PRINCIPALS: [&str; 2] = ["alice", "bob"];
const TENANTS: [&str; 2] = ["local", "other"];
const TARGETS: [&str; 2] = ["desk", "mail"];
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone)]
enum Act {
    Accept {
        who: Who,
        target: usize,
        contract: Contract,
        within: Option<u64>,
    },
    Submit {
        who: Who,
    },
    Claim {
        target: usize,
        max_count: usize,
        lease_s: u64,
        probe: bool,
        other_boot: bool,
    },
    /// Of the items that were claimed, by how long ago; as a batch.
    Begin {
        ago: Vec<usize>,
        lease_s: u64,
        fence_by: i64,
    },
    Report {
        ago: Vec<(usize, Happened)>,
        seed: u64,
        fence_by: i64,
    },
    TakeBack,
    Match {
        known: Vec<usize>,
    },
    Direct {
        which: Vec<Who>,
        action: Action,
    },
    Target {
        target: usize,
        action: TargetAction,
    },
    Revoke {
        who: Who,
        whole: bool,
        revoked: bool,
    },
    Resolve {
        who: Who,
        applied: bool,
        proof: bool,
    },
    List {
        states: Vec<State>,
        max_count: usize,
        target: Option<usize>,
        whole: bool,
    },
    Pass {
        ms: u64,
    },
    SetClock {
        ms: i64,
    },
    Look {
        who: Who,
    },
    Reopen,
}

#[derive(Debug, Clone, Copy)]
struct Who {
    id: usize,
    tenant: usize,
    principal: usize,
    arguments: usize,
}

impl Who {
    fn call(self) -> TestCall {
        TestCall {
            tenant: TENANTS[self.tenant],
            principal: PRINCIPALS[self.principal],
            arguments: [r#"{"n":1}"#, r#"{"n":2}"#][self.arguments],
            retention: Span::from_secs(7200),
            ..call(IDS[self.id])
        }
    }

    fn which(self) -> Which {
        Which::Operation(self.call().tenant(), self.call().operation_id())
    }
}

fn who() -> impl Strategy<Value = Who> {
    (0..IDS.len(), 0..12_usize, 0..8_usize, 0..12_usize).prop_map(
        |(id, tenant, principal, arguments)| Who {
            id,
            tenant: usize::from(tenant == 0),
            principal: usize::from(principal == 0),
            arguments: usize::from(arguments == 0),
        },
    )
}

fn contract() -> impl Strategy<Value = Contract> {
    let (lifetime, absence_after) = (8 * HOUR, Some(HOUR));
    prop_oneof![
        Just(Contract::Key { lifetime }),
        Just(Contract::Lookup { absence_after }),
        Just(Contract::Lookup { absence_after: None }),
        Just(Contract::KeyAndLookup { lifetime, absence_after }),
        Just(Contract::Never),
        Just(Contract::AtLeastOnce),
    ]
}

fn class() -> impl Strategy<Value = ErrorClass> {
    prop::sample::select(&ErrorClass::ALL[..])
}

fn pause() -> impl Strategy<Value = Option<Duration>> {
    prop::option::weighted(0.3, (0..200_u64).prop_map(Duration::from_secs))
}

fn happened() -> impl Strategy<Value = Happened> {
    let result = || StoredResult::from_text("done");
    let then = prop_oneof![
        3 => pause().prop_map(|after| Then::Retry { after }),
        2 => Just(Then::DeadLetter),
        2 => Just(Then::ParkTarget),
    ];
    let words = || "words".to_owned();
    let applied = SendEnd::Applied { external_id: Some("T-1".into()), result: result() };
    let found = LookupEnd::Found { external_id: None, result: result() };
    let sent = prop_oneof![
        2 => Just(applied),
        4 => (class(), then).prop_map(move |(class, then)| {
            SendEnd::NotApplied { class, words: words(), then }
        }),
        4 => (class(), pause()).prop_map(move |(class, retry_after)| {
            SendEnd::Unknown { class, words: words(), retry_after }
        }),
    ];
    let looked_up = prop_oneof![
        2 => Just(found),
        1 => Just(LookupEnd::Many),
        // The store's own now is put in its place.
        4 => Just(LookupEnd::Absent { begun_at: Timestamp::from_ms(0) }),
        2 => pause().prop_map(move |retry_after| LookupEnd::Open { words: words(), retry_after }),
        1 => class().prop_map(move |class| LookupEnd::Barred { class, words: words() }),
    ];
    prop_oneof![
        8 => sent.prop_map(Happened::Sent),
        4 => looked_up.prop_map(Happened::LookedUp),
        1 => Just(Happened::HandedBack),
        1 => prop::sample::select(&ParkReason::ALL[..]).prop_map(Happened::Blocked),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::Redrive),
        Just(Action::Withdraw(Withdrawal::Cancel)),
        Just(Action::Withdraw(Withdrawal::Abandon)),
    ]
}

fn worker_act() -> impl Strategy<Value = Act> {
    let lease_s = || prop_oneof![Just(5_u64), Just(30), Just(600)];
    let fence_by = || prop_oneof![12 => Just(0_i64), 1 => Just(-1), 1 => Just(1)];
    let ago = || prop_oneof![6 => 0..2_usize, 1 => 2..6_usize];
    prop_oneof![
        6 => (0..TARGETS.len(), 0..4_usize, lease_s(), prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(target, max_count, lease_s, probe, other_boot)| {
                Act::Claim { target, max_count, lease_s, probe, other_boot }
            }),
        5 => (prop::collection::vec(ago(), 1..3), lease_s(), fence_by())
            .prop_map(|(ago, lease_s, fence_by)| Act::Begin { ago, lease_s, fence_by }),
        6 => (prop::collection::vec((ago(), happened()), 1..3), any::<u64>(), fence_by())
            .prop_map(|(ago, seed, fence_by)| Act::Report { ago, seed, fence_by }),
        1 => Just(Act::TakeBack),
        1 => prop::collection::vec(0..TARGETS.len(), 0..3).prop_map(|known| Act::Match { known }),
    ]
}

fn other_act() -> impl Strategy<Value = Act> {
    let within = prop::option::weighted(0.2, 1..20_000_u64);
    let states = prop::collection::vec(prop::sample::select(&ALL_STATES[..]), 0..3);
    prop_oneof![
        8 => (who(), 0..TARGETS.len(), contract(), within).prop_map(
            |(who, target, contract, within)| Act::Accept { who, target, contract, within }
        ),
        1 => who().prop_map(|who| Act::Submit { who }),
        3 => (prop::collection::vec(who(), 1..3), action())
            .prop_map(|(which, action)| Act::Direct { which, action }),
        1 => (0..TARGETS.len(), prop_oneof![Just(TargetAction::Pause), Just(TargetAction::Resume)])
            .prop_map(|(target, action)| Act::Target { target, action }),
        2 => (who(), any::<bool>(), any::<bool>())
            .prop_map(|(who, whole, revoked)| Act::Revoke { who, whole, revoked }),
        2 => (who(), any::<bool>(), any::<bool>())
            .prop_map(|(who, applied, proof)| Act::Resolve { who, applied, proof }),
        1 => (states, 0..4_usize, prop::option::of(0..TARGETS.len()), any::<bool>()).prop_map(
            |(states, max_count, target, whole)| Act::List { states, max_count, target, whole }
        ),
        5 => prop_oneof![0..3_000_u64, 0..60_000_u64, 0..7_200_000_u64].prop_map(|ms| Act::Pass { ms }),
        1 => (-20_000_000..20_000_000_i64).prop_map(|ms| Act::SetClock { ms }),
        2 => who().prop_map(|who| Act::Look { who }),
        1 => Just(Act::Reopen),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![1 => worker_act(), 1 => other_act()]
}

fn target(which: usize) -> TargetName {
    TargetName::parse(TARGETS[which]).expect("a good name")
}

fn terms(contract: Contract, within: Option<u64>) -> Terms {
    let terms = Terms {
        contract,
        max_attempts_count: 2,
        backoff_base: Duration::from_secs(1),
        backoff_cap: Duration::from_secs(60),
        send_limit: Duration::from_secs(10),
        deliver_within: within.map(Duration::from_millis),
    };
    terms.check().expect("good terms")
}

/// An item as some worker once held it.
type Held = (OperationKey, BootId, i64);

/// One back end on its way through a history, with a clock of its own that moves alike.
struct Side {
    outbox: Arc<dyn Outbox>,
    clock: Arc<TestClock>,
    /// What was claimed, the last at the end.
    held: Vec<Held>,
}

impl Side {
    fn held(&self, ago: usize, fence_by: i64) -> Held {
        let nobody = (OperationKey::from_bytes([0xff; 16]), BOOT, 1);
        let (key, boot, fence) = self.held.iter().rev().nth(ago).copied().unwrap_or(nobody);
        (key, boot, fence + fence_by)
    }

    /// What an act comes to, in words.
    async fn act(&mut self, act: &Act, number: u64, reopen: Option<&Sqlite>) -> String {
        match act {
            Act::Claim { .. } | Act::Begin { .. } | Act::Report { .. } => self.work(act).await,
            // Which items a bounded part takes first is each back end's own.
            Act::TakeBack => {
                format!("{:?}", self.outbox.take_back_lapsed(UnderWay::default(), 100).await)
            }
            Act::Match { known } => {
                let known = known.iter().map(|which| target(*which)).collect();
                format!("{:?}", self.outbox.match_targets(known, 100).await)
            }
            Act::Accept { who, target: to, contract, within } => {
                let accepted = self.outbox.accept(Acceptance {
                    admitted: who.call().admit_as(number),
                    target: target(*to),
                    terms: terms(*contract, *within),
                    request: Arc::from(format!("request {number}").into_bytes()),
                });
                format!("{:?}", accepted.await)
            }
            Act::Submit { who } => {
                let admitted = who.call().admit_as(number);
                let effect = Arc::new(note("body"));
                let submission = counterfoil_store::Submission { admitted, effect };
                match self.outbox.submit(submission).await {
                    Ok(committed) => format!("{:?}", committed.into_answer()),
                    // The path is the only thing that may differ.
                    Err(StoreError::Io { cause, .. }) => cause,
                    Err(error) => format!("{error:?}"),
                }
            }
            Act::Pass { ms } => {
                self.clock.pass(Duration::from_millis(*ms));
                format!("{}", self.outbox.now().as_ms())
            }
            Act::SetClock { ms } => {
                self.clock.set_by_ms(*ms);
                format!("{}", self.outbox.now().as_ms())
            }
            Act::Look { who } => self.look(*who).await,
            Act::Reopen => {
                // The time that passed in this process since the last write is forgotten with it; a
                // probe keeps it, and moves on by the millisecond that passes here.
                self.clock.pass(Duration::from_millis(1));
                self.outbox.probe().await.expect("works");
                if let Some(factory) = reopen {
                    self.outbox.close().await.expect("closes");
                    self.outbox = factory.open_outbox();
                }
                format!("{:?}", self.outbox.targets().await)
            }
            _ => self.order(act).await,
        }
    }

    async fn work(&mut self, act: &Act) -> String {
        match act {
            Act::Claim { target: of, max_count, lease_s, probe, other_boot } => {
                let claimed = self.outbox.claim(Claim {
                    target: target(*of),
                    boot: if *other_boot { BootId::from_bytes([8; 16]) } else { BOOT },
                    lease: Duration::from_secs(*lease_s),
                    max_count: *max_count,
                    probe: *probe,
                    under_way: UnderWay::default(),
                });
                let mut claimed = claimed.await;
                if let Ok(claimed) = &mut claimed {
                    // Which lapsed item is taken back first is each back end's own.
                    claimed.alarms.sort_by_key(|(key, _)| *key);
                }
                let items = claimed.iter().flat_map(|claimed| &claimed.items);
                let held: Vec<Held> = items.map(held).collect();
                self.held.extend(held);
                let next = self.outbox.next_due(target(*of)).await;
                format!("{claimed:?} {next:?}")
            }
            Act::Begin { ago, lease_s, fence_by } => {
                let begin = |ago: &usize| {
                    let (key, boot, fence) = self.held(*ago, *fence_by);
                    BeginSend { key, boot, fence, lease: Duration::from_secs(*lease_s) }
                };
                let begins = ago.iter().map(begin).collect();
                format!("{:?}", self.outbox.begin_send(begins).await)
            }
            Act::Report { ago, seed, fence_by } => {
                let report = |(ago, what): &(usize, Happened)| {
                    let (key, boot, fence) = self.held(*ago, *fence_by);
                    let what = match what {
                        Happened::LookedUp(LookupEnd::Absent { .. }) => {
                            let begun_at = self.outbox.now();
                            Happened::LookedUp(LookupEnd::Absent { begun_at })
                        }
                        what => what.clone(),
                    };
                    Report { key, boot, fence, seed: *seed, what }
                };
                let reports = ago.iter().map(report).collect();
                format!("{:?}", self.outbox.report(reports).await)
            }
            _ => unreachable!("act() sends only a worker's acts here"),
        }
    }

    async fn order(&self, act: &Act) -> String {
        let (by, reason) = ("olga".to_owned(), "seen".to_owned());
        match act {
            Act::Direct { which, action } => {
                let which = which.iter().map(|who| who.which()).collect();
                let order = Order { which, action: *action, who: by, reason };
                format!("{:?}", self.outbox.direct(order).await)
            }
            Act::Target { target: of, action } => {
                let target = target(*of);
                let order = TargetOrder { target, action: *action, who: by, reason };
                format!("{:?}", self.outbox.direct_target(order).await)
            }
            Act::Revoke { who, whole, revoked } => {
                let caller = caller(who.call().tenant, who.call().principal);
                let order = RevokeOrder {
                    tenant: caller.tenant,
                    principal: (!whole).then_some(caller.principal),
                    revoked: *revoked,
                    who: by,
                    reason,
                };
                let done = self.outbox.set_revoked(order).await;
                let mut told = self.outbox.revoked().await.expect("readable");
                told.sort_by_key(|entry| (entry.tenant.clone(), entry.principal.clone()));
                format!("{done:?} {told:?}")
            }
            Act::Resolve { who, applied, proof } => {
                let said = Resolve {
                    tenant: who.call().tenant(),
                    operation_id: who.call().operation_id(),
                    verdict: if *applied { Verdict::Applied } else { Verdict::NotApplied },
                    who: by,
                    reason,
                    proof: proof.then(|| "how".into()),
                };
                format!("{:?}", self.outbox.resolve(said).await)
            }
            Act::List { states, max_count, target: of, whole } => {
                let query = DeliveryQuery {
                    tenant: (!whole).then(|| call("x").tenant()),
                    target: of.map(target),
                    states: states.clone(),
                    max_count: *max_count,
                    ..DeliveryQuery::default()
                };
                self.follow(query).await
            }
            act => unreachable!("{act:?} is no order"),
        }
    }

    /// All items of a list. How full a page is, and where its cursor stands, is each back end's own.
    async fn follow(&self, mut query: DeliveryQuery) -> String {
        let mut views = Vec::new();
        loop {
            let page = self.outbox.deliveries(query.clone()).await.expect("readable");
            assert!(query.max_count == 0 || page.items.len() <= query.max_count);
            assert_eq!(page.damaged_count, 0);
            views.extend(page.items);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return format!("{views:?}"),
            }
        }
    }

    /// An item with its operation, and its audit trail.
    async fn look(&self, who: Who) -> String {
        let (view, snapshot) = (
            self.outbox.delivery(who.which()).await.expect("readable"),
            self.outbox.look_up(&who.call().tenant(), &who.call().operation_id()).await,
        );
        let trail = match &view {
            Some(view) => self.outbox.audit(view.record.key).await.expect("readable"),
            None => Vec::new(),
        };
        format!("{view:?}\n{snapshot:?}\n{trail:?}")
    }
}

fn held(item: &ClaimedItem) -> Held {
    let boot = item.delivery.lease.expect("a claimed item is leased").boot;
    (item.delivery.key, boot, item.delivery.fence)
}

async fn check_history(history: &[Act]) {
    let clocks = [Arc::new(TestClock::new()), Arc::new(TestClock::new())];
    let memory = Memory::new(Arc::clone(&clocks[0]), Timestamp::from_ms(0));
    let sqlite = Sqlite::new(Arc::clone(&clocks[1]), Timestamp::from_ms(0));
    let [mut model, mut tested] =
        [(memory.open_outbox(), &clocks[0]), (sqlite.open_outbox(), &clocks[1])]
            .map(|(outbox, clock)| Side { outbox, clock: Arc::clone(clock), held: Vec::new() });
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
    let (counted, expected) =
        (tested.outbox.outbox_stats().await, model.outbox.outbox_stats().await);
    assert_eq!(counted, expected);
    assert_eq!(tested.outbox.targets().await, model.outbox.targets().await);
    tested.outbox.close().await.expect("closes");
    let report = counterfoil_store::sqlite::check(&sqlite.options.path).expect("a ledger");
    assert!(report.problems.is_empty(), "{report:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_history_of_deliveries_gets_the_same_answers(
        history in prop::collection::vec(act(), 1..60)
    ) {
        // Promise: both back ends keep one contract, whatever is asked of them in whatever order.
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runs");
        runtime.block_on(check_history(&history));
    }
}

/// `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(64)
}
