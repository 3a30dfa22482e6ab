//! House rules of the workspace, as tests: which crate may use which, what must never be linked,
//! and what a source file looks like. Each rule is a row of data with its reason; to change the
//! design, change the row, and say why in the same commit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// The only arrows between the workspace's crates: package, what it may use, why no more.
/// Development dependencies count, and nothing may use the lab.
const ARROWS: &[(&str, &[&str], &str)] = &[
    ("counterfoil-core", &[], "decides without IO, so it stands on nothing of ours"),
    ("counterfoil-store", &["counterfoil-core"], "runs the core's decision in one transaction"),
    (
        "counterfoil-engine",
        &["counterfoil-core", "counterfoil-store"],
        "is the one path to admit, execute and observe, below any protocol",
    ),
    ("counterfoil-client", &["counterfoil-core"], "sees what the wire shows and no ledger"),
    (
        "counterfoil",
        &["counterfoil-core", "counterfoil-store", "counterfoil-engine", "counterfoil-client"],
        "is what ships, and faults and false clocks do not",
    ),
    ("counterfoil-fault-disk", &[], "is a disk that fails for SQLite, and knows no ledger"),
    (
        "counterfoil-lab",
        &[
            "counterfoil-core",
            "counterfoil-store",
            "counterfoil-engine",
            "counterfoil-client",
            "counterfoil",
            "counterfoil-fault-disk",
        ],
        "tests all the others and is never shipped",
    ),
];

/// How far a ban looks.
#[derive(Clone, Copy, Debug)]
enum Reach {
    /// The crate's own manifest.
    Manifest,
    /// Its manifest, and everything that a build of it links.
    Build,
}

/// What a crate must not depend on: package, reach, names, reason.
const BANS: &[(&str, Reach, &[&str], &str)] = &[
    (
        "counterfoil-core",
        Reach::Build,
        &["tokio", "async-std", "smol"],
        "the core is synchronous: the shell around it waits",
    ),
    (
        "counterfoil-core",
        Reach::Build,
        &["rusqlite", "libsqlite3-sys", "tokio-postgres", "postgres-protocol"],
        "the core knows no database",
    ),
    ("counterfoil-core", Reach::Build, &["rmcp"], "the core knows no protocol"),
    (
        "counterfoil-core",
        Reach::Build,
        &["getrandom", "rand", "fastrand"],
        "randomness comes in as a value, or a decision cannot be replayed",
    ),
    (
        "counterfoil-store",
        Reach::Build,
        &["rmcp", "reqwest", "hyper", "axum"],
        "a ledger that talks to the network could reply before its commit",
    ),
    (
        "counterfoil-engine",
        Reach::Manifest,
        &["rusqlite", "libsqlite3-sys", "tokio-postgres"],
        "the engine reaches a database through the Store trait alone",
    ),
    ("counterfoil-engine", Reach::Build, &["rmcp"], "the engine serves embedders without MCP"),
    (
        "counterfoil-client",
        Reach::Build,
        &["counterfoil-store", "rusqlite", "libsqlite3-sys"],
        "a consumer learns the outcome from the server, never by looking into its ledger",
    ),
];

/// Features of dependencies that nothing may switch on, in any build: package, feature, reason.
/// Features are unified over a build, so one careless dependency would change every crate.
const FORBIDDEN_FEATURES: &[(&str, &str, &str)] = &[
    ("serde_json", "preserve_order", "object order would depend on the sender"),
    ("serde_json", "arbitrary_precision", "numbers would become text and compare as text"),
];

/// Features of `uuid` that make IDs by clock or chance, which the core must not ask for.
const UUID_GENERATORS: &[&str] = &["v1", "v4", "v6", "v7", "rng", "rng-getrandom", "fast-rng"];

/// The feature that places cut points; the lab alone may ask for it.
const CUT_POINTS: &str = "cut-points";

