//! `counterfoil config check`, `completions` and `--version` of the real binary.

mod command;

use std::fs;
use std::process::{Command, Stdio};

use command::Bench;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect(text)
}

#[test]
fn the_settings_in_force_are_shown_with_their_sources() {
    // Promise: `config check` tells what `serve` would run with, and makes nothing.
    let bench = Bench::new().with_env("COUNTERFOIL_PRINCIPAL", "alice");
    let shown = bench.run(&["config", "check", "--drain", "5s"]).done();
    let line = |name: &str| -> Vec<String> {
        let line = shown.stdout.lines().find(|line| line.starts_with(name)).expect(name);
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(line("SETTING"), ["SETTING", "VALUE", "SOURCE"]);
    assert_eq!(line("principal"), ["principal", "alice", "environment:", "COUNTERFOIL_PRINCIPAL"]);
    assert_eq!(line("drain"), ["drain", "5s", "command", "line:", "--drain"]);
    assert_eq!(line("lifetimes.retention"), ["lifetimes.retention", "30d", "default"]);
    assert_eq!(line("backend_id"), ["backend_id", "-", "default"]);
    assert_eq!(line("file:"), ["file:", "none"]);
    assert!(!bench.data("").exists());

    bench.make_data_dir();
    let file = bench.data("counterfoil.toml");
    fs::write(&file, "store = \"sqlite\"\n").expect("written");
    let shown = json(&bench.run(&["config", "check", "--json"]).done().stdout);
    assert_eq!(shown["file"], file.to_str().expect("UTF-8"));
    let settings = shown["settings"].as_array().expect("a list");
    let store = settings.iter().find(|setting| setting["name"] == "store").expect("the store");
    let place = format!("{}:1", file.display());
    assert_eq!((&store["value"], &store["source"]), (&"sqlite".into(), &"file".into()));
    assert_eq!(store["place"], place);
}

#[test]
fn every_mistake_is_told_at_once() {
    // Promise: one check names all that is wrong, to people and to programs, with exit code 2.
    let bench = Bench::new().with_env("COUNTERFOIL_DRIAN", "1");
    let file = bench.data("").with_file_name("given.toml");
    fs::write(&file, "lock_wait = \"soon\"\n[lifetimes]\nstate = nan\n").expect("written");
    let path = file.to_str().expect("UTF-8");
    let refused = bench.run(&["config", "check", "--config", path, "--store", "x"]).failed(2);
    assert_eq!(refused.stdout, "");
    let told: Vec<&str> = refused.stderr.lines().collect();
    assert_eq!(told.len(), 5, "{}", refused.stderr);
    assert_eq!(told[0], "error: 4 settings cannot be used");
    for (line, words) in told[1..].iter().zip([
        "given.toml:1:13: lock_wait",
        "given.toml:3:9: lifetimes.state",
        "use COUNTERFOIL_DRAIN",
        "command line: --store",
    ]) {
        assert!(line.contains(words), "{words}\n{line}");
    }
    let ended = bench.run(&["config", "check", "--config", path, "--json"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), ""));
    let told = json(&ended.stdout);
    assert_eq!(told["usable"], false);
    assert_eq!(told["problems"].as_array().map(Vec::len), Some(3), "{told}");
}

#[test]
fn lifetimes_that_hardly_are_meant_are_warned_of() {
    // Promise: a combination that is allowed and surprising is told once, and stops nothing.
    let bench = Bench::new().with_env("COUNTERFOIL_LIFETIMES_STATE", "2h");
    for arguments in [&["config", "check"][..], &["serve", "--stdio"]] {
        let told = bench.run(arguments).done().stderr;
        assert_eq!(told.matches("warning: ").count(), 1, "{told}");
        assert!(told.contains("lifetimes.state (2h) is longer than lifetimes.authority (1h)"));
    }
    let told = bench.run(&["config", "check", "--json", "--lifetimes-retention", "1h"]).done();
    assert_eq!(told.stderr, "");
    assert_eq!(json(&told.stdout)["warnings"].as_array().map(Vec::len), Some(1));
    let told = bench.run(&["config", "check", "--lifetimes-state", "1h"]).done();
    assert_eq!(told.stderr, "");
}

