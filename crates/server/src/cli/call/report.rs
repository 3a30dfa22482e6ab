//! What the command says in the end: data on stdout, the account on stderr.

use std::io::{self, Write};

use counterfoil_client::{Finished, LostReason, Refused, Reply, Settled, name_of_code};
use counterfoil_core::consumer::{Action, Belief, Effect};
use counterfoil_core::observation::Detail;
use counterfoil_core::refusal::Retry;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::cli::exit::Exit;

/// Refusals of what was typed, rather than of what was asked for.
const BAD_INPUT: [&str; 8] = [
    "invalid_argument",
    "too_large",
    "operation_id_required",
    "-32700",
    "-32600",
    "-32601",
    "-32602",
    "-32021",
];

/// The end of one call.
pub(super) struct Report {
    operation_id: Option<String>,
    belief: Belief,
    ending: Ending,
    /// The command that asks again.
    again: String,
}

enum Ending {
    /// The tool replied. `is_pending`: it took the call in, and its effect is still to come.
    Replied { value: Value, is_error: bool, is_guarded: bool, is_pending: bool },
    /// The call was refused.
    Refused(Refused),
    /// Input that the tool asks for was not given.
    InputMissing(Vec<String>),
    /// The status was asked for; after a lost reply, with the reason of the loss.
    Asked { settled: Settled, lost: Option<LostReason> },
}

impl Report {
    pub(super) fn of_finished(finished: Finished, again: String) -> Self {
        let Finished { operation_id, belief, reply } = finished;
        let ending = match reply {
            Reply::Result(reply) => Ending::Replied {
                value: reply.value,
                is_error: reply.is_error,
                is_guarded: reply.operation.is_some(),
                is_pending: belief.action == Action::Reconcile,
            },
            Reply::Refused(refused) => Ending::Refused(refused),
            Reply::InputMissing(names) => Ending::InputMissing(names),
        };
        let operation_id = operation_id.map(String::from);
        Self { operation_id, belief, ending, again }
    }

    pub(super) fn of_settled(settled: Settled, lost: Option<LostReason>, again: String) -> Self {
        let operation_id = settled.operation_id.clone().map(String::from);
        Self {
            operation_id,
            belief: settled.belief,
            ending: Ending::Asked { settled, lost },
            again,
        }
    }

    pub(super) fn exit(&self) -> Exit {
        match (&self.ending, self.belief.effect) {
            (Ending::Refused(refused), _) if is_bad_input(refused) => Exit::Usage,
            (Ending::Refused(_), _) => Exit::Refused,
            (Ending::InputMissing(_), _) => Exit::Usage,
            // The tool of a server that keeps no ledger has spoken, and nobody can be asked.
            (Ending::Replied { is_error: true, is_guarded: false, .. }, _) => Exit::Failed,
            (_, Effect::Applied) => Exit::Done,
            (_, Effect::Partial | Effect::NotApplied) => Exit::Failed,
            (_, Effect::Unknown) => Exit::Unknown,
        }
    }

    pub(super) fn print(
        &self,
        json: bool,
        out: &mut impl Write,
        err: &mut impl Write,
    ) -> io::Result<()> {
        if json {
            return writeln!(out, "{}", self.to_json());
        }
        if let Some(text) = self.result_text() {
            writeln!(out, "{text}")?;
        }
        writeln!(err, "{}", self.account())
    }

    fn to_json(&self) -> Value {
        let mut all = Map::new();
        let mut put = |name: &str, value: Value| drop(all.insert(name.into(), value));
        put("operationId", json!(self.operation_id));
        put("submission", self.belief.submission.as_str().into());
        put("effect", self.belief.effect.as_str().into());
        put("action", self.belief.action.as_str().into());
        put("state", self.belief.effect.as_str().into());
        let recovered = matches!(&self.ending, Ending::Asked { lost: Some(_), .. })
            && self.belief.effect != Effect::Unknown;
        put("recovered", recovered.into());
        put("result", Value::Null);
        match &self.ending {
            Ending::Replied { value, is_error, .. } => {
                put("result", value.clone());
                put("isError", (*is_error).into());
            }
            Ending::Refused(Refused { code, message, retry, not_given }) => {
                put("refused", json!({"code": code, "message": message, "retry": retry}));
                if !not_given.is_empty() {
                    put("missing", json!(not_given));
                }
            }
            Ending::InputMissing(names) => put("missing", json!(names)),
            Ending::Asked { settled, lost } => {
                put("result", json!(settled.stored_result()));
                if let Some(observation) = &settled.observation {
                    put("observation", json!(observation));
                }
                if let Some(doubt) = &settled.doubt {
                    put("doubt", json!(doubt));
                }
                if let Some(lost) = lost {
                    put("lost", lost.to_string().into());
                }
            }
        }
        if self.is_open() {
            put("next", json!(self.again));
        }
        Value::Object(all)
    }