/// The one crate that may use `unsafe`, since SQLite takes a file system as a table of C functions.
/// It has lints of its own: the workspace's without that one, and each block must be explained.
const UNSAFE_CRATE: &str = "counterfoil-fault-disk";

/// Texts that must not stand in Rust sources: folder, text, reason. Written in two halves so that
/// this file passes its own rule.
const FORBIDDEN_TEXTS: &[(&str, &str, &str)] = &[
    ("crates", concat!("#[ign", "ore"), "a test that never runs defends nothing"),
    ("crates", concat!("todo", "!("), "unfinished work is an issue, not a panic"),
    ("crates", concat!("unimpl", "emented!("), "unfinished work is an issue, not a panic"),
    ("crates/core/src", concat!("SystemTime", "::now"), "the core is handed the time"),
    ("crates/core/src", concat!("Instant", "::now"), "the core is handed the time"),
    ("crates/core/src", concat!("Timestamp", "::now"), "the core is handed the time"),
    ("crates/core/src", concat!("std", "::fs"), "the core does no IO"),
    ("crates/core/src", concat!("std", "::net"), "the core does no IO"),
    ("crates/core/src", concat!("std", "::process"), "the core does no IO"),
    ("crates/core/src", concat!("std", "::env"), "the core is handed its configuration"),
    ("crates/core/src", concat!("std", "::thread"), "the core is synchronous"),
];

/// A file longer than this does more than one thing.
const MAX_FILE_LINES: usize = 600;

/// Files that must not exist, from the root: a user's tools and linker are the user's choice, and
/// a committed one breaks the build of everybody who has another.
const ABSENT_FILES: &[&str] =
    &[".cargo/config.toml", ".cargo/config", "rust-toolchain.toml", "rust-toolchain"];

/// Commands that the README promises, each alone on its line.
const README_COMMANDS: &[&str] = &["cargo run --release -- demo", "./test"];

/// What every package of the workspace says alike: key in `cargo metadata`, value, reason.
const SHARED_SETTINGS: &[(&str, &str, &str)] = &[
    ("rust_version", "1.89", "one oldest supported compiler for all crates"),
    ("edition", "2024", "one dialect"),
    ("license", "Apache-2.0", "one licence"),
    ("publish", "[]", "nothing is published by accident"),
];

// ---- the rules ---------------------------------------------------------------------------------

#[test]
fn crates_use_each_other_only_along_the_arrows() {
    // Defends: one direction of dependency, and faults that cannot reach what ships.
    assert_none(arrow_violations(&metadata()));
}

#[test]
fn crates_do_not_reach_what_they_must_not_know() {
    // Defends: a core without IO, clock or chance, and a store without a network.
    let metadata = metadata();
    let mut found = Vec::new();
    for (package, reach, names, why) in BANS {
        let mut uses = manifest_dependencies(&metadata, package);
        if let Reach::Build = reach {
            uses.extend(build_dependencies(package));
        }
        let hits = names.iter().filter(|name| uses.contains(**name));
        found.extend(hits.map(|name| format!("{package} depends on {name} ({reach:?}): {why}")));
    }
    let core_uuid = declared_features(&metadata, "counterfoil-core", "uuid");
    let generators = UUID_GENERATORS.iter().filter(|feature| core_uuid.contains(**feature));
    found.extend(generators.map(|feature| format!("counterfoil-core asks for uuid/{feature}")));
    assert_none(found);
}

#[test]
fn forbidden_features_are_off_in_every_build() {
    // Defends: one canonical form, and so one digest, for one JSON value.
    let everything = unified_features(&metadata());
    let shipped = shipped_features();
    assert!(everything["serde_json"].contains("std"), "the reading of features has gone blind");
    let mut found = Vec::new();
    for (package, feature, why) in FORBIDDEN_FEATURES {
        for (build, features) in [("workspace", &everything), ("shipped", &shipped)] {
            if features.get(*package).is_some_and(|on| on.contains(*feature)) {
                found.push(format!("{package}/{feature} is on in the {build} build: {why}"));
            }
        }
    }
    assert_none(found);
}

