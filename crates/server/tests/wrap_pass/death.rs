//! Servers that end by themselves.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{Wrap, call, until};

/// A directory with the file of a server's births.
struct Births {
    dir: tempfile::TempDir,
}

impl Births {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn role(&self) -> String {
        format!("births={} log={}", self.path("births"), self.path("log"))
    }

    fn pids(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.path("births")).unwrap_or_default();
        text.lines().map(|pid| pid.parse().expect("a number")).collect()
    }

    fn kill_last(&self) {
        let pid = *self.pids().last().expect("one lives");
        kill_process(Pid::from_raw(pid).expect("positive"), Signal::KILL).expect("killed");
    }

    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn open_requests_are_told_at_once_and_the_session_goes_on() {
    // Promise: who waits for a server that dies is told that the outcome is unknown, nothing is sent
    // again, and the next server is told what the session had agreed on.
    let births = Births::new();
    let wrap = Wrap::start(&births.role()).initialized();
    wrap.received(
        r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}"#,
    );
    wrap.received(
        r#"{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a:1"}}"#,
    );
    wrap.call("\"asked\"", "ask", "{}");
    let question = wrap.message()["id"].clone();
    wrap.call("\"lost\"", "silent", "{}");
    until("the call arrives", || births.log().iter().any(|line| line.contains("silent")));
    let killed = Instant::now();
    births.kill_last();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let message = wrap.message();
        if message["method"] == "notifications/cancelled" {
            assert_eq!(message["params"]["requestId"], question);
            continue;
        }
        let text = message["error"]["message"].as_str().expect("an error");
        assert!(text.contains("`srv`") && text.contains("unknown"), "{text}");
        ids.push(message["id"].clone());
    }
    assert_eq!(ids, ["asked", "lost"]);
    // Generous: the promise is a second, and the machine may be busy.
    assert!(killed.elapsed() < Duration::from_secs(10));
    // An answer for the dead server reaches nobody.
    wrap.send(&format!(r#"{{"jsonrpc":"2.0","id":{question},"result":{{}}}}"#));
    wrap.received(&call("3", "received", "{}"));
    assert_eq!(births.pids().len(), 2);
    let log = births.log();
    let second = log.iter().rposition(|line| line.contains("initialize\"")).expect("told again");
    let methods: Vec<String> = log[second..].iter().map(|line| method(line)).collect();
    let expected = [
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
        "tools/call",
    ];
    assert_eq!(methods, expected);
    assert_eq!(params(&log[0]), params(&log[second]));
    assert_eq!(wrap.end().code, Some(0));
}

fn method(line: &str) -> String {
    let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
    line["method"].as_str().expect("a method").to_owned()
}

fn params(line: &str) -> String {
    line.split_once("\"params\":").expect("params").1.to_owned()
}

#[test]
fn a_server_does_not_outlive_who_looks_after_it() {
    // Promise: if the reaper is killed, its server ends, and both are replaced.
    let births = Births::new();
    let wrap = Wrap::start(&births.role()).initialized();
    wrap.received(&call("1", "received", "{}"));
    let server = births.pids()[0];
    let stat = fs::read_to_string(format!("/proc/{server}/stat")).expect("it lives");
    let parent =
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).expect("a parent");
    let reaper = parent.parse().ok().and_then(Pid::from_raw).expect("a number");
    kill_process(reaper, Signal::KILL).expect("killed");
    until("the server ends and the next one comes", || births.pids().len() == 2);
    wrap.received(&call("2", "received", "{}"));
    assert_eq!(wrap.end().code, Some(0));
}

#[test]
fn a_request_to_no_server_waits_for_the_next_one() {
    // Promise: what was not sent to a server that is dead is sent to its successor, once.
    let births = Births::new();
    let wrap = Wrap::start(&births.role()).initialized();
    wrap.call("1", "exit", "{}");
    let lost = wrap.message();
    assert_eq!(lost["id"], 1);
    let text = lost["error"]["message"].as_str().expect("an error");
    assert!(text.contains("code 3"), "{text}");
    for n in 2..5 {
        wrap.call(&n.to_string(), "received", &format!("{{\"n\":{n}}}"));
    }
    for n in 2..5 {
        assert_eq!(wrap.message()["id"], n);
    }
    let again = births.log().iter().filter(|line| line.contains("\"n\":3")).count();
    assert_eq!(again, 1);
}

#[test]
fn a_server_that_comes_back_changed_ends_the_session() {
    // Promise: nobody goes on with a server that is not the one that was agreed on.
    let births = Births::new();
    let wrap = Wrap::start(&format!("{} then-version=2025-06-18", births.role())).initialized();
    wrap.call("1", "exit", "{}");
    assert_eq!(wrap.message()["id"], 1);
    wrap.call("2", "received", "{}");
    let refused = wrap.message();
    let text = refused["error"]["message"].as_str().expect("an error");
    assert!(text.contains("`srv`") && text.contains("protocol revision"), "{text}");
    let ended = wrap.wait();
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("protocol revision"), "{}", ended.stderr);
}

#[test]
fn a_command_that_does_not_exist_is_127_and_a_sentence() {
    // Promise: a mistyped command is told from a server that fails.
    let wrap = Wrap::of(&["no-such-server-anywhere"]);
    let ended = wrap.wait();
    assert_eq!(ended.code, Some(127));
    assert!(ended.stderr.contains("no-such-server-anywhere was not found"), "{}", ended.stderr);
    let wrap = Wrap::of(&["/etc/passwd"]);
    wrap.send(&call("1", "received", "{}"));
    let refused = wrap.message();
    assert!(refused["error"]["message"].as_str().expect("text").contains("not sent"), "{refused}");
    assert_eq!(wrap.wait().code, Some(1));
}

#[test]
fn a_stream_is_opened_anew_without_a_word() {
    // Promise: a subscription outlives its server, and its ID is the client's own.
    let births = Births::new();
    let wrap = Wrap::start(&births.role());
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    wrap.ask(&format!(
        r#"{{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{{{meta}}}}}"#
    ));
    wrap.send(&format!(
        r#"{{"jsonrpc":"2.0","id":"sub","method":"subscriptions/listen","params":{{{meta}}}}}"#
    ));
    let methods = [wrap.message(), wrap.message()].map(|message| {
        assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "sub");
        message["method"].as_str().expect("a method").to_owned()
    });
    assert_eq!(methods, ["notifications/subscriptions/acknowledged", "notifications/x"]);
    births.kill_last();
    let again = wrap.message();
    assert_eq!(again["method"], "notifications/x");
    assert_eq!(again["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "sub");
}
