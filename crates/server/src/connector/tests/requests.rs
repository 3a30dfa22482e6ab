//! Requests as they are made of arguments.

use counterfoil_core::delivery::TargetIdentity;
use counterfoil_core::fingerprint::{KeyId, KeyRing, SecretKey};
use counterfoil_core::identity::{BackendId, OperationId, Tenant};
use counterfoil_core::json::{JsonLimits, Object, Value, parse};
use proptest::prelude::*;

use super::*;

fn json(text: &str) -> Value {
    parse(text.as_bytes(), &JsonLimits::default()).expect("JSON")
}

fn freeze_as(
    connector: &Connector,
    arguments: &Value,
    tenant: &str,
    operation: &str,
) -> Result<FrozenRequest, FreezeError> {
    let key = SecretKey::from_bytes(&[7; 32]).expect("32 bytes");
    let keys = KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("a ring");
    let identity = TargetIdentity {
        backend: &BackendId::parse("lab").expect("a name"),
        tenant: &Tenant::parse(tenant).expect("a name"),
        operation: &OperationId::parse(operation).expect("an ID"),
    };
    connector.freeze(arguments, identity, &keys)
}

fn freeze(arguments: &str) -> Result<FrozenRequest, FreezeError> {
    freeze_as(&desk(), &json(arguments), "acme", "op-1")
}

#[test]
fn a_request_is_rendered_whole_when_it_is_accepted() {
    // Promise: values keep their types and their digits, and what is not given is left out.
    let frozen = freeze(
        r#"{"queue":"it/support","subject":"a \"b\"","count":9007199254740993,"tags":["x","y"]}"#,
    )
    .expect("a request");
    let marker = frozen.marker.clone().expect("a marker");
    let call = &frozen.request;
    assert_eq!(call.method, "POST");
    assert_eq!(call.url, "https://desk.test/v1/it%2Fsupport/tickets?source=mcp");
    let headers: Vec<_> = call.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(
        headers,
        [
            ("x-subject", "a \"b\""),
            ("content-type", "application/json"),
            ("idempotency-key", "op-1"),
        ]
    );
    let body = call.body.as_deref().expect("a body");
    let body = json(body);
    let member = |name: &str| body.get(name).map(Value::to_json);
    assert_eq!(member("subject"), Some(format!("\"a \\\"b\\\" [{marker}]\"")));
    assert_eq!(member("count").as_deref(), Some("9007199254740993"));
    assert_eq!(member("urgent"), None);
    assert_eq!(member("tags").as_deref(), Some("[\"mcp\",\"x y\"]"));
    assert_eq!(member("fixed").as_deref(), Some("1.50"));
    assert_eq!(body.get("nested").and_then(|it| it.get("null")), Some(&Value::Null));
    let lookup = frozen.lookup.as_ref().expect("a lookup");
    assert_eq!(lookup.expected, marker);
    assert_eq!(lookup.request.url, format!("https://desk.test/v1/tickets?q={marker}"));
    assert_eq!(frozen.account.as_deref(), Some("bot"));
    assert_eq!(FrozenRequest::decode(&frozen.encode()).expect("ours"), frozen);
}