#[test]
fn cut_points_are_the_labs_alone() {
    // Defends: what ships has no switch for faults.
    let mut found = Vec::new();
    for package in packages(&metadata()) {
        for dependency in list(&package["dependencies"]) {
            let asks = list(&dependency["features"]).iter().any(|it| it == CUT_POINTS);
            if asks && package["name"] != "counterfoil-lab" {
                found.push(format!("{} asks for {CUT_POINTS}", text(&package["name"])));
            }
        }
    }
    let shipped = shipped_features();
    let on = shipped.iter().filter(|(_, features)| features.contains(CUT_POINTS));
    found.extend(on.map(|(package, _)| format!("{package} ships with {CUT_POINTS}")));
    assert!(shipped.contains_key("counterfoil-store"), "the reading of features has gone blind");
    assert_none(found);
}

#[test]
fn packages_share_their_settings_and_lints() {
    // Defends: one oldest compiler for all, and `unsafe` forbidden in all that ships.
    let metadata = metadata();
    let workspace = read(&root().join("Cargo.toml"));
    let mut found = Vec::new();
    for package in packages(&metadata) {
        let name = text(&package["name"]);
        for (key, expected, why) in SHARED_SETTINGS {
            let value = package[*key].as_str().map_or(package[*key].to_string(), str::to_owned);
            if value != *expected {
                found.push(format!("{name}: {key} is {value}, not {expected}: {why}"));
            }
        }
        let manifest = read(Path::new(text(&package["manifest_path"])));
        if name == UNSAFE_CRATE {
            found.extend(unsafe_lint_violations(name, &manifest, &workspace));
        } else if !manifest.contains("[lints]\nworkspace = true") {
            found.push(format!("{name}: its Cargo.toml does not inherit the workspace's lints"));
        }
    }
    assert_none(found);
}

#[test]
fn one_binary_ships() {
    // Defends: `cargo run --release -- demo` needs no other argument.
    let metadata = metadata();
    let mut binaries = BTreeSet::new();
    for package in packages(&metadata).filter(|package| package["name"] != "counterfoil-lab") {
        let targets = list(&package["targets"]).iter();
        let bins = targets.filter(|target| list(&target["kind"]).iter().any(|kind| kind == "bin"));
        binaries.extend(bins.map(|target| text(&target["name"]).to_owned()));
    }
    assert_eq!(binaries, BTreeSet::from(["counterfoil".to_owned()]));
    let default: Vec<&str> =
        list(&metadata["workspace_default_members"]).iter().map(text).collect();
    let counterfoil =
        packages(&metadata).find(|package| package["name"] == "counterfoil").expect("a member");
    assert_eq!(default, [text(&counterfoil["id"])]);
}

#[test]
fn sources_are_short_and_say_what_they_are_for() {
    // Defends: a newcomer finds a thing by reading first lines.
    let found = rust_files().into_iter().flat_map(|(path, text)| shape_violations(&path, &text));
    assert_none(found.collect());
}

#[test]
fn sources_hold_no_forbidden_text() {
    // Defends: no test that never runs, no unfinished branch, no clock or IO in the core.
    let found = rust_files().into_iter().flat_map(|(path, text)| text_violations(&path, &text));
    assert_none(found.collect());
}

#[test]
fn no_toolchain_or_linker_is_committed() {
    // Defends: a clone builds with the tools that its owner has.
    let present = ABSENT_FILES.iter().filter(|file| root().join(file).exists());
    assert_none(present.map(|file| format!("{file} exists; remove it")).collect());
}

