//! SQLite alone: what a check makes of a call that was taken back.

mod suite;

use counterfoil_core::identity::Principal;
use counterfoil_store::sqlite::check;
use rusqlite::Connection;
use suite::Bench;
use suite::calls::call;
use suite::effects::{Goes, note, two_steps};
use suite::factories::Sqlite;

#[tokio::test]
async fn a_check_tells_a_wish_from_a_step() {
    // Promise: the last step must agree with the state, whatever wish came after it; and a trail
    // that holds nothing but a wish is none.
    let bench = Bench::<Sqlite>::new();
    let alice = Principal::parse("alice").expect("valid");
    let calls = [call("whole"), call("begun")];
    bench.fresh(&calls[0], &note("body")).await;
    bench.fresh(&calls[1], &two_steps(Goes::Well, Goes::Well)).await;
    for call in calls {
        let noted = bench.store.note_cancel(&call.tenant(), &call.operation_id(), &alice);
        noted.await.expect("the ledger works");
    }
    bench.store.close().await.expect("closes");
    let path = &bench.factory.options.path;
    let report = check(path).expect("a ledger");
    assert_eq!((report.problems.as_slice(), report.audit_events_count), ([].as_slice(), 4));

    let connection = Connection::open(path).expect("opens");
    let deleted = connection.execute("DELETE FROM audit_events WHERE seq = 1", []).expect("runs");
    assert_eq!(deleted, 2);
    drop(connection);
    let problems = check(path).expect("a ledger").problems;
    let told = |words: &str| problems.iter().filter(|problem| problem.contains(words)).count();
    assert_eq!(told("has no audit event"), 2, "{problems:?}");
}
