//! The consumer: save, send once, and if nothing is known, ask.

use std::fmt;

use counterfoil_core::consumer::{Belief, Effect, Expected, after_transport_failure};
use counterfoil_core::identity::{BackendId, OperationId, Principal};
use counterfoil_core::time::Timestamp;
use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

use crate::answers::Answers;
use crate::connection::{ConnectError, Connection, Connector, Writer};
use crate::identity::{Disagrees, Place, place};
use crate::journal::{Entry, Journal, JournalError};
use crate::leg::{Leg, LegEnd, Pending};
use crate::limits::Limits;
use crate::reply::{Finished, LostReason, input_missing, judge_error, judge_result, operation_in};
use crate::settle::{Question, Settled};

/// Whose answers are believed. What is left open is not checked.
#[derive(Debug, Clone, Default)]
pub struct Who {
    /// The caller's own principal.
    pub principal: Option<Principal>,
    /// The ledger it talks to.
    pub backend: Option<BackendId>,
}

/// One intended call.
pub struct Call {
    /// The tool.
    pub tool: String,
    /// Its arguments, without the operation's ID.
    pub arguments: Map<String, Value>,
    /// The operation; `None` leaves it to the server to name one.
    pub operation_id: Option<OperationId>,
    /// What the user answers.
    pub answers: Answers,
}

impl fmt::Debug for Call {
    /// Arguments may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut call = f.debug_struct("Call");
        call.field("tool", &self.tool).field("operation_id", &self.operation_id);
        call.finish_non_exhaustive()
    }
}

/// Makes calls that survive a lost reply.
#[derive(Debug)]
pub struct Consumer {
    journal: Journal,
    who: Who,
    limits: Limits,
}

/// A call whose identity is on disk and of which nothing was sent. Sending uses it up.
#[derive(Debug)]
#[must_use = "nothing is sent until `send` is called"]
pub struct Prepared<'c> {
    consumer: &'c Consumer,
    call: Call,
    server: String,
    saved_at: Timestamp,
}

/// Nothing of the call was sent.
#[derive(Debug, thiserror::Error)]
pub enum NotSent {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server could not say which tools it has.
    #[error("the server did not list its tools: {0}")]
    NoTools(String),
    /// The server has no such tool.
    #[error("the server has no tool `{0}`; see its tools/list")]
    NoSuchTool(String),
    /// The arguments carry another ID than the call.
    #[error("the argument `{0}` differs from the operation ID of the call; give the ID once")]
    TwoIds(&'static str),
}

/// What became of a call that was sent.
#[derive(Debug)]
pub enum Sent<'c> {
    /// It was answered.
    Finished(Finished),
    /// Nothing is known. The only way on is [`Lost::reconcile`], which asks.
    Lost(Lost<'c>),
}

/// A call that was sent and of which nothing is known. It can ask and cannot send.
#[derive(Debug)]
#[must_use = "the effect is unknown until it was asked for"]
pub struct Lost<'c> {
    consumer: &'c Consumer,
    operation_id: Option<OperationId>,
    reason: LostReason,
}

impl Consumer {
    /// A consumer that saves into `journal`.
    #[must_use]
    pub const fn new(journal: Journal, who: Who, limits: Limits) -> Self {
        Self { journal, who, limits }
    }

    /// Saves the identity of a call to the server with this name. Blocks for one fsync.
    ///
    /// # Errors
    /// [`JournalError`] if the identity is not surely on disk. Then nothing can be sent.
    pub fn prepare(
        &self,
        call: Call,
        server: &str,
        saved_at: Timestamp,
    ) -> Result<Prepared<'_>, JournalError> {
        let id = call.operation_id.clone();
        self.journal.save(&Entry::new(id, &call.tool, server, saved_at))?;
        Ok(Prepared { consumer: self, call, server: server.to_owned(), saved_at })
    }

    /// Asks what became of an operation. Sends nothing but questions.
    pub async fn ask<C: Connector>(&self, operation_id: OperationId, connector: &C) -> Settled {
        let settled = self.question(operation_id).ask(connector, &self.limits).await;
        self.note(settled.operation_id.as_ref(), settled.belief.effect);
        settled
    }

    fn question(&self, operation_id: OperationId) -> Question {
        let Who { principal, backend } = self.who.clone();
        Question::new(Expected { operation_id, principal, backend })
    }

    /// Notes a settled effect. A failure costs the note and nothing else: the effect stands, and
    /// the identity is saved.
    fn note(&self, operation_id: Option<&OperationId>, effect: Effect) {
        let Some(id) = operation_id.filter(|_| effect != Effect::Unknown) else { return };
        if let Err(error) = self.journal.settle(id, effect) {
            tracing::warn!(%error, "the outcome is not noted in the journal");
        }
    }
}

impl<'c> Prepared<'c> {
    /// The operation.
    #[must_use]
    pub const fn operation_id(&self) -> Option<&OperationId> {
        self.call.operation_id.as_ref()
    }

