//! The `delivery` commands of the real binary, on ledgers whose items stand in every state.

mod command;
mod front;

use std::collections::BTreeMap;
use std::sync::Arc;

use command::outbox::{
    EVERY, KEY, Outboxed, applied, every_state, name, once, refused, unknown, unreachable,
};
use command::{Bench, Ended};
use counterfoil_core::delivery::State;
use counterfoil_core::identity::OperationKey;
use counterfoil_store::outbox::{Outbox, Which};
use counterfoil_store::{Store, SystemClock};
use serde_json::Value as Json;

const WHY: [&str; 4] = ["--who", "mara", "--reason", "the desk is back"];
const SECRETS: [&str; 2] = ["sentinel-argument", "sentinel-result"];

fn bench() -> (Bench, BTreeMap<&'static str, OperationKey>) {
    let bench = Bench::new();
    let keys = every_state(&bench.data(""));
    (bench, keys)
}

fn json(text: &str) -> Json {
    serde_json::from_str(text).expect(text)
}

fn ticket(key: OperationKey) -> String {
    let digits = key.as_bytes().iter().map(|byte| format!("{byte:02x}"));
    format!("tkt_{}", digits.collect::<String>())
}

fn delivery(bench: &Bench, arguments: &[&str]) -> Ended {
    let ended = bench.run(&[&["delivery"][..], arguments].concat());
    for secret in SECRETS {
        assert!(!format!("{ended:?}").contains(secret), "{arguments:?} shows {secret}");
    }
    ended
}

/// The state of an item, as `show` tells it to a program.
fn state(bench: &Bench, id: &str) -> String {
    let shown = json(&delivery(bench, &["show", id, "--json"]).done().stdout);
    shown["state"].as_str().expect("a state").to_owned()
}

fn ids(listed: &Json) -> Vec<&str> {
    let items = listed["deliveries"].as_array().expect("a list");
    items.iter().map(|item| item["operationId"].as_str().expect("an ID")).collect()
}

#[test]
fn a_list_holds_what_was_asked_for() {
    // Promise: operators find deliveries by target, state, class, age and tenant, as a table or as
    // JSON, and no argument, result or credential is shown.
    let (bench, keys) = bench();
    let list = |more: &[&str]| delivery(&bench, &[&["list"][..], more].concat()).done();
    let shown = list(&[]);
    assert_eq!(shown.stdout.lines().count(), EVERY.len() + 1, "{}", shown.stdout);
    let head = shown.stdout.lines().next().expect("a head");
    assert!(head.starts_with("TICKET ") && head.ends_with("OPERATION"), "{head}");
    for (id, words) in [
        ("dead", "dead_letter         dead  "),
        ("parked", "parked (target_unknown)"),
        ("cancelled", "cancelled (cancelled)"),
        ("paused", "paused (paused)"),
        ("stopped", "stopped (parked)"),
    ] {
        let ticket = ticket(keys[id]);
        let line = shown.stdout.lines().find(|line| line.starts_with(&ticket)).expect(id);
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed(line).contains(&squeezed(words)), "{words}\n{line}");
    }
    let cases: &[(&[&str], &[&str])] = &[
        (&["--state", "dead_letter"], &["dead", "dead-forgotten", "dead-unknown"]),
        (&["--state", "in_doubt", "--state", "delivered"], &["delivered", "in-doubt"]),
        (&["--target", "leased"], &["leased"]),
        (&["--class", "rejected"], &["dead"]),
        (&["--older-than", "30m"], &["dead-forgotten"]),
        (&["--older-than", "30m", "--class", "rejected"], &[]),
        (&["--tenant", "far"], &[]),
        (&["--target", "leased", "--state", "queued"], &[]),
    ];
    for (filters, expected) in cases {
        let listed = list(&[filters, &["--json"][..]].concat());
        assert_eq!(listed.stderr, "");
        let listed = json(&listed.stdout);
        let mut found = ids(&listed);
        found.sort_unstable();
        assert_eq!(found, *expected, "{filters:?}");
    }
    let none = list(&["--target", "leased", "--state", "queued"]);
    assert_eq!(none.stdout, "");
    assert!(none.stderr.contains("has no such delivery"), "{}", none.stderr);
}

