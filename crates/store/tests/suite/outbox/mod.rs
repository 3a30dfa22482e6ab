//! The outbox's part of the suite: accepted calls on their way to a target that is not there.

pub mod accepting;
pub mod asking;
pub mod claiming;
pub mod ordering;
pub mod outcomes;
pub mod searching;
pub mod targets;
pub mod trail;

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{
    Contract, Delivery, ErrorClass, LookupEnd, SendEnd, State, TargetName, Terms, Then, Withdrawal,
    Work,
};
use counterfoil_core::identity::{BootId, OperationKey};
use counterfoil_core::operation;
use counterfoil_core::record::{Record, StoredResult};
use counterfoil_core::time::Timestamp;
use counterfoil_store::outbox::{
    Acceptance, Accepted, Action, BeginSend, Begun, Claim, Claimed, ClaimedItem, DeliveryView,
    Directed, Happened, Order, Report, Reported, RevokeOrder, TargetAction, TargetOrder, Which,
};
use counterfoil_store::{Outbox, UnderWay};

use super::calls::{BOOT, TestCall, call};
use super::clock::START_MS;
use super::{Bench, Factory};

/// A back end with an outbox.
pub trait OutboxFactory: Factory {
    /// Opens the ledger, or opens it again.
    fn open_outbox(&self) -> Arc<dyn Outbox>;
}

/// The target of most items.
pub const DESK: &str = "desk";
/// How long a worker of the tests holds an item.
pub const LEASE: Duration = Duration::from_secs(30);
/// Another run of a worker.
pub const OTHER_BOOT: BootId = BootId::from_bytes([8; 16]);
/// The longest a pause of one of the tests' items can be, and the shortest.
pub const LONGEST: u64 = u64::MAX;
pub const SHORTEST: u64 = 0;
const HOUR: Duration = Duration::from_secs(3600);
pub const DAY: Duration = Duration::from_secs(86_400);

pub const KEY: Contract = Contract::Key { lifetime: DAY };
pub const LOOKUP: Contract = Contract::Lookup { absence_after: Some(HOUR) };
pub const PROVES_NOTHING: Contract = Contract::Lookup { absence_after: None };
pub const KEY_AND_LOOKUP: Contract =
    Contract::KeyAndLookup { lifetime: DAY, absence_after: Some(HOUR) };

/// Three attempts, pauses of up to a second, two and four.
pub fn terms(contract: Contract) -> Terms {
    let terms = Terms {
        contract,
        max_attempts_count: 3,
        backoff_base: Duration::from_secs(1),
        backoff_cap: Duration::from_secs(60),
        send_limit: Duration::from_secs(10),
        deliver_within: None,
    };
    terms.check().expect("good terms")
}

/// One ledger with its outbox under test.
pub struct Desk<F> {
    pub bench: Bench<F>,
    pub outbox: Arc<dyn Outbox>,
}

impl<F: OutboxFactory> Desk<F> {
    pub fn new() -> Self {
        let mut bench = Bench::<F>::new();
        let outbox = bench.factory.open_outbox();
        bench.store = Arc::clone(&outbox) as Arc<dyn counterfoil_store::Store>;
        Self { bench, outbox }
    }

    /// Closes and opens again, where that keeps anything.
    pub async fn reopen(&mut self) {
        if !F::CAPABILITIES.durable {
            eprintln!("{}: not durable, goes on without reopening", F::NAME);
            return;
        }
        self.outbox.close().await.expect("closes");
        self.outbox = self.bench.factory.open_outbox();
        self.bench.store = Arc::clone(&self.outbox) as Arc<dyn counterfoil_store::Store>;
    }

    pub fn pass(&self, time: Duration) {
        self.bench.clock.pass(time);
    }

    pub async fn accept(&self, call: &TestCall, target: &str, terms: Terms) -> Accepted {
        let acceptance = acceptance(call, target, terms);
        self.outbox.accept(acceptance).await.expect("the ledger works")
    }

    /// Accepts a call of that ID for the desk.
    pub async fn fresh(&self, id: &str, contract: Contract) -> OperationKey {
        self.fresh_on(&call(id), terms(contract)).await
    }

    pub async fn fresh_on(&self, call: &TestCall, terms: Terms) -> OperationKey {
        match self.accept(call, DESK, terms).await {
            Accepted::Fresh(view) => view.record.key,
            other => panic!("{}: wanted Fresh, got {other:?}", call.id),
        }
    }

    pub async fn claim(&self, max_count: usize) -> Claimed {
        self.claim_as(claim(max_count)).await
    }

    pub async fn claim_as(&self, claim: Claim) -> Claimed {
        self.outbox.claim(claim).await.expect("the ledger works")
    }

    /// Claims the one item that is due.
    pub async fn one(&self) -> ClaimedItem {
        let mut claimed = self.claim(10).await;
        assert_eq!(claimed.items.len(), 1, "{claimed:?}");
        claimed.items.remove(0)
    }

    /// Claims the one item that is due and begins to send it.
    pub async fn sending(&self) -> ClaimedItem {
        let item = self.one().await;
        assert_eq!(item.work, Work::Send, "{:?}", item.delivery);
        assert_eq!(self.begin(&item).await, Begun::Send);
        item
    }

    pub async fn begin(&self, item: &ClaimedItem) -> Begun {
        self.begin_all(&[begin(item)]).await.remove(0)
    }

    pub async fn begin_all(&self, begins: &[BeginSend]) -> Vec<Begun> {
        self.outbox.begin_send(begins.to_vec()).await.expect("the ledger works")
    }

    pub async fn report(&self, item: &ClaimedItem, what: Happened) -> Reported {
        self.report_all(vec![report(item, what)]).await.remove(0)
    }

