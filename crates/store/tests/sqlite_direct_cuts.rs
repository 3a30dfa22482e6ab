//! A process that dies between the steps of a direct operation: what it leaves is the step before or
//! the step after, and no other process sends what it may have sent.

mod suite;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use counterfoil_core::identity::BackendId;
use counterfoil_core::operation::State;
use counterfoil_store::cut::{Cut, arm};
use counterfoil_store::direct::{Begin, Begun, DirectLedger, WhichDirect};
use counterfoil_store::sqlite::check;
use counterfoil_store::{SqliteOptions, SqliteStore, Store};
use suite::calls::call;
use suite::clock::TestClock;
use suite::direct::{APPLIED, CLAIMED, LEASE, SENT, begin, with};

/// What tells this program that it is the one to die: the point, and the ledger.
const POINT: &str = "COUNTERFOIL_TEST_DIRECT_CUT";
const LEDGER: &str = "COUNTERFOIL_TEST_DIRECT_LEDGER";
const EXIT_CODE: i32 = 77;

fn open(path: PathBuf, clock: &Arc<TestClock>) -> SqliteStore {
    let mut options = SqliteOptions::new(path);
    options.backend_id = Some(BackendId::parse("test").expect("valid"));
    options.clock = Arc::clone(clock) as Arc<dyn counterfoil_store::Clock>;
    SqliteStore::open(&options).expect("opens")
}

/// Brings one call as far as it comes: claimed, dispatched, concluded. Says whether it was sent.
async fn send(store: &SqliteStore) -> bool {
    let begun = store.begin(Begin { ready: false, ..begin(&call("one")) }).await.expect("works");
    let hold = match begun {
        Begun::Wait(hold, _) => hold,
        _ => return false,
    };
    if store.dispatch(hold, LEASE).await.expect("works").is_none() {
        return false;
    }
    store.conclude(vec![with(hold, APPLIED, "done")]).await.expect("works");
    true
}

#[tokio::test]
async fn the_one_that_dies() {
    // Promise: none of its own; the test below starts this program again with a cut to die at.
    let (Ok(point), Ok(ledger)) = (std::env::var(POINT), std::env::var(LEDGER)) else { return };
    let action = Box::new(|_: &str| std::process::exit(EXIT_CODE));
    arm(Cut { at: point, after: 0, action });
    send(&open(ledger.into(), &Arc::new(TestClock::new()))).await;
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
async fn a_death_after_the_dispatch_sends_nothing_again() {
    // Promise: after a death before the dispatch the call is taken up and sent; after it, it is in
    // doubt and stays so; after its report it is what was reported.
    let cases = [
        ("store.after_direct_begin", CLAIMED, true, State::Applied),
        ("store.after_direct_dispatch", SENT, false, State::InDoubt),
        ("store.after_direct_conclude", State::Applied, false, State::Applied),
    ];
    for (point, left, sent_again, end) in cases {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger.db");
        die_at(point, &path);
        let clock = Arc::new(TestClock::new());
        let store = open(path.clone(), &clock);
        let state = async || {
            let which = WhichDirect::Id(call("one").tenant(), call("one").operation_id());
            let view = store.direct_view(which).await.expect("readable").expect("there is one");
            view.record.state
        };
        assert_eq!(state().await, left, "{point}");
        clock.pass(LEASE);
        store.lapse(10).await.expect("works");
        assert_eq!(send(&store).await, sent_again, "{point}");
        assert_eq!(state().await, end, "{point}");
        store.close().await.expect("closes");
        assert_eq!(check(&path).expect("a ledger").problems, [""; 0], "{point}");
    }
}