#[test]
fn a_list_goes_on_page_by_page_and_whole() {
    // Promise: whoever follows the pages sees each item once; --all gives the same at once.
    let (bench, _) = bench();
    let list = |more: &[&str]| {
        json(&delivery(&bench, &[&["list", "--json"][..], more].concat()).done().stdout)
    };
    let whole = list(&["--all"]);
    assert_eq!((ids(&whole).len(), &whole["nextCursor"]), (EVERY.len(), &Json::Null));
    let mut paged = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let more: Vec<&str> = cursor.iter().flat_map(|at| ["--cursor", at]).collect();
        let page = list(&[&["--limit", "5"][..], &more].concat());
        paged.extend(ids(&page).into_iter().map(str::to_owned));
        cursor = page["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(paged, ids(&whole));
    let table = delivery(&bench, &["list", "--limit", "5"]).done();
    assert!(table.stderr.contains("--cursor ") && table.stderr.contains("--all"));
}

#[test]
fn an_item_is_shown_with_what_may_be_done_and_why() {
    // Promise: `delivery show` tells where an item stands and, for each order, whether the ledger
    // would take it; the ledger then does what was told.
    let (bench, keys) = bench();
    // By itself; redrive, cancel, abandon, resolve: allowed?
    let table: &[(&str, &str, [bool; 4])] = &[
        ("queued", "it is due", [false, true, true, false]),
        ("leased", "a worker holds it", [false, false, false, false]),
        ("sending", "may be sending it", [false, false, false, false]),
        ("delivered", "it is done", [false, false, false, false]),
        ("dead", "a person decides", [true, false, true, true]),
        ("dead-unknown", "a person decides", [true, false, false, true]),
        ("dead-forgotten", "a person decides", [true, false, false, true]),
        ("parked", "[connector.parked]", [false, true, true, false]),
        ("parked-account", "another account", [true, true, true, false]),
        ("in-doubt", "operation resolve in-doubt", [false, false, false, true]),
        ("cancelled", "it has ended", [false, false, false, false]),
        ("paused", "counterfoil target resume paused", [false, true, true, false]),
        ("stopped", "counterfoil target resume stopped", [false, true, true, false]),
    ];
    for (id, words, allowed) in table {
        let shown = json(&delivery(&bench, &["show", id, "--json"]).done().stdout);
        let by_itself = shown["byItself"].as_str().expect("words");
        assert!(by_itself.contains(words), "{id}: {by_itself}");
        let choices = shown["choices"].as_array().expect("choices");
        let told: Vec<bool> =
            choices.iter().map(|choice| choice["allowed"].as_bool().expect("told")).collect();
        assert_eq!(told, allowed, "{id}");
        let text = delivery(&bench, &["show", &ticket(keys[id])]).done().stdout;
        assert!(text.contains(&format!("operation        {id}\n")), "{text}");
        assert!(text.contains("what may be done now\n"), "{text}");
    }
    for (id, _, allowed) in table {
        for (verb, allowed) in ["redrive", "cancel", "abandon"].iter().zip(allowed) {
            let asked = [&[*verb, id, "--dry-run", "--json"][..], &WHY].concat();
            let told = json(&delivery(&bench, &asked).stdout);
            assert_eq!(told["refused"] == 0, *allowed, "{verb} {id}: {told}");
        }
    }
}

#[test]
fn a_dead_letter_is_told_in_full() {
    // Promise: attempts, error, contract, terms and target are there for a person to read.
    let (bench, _) = bench();
    let shown = delivery(&bench, &["show", "dead-unknown"]).done().stdout;
    for words in [
        "state            dead_letter (given up; a person may send it again)\n",
        "callers see      unknown (",
        "retry status_only\n",
        "target           dead-unknown, open\n",
        "attempts         1 of 1; 1 of them may have been done\n",
        "last error       no_reply: the connection ended\n",
        "contract         key (a repeat with the key is harmless until ",
        "terms            1 attempts, pauses of 1s to 1m, 10s for each request\n",
    ] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
    let stopped = delivery(&bench, &["show", "stopped"]).done().stdout;
    assert!(stopped.contains("(credential: 401: the credential is refused)"), "{stopped}");
    let paused = delivery(&bench, &["show", "paused"]).done().stdout;
    assert!(paused.contains("target           paused, paused by olga since "), "{paused}");
}

#[test]
fn the_request_is_shown_only_when_asked_and_never_its_credential() {
    // Promise: arguments are shown only with --request, and the credential is masked even then.
    let (bench, _) = bench();
    let asked = bench.run(&["delivery", "show", "dead", "--request"]).done().stdout;
    for words in ["POST https://desk.example/tickets", "idempotency-key: k-1", "sentinel-argument"]
    {
        assert!(asked.contains(words), "{asked}");
    }
    assert!(asked.contains("credential: ******** (of the account desk-bot"), "{asked}");
    let asked = bench.run(&["delivery", "show", "dead", "--request", "--json"]).done().stdout;
    let asked = json(&asked);
    assert_eq!(asked["frozen"]["request"]["body"], "{\"title\":\"sentinel-argument\"}");
    assert_eq!(asked["frozen"]["credential"], "********");
}

#[test]
fn an_absent_delivery_proves_nothing() {
    // Promise: an ID that the ledger does not know is told apart from everything that has ended.
    let (bench, _) = bench();
    let missing = ticket(OperationKey::from_bytes([0xee; 16]));
    for arguments in
        [&["show", "nowhere"][..], &["show", "dead", "--tenant", "far"], &["show", &missing]]
    {
        let absent = delivery(&bench, arguments).failed(1);
        assert!(absent.stderr.contains("proves nothing"), "{}", absent.stderr);
        let program = delivery(&bench, &[arguments, &["--json"]].concat());
        assert_eq!((program.code, program.stderr.as_str()), (Some(1), ""));
        assert_eq!(json(&program.stdout)["found"], false);
    }
    let ordered = delivery(&bench, &[&["redrive", "nowhere"][..], &WHY].concat());
    assert_eq!(ordered.code, Some(1), "{ordered:?}");
    assert!(ordered.stdout.contains("1 absent: there is no such delivery"), "{ordered:?}");
}

#[test]
fn orders_are_taken_or_refused_by_the_ledgers_rules() {
    // Promise: each order does what it says, or says by which rule it was refused, changes nothing
    // and exits with 4; who and why are in the audit trail.
    // The order and the item; exit, words, state afterwards.
    let table: &[(&str, &str, i32, &str, &str)] = &[
        ("redrive", "dead", 0, "1 redriven", "queued"),
        ("redrive", "dead-unknown", 0, "1 redriven", "queued"),
        ("redrive", "dead-forgotten", 4, "1 are in doubt now", "in_doubt"),
        ("redrive", "queued", 4, "only a dead letter can be sent again", "queued"),
        ("redrive", "leased", 4, "refused, leased: only a dead letter", "leased"),
        ("redrive", "sending", 4, "refused, sending: only a dead letter", "sending"),
        ("redrive", "delivered", 4, "only a dead letter", "delivered"),
        ("redrive", "parked", 4, "only a dead letter", "parked"),
        ("redrive", "parked-account", 0, "1 redriven", "queued"),
        ("redrive", "in-doubt", 4, "may have been done already; look at the target", "in_doubt"),
        ("redrive", "cancelled", 4, "submit it under a new operation ID", "cancelled"),
        ("cancel", "queued", 0, "1 cancelled", "cancelled"),
        ("cancel", "parked", 0, "1 cancelled", "cancelled"),
        ("cancel", "paused", 0, "1 cancelled", "cancelled"),
        ("cancel", "leased", 4, "a worker holds it; try again", "leased"),
        ("cancel", "sending", 4, "a worker holds it; try again", "sending"),
        ("cancel", "dead", 4, "use `counterfoil delivery abandon`", "dead_letter"),
        ("cancel", "in-doubt", 4, "use `counterfoil operation resolve`", "in_doubt"),
        ("cancel", "delivered", 4, "it has ended", "delivered"),
        ("cancel", "cancelled", 4, "it has ended", "cancelled"),
        ("abandon", "dead", 0, "1 abandoned", "cancelled"),
        ("abandon", "dead-unknown", 4, "an attempt may have been done", "dead_letter"),
        ("abandon", "sending", 4, "a worker holds it; try again", "sending"),
        ("abandon", "in-doubt", 4, "use `counterfoil operation resolve`", "in_doubt"),
        ("abandon", "delivered", 4, "it has ended", "delivered"),
    ];
    for verb in ["redrive", "cancel", "abandon"] {
        let (bench, keys) = bench();
        for (_, id, exit, words, after) in table.iter().filter(|case| case.0 == verb) {
            let told = delivery(&bench, &[&[verb, id][..], &WHY].concat());
            assert_eq!(told.code, Some(*exit), "{verb} {id}: {told:?}");
            assert!(told.stdout.contains(words), "{verb} {id}: {told:?}");
            if *exit != 0 {
                assert!(told.stdout.contains(&ticket(keys[id])), "{told:?}");
            }
            assert_eq!(state(&bench, id), *after, "{verb} {id}");
            let trail = bench.run(&["audit", "show", id, "--json"]).done();
            let trail = json(&trail.stdout);
            let last = trail["audit"].as_array().expect("a trail").last().expect("an event");
            let is_ordered = last["who"] == "mara" && last["reason"] == "the desk is back";
            let is_changed = *exit == 0 || *after == "in_doubt" && *id == "dead-forgotten";
            assert_eq!(is_ordered, is_changed, "{verb} {id}: {last}");
        }
    }
}

#[test]
fn many_are_named_at_once_by_either_id() {
    // Promise: an order on some of which one is refused does the others, and exits with 4; an item
    // that is named twice is ordered about once.
    let (bench, keys) = bench();
    let ticket = ticket(keys["dead"]);
    let asked = ["redrive", "dead", &ticket, "queued", "nowhere", "--json"];
    let told = delivery(&bench, &[&asked[..], &WHY].concat());
    assert_eq!((told.code, told.stderr.as_str()), (Some(4), ""));
    let told = json(&told.stdout);
    assert_eq!(
        (&told["done"], &told["refused"], &told["absent"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!((&told["who"], &told["complete"]), (&"mara".into(), &true.into()));
    let items = told["items"].as_array().expect("a list");
    let outcome = |id: &str| items.iter().find(|it| it["operationId"] == id).expect(id).clone();
    assert_eq!(outcome("dead")["state"], "queued");
    assert_eq!(outcome("queued")["rule"], "only a dead letter can be sent again");
    assert_eq!(outcome("nowhere")["outcome"], "absent");
}

#[test]
fn an_order_that_names_nothing_or_too_much_is_no_order() {
    // Promise: nothing is ordered by a slip: IDs or filters, a reason, and for filters a word more.
    let (bench, _) = bench();
    let cases: &[(&[&str], &str)] = &[
        (&["redrive"], "give IDs, or filters"),
        (&["cancel", "--tenant", "local", "--yes"], "give IDs, or filters"),
        (&["redrive", "dead", "--target", "dead", "--yes"], "do not go together"),
        (&["redrive", "--target", "dead"], "--dry-run, then give --yes"),
    ];
    for (arguments, words) in cases {
        let told = delivery(&bench, &[arguments, &WHY[..]].concat()).failed(2);
        assert!(told.stderr.contains(words), "{}", told.stderr);
    }
    delivery(&bench, &["redrive", "dead"]).failed(2);
    assert_eq!(state(&bench, "dead"), "dead_letter");
}

/// Leaves 500 dead letters of an outage, 20 that were refused, and a few of another target.
fn outage(bench: &Bench) {
    let mut ledger = Outboxed::open(&bench.data(""), Arc::new(SystemClock));
    for number in 0..500 {
        ledger.accept(&format!("out-{number:03}"), "helpdesk", once(KEY));
    }
    ledger.attempt("helpdesk", 500, &unreachable());
    for number in 0..20 {
        ledger.accept(&format!("bad-{number:03}"), "helpdesk", once(KEY));
    }
    ledger.attempt("helpdesk", 20, &refused());
    for number in 0..3 {
        ledger.accept(&format!("mail-{number:03}"), "mail", once(KEY));
    }
    ledger.attempt("mail", 3, &unreachable());
    ledger.close();
}

fn count(bench: &Bench, filters: &[&str]) -> usize {
    let asked = [&["list", "--all", "--json"][..], filters].concat();
    ids(&json(&delivery(bench, &asked).done().stdout)).len()
}

#[test]
fn an_outage_is_redriven_at_once() {
    // Promise: filters take exactly what they fit, in batches with progress; a second run is safe.
    let bench = Bench::new();
    outage(&bench);
    let filters = ["redrive", "--target", "helpdesk", "--class", "connect"];
    let dry = delivery(&bench, &[&filters[..], &["--dry-run"], &WHY].concat()).done();
    assert_eq!(dry.stdout, "500 would be redriven\n");
    assert_eq!(dry.stderr, "nothing was changed\n");
    assert_eq!(count(&bench, &["--state", "queued"]), 0);
    let done = delivery(&bench, &[&filters[..], &["--yes", "--progress"], &WHY].concat()).done();
    assert_eq!(done.stdout, "500 redriven\n");
    let progress: Vec<&str> = done.stderr.lines().collect();
    assert_eq!((progress.len(), progress[0]), (5, "100 redriven, 0 not"), "{}", done.stderr);
    assert_eq!(count(&bench, &["--state", "queued", "--target", "helpdesk"]), 500);
    assert_eq!(count(&bench, &["--state", "dead_letter"]), 23);
    let again = delivery(&bench, &[&filters[..], &["--yes"], &WHY].concat()).done();
    assert!(again.stderr.contains("no delivery fits"), "{again:?}");
    // States that the verb does not take are refused one by one, and told by their rule.
    let asked = ["redrive", "--target", "helpdesk", "--state", "queued", "--yes"];
    let refused = delivery(&bench, &[&asked[..], &WHY].concat());
    assert_eq!((refused.code, refused.stderr.as_str()), (Some(4), ""));
    let line = "500 refused, queued: only a dead letter can be sent again\n";
    assert!(refused.stdout.starts_with("0 redriven\n"), "{}", refused.stdout);
    assert!(refused.stdout.contains(line), "{}", refused.stdout);
    assert!(refused.stdout.ends_with("    and 497 more\n"), "{}", refused.stdout);
    let asked = ["abandon", "--class", "rejected", "--older-than", "0", "--yes", "--json"];
    let told = json(&delivery(&bench, &[&asked[..], &WHY].concat()).done().stdout);
    assert_eq!((&told["done"], &told["itemsLeftOut"]), (&20.into(), &0.into()));
    assert_eq!(told["items"], Json::Array(Vec::new()));
}

#[test]
fn orders_reach_a_ledger_that_another_process_works_on() {
    // Promise: while a server holds the ledger an operator's order is taken, and the other process
    // sees it at once and sends the same bytes.
    let bench = Bench::new();
    let mut ledger = Outboxed::open(&bench.data(""), Arc::new(SystemClock));
    let key = ledger.accept("dead", "helpdesk", once(KEY));
    ledger.accept("busy", "pager", once(KEY));
    ledger.attempt("helpdesk", 1, &unknown());
    let held = ledger.sending("pager", 1);
    let server = front::Server::start(
        &bench.data(""),
        &["--no-worker", "--http-no-auth", "local-only", "--principal", "alice"],
    );
    let refused = delivery(&bench, &[&["cancel", "busy"][..], &WHY].concat());
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stdout.contains("a worker holds it; try again when its attempt has ended"));
    delivery(&bench, &[&["redrive", "dead"][..], &WHY].concat()).done();
    let due = ledger.run(ledger.store.next_due(name("helpdesk"))).expect("readable");
    assert!(due.is_some_and(|due| due <= ledger.store.now()));
    ledger.attempt("helpdesk", 1, &applied());
    let view = ledger.run(ledger.store.delivery(Which::Key(key))).expect("readable");
    let item = view.expect("there").delivery;
    assert_eq!((item.state, item.attempts_count), (State::Delivered, 2));
    ledger.report(&held, &counterfoil_store::outbox::Happened::Sent(applied()));
    assert_eq!(state(&bench, "busy"), "delivered");
    drop(server);
    ledger.close();
}

#[test]
fn an_operation_that_is_delivered_later_is_shown_and_settled() {
    // Promise: `operation show` names the delivery, and a person settles what is in doubt or given
    // up; what is on its way is refused with the remedy.
    let (bench, keys) = bench();
    let shown = bench.run(&["operation", "show", "dead"]).done();
    let line = format!(
        "delivery         dead_letter, 1 of 1 attempts, to dead; `counterfoil delivery show {}`\n",
        ticket(keys["dead"])
    );
    assert!(shown.stdout.contains(&line), "{}", shown.stdout);
    assert!(shown.stderr.contains("counterfoil delivery show tkt_"), "{}", shown.stderr);
    let shown = bench.run(&["operation", "show", "dead", "--json"]).done();
    assert_eq!(json(&shown.stdout)["delivery"]["ticketId"], ticket(keys["dead"]));
    let resolve = |id: &str, verdict: &str| {
        let proof = ["--reason", "looked at the desk", "--proof", "ticket HD-7", "--as", "mara"];
        bench.run(&[&["operation", "resolve", id, verdict][..], &proof].concat())
    };
    resolve("in-doubt", "--applied").done();
    assert_eq!(state(&bench, "in-doubt"), "delivered");
    resolve("dead-unknown", "--not-applied").done();
    assert_eq!(state(&bench, "dead-unknown"), "cancelled");
    for (id, words) in [
        ("queued", "counterfoil delivery cancel queued"),
        ("parked", "counterfoil delivery cancel parked"),
        ("sending", "a server may still be at work"),
        ("delivered", "settled already, as applied"),
    ] {
        let refused = resolve(id, "--applied").failed(4);
        assert!(refused.stderr.contains(words), "{id}: {}", refused.stderr);
    }
    let trail = bench.run(&["audit", "show", &ticket(keys["in-doubt"])]).done().stdout;
    for words in ["attempt_started", "mara", "reason: looked at the desk", "proof: ticket HD-7"] {
        assert!(trail.contains(words), "{words}\n{trail}");
    }
    assert!(SECRETS.iter().all(|secret| !trail.contains(secret)), "{trail}");
    let trail = bench.run(&["audit", "show", "in-doubt", "--json"]).done().stdout;
    let trail = json(&trail);
    assert_eq!(trail["ticketId"], ticket(keys["in-doubt"]));
    assert_eq!(
        trail["audit"].as_array().expect("a trail").last().expect("one")["proof"],
        "ticket HD-7"
    );
    let absent = bench.run(&["audit", "show", "nowhere"]).failed(1);
    assert!(absent.stderr.contains("It proves nothing"), "{}", absent.stderr);
}

#[test]
fn a_target_that_is_not_there_is_told_with_those_that_are() {
    // Promise: a name that was typed wrong is not taken for a target without deliveries.
    let bench = Bench::new();
    every_state(&bench.data(""));
    let order = ["delivery", "redrive", "--target", "desk", "--reason", "x", "--dry-run"];
    for arguments in [&["delivery", "list", "--target", "desk"][..], &order] {
        let refused = bench.run(arguments).failed(1);
        for words in ["has no target `desk`", "dead-unknown, delivered"] {
            assert!(refused.stderr.contains(words), "{words}: {refused:?}");
        }
    }
    bench.run(&["delivery", "list", "--target", "delivered"]).done();
}
