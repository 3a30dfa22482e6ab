//! SQLite alone: how far a purge has come, what stands in its way, and files of the first schema.

mod suite;

use std::time::Duration;

use counterfoil_core::observation::Snapshot;
use counterfoil_core::record::Record;
use counterfoil_core::refusal::Code;
use counterfoil_core::time::{Span, Timestamp};
use counterfoil_store::sqlite::check;
use counterfoil_store::{Answer, Purge, Store, Submission};
use rusqlite::Connection;
use suite::Bench;
use suite::calls::{TestCall, call, uuid_v7};
use suite::clock::START_MS;
use suite::effects::{First, NOTES, Probe, note, probe};
use suite::factories::{Sqlite, WITHOUT_OUTBOX};
use suite::retention::purge;

type Bed = Bench<Sqlite>;

const DAY: Duration = Duration::from_secs(86_400);

/// Makes a record whose key carries the ledger's time, as an engine's keys do.
async fn fresh(bench: &Bed, call: &TestCall, effect: &Probe, number: u64) -> Record {
    let ms = u64::try_from(bench.store.now().as_ms()).expect("after 1970");
    let admitted = call.admit_as((ms << 16) | 0x7000 | number);
    let submission = Submission { admitted, effect: std::sync::Arc::new(effect.clone()) };
    match bench.store.submit(submission).await.expect("the ledger works").into_answer() {
        Answer::Fresh(record) => *record,
        other => panic!("wanted Fresh, got {other:?}"),
    }
}

fn sql(bench: &Bed) -> Connection {
    Connection::open(&bench.factory.options.path).expect("opens")
}

fn scan_after(bench: &Bed) -> Option<Vec<u8>> {
    sql(bench).query_row("SELECT scan_after FROM ledger", [], |row| row.get(0)).expect("a ledger")
}

async fn has_result(bench: &Bed, id: &str) -> bool {
    match bench.look_up(&call(id)).await {
        Snapshot::Found { record, .. } => record.result.is_some(),
        other => panic!("{id}: {other:?}"),
    }
}

#[tokio::test]
async fn a_purge_goes_on_where_it_ended() {
    // Promise: a search never begins anew, not even in another process; records are found as soon
    // as they are due, and those that were passed over a day later at most.
    let mut bench = Bed::new();
    let long = TestCall { retention: Span::from_secs(31 * 86_400), ..call("long") };
    let keys = [
        fresh(&bench, &call("one"), &note("one"), 1).await.key,
        fresh(&bench, &long, &note("long"), 2).await.key,
    ];
    bench.clock.pass(DAY);
    let last = fresh(&bench, &call("two"), &note("two"), 1).await.key;
    bench.clock.pass(29 * DAY - Duration::from_millis(1));
    assert_eq!(bench.purge_all().await, (0, 0));
    assert_eq!(scan_after(&bench), None);
    bench.clock.pass(Duration::from_millis(1));
    assert_eq!(bench.purge_all().await, (1, 0));
    assert_eq!(scan_after(&bench), Some(keys[1].as_bytes().to_vec()));
    bench.reopen().await;
    bench.clock.pass(DAY - Duration::from_millis(1));
    assert_eq!(bench.purge_all().await, (0, 0));
    bench.clock.pass(Duration::from_millis(1));
    assert_eq!(bench.purge_all().await, (2, 0));
    assert_eq!(scan_after(&bench), Some(last.as_bytes().to_vec()));
    let again: Option<i64> =
        sql(&bench).query_row("SELECT rescan_at_ms FROM ledger", [], |row| row.get(0)).unwrap();
    assert_eq!(again, None);
}

#[tokio::test]
async fn a_young_record_is_left_alone() {
    // Promise: with a retention of seconds too, a record is looked at only when every earlier one
    // has come to its commit.
    let bench = Bed::new();
    let short = TestCall { retention: Span::from_secs(1), ..call("short") };
    fresh(&bench, &short, &note("short"), 1).await;
    let purge = Purge::new(Duration::from_secs(1));
    bench.clock.pass(Duration::from_millis(599_999));
    assert_eq!(bench.purge(purge).await.results_count, 0);
    bench.clock.pass(Duration::from_millis(1));
    assert_eq!(bench.purge(purge).await.results_count, 1);
}