#[test]
fn arguments_that_make_no_request_are_refused_without_their_values() {
    // Promise: nothing is accepted that cannot be sent, and no value is told.
    let (subject, tag) = ("s3cret".repeat(160_000), "s3cret".repeat(20_000));
    let long = format!(r#"{{"queue":"q","subject":"{subject}","tags":["{tag}"]}}"#);
    for (arguments, words) in [
        (r#"{"subject":"s3cret"}"#, "\"queue\" is a required property"),
        (r#"{"queue":"..","subject":"s3cret"}"#, "`..` segment"),
        (r#"{"queue":"","subject":"s3cret"}"#, "an empty"),
        (r#"{"queue":"q","subject":"s3cret\r\nX: y"}"#, "header x-subject would hold U+000D"),
        (r#"{"queue":"q","subject":"s3cr\u00e9t"}"#, "printable ASCII"),
        (r#"{"queue":"q","subject":"s3cret","colour":1}"#, "no argument `colour`"),
        (&long, "at most 1048576"),
    ] {
        let error = freeze(arguments).expect_err(arguments).to_string();
        assert!(error.contains(words), "{words}: {error}");
        assert!(!error.contains("s3cr"), "{error}");
    }
    let other = freeze_as(&desk(), &json(r#"{"queue":"q","subject":"a"}"#), "umbrella", "op-1");
    assert!(matches!(other, Err(FreezeError::OtherTenant { .. })), "{other:?}");
    let header = freeze_as(&desk(), &json(r#"{"queue":"q","subject":"a"}"#), "acme", "ü");
    assert!(matches!(header, Err(FreezeError::Header { .. })), "{header:?}");
}

#[test]
fn tenants_that_share_a_credential_never_share_a_key() {
    // Promise: the same operation ID of two tenants is two keys and two markers at the target.
    let text =
        GOOD.replace("exclusive_to = \"acme\"\n", "").replace("key = \"operation_id\"\n", "");
    let shared = read(&text).expect("good").iter().next().expect("one").clone();
    let arguments = json(r#"{"queue":"q","subject":"a"}"#);
    let of = |tenant: &str| freeze_as(&shared, &arguments, tenant, "op-1").expect("a request");
    let (acme, again, umbrella) = (of("acme"), of("acme"), of("umbrella"));
    assert_eq!(acme, again);
    assert_ne!(acme.idempotency_key, umbrella.idempotency_key);
    assert_ne!(acme.marker, umbrella.marker);
    let sent = acme.request.headers.iter().find(|(name, _)| name == "idempotency-key");
    assert_eq!(sent.map(|(_, value)| value), acme.idempotency_key.as_ref());
    assert_ne!(acme.idempotency_key.as_deref(), Some("op-1"));
}

#[test]
fn a_form_body_is_encoded() {
    // Promise: a value adds no field to a form.
    let start = GOOD.find("[connector.desk.json]").expect("there");
    let end = GOOD.find("[connector.desk.success]").expect("there");
    let form = "[connector.desk.form]\nsubject = \"{{ args.subject }}\"\nmark = \"{{ marker }}\"\n";
    let text = format!("{}{form}{}", &GOOD[..start], &GOOD[end..]);
    let connector = read(&text).expect("good").iter().next().expect("one").clone();
    let arguments = json(r#"{"queue":"q","subject":"a&mark=b c"}"#);
    let frozen = freeze_as(&connector, &arguments, "acme", "op-1").expect("a request");
    let marker = frozen.marker.expect("a marker");
    let expected = format!("mark={marker}&subject=a%26mark%3Db%20c");
    assert_eq!(frozen.request.body, Some(expected));
}

#[test]
fn a_template_that_drops_the_marker_makes_no_request() {
    // Promise: an effect that cannot be found again is never made: its absence would seem proved.
    for template in
        ["{{ marker | truncate(3) }}", "{{ marker if args.urgent is defined else 'none' }}"]
    {
        let text = GOOD.replace("[{{ marker }}]", template);
        assert_ne!(text, GOOD);
        let connector = read(&text).expect(template).iter().next().expect("one").clone();
        let arguments = json(r#"{"queue":"q","subject":"s"}"#);
        let refused = freeze_as(&connector, &arguments, "acme", "op-1").expect_err(template);
        assert!(matches!(refused, FreezeError::Lost { what: "marker", .. }), "{refused}");
    }
}

#[test]
fn templates_cannot_run_away() {
    // Promise: an argument cannot make us use time or memory without end.
    let with = |template: &str| {
        let text = GOOD.replace("fixed = 1.50", &format!("fixed = '{template}'"));
        let connector = read(&text).expect(template).iter().next().expect("one").clone();
        let long = "x".repeat(100_000);
        let arguments = json(&format!(r#"{{"queue":"q","subject":"{long}","count":999999999}}"#));
        freeze_as(&connector, &arguments, "acme", "op-1")
    };
    for template in [
        "{{ \"x\" * args.count }}",
        "{{ args.subject | replace(\"x\", args.subject) }}",
        "{{ [args.subject, args.subject, args.subject] * 1000 | join(args.subject) }}",
        "{{ args.subject * 20 }}",
    ] {
        assert!(with(template).is_err(), "{template}");
    }
    let long = with("{{ args.subject | replace(\"x\", \"yy\") | upper | truncate(100000) }}");
    assert!(long.is_ok(), "a long text is no run-away: {long:?}");
}

proptest! {
    #[test]
    fn no_text_breaks_the_body_or_adds_a_header(subject in any::<String>(), queue in any::<String>()) {
        // Promise: an argument is data, whatever it holds.
        let arguments = Value::Object(Object::from_iter([
            ("subject".to_owned(), Value::from(subject.as_str())),
            ("queue".to_owned(), Value::from(queue.as_str())),
        ]));
        let text = GOOD.replace("X-Subject = \"{{ args.subject | truncate(20) }}\"", "X-A = \"b\"");
        let connector = read(&text).expect("good").iter().next().expect("one").clone();
        if let Ok(frozen) = freeze_as(&connector, &arguments, "acme", "op-1") {
            let body = json(frozen.request.body.as_deref().expect("a body"));
            let marker = frozen.marker.expect("a marker");
            let sent = body.get("subject").and_then(Value::as_str).expect("text");
            prop_assert_eq!(sent, format!("{subject} [{marker}]"));
            prop_assert_eq!(frozen.request.headers.len(), 3);
        }
    }
}
