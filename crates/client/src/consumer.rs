//! The consumer: save, send once, and if nothing is known, ask.

use std::fmt;

use counterfoil_core::consumer::{Belief, Effect, Expected, Submission, after_transport_failure};
use counterfoil_core::identity::{BackendId, OperationId, Principal};
use counterfoil_core::refusal::{Code, Retry};
use counterfoil_core::time::Timestamp;
use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

use crate::answers::Answers;
use crate::connection::{ConnectError, Connection, Connector, Writer};
use crate::http::HttpProblem;
use crate::identity::{Disagrees, ID_FIELDS, Place, place};
use crate::journal::{Entry, Journal, JournalError, Outcome};
use crate::leg::{Leg, LegEnd, Pending};
use crate::limits::Limits;
use crate::reply::{
    Finished, LostReason, Reply, denied, input_missing, judge_error, judge_result, operation_in,
};
use crate::settle::{Question, Settled};
use crate::watcher::{Unwatched, Watcher};

/// The server wants to ask in a way that this client did not announce (MCP 2026-07-28).
const MISSING_CAPABILITY: &str = "-32021";

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
    /// The user waits no longer.
    #[error("interrupted")]
    Interrupted,
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
    server: String,
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
        self.ask_about(operation_id, connector.name(), connector, &Unwatched).await
    }

    async fn ask_about<C: Connector, W: Watcher>(
        &self,
        operation_id: OperationId,
        server: &str,
        connector: &C,
        watcher: &W,
    ) -> Settled {
        let Who { principal, backend } = self.who.clone();
        let question = Question::new(Expected { operation_id, principal, backend });
        let settled = question.ask_watched(connector, &self.limits, watcher).await;
        self.note(settled.operation_id.as_ref(), server, Outcome::of(settled.belief.effect));
        settled
    }

    /// Notes an outcome. A failure costs the note and nothing else: the effect stands, and the
    /// identity is saved.
    fn note(&self, operation_id: Option<&OperationId>, server: &str, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else { return };
        if let Err(error) = self.journal.settle(operation_id, server, outcome) {
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
        self.send_watched(connector, &Unwatched).await
    }

    /// The same, until the watcher stops: [`NotSent::Interrupted`] while nothing was sent, after
    /// that a call that is [`Sent::Lost`].
    ///
    /// # Errors
    /// [`NotSent`] if nothing of the call left this process.
    pub async fn send_watched<C: Connector, W: Watcher>(
        self,
        connector: &C,
        watcher: &W,
    ) -> Result<Sent<'c>, NotSent> {
        let (connection, leg, not_given) = match self.begin(connector, watcher).await {
            Ok(begun) => begun,
            Err(error) => {
                let id = self.call.operation_id.as_ref();
                self.consumer.note(id, &self.server, Some(Outcome::NotSent));
                return Err(error);
            }
        };
        let mut sent = self.drive(connection.into_writer(), leg, watcher).await?;
        if let Sent::Finished(Finished { reply: Reply::Refused(refused), .. }) = &mut sent
            && refused.code == MISSING_CAPABILITY
        {
            refused.not_given = not_given;
        }
        Ok(sent)
    }

    /// Everything before the first request: the session, the tool's schema, the place of the ID.
    async fn begin<C: Connector, W: Watcher>(
        &self,
        connector: &C,
        watcher: &W,
    ) -> Result<(Connection, Leg, Vec<String>), NotSent> {
        let limit = self.consumer.limits.call;
        let connecting = Box::pin(self.connect(connector));
        let (connection, schema) = tokio::select! {
            biased;
            () = watcher.stopped() => return Err(NotSent::Interrupted),
            connected = timeout(limit, connecting) => {
                connected.map_err(|_| NotSent::Connect(ConnectError::TimedOut(limit)))??
            }
        };
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
        let not_given = if self.call.answers.is_empty() {
            texts_not_given(&schema, &arguments)
        } else {
            Vec::new()
        };
        let leg = Leg::first(&self.call.tool, arguments, id.filter(|_| place == Place::Meta));
        Ok((connection, leg, not_given))
    }

    async fn connect<C: Connector>(
        &self,
        connector: &C,
    ) -> Result<(Connection, Map<String, Value>), NotSent> {
        let connection = connector.connect(&self.call.answers).await?;
        match connection.tool(&self.call.tool).await {
            Ok(tool) => Ok((connection, (*tool.input_schema).clone())),
            Err(failed) => {
                connection.close().await;
                Err(failed)
            }
        }
    }

    async fn drive<W: Watcher>(
        self,
        writer: Writer,
        first: Leg,
        watcher: &W,
    ) -> Result<Sent<'c>, NotSent> {
        // The time-out may cut the rounds short, and the ID that they learned must outlive them.
        let mut known = self.call.operation_id.clone();
        let rounds = Box::pin(self.rounds(&writer, first, &mut known));
        let ended = tokio::select! {
            biased;
            () = watcher.stopped() => Err(Stopped::Lost(LostReason::Interrupted)),
            ended = timeout(self.consumer.limits.call, rounds) => {
                ended.unwrap_or(Err(Stopped::Lost(LostReason::TimedOut)))
            }
        };
        match ended {
            Err(Stopped::Lost(LostReason::Interrupted)) => writer.close_soon().await,
            _ => writer.close().await,
        }
        let Self { consumer, server, .. } = self;
        match ended {
            Ok(finished) => {
                // By the ID that the journal has: one that came with the reply is not in it.
                consumer.note(known.as_ref(), &server, outcome_of(&finished));
                Ok(Sent::Finished(finished))
            }
            Err(Stopped::NotSent(error)) => {
                consumer.note(known.as_ref(), &server, Some(Outcome::NotSent));
                Err(error)
            }
            Err(Stopped::Lost(reason)) => {
                Ok(Sent::Lost(Lost { consumer, operation_id: known, server, reason }))
            }
        }
    }

    async fn rounds(
        &self,
        writer: &Writer,
        mut leg: Leg,
        known: &mut Option<OperationId>,
    ) -> Result<Finished, Stopped> {
        let most = self.consumer.limits.rounds_count;
        loop {
            let number = leg.number();
            let ended = leg.send(writer).await;
            let first = number == 1 && !writer.has_answered();
            let pending = match ended {
                LegEnd::Complete(result) => {
                    return Ok(judge_result(first, known.as_ref(), result)?);
                }
                LegEnd::Failed(error) => return Ok(judge_error(first, known.as_ref(), error)?),
                LegEnd::Broken(why) => return Err(LostReason::NoReply(why).into()),
                LegEnd::NotAdmitted(problem) => {
                    return judge_not_admitted(first, known.as_ref(), problem);
                }
                LegEnd::Input(pending) => pending,
            };
            self.adopt(&pending, known)?;
            if number >= most {
                return Err(LostReason::TooManyRounds(most).into());
            }
            if pending.asks_nothing() {
                sleep(self.consumer.limits.wait_after(number - 1)).await;
            }
            leg = match pending.answer(&self.call.answers) {
                Ok(next) => next,
                Err(names) if first => return Ok(input_missing(known.clone(), names)),
                Err(names) => return Err(LostReason::InputMissing(names.join(", ")).into()),
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
        saved.map_err(|error| LostReason::NotSaved(error.to_string()))?;
        self.consumer.note(None, &self.server, Some(Outcome::Named));
        Ok(())
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
        self.reconcile_watched(connector, &Unwatched).await
    }

    /// The same, told of each further try; it ends early if the watcher stops.
    pub async fn reconcile_watched<C: Connector, W: Watcher>(
        self,
        connector: &C,
        watcher: &W,
    ) -> Settled {
        let Some(id) = self.operation_id else { return Settled::unnamed() };
        self.consumer.ask_about(id, &self.server, connector, watcher).await
    }

    /// What is known without asking: nothing.
    #[must_use]
    pub fn unasked(self) -> Settled {
        Settled::unknown(self.operation_id)
    }
}

/// Why a call's rounds ended without an answer.
enum Stopped {
    Lost(LostReason),
    NotSent(NotSent),
}

impl From<LostReason> for Stopped {
    fn from(reason: LostReason) -> Self {
        Self::Lost(reason)
    }
}

/// Judges a leg that HTTP itself kept from the tool. Of a continuation it says nothing: an earlier
/// leg may have committed.
fn judge_not_admitted(
    first: bool,
    known: Option<&OperationId>,
    problem: HttpProblem,
) -> Result<Finished, Stopped> {
    match problem {
        _ if !first => Err(LostReason::NoReply(problem.to_string()).into()),
        HttpProblem::Status { status, .. } => {
            Ok(denied(known.cloned(), format!("http_{status}"), problem.to_string()))
        }
        _ => Err(Stopped::NotSent(NotSent::Connect(ConnectError::Http(problem)))),
    }
}

/// What an answer says of a call; `None` if its outcome is open.
fn outcome_of(finished: &Finished) -> Option<Outcome> {
    let effect = finished.belief.effect;
    match &finished.reply {
        Reply::Result(reply) if reply.operation.is_none() => Some(Outcome::Answered),
        Reply::Result(_) => Outcome::of(effect),
        // A conflict says that this call was refused for good, though nothing of the other request
        // that has its ID. In progress and in doubt stay open: they may be an earlier send of ours.
        Reply::Refused(refused) if refused.code == Code::OperationConflict.as_str() => {
            Some(Outcome::Refused)
        }
        // Kept from the tool by HTTP: of this call nothing is open, whatever an earlier one did.
        Reply::Refused(refused)
            if refused.retry == Retry::SameOperation
                && finished.belief.submission == Submission::NotAdmitted =>
        {
            Some(Outcome::Refused)
        }
        Reply::Refused(_) | Reply::InputMissing(_) => {
            (effect == Effect::NotApplied).then_some(Outcome::Refused)
        }
    }
}

/// The free texts that a tool takes and that were not given.
fn texts_not_given(schema: &Map<String, Value>, arguments: &Map<String, Value>) -> Vec<String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let is_free_text = |property: &Value| {
        property["type"] == "string"
            && ["enum", "const", "default"].iter().all(|key| property.get(key).is_none())
    };
    let wanted = properties.into_iter().flatten().filter(|(name, property)| {
        is_free_text(property)
            && !arguments.contains_key(*name)
            && !ID_FIELDS.contains(&name.as_str())
    });
    wanted.map(|(name, _)| name.clone()).collect()
}
