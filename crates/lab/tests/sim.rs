//! The simulation: seeds with faults of every kind keep the rules, one seed gives one history, and
//! planted faults are found. `COUNTERFOIL_TEST_FULL` runs more seeds.

mod common;

use std::collections::BTreeMap;
use std::process::Command;

use clap::ValueEnum as _;
use common::{full, note};
use counterfoil_lab::sim::{History, MUST_REACH, Profile, Twin, command, history};

fn check(seed: u64, profile: Profile) -> History {
    let history = history(seed, profile, None).expect("a runtime");
    let found = history.violations.join("\n");
    assert!(found.is_empty(), "{found}\nrepeat it: {}", command(seed, profile, None));
    history
}

#[test]
fn every_seed_keeps_the_rules() {
    // Promise: whatever is lost, late, or dies, and whatever operators order, one identity has one
    // effect, nothing acknowledged is lost, and what is told fits one order.
    let seeds_count = if full() { 2000 } else { 42 };
    let (mut operations_count, mut reached) = (0, BTreeMap::<_, u64>::new());
    for seed in 0..seeds_count {
        let history = check(seed, Profile::of(seed));
        operations_count += history.operations_count;
        history
            .reached
            .iter()
            .for_each(|(what, count)| *reached.entry(*what).or_default() += count);
    }
    note(&format!("{seeds_count} seeds, {operations_count} operations, {reached:?}"));
    // A rule about what never comes about is not tried.
    let missing: Vec<_> = MUST_REACH.iter().filter(|what| !reached.contains_key(*what)).collect();
    assert!(missing.is_empty(), "never reached: {missing:?} of {reached:?}");
}

#[test]
fn a_seed_gives_one_history() {
    // Promise: a failing seed can be repeated: nothing in it comes from the machine.
    for seed in 0..7 {
        let [first, again] =
            [(); 2].map(|()| history(seed, Profile::of(seed), None).expect("a runtime"));
        assert!(first.text.lines().count() > 100);
        assert_eq!(first, again, "seed {seed}");
    }
}

#[test]
fn planted_faults_are_found() {
    // Promise: the simulation would see a target without keys, a ledger that forgets what it
    // committed, and a sender that takes a lost reply for leave to send again.
    // By its own rule: something else that is wrong would say nothing of it.
    for (twin, rule) in [
        (Twin::NoKeys, "OneEffect"),
        (Twin::ForgetsDispatch, "OneEffect"),
        (Twin::ForgetsAcceptance, "NothingLost"),
        (Twin::ResendsOnLostReply, "OneEffect"),
    ] {
        let found = (0..21).find(|seed| {
            let history = history(*seed, Profile::of(*seed), Some(twin)).expect("a runtime");
            history.violations.iter().any(|found| found.starts_with(rule))
        });
        note(&format!("{twin:?}: {rule} by seed {found:?}"));
        assert!(found.is_some(), "{twin:?}");
    }
}

#[test]
fn a_failing_seed_is_written_down_and_its_command_repeats_it() {
    // Promise: what a long run found is not lost: the seed stands in a file, and the printed command
    // fails in the same way, word for word.
    let folder = tempfile::tempdir().expect("a directory");
    let run = |words: &[&str]| {
        let place = folder.path().to_str().expect("a text");
        let out = Command::new(env!("CARGO_BIN_EXE_counterfoil-lab"))
            .args(words)
            .args(["--regressions", place])
            .output()
            .expect("it starts");
        assert!(!out.status.success(), "a planted fault was not found: {out:?}");
        String::from_utf8(out.stdout).expect("a text")
    };
    let profile = ["--profile", "lost-replies"];
    let first = run(&[&["sim", "--seeds", "2", "--plant", "no-keys"], &profile[..]].concat());
    let file = folder.path().join("lost-replies-0");
    let kept = std::fs::read_to_string(&file).expect("it was written");
    assert_eq!(kept, "0 lost-replies\n");
    let (found, rest) = first.split_once("\nrepeat it: ").expect("a command");
    let command = rest.lines().next().expect("a line");
    std::fs::remove_file(&file).expect("it is there");
    let words: Vec<_> = command.split_whitespace().skip(1).collect();
    assert!(run(&words).starts_with(found), "{command} tells something else");
    assert!(file.exists(), "{command} does not write it down");
}

#[test]
fn seeds_that_failed_once_hold() {
    // Promise: what a seed found once is not broken again.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/regressions");
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let text = std::fs::read_to_string(entry.expect("readable").path()).expect("a text");
        let mut words = text.split_whitespace();
        let (Some(seed), Some(name)) = (words.next(), words.next()) else { continue };
        let Ok(seed) = seed.parse() else { continue };
        check(seed, Profile::from_str(name, false).expect("a profile"));
    }
}
