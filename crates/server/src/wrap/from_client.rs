//! Lines of the client: to the server, to the guard, or back with an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::errors::{self, INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, error_line, reply_line};
use super::frame::{Edits, Frame, Kind, wire_id};
use super::ids::{Listen, Open, Owner, Purpose, Upward, our_number};
use super::link::{Incoming, Item, LineSource, TooLong};
use super::port::Port;
use super::router::{MAX_OPEN, Relay};
use super::scan::Field;
use super::shell::Shell;
use super::{Answer, Body, CallFrame, CallPort, CallToken, UpstreamState};
use crate::wire::{Envelope, WireId};

/// How the client's side ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    EndOfInput,
    InputFailed,
}

/// Names the guard's calls.
static LAST_CALL: AtomicU64 = AtomicU64::new(0);

impl Relay {
    /// Passes the client's lines on until they end.
    pub(super) async fn pump_client(self: Arc<Self>, mut source: Box<dyn LineSource>) -> Left {
        loop {
            match source.next().await {
                Ok(Some(Incoming::Line(line))) => self.line_from_client(line).await,
                Ok(Some(Incoming::TooLong(line))) => self.too_long_from_client(line).await,
                Ok(None) => return Left::EndOfInput,
                Err(error) => {
                    tracing::warn!(%error, "reading the client failed: treated as its end");
                    return Left::InputFailed;
                }
            }
        }
    }

    async fn line_from_client(self: &Arc<Self>, line: Bytes) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let frame = match Frame::read(line.clone()) {
            Ok(frame) => frame,
            Err(fault) => {
                let envelope = Envelope::of(&line);
                self.fail_answer(&envelope).await;
                let id = envelope.id.as_ref().map(|id| id.as_json().as_bytes());
                return self.refuse(id, errors::code_of(fault), &fault.to_string()).await;
            }
        };
        match frame.kind() {
            Kind::Request => self.request_from_client(frame).await,
            Kind::Notification => self.notification_from_client(frame).await,
            Kind::Reply => self.reply_from_client(&frame).await,
        }
    }

    async fn too_long_from_client(&self, line: TooLong) {
        self.fail_answer(&line.envelope).await;
        let text = format!(
            "the message has {} bytes, past the limit of {} bytes; send less",
            line.size_bytes, self.max_line_bytes
        );
        let id = line.envelope.id.as_ref().map(|id| id.as_json().as_bytes());
        self.refuse(id, PARSE_ERROR, &text).await;
    }

    /// The server must not wait for an answer of the client that could not be passed on.
    async fn fail_answer(&self, envelope: &Envelope) {
        let number = envelope.answers.as_ref().and_then(|a| our_number(a.id.as_json().as_bytes()));
        let downward = number.and_then(|number| self.lock().ids.close_downward(number));
        if let Some(downward) = downward {
            let text = "the client's answer could not be read";
            self.tell_server(error_line(Some(&downward.raw), INTERNAL_ERROR, text)).await;
        }
    }

    async fn request_from_client(self: &Arc<Self>, frame: Frame) {
        let Some(id) = frame.id() else {
            let text = "member id must be a string or an integer of at most 1024 bytes";
            return self.refuse(None, INVALID_REQUEST, text).await;
        };
        let refusal = {
            let state = self.lock();
            if state.ids.is_open(&id) {
                Some("a request with this id is still open; use another id".to_owned())
            } else if state.ids.open_count() >= MAX_OPEN {
                Some(format!("{MAX_OPEN} requests are open already; wait for some of them"))
            } else {
                None
            }
        };
        if let Some(text) = refusal {
            return self.refuse(frame.raw(Field::Id), INVALID_REQUEST, &text).await;
        }
        let method = frame.text(Field::Method).unwrap_or_default();
        if method != "server/discover"
            && let Some(revision) = frame.text(Field::RevisionOfRequest)
        {
            self.note_revision(&revision);
        }
        if method == "tools/call"
            && let Some(call) = self.guarded(&frame)
        {
            return self.run_guarded(id, call);
        }
        let item = self.open_request(id, frame, &method);
        self.send_up(item).await;
    }

    /// A request names its own revision: from now on there is a session without a handshake. The
    /// probe is none, since an older server refuses it.
    fn note_revision(&self, revision: &str) {
        self.lock().session.note_request(revision);
        if self.upstream_state() == UpstreamState::NotReady {
            self.note_readiness();
        }
    }

    fn guarded(&self, frame: &Frame) -> Option<CallFrame> {
        let token = CallToken(LAST_CALL.fetch_add(1, Ordering::Relaxed) + 1);
        let revision = self.lock().session.revision().cloned();
        let call = CallFrame::new(frame.clone(), token, revision)?;
        self.guard.takes(&call).then_some(call)
    }

    /// Has the guard answer a call, in a task of its own.
    fn run_guarded(self: &Arc<Self>, id: WireId, call: CallFrame) {
        let token = call.token();
        let cancelled = CancellationToken::new();
        let open = Open::Guarded { token, cancelled: cancelled.clone() };
        self.lock().ids.open_guarded(id.clone(), open);
        let port = Arc::new(Port::new(Arc::clone(self), cancelled));
        let call_port = CallPort::new(Arc::clone(&port) as _);
        let raw = call.frame().bytes(Field::Id).unwrap_or_default();
        let relay = Arc::clone(self);
        self.calls.spawn(async move {
            let guard = Arc::clone(&relay.guard);
            let answer = tokio::spawn(guard.call(call, call_port)).await.unwrap_or_else(|_| {
                tracing::error!("a guarded call panicked: its outcome is unknown");
                let text = "the call failed inside the guard; the outcome is unknown";
                Answer { body: Body::Error(errors::error_member(INTERNAL_ERROR, text)) }
            });
            let is_wanted = relay.lock().ids.close_guarded(&id, token);
            let written = is_wanted && relay.write_answer(&raw, answer, port.take_shell()).await;
            relay.guard.told(token, written);
        });
    }

    /// Whether the whole answer was handed to the client's pipe. It goes in the shell of the
    /// server's reply, if there was one.
    async fn write_answer(&self, id: &[u8], answer: Answer, shell: Option<Shell>) -> bool {
        let told = shell.and_then(|shell| shell.around(id, &answer.body));
        let line = told.unwrap_or_else(|| match answer.body {
            Body::Result(body) => reply_line(Some(id), "result", body),
            Body::Error(body) => reply_line(Some(id), "error", body),
        });
        let (written, done) = oneshot::channel();
        let mut item = Item::new(line);
        item.written = Some(written);
        self.client.put(item).await.is_ok() && done.await.is_ok()
    }

    /// Enters a request into the tables; the line that the server is to get.
    fn open_request(&self, id: WireId, frame: Frame, method: &str) -> Item {
        let purpose = purpose(&frame, method);
        let raw = frame.bytes(Field::Id).unwrap_or_default();
        let owner = Owner::Client { id, raw };
        let mut state = self.lock();
        let number = state.ids.number();
        let sent = Arc::new(AtomicBool::new(false));
        let token = frame.bytes(Field::ProgressToken);
        let upward = Upward { owner, purpose, sent: Arc::clone(&sent), token };
        state.ids.open_upward(number, upward);
        request_item(&frame, number, sent)
    }

    async fn notification_from_client(&self, frame: Frame) {
        let method = frame.text(Field::Method).unwrap_or_default();
        let mut edits = Edits::default();
        frame.strip_ours(&mut edits);
        match &*method {
            "notifications/cancelled" => {
                let Some(id) = frame.raw(Field::RequestId).and_then(wire_id) else { return };
                let open = self.lock().ids.cancel(&id);
                let Some(open) = open else { return self.cancelled_late(&id) };
                match open {
                    Open::Guarded { cancelled, .. } => return cancelled.cancel(),
                    Open::Upstream(number) => {
                        let span = frame.span(Field::RequestId).expect("it was read");
                        edits.replace(span, number.to_string());
                    }
                }
            }
            "notifications/progress" => {
                let Some(span) = frame.span(Field::ProgressOf) else { return };
                let number = our_number(&frame.line()[span.clone()]);
                let token = number.and_then(|number| self.lock().ids.server_token(number));
                let Some(token) = token else { return };
                edits.replace(span, token);
            }
            "notifications/initialized" => {
                let line = frame.splice(edits).joined();
                self.lock().session.note_initialized(line.clone());
                self.tell_server(line).await;
                return self.note_readiness();
            }
            _ => {}
        }
        self.tell_server(frame.splice(edits)).await;
    }

    /// The client took back what was answered just now: nobody there reads that answer.
    fn cancelled_late(&self, id: &WireId) {
        let answered = self.lock().ids.take_answered(id);
        if let Some(token) = answered {
            self.guard.told(token, false);
        }
    }

    async fn reply_from_client(&self, frame: &Frame) {
        let number = frame.raw(Field::Id).and_then(our_number);
        let downward = number.and_then(|number| self.lock().ids.close_downward(number));
        // An answer to nobody: given twice, cancelled, or for a child that has gone.
        let Some(downward) = downward else { return };
        let mut edits = Edits::default();
        edits.replace(frame.span(Field::Id).expect("a reply has an id"), downward.raw);
        frame.strip_ours(&mut edits);
        self.tell_server(frame.splice(edits)).await;
    }
}

