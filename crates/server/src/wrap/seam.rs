//! The seam between the relay and what guards calls: [`Guard`] on one side, [`CallPort`] and
//! [`Upstream`] on the other. Neither side sees a transport.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frame::{Frame, Kind};
use super::scan::Field;

/// What stands between client and upstream. The relay asks it; it never touches transports itself.
pub trait Guard: Send + Sync + 'static {
    /// Told once, before the first message, of the upstream that it guards.
    fn attach(&self, _upstream: Upstream) {}

    /// Whether a `tools/call` is the guard's to answer: a guarded tool, or one of our own. What it
    /// does not take is relayed.
    fn takes(&self, call: &CallFrame) -> bool;

    /// Runs one call to its answer, in a task of its own. It is not dropped when the client cancels
    /// or leaves ([`CallPort::cancelled`] tells), and the process does not end before it, within
    /// the limit for settling.
    fn call(self: Arc<Self>, call: CallFrame, port: CallPort) -> BoxFuture<'static, Answer>;

    /// After the answer's bytes were written to the client's pipe (true) or could not be (false:
    /// the client had left, or had cancelled the call, so that nothing was sent). Said once more
    /// with false if the client cancels the call after all.
    fn told(&self, _call: CallToken, _written: bool) {}

    /// The result of a `tools/list` as the client is to see it; `None` leaves it as it is.
    fn rewrite_tools(&self, _result: &[u8], _page: &PageInfo) -> Option<Vec<u8>> {
        None
    }

    /// What the handshake's result says beyond what the upstream says.
    fn announces(&self) -> Announced {
        Announced::default()
    }

    /// Something happened to the upstream.
    fn hears(&self, _event: UpstreamEvent) {}
}

/// A guard that takes nothing: the pure relay.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassGuard;

impl Guard for PassGuard {
    fn takes(&self, _call: &CallFrame) -> bool {
        false
    }

    fn call(self: Arc<Self>, _call: CallFrame, _port: CallPort) -> BoxFuture<'static, Answer> {
        unreachable!("it takes no call")
    }
}

/// What [`Guard::announces`] adds to the capabilities of the handshake's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// `tools: {}`, if the upstream has no tools: there are some of ours.
    pub tools: bool,
    /// `extensions["io.counterfoil/operations"]: {}`.
    pub operations: bool,
}

/// What [`Guard::hears`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamEvent {
    /// It can be asked: at the first time, and after each restart.
    Ready(Generation),
    /// It has gone; requests that it had not answered are lost.
    Down(Generation),
    /// It sent `notifications/tools/list_changed`, which is relayed.
    ToolsChanged,
}

/// Names one call of the client within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallToken(pub u64);

/// Counts the children: the first is 1, each restart adds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// A `tools/call` as the client sent it. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct CallFrame {
    frame: Frame,
    token: CallToken,
    tool: String,
    session_revision: Option<Arc<str>>,
}

impl CallFrame {
    /// `None` unless `frame` is a `tools/call` request with a tool's name. `session_revision` is what
    /// the handshake agreed on, if there was one.
    #[must_use]
    pub fn new(frame: Frame, token: CallToken, session_revision: Option<Arc<str>>) -> Option<Self> {
        let is_call = frame.kind() == Kind::Request && frame.text(Field::Method)? == "tools/call";
        let tool = frame.text(Field::Name)?;
        is_call.then_some(Self { frame, token, tool, session_revision })
    }

    #[must_use]
    pub fn token(&self) -> CallToken {
        self.token
    }

    /// The whole message.
    #[must_use]
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The client's request ID, raw JSON. The relay puts it into the reply.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        self.frame.raw(Field::Id).unwrap_or(b"null")
    }

    /// Raw JSON of `params`.
    #[must_use]
    pub fn params(&self) -> Bytes {
        self.frame.bytes(Field::Params).unwrap_or_default()
    }

    /// Raw JSON of `params.arguments`.
    #[must_use]
    pub fn arguments(&self) -> Option<Bytes> {
        self.frame.bytes(Field::Arguments)
    }

    /// Where `arguments` stand in [`CallFrame::params`], for splicing.
    #[must_use]
    pub fn arguments_in_params(&self) -> Option<std::ops::Range<usize>> {
        let params = self.frame.span(Field::Params)?.start;
        let span = self.frame.span(Field::Arguments)?;
        Some(span.start - params..span.end - params)
    }

    /// Raw JSON of `params._meta`, keys of ours included.
    #[must_use]
    pub fn meta(&self) -> Option<Bytes> {
        self.frame.bytes(Field::Meta)
    }

    /// Raw JSON of the progress token.
    #[must_use]
    pub fn progress_token(&self) -> Option<Bytes> {
        self.frame.bytes(Field::ProgressToken)
    }

    /// Raw JSON of `params.requestState`.
    #[must_use]
    pub fn request_state(&self) -> Option<Bytes> {
        self.frame.bytes(Field::RequestState)
    }

    /// Raw JSON of `params.inputResponses`.
    #[must_use]
    pub fn input_responses(&self) -> Option<Bytes> {
        self.frame.bytes(Field::InputResponses)
    }

    /// The protocol revision of this call: its own (2026-07-28 on), or what the handshake agreed on.
    #[must_use]
    pub fn revision(&self) -> Option<String> {
        let own = self.frame.text(Field::RevisionOfRequest);
        own.or_else(|| self.session_revision.as_deref().map(str::to_owned))
    }
}

/// What becomes of a call that the guard took.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The reply; never sent to a client that cancelled the call.
    pub body: Body,
}

