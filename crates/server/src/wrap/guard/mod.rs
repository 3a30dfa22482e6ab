//! The guard: stands on one side of the relay's seam, with the ledger on the other. Each call of a
//! guarded tool is an operation; every other message is none of its business.

mod asked;
mod sender;
mod settle;
mod shape;
mod told;
mod words;

use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use counterfoil_core::identity::Caller;
use counterfoil_core::refusal::Code;
use counterfoil_engine::{DirectAnswer, DirectCall, Engine};
use futures_util::future::BoxFuture;
use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;

use self::asked::{Asked, NotAsked};
use self::sender::PortSender;
use self::shape::Reading;
use self::told::Tellings;
use self::words::{is_modern, relay_failed};
use super::settings::{UpstreamKey, WrapSettings};
use super::tools::{Plans, ToolPlan};
use super::{
    Announced, Answer, Body, CallFrame, CallPort, CallToken, Guard, Lost, PageInfo, Upstream,
    UpstreamEvent, UpstreamReply,
};

/// How long a call waits for a server that is starting again.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the server's list of tools is waited for.
const LIST_PATIENCE: Duration = Duration::from_secs(10);
/// Between two servers that are asked for their list.
const LIST_PAUSE: Duration = Duration::from_millis(20);
/// A list of tools has at most so many pages.
const PAGE_LIMIT: usize = 1000;

/// The ledger, and under which key it knows the server.
#[derive(Debug)]
pub struct Opened {
    /// The ledger.
    pub engine: Arc<Engine>,
    /// The server's key.
    pub key: UpstreamKey,
}

/// The ledger, which is opened while the server starts.
pub type LedgerSlot = watch::Receiver<Option<Arc<Opened>>>;

/// The server did not tell its tools.
#[derive(Debug, Clone, Copy)]
pub(super) struct NotListed;

/// Guards the tools of one server.
#[derive(Debug)]
pub struct CallGuard {
    ledger: LedgerSlot,
    caller: Caller,
    settings: Arc<WrapSettings>,
    plans: RwLock<Plans>,
    /// Filled once the server's own list was read, or could not be.
    listed: OnceCell<()>,
    upstream: OnceLock<Upstream>,
    tellings: Mutex<Tellings>,
    /// Raised when there may be something to look for.
    settle: Arc<tokio::sync::Notify>,
}

impl CallGuard {
    /// A guard of one server, whose calls are `caller`'s.
    #[must_use]
    pub fn new(ledger: LedgerSlot, caller: Caller, settings: Arc<WrapSettings>) -> Arc<Self> {
        Arc::new(Self {
            ledger,
            caller,
            plans: RwLock::new(Plans::new(Arc::clone(&settings))),
            settings,
            listed: OnceCell::new(),
            upstream: OnceLock::new(),
            tellings: Mutex::default(),
            settle: Arc::default(),
        })
    }

    /// Looks for operations in doubt until `stop`, as long as the server lives.
    pub async fn settle(self: Arc<Self>, stop: CancellationToken) {
        settle::run(&self, stop).await;
    }

    /// The ledger, once it is open; `None` if it never will be.
    pub(super) async fn opened(&self) -> Option<Arc<Opened>> {
        let mut slot = self.ledger.clone();
        slot.wait_for(Option::is_some).await.ok().and_then(|opened| opened.clone())
    }

    /// Reads the server's own list, once: where IDs stand, and what is read-only, depend on it. Only
    /// an answer of the server ends that: without one, an ID among the arguments would be taken for an
    /// argument of the tool's own.
    async fn list(&self, upstream: &Upstream) -> Result<(), NotListed> {
        let read = async {
            let mut cursor = None::<String>;
            for _ in 0..PAGE_LIMIT {
                let params = match &cursor {
                    None => "{}".to_owned(),
                    Some(cursor) => format!("{{\"cursor\":{cursor}}}"),
                };
                let asked = upstream.ask("tools/list", params.as_bytes()).await;
                let reply = match asked {
                    Ok(UpstreamReply::Whole(reply)) => reply,
                    Ok(UpstreamReply::TooLarge { .. }) => return Ok(()),
                    Err(_) => return Err(NotListed),
                };
                let result = match reply.body() {
                    Body::Result(result) => result,
                    // A server without tools has no such method; any other error may pass.
                    Body::Error(error) if shape::says_no_such_method(&error) => return Ok(()),
                    Body::Error(_) => return Err(NotListed),
                };
                let learned = self.write_plans().learn(&result);
                match learned {
                    Ok(Some(next)) => cursor = Some(next),
                    Ok(None) => return Ok(()),
                    Err(why) => {
                        tracing::warn!(%why, "the server's tools are not known");
                        return Ok(());
                    }
                }
            }
            Ok(())
        };
        let listed = self.listed.get_or_try_init(|| async {
            match tokio::time::timeout(LIST_PATIENCE, read).await {
                Ok(listed) => listed,
                Err(_) => Err(NotListed),
            }
        });
        listed.await.copied()
    }

