//! The `key` commands of the real binary, and the settings and directories that refuse it.

mod command;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use command::Bench;

#[test]
fn keys_are_generated_listed_and_activated() {
    // Promise: a key is made private, becomes active only when told, and is never shown.
    let bench = Bench::new();
    let first = bench.run(&["key", "generate"]).done();
    assert_eq!(first.stdout, format!("{}\n", bench.data("keys/1.key").display()));
    assert!(first.stderr.contains("first key and is active"), "{}", first.stderr);
    let second = bench.run(&["key", "generate", "--json"]).done();
    assert_eq!(second.stderr, "");
    let json: serde_json::Value = serde_json::from_str(&second.stdout).expect("JSON");
    assert_eq!((&json["id"], &json["active"]), (&2.into(), &false.into()));
    let third = bench.run(&["key", "generate", "--id", "2"]).failed(1);
    assert!(third.stderr.contains("never replaced"), "{}", third.stderr);
    bench.run(&["key", "activate", "2"]).done();
    let listed = bench.run(&["key", "list"]).done();
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert!(lines[0].starts_with("KEY   ACTIVE  CHECK"), "{}", listed.stdout);
    assert!(lines[1].starts_with("1             "), "{}", listed.stdout);
    assert!(lines[2].starts_with("2     yes     "), "{}", listed.stdout);
    let key = fs::read_to_string(bench.data("keys/1.key")).expect("read");
    assert!(!listed.stdout.contains(&key[..8]));
    let activated = bench.run(&["key", "activate", "7"]).failed(1);
    assert!(activated.stderr.contains("7.key does not exist"), "{}", activated.stderr);
}

#[test]
fn bad_key_files_are_refused_with_the_command_that_mends_them() {
    // Promise: keys that are too short or that others can read stop every command that uses them.
    let bench = Bench::new();
    bench.run(&["key", "generate"]).done();
    let file = bench.data("keys/1.key");
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
    mode(0o644);
    let exposed = bench.run(&["key", "list"]).failed(1);
    assert!(
        exposed.stderr.contains(&format!("chmod 600 {}", file.display())),
        "{}",
        exposed.stderr
    );
    mode(0o600);
    fs::write(&file, "00ff").expect("written");
    let short = bench.run(&["key", "list"]).failed(1);
    assert!(short.stderr.contains("2 bytes; it needs at least 32"), "{}", short.stderr);
    fs::remove_file(&file).expect("removed");
    let none = bench.run(&["key", "list"]).failed(1);
    assert!(none.stderr.contains("run `counterfoil key generate`"), "{}", none.stderr);
}

#[test]
fn every_bad_setting_is_named_before_anything_is_made() {
    // Promise: deadlines that are not finite, and all other bad settings, stop a command at once.
    let bench = Bench::new();
    bench.make_data_dir();
    fs::write(
        bench.data("counterfoil.toml"),
        "lock_wiat = 1\n[lifetimes]\nstate = nan\nauthority = inf\nretention = 0\n",
    )
    .expect("written");
    let refused = bench.run(&["key", "generate"]).failed(2);
    assert_eq!(refused.stdout, "");
    for words in [
        "error: 4 settings cannot be used",
        "counterfoil.toml:1:1: lock_wiat = 1: there is no such setting; use lock_wait",
        "counterfoil.toml:3:9: lifetimes.state = nan: a time span must be finite",
        "counterfoil.toml:4:13: lifetimes.authority = inf: a time span must be finite",
        "counterfoil.toml:5:13: lifetimes.retention = 0: a lifetime is at least 1 ms",
    ] {
        assert!(refused.stderr.contains(words), "{words}\n{}", refused.stderr);
    }
    assert!(!bench.data("keys").exists());
}

#[test]
fn directories_that_cannot_hold_a_ledger_are_refused() {
    // Promise: a file, a read-only directory or an absent one is named with the remedy.
    let bench = Bench::new();
    let absent = bench.run(&["key", "list"]).failed(1);
    assert!(absent.stderr.contains("there is no data directory"), "{}", absent.stderr);
    assert!(!bench.data("").exists());
    fs::write(bench.data(""), "a file").expect("written");
    let file = bench.run(&["key", "generate"]).failed(1);
    assert!(file.stderr.contains("is not a directory"), "{}", file.stderr);
    let read_only = bench.in_dir(Path::new("/proc/self")).run(&["key", "generate"]).failed(1);
    assert!(read_only.stderr.contains("cannot be written"), "{}", read_only.stderr);
}

#[test]
fn directories_that_others_can_change_are_refused() {
    // Promise: whoever shares a directory with others is told so, by every command that uses it.
    let bench = Bench::new();
    bench.run(&["key", "generate"]).done();
    for dir in [bench.data(""), bench.data("keys")] {
        let mode = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("set");
        for shared in [0o777, 0o770] {
            mode(shared);
            for arguments in [&["serve", "--stdio"][..], &["key", "list"], &["key", "generate"]] {
                let refused = bench.run(arguments).failed(1);
                let remedy = format!("chmod 700 {}", dir.display());
                assert!(refused.stderr.contains(&remedy), "{arguments:?} {}", refused.stderr);
            }
        }
        for private in [0o755, 0o700] {
            mode(private);
            bench.run(&["key", "list"]).done();
        }
    }
}

#[test]
fn a_directory_without_write_permission_is_refused() {
    // Promise: wrong permissions are told as such, to a user whom they bind.
    let bench = Bench::new();
    let dir = bench.data("");
    bench.make_data_dir();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o555)).expect("set");
    let refused = bench.run_unprivileged(&["key", "generate"]).failed(1);
    assert!(refused.stderr.contains("cannot be written"), "{}", refused.stderr);
    assert!(refused.stderr.contains("correct its owner, its mode"), "{}", refused.stderr);
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    // Promise: `counterfoil ... | head` neither panics nor fails.
    let bench = Bench::new();
    bench.run(&["key", "generate"]).done();
    for arguments in [
        &["key", "list"][..],
        &["--help"],
        &["key", "list", "--json"],
        &["config", "check"],
        &["completions", "bash"],
    ] {
        let ended = bench.run_with_closed_stdout(arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_bad_log_filter_is_a_usage_error() {
    // Promise: a misspelt filter is refused, from the flag and from the environment.
    let bench = Bench::new();
    let refused = bench.run(&["key", "list", "--log", "counterfoil=loud"]).failed(2);
    assert!(refused.stderr.contains("`counterfoil=loud`"), "{}", refused.stderr);
    let bench = bench.with_env("COUNTERFOIL_LOG", "x=y=z");
    assert!(bench.run(&["key", "list"]).failed(2).stderr.contains("`x=y=z`"));
}
