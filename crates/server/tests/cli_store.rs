//! Retention by the real binary: purged by hand, by a server, and not while the clock is in doubt.

mod command;

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use command::Bench;
use counterfoil::data_dir::LEDGER_FILE;
use counterfoil::keys;
use counterfoil::tools::issue_effect::{CreateIssue, Mode, tables};
use counterfoil_core::admission::{Authority, Call};
use counterfoil_core::fingerprint::Profile;
use counterfoil_core::identity::{Caller, OperationId, Principal, Tenant, ToolId, ToolVersion};
use counterfoil_core::json::Value;
use counterfoil_core::time::{Lifetimes, Timestamp};
use counterfoil_engine::Engine;
use counterfoil_store::sqlite::{SqliteOptions, SqliteStore};
use counterfoil_store::{Clock, Store, SystemClock};
use serde_json::{Value as Json, json};

const DAY_MS: i64 = 86_400_000;

/// The machine's clock, some days off.
#[derive(Debug)]
struct DaysOff(i64);

impl Clock for DaysOff {
    fn wall(&self) -> Timestamp {
        Timestamp::from_ms(SystemClock.wall().as_ms() + self.0 * DAY_MS)
    }

    fn since_boot(&self) -> Duration {
        SystemClock.since_boot()
    }
}

/// Makes one issue in a server whose clock is so many days off, and ends the server.
fn leave(dir: &Path, days_off: i64, id: &str) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).expect("made");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let options = SqliteOptions {
            clock: Arc::new(DaysOff(days_off)),
            tables: tables(),
            ..SqliteOptions::new(dir.join(LEDGER_FILE))
        };
        let store = Arc::new(SqliteStore::open(&options).expect("a ledger"));
        let info = store.info().await.expect("read");
        let ring = keys::load_or_generate(&dir.join("keys"), None, &info).expect("keys");
        let engine = Engine::open(store, ring, Lifetimes::default()).await.expect("opens");
        let engine = Arc::new(engine);
        let caller = Caller {
            tenant: Tenant::parse("local").expect("valid"),
            principal: Principal::parse("alice").expect("valid"),
        };
        let arguments = Value::from("an argument");
        let call = Call {
            caller: &caller,
            tool_id: &ToolId::parse("create_issue").expect("valid"),
            tool_version: &ToolVersion::parse("1").expect("valid"),
            profile: Profile::StrictV1,
            operation_id: &OperationId::parse(id).expect("valid"),
            arguments: &arguments,
            call_arguments: &arguments,
            continuation_state: None,
            input_responses: None,
            authority: Authority::Present,
        };
        let issue = CreateIssue { title: "t".into(), body: "b".into(), mode: Mode::Atomic };
        let admitted = engine.admit(&call).expect("canonical");
        engine.execute(admitted, Arc::new(issue)).await.expect("applied");
        engine.close().await.expect("closed");
    });
}

/// A UUIDv7 that was made so many days ago.
fn timed(days_ago: i64) -> String {
    let text = format!("{:012x}", SystemClock.wall().as_ms() - days_ago * DAY_MS);
    format!("{}-{}-7000-8000-00000000abcd", &text[..8], &text[8..])
}

fn json(text: &str) -> Json {
    serde_json::from_str(text).expect(text)
}

fn purge(bench: &Bench, how: &str) -> Json {
    let purged = bench.run(&["store", "purge", how, "--json"]).done();
    assert_eq!(purged.stderr, "");
    let told = json(&purged.stdout);
    assert_eq!(told["dryRun"], how == "--dry-run");
    json!([told["results"], told["tombstones"]])
}

#[test]
fn what_retention_has_ended_is_purged_only_when_told() {
    // Promise: nothing is purged without --yes; what is purged is what was told before; a sound
    // ledger stays behind, with the tombstone whose ID does not tell its age.
    let bench = Bench::new();
    let id = timed(401);
    leave(&bench.data(""), -401, &id);
    leave(&bench.data(""), -401, "named");
    leave(&bench.data(""), -1, "young");
    let usage = bench.run(&["store", "purge"]);
    assert_eq!(usage.code, Some(2), "{usage:?}");
    for _ in 0..2 {
        assert_eq!(purge(&bench, "--dry-run"), json!([2, 1]));
    }
    let shown = bench.run(&["store", "purge", "--dry-run"]).done();
    assert!(shown.stdout.starts_with("2 results would be purged\n1 tombstones"), "{shown:?}");
    bench.run(&["operation", "show", &id]).done();
    assert_eq!(purge(&bench, "--yes"), json!([2, 1]));
    assert_eq!(purge(&bench, "--yes"), json!([0, 0]));
    let gone = bench.run(&["operation", "show", &id]).failed(1);
    assert!(gone.stderr.contains("has no operation"), "{}", gone.stderr);
    let named = bench.run(&["operation", "show", "named", "--json"]).done();
    assert!(named.stdout.contains("purged"), "{}", named.stdout);
    let ledger = bench.data(LEDGER_FILE);
    let check = bench.run(&["store", "check", &ledger.to_string_lossy(), "--json"]).done();
    let check = json(&check.stdout);
    let counts = json!([check["sound"], check["operationsCount"], check["forgottenEffectRows"]]);
    assert_eq!(counts, json!([true, 2, 1]));
}

#[test]
fn a_clock_in_doubt_needs_a_persons_word() {
    // Promise: on a ledger whose time ran ahead nothing is purged, and the command says what to do;
    // who confirmed it is on record, and purges go on.
    let bench = Bench::new();
    leave(&bench.data(""), -100, "old");
    leave(&bench.data(""), 365, "ahead");
    for how in ["--dry-run", "--yes"] {
        let refused = bench.run(&["store", "purge", how]);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.stderr.contains("counterfoil store confirm-clock"), "{refused:?}");
        assert!(refused.stdout.starts_with("0 results"), "{refused:?}");
    }
    let check = bench.run(&["store", "check", &bench.data(LEDGER_FILE).to_string_lossy()]).done();
    assert!(check.stdout.contains("note: nothing is purged since"), "{}", check.stdout);
    let said = bench.run(&["store", "confirm-clock", "--as", "mara", "--json"]).done();
    let said = json(&said.stdout);
    assert!(said["stoppedBefore"]["jumpedByMs"].is_i64(), "{said}");
    assert_eq!(said["clock"]["confirmed"]["by"], "mara");
    assert_eq!(purge(&bench, "--yes"), json!([1, 0]));
    let again = bench.run(&["store", "confirm-clock"]).done();
    assert!(again.stderr.contains("confirmed by tester at"), "{}", again.stderr);
    assert!(again.stderr.contains("purges had not stopped"), "{}", again.stderr);
}

#[test]
fn a_server_purges_by_itself() {
    // Promise: a server forgets what retention has ended without being told.
    let bench = Bench::new().with_env("COUNTERFOIL_RETENTION_INTERVAL", "1s");
    leave(&bench.data(""), -31, "old");
    let mut server = bench.start(&["serve", "--stdio"]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let options = SqliteOptions::new(bench.data(LEDGER_FILE));
        let store = SqliteStore::open(&options).expect("opens beside the server");
        let purged = async {
            while store.retention().await.expect("readable").results_purged_count == 0 {
                tokio::task::yield_now().await;
            }
        };
        let purged = tokio::time::timeout(Duration::from_secs(60), purged).await;
        purged.expect("nothing was purged: the test hangs");
    });
    drop(server.stdin.take());
    assert!(server.wait().expect("ends").success());
}
