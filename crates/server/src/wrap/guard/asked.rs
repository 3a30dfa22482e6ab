//! From the bytes of a call to what the engine decides on: whose operation it is, which request of
//! it, and what the server is to get.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use counterfoil_core::admission::{Admitted, Authority, Call};
use counterfoil_core::delivery::TargetIdentity;
use counterfoil_core::direct::{Leg, ReplyKind, Upstream};
use counterfoil_core::fingerprint::{Profile, SecretKey};
use counterfoil_core::identity::{OperationId, Tenant, ToolId};
use counterfoil_core::json::{JsonLimits, Value, parse};
use counterfoil_core::record::Record;
use counterfoil_core::refusal::{Code, Refusal};
use counterfoil_core::time::Timestamp;
use counterfoil_engine::{Engine, LegState};
use counterfoil_store::direct::{Identity, WhichDirect};

use super::{CallGuard, Opened};
use crate::connector::template::RenderError;
use crate::wrap::CallFrame;
use crate::wrap::lookup::CallFacts;
use crate::wrap::raw::{Edits, Raw, only};
use crate::wrap::settings::MissingId;
use crate::wrap::tools::{IdField, SplitCall, ToolPlan, split_call};

/// A call that may be decided on.
pub(super) struct Asked {
    pub(super) admitted: Admitted,
    pub(super) upstream: Upstream,
    pub(super) leg: Leg,
    pub(super) identity: Identity,
    pub(super) memo: Option<Arc<[u8]>>,
    pub(super) request: Request,
}

/// What the server is to get, once it is known of which operation: a call may join another's, whose
/// marker it then carries.
pub(super) struct Request {
    call: CallFrame,
    split: SplitCall,
    continued: Option<Continued>,
    plan: Arc<ToolPlan>,
    opened: Arc<Opened>,
}

/// Shows nothing: arguments may be secret.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}

impl Request {
    /// Raw JSON of `params` for the server.
    ///
    /// # Errors
    /// Why there are none, in words: a template that cannot be rendered, or a key that is gone.
    pub(super) fn params(&self, record: &Record) -> Result<Bytes, String> {
        let engine = &self.opened.engine;
        let key = engine.keys().get(record.binding.key_id);
        let key = key.ok_or("the key of its record is gone")?;
        let id = &record.operation_id;
        // The time that a look renders too: a marker made of another one would not be found.
        let at = record.created_at;
        let arguments = with_marker(engine, &self.plan, &self.split, (&record.tenant, id), key, at);
        let arguments = arguments.map_err(|why| why.to_string())?;
        Ok(params(&self.call, arguments, self.continued.as_ref()))
    }
}

/// The call's arguments without ours, and with the marker of the operation where its tool carries one.
fn with_marker(
    engine: &Engine,
    plan: &ToolPlan,
    split: &SplitCall,
    (tenant, id): (&Tenant, &OperationId),
    key: &SecretKey,
    recorded_at: Timestamp,
) -> Result<Option<Vec<u8>>, RenderError> {
    let Some(put) = plan.marker() else { return Ok(split.raw_arguments.clone()) };
    let facts = CallFacts {
        arguments: &split.arguments,
        operation_id: id.as_str(),
        marker: &marker(engine, tenant, id, key),
        dispatched_at: recorded_at,
    };
    put.put(split.raw_arguments.as_deref().unwrap_or(b"{}"), &facts).map(Some)
}

/// Why a call is not decided on.
pub(super) enum NotAsked {
    /// A tool error.
    Refused(Refusal),
    /// A state that was not issued for it. One answer, whatever the cause.
    StateRefused,
    /// JSON-RPC -32602, why in words.
    Invalid(String),
}

