//! Evidence: what `matrix` writes, and that `verify` takes nothing else. One run is made for all
//! tests; each damages a copy of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use counterfoil_lab::cases::Suite;
use counterfoil_lab::evidence::exchange;
use counterfoil_lab::evidence::judge::{Cell, judge};
use counterfoil_lab::evidence::verify::verify;
use counterfoil_lab::readback::Rows;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

const LAB: &str = env!("CARGO_BIN_EXE_counterfoil-lab");

/// A bundle of the twelve cases and one of the controls, made by the command.
struct Made {
    folder: TempDir,
    outputs: [Output; 2],
}

impl Made {
    fn path(&self, suite: Suite) -> PathBuf {
        self.folder.path().join(suite.as_str())
    }
}

static MADE: LazyLock<Made> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let outputs = [Suite::Cases, Suite::Controls].map(|suite| {
        let out = folder.path().join(suite.as_str());
        let mut command = Command::new(LAB);
        command.args(["matrix", "--sdk", "rust", "--json", "--out"]).arg(out);
        if suite == Suite::Controls {
            command.arg("--unguarded");
        }
        command.output().expect("the lab runs")
    });
    Made { folder, outputs }
});

fn cases() -> PathBuf {
    MADE.path(Suite::Cases)
}

/// A copy to damage.
struct Copied(TempDir);

impl Copied {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for path in files(&cases()) {
            let to = folder.path().join(&path);
            fs::create_dir_all(to.parent().expect("in a folder")).expect("a folder");
            fs::copy(cases().join(&path), to).expect("copied");
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Edits a file of JSON.
    fn edit(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let path = self.path(name);
        let mut value = serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
        edit(&mut value);
        fs::write(path, format!("{value:#}\n")).expect("written");
    }

    /// Makes the digests anew, as a forger would.
    fn sign_anew(&self) {
        let mut list = String::new();
        for path in files(self.0.path()).iter().filter(|path| *path != "SHA256SUMS") {
            let digest = Sha256::digest(fs::read(self.path(path)).expect("read"));
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            list.push_str(&format!("{digest}  {path}\n"));
        }
        fs::write(self.path("SHA256SUMS"), list).expect("written");
    }

    /// That it is refused, and in which words.
    #[track_caller]
    fn check_refused(&self, what: &str, words: &str) {
        let error = verify(self.0.path()).expect_err(what);
        let said = format!("{error:#}");
        assert!(said.contains(words), "{what}: {said}");
    }
}

/// All files of a tree, sorted.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder").map(|entry| entry.expect("an entry")) {
            if entry.file_type().expect("a type").is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry.path();
                let path = path.strip_prefix(folder).expect("below").to_str().expect("UTF-8");
                found.push(path.to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_run_leaves_a_bundle_that_can_be_checked_alone() {
    // Promise: twelve of twelve over both transports, and every control duplicates; what was asked
    // is what ran; the verifier finds the same, with nothing but the files.
    for (suite, output) in [Suite::Cases, Suite::Controls].into_iter().zip(&MADE.outputs) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        let count = 2 * suite.cases().len();
        assert_eq!(report["passedCount"], count);
        assert_eq!(report["results"].as_array().map(Vec::len), Some(count));
        let progress = String::from_utf8_lossy(&output.stderr);
        assert!(progress.contains(&format!("[{count}/{count}]")), "{progress}");
        let findings = verify(&MADE.path(suite)).expect("intact");
        assert_eq!((findings.cells_count, findings.passed_count), (count, count));
        assert_eq!(report["digest"], findings.digest);
        let verified = Command::new(LAB)
            .args(["verify", "--read-back", "--digest", &findings.digest])
            .arg(MADE.path(suite))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .output()
            .expect("the lab runs");
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    }
    let again = Command::new(LAB).args(["matrix", "--sdk", "rust", "--out"]).arg(cases()).output();
    let again = again.expect("the lab runs");
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && said.contains("exists"), "never overwritten: {said}");
    let other = ["verify", "--digest", "00"];
    let other = Command::new(LAB).args(other).arg(cases()).output().expect("the lab runs");
    assert_eq!(other.status.code(), Some(1), "another run's digest is refused");
}

