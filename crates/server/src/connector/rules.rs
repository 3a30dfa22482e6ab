//! What a target's answers mean, as its connector declares it. Whoever sends a request applies these
//! rules and hands what they say to the core's table, which knows what each status proves.

use std::time::Duration;

use counterfoil_core::delivery::Declared;
use counterfoil_core::json::Value;
use counterfoil_core::record::StoredResult;
use http::HeaderName;

use super::pointer::{Pointer, external_id};
use super::result::ResultTemplate;

/// Statuses that a connector may declare answers for, besides successes.
pub(super) const DECLARABLE: &[u16] = &[400, 409, 413, 415, 422, 500, 502, 503, 504];
/// Statuses that mean a refusal only with the target's own error shape in the body.
pub(super) const REFUSALS: &[u16] = &[400, 413, 415, 422];

/// How the answers to a request are read; [`read`](Self::read) does it.
///
/// 1. [`success`](Self::success) holds the status: the body is read as [`body`](Self::body) says;
///    what cannot be read so, or has no [`external_id`](Self::external_id) where one is declared, is
///    a broken success, whose outcome is unknown.
/// 2. The first of [`answers`](Self::answers) that fits says what it means.
/// 3. Else nothing is declared, and [`judge`](counterfoil_core::delivery::judge) decides by the
///    status alone.
#[derive(Debug)]
pub struct ResponseRules {
    /// Statuses of an applied request; all are 2xx.
    pub success: Vec<u16>,
    /// What such an answer's body is.
    pub body: BodyRule,
    /// Where the target's own ID stands; the answer is unreadable without it.
    pub external_id: Option<Pointer>,
    /// Declared answers, in the order of the file.
    pub answers: Vec<AnswerRule>,
    /// Makes the tool's result of the answer.
    pub result: ResultTemplate,
    /// Whether an argument of the caller stands in the URL.
    pub url_holds_arguments: bool,
}

/// What a successful answer's body must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyRule {
    /// One JSON value.
    Json,
    /// Exactly this text, white space around it aside.
    Text(String),
    /// Whatever; it is not read.
    Ignored,
}

/// One declared answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerRule {
    /// Its status is one of these.
    pub statuses: Vec<u16>,
    /// And it is so, if that is declared.
    pub own: OwnAnswer,
    /// What it means.
    pub means: Meaning,
}

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Not applied, for good: the target will never take this request as it is.
    Refused,
    /// Not applied: the request may be sent again.
    NotApplied,
    /// Applied: by this or an earlier attempt. Read as a success whose body is
    /// [`ResponseRules::body`].
    Applied,
    /// Nobody knows.
    Unknown,
    /// The key was used with another request: unknown, with an alarm.
    KeyReused,
    /// The target replays a stored failure for this key: no retry will change it.
    KeyReplayed,
}

impl Meaning {
    /// Every meaning.
    pub const ALL: [Self; 6] = [
        Self::Refused,
        Self::NotApplied,
        Self::Applied,
        Self::Unknown,
        Self::KeyReused,
        Self::KeyReplayed,
    ];

    /// Its word in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::NotApplied => "not_applied",
            Self::Applied => "applied",
            Self::Unknown => "unknown",
            Self::KeyReused => "key_reused",
            Self::KeyReplayed => "key_replayed",
        }
    }
}

/// The shape of a body by which a target's own answer is told from a proxy's.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// A JSON body in which something of this type, and one of these values if any are given, stands
    /// at the place.
    Json {
        /// The place.
        at: Pointer,
        /// The type.
        kind: JsonKind,
        /// The values; empty for any.
        values: Vec<Value>,
    },
    /// The whole body is one of these texts, white space around it aside.
    Text(Vec<String>),
}

