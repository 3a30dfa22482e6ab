//! What operators declare: configuration files, and connectors with their templates.

use counterfoil::config::{Environment, Flags, Settings};
use counterfoil::connector::read_file;
use counterfoil_core::delivery::TargetIdentity;
use counterfoil_core::fingerprint::{KeyId, KeyRing, SecretKey};
use counterfoil_core::identity::{BackendId, OperationId, Tenant};
use counterfoil_core::json::{JsonLimits, parse};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{cases, damage};

const CONFIGURATION: &str = r#"
data_dir = "DIR"
backend_id = "lab"
principal = "alice"
store = "sqlite"
lock_wait = "1s"
drain = "30s"
worker = true

[lifetimes]
state = "10m"
authority = "1h"
retention = "30d"

[retention]
job = true
interval = "5m"

[http]
allowed_hosts = "a.test, b.test:8080"
allowed_origins = "https://a.test"
max_connections = 10
session_idle = "15m"
"#;

/// Every value goes to one place of each kind.
fn connector(template: &str) -> String {
    let template = toml_text(template);
    format!(
        r#"
[connector.desk]
tool = "file_ticket"
description = "Files a ticket."
url = "https://desk.test/v1/{{{{ args.a }}}}/x?q={{{{ args.b }}}}&r=1"
contract = "never"

[connector.desk.arguments]
type = "object"
required = ["a", "b"]

[connector.desk.arguments.properties]
a = {{ type = "string" }}
b = {{ type = "string" }}

[connector.desk.headers]
X-A = "{{{{ args.a }}}}"

[connector.desk.json]
t = "{{{{ args.a }}}}"
u = "x{{{{ args.b }}}}y"
w = {template}

[connector.desk.success]
status = [200]
"#
    )
}

fn toml_text(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            char if char.is_control() => out.push_str(&format!("\\u{:04X}", char as u32)),
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

/// Pieces of which templates are made, good and bad.
fn templates() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "{{ args.a }}",
        "{{ args.b | upper }}",
        "{{ key }}",
        "{{",
        "}}",
        "{% for x in args %}",
        "{#",
        "{{ args.a ~ args.b }}",
        "{{ args.a | replace('a', args.b) }}",
        "{{ args.a[0] }}",
        "{{ args }}",
        "{{ args.zz }}",
        "{{ 1 / 0 }}",
        "{{ args.a | truncate(3) }}",
        "{{ args.a | tojson }}",
        "{{ none }}",
        "{{ [1, 2] | join(',') }}",
        "{{ 'x' * 1000000 }}",
        "{{ range(1000000000) }}",
        "{{ args.__class__ }}",
        "{{ args.a if args.b is defined else 'z' }}",
        "{{ (((((((((1))))))))) }}",
        "\\",
        "'",
        "plain ",
    ]);
    prop_oneof![
        Just("{{ args.b }}".to_owned()),
        prop::collection::vec(pieces, 0..4).prop_map(|pieces| pieces.concat()),
    ]
}

/// What a caller may give: mostly texts that headers can hold, and that mean something elsewhere.
fn values() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        "..",
        ".",
        "/",
        "../x",
        "a?b#c",
        "a&b=c",
        "\"},{\"",
        "{{ key }}",
        "%2e%2e",
        "%00",
        "a b",
        "\\",
        "https://evil.test/",
        "@evil.test",
        "\r\nX-B: 1",
        "\u{0}",
        "é",
        "\u{202e}",
    ]);
    prop_oneof![
        3 => "[!-~]{1,30}",
        2 => (odd, "[!-~]{0,5}").prop_map(|(odd, rest)| format!("{odd}{rest}")),
        1 => any::<String>(),
    ]
}

