//! The `operation` commands of the real binary, on ledgers that a server has left behind.

mod command;

use std::fs;
use std::sync::Arc;

use command::Bench;
use command::ledger::{AnHourAgo, leave_ledger};
use counterfoil::data_dir::LEDGER_FILE;
use counterfoil_core::time::Span;
use counterfoil_store::{Clock, SystemClock};
use serde_json::Value as Json;

const DAY: Span = Span::from_secs(86_400);

fn bench_with(clock: Arc<dyn Clock>) -> Bench {
    let bench = Bench::new();
    leave_ledger(&bench.data(""), clock, DAY, &["whole", "half"]);
    bench
}

fn json(text: &str) -> Json {
    serde_json::from_str(text).expect(text)
}

#[test]
fn an_operation_is_shown_to_people_and_to_programs() {
    // Promise: `operation show` tells what the ledger has, and no argument and no result unasked.
    let bench = bench_with(Arc::new(SystemClock));
    let shown = bench.run(&["operation", "show", "whole"]).done();
    for words in [
        "state            applied\n",
        "callers see      applied (settled), retry none\n",
        "principal        alice\n",
        "ledger           desk\n",
        "row 1 of issues is there as the effect left it",
        "bytes (shown with --show-result)",
        "audit trail\n  1  ",
    ] {
        assert!(shown.stdout.contains(words), "{words}\n{}", shown.stdout);
    }
    assert!(!shown.stdout.contains("sentinel") && !shown.stdout.contains("created 1"));
    assert_eq!(shown.stderr, "");
    let asked = bench.run(&["operation", "show", "whole", "--show-result", "--json"]).done();
    assert_eq!(json(&asked.stdout)["result"]["value"], "created 1");
    let half = bench.run(&["operation", "show", "half"]).done();
    assert!(half.stdout.contains("callers see      unknown (first_step_committed)"));
    assert!(half.stderr.contains("counterfoil operation resolve half --applied|--not-applied"));
}

#[test]
fn an_absent_operation_proves_nothing() {
    // Promise: an unknown ID is told apart from a settled one, and is never called not applied.
    let bench = bench_with(Arc::new(SystemClock));
    for arguments in [
        &["operation", "show", "nowhere"][..],
        &["operation", "show", "whole", "--tenant", "other"],
        &["operation", "resolve", "nowhere", "--applied", "--reason", "r"],
    ] {
        let absent = bench.run(arguments).failed(1);
        assert!(absent.stderr.contains("It proves nothing"), "{}", absent.stderr);
        let program = bench.run(&[arguments, &["--json"]].concat());
        assert_eq!((program.code, program.stderr.as_str()), (Some(1), ""));
        assert!(
            json(&program.stdout)["message"].as_str().expect("words").contains("proves nothing")
        );
    }
}

#[test]
fn operations_are_listed_page_by_page() {
    // Promise: an operator finds what is unsettled without an ID, in pages, for people and programs.
    let bench = Bench::new();
    leave_ledger(&bench.data(""), Arc::new(SystemClock), DAY, &["one", "half", "three"]);
    let list = |more: &[&str]| bench.run(&[&["operation", "list"][..], more].concat()).done();
    let ids = |listed: &Json| -> Vec<String> {
        let operations = listed["operations"].as_array().expect("a list");
        operations.iter().map(|o| o["operationId"].as_str().expect("text").into()).collect()
    };
    let shown = list(&[]);
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert!(lines[0].starts_with("OPERATION  STATE        CALLERS SEE"), "{}", shown.stdout);
    assert!(lines[1].starts_with("three      applied      applied (settled)"), "{}", shown.stdout);
    assert!(lines[2].starts_with("half       in_progress  unknown (first_step_committed)"));
    assert_eq!((lines.len(), shown.stderr.as_str()), (4, ""));
    assert!(!shown.stdout.contains("sentinel") && !shown.stdout.contains("created 1"));

    let unsettled = list(&["--unsettled", "--json"]);
    assert_eq!(
        (ids(&json(&unsettled.stdout)), unsettled.stderr.as_str()),
        (vec!["half".into()], "")
    );
    let applied = list(&["--state", "applied", "--state", "in_doubt", "--json"]);
    assert_eq!(ids(&json(&applied.stdout)), ["three", "one"]);

    let first = list(&["--limit", "2"]);
    let command = first.stderr.trim_end().rsplit("--cursor ").next().expect("a cursor");
    let second = list(&["--limit", "2", "--cursor", command, "--json"]);
    assert_eq!(ids(&json(&second.stdout)), ["one"]);
    assert_eq!(json(&second.stdout)["nextCursor"], Json::Null);
    for more in [&["--principal", "bob"][..], &["--tool", "other"], &["--tenant", "far"]] {
        let none = list(more);
        assert_eq!(none.stdout, "");
        assert!(none.stderr.contains("no such operation"), "{}", none.stderr);
        assert!(ids(&json(&list(&[more, &["--json"]].concat()).stdout)).is_empty());
    }
}

