//! What every case checks in the same way. A check panics when a promise does not hold.

use std::path::Path;

use counterfoil_core::consumer::{Belief, Expected, accept};
use counterfoil_core::identity::{BackendId, OperationId, Principal};
use counterfoil_core::observation::Observation;
use serde_json::{Value, json};

use crate::session::Reply;
use crate::transcript::{self, Frame, Side};

/// What a reply to `create_issue` says.
///
/// # Panics
/// If it says anything else.
#[track_caller]
pub fn check_settled(reply: &Reply, state: &str, effect_id: i64, result: &str, replayed: bool) {
    let content = reply.content();
    let said = (&content["state"], &content["effectId"], &content["result"], &content["replayed"]);
    assert_eq!(
        said,
        (&json!(state), &json!(effect_id), &json!(result), &json!(replayed)),
        "{content}"
    );
}

/// The one issue of a case, made now or before.
///
/// # Panics
/// If it says anything else.
#[track_caller]
pub fn check_applied(reply: &Reply, replayed: bool) {
    check_settled(reply, "applied", 1, "created 1", replayed);
}

/// The code of a refusal, and what the caller may do next.
///
/// # Panics
/// If it says anything else.
#[track_caller]
pub fn check_refused(reply: &Reply, code: &str, retry: &str) {
    let refusal = reply.refusal();
    assert_eq!((&refusal["code"], &refusal["retry"]), (&json!(code), &json!(retry)), "{refusal}");
}

/// The one answer to a state that cannot be used.
///
/// # Panics
/// If it says anything else.
#[track_caller]
pub fn check_state_refused(reply: &Reply) {
    match reply {
        Reply::Error { code: -32602, message, data } => {
            assert!(message.starts_with("the continuation state is not usable"), "{message}");
            assert_eq!(data, &json!({ "retry": "status_only" }));
        }
        other => panic!("the state was to be refused: {other:?}"),
    }
}

/// A status that settles nothing.
///
/// # Panics
/// If it says anything else.
#[track_caller]
pub fn check_unknown(reply: &Reply, detail: &str) {
    let content = reply.content();
    assert_eq!(content["state"], "unknown", "{content}");
    assert_eq!(content["detail"], detail, "{content}");
    assert_eq!(content["authoritative"], false, "{content}");
    assert_eq!(content["freshWriteAuthorized"], false, "{content}");
    assert_eq!(content["matchingIds"], json!([]), "{content}");
    assert_eq!(content["storedResult"], Value::Null, "{content}");
}

/// A status that settles the one issue of a case.
///
/// # Panics
/// If it says anything else.
#[track_caller]
pub fn check_observed(reply: &Reply, state: &str, result: &str) {
    let content = reply.content();
    assert_eq!(content["state"], state, "{content}");
    assert_eq!(content["authoritative"], true, "{content}");
    assert_eq!(content["freshWriteAuthorized"], false, "{content}");
    assert_eq!(content["matchingIds"], json!([1]), "{content}");
    assert_eq!(content["storedResult"], result, "{content}");
}

/// What the consumer's rules make of a status.
///
/// # Panics
/// If the status contradicts itself.
#[must_use]
#[track_caller]
pub fn believe(status: &Reply, operation_id: &str) -> Belief {
    let seen: Observation =
        serde_json::from_value(status.content().clone()).expect("a status has its fields");
    let expected = Expected {
        operation_id: OperationId::parse(operation_id).expect("valid"),
        principal: Some(Principal::parse("alice").expect("valid")),
        backend: Some(BackendId::parse("lab").expect("valid")),
    };
    accept(&expected, &seen).expect("the status agrees with itself")
}

/// The frames of one side.
///
/// # Errors
/// If there is no transcript.
pub fn frames(transcript: &Path, side: Side) -> anyhow::Result<Vec<Frame>> {
    let all = transcript::read(transcript)?;
    Ok(all.into_iter().filter(|frame| frame.from == side).collect())
}

/// What the client sent, as JSON.
///
/// # Errors
/// If there is no transcript.
pub fn sent(transcript: &Path) -> anyhow::Result<Vec<Value>> {
    Ok(frames(transcript, Side::Client)?.iter().map(Frame::json).collect())
}

/// The tools that a transcript's client called.
///
/// # Errors
/// If there is no transcript.
pub fn called_tools(transcript: &Path) -> anyhow::Result<Vec<String>> {
    let calls = sent(transcript)?.into_iter().filter(|frame| frame["method"] == "tools/call");
    Ok(calls.map(|call| call["params"]["name"].as_str().unwrap_or_default().to_owned()).collect())
}
