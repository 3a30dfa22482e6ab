//! The target did what an operator had settled as not applied: everybody is told, and there is one
//! way out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use counterfoil::tools::issue_effect;
use counterfoil_core::delivery::Alarm;
use counterfoil_core::time::Timestamp;
use counterfoil_store::sqlite::{SqliteOptions, SqliteStore};
use counterfoil_store::{Clock, Outbox, Store, SystemClock, UnderWay};
use serde_json::{Value, json};

use crate::command::{Bench, Ended};
use crate::desk::{Desk, Mode};
use crate::front::Server;
use crate::world::{UNSAFE, World};

const TOKEN: &str = "CALLER_TOKEN";
const ID: &str = "0123456789abcdef";

/// By it every lease of the server has ended.
#[derive(Debug)]
struct AnHourAhead;

impl Clock for AnHourAhead {
    fn wall(&self) -> Timestamp {
        SystemClock.wall().plus(Duration::from_secs(3600))
    }

    fn since_boot(&self) -> Duration {
        SystemClock.since_boot()
    }
}

/// As a process that believes that the sender is dead.
fn take_back(world: &World) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let options = SqliteOptions {
            tables: issue_effect::tables(),
            clock: std::sync::Arc::new(AnHourAhead),
            ..SqliteOptions::new(world.bench.data("ledger.db"))
        };
        let store = SqliteStore::open(&options).expect("opens");
        let taken = store.take_back_lapsed(UnderWay::default(), 9).await.expect("works");
        let alarms: Vec<_> = taken.iter().map(|item| item.alarm).collect();
        assert_eq!(alarms, [Some(Alarm::InDoubt)]);
        store.close().await.expect("closes");
    });
}

fn told(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
}

/// What a caller is told over MCP.
fn status(from: &Bench, url: &str) -> Value {
    let asked = json!({ "operation_id": ID }).to_string();
    let words = ["call", "get_operation_status", "--url", url, "--token-env", TOKEN, "--json"];
    let ended = from.run(&[&words[..], &["--args", &asked]].concat());
    told(&ended)["observation"].clone()
}

/// Shows the delivery until it is so.
fn shown(world: &World, reached: impl Fn(&Value) -> bool) -> Value {
    loop {
        let show = ["delivery", "show", ID, "--tenant", "a", "--json"];
        let seen = told(&world.bench.run(&show));
        if reached(&seen) {
            return seen;
        }
    }
}

fn metric(url: &str, name: &str) -> String {
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")
        .expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    let line = text.lines().find(|line| line.starts_with(name));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn a_late_contradiction_is_told_to_everybody_and_an_operator_ends_it() {
    // Promise: an effect that comes to light after an operator settled it as not applied is seen by
    // its caller over MCP, in the metrics and in `delivery show`; `operation resolve --applied` takes
    // the target's word, by the ticket's ID as well, and nothing else undoes what was settled.
    let desk = Desk::open(Mode::Hold);
    let world = World::new(desk.address, &UNSAFE.replace("wait = \"1m\"", "wait = \"0s\""));
    let server = Server::start(&world.data_dir(), &[]);
    let url = server.url();
    let made = world.bench.run(&["token", "create", "--principal", "alice", "--tenant", "a"]);
    let alice = Bench::new().with_env(TOKEN, made.done().stdout.trim());
    let words = ["call", "pay", "--url", &url, "--token-env", TOKEN, "--operation-id", ID];
    let called = alice.run(&[&words[..], &["--args", "{}", "--json"]].concat());
    assert_eq!(called.code, Some(3), "{called:?}");
    let sending = shown(&world, |seen| seen["state"] == "sending");
    let ticket = sending["ticketId"].as_str().expect("a text").to_owned();
    take_back(&world);

    let resolve = |verdict: &str| {
        let words = ["operation", "resolve", &ticket, verdict, "--reason", "I looked"];
        world.bench.run(&[&words[..], &["--proof", "searched for it"]].concat())
    };
    resolve("--not-applied").done();
    assert_eq!(status(&alice, &url)["state"], "not_applied");
    resolve("--applied").failed(4);

    desk.set(Mode::Up);
    let late = shown(&world, |seen| seen["lateContradiction"] == true);
    assert_eq!(late["state"], "cancelled");
    let seen = status(&alice, &url);
    assert_eq!(
        (&seen["state"], &seen["detail"], &seen["authoritative"]),
        (&json!("unknown"), &json!("late_contradiction"), &json!(false))
    );
    assert_eq!(seen["freshWriteAuthorized"], false);
    let counted = metric(&url, "counterfoil_late_contradictions_total{target=\"pay\"}");
    assert!(counted.ends_with(" 1"), "{counted}");
    let show = world.bench.run(&["delivery", "show", &ticket]).done();
    let way_out = format!("operation resolve {ID} --tenant a --applied --reason TEXT");
    for words in ["the target did it after it was settled as not applied", &way_out] {
        assert!(show.stdout.contains(words), "{words}: {}", show.stdout);
    }

    resolve("--not-applied").failed(4);
    resolve("--applied").done();
    let seen = status(&alice, &url);
    assert_eq!((&seen["state"], &seen["authoritative"]), (&json!("applied"), &json!(true)));
    let trail = world.bench.run(&["audit", "show", &ticket]).done();
    for kind in ["resolved_not_applied", "late_contradiction", "corrected_applied"] {
        assert!(trail.stdout.contains(kind), "{kind}: {}", trail.stdout);
    }
    let operation = world.bench.run(&["operation", "show", &ticket]).done();
    assert!(operation.stdout.contains(ID), "{}", operation.stdout);
    drop(server);
    let file = world.bench.data("ledger.db");
    world.bench.run(&["store", "check", file.to_str().expect("UTF-8")]).done();
}
