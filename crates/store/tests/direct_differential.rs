//! SQLite's direct operations against the plain model: random histories must get the same answers,
//! operations and audit trails from both.

mod suite;

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::direct::{Leg, LookupEnd, Meaning, Reply, ReplyKind, Report, Upstream};
use counterfoil_core::identity::{BootId, OperationId, OperationKey};
use counterfoil_core::operation::Verdict;
use counterfoil_core::record::StoredResult;
use counterfoil_core::time::{Span, Timestamp};
use counterfoil_store::direct::{
    Begin, Begun, Conclusion, Hold, Identity, LookupFound, Told, WhichDirect,
};
use counterfoil_store::{DirectLedger, ListQuery, Resolve, StoreError};
use proptest::prelude::*;
use suite::Factory;
use suite::calls::{BOOT, TestCall, call, caller, ring};
use suite::clock::TestClock;
use suite::direct::DirectFactory;
use suite::effects::note;
use suite::factories::{Memory, Sqlite};

/// Few IDs, principals and upstreams, so that histories meet.
const IDS: [&str; 4] = ["a", "b", "c", "d"];
const PRINCIPALS: [&str; 2] = ["alice", "bob"];
const TENANTS: [&str; 2] = ["local", "other"];
const UPSTREAMS: [&str; 2] = ["memory", "github"];
const ANSWERS: [&str; 2] = [r#"{"sure":true}"#, r#"{"sure":false}"#];

#[derive(Debug, Clone)]
enum Act {
    Begin { who: Who, how: How, leg: u32, ready: bool, lease_s: u64, told: Vec<(usize, bool)> },
    Submit { who: Who },
    Dispatch { ago: usize, lease_s: u64, fence_by: i64 },
    Conclude { ago: Vec<(usize, Report, usize)>, fence_by: i64 },
    Renew { ago: Vec<usize>, lease_s: u64, fence_by: i64 },
    Tell { ago: usize, answered: bool },
    Lapse { max_count: usize },
    LookUp { ago: usize, found: bool, absence_s: u64 },
    Resolve { who: Who, applied: bool, proof: bool },
    Cancel { who: Who },
    InDoubt { upstream: usize, max_count: usize },
    List,
    Look { who: Who },
    Pass { ms: u64 },
    SetClock { ms: i64 },
    Reopen,
}

#[derive(Debug, Clone, Copy)]
struct Who {
    id: usize,
    tenant: usize,
    principal: usize,
    arguments: usize,
    answers: usize,
    newer_key: bool,
    other_boot: bool,
}

#[derive(Debug, Clone, Copy)]
enum How {
    Given,
    Minted,
    Joins {
        age_s: u64,
    },
    /// Wants what one of the IDs, or one that was made, is.
    Repeats {
        id: usize,
        own: Option<u64>,
    },
}

impl Who {
    fn call(self) -> TestCall {
        TestCall {
            tenant: TENANTS[self.tenant],
            principal: PRINCIPALS[self.principal],
            arguments: [r#"{"n":1}"#, r#"{"n":2}"#][self.arguments],
            retention: Span::from_secs(7200),
            keys: ring(if self.newer_key { &[(2, 2), (1, 1)] } else { &[(1, 1), (2, 2)] }),
            boot: if self.other_boot { BootId::from_bytes([8; 16]) } else { BOOT },
            ..call(IDS[self.id])
        }
    }
}

fn who() -> impl Strategy<Value = Who> {
    (0..IDS.len(), 0..12_usize, 0..8_usize, 0..8_usize, 0..2_usize, any::<bool>(), any::<bool>())
        .prop_map(|(id, tenant, principal, arguments, answers, newer_key, other_boot)| Who {
            id,
            tenant: usize::from(tenant == 0),
            principal: usize::from(principal == 0),
            arguments: usize::from(arguments == 0),
            answers,
            newer_key,
            other_boot,
        })
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        4 => Just(How::Given),
        1 => Just(How::Minted),
        4 => prop_oneof![Just(60_u64), Just(3600), Just(86_400)]
            .prop_map(|age_s| How::Joins { age_s }),
        2 => (0..IDS.len(), prop::option::of(0..8_u64)).prop_map(|(id, own)| How::Repeats { id, own }),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    prop_oneof![
        2 => Just(Report::Answer(Meaning::Applied)),
        1 => Just(Report::Answer(Meaning::NotApplied)),
        2 => Just(Report::Answer(Meaning::Answered)),
        5 => Just(Report::Answer(Meaning::Asks)),
        1 => Just(Report::Answer(Meaning::Unknown)),
        2 => Just(Report::Lost),
        2 => Just(Report::NotSent),
        1 => Just(Report::Withdrawn),
    ]
}

fn caller_act() -> impl Strategy<Value = Act> {
    let told = prop::collection::vec((0..4_usize, prop::bool::weighted(0.8)), 0..2);
    let leg = prop_oneof![5 => Just(1_u32), 3 => Just(2), 1 => Just(3)];
    prop_oneof![
        12 => (who(), how(), leg, prop::bool::weighted(0.8), 5..60_u64, told).prop_map(
            |(who, how, leg, ready, lease_s, told)| Act::Begin { who, how, leg, ready, lease_s, told }
        ),
        1 => who().prop_map(|who| Act::Submit { who }),
        2 => (0..4_usize, prop::bool::weighted(0.7))
            .prop_map(|(ago, answered)| Act::Tell { ago, answered }),
        1 => who().prop_map(|who| Act::Cancel { who }),
        1 => (who(), any::<bool>(), any::<bool>())
            .prop_map(|(who, applied, proof)| Act::Resolve { who, applied, proof }),
        2 => who().prop_map(|who| Act::Look { who }),
        1 => Just(Act::List),
    ]
}

fn sender_act() -> impl Strategy<Value = Act> {
    let ago = || prop_oneof![6 => 0..2_usize, 1 => 2..6_usize];
    let fence_by = || prop_oneof![12 => Just(0_i64), 1 => Just(-1), 1 => Just(1)];
    let length = prop_oneof![4 => 0..2_usize, 1 => 1000..3000_usize];
    prop_oneof![
        2 => (ago(), 5..60_u64, fence_by())
            .prop_map(|(ago, lease_s, fence_by)| Act::Dispatch { ago, lease_s, fence_by }),
        8 => (prop::collection::vec((ago(), report(), length), 1..3), fence_by())
            .prop_map(|(ago, fence_by)| Act::Conclude { ago, fence_by }),
        1 => (prop::collection::vec(ago(), 1..3), 5..60_u64, fence_by())
            .prop_map(|(ago, lease_s, fence_by)| Act::Renew { ago, lease_s, fence_by }),
        2 => (1..4_usize).prop_map(|max_count| Act::Lapse { max_count }),
        2 => (ago(), any::<bool>(), 0..120_u64)
            .prop_map(|(ago, found, absence_s)| Act::LookUp { ago, found, absence_s }),
        1 => (0..UPSTREAMS.len(), 0..4_usize)
            .prop_map(|(upstream, max_count)| Act::InDoubt { upstream, max_count }),
        4 => prop_oneof![0..3_000_u64, 0..60_000_u64, 0..90_000_000_u64]
            .prop_map(|ms| Act::Pass { ms }),
        1 => (-20_000_000..20_000_000_i64).prop_map(|ms| Act::SetClock { ms }),
        1 => Just(Act::Reopen),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![1 => caller_act(), 1 => sender_act()]
}

fn reply(report: Report, length: usize, number: u64) -> Option<Reply> {
    let kind = match report {
        Report::Answer(Meaning::Asks) => ReplyKind::InputRequired,
        Report::Answer(Meaning::Answered) => ReplyKind::Error,
        Report::Answer(_) => ReplyKind::Result,
        _ => return None,
    };
    // Now and then an answer that cannot be kept.
    let json = format!("{{\"number\":{number},\"text\":\"{}\"}}", "x".repeat(length));
    (length != 1).then(|| Reply { kind, revision: "r".into(), json: Arc::from(json.into_bytes()) })
}

/// One back end on its way through a history, with a clock of its own that moves alike.
struct Side {
    ledger: Arc<dyn DirectLedger>,
    clock: Arc<TestClock>,
    /// What was given to senders, the last at the end.
    held: Vec<Hold>,
}

impl Side {
    fn held(&self, ago: usize, fence_by: i64) -> Hold {
        let nobody =
            Hold { key: OperationKey::from_bytes([0xff; 16]), boot: BOOT, fence: 1, leg: 1 };
        let hold = self.held.iter().rev().nth(ago).copied().unwrap_or(nobody);
        Hold { fence: hold.fence + fence_by, ..hold }
    }

    /// What an act comes to, in words.
    async fn act(&mut self, act: &Act, number: u64, reopen: Option<&Sqlite>) -> String {
        match act {
            Act::Begin { .. } => self.begin(act, number).await,
            Act::Submit { who } => {
                let (admitted, effect) = (who.call().admit_as(number), Arc::new(note("body")));
                let submission = counterfoil_store::Submission { admitted, effect };
                match self.ledger.submit(submission).await {
                    Ok(committed) => format!("{:?}", committed.into_answer()),
                    Err(StoreError::Io { cause, .. }) => cause,
                    Err(error) => format!("{error:?}"),
                }
            }
            Act::Tell { ago, answered } => {
                let told = Told { key: self.held(*ago, 0).key, answered: *answered };
                format!("{:?}", self.ledger.tell(vec![told]).await)
            }
            Act::Cancel { who } => {
                let (call, by) = (who.call(), caller(who.call().tenant, who.call().principal));
                let noted =
                    self.ledger.note_cancel(&call.tenant(), &call.operation_id(), &by.principal);
                format!("{:?}", noted.await)
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
                format!("{:?}", self.ledger.resolve(said).await)
            }
            Act::Look { who } => self.look(&who.call()).await,
            Act::List => {
                let query = ListQuery::of_tenant(call("x").tenant());
                let stats = self.ledger.stats().await.expect("readable").unsettled;
                format!("{:?} {stats}", self.ledger.list(query).await)
            }
            Act::Pass { ms } => {
                self.clock.pass(Duration::from_millis(*ms));
                format!("{}", self.ledger.now().as_ms())
            }
            Act::SetClock { ms } => {
                self.clock.set_by_ms(*ms);
                format!("{}", self.ledger.now().as_ms())
            }
            Act::Reopen => {
                // The time that passed in this process since the last write is forgotten with it; a
                // probe keeps it, and moves on by the millisecond that passes here.
                self.clock.pass(Duration::from_millis(1));
                self.ledger.probe().await.expect("works");
                if let Some(factory) = reopen {
                    self.ledger.close().await.expect("closes");
                    self.ledger = factory.open_direct();
                }
                String::new()
            }
            _ => self.work(act, number).await,
        }
    }

    async fn begin(&mut self, act: &Act, number: u64) -> String {
        let Act::Begin { who, how, leg, ready, lease_s, told } = act else { unreachable!("begin") };
        let own = || format!("own-{}", number % 8);
        let mut call = who.call();
        if !matches!(how, How::Given) {
            call.id = own();
        }
        call.answers = (*leg > 1).then(|| ANSWERS[who.answers]);
        let identity = match how {
            How::Given => Identity::Given,
            How::Minted => Identity::Minted,
            How::Joins { age_s } => Identity::Joins(Duration::from_secs(*age_s)),
            How::Repeats { id, own } => {
                let id = own.map_or_else(|| IDS[*id].to_owned(), |own| format!("own-{own}"));
                Identity::Repeats(OperationId::parse(&id).expect("valid"))
            }
        };
        let told = told.iter();
        let told = told
            .map(|(ago, answered)| Told { key: self.held(*ago, 0).key, answered: *answered })
            .collect();
        let begun = self.ledger.begin(Begin {
            admitted: call.admit_as(number),
            upstream: Upstream::parse(UPSTREAMS[number as usize % 2]).expect("valid"),
            leg: if *leg == 1 { Leg::First } else { Leg::Later(*leg) },
            identity,
            ready: *ready,
            lease: Duration::from_secs(*lease_s),
            memo: number.is_multiple_of(3).then(|| Arc::from(number.to_be_bytes().as_slice())),
            told,
        });
        let begun = begun.await;
        if let Ok(Begun::Send(hold, _) | Begun::Wait(hold, _)) = &begun {
            self.held.push(*hold);
        }
        match begun {
            Err(StoreError::Io { cause, .. }) => cause,
            begun => format!("{begun:?}"),
        }
    }

    async fn work(&mut self, act: &Act, number: u64) -> String {
        match act {
            Act::Dispatch { ago, lease_s, fence_by } => {
                let hold = self.held(*ago, *fence_by);
                format!("{:?}", self.ledger.dispatch(hold, Duration::from_secs(*lease_s)).await)
            }
            Act::Conclude { ago, fence_by } => {
                let until = self.ledger.now().plus(Duration::from_secs(600));
                let said = |(ago, report, length): &(usize, Report, usize)| Conclusion {
                    hold: self.held(*ago, *fence_by),
                    report: *report,
                    reply: reply(*report, *length, number),
                    result: number.is_multiple_of(2).then(|| StoredResult::from_text("words")),
                    asked_until: (length % 2 == 0).then_some(until),
                    why: number.is_multiple_of(5).then(|| "why".into()),
                };
                // One at a time: whether a batch with a key that nobody has leaves its other reports
                // is each back end's own.
                let mut told = String::new();
                for said in ago.iter().map(said).collect::<Vec<_>>() {
                    told += &format!("{:?}\n", self.ledger.conclude(vec![said]).await);
                }
                told
            }
            Act::Renew { ago, lease_s, fence_by } => {
                let holds = ago.iter().map(|ago| self.held(*ago, *fence_by)).collect();
                format!("{:?}", self.ledger.renew(holds, Duration::from_secs(*lease_s)).await)
            }
            Act::Lapse { max_count } => format!("{:?}", self.ledger.lapse(*max_count).await),
            Act::LookUp { ago, found, absence_s } => {
                let absence_after = Duration::from_secs(*absence_s);
                let began = self.ledger.now();
                let found = LookupFound {
                    key: self.held(*ago, 0).key,
                    end: match found {
                        true => LookupEnd::Found,
                        false => LookupEnd::Absent { began, absence_after },
                    },
                    result: StoredResult::from_text("looked"),
                    how: "rule".into(),
                };
                format!("{:?}", self.ledger.settle_by_lookup(found).await)
            }
            Act::InDoubt { upstream, max_count } => {
                let upstream = Upstream::parse(UPSTREAMS[*upstream]).expect("valid");
                format!("{:?}", self.ledger.in_doubt(upstream, None, *max_count).await)
            }
            act => unreachable!("{act:?} is no work"),
        }
    }

    /// An operation with all that is kept of it.
    async fn look(&self, call: &TestCall) -> String {
        let which = WhichDirect::Id(call.tenant(), call.operation_id());
        let view = self.ledger.direct_view(which).await.expect("readable");
        let snapshot = self.ledger.look_up(&call.tenant(), &call.operation_id()).await;
        let Some(view) = view else { return format!("{snapshot:?}") };
        let key = view.record.key;
        let trail = self.ledger.audit(key).await.expect("readable");
        let mut replies = Vec::new();
        for leg in 1..=view.item.leg + 1 {
            replies.push(self.ledger.reply(key, leg).await.expect("readable"));
        }
        format!("{view:?}\n{snapshot:?}\n{trail:?}\n{replies:?}")
    }
}

async fn check_history(history: &[Act]) {
    let clocks = [Arc::new(TestClock::new()), Arc::new(TestClock::new())];
    let memory = Memory::new(Arc::clone(&clocks[0]), Timestamp::from_ms(0));
    let sqlite = Sqlite::new(Arc::clone(&clocks[1]), Timestamp::from_ms(0));
    let [mut model, mut tested] =
        [(memory.open_direct(), &clocks[0]), (sqlite.open_direct(), &clocks[1])]
            .map(|(ledger, clock)| Side { ledger, clock: Arc::clone(clock), held: Vec::new() });
    for (number, act) in history.iter().enumerate() {
        let number = number as u64;
        let expected = model.act(act, number, None).await;
        let found = tested.act(act, number, Some(&sqlite)).await;
        assert_eq!(found, expected, "act {number}: {act:?}");
    }
    for tenant in TENANTS {
        let own = (0..8).map(|number| format!("own-{number}"));
        for id in IDS.map(str::to_owned).into_iter().chain(own) {
            let call = TestCall { tenant, ..call(&id) };
            assert_eq!(tested.look(&call).await, model.look(&call).await, "{id} of {tenant}");
        }
    }
    assert_eq!(tested.ledger.keys_in_use().await, model.ledger.keys_in_use().await);
    tested.ledger.close().await.expect("closes");
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
    fn any_history_of_direct_operations_gets_the_same_answers(
        history in prop::collection::vec(act(), 1..80)
    ) {
        // Promise: both back ends keep one contract, whatever is asked of them in whatever order.
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runs");
        runtime.block_on(check_history(&history));
    }
}

/// `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(96)
}
