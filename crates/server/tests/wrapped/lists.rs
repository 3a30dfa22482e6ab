//! What becomes of the lists of tools that the servers gave when they were recorded.

use std::sync::Arc;

use counterfoil::wrap::explain;
use counterfoil::wrap::settings::WrapSettings;
use counterfoil::wrap::tools::{IdField, Plans};
use serde_json::Value;

/// Each preset with the `result` of its server's `tools/list`.
pub(crate) const LISTS: &[(&str, &str)] = &[
    ("filesystem", include_str!("lists/filesystem.json")),
    ("git", include_str!("lists/git.json")),
    ("memory", include_str!("lists/memory.json")),
    ("sqlite", include_str!("lists/sqlite.json")),
];

/// The plans of a preset for a list.
pub(crate) fn plans(preset: &str, list: &str) -> Plans {
    let settings = WrapSettings::load(&[preset.to_owned()], None);
    let mut plans = Plans::new(Arc::new(settings.unwrap_or_else(|error| panic!("{error}"))));
    plans.learn(list.as_bytes()).expect("a list");
    plans
}

#[test]
fn each_preset_says_what_happens_to_every_tool() {
    // Promise: a preset covers its server's whole list, and nothing that is not in it.
    for (preset, list) in LISTS {
        let plans = plans(preset, list);
        assert_eq!(plans.iter().len(), plans.settings().tools.len(), "{preset}");
        assert_eq!(explain::doubts(&plans), Vec::<String>::new(), "{preset}");
        insta::assert_snapshot!(*preset, explain::text(&plans));
    }
}

#[test]
fn a_list_keeps_every_byte_but_the_declared_arguments_and_our_tool() {
    // Promise: a client sees the server's tools as the server tells them.
    for (preset, list) in LISTS {
        let list = list.trim_end();
        let mut plans = plans(preset, list);
        let rewritten = plans.rewrite(list.as_bytes(), false).expect("a list");
        let rewritten = String::from_utf8(rewritten).expect("UTF-8");
        let (before, after): (Value, Value) = (
            serde_json::from_str(list).expect("JSON"),
            serde_json::from_str(&rewritten).expect("JSON"),
        );
        let (old, new) = (&before["tools"], &after["tools"]);
        let count = old.as_array().expect("a list").len();
        assert_eq!(new[count]["name"], "get_operation_status");
        // What was added is cut out again, as it was written.
        let mut restored = rewritten.clone();
        for plan in plans.iter() {
            let IdField::Arguments { operation_id, repeat_of } = &plan.id_field else { continue };
            assert_eq!((*operation_id, *repeat_of), ("operation_id", Some("repeat_of")));
            let start = restored.find(",\"operation_id\":{\"description\":").expect("declared");
            let end = restored[start..].find("told.\"").expect("closed") + start;
            let end = restored[end..].find('}').expect("closed") + end + 1;
            restored.replace_range(start..end, "");
        }
        let own = restored.rfind(",{\"").expect("our tool");
        let own = restored[..own + 1].rfind(",{\"name\":\"get_operation_status\"").unwrap_or(own);
        restored.truncate(own);
        assert!(list.starts_with(&restored), "{preset}: {restored}");
        assert_eq!(&list[restored.len()..], "]}", "{preset}");
    }
}

#[test]
fn schemas_that_declare_the_id_are_still_schemas() {
    // Promise: a client that validates what it sends finds a good schema.
    for (preset, list) in LISTS {
        let rewritten = plans(preset, list).rewrite(list.as_bytes(), false).expect("a list");
        let page: Value = serde_json::from_slice(&rewritten).expect("JSON");
        for tool in page["tools"].as_array().expect("a list") {
            let schema = counterfoil::connector::Schema::of_object(tool["inputSchema"].clone());
            assert!(schema.is_ok(), "{preset} {}: {schema:?}", tool["name"]);
        }
    }
}