/// A request's line with our number and progress token, and without keys of ours.
pub(super) fn request_item(frame: &Frame, number: u64, sent: Arc<AtomicBool>) -> Item {
    let ours = Bytes::from(number.to_string());
    let mut edits = Edits::default();
    edits.replace(frame.span(Field::Id).expect("a request has an id"), ours.clone());
    if let Some(span) = frame.span(Field::ProgressToken) {
        edits.replace(span, ours);
    }
    frame.strip_ours(&mut edits);
    let mut item = Item::new(frame.splice(edits));
    item.sent = Some(sent);
    item.number = Some(number);
    item
}

fn purpose(frame: &Frame, method: &str) -> Purpose {
    let params = || frame.bytes(Field::Params).unwrap_or_else(|| Bytes::from_static(b"{}"));
    let uri = || frame.bytes(Field::Uri).unwrap_or_default();
    match method {
        "initialize" => Purpose::Initialize { params: params() },
        "server/discover" => {
            Purpose::Discover { params: params(), revision: frame.text(Field::RevisionOfRequest) }
        }
        "tools/list" => Purpose::ToolsList {
            is_first: !frame.has(Field::Cursor),
            revision: frame.text(Field::RevisionOfRequest),
        },
        "logging/setLevel" => Purpose::LogLevel { params: params() },
        "resources/subscribe" => Purpose::Subscribe { uri: uri(), params: params() },
        "resources/unsubscribe" => Purpose::Unsubscribe { uri: uri() },
        "subscriptions/listen" => {
            Purpose::Listen(Box::new(Listen { frame: frame.clone(), acknowledged: false }))
        }
        _ => Purpose::Plain,
    }
}
