//! An upstream's reply, as far as it decides anything, and as it is kept.

use std::sync::Arc;

use bytes::Bytes;
use counterfoil_core::direct::{AnswerShape, ErrorMeans, Meaning, Reply, ReplyKind, meaning};
use counterfoil_core::record::StoredResult;
use counterfoil_engine::Sent;
use serde_json::json;

use crate::wrap::raw::{Member, Raw, only};
use crate::wrap::settings;
use crate::wrap::tools::ToolPlan;
use crate::wrap::{Body, UpstreamReply};

/// What decides about a reply besides its own words.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// Which request of its operation it answers, counted from 1.
    pub(super) leg: u32,
    /// What the tool's settings say of errors.
    pub(super) plan: Arc<ToolPlan>,
    /// The longest result that is kept, in bytes.
    pub(super) max_bytes: usize,
    /// The protocol revision that is spoken.
    pub(super) revision: Arc<str>,
}

impl Reading {
    /// What a reply comes to.
    pub(super) fn read(&self, reply: &UpstreamReply) -> Sent {
        match reply {
            UpstreamReply::Whole(bytes) => self.whole(&bytes.body_without_ours()),
            UpstreamReply::TooLarge { size_bytes, is_complete, is_error } => {
                let shape = if *is_complete && !self.plan.has_error_texts() {
                    AnswerShape::Result { is_error: *is_error }
                } else {
                    AnswerShape::Unreadable
                };
                self.too_large(shape, *size_bytes)
            }
        }
    }

    fn error_means(&self) -> ErrorMeans {
        match self.plan.error_means {
            settings::ErrorMeans::Unknown => ErrorMeans::Unknown,
            settings::ErrorMeans::NotApplied => ErrorMeans::NotApplied,
            settings::ErrorMeans::Applied => ErrorMeans::Applied,
        }
    }

    fn whole(&self, body: &Body) -> Sent {
        let (bytes, shape, kind) = match body {
            Body::Result(bytes) => {
                let (shape, kind) = self.result(bytes);
                (bytes, shape, kind)
            }
            Body::Error(bytes) => (bytes, error(bytes), ReplyKind::Error),
        };
        if bytes.len() > self.max_bytes {
            return self.too_large(shape, bytes.len() as u64);
        }
        let meaning = meaning(shape, self.leg, self.error_means());
        let reply = (meaning != Meaning::Unknown).then(|| Reply {
            kind,
            revision: Arc::clone(&self.revision),
            json: Arc::from(&bytes[..]),
        });
        Sent::Answered { meaning, reply, result: None }
    }

    fn result(&self, bytes: &Bytes) -> (AnswerShape, ReplyKind) {
        let unreadable = (AnswerShape::Unreadable, ReplyKind::Result);
        let raw = Raw::json(bytes);
        let Some(members) = raw.whole().and_then(|span| raw.members(&span)) else {
            return unreadable;
        };
        let word = |name| only(&members, name).map(|member| raw.string(&member.value));
        match word("resultType") {
            None => {}
            Some(Some(kind)) if kind == "complete" => {}
            Some(Some(kind)) if kind == "input_required" => {
                return (AnswerShape::InputRequired, ReplyKind::InputRequired);
            }
            Some(Some(kind)) if kind == "task" => return (AnswerShape::Task, ReplyKind::Task),
            Some(_) => return unreadable,
        }
        // Before there was a word for it, a task was told by its member.
        if only(&members, "task").is_some() && only(&members, "content").is_none() {
            return (AnswerShape::Task, ReplyKind::Task);
        }
        let said = only(&members, "isError").is_some_and(|m| raw.bytes(&m.value) == b"true");
        let is_error = said || self.begins_like_an_error(&raw, &members);
        (AnswerShape::Result { is_error }, ReplyKind::Result)
    }

    fn begins_like_an_error(&self, raw: &Raw<'_>, members: &[Member]) -> bool {
        let first = || {
            let content = only(members, "content")?;
            let block = raw.elements(&content.value)?.into_iter().next()?;
            let text = only(&raw.members(&block)?, "text")?.value.clone();
            raw.string(&text)
        };
        first().is_some_and(|text| self.plan.is_error_text(&text))
    }

    fn too_large(&self, shape: AnswerShape, size: u64) -> Sent {
        let words = format!(
            "The server answered with {size} bytes, more than the {} that can be kept and passed \
             on, so the answer itself is lost.",
            self.max_bytes
        );
        Sent::Answered {
            meaning: meaning(shape, self.leg, self.error_means()),
            reply: None,
            result: Some(stand_in(&words)),
        }
    }
}