impl From<Refusal> for NotAsked {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// What a continuation brings.
struct Continued {
    state: LegState,
    /// The upstream's own state as it was written, and as text.
    upstream_state: Option<(Bytes, String)>,
    answers: Option<Value>,
}

impl Asked {
    pub(super) async fn read(
        opened: &Arc<Opened>,
        guard: &CallGuard,
        plan: &Arc<ToolPlan>,
        call: &CallFrame,
    ) -> Result<Self, NotAsked> {
        let engine = &opened.engine;
        let (arguments, meta) = (call.arguments(), call.meta());
        let split = split_call(plan, arguments.as_deref(), meta.as_deref())?;
        let continued = continued(engine, guard, call).await?;
        let (id, identity) = identity(engine, guard, plan, &split, continued.as_ref())?;
        let admitted = admit(opened, guard, plan, &split, &id, continued.as_ref())?;
        if let Some(continued) = &continued {
            engine.check_leg(&continued.state, &admitted).map_err(|_| NotAsked::StateRefused)?;
        }
        // What cannot be rendered is refused before anything is recorded.
        let (_, key) = engine.keys().active();
        with_marker(engine, plan, &split, (&guard.caller.tenant, &id), key, engine.now())
            .map_err(|why| NotAsked::Invalid(why.to_string()))?;
        let memo = plan.lookup().map(|_| Arc::from(split.arguments.to_json().into_bytes()));
        Ok(Self {
            upstream: opened.upstream(),
            leg: continued.as_ref().map_or(Leg::First, |it| Leg::Later(it.state.leg())),
            identity,
            memo,
            admitted,
            request: Request {
                call: call.clone(),
                split,
                continued,
                plan: Arc::clone(plan),
                opened: Arc::clone(opened),
            },
        })
    }
}

impl Opened {
    /// The server's name in the ledger.
    pub(super) fn upstream(&self) -> Upstream {
        Upstream::parse(self.key.as_str()).expect("a key of a server is a name")
    }

    /// The name of one of its tools in the ledger: two servers on one ledger never meet.
    fn tool_id(&self, tool: &str) -> Result<ToolId, Refusal> {
        let text = format!("{}{tool}", self.prefix());
        ToolId::parse(&text)
            .map_err(|why| Refusal::new(Code::InvalidArgument, why.to_string(), None))
    }

