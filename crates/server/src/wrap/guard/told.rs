//! What a caller is told of its operation, and which of these replies answer it: only one that
//! carries the operation's own result. Our refusals never do.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use counterfoil_core::direct::{Reply, ReplyKind, late_contradiction};
use counterfoil_core::identity::OperationKey;
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_core::refusal::{Code, Refusal};
use counterfoil_engine::{DirectAnswer, Engine};
use counterfoil_store::direct::DirectView;
use serde_json::json;

use super::words::{self, Stands, in_doubt, is_modern, marked, not_sent, without_reply};
use super::{CallGuard, Opened};
use crate::tools::arguments::Arguments;
use crate::tools::operation_status;
use crate::tools::reply::observed;
use crate::wrap::raw::{Edits, Raw, only};
use crate::wrap::tools::ToolPlan;
use crate::wrap::{Body, CallFrame, CallToken};

/// Of so many replies that were written it is remembered whose they were: their callers may still
/// say that they did not wait for them.
const REMEMBERED: usize = 256;

/// Replies that answer operations, until it is known whether they were written.
#[derive(Debug, Default)]
pub(super) struct Tellings {
    open: HashMap<CallToken, OperationKey>,
    written: VecDeque<(CallToken, OperationKey)>,
}

impl Tellings {
    fn will_answer(&mut self, call: CallToken, key: OperationKey) {
        self.open.insert(call, key);
    }

    /// What to note, if the reply to `call` answers an operation.
    pub(super) fn told(&mut self, call: CallToken, written: bool) -> Option<(OperationKey, bool)> {
        if let Some(key) = self.open.remove(&call) {
            if written {
                self.written.push_back((call, key));
                if self.written.len() > REMEMBERED {
                    self.written.pop_front();
                }
            }
            // What was never written never counted.
            return written.then_some((key, true));
        }
        let at = self.written.iter().position(|(known, _)| *known == call)?;
        if written {
            return None;
        }
        self.written.remove(at).map(|(_, key)| (key, false))
    }
}

impl CallGuard {
    /// The reply to a guarded call.
    pub(super) fn tell(
        &self,
        engine: &Arc<Engine>,
        plan: &ToolPlan,
        call: &CallFrame,
        answer: DirectAnswer,
        modern: bool,
    ) -> Body {
        match answer {
            DirectAnswer::Answer { view, .. } if late_contradiction(&view.record, &view.item) => {
                // What is on record is contradicted by the server itself: it must not be said again.
                let how = how_to_check(plan, self.read_plans().status_tool());
                let why = "it was settled as not applied, and the server said later that it did it";
                in_doubt(&view.record, &plan.name, why, &how, modern)
            }
            DirectAnswer::Answer { view, leg, replayed, joined } => {
                let stands = Stands::of(&view, replayed);
                let note = joined.then(|| joined_note(&view));
                let asks = view.reply.as_ref().is_some_and(|r| r.kind == ReplyKind::InputRequired);
                if asks && (!view.record.state.ages() || leg < view.item.leg) {
                    return asked(engine, &view, leg, &stands);
                }
                self.tellings().will_answer(call.token(), view.record.key);
                match &view.reply {
                    Some(reply) => kept(reply, &stands, note.as_deref(), modern),
                    None => {
                        let typed = plan.output_schema.is_some();
                        without_reply(&view, &stands, note.as_deref(), typed, modern)
                    }
                }
            }
            DirectAnswer::Unknown { view, why } => {
                self.settle.notify_one();
                let how = how_to_check(plan, self.read_plans().status_tool());
                in_doubt(&view.record, &plan.name, &why, &how, modern)
            }
            DirectAnswer::NotSent { view, why } => not_sent(&view, &plan.name, &why, modern),
            DirectAnswer::Refused { refusal, joined: false }
                if refusal.code() == Code::OperationInDoubt =>
            {
                let how = how_to_check(plan, self.read_plans().status_tool());
                words::still_in_doubt(&refusal, &plan.name, &how, modern)
            }
            DirectAnswer::Refused { refusal, joined } => {
                words::refused(&told_of_join(refusal.clone(), joined), refusal.retry(), modern)
            }
            DirectAnswer::Unfit => words::state_refused(),
        }
    }

