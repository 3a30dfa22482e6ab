//! The benchmark itself: that it runs, that its JSON keeps its form, and that raw SQLite, with which
//! the ledger is compared, writes the same rows.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use counterfoil::data_dir::{DataDir, TOKENS_FILE};
use counterfoil::tokens::{self, NewToken, Right};
use counterfoil_lab::bench::delivery_raw::RawOutbox;
use counterfoil_lab::bench::delivery_side::OutboxLedger;
use counterfoil_lab::bench::http::Connection;
use counterfoil_lab::bench::raw_side::RawLedger;
use counterfoil_lab::bench::store_side::{Callers, StoreLedger};
use counterfoil_lab::bench::work::{ENDLESS, Ids, Pool, Workload};
use counterfoil_lab::child::{ChildOptions, StoreKind};
use counterfoil_lab::process::{Ended, Launch};
use counterfoil_store::{Clock as _, SystemClock};
use rustix::process::Signal;
use serde_json::Value;

const TABLES: [&str; 3] = ["operations", "issues", "audit_events"];
/// What an acceptance and a delivery write to.
const OUTBOX_TABLES: [&str; 5] =
    ["operations", "outbox", "outbox_requests", "audit_events", "ledger"];

#[test]
fn every_part_runs_and_keeps_the_form_of_its_results() {
    // Promise: whoever reads the results finds the same names and numbers after every change.
    let output = Command::new(env!("CARGO_BIN_EXE_counterfoil-lab"))
        .args(["bench", "ledger", "--quick", "--json"])
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    let results = report["results"].as_array().expect("results");
    for name in ["submit", "submit_single", "growth", "mcp_stdio", "mcp_http"] {
        let figures: Vec<&Value> = results.iter().filter(|one| one["name"] == name).collect();
        assert!(!figures.is_empty(), "{name} was not measured");
        for figure in figures {
            for field in ["callers", "ops_per_s", "p50_ms", "p99_ms"] {
                assert!(figure[field].as_f64().is_some_and(|n| n > 0.0), "{name}: {figure}");
            }
            assert_eq!(figure["limit_ops_per_s"].is_f64(), figure["ratio"].is_f64(), "{figure}");
        }
    }
    assert!(report["checks"].as_array().is_some_and(|checks| !checks.is_empty()));
}

#[test]
fn deliveries_are_measured_and_keep_the_form_of_their_results() {
    // Promise: whoever reads the results of deliveries finds the same names and numbers after every
    // change, and a bound for each.
    let output = Command::new(env!("CARGO_BIN_EXE_counterfoil-lab"))
        .args(["bench", "delivery", "--quick", "--json"])
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    let results = report["results"].as_array().expect("results");
    let names: Vec<&str> = results.iter().filter_map(|one| one["name"].as_str()).collect();
    let wanted =
        ["accept", "claim_finish", "queue_depth", "delivered_growth", "restart", "deliver_http"];
    assert_eq!(names, wanted);
    for figure in results {
        for field in ["callers", "ops_per_s", "p50_ms", "p99_ms"] {
            assert!(figure[field].as_f64().is_some_and(|n| n > 0.0), "{figure}");
        }
        let is_compared = figure["name"] != "restart";
        assert_eq!(figure["limit_ops_per_s"].is_f64(), is_compared, "{figure}");
        assert_eq!(figure["ratio"].is_f64(), is_compared, "{figure}");
    }
    assert_eq!(report["checks"].as_array().map(Vec::len), Some(7));
}

#[test]
fn a_wrap_is_measured_and_keeps_the_form_of_its_results() {
    // Promise: whoever reads the results of a wrap finds the same names and numbers after every
    // change, and each bound that it must keep.
    let output = Command::new(env!("CARGO_BIN_EXE_counterfoil-lab"))
        .args(["bench", "wrap", "--quick", "--json"])
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    let results = report["results"].as_array().expect("results");
    let names: Vec<&str> = results.iter().filter_map(|one| one["name"].as_str()).collect();
    let calls = ["wrap_pass", "wrap_guarded", "copier", "appends"];
    assert_eq!(names, [&calls[..], &calls[..3], &["wrap_start"]].concat());
    for figure in results {
        for field in ["callers", "ops_per_s", "p50_ms", "p99_ms"] {
            assert!(figure[field].as_f64().is_some_and(|n| n > 0.0), "{figure}");
        }
    }
    assert_eq!(report["checks"].as_array().map(Vec::len), Some(7));
}