    pub async fn report_all(&self, reports: Vec<Report>) -> Vec<Reported> {
        self.outbox.report(reports).await.expect("the ledger works")
    }

    /// One attempt of the one item that is due, from claim to report.
    pub async fn attempt(&self, end: SendEnd) -> Reported {
        let item = self.sending().await;
        self.report(&item, Happened::Sent(end)).await
    }

    /// One search for the one item that is due.
    pub async fn search(&self, end: LookupEnd) -> Reported {
        let item = self.one().await;
        assert_eq!(item.work, Work::LookUp, "{:?}", item.delivery);
        self.report(&item, Happened::LookedUp(end)).await
    }

    /// A search that begins now and finds nothing.
    pub async fn search_in_vain(&self) -> Reported {
        self.search(LookupEnd::Absent { begun_at: self.outbox.now() }).await
    }

    pub async fn view(&self, key: OperationKey) -> DeliveryView {
        self.find(Which::Key(key)).await.expect("it is there")
    }

    pub async fn find(&self, which: Which) -> Option<DeliveryView> {
        self.outbox.delivery(which).await.expect("readable")
    }

    pub async fn item(&self, key: OperationKey) -> Delivery {
        self.view(key).await.delivery
    }

    pub async fn record(&self, key: OperationKey) -> Record {
        self.view(key).await.record
    }

    pub async fn next_due(&self) -> Option<Timestamp> {
        self.outbox.next_due(name(DESK)).await.expect("readable")
    }

    pub async fn order(&self, key: OperationKey, action: Action) -> Directed {
        let order = order(vec![Which::Key(key)], action);
        self.outbox.direct(order).await.expect("the ledger works").remove(0)
    }

    pub async fn tell_target(&self, action: TargetAction) {
        let order =
            TargetOrder { target: name(DESK), action, who: "olga".into(), reason: "seen".into() };
        self.outbox.direct_target(order).await.expect("the ledger works");
    }

    pub async fn revoke(&self, call: &TestCall, whole_tenant: bool, revoked: bool) {
        let caller = super::calls::caller(call.tenant, call.principal);
        let order = RevokeOrder {
            tenant: caller.tenant,
            principal: (!whole_tenant).then_some(caller.principal),
            revoked,
            who: "olga".into(),
            reason: "left".into(),
        };
        self.outbox.set_revoked(order).await.expect("the ledger works");
    }

    /// Item and operation stand as said.
    pub async fn check(&self, key: OperationKey, item: State, operation: operation::State) {
        let view = self.view(key).await;
        assert_eq!((view.delivery.state, view.record.state), (item, operation), "{view:?}");
    }
}

pub const QUEUED: operation::State = operation::State::InProgress(operation::Phase::Queued);
pub const REDRIVE: Action = Action::Redrive;
pub const CANCEL: Action = Action::Withdraw(Withdrawal::Cancel);
pub const ABANDON: Action = Action::Withdraw(Withdrawal::Abandon);

pub fn name(text: &str) -> TargetName {
    TargetName::parse(text).expect("a good name")
}

pub fn acceptance(call: &TestCall, target: &str, terms: Terms) -> Acceptance {
    let request = Arc::from(format!("POST /{}", call.id).into_bytes());
    Acceptance { admitted: call.admit(), target: name(target), terms, request }
}

pub fn claim(max_count: usize) -> Claim {
    Claim {
        target: name(DESK),
        boot: BOOT,
        lease: LEASE,
        max_count,
        probe: false,
        under_way: UnderWay::default(),
    }
}

pub fn begin(item: &ClaimedItem) -> BeginSend {
    let lease = item.delivery.lease.expect("a claimed item is leased");
    BeginSend { key: item.delivery.key, boot: lease.boot, fence: item.delivery.fence, lease: LEASE }
}

pub fn report(item: &ClaimedItem, what: Happened) -> Report {
    let begin = begin(item);
    Report { key: begin.key, boot: begin.boot, fence: begin.fence, seed: SHORTEST, what }
}

pub fn order(which: Vec<Which>, action: Action) -> Order {
    Order { which, action, who: "olga".into(), reason: "seen".into() }
}

pub fn applied() -> SendEnd {
    SendEnd::Applied { external_id: Some("T-1".into()), result: result("T-1") }
}

pub fn result(text: &str) -> StoredResult {
    StoredResult::from_text(text)
}

/// As a proxy's 502: nobody knows.
pub fn unknown() -> SendEnd {
    unknown_as(ErrorClass::ServerError)
}

pub fn unknown_as(class: ErrorClass) -> SendEnd {
    SendEnd::Unknown { class, words: "status 502".into(), retry_after: None }
}

/// Refused by the target itself, in its declared shape.
pub fn refused() -> SendEnd {
    not_applied(ErrorClass::Rejected, Then::DeadLetter)
}

/// Nobody answered, before anything was sent.
pub fn unreachable() -> SendEnd {
    not_applied(ErrorClass::Connect, Then::Retry { after: None })
}

/// The target does not take our credential.
pub fn unauthorized() -> SendEnd {
    not_applied(ErrorClass::Credential, Then::ParkTarget)
}

pub fn not_applied(class: ErrorClass, then: Then) -> SendEnd {
    SendEnd::NotApplied { class, words: "refused".into(), then }
}

pub fn found() -> LookupEnd {
    LookupEnd::Found { external_id: Some("T-1".into()), result: result("T-1") }
}

/// So long after the beginning of a test.
pub fn at(time: Duration) -> Timestamp {
    Timestamp::from_ms(START_MS).plus(time)
}

pub fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}
