//! Connectors as they are written: every mistake with its place.

mod requests;

use std::fs;
use std::path::Path;

use counterfoil_core::delivery::Declared;

use super::*;

/// A connector that uses every key.
const GOOD: &str = r#"[connector.desk]
tool = "file_ticket"
version = "2"
description = "Files a ticket."
method = "POST"
url = "https://desk.test/v1/{{ args.queue }}/tickets?source={{ args.source | default('mcp') }}"
contract = "key+lookup"
connect_timeout = "2s"
timeout = "20s"
wait = "3s"
allow_networks = ["10.0.0.0/8"]
[connector.desk.arguments]
type = "object"
required = ["queue", "subject"]
[connector.desk.arguments.properties]
queue = { type = "string" }
source = { type = "string" }
subject = { type = "string" }
urgent = { type = "boolean" }
count = { type = "integer" }
tags = { type = "array", items = { type = "string" } }
[connector.desk.output]
type = "object"
[connector.desk.output.properties]
id = { type = "string" }
[connector.desk.credential]
type = "header"
header = "X-Desk-Secret"
file = "desk.secret"
account = "bot"
exclusive_to = "acme"
[connector.desk.idempotency]
header = "Idempotency-Key"
key = "operation_id"
[connector.desk.headers]
X-Subject = "{{ args.subject | truncate(20) }}"
[connector.desk.json]
subject = "{{ args.subject }} [{{ marker }}]"
urgent = "{{ args.urgent }}"
count = "{{ args.count }}"
tags = ["mcp", "{{ args.tags | join(' ') if args.tags is defined else 'none' }}"]
fixed = 1.50
nested = { on = true, null = "{{ none }}" }
[connector.desk.success]
status = [200, 201]
body = "json"
external_id = "/ticket/id"
[[connector.desk.answer]]
status = [400, 422]
at = "/error/code"
type = "string"
values = ["invalid", "too_long"]
means = "refused"
[[connector.desk.answer]]
status = [409]
text = ["key reused"]
means = "key_reused"
[[connector.desk.answer]]
status = [500]
header = "Idempotent-Replayed"
header_value = "true"
means = "key_replayed"
[[connector.desk.answer]]
status = [503]
means = "not_applied"
[connector.desk.result]
text = "Filed {{ external_id }}."
[connector.desk.result.structured]
id = "{{ external_id }}"
[connector.desk.lookup]
method = "GET"
url = "https://desk.test/v1/tickets?q={{ marker }}"
items = "/tickets"
field = "/subject"
contains = "{{ marker }}"
next = "/next"
max_pages = 5
external_id = "/id"
[connector.desk.lookup.headers]
X-Search = "1"
[connector.desk.lookup.result]
text = "Found {{ reply.subject }}."
[connector.desk.lookup.result.structured]
id = "{{ external_id }}"
[connector.desk.delivery]
key_lifetime = "24h"
absence_after = "2m"
max_attempts = 7
backoff_base = "500ms"
backoff_cap = "1m"
deliver_within = "2d"
[connector.desk.limits]
concurrency = 3
rate = 2.5
breaker_failures = 4
breaker_open = "1s"
breaker_open_max = "1m"
"#;

/// Reads `text` as the file `desk.toml`.
fn read(text: &str) -> Result<Connectors, String> {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = scratch.path().join("desk.toml");
    fs::write(&path, text).expect("written");
    let scratch_name = format!("{}/", scratch.path().display());
    read_file(&path).map_err(|error| error.to_string().replace(&scratch_name, ""))
}

fn desk() -> Arc<Connector> {
    let connectors = read(GOOD).expect("a good connector");
    connectors.iter().next().expect("one").clone()
}