fn load_settings(text: &[u8]) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("counterfoil.toml");
    std::fs::write(&path, text).expect("written");
    let flags = Flags { config: Some(path), values: Vec::new() };
    let env = Environment::from_iter([("HOME", folder.path().as_os_str())]);
    match Settings::load(&flags, &env) {
        Ok(_) => true,
        Err(error) => {
            assert!(error.count() > 0 && !error.to_string().is_empty());
            false
        }
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_configuration_is_taken_or_refused_in_words(
        damages in prop::collection::vec(damage(), 0..4)
    ) {
        // Promise: no file panics the reader; and what is taken is TOML to another reader's
        // grammar.
        let mut text = CONFIGURATION.as_bytes().to_vec();
        for damage in &damages {
            text = damage.of(&text);
        }
        let taken = load_settings(&text);
        if damages.is_empty() {
            prop_assert!(taken, "the good one is good");
        }
        if taken {
            let text = String::from_utf8(text);
            prop_assert!(text.is_ok(), "a file that is not UTF-8 was taken");
        }
    }

    #[test]
    fn an_unknown_key_is_never_taken(key in "[a-z]{3,9}_zz", section in prop::sample::select(vec![
        "", "[lifetimes]", "[retention]", "[http]",
    ])) {
        // Promise: a setting that nobody reads is a mistake, wherever it stands.
        let line = format!("{key} = 1\n");
        let text = match section {
            "" => format!("{line}{CONFIGURATION}"),
            section => CONFIGURATION.replace(section, &format!("{section}\n{line}")),
        };
        prop_assert!(!load_settings(text.as_bytes()));
    }

    #[test]
    fn no_value_of_a_call_becomes_structure(
        a in values(), b in values(), template in templates()
    ) {
        // Promise: whatever a caller gives, the request keeps the declared origin, path, header and
        // members; a template that cannot be is refused when it is read or when it is filled.
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("desk.toml");
        std::fs::write(&path, connector(&template)).expect("written");
        let Ok(connectors) = read_file(&path) else { return Ok(()) };
        let connector = connectors.iter().next().expect("one").clone();
        let key = SecretKey::from_bytes(&[7; 32]).expect("32 bytes");
        let keys = KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("a ring");
        let identity = TargetIdentity {
            backend: &BackendId::parse("lab").expect("a name"),
            tenant: &Tenant::parse("acme").expect("a name"),
            operation: &OperationId::parse("op-1").expect("an ID"),
        };
        let arguments = json!({ "a": a, "b": b }).to_string();
        let arguments = parse(arguments.as_bytes(), &JsonLimits::default()).expect("JSON");
        let Ok(frozen) = connector.freeze(&arguments, identity, &keys) else { return Ok(()) };
        let call = frozen.request;
        let url = call.url.strip_prefix("https://desk.test/v1/").expect("the declared origin");
        let (segment, rest) = url.split_once('/').expect("the declared path");
        let query = rest.strip_prefix("x?q=").expect("the declared path");
        let value = query.strip_suffix("&r=1").expect("the declared query");
        let odd = ['/', '?', '#', '&', '=', ' ', '"', '<', '\\', '\r', '\n', '\0'];
        for text in [segment, value] {
            prop_assert!(!text.contains(odd) && text.is_ascii(), "{}", call.url);
        }
        prop_assert!(!matches!(segment, "" | "." | ".."), "{}", call.url);
        for (name, value) in &call.headers {
            let printable = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            prop_assert!(printable, "{} {:?}", name, value);
        }
        let body: Value = serde_json::from_str(&call.body.expect("a body")).expect("JSON");
        prop_assert_eq!(&body["t"], a.as_str());
        let u = format!("x{b}y");
        prop_assert_eq!(&body["u"], u.as_str());
        let members = body.as_object().expect("an object").keys().map(String::as_str);
        prop_assert!(members.clone().all(|name| ["t", "u", "w"].contains(&name)), "{}", body);
    }

    #[test]
    fn a_damaged_connector_is_read_without_a_panic(template in templates(), damage in damage()) {
        // Promise: no file of connectors panics the reader; a refusal names at least one mistake.
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("desk.toml");
        std::fs::write(&path, damage.of(connector(&template).as_bytes())).expect("written");
        if let Err(error) = read_file(&path) {
            prop_assert!(error.count() > 0);
        }
    }
}

#[test]
fn the_undamaged_ones_are_good() {
    // Promise: the properties above are about files that are read, and not about refusals alone.
    assert!(load_settings(CONFIGURATION.as_bytes()));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("desk.toml");
    std::fs::write(&path, connector("{{ args.a }}")).expect("written");
    let connectors = read_file(&path);
    assert_eq!(connectors.map(|it| it.len()).map_err(|error| error.to_string()), Ok(1));
}
