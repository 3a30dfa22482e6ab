//! Looks at the server for the effects of operations that are in doubt: when somebody asks, after
//! each start of the server, and again and again with longer pauses.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::direct::LookupEnd;
use counterfoil_core::identity::{OperationId, OperationKey};
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_core::operation::State;
use counterfoil_core::record::StoredResult;
use counterfoil_engine::Engine;
use counterfoil_store::direct::{DirectView, LookupFound, WhichDirect};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::asked::marker;
use super::{CallGuard, LIST_PATIENCE, Opened};
use crate::wrap::lookup::{CallFacts, Verdict};
use crate::wrap::tools::ToolPlan;
use crate::wrap::{Body, Upstream, UpstreamReply, UpstreamState};

/// A look takes at most so long.
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks for one operation, at first and at the longest.
const PAUSE: std::ops::Range<Duration> = Duration::from_secs(1)..Duration::from_secs(300);
/// How often operations in doubt are searched for.
const ROUND: Duration = Duration::from_secs(5);
/// Operations are read in pages of so many.
const PAGE: usize = 100;

/// When an operation is looked for next.
#[derive(Debug, Clone, Copy)]
struct Due {
    at: Instant,
    pause: Duration,
}

pub(super) async fn run(guard: &Arc<CallGuard>, stop: CancellationToken) {
    let Some(opened) = guard.opened().await else { return };
    let mut due = HashMap::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = guard.settle.notified() => {}
            () = tokio::time::sleep(ROUND) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = round(guard, &opened, &mut due) => {}
        }
    }
}

/// Looks for every operation in doubt whose time has come.
async fn round(guard: &CallGuard, opened: &Opened, due: &mut HashMap<OperationKey, Due>) {
    let Some(upstream) = guard.upstream.get() else { return };
    if !matches!(upstream.state(), UpstreamState::Ready(_)) {
        return;
    }
    let name = opened.upstream();
    let (mut after, mut seen) = (None, HashMap::new());
    loop {
        let page = match opened.engine.in_doubt(&name, after, PAGE).await {
            Ok(page) => page,
            Err(why) => return tracing::warn!(%why, "operations in doubt cannot be read"),
        };
        for view in &page {
            let key = view.record.key;
            let now = Instant::now();
            let mut next = due.get(&key).copied().unwrap_or(Due { at: now, pause: PAUSE.start });
            if next.at <= now && !guard.look(opened, upstream, view).await {
                next = Due { at: now + next.pause, pause: (next.pause * 2).min(PAUSE.end) };
            }
            seen.insert(key, next);
        }
        match page.last() {
            Some(last) if page.len() == PAGE => after = Some(last.record.key),
            _ => break,
        }
    }
    *due = seen;
}

impl CallGuard {
    /// Looks now for an operation that somebody asks about, if it is in doubt; whether it is settled
    /// by that.
    pub(super) async fn look_now(&self, opened: &Opened, id: &OperationId) -> bool {
        let which = WhichDirect::Id(self.caller.tenant.clone(), id.clone());
        let view = opened.engine.direct_view(which).await.ok().flatten();
        let own = |view: &DirectView| {
            view.record.principal == self.caller.principal
                && view.record.state == State::InDoubt
                && view.item.upstream == opened.upstream()
        };
        match (view.filter(own), self.upstream.get()) {
            (Some(view), Some(upstream)) => self.look(opened, upstream, &view).await,
            _ => false,
        }
    }

    /// One look at the server; whether the operation is settled now.
    async fn look(&self, opened: &Opened, upstream: &Upstream, view: &DirectView) -> bool {
        let prefix = opened.prefix();
        let Some(tool) = view.record.tool_id.as_str().strip_prefix(&prefix) else { return false };
        let engine = &opened.engine;
        // Its answer is still waited for here.
        if engine.holds(view.record.key) {
            return false;
        }
        if self.read_plans().get(tool).is_none() {
            let deadline = Instant::now() + LIST_PATIENCE;
            let is_listed =
                upstream.wait_ready(deadline).await.is_some() && self.list(upstream).await.is_ok();
            if !is_listed {
                return false;
            }
        }
        let plan = self.read_plans().plan(tool);
        match timeout(LOOK_LIMIT, self.found(engine, upstream, view, &plan)).await {
            Ok(Some(found)) => match engine.settle_by_lookup(found).await {
                Ok(settled) => settled.is_some(),
                Err(why) => {
                    tracing::warn!(%why, "what a look found could not be recorded");
                    false
                }
            },
            Ok(None) | Err(_) => false,
        }
    }

    async fn found(
        &self,
        engine: &Arc<Engine>,
        upstream: &Upstream,
        view: &DirectView,
        plan: &ToolPlan,
    ) -> Option<LookupFound> {
        let (lookup, memo) = (plan.lookup()?, view.memo.as_deref()?);
        let arguments = parse(memo, &JsonLimits::default()).ok()?;
        let record = &view.record;
        let key = engine.keys().get(record.binding.key_id)?;
        let marker = marker(engine, &record.tenant, &record.operation_id, key);
        let facts = CallFacts {
            arguments: &arguments,
            operation_id: record.operation_id.as_str(),
            marker: &marker,
            dispatched_at: record.created_at,
        };
        let asked = lookup.arguments(&facts).inspect_err(|why| {
            tracing::warn!(
                operation = %record.operation_id, tool = plan.name, with = lookup.tool(), %why,
                "an operation in doubt cannot be looked for: the lookup's arguments cannot be made \
                 from its call; correct the lookup, or settle it with `counterfoil operation resolve`"
            );
        });
        let asked = asked.ok()?;
        let params = format!("{{\"name\":{},\"arguments\":{asked}}}", json!(lookup.tool()));
        let began = engine.now();
        let reply = upstream.ask("tools/call", params.as_bytes()).await.ok()?;
        let UpstreamReply::Whole(reply) = reply else { return None };
        let Body::Result(result) = reply.body() else { return None };
        let last = view.item.last_send_until.filter(|last| began >= *last);
        let begun_after = last.map(|last| began.since(last));
        let how = format!("by a look with {}", lookup.tool());
        let key = record.key;
        match lookup.judge(&result, &facts, begun_after) {
            Verdict::Applied => {
                let settled = lookup.settled(&result, &facts, plan.output_schema.as_deref());
                let json = String::from_utf8(settled.json).ok()?;
                let result = StoredResult::from_json(json).ok()?;
                Some(LookupFound { key, end: LookupEnd::Found, result, how })
            }
            Verdict::NotApplied => {
                let absence_after = lookup.absence_after()?;
                let words = "The call did not take effect: a look at the server, long enough after \
                             it, did not find it.";
                let end = LookupEnd::Absent { began, absence_after };
                Some(LookupFound { key, end, result: StoredResult::from_text(words), how })
            }
            Verdict::Many => {
                tracing::error!(
                    operation = %record.operation_id,
                    tool = plan.name,
                    "the effect of one operation was found more than once; an operator must look"
                );
                None
            }
            Verdict::Unknown(why) => {
                tracing::debug!(operation = %record.operation_id, why, "a look proved nothing");
                None
            }
        }
    }
}