    /// Whether asking again may tell more.
    fn is_open(&self) -> bool {
        let named = self.operation_id.is_some();
        let unguarded = matches!(self.ending, Ending::Replied { is_guarded: false, .. });
        named && !unguarded && self.belief.effect == Effect::Unknown
    }

    fn result_text(&self) -> Option<String> {
        match &self.ending {
            Ending::Replied { value, .. } => Some(text_of(value)),
            Ending::Asked { settled, .. } => settled.stored_result().map(text_of_raw),
            Ending::Refused(_) | Ending::InputMissing(_) => None,
        }
    }

    fn account(&self) -> String {
        let id = self.operation_id.as_deref().unwrap_or("without an ID");
        match &self.ending {
            Ending::InputMissing(names) => format!(
                "the tool asks for input that was not given: {}. Nothing more was sent. Call again \
                 with --operation-id {id} and an --answer NAME=TEXT for each",
                names.join(", ")
            ),
            Ending::Refused(refused) => self.refusal(refused),
            Ending::Replied { is_error: true, is_guarded: false, .. } => format!(
                "operation {id}: the tool answered with an error; whether it had an effect, only \
                 its own documentation can say"
            ),
            Ending::Replied { .. } | Ending::Asked { .. } => self.outcome(id),
        }
    }

    fn refusal(&self, refused: &Refused) -> String {
        let Refused { code, message, retry, not_given } = refused;
        let next = match retry {
            Retry::None if !not_given.is_empty() => format!(
                "nothing was done; add {}, and send the call again",
                ways_to_give(not_given).join(", ")
            ),
            Retry::None if is_bad_input(refused) => {
                "nothing was done; correct the call and send it again".into()
            }
            Retry::None => "there is nothing to send again".into(),
            Retry::NewOperation => "it is proved not applied: a new ID may be used".into(),
            Retry::SameOperation => "send the same call again later, with the same ID".into(),
            Retry::StatusOnly => format!("do not send it again; ask:\n  {}", self.again),
        };
        let name = name_of_code(code).map(|name| format!("{name}, ")).unwrap_or_default();
        format!("refused ({name}{code}): {message}\n{next}")
    }

    fn outcome(&self, id: &str) -> String {
        let how = match &self.ending {
            Ending::Asked { lost: Some(_), .. } => ", learned by asking after the reply was lost",
            _ => "",
        };
        let effect = match (self.belief.effect, self.belief.action) {
            (Effect::Applied, Action::ReturnStoredResult) => "applied",
            (Effect::Applied, _) => "applied; its stored result was purged",
            (Effect::Partial, _) => "applied in part: look at the result before anything else",
            (Effect::NotApplied, _) => "not applied",
            (Effect::Unknown, _) => return self.unknown(id),
        };
        format!("operation {id}: {effect}{how}")
    }

    /// What is known, what not to do, and what to do.
    fn unknown(&self, id: &str) -> String {
        if matches!(self.ending, Ending::Replied { is_pending: true, is_error: false, .. }) {
            return format!(
                "operation {id}: the server has taken it in, and its outcome is not known yet.\nDo \
                 not send it again under another ID: that could do it twice. Ask:\n  {}",
                self.again
            );
        }
        let (known, doubt) = match &self.ending {
            Ending::Asked { settled, lost } => {
                let lost = match lost {
                    Some(LostReason::Interrupted) => {
                        " The call may have been sent, and the wait for its reply was \
                         interrupted."
                            .into()
                    }
                    Some(lost) => format!(" The call was sent and {lost}."),
                    None => String::new(),
                };
                (lost, settled.doubt.as_deref())
            }
            _ => (String::new(), None),
        };
        let doubt = doubt.map(|doubt| format!(" Asked, {doubt}.")).unwrap_or_default();
        let mut text = format!(
            "operation {id}: UNKNOWN; it may have taken effect or not.{known}{doubt}\nDo not send \
             it again under another ID: that could do it twice."
        );
        if self.is_open() {
            text.push_str(" Ask again:\n  ");
            text.push_str(&self.again);
        }
        if self.has_no_record() {
            text.push_str(
                "\nSending the very same call with the same --operation-id to the same ledger \
                 cannot do it twice: the\nidentity decides. Another ID could. Nothing here sends \
                 it for you.",
            );
        }
        text
    }

    /// Whether the ledger itself says that it has no record; less than that may hide one.
    fn has_no_record(&self) -> bool {
        let Ending::Asked { settled, .. } = &self.ending else { return false };
        settled.observation.as_ref().is_some_and(|seen| seen.detail == Detail::NoRecord)
    }
}

fn is_bad_input(refused: &Refused) -> bool {
    BAD_INPUT.contains(&refused.code.as_str())
}

/// For each text that the tool may want to ask for.
fn ways_to_give(names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("--answer {name}=TEXT or put {name} into --args")).collect()
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_else(|_| other.to_string()),
    }
}

/// A stored result as it was stored: texts bare, everything else byte for byte.
fn text_of_raw(raw: &RawValue) -> String {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned())
}