#[test]
fn the_readme_names_the_two_commands() {
    // Defends: a stranger needs two commands and finds both.
    let readme = read(&root().join("README.md"));
    let missing = README_COMMANDS.iter().filter(|it| !readme.lines().any(|l| l.trim() == **it));
    assert_none(missing.map(|it| format!("README.md has no line `{it}`")).collect());
    for script in ["test", ".ci/run"] {
        assert!(is_executable(&root().join(script)), "{script} is missing or not executable");
    }
}

#[test]
fn planted_violations_are_found() {
    // Defends: the rules above can fail; a detector that never fires proves nothing.
    let planted = json!({"packages": [
        {"name": "counterfoil-store", "dependencies": [
            {"name": "counterfoil-core", "kind": null},
            {"name": "counterfoil-engine", "kind": "dev"},
        ]},
        {"name": "counterfoil-extra", "dependencies": []},
        {"name": "counterfoil", "dependencies": [{"name": "counterfoil-lab", "kind": "build"}]},
    ]});
    let found = arrow_violations(&planted);
    let cases = [
        "counterfoil-store uses counterfoil-engine",
        "counterfoil-extra has no row",
        "counterfoil uses counterfoil-lab",
    ];
    for case in cases {
        assert!(found.iter().any(|it| it.contains(case)), "{case} was not found in {found:?}");
    }
    assert_eq!(found.len(), cases.len(), "{found:?}");

    let workspace =
        "[workspace.lints.rust]\nunsafe_code = \"forbid\"\nunreachable_pub = \"warn\"\n";
    let found = unsafe_lint_violations("planted", "unsafe_code = \"allow\"\n", workspace);
    assert_eq!(found.len(), 3, "{found:?}");

    let long = format!("//! Purpose.\n{}", "\n".repeat(MAX_FILE_LINES));
    assert_eq!(shape_violations("crates/a.rs", &long).len(), 1);
    assert_eq!(shape_violations("crates/a.rs", "fn main() {}\n").len(), 1);
    for (folder, text, _) in FORBIDDEN_TEXTS {
        let path = format!("{folder}/planted.rs");
        assert_eq!(text_violations(&path, &format!("//! P.\n{text}")).len(), 1, "{text}");
    }
}

// ---- what the rules look at --------------------------------------------------------------------

fn arrow_violations(metadata: &Value) -> Vec<String> {
    let members: BTreeSet<&str> = packages(metadata).map(|it| text(&it["name"])).collect();
    let mut found = Vec::new();
    for package in packages(metadata) {
        let from = text(&package["name"]);
        let Some((_, allowed, why)) = ARROWS.iter().find(|(name, _, _)| *name == from) else {
            found.push(format!("{from} has no row in ARROWS: say what it may use and why"));
            continue;
        };
        for dependency in list(&package["dependencies"]) {
            let to = text(&dependency["name"]);
            let ours = members.contains(to) || ARROWS.iter().any(|(name, _, _)| *name == to);
            if ours && !allowed.contains(&to) {
                found.push(format!("{from} uses {to}, and may use {allowed:?} only: it {why}"));
            }
        }
    }
    found
}

/// The lints of the crate that may use `unsafe`: every other one of the workspace's, and two more.
fn unsafe_lint_violations(name: &str, manifest: &str, workspace: &str) -> Vec<String> {
    let lints = workspace.split("[workspace.lints.").skip(1);
    let rows = lints.flat_map(|part| part.split("\n[").next().unwrap_or_default().lines().skip(1));
    let all = rows.filter(|row| row.contains(" = ") && !row.starts_with("unsafe_code"));
    let own = [r#"unsafe_op_in_unsafe_fn = "deny""#, r#"undocumented_unsafe_blocks = "warn""#];
    let missing = all.chain(own).filter(|row| !manifest.lines().any(|line| line == *row));
    missing.map(|row| format!("{name}: its lints lack `{row}`")).collect()
}

fn shape_violations(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_FILE_LINES {
        found.push(format!("{path} has {lines} lines, over {MAX_FILE_LINES}: split it by purpose"));
    }
    if !text.starts_with("//! ") {
        found.push(format!("{path} does not open with a `//!` line that says what it is for"));
    }
    found
}

fn text_violations(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let rules = FORBIDDEN_TEXTS
            .iter()
            .filter(|(folder, it, _)| Path::new(path).starts_with(folder) && line.contains(it));
        found.extend(rules.map(|(_, it, why)| format!("{path}:{}: `{it}`: {why}", index + 1)));
    }
    found
}

