//! The guard's own results, and what it adds to an upstream's: which operation it was, how it stands
//! and what may be sent next. Agents see no `_meta`, so that refusals say it in their text too.

use bytes::Bytes;
use counterfoil_core::observation::{ObservedState, direct_verdict, retry_after};
use counterfoil_core::record::{Record, Resolution};
use counterfoil_core::refusal::{Code, Refusal, Retry};
use counterfoil_store::direct::DirectView;
use serde_json::{Value, json};

use crate::tools::reply::server_info;
use crate::wire::meta;
use crate::wrap::Body;
use crate::wrap::raw::{Edits, Raw, only};

/// What `_meta["io.counterfoil/operation"]` says.
#[derive(Debug, Clone)]
pub(super) struct Stands {
    pub(super) id: String,
    pub(super) state: &'static str,
    pub(super) replayed: bool,
    pub(super) retry: Retry,
}

impl Stands {
    /// How an operation stands on record. The call that saw that nothing happened, and nobody else,
    /// is told that a new operation may be used.
    pub(super) fn of(view: &DirectView, replayed: bool) -> Self {
        let (state, detail) = direct_verdict(&view.record, &view.item);
        let fresh = !replayed && view.record.resolution != Some(Resolution::Unproved);
        let retry = match state {
            ObservedState::NotApplied if fresh => Retry::NewOperation,
            _ => retry_after(state, detail),
        };
        Self { id: view.record.operation_id.to_string(), state: state.as_str(), replayed, retry }
    }

    fn member(&self, error: Option<Value>) -> Value {
        let mut said = json!({
            "operationId": self.id,
            "state": self.state,
            "replayed": self.replayed,
            "retry": self.retry.as_str(),
        });
        if let Some(error) = error {
            said["error"] = error;
        }
        said
    }
}

/// An upstream's result with `_meta` of ours beside what it says, and `note` as a last text block.
/// Every other byte stays.
pub(super) fn marked(result: &[u8], stands: &Stands, note: Option<&str>) -> Bytes {
    let raw = Raw::json(result);
    let Some((span, members)) = raw.whole().and_then(|it| Some((it.clone(), raw.members(&it)?)))
    else {
        return Bytes::copy_from_slice(result);
    };
    let mut edits = Edits::default();
    let ours = format!("{}:{}", json!(meta::OPERATION), stands.member(None));
    let kept = only(&members, "_meta").map(|meta| meta.value.clone());
    match kept.and_then(|span| Some((raw.members(&span)?, span))) {
        Some((inside, span)) => edits.add_member(&span, &inside, &ours),
        None => edits.add_member(&span, &members, &format!("\"_meta\":{{{ours}}}")),
    }
    if let Some(note) = note {
        let content = only(&members, "content").map(|content| content.value.clone());
        if let Some((blocks, span)) = content.and_then(|it| Some((raw.elements(&it)?, it))) {
            let block = json!({ "type": "text", "text": note }).to_string();
            edits.add_element(&span, &blocks, &block);
        }
    }
    edits.apply(result).into()
}

/// A result of ours, one block for each text.
fn own(texts: &[&str], is_error: bool, operation: Option<Value>, modern: bool) -> Body {
    let mut said = json!({ meta::SERVER_INFO: server_info() });
    if let Some(operation) = operation {
        said[meta::OPERATION] = operation;
    }
    let block = |text: &&str| json!({ "type": "text", "text": text });
    let mut result = json!({
        "content": texts.iter().map(block).collect::<Vec<_>>(),
        "isError": is_error,
        "_meta": said,
    });
    if modern {
        result["resultType"] = "complete".into();
    }
    Body::Result(result.to_string().into())
}

/// A refusal as a tool error. It carries no structured content, which would have to conform to the
/// upstream's own schema.
pub(super) fn refused(refusal: &Refusal, retry: Retry, modern: bool) -> Body {
    let id = refusal.operation_id().map(ToString::to_string);
    let error = json!({
        "code": refusal.code().as_str(),
        "message": refusal.message(),
        "operationId": id,
        "retry": retry.as_str(),
    });
    let operation = match id {
        Some(id) => Stands { id, state: "unknown", replayed: false, retry }.member(Some(error)),
        None => json!({ "retry": retry.as_str(), "error": error }),
    };
    let named = refusal.operation_id().map(|id| format!(" (operation {id})")).unwrap_or_default();
    let text = format!("{}{named}: {}", refusal.code().as_str(), refusal.message());
    own(&[&text], true, Some(operation), modern)
}

