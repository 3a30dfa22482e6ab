//! Tests of the plans: the list as clients see it, and what servers get of calls.

use std::path::Path;

use counterfoil_core::refusal::Code;

use super::*;
use crate::wrap::raw::Raw;

fn plans(settings: &str) -> Plans {
    let settings = WrapSettings::of_text(Path::new("t.toml"), &format!("[wrap]\n{settings}\n"));
    Plans::new(Arc::new(settings.unwrap_or_else(|error| panic!("{error}"))))
}

fn one_tool(schema: &str) -> String {
    format!(r#"{{"tools":[{{"name":"t","inputSchema":{schema}}}]}}"#)
}

/// The rewritten page without our own tool, which is the last element.
fn rewritten(plans: &mut Plans, page: &str) -> String {
    let bytes = plans.rewrite(page.as_bytes(), false).expect(page);
    let text = String::from_utf8(bytes).expect("UTF-8");
    serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
    text
}

fn id_of(plans: &Plans) -> IdField {
    plans.get("t").expect("listed").id_field.clone()
}

#[test]
fn the_id_goes_into_plain_roots_alone() {
    // Promise: a schema takes what it took before and our ID besides, or it is left as it is.
    let plain = [
        r#"{"type":"object"}"#,
        r#"{ "type" : "object" , "properties" : { } }"#,
        r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"additionalProperties":false,"$defs":{"x":{"oneOf":[]}}}"##,
        r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{}},"required":["a"]}"#,
    ];
    for schema in plain {
        let mut plans = plans("");
        let text = rewritten(&mut plans, &one_tool(schema));
        let list: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let properties = &list["tools"][0]["inputSchema"]["properties"];
        assert_eq!(properties["operation_id"]["type"], "string", "{text}");
        assert_eq!(properties["repeat_of"]["type"], "string", "{text}");
        assert!(
            list["tools"][0]["inputSchema"]["required"].as_array().is_none_or(|it| it.len() == 1)
        );
        assert_eq!(list["tools"][1]["name"], "get_operation_status");
    }
    let other = [
        (r#"{"type":"object","oneOf":[]}"#, "oneOf"),
        (r##"{"type":"object","$ref":"#/$defs/x"}"##, "$ref"),
        (r#"{"type":"object","maxProperties":1}"#, "maxProperties"),
        (r#"{"type":"object","propertyNames":{}}"#, "propertyNames"),
        (r#"{"type":"object","patternProperties":{}}"#, "patternProperties"),
        (r#"{"type":["object","null"]}"#, "type"),
        (r#"{"properties":{}}"#, "type"),
        (r#"{"type":"object","type":"object"}"#, "type"),
    ];
    for (schema, word) in other {
        let mut plans = plans("");
        let text = rewritten(&mut plans, &one_tool(schema));
        assert!(text.contains(&format!("\"inputSchema\":{schema}}}")), "{text}");
        assert_eq!(id_of(&plans), IdField::MetaOnly(MetaOnly::NotPlain(word.into())));
    }
    for schema in [
        r#"{"type":"object","properties":[]}"#,
        "[]",
        "true",
        r#"{"type":"object","properties":{},"properties":{}}"#,
    ] {
        let mut plans = plans("");
        let text = rewritten(&mut plans, &one_tool(schema));
        assert!(text.contains(&format!("\"inputSchema\":{schema}}}")), "{text}");
        assert_eq!(id_of(&plans), IdField::MetaOnly(MetaOnly::Unreadable));
    }
}

#[test]
fn names_of_the_tools_own_are_never_taken() {
    // Promise: a server that has an operation_id of its own gets it as the client sent it.
    let of = |id, repeat| IdField::Arguments { operation_id: id, repeat_of: Some(repeat) };
    for (schema, expected) in [
        (
            r#"{"type":"object","properties":{"operation_id":{}}}"#,
            of("counterfoil_operation_id", "repeat_of"),
        ),
        (
            r#"{"type":"object","required":["operation_id"]}"#,
            of("counterfoil_operation_id", "repeat_of"),
        ),
        (
            r#"{"type":"object","properties":{"repeat_of":{}}}"#,
            of("operation_id", "counterfoil_repeat_of"),
        ),
        (
            r#"{"type":"object","properties":{"operation_id":{},"counterfoil_operation_id":{}}}"#,
            IdField::MetaOnly(MetaOnly::NamesTaken),
        ),
    ] {
        let mut plans = plans("");
        rewritten(&mut plans, &one_tool(schema));
        assert_eq!(id_of(&plans), expected, "{schema}");
    }
}

#[test]
fn a_list_changes_in_the_declared_places_alone() {
    // Promise: what we need not understand reaches the client as the server wrote it.
    let page = r#" { "ttlMs" : 1e3, "tools":[ {"z":9007199254740993,"name":"t","inputSchema":{"type":"object" },"annotations":{"readOnlyHint":false}, "x":"\u00e9\ud800"} , {"name":"r","inputSchema":{"type":"object"}} ],"unknown":{"b":1,"a":1.0}, "nextCursor":"c"} "#;
    let mut plans = plans("missing_id = \"mint\"\n[wrap.tools.r]\neffect = \"read\"");
    let text =
        String::from_utf8(plans.rewrite(page.as_bytes(), false).expect("a list")).expect("UTF-8");
    let start = text.find(",\"properties\":{\"operation_id\":").expect("declared");
    let end = start + text[start..].find("}}").expect("closed") + 2;
    assert_eq!(format!("{}{}", &text[..start], &text[end..]), page);
    assert!(!text.contains("repeat_of"), "a call without an ID joins nothing here");
    assert!(!plans.is_whole());
    assert!(plans.get("r").is_some_and(|it| !it.is_guarded()));
    let next = plans.learn(br#"{"tools":[],"nextCursor":{"odd":1}}"#).expect("a list");
    assert_eq!(next.as_deref(), Some(r#"{"odd":1}"#));
    assert_eq!(plans.learn(br#"{"tools":[],"nextCursor":null}"#), Ok(None));
    assert!(plans.is_whole());
}

#[test]
fn a_needed_id_is_declared_as_needed() {
    // Promise: where a call without an ID is refused, the schema says so.
    for (schema, required) in [
        (r#"{"type":"object"}"#, r#"["operation_id"]"#),
        (r#"{"type":"object","properties":{"a":{}},"required":[ ]}"#, r#"["operation_id"]"#),
        (r#"{"type":"object","properties":{"a":{}},"required":["a"]}"#, r#"["a","operation_id"]"#),
    ] {
        let mut plans = plans("missing_id = \"reject\"");
        let text = rewritten(&mut plans, &one_tool(schema));
        let list: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(list["tools"][0]["inputSchema"]["required"].to_string(), required);
    }
}

#[test]
fn scope_is_private_where_the_list_depends_on_who_asks() {
    // Promise: a shared cache never shows one principal's list to another; the time to live stays.
    for (page, is_private, expected) in [
        (
            r#"{"tools":[],"ttlMs":5,"cacheScope":"public"}"#,
            true,
            r#""ttlMs":5,"cacheScope":"private"}"#,
        ),
        (r#"{"tools":[],"ttlMs":5}"#, true, r#""ttlMs":5,"cacheScope":"private"}"#),
        (
            r#"{"tools":[],"ttlMs":5,"cacheScope":"public"}"#,
            false,
            r#""ttlMs":5,"cacheScope":"public"}"#,
        ),
    ] {
        let text = plans("").rewrite(page.as_bytes(), is_private).expect("a list");
        let text = String::from_utf8(text).expect("UTF-8");
        assert!(text.ends_with(expected), "{text}");
    }
    let text = plans("").rewrite(br#"{"tools":[]}"#, true).expect("a list");
    assert!(!String::from_utf8_lossy(&text).contains("cacheScope"));
}

#[test]
fn what_is_no_list_is_refused() {
    // Promise: nothing is guessed about tools.
    for page in ["", "[]", "{}", r#"{"tools":{}}"#, r#"{"tools":[],"tools":[]}"#, r#"{"tools":[}"#]
    {
        assert_eq!(plans("").rewrite(page.as_bytes(), false), Err(UnreadableList), "{page}");
    }
    let odd = r#"{"tools":[7,{"inputSchema":{}},{"name":"a","name":"b"}],"nextCursor":"x"}"#;
    let mut plans = plans("");
    assert_eq!(plans.rewrite(odd.as_bytes(), false).expect("a list"), odd.as_bytes());
    assert_eq!(plans.iter().len(), 0);
}

#[test]
fn a_hint_is_believed_only_if_the_settings_say_so_and_never_anew() {
    // Promise: no server talks itself out of the guard while it runs.
    let page = |hint: bool| {
        format!(
            r#"{{"tools":[{{"name":"t","inputSchema":{{"type":"object"}},"annotations":{{"readOnlyHint":{hint}}}}}]}}"#
        )
    };
    for (settings, first, then, expected) in [
        ("", true, true, Why::Default),
        ("trust_annotations = true", true, false, Why::TrustedHint),
        ("trust_annotations = true", false, true, Why::Default),
    ] {
        let mut plans = plans(settings);
        plans.learn(page(first).as_bytes()).expect("a list");
        plans.learn(page(then).as_bytes()).expect("a list");
        assert_eq!(plans.get("t").expect("listed").why, expected, "{settings}");
    }
    let mut said = plans("trust_annotations = true\n[wrap.tools.t]\neffect = \"write\"");
    said.learn(page(true).as_bytes()).expect("a list");
    assert!(said.get("t").expect("listed").is_guarded());
    assert!(plans("").plan("renamed").is_guarded());
}

#[test]
fn our_own_tool_gives_way() {
    // Promise: a tool of the server is reached by its own name.
    let mut plans = plans("");
    let page = r#"{"tools":[{"name":"get_operation_status","inputSchema":{"type":"object"}}]}"#;
    let text = rewritten(&mut plans, page);
    assert_eq!(plans.status_tool(), "counterfoil_get_operation_status");
    assert!(text.contains("\"name\":\"counterfoil_get_operation_status\""));
}

/// Splits a call of a tool with the usual names.
fn split(
    arguments: &str,
    call_meta: Option<&str>,
) -> Result<(Option<String>, Option<String>, String), Code> {
    let mut plans = plans("");
    plans.learn(one_tool(r#"{"type":"object"}"#).as_bytes()).expect("a list");
    let plan = plans.plan("t");
    let split = split_call(&plan, Some(arguments.as_bytes()), call_meta.map(str::as_bytes));
    let split = split.map_err(|refusal| refusal.code())?;
    let raw = String::from_utf8(split.raw_arguments.expect("there were some")).expect("UTF-8");
    let text = |id: Option<counterfoil_core::identity::OperationId>| id.map(|it| it.to_string());
    Ok((text(split.operation_id), text(split.repeat_of), raw))
}

#[test]
fn a_server_gets_its_arguments_as_the_client_wrote_them() {
    // Promise: with our fields taken out, every other byte is the client's.
    let a = || Some("a".to_owned());
    for (arguments, expected) in [
        (r#"{"operation_id":"a"}"#, (a(), None, "{}")),
        (
            r#"{"n":9007199254740993, "operation_id":"a" , "x":1.0}"#,
            (a(), None, r#"{"n":9007199254740993, "x":1.0}"#),
        ),
        (
            r#"{"x":{"operation_id":"b"},"repeat_of":"a"}"#,
            (None, a(), r#"{"x":{"operation_id":"b"}}"#),
        ),
        (
            r#"{"operation_id":null,"repeat_of":" ","x":"\u00e9"}"#,
            (None, None, r#"{"x":"\u00e9"}"#),
        ),
        (r#"{"operation\u005fid":"a","y":[1 , 2]}"#, (a(), None, r#"{"y":[1 , 2]}"#)),
        (r#" {"y":1} "#, (None, None, r#" {"y":1} "#)),
    ] {
        let (id, repeat, raw) = split(arguments, None).expect(arguments);
        assert_eq!((id, repeat, raw.as_str()), expected, "{arguments}");
    }
    let meta = |id: &str| {
        Some(format!(r#"{{"io.counterfoil/operationId":"{id}","io.counterfoil/repeatOf":"r"}}"#))
    };
    let (id, repeat, _) =
        split(r#"{"operation_id":"a"}"#, meta("a").as_deref()).expect("they agree");
    assert_eq!((id, repeat), (a(), Some("r".to_owned())));
    let (id, ..) = split("{}", meta("a").as_deref()).expect("in _meta alone");
    assert_eq!(id, a());
    for (arguments, call_meta) in [
        (r#"{"operation_id":"b"}"#, meta("a")),
        (r#"{"operation_id":"a","repeat_of":"s"}"#, meta("a")),
        (r#"{"operation_id":7}"#, None),
        (r#"{"operation_id":"a\nb"}"#, None),
        (r#"{"operation_id":"a","operation_id":"a"}"#, None),
        (r#"{"x":"\ud800"}"#, None),
        ("[]", None),
        ("{", None),
    ] {
        let refused = split(arguments, call_meta.as_deref());
        assert_eq!(refused, Err(Code::InvalidArgument), "{arguments}");
    }
}

#[test]
fn a_tool_with_the_names_of_its_own_keeps_them() {
    // Promise: what the schema declares is the server's.
    let mut plans = plans("");
    let schema = r#"{"type":"object","properties":{"operation_id":{}}}"#;
    plans.learn(one_tool(schema).as_bytes()).expect("a list");
    let arguments = r#"{"operation_id":"theirs","counterfoil_operation_id":"ours"}"#;
    let split = split_call(&plans.plan("t"), Some(arguments.as_bytes()), None).expect("good");
    assert_eq!(split.raw_arguments.as_deref(), Some(br#"{"operation_id":"theirs"}"#.as_slice()));
    assert_eq!(split.operation_id.map(|it| it.to_string()).as_deref(), Some("ours"));
    let none = split_call(&plans.plan("t"), None, None).expect("good");
    assert!(none.raw_arguments.is_none() && none.operation_id.is_none());
}

#[test]
fn an_id_under_a_name_that_is_nearly_ours_is_refused() {
    // Promise: a slip in the name of the ID never makes a call one without an ID, unknown to its
    // caller; what the tool declares itself, and what is nothing like ours, goes through.
    let mut plans = plans("");
    let schema = r#"{"type":"object","properties":{"n":{},"idempotency_key":{}}}"#;
    plans.learn(one_tool(schema).as_bytes()).expect("a list");
    let plan = plans.plan("t");
    let split = |arguments: &str| split_call(&plan, Some(arguments.as_bytes()), None);
    for (name, meant) in [
        ("operationId", "operation_id"),
        ("operation-id", "operation_id"),
        ("OPERATION_ID", "operation_id"),
        ("operaton_id", "operation_id"),
        ("counterfoil_operation_id", "operation_id"),
        ("idempotencyKey", "operation_id"),
        ("repeatOf", "repeat_of"),
    ] {
        let refused = split(&format!(r#"{{"n":1,"{name}":"a"}}"#)).expect_err(name);
        assert_eq!(refused.code(), Code::InvalidArgument, "{name}");
        for words in [name, &format!("call again with {meant}"), "nothing was done"] {
            assert!(refused.message().contains(words), "{name}: {}", refused.message());
        }
        assert!(split(&format!(r#"{{"{name}":"a","operation_id":"b"}}"#)).is_ok(), "{name}");
        assert!(split(&format!(r#"{{"{name}":null}}"#)).is_ok(), "{name}");
    }
    for name in ["idempotency_key", "id", "operation", "options", "n", "request_id"] {
        assert!(split(&format!(r#"{{"{name}":"a"}}"#)).is_ok(), "{name}");
    }
}

proptest::proptest! {
    #[test]
    fn what_was_put_in_is_taken_out_exactly(
        members in proptest::collection::vec("(\"[a-z]{1,3}[0-9]\"): ?(1[.]50|\\[1, ?2\\]|\\{\"operation_id\":1\\}|\"\\}\")", 0..5),
        at in 0_usize..6,
    ) {
        // Promise: for any arguments, adding our field and taking it out gives the same bytes.
        let mut members = members;
        members.sort();
        members.dedup_by_key(|it| it.split(':').next().map(str::to_owned));
        let original = format!("{{{}}}", members.join(", "));
        let mut with_ours = members.clone();
        with_ours.insert(at.min(members.len()), r#""operation_id":"a""#.to_owned());
        let (id, _, raw) = split(&format!("{{{}}}", with_ours.join(", ")), None).expect("good");
        proptest::prop_assert_eq!(id.as_deref(), Some("a"));
        proptest::prop_assert_eq!(raw, original);
    }
}

#[test]
fn the_explanation_names_each_tool_and_its_reason() {
    // Promise: a person sees before the first call what will be guarded, why, and what is doubtful.
    let settings = "[wrap.tools.find]\neffect = \"read\"\n[wrap.tools.gone]\nversion = \"2\"\n\
                    [wrap.tools.t.lookup]\ntool = \"find\"\napplied = [{ length = 0 }]";
    let mut plans = plans(settings);
    let page = r#"{"tools":[
        {"name":"t","inputSchema":{"type":"object"}},
        {"name":"find","inputSchema":{"type":"object"}},
        {"name":"\u001b[31m","inputSchema":{"type":"object","anyOf":[]}}]}"#;
    plans.learn(page.as_bytes()).expect("a list");
    insta::assert_snapshot!(crate::wrap::explain::text(&plans));
    let json = crate::wrap::explain::json(&plans);
    assert_eq!(json["tools"][2]["lookup"]["tool"], "find", "{json}");
    assert_eq!(json["tools"][0]["idInMetaAloneBecause"], "its schema's root has `anyOf`");
    assert_eq!(json["statusTool"], "get_operation_status");
    assert!(Raw::json(json.to_string().as_bytes()).whole().is_some());
}

#[test]
fn templates_that_ask_for_what_a_tool_does_not_have_are_noted() {
    // Promise: a slip in a template shows before the first reply is lost, and a good one is not noted.
    let settings = r#"
[wrap.tools.look]
effect = "read"
[wrap.tools.t.marker]
argument = "note"
value = "{{ args.NOTE }} {{ marker }}"
[wrap.tools.t.lookup]
tool = "look"
arguments = { n = "{{ args.LOOK }}" }
applied = [{ at = "/structuredContent/count", equals = 1 }]
"#;
    let page = r#"{"tools":[{"name":"look"},{"name":"t","inputSchema":{"type":"object",
        "properties":{"note":{},"n":{"type":"object"}}}}]}"#;
    for (note, look, expected) in
        [("note", "n.deep", 0), ("ntoe", "n", 1), ("note", "m", 1), ("ntoe", "m.deep", 2)]
    {
        let mut plans = plans(&settings.replace("NOTE", note).replace("LOOK", look));
        plans.learn(page.as_bytes()).expect("a list");
        let doubts = crate::wrap::explain::doubts(&plans);
        assert_eq!(doubts.len(), expected, "{note} {look}: {doubts:?}");
        let words = doubts.join(" ");
        assert_eq!(words.contains("made from its argument ntoe"), note == "ntoe", "{words}");
        assert_eq!(
            words.contains("looked for by its argument m,"),
            look != "n.deep" && look != "n",
            "{words}"
        );
    }
}
