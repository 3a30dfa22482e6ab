//! A connector as the worker's target: sends the frozen request with the present credential, and
//! says what the answer proves.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use counterfoil_core::delivery::{
    AnswerSeen, Contract, Declared, ErrorClass, LookupEnd, ParkReason, Proof, SendEnd, TargetName,
    Then, judge,
};
use counterfoil_core::json::{self, JsonLimits, Value};
use counterfoil_core::retry::retry_after;
use counterfoil_core::time::Timestamp;
use counterfoil_engine::{Target, TargetFuture, TargetLimits};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio_rustls::rustls::ClientConfig;

use super::{Connector, Connectors, Evidence, FrozenCall, FrozenRequest, Placed};
use crate::config::Environment;
use crate::outbound::{
    AddressPolicy, Answer, Body, Fetched, Outbound, OutboundLimits, OutboundRequest,
};

/// No answer that is longer is read.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// Services mostly close an idle connection after 5 seconds or later.
const KEEP_IDLE: Duration = Duration::from_secs(3);

/// One connector's service.
#[derive(Debug)]
pub struct HttpTarget {
    pub(super) connector: Arc<Connector>,
    pub(super) client: Outbound,
    environment: Environment,
}

/// The targets of all connectors. Secrets are read from `environment` and from files when a request
/// is sent.
#[must_use]
pub fn targets(
    connectors: &Connectors,
    environment: &Environment,
    tls: Option<&Arc<ClientConfig>>,
) -> Vec<Arc<dyn Target>> {
    connectors
        .iter()
        .map(|connector| {
            let target = HttpTarget::new(Arc::clone(connector), environment.clone(), tls);
            Arc::new(target) as Arc<dyn Target>
        })
        .collect()
}

impl HttpTarget {
    /// The service of one connector.
    #[must_use]
    pub fn new(
        connector: Arc<Connector>,
        environment: Environment,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Self {
        let limits = OutboundLimits {
            connect: connector.timeouts.connect,
            total: connector.timeouts.total,
            max_answer_bytes: MAX_ANSWER_BYTES,
            // A request that met a closing connection is lost: only a key, or a target's owner who
            // accepts doubles, makes light of that.
            keep_idle: match connector.terms.contract {
                Contract::Key { .. } | Contract::KeyAndLookup { .. } | Contract::AtLeastOnce => {
                    Some(KEEP_IDLE)
                }
                Contract::Lookup { .. } | Contract::Never => None,
            },
        };
        let networks = connector.networks.clone();
        let policy = match connector.origin().starts_with("http:") {
            true => AddressPolicy::only(networks),
            false => AddressPolicy::new(networks),
        };
        let client = Outbound::new(limits, policy, tls.map(Arc::clone));
        Self { connector, client, environment }
    }

    async fn send_once(&self, stored: &[u8], deadline: Instant) -> SendEnd {
        let frozen = match FrozenRequest::decode(stored) {
            Ok(frozen) => frozen,
            Err(damaged) => {
                return not_applied(ErrorClass::Local, damaged.to_string(), Then::DeadLetter);
            }
        };
        let request = match self.with_credential(&frozen.request, frozen.account.is_some()) {
            Ok(request) => request,
            Err(Unsendable::Credential(words)) => {
                return not_applied(ErrorClass::Credential, words, Then::ParkTarget);
            }
            Err(Unsendable::Request(words)) => {
                return not_applied(ErrorClass::Local, words.into(), Then::DeadLetter);
            }
        };
        match self.client.fetch(request, deadline).await {
            Fetched::NotSent { class, words } => {
                not_applied(class, words, Then::Retry { after: None })
            }
            Fetched::Lost { words } => {
                SendEnd::Unknown { class: ErrorClass::NoReply, words, retry_after: None }
            }
            Fetched::Answer(answer) => self.read(&answer),
        }
    }

    /// What an answer proves.
    fn read(&self, answer: &Answer) -> SendEnd {
        let rules = &self.connector.responses;
        let status = answer.status.as_u16();
        let (text, json) = body_of(answer);
        let json = json.as_ref();
        let name = self.connector.name.as_str();
        let (declared, found) = rules.read(name, status, &answer.headers, json, &text);
        let proof = judge(&AnswerSeen {
            status,
            declared,
            url_holds_arguments: rules.url_holds_arguments,
            rate_limited: is_rate_limited(&answer.headers),
            retry_after: pause_asked_for(&answer.headers),
        });
        match (proof, found) {
            (Proof::Applied, Some(evidence)) => applied(evidence),
            (Proof::Applied, None) => unreadable(status),
            (Proof::NotApplied(class, then), _) => not_applied(class, words(status), then),
            (Proof::Unknown(class, retry_after), _) => {
                let words = match (&answer.body, declared) {
                    (Body::Unreadable(why), Declared::BrokenSuccess) => {
                        format!("HTTP {status}, and of its body {why}")
                    }
                    (_, Declared::BrokenSuccess) => {
                        format!("HTTP {status} with a body that is not what was declared")
                    }
                    _ => words(status),
                };
                SendEnd::Unknown { class, words, retry_after }
            }
        }
    }

    /// A frozen call with the credential as it is now.
    pub(super) fn with_credential(
        &self,
        call: &FrozenCall,
        needs_one: bool,
    ) -> Result<OutboundRequest, Unsendable> {
        let mut headers = HeaderMap::with_capacity(call.headers.len() + 1);
        for (name, value) in &call.headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| Unsendable::Request("a stored header has no valid name"))?;
            let value = HeaderValue::from_str(value)
                .map_err(|_| Unsendable::Request("a stored header has no valid value"))?;
            headers.append(name, value);
        }
        let mut url = call.url.clone();
        match (&self.connector.credential, needs_one) {
            (Some(credential), _) => {
                let refused =
                    |error: super::CredentialError| Unsendable::Credential(error.to_string());
                let secret = credential.secret(&self.environment).map_err(refused)?;
                match credential.place(&secret) {
                    Placed::Header(name, value) => {
                        headers.insert(name, value);
                    }
                    Placed::PathEnd(rest) => url.push_str(rest.expose()),
                }
            }
            (None, true) => {
                let words = "the request needs a credential, and the connector names none any more";
                return Err(Unsendable::Credential(words.into()));
            }
            (None, false) => {}
        }
        Ok(OutboundRequest {
            method: Method::from_bytes(call.method.as_bytes())
                .map_err(|_| Unsendable::Request("the stored method is no HTTP method"))?,
            uri: url.parse().map_err(|_| Unsendable::Request("the stored URL cannot be sent"))?,
            headers,
            body: call.body.clone().map_or_else(Bytes::new, Bytes::from),
        })
    }
}

