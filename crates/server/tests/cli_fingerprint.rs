//! `counterfoil fingerprint` of the real binary, with the published vectors and with what it refuses.

mod command;

use std::fs;

use command::{Bench, Ended};
use serde_json::{Value, json};

const VECTORS: &str = include_str!("../../core/tests/data/fingerprint-strict-v1.json");

/// A bench whose scratch directory holds the vectors' key, and the key's path.
fn bench_with_key(key_hex: &str) -> (Bench, String) {
    let bench = Bench::new();
    bench.make_data_dir();
    let file = bench.data("test.key");
    fs::write(&file, format!("{key_hex}\n")).expect("written");
    let path = file.to_str().expect("UTF-8").to_owned();
    (bench, path)
}

fn run(profile: &str, more: &[&str], lines: &[String]) -> Ended {
    let vectors: Value = serde_json::from_str(VECTORS).expect("JSON");
    let (bench, key) = bench_with_key(vectors["key_hex"].as_str().expect("text"));
    let base = ["fingerprint", "--profile", profile, "--key-file", &key];
    bench.run_with_input(&[&base[..], more].concat(), (lines.join("\n") + "\n").as_bytes())
}

/// A line whose arguments are raw JSON text.
fn line(name: &str, arguments: &str) -> String {
    format!(
        r#"{{"name":"{name}","request":{{"principal":"alice","tool_id":"t","tool_version":"1","arguments":{arguments},"continuation_state":null,"input_responses":null}}}}"#
    )
}

#[test]
fn strict_v1_prints_the_published_digest_of_every_vector() {
    // Promise: another implementation can be compared with this one, byte for byte.
    // The vectors' own text is passed on: a decoder would round 1.0 and -0.0.
    let lossless = counterfoil_core::json::parse(VECTORS.as_bytes(), &Default::default());
    let lossless = lossless.expect("JSON");
    let accept = lossless.get("accept").and_then(|list| list.as_array()).expect("a list");
    let lines: Vec<String> = accept.iter().map(|vector| vector.to_json()).collect();
    let printed = run("strict-v1", &[], &lines).done();
    let text = |vector: &counterfoil_core::json::Value, name| {
        vector.get(name).and_then(|value| value.as_str().map(str::to_owned)).expect("text")
    };
    let expected: String = accept
        .iter()
        .map(|vector| format!("{}\t{}\n", text(vector, "name"), text(vector, "fingerprint")))
        .collect();
    assert_eq!(accept.len(), 27);
    assert_eq!(printed.stdout, expected);
    assert_eq!(printed.stderr, "");
}

