//! Tests of wrapping in clients' settings.

use super::*;

fn wrapping() -> Wrapping {
    Wrapping { command: "counterfoil".into(), uses_presets: true, mark: "1a2b3c".into() }
}

fn file(text: &str) -> ClientFile {
    ClientFile::read(text.as_bytes().to_vec()).expect(text)
}

/// Wraps every server.
fn wrapped(text: &str) -> String {
    let file = file(text);
    let names: Vec<String> = file.servers().iter().map(|it| it.name.clone()).collect();
    String::from_utf8(file.wrapped(&names, &wrapping())).expect("UTF-8")
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let changed = wrapped(text);
    assert_eq!(changed, expected);
    let again = file(&changed);
    let names: Vec<String> = again.servers().iter().map(|it| it.name.clone()).collect();
    assert!(again.servers().iter().all(|it| matches!(it.kind, ServerKind::Wrapped(_))));
    assert_eq!(again.wrapped(&names, &wrapping()), changed.as_bytes(), "twice is once");
    if text.contains("args") {
        assert_eq!(String::from_utf8_lossy(&again.unwrapped(&names)), text, "and back again");
    }
}

#[test]
fn an_entry_is_wrapped_in_the_form_in_which_it_is_written() {
    // Promise: command and arguments change, and not one other byte; and it can be taken back.
    check(
        r#"{"mcpServers":{"m":{"command":"npx","args":["-y","x"],"env":{"K":"v"}}}}"#,
        r#"{"mcpServers":{"m":{"command":"counterfoil","args":["wrap","--name","m-1a2b3c","--","npx","-y","x"],"env":{"K":"v"}}}}"#,
    );
    check(
        "{\n  // mine\n  \"servers\": {\n    \"a b\": {\n      \"args\": [\n        \"-m\", // two\n        \"x\",\n      ],\n      \"command\" : \"py\\u0074hon\", },\n  },\n}\n",
        "{\n  // mine\n  \"servers\": {\n    \"a b\": {\n      \"args\": [\n        \"wrap\",\n        \"--name\",\n        \"a-b-1a2b3c\",\n        \"--\",\n        \"py\\u0074hon\",\n        \"-m\", // two\n        \"x\",\n      ],\n      \"command\" : \"counterfoil\", },\n  },\n}\n",
    );
    check(
        "\u{feff}{\"mcp\": {\"servers\": {\"m\": {\"command\": \"srv\", \"args\": []}}}}",
        "\u{feff}{\"mcp\": {\"servers\": {\"m\": {\"command\": \"counterfoil\", \"args\": [\"wrap\", \"--name\", \"m-1a2b3c\", \"--\", \"srv\"]}}}}",
    );
    check(
        "{\"mcpServers\": {\"m\": {\n\t\"command\": \"srv\"\n}}}",
        "{\"mcpServers\": {\"m\": {\n\t\"command\": \"counterfoil\",\n\t\"args\": [\"wrap\", \"--name\", \"m-1a2b3c\", \"--\", \"srv\"]\n}}}",
    );
    check(
        "{\"mcpServers\": {\"m\": {\"args\": [\n  \"x\"\n], \"command\": \"srv\"}}}",
        "{\"mcpServers\": {\"m\": {\"args\": [\n  \"wrap\",\n  \"--name\",\n  \"m-1a2b3c\",\n  \"--\",\n  \"srv\",\n  \"x\"\n], \"command\": \"counterfoil\"}}}",
    );
}

#[test]
fn a_known_package_brings_its_preset() {
    // Promise: a preset is named where one of ours was tested with the server.
    let text = r#"{"mcpServers":{"kg":{"command":"npx","args":["-y","@modelcontextprotocol/server-memory@latest"]},"g":{"command":"uvx","args":["mcp-server-git","--repository","/r"]}}}"#;
    let changed = wrapped(text);
    assert!(
        changed.contains(r#""--name","kg-1a2b3c","--preset","memory","--","npx","-y""#),
        "{changed}"
    );
    assert!(changed.contains(r#""--name","g-1a2b3c","--preset","git","--","uvx""#), "{changed}");
    let file = file(text);
    let plain = Wrapping { uses_presets: false, ..wrapping() };
    let changed = file.wrapped(&["kg".into()], &plain);
    assert!(!String::from_utf8_lossy(&changed).contains("--preset"));
    assert!(
        String::from_utf8_lossy(&changed).contains(r#""command":"uvx""#),
        "only what was picked"
    );
}

#[test]
fn what_cannot_be_wrapped_is_left() {
    // Promise: servers over HTTP, wrapped ones and unclear ones stay as they are.
    for (entry, expected) in [
        (r#"{"url":"https://x.test/mcp"}"#, "Remote"),
        (r#"{"type":"http","url":"https://x.test/mcp","headers":{}}"#, "Remote"),
        (r#"{"command":"/opt/counterfoil","args":["wrap","--","npx"]}"#, "Wrapped"),
        (r#"{"command":"counterfoil","args":["serve","--stdio"]}"#, "Ours"),
        (r#"{"command":"/opt/counterfoil","args":["serve"]}"#, "Ours"),
        (r#"{"command":"counterfoil","args":["wrap","--"]}"#, "Ours"),
        (r#"{"command":"counterfoil-other","args":["serve"]}"#, "Command"),
        (r#"{"command":["npx"]}"#, "Unclear"),
        (r#"{"command":"npx","args":"-y"}"#, "Unclear"),
        (r#"{"command":"npx","args":["-y",1]}"#, "Unclear"),
        (r#"{"command":"npx","command":"npx"}"#, "Unclear"),
        ("7", "Unclear"),
    ] {
        let text = format!("{{\"mcpServers\":{{\"m\":{entry}}}}}");
        let file = file(&text);
        let kind = format!("{:?}", file.servers()[0].kind);
        assert!(kind.starts_with(expected), "{entry}: {kind}");
        if expected != "Command" {
            assert_eq!(file.wrapped(&["m".into()], &wrapping()), text.as_bytes());
        }
    }
}

#[test]
fn a_file_that_is_none_of_a_client_is_refused() {
    // Promise: nothing is guessed about a file, and no value of it is shown.
    for (text, words) in [
        ("{\"mcpServers\":{\"m\":{\"command\":\"s3cret\"}}", "line 1, column"),
        ("{}", "no MCP servers"),
        ("[]", "no MCP servers"),
        (r#"{"mcpServers":[]}"#, "no MCP servers"),
        (r#"{"mcpServers":{"m":{},"\u006d":{}}}"#, "m stands in the file twice"),
        ("", "no JSON"),
    ] {
        let error = ClientFile::read(text.as_bytes().to_vec()).expect_err(text).to_string();
        assert!(error.contains(words) && !error.contains("s3cret"), "{error}");
    }
}

#[test]
fn two_servers_never_get_one_key() {
    // Promise: two servers of one client do not meet on the ledger.
    let text =
        r#"{"mcpServers":{"a b":{"command":"x"},"a/b":{"command":"y"},"a.b":{"command":"z"}}}"#;
    let changed = wrapped(text);
    for key in ["\"a-b-1a2b3c\"", "\"a-b-2-1a2b3c\"", "\"a.b-1a2b3c\""] {
        assert_eq!(changed.matches(&format!("\"--name\", {key}")).count(), 1, "{changed}");
    }
}