    /// How the names of its tools begin in the ledger.
    pub(super) fn prefix(&self) -> String {
        format!("{}/", self.key.as_str())
    }
}

/// The text of ours that can be put into an operation's effect, made with the key of its record.
pub(super) fn marker(
    engine: &Engine,
    tenant: &Tenant,
    id: &OperationId,
    key: &SecretKey,
) -> String {
    TargetIdentity { backend: engine.backend_id(), tenant, operation: id }.marker(key)
}

/// Opens the state that the call brings, and finds what the server asked with it.
async fn continued(
    engine: &Arc<Engine>,
    guard: &CallGuard,
    call: &CallFrame,
) -> Result<Option<Continued>, NotAsked> {
    let answers = call.input_responses();
    let Some(state) = call.request_state().filter(|state| &state[..] != b"null") else {
        return match answers {
            Some(answers) if &answers[..] != b"null" => Err(NotAsked::StateRefused),
            _ => Ok(None),
        };
    };
    let sealed: String = serde_json::from_slice(&state).map_err(|_| NotAsked::StateRefused)?;
    let state = engine.open_leg(&sealed).map_err(|_| NotAsked::StateRefused)?;
    let id = OperationId::parse(state.operation_id()).map_err(|_| NotAsked::StateRefused)?;
    let which = WhichDirect::Id(guard.caller.tenant.clone(), id);
    let view = engine.direct_view(which).await?.ok_or(NotAsked::StateRefused)?;
    let reply = engine.earlier_reply(view.record.key, state.leg() - 1).await?;
    let reply = reply.filter(|reply| reply.kind == ReplyKind::InputRequired);
    let reply = reply.ok_or(NotAsked::StateRefused)?;
    let strict = |bytes: &Bytes| {
        parse(bytes, &JsonLimits::default()).map_err(|why| NotAsked::Invalid(why.to_string()))
    };
    let answers = answers.filter(|it| &it[..] != b"null").as_ref().map(strict).transpose()?;
    Ok(Some(Continued { state, upstream_state: state_of(&reply.json), answers }))
}

/// The upstream's own state in what it asked.
fn state_of(asked: &[u8]) -> Option<(Bytes, String)> {
    let raw = Raw::json(asked);
    let members = raw.members(&raw.whole()?)?;
    let span = only(&members, "requestState")?.value.clone();
    let text = raw.string(&span)?;
    Some((Bytes::copy_from_slice(raw.bytes(&span)), text))
}

/// Whose operation a call is.
fn identity(
    engine: &Engine,
    guard: &CallGuard,
    plan: &ToolPlan,
    split: &SplitCall,
    continued: Option<&Continued>,
) -> Result<(OperationId, Identity), NotAsked> {
    if let Some(continued) = continued {
        let id = OperationId::parse(continued.state.operation_id())
            .map_err(|_| NotAsked::StateRefused)?;
        // A continuation may name its operation too; then it must be the same.
        let agrees = split.operation_id.as_ref().is_none_or(|given| *given == id);
        return if agrees { Ok((id, Identity::Given)) } else { Err(NotAsked::StateRefused) };
    }
    match (&split.operation_id, &split.repeat_of) {
        (Some(id), Some(_)) => Err(Refusal::new(
            Code::InvalidArgument,
            "operation_id and repeat_of are both given, and nothing was done; to do it once more \
             give repeat_of alone, to name an operation of your own give operation_id alone",
            Some(id.clone()),
        )
        .into()),
        (Some(id), None) => Ok((id.clone(), Identity::Given)),
        (None, Some(of)) => Ok((engine.mint_id(), Identity::Repeats(of.clone()))),
        (None, None) => match plan.missing_id {
            MissingId::Join => Ok((engine.mint_id(), Identity::Joins(guard.settings.join_age))),
            MissingId::Mint => Ok((engine.mint_id(), Identity::Minted)),
            MissingId::Reject => Err(id_required(plan).into()),
        },
    }
}

fn id_required(plan: &ToolPlan) -> Refusal {
    let place = match &plan.id_field {
        IdField::Arguments { operation_id, .. } => format!("the argument {operation_id}"),
        IdField::MetaOnly(_) => "_meta[\"io.counterfoil/operationId\"]".to_owned(),
    };
    Refusal::new(
        Code::OperationIdRequired,
        format!(
            "{} changes something, and this call names no operation, so nothing was done; send it \
             again with {place}: a fresh UUID for each intended effect, the same one for each retry",
            plan.name
        ),
        None,
    )
}

fn admit(
    opened: &Opened,
    guard: &CallGuard,
    plan: &ToolPlan,
    split: &SplitCall,
    id: &OperationId,
    continued: Option<&Continued>,
) -> Result<Admitted, NotAsked> {
    let tool_id = opened.tool_id(&plan.name)?;
    let upstream_state = continued.and_then(|it| it.upstream_state.as_ref());
    let call = Call {
        caller: &guard.caller,
        tool_id: &tool_id,
        tool_version: &plan.version,
        profile: Profile::JcsV1,
        operation_id: id,
        arguments: &split.arguments,
        call_arguments: &split.arguments,
        continuation_state: upstream_state.map(|(_, text)| text.as_str()),
        input_responses: continued.and_then(|it| it.answers.as_ref()),
        authority: continued.map_or(Authority::Present, |it| it.state.authority()),
    };
    Ok(opened.engine.admit(&call)?)
}

/// The call's `params` for the server: as the client wrote them, without what is ours, and with the
/// server's own state in the place of ours.
fn params(call: &CallFrame, arguments: Option<Vec<u8>>, continued: Option<&Continued>) -> Bytes {
    let whole = call.params();
    let unchanged = continued.is_none() && arguments.as_deref() == call.arguments().as_deref();
    if unchanged {
        return whole;
    }
    let raw = Raw::json(&whole);
    let Some((span, members)) = raw.whole().and_then(|it| Some((it.clone(), raw.members(&it)?)))
    else {
        return whole;
    };
    let mut edits = Edits::default();
    if let Some(arguments) = arguments {
        match only(&members, "arguments") {
            Some(member) => edits.replace(member.value.clone(), arguments),
            None => {
                let arguments = String::from_utf8_lossy(&arguments);
                edits.add_member(&span, &members, &format!("\"arguments\":{arguments}"));
            }
        }
    }
    if let Some(continued) = continued {
        match (&continued.upstream_state, only(&members, "requestState")) {
            (Some((raw_state, _)), Some(member)) => {
                edits.replace(member.value.clone(), raw_state.to_vec());
            }
            (None, Some(_)) => {
                edits.remove_members(&members, |it| it.name.as_deref() == Some("requestState"));
            }
            (_, None) => {}
        }
    }
    edits.apply(&whole).into()
}
