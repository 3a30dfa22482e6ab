//! Asking what became of an operation. From here no path leads to a call that writes.

use counterfoil_core::consumer::{Action, Belief, Effect, Expected, Submission, accept};
use counterfoil_core::identity::OperationId;
use counterfoil_core::observation::{Detail, Observation};
use counterfoil_core::refusal::Retry;
use rmcp::ServiceError;
use rmcp::model::CallToolResponse;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use crate::answers::Answers;
use crate::connection::{Asker, ConnectError, Connector};
use crate::limits::Limits;
use crate::reply::{error_in_words, operation_in};
use crate::watcher::{Unwatched, Watcher};

/// The tool that is asked. It reads.
pub const STATUS_TOOL: &str = "get_operation_status";

/// A question about one operation.
#[derive(Debug, Clone)]
pub struct Question {
    expected: Expected,
}

/// What asking led to.
#[derive(Debug, Clone)]
pub struct Settled {
    /// The operation; `None` if the call had no ID, so that nothing could be asked.
    pub operation_id: Option<OperationId>,
    /// What is known now.
    pub belief: Belief,
    /// The account that the belief rests on; for an unknown effect the last one that was believed.
    pub observation: Option<Box<Observation>>,
    /// Why the effect is still unknown, in words.
    pub doubt: Option<String>,
    /// How often a status was asked for.
    pub questions_count: u32,
}

impl Settled {
    /// The stored result of an applied or partial effect, JSON.
    #[must_use]
    pub fn stored_result(&self) -> Option<&RawValue> {
        self.observation.as_ref()?.stored_result.as_deref()
    }

    pub(crate) fn unnamed() -> Self {
        let mut settled = Self::unknown(None);
        settled.doubt = Some(
            "the call carried no operation ID and the server gave none before the reply was \
             lost, so there is nothing to ask for"
                .into(),
        );
        settled
    }

    pub(crate) const fn unknown(operation_id: Option<OperationId>) -> Self {
        let belief = Belief {
            submission: Submission::Unknown,
            effect: Effect::Unknown,
            action: Action::Stop,
        };
        Self { operation_id, belief, observation: None, doubt: None, questions_count: 0 }
    }
}

/// What to do after one question.
enum Next {
    Stop,
    AskAgain,
}

/// Why one question got no account.
struct Unanswered {
    words: String,
    next: Next,
}

impl Question {
    /// About the operation that is expected.
    #[must_use]
    pub const fn new(expected: Expected) -> Self {
        Self { expected }
    }

    /// Asks until the effect is settled, asking does not help, or a limit is reached.
    pub async fn ask<C: Connector>(&self, connector: &C, limits: &Limits) -> Settled {
        self.ask_watched(connector, limits, &Unwatched).await
    }

    /// The same, told of each further try; it ends early if the watcher stops.
    pub async fn ask_watched<C: Connector, W: Watcher>(
        &self,
        connector: &C,
        limits: &Limits,
        watcher: &W,
    ) -> Settled {
        let mut settled = Settled::unknown(Some(self.expected.operation_id.clone()));
        let asking = Box::pin(self.ask_on(connector, limits, watcher, &mut settled));
        let cut = tokio::select! {
            biased;
            () = watcher.stopped() => Some("the asking was interrupted".to_owned()),
            ended = timeout(limits.reconcile, asking) => ended
                .is_err()
                .then(|| format!("no answer settled it within {:?}", limits.reconcile)),
        };
        if let Some(words) = cut {
            settled.doubt = Some(match settled.doubt.take() {
                Some(last) => format!("{words}; last: {last}"),
                None => words,
            });
        }
        settled
    }

    async fn ask_on<C: Connector, W: Watcher>(
        &self,
        connector: &C,
        limits: &Limits,
        watcher: &W,
        settled: &mut Settled,
    ) {
        // A server that hangs gets a part of the time, so that a fresh one can be asked.
        let each = limits.reconcile / 3;
        let mut open: Option<Asker> = None;
        while settled.questions_count < limits.questions_count {
            if settled.questions_count > 0 {
                sleep(limits.wait_after(settled.questions_count - 1)).await;
                watcher.asks_again(settled.questions_count + 1, limits.questions_count);
            }
            settled.questions_count += 1;
            let asked = timeout(each, self.ask_once(connector, &mut open)).await;
            let next = match asked {
                Ok(Ok(seen)) => self.judge(seen, settled),
                Ok(Err(unanswered)) => {
                    settled.doubt = Some(unanswered.words);
                    unanswered.next
                }
                Err(_) => {
                    settled.doubt = Some(format!("no answer came within {each:?}"));
                    close(open.take()).await;
                    Next::AskAgain
                }
            };
            if matches!(next, Next::Stop) {
                break;
            }
        }
        close(open).await;
    }

