//! Which arguments are the same request, seen through engine and ledger: an embedder's tool takes
//! numbers, which the built-in tools do not.

mod common;

use std::sync::Arc;

use common::Bench;
use counterfoil_core::admission::{Authority, Call};
use counterfoil_core::fingerprint::Profile;
use counterfoil_core::identity::{OperationId, ToolId, ToolVersion};
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_core::record::StoredResult;
use counterfoil_core::refusal::Code;
use counterfoil_engine::{Effect, Engine};
use counterfoil_lab::child::ChildOptions;
use counterfoil_store::{Completion, EffectContext, EffectError, EffectTx};

/// An effect that makes nothing but its result.
#[derive(Debug)]
struct Nothing;

impl Effect for Nothing {
    fn apply(
        &self,
        _tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        Ok(Completion::Whole { row: None, result: StoredResult::from_text("done") })
    }
}

/// Calls the tool; true if it is a replay.
async fn call(
    engine: &Arc<Engine>,
    options: &ChildOptions,
    profile: Profile,
    id: &str,
    arguments: &str,
) -> Result<bool, Code> {
    let arguments = parse(arguments.as_bytes(), &JsonLimits::default()).expect("JSON");
    let admitted = engine.admit(&Call {
        caller: &options.caller().expect("a caller"),
        tool_id: &ToolId::parse("pay").expect("valid"),
        tool_version: &ToolVersion::parse("1").expect("valid"),
        profile,
        operation_id: &OperationId::parse(id).expect("valid"),
        arguments: &arguments,
        call_arguments: &arguments,
        continuation_state: None,
        input_responses: None,
        authority: Authority::Present,
    });
    let admitted = admitted.map_err(|refusal| refusal.code())?;
    let settled = engine.execute(admitted, Arc::new(Nothing)).await;
    settled.map(|settled| settled.replayed()).map_err(|refusal| refusal.code())
}

/// What becomes of a request under strict-v1 and under jcs-v1: replayed, or refused with a code.
type Under = [Result<bool, Code>; 2];

#[tokio::test]
async fn equal_values_replay_and_unequal_ones_conflict() {
    // Promise: a request is its JSON value: other spellings of a number and another order of
    // members are the same request, and a number that cannot be held exactly is never rounded into
    // another one.
    let (same, conflict) = (Ok(true), Err(Code::OperationConflict));
    let refused = Err(Code::InvalidArgument);
    let cases: &[(&str, &str, &str, Under)] = &[
        // First, second, and what becomes of the second.
        ("point zero", r#"{"n":12345}"#, r#"{"n":12345.0}"#, [same, same]),
        ("exponent", r#"{"n":100}"#, r#"{"n":1e2}"#, [same, same]),
        ("negative zero", r#"{"n":0}"#, r#"{"n":-0}"#, [same, same]),
        ("order", r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#, [same, same]),
        ("deep order", r#"{"x":[{"b":1,"a":2}]}"#, r#"{"x":[{"a":2,"b":1}]}"#, [same, same]),
        ("list order", r#"{"x":[1,2]}"#, r#"{"x":[2,1]}"#, [conflict, conflict]),
        ("text", r#"{"n":1}"#, r#"{"n":"1"}"#, [conflict, conflict]),
        ("absent", r#"{"n":null}"#, "{}", [conflict, conflict]),
        (
            "2^53 and 2^53+1",
            r#"{"n":9007199254740991}"#,
            r#"{"n":9007199254740993}"#,
            [refused, refused],
        ),
        ("2^53", r#"{"n":9007199254740991}"#, r#"{"n":9007199254740992}"#, [refused, conflict]),
        ("2^53+1 as float", r#"{"n":1}"#, r#"{"n":9.007199254740993e15}"#, [refused, refused]),
        ("a fraction", r#"{"n":1}"#, r#"{"n":1.5}"#, [refused, conflict]),
    ];
    let bench = Bench::new("equal-values");
    let options = bench.options();
    let engine = Arc::new(options.engine().await.expect("an engine"));
    let mut operation_count = 0;
    for (name, first, second, expected) in cases {
        for (profile, expected) in [Profile::StrictV1, Profile::JcsV1].into_iter().zip(expected) {
            let id = format!("{name} {profile:?}");
            assert_eq!(call(&engine, &options, profile, &id, first).await, Ok(false), "{id}");
            assert_eq!(call(&engine, &options, profile, &id, second).await, *expected, "{id}");
            operation_count += 1;
        }
    }
    // The profile is part of the record: the same value under the other one is another request.
    assert_eq!(call(&engine, &options, Profile::StrictV1, "p", "{}").await, Ok(false));
    assert_eq!(call(&engine, &options, Profile::JcsV1, "p", "{}").await, conflict);
    engine.close().await.expect("it closes");
    let rows = bench.rows();
    assert_eq!(rows.count("operations"), operation_count + 1);
    assert!(rows.states().values().all(|state| state == "applied"));
}
