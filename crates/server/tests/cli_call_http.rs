//! `counterfoil call --url`: the real binary, a real server over HTTP, and what can stand between.

mod command;
mod front;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use command::{Bench, Ended};
use front::{Act, Front, Seen, Server, legacy, say, say_json};
use serde_json::{Value, json};

const WRITE: &str = "POST tools/call create_issue";
const STATUS: &str = "POST tools/call get_operation_status";
const TOKEN: &str = "CALLER_TOKEN";
const ID: &str = "0123456789abcdef";

const UNKNOWN: &str = "UNKNOWN";
const LEARNED: &str = "learned by asking";

/// A data directory with a server over it, and one principal's token in the environment.
struct Desk {
    bench: Bench,
    server: Server,
}

impl Desk {
    fn open() -> Self {
        let bench = Bench::new();
        let token = token(&bench, "alice");
        let server = Server::start(&bench.data(""), &[]);
        // Proxies that nobody listens at: to use one would be to fail.
        let bench = bench
            .with_env(TOKEN, &token)
            .with_env("HTTP_PROXY", "http://127.0.0.1:1")
            .with_env("http_proxy", "http://127.0.0.1:1")
            .with_env("ALL_PROXY", "http://127.0.0.1:1");
        Self { bench, server }
    }

    fn call(&self, tool: &str, url: &str, more: &[&str]) -> Ended {
        let mut words = vec!["call", tool, "--url", url, "--token-env", TOKEN];
        words.extend(more);
        self.bench.run(&words)
    }

    fn create(&self, url: &str, id: &str) -> Ended {
        let arguments = r#"{"title":"s3cret","body":"b"}"#;
        self.call("create_issue", url, &["--operation-id", id, "--args", arguments])
    }

    /// How many operations the ledger has for the caller.
    fn operations(&self) -> usize {
        let listed = self.call("list_operations", &self.server.url(), &["--json"]).done();
        let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
        listed["result"]["operations"].as_array().expect("a list").len()
    }

    fn pending(&self) -> String {
        self.bench.run(&["call", "--pending"]).done().stdout
    }
}

/// # Panics
/// If it did not end with that code and an error, whatever it said before.
fn ended_with(code: i32, ended: Ended) -> Ended {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(ended.stderr.contains("error: ") && !ended.stderr.contains("panicked"), "{ended:?}");
    ended
}

/// A new token for that principal.
fn token(bench: &Bench, principal: &str) -> String {
    let made = bench.run(&["token", "create", "--principal", principal, "--tenant", "acme"]);
    made.done().stdout.trim().to_owned()
}

/// Passes everything on but the write.
fn on_write(act: Act) -> impl Fn(&Seen) -> Act + Send + 'static {
    move |seen| if seen.what == WRITE { act.clone() } else { Act::Pass }
}

