//! `counterfoil connector` of the real binary.

mod command;

use std::fs;

use command::Bench;
use serde_json::Value;

fn shipped(name: &str) -> String {
    format!("{}/../../connectors/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect(text)
}

#[test]
fn the_exact_request_is_shown_with_its_secret_masked() {
    // Promise: what would be sent can be read before anything is, and no secret with it.
    let bench = Bench::new().with_env("ROUNDUP_PASSWORD", "s3cret");
    let file = shipped("roundup");
    let args = [
        "connector",
        "test",
        "roundup",
        "--file",
        &file,
        "--args",
        r#"{"title":"printer"}"#,
        "--operation-id",
        "op-1",
    ];
    let shown = bench.run(&args).done();
    for words in [
        "POST https://tracker.example.test/rest/data/issue\n",
        "authorization: Basic ********\n",
        "{\"title\":\"printer [cf",
        "GET https://tracker.example.test/rest/data/issue?title=cf",
        "contract: lookup",
    ] {
        assert!(shown.stdout.contains(words), "{words}\n{}", shown.stdout);
    }
    assert!(shown.stderr.contains("nothing was sent"), "{}", shown.stderr);
    assert!(!format!("{shown:?}").contains("s3cret"));
    let told = bench.run(&[&args[..], &["--json"]].concat()).done();
    assert_eq!(told.stderr, "");
    let told = json(&told.stdout);
    assert_eq!((&told["sent"], &told["keysAreExamples"]), (&false.into(), &true.into()));
    assert_eq!(told["request"]["method"], "POST");
    assert!(!bench.data("").exists(), "nothing is made");

    let slack = shipped("slack-webhook");
    let args =
        ["connector", "test", "slack-webhook", "--file", &slack, "--args", r#"{"text":"<!here>"}"#];
    let shown = bench.run(&args).done();
    assert!(shown.stdout.starts_with("POST https://hooks.slack.com/services/********\n"));
    assert!(shown.stdout.contains("{\"text\":\"&lt;!here&gt;\"}"), "{}", shown.stdout);
    assert!(shown.stderr.contains("no secret in environment variable SLACK_WEBHOOK_PATH"));
}

#[test]
fn a_bad_connector_or_argument_is_refused_with_exit_code_2() {
    // Promise: mistakes are the caller's to correct, each with its place.
    let bench = Bench::new();
    let file = bench.data("").with_file_name("bad.toml");
    fs::write(&file, "[connector.desk]\nurl = \"ftp://x/\"\n").expect("written");
    let path = file.to_str().expect("UTF-8");
    let refused = bench.run(&["connector", "check", path]).failed(2);
    assert!(refused.stderr.contains("bad.toml:2:7: connector.desk.url"), "{}", refused.stderr);
    let told = bench.run(&["connector", "check", path, "--json"]);
    assert_eq!((told.code, json(&told.stdout)["usable"].clone()), (Some(2), false.into()));
    let roundup = shipped("roundup");
    let test = |name: &str, args: &str| {
        bench.run(&["connector", "test", name, "--file", &roundup, "--args", args]).failed(2).stderr
    };
    assert!(test("desk", "{}").contains("use one of roundup"));
    assert!(test("roundup", "{").contains("--args is no JSON"));
    assert!(test("roundup", r#"{"titel":"x"}"#).contains("did you mean `title`?"));
}

#[test]
fn connectors_are_found_through_the_configuration() {
    // Promise: tables in the configuration, files and directories are one list, checked with it.
    let bench = Bench::new();
    let file = bench.data("").with_file_name("given.toml");
    let dir = bench.data("").with_file_name("more");
    fs::create_dir(&dir).expect("made");
    fs::copy(shipped("github-issues"), dir.join("github.toml")).expect("copied");
    let slack = fs::read_to_string(shipped("slack-webhook")).expect("read");
    let roundup = shipped("roundup");
    fs::write(&file, format!("connectors = [\"more\", \"{roundup}\"]\n{slack}")).expect("written");
    let path = file.to_str().expect("UTF-8");
    let list = bench.run(&["connector", "list", "--config", path, "--json"]).done();
    let names: Vec<String> = json(&list.stdout)
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| it["name"].as_str().expect("a name").to_owned())
        .collect();
    assert_eq!(names, ["github-issues", "roundup", "slack-webhook"]);
    let table = bench.run(&["connector", "list", "--config", path]).done().stdout;
    assert_eq!(table.lines().count(), 4, "{table}");
    let shown = bench.run(&["config", "check", "--config", path]).done().stdout;
    assert!(shown.contains("connectors: github-issues, roundup, slack-webhook"), "{shown}");
    fs::write(&file, "lock_wait = \"soon\"\nconnectors = \"none.toml\"\n[connector.a]\n")
        .expect("written");
    let refused = bench.run(&["config", "check", "--config", path]).failed(2).stderr;
    for words in ["given.toml:1:13: lock_wait", "none.toml: the file", "connector.a.url"] {
        assert!(refused.contains(words), "{words}\n{refused}");
    }
}

#[test]
fn the_readmes_connector_can_be_used_as_it_stands() {
    // Promise: who copies the README's example has a connector that works.
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let readme = fs::read_to_string(readme).expect("the README is there");
    let (_, tutorial) = readme.split_once("## Put it in front").expect("the tutorial");
    let (_, example) = tutorial.split_once("```toml\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let bench = Bench::new().with_env("HELPDESK_TOKEN", "try-me");
    let file = bench.data("").with_file_name("counterfoil.toml");
    fs::write(&file, example).expect("written");
    let path = file.to_str().expect("UTF-8");
    let checked = bench.run(&["connector", "check", "--config", path]).done();
    assert!(checked.stdout.contains("1 connector"), "{checked:?}");
    let texts = r#"{"subject": "Export fails", "description": "At row 9."}"#;
    let test = ["connector", "test", "helpdesk", "--config", path, "--args", texts];
    let shown = bench.run(&test).done().stdout;
    for words in ["POST http://127.0.0.1:9000/tickets\n", "authorization: Bearer ********\n"] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
}

#[test]
fn several_files_are_checked_as_one_configuration() {
    // Promise: a shell's pattern works, every file is read, and what they claim twice is told.
    let bench = Bench::new();
    let files = ["roundup", "github-issues", "slack-webhook"].map(shipped);
    let [roundup, github, slack] = files.each_ref().map(String::as_str);
    let all = bench.run(&["connector", "check", roundup, github, slack]).done();
    assert_eq!(all.stdout, "3 connectors can be used\n");
    let twice = bench.run(&["connector", "check", roundup, github, roundup]).failed(2);
    assert!(twice.stderr.contains("roundup.toml"), "{twice:?}");
    let absent = bench.run(&["connector", "check", roundup, "/nowhere.toml"]).failed(2);
    assert!(absent.stderr.contains("/nowhere.toml"), "{absent:?}");
}
