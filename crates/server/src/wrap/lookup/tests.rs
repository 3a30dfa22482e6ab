//! Tests of lookups: what each result proves.

use super::*;
use crate::wrap::settings::{ToolSettings, WrapSettings};
use counterfoil_core::json::JsonLimits;
use std::sync::Arc;

/// A tool whose lookup has these lines.
fn tool(lines: &str) -> Arc<ToolSettings> {
    let text = format!(
        "[wrap.tools.find]\neffect = \"read\"\n[wrap.tools.write]\neffect = \"write\"\n\
         [wrap.tools.write.marker]\nargument = \"m\"\nvalue = \"{{{{ args.m }}}} {{{{ marker }}}}\"\n\
         [wrap.tools.write.lookup]\ntool = \"find\"\n{lines}\n"
    );
    let settings = WrapSettings::of_text(std::path::Path::new("t.toml"), &text);
    let settings = settings.unwrap_or_else(|error| panic!("{error}\n{text}"));
    Arc::clone(settings.tool("write").expect("a tool"))
}

fn value(text: &str) -> Value {
    parse(text.as_bytes(), &JsonLimits::default()).expect(text)
}

fn facts(arguments: &Value) -> CallFacts<'_> {
    CallFacts {
        arguments,
        operation_id: "op-1",
        marker: "cf0123",
        dispatched_at: Timestamp::from_ms(1_700_000_000_123),
    }
}

#[track_caller]
fn check(lines: &str, arguments: &str, result: &str, expected: &Verdict) {
    let tool = tool(lines);
    let lookup = tool.lookup.as_ref().expect("a lookup");
    let arguments = value(arguments);
    let after = Some(Duration::from_secs(5));
    let found = lookup.judge(result.as_bytes(), &facts(&arguments), after);
    match (&found, expected) {
        (Verdict::Unknown(why), Verdict::Unknown(words)) => {
            assert!(why.contains(words), "{lines}: {result}: {why}");
        }
        _ => assert_eq!(&found, expected, "{lines}: {result}"),
    }
}

fn open(words: &str) -> Verdict {
    Verdict::Unknown(words.to_owned())
}

const ARGUMENTS: &str = r#"{"n":"A","l":[{"k":"x","v":["1"]},{"k":"y","v":[]}]}"#;

/// A result whose first content block is this text.
fn text(text: &str) -> String {
    let text = Value::from(text).to_json();
    format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#)
}