/// What is kept where the answer cannot be: an error, since only an error conforms to every schema
/// that the tool may have for its output.
fn stand_in(words: &str) -> StoredResult {
    let content = json!([{ "type": "text", "text": words }]);
    let result = json!({ "content": content, "isError": true });
    StoredResult::from_json(result.to_string()).expect("it is plain JSON")
}

/// Whether a JSON-RPC error says that there is no such method (JSON-RPC 2.0, section 5.1).
pub(super) fn says_no_such_method(bytes: &Bytes) -> bool {
    error(bytes) == AnswerShape::Error { code: -32601 }
}

fn error(bytes: &Bytes) -> AnswerShape {
    let raw = Raw::json(bytes);
    let members = raw.whole().and_then(|span| raw.members(&span)).unwrap_or_default();
    let code = only(&members, "code").map(|member| raw.bytes(&member.value));
    let code = code.and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
    code.map_or(AnswerShape::Unreadable, |code| AnswerShape::Error { code })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::wrap::tools::Plans;

    fn reading(error_texts: &[&str]) -> Reading {
        let settings = format!("[wrap.tools.t]\nerror_texts = {error_texts:?}\n");
        let settings = settings::WrapSettings::of_text(Path::new("t.toml"), &settings);
        let plan = Plans::new(Arc::new(settings.expect("good settings"))).plan("t");
        Reading { leg: 1, plan, max_bytes: 100, revision: "2026-07-28".into() }
    }

    fn check(body: &Body, texts: &[&str], expected: (Meaning, Option<ReplyKind>)) {
        let Sent::Answered { meaning, reply, .. } = reading(texts).whole(body) else {
            panic!("a reply is an answer")
        };
        assert_eq!((meaning, reply.map(|reply| reply.kind)), expected, "{body:?}");
    }

    #[test]
    fn a_reply_is_read_by_its_type_and_its_error_flag() {
        // Promise: only a complete result without an error proves the effect; what cannot be read is
        // as if nothing had come.
        use {Meaning as M, ReplyKind as K};
        let result = |text: &'static str| Body::Result(Bytes::from_static(text.as_bytes()));
        let error = |text: &'static str| Body::Error(Bytes::from_static(text.as_bytes()));
        let cases = [
            (result(r#"{"content":[]}"#), M::Applied, Some(K::Result)),
            (result(r#"{"content":[],"resultType":"complete"}"#), M::Applied, Some(K::Result)),
            (result(r#"{"content":[],"isError":true}"#), M::Answered, Some(K::Result)),
            (result(r#"{"isError":false,"content":[]}"#), M::Applied, Some(K::Result)),
            (result(r#"{"resultType":"input_required"}"#), M::Asks, Some(K::InputRequired)),
            (result(r#"{"resultType":"task","task":{}}"#), M::Answered, Some(K::Task)),
            (result(r#"{"task":{"taskId":"1"}}"#), M::Answered, Some(K::Task)),
            (result(r#"{"resultType":"new"}"#), M::Unknown, None),
            (result(r#"{"resultType":7}"#), M::Unknown, None),
            (result("[]"), M::Unknown, None),
            (error(r#"{"code":-32602,"message":"x"}"#), M::NotApplied, Some(K::Error)),
            (error(r#"{"code":-32603,"message":"x"}"#), M::Answered, Some(K::Error)),
            (error(r#"{"message":"x"}"#), M::Unknown, None),
        ];
        for (body, meaning, kind) in cases {
            check(&body, &[], (meaning, kind));
        }
        let said = result(r#"{"content":[{"type":"text","text":"Error: no"}]}"#);
        check(&said, &["Error:"], (M::Answered, Some(K::Result)));
        check(&said, &["Failed"], (M::Applied, Some(K::Result)));
    }

    #[test]
    fn a_long_result_settles_all_the_same() {
        // Promise: a result that is too long to keep is an effect that happened.
        let text = format!(r#"{{"content":[],"long":"{}"}}"#, "x".repeat(200));
        let Sent::Answered { meaning, reply, result } =
            reading(&[]).whole(&Body::Result(text.into_bytes().into()))
        else {
            panic!("a reply is an answer")
        };
        assert_eq!((meaning, reply.is_none(), result.is_some()), (Meaning::Applied, true, true));
    }
}
