//! Lines of the server: to the client, or to the call of the guard that waits for them.

use std::sync::Arc;

use bytes::Bytes;

use super::errors::{self, INTERNAL_ERROR, INVALID_REQUEST, error_line, reply_line};
use super::frame::{Edits, Frame, Kind, wire_id};
use super::handshake::{self, Mismatch};
use super::ids::{Downward, Listen, Owner, Purpose, Upward, our_number};
use super::link::{Incoming, LineSource, TooLong};
use super::router::Relay;
use super::scan::Field;
use super::sift::{Found, sift};
use super::{Lost, PageInfo, ReplyBytes, UpstreamEvent, UpstreamReply, stripped_body};
use crate::wire::{Envelope, TYPED_METHODS};

impl Relay {
    /// Passes a server's lines on until they end.
    pub(super) async fn pump_child(self: Arc<Self>, mut source: Box<dyn LineSource>) {
        loop {
            match source.next().await {
                Ok(Some(Incoming::Line(line))) => self.line_from_child(&line).await,
                Ok(Some(Incoming::TooLong(line))) => self.too_long_from_child(line).await,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(server = %self.name, %error, "reading the server failed");
                    return;
                }
            }
        }
    }

    async fn line_from_child(&self, line: &Bytes) {
        let found = sift(line);
        let is_alone = found.len() == 1;
        for found in found {
            match found {
                Found::Message(frame) => self.message_from_child(frame, is_alone).await,
                Found::Other { bytes, envelope } => self.unreadable(bytes, &envelope).await,
            }
        }
    }

    async fn message_from_child(&self, frame: Frame, is_alone: bool) {
        match frame.kind() {
            Kind::Reply => self.reply_from_child(frame).await,
            Kind::Request => {
                let method = frame.text(Field::Method).unwrap_or_default();
                // Between other output, what only clients ask is the server's log of our own words.
                if is_alone || method == "ping" || !TYPED_METHODS.contains(&&*method) {
                    self.request_from_child(&frame).await;
                }
            }
            Kind::Notification => self.notification_from_child(&frame).await,
        }
    }

    /// Output that is no message. If it was an answer, whoever waits for it is told.
    async fn unreadable(&self, bytes: usize, envelope: &Envelope) {
        if let Some(count) = self.noise.count() {
            tracing::warn!(
                server = %self.name, bytes, count,
                "the server wrote what is no message to its stdout; it is passed over (its logs \
                 belong on its stderr)"
            );
        }
        let number = envelope.answers.as_ref().and_then(|a| our_number(a.id.as_json().as_bytes()));
        let upward = number.and_then(|number| self.lock().ids.answered(number, false));
        let Some(upward) = upward else { return };
        let text = format!("the answer of the server `{}` could not be read", self.name);
        match upward.owner {
            Owner::Client { raw, .. } => {
                let text = format!("{text}; the outcome is unknown");
                self.refuse(Some(&raw), INTERNAL_ERROR, &text).await;
            }
            Owner::Port(port) => {
                let _ = port.send(Err(Lost::Unknown(text)));
            }
        }
    }

    async fn too_long_from_child(&self, line: TooLong) {
        let TooLong { size_bytes, envelope } = line;
        let answers = envelope.answers.as_ref();
        let number = answers.and_then(|answers| our_number(answers.id.as_json().as_bytes()));
        let upward = number.and_then(|number| self.lock().ids.answered(number, false));
        let (Some(answers), Some(upward)) = (answers, upward) else {
            tracing::warn!(server = %self.name, size_bytes, "a line past the limit was passed over");
            return;
        };
        match upward.owner {
            Owner::Client { raw, .. } => {
                let text = format!(
                    "the answer of the server `{}` has {size_bytes} bytes, past the limit of {} \
                     bytes, and was dropped; the request was carried out all the same, as far as \
                     the server says: ask for less",
                    self.name, self.max_line_bytes
                );
                self.refuse(Some(&raw), INTERNAL_ERROR, &text).await;
            }
            Owner::Port(port) => {
                let is_complete = answers.is_result && !answers.is_of_other_type;
                let is_error = answers.is_error;
                let reply = UpstreamReply::TooLarge { size_bytes, is_complete, is_error };
                let _ = port.send(Ok(reply));
            }
        }
    }

    async fn reply_from_child(&self, frame: Frame) {
        let Some(number) = frame.raw(Field::Id).and_then(our_number) else {
            if frame.raw(Field::Id) == Some(b"null") {
                // An error about something that the server could not read: nobody's answer.
                return self.tell_client(frame.line().clone()).await;
            }
            return self.surprise("an answer with an id that was never used");
        };
        let (upward, was_cancelled) = {
            let mut state = self.lock();
            let upward = state.ids.answered(number, frame.has(Field::Task));
            (upward, state.ids.was_cancelled(number))
        };
        match upward {
            Some(Upward { owner: Owner::Port(port), .. }) => {
                // Whoever asked may have gone.
                let _ = port.send(Ok(UpstreamReply::Whole(ReplyBytes::new(frame))));
            }
            Some(Upward { owner: Owner::Client { raw, .. }, purpose, .. }) => {
                self.answer_client(raw, purpose, &frame).await;
            }
            None if was_cancelled => {}
            None => self.surprise("an answer to no open request, or a second one"),
        }
    }

    async fn answer_client(&self, raw: Bytes, purpose: Purpose, frame: &Frame) {
        let mut edits = Edits::default();
        edits.replace(frame.span(Field::Id).expect("a reply has an id"), raw.clone());
        if let Some(span) = frame.span(Field::SubscriptionId) {
            edits.replace(span, raw.clone());
        }
        if let Purpose::ToolsList { is_first, revision } = &purpose
            && let Some(line) = self.rewritten_tools(&raw, frame, *is_first, revision.clone())
        {
            return self.tell_client(line).await;
        }
        let is_handshake = matches!(purpose, Purpose::Initialize { .. } | Purpose::Discover { .. });
        if frame.has(Field::Result) {
            frame.strip_ours(&mut edits);
            if let Err(mismatch) = self.agree(purpose, frame, &mut edits) {
                tracing::error!("{mismatch}");
                let ours = handshake::supported_versions_text();
                let error = errors::revision_error(&mismatch.to_string(), &ours, None);
                return self.tell_client(reply_line(Some(&raw), "error", error)).await;
            }
        }
        self.tell_client(frame.splice(edits)).await;
        if is_handshake {
            self.note_readiness();
        }
    }

    fn rewritten_tools(
        &self,
        raw: &[u8],
        frame: &Frame,
        is_first: bool,
        revision: Option<String>,
    ) -> Option<super::Pieces> {
        let super::Body::Result(result) = stripped_body(frame) else { return None };
        let agreed = || self.lock().session.revision().map(|revision| revision.to_string());
        let is_last = frame.raw(Field::NextCursor).is_none_or(|cursor| cursor == b"null");
        let page = PageInfo { is_first, is_last, revision: revision.or_else(agreed) };
        let rewritten = self.guard.rewrite_tools(&result, &page)?;
        Some(reply_line(Some(raw), "result", rewritten.into()))
    }

    /// Keeps what a successful answer means for the session.
    fn agree(&self, purpose: Purpose, frame: &Frame, edits: &mut Edits) -> Result<(), Mismatch> {
        let announced = self.guard.announces();
        match purpose {
            Purpose::Initialize { params } => {
                let asked = asked_version(&params);
                handshake::rewrite(&self.name, asked, frame, announced, edits)?;
                self.lock().session.note_initialize(params, frame);
            }
            Purpose::Discover { params, revision } => {
                handshake::rewrite(&self.name, revision.clone(), frame, announced, edits)?;
                self.lock().session.note_discover(params, revision.as_deref(), frame);
            }
            Purpose::LogLevel { params } => self.lock().session.note_log_level(params),
            Purpose::Subscribe { uri, params } => {
                self.lock().session.note_subscribed(uri, params);
            }
            Purpose::Unsubscribe { uri } => self.lock().session.note_unsubscribed(&uri),
            Purpose::Plain | Purpose::ToolsList { .. } | Purpose::Listen(_) => {}
        }
        Ok(())
    }

    async fn request_from_child(&self, frame: &Frame) {
        let raw = frame.bytes(Field::Id).unwrap_or_default();
        let Some(id) = frame.id() else {
            let text = "member id must be a string or an integer of at most 1024 bytes";
            return self.tell_server_soon(error_line(None, INVALID_REQUEST, text));
        };
        let number = {
            let mut state = self.lock();
            if state.client_left {
                Err((INTERNAL_ERROR, "the client has left"))
            } else {
                let token = frame.bytes(Field::ProgressToken);
                let downward = Downward { raw: raw.clone(), id, token };
                let number = state.ids.open_downward(downward);
                number.ok_or((INVALID_REQUEST, "a request with this id is still open"))
            }
        };
        let number = match number {
            Ok(number) => Bytes::from(number.to_string()),
            Err((code, text)) => {
                return self.tell_server_soon(error_line(Some(&raw), code, text));
            }
        };
        let mut edits = Edits::default();
        edits.replace(frame.span(Field::Id).expect("a request has an id"), number.clone());
        if let Some(span) = frame.span(Field::ProgressToken) {
            edits.replace(span, number);
        }
        frame.strip_ours(&mut edits);
        self.tell_client(frame.splice(edits)).await;
    }

    async fn notification_from_child(&self, frame: &Frame) {
        let mut edits = Edits::default();
        frame.strip_ours(&mut edits);
        let method = frame.text(Field::Method).unwrap_or_default();
        match &*method {
            "notifications/progress" => {
                let Some(span) = frame.span(Field::ProgressOf) else { return };
                let number = our_number(&frame.line()[span.clone()]);
                let token = number.and_then(|number| self.lock().ids.client_token(number));
                // Of a request that was answered or cancelled.
                let Some(token) = token else { return };
                edits.replace(span, token);
            }
            "notifications/cancelled" => {
                let id = frame.raw(Field::RequestId).and_then(wire_id);
                let number = id.and_then(|id| self.lock().ids.cancel_downward(&id));
                let Some(number) = number else { return };
                let span = frame.span(Field::RequestId).expect("it was read");
                edits.replace(span, number.to_string());
            }
            "notifications/tools/list_changed" => self.guard.hears(UpstreamEvent::ToolsChanged),
            _ => {}
        }
        if let Some(span) = frame.span(Field::SubscriptionId) {
            let Some(number) = our_number(&frame.line()[span.clone()]) else { return };
            let is_acknowledgement = method == "notifications/subscriptions/acknowledged";
            match self.subscriber(number, is_acknowledgement) {
                Some(id) => edits.replace(span, id),
                None => return,
            }
        }
        self.tell_client(frame.splice(edits)).await;
    }

    /// The client's ID of a stream; `None` if there is none, or if this would be its second
    /// acknowledgement.
    fn subscriber(&self, number: u64, is_acknowledgement: bool) -> Option<Bytes> {
        let mut state = self.lock();
        let id = state.ids.client_id(number)?;
        if let Some(Purpose::Listen(listen)) =
            state.ids.upward(number).map(|upward| &mut upward.purpose)
        {
            let Listen { acknowledged, .. } = &mut **listen;
            if is_acknowledgement && std::mem::replace(acknowledged, true) {
                return None;
            }
        }
        Some(id)
    }

    fn surprise(&self, what: &str) {
        if let Some(count) = self.noise.count() {
            tracing::warn!(server = %self.name, count, "the server sent {what}; it is dropped");
        }
    }
}

/// What `initialize` asked for.
fn asked_version(params: &[u8]) -> Option<String> {
    let params: serde_json::Value = serde_json::from_slice(params).ok()?;
    params.get("protocolVersion")?.as_str().map(|version| version.chars().take(64).collect())
}
