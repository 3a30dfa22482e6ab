//! SQLite alone: files that are no usable ledger, and what a check finds in one.

mod suite;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::identity::BackendId;
use counterfoil_core::observation::Snapshot;
use counterfoil_core::time::Timestamp;
use counterfoil_store::sqlite::{CheckRefused, CheckReport, OperationProblem, check};
use counterfoil_store::{
    Answer, Column, ColumnKind, OpenRefused, SqliteOptions, SqliteStore, Store, StoreError,
    TableSpec,
};
use rusqlite::Connection;
use suite::calls::{call, ring};
use suite::clock::TestClock;
use suite::effects::{Goes, note, tables, two_steps};
use suite::factories::Sqlite;
use suite::{Bench, Factory};

type Bed = Bench<Sqlite>;

/// A closed ledger with three operations in it.
async fn used() -> Bed {
    let bench = Bed::new();
    bench.store.bind_keys(&ring(&[(1, 1)])).await.expect("new keys");
    bench.fresh(&call("whole"), &note("body")).await;
    bench.fresh(&call("begun"), &two_steps(Goes::Well, Goes::Well)).await;
    let partly = two_steps(Goes::Fails, Goes::Fails);
    let begun = bench.fresh(&call("partly"), &partly).await;
    suite::finishing::finish(&bench, &begun, &partly).await;
    bench.store.close().await.expect("closes");
    bench
}

fn refused(options: &SqliteOptions) -> OpenRefused {
    refused_when("", options)
}

fn refused_when(case: &str, options: &SqliteOptions) -> OpenRefused {
    match SqliteStore::open(options) {
        Err(StoreError::Refused(why)) => why,
        other => panic!("{case}: wanted a refusal, got {other:?}"),
    }
}

/// Every file of a directory with its bytes.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .expect("readable")
        .map(|entry| entry.expect("readable").path())
        .map(|path| (path.clone(), fs::read(path).expect("readable")))
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn files_are_for_their_owner_alone() {
    // Promise: nobody else on the machine reads what the ledger keeps.
    let bench = Bed::new();
    bench.fresh(&call("op-1"), &note("body")).await;
    let mut names = Vec::new();
    for entry in fs::read_dir(bench.factory.directory.path()).expect("readable") {
        let entry = entry.expect("readable");
        let mode = entry.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.path());
        names.push(entry.file_name().into_string().expect("UTF-8"));
    }
    names.sort();
    assert_eq!(names, ["ledger.db", "ledger.db-reserve", "ledger.db-shm", "ledger.db-wal"]);
}

#[tokio::test]
async fn a_damaged_file_is_named_and_left_as_it_is() {
    // Promise: a truncated, overwritten, empty or foreign file is an error that names it and says
    // what to do, never a fresh start.
    type Damage = fn(&Path);
    let cases: [(&str, Damage); 8] = [
        ("it is empty", |path| fs::write(path, b"").expect("writes")),
        ("not a SQLite database", |path| fs::write(path, b"hello, world").expect("writes")),
        ("not a SQLite database", |path| fs::write(path, vec![0x5a; 40_000]).expect("writes")),
        ("malformed", |path| truncate(path, 3 * 4096)),
        ("malformed", |path| truncate(path, 100)),
        ("its structure is broken", |path| overwrite(path, 5 * 4096, &[0xff; 4096])),
        ("not a Counterfoil ledger", |path| {
            fs::remove_file(path).expect("removes");
            let other = Connection::open(path).expect("opens");
            other.execute_batch("CREATE TABLE operations (x)").expect("writes");
        }),
        ("not a regular file", |path| {
            fs::remove_file(path).expect("removes");
            fs::create_dir(path).expect("makes");
        }),
    ];
    for (expected, damage) in cases {
        let bench = used().await;
        let path = &bench.factory.options.path;
        damage(path);
        let before = fs::read(path).unwrap_or_default();
        let why = refused_when(expected, &bench.factory.options);
        let words = why.to_string();
        assert!(matches!(why, OpenRefused::Damaged { .. }), "{expected}: {words}");
        assert!(words.contains(expected), "{expected}: {words}");
        assert!(words.contains("ledger.db") && words.contains("restore a backup"), "{words}");
        assert_eq!(fs::read(path).unwrap_or_default(), before, "{expected}");
        // Looking again finds the same, and a check refuses or reports it too.
        assert_eq!(refused(&bench.factory.options), why);
        assert!(!check(path).is_ok_and(|report| report.is_sound()), "{expected}");
    }
}

