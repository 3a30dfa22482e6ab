//! Direct operations in a SQLite file: damage, older files, two processes, and what is on the disk.

mod suite;

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::direct::{ReplyKind, Report};
use counterfoil_core::observation::Snapshot;
use counterfoil_core::operation::State;
use counterfoil_core::refusal::Code;
use counterfoil_store::direct::{Begun, Conclusion, Hold, WhichDirect};
use counterfoil_store::sqlite::check;
use counterfoil_store::{DirectLedger, Purge, SqliteStore, StoreError};
use rusqlite::Connection;
use suite::calls::{TestCall, call};
use suite::direct::{APPLIED, ASKS, LEASE, Wire, begin, joining, later, plain, reply, with};
use suite::effects::note;
use suite::factories::{Sqlite, WITHOUT_DIRECTS};

type File = Wire<Sqlite>;

fn sql(wire: &File) -> Connection {
    Connection::open(&wire.bench.factory.options.path).expect("opens")
}

fn problems(wire: &File) -> Vec<String> {
    check(&wire.bench.factory.options.path).expect("a ledger").problems
}

async fn begin_fails(wire: &File, asked: counterfoil_store::direct::Begin) {
    match wire.ledger.begin(asked).await {
        Err(StoreError::Quarantined { .. }) => {}
        other => panic!("wanted Quarantined, got {other:?}"),
    }
}