/// Every dependency in the package's own manifest, of any kind.
fn manifest_dependencies(metadata: &Value, package: &str) -> BTreeSet<String> {
    let package =
        packages(metadata).find(|it| it["name"] == package).expect("BANS names workspace members");
    list(&package["dependencies"]).iter().map(|it| text(&it["name"]).to_owned()).collect()
}

/// The features that the package's manifest asks of one dependency.
fn declared_features(metadata: &Value, package: &str, dependency: &str) -> BTreeSet<String> {
    let rows = packages(metadata).filter(|it| it["name"] == package);
    let rows = rows.flat_map(|it| list(&it["dependencies"])).filter(|it| it["name"] == dependency);
    rows.flat_map(|it| list(&it["features"])).map(|it| text(it).to_owned()).collect()
}

/// Every package that a build of this one alone links or runs, on this platform.
fn build_dependencies(package: &str) -> BTreeSet<String> {
    let tree = cargo(&["tree", "--package", package, "--edges", "no-dev", "--prefix", "none"]);
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != package).map(str::to_owned).collect()
}

/// Package to features, over all crates, their tests included.
fn unified_features(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let names: BTreeMap<&str, &str> =
        list(&metadata["packages"]).iter().map(|it| (text(&it["id"]), text(&it["name"]))).collect();
    let mut features: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let on = list(&node["features"]).iter().map(|it| text(it).to_owned());
        features.entry(names[text(&node["id"])].to_owned()).or_default().extend(on);
    }
    features
}

/// Package to features, in the build of the binary that ships.
fn shipped_features() -> BTreeMap<String, BTreeSet<String>> {
    let format = ["--prefix", "none", "--format", "{p}|{f}"];
    let tree =
        cargo(&[&["tree", "--package", "counterfoil", "--edges", "no-dev"], &format[..]].concat());
    let mut features: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in tree.lines() {
        let Some((package, on)) = line.split_once('|') else { continue };
        let name = package.split_whitespace().next().unwrap_or_default();
        let on = on.trim_end_matches("(*)").trim().split(',').map(str::to_owned);
        features.entry(name.to_owned()).or_default().extend(on);
    }
    features
}

fn metadata() -> Value {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = run(Command::new(rustc).arg("-vV"));
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc's host");
    // Only this platform's packages: those of the others may never have been downloaded.
    let metadata = cargo(&["metadata", "--format-version", "1", "--filter-platform", host]);
    serde_json::from_str(&metadata).expect("cargo metadata prints JSON")
}

/// Runs cargo at the root, without network and without touching the lock file.
fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo).args(arguments).args(["--locked", "--offline"]).current_dir(root()))
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the toolchain that built this test is still there");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {errors}");
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

/// The workspace's own packages.
fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    let ours = |it: &&Value| it.get("source").is_none_or(Value::is_null);
    list(&metadata["packages"]).iter().filter(ours)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("cargo metadata gives a text here")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace root")
}

/// Every Rust file under `crates`, as (path from the root, text).
fn rust_files() -> Vec<(String, String)> {
    let mut folders = vec![root().join("crates")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let short = path.strip_prefix(root()).expect("found under the root");
                files.push((short.display().to_string(), read(&path)));
            }
        }
    }
    assert!(files.len() > ARROWS.len(), "the walk over crates/ has gone blind");
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|it| it.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.exists()
}

fn assert_none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