#[test]
fn whatever_becomes_of_the_reply_the_write_is_sent_once() {
    // Promise: a lost, cut or strange answer sends nothing again, neither by this program nor by a
    // layer below it; the outcome is learned by asking, or said to be unknown; and only what
    // refuses before anything is done counts as not applied.
    let desk = Desk::open();
    let real = desk.server.url();
    let html = "content-type: text/html\r\n";
    let moved = format!("location: {real}\r\n");
    let events = say("200 OK", "content-type: text/event-stream\r\n", "id: 7\nretry: 1\ndata:\n\n");
    // A gateway that speaks JSON-RPC: it failed, and the server may not have.
    let error = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "down"}});
    let failed = say_json("502 Bad", "", &error);
    let cases: Vec<(&str, Act, i32, usize, &[&str])> = vec![
        ("reply-lost", Act::LoseReply, 0, 1, &[LEARNED]),
        ("reply-cut", Act::LoseHalf, 0, 1, &[LEARNED]),
        ("committed-then-502", Act::PassAndSay(say("502 Bad", html, "")), 0, 1, &["HTTP 502"]),
        ("committed-then-error", Act::PassAndSay(failed.clone()), 0, 1, &["HTTP 502"]),
        ("error", Act::Say(failed), 3, 0, &[UNKNOWN, "HTTP 502"]),
        ("committed-then-event", Act::PassAndSay(events.clone()), 0, 1, &[LEARNED]),
        ("swallowed", Act::Swallow, 3, 0, &[UNKNOWN, "cannot do it twice"]),
        ("events-end", Act::Say(events), 3, 0, &[UNKNOWN]),
        ("moved", Act::Say(say("307 Moved", &moved, "")), 3, 0, &[UNKNOWN, "redirects are not"]),
        (
            "busy",
            Act::Say(say("503 Busy", "retry-after: 9\r\n", "")),
            3,
            0,
            &[UNKNOWN, "after 9 s"],
        ),
        ("absent", Act::Say(say("404 Absent", html, "")), 3, 0, &[UNKNOWN, "/mcp"]),
        ("page", Act::Say(say("200 OK", html, "<p>")), 3, 0, &[UNKNOWN, "neither JSON nor"]),
        ("taken", Act::Say(say("202 Accepted", "", "")), 3, 0, &[UNKNOWN, "answers nothing"]),
        ("401", Act::Say(say("401 No", "", "")), 4, 0, &["http_401", "with the same ID"]),
        ("403", Act::Say(say("403 No", "", "")), 4, 0, &["http_403", "lacks the right"]),
        ("429", Act::Say(say("429 No", "", "")), 4, 0, &["http_429", "later"]),
    ];
    let mut expected = 0;
    for (name, act, code, effects, words) in cases {
        let id = format!("case-{name}-0123456789");
        let front = Front::of(&desk.server, on_write(act));
        let ended = desk.create(&front.url, &id);
        assert_eq!(ended.code, Some(code), "{name}: {ended:?}");
        for words in words {
            assert!(ended.stderr.contains(words), "{name}: {ended:?}");
        }
        assert!(!format!("{ended:?}").contains("s3cret"), "{name}: {ended:?}");
        assert_eq!(front.count(WRITE), 1, "{name}: {:?}", front.seen());
        assert_eq!(front.count("GET"), 0, "{name}: {:?}", front.seen());
        let asked = usize::from(code != 4);
        assert_eq!(front.count(STATUS), asked, "{name}: {:?}", front.seen());
        expected += effects;
        assert_eq!(desk.operations(), expected, "{name}");
        let pending = desk.pending();
        assert_eq!(pending.contains(&id), code == 3, "{name}: {pending}");
        if code == 3 {
            let ask = format!(
                "counterfoil call get_operation_status --args '{{\"operation_id\":\"{id}\"}}' --url {}",
                front.url
            );
            assert!(ended.stderr.contains(&format!("{ask} --token-env {TOKEN}")), "{ended:?}");
            assert!(pending.contains(&format!("{ask} ...")), "{pending}");
        }
    }
}

#[test]
fn a_refusal_by_http_says_nothing_of_an_earlier_send() {
    // Promise: a call whose reply was lost stays unknown, though the same call, sent again with the
    // same ID, is refused before anything is done for it.
    let desk = Desk::open();
    let front = Front::of(&desk.server, |seen| match seen.what.as_str() {
        WRITE => Act::LoseReply,
        STATUS => Act::Say(say("403 No", "", "")),
        _ => Act::Pass,
    });
    assert_eq!(desk.create(&front.url, ID).code, Some(3));
    for status in ["401 No", "403 No", "429 No"] {
        let front = Front::of(&desk.server, on_write(Act::Say(say(status, "", ""))));
        let arguments = r#"{"title":"s3cret","body":"b"}"#;
        let more = ["--operation-id", ID, "--args", arguments, "--json"];
        let ended = desk.call("create_issue", &front.url, &more);
        assert_eq!(ended.code, Some(4), "{ended:?}");
        let told: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert_eq!(
            (&told["submission"], &told["effect"]),
            (&json!("not_admitted"), &json!("unknown"))
        );
        assert!(told["next"].as_str().is_some_and(|next| next.contains(ID)), "{told}");
    }
    let pending = desk.pending();
    assert!(pending.starts_with(ID) && pending.matches(ID).count() == 2, "one call: {pending}");
    assert_eq!(desk.operations(), 1);
}