fn truncate(path: &Path, length: u64) {
    fs::OpenOptions::new().write(true).open(path).expect("opens").set_len(length).expect("cuts");
}

fn overwrite(path: &Path, at: usize, bytes: &[u8]) {
    let mut content = fs::read(path).expect("reads");
    content[at..at + bytes.len()].copy_from_slice(bytes);
    fs::write(path, content).expect("writes");
}

#[tokio::test]
async fn a_log_without_its_file_is_not_a_fresh_start() {
    // Promise: when the main file was lost and its log is there, no empty ledger takes its place.
    let bench = used().await;
    let path = &bench.factory.options.path;
    fs::remove_file(path).expect("removes");
    fs::write(path.with_file_name("ledger.db-wal"), [1; 5_000]).expect("writes");
    let why = refused(&bench.factory.options);
    assert!(why.to_string().contains("its write-ahead log"), "{why}");
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_opened_says_why() {
    // Promise: a ledger that is not there, or not this server's, is refused with the remedy.
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let options = SqliteOptions { create: false, ..SqliteOptions::new(&path) };
    assert_eq!(refused(&options), OpenRefused::Absent { path: path.clone() });
    assert_eq!(files(directory.path()), []);

    let nowhere = SqliteOptions::new(directory.path().join("missing").join("ledger.db"));
    assert!(matches!(refused(&nowhere), OpenRefused::NotWritable { .. }));

    let named = |name: &str| {
        let backend_id = Some(BackendId::parse(name).expect("valid"));
        SqliteOptions { backend_id, ..SqliteOptions::new(&path) }
    };
    drop(SqliteStore::open(&named("ours")).expect("new"));
    match refused(&named("theirs")) {
        OpenRefused::OtherBackend { found, wanted, .. } => {
            assert_eq!((found.as_str(), wanted.as_str()), ("ours", "theirs"));
        }
        other => panic!("{other:?}"),
    }
    let any = SqliteStore::open(&SqliteOptions::new(&path)).expect("takes the file's own");
    assert_eq!(any.backend_id().as_str(), "ours");
}

#[test]
fn a_new_ledger_gets_a_name_of_its_own() {
    // Promise: two ledgers that nobody named do not answer for each other.
    let directory = tempfile::tempdir().expect("a directory");
    let made = |name: &str| {
        SqliteStore::open(&SqliteOptions::new(directory.path().join(name))).expect("new")
    };
    let (one, two) = (made("one.db"), made("two.db"));
    assert_ne!(one.backend_id(), two.backend_id());
    for store in [&one, &two] {
        let name = store.backend_id().as_str();
        assert!(name.starts_with("bk-") && name.len() == 19, "{name}");
    }
}

#[test]
fn a_newer_schema_opens_only_what_it_allows() {
    // Promise: a binary opens a newer file if that says so, and else refuses with both versions.
    let directory = tempfile::tempdir().expect("a directory");
    let options = SqliteOptions::new(directory.path().join("ledger.db"));
    drop(SqliteStore::open(&options).expect("new"));
    let set = |version: i64, min_compatible: i64| {
        Connection::open(&options.path)
            .and_then(|c| {
                c.execute(
                    "UPDATE ledger SET version = ?1, min_compatible = ?2",
                    [version, min_compatible],
                )
            })
            .expect("sets");
    };
    set(9, 1);
    drop(SqliteStore::open(&options).expect("compatible"));
    assert!(check(&options.path).expect("compatible").is_sound());
    set(9, 5);
    let expected =
        OpenRefused::Schema { path: options.path.clone(), version: 9, min_compatible: 5, known: 4 };
    assert_eq!(refused(&options), expected);
    let unchecked = check(&options.path).expect_err("of a newer schema");
    assert!(matches!(unchecked, CheckRefused::Schema { version: 9, .. }), "{unchecked}");
    assert!(expected.to_string().contains("use a newer counterfoil"), "{expected}");
}

#[test]
fn declared_tables_fit_or_are_refused() {
    // Promise: a declaration that differs from the table that is there changes nothing.
    const A: Column = Column { name: "a", kind: ColumnKind::Integer };
    const ID: Column = Column { name: "id", kind: ColumnKind::Integer };
    let table = |name, columns| TableSpec { name, columns, append_only: false };
    let directory = tempfile::tempdir().expect("a directory");
    let with = |tables: &[TableSpec]| SqliteOptions {
        tables: tables.to_vec(),
        ..SqliteOptions::new(directory.path().join("ledger.db"))
    };
    drop(SqliteStore::open(&with(&[table("mine", &[A])])).expect("new"));
    drop(SqliteStore::open(&with(&[table("mine", &[A])])).expect("again"));
    drop(SqliteStore::open(&with(&[])).expect("without"));
    let cases = [
        (vec![table("mine", &[A, Column { name: "b", ..A }])], "declare it as it is"),
        (vec![table("mine", &[Column { kind: ColumnKind::Text, ..A }])], "declare it as it is"),
        (vec![table("operations", &[A])], "name of the ledger's own"),
        (vec![table("sqlite_x", &[A])], "name of the ledger's own"),
        (vec![table("Mine", &[A])], "cannot name a table"),
        (vec![table("a\"b", &[A])], "cannot name a table"),
        (vec![table("x", &[ID])], "made by the store"),
        (vec![table("x", &[A, A])], "two columns"),
        (vec![table("x", &[])], "has no column"),
        (vec![table("x", &[A]), table("x", &[A])], "declared twice"),
    ];
    for (tables, expected) in cases {
        match refused(&with(&tables)) {
            OpenRefused::Tables { problem, .. } => {
                assert!(problem.contains(expected), "{expected}: {problem}");
            }
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn an_embedders_schema_is_run_whole_or_not_at_all() {
    // Promise: the embedder's tables are there before the first call, at every open, and its
    // schema cannot reach the ledger's own tables, other files or the transaction.
    let directory = tempfile::tempdir().expect("a directory");
    let with = |schema: &str| SqliteOptions {
        schema: Some(schema.into()),
        ..SqliteOptions::new(directory.path().join("ledger.db"))
    };
    let good = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, sum INTEGER);
                CREATE INDEX IF NOT EXISTS orders_by_sum ON orders (sum);
                CREATE TABLE IF NOT EXISTS lines (
                    order_id INTEGER REFERENCES orders (id), n INTEGER);
                ALTER TABLE lines RENAME COLUMN n TO number;
                ALTER TABLE lines RENAME COLUMN number TO n;
                INSERT INTO orders (sum) SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM orders);";
    for _ in 0..2 {
        drop(SqliteStore::open(&with(good)).expect("runs"));
    }
    for bad in [
        "CREATE TABLE half (x); CREATE TABLE half (x);",
        "CREATE TABLE half (x); DELETE FROM operations;",
        "CREATE TABLE half (x); DROP TABLE audit_events;",
        "CREATE TABLE half (x); ALTER TABLE operations ADD COLUMN x;",
        "CREATE TABLE half (x); CREATE INDEX i ON operations (state);",
        "CREATE TABLE half (x); CREATE TRIGGER t AFTER INSERT ON operations BEGIN SELECT 1; END;",
        "CREATE TABLE half (x); UPDATE ledger SET version = 3;",
        "CREATE TABLE half (x); COMMIT;",
        "CREATE TABLE half (x); PRAGMA synchronous = OFF;",
        "CREATE TABLE half (x); ATTACH ':memory:' AS other;",
        "CREATE TABLE half (x); not SQL",
    ] {
        let why = refused(&with(bad));
        assert!(matches!(why, OpenRefused::EmbedderSchema { .. }), "{bad}: {why}");
        let connection = Connection::open(directory.path().join("ledger.db")).expect("opens");
        let half = connection.prepare("SELECT * FROM half").expect_err("rolled back");
        assert!(half.to_string().contains("no such table"), "{bad}: {half}");
    }
}

#[tokio::test]
async fn a_sound_ledger_is_told_sound_and_is_not_changed() {
    // Promise: a check tells the counts, and looks without changing a byte.
    let bench = used().await;
    let directory = bench.factory.directory.path();
    let path = &bench.factory.options.path;
    let before = files(directory);
    let report = check(path).expect("a ledger");
    assert_eq!(report.problems, Vec::<String>::new());
    assert!(report.is_sound());
    assert_eq!(report.backend_id, "test");
    assert_eq!((report.operations_count, report.audit_events_count), (3, 5));
    assert_eq!(report.effect_rows_count, 3);
    let states: Vec<_> = report.states.into_iter().collect();
    assert_eq!(states, [("applied", 1), ("in_progress", 1), ("partial", 1)]);
    let facts = |files: Vec<(PathBuf, Vec<u8>)>| -> Vec<_> {
        // The shared memory of the log holds no facts; an empty log is none.
        let shared = |path: &Path| path.to_string_lossy().ends_with("-shm");
        files.into_iter().filter(|(path, bytes)| !shared(path) && !bytes.is_empty()).collect()
    };
    assert_eq!(facts(files(directory)), facts(before));
    drop(SqliteStore::open(&bench.factory.options).expect("still opens"));
}

#[tokio::test]
async fn a_check_works_beside_a_server() {
    // Promise: a ledger in use can be checked, its log included.
    let bench = Bed::new();
    bench.fresh(&call("op-1"), &note("body")).await;
    let report = check(&bench.factory.options.path).expect("a ledger");
    assert_eq!((report.is_sound(), report.operations_count), (true, 1), "{report:?}");
    bench.fresh(&call("op-2"), &note("body")).await;
}

#[tokio::test]
async fn whatever_is_wrong_is_found() {
    // Promise: a changed record, a lost effect, a lost or wrong audit event, a mark that went
    // back: each is a problem, told without stored values.
    let cases = [
        (
            "UPDATE operations SET principal = x'62' WHERE operation_id = CAST('whole' AS BLOB)",
            "row_check",
        ),
        ("UPDATE operations SET result = CAST('{' AS BLOB) WHERE state = 1", "result: is not JSON"),
        ("UPDATE operations SET result = CAST('\"x\"' AS BLOB) WHERE state = 1", "row_check"),
        ("UPDATE operations SET state = 3 WHERE state = 1", "row_check"),
        ("UPDATE operations SET state = 7", "state: is unknown"),
        ("UPDATE operations SET quarantined = 1 WHERE state = 1", "set aside by hand"),
        ("UPDATE operations SET fence = 3 WHERE state = 1", "row_check"),
        ("UPDATE operations SET tenant_no = 99 WHERE state = 1", "tenant_no"),
        ("UPDATE operations SET id_bytes = zeroblob(16) WHERE state = 1", "id_bytes"),
        ("DELETE FROM tags", "the row that operation"),
        ("DELETE FROM audit_events WHERE seq = 1", "an audit event of operation"),
        ("DELETE FROM audit_events", "has no audit event"),
        (
            "DELETE FROM audit_events WHERE kind = CAST('partial' AS BLOB)",
            "does not make it partial",
        ),
        ("DELETE FROM operations WHERE state = 1", "belong to no operation"),
        ("DELETE FROM operations WHERE state = 1", "refer to no row of `operations`"),
        ("UPDATE ledger SET high_water_ms = 5", "newer than the ledger's high-water mark"),
        ("UPDATE ledger SET incarnation = 0", "incarnation is below 1"),
        ("DELETE FROM ledger", "missing or empty"),
    ];
    for (tamper, expected) in cases {
        let bench = used().await;
        let path = &bench.factory.options.path;
        let connection = Connection::open(path).expect("opens");
        connection.execute_batch("PRAGMA foreign_keys = OFF").expect("sets");
        assert!(connection.execute(tamper, []).expect(tamper) > 0, "{tamper}");
        drop(connection);
        let problems = match check(path) {
            Ok(CheckReport { problems, .. }) => problems.join("\n"),
            Err(refused) => refused.to_string(),
        };
        assert!(problems.contains(expected), "{tamper}: {problems}");
        assert!(!problems.contains("alice"), "{problems}");
    }
}

#[tokio::test]
async fn a_finding_bears_the_names_that_its_caller_knows() {
    // Promise: an operator who reads a check can look the operation up: its ID and tenant stand in
    // the words, and beside the ledger's own key for programs.
    let cases = [
        (
            "DELETE FROM tags",
            "the row that operation `begun` of the tenant `local` made is gone; see \
             `counterfoil operation show begun`",
            Some("begun"),
        ),
        (
            "UPDATE operations SET fence = 3 WHERE state = 1",
            "operation `whole` of the tenant `local` is damaged: row_check: is not the digest of \
             the row; see `counterfoil operation show whole`",
            Some("whole"),
        ),
        (
            "UPDATE operations SET operation_id = x'ff' WHERE state = 1",
            "is damaged: operation_id: is not UTF-8",
            None,
        ),
    ];
    for (tamper, expected, id) in cases {
        let bench = used().await;
        let path = &bench.factory.options.path;
        let connection = Connection::open(path).expect("opens");
        assert!(connection.execute(tamper, []).expect(tamper) > 0, "{tamper}");
        drop(connection);
        let report = check(path).expect("a ledger");
        let named = |id: Option<&str>| {
            let of_id = |o: &&OperationProblem| o.operation_id.as_ref().map(|i| i.as_str()) == id;
            report.operations.iter().find(of_id).expect("listed").clone()
        };
        let found = named(id);
        assert!(report.problems.contains(&found.problem), "{report:?}");
        assert!(found.problem.contains(expected), "{found:?}");
        assert_eq!(found.tenant.expect("read").as_str(), "local");
        assert_eq!(found.key.len(), 36);
        let damaged = report.damaged_records.contains(&found.key);
        assert_eq!(damaged, expected.contains("damaged"), "{tamper}");
    }
}

#[test]
fn what_cannot_be_checked_says_what_to_give() {
    // Promise: a path that is no ledger's is refused with a remedy for a check: nobody is told to
    // move a file away or to start a server.
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::write(at("text"), "hello, world").expect("writes");
    fs::write(at("empty"), "").expect("writes");
    Connection::open(at("other"))
        .and_then(|c| c.execute_batch("CREATE TABLE t (x)"))
        .expect("made");
    let cases = [
        ("absent", "there is no file at", "for example DIR/ledger.db"),
        (".", "is a directory", "ledger.db"),
        ("text", "it is not a SQLite database", "restore a backup"),
        ("empty", "it is empty", "restore a backup"),
        ("other", "not a Counterfoil ledger", "restore a backup"),
    ];
    for (name, rule, remedy) in cases {
        let before = files(directory.path());
        let words = check(at(name)).expect_err(name).to_string();
        assert!(words.contains(rule) && words.contains(remedy), "{name}: {words}");
        assert!(words.contains(&at(name).display().to_string()), "{name}: {words}");
        assert!(!words.contains("move") && !words.contains("a server"), "{name}: {words}");
        assert_eq!(files(directory.path()), before, "{name}");
    }
}

#[tokio::test]
async fn a_row_that_an_embedder_changed_later_is_a_note() {
    // Promise: what an embedder does to its own rows later is told, and is not damage.
    let bench = used().await;
    let path = &bench.factory.options.path;
    let connection = Connection::open(path).expect("opens");
    connection.execute("UPDATE tags SET note_id = 5 WHERE id = 1", []).expect("changes");
    drop(connection);
    let report = check(path).expect("a ledger");
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.notes.len(), 1);
    assert!(report.notes[0].contains("changed later; see `counterfoil operation show "));
    assert!(report.operations.is_empty());
}

#[tokio::test]
async fn a_damaged_record_is_set_aside_and_the_rest_works() {
    // Promise: a record that fails its own checks has no effect and settles nothing, the alarm
    // names the check, and every other operation goes on.
    let bench = used().await;
    let path = &bench.factory.options.path;
    let connection = Connection::open(path).expect("opens");
    let tamper =
        "UPDATE operations SET principal = x'62' WHERE operation_id = CAST('whole' AS BLOB)";
    assert_eq!(connection.execute(tamper, []), Ok(1));
    drop(connection);
    let bench = Bed { store: bench.factory.open(), ..bench };
    let effect = note("again");
    match bench.submit(&call("whole"), &effect).await {
        Err(StoreError::Quarantined { reason }) => {
            assert!(reason.contains("row_check"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(effect.calls(), 0);
    assert_eq!(bench.look_up(&call("whole")).await, Snapshot::Quarantined);
    bench.fresh(&call("other"), &note("x")).await;
    bench.replayed(&call("partly"), &note("x")).await;
}

#[test]
fn a_file_that_can_only_be_read_is_refused() {
    // Promise: a ledger on a read-only file system is refused by name before any command, and can
    // still be checked.
    let directory = tempfile::tempdir().expect("a directory");
    let Some(_mounted) = suite::mounts::tmpfs(directory.path(), "1m") else { return };
    let options = SqliteOptions::new(directory.path().join("ledger.db"));
    drop(SqliteStore::open(&options).expect("new"));
    suite::mounts::read_only(directory.path());
    let why = refused(&options);
    assert!(matches!(why, OpenRefused::NotWritable { .. }), "{why}");
    assert!(why.to_string().contains("check owner and permissions"), "{why}");
    let elsewhere = SqliteOptions::new(directory.path().join("new.db"));
    assert!(matches!(refused(&elsewhere), OpenRefused::NotWritable { .. }));
    assert!(check(&options.path).expect("readable").is_sound());
}

#[test]
fn two_that_make_the_same_ledger_get_the_same() {
    // Promise: whoever comes first makes it; nobody gets half of one, or one of their own.
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let names: Vec<_> = std::thread::scope(|scope| {
        let open = || {
            let options = SqliteOptions { tables: tables(), ..SqliteOptions::new(&path) };
            SqliteStore::open(&options).expect("opens").backend_id().clone()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    let left: Vec<_> = files(directory.path()).into_iter().map(|(path, _)| path).collect();
    assert!(left.iter().all(|path| !path.to_string_lossy().contains(".new-")), "{left:?}");
}

#[tokio::test]
async fn a_file_that_is_moved_away_takes_no_more_commits() {
    // Promise: nothing is acknowledged into a file that nobody will find again.
    let bench = Bed::new();
    bench.fresh(&call("op-1"), &note("body")).await;
    let path = &bench.factory.options.path;
    fs::rename(path, path.with_file_name("elsewhere.db")).expect("moves");
    match bench.submit(&call("op-2"), &note("body")).await {
        Err(StoreError::Io { cause, .. }) => assert!(cause.contains("moved or deleted"), "{cause}"),
        other => panic!("{other:?}"),
    }
    fs::rename(path.with_file_name("elsewhere.db"), path).expect("moves back");
    bench.fresh(&call("op-2"), &note("body")).await;
}

#[test]
fn the_clock_of_a_copied_ledger_does_not_go_back() {
    // Promise: a ledger that was written under a later clock keeps its time when it is opened
    // under an earlier one.
    let clock = Arc::new(TestClock::new());
    let factory = Sqlite::new(Arc::clone(&clock), Timestamp::from_ms(0));
    let mark = suite::clock::START_MS + 1_000_000;
    Connection::open(&factory.options.path)
        .and_then(|c| c.execute("UPDATE ledger SET high_water_ms = ?1", [mark]))
        .expect("sets");
    let store = factory.open();
    assert_eq!(store.now(), Timestamp::from_ms(mark));
    clock.pass(Duration::from_secs(1));
    assert_eq!(store.now(), Timestamp::from_ms(mark + 1_000));
}

#[tokio::test]
async fn a_damaged_index_opens_no_door_to_a_second_effect() {
    // Promise: a flipped bit anywhere is seen before it makes an old ID new.
    let mut bench = used().await;
    let path = &bench.factory.options.path;
    let key = call("whole").operation_id().index_key().bytes;
    let mut bytes = fs::read(path).expect("readable");
    let places: Vec<usize> =
        (0..bytes.len() - 16).filter(|at| bytes[*at..*at + 16] == key).collect();
    assert_eq!(places.len(), 2, "the row and the index");
    let mut doubled = Vec::new();
    for at in places {
        bytes[at] ^= 1;
        fs::write(path, &bytes).expect("written");
        if let Ok(store) = SqliteStore::open(&bench.factory.options) {
            bench.store = Arc::new(store);
            let again = bench.submit(&call("whole"), &note("body")).await;
            if matches!(again, Ok(Answer::Fresh(_))) {
                doubled.push(at);
            }
            bench.store.close().await.expect("closes");
        }
        bytes[at] ^= 1;
        fs::write(path, &bytes).expect("written");
    }
    assert!(doubled.is_empty(), "made a second effect: {doubled:?}");
}