/// A structured result with this list.
fn list(list: &str) -> String {
    format!(r#"{{"content":[],"structuredContent":{{"l":{list}}}}}"#)
}

#[test]
fn what_a_call_does_not_have_is_not_left_out_of_a_question() {
    // Promise: no look asks a wider question than was meant, and no rule is looser: it could take
    // another call's effect for this one's.
    let tool = tool(
        "arguments = { q = \"{{ args.n }}\", r = \"{{ args.none }}\" }\napplied = [{ length = 1 }]",
    );
    let lookup = tool.lookup.as_ref().expect("a lookup");
    let arguments = value(ARGUMENTS);
    let error = lookup.arguments(&facts(&arguments)).expect_err("nothing to ask");
    assert!(error.to_string().contains("not given"), "{error}");
    let not_given = open("not given");
    let structured = list(r#"[{"k":"x","z":null}]"#);
    for lines in [
        "applied = [{ at = \"/structuredContent/l\", includes = { k = \"x\", v = \"{{ args.none }}\" } }]",
        "applied = [{ at = \"/structuredContent/l/0/z\", equals = \"{{ args.none }}\" }]",
    ] {
        check(lines, ARGUMENTS, &structured, &not_given);
    }
}

#[test]
fn a_rule_over_text_proves_what_it_says_and_nothing_else() {
    // Promise: only a result that shows the effect counts as applied; everything else is unknown.
    let not_found = open("does not prove");
    let cases: &[(&str, String, &Verdict)] = &[
        ("equals = \"{{ args.n }}\"", text("A"), &Verdict::Applied),
        ("equals = \"{{ args.n }}\"", text("A\n"), &not_found),
        ("contains = \"x{{ args.n }}\"", text("--xA--"), &Verdict::Applied),
        ("contains = [\"q\", \"{{ args.n }}\"]", text("A"), &Verdict::Applied),
        ("contains = \"A\", count = 1", text("AxA"), &Verdict::Many),
        ("contains = \"A\", count = 1", text("x"), &not_found),
        ("lacks = [\"A\", \"B\"]", text("xB"), &not_found),
        ("lacks = [\"A\", \"B\"]", text("x"), &Verdict::Applied),
        ("starts = \"A\"", text("bA"), &not_found),
        ("ends = \"A\"", text("bA"), &Verdict::Applied),
        ("ends = \"A\"", text("Ab"), &not_found),
        ("split = \"; \", ends = \"={{ args.n }}\"", text("x=Ab; y=A; z"), &Verdict::Applied),
        ("split = \"; \", ends = \"=A\", count = 1", text("x=A; y=A"), &Verdict::Many),
        ("split = \"; \", starts = \"A\", count = 1", text("xA; Ay"), &Verdict::Applied),
        ("split = \"; \", contains = \"A\", count = 1", text("AxA; y"), &Verdict::Applied),
        ("split = \"; \", starts = \"A\"", text("xA; yA"), &not_found),
        ("line = [\"* {{ args.n }}\", \"  {{ args.n }}\"]", text("  B\n* A"), &Verdict::Applied),
        ("line = \"A\"", text("  A"), &not_found),
        ("when = \"{{ args.n == 'B' }}\", contains = \"q\"", text("x"), &Verdict::Applied),
        ("contains = \"{{ args.none }}\"", text("x"), &open("cannot be made")),
        ("contains = \"A\"", list("[]"), &open("nothing at")),
        ("contains = \"A\"", "{".into(), &open("cannot be read")),
        ("contains = \"A\"", r#"{"resultType":"input_required"}"#.into(), &open("at once")),
        (
            "contains = \"A\"",
            r#"{"content":[{"type":"text","text":"A"}],"isError":true}"#.into(),
            &open("answered with an error"),
        ),
    ];
    for (rule, result, expected) in cases {
        let lines = format!("applied = [{{ at = \"/content/0/text\", {rule} }}]");
        check(&lines, ARGUMENTS, result, expected);
    }
}

#[test]
fn a_rule_over_json_proves_what_it_says_and_nothing_else() {
    // Promise: only a result that shows the effect counts as applied; everything else is unknown.
    let not_found = open("does not prove");
    let each =
        "each = \"{{ args.l }}\", includes = [{ k = \"{{ each.k }}\", v = \"{{ each.v }}\" }]";
    let inner = "each = \"{{ args.l }}\", inner = \"{{ each.v }}\", \
                 excludes = [{ k = \"{{ each.k }}\", v = [\"{{ inner }}\"] }]";
    let one = "includes = { k = \"x\" }, count = 1";
    let cases: &[(&str, String, &Verdict)] = &[
        ("contains = \"A\"", list("[]"), &open("no text at")),
        ("length = 2", list("[1,2]"), &Verdict::Applied),
        (one, list(r#"[{"k":"x"},{"k":"y"}]"#), &Verdict::Applied),
        (one, list(r#"[{"k":"x"},{"k":"x"}]"#), &Verdict::Many),
        ("includes = { k = \"x\" }, count = 0", list(r#"[{"k":"x"}]"#), &not_found),
        (each, list(r#"[{"k":"y","v":["9"]},{"k":"x","v":["0","1"]}]"#), &Verdict::Applied),
        (each, list(r#"[{"k":"y","v":["9"]},{"k":"x","v":["0"]}]"#), &not_found),
        (inner, list(r#"[{"k":"x","v":["2"]}]"#), &Verdict::Applied),
        (inner, list(r#"[{"k":"x","v":["2","1"]}]"#), &not_found),
        ("each = \"{{ args.n }}\", length = 0", list("[]"), &open("each is no list")),
    ];
    for (rule, result, expected) in cases {
        let lines = format!("applied = [{{ at = \"/structuredContent/l\", {rule} }}]");
        check(&lines, ARGUMENTS, result, expected);
    }
    let json_text = "applied = [{ json_text = true, at = \"/a\", equals = \"{{ args.n }}\" }]";
    let error = r#"{"content":[{"type":"text","text":"A"}],"isError":true}"#.to_owned();
    let both = "applied = [{ is_error = true }, { at = \"/content/0/text\", contains = \"A\" }]";
    for (lines, result, expected) in [
        (json_text, text(r#"{"a":"A"}"#), &Verdict::Applied),
        (json_text, text("no JSON"), &open("no JSON text")),
        (json_text, list("[]"), &open("no JSON text")),
        (both, error, &Verdict::Applied),
        ("applied = [{ is_error = true }]", list("[]"), &not_found),
    ] {
        check(lines, ARGUMENTS, &result, expected);
    }
}

#[test]
fn absence_needs_time_besides_everything_else() {
    // Promise: an effect that was not found is absent only where it can no longer come.
    let lines = "arguments = { q = \"{{ marker }}\", since = \"{{ dispatched_at }}\" }\n\
                 absence_after = \"2s\"\ncomplete = true\n\
                 applied = [{ at = \"/l\", includes = { m = \"{{ marker }}\" }, count = 1 }]\n\
                 not_applied = [{ at = \"/l\", includes = { m = \"{{ marker }}\" }, count = 0 }]";
    let tool = tool(lines);
    let lookup = tool.lookup.as_ref().expect("a lookup");
    let arguments = value("{}");
    let call = facts(&arguments);
    let asked = lookup.arguments(&call).expect("rendered");
    assert_eq!(asked, r#"{"q":"cf0123","since":"2023-11-14T22:13:20Z"}"#);
    let seconds = |s| Some(Duration::from_secs(s));
    let one = br#"{"l":[{"m":"cf0123"}]}"#.as_slice();
    let two = br#"{"l":[{"m":"cf0123"},{"m":"cf0123"}]}"#;
    let none = br#"{"l":[{"m":"other"}]}"#;
    for (result, after, expected) in [
        (one, seconds(0), Verdict::Applied),
        (two, seconds(9), Verdict::Many),
        (none, seconds(2), Verdict::NotApplied),
        (none, seconds(1), open("may still come")),
        (none, None, open("may still come")),
        (b"{}", seconds(9), open("nothing at")),
    ] {
        let found = lookup.judge(result, &call, after);
        let same = match (&found, &expected) {
            (Verdict::Unknown(why), Verdict::Unknown(words)) => why.contains(words.as_str()),
            _ => found == expected,
        };
        assert!(same, "{found:?} {expected:?}");
    }
}

#[test]
fn a_marker_changes_one_argument_and_no_other_byte() {
    // Promise: the server gets what the client wrote, but for the argument that is declared.
    let tool = tool("applied = [{ length = 0 }]");
    let marker = tool.marker.as_ref().expect("a marker");
    for (arguments, expected) in [
        (
            r#"{"n": 9007199254740993, "m" : "a" ,"b":1.0}"#,
            r#"{"n": 9007199254740993, "m" : "a cf0123" ,"b":1.0}"#,
        ),
        (r#"{"m":"\u0061\""}"#, r#"{"m":"a\" cf0123"}"#),
    ] {
        let values = value(arguments);
        let marked = marker.put(arguments.as_bytes(), &facts(&values)).expect("put");
        assert_eq!(String::from_utf8(marked).expect("UTF-8"), expected);
    }
    let values = value("{}");
    assert!(marker.put(b"{}", &facts(&values)).is_err(), "args.m is not there");
}

#[test]
fn a_settled_result_never_breaks_the_tools_own_schema() {
    // Promise: what is stored for an operation found by a look conforms, or is an error that says
    // that the effect was applied.
    let schema = br#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"$schema":"http://json-schema.org/draft-07/schema#"}"#;
    let result = br#"{"structuredContent":{"n":9007199254740993}}"#;
    let arguments = value(r#"{"m":"x"}"#);
    let settled = |lines: &str, schema: Option<&[u8]>| {
        let tool = tool(&format!("applied = [{{ length = 0 }}]\n{lines}"));
        let lookup = tool.lookup.as_ref().expect("a lookup");
        let settled = lookup.settled(result, &facts(&arguments), schema);
        (String::from_utf8(settled.json).expect("UTF-8"), settled.is_error)
    };
    let number = "result = { text = \"{{ args.m }} there\", structured = { n = \"{{ reply.structuredContent.n }}\" } }";
    let (json, is_error) = settled(number, Some(schema));
    assert_eq!(
        json,
        r#"{"content":[{"type":"text","text":"x there"}],"structuredContent":{"n":9007199254740993}}"#
    );
    assert!(!is_error);
    let wrong = number.replace("{{ reply.structuredContent.n }}", "x");
    let (json, is_error) = settled(&wrong, Some(schema));
    assert_eq!(json, r#"{"content":[{"type":"text","text":"x there"}],"isError":true}"#);
    assert!(is_error);
    let (json, is_error) = settled("", Some(schema));
    assert!(json.contains("was applied") && json.contains("isError") && is_error, "{json}");
    let (json, is_error) = settled("", None);
    assert!(json.contains("was applied") && !json.contains("isError") && !is_error, "{json}");
}