/// Why a frozen call cannot go out. Shows nothing of it.
#[derive(Debug)]
pub(super) enum Unsendable {
    /// There is no usable credential.
    Credential(String),
    /// The call itself is damaged.
    Request(&'static str),
}

impl Target for HttpTarget {
    fn name(&self) -> &TargetName {
        &self.connector.name
    }

    fn limits(&self) -> TargetLimits {
        self.connector.limits
    }

    /// A credential never goes to another origin than the one that the connector names now, and
    /// what may have been made under one account is not sent under another.
    fn check(&self, request: &[u8], maybe_sent: bool) -> Result<(), ParkReason> {
        // What cannot be read is told by `send`, which ends the item.
        let Ok(frozen) = FrozenRequest::decode(request) else { return Ok(()) };
        let account = self.connector.credential.as_ref().map(|credential| &*credential.account);
        let moved = !is_of_origin(&frozen.request.url, self.connector.origin());
        if moved || (maybe_sent && frozen.account.as_deref() != account) {
            return Err(ParkReason::AccountChanged);
        }
        Ok(())
    }

    fn send(&self, request: Arc<[u8]>, deadline: Instant) -> TargetFuture<'_, SendEnd> {
        Box::pin(async move { self.send_once(&request, deadline).await })
    }

    fn look_up(
        &self,
        request: Arc<[u8]>,
        begun_at: Timestamp,
        deadline: Instant,
    ) -> TargetFuture<'_, LookupEnd> {
        Box::pin(async move { self.search(&request, begun_at, deadline).await })
    }
}

/// Whether a URL lies under `scheme://host[:port]`.
pub(super) fn is_of_origin(url: &str, origin: &str) -> bool {
    url.strip_prefix(origin).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
}

/// The body as text and, if it is that, as JSON; empty where it could not be read whole.
pub(super) fn body_of(answer: &Answer) -> (String, Option<Value>) {
    let Body::Whole(bytes) = &answer.body else { return (String::new(), None) };
    let Ok(text) = std::str::from_utf8(bytes) else { return (String::new(), None) };
    (text.to_owned(), json::parse(bytes, &JsonLimits::default()).ok())
}

/// The pause that an answer asks for: Retry-After, else the reset of a rate limit that is used up.
pub(super) fn pause_asked_for(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let ms = i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX);
    if let Some(value) = text("retry-after") {
        return retry_after(value, Timestamp::from_ms(ms));
    }
    let reset: u64 = text("x-ratelimit-reset").filter(|_| is_used_up(headers))?.parse().ok()?;
    Some(Duration::from_secs(reset.saturating_sub(since_1970.as_secs()).max(1)))
}

pub(super) fn is_rate_limited(headers: &HeaderMap) -> bool {
    headers.contains_key("retry-after") || is_used_up(headers)
}

fn is_used_up(headers: &HeaderMap) -> bool {
    ["x-ratelimit-remaining", "ratelimit-remaining"]
        .iter()
        .any(|name| headers.get(*name).is_some_and(|left| left.as_bytes().trim_ascii() == b"0"))
}

fn applied(Evidence { external_id, result }: Evidence) -> SendEnd {
    SendEnd::Applied { external_id, result }
}

const fn not_applied(class: ErrorClass, words: String, then: Then) -> SendEnd {
    SendEnd::NotApplied { class, words, then }
}

fn unreadable(status: u16) -> SendEnd {
    let words = format!("HTTP {status} with a body that is not what was declared");
    SendEnd::Unknown { class: ErrorClass::Unreadable, words, retry_after: None }
}

/// Nothing that a service wrote is shown: it may repeat what it was sent.
fn words(status: u16) -> String {
    let reason =
        http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    reason.map_or_else(|| format!("HTTP {status}"), |reason| format!("HTTP {status} {reason}"))
}