#[test]
fn cells_that_cannot_run_are_the_machinerys_error_and_no_pass() {
    // Promise: what is missing is a verdict of its own, in words; such a run fails, and its bundle
    // is whole and says so.
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("bundle");
    let run = Command::new(LAB)
        .args(["matrix", "--sdk", "typescript", "--transport", "stdio", "--out"])
        .arg(&out)
        .env("PATH", "/nonexistent")
        .output()
        .expect("the lab runs");
    assert_eq!(run.status.code(), Some(1), "{}", String::from_utf8_lossy(&run.stderr));
    let table = String::from_utf8_lossy(&run.stdout);
    assert!(table.contains("0 of 12 passed"), "{table}");
    let findings = verify(&out).expect("whole");
    assert_eq!((findings.passed_count, findings.not_passed.len()), (0, 12));
    for line in &findings.not_passed {
        assert!(line.contains("machinery_error: the cell was not run"), "{line}");
    }
    let verified = Command::new(LAB).arg("verify").arg(&out).output().expect("the lab runs");
    assert_eq!(verified.status.code(), Some(3));
}

#[test]
fn no_secret_is_in_a_bundle() {
    // Promise: of sealed states, tokens and keys there are markers at most.
    for path in files(&cases()) {
        let bytes = fs::read(cases().join(&path)).expect("read");
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("cf1."), "a sealed state is in {path}");
        assert!(!text.contains("cf_"), "a token is in {path}");
        assert!(!path.contains("key") && !path.contains("token"), "{path}");
    }
    let case = fs::read_to_string(cases().join("cells/rust/http/01/transcripts/01-alice.jsonl"));
    assert!(case.expect("a transcript").contains("[redacted state 1]"), "markers are left");
}

#[test]
fn any_changed_byte_is_refused() {
    // Promise: one bit in any kind of file, the list of digests included, is seen.
    let all = files(&cases());
    let kind = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        if path.ends_with(".jsonl") { "transcript".to_owned() } else { name.to_owned() }
    };
    let kinds: BTreeSet<String> = all.iter().map(kind).collect();
    assert_eq!(kinds.len(), 7, "{kinds:?}");
    let copied = Copied::new();
    for wanted in &kinds {
        let path = all.iter().find(|path| kind(path) == *wanted).expect("one of each kind");
        let good = fs::read(copied.path(path)).expect("read");
        for at in [0, good.len() / 2, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(copied.path(path), bad).expect("written");
            copied.check_refused(&format!("{path} at {at}"), "");
        }
        for bad in [&good[..good.len() - 1], &[&good[..], b"\n"].concat(), b""] {
            fs::write(copied.path(path), bad).expect("written");
            copied.check_refused(&format!("{path} of another length"), "");
        }
        fs::write(copied.path(path), good).expect("written");
    }
    verify(copied.0.path()).expect("mended, it is good again");
}

const ONE: &str = "cells/rust/stdio/04";