#[tokio::test]
async fn an_older_ledger_gets_its_tables() {
    // Promise: a file of the version before keeps its rows as they are, can be checked untouched,
    // and takes direct operations; the binaries that wrote it may not open it any more.
    let mut wire = File::new();
    let record = wire.bench.fresh(&call("old"), &note("body")).await;
    wire.ledger.close().await.expect("closes");
    sql(&wire).execute_batch(WITHOUT_DIRECTS).expect("takes it back");
    assert_eq!(problems(&wire), [""; 0]);
    wire.reopen().await;
    match wire.bench.look_up(&call("old")).await {
        Snapshot::Found { record: kept, .. } => assert_eq!(*kept, record),
        other => panic!("{other:?}"),
    }
    let hold = wire.send(&call("new")).await;
    wire.moved(with(hold, APPLIED, "done")).await;
    let versions: (i64, i64) = sql(&wire)
        .query_row("SELECT version, min_compatible FROM ledger", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .expect("a ledger");
    assert_eq!(versions, (4, 4));
    assert_eq!(problems(&wire), [""; 0]);
}

#[tokio::test]
async fn a_damaged_operation_is_set_aside_and_the_rest_goes_on() {
    // Promise: nothing of a damaged row is believed: its call is neither sent nor answered, an equal
    // call without an ID is not taken for new work, the others go on, and the check names it.
    let cases = [
        ("leg = 2", "row_check"),
        ("upstream = x''", "upstream"),
        ("in_doubt = 1", "row_check"),
        ("last_send_until_ms = NULL", "row_check"),
        ("created_at_ms = created_at_ms + 1", "row_check"),
        ("row_check = zeroblob(16)", "row_check"),
        ("minted = 3", "minted"),
        ("repeat_of = x'01'", "repeat_of"),
    ];
    for (damage, column) in cases {
        let wire = File::new();
        let hold = wire.send(&call("bad")).await;
        let other = TestCall { arguments: r#"{"n":2}"#, ..call("good") };
        let good = wire.send(&other).await;
        let key = hold.key.as_bytes().as_slice();
        let set = format!("UPDATE directs SET {damage} WHERE operation_key = ?1");
        sql(&wire).execute(&set, [key]).expect("damages");
        begin_fails(&wire, begin(&call("bad"))).await;
        begin_fails(&wire, joining(&call("own-1"))).await;
        let said = wire.ledger.conclude(vec![plain(hold, Report::Lost)]).await;
        assert!(matches!(said, Err(StoreError::Quarantined { .. })), "{damage}: {said:?}");
        let view = wire.ledger.direct_view(WhichDirect::Key(hold.key)).await;
        assert!(matches!(view, Err(StoreError::Quarantined { .. })), "{damage}: {view:?}");
        assert_eq!(wire.dispatch(hold).await, None);
        wire.tell(hold.key, true).await;
        let found = problems(&wire);
        let named = found.iter().filter(|words| words.contains(column)).count();
        assert_eq!((found.len(), named), (1, 1), "{damage}: {found:?}");
        wire.pass(LEASE);
        assert_eq!(wire.lapse().await, 1, "{damage}");
        assert_eq!(wire.lapse().await, 0, "{damage}: it stands in nobody's way");
        assert_eq!(wire.in_doubt("memory").await, [good.key], "{damage}");
    }
}

#[tokio::test]
async fn a_damaged_answer_is_never_given() {
    // Promise: an answer that is not what was kept is not shown, and the check names it.
    for damage in ["reply = x'00'", "length = 3", "encoding = 0", "kind = 2", "revision = x'61'"] {
        let wire = File::new();
        let hold = wire.send(&call("op-1")).await;
        let text = "a long answer ".repeat(200);
        wire.moved(with(hold, APPLIED, &text)).await;
        let changed = sql(&wire).execute(&format!("UPDATE direct_replies SET {damage}"), []);
        assert_eq!(changed, Ok(1));
        begin_fails(&wire, begin(&call("op-1"))).await;
        let kept = wire.ledger.reply(hold.key, 1).await;
        assert!(matches!(kept, Err(StoreError::Quarantined { .. })), "{damage}: {kept:?}");
        let found = problems(&wire);
        assert_eq!(found.len(), 1, "{damage}: {found:?}");
        assert!(found[0].starts_with("answer 1 of operation `op-1`"), "{found:?}");
    }
}

#[tokio::test]
async fn what_is_missing_is_named() {
    // Promise: a check tells of answers and rows that should be there, and of those that should not.
    let wire = File::new();
    let hold = wire.send(&call("op-1")).await;
    wire.moved(with(hold, ASKS, "sure?")).await;
    let (second, _) = wire.sent(later("op-1", 2, "{}")).await;
    wire.moved(with(second, APPLIED, "done")).await;
    assert_eq!(problems(&wire), [""; 0]);
    sql(&wire).execute("DELETE FROM direct_replies WHERE leg = 1", []).expect("deletes");
    assert!(
        problems(&wire)[0].starts_with("answer 1 of operation `op-1` of the tenant `local` is")
    );
    sql(&wire).execute_batch("DELETE FROM direct_replies; DELETE FROM directs").expect("deletes");
    assert_eq!(problems(&wire), ["1 direct operations have nothing beside their records"]);
}

#[tokio::test]
async fn answers_are_compressed_where_that_helps() {
    // Promise: a large answer takes less room than it has bytes, and comes back as it was.
    let mut wire = File::new();
    let hold = wire.send(&call("op-1")).await;
    let answer = reply(ReplyKind::Result, &"{\\\"name\\\":\\\"x\\\"},".repeat(20_000));
    let said = Conclusion { reply: Some(answer.clone()), ..plain(hold, APPLIED) };
    wire.moved(said).await;
    let kept: i64 = sql(&wire)
        .query_row("SELECT length(reply) FROM direct_replies WHERE encoding = 1", [], |row| {
            row.get(0)
        })
        .expect("compressed");
    assert!(usize::try_from(kept).expect("small") * 10 < answer.json.len(), "{kept} bytes");
    wire.reopen().await;
    assert_eq!(wire.ledger.reply(hold.key, 1).await, Ok(Some(answer)));
}

#[tokio::test]
async fn two_processes_send_one_call_once() {
    // Promise: the ledger decides for all its processes: of equal calls one is sent, and a lease that
    // one process left is ended by the other.
    let wire = File::new();
    let other: Arc<dyn DirectLedger> =
        Arc::new(SqliteStore::open(&wire.bench.factory.options).expect("opens"));
    for (number, asked) in [begin as fn(&TestCall) -> _, joining].into_iter().enumerate() {
        let title = [r#"{"n":1}"#, r#"{"n":2}"#][number];
        let id = |process: usize| match number {
            0 => "one".to_owned(),
            _ => format!("own-{process}"),
        };
        let make = |process| asked(&TestCall { arguments: title, ..call(&id(process)) });
        let (here, there) = (wire.ledger.begin(make(0)), other.begin(make(1)));
        let (here, there) = tokio::join!(here, there);
        let both = [here.expect("works"), there.expect("works")];
        let sent = both.iter().filter(|begun| matches!(begun, Begun::Send(..))).count();
        assert_eq!(sent, 1, "{both:?}");
    }
    wire.pass(LEASE);
    let count = other.lapse(10).await.expect("works");
    assert_eq!((count, wire.lapse().await), (2, 0));
    assert_eq!(wire.in_doubt("memory").await.len(), 2);
    let asked = begin(&TestCall { arguments: r#"{"n":1}"#, ..call("one") });
    wire.check_refused(asked, Code::OperationInDoubt, "one", false).await;
    other.close().await.expect("closes");
}

#[tokio::test]
async fn a_report_outlives_a_full_queue_of_others() {
    // Promise: many operations at once each get their own end, in few transactions.
    let wire = File::new();
    let mut tasks = Vec::new();
    for number in 0..64 {
        let ledger = Arc::clone(&wire.ledger);
        tasks.push(tokio::spawn(async move {
            let id = format!("op-{number}");
            let Ok(Begun::Send(hold, _)) = ledger.begin(begin(&call(&id))).await else {
                panic!("{id} was not sent")
            };
            let hold: Hold = hold;
            let ended = ledger.conclude(vec![with(hold, APPLIED, &id)]).await;
            assert!(ended.is_ok(), "{id}: {ended:?}");
            hold.key
        }));
    }
    for task in tasks {
        let key = task.await.expect("ran");
        assert_eq!(wire.state(key).await, State::Applied);
    }
    tokio::time::timeout(Duration::from_secs(60), wire.ledger.close())
        .await
        .expect("in time")
        .expect("closes");
    assert_eq!(problems(&wire), [""; 0]);
}

#[tokio::test]
async fn large_answers_are_purged_in_small_steps() {
    // Promise: one transaction deletes at most 8 MiB of answers, or one operation's.
    let wire = File::new();
    // Digits that look random take half a byte each, whatever is done to them.
    let mut word = 1_u64;
    let digits = std::iter::repeat_with(|| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from_digit((word >> 60) as u32, 16).expect("below 16")
    });
    let text: String = digits.take(10 << 20).collect();
    for id in ["one", "two", "three"] {
        let hold = wire.send(&call(id)).await;
        wire.moved(with(hold, APPLIED, &text)).await;
    }
    wire.pass(Duration::from_secs(31 * 86_400));
    let mut counts = Vec::new();
    for _ in 0..3 {
        let purge = Purge::new(Duration::from_secs(30 * 86_400));
        counts.push(wire.ledger.purge(purge).await.expect("works").results_count);
    }
    assert_eq!(counts, [1, 1, 1]);
    assert_eq!(problems(&wire), [""; 0]);
}
