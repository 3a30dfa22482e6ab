//! Data directories with which the product's own binary must not start: it says why and what to
//! do, prints nothing on stdout, and leaves the ledger as it is.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Bench, SmallDisk, check_raw_applied, product, product_server};
use counterfoil_lab::process::Ended;
use counterfoil_lab::raw::RawClient;
use serde_json::json;

/// What is done to a directory in which a server has written one operation.
struct Damage {
    what: &'static str,
    does: fn(&Path),
    flags: &'static [&'static str],
    /// The cause and the remedy.
    words: [&'static str; 2],
}

fn sql(dir: &Path, statement: &str) {
    let ledger = rusqlite::Connection::open(dir.join("ledger.db")).expect("it opens");
    ledger.execute_batch(statement).expect("a statement of the test's");
}

fn truncate(dir: &Path, part: u64, whole: u64) {
    let file = fs::OpenOptions::new().write(true).open(dir.join("ledger.db")).expect("it opens");
    let length = file.metadata().expect("metadata").len();
    file.set_len(length * part / whole).expect("it can be cut");
}

fn overwrite(dir: &Path, from: usize) {
    let path = dir.join("ledger.db");
    let mut bytes = fs::read(&path).expect("it can be read");
    bytes[from..].fill(0xa5);
    fs::write(path, bytes).expect("it can be written");
}

fn damages() -> Vec<Damage> {
    let damage = |what, words, does| Damage { what, does, flags: &[], words };
    let left = "it was left as it is";
    vec![
        Damage {
            what: "another backend",
            does: |_| {},
            flags: &["--backend-id", "other"],
            words: ["belongs to the backend `mine`, not `other`", "give the right backend ID"],
        },
        damage("cut in half", ["is damaged", left], |dir| truncate(dir, 1, 2)),
        damage("cut to nothing", ["is damaged", left], |dir| truncate(dir, 0, 1)),
        damage("noise", ["is damaged", left], |dir| overwrite(dir, 0)),
        damage("noise after the first page", ["is damaged", left], |dir| overwrite(dir, 4096)),
        damage("another program's database", ["is not a ledger", left], |dir| {
            fs::remove_file(dir.join("ledger.db")).expect("it is there");
            sql(dir, "CREATE TABLE notes (note TEXT)");
        }),
        damage(
            "of a newer program",
            ["needs a binary that knows version 99", "use a newer"],
            |dir| {
                sql(dir, "UPDATE ledger SET version = 99, min_compatible = 99");
            },
        ),
        damage("a directory in its place", ["ledger.db", "file"], |dir| {
            fs::remove_file(dir.join("ledger.db")).expect("it is there");
            fs::create_dir(dir.join("ledger.db")).expect("a directory");
        }),
        damage("a key that is too short", ["needs at least 32", "restore the file"], |dir| {
            fs::write(dir.join("keys/1.key"), "00ff00ff\n").expect("it can be written");
        }),
        damage("a key that others can read", ["can be read", "chmod 600"], |dir| {
            let others = fs::Permissions::from_mode(0o644);
            fs::set_permissions(dir.join("keys/1.key"), others).expect("it is ours");
        }),
        damage("no keys and operations", ["cannot be generated again", "restore"], |dir| {
            fs::remove_dir_all(dir.join("keys")).expect("they are there");
        }),
        damage(
            "another key",
            ["is not the key that this ledger was used with", "restore"],
            |dir| {
                fs::write(dir.join("keys/1.key"), "ab".repeat(32)).expect("it can be written");
            },
        ),
    ]
}

/// A directory in which one operation is recorded, under the backend `mine`.
async fn used_directory(bench: &Bench) -> std::path::PathBuf {
    let dir = bench.path("data");
    let launch = product_server(&dir, &["--backend-id", "mine"]);
    let mut client = RawClient::start(&launch).await.expect("it starts");
    let arguments = json!({ "operation_id": "k", "title": "t", "body": "b" });
    check_raw_applied(&client.call("create_issue", &arguments).await.expect("a reply"), false);
    assert_eq!(client.close().await.expect("it ends"), Ended::Code(0));
    dir
}

/// Starts the product's server without a client and checks that it refuses.
#[track_caller]
fn check_refuses(what: &str, dir: &Path, flags: &[&str], words: &[&str]) {
    let output = Command::new(product())
        .args(["serve", "--stdio", "--data-dir"])
        .arg(dir)
        .args(flags)
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let code = output.status.code();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"", "{what}");

    assert!(code == Some(1) || code == Some(2), "{what}: {code:?}: {stderr}");
    for word in words {
        assert!(stderr.contains(word), "{what}: no `{word}` in: {stderr}");
    }
    assert!(!stderr.contains("panicked") && !stderr.contains("internal error"), "{stderr}");
}

#[tokio::test]
async fn a_directory_that_cannot_be_trusted_is_refused_and_left() {
    // Promise: a damaged, foreign or keyless ledger is never opened, repaired or replaced: the
    // message names the file, the cause and the remedy.
    for damage in damages() {
        let bench = Bench::new("refuses-to-start");
        let dir = used_directory(&bench).await;
        (damage.does)(&dir);
        let before = fs::read(dir.join("ledger.db")).ok();
        check_refuses(damage.what, &dir, damage.flags, &damage.words);
        assert_eq!(fs::read(dir.join("ledger.db")).ok(), before, "{}", damage.what);
    }
}

#[tokio::test]
async fn a_disk_that_takes_nothing_is_refused() {
    // Promise: a read-only and a full file system are named as such, before anything is served.
    let bench = Bench::new("refuses-disk");
    let Some(disk) = SmallDisk::mount(bench.path("small")) else { return };
    let filler = disk.fill();
    check_refuses("full", &bench.path("small/data"), &[], &["full"]);
    fs::remove_file(filler).expect("the filler is there");
    disk.seal();
    check_refuses("read-only", &bench.path("small/data"), &[], &["small/data", "--data-dir"]);
}