#[test]
fn a_damaged_tree_is_refused_in_words() {
    // Promise: what is missing, added or put elsewhere is named.
    let check = |what: &str, words: &str, damage: &dyn Fn(&Copied)| {
        let copied = Copied::new();
        damage(&copied);
        copied.check_refused(what, words);
    };
    check("no digests", "there is no SHA256SUMS", &|it| {
        fs::remove_file(it.path("SHA256SUMS")).expect("removed");
    });
    check("a case missing", "is not there", &|it| {
        fs::remove_dir_all(it.path(ONE)).expect("removed");
    });
    check("a file added", "not in SHA256SUMS", &|it| {
        fs::write(it.path("cells/note.txt"), "x").expect("written");
    });
    check("a hash edited", "cells/rust/stdio/04", &|it| {
        let list = fs::read_to_string(it.path("SHA256SUMS")).expect("read");
        let line = list.lines().find(|line| line.contains(ONE)).expect("a line");
        let edited =
            line.replacen(|_: char| true, if line.starts_with('0') { "1" } else { "0" }, 1);
        fs::write(it.path("SHA256SUMS"), list.replace(line, &edited)).expect("written");
    });
    check("a line of the digests twice", "form", &|it| {
        let list = fs::read_to_string(it.path("SHA256SUMS")).expect("read");
        let line = list.lines().next().expect("a line").to_owned();
        fs::write(it.path("SHA256SUMS"), format!("{line}\n{list}")).expect("written");
    });
    check("a link", "neither a file nor a directory", &|it| {
        std::os::unix::fs::symlink("/etc/hostname", it.path("cells/link")).expect("a link");
    });
    check("no bundle", "there is no SHA256SUMS", &|it| {
        fs::remove_dir_all(it.0.path()).expect("removed");
        fs::create_dir(it.0.path()).expect("a folder");
    });
}

/// That damage is refused whose digests were made anew.
#[track_caller]
fn check_forged(what: &str, words: &str, damage: impl Fn(&Copied)) {
    let copied = Copied::new();
    damage(&copied);
    copied.sign_anew();
    copied.check_refused(what, words);
}

#[test]
fn a_forger_who_makes_the_digests_anew_cannot_change_the_sets() {
    // Promise: what was asked, what ran and what is there are held against each other.
    let drop_from = |list: &mut Value| {
        list.as_array_mut().expect("a list").retain(|cell| cell != "rust/stdio/04");
    };
    check_forged("a case missing", "rust/stdio/04", |it| {
        fs::remove_dir_all(it.path(ONE)).expect("removed");
    });
    check_forged("a case missing, and said not to have run", "were requested", |it| {
        fs::remove_dir_all(it.path(ONE)).expect("removed");
        it.edit("evidence.json", |all| drop_from(&mut all["ran"]));
    });
    check_forged("a case missing, and said not to have been asked for", "follow from what", |it| {
        fs::remove_dir_all(it.path(ONE)).expect("removed");
        it.edit("evidence.json", |all| {
            drop_from(&mut all["ran"]);
            drop_from(&mut all["requested"]);
        });
    });
    check_forged("a case added", "rust/stdio/13", |it| {
        fs::create_dir(it.path("cells/rust/stdio/13")).expect("a folder");
        let result = it.path("cells/rust/stdio/13/result.json");
        fs::copy(it.path(&format!("{ONE}/result.json")), result).expect("copied");
    });
    check_forged("a case under another name", "rust/stdio/04", |it| {
        fs::rename(it.path(ONE), it.path("cells/rust/stdio/13")).expect("renamed");
    });
    check_forged("nothing asked", "nothing was asked", |it| {
        it.edit("evidence.json", |all| all["sdks"] = json!([]));
    });
    check_forged("another format", "format", |it| {
        it.edit("evidence.json", |all| all["format"] = "counterfoil-evidence/2".into());
    });
    check_forged("another suite", "suite", |it| {
        it.edit("evidence.json", |all| all["suite"] = "nothing".into());
    });
    check_forged("something that is no part", "is no part of a bundle", |it| {
        fs::write(it.path(&format!("{ONE}/notes.txt")), "x").expect("written");
    });
}

