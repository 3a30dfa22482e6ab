//! The verifier of evidence, against a bundle that is damaged at random.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};

use counterfoil_lab::evidence::verify::verify;
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::{Damage, cases, damage};

/// A small bundle: the controls over stdio. Held while it is damaged; mended afterwards.
static BUNDLE: LazyLock<Mutex<TempDir>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil-lab"));
    command.args(["matrix", "--sdk", "rust", "--transport", "stdio", "--unguarded", "--out"]);
    let output = command.arg(folder.path().join("it")).output().expect("the lab runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Mutex::new(folder)
});

/// What is done to one file of the bundle.
#[derive(Debug, Clone)]
enum Deed {
    Damage(Damage),
    Delete,
    Rename,
    /// Gets the bytes of another file.
    Swap(prop::sample::Index),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => damage().prop_map(Deed::Damage),
        1 => Just(Deed::Delete),
        1 => Just(Deed::Rename),
        1 => any::<prop::sample::Index>().prop_map(Deed::Swap),
    ]
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder").map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// The digests of the bundle as it is, as a forger would make them.
fn digests(bundle: &Path) -> String {
    let mut lines = Vec::new();
    for path in files(bundle).iter().filter(|path| !path.ends_with("SHA256SUMS")) {
        let digest = Sha256::digest(fs::read(path).expect("read"));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = path.strip_prefix(bundle).expect("below").display().to_string();
        lines.push((name.clone(), format!("{digest}  {name}\n")));
    }
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn a_bundle_that_was_touched_is_refused(file in any::<prop::sample::Index>(), deed in deed()) {
        // Promise: no change is accepted under the old digests, and none panics the verifier, with
        // the old ones or with new ones.
        let held = BUNDLE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let bundle = held.path().join("it");
        verify(&bundle).expect("it is whole");
        let sums = bundle.join("SHA256SUMS");
        let (all, signed) = (files(&bundle), fs::read(&sums).expect("read"));
        let path = &all[file.index(all.len())];
        let good = fs::read(path).expect("read");
        let renamed = path.with_extension("zz");
        let touched = match &deed {
            Deed::Damage(damage) => {
                let bad = damage.of(&good);
                fs::write(path, &bad).expect("written");
                bad != good
            }
            Deed::Delete => fs::remove_file(path).is_ok(),
            Deed::Rename => fs::rename(path, &renamed).is_ok(),
            Deed::Swap(other) => {
                let other = fs::read(&all[other.index(all.len())]).expect("read");
                fs::write(path, &other).expect("written");
                other != good
            }
        };
        let accepted = verify(&bundle);
        fs::write(&sums, digests(&bundle)).expect("written");
        // Whoever signs anew may have changed what no file contradicts, such as a version.
        let _ = verify(&bundle);
        let _ = fs::remove_file(&renamed);
        fs::write(path, &good).expect("written");
        fs::write(&sums, signed).expect("written");
        prop_assert_eq!(accepted.is_err(), touched, "{:?} {:?}", path, accepted);
    }
}