#[test]
fn every_vector_to_refuse_is_refused_with_its_place_and_the_others_are_printed() {
    // Promise: what has no exact form is refused with line, name and JSON path, and costs no other
    // line its answer.
    let vectors: Value = serde_json::from_str(VECTORS).expect("JSON");
    let reject = vectors["reject"].as_array().expect("a list");
    let places = [
        "$.request.arguments.n is not integral",
        "$.request.arguments.n is outside",
        "$.request.arguments.n is outside",
        "$.request.arguments.n is outside",
        "(at $.request.arguments.s, byte",
        "(at $.request.arguments, byte",
        "(at $.request.arguments.a, byte",
    ];
    let mut lines = Vec::new();
    let mut expected = Vec::new();
    for (vector, place) in reject.iter().zip(places) {
        let name = vector["name"].as_str().expect("text");
        lines.push(line(name, vector["arguments"].as_str().expect("text")));
        expected.push((format!("error: line {}, `{name}`: ", lines.len()), place));
        lines.push(line("good", "{}"));
    }
    let ended = run("strict-v1", &[], &lines).failed(2);
    assert_eq!(ended.stdout.lines().filter(|line| line.starts_with("good\t")).count(), 7);
    assert_eq!(ended.stdout.lines().count(), 7);
    let told: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(told.len(), 7, "{}", ended.stderr);
    for (told, (start, place)) in told.iter().zip(&expected) {
        assert!(told.starts_with(start) && told.contains(place), "{start} {place}\n{told}");
    }

    let short = reject.iter().find(|vector| vector.get("key_hex").is_some()).expect("a short key");
    let (bench, key) = bench_with_key(short["key_hex"].as_str().expect("text"));
    let arguments = ["fingerprint", "--profile", "strict-v1", "--key-file", &key];
    let ended = bench.run_with_input(&arguments, line("short", "{}").as_bytes()).failed(2);
    assert!(ended.stderr.contains("31 bytes; it needs at least 32"), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

#[test]
fn jcs_v1_prints_what_a_ledger_keeps() {
    // Promise: the default profile can be compared too, tenant included; integers that a double
    // would round are refused, and fractions are not.
    let request = |tenant: Value| {
        let mut line = json!({"name": "n", "request": {
            "principal": "alice", "tool_id": "send", "tool_version": "1",
            "arguments": {"to": "Zürich", "amount": 10.5},
            "continuation_state": "state-A", "input_responses": {"ok": true},
        }});
        if !tenant.is_null() {
            line["request"]["tenant"] = tenant;
        }
        line.to_string()
    };
    let lines = [request("acme".into()), request("local".into()), request(Value::Null)];
    let stdout = run("jcs-v1", &[], &lines).done().stdout;
    let digests: Vec<&str> = stdout.lines().collect();
    let acme = "n\td20af0d732131590e188f4086ed0f07e2b69e32f3454072edc7bc01cff022115";
    assert_eq!(digests[0], acme);
    assert!(digests[1] != acme && digests[1] == digests[2], "{stdout}");
    assert_eq!(run("jcs-v1", &["--stored"], &lines).done().stdout, stdout);
    let exact = [line("a", r#"{"n":9007199254740992}"#), line("b", r#"{"n":9007199254740993}"#)];
    let ended = run("jcs-v1", &[], &exact).failed(2);
    assert!(ended.stdout.starts_with("a\t") && ended.stdout.lines().count() == 1);
    assert!(ended.stderr.contains("`b`: the number at $.request.arguments.n is an integer that"));
}

#[test]
fn stored_prints_the_keyed_form_of_strict_v1() {
    // Promise: what lies in a ledger can be computed by whoever has the key, and by nobody else.
    let request = json!({"name": "n", "request": {
        "principal": "alice", "tool_id": "create_issue", "tool_version": "1",
        "arguments": {"operation_id": "op-7", "title": "Export fails"},
    }});
    let stored = run("strict-v1", &["--stored"], &[request.to_string()]).done();
    let kept = "n\t36c573ddbc3376ab594aac010045e0c98c184d87b106cbef14c3e4faaf355175\n";
    assert_eq!(stored.stdout, kept);
}

#[test]
fn lines_that_are_no_requests_are_refused_with_the_rule() {
    // Promise: a slip in a line is named with its place; values, which may be secret, are not shown.
    let flood = format!(r#"{{"name":"flood","request":"{}"}}"#, "x".repeat(5 * 1024 * 1024));
    let whole = line("n", r#"{"secret":"hunter2"}"#);
    let cases = [
        ("[1]", "line 1, without a name: $ must be an object"),
        (r#"{"request":{}}"#, "line 1, without a name: $.name is missing"),
        (r#"{"name":7,"request":{}}"#, "$.name must be a JSON string"),
        (r#"{"name":"a\tb","request":{}}"#, "$.name holds a control character"),
        (r#"{"name":"n"}"#, "line 1, `n`: $.request is missing"),
        (r#"{"name":"n","request":[]}"#, "$.request must be an object"),
        (
            r#"{"name":"n","request":{"tool_version":"1","arguments":1}}"#,
            "$.request.tool_id is missing",
        ),
        (&whole.replace("\"t\"", "7"), "$.request.tool_id must be a JSON string"),
        (&whole.replace("principal", "principle"), "$.request.principle is no field"),
        (&whole.replace("principal", "tenant"), "$.request.tenant is no field of a request in"),
        (&whole.replace("\"alice\"", "1"), "$.request.principal must be a JSON string or null"),
        (&whole.replace("hunter2\"", "hunter2"), "not valid JSON"),
        (&format!("{whole}{whole}"), "more text after the JSON value"),
        (&flood, "longer than the limit of 4194304 bytes"),
    ];
    for (line, words) in cases {
        let shown: String = line.chars().take(80).collect();
        // A line after it is answered, however long it was.
        let ended =
            run("strict-v1", &[], &[line.to_owned(), String::new(), whole.clone()]).failed(2);
        assert!(ended.stderr.contains(words), "{shown}\n{}", ended.stderr);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stdout.starts_with("n\t") && ended.stdout.lines().count() == 1, "{shown}");
    }
}

#[test]
fn a_key_that_cannot_be_used_prints_nothing() {
    // Promise: no digest is made under half a key, or under none.
    let too_long = "00".repeat(4096);
    for (key, words) in [
        ("", "0 bytes; it needs at least 32"),
        ("not hexadecimal", "is not a hexadecimal digit"),
        (&too_long, "over 4096 bytes"),
    ] {
        let (bench, path) = bench_with_key(key);
        let arguments = ["fingerprint", "--profile", "jcs-v1", "--key-file", &path];
        let ended = bench.run_with_input(&arguments, line("n", "{}").as_bytes()).failed(2);
        assert!(ended.stderr.contains(words) && ended.stderr.contains("test.key"), "{ended:?}");
        assert_eq!(ended.stdout, "");
    }
    let bench = Bench::new();
    let absent = ["fingerprint", "--profile", "jcs-v1", "--key-file", "absent.key"];
    assert!(bench.run(&absent).failed(2).stderr.contains("absent.key cannot be used"));
}
