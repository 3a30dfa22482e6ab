//! What is concluded from a reply, where a scripted server would say little more.

use counterfoil_core::consumer::Action as A;
use serde_json::json;

use super::*;

fn result(text: &Value) -> CallToolResult {
    serde_json::from_value(text.clone()).expect("a result")
}

fn said(state: &str, retry: &str) -> Value {
    json!({"io.counterfoil/operation": {"operationId": "op-1", "state": state, "retry": retry}})
}

#[test]
fn state_and_retry_decide_what_is_believed_of_a_result() {
    // Promise: the belief is the record's state, never the absence of an error.
    use {Effect as E, Submission as S};
    let cases = [
        ("applied", "none", false, E::Applied, A::ReturnStoredResult),
        ("applied", "none", true, E::Applied, A::ReturnStoredResult),
        ("partial", "none", true, E::Partial, A::Stop),
        ("not_applied", "new_operation", true, E::NotApplied, A::Stop),
        ("unknown", "status_only", false, E::Unknown, A::Reconcile),
        ("unknown", "none", true, E::Unknown, A::Stop),
    ];
    for (state, retry, is_error, effect, action) in cases {
        let reply = json!({"content": [], "isError": is_error, "_meta": said(state, retry)});
        let finished = judge_result(true, None, result(&reply)).expect("an answer");
        let expected = Belief { submission: S::Admitted, effect, action };
        assert_eq!(finished.belief, expected, "{state} {retry} {is_error}");
        assert_eq!(finished.operation_id.as_ref().map(OperationId::as_str), Some("op-1"));
    }
}

#[test]
fn refusals_of_guarded_tools_are_read_from_meta() {
    // Promise: a refusal is found where a foreign output schema leaves room for it; an error shape
    // in the content of an unguarded server is that server's own result.
    let error = json!({"code": "operation_conflict", "message": "bound"});
    let mut meta = said("unknown", "none");
    meta["io.counterfoil/operation"]["error"] = error.clone();
    let guarded = json!({"content": [], "isError": true, "_meta": meta});
    let finished = judge_result(true, None, result(&guarded)).expect("an answer");
    assert!(matches!(&finished.reply, Reply::Refused(r) if r.code == "operation_conflict"));
    let foreign = json!({"content": [], "isError": true, "structuredContent": {"error": error}});
    let finished = judge_result(true, None, result(&foreign)).expect("an answer");
    assert!(matches!(finished.reply, Reply::Result(_)), "{finished:?}");
    assert_eq!(finished.belief.effect, Effect::Unknown);
}

#[test]
fn a_conflict_never_says_that_the_operation_did_not_happen() {
    // Promise: a conflict proves that another request has the ID, and that one may have happened.
    let error = json!({"code": "operation_conflict", "message": "bound"});
    let refusal = json!({"content": [], "isError": true, "structuredContent": {"error": error},
                         "_meta": said("unknown", "none")});
    let finished = judge_result(true, None, result(&refusal)).expect("an answer");
    let expected = Belief {
        submission: Submission::NotAdmitted,
        effect: Effect::Unknown,
        action: Action::Stop,
    };
    assert_eq!(finished.belief, expected);
}

#[test]
fn a_call_that_was_kept_from_the_tool_says_nothing_of_an_earlier_one() {
    // Promise: HTTP's refusal proves that this call did nothing; an ID that was brought may have
    // been sent before, and that effect stays unknown.
    let id = OperationId::parse("op-1").expect("an ID");
    for (id, effect) in [(Some(id), Effect::Unknown), (None, Effect::NotApplied)] {
        let finished = denied(id, "http_429".into(), "over a limit".into());
        let expected = Belief { submission: Submission::NotAdmitted, effect, action: Action::Stop };
        assert_eq!(finished.belief, expected);
    }
}

#[test]
fn the_value_is_the_structured_content_else_the_text_else_the_blocks() {
    // Promise: the result that is passed on is the tool's own, whole.
    let text = json!({"type": "text", "text": "hi"});
    let cases = [
        (json!({"content": [text], "structuredContent": {"n": 1}}), json!({"n": 1})),
        (json!({"content": [], "structuredContent": null}), json!(null)),
        (json!({"content": [text]}), json!("hi")),
        (json!({"content": [text, text]}), json!([text, text])),
        (json!({"content": []}), json!([])),
    ];
    for (reply, expected) in cases {
        assert_eq!(value_of(result(&reply)), expected, "{reply}");
    }
}