#[test]
fn a_server_that_is_gone_before_the_write_has_not_got_it() {
    // Promise: no connection is no dispatch: it is said that nothing was sent, and the journal
    // keeps no open entry; also where the server leaves between the first request and the call.
    let desk = Desk::open();
    let ended = ended_with(1, desk.create("http://127.0.0.1:1/mcp", ID));
    assert!(ended.stderr.contains("http://127.0.0.1:1/mcp: Connection refused"), "{ended:?}");
    let leaves = |seen: &Seen| match seen.what.as_str() {
        "POST tools/list" => Act::PassAndLeave,
        _ => Act::Pass,
    };
    let front = Front::of(&desk.server, leaves);
    let ended_late = ended_with(1, desk.create(&front.url, ID));
    assert_eq!(front.seen().last().map(String::as_str), Some("POST tools/list"));
    for ended in [ended, ended_late] {
        assert!(ended.stderr.contains("nothing was sent"), "{ended:?}");
    }
    assert_eq!((desk.pending().as_str(), desk.operations()), ("", 0));
}

#[test]
fn a_server_that_never_answers_is_asked_over_another_connection() {
    // Promise: the time-out of a call ends the wait, sends nothing again, and asks.
    let desk = Desk::open();
    let front = Front::of(&desk.server, on_write(Act::Hold));
    let ended = desk.call("create_issue", &front.url, &["--timeout", "1"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("no reply came in time"), "{ended:?}");
    assert_eq!((front.count(WRITE), front.count(STATUS)), (1, 1), "{:?}", front.seen());
}

#[test]
fn an_older_servers_session_is_not_begun_anew_under_a_write() {
    // Promise: a session that has ended, and a stream that could be resumed, are a lost reply and
    // no reason to send the call again.
    let bench = Bench::new();
    let events = "content-type: text/event-stream\r\n";
    for act in [
        Act::Say(say("404 Not Found", "", "")),
        Act::Say(say("200 OK", events, "id: 7\nretry: 1\ndata:\n\n")),
        Act::Swallow,
    ] {
        let name = format!("{act:?}");
        let front = Front::alone(legacy(act));
        let ended = bench.run(&["call", "create_issue", "--url", &front.url]);
        assert_eq!(ended.code, Some(3), "{name}: {ended:?}");
        let seen = front.seen();
        assert_eq!((front.count(WRITE), front.count("GET")), (1, 0), "{name}: {seen:?}");
        let at = seen.iter().position(|what| what == WRITE).expect("sent");
        assert_eq!(seen[at + 1], "DELETE", "{name}: {seen:?}");
    }
}

#[test]
fn two_principals_share_a_server_and_no_operation() {
    // Promise: a token is an identity: another's operation is unknown, its ID a conflict, and a
    // list shows one's own; what is revoked is refused, and that is no unknown outcome.
    let desk = Desk::open();
    let url = desk.server.url();
    let made = desk.create(&url, ID).done();
    assert!(made.stdout.contains("created 1"), "{made:?}");
    assert_eq!(desk.operations(), 1);
    let bob = token(&desk.bench, "bob");
    let path = desk.bench.data("bob.token");
    fs::write(&path, format!("{bob}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    let path = path.to_str().expect("UTF-8");
    let as_bob = |tool: &str, more: &[&str]| {
        let words = [&["call", tool, "--url", &url, "--token-file", path], more].concat();
        desk.bench.run(&words)
    };
    let question = format!("{{\"operation_id\":\"{ID}\"}}");
    let asked = as_bob("get_operation_status", &["--args", &question]);
    assert_eq!((asked.code, asked.stdout.as_str()), (Some(3), ""), "{asked:?}");
    let same = as_bob(
        "create_issue",
        &["--operation-id", ID, "--args", r#"{"title":"s3cret","body":"b"}"#],
    );
    assert_eq!(same.code, Some(4), "{same:?}");
    assert!(same.stderr.contains("operation_conflict"), "{same:?}");
    let listed = as_bob("list_operations", &[]).done();
    assert!(!listed.stdout.contains(ID), "{listed:?}");

    let tokens = desk.bench.run(&["token", "list", "--json"]).done().stdout;
    let tokens: Value = serde_json::from_str(&tokens).expect("JSON");
    for token in tokens.as_array().expect("a list") {
        let id = token["id"].as_str().expect("an ID");
        desk.bench.run(&["token", "revoke", id]).done();
    }
    let refused = ended_with(4, as_bob("create_issue", &[]));
    for words in ["HTTP 401", "does not accept the token", "nothing was sent"] {
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
    let nobody = ended_with(4, desk.bench.run(&["call", "create_issue", "--url", &url]));
    assert!(nobody.stderr.contains("--token-file FILE"), "{nobody:?}");
    let asked = as_bob("get_operation_status", &["--args", &question]);
    assert_eq!(asked.code, Some(3), "{asked:?}");
    assert!(asked.stderr.contains("HTTP 401") && !asked.stderr.contains("try 2"), "{asked:?}");
}

#[test]
fn a_read_of_the_ledgers_own_makes_no_operation_and_no_entry() {
    // Promise: list_operations and get_operation_status leave no trace, neither here nor there;
    // without a server that says so, a tool of that name is a write, and so is every other tool
    // unless the user says that it reads.
    let desk = Desk::open();
    let url = desk.server.url();
    let journal = desk.bench.data("journal");
    let journal_word = journal.to_str().expect("UTF-8");
    let more = ["--journal", journal_word];
    let listed = desk.call("list_operations", &url, &more).done();
    assert!(listed.stdout.contains("\"operations\": []"), "{listed:?}");
    assert_eq!(listed.stderr, "", "a read has no ID to tell");
    let told = desk.call("list_operations", &url, &[&more[..], &["--read"]].concat()).done();
    assert!(told.stdout.contains("\"operations\": []"), "{told:?}");
    let bad = [&more[..], &["--args", r#"{"limit":0}"#]].concat();
    let bad = desk.call("list_operations", &url, &bad).failed(1);
    assert!(bad.stderr.contains("invalid_argument"), "{bad:?}");
    let front = Front::of(&desk.server, |seen| match seen.what.as_str() {
        "POST tools/call list_operations" => Act::Swallow,
        _ => Act::Pass,
    });
    let lost = desk.call("list_operations", &front.url, &more).failed(1);
    assert!(lost.stderr.contains("it may be called again"), "{lost:?}");
    assert_eq!((front.count("POST tools/call"), front.count(STATUS)), (1, 0));
    assert!(!journal.exists(), "a read has no journal");

    let foreign = |seen: &Seen| {
        let tool = |name| {
            json!({"name": name, "inputSchema": {"type": "object"},
                   "annotations": {"readOnlyHint": true}})
        };
        let list = json!({"jsonrpc": "2.0", "id": seen.id, "result":
            {"tools": [tool("list_operations"), tool("search")]}});
        match seen.what.as_str() {
            "POST tools/list" => Act::Say(say_json("200 OK", "", &list)),
            _ => legacy(Act::Swallow)(seen),
        }
    };
    let front = Front::alone(foreign);
    let refused = ended_with(2, desk.call("list_operations", &front.url, &more));
    assert!(refused.stderr.contains("--read, or --operation-id ID"), "{refused:?}");
    assert_eq!(front.count("POST tools/call"), 0);
    let searched = desk.call("search", &front.url, &more);
    assert!(searched.stderr.starts_with("operation ID: "), "a hint proves nothing: {searched:?}");
}

#[test]
fn the_token_is_in_the_header_and_nowhere_else() {
    // Promise: at the loudest level no log, output or journal has the token; each request carries
    // it once, in its header, over a connection of its own.
    let desk = Desk::open();
    let front = Front::of(&desk.server, on_write(Act::LoseReply));
    let bench = &desk.bench;
    let home = bench.data("journal");
    let journal = home.to_str().expect("UTF-8");
    let token = token(bench, "carol");
    let path = bench.data("carol.token");
    fs::write(&path, &token).expect("written");
    let words = |mode: u32| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        let path = path.to_str().expect("UTF-8");
        let call = ["call", "create_issue", "--log", "trace", "--journal", journal];
        let args = ["--args", r#"{"title":"t","body":"b"}"#, "--url", &front.url];
        bench.run(&[&call[..], &args, &["--token-file", path]].concat())
    };
    let open = words(0o644).failed(2);
    assert!(open.stderr.contains("chmod 600"), "{open:?}");
    assert_eq!(front.seen().len(), 0);
    let ended = words(0o600).done();
    assert!(ended.stderr.contains("learned by asking"), "{ended:?}");
    let saved = fs::read_to_string(&home).expect("a journal");
    assert!(saved.contains(&front.url), "{saved}");
    for text in [&ended.stdout, &ended.stderr, &saved] {
        assert!(!text.contains(&token[3..]), "{text}");
    }
    for head in front.heads() {
        assert_eq!(head.matches(&token).count(), 1, "{head}");
        assert!(head.to_lowercase().contains("connection: close"), "{head}");
        assert!(head.starts_with("POST /mcp HTTP/1.1\r\n"), "{head}");
    }
}

#[test]
fn a_bad_address_or_token_is_refused_before_anything_is_sent() {
    // Promise: exit 2 with rule and remedy, no journal entry, and no secret in the words.
    let bench = Bench::new().with_env("BAD", "s3cret s3cret").with_env("GOOD", "s3cret");
    let url = "http://127.0.0.1:1/mcp";
    let cases: [(&[&str], &str); 13] = [
        (&["--url", "http://s3cret@127.0.0.1:1/mcp"], "user's name"),
        (&["--url", "http://127.0.0.1:1/mcp?access_token=s3cret"], "a query"),
        (&["--url", "127.0.0.1:1"], "http://HOST:PORT/PATH"),
        (&["--url", url, "--token", "s3cret"], "--token-file FILE"),
        (&["--url", url, "--token=s3cret"], "--token-env VAR"),
        (&["--url", url, "--token-env", "BAD"], "BAD: it is no bearer token"),
        (&["--url", url, "--token-env", "ABSENT"], "ABSENT is not set"),
        (&["--url", url, "--token-file", "/absent"], "/absent: "),
        (&["--url", "http://192.0.2.1/mcp", "--token-env", "GOOD"], "--allow-insecure-http"),
        (&["--url", "https://127.0.0.1:1/mcp", "--ca-file", "/absent"], "/absent cannot be used"),
        (&["--url", url, "--token-env", "GOOD", "--token-file", "f"], "cannot be used with"),
        (&["--url", url, "--connect-timeout", "0"], "--connect-timeout"),
        (&["--url", url, "--read", "--args", r#"{"operation_id":"i"}"#], "--read is for"),
    ];
    for (words, expected) in cases {
        let ended = ended_with(2, bench.run(&[&["call", "create_issue"], words].concat()));
        assert!(ended.stderr.contains(expected), "{words:?}: {ended:?}");
        assert!(!ended.stderr.contains("s3cret"), "{words:?}: {ended:?}");
        assert_eq!(ended.stdout, "");
    }
    let pending = bench.run(&["call", "--pending"]).done();
    assert!(pending.stderr.contains("no call of unknown outcome"), "{pending:?}");
}

#[test]
fn tls_is_checked_against_the_authorities_that_are_given() {
    // Promise: a server whose certificate nobody vouches for gets no request and no token; one
    // that is vouched for is called by its name.
    let bench = Bench::new();
    let token = token(&bench, "alice");
    let bench = bench.with_env(TOKEN, &token);
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
    let (cert, key) = (format!("{tests}/server.cert.pem"), format!("{tests}/server.key.pem"));
    let server = Server::start(&bench.data(""), &["--tls-cert", &cert, "--tls-key", &key]);
    let url = format!("https://localhost:{}/mcp", server.address.port());
    let call = ["call", "create_issue", "--args", r#"{"title":"t","body":"b"}"#, "--url", &url];
    let call = [&call[..], &["--token-env", TOKEN]].concat();
    let unknown = bench.run(&call);
    assert!(matches!(unknown.code, Some(1 | 2)), "{unknown:?}");
    let known = bench.run(&[&call[..], &["--ca-file", &cert]].concat()).done();
    assert!(known.stdout.contains("created 1"), "the first effect of this server: {known:?}");
    let plain = url.replace("https:", "http:");
    let plain: Vec<&str> =
        call.iter().map(|word| if *word == url { &*plain } else { *word }).collect();
    let plain = ended_with(1, bench.run(&plain));
    assert!(plain.stderr.contains("nothing was sent"), "{plain:?}");
}