#[test]
fn settings_that_lead_nowhere_are_no_good_settings() {
    // Promise: where nothing says where the ledger is, the check says so, as a start would.
    let nowhere = |bench: Bench| {
        bench
            .with_env("COUNTERFOIL_DATA_DIR", "")
            .with_env("HOME", "")
            .with_env("XDG_DATA_HOME", "")
    };
    let empty = nowhere(Bench::new()).run(&["config", "check"]).failed(2);
    assert!(empty.stderr.contains("the path is empty"), "{}", empty.stderr);
    let lost = nowhere(Bench::new()).without_env("COUNTERFOIL_DATA_DIR");
    let refused = lost.run(&["config", "check"]).failed(2);
    assert!(refused.stderr.contains("no data directory"), "{}", refused.stderr);
    let memory = lost.run(&["config", "check", "--store", "memory"]).done();
    assert!(memory.stdout.contains("data_dir"), "{}", memory.stdout);
}

#[test]
fn each_shell_gets_a_script_that_completes_what_is_shown() {
    // Promise: completion offers every command, and nothing that is hidden.
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = bench.run(&["completions", shell]).done().stdout;
        for word in ["operation", "fingerprint", "completions", "unsettled", "lifetimes-state"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("demo-child"), "{shell}");
    }
    let script = bench.run(&["completions", "bash"]).done().stdout;
    let complete = "\nCOMP_WORDS=(counterfoil operation re); COMP_CWORD=2\n\
                    _counterfoil counterfoil re operation; echo \"${COMPREPLY[@]}\"";
    let bash = Command::new("bash")
        .args(["--norc", "-c", &(script + complete)])
        .stdin(Stdio::null())
        .output();
    match bash {
        Ok(output) => {
            assert_eq!(String::from_utf8_lossy(&output.stdout), "resolve\n", "{output:?}")
        }
        Err(error) => eprintln!("NOT RUN: no bash to try the script in: {error}"),
    }
}

#[test]
fn the_version_has_a_short_and_a_long_form() {
    // Promise: a report of a problem can name the build, and a script can read the version alone.
    let bench = Bench::new();
    let number = env!("CARGO_PKG_VERSION");
    let short = bench.run(&["-V"]).done().stdout;
    assert_eq!(short, format!("counterfoil {number}\n"));
    let long = bench.run(&["--version"]).done().stdout;
    let names: Vec<&str> =
        long.lines().map(|line| line.split(' ').next().expect("a word")).collect();
    let expected =
        ["counterfoil", "commit", "target", "profile", "compiler", "sqlite", "schema", "mcp"];
    assert_eq!(names, expected);
    assert_eq!(long.lines().next(), Some(short.trim_end()));
    assert!(long.contains("2025-06-18, 2025-11-25, 2026-07-28"), "{long}");
    assert!(long.contains("rustc 1."), "{long}");
}

#[test]
fn mistakes_about_wrapped_servers_are_told_too() {
    // Promise: the table [wrap] is checked before a client starts a server by it.
    let bench = Bench::new();
    let file = bench.data("").with_file_name("given.toml");
    let path = file.to_str().expect("UTF-8");
    fs::write(&file, "[wrap]\nname = \"memory\"\n[wrap.tools.a]\neffect = \"read\"\n")
        .expect("written");
    bench.run(&["config", "check", "--config", path]).done();
    fs::write(&file, "drian = 1\n[wrap]\nmissing_id = \"no\"\n").expect("written");
    let refused = bench.run(&["config", "check", "--config", path]).failed(2);
    for words in
        ["2 settings cannot be used", "given.toml:1:1: drian", "given.toml:3:14: wrap.missing_id"]
    {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
}