#[test]
fn an_operator_settles_what_a_dead_server_left_behind() {
    // Promise: only a person settles a half-done effect; who, why and proof stay; once is final.
    let bench = bench_with(Arc::new(AnHourAgo));
    let resolve = |verdict: &str, more: &[&str]| {
        let base = ["operation", "resolve", "half", verdict, "--reason", "looked at the table"];
        bench.run(&[&base[..], more].concat())
    };
    let stands = resolve("--not-applied", &[]).failed(4);
    assert!(
        stands.stderr.contains("row 2 of `issues`, and it is still there"),
        "{}",
        stands.stderr
    );
    let done = resolve("--applied", &["--as", "mara", "--proof", "change 2231"]).done();
    assert!(done.stderr.contains("settled as applied; the audit trail names mara"));
    let shown = bench.run(&["operation", "show", "half", "--json"]).done();
    let shown = json(&shown.stdout);
    assert_eq!(shown["state"], "applied");
    let last = shown["audit"].as_array().expect("a list").last().expect("an event").clone();
    assert_eq!(last["who"], "mara");
    assert_eq!(last["reason"], "looked at the table");
    assert_eq!(last["proof"], "change 2231");
    let again = resolve("--not-applied", &["--proof", "p", "--json"]);
    assert_eq!((again.code, again.stderr.as_str()), (Some(4), ""));
    let again = json(&again.stdout);
    assert_eq!((&again["outcome"], &again["state"]), (&"illegal".into(), &"applied".into()));
}

#[test]
fn a_decision_needs_no_variable() {
    // Promise: in a container without USER a person can decide too, and an operation that is not
    // there is told before anything else.
    let bench = bench_with(Arc::new(AnHourAgo)).without_env("USER");
    let resolve = |id| bench.run(&["operation", "resolve", id, "--applied", "--reason", "looked"]);
    let absent = resolve("nowhere").failed(1);
    assert!(absent.stderr.contains("It proves nothing"), "{}", absent.stderr);
    resolve("half").done();
    let shown = json(&bench.run(&["operation", "show", "half", "--json"]).done().stdout);
    let last = shown["audit"].as_array().expect("a list").last().expect("an event").clone();
    assert!(last["who"].as_str().is_some_and(|who| !who.trim().is_empty()), "{last}");
}

#[test]
fn a_lock_that_another_process_holds_is_told_to_whoever_starts() {
    // Promise: nobody who has sent no operation is told to send one again: the file, the wait and
    // the two remedies are named.
    let bench = bench_with(Arc::new(AnHourAgo)).with_env("COUNTERFOIL_LOCK_WAIT", "0");
    // A key that the ledger does not know yet makes the start write.
    bench.run(&["key", "generate"]).done();
    let ledger = bench.data(LEDGER_FILE);
    let holder = rusqlite::Connection::open(&ledger).expect("opened");
    holder.execute_batch("BEGIN IMMEDIATE").expect("held");
    for arguments in [
        &["serve", "--stdio"][..],
        &["operation", "resolve", "half", "--applied", "--reason", "looked"],
    ] {
        let refused = bench.run(arguments).failed(1);
        for words in [
            format!("the ledger {} is locked", ledger.display()),
            "write lock for over 0 ms; nothing was written".into(),
            "stop that process, or wait longer for it (--lock-wait".into(),
        ] {
            assert!(refused.stderr.contains(&words), "{words}\n{}", refused.stderr);
        }
        assert!(!refused.stderr.contains("same operation"), "{}", refused.stderr);
    }
}