#[tokio::test]
async fn large_results_make_small_steps() {
    // Promise: one transaction reads at most 8 MiB of results again, or one result.
    let bench = Bed::new();
    for (number, mebibytes) in [5, 5, 10, 1].into_iter().enumerate() {
        let effect = probe(First::Result(mebibytes << 20));
        bench.fresh(&call(&format!("op-{number}")), &effect).await;
    }
    bench.clock.pass(30 * DAY);
    for (count, more) in [(1, true), (1, true), (1, true), (1, false)] {
        let purged = bench.purge(purge()).await;
        assert_eq!((purged.results_count, purged.more), (count, more));
    }
}

#[tokio::test]
async fn a_damaged_record_is_not_purged_and_stops_nothing() {
    // Promise: a record that fails its own checks stays as it is, and the rest is purged.
    let bench = Bed::new();
    for id in ["one", "bad", "two"] {
        bench.fresh(&call(id), &note(id)).await;
    }
    let spoil = "UPDATE operations SET principal = x'62' WHERE operation_id = CAST('bad' AS BLOB)";
    assert_eq!(sql(&bench).execute(spoil, []).expect("runs"), 1);
    bench.clock.pass(30 * DAY);
    assert_eq!(bench.purge_all().await, (2, 0));
    assert_eq!(bench.look_up(&call("bad")).await, Snapshot::Quarantined);
    let kept: bool = sql(&bench)
        .query_row("SELECT count(result) = 1 FROM operations", [], |row| row.get(0))
        .expect("runs");
    assert!(kept);
}

#[tokio::test]
async fn a_foreign_key_to_operations_keeps_the_tombstones() {
    // Promise: a deleted tombstone never takes an embedder's row along, and is never in its way.
    for action in ["CASCADE", "SET NULL", "NO ACTION"] {
        let mut bench = Bed::new();
        bench.factory.options.schema = Some(format!(
            "CREATE TABLE IF NOT EXISTS refunds (id INTEGER PRIMARY KEY, \
             op BLOB REFERENCES operations (operation_key) ON DELETE {action})"
        ));
        bench.reopen().await;
        let timed = call(&uuid_v7(START_MS));
        let key = bench.fresh(&timed, &note("hello")).await.key;
        let refund = "INSERT INTO refunds (op) VALUES (?1)";
        sql(&bench).execute(refund, [key.as_bytes().as_slice()]).expect("runs");
        bench.clock.pass(401 * DAY);
        let counted = bench.store.count_due(purge()).await.expect("readable");
        assert_eq!(counted.tombstones_count, 0);
        let purged = bench.purge(purge()).await;
        assert_eq!((purged.results_count, purged.tombstones_count, purged.more), (1, 0, false));
        assert_eq!(purged.held_back_by.as_deref(), Some("refunds"), "{action}");
        assert_eq!(bench.kinds(key).await, ["applied"]);
    }
}

#[tokio::test]
async fn forgotten_operations_leave_a_sound_ledger() {
    // Promise: a check takes the rows of forgotten operations for what they are, and still finds
    // an effect without a record that is too young to be forgotten.
    let bench = Bed::new();
    let (first, second) = (call(&uuid_v7(START_MS)), call("stays"));
    bench.fresh(&first, &note("first")).await;
    bench.fresh(&second, &note("second")).await;
    bench.clock.pass(401 * DAY);
    assert_eq!(bench.purge_all().await, (2, 1));
    fresh(&bench, &call("young"), &note("young"), 1).await;
    let path = &bench.factory.options.path;
    let report = check(path).expect("a ledger");
    assert_eq!((report.problems.as_slice(), report.notes.as_slice()), (&[][..], &[][..]));
    assert_eq!((report.operations_count, report.forgotten_effect_rows_count), (2, 1));
    let connection = sql(&bench);
    connection.execute_batch("PRAGMA foreign_keys = OFF").expect("sets");
    let lose = "DELETE FROM operations WHERE operation_id = CAST('young' AS BLOB)";
    assert_eq!(connection.execute(lose, []).expect("runs"), 1);
    bench.clock.set_by_ms(-86_400_000);
    assert_eq!(bench.purge_all().await, (0, 0));
    let report = check(path).expect("a ledger");
    let problems = report.problems.join("\n");
    assert!(problems.contains("1 rows of `notes` belong to no operation"), "{problems}");
    assert!(report.notes[0].contains("confirm-clock"), "{:?}", report.notes);
}