#[test]
fn a_forger_who_makes_the_digests_anew_cannot_change_a_verdict() {
    // Promise: verdicts are derived from the files again.
    check_forged("a pass of a store that is gone", "store.db", |it| {
        fs::remove_file(it.path(&format!("{ONE}/store.db"))).expect("removed");
    });
    check_forged("a result edited to a failure", "gives no reason", |it| {
        it.edit(&format!("{ONE}/result.json"), |result| result["status"] = "fail".into());
    });
    check_forged("a result of another case", "has the result of", |it| {
        it.edit(&format!("{ONE}/result.json"), |result| result["cell"] = "rust/stdio/05".into());
    });
    check_forged("a second row", "do not show it", |it| {
        it.edit(&format!("{ONE}/facts.json"), |facts| {
            let issues = &mut facts["tables"]["issues"];
            let copy = issues["rows"][0].clone();
            issues["rows"].as_array_mut().expect("rows").push(copy);
            issues["count"] = 2.into();
        });
    });
    check_forged("another exit code", "do not show it", |it| {
        it.edit(&format!("{ONE}/servers.json"), |runs| runs[0]["exit"] = "1".into());
    });
    check_forged("a conflict that was an effect", "do not show it", |it| {
        let path = it.path(&format!("{ONE}/transcripts/01-alice.jsonl"));
        let text = fs::read_to_string(&path).expect("read");
        fs::write(path, text.replace("operation_conflict", "operation_xxxxxxxx")).expect("written");
    });
    check_forged("a transcript of somewhere else", "no name of a transcript", |it| {
        it.edit(&format!("{ONE}/servers.json"), |runs| {
            runs[0]["transcript"] = "../../05/transcripts/01-alice.jsonl".into();
        });
    });
    check_forged("a secret", "sealed state", |it| {
        let path = it.path(&format!("{ONE}/transcripts/01-alice.jsonl"));
        let text = fs::read_to_string(&path).expect("read");
        fs::write(path, text.replace("[redacted state 1]", "cf1.secret")).expect("written");
    });
}

#[test]
fn a_failed_cell_that_is_called_a_pass_is_refused() {
    // Promise: evidence of a failure cannot be made evidence of a pass by editing its verdict.
    let copied = Copied::new();
    copied.edit(&format!("{ONE}/facts.json"), |facts| {
        facts["tables"]["issues"] = json!({ "count": 0, "rows": [] });
    });
    let lack = "there are 0 issues and 1 operations, not 1 and 1";
    let verdict = |status: &str, words: &str| {
        copied.edit(&format!("{ONE}/result.json"), |result| {
            result["status"] = status.into();
            result["words"] = words.into();
            result["files_lack"] = lack.into();
        });
        copied.sign_anew();
    };
    verdict("fail", "no issue was made");
    let findings = verify(copied.0.path()).expect("a failure is evidence too");
    assert_eq!(findings.not_passed, ["rust/stdio/04: fail: no issue was made"]);
    let output = Command::new(LAB).arg("verify").arg(copied.0.path()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(3), "intact, but not all passed");
    verdict("pass", "");
    copied.check_refused("fail edited to pass", lack);
}

#[test]
fn the_files_of_one_case_do_not_pass_for_another() {
    // Promise: the judge looks for what a case is about, and not for any good transcript.
    let suites = [Suite::Cases, Suite::Controls];
    for (suite, transport) in suites.into_iter().flat_map(|it| [(it, "stdio"), (it, "http")]) {
        for (left_by, _) in suite.cases() {
            let dir = MADE.path(suite).join("cells/rust").join(transport).join(left_by);
            let cell = read(&dir);
            for other in suites {
                for (case, _) in other.cases() {
                    let passes = judge(case, &cell);
                    let same = case == left_by && other == suite;
                    assert_eq!(passes.is_ok(), same, "{left_by} judged as {case}: {passes:?}");
                }
            }
        }
    }
}

fn read(dir: &Path) -> Cell {
    let text = |name: &str| fs::read_to_string(dir.join(name)).expect("read");
    let runs: Vec<_> = serde_json::from_str(&text("servers.json")).expect("servers");
    let exchanges = exchange::read(&dir.join("transcripts"), &runs).expect("transcripts");
    Cell { runs, exchanges, rows: Rows::from_text(&text("facts.json")).expect("facts") }
}