#[test]
fn every_key_is_read() {
    // Promise: what is declared is what is in force.
    let desk = desk();
    assert_eq!(
        (desk.name.as_str(), desk.tool.as_str(), desk.version.as_str()),
        ("desk", "file_ticket", "2")
    );
    assert_eq!(desk.terms.contract.as_str(), "key+lookup");
    assert_eq!(desk.terms.max_attempts_count, 7);
    assert_eq!(desk.terms.deliver_within, Some(Duration::from_secs(2 * 86_400)));
    assert_eq!(desk.terms.send_limit, Duration::from_secs(20));
    assert_eq!(desk.timeouts.connect, Duration::from_secs(2));
    assert_eq!((desk.limits.concurrency_count, desk.limits.rate_per_s), (3, Some(2.5)));
    assert_eq!(desk.limits.breaker_open, (Duration::from_secs(1), Duration::from_secs(60)));
    assert_eq!(desk.wait, Duration::from_secs(3));
    assert_eq!(desk.networks.len(), 1);
    assert!(desk.responses.url_holds_arguments);
    let json = |text: &str| {
        counterfoil_core::json::parse(text.as_bytes(), &Default::default()).expect("JSON")
    };
    let mut headers = http::HeaderMap::new();
    let refused = json(r#"{"error":{"code":"invalid"}}"#);
    let other = json(r#"{"error":{"code":"overloaded"}}"#);
    let means = |status, headers: &http::HeaderMap, json: Option<&_>, text: &str| {
        desk.responses.meaning(status, headers, json, text)
    };
    assert_eq!(means(422, &headers, Some(&refused), ""), Some(Meaning::Refused));
    assert_eq!(means(422, &headers, Some(&other), ""), None);
    assert_eq!(means(400, &headers, None, "<html>"), None);
    assert_eq!(means(409, &headers, None, "key reused\n"), Some(Meaning::KeyReused));
    assert_eq!(means(503, &headers, None, ""), Some(Meaning::NotApplied));
    assert_eq!(means(500, &headers, None, ""), None);
    headers.insert("idempotent-replayed", http::HeaderValue::from_static("true"));
    assert_eq!(means(500, &headers, None, ""), Some(Meaning::KeyReplayed));
    let made = json(r#"{"ticket":{"id":"T-1"}}"#);
    let none = http::HeaderMap::new();
    let read = |status, json: Option<&_>| desk.responses.read("desk", status, &none, json, "").0;
    assert_eq!(read(201, Some(&made)), Declared::Success);
    assert_eq!(read(201, Some(&other)), Declared::BrokenSuccess);
    assert_eq!(read(201, None), Declared::BrokenSuccess);
    assert_eq!(read(422, Some(&refused)), Declared::Refusal);
    assert_eq!(read(503, None), Declared::NotDone);
    assert_eq!(read(404, None), Declared::Nothing);
    let evidence = desk.responses.evidence("desk", Some(&made), "").expect("as promised");
    assert_eq!(evidence.external_id.as_deref(), Some("T-1"));
    assert_eq!(evidence.result.as_json(), r#"{"text":"Filed T-1.","structured":{"id":"T-1"}}"#);
    for unreadable in [r#"{"ticket":{"id":null}}"#, r#"{"ticket":{}}"#, r#"{"ticket":{"id":1.5}}"#]
    {
        assert_eq!(desk.responses.evidence("desk", Some(&json(unreadable)), ""), None);
    }
    assert_eq!(desk.responses.evidence("desk", None, "<html>502</html>"), None);
}

/// What stands in [`GOOD`], what is written instead, and what is then said.
const MISTAKES: &[(&str, &str, &str)] = &[
    // The numbers of delivery.
    ("max_attempts = 7", "max_attempts = 0", "desk.max_attempts = 0|from 1 to 1000"),
    ("max_attempts = 7", "max_attempts = -1", "from 1 to 1000"),
    ("max_attempts = 7", "max_attempts = nan", "from 1 to 1000"),
    ("base = \"500ms\"", "base = 0", "backoff_base = 0|is 0; give a pause"),
    ("base = \"500ms\"", "base = -1", "backoff_base = -1|cannot be negative"),
    ("base = \"500ms\"", "base = nan", "backoff_base = nan|must be finite"),
    ("base = \"500ms\"", "base = inf", "backoff_base = inf|must be finite"),
    ("base = \"500ms\"", "base = \"2m\"", "backoff_cap = \"1m\"|below backoff_base"),
    ("within = \"2d\"", "within = 0", "deliver_within = 0|is 0"),
    ("after = \"2m\"", "after = \"1s\"", "absence_after = \"1s\"|is below timeout"),
    (
        "lifetime = \"24h\"",
        "lifetime = \"30s\"",
        "key_lifetime = \"30s\"|not more than twice timeout",
    ),
    ("key_lifetime = \"24h\"\n", "", "key_lifetime: this is missing"),
    ("key+lookup", "never", "key_lifetime|no key; remove this"),
    ("\"key+lookup\"", "\"once\"", "no such contract"),
    ("\"20s\"", "0", "timeout = 0|more than 0"),
    ("\"20s\"", "\"1s\"", "connect_timeout = \"2s\"|longer than timeout"),
    ("wait = \"3s\"", "wait = \"2m\"", "at most one minute"),
    ("concurrency = 3", "concurrency = 0", "from 1 to 1024"),
    ("rate = 2.5", "rate = inf", "finite number above 0"),
    ("rate = 2.5", "rate = -1", "finite number above 0"),
    ("open = \"1s\"", "open = 0", "more than 0"),
    ("open = \"1s\"", "open = \"1h\"", "breaker_open_max below"),
    // The request.
    ("https://desk.test/v1/{{", "{{ args.source }}://desk.test/{{", "begins with https://"),
    ("https://desk.test/v1/{{", "http://desk.test/v1/{{", "another host"),
    ("{{ args.queue }}", "{{ args.quue }}", "use args.queue"),
    ("{{ args.queue }}", "{{ queue }}", "there is no `queue`"),
    ("{{ args.queue }}", "{{ args.queue | shout }}", "no filter `shout`"),
    ("{{ args.queue }}", "{{ args.queue is odd }}", "no test `odd`"),
    ("{{ args.queue }}", "{% if args.queue %}", "statement"),
    ("{{ args.queue }}", "{{ args.queue", "not closed"),
    ("{{ args.queue }}", "{{ args. }}", "cannot be read"),
    ("method = \"POST\"", "method = \"GET\"", "an effect is made by"),
    ("X-Subject = ", "Host = ", "set by the connection"),
    ("X-Subject = ", "Authorization = ", "(hidden)|holds a secret"),
    ("X-Subject = ", "X-Desk-Secret = ", "set already"),
    ("X-Subject = ", "Idempotency-Key = ", "which [headers] sets too"),
    ("X-Subject = \"", "X-Subject = \"a\\r\\nb: c", "U+000D"),
    ("X-Subject = \"", "X-Subject = \"é", "printable ASCII"),
    ("fixed = 1.50", "fixed = nan", "no such number"),
    ("fixed = 1.50", "fixed = 2026-01-01", "no dates"),
    (
        "subject = \"{{ args.subject }} [{{ marker }}]\"",
        "subject = \"{{ args.sub }}\"",
        "[connector.desk.json]",
    ),
    ("\"10.0.0.0/8\"", "\"10.0.0.1/8\"", "bits behind its prefix"),
    // Credential and key.
    (
        "file = \"desk.secret\"",
        "token = \"s3cret-value\"",
        "token = (hidden)|never stands in this file",
    ),
    ("file = \"desk.secret\"", "env = \"DESK SECRET\"", "no variable's name"),
    ("file = \"desk.secret\"\n", "", "where the secret is kept"),
    ("account = \"bot\"\n", "", "credential.account: this is missing"),
    ("type = \"header\"", "type = \"digest\"", "no such type"),
    ("header = \"X-Desk-Secret\"\n", "", "header that carries the secret"),
    ("exclusive_to = \"acme\"\n", "", "two tenants may choose the same"),
    // Answers.
    ("status = [200, 201]", "status = [202]", "202 and 207"),
    ("status = [200, 201]", "status = []", "statuses among"),
    ("body = \"json\"", "body = \"ignored\"", "only a JSON body"),
    ("\"/ticket/id\"", "\"ticket\"", "no JSON pointer"),
    ("status = [400, 422]", "status = [401]", "fixed meaning"),
    ("status = [400, 422]", "status = [500]", "server error is a refusal"),
    (
        "at = \"/error/code\"\ntype = \"string\"\nvalues = [\"invalid\", \"too_long\"]\n",
        "",
        "a proxy can send too",
    ),
    ("means = \"not_applied\"", "means = \"maybe\"", "no such meaning"),
    ("status = [503]", "status = [502]", "409 and 503 alone"),
    (
        "text = \"Filed {{ external_id }}.\"",
        "text = \"{{ args.subject }}\"",
        "no `args.subject` in a result",
    ),
    // Lookups.
    ("next = \"/next\"\nmax_pages = 5\n", "", "every page was seen"),
    ("next = \"/next\"", "next = \"/next\"\ncomplete = true", "every page was seen"),
    (
        "[connector.desk.lookup]\nmethod = \"GET\"",
        "[connector.desk.lookup]\nmethod = \"POST\"",
        "safe = true",
    ),
    (
        "contains = \"{{ marker }}\"",
        "contains = \"{{ args.subject }}\"",
        "does not put into the effect",
    ),
    ("{{ args.subject }} [{{ marker }}]", "{{ args.subject }}", "does not put into the effect"),
    ("https://desk.test/v1/tickets?q", "https://other.test/v1/tickets?q", "another host"),
    // Names.
    ("tool = \"file_ticket\"", "tool = \"create_issue\"", "a tool of our own"),
    ("tool = \"file_ticket\"", "tool = \"a b\"", "A-Z, a-z"),
    ("tool = \"file_ticket\"", "tool = \"submit_support_ticket\"", "arguments of its own"),
    ("description = \"Files a ticket.\"\n", "", "description: this is missing"),
    ("wait = ", "wiat = ", "use wait"),
    ("max_pages", "max_page", "use max_pages"),
    ("queue = { type", "operation_id = { type", "`operation_id` is an argument of every"),
    ("{ type = \"boolean\" }", "{ \"$ref\" = \"https://x.test/s\" }", "nothing is ever fetched"),
    ("{ type = \"boolean\" }", "{ type = \"bool\" }", "no JSON Schema"),
    ("[connector.desk]", "[connector.Desk]", "cannot name a target"),
    (
        "[connector.desk.output]",
        "[other]\n[connector.desk.output]",
        "[connector.NAME] tables alone",
    ),
];

#[test]
fn a_search_for_a_callers_own_id_compares_the_whole_text() {
    // Promise: the effect of `op-10` is never taken for that of `op-1`.
    for (name, key, is_good) in [
        ("marker", "operation_id", true),
        ("operation_id", "operation_id", false),
        ("key", "operation_id", false),
        ("key", "digest", true),
    ] {
        for (compare, is_good) in [("contains", is_good), ("equals", true)] {
            let text = GOOD
                .replace("key = \"operation_id\"", &format!("key = \"{key}\""))
                .replace("[{{ marker }}]", &format!("[{{{{ {name} }}}}]"))
                .replace(
                    "contains = \"{{ marker }}\"",
                    &format!("{compare} = \"{{{{ {name} }}}}\""),
                );
            match read(&text) {
                Ok(_) => assert!(is_good, "{compare} {name}, key {key}"),
                Err(error) => {
                    assert!(!is_good, "{compare} {name}, key {key}: {error}");
                    assert!(error.contains("a part of another"), "{error}");
                }
            }
        }
    }
}

#[test]
fn each_mistake_is_refused_with_its_place_and_its_remedy() {
    // Promise: a connector that would not do what its writer means never starts.
    for (from, to, words) in MISTAKES {
        assert!(GOOD.contains(from), "{from} is not in the connector");
        let error = read(&GOOD.replacen(from, to, 1)).expect_err(to);
        let found = words.split('|').all(|part| error.contains(part.trim_start_matches("desk.")));
        assert!(found, "{from} -> {to}: expected {words}\n{error}");
        assert!(error.contains("desk.toml:"), "{to}: {error}");
        assert!(!error.contains("s3cret-value"), "{error}");
    }
}

#[test]
fn every_mistake_of_a_file_is_told_at_once() {
    // Promise: one check names everything, each with file, line and column.
    let text = r#"[connector.desk]
tool = "create_issue"
description = " "
url = "http://desk.test"
contract = "key"
timout = "20s"
[connector.desk.arguments]
type = "object"
[connector.desk.arguments.properties.title]
type = "string"
[connector.desk.credential]
type = "bearer"
token = "0123456789abcdef"
[connector.desk.headers]
X-A = "{{ args.titel }}"
[connector.desk.json]
title = "{{ args.title | uper }}"
[connector.desk.success]
status = [302]
[[connector.desk.answer]]
status = [400]
means = "refused"
[connector.desk.delivery]
max_attempts = 0
backoff_base = nan
[connector.other]
"#;
    insta::assert_snapshot!(read(text).expect_err("mistakes"));
}

#[test]
fn files_that_are_no_connectors_are_refused() {
    // Promise: a file that is named and says nothing is a slip, and is told.
    for (text, words) in [
        ("", "no connector in this file"),
        ("[connector.desk", "desk.toml:1:"),
        ("principal = \"alice\"\n", "move other settings"),
        ("[connector]\ndesk = 1\n", "a connector is a table"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.contains(words), "{text}: {error}");
    }
    let twice = format!("{GOOD}{}", GOOD.replace("connector.desk", "connector.desk2"));
    let error = read(&twice).expect_err("one tool twice");
    assert!(error.contains("the tool file_ticket is that of the connector desk"), "{error}");
    assert!(read_file(Path::new("/nowhere/x.toml")).is_err());
}

#[test]
fn the_connectors_that_ship_can_be_used() {
    // Promise: the files of connectors/ are good as they stand, and say what their contract is.
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../connectors");
    let connectors = read_file(&dir).map_err(|error| error.to_string()).expect("good files");
    let contracts: Vec<_> =
        connectors.iter().map(|it| (it.name.as_str(), it.terms.contract.as_str())).collect();
    let expected = [("github-issues", "lookup"), ("roundup", "lookup"), ("slack-webhook", "never")];
    assert_eq!(contracts, expected);
}