    fn write_plans(&self) -> std::sync::RwLockWriteGuard<'_, Plans> {
        self.plans.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_plans(&self) -> std::sync::RwLockReadGuard<'_, Plans> {
        self.plans.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tellings(&self) -> std::sync::MutexGuard<'_, Tellings> {
        self.tellings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn plan_of(&self, call: &CallFrame, port: &CallPort) -> Result<Arc<ToolPlan>, NotListed> {
        let known = self.read_plans().get(call.tool()).cloned();
        if let Some(plan) = known {
            return Ok(plan);
        }
        // What the settings say to read is passed on, whatever a list would say of it.
        let said = self.read_plans().plan(call.tool());
        if !said.is_guarded() {
            return Ok(said);
        }
        if !self.listed.initialized() {
            let is_ours = self.read_plans().status_tool() == call.tool();
            let patience = if is_ours { LIST_PATIENCE } else { PATIENCE };
            let deadline = tokio::time::Instant::now() + patience;
            loop {
                port.wait_ready(deadline).await.ok_or(NotListed)?;
                match self.list(&port.upstream()).await {
                    Ok(()) => break,
                    Err(why) if tokio::time::Instant::now() >= deadline => return Err(why),
                    // It ended before it answered: the next one is asked.
                    Err(NotListed) => tokio::time::sleep(LIST_PAUSE).await,
                }
            }
        }
        Ok(self.read_plans().plan(call.tool()))
    }

    async fn answer(self: &Arc<Self>, call: CallFrame, port: CallPort) -> Body {
        let modern = is_modern(call.revision().as_deref());
        let Some(opened) = self.opened().await else {
            return relay_failed("the ledger could not be opened, and nothing was done");
        };
        let plan = self.plan_of(&call, &port).await;
        // Our own account needs no server.
        if self.read_plans().get(call.tool()).is_none()
            && self.read_plans().status_tool() == call.tool()
        {
            return self.status(&opened, &call, modern).await;
        }
        let Ok(plan) = plan else { return words::not_listed(call.tool(), modern) };
        if !plan.is_guarded() {
            return relayed(&call, &port).await;
        }
        match self.asked_again(&opened, &plan, &call, port).await {
            Ok(answer) => self.tell(&opened.engine, &plan, &call, answer, modern),
            Err(NotAsked::Refused(refusal)) => words::refused(&refusal, refusal.retry(), modern),
            Err(NotAsked::StateRefused) => words::state_refused(),
            Err(NotAsked::Invalid(why)) => words::invalid_params(&why, None),
        }
    }

    /// A call whose operation is in doubt is a question too: it is looked for before the answer.
    async fn asked_again(
        &self,
        opened: &Arc<Opened>,
        plan: &Arc<ToolPlan>,
        call: &CallFrame,
        port: CallPort,
    ) -> Result<DirectAnswer, NotAsked> {
        let answer = self.guarded(opened, plan, call, port.clone()).await?;
        let in_doubt = match &answer {
            DirectAnswer::Refused { refusal, .. } if refusal.code() == Code::OperationInDoubt => {
                refusal.operation_id()
            }
            _ => None,
        };
        match in_doubt {
            Some(id) if self.look_now(opened, id).await => {
                self.guarded(opened, plan, call, port).await
            }
            _ => Ok(answer),
        }
    }

    /// From the call's bytes to what the engine says of it.
    async fn guarded(
        &self,
        opened: &Arc<Opened>,
        plan: &Arc<ToolPlan>,
        call: &CallFrame,
        port: CallPort,
    ) -> Result<DirectAnswer, NotAsked> {
        let asked = Asked::read(opened, self, plan, call).await?;
        let reading = Reading {
            leg: asked.leg.number(),
            plan: Arc::clone(plan),
            max_bytes: self.settings.max_result_bytes,
            revision: call.revision().unwrap_or_default().into(),
        };
        let cancelled = port.cancelled();
        let sender = Arc::new(PortSender { port, request: asked.request, reading });
        let direct = DirectCall {
            admitted: asked.admitted,
            upstream: asked.upstream,
            leg: asked.leg,
            identity: asked.identity,
            memo: asked.memo,
            sender,
            cancelled,
            patience: PATIENCE,
        };
        Ok(opened.engine.send(direct).await)
    }
}

impl Guard for CallGuard {
    fn attach(&self, upstream: Upstream) {
        let _ = self.upstream.set(upstream);
    }

    fn takes(&self, call: &CallFrame) -> bool {
        // What is surely passed on is left to the relay; the rest is decided with the list at hand.
        self.read_plans().plan(call.tool()).is_guarded()
    }

    fn call(self: Arc<Self>, call: CallFrame, port: CallPort) -> BoxFuture<'static, Answer> {
        Box::pin(async move { Answer { body: self.answer(call, port).await } })
    }

    fn told(&self, call: CallToken, written: bool) {
        let told = self.tellings().told(call, written);
        let opened = self.ledger.borrow().clone();
        if let (Some((key, answered)), Some(opened)) = (told, opened) {
            opened.engine.tell(key, answered);
        }
    }

    fn rewrite_tools(&self, result: &[u8], _page: &PageInfo) -> Option<Vec<u8>> {
        // The list is the same for everyone who speaks through this process.
        match self.write_plans().rewrite(result, false) {
            Ok(rewritten) => Some(rewritten),
            Err(why) => {
                tracing::warn!(%why, "the server's list of tools is passed on as it is");
                None
            }
        }
    }

    fn announces(&self) -> Announced {
        Announced { tools: true, operations: true }
    }

    fn hears(&self, event: UpstreamEvent) {
        if let UpstreamEvent::Ready(_) = event {
            self.settle.notify_one();
        }
    }
}

/// A call of a tool that only reads.
async fn relayed(call: &CallFrame, port: &CallPort) -> Body {
    match port.send(&call.params()).await {
        Ok(UpstreamReply::Whole(reply)) => reply.body_without_ours(),
        Ok(UpstreamReply::TooLarge { size_bytes, .. }) => relay_failed(&format!(
            "the server answered with {size_bytes} bytes, more than can be passed on"
        )),
        Err(lost @ (Lost::NotSent(_) | Lost::Unknown(_))) => relay_failed(&lost.to_string()),
    }
}
