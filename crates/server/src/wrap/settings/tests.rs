//! Tests of the settings of wrapped servers.

use std::path::Path;
use std::time::Duration;

use super::*;

const GOOD: &str = r#"
[preset]
packages = ["memory-server"]
tested = "1.0"

[wrap]
name = "memory"
environment = ["MEMORY_FILE_PATH"]
trust_annotations = false
missing_id = "reject"
join_age = "1h"
max_result_bytes = 65536

[wrap.tools.open_nodes]
effect = "read"

[wrap.tools.add]
effect = "write"
version = "2"
missing_id = "mint"
error_means = "not_applied"
error_texts = ["Error: "]

[wrap.tools.add.marker]
argument = "message"
value = "{{ args.message }} {{ marker }}"

[wrap.tools.add.lookup]
tool = "open_nodes"
arguments = { names = "{{ args.entities | map(attribute='name') }}" }
absence_after = "2s"
complete = true
applied = [{ at = "/content/0/text", contains = "{{ marker }}", count = 1 }]
not_applied = [{ at = "/content/0/text", lacks = "{{ marker }}" }]

[wrap.tools.add.lookup.result]
text = "found {{ reply.content[0].text }}"
structured = { ok = true }
"#;

fn read(text: &str) -> Result<WrapSettings, String> {
    WrapSettings::of_text(Path::new("wrap.toml"), text).map_err(|error| error.to_string())
}

#[test]
fn every_setting_is_read() {
    // Promise: what the file says is what is in force.
    let settings = read(GOOD).expect("good settings");
    assert_eq!(settings.name.as_ref().map(UpstreamKey::as_str), Some("memory"));
    assert_eq!(settings.environment, ["MEMORY_FILE_PATH"]);
    assert_eq!(settings.missing_id, MissingId::Reject);
    assert_eq!(settings.join_age, Duration::from_secs(3600));
    assert_eq!(settings.max_result_bytes, 65536);
    let read_tool = settings.tool("open_nodes").expect("a tool");
    assert_eq!(read_tool.effect, Some(ToolEffect::Read));
    let tool = settings.tool("add").expect("a tool");
    assert_eq!(tool.effect, Some(ToolEffect::Write));
    assert_eq!(tool.version.as_str(), "2");
    assert_eq!(tool.missing_id, Some(MissingId::Mint));
    assert_eq!(tool.error_means, ErrorMeans::NotApplied);
    assert_eq!(tool.error_texts, ["Error: "]);
    assert_eq!(tool.marker.as_ref().map(Marker::argument), Some("message"));
    let lookup = tool.lookup.as_ref().expect("a lookup");
    assert_eq!(lookup.absence_after(), Some(Duration::from_secs(2)));
    assert_eq!(tool.origin, Origin::File("wrap.toml".into(), 17));
}

#[test]
fn nothing_configured_guards_everything() {
    // Promise: the defaults are the safe ones.
    let settings = read("[wrap]\n").expect("good settings");
    assert!(!settings.trust_annotations);
    assert_eq!(settings.missing_id, MissingId::Join);
    assert_eq!(settings.join_age, DEFAULT_JOIN_AGE);
    assert!(settings.tools.is_empty());
}

/// Replaces one part of the good file and expects the words, at that place.
#[track_caller]
fn check(from: &str, to: &str, words: &[&str]) {
    let changed = GOOD.replacen(from, to, 1);
    assert_ne!(changed, GOOD, "{from} is not in the file");
    let error = read(&changed).expect_err(to);
    for word in words {
        assert!(error.contains(word), "{to}: {error}");
    }
}