impl Shape {
    /// Whether a body has the shape. `json` is the body as JSON, if it is that.
    #[must_use]
    pub fn fits(&self, json: Option<&Value>, text: &str) -> bool {
        match self {
            Self::Json { at, kind, values } => {
                json.and_then(|json| at.find(json)).is_some_and(|found| {
                    kind.is_of(found) && (values.is_empty() || values.contains(found))
                })
            }
            Self::Text(texts) => texts.iter().any(|it| it == text.trim()),
        }
    }
}

/// How a target's own answer is told from a proxy's: by its body's shape, by a header, or by both.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnAnswer {
    /// Its body has this shape, if one is declared.
    pub shape: Option<Shape>,
    /// And it has this header with this value, if one is declared; the value without regard to case.
    pub header: Option<(HeaderName, String)>,
}

impl OwnAnswer {
    /// Whether an answer is so. `json` is the body as JSON, if it is that.
    #[must_use]
    pub fn fits(&self, headers: &http::HeaderMap, json: Option<&Value>, text: &str) -> bool {
        let has = |(name, value): &(HeaderName, String)| {
            headers.get_all(name).iter().any(|found| {
                found.to_str().is_ok_and(|found| found.trim().eq_ignore_ascii_case(value))
            })
        };
        self.header.as_ref().is_none_or(has)
            && self.shape.as_ref().is_none_or(|shape| shape.fits(json, text))
    }
}

/// A type of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonKind {
    /// A text.
    String,
    /// A number without a fraction.
    Integer,
    /// True or false.
    Boolean,
    /// A list.
    Array,
    /// An object.
    Object,
}

impl JsonKind {
    /// Every type.
    pub const ALL: [Self; 5] =
        [Self::String, Self::Integer, Self::Boolean, Self::Array, Self::Object];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    fn is_of(self, value: &Value) -> bool {
        match self {
            Self::String => value.as_str().is_some(),
            Self::Integer => value.as_number().is_some_and(|it| it.as_i64().is_some()),
            Self::Boolean => value.as_bool().is_some(),
            Self::Array => value.as_array().is_some(),
            Self::Object => value.as_object().is_some(),
        }
    }
}

/// How the answer to a lookup is read.
#[derive(Debug)]
pub struct LookupRules {
    /// What a match is.
    pub matching: Matching,
    /// Where the target's own ID stands in a match.
    pub external_id: Option<Pointer>,
    /// Makes the tool's result of a match. The match is its `reply`.
    pub result: ResultTemplate,
}

/// What a match is.
#[derive(Debug, Clone, PartialEq)]
pub enum Matching {
    /// Status 200 with a list, in which each element whose field fits is a match.
    Items {
        /// Where the list stands in a page's body.
        items: Pointer,
        /// Where the text that is compared stands in an element.
        field: Pointer,
        /// How it is compared with the text that was frozen with the request.
        compare: Compare,
        /// How one knows that every page was seen.
        pages: Pages,
    },
    /// The address names the effect alone: the status tells.
    Status {
        /// It is there.
        found: Vec<u16>,
        /// It is not, if the answer is the target's own.
        absent: Vec<u16>,
        /// How the target's own answer is known from a proxy's.
        own: OwnAnswer,
    },
}

impl Matching {
    /// What is frozen with a search: two of one text take the same answers for matches. A search
    /// that was frozen under another one could miss what is there, or find what is not ours. How
    /// many pages are looked at is no part of it: too few leave a search open.
    #[must_use]
    pub fn frozen(&self) -> String {
        match self {
            Self::Items { items, field, compare, pages } => {
                let (items, field) = (items.as_str(), field.as_str());
                let next = match pages {
                    Pages::Complete => "complete".to_owned(),
                    Pages::NextAt { next, .. } => format!("next {:?}", next.as_str()),
                    Pages::LinkHeader { .. } => "link".to_owned(),
                };
                format!("items {items:?} field {field:?} {compare:?} {next}")
            }
            Self::Status { found, absent, own } => {
                format!("status {found:?} {absent:?} {own:?}")
            }
        }
    }
}

