//! SQLite alone: other writers, full disks, and SQL that takes the transaction with it.

mod suite;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use counterfoil_core::limits::MAX_RESULT_BYTES;
use counterfoil_core::observation::Snapshot;
use counterfoil_core::operation::State;
use counterfoil_core::refusal::Retry;
use counterfoil_store::sqlite::check;
use counterfoil_store::{
    Answer, Completion, EffectContext, EffectError, EffectTx, Finish, LocalEffect, SqlValue,
    SqliteOptions, SqliteStore, Store, StoreError,
};
use rusqlite::Connection;
use suite::Bench;
use suite::calls::{BOOT, call};
use suite::effects::{Do, First, Goes, NOTES, TAGS, note, probe, run, tables, two_steps};
use suite::factories::Sqlite;
use tokio::task::JoinSet;

type Bed = Bench<Sqlite>;

/// A ledger with another lock wait or schema than the suite's.
fn bed(change: impl FnOnce(&mut SqliteOptions)) -> Bed {
    let mut bench = Bed::new();
    change(&mut bench.factory.options);
    bench.store = Arc::new(SqliteStore::open(&bench.factory.options).expect("opens"));
    bench
}

/// Another process's write transaction, as far as SQLite can tell.
fn hold_lock(path: &Path) -> Connection {
    let other = Connection::open(path).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locks");
    other
}

fn begin(path: &Path, sql: &str) -> Connection {
    let other = Connection::open(path).expect("opens");
    other.execute_batch(sql).expect(sql);
    other
}

#[tokio::test]
async fn a_lock_held_elsewhere_is_told_at_once() {
    // Promise: with no wait allowed a held lock is an error at once: nothing is written, reading
    // goes on, and the same operation works later.
    let bench = bed(|options| options.lock_wait = Duration::ZERO);
    let effect = note("body");
    let other = hold_lock(&bench.factory.options.path);
    for _ in 0..2 {
        let error = bench.submit(&call("op-1"), &effect).await.expect_err("busy");
        assert!(matches!(error, StoreError::Busy { .. }), "{error}");
        assert_eq!(error.retry(), Retry::SameOperation);
        assert_eq!(bench.look_up(&call("op-1")).await, Snapshot::Absent);
    }
    assert_eq!(effect.calls(), 0);
    drop(other);
    bench.fresh(&call("op-1"), &effect).await;
}

#[tokio::test]
async fn a_ledger_opens_beside_a_held_lock() {
    // Promise: a server that only comes back, with tables and keys that are there, waits for
    // nobody; it can look, and is told Busy where it would write.
    let bench = bed(|options| options.lock_wait = Duration::ZERO);
    let keys = suite::calls::ring(&[(1, 1)]);
    bench.store.bind_keys(&keys).await.expect("new keys");
    let record = bench.fresh(&call("op-1"), &note("body")).await;
    bench.store.close().await.expect("closes");
    let _other = hold_lock(&bench.factory.options.path);
    let store = SqliteStore::open(&bench.factory.options).expect("opens");
    store.bind_keys(&keys).await.expect("nothing to write");
    let both = suite::calls::ring(&[(1, 1), (2, 2)]);
    let error = store.bind_keys(&both).await.expect_err("busy");
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    let found = store.look_up(&call("op-1").tenant(), &call("op-1").operation_id()).await;
    assert!(matches!(found, Ok(Snapshot::Found { record: kept, .. }) if *kept == record));
}

#[tokio::test]
async fn everyone_who_waits_behind_a_lock_is_told() {
    // Promise: no caller of a batch is left without an answer when its transaction cannot begin.
    let bench = bed(|options| options.lock_wait = Duration::from_millis(20));
    let other = hold_lock(&bench.factory.options.path);
    let mut callers = JoinSet::new();
    for number in 0..20 {
        let submission = call(&format!("op-{number}")).with(note("body"));
        let store = Arc::clone(&bench.store);
        callers.spawn(async move { store.submit(submission).await });
    }
    while let Some(outcome) = callers.join_next().await {
        let error = outcome.expect("no panic").expect_err("busy");
        assert!(matches!(error, StoreError::Busy { waited_ms: 20.. }), "{error}");
    }
    drop(other);
    assert_eq!(bench.look_up(&call("op-7")).await, Snapshot::Absent);
}