#[test]
fn every_mistake_has_its_place_value_rule_and_remedy() {
    // Promise: a mistake in the settings is told where it stands, and how to correct it.
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "name = \"memory\"",
            "name = \"a b\"",
            &["wrap.toml:7:8: wrap.name = \"a b\"", "1 to 64 of"],
        ),
        ("\"MEMORY_FILE_PATH\"", "\"A=b\"", &["wrap.toml:8:15", "without values"]),
        (
            "trust_annotations = false",
            "trust_annotations = 1",
            &["wrap.toml:9:21", "true or false"],
        ),
        (
            "missing_id = \"reject\"",
            "missing_id = \"jion\"",
            &["wrap.toml:10:14", "reject, join, mint"],
        ),
        ("join_age = \"1h\"", "join_age = \"400d\"", &["wrap.toml:11:12", "30 days"]),
        ("65536", "1", &["wrap.toml:12:20", "65536 to"]),
        ("missing_id = \"reject\"", "missing = 1", &["no such key; use", "missing"]),
        ("effect = \"read\"", "effect = \"reads\"", &["wrap.toml:15:10", "write, read"]),
        (
            "effect = \"read\"",
            "effect = \"write\"",
            &["looks with `open_nodes`", "effect = \"read\""],
        ),
        ("effect = \"write\"", "effect = \"read\"", &["passed on and version has no use"]),
        (
            "error_means = \"not_applied\"",
            "error_means = \"no\"",
            &["unknown, not_applied, applied"],
        ),
        ("[\"Error: \"]", "[\"\"]", &["begins every result"]),
        (
            "{{ args.message }} {{ marker }}",
            "{{ args.message }}",
            &["no `{{ marker }}`", ".marker]"],
        ),
        ("tool = \"open_nodes\"\n", "", &["wrap.tools.add.lookup.tool", "missing"]),
        ("map(attribute='name')", "nofilter", &["no filter `nofilter`", "wrap.toml:30"]),
        ("{{ args.entities |", "{{ reply.entities |", &["there is no `reply", "use one of args"]),
        ("absence_after = \"2s\"\n", "", &["lookup.absence_after", "may still come"]),
        ("complete = true\n", "", &["lookup.complete", "another page is not absent"]),
        ("lacks = \"{{ marker }}\"", "lacks = \"x\"", &["does not look for the text", "in both"]),
        ("count = 1", "count = -1", &["whole number from 0"]),
        ("contains = \"{{ marker }}\", count = 1", "count = 1", &["exactly one of"]),
        ("contains =", "starts = \"x\", contains =", &["exactly one of"]),
        ("at = \"/content/0/text\"", "at = \"content\"", &["no JSON pointer"]),
        ("contains = \"{{ marker }}\"", "starts = \"{{ marker }}\"", &["count goes with"]),
        (
            "contains = \"{{ marker }}\"",
            "split = \"\", contains = \"{{ marker }}\"",
            &["this is empty"],
        ),
        ("contains = \"{{ marker }}\"", "split = \"x\", equals = \"y\"", &["split goes with"]),
        ("{{ reply.content[0].text }}", "{{ result }}", &["there is no `result`", "reply"]),
        ("[wrap]", "[wrap]\nname2 = 1", &["no such key; use name"]),
        ("[preset]", "[http]", &["a preset holds [wrap] and [preset] alone"]),
        ("[wrap]", "[wrap", &["correct the TOML here"]),
    ];
    for (from, to, words) in cases {
        check(from, to, words);
    }
}

#[test]
fn absence_is_claimed_only_where_it_can_be_proved() {
    // Promise: without a text of ours in the effect nothing that is not found counts as absent, and
    // a caller's own ID, which can be a part of another, is no such text.
    let marker = "[wrap.tools.add.marker]\nargument = \"message\"\n\
                  value = \"{{ args.message }} {{ marker }}\"\n";
    check(marker, "", &["without a text of its own in the effect", "[... .marker]"]);
    let by_id = GOOD.replace("{{ marker }}", "{{ operation_id }}");
    let error = read(&by_id).expect_err("an ID inside a text");
    assert!(error.contains("can be a part of another"), "{error}");
}

#[test]
fn a_later_file_overrides_an_earlier_one() {
    // Promise: a preset is a start, and the configuration has the last word.
    let dir = tempfile::tempdir().expect("a directory");
    let (preset, config) = (dir.path().join("p.toml"), dir.path().join("counterfoil.toml"));
    std::fs::write(&preset, GOOD).expect("written");
    let words =
        "store = \"memory\"\n[wrap]\nmissing_id = \"join\"\n[wrap.tools.add]\nversion = \"3\"\n";
    std::fs::write(&config, words).expect("written");
    let preset = preset.display().to_string();
    let settings = WrapSettings::load(&[preset], Some(&config)).expect("good settings");
    assert_eq!(settings.missing_id, MissingId::Join);
    assert_eq!(settings.join_age, Duration::from_secs(3600));
    let tool = settings.tool("add").expect("a tool");
    assert_eq!(tool.version.as_str(), "3");
    assert!(tool.lookup.is_none() && tool.effect.is_none());
    for (name, words) in [
        ("memroy", "use memory"),
        ("none", "filesystem, git, memory, sqlite"),
        ("./none.toml", "cannot be read"),
    ] {
        let error = WrapSettings::load(&[name.to_owned()], None).expect_err(name).to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn built_in_presets_are_good_and_say_for_which_packages_they_are() {
    // Promise: a preset of ours never stops a start, and is proposed for its own packages.
    for preset in PRESETS {
        let settings = WrapSettings::load(&[preset.name.to_owned()], None);
        let settings = settings.unwrap_or_else(|error| panic!("{error}"));
        let first = settings.tools.values().next().expect("a preset has tools");
        assert_eq!(first.origin, Origin::Preset(preset.name));
        for package in preset.packages {
            assert!(preset.text.contains(&format!("\"{package}\"")), "{}", preset.name);
        }
    }
}