#[test]
fn a_check_names_operations_as_their_callers_do() {
    // Promise: what `store check` finds can be looked up, by people and by programs.
    let bench = bench_with(Arc::new(AnHourAgo));
    let ledger = bench.data(LEDGER_FILE);
    let file = ledger.to_str().expect("UTF-8");
    let sound = json(&bench.run(&["store", "check", file, "--json"]).done().stdout);
    assert_eq!(
        (&sound["operationsCount"], &sound["operations"]),
        (&2.into(), &Json::Array(vec![]))
    );
    let connection = rusqlite::Connection::open(&ledger).expect("opened");
    connection
        .execute_batch("DROP TRIGGER issues_stays_on_delete; DELETE FROM issues WHERE id = 1")
        .expect("deleted");
    drop(connection);
    let words = "the row that operation `whole` of the tenant `local` made is gone; see \
                 `counterfoil operation show whole`";
    let told = bench.run(&["store", "check", file]);
    assert_eq!((told.code, told.stderr.as_str()), (Some(1), ""));
    assert!(told.stdout.contains(&format!("PROBLEM: {words}\n")), "{}", told.stdout);
    let told = json(&bench.run(&["store", "check", file, "--json"]).stdout);
    assert_eq!(
        (&told["problems"][0], &told["damagedRecords"]),
        (&words.into(), &Json::Array(vec![]))
    );
    let found = &told["operations"][0];
    assert_eq!((&found["operationId"], &found["tenant"]), (&"whole".into(), &"local".into()));
    assert_eq!(
        (&found["key"].as_str().map(str::len), &found["problem"]),
        (&Some(36), &words.into())
    );
    let absent = bench.run(&["store", "check", "no.db"]).failed(1);
    assert!(absent.stderr.contains("there is no file at no.db: give a ledger's file"));
    let directory = bench.run(&["store", "check", "data"]).failed(1);
    assert!(directory.stderr.contains("data is a directory"), "{}", directory.stderr);
    assert!(directory.stderr.contains("data/ledger.db"), "{}", directory.stderr);
}

#[test]
fn a_live_owner_is_not_overruled() {
    // Promise: while a server may still be at work on an operation, no operator can settle it.
    let bench = bench_with(Arc::new(SystemClock));
    let owned = bench
        .run(&["operation", "resolve", "half", "--applied", "--reason", "impatient"])
        .failed(4);
    assert!(owned.stderr.contains("a server may still be at work"), "{}", owned.stderr);
    let shown = bench.run(&["operation", "show", "half", "--json"]).done();
    assert_eq!(json(&shown.stdout)["state"], "in_progress");
}

#[test]
fn a_key_is_not_generated_over_one_that_the_ledger_needs() {
    // Promise: a lost key is to be restored; a new one takes a number of its own.
    let bench = bench_with(Arc::new(SystemClock));
    let [first, kept] = ["keys/1.key", "kept"].map(|name| bench.data(name));
    bench.run(&["key", "generate"]).done();
    fs::rename(&first, &kept).expect("moved");
    let refused = bench.run(&["key", "generate", "--id", "1"]).failed(1);
    assert!(refused.stderr.contains("used with a key 1"), "{}", refused.stderr);
    fs::remove_file(bench.data("keys/2.key")).expect("removed");
    for arguments in [&["key", "generate"][..], &["key", "generate", "--id", "7"]] {
        let lost = bench.run(arguments).failed(1);
        assert!(lost.stderr.contains("made under key 1"), "{}", lost.stderr);
        assert!(lost.stderr.contains("keys/1.key from the backup"), "{}", lost.stderr);
    }
    fs::rename(&kept, &first).expect("restored");
    let next = bench.run(&["key", "generate"]).done();
    assert!(next.stdout.ends_with("keys/2.key\n"), "{}", next.stdout);
}

#[test]
fn ledgers_that_do_not_fit_are_refused_and_left_alone() {
    // Promise: another backend, another schema, a damaged or absent file: named, never replaced.
    let bench = bench_with(Arc::new(SystemClock));
    let check = |bench: &Bench, words: &str| {
        let refused = bench.run(&["operation", "show", "whole"]).failed(1);
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
        assert!(refused.stderr.contains(LEDGER_FILE), "{}", refused.stderr);
    };
    let other = Bench::new().in_dir(&bench.data("")).with_env("COUNTERFOIL_BACKEND_ID", "other");
    check(&other, "belongs to the backend `desk`, not `other`");
    let ledger = bench.data(LEDGER_FILE);
    let connection = rusqlite::Connection::open(&ledger).expect("opened");
    connection.execute("UPDATE ledger SET version = 99, min_compatible = 99", ()).expect("set");
    drop(connection);
    check(&bench, "use a newer counterfoil");
    for name in fs::read_dir(bench.data("")).expect("listed") {
        let path = name.expect("listed").path();
        if path.to_string_lossy().contains("ledger.db-") {
            fs::remove_file(path).expect("removed");
        }
    }
    let garbage = "no ledger at all ".repeat(500);
    fs::write(&ledger, &garbage).expect("written");
    check(&bench, "is damaged or is not a ledger");
    assert_eq!(fs::read_to_string(&ledger).expect("read"), garbage);
    fs::remove_file(&ledger).expect("removed");
    check(&bench, "there is no ledger at");
    assert!(!ledger.exists());
}

#[test]
fn a_store_that_keeps_nothing_has_nothing_to_show() {
    // Promise: a setting that makes a command senseless is told, not ignored.
    let bench = Bench::new().with_env("COUNTERFOIL_STORE", "memory");
    let refused = bench.run(&["operation", "show", "x"]).failed(2);
    assert!(refused.stderr.contains("set store = \"sqlite\""), "{}", refused.stderr);
}