/// How a field is compared with the frozen text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// They are equal.
    Equals,
    /// The field contains the text.
    Contains,
}

impl Compare {
    /// Whether a field's text is a match for the frozen one.
    #[must_use]
    pub fn fits(self, field: &str, frozen: &str) -> bool {
        match self {
            Self::Equals => field == frozen,
            Self::Contains => field.contains(frozen),
        }
    }
}

/// How one knows that a search was complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pages {
    /// The target always answers with everything.
    Complete,
    /// The next page's address stands here in the body; nothing, null or an empty text on the last.
    /// An address of another origin makes the search open.
    NextAt {
        /// The place.
        next: Pointer,
        /// Over so many pages the search stays open.
        max_pages: u32,
    },
    /// The next page's address stands in the `Link` header with `rel="next"` (RFC 8288).
    LinkHeader {
        /// As in [`NextAt`](Self::NextAt).
        max_pages: u32,
    },
}

/// What becomes of one answer that was applied: for whoever sends.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The target's own ID.
    pub external_id: Option<String>,
    /// What a replay gives.
    pub result: StoredResult,
}

impl ResponseRules {
    /// What is declared of an answer, with the evidence of an applied request. `json` is the body as
    /// JSON, if it is that; `connector` is for words of ours.
    #[must_use]
    pub fn read(
        &self,
        connector: &str,
        status: u16,
        headers: &http::HeaderMap,
        json: Option<&Value>,
        text: &str,
    ) -> (Declared, Option<Evidence>) {
        let applied = || match self.evidence(connector, json, text) {
            Some(evidence) => (Declared::Success, Some(evidence)),
            None => (Declared::BrokenSuccess, None),
        };
        if self.success.contains(&status) {
            return applied();
        }
        let declared = match self.meaning(status, headers, json, text) {
            Some(Meaning::Applied) => return applied(),
            Some(Meaning::Refused) => Declared::Refusal,
            Some(Meaning::NotApplied) => Declared::NotDone,
            Some(Meaning::KeyReused) => Declared::KeyReused,
            Some(Meaning::KeyReplayed) => Declared::KeyReplayed,
            Some(Meaning::Unknown) | None => Declared::Nothing,
        };
        (declared, None)
    }

    /// The first declared answer that fits; successes are not among them.
    #[must_use]
    pub fn meaning(
        &self,
        status: u16,
        headers: &http::HeaderMap,
        json: Option<&Value>,
        text: &str,
    ) -> Option<Meaning> {
        let fits = |rule: &&AnswerRule| {
            rule.statuses.contains(&status) && rule.own.fits(headers, json, text)
        };
        self.answers.iter().find(fits).map(|rule| rule.means)
    }

    /// Reads a body as that of an applied request; `None` if it is not what was promised.
    #[must_use]
    pub fn evidence(&self, connector: &str, json: Option<&Value>, text: &str) -> Option<Evidence> {
        match &self.body {
            BodyRule::Json => json.map(|_| ())?,
            BodyRule::Text(expected) => (text.trim() == expected).then_some(())?,
            BodyRule::Ignored => (),
        }
        let external_id = match &self.external_id {
            Some(at) => Some(external_id(json.and_then(|json| at.find(json)))?),
            None => None,
        };
        let result = self.result.render(connector, json, external_id.as_deref());
        Some(Evidence { external_id, result })
    }
}

impl LookupRules {
    /// Reads a match; `None` if its declared ID is not there.
    #[must_use]
    pub fn evidence(&self, connector: &str, item: Option<&Value>) -> Option<Evidence> {
        let external_id = match &self.external_id {
            Some(at) => Some(external_id(item.and_then(|item| at.find(item)))?),
            None => None,
        };
        let result = self.result.render(connector, item, external_id.as_deref());
        Some(Evidence { external_id, result })
    }
}

/// How long a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands, TLS and all.
    pub connect: Duration,
    /// From the first byte to the last of the answer.
    pub total: Duration,
}
