//! What concurrent clients saw, in the order in which they saw it: every request that was sent and
//! what came of it. [`check`] holds it against the physical rows.

mod check;
mod course;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::readback::Rows;
use crate::session::{Issue, Reply};

pub use check::{Rule, Violation, check};
pub use course::{Broken, Course, CourseRule, Told, check_courses, courses_of};

/// Names one request of a history.
pub type CallNo = usize;

/// One line of a history.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A request is about to be sent.
    Invoke {
        /// The request.
        call: CallNo,
        /// What it asks for.
        kind: Kind,
        /// For which operation.
        operation_id: String,
    },
    /// A reply came.
    Return {
        /// The request.
        call: CallNo,
        /// The reply.
        saw: Saw,
    },
    /// No reply came, and none can come any more.
    Lost {
        /// The request.
        call: CallNo,
    },
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An effect with these contents.
    Write(Digest),
    /// The status.
    Status,
}

/// The contents of an effect, as the asking side and the physical row both have them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest(String);

impl Digest {
    /// Of an issue's title and body.
    #[must_use]
    pub fn of(title: &str, body: &str) -> Self {
        let mut hash = Sha256::new();
        // The length keeps two pairs of texts apart that read alike when joined.
        hash.update(title.len().to_be_bytes());
        hash.update(title);
        hash.update(body);
        let bytes = hash.finalize();
        Self(bytes[..8].iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// What a client read in a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Saw {
    /// The effect is settled.
    Settled(Outcome),
    /// A status that settles nothing.
    Unknown,
    /// Refused, with this code; nothing was done for this request.
    Refused(String),
    /// The server asked for input, or answered with a protocol error.
    Nothing,
}

/// What is said of a settled effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// `applied`, `partial` or `not_applied`.
    pub state: String,
    /// The rows that it made.
    pub effect_ids: Vec<i64>,
    /// The stored result.
    pub result: Value,
    /// Whether this reply says that it was this very request that made the effect.
    pub fresh: bool,
}

impl Saw {
    /// Reads a reply; `None` for a lost one.
    #[must_use]
    pub fn from_reply(reply: &Reply) -> Option<Self> {
        let (content, is_error) = match reply {
            Reply::Result { content, is_error, .. } => (content, *is_error),
            Reply::InputRequired { .. } | Reply::Error { .. } => return Some(Self::Nothing),
            Reply::Lost(_) => return None,
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if is_error {
            return Some(Self::Refused(text(&content["error"]["code"])));
        }
        let state = text(&content["state"]);
        if state == "unknown" {
            return Some(Self::Unknown);
        }
        let observed = content.get("matchingIds").and_then(Value::as_array);
        let effect_ids = match observed {
            Some(ids) => ids.iter().filter_map(Value::as_i64).collect(),
            None => content["effectId"].as_i64().into_iter().collect(),
        };
        let result = if observed.is_some() { &content["storedResult"] } else { &content["result"] };
        let fresh = content["replayed"] == false;
        Some(Self::Settled(Outcome { state, effect_ids, result: result.clone(), fresh }))
    }
}

/// Takes down a history from many tasks.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Vec<Event>>);

impl Recorder {
    /// Notes that the issue is about to be asked for.
    pub fn invoke_write(&self, issue: &Issue) -> CallNo {
        let digest = Digest::of(&issue.title, &issue.body);
        self.invoke(Kind::Write(digest), &issue.operation_id)
    }

    /// Notes that a status is about to be asked for.
    pub fn invoke_status(&self, operation_id: &str) -> CallNo {
        self.invoke(Kind::Status, operation_id)
    }

    fn invoke(&self, kind: Kind, operation_id: &str) -> CallNo {
        let mut events = self.events();
        // Unique, since events are only ever appended.
        let call = events.len();
        events.push(Event::Invoke { call, kind, operation_id: operation_id.into() });
        call
    }

    /// Notes what came of a request.
    pub fn ended(&self, call: CallNo, reply: &Reply) {
        self.events().push(match Saw::from_reply(reply) {
            Some(saw) => Event::Return { call, saw },
            None => Event::Lost { call },
        });
    }

    /// The history so far.
    #[must_use]
    pub fn history(&self) -> Vec<Event> {
        self.events().clone()
    }

    fn events(&self) -> std::sync::MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is physically there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Physical {
    /// The effects.
    pub effects: Vec<Effect>,
    /// The recorded operations with their states; `None` where nothing keeps records.
    pub operations: Option<BTreeMap<String, String>>,
}

/// An effect's row.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// The operation that made it.
    pub operation_id: String,
    /// Its key.
    pub id: i64,
    /// Its contents.
    pub digest: Digest,
}

impl Physical {
    /// From a ledger that was read back.
    #[must_use]
    pub fn of_ledger(rows: &Rows) -> Self {
        Self { operations: Some(rows.states()), ..Self::of_unguarded(rows) }
    }

    /// From the same tables where no ledger is kept.
    #[must_use]
    pub fn of_unguarded(rows: &Rows) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let effect = |row: &Value| Effect {
            operation_id: text(&row["operation_id"]),
            id: row["id"].as_i64().unwrap_or_default(),
            digest: Digest::of(&text(&row["title"]), &text(&row["body"])),
        };
        Self { effects: rows.rows("issues").iter().map(effect).collect(), operations: None }
    }
}
