//! SQLite's outbox alone: the file's schema, damaged rows, what the indexes are for, other writers.

mod suite;

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{
    Contract, ErrorClass, ParkReason, SendEnd, State, TargetName, Terms, Then,
};
use counterfoil_core::identity::{OperationKey, Principal, Tenant};
use counterfoil_core::observation::Snapshot;
use counterfoil_core::operation;
use counterfoil_core::record::StoredResult;
use counterfoil_store::outbox::{
    Acceptance, Accepted, Action, BeginSend, Begun, Claim, Claimed, ClaimedItem, DeliveryQuery,
    Directed, Happened, Order, Outbox, Report, RevokeOrder, TargetAction, TargetOrder, Which,
};
use counterfoil_store::sqlite::check;
use counterfoil_store::{SqliteStore, Store, StoreError, UnderWay};
use rusqlite::Connection;
use suite::Bench;
use suite::calls::{BOOT, TestCall, call};
use suite::effects::note;
use suite::factories::{Sqlite, WITHOUT_OUTBOX};
use suite::retention::purge;

const DAY: Duration = Duration::from_secs(86_400);
const LEASE: Duration = Duration::from_secs(30);

/// One ledger in a file, with its outbox.
struct Bed {
    bench: Bench<Sqlite>,
    store: Arc<SqliteStore>,
}

impl Bed {
    fn new() -> Self {
        let mut bench = Bench::<Sqlite>::new();
        let store = Arc::new(SqliteStore::open(&bench.factory.options).expect("opens"));
        bench.store = Arc::clone(&store) as Arc<dyn Store>;
        Self { bench, store }
    }

    fn open_again(&self) -> SqliteStore {
        SqliteStore::open(&self.bench.factory.options).expect("opens")
    }

    fn sql(&self) -> Connection {
        Connection::open(&self.bench.factory.options.path).expect("opens")
    }

    fn problems(&self) -> Vec<String> {
        check(&self.bench.factory.options.path).expect("a ledger").problems
    }

    async fn accept(&self, id: &str) -> OperationKey {
        match self.store.accept(acceptance(&call(id))).await.expect("the ledger works") {
            Accepted::Fresh(view) => view.record.key,
            other => panic!("{id}: wanted Fresh, got {other:?}"),
        }
    }

    async fn claim(&self, max_count: usize) -> Claimed {
        self.store.claim(claim(max_count)).await.expect("the ledger works")
    }

    async fn begin(&self, item: &ClaimedItem) -> Begun {
        self.store.begin_send(vec![begin(item)]).await.expect("the ledger works").remove(0)
    }

    async fn report(&self, item: &ClaimedItem, what: Happened) -> Option<State> {
        let report = report(item, what);
        self.store.report(vec![report]).await.expect("the ledger works").remove(0).state
    }

    /// Accepts, claims, sends and delivers an item.
    async fn deliver(&self, id: &str) -> OperationKey {
        let key = self.accept(id).await;
        let item = self.claim(1).await.items.remove(0);
        assert_eq!(self.begin(&item).await, Begun::Send);
        assert_eq!(self.report(&item, done()).await, Some(State::Delivered));
        key
    }

    async fn counts(&self) -> [u64; 8] {
        self.store.outbox_stats().await.expect("readable").counts
    }
}

fn desk() -> TargetName {
    TargetName::parse("desk").expect("valid")
}

fn terms() -> Terms {
    let terms = Terms {
        contract: Contract::Key { lifetime: DAY },
        max_attempts_count: 3,
        backoff_base: Duration::from_secs(1),
        backoff_cap: Duration::from_secs(60),
        send_limit: Duration::from_secs(10),
        deliver_within: None,
    };
    terms.check().expect("good terms")
}

fn acceptance(call: &TestCall) -> Acceptance {
    let request = Arc::from(format!("POST {}", call.id).as_bytes());
    Acceptance { admitted: call.admit(), target: desk(), terms: terms(), request }
}

fn claim(max_count: usize) -> Claim {
    Claim {
        target: desk(),
        boot: BOOT,
        lease: LEASE,
        max_count,
        probe: false,
        under_way: UnderWay::default(),
    }
}

fn begin(item: &ClaimedItem) -> BeginSend {
    let key = item.delivery.key;
    BeginSend { key, boot: BOOT, fence: item.delivery.fence, lease: LEASE }
}