    /// Sends the call, once, and drives its rounds.
    ///
    /// # Errors
    /// [`NotSent`] if nothing of the call left this process.
    pub async fn send<C: Connector>(self, connector: &C) -> Result<Sent<'c>, NotSent> {
        let limit = self.consumer.limits.call;
        let connected = timeout(limit, self.connect(connector)).await;
        let (connection, schema) =
            connected.map_err(|_| NotSent::Connect(ConnectError::TimedOut(limit)))??;
        let mut arguments = self.call.arguments.clone();
        let placed = match &self.call.operation_id {
            Some(id) => place(id, Some(&schema), &mut arguments).map(|place| (place, Some(id))),
            None => Ok((Place::Meta, None)),
        };
        let (place, id) = match placed {
            Ok(placed) => placed,
            Err(Disagrees(field)) => {
                connection.close().await;
                return Err(NotSent::TwoIds(field));
            }
        };
        let leg = Leg::first(&self.call.tool, arguments, id.filter(|_| place == Place::Meta));
        Ok(self.drive(connection.into_writer(), leg).await)
    }

    async fn connect<C: Connector>(
        &self,
        connector: &C,
    ) -> Result<(Connection, Map<String, Value>), NotSent> {
        let connection = connector.connect(&self.call.answers).await?;
        let failed = match connection.input_schema(&self.call.tool).await {
            Ok(Some(schema)) => return Ok((connection, schema)),
            Ok(None) => NotSent::NoSuchTool(self.call.tool.clone()),
            Err(error) => NotSent::NoTools(error.to_string()),
        };
        connection.close().await;
        Err(failed)
    }

    async fn drive(self, writer: Writer, first: Leg) -> Sent<'c> {
        // The time-out may cut the rounds short, and the ID that they learned must outlive them.
        let mut known = self.call.operation_id.clone();
        let rounds = Box::pin(self.rounds(&writer, first, &mut known));
        let ended = timeout(self.consumer.limits.call, rounds).await;
        writer.close().await;
        match ended.unwrap_or(Err(LostReason::TimedOut)) {
            Ok(finished) => {
                if matches!(finished.reply, crate::Reply::Result(_)) {
                    self.consumer.note(finished.operation_id.as_ref(), finished.belief.effect);
                }
                Sent::Finished(finished)
            }
            Err(reason) => {
                Sent::Lost(Lost { consumer: self.consumer, operation_id: known, reason })
            }
        }
    }

    async fn rounds(
        &self,
        writer: &Writer,
        mut leg: Leg,
        known: &mut Option<OperationId>,
    ) -> Result<Finished, LostReason> {
        let most = self.consumer.limits.rounds_count;
        loop {
            let number = leg.number();
            let ended = leg.send(writer).await;
            let first = number == 1 && !writer.has_answered();
            let pending = match ended {
                LegEnd::Complete(result) => return judge_result(first, known.as_ref(), result),
                LegEnd::Failed(error) => return judge_error(first, known.as_ref(), error),
                LegEnd::Input(pending) => pending,
            };
            self.adopt(&pending, known)?;
            if number >= most {
                return Err(LostReason::TooManyRounds(most));
            }
            if pending.asks_nothing() {
                sleep(self.consumer.limits.wait_after(number - 1)).await;
            }
            leg = match pending.answer(&self.call.answers) {
                Ok(next) => next,
                Err(names) if first => return Ok(input_missing(known.clone(), names)),
                Err(names) => return Err(LostReason::InputMissing(names.join(", "))),
            };
        }
    }

    /// Saves the ID that the server gave to a call without one, before the next leg is sent.
    fn adopt(&self, asked: &Pending, known: &mut Option<OperationId>) -> Result<(), LostReason> {
        let named = operation_in(asked.meta(), known.as_ref())?.and_then(|op| op.operation_id);
        let (None, Some(id)) = (&*known, named) else { return Ok(()) };
        let tool = &self.call.tool;
        let entry = Entry::new(Some(id.clone()), tool, &self.server, self.saved_at);
        let saved = self.consumer.journal.save(&entry);
        *known = Some(id);
        saved.map_err(|error| LostReason::NotSaved(error.to_string()))
    }
}

impl Lost<'_> {
    /// The operation, if the call or the server named one.
    #[must_use]
    pub const fn operation_id(&self) -> Option<&OperationId> {
        self.operation_id.as_ref()
    }

    /// Why nothing is known.
    #[must_use]
    pub const fn reason(&self) -> &LostReason {
        &self.reason
    }

    /// What is known: nothing, and that it must be asked for.
    #[must_use]
    pub const fn belief(&self) -> Belief {
        after_transport_failure()
    }

    /// Asks over fresh connections, within the consumer's limits, until the effect is settled or
    /// it is clear that asking does not settle it. Sends nothing but questions.
    pub async fn reconcile<C: Connector>(self, connector: &C) -> Settled {
        match self.operation_id {
            Some(id) => self.consumer.ask(id, connector).await,
            None => Settled::unnamed(),
        }
    }
}