#[test]
fn a_soak_runs_and_keeps_the_form_of_its_results() {
    // Promise: at half load for an hour (seconds, unless larger counts are asked for) memory, open
    // files and the log of a server stay what they are.
    let full = std::env::var("COUNTERFOIL_TEST_FULL").is_ok_and(|value| value == "1");
    let minutes = if full { "60" } else { "0.1" };
    let output = Command::new(env!("CARGO_BIN_EXE_counterfoil-lab"))
        .args(["bench", "ledger", "--soak", "--json", "--minutes", minutes])
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    assert_eq!(report["results"][0]["name"], "soak");
    assert_eq!(report["checks"].as_array().map(Vec::len), Some(if full { 4 } else { 0 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_sqlite_writes_the_rows_that_the_ledger_writes() {
    // Promise: the ledger is not compared with somebody who writes less.
    let place = tempfile::tempdir().expect("a directory");
    let mut workload = Workload::new(Ids::TimeOrdered).expect("a workload");
    let path = place.path().join("ledger.db");
    let store = StoreLedger::open(&path, &workload).await.expect("opens");
    let pool = Pool::fill(1, ENDLESS, || workload.submission());
    store.round(1, Callers::Threads, pool).await.expect("one operation");
    store.close().await.expect("closes");
    let expected = shapes(&path, &TABLES);
    assert_eq!(expected.len(), TABLES.len(), "one row in each table");
    for form in ["fewest statements", "the same statements"] {
        let place = tempfile::tempdir().expect("a directory");
        let mut raw = RawLedger::create(place.path()).expect("made");
        let pool = Pool::fill(1, ENDLESS, || workload.row());
        let round = match form {
            "fewest statements" => raw.single_round(&pool),
            _ => tokio::task::block_in_place(|| raw.limit_round(1, &pool)),
        };
        round.expect("one operation");
        assert_eq!(shapes(raw.path(), &TABLES), expected, "{form}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_sqlite_writes_the_rows_that_an_acceptance_and_a_delivery_write() {
    // Promise: the outbox is not compared with somebody who writes less, nor with other states.
    let place = tempfile::tempdir().expect("a directory");
    let mut workload = Workload::new(Ids::TimeOrdered).expect("a workload");
    let path = place.path().join("ledger.db");
    let ledger = OutboxLedger::open(&path, &workload).await.expect("opens");
    let mut raw = RawOutbox::create(place.path()).expect("made");
    ledger.fill(&mut workload, 1).await.expect("one acceptance");
    let pool = Pool::fill(1, ENDLESS, || workload.row());
    tokio::task::block_in_place(|| raw.accept(1, &pool)).expect("one acceptance");
    let accepted = shapes(&path, &OUTBOX_TABLES);
    assert_eq!(accepted.len(), 5, "one row in each table");
    assert_eq!(shapes(raw.path(), &OUTBOX_TABLES), accepted, "accepted");
    assert_eq!(states(raw.path()), states(&path), "accepted");

    ledger.deliver(1).await.expect("one delivery");
    tokio::task::block_in_place(|| raw.deliver(1)).expect("one delivery");
    let delivered = shapes(&path, &OUTBOX_TABLES);
    assert_eq!(delivered.len(), 7, "two audit events more");
    assert_eq!(shapes(raw.path(), &OUTBOX_TABLES), delivered, "delivered");
    assert_eq!(states(raw.path()), states(&path), "delivered");
    ledger.close().await.expect("closes");
}

#[tokio::test]
async fn the_unguarded_server_over_http_stands_behind_the_same_gate() {
    // Promise: over HTTP the guard is compared with the same server without it: who has no token is
    // let in by neither, and only without the ledger is an issue made twice.
    for unguarded in [false, true] {
        let place = tempfile::tempdir().expect("a directory");
        let options = ChildOptions {
            store: StoreKind::Memory,
            unguarded,
            http: Some((Ipv4Addr::LOCALHOST, 0).into()),
            real_clock: true,
            ..ChildOptions::new(&place.path().join("data"))
        };
        DataDir::prepare(&options.data_dir, None).expect("made");
        let caller = options.caller().expect("a caller");
        let new = NewToken { caller, rights: vec![Right::Tools], expires_at: None };
        let token = tokens::create(&options.data_dir.join(TOKENS_FILE), &new, SystemClock.wall());
        let token = format!("Bearer {}", token.expect("made").secret.reveal());
        let lab = Path::new(env!("CARGO_BIN_EXE_counterfoil-lab"));
        let (mut process, _pipes) =
            Launch::child(lab, options.to_arguments()).start().await.expect("starts");
        let address = process.address().expect("told").to_string();

        let issue = Workload::new(Ids::TimeOrdered).expect("a workload").issue();
        let mut stranger = Connection::open(&address, "Bearer cf_x").await.expect("connects");
        let refused = stranger.call(&issue).await.expect_err("refused").to_string();
        assert!(refused.starts_with("401"), "{refused}");
        let mut known = Connection::open(&address, &token).await.expect("connects");
        known.call(&issue).await.expect("the first makes it");
        assert_eq!(known.call(&issue).await.is_ok(), unguarded, "whether it is made twice");
        process.signal(Signal::TERM).expect("runs");
        assert_eq!(process.ended().await.expect("ends"), Ended::Code(0));
    }
}

/// What `states` reads of one row.
type States = (i64, i64, i64, i64, i64, i64, Vec<u8>);

/// The states that an item and its operation are in, and the kinds of their audit events.
fn states(ledger: &Path) -> Vec<States> {
    let connection = rusqlite::Connection::open(ledger).expect("opens");
    let sql = "SELECT o.state, o.phase, o.nature, d.state, d.fence, d.attempts, a.kind \
        FROM operations o JOIN outbox d USING (operation_key) \
        JOIN audit_events a USING (operation_key) ORDER BY a.seq";
    let mut statement = connection.prepare(sql).expect("a query");
    let rows = statement.query_map([], |row| row.try_into()).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

/// The type and the length of every column of every row.
fn shapes(ledger: &Path, tables: &[&'static str]) -> Vec<(&'static str, Vec<String>)> {
    let connection = rusqlite::Connection::open(ledger).expect("opens");
    let mut found = Vec::new();
    for &table in tables {
        let all = connection.prepare(&format!("SELECT * FROM {table}")).expect("a table");
        let shape = |name: &str| {
            format!("'{name} ' || typeof({name}) || ' ' || coalesce(length({name}), '')")
        };
        let columns: Vec<String> = all.column_names().map(shape).collect();
        let mut statement = connection
            .prepare(&format!("SELECT {} FROM {table}", columns.join(", ")))
            .expect("a query");
        let rows = statement
            .query_map([], |row| (0..columns.len()).map(|at| row.get(at)).collect())
            .expect("rows");
        found.extend(rows.map(|row| (table, row.expect("a row"))));
    }
    found
}