#[tokio::test]
async fn a_clock_that_is_not_believed_leaves_no_mark() {
    // Promise: looking at a clock that jumped does not make its time the ledger's.
    let bench = Bed::new();
    bench.fresh(&call("one"), &note("one")).await;
    assert_eq!(bench.purge_all().await, (0, 0));
    let year_ms = 365 * 86_400_000;
    bench.clock.set_by_ms(year_ms);
    assert_eq!(bench.purge_all().await, (0, 0));
    bench.clock.set_by_ms(-year_ms);
    bench.clock.pass(DAY);
    assert_eq!(bench.store.now(), Timestamp::from_ms(START_MS + 86_400_000));
    bench.store.confirm_clock("olga").await.expect("the ledger works");
    bench.clock.pass(29 * DAY);
    assert_eq!(bench.purge_all().await, (1, 0));
}

#[tokio::test]
async fn two_servers_purge_one_ledger() {
    // Promise: what one has purged the other does not count again, and an ID that one has forgotten
    // the other refuses.
    let bench = Bed::new();
    let other = bench.factory.options.clone();
    let other = counterfoil_store::SqliteStore::open(&other).expect("opens");
    let calls: Vec<TestCall> = (0..20).map(|_| call(&uuid_v7(START_MS))).collect();
    for call in &calls {
        bench.fresh(call, &note("hello")).await;
    }
    bench.clock.pass(401 * DAY);
    let step = Purge { limit_count: 3, ..purge() };
    let mut counts = (0, 0);
    loop {
        let (a, b) = tokio::join!(bench.store.purge(step), other.purge(step));
        let (a, b) = (a.expect("works"), b.expect("works"));
        counts.0 += a.results_count + b.results_count;
        counts.1 += a.tombstones_count + b.tombstones_count;
        if !a.more && !b.more {
            break;
        }
    }
    assert_eq!(counts, (20, 20));
    let state = other.retention().await.expect("readable");
    assert_eq!((state.results_purged_count, state.tombstones_purged_count), (20, 20));
    for store in [&*bench.store, &other as &dyn Store] {
        let answer = store.submit(calls[0].with(note("again"))).await.expect("works");
        match answer.into_answer() {
            Answer::Refused(refusal) => {
                assert_eq!(refusal.code(), Code::OperationRetentionExpired);
            }
            other => panic!("wanted Refused, got {other:?}"),
        }
    }
    assert!(bench.has_row(NOTES, "text", "hello").await);
}

#[tokio::test]
async fn a_ledger_of_the_first_schema_is_brought_up_to_date() {
    // Promise: a file of version 1 keeps its records, and can be checked before any server has touched it.
    let mut bench = Bed::new();
    bench.fresh(&call("one"), &note("one")).await;
    bench.store.close().await.expect("closes");
    let connection = sql(&bench);
    let added: Vec<String> = connection
        .prepare("SELECT name FROM pragma_table_info('ledger') WHERE cid > 6")
        .and_then(|mut s| s.query_map([], |row| row.get(0))?.collect())
        .expect("columns");
    assert_eq!(added.len(), 14);
    for column in added {
        connection.execute(&format!("ALTER TABLE ledger DROP COLUMN {column}"), []).expect("drops");
    }
    connection.execute_batch(WITHOUT_OUTBOX).expect("drops");
    connection.execute("UPDATE ledger SET version = 1", []).expect("sets");
    drop(connection);
    let path = bench.factory.options.path.clone();
    let report = check(&path).expect("a ledger");
    assert_eq!((report.is_sound(), report.schema_version), (true, 1), "{:?}", report.problems);
    bench.reopen().await;
    let versions: (i64, i64) = sql(&bench)
        .query_row("SELECT version, min_compatible FROM ledger", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .expect("a ledger");
    assert_eq!(versions, (4, 4));
    assert!(has_result(&bench, "one").await);
    bench.clock.pass(30 * DAY);
    assert_eq!(bench.purge_all().await, (1, 0));
    assert!(!has_result(&bench, "one").await);
    assert!(check(&path).expect("a ledger").is_sound());
}