#[tokio::test]
async fn a_lock_that_is_given_back_in_time_is_waited_for() {
    // Promise: a short wait behind another process is no error.
    let bench = bed(|options| options.lock_wait = Duration::from_secs(60));
    let other = hold_lock(&bench.factory.options.path);
    let store = Arc::clone(&bench.store);
    let waiting = tokio::spawn(async move { store.submit(call("op-1").with(note("body"))).await });
    // The look-up is answered while the writer waits, or before it began to: both must hold.
    assert_eq!(bench.look_up(&call("op-1")).await, Snapshot::Absent);
    drop(other);
    let answer = waiting.await.expect("no panic").expect("commits");
    assert!(matches!(answer.answer(), Answer::Fresh(_)));
}

#[tokio::test]
async fn a_settlement_behind_a_lock_is_tried_again_and_not_lost() {
    // Promise: a finish that met a lock leaves the operation as it was, and works when it is sent
    // again.
    let bench = bed(|options| options.lock_wait = Duration::ZERO);
    let effect = two_steps(Goes::Well, Goes::Well);
    let begun = bench.fresh(&call("op-1"), &effect).await;
    let other = hold_lock(&bench.factory.options.path);
    let error = suite::finishing::finish_as(&bench, &begun, &effect, BOOT, 1).await;
    assert!(matches!(error, Err(StoreError::Busy { .. })), "{error:?}");
    drop(other);
    let ended = suite::finishing::finish(&bench, &begun, &effect).await;
    assert_eq!(ended.state, State::Applied);
}