    async fn ask_once<C: Connector>(
        &self,
        connector: &C,
        open: &mut Option<Asker>,
    ) -> Result<Observation, Unanswered> {
        if open.is_none() {
            let connected = connector.connect(&Answers::default()).await;
            *open = Some(connected.map_err(not_connected)?.into_asker());
        }
        let asker = open.as_ref().expect("it was opened above");
        match asker.status(&self.expected.operation_id).await {
            Ok(reply) => read_status(reply),
            Err(ServiceError::McpError(error)) => {
                let said = error_in_words(&error);
                let words =
                    format!("{STATUS_TOOL} was refused: {said}; does this server keep a ledger?");
                Err(Unanswered { words, next: Next::Stop })
            }
            Err(error) => {
                let unreadable = matches!(error, ServiceError::UnexpectedResponse);
                let is_final = unreadable || asker.is_refused_for_good();
                let words = format!("{STATUS_TOOL} got no reply: {}", asker.why(&error).await);
                close(open.take()).await;
                let next = if is_final { Next::Stop } else { Next::AskAgain };
                Err(Unanswered { words, next })
            }
        }
    }

    /// Believes an account or not. Only an operation in progress is worth another question.
    fn judge(&self, seen: Observation, settled: &mut Settled) -> Next {
        let belief = match accept(&self.expected, &seen) {
            Ok(belief) => belief,
            Err(error) => {
                settled.doubt = Some(error.to_string());
                return Next::Stop;
            }
        };
        let moving = matches!(
            seen.detail,
            Detail::InProgress
                | Detail::FirstStepCommitted
                | Detail::Queued
                | Detail::Leased
                | Detail::Sending
        );
        settled.belief = belief;
        settled.doubt = match belief.effect {
            Effect::Unknown => Some(doubt_of(seen.detail).into()),
            _ => None,
        };
        settled.observation = Some(Box::new(seen));
        if moving { Next::AskAgain } else { Next::Stop }
    }
}

async fn close(asker: Option<Asker>) {
    if let Some(asker) = asker {
        asker.close().await;
    }
}

fn not_connected(error: ConnectError) -> Unanswered {
    let next = if error.is_lasting() { Next::Stop } else { Next::AskAgain };
    Unanswered { words: error.to_string(), next }
}

fn read_status(reply: CallToolResponse) -> Result<Observation, Unanswered> {
    let stop = |words: String| Unanswered { words, next: Next::Stop };
    let CallToolResponse::Complete(result) = reply else {
        return Err(stop(format!("{STATUS_TOOL} gave no result that can be read")));
    };
    if result.is_error == Some(true) {
        let said = operation_in(result.meta.as_ref(), None).ok().flatten();
        let later = said.is_some_and(|said| said.retry == Retry::SameOperation);
        let words = format!("{STATUS_TOOL} answered with an error");
        return Err(Unanswered { words, next: if later { Next::AskAgain } else { Next::Stop } });
    }
    let account = result.structured_content.unwrap_or_default();
    Observation::deserialize(account)
        .map_err(|error| stop(format!("{STATUS_TOOL} gave no account that can be read: {error}")))
}

const fn doubt_of(detail: Detail) -> &'static str {
    match detail {
        Detail::NoRecord => {
            "the ledger has no record of this operation for this principal, which proves nothing"
        }
        Detail::InProgress => "the operation is in progress, or was left unfinished",
        Detail::FirstStepCommitted => {
            "its first step is committed and the rest is not; an operator decides"
        }
        Detail::Queued | Detail::Leased | Detail::Sending => {
            "it was accepted and is being delivered; its outcome is not known yet"
        }
        Detail::Parked => {
            "it was accepted, and its delivery is held back until an operator puts something right"
        }
        Detail::DeadLetter => {
            "its delivery was given up for now; an operator may have it sent again, or end it"
        }
        Detail::LateContradiction => {
            "it was settled as not applied, and the target said later that it did it; an operator \
             must look"
        }
        Detail::InDoubt => "it may have taken effect; only a lookup or an operator settles it",
        Detail::EffectMissing => "the ledger says applied, and the row that it names is gone",
        _ => "the ledger's record contradicts itself; an operator must look",
    }
}