/// What the caller of a lost request is told: what is known, what not to do, how to check.
pub(super) fn in_doubt(record: &Record, tool: &str, why: &str, how: &str, modern: bool) -> Body {
    let words = format!(
        "the call of {tool} was sent and no answer came ({why}). It may have taken effect and \
         nobody knows yet. Do not send it again, neither with another operation_id nor without \
         one. {how}"
    );
    let refusal = Refusal::new(Code::OperationInDoubt, words, Some(record.operation_id.clone()));
    refused(&refusal, Retry::StatusOnly, modern)
}

/// Nothing was sent.
pub(super) fn not_sent(view: &DirectView, tool: &str, why: &str, modern: bool) -> Body {
    let stands = Stands::of(view, false);
    if stands.state == "not_applied" {
        let text = format!(
            "The call of {tool} was not sent ({why}), and nothing was done. It is over: to do it \
             after all, call again with a new operation_id."
        );
        return own(&[&text], true, Some(stands.member(None)), modern);
    }
    let words = format!(
        "the call of {tool} was not sent ({why}), and nothing was done; the same call with the \
         same operation_id may be sent again"
    );
    let id = view.record.operation_id.clone();
    let refusal = Refusal::new(Code::StoreUnavailable, words, Some(id));
    refused(&refusal, Retry::SameOperation, modern)
}

/// The refusal of a call whose operation is in doubt since an earlier one.
pub(super) fn still_in_doubt(refusal: &Refusal, tool: &str, how: &str, modern: bool) -> Body {
    let words = format!(
        "an earlier call of {tool} was sent and no answer came, so nothing was done now. It may \
         have taken effect and nobody knows yet. Do not send it again, neither with another \
         operation_id nor without one. {how}"
    );
    let refusal = Refusal::new(refusal.code(), words, refusal.operation_id().cloned());
    refused(&refusal, Retry::StatusOnly, modern)
}

/// Nothing was sent or written: it is not known yet where the tool's calls carry their IDs.
pub(super) fn not_listed(tool: &str, modern: bool) -> Body {
    let words = format!(
        "the call of {tool} was not sent (the server has not told its tools yet), and nothing was \
         done; the same call with the same operation_id may be sent again"
    );
    refused(&Refusal::new(Code::StoreUnavailable, words, None), Retry::SameOperation, modern)
}

/// An operation that was settled without an answer of the upstream that could be kept: by a look,
/// by an operator, or by an answer that was too long. `note` is for whoever joined it.
pub(super) fn without_reply(
    view: &DirectView,
    stands: &Stands,
    note: Option<&str>,
    typed: bool,
    modern: bool,
) -> Body {
    let stored = view.record.result.as_ref().map(|result| result.as_json());
    if let (Some(result), None) = (stored, view.record.resolution)
        && let Some(result) = as_result(result.as_bytes(), modern)
    {
        return Body::Result(marked(&result, stands, note));
    }
    let text = match stored.map(serde_json::from_str) {
        Some(Ok(Value::String(words))) => words,
        _ if view.record.resolution.is_some() => format!(
            "An operator settled this operation as {}. Its own answer was lost. Do not send it \
             again.",
            stands.state
        ),
        _ => format!("This operation is settled as {}. Its own answer is gone.", stands.state),
    };
    // A tool that promises structured content cannot give any here, which makes it an error that
    // says all the same how the operation stands.
    let is_error = typed || stands.state != "applied";
    let texts: Vec<&str> = [text.as_str()].into_iter().chain(note).collect();
    own(&texts, is_error, Some(stands.member(None)), modern)
}

/// A result with the type that results have from 2026-07-28 on, if `modern`; `None` if it is no tool's
/// result.
pub(super) fn as_result(stored: &[u8], modern: bool) -> Option<Vec<u8>> {
    let raw = Raw::json(stored);
    let span = raw.whole()?;
    let members = raw.members(&span)?;
    only(&members, "content")?;
    let mut edits = Edits::default();
    if modern && only(&members, "resultType").is_none() {
        edits.add_member(&span, &members, "\"resultType\":\"complete\"");
    }
    Some(edits.apply(stored))
}