#[test]
fn two_servers_on_one_file_do_not_starve_each_other() {
    // Promise: while one server commits without pause, the other commits as often as it likes.
    const COMMITS: usize = 100;
    let bench = Bed::new();
    let options = &bench.factory.options;
    let (done, failed) = ([AtomicUsize::new(0), AtomicUsize::new(0)], AtomicBool::new(false));
    std::thread::scope(|scope| {
        for me in 0..2 {
            let (done, failed) = (&done, &failed);
            scope.spawn(move || {
                let store = SqliteStore::open(options).expect("opens");
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runs");
                // Goes on until the other has had its share, so that neither is ever alone.
                while done.iter().any(|count| count.load(Ordering::SeqCst) < COMMITS) {
                    let number = done[me].load(Ordering::SeqCst);
                    let mut submissions: Vec<_> = (0..4)
                        .map(|n| store.submit(call(&format!("{me}-{number}-{n}")).with(note("x"))))
                        .collect();
                    let all = async {
                        let mut together = Vec::new();
                        for submitted in &mut submissions {
                            together.push(submitted.await.is_ok());
                        }
                        together
                    };
                    if runtime.block_on(all).contains(&false) {
                        failed.store(true, Ordering::SeqCst);
                        return;
                    }
                    done[me].fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(!failed.load(Ordering::SeqCst), "a commit failed: somebody waited over a second");
    let report = check(&options.path).expect("a ledger");
    assert!(report.is_sound(), "{report:?}");
    let commits: usize = done.iter().map(|count| count.load(Ordering::SeqCst)).sum();
    assert_eq!(report.operations_count, 4 * commits as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_lets_a_quiet_one_in() {
    // Promise: while a server with many callers commits without pause, another one's commits each
    // wait for a few of its transactions, not for luck. Counted in commits, not in time.
    const CALLERS: usize = 32;
    const COMMITS: usize = 200;
    let bench = Bed::new();
    let busy = Arc::new(SqliteStore::open(&bench.factory.options).expect("opens"));
    let (made, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (busy, made, enough) = (Arc::clone(&busy), Arc::clone(&made), Arc::clone(&enough));
        callers.spawn(async move {
            let mut number = 0;
            while !enough.load(Ordering::SeqCst) {
                let call = call(&format!("busy-{caller}-{number}"));
                busy.submit(call.with(note("x"))).await.expect("commits");
                made.fetch_add(1, Ordering::SeqCst);
                number += 1;
            }
        });
    }
    let mut overtaken = Vec::with_capacity(COMMITS);
    for number in 0..COMMITS {
        let before = made.load(Ordering::SeqCst);
        bench.fresh(&call(&format!("quiet-{number}")), &note("x")).await;
        overtaken.push(made.load(Ordering::SeqCst) - before);
    }
    enough.store(true, Ordering::SeqCst);
    while let Some(ended) = callers.join_next().await {
        ended.expect("no commit failed");
    }
    overtaken.sort_unstable();
    let p99 = overtaken[COMMITS * 99 / 100];
    assert!(p99 <= 20 * CALLERS, "the busy server made {p99} commits during one of the other's");
}

#[tokio::test]
async fn one_operation_from_two_servers_is_applied_once() {
    // Promise: the same operation through two servers on one file has one effect.
    let bench = Bed::new();
    let other = Arc::new(SqliteStore::open(&bench.factory.options).expect("opens"));
    for number in 0..20 {
        let call = call(&format!("op-{number}"));
        let (one, two) = tokio::join!(
            bench.store.submit(call.with(note("one"))),
            other.submit(call.with(note("two")))
        );
        let answers = [one, two].map(|answer| answer.expect("commits").into_answer());
        let fresh = answers.iter().filter(|answer| matches!(answer, Answer::Fresh(_))).count();
        let rows: Vec<_> = answers
            .iter()
            .map(|answer| match answer {
                Answer::Fresh(record) | Answer::Replayed(record) => record.effect.clone(),
                Answer::Refused(refusal) => panic!("{refusal}"),
            })
            .collect();
        assert_eq!((fresh, &rows[0]), (1, &rows[1]));
    }
}

#[tokio::test]
async fn a_full_disk_stops_new_work_and_lets_old_work_settle() {
    // Promise: on a full disk a claim is refused with nothing written, what was begun can still be
    // settled, and the same operation works once there is room.
    let directory = tempfile::tempdir().expect("a directory");
    let Some(_mounted) = suite::mounts::tmpfs(directory.path(), "6m") else { return };
    let mut bench = Bed::new();
    bench.factory.options.path = directory.path().join("ledger.db");
    bench.store = Arc::new(SqliteStore::open(&bench.factory.options).expect("opens"));
    let two = two_steps(Goes::Well, Goes::Well);
    let begun = bench.fresh(&call("begun"), &two).await;
    let kept = bench.fresh(&call("kept"), &note("body")).await;

    let filler = directory.path().join("filler");
    let error = std::fs::write(&filler, vec![1; 8 << 20]).expect_err("the disk is full");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    let big = probe(First::Result(MAX_RESULT_BYTES - 100));
    for call in [call("big"), call("big"), call("other")] {
        let error = bench.submit(&call, &big).await.expect_err("full");
        assert!(matches!(&error, StoreError::Full { path } if path.ends_with("ledger.db")));
        assert_eq!(error.retry(), Retry::SameOperation);
        assert_eq!(bench.look_up(&call).await, Snapshot::Absent);
    }
    assert_eq!(bench.replayed(&call("kept"), &note("x")).await, kept);

    // Fill what the log still had of its own, until even a small claim finds no room.
    let mut number = 0;
    let full = loop {
        number += 1;
        let text = note(&"x".repeat(20_000));
        match bench.submit(&call(&format!("filling-{number}")), &text).await {
            Ok(Answer::Fresh(_)) if number < 1_000 => {}
            other => break other,
        }
    };
    assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
    let ended = suite::finishing::finish(&bench, &begun, &two).await;
    assert_eq!(ended.state, State::Applied);
    // The room that was kept is gone now, so nothing new is begun with what is left of it.
    let error = bench.submit(&call("small"), &note("x")).await.expect_err("full");
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert_eq!(bench.replayed(&call("begun"), &two).await, ended);

    std::fs::remove_file(&filler).expect("frees");
    bench.fresh(&call("small"), &note("x")).await;
    bench.fresh(&call("other"), &note("x")).await;
    bench.store.close().await.expect("closes");
    let report = check(&bench.factory.options.path).expect("a ledger");
    assert!(report.is_sound(), "{report:?}");
}

const TRAPS: &str = "
    CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
    CREATE TABLE IF NOT EXISTS lines (
        id INTEGER PRIMARY KEY,
        order_id INTEGER REFERENCES orders (id) DEFERRABLE INITIALLY DEFERRED);
    CREATE TRIGGER IF NOT EXISTS trap BEFORE INSERT ON orders WHEN NEW.name = 'trap'
    BEGIN SELECT RAISE(ROLLBACK, 'the trap closed'); END;
    CREATE TABLE IF NOT EXISTS sneaky (id INTEGER PRIMARY KEY);
    CREATE TRIGGER IF NOT EXISTS sneak AFTER INSERT ON sneaky
    BEGIN DELETE FROM audit_events; END;
    CREATE VIEW IF NOT EXISTS peek AS SELECT * FROM operations;";

fn embedded() -> Bed {
    bed(|options| options.schema = Some(TRAPS.into()))
}

fn sql(text: &'static str) -> Do {
    run(move |tx| tx.sql().expect("SQLite has SQL").execute(text, &[]).map(drop))
}

/// Runs the effect among others that share its transaction, and alone.
async fn check_failure(bench: &Bed, effect: Do, expected: &str) {
    for together in [true, false] {
        // The lock makes the commands queue up, so that they do share one transaction.
        let lock = together.then(|| hold_lock(&bench.factory.options.path));
        let mut good = JoinSet::new();
        for _ in 0..if together { 10 } else { 0 } {
            let submission = call(&suite::calls::uuid_v7(suite::clock::START_MS)).with(note("x"));
            let store = Arc::clone(&bench.store);
            good.spawn(async move { store.submit(submission).await });
        }
        let (store, submission) = (Arc::clone(&bench.store), call("bad").with(effect.clone()));
        let bad = tokio::spawn(async move { store.submit(submission).await });
        tokio::task::yield_now().await;
        drop(lock);
        match bad.await.expect("no panic") {
            Err(StoreError::EffectFailed { reason, refused: false }) => {
                assert!(reason.contains(expected), "wanted {expected}, got {reason}");
            }
            other => panic!("wanted {expected}, got {other:?}"),
        }
        while let Some(outcome) = good.join_next().await {
            let answer = outcome.expect("no panic").expect("the others commit");
            assert!(matches!(answer.answer(), Answer::Fresh(_)));
        }
        assert_eq!(bench.look_up(&call("bad")).await, Snapshot::Absent);
    }
}

#[tokio::test]
async fn an_effect_that_takes_the_transaction_with_it_harms_no_other() {
    // Promise: when a trigger, a deferred constraint or a spent budget ends the shared transaction,
    // that command fails alone, and nothing of it is left.
    let bench = embedded();
    let endless = "INSERT INTO orders (name) WITH RECURSIVE n (i) AS \
                   (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    let trap = "INSERT INTO orders (name) VALUES ('trap')";
    check_failure(&bench, sql(trap), "the trap closed").await;
    let or_rollback = "INSERT OR ROLLBACK INTO orders (id, name) VALUES (1, 'a'), (1, 'b')";
    check_failure(&bench, sql(or_rollback), "UNIQUE constraint failed: orders.id").await;
    let dangling = "INSERT INTO lines (order_id) VALUES (99)";
    check_failure(&bench, sql(dangling), "FOREIGN KEY constraint failed").await;
    check_failure(&bench, sql(endless), "ran for over 1000 ms").await;
    let report = check(&bench.factory.options.path).expect("a ledger");
    assert!(report.is_sound(), "{report:?}");
}

#[tokio::test]
async fn an_effect_cannot_hide_a_failure_of_the_store() {
    // Promise: an effect that swallows the error and goes on as if nothing had happened is rolled
    // back all the same, and its later statements do not commit alone.
    let bench = embedded();
    let effect = run(|tx| {
        let sql = tx.sql().expect("SQLite has SQL");
        let trap = sql.execute("INSERT INTO orders (name) VALUES ('trap')", &[]);
        assert!(matches!(trap, Err(EffectError::Store(_))), "{trap:?}");
        let after = sql.execute("INSERT INTO orders (name) VALUES ('stray')", &[]);
        assert!(matches!(after, Err(EffectError::Store(_))), "{after:?}");
        let row = [("text", "stray".into()), ("at_ms", 1.into())];
        assert!(matches!(tx.insert(NOTES, &row), Err(EffectError::Store(_))));
        assert!(matches!(tx.delete(TAGS, 1), Err(EffectError::Store(_))));
        Ok(())
    });
    check_failure(&bench, effect, "the trap closed").await;
    assert!(!bench.has_row(NOTES, "text", "stray").await);
    let other = begin(&bench.factory.options.path, "");
    let strays: i64 = other
        .query_row("SELECT count(*) FROM orders WHERE name = 'stray'", [], |row| row.get(0))
        .expect("reads");
    assert_eq!(strays, 0);
}

#[tokio::test]
async fn an_effects_sql_cannot_leave_its_tables() {
    // Promise: transaction control, other files, settings, schema changes and the ledger's own
    // tables are out of reach, by whatever way.
    let bench = bed(|options| {
        let trigger = "CREATE TRIGGER IF NOT EXISTS sneak_tags AFTER INSERT ON tags
                       BEGIN DELETE FROM audit_events; END;";
        options.schema = Some(format!("{TRAPS}{trigger}"));
    });
    bench.fresh(&call("op-1"), &note("body")).await;
    let tags =
        run(|tx| tx.insert(TAGS, &[("note_id", (-1).into()), ("word", "w".into())]).map(drop));
    for (effect, what) in [
        (sql("COMMIT"), "COMMIT"),
        (sql("ROLLBACK"), "ROLLBACK"),
        (sql("SAVEPOINT s"), "SAVEPOINT"),
        (sql("RELEASE command"), "RELEASE"),
        (sql("ROLLBACK TO command"), "ROLLBACK TO"),
        (sql("END"), "END"),
        (sql("ATTACH ':memory:' AS o"), "ATTACH"),
        (sql("VACUUM"), "VACUUM"),
        (sql("PRAGMA synchronous = OFF"), "PRAGMA"),
        (sql("CREATE TABLE t (x)"), "CREATE TABLE"),
        (sql("CREATE TEMP TABLE t (x)"), "CREATE TEMP"),
        (sql("DROP TABLE notes"), "DROP"),
        (sql("ALTER TABLE notes RENAME TO n"), "ALTER"),
        (sql("DELETE FROM operations"), "DELETE"),
        (sql("UPDATE OPERATIONS SET state = 1"), "UPDATE"),
        (sql("INSERT INTO keys VALUES (1, zeroblob(16), 0)"), "INSERT"),
        (sql("UPDATE sqlite_sequence SET seq = 0"), "sqlite_sequence"),
        (sql("INSERT INTO orders (name) SELECT principal FROM operations"), "SELECT"),
        (sql("INSERT INTO orders (name) SELECT principal FROM peek"), "view"),
        (sql("INSERT INTO sneaky DEFAULT VALUES"), "trigger"),
        (sql("UPDATE notes SET text = x'00'"), "append-only update"),
        (sql("DELETE FROM notes"), "append-only delete"),
        (sql("REPLACE INTO notes SELECT * FROM notes"), "append-only replace"),
        (sql("INSERT INTO orders (name) VALUES ('a'); COMMIT"), "two statements"),
        (sql("INSERT INTO orders (name) VALUES (load_extension('x'))"), "load_extension"),
        (tags, "trigger of a declared table"),
    ] {
        match bench.submit(&call("bad"), &effect).await {
            Err(StoreError::EffectFailed { .. }) => {}
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(bench.look_up(&call("bad")).await, Snapshot::Absent, "{what}");
    }
    // The very text of a statement that the store has compiled for itself.
    let own = run(|tx| {
        let text = "UPDATE ledger SET high_water_ms = max(high_water_ms, ?1)";
        tx.sql().expect("SQLite has SQL").execute(text, &[1.into()]).map(drop)
    });
    match bench.submit(&call("bad"), &own).await {
        Err(StoreError::EffectFailed { reason, .. }) => {
            assert!(reason.contains("prohibited"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
    let report = check(&bench.factory.options.path).expect("a ledger");
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.operations_count, 1);
}

#[tokio::test]
async fn an_embedders_own_table_commits_with_the_record() {
    // Promise: an embedder's SQL has its rows, keys, queries and errors, in the operation's own
    // transaction.
    let bench = embedded();
    let works = |tx: &mut dyn EffectTx| {
        let sql = tx.sql().expect("SQLite has SQL");
        let insert = "INSERT INTO orders (name) VALUES (?1)";
        assert_eq!(sql.execute(insert, &["first".into()])?, 1);
        let id = sql.last_insert_id();
        let twice = sql.execute(insert, &["first".into()]);
        assert!(matches!(twice, Err(EffectError::Failed(words)) if words.contains("UNIQUE")));
        assert_eq!(sql.execute(insert, &["second".into()])?, 1);
        assert_eq!(sql.last_insert_id(), id + 1);
        let row = sql.query_row(
            "SELECT id, name, NULL, 1.5, x'00ff' FROM orders WHERE id = ?1",
            &[id.into()],
        )?;
        let expected = vec![
            SqlValue::Integer(id),
            SqlValue::Text("first".into()),
            SqlValue::Null,
            SqlValue::Real(1.5),
            SqlValue::Blob(vec![0, 255]),
        ];
        assert_eq!(row, Some(expected));
        assert_eq!(sql.query_row("SELECT 1 WHERE 0", &[])?, None);
        assert!(matches!(sql.query_row("SELEC", &[]), Err(EffectError::Failed(_))));
        assert!(matches!(sql.execute("SELECT 1", &[]), Err(EffectError::Failed(_))));
        Ok(())
    };
    bench.submit(&call("op-1"), &run(works)).await.expect("commits");
    // The same texts again: from the cache of compiled statements.
    let again = run(|tx| {
        let sql = tx.sql().expect("SQLite has SQL");
        let third = sql.execute("INSERT INTO orders (name) VALUES (?1)", &["third".into()])?;
        assert_eq!(third, 1);
        Ok(())
    });
    bench.submit(&call("op-2"), &again).await.expect("commits");
    let other = begin(&bench.factory.options.path, "");
    let names: String = other
        .query_row("SELECT group_concat(name) FROM orders", [], |row| row.get(0))
        .expect("reads");
    assert_eq!(names, "first,second,third");
}

#[tokio::test]
async fn a_full_text_index_can_follow_an_embedders_table() {
    // Promise: what an embedder's schema may set up, an effect may use.
    let bench = bed(|options| {
        let schema = "CREATE VIRTUAL TABLE IF NOT EXISTS found USING fts5 (text);
            CREATE TABLE IF NOT EXISTS posts (id INTEGER PRIMARY KEY, text TEXT);
            CREATE TRIGGER IF NOT EXISTS index_post AFTER INSERT ON posts
            BEGIN INSERT INTO found (rowid, text) VALUES (NEW.id, NEW.text); END;";
        options.schema = Some(schema.into());
    });
    let post = run(|tx| {
        let sql = tx.sql().expect("SQLite has SQL");
        sql.execute("INSERT INTO posts (text) VALUES ('a lost reply')", &[])?;
        let hit = sql.query_row("SELECT rowid FROM found WHERE found MATCH 'reply'", &[])?;
        assert_eq!(hit, Some(vec![SqlValue::Integer(1)]));
        Ok(())
    });
    bench.submit(&call("op-1"), &post).await.expect("commits");
}

#[tokio::test]
async fn a_later_step_that_takes_the_transaction_with_it_can_be_resolved() {
    // Promise: a later step that ends the whole transaction leaves the first step as it was
    // committed, in progress, for a retry or an operator.
    #[derive(Debug)]
    struct Trapped;
    impl counterfoil_store::LocalEffect for Trapped {
        fn apply(
            &self,
            _tx: &mut dyn EffectTx,
            _context: &counterfoil_store::EffectContext<'_>,
        ) -> Result<counterfoil_store::Completion, EffectError> {
            unreachable!("only the later step runs")
        }
        fn follow_up(
            &self,
            tx: &mut dyn EffectTx,
            _context: &counterfoil_store::EffectContext<'_>,
            _first: &counterfoil_core::record::EffectRef,
        ) -> Result<counterfoil_core::record::StoredResult, EffectError> {
            let sql = tx.sql().expect("SQLite has SQL");
            sql.execute("INSERT INTO orders (name) VALUES ('trap')", &[])?;
            unreachable!("the trap closes")
        }
    }
    let bench = embedded();
    let begun = bench.fresh(&call("op-1"), &two_steps(Goes::Well, Goes::Well)).await;
    let trapped = Finish { key: begun.key, boot: BOOT, fence: 1, effect: Arc::new(Trapped) };
    match bench.store.finish(trapped).await {
        Err(StoreError::EffectFailed { reason, .. }) => assert!(reason.contains("the trap closed")),
        other => panic!("{other:?}"),
    }
    let two = two_steps(Goes::Well, Goes::Well);
    let ended = suite::finishing::finish(&bench, &begun, &two).await;
    assert_eq!(ended.state, State::Applied);
}

#[test]
fn dropping_the_store_keeps_what_was_handed_over() {
    // Promise: a store that is dropped without being closed commits what it was given.
    let directory = tempfile::tempdir().expect("a directory");
    let options =
        SqliteOptions { tables: tables(), ..SqliteOptions::new(directory.path().join("l")) };
    let store = SqliteStore::open(&options).expect("new");
    for number in 0..50 {
        let mut submitted = store.submit(call(&format!("op-{number}")).with(note("x")));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let _: std::task::Poll<_> = submitted.as_mut().poll(&mut context);
    }
    drop(store);
    assert!(!directory.path().join("l-wal").exists(), "the log is written back");
    assert_eq!(check(&options.path).expect("a ledger").operations_count, 50);
}

/// An effect whose own end panics, wherever its last owner drops it.
#[derive(Debug)]
struct EndsBadly;

impl LocalEffect for EndsBadly {
    fn apply(
        &self,
        tx: &mut dyn EffectTx,
        context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        note("body").apply(tx, context)
    }
}

impl Drop for EndsBadly {
    fn drop(&mut self) {
        panic!("an effect's own panic, which this test is about");
    }
}

#[tokio::test]
async fn an_effect_that_panics_at_its_own_end_does_not_close_the_ledger() {
    // Promise: no effect takes the ledger from the others.
    let bench = Bed::new();
    bench.store.submit(call("op-1").with(EndsBadly)).await.expect("commits");
    bench.fresh(&call("op-2"), &note("body")).await;
}

#[tokio::test]
async fn the_words_of_a_failed_statement_hold_no_value() {
    // Promise: SQLite's words go into audit events and errors, so they hold no argument.
    let bench = bed(|o| o.schema = Some("CREATE VIRTUAL TABLE found USING fts5 (text);".into()));
    let sql = "SELECT text FROM found WHERE found MATCH ?1";
    let effect = run(|tx| tx.sql().expect("SQL").query_row(sql, &["s3cret:x".into()]).map(drop));
    let error = bench.submit(&call("op-1"), &effect).await.expect_err("no such column");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}
