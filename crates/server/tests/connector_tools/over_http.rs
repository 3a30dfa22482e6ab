//! The same tools over HTTP: by `counterfoil call`, a client of the official SDK that recovers.

use serde_json::{Value, json};

use crate::command::{Bench, Ended};
use crate::desk::{Desk, Mode};
use crate::front::{Act, Front, Server};
use crate::world::{BUGS, TICKETS, World};

const TOKEN: &str = "CALLER_TOKEN";
const ID: &str = "0123456789abcdef";

struct Office {
    desk: Desk,
    world: World,
    server: Server,
}

impl Office {
    fn open() -> Self {
        let desk = Desk::open(Mode::Up);
        let world = World::new(desk.address, &format!("{TICKETS}{BUGS}"));
        let server = Server::start(&world.data_dir(), &[]);
        Self { desk, world, server }
    }

    /// A place to call from, as that principal.
    fn caller(&self, principal: &str) -> Bench {
        let made =
            self.world.bench.run(&["token", "create", "--principal", principal, "--tenant", "a"]);
        Bench::new().with_env(TOKEN, made.done().stdout.trim())
    }
}

fn call(from: &Bench, url: &str, tool: &str, id: &str, arguments: &Value) -> Ended {
    let arguments = arguments.to_string();
    let mut words = vec!["call", tool, "--url", url, "--token-env", TOKEN, "--json"];
    words.extend(["--args", &arguments]);
    if !id.is_empty() {
        words.extend(["--operation-id", id]);
    }
    from.run(&words)
}

fn told(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
}

#[test]
fn a_lost_reply_of_a_connectors_tool_is_recovered_by_asking() {
    // Promise: the reply of a delivered effect is lost, and the stored result is found by asking;
    // nothing is sent twice, neither to the server nor to the desk.
    let office = Office::open();
    let alice = office.caller("alice");
    let front = Front::of(&office.server, |seen| {
        if seen.what == "POST tools/call file_bug" { Act::LoseReply } else { Act::Pass }
    });
    let ended = call(&alice, &front.url, "file_bug", ID, &json!({ "title": "t" }));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let all = told(&ended);
    assert_eq!((&all["recovered"], &all["state"]), (&json!(true), &json!("applied")));
    assert_eq!(all["result"]["structured"], json!({ "number": 1 }));
    assert_eq!(front.count("POST tools/call file_bug"), 1);
    assert_eq!(office.desk.effects(), 1);
    let again = call(&alice, &office.server.url(), "file_bug", ID, &json!({ "title": "t" }));
    assert_eq!((again.code, &told(&again)["result"]), (Some(0), &json!({ "number": 1 })));
    assert_eq!(office.desk.effects(), 1);
}

#[test]
fn a_pending_answer_is_not_taken_for_an_outcome() {
    // Promise: a ticket that was accepted is pending: the caller is told how to ask, and not that it
    // was done; asked later, the outcome is there.
    let office = Office::open();
    let alice = office.caller("alice");
    let texts = json!({ "subject": "s", "description": "d" });
    let url = office.server.url();
    let ended = call(&alice, &url, "submit_support_ticket", ID, &texts);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let all = told(&ended);
    assert_eq!((&all["effect"], &all["submission"]), (&json!("unknown"), &json!("admitted")));
    assert_eq!(all["result"]["status"], "pending");
    assert!(all["next"].as_str().expect("a command").contains("get_operation_status"));
    let asked = json!({ "operation_id": ID });
    let settled = call(&alice, &url, "get_operation_status", "", &asked);
    assert_eq!((settled.code, &told(&settled)["state"]), (Some(0), &json!("applied")));
    assert_eq!(office.desk.effects(), 1);
}

#[test]
fn strangers_share_the_network_and_learn_nothing() {
    // Promise: over HTTP a key that could be guessed is refused, whatever argument carries it; two
    // principals of one tenant share the space of keys, and neither sees the other's tickets.
    let office = Office::open();
    let (alice, bob) = (office.caller("alice"), office.caller("bob"));
    let url = office.server.url();
    let texts = json!({ "subject": "s", "description": "d" });
    for (tool, arguments) in
        [("submit_support_ticket", &texts), ("file_bug", &json!({"title": "t"}))]
    {
        let refused = call(&alice, &url, tool, "short", arguments);
        assert_eq!(
            (refused.code, &told(&refused)["refused"]["code"]),
            (Some(2), &json!("invalid_argument"))
        );
    }
    assert_eq!(office.desk.effects(), 0);
    let accepted = told(&call(&alice, &url, "submit_support_ticket", ID, &texts));
    let ticket = accepted["result"]["ticket_id"].clone();
    let refused = call(&bob, &url, "submit_support_ticket", ID, &texts);
    assert_eq!(
        (refused.code, &told(&refused)["refused"]["code"]),
        (Some(4), &json!("operation_conflict"))
    );
    let ask = |from: &Bench| {
        let arguments = json!({ "ticket_id": ticket }).to_string();
        let words = ["call", "get_delivery_status", "--url", &url, "--token-env", TOKEN];
        let more = ["--json", "--read", "--args", &arguments];
        told(&from.run(&[&words[..], &more].concat()))["result"]["status"].clone()
    };
    assert_eq!(ask(&bob), "not_found");
    assert_ne!(ask(&alice), "not_found");
}