/// A continuation that was not issued for this call. One message, whatever the cause.
pub(super) fn state_refused() -> Body {
    let words = counterfoil_core::seal::StateRefused.to_string();
    invalid_params(&words, Some(Retry::StatusOnly))
}

/// JSON-RPC -32602.
pub(super) fn invalid_params(words: &str, retry: Option<Retry>) -> Body {
    let mut error = json!({ "code": -32602, "message": words });
    if let Some(retry) = retry {
        error["data"] = json!({ "retry": retry.as_str() });
    }
    Body::Error(error.to_string().into())
}

/// JSON-RPC -32603 for a call that is relayed without a record.
pub(super) fn relay_failed(words: &str) -> Body {
    Body::Error(json!({ "code": -32603, "message": words }).to_string().into())
}

/// Whether a revision's results have a type.
pub(super) fn is_modern(revision: Option<&str>) -> bool {
    revision.is_some_and(|revision| revision >= "2026-07-28")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stands() -> Stands {
        Stands { id: "op-1".into(), state: "applied", replayed: false, retry: Retry::None }
    }

    #[test]
    fn an_upstreams_result_keeps_every_other_byte() {
        // Promise: big integers, the order of keys, blanks and escapes stay as the server wrote them.
        let ours = concat!(
            r#""io.counterfoil/operation":{"operationId":"op-1","replayed":false,"#,
            r#""retry":"none","state":"applied"}"#
        );
        let cases = [
            (
                r#"{"z":123456789012345678901234567890, "a" : "\u00e9","content":[]}"#.to_owned(),
                format!(
                    r#"{{"z":123456789012345678901234567890, "a" : "\u00e9","content":[],"_meta":{{{ours}}}}}"#
                ),
            ),
            (
                r#"{"_meta":{"theirs":1.0},"content":[]}"#.to_owned(),
                format!(r#"{{"_meta":{{"theirs":1.0,{ours}}},"content":[]}}"#),
            ),
            (r"{}".to_owned(), format!(r#"{{"_meta":{{{ours}}}}}"#)),
        ];
        for (result, expected) in cases {
            let marked = marked(result.as_bytes(), &stands(), None);
            assert_eq!(String::from_utf8_lossy(&marked), expected);
        }
    }

    #[test]
    fn a_result_of_ours_has_the_type_that_its_revision_asks_for() {
        // Promise: a client of 2026-07-28 reads what was found for it: without a type it would have to
        // refuse the result.
        for (result, expected) in [
            (r#"{"content":[]}"#, r#"{"content":[],"resultType":"complete"}"#),
            (r#"{"resultType":"x","content":[]}"#, r#"{"resultType":"x","content":[]}"#),
        ] {
            let typed = as_result(result.as_bytes(), true).expect("a result");
            assert_eq!(String::from_utf8_lossy(&typed), expected);
            assert_eq!(as_result(result.as_bytes(), false).as_deref(), Some(result.as_bytes()));
        }
    }

    #[test]
    fn a_note_is_one_more_block_of_text() {
        // Promise: whoever joined an operation reads when it was answered and how to repeat it.
        let marked = marked(br#"{"content":[{"type":"text","text":"a"}]}"#, &stands(), Some("b"));
        let result: Value = serde_json::from_slice(&marked).expect("JSON");
        assert_eq!(result["content"][1], json!({ "type": "text", "text": "b" }));
    }

    #[test]
    fn a_refusal_has_no_structured_content() {
        // Promise: what we say never breaks the upstream's own schema, and the text says it too.
        let id = counterfoil_core::identity::OperationId::parse("op-1").expect("an ID");
        let Body::Result(bytes) = refused(&Refusal::in_doubt(id), Retry::StatusOnly, true) else {
            panic!("a refusal is a tool error")
        };
        let result: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert!(result.get("structuredContent").is_none() && result["isError"] == json!(true));
        let said = &result["_meta"]["io.counterfoil/operation"];
        assert_eq!(said["error"]["code"], "operation_in_doubt");
        assert_eq!((&said["retry"], &said["operationId"]), (&json!("status_only"), &json!("op-1")));
        assert!(result["content"][0]["text"].as_str().expect("text").contains("op-1"));
    }
}
