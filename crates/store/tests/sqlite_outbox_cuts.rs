//! A process that dies between the steps of a delivery: what it leaves is the step before or the
//! step after, and the next process goes on from there.

mod suite;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{Contract, SendEnd, State, TargetName, Terms};
use counterfoil_core::identity::BackendId;
use counterfoil_core::record::StoredResult;
use counterfoil_store::cut::{Cut, arm};
use counterfoil_store::outbox::{
    Acceptance, Accepted, BeginSend, Begun, Claim, DeliveryQuery, Happened, Outbox, Report,
};
use counterfoil_store::sqlite::check;
use counterfoil_store::{SqliteOptions, SqliteStore, Store, UnderWay};
use suite::calls::{BOOT, call};
use suite::clock::TestClock;

/// What tells this program that it is the one to die: the point, and the ledger.
const POINT: &str = "COUNTERFOIL_TEST_CUT";
const LEDGER: &str = "COUNTERFOIL_TEST_LEDGER";
const EXIT_CODE: i32 = 77;
const LEASE: Duration = Duration::from_secs(30);

fn options(path: PathBuf, clock: &Arc<TestClock>) -> SqliteOptions {
    let mut options = SqliteOptions::new(path);
    options.backend_id = Some(BackendId::parse("test").expect("valid"));
    options.clock = Arc::clone(clock) as Arc<dyn counterfoil_store::Clock>;
    options
}

/// Brings one item as far as it comes: accepted, claimed, sent, delivered.
async fn deliver(store: &SqliteStore) -> Option<Accepted> {
    let terms = Terms {
        contract: Contract::Key { lifetime: Duration::from_secs(86_400) },
        max_attempts_count: 3,
        backoff_base: Duration::from_millis(1),
        backoff_cap: Duration::from_millis(1),
        send_limit: Duration::from_secs(10),
        deliver_within: None,
    };
    let target = TargetName::parse("desk").expect("valid");
    let acceptance = Acceptance {
        admitted: call("one").admit(),
        target: target.clone(),
        terms: terms.check().expect("good terms"),
        request: Arc::from(b"POST one".as_slice()),
    };
    let accepted = store.accept(acceptance).await.expect("works");
    let claim = Claim {
        target,
        boot: BOOT,
        lease: LEASE,
        max_count: 1,
        probe: false,
        under_way: UnderWay::default(),
    };
    let item = store.claim(claim).await.expect("works").items.pop()?;
    let (key, fence) = (item.delivery.key, item.delivery.fence);
    let begin = BeginSend { key, boot: BOOT, fence, lease: LEASE };
    assert_eq!(store.begin_send(vec![begin]).await.expect("works"), [Begun::Send]);
    let result = StoredResult::from_text("done");
    let what = Happened::Sent(SendEnd::Applied { external_id: None, result });
    let report = Report { key, boot: BOOT, fence, seed: 0, what };
    store.report(vec![report]).await.expect("works");
    Some(accepted)
}

#[tokio::test]
async fn the_one_that_dies() {
    // Promise: none of its own; the test below starts this program again with a cut to die at.
    let (Ok(point), Ok(ledger)) = (std::env::var(POINT), std::env::var(LEDGER)) else { return };
    let action = Box::new(|_: &str| std::process::exit(EXIT_CODE));
    arm(Cut { at: point, after: 0, action });
    let clock = Arc::new(TestClock::new());
    let store = SqliteStore::open(&options(ledger.into(), &clock)).expect("opens");
    deliver(&store).await;
}

/// Has another process die at a point.
fn die_at(point: &str, ledger: &Path) {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args(["--exact", "the_one_that_dies"])
        .env(POINT, point)
        .env(LEDGER, ledger)
        .output()
        .expect("starts");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(EXIT_CODE), "{point}: {words}");
}

#[tokio::test]
async fn a_death_between_two_steps_leaves_one_of_them() {
    // Promise: acceptance, claim, send and report are each whole or not there; whatever a death
    // leaves, the same call finds it, the item is delivered once its lease has ended, and nothing
    // is taken for not done that may have been.
    let cases = [
        ("store.after_ledger_insert", None, 0),
        ("store.after_outbox_insert", None, 0),
        ("store.after_commit", Some(State::Queued), 0),
        ("store.after_claim", Some(State::Leased), 0),
        ("store.after_begin_send", Some(State::Sending), 1),
        ("store.after_report", Some(State::Delivered), 0),
    ];
    for (point, left, unknown_count) in cases {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger.db");
        die_at(point, &path);
        let clock = Arc::new(TestClock::new());
        let store = SqliteStore::open(&options(path.clone(), &clock)).expect("opens");
        let page = store.deliveries(DeliveryQuery::default()).await.expect("readable");
        let states: Vec<State> = page.items.iter().map(|view| view.delivery.state).collect();
        assert_eq!(states, Vec::from_iter(left), "{point}");
        clock.pass(LEASE);
        store.take_back_lapsed(UnderWay::default(), 10).await.expect("works");
        clock.pass(LEASE);
        let again = deliver(&store).await;
        if left != Some(State::Delivered) {
            let again = again.unwrap_or_else(|| panic!("{point}: there was something to claim"));
            assert_eq!(matches!(again, Accepted::Fresh(_)), left.is_none(), "{point}");
        }
        let page = store.deliveries(DeliveryQuery::default()).await.expect("readable");
        let [view] = &page.items[..] else { panic!("{point}: {page:?}") };
        assert_eq!(view.delivery.state, State::Delivered, "{point}");
        assert_eq!(view.delivery.unknown_count, unknown_count, "{point}");
        store.close().await.expect("closes");
        assert_eq!(check(&path).expect("a ledger").problems, [""; 0], "{point}");
    }
}