/// Raw JSON of one member of a reply.
#[derive(Clone, Debug)]
pub enum Body {
    /// Of `result`.
    Result(Bytes),
    /// Of `error`.
    Error(Bytes),
}

/// Which page of a tools/list result this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageInfo {
    /// The request had no cursor.
    pub is_first: bool,
    /// The result has no `nextCursor`.
    pub is_last: bool,
    /// The protocol revision, where it is known.
    pub revision: Option<String>,
}

/// Why there is no reply of the upstream. The texts may be shown to a caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Not one byte of the request was handed to the child's pipe.
    #[error("the request was not sent: {0}")]
    NotSent(String),
    /// The request, or a part of it, was handed over: the child died, was restarted or stopped, or
    /// its reply could not be read.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
}

/// What the upstream answered.
#[derive(Clone, Debug)]
pub enum UpstreamReply {
    /// The whole reply.
    Whole(ReplyBytes),
    /// The reply was longer than the cap, and was not kept. `is_complete` says whether it had a
    /// result that is nothing else than a complete one, and no error; `is_error` whether that result
    /// said `isError: true`.
    TooLarge { size_bytes: u64, is_complete: bool, is_error: bool },
}

/// A reply's line.
#[derive(Clone, Debug)]
pub struct ReplyBytes(Frame);

impl ReplyBytes {
    #[must_use]
    pub fn new(reply: Frame) -> Self {
        Self(reply)
    }

    /// Raw JSON of `result` or of `error`, as the upstream wrote it.
    #[must_use]
    pub fn body(&self) -> Body {
        match (self.0.bytes(Field::Result), self.0.bytes(Field::Error)) {
            (Some(result), _) => Body::Result(result),
            (None, error) => Body::Error(error.unwrap_or_default()),
        }
    }

    /// The same without keys of ours in the result's `_meta`: nobody but us may say them.
    #[must_use]
    pub fn body_without_ours(&self) -> Body {
        super::stripped_body(&self.0)
    }

    /// The whole message.
    #[must_use]
    pub fn frame(&self) -> &Frame {
        &self.0
    }
}

/// Whether the upstream can take a request at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamState {
    /// This child can.
    Ready(Generation),
    /// It is starting, restarting or stopping, or no session was opened yet.
    NotReady,
}

/// The upstream, asked by us without a client: for lookups and lists of tools.
#[derive(Clone)]
pub struct Upstream(Arc<dyn UpstreamBackend>);

/// What stands behind [`Upstream`]: the relay, or a stand-in in a test.
pub trait UpstreamBackend: Send + Sync {
    fn state(&self) -> UpstreamState;
    /// Waits until it is ready, or `None` when `deadline` has passed or it has ended.
    fn wait_ready(&self, deadline: Instant) -> BoxFuture<'_, Option<Generation>>;
    fn ask(&self, method: &str, params: &[u8]) -> BoxFuture<'_, Result<UpstreamReply, Lost>>;
}

impl Upstream {
    #[must_use]
    pub fn new(backend: Arc<dyn UpstreamBackend>) -> Self {
        Self(backend)
    }

    #[must_use]
    pub fn state(&self) -> UpstreamState {
        self.0.state()
    }

    /// Waits until it is ready; `None` when `deadline` has passed or it has ended for good.
    pub async fn wait_ready(&self, deadline: Instant) -> Option<Generation> {
        self.0.wait_ready(deadline).await
    }

    /// Sends one request with `params` (raw JSON of an object) and waits for its reply. Where the
    /// session has no handshake, what each request must say of itself is added to `_meta`.
    ///
    /// # Errors
    /// [`Lost`].
    pub async fn ask(&self, method: &str, params: &[u8]) -> Result<UpstreamReply, Lost> {
        self.0.ask(method, params).await
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.state()).finish()
    }
}

/// A call's way to the upstream.
#[derive(Clone)]
pub struct CallPort(Arc<dyn PortBackend>);

/// What stands behind [`CallPort`]: the relay, or a stand-in in a test.
pub trait PortBackend: Send + Sync {
    fn upstream(&self) -> Upstream;
    fn send(&self, params: &[u8]) -> BoxFuture<'_, Result<UpstreamReply, Lost>>;
    fn cancelled(&self) -> CancellationToken;
}

impl CallPort {
    #[must_use]
    pub fn new(backend: Arc<dyn PortBackend>) -> Self {
        Self(backend)
    }

    /// Whether the upstream can take the call at once.
    #[must_use]
    pub fn upstream_state(&self) -> UpstreamState {
        self.0.upstream().state()
    }

    /// As [`Upstream::wait_ready`].
    pub async fn wait_ready(&self, deadline: Instant) -> Option<Generation> {
        self.0.upstream().wait_ready(deadline).await
    }

    /// The same upstream without this call's progress.
    #[must_use]
    pub fn upstream(&self) -> Upstream {
        self.0.upstream()
    }

    /// Sends `tools/call` with `params` (raw JSON) and waits for the reply, for as long as the child
    /// lives. Request ID and progress token are the relay's business, and keys of ours in `_meta`
    /// stay behind; progress is relayed to the client meanwhile. Does not wait for a child.
    ///
    /// # Errors
    /// [`Lost::NotSent`] only if not one byte was handed to that child's pipe.
    pub async fn send(&self, params: &[u8]) -> Result<UpstreamReply, Lost> {
        self.0.send(params).await
    }

    /// Cancelled once the client cancelled this call or left.
    #[must_use]
    pub fn cancelled(&self) -> CancellationToken {
        self.0.cancelled()
    }
}

impl fmt::Debug for CallPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallPort").field(&self.upstream_state()).finish()
    }
}