    /// Answers a call of our own status tool. What is in doubt is looked for first.
    pub(super) async fn status(
        self: &Arc<Self>,
        opened: &Opened,
        call: &CallFrame,
        modern: bool,
    ) -> Body {
        let strict = |bytes: Option<Bytes>| {
            bytes.map(|bytes| parse(&bytes, &JsonLimits::default())).transpose()
        };
        let read = (strict(call.arguments()), strict(call.meta()));
        let (arguments, meta) = match read {
            (Ok(arguments), Ok(meta)) => (arguments, meta),
            (Err(why), _) | (_, Err(why)) => {
                return words::invalid_params(&why.to_string(), None);
            }
        };
        let empty = counterfoil_core::json::Value::Object(Default::default());
        let arguments = arguments.as_ref().unwrap_or(&empty);
        let observed = async {
            let names = ["operation_id"];
            let read = Arguments::read(operation_status::NAME, &names, arguments, meta.as_ref())?;
            let id = read.operation_id(meta.as_ref())?;
            self.look_now(opened, &id).await;
            let account = opened.engine.observe(&self.caller, &id).await?;
            Ok::<_, Refusal>(observed(&account, None))
        };
        match observed.await {
            Ok(result) => {
                let mut result = serde_json::to_value(result).expect("a result is plain JSON");
                if modern {
                    result["resultType"] = "complete".into();
                }
                Body::Result(result.to_string().into())
            }
            Err(refusal) => words::refused(&refusal, refusal.retry(), modern),
        }
    }
}

/// A kept answer of the upstream.
fn kept(reply: &Reply, stands: &Stands, note: Option<&str>, modern: bool) -> Body {
    match reply.kind {
        ReplyKind::Error => Body::Error(Bytes::copy_from_slice(&reply.json)),
        // An answer from before results had a type gets one where they must.
        _ if modern && !is_modern(Some(&reply.revision)) => {
            let typed = words::as_result(&reply.json, true);
            Body::Result(marked(typed.as_deref().unwrap_or(&reply.json), stands, note))
        }
        _ => Body::Result(marked(&reply.json, stands, note)),
    }
}

/// What the upstream asked, with a state of ours in the place of its own.
fn asked(engine: &Engine, view: &DirectView, leg: u32, stands: &Stands) -> Body {
    let Some(reply) = &view.reply else { return words::state_refused() };
    let Ok(state) = engine.issue_leg(&view.record, leg) else { return words::state_refused() };
    let raw = Raw::json(&reply.json);
    let Some((span, members)) = raw.whole().and_then(|it| Some((it.clone(), raw.members(&it)?)))
    else {
        return words::state_refused();
    };
    let mut edits = Edits::default();
    let written = json!(state).to_string();
    match only(&members, "requestState") {
        Some(member) => edits.replace(member.value.clone(), written),
        None => edits.add_member(&span, &members, &format!("\"requestState\":{written}")),
    }
    Body::Result(marked(&edits.apply(&reply.json), stands, None))
}

fn joined_note(view: &DirectView) -> String {
    let when = view.record.settled_at.unwrap_or(view.record.created_at).to_rfc3339();
    let id = &view.record.operation_id;
    format!(
        "This is the answer of an earlier, equal call that nobody had read: operation {id}, settled \
         at {when}. Nothing was done now. To do it once more, call again with repeat_of: \"{id}\"."
    )
}

/// A call without an ID that met an operation under way learns how it would be new work.
fn told_of_join(refusal: Refusal, joined: bool) -> Refusal {
    match refusal.operation_id().cloned().filter(|_| joined) {
        None => refusal,
        Some(id) => {
            let words = format!(
                "an equal call was sent before and is unanswered, so this one was not sent; {}; if \
                 the effect is meant a second time, call again with repeat_of: \"{id}\"",
                refusal.message()
            );
            Refusal::new(refusal.code(), words, Some(id))
        }
    }
}

fn how_to_check(plan: &ToolPlan, status_tool: String) -> String {
    match plan.lookup() {
        Some(lookup) => format!(
            "It is being looked for with {}; ask {status_tool} with this operation_id for the \
             outcome.",
            lookup.tool()
        ),
        None => format!(
            "Ask {status_tool} with this operation_id; if it stays unknown, check at the service \
             itself whether the effect is there, and tell the user: an operator settles it with \
             `counterfoil operation resolve`."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_answers_and_it_can_be_taken_back() {
        // Promise: a reply that its caller never got leaves the operation unanswered.
        let key = |n| OperationKey::from_bytes([n; 16]);
        let mut tellings = Tellings::default();
        tellings.will_answer(CallToken(1), key(1));
        tellings.will_answer(CallToken(2), key(2));
        assert_eq!(tellings.told(CallToken(1), true), Some((key(1), true)));
        assert_eq!(tellings.told(CallToken(2), false), None, "it never counted");
        assert_eq!(tellings.told(CallToken(3), true), None, "a refusal answers nothing");
        assert_eq!(tellings.told(CallToken(1), true), None, "once is enough");
        assert_eq!(tellings.told(CallToken(1), false), Some((key(1), false)));
        assert_eq!(tellings.told(CallToken(1), false), None);
    }
}
