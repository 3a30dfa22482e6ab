//! The task that reads: refuses bad frames on the spot and numbers the good ones for the SDK.

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification,
    ErrorCode, JsonRpcMessage, RequestId,
};
use tokio::io::AsyncRead;
use tokio::sync::mpsc;

use super::flight::{Flights, Refusal};
use super::frame::{Frame, FrameReader};
use super::message::{self, Fault, Message};
use super::outgoing;
use super::writer::Writer;
use super::{DrainCause, WireId, WireLimits};

/// Frames that were read and wait for the SDK, in count.
const QUEUE_COUNT: usize = 64;

/// Reads one connection to its end.
#[derive(Debug)]
pub(super) struct Reader<R> {
    input: FrameReader<R>,
    limits: WireLimits,
    messages: mpsc::Sender<ClientJsonRpcMessage>,
    flights: Flights,
    writer: Writer,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// The reader, and the messages that it will let through.
    pub(super) fn new(
        input: R,
        limits: WireLimits,
        flights: Flights,
        writer: Writer,
    ) -> (Self, mpsc::Receiver<ClientJsonRpcMessage>) {
        let (messages, receiver) = mpsc::channel(QUEUE_COUNT);
        let input = FrameReader::new(input, limits.json.max_bytes);
        (Self { input, limits, messages, flights, writer }, receiver)
    }

    pub(super) async fn run(mut self) {
        let cause = loop {
            match self.input.next().await {
                Ok(Some(frame)) => self.take(frame).await,
                Ok(None) => break DrainCause::EndOfInput,
                Err(error) => {
                    tracing::warn!(%error, "reading failed: treated as the end of input");
                    break DrainCause::InputFailed;
                }
            }
        };
        self.flights.drain(cause);
    }

    async fn take(&mut self, frame: Frame) {
        let bytes = match &frame {
            Frame::Line(line) => line.len(),
            Frame::Oversized { .. } => 0,
        };
        let read = match frame {
            Frame::Line(line) if line.iter().all(u8::is_ascii_whitespace) => return,
            Frame::Line(line) => message::read(&line, &self.limits.json),
            Frame::Oversized { size_bytes, envelope } => {
                Err(Fault::oversized(envelope, size_bytes, self.limits.json.max_bytes))
            }
        };
        match read.and_then(|message| self.number(message, bytes)) {
            Ok(Some(message)) => {
                // An error means that the SDK's loop is over, and so is this connection.
                let _ = self.messages.send(message).await;
            }
            Ok(None) => {}
            Err(fault) => {
                let code = fault.code.0;
                tracing::debug!(code, reason = %fault.message, "refused a frame");
                self.writer.write(outgoing::fault(&fault)).await;
            }
        }
    }

    /// The message as the SDK gets it; `None` if it is to be dropped.
    fn number(
        &self,
        message: Message,
        bytes: usize,
    ) -> Result<Option<ClientJsonRpcMessage>, Fault> {
        Ok(match message {
            Message::Request(request, id) => {
                let number = match self.flights.admit(id.clone(), bytes) {
                    Ok(number) => number,
                    Err(refusal) => return Err(self.refused(id, refusal)),
                };
                Some(JsonRpcMessage::request(*request, RequestId::Number(number)))
            }
            Message::Cancel(id, reason) => {
                self.flights.cancel(&id).map(|number| cancellation(number, reason))
            }
            Message::Notification(notification) => {
                Some(JsonRpcMessage::notification(*notification))
            }
            Message::Reply(reply) => Some(*reply),
            Message::Ignored(what) => {
                tracing::debug!("dropped {what}");
                None
            }
            Message::UnreadableReply => {
                tracing::debug!("dropped an answer that the SDK cannot read");
                None
            }
        })
    }

    fn refused(&self, id: WireId, refusal: Refusal) -> Fault {
        // With the ID of a request in flight the refusal would be taken for that one's reply, and
        // would say of an effect under way that nothing was done.
        let named = (refusal != Refusal::Duplicate).then_some(id);
        let (code, message) = match refusal {
            Refusal::Duplicate => (
                ErrorCode::INVALID_REQUEST,
                "a request with this ID is still in flight; give every request its own ID"
                    .to_owned(),
            ),
            Refusal::Full => (
                ErrorCode::INTERNAL_ERROR,
                format!(
                    "not started: {} requests are in flight, which is the limit; \
                     send again after a reply",
                    self.limits.max_in_flight_count
                ),
            ),
            Refusal::Heavy => (
                ErrorCode::INTERNAL_ERROR,
                format!(
                    "not started: with this request those in flight would have over {} bytes, \
                     which is the limit; send again after a reply",
                    self.limits.max_in_flight_bytes
                ),
            ),
            Refusal::Draining => (
                ErrorCode::INTERNAL_ERROR,
                "not started: the server is shutting down; send again after a restart".to_owned(),
            ),
        };
        Fault::new(named, code, message)
    }
}

fn cancellation(number: i64, reason: Option<String>) -> ClientJsonRpcMessage {
    let params = CancelledNotificationParam::new(Some(RequestId::Number(number)), reason);
    JsonRpcMessage::notification(ClientNotification::from(CancelledNotification::new(params)))
}