fn report(item: &ClaimedItem, what: Happened) -> Report {
    let key = item.delivery.key;
    Report { key, boot: BOOT, fence: item.delivery.fence, seed: 0, what }
}

fn done() -> Happened {
    let result = StoredResult::from_text("done");
    Happened::Sent(SendEnd::Applied { external_id: Some("T-1".into()), result })
}

fn refused(then: Then) -> Happened {
    let words = "no".to_owned();
    Happened::Sent(SendEnd::NotApplied { class: ErrorClass::Rejected, words, then })
}

#[tokio::test]
async fn an_older_ledger_gets_its_outbox() {
    // Promise: a file of the version before keeps its rows as they are, can be checked untouched,
    // and takes items; the binaries that wrote it may not open it any more.
    let mut bed = Bed::new();
    let record = bed.bench.fresh(&call("old"), &note("body")).await;
    bed.store.close().await.expect("closes");
    bed.sql().execute_batch(WITHOUT_OUTBOX).expect("takes it back");
    assert_eq!(bed.problems(), [""; 0]);
    bed.store = Arc::new(bed.open_again());
    bed.bench.store = Arc::clone(&bed.store) as Arc<dyn Store>;
    match bed.bench.look_up(&call("old")).await {
        Snapshot::Found { record: kept, .. } => assert_eq!(*kept, record),
        other => panic!("{other:?}"),
    }
    bed.deliver("new").await;
    let versions: (i64, i64) = bed
        .sql()
        .query_row("SELECT version, min_compatible FROM ledger", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .expect("a ledger");
    assert_eq!(versions, (4, 4));
    assert_eq!(bed.problems(), [""; 0]);
}

#[tokio::test]
async fn what_was_promised_outlives_its_process() {
    // Promise: items, leases, requests and targets are there after the ledger is opened again, and
    // a send whose worker went away is an attempt that may have taken effect.
    let mut bed = Bed::new();
    let key = bed.accept("one").await;
    let item = bed.claim(1).await.items.remove(0);
    assert_eq!(bed.begin(&item).await, Begun::Send);
    let pause = TargetOrder {
        target: desk(),
        action: TargetAction::Pause,
        who: "olga".into(),
        reason: "upkeep".into(),
    };
    bed.store.direct_target(pause.clone()).await.expect("works");
    bed.store.close().await.expect("closes");
    bed.store = Arc::new(bed.open_again());
    let view = bed.store.delivery(Which::Key(key)).await.expect("readable").expect("there");
    assert_eq!((view.delivery.state, view.delivery.attempts_count), (State::Sending, 1));
    assert_eq!(view.target.paused.map(|paused| paused.who), Some("olga".into()));
    assert_eq!(bed.claim(1).await, Claimed::default(), "its lease has not ended, and it is paused");
    let resume = TargetOrder { action: TargetAction::Resume, ..pause };
    bed.store.direct_target(resume).await.expect("works");
    bed.bench.clock.pass(LEASE);
    assert_eq!(bed.claim(1).await.items, [], "there is a pause after an attempt");
    bed.bench.clock.pass(Duration::from_secs(2));
    let again = bed.claim(1).await.items.remove(0);
    assert_eq!((again.delivery.unknown_count, again.delivery.fence), (1, 2));
    assert_eq!(&again.request[..], b"POST one");
    assert_eq!(bed.problems(), [""; 0]);
}

#[tokio::test]
async fn damaged_items_are_set_aside_and_the_rest_goes_on() {
    // Promise: whatever is damaged of an item, it is never sent, it does not stop the others, a
    // list counts it and a check names it.
    for (what, damage) in [
        ("item", "UPDATE outbox SET attempts = 7 WHERE operation_key = ?1"),
        ("state", "UPDATE outbox SET state = 5 WHERE operation_key = ?1"),
        ("request", "DELETE FROM outbox_requests WHERE operation_key = ?1"),
        (
            "request's bytes",
            "INSERT OR REPLACE INTO outbox_requests SELECT operation_key, row_check, x'00' \
             FROM outbox_requests WHERE operation_key = ?1",
        ),
        ("record", "UPDATE operations SET fence = 9 WHERE operation_key = ?1"),
    ] {
        let bed = Bed::new();
        let key = bed.accept("bad").await;
        for id in ["good-1", "good-2"] {
            bed.accept(id).await;
        }
        let changed = bed.sql().execute(damage, [key.as_bytes()]).expect(damage);
        assert_eq!(changed, 1, "{what}");
        let items = bed.claim(10).await.items;
        let mut sent_count = 0;
        for item in &items {
            if bed.begin(item).await == Begun::Send {
                assert_ne!(item.delivery.key, key, "{what}");
                sent_count += 1;
                assert_eq!(bed.report(item, done()).await, Some(State::Delivered));
            }
        }
        assert_eq!(sent_count, 2, "{what}");
        bed.bench.clock.pass(LEASE + LEASE);
        assert_eq!(bed.claim(10).await.items, [], "{what}: it is claimed no more");
        let page = bed.store.deliveries(DeliveryQuery::default()).await.expect("readable");
        assert_eq!((page.items.len(), page.damaged_count), (2, 1), "{what}");
        let error = bed.store.delivery(Which::Key(key)).await.expect_err("damaged");
        assert!(matches!(error, StoreError::Quarantined { .. }), "{what}: {error}");
        assert!(!bed.problems().is_empty(), "{what}");
        bed.deliver("after").await;
    }
}

#[tokio::test]
async fn a_damaged_target_stops_itself_alone() {
    // Promise: nothing is claimed for or sent to a target whose row cannot be read, what was sent is
    // still reported, and a check names it.
    let bed = Bed::new();
    for id in ["sent", "held", "waits"] {
        bed.accept(id).await;
    }
    let items = bed.claim(2).await.items;
    assert_eq!(bed.begin(&items[0]).await, Begun::Send);
    let set = |class| {
        let sql = format!("UPDATE outbox_targets SET parked_class = {class}");
        bed.sql().execute(&sql, []).expect("runs");
    };
    set("x'78'");
    let error = bed.store.claim(claim(1)).await.expect_err("damaged");
    assert!(matches!(error, StoreError::Quarantined { .. }), "{error}");
    assert_eq!(bed.begin(&items[1]).await, Begun::Withheld(None));
    assert_eq!(bed.report(&items[0], done()).await, Some(State::Delivered));
    assert_eq!(bed.store.next_due(desk()).await, Ok(None));
    assert!(bed.problems().iter().any(|told| told.contains("the target")), "{:?}", bed.problems());
    set("NULL");
    assert_eq!(bed.claim(9).await.items.len(), 2);
}

#[tokio::test]
async fn the_revoked_are_held_back_at_the_last_step() {
    // Promise: an item that was claimed before its principal was revoked is not sent; restored, it
    // is, and never else; who and why stay on record.
    let bed = Bed::new();
    let key = bed.accept("one").await;
    let item = bed.claim(1).await.items.remove(0);
    let order = RevokeOrder {
        tenant: Tenant::parse("local").expect("valid"),
        principal: Some(Principal::parse("alice").expect("valid")),
        revoked: true,
        who: "olga".into(),
        reason: "left".into(),
    };
    bed.store.set_revoked(order.clone()).await.expect("works");
    assert_eq!(bed.begin(&item).await, Begun::Withheld(None));
    let view = bed.store.delivery(Which::Key(key)).await.expect("readable").expect("there");
    assert_eq!(view.delivery.park, Some(ParkReason::PrincipalRevoked));
    let refusal = bed.store.accept(acceptance(&call("two"))).await.expect("works");
    assert!(matches!(refusal, Accepted::Refused(_)), "{refusal:?}");
    assert_eq!(bed.store.revoked().await.expect("readable").len(), 1);
    bed.store.set_revoked(RevokeOrder { revoked: false, ..order }).await.expect("works");
    let item = bed.claim(1).await.items.remove(0);
    assert_eq!(bed.begin(&item).await, Begun::Send);
    let kinds: Vec<String> = bed
        .sql()
        .prepare("SELECT CAST(kind AS TEXT) FROM outbox_orders ORDER BY order_no")
        .and_then(|mut s| s.query_map([], |row| row.get(0))?.collect())
        .expect("orders");
    assert_eq!(kinds, ["revoked", "restored"]);
    assert_eq!(bed.problems(), [""; 0]);
}

#[tokio::test]
async fn many_parked_items_are_released_in_parts() {
    // Promise: a restore releases every item however many there are, each transaction some.
    const COUNT: usize = 600;
    let bed = Bed::new();
    let order = |revoked| RevokeOrder {
        tenant: Tenant::parse("local").expect("valid"),
        principal: None,
        revoked,
        who: "olga".into(),
        reason: "audit".into(),
    };
    for number in 0..COUNT {
        bed.accept(&format!("op-{number}")).await;
    }
    bed.store.set_revoked(order(true)).await.expect("works");
    while bed.counts().await[State::Queued as usize] > 0 {
        assert_eq!(bed.claim(100).await.items, []);
    }
    assert_eq!(bed.counts().await[State::Parked as usize], COUNT as u64);
    bed.store.set_revoked(order(false)).await.expect("works");
    assert_eq!(bed.counts().await[State::Queued as usize], COUNT as u64);
    assert_eq!(bed.claim(COUNT).await.items.len(), COUNT);
}

#[tokio::test]
async fn retention_takes_the_request_with_the_result() {
    // Promise: the frozen request goes with the result, the item with the record; what is not
    // settled keeps its own.
    let bed = Bed::new();
    bed.deliver("done").await;
    let dead = bed.accept("dead").await;
    let item = bed.claim(1).await.items.remove(0);
    bed.begin(&item).await;
    assert_eq!(bed.report(&item, refused(Then::DeadLetter)).await, Some(State::DeadLetter));
    bed.bench.clock.pass(DAY * 31);
    bed.store.purge(purge()).await.expect("works");
    let requests = |bed: &Bed| -> Vec<Vec<u8>> {
        bed.sql()
            .prepare("SELECT operation_key FROM outbox_requests")
            .and_then(|mut s| s.query_map([], |row| row.get(0))?.collect())
            .expect("readable")
    };
    assert_eq!(requests(&bed), [dead.as_bytes().to_vec()]);
    let frozen = bed.sql().execute("UPDATE outbox_requests SET request = x''", []);
    assert!(frozen.is_err(), "a frozen request is never changed");
    let order = Order {
        which: vec![Which::Key(dead)],
        action: Action::Redrive,
        who: "olga".into(),
        reason: "fixed".into(),
    };
    let directed = bed.store.direct(order).await.expect("works").remove(0);
    assert!(matches!(&directed, Directed::Done(item) if item.state == State::Queued));
    assert_eq!(&bed.claim(1).await.items[0].request[..], b"POST dead");
    assert_eq!(bed.problems(), [""; 0]);
}

#[tokio::test]
async fn two_workers_of_two_processes_share_nothing() {
    // Promise: two processes that claim from one file at once never hold the same item, and each
    // operation is delivered once.
    const COUNT: usize = 200;
    let bed = Bed::new();
    let other = Arc::new(bed.open_again());
    for number in 0..COUNT {
        bed.accept(&format!("op-{number}")).await;
    }
    let mut workers = tokio::task::JoinSet::new();
    for store in [Arc::clone(&bed.store), other] {
        workers.spawn(async move {
            let mut delivered_count = 0;
            loop {
                let items = store.claim(claim(7)).await.expect("works").items;
                if items.is_empty() {
                    return delivered_count;
                }
                let begun = store.begin_send(items.iter().map(begin).collect()).await;
                assert_eq!(begun.expect("works"), vec![Begun::Send; items.len()]);
                let reports = items.iter().map(|item| report(item, done())).collect();
                for reported in store.report(reports).await.expect("works") {
                    assert_eq!((reported.state, reported.fenced), (Some(State::Delivered), false));
                    delivered_count += 1;
                }
            }
        });
    }
    let delivered: usize = workers.join_all().await.into_iter().sum();
    assert_eq!(delivered, COUNT);
    assert_eq!(bed.counts().await[State::Delivered as usize], COUNT as u64);
    assert_eq!(bed.problems(), [""; 0]);
}

#[tokio::test]
async fn an_item_that_is_held_is_not_resolved() {
    // Promise: while a worker may be sending, an operator's word waits for its lease; then the item
    // and its operation are settled together.
    let bed = Bed::new();
    bed.accept("one").await;
    let item = bed.claim(1).await.items.remove(0);
    bed.begin(&item).await;
    let said = |verdict| counterfoil_store::Resolve {
        tenant: Tenant::parse("local").expect("valid"),
        operation_id: call("one").operation_id(),
        verdict,
        who: "olga".into(),
        reason: "seen".into(),
        proof: None,
    };
    let resolved = bed.store.resolve(said(operation::Verdict::Applied)).await.expect("works");
    assert!(matches!(resolved, counterfoil_store::Resolved::Owned { .. }), "{resolved:?}");
    let reused = Happened::Sent(SendEnd::Unknown {
        class: ErrorClass::KeyReused,
        words: "key reused".into(),
        retry_after: None,
    });
    assert_eq!(bed.report(&item, reused).await, Some(State::InDoubt));
    let resolved = bed.store.resolve(said(operation::Verdict::NotApplied)).await.expect("works");
    assert!(matches!(resolved, counterfoil_store::Resolved::Done(_)), "{resolved:?}");
    assert_eq!(bed.counts().await[State::Cancelled as usize], 1);
    assert_eq!(bed.report(&item, done()).await, Some(State::Cancelled), "late, and only noted");
    assert_eq!(bed.problems(), [""; 0]);
}

#[tokio::test]
async fn a_full_disk_stops_new_work_and_lets_attempts_end() {
    // Promise: on a full disk nothing is accepted or claimed, what was sent is still reported, who
    // was accepted before gets the answer, and all goes on once there is room.
    let directory = tempfile::tempdir().expect("a directory");
    let Some(_mounted) = suite::mounts::tmpfs(directory.path(), "6m") else { return };
    let mut bed = Bed::new();
    bed.bench.factory.options.path = directory.path().join("ledger.db");
    bed.store = Arc::new(bed.open_again());
    let accepted = call("begun");
    bed.store.accept(acceptance(&accepted)).await.expect("works");
    let item = bed.claim(1).await.items.remove(0);
    assert_eq!(bed.begin(&item).await, Begun::Send);
    let filler = directory.path().join("filler");
    std::fs::write(&filler, vec![1; 8 << 20]).expect_err("the disk is full");
    let mut number = 0;
    let full = loop {
        number += 1;
        let request = Arc::from(vec![7; 20_000]);
        let filling = Acceptance { request, ..acceptance(&call(&format!("filling-{number}"))) };
        match bed.store.accept(filling).await {
            Ok(Accepted::Fresh(_)) if number < 1_000 => {}
            other => break other,
        }
    };
    assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
    assert_eq!(bed.report(&item, done()).await, Some(State::Delivered));
    // The room that was kept is gone now.
    for error in [
        bed.store.accept(acceptance(&call("small"))).await.expect_err("full"),
        bed.store.claim(claim(1)).await.expect_err("full"),
    ] {
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
    }
    let again = bed.store.accept(acceptance(&accepted)).await.expect("an answer");
    assert!(matches!(again, Accepted::Duplicate(_)), "{again:?}");
    std::fs::remove_file(&filler).expect("frees");
    bed.accept("small").await;
    assert_eq!(bed.claim(1_000).await.items.len(), number);
    bed.store.close().await.expect("closes");
    assert_eq!(bed.problems(), [""; 0]);
}

#[tokio::test]
async fn a_report_waits_for_no_luck_behind_another_writer() {
    // Promise: while another process holds the write lock nothing is claimed or sent, with a clear
    // word; the same report again is safe.
    let mut bed = Bed::new();
    bed.bench.factory.options.lock_wait = Duration::ZERO;
    bed.store = Arc::new(bed.open_again());
    bed.accept("one").await;
    bed.accept("two").await;
    let item = bed.claim(1).await.items.remove(0);
    assert_eq!(bed.begin(&item).await, Begun::Send);
    let other = bed.sql();
    other.execute_batch("BEGIN IMMEDIATE").expect("locks");
    let busy = |error: &StoreError| matches!(error, StoreError::Busy { .. });
    assert!(busy(&bed.store.claim(claim(1)).await.expect_err("busy")));
    assert!(busy(&bed.store.report(vec![report(&item, done())]).await.expect_err("busy")));
    // What only looks goes on.
    assert_eq!(bed.counts().await[State::Sending as usize], 1);
    assert_eq!(bed.store.take_back_lapsed(UnderWay::default(), 10).await.map(|it| it.len()), Ok(0));
    assert_eq!(bed.store.match_targets(vec![desk()], 10).await, Ok(0));
    assert!(bed.store.next_due(desk()).await.expect("readable").is_some());
    drop(other);
    assert_eq!(bed.report(&item, done()).await, Some(State::Delivered));
    assert_eq!(bed.report(&item, done()).await, Some(State::Delivered));
    assert_eq!(bed.counts().await[State::Delivered as usize], 1);
    assert_eq!(bed.problems(), [""; 0]);
}
